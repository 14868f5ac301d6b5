"""The model card: what a run started from, read, did and cost, filled into `dataset_cards/model.md`."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from composer_hub.hub import Parent, card_template
from composer_hub.train.run.plots import RunPlot, series

_COURSE = {
    "reward": "mean reward",
    "loss": "whole loss",
    "entropy": "entropy of the policy, nats",
    "kl": "KL to the reference, nats",
    "grad_norm": "gradient norm",
    "completions/mean_length": "tokens a rollout",
    "tools/failure_frequency": "tool calls that failed",
    "channel/hint/divergence": "hint divergence",
    "channel/hint/uplift": "hint uplift, nats",
    "channel/hint/sites_per_rollout": "hint sites a rollout",
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
_WRITERS = {"channel/hint/writer/": "", "channel/hint_traces/writer/": " in traces"}  # metric -> where
_ALARMS = 5  # more are only counted
_WINDOW = 5  # log lines at each end that are averaged; fewer where the two ends would overlap


@dataclass(frozen=True)
class ModelFacts:
    """Everything a card says."""

    repo: str
    run_id: str
    license: str
    base: Parent
    parents: tuple[Parent, ...] = ()  # data
    weights: Mapping[str, float] = field(default_factory=dict)  # channel -> weight
    teacher: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)  # what differs from the defaults
    environment: str = ""
    rewards: tuple[str, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)  # pairs that were left out
    hinted_steps: Mapping[str, int] = field(default_factory=dict)  # of traces: sites, and those as they were sampled
    dropped_steps: Mapping[str, int] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    plots: Sequence[RunPlot] = ()
    evals: Mapping[str, str] = field(default_factory=dict)  # name -> value with its interval, only what was measured
    hardware: str = ""
    seconds: float = 0.0
    usd_per_hour: float | None = None
    is_adapter: bool = False
    is_finished: bool = True
    num_steps: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    reproduce: str = ""
    best: Mapping[str, Any] | None = None  # checkpoint, score and metric of the best one that was kept
    alarms: Sequence[str] = ()  # of the watch-dogs
    preflight: Sequence[Mapping[str, Any]] = ()  # what the hints did before training, by writer and kind
    tags: tuple[str, ...] = ()


def model_card(facts: ModelFacts) -> str:
    """Return the whole README.md of a model."""
    body = string.Template(card_template("model")).substitute(
        pretty_name=facts.repo.split("/")[-1] or "model",
        summary=_summary(facts),
        data=_data(facts),
        channels=_channels(facts),
        hints=_hints(facts.history) + _preflight(facts.preflight),
        options=_options(facts.options),
        course=_course(facts.history) + _best(facts),
        plots=_pictures(facts.plots),
        evals=_evals(facts),
        cost=_cost(facts),
        observed=_observed(facts),
        reproduce=facts.reproduce,
        license=facts.license,
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


def _summary(facts: ModelFacts) -> str:
    on = [name for name, weight in facts.weights.items() if weight]
    done = "" if facts.is_finished else " **The run is not finished**: this is a checkpoint."
    where = f" in the environment `{facts.environment}`" if facts.environment else ""
    return (
        f"`{facts.base.repo}` at `{facts.base.revision}`, trained for {facts.num_steps:,} steps{where} on "
        f"{', '.join(on)} (run `{facts.run_id}`).{done}"
    )


def _data(facts: ModelFacts) -> str:
    rows = [
        f"| {parent.role} | {parent.type} | `{parent.repo}` | {parent.tag or '-'} | `{parent.revision}` |"
        for parent in (facts.base, *facts.parents)
    ]
    table = "\n".join(["| role | type | repository | tag | revision |", "|---|---|---|---|---|", *rows])
    said = []
    if facts.hinted_steps.get("sites"):
        sites, sampled = facts.hinted_steps["sites"], facts.hinted_steps.get("as_sampled", 0)
        said.append(f"Hinted steps of traces: {sites:,}, of which {sampled:,} with the very tokens that were sampled.")
    for what, dropped in (("Hinted steps", facts.dropped_steps), ("Pairs", facts.dropped)):
        if left_out := ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in dropped.items()):
            said.append(f"{what} left out: {left_out}.")
    return "\n\n".join([table, *said])


def _method(facts: ModelFacts) -> list[str]:
    """Return the tags that name what was done."""
    used = {"grpo": "policy", "self-distillation": "hint", "dpo": "replay"}
    return [tag for tag, channel in used.items() if facts.weights.get(channel)]


def _channels(facts: ModelFacts) -> str:
    rows = [f"| {name} | {weight:g} |" for name, weight in facts.weights.items()]
    who = f"\n\nThe hint's teacher is {facts.teacher}." if facts.weights.get("hint") and facts.teacher else ""
    rewards = f"\n\nRewards: {', '.join(f'`{name}`' for name in facts.rewards)}." if facts.rewards else ""
    return "\n".join(["| channel | weight |", "|---|---:|", *rows]) + who + rewards


def has_hints(history: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether any hint was learned from."""
    return any(key.startswith("channel/hint") and "/writer/" in key for line in history for key in line)


