"""The model card: inputs, options, progress, results and cost of a run, filled into `dataset_cards/model.md`."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

from composer_hub.hub import Parent, card_template
from composer_hub.output import plural
from composer_hub.pairs.card import fenced
from composer_hub.train.run.plots import RunPlot, series

_COURSE = {
    "reward": "mean reward",
    "loss": "total loss",
    "entropy": "entropy of the policy, nats",
    "kl": "KL to the reference, nats",
    "grad_norm": "gradient norm",
    "completions/mean_length": "tokens per rollout",
    "tools/failure_frequency": "failed tool calls",
    "channel/hint/divergence": "hint divergence",
    "channel/hint/uplift": "hint uplift, nats",
    "channel/hint/sites_per_rollout": "hint sites per rollout",
    "channel/hint_traces/divergence": "hint divergence on traces",
    "channel/hint_traces/uplift": "hint uplift on traces, nats",
    "channel/replay/loss": "replay loss",
    "channel/replay/accuracy": "replay accuracy",
    "channel/replay/chosen_drift": "drift of log p(chosen)",
}
NO_HINTS = (
    "No hint was placed: no turn went wrong, no writer had a hint, all were refused, or the hinted prompts are longer "
    "than"
)
_WRITERS = {
    "channel/hint/writer/": "",
    "channel/hint_traces/writer/": " in traces",
}  # prefix of the metrics -> suffix of the table's title
_WORKS = {
    "policy": "GRPO: [DeepSeekMath](https://arxiv.org/abs/2402.03300)",
    "hint": "self-distillation from feedback: [SDPO](https://arxiv.org/abs/2601.20802)",
    "replay": "preferences: [DPO](https://arxiv.org/abs/2305.18290)",
}
_MAX_SHOWN = 3_000  # characters of tools, a prompt or a rollout
_ALARMS = 5  # further ones are only counted
_WINDOW = 5  # log lines averaged at each end; fewer if the two ends would overlap


@dataclass(frozen=True)
class ModelFacts:
    """The facts of a card."""

    repo: str
    run_id: str
    license: str
    base: Parent
    output: str = ""  # folder of the run
    checkpoints_repo: str = ""
    parents: tuple[Parent, ...] = ()  # data
    weights: Mapping[str, float] = field(default_factory=dict)  # channel -> weight
    teacher: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)  # other than the defaults
    environment: str = ""
    rewards: tuple[str, ...] = ()
    oracles: tuple[int, int, int] | None = None  # tasks with a hidden oracle, all, and those that are played
    dropped: Mapping[str, int] = field(default_factory=dict)  # pairs that were left out, by reason
    own_pairs: Mapping[str, int] = field(default_factory=dict)  # rollouts, their failed turns, and pairs
    hinted_steps: Mapping[str, int] = field(default_factory=dict)  # of traces: all, and those with sampled tokens
    dropped_steps: Mapping[str, int] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    plots: Sequence[RunPlot] = ()
    evals: Mapping[str, str] = field(default_factory=dict)  # name -> value with its interval
    hardware: str = ""
    seconds: float = 0.0
    usd_per_hour: float | None = None
    is_adapter: bool = False
    is_finished: bool = True
    num_steps: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    reproduce: str = ""
    best: tuple[str, float | None] | None = None  # the best checkpoint and its mean reward
    alarms: Sequence[str] = ()  # of the watchdogs
    preflight: Sequence[Mapping[str, Any]] = ()  # effect of the hints before training, by writer and kind
    retries: Sequence[Mapping[str, Any]] = ()  # retries of failed turns before training, by writer and kind
    tags: tuple[str, ...] = ()
    tools: Sequence[Mapping[str, Any]] = ()  # JSON schemas of the environment's tools
    example_hint: Mapping[str, Any] | None = None  # text, writer and kind
    example: Mapping[str, Any] | None = None  # a rollout: prompt, messages, rewards, step; the answer of the script
    base_license: str = ""  # as the base model's card names it

    @property
    def source(self) -> tuple[str, str]:
        """Return the repository that this model can be loaded from and its tag, or a folder of this machine."""
        if self.is_finished and "/" in self.repo:
            return self.repo, f"run-{self.run_id}"
        if not self.is_finished and self.checkpoints_repo:
            return self.checkpoints_repo, f"run-{self.run_id}-step-{self.num_steps}"
        return f"{self.output}/{'final' if self.is_finished else f'checkpoint-{self.num_steps}'}", ""


def model_card(facts: ModelFacts) -> str:
    """Return the whole README.md of a model."""
    body = string.Template(card_template("model")).substitute(
        pretty_name=facts.repo.split("/")[-1] or "model",
        summary=_summary(facts),
        data=_data(facts),
        channels=_channels(facts),
        hints="\n\n".join(
            filter(
                None,
                [
                    _hints(facts.history) + _preflight(facts.preflight) + _retries(facts.retries),
                    example_hint(facts.example_hint),
                ],
            )
        ),
        quick_start=quick_start(facts) + answer(facts.example) + rollout(facts.example),
        intended_use=intended_use(facts.environment),
        citations=citations(facts.weights),
        options=_options(facts.options),
        course=_course(facts.history, facts.weights) + _best(facts),
        plots=_pictures(facts.plots),
        evals=_evals(facts),
        cost=_cost(facts),
        observed=_observed(facts),
        reproduce=facts.reproduce,
        license=facts.license,
        base_license=f"License of the base model: {facts.base_license or 'not stated in its card'}.",
    )
    head = yaml.safe_dump(_metadata(facts), sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{head}---\n\n{body.strip()}\n"


def _metadata(facts: ModelFacts) -> dict[str, Any]:
    base = facts.base.repo if "/" in facts.base.repo else None
    metadata = {
        "license": facts.license,
        "library_name": "peft" if facts.is_adapter else "transformers",
        "pipeline_tag": "text-generation",
        "base_model": base,
        "base_model_relation": ("adapter" if facts.is_adapter else "finetune") if base else None,
        "datasets": sorted(
            {parent.repo for parent in facts.parents if parent.type == "dataset" and "/" in parent.repo}
        ),
        "tags": list(dict.fromkeys(["composer-hub", "trl", *_method(facts), "agents", "tool-use", *facts.tags])),
    }
    return {key: value for key, value in metadata.items() if value not in ([], None)}


def _table(head: str, align: str, rows: Sequence[str]) -> str:
    return "\n".join([f"| {head} |", align, *(f"| {row} |" for row in rows)])


def _summary(facts: ModelFacts) -> str:
    channels = ", ".join(name for name, weight in facts.weights.items() if weight)
    unfinished = "" if facts.is_finished else " **The run is not finished**: this is a checkpoint."
    environment = f" in the environment `{facts.environment}`" if facts.environment else ""
    return (
        f"`{facts.base.repo}` at `{facts.base.revision}`, trained for {facts.num_steps:,} steps{environment} on "
        f"{channels} (run `{facts.run_id}`).{unfinished}"
    )


def _data(facts: ModelFacts) -> str:
    rows = [
        f"{parent.role} | {parent.type} | `{parent.repo}` | {parent.tag or '-'} | `{parent.revision}`"
        for parent in (facts.base, *facts.parents)
    ]
    parts = [_table("role | type | repository | tag | revision", "|---|---|---|---|---|", rows)]
    if facts.base.type == "package":
        line = f'from composer_hub.train.tiny import small_folder; print(small_folder("{facts.base.repo}"))'
        parts.append(f"The base model is part of composer-hub: `python -c '{line}'` prints its folder.")
    elif facts.base.type == "folder":
        parts.append("The base model was a folder of the run's machine. Its revision is the digest of its weights.")
    if sites := facts.hinted_steps.get("sites"):
        num_exact = facts.hinted_steps.get("as_sampled", 0)
        parts.append(
            f"Hinted steps of traces: {sites:,}, of which {num_exact:,} with the exact tokens that were sampled."
        )
    if facts.own_pairs:
        parts.append(own_pairs_text(facts.own_pairs))
    for noun, dropped in (("Hinted steps", facts.dropped_steps), ("Pairs", facts.dropped)):
        if left_out := ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in dropped.items()):
            parts.append(f"{noun} left out: {left_out}.")
    return "\n\n".join(parts)


def own_pairs_text(counts: Mapping[str, int]) -> str:
    """Describe the pairs of a run for its output and its card."""
    rollouts, turns, pairs = (f"{counts[name]:,}" for name in ("rollouts", "failed_turns", "pairs"))
    text = f"Own pairs: {rollouts} rollouts of the starting model had {turns} failed turns with a hint; "
    if not counts["pairs"]:
        return text + "none of them worked when it was tried again, so the replay channel is off."
    left_out = f" {counts['too_long']:,} more are longer than max_pair_tokens." if counts.get("too_long") else ""
    return text + f"{pairs} worked when they were tried again, and are learned without the hint.{left_out}"


def oracles_text(oracles: tuple[int, int, int]) -> str:
    """Describe how many tasks have a hidden oracle, and whether the others are played."""
    number, tasks, played = oracles
    rest = ""
    if number < tasks:
        rest = " The others are left out." if played == number else " Visible tests alone decide the others."
    return f"{number:,} of {plural(tasks, 'task')} have a hidden oracle.{rest}"


def _method(facts: ModelFacts) -> list[str]:
    """Return the tags that name the training methods."""
    channels = {"grpo": "policy", "self-distillation": "hint", "dpo": "replay"}
    return [tag for tag, channel in channels.items() if facts.weights.get(channel)]


def _channels(facts: ModelFacts) -> str:
    parts = [
        _table("channel | weight", "|---|---:|", [f"{name} | {weight:g}" for name, weight in facts.weights.items()])
    ]
    if facts.weights.get("hint") and facts.teacher:
        parts.append(f"The hint's teacher is {facts.teacher}.")
    if facts.rewards:
        parts.append(f"Rewards: {', '.join(f'`{name}`' for name in facts.rewards)}.")
    if facts.oracles:
        parts.append(oracles_text(facts.oracles))
    return "\n\n".join(parts)


def has_hints(history: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if any hint was learned from."""
    return any(key.startswith("channel/hint") and "/writer/" in key for line in history for key in line)


