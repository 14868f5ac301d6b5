"""The model card: inputs, options, progress, results and cost of a run, filled into `dataset_cards/model.md`."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from composer_hub.hub import Parent, card_template
from composer_hub.train.run.card_use import citations, example_hint, intended_use, oracles_text, quick_start
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
_ALARMS = 5  # further ones are only counted
_WINDOW = 5  # log lines averaged at each end; fewer if the two ends would overlap


@dataclass(frozen=True)
class ModelFacts:
    """The facts of a card."""

    repo: str
    run_id: str
    license: str
    base: Parent
    parents: tuple[Parent, ...] = ()  # data
    weights: Mapping[str, float] = field(default_factory=dict)  # channel -> weight
    teacher: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)  # other than the defaults
    environment: str = ""
    rewards: tuple[str, ...] = ()
    oracles: tuple[int, int] | None = None  # tasks with a hidden oracle, of so many
    dropped: Mapping[str, int] = field(default_factory=dict)  # pairs that were left out, by reason
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
    best: Mapping[str, Any] | None = None  # checkpoint, score and metric of the best one
    alarms: Sequence[str] = ()  # of the watch-dogs
    preflight: Sequence[Mapping[str, Any]] = ()  # effect of the hints before training, by writer and kind
    retries: Sequence[Mapping[str, Any]] = ()  # retries of failed turns before training, by writer and kind
    tags: tuple[str, ...] = ()
    tools: Sequence[Mapping[str, Any]] = ()  # JSON schemas of the environment's tools
    example_hint: Mapping[str, Any] | None = None  # text, writer and kind
    base_license: str = ""  # as the base model's card names it


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
        quick_start=quick_start(facts.repo, f"run-{facts.run_id}", facts.tools, is_adapter=facts.is_adapter),
        intended_use=intended_use(facts.environment),
        citations=citations(facts.weights),
        options=_options(facts.options),
        course=_course(facts.history) + _best(facts),
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
    if sites := facts.hinted_steps.get("sites"):
        num_exact = facts.hinted_steps.get("as_sampled", 0)
        parts.append(
            f"Hinted steps of traces: {sites:,}, of which {num_exact:,} with the exact tokens that were sampled."
        )
    for noun, dropped in (("Hinted steps", facts.dropped_steps), ("Pairs", facts.dropped)):
        if left_out := ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in dropped.items()):
            parts.append(f"{noun} left out: {left_out}.")
    return "\n\n".join(parts)


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
    if not (best := facts.best):
        return ""
    return (
        f"\n\nThe best checkpoint was `{best['checkpoint']}` (mean {best['metric']} {best['score']:.3g} since the save "
        f"before it); this is step {facts.num_steps:,}."
    )


def _options(options: Mapping[str, Any]) -> str:
    if not options:
        return ""
    table = _table("option | value", "|---|---|", [f"`{name}` | `{value}`" for name, value in sorted(options.items())])
    return f"<details><summary>Options that differ from their defaults</summary>\n\n{table}\n\n</details>"


def _course(history: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for key, label in _COURSE.items():
        if values := [value for _, value in series(history, key)]:
            window = min(_WINDOW, max(len(values) // 2, 1))
            first, last = values[:window], values[-window:]
            rows.append(f"{label} | {sum(first) / len(first):.4g} | {sum(last) / len(last):.4g}")
    if not rows:
        return "Nothing was logged."
    table = _table("metric | at the beginning | at the end", "|---|---:|---:|", rows)
    return f"Means of {_WINDOW} log lines, or of fewer if a metric was logged less often.\n\n{table}"


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
    """Return the warnings that this run's log and watch-dogs give reason for."""
    history, alarms = facts.history, facts.alarms
    notes = [f"a watch-dog barked at {alarm}" for alarm in alarms[:_ALARMS]]
    if len(alarms) > _ALARMS:
        notes.append(f"watch-dogs barked {len(alarms) - _ALARMS:,} more times (`composer_run.json`).")
    if facts.weights.get("hint") and not has_hints(history):
        notes.append("no hint was placed, though the hint channel was on.")
    entropy, reward, drift = (
        [value for _, value in series(history, key)] for key in ("entropy", "reward", "channel/replay/chosen_drift")
    )
    if len(entropy) > 1 and entropy[-1] < 0.2 * entropy[0]:
        notes.append(f"entropy fell from {entropy[0]:.3g} to {entropy[-1]:.3g}: little exploration is left.")
    if drift and drift[-1] < -1.0:
        notes.append(f"log p(chosen) fell by {-drift[-1]:.3g} nats against the reference.")
    if len(reward) > 1 and reward[-1] < reward[0]:
        notes.append(f"the mean reward ended lower ({reward[-1]:.3g}) than it began ({reward[0]:.3g}).")
    return "\n".join(f"- **In this run** {note}" for note in notes)
