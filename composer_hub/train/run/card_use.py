"""The parts of a model card for people who want to use the model: quick start, intended use, citations, license."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from composer_hub.output import plural

_MAX_TOOL_CHARS = 3_000
_WORKS = {
    "policy": "GRPO: [DeepSeekMath](https://arxiv.org/abs/2402.03300)",
    "hint": "self-distillation from feedback: [SDPO](https://arxiv.org/abs/2601.20802)",
    "replay": "preferences: [DPO](https://arxiv.org/abs/2305.18290)",
}


def oracles_text(oracles: tuple[int, int]) -> str:
    """Say how many tasks have a hidden oracle."""
    number, tasks = oracles
    rest = "" if number == tasks else " Visible tests alone decide the others, and a forged report passes them."
    return f"{number:,} of {plural(tasks, 'task')} have a hidden oracle.{rest}"


def quick_start(repo: str, revision: str, tools: Sequence[Mapping[str, Any]], *, is_adapter: bool) -> str:
    """Return a script that loads the model and offers it the tools it was trained with."""
    schemas = json.dumps(list(tools), indent=1, ensure_ascii=False)
    # Raw, because JSON has escapes of its own.
    line = f"json.loads(r'''{schemas}''')"
    if len(schemas) > _MAX_TOOL_CHARS or "'''" in schemas:
        names = ", ".join(str(tool.get("function", tool).get("name", "")) for tool in tools)
        line = f"[]  # the JSON schemas of {names}"
    package, kind = ("peft", "AutoPeftModelForCausalLM") if is_adapter else ("transformers", "AutoModelForCausalLM")
    at = f', revision="{revision}"' if "/" in repo else ""
    imports = f"from {package} import {kind}\nfrom transformers import AutoTokenizer"
    if not is_adapter:
        imports = f"from transformers import {kind}, AutoTokenizer"
    return f"""```python
import json

{imports}

model = {kind}.from_pretrained("{repo}"{at})
tokenizer = AutoTokenizer.from_pretrained("{repo}"{at})
tools = {line}
messages = [{{"role": "user", "content": "Your task"}}]
inputs = tokenizer.apply_chat_template(
    messages, tools=tools, add_generation_prompt=True, return_dict=True, return_tensors="pt"
)
output = model.generate(**inputs, max_new_tokens=256)
print(tokenizer.decode(output[0][inputs["input_ids"].shape[1] :]))
```"""


def intended_use(environment: str) -> str:
    """Say what the model is for, and what it was not tested for."""
    where = f"tasks like those of the environment `{environment}`" if environment else "tasks like those of its data"
    return (
        f"An agent that calls tools, in {where}. It was not tested on other tasks or for safety. Run its tool calls in "
        "a sandbox, because it was rewarded for results and not for caution."
    )


def citations(weights: Mapping[str, float]) -> str:
    """Return the works that the channels of a run follow."""
    works = [work for channel, work in _WORKS.items() if weights.get(channel)]
    return "\n".join(f"- {work}" for work in [*works, "trainer: [TRL](https://github.com/huggingface/trl)"])


def example_hint(hint: Mapping[str, Any] | None) -> str:
    """Show one of the hints that the model learned from."""
    if not hint:
        return ""
    text = "\n".join(f"> {line}" for line in str(hint["text"]).splitlines())
    return f"One of them, by the writer `{hint['writer']}` at an error of the kind `{hint['kind']}`:\n\n{text}"


def license_of(folder: Path) -> str:
    """Return the license that a model's card names, or nothing."""
    try:
        head = (folder / "README.md").read_text(encoding="utf-8").split("---", 2)[1]
        values = yaml.safe_load(head)
    except (OSError, UnicodeDecodeError, IndexError, yaml.YAMLError):
        return ""
    return str(values.get("license_name") or values.get("license") or "") if isinstance(values, dict) else ""