def _hints(history: Sequence[Mapping[str, Any]]) -> str:
    """Return the share of each hint writer over the run."""
    tables = [table for prefix, suffix in _WRITERS.items() if (table := _shares(history, prefix, suffix))]
    return "\n\n".join(tables) or "No hint was read."


def _shares(history: Sequence[Mapping[str, Any]], prefix: str, suffix: str) -> str:
    writers = sorted({key for line in history for key in line if key.startswith(prefix)})
    num_lines = sum(any(key in line for key in writers) for line in history)
    if not writers:
        return ""
    shares = {key.removeprefix(prefix): sum(value for _, value in series(history, key)) / num_lines for key in writers}
    rows = [f"{writer} | {share:.0%}" for writer, share in sorted(shares.items(), key=lambda one: -one[1])]
    return _table(f"hint writer | share of the sites{suffix}", "|---|---:|", rows)


def _preflight(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the effect of the hints before training, in nats."""
    if not lines:
        return ""
    rows = [
        f"{line['writer']} | {line['kind']} | {line['num_sites']} | {line['lowered']:.2f} | "
        f"{'-' if line['raised'] is None else format(line['raised'], '.2f')} | {line['share_lifting']:.0%}"
        for line in lines
    ]
    head = "hint writer | error | sites | failed call lowered | corrected call raised | lifting"
    table = _table(head, "|---|---|---:|---:|---:|---:|", rows)
    return f"\n\nBefore training, measured on the base model, in nats:\n\n{table}"


def _retries(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the share of retries that succeed with the hint, with a control hint, and without."""
    if not lines:
        return ""
    rows = [
        f"{line['writer']} | {line['kind']} | {line['num_sites']} | {line['hint']:.2f} | {line['control']:.2f} | "
        f"{line['none']:.2f} | {line['gain']:+.2f} ± {1.96 * line['error']:.2f}"
        for line in lines
    ]
    head = "hint writer | error | turns | with the hint | with a control | with nothing | gain over the control (95 %)"
    table = _table(head, "|---|---|---:|---:|---:|---:|---:|", rows)
    return f"\n\nBefore training, the share of retries from the same turns that succeed:\n\n{table}"


def _best(facts: ModelFacts) -> str:
    if facts.best is None:
        return ""
    name, score = facts.best
    return (
        f"\n\nThe best checkpoint was `{name}` (mean reward {score:.3g} since the save before it); this is step "
        f"{facts.num_steps:,}."
    )


def _options(options: Mapping[str, Any]) -> str:
    if not options:
        return ""
    table = _table("option | value", "|---|---|", [f"`{name}` | `{value}`" for name, value in sorted(options.items())])
    return f"<details><summary>Options that differ from their defaults</summary>\n\n{table}\n\n</details>"


def _course(history: Sequence[Mapping[str, Any]], weights: Mapping[str, float]) -> str:
    rows = []
    own = {f"channel/{name}/loss": f"{name} loss" for name in weights if name not in ("policy", "hint", "replay")}
    for key, label in (_COURSE | own).items():
        if ends := _ends(history, key):
            rows.append(f"{label} | {ends[0]:.4g} | {ends[1]:.4g}")
    if not rows:
        return "Nothing was logged."
    table = _table("metric | at the beginning | at the end", "|---|---:|---:|", rows)
    return f"Means of {_WINDOW} log lines, or of fewer if a metric was logged less often.\n\n{table}"


def _ends(history: Sequence[Mapping[str, Any]], key: str) -> tuple[float, float] | None:
    """Return the means of a metric's first and last log lines, which do not overlap unless there is only one."""
    values = [value for _, value in series(history, key)]
    window = min(_WINDOW, max(len(values) // 2, 1))
    return (mean(values[:window]), mean(values[-window:])) if values else None


def _pictures(plots: Sequence[RunPlot]) -> str:
    return "\n\n".join(
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="plots/{plot.name}-dark.png">'
        f'<img src="plots/{plot.name}-light.png" alt="{plot.alt}"></picture>'
        for plot in plots
    )


def _evals(facts: ModelFacts) -> str:
    if not facts.evals:
        hint = " The rewards above are on the training tasks themselves." if facts.weights.get("policy") else ""
        return f"No benchmark was run.{hint}"
    return _table("evaluation | value", "|---|---|", [f"{name} | {value}" for name, value in facts.evals.items()])


def _cost(facts: ModelFacts) -> str:
    hours = facts.seconds / 3600
    time = f"{facts.seconds:,.0f} s" if hours < 1 else f"{hours:.1f} h"
    usd = "; the price per hour is unknown"
    if facts.usd_per_hour is not None:
        usd = f", ${hours * facts.usd_per_hour:,.2f} at ${facts.usd_per_hour:g} per hour"
    libraries = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    return f"{time} of training on {facts.hardware or 'unknown hardware'}{usd}. {libraries}."


def _observed(facts: ModelFacts) -> str:
    """Return the warnings that this run's log and watchdogs give reason for."""
    history, alarms = facts.history, facts.alarms
    notes = [f"a watchdog barked at {alarm}" for alarm in alarms[:_ALARMS]]
    if len(alarms) > _ALARMS:
        notes.append(f"watchdogs barked {len(alarms) - _ALARMS:,} more times (`composer_run.json`).")
    if facts.weights.get("hint") and not has_hints(history):
        notes.append("no hint was placed, though the hint channel was on.")
    entropy, reward, drift = (_ends(history, key) for key in ("entropy", "reward", "channel/replay/chosen_drift"))
    if entropy and entropy[1] < 0.2 * entropy[0]:
        notes.append(f"entropy fell from {entropy[0]:.3g} to {entropy[1]:.3g}: little exploration is left.")
    if drift and drift[1] < -1.0:
        notes.append(f"log p(chosen) fell by {-drift[1]:.3g} nats against the reference.")
    if reward and reward[1] < reward[0]:
        notes.append(f"the mean reward ended lower ({reward[1]:.3g}) than it began ({reward[0]:.3g}).")
    return "\n".join(f"- **In this run** {note}" for note in notes)


# --------------------------------------------------------------------------------- for people who want to use the model


def quick_start(facts: ModelFacts) -> str:
    """Return a script that loads the model, offers it the tools it was trained with, and asks it a task of the run."""
    name, tag = facts.source
    place = f'"{name}"' + (f', revision="{tag}"' if tag else "")
    names = ", ".join(str(tool.get("function", tool).get("name", "")) for tool in facts.tools)
    prompt = facts.example["prompt"] if facts.example else [{"role": "user", "content": "Your task"}]
    imports, load = "from transformers import AutoModelForCausalLM, AutoTokenizer", ""
    if not facts.is_adapter:
        load = f"model = AutoModelForCausalLM.from_pretrained({place})"
    elif facts.base.type == "model":
        imports = "from peft import AutoPeftModelForCausalLM\nfrom transformers import AutoTokenizer"
        load = f"model = AutoPeftModelForCausalLM.from_pretrained({place})"
    else:
        of_the_package = facts.base.type == "package"
        base = f'small_folder("{facts.base.repo}")' if of_the_package else f'"{facts.base.repo}"'
        imports += (
            "\nfrom peft import PeftModel" + "\n\nfrom composer_hub.train.tiny import small_folder" * of_the_package
        )
        load = f"base = AutoModelForCausalLM.from_pretrained({base})\nmodel = PeftModel.from_pretrained(base, {place})"
    return f"""```python
import json

{imports}

{load}
tokenizer = AutoTokenizer.from_pretrained({place})
tools = {_json_literal(facts.tools, f"[]  # the JSON schemas of {names}")}
messages = {_json_literal(prompt, "[]  # a task; this one is too long for a card")}
inputs = tokenizer.apply_chat_template(
    messages, tools=tools, add_generation_prompt=True, return_dict=True, return_tensors="pt"
)
output = model.generate(**inputs, max_new_tokens=256, do_sample=False)
print(tokenizer.decode(output[0][inputs["input_ids"].shape[1] :]))
```"""


def _json_literal(value: Any, otherwise: str) -> str:
    """Return an expression for a value, in a raw string, because JSON has its own escapes."""
    text = json.dumps(value if isinstance(value, str) else list(value), indent=1, ensure_ascii=False)
    return otherwise if len(text) > _MAX_SHOWN or "'''" in text else f"json.loads(r'''{text}''')"


def answer(example: Mapping[str, Any] | None) -> str:
    """Show what the script of the card printed at the end of the run."""
    text = (example or {}).get("answer")
    return f"\n\nAt the end of the run it printed:\n\n{fenced(text)}" if text else ""


def rollout(example: Mapping[str, Any] | None) -> str:
    """Show a rollout with its reward."""
    if not example:
        return ""
    rewards = ", ".join(f"`{name}` {_number(value)}" for name, value in example["rewards"].items())
    talk = "\n".join(
        f"{message['role']}: {message['content']}" for message in (*example["prompt"], *example["messages"])
    )
    return (
        f"\n\nA rollout of the model after {example['step']:,} steps, sampled. Its reward: {rewards}.\n\n{fenced(talk)}"
    )


def _number(value: float | None) -> str:
    return "not scored" if value is None else f"{value:g}"


def intended_use(environment: str) -> str:
    """Describe what the model is for, and what it was not tested for."""
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
