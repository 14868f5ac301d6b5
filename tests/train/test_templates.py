"""A hint stands right before the failed turn in the chat templates of real models, also after a tool result."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
trl = pytest.importorskip("trl")

from composer_hub.train.hinting import Hinter, TemplateError, check_places  # noqa: E402

SHIPPED = Path(trl.__file__).parent / "chat_templates"
# Written like Kimi K2's: TRL ships none.
KIMI = """{%- for m in messages -%}
{%- if m.role == 'assistant' -%}<|im_assistant|>assistant<|im_middle|>{{ m.content }}
{%- if m.tool_calls -%}<|tool_calls_section_begin|>{%- for c in m.tool_calls -%}
<|tool_call_begin|>functions.{{ c.function.name }}:0<|tool_call_argument_begin|>
{{- c.function.arguments | tojson }}<|tool_call_end|>
{%- endfor -%}<|tool_calls_section_end|>{%- endif -%}<|im_end|>
{%- elif m.role == 'tool' -%}<|im_system|>{{ m.name }}<|im_middle|>## Return of functions.{{ m.name }}:0
{{ m.content }}<|im_end|>
{%- else -%}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>{{ m.content }}<|im_end|>{%- endif -%}
{%- endfor -%}{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}"""
# A conversation that may not go on with a user message after a result.
STRICT = """{%- for m in messages -%}
{%- if loop.index0 and m.role == 'user' and messages[loop.index0 - 1].role == 'tool' -%}
{{ raise_exception('user') }}{%- endif -%}
[{{ m.role }}]{{ m.content }}
{%- endfor -%}{%- if add_generation_prompt and messages[-1].role != 'tool' -%}[assistant]{%- endif -%}"""
WITH_TOOLS = {
    "Qwen2.5-Coder": "qwen2_5",
    "Qwen3": "qwen3_training",
    "Qwen3, 2507": "qwen3_instruct_2507",
    "Qwen3.5": "qwen3_5_think_training",
    "Qwen3.6": "qwen3_6",
    "Qwen3.8": "qwen3_8",
    "GLM-4 MoE": "glm4moe_training",
    "gpt-oss": "gptoss_training",
    "Llama 3.1": "llama3_1",
    "Llama 3.2": "llama3_2",
    "Gemma 4": "gemma4",
    "Gemma 4, version 5": "gemma4_v5",
    "DeepSeek R1": "deepseek_r1_distill",
    "Nemotron 3": "nemotron_3_nano_training",
    "LFM2": "lfm2_v2_training",
}
CALL = {"type": "function", "function": {"name": "plus", "arguments": {"a": 1}}}
TASK = [{"role": "user", "content": "1+2"}]
FAILED = [
    *TASK,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "name": "plus", "content": "no such tool"},
]
HINT = "Reminder: use `add`."


class Template:
    """A template with the tiny world's tokenizer."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        self.tokenizer, self.text = tokenizer, text

    def __call__(self, messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> list[int]:
        return self.tokenizer.apply_chat_template(
            messages,
            add_generation_prompt=add_generation_prompt,
            tokenize=True,
            return_dict=False,
            chat_template=self.text,
        )

    def hinted(self, messages: list[dict[str, Any]]) -> str:
        prefix = self(messages, add_generation_prompt=True)
        return self.tokenizer.decode(Hinter(self).hinted(prefix, HINT))

    def rendered(self, messages: list[dict[str, Any]]) -> str:
        return self.tokenizer.decode(self(messages, add_generation_prompt=True))


@pytest.mark.parametrize("name", [*WITH_TOOLS, "Kimi"])
@pytest.mark.parametrize("start", [TASK, FAILED], ids=["first turn", "after a result"])
def test_a_hint_is_the_last_message_before_the_turn(world: Any, name: str, start: list[dict[str, Any]]) -> None:
    text = KIMI if name == "Kimi" else (SHIPPED / f"{WITH_TOOLS[name]}.jinja").read_text()
    template = Template(world[1], text)
    found, plain = template.hinted(start), template.rendered(start)
    before, _, after = found.partition(HINT)
    assert plain.startswith(before[: before.rfind(start[-1]["content"]) + len(start[-1]["content"])])
    # After the hint stands what stands after any user message.
    assert after == template.rendered([{"role": "user", "content": HINT}]).partition(HINT)[2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_places(Hinter(template))


def test_gemma_opens_a_user_turn_right_after_the_result(world: Any) -> None:
    template = Template(world[1], (SHIPPED / "gemma4.jinja").read_text())
    assert template.rendered(FAILED).endswith("<tool_response|>")  # the model goes on in its turn
    assert template.hinted(FAILED).endswith(f"<tool_response|><|turn>user\n{HINT}<turn|>\n<|turn>model\n")


def test_a_template_without_a_place_after_a_result_is_warned_about(world: Any) -> None:
    with pytest.warns(UserWarning, match="no place for a hint after a tool result"):
        check_places(Hinter(Template(world[1], STRICT)))


def test_a_template_without_any_place_is_refused(world: Any) -> None:
    text = "{% for m in messages %}[{{ messages|length }}{{ m.role }}]{{ m.content }}{% endfor %}"
    with pytest.raises(TemplateError, match="no place for a hint"):
        check_places(Hinter(Template(world[1], text)))