def _hints(history: Sequence[Mapping[str, Any]]) -> str:
    """Return the share of each hint writer over the run."""
    tables = [table for prefix, where in _WRITERS.items() if (table := _shares(history, prefix, where))]
    return "\n\n".join(tables) or "No hint was read."


def _shares(history: Sequence[Mapping[str, Any]], prefix: str, where: str) -> str:
    writers = sorted({key for line in history for key in line if key.startswith(prefix)})
    lines = sum(any(key in line for key in writers) for line in history)
    if not writers:
        return ""
    shares = {key.removeprefix(prefix): sum(value for _, value in series(history, key)) / lines for key in writers}
    rows = [f"| {writer} | {share:.0%} |" for writer, share in sorted(shares.items(), key=lambda one: -one[1])]
    return "\n".join([f"| hint writer | share of the sites{where} |", "|---|---:|", *rows])


def _preflight(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return what the hints did before training, in nats."""
    rows = [
        f"| {line['writer']} | {line['kind']} | {line['num_sites']} | {line['lowered']:.2f} | "
        f"{'-' if line['raised'] is None else format(line['raised'], '.2f')} | {line['share_lifting']:.0%} |"
        for line in lines
    ]
    head = ["| hint writer | error | sites | failed call lowered | corrected call raised | lifting |"]
    table = "\n".join([*head, "|---|---|---:|---:|---:|---:|", *rows])
    return f"\n\nBefore training, by the model it started from, in nats:\n\n{table}" if rows else ""


def _best(facts: ModelFacts) -> str:
    if not facts.best:
        return ""
    best = facts.best
    return (
        f"\n\nThe best checkpoint was `{best['checkpoint']}` (mean {best['metric']} {best['score']:.3g} since the save "
        f"before it); this is step {facts.num_steps:,}."
    )


def _options(options: Mapping[str, Any]) -> str:
    rows = [f"| `{name}` | `{value}` |" for name, value in sorted(options.items())]
    table = "\n".join(["| option | value |", "|---|---|", *rows])
    return (
        f"<details><summary>Options that differ from their defaults</summary>\n\n{table}\n\n</details>" if rows else ""
    )


def _course(history: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for key, label in _COURSE.items():
        values = [value for _, value in series(history, key)]
        if values:
            window = min(_WINDOW, max(len(values) // 2, 1))
            first, last = values[:window], values[-window:]
            rows.append(f"| {label} | {sum(first) / len(first):.4g} | {sum(last) / len(last):.4g} |")
    if not rows:
        return "Nothing was logged."
    table = "\n".join(["| metric | at the beginning | at the end |", "|---|---:|---:|", *rows])
    return f"Means of {_WINDOW} log lines, or of fewer where a metric was logged less often.\n\n{table}"


def _pictures(plots: Sequence[RunPlot]) -> str:
    return "\n\n".join(
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="plots/{plot.name}-dark.png">'
        f'<img src="plots/{plot.name}-light.png" alt="{plot.alt}"></picture>'
        for plot in plots
    )


def _evals(facts: ModelFacts) -> str:
    if not facts.evals:
        own = " The rewards above are of the training tasks themselves." if facts.weights.get("policy") else ""
        return f"No benchmark was run.{own}"
    rows = [f"| {name} | {value} |" for name, value in facts.evals.items()]
    return "\n".join(["| evaluation | value |", "|---|---|", *rows])


def _cost(facts: ModelFacts) -> str:
    hours = facts.seconds / 3600
    took = f"{facts.seconds:,.0f} s" if hours < 1 else f"{hours:.1f} h"
    usd = (
        f", ${hours * facts.usd_per_hour:,.2f} at ${facts.usd_per_hour:g} an hour"
        if facts.usd_per_hour is not None
        else "; no price an hour was given"
    )
    libraries = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    return f"{took} of training on {facts.hardware or 'unknown hardware'}{usd}. {libraries}."


def _observed(facts: ModelFacts) -> str:
    """Return what this run's own log and its watch-dogs give cause to say."""
    history, alarms = facts.history, facts.alarms
    said = [f"- **In this run** a watch-dog barked at {alarm}" for alarm in alarms[:_ALARMS]]
    if len(alarms) > _ALARMS:
        said.append(f"- **In this run** watch-dogs barked {len(alarms) - _ALARMS:,} more times (`composer_run.json`).")
    if facts.weights.get("hint") and not has_hints(history):
        said.append("- **In this run** no hint was placed, though the hint channel was on.")
    entropy = [value for _, value in series(history, "entropy")]
    if len(entropy) > 1 and entropy[-1] < 0.2 * entropy[0]:
        said.append(
            f"- **In this run** entropy fell from {entropy[0]:.3g} to {entropy[-1]:.3g}: little exploration is left."
        )
    drift = [value for _, value in series(history, "channel/replay/chosen_drift")]
    if drift and drift[-1] < -1.0:
        said.append(f"- **In this run** log p(chosen) fell by {-drift[-1]:.3g} nats against the reference.")
    reward = [value for _, value in series(history, "reward")]
    if len(reward) > 1 and reward[-1] < reward[0]:
        said.append(
            f"- **In this run** the mean reward ended lower ({reward[-1]:.3g}) than it began ({reward[0]:.3g})."
        )
    return "\n".join(said)
