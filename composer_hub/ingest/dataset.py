"""Traces as a dataset: the tables `traces` and `steps`, the card, and the numbers that it shows."""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_hub.exports import to_sts
from composer_hub.hub import Card, Table
from composer_hub.ingest.assemble import counts_of
from composer_hub.ingest.report import FileReport
from composer_hub.records import StepRow, Trace, canonical_json, features_of, own_words, step_rows, to_row
from composer_hub.redact import DROPPED_COLUMNS, judge_digest, rules_digest

if TYPE_CHECKING:
    from datasets import Features

CONFIGS: dict[str, type] = {"traces": Trace, "steps": StepRow}
"""The configs that ingest publishes and the record of a row in each."""


def config_features() -> dict[str, Features]:
    """Return the features of each config."""
    return {name: features_of(record) for name, record in CONFIGS.items()}


@dataclass(frozen=True)
class _Rows:
    """Rows that are made again for each reader, so that they are never all in memory."""

    make: Callable[[], Iterator[dict[str, Any]]]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.make()


def trace_tables(traces: Callable[[], Iterator[Trace]]) -> list[Table]:
    """Return the `steps` and `traces` configs; each call of `traces` gives all traces from the first."""
    from datasets import Value

    features = config_features()
    derived = {name: (Value(kind), make) for name, (kind, make) in SESSION_COLUMNS.items()}
    steps = _Rows(lambda: (to_row(row) for trace in traces() for row in step_rows(trace)))
    return [
        # The first is the one that people see.
        Table("steps", steps, features["steps"], "step_id", ("trace_id", "index"),
              index_columns=("trace_id", "index", "family")),
        Table("traces", _Rows(lambda: map(to_row, traces())), features["traces"], "trace_id",
              index_columns=("source", "model", "family", "repository"), index_derived=derived),
    ]  # fmt: skip


MAX_TURNS, MAX_MARKS = 100, 500
MAX_TASK_CHARS, MAX_TURN_CHARS = 1_000, 160


def turns_of(trace: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the beginning of each message of the user in a row, after the index of the step that follows it.

    The index of a trace set holds the first ones, because the messages of a long session are too large to
    read for one page.
    """
    actions = sorted((step["action"], step["index"]) for step in trace["steps"])
    turns: list[tuple[int, str]] = []
    for place, message in enumerate(trace["messages"]):
        if message["role"] == "user" and len(turns) < MAX_TURNS and (text := own_words(message["content"])):
            at = bisect.bisect(actions, place, key=lambda one: one[0])
            cut = text[: MAX_TURN_CHARS if turns else MAX_TASK_CHARS]
            turns.append((actions[at][1] if at < len(actions) else len(actions), cut))
    return turns


def marks_of(trace: Mapping[str, Any]) -> list[tuple[int, list[tuple[str, str]], list[str]]]:
    """Return the steps of a row where something happened: kind and blame of each error, and the writers of hints."""
    marked = (step for step in trace["steps"] if step["error_sites"] or step["hints"])
    return [
        (
            step["index"],
            [(site["kind"], site["blame"]) for site in step["error_sites"]],
            [hint["writer"] for hint in step["hints"]],
        )
        for step in itertools.islice(marked, MAX_MARKS)
    ]


def _task_of(trace: Mapping[str, Any]) -> str:
    turns = turns_of(trace)
    return " ".join(turns[0][1].split())[:200] if turns else ""


def _num_errors(trace: Mapping[str, Any]) -> int:
    return sum(site["blame"] == "model" for step in trace["steps"] for site in step["error_sites"])


SESSION_COLUMNS: dict[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
    "task": ("string", _task_of),
    "num_steps": ("int64", lambda trace: len(trace["steps"])),
    "num_errors": ("int64", _num_errors),
    "num_hints": ("int64", lambda trace: sum(len(step["hints"]) for step in trace["steps"])),
    "turns": ("string", lambda trace: canonical_json(turns_of(trace))),
    "marks": ("string", lambda trace: canonical_json(marks_of(trace))),
}
"""Columns of the index of traces: their type and how a row gives them. `num_errors` counts the model's own."""


MAX_SESSIONS = 80
"""Sessions in the form of the Hub's viewer; one commit has room for about a hundred files."""


def viewer_files(traces: Iterable[Trace], folder: Path) -> dict[str, Path]:
    """Write redacted sessions for the Hub's viewer of agent traces, and return them by name."""
    folder.mkdir(exist_ok=True)
    files: dict[str, Path] = {}
    whole = (trace for trace in traces if trace.redaction and not trace.parent_trace_id)
    for trace in itertools.islice(whole, MAX_SESSIONS):
        name = f"{trace.trace_id}.jsonl"
        with contextlib.suppress(TypeError):  # an integer beyond 64 bits: the rows hold the session, the viewer cannot
            with (folder / name).open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in to_sts(trace))
            files[name] = folder / name
    return files


def trace_card(
    repo: str,
    license: str,
    numbers: dict[str, Any],
    *,
    redacted: bool,
    sessions: Mapping[str, Path] | None = None,
    reader: str = "",  # the model that read what the rules left, with its commit
) -> Card:
    """Return the card of a trace dataset."""
    kept = ("traces", "steps", "messages", "calls", "error_sites", "error_sites_by_kind", "error_sites_by_blame",
            "hints_by_writer", "hint_coverage", "steps_by_family", "inexact_prefixes")  # fmt: skip
    dropped = ("corrupt", "unknown", "empty", "unrecognised", "unreadable", "duplicate_steps", "duplicate_traces",
               "no_steps", "denied", "tokens_dropped")  # fmt: skip
    return Card(
        "traces",
        pretty_name=f"{repo.split('/')[1]}: coding agent traces",
        license=license,
        tags=("agents", "coding-agents", "tool-use", "traces", *(["agent-traces"] if sessions else [])),
        sessions=sessions or {},
        counts={name: numbers[name] for name in kept if numbers[name] not in (None, {}, 0)},
        dropped={name: numbers[name] for name in dropped if numbers[name]},
        holes={
            "origin": "Sessions of coding agents, read by composer_hub from the logs that their harnesses write."
            + _audit(numbers),
            "redaction": _redaction(numbers, reader) if redacted else _NOT_REDACTED,
        },
    )


def _audit(numbers: dict[str, Any]) -> str:
    """Return the card's sentences on the proof of exact prompts by the tokens that providers counted."""
    if not numbers["steps_with_usage"]:
        return ""
    fits = ", ".join(f"{source} {fit}" for source, fit in numbers["tokens_per_char"].items())
    text = f" The provider's token count is recorded for {numbers['steps_with_usage']:,} steps."
    if numbers["prompts_compared"]:
        text += (
            f" {numbers['prompts_agree']:,} of the {numbers['prompts_compared']:,} exact prompts that could be compared"
            f" grew from step to step as these counts did (tokens per character: {fits})."
        )
    return text


_NOT_REDACTED = "**These traces were not redacted.** Keep the dataset private."


def _redaction(numbers: dict[str, Any], reader: str) -> str:
    """Return the card's paragraph on redaction."""
    counts = ", ".join(f"{kind} {number:,}" for kind, number in numbers["redactions_by_kind"].items()) or "nothing"
    text = (
        "Secrets and personal data were replaced by placeholders such as `[EMAIL_3]`, the same one for the same value "
        f"in every row (rule set `{rules_digest()}`, learned judge `{judge_digest()}`): {counts}."
    )
    if reader:
        text += f" What the rules left was read by the model `{reader}`."
    if numbers["unredacted"]:
        text += f" **Traces of earlier versions that were not: {numbers['unredacted']:,}.** Keep the dataset private."
    return text


@dataclass
class TraceCounts:
    """Counts of the traces of a version."""

    traces: Counter[str] = field(default_factory=Counter)  # by source
    families: Counter[str] = field(default_factory=Counter)  # steps by model family
    reasoning: Counter[str] = field(default_factory=Counter)  # steps by reasoning status
    inexact: Counter[str] = field(default_factory=Counter)  # steps by the reason that their prompt is not exact
    totals: Counter[str] = field(default_factory=Counter)
    sites: Counter[str] = field(default_factory=Counter)  # error sites by kind
    blame: Counter[str] = field(default_factory=Counter)  # error sites by blame
    hints: Counter[str] = field(default_factory=Counter)  # hints by writer
    redactions: Counter[str] = field(default_factory=Counter)  # by kind
    audits: dict[str, Counter[str]] = field(default_factory=dict)  # of prompts by the provider's tokens, by source

    def add(self, trace: Trace) -> None:
        """Count a trace."""
        self.traces[trace.source] += 1
        self.totals["subagents"] += bool(trace.parent_trace_id)
        self.totals["synthetic_system_prompts"] += trace.system_prompt_source == "synthetic"
        # Rollouts come without counts.
        counts = trace.counts if "num_steps" in trace.counts else counts_of(trace.messages, trace.steps)
        for name in ("num_messages", "num_steps", "num_calls", "num_results"):
            self.totals[name] += counts.get(name, 0)
        self.totals["unredacted"] += not trace.redaction
        self.totals["tokens_dropped"] += bool(trace.counts.get(DROPPED_COLUMNS))
        if audit := trace.counts.get("audit"):
            self.audits.setdefault(trace.source, Counter()).update(audit)
        self.redactions.update(trace.counts.get("redactions", {}))
        for step in trace.steps:
            self.families[step.family or "unknown"] += 1
            self.reasoning[step.reasoning_status] += 1
            self.inexact.update(step.prefix_reason.split("; ") if not step.prefix_exact else ())
            self.totals["steps_off_main_branch"] += not step.on_main_branch
            self.totals["steps_inexact"] += not step.prefix_exact
            self.totals["steps_with_errors"] += bool(step.error_sites)
            self.sites.update(site.kind for site in step.error_sites)
            self.blame.update(site.blame for site in step.error_sites)
            hinted = {(hint.call_id, hint.kind) for hint in step.hints}
            of_model = [(site.call_id, site.kind) for site in step.error_sites if site.blame == "model"]
            self.totals["sites_by_model"] += len(of_model)
            self.totals["sites_by_model_hinted"] += sum(site in hinted for site in of_model)
            self.totals["hints"] += len(step.hints)
            self.hints.update(hint.writer for hint in step.hints)


FILE_COUNTS = (
    "files", "read", "empty", "unrecognised", "unreadable", "unchanged", "bytes", "lines", "corrupt", "repaired",
    "unknown", "merged", "forks", "boundaries", "bridged", "orphan_results", "dangling_calls", "synthetic", "retracted",
    "empty_actions", "provider_errors", "no_steps", "no_trace", "duplicate_lines", "duplicate_steps",
    "duplicate_traces", "same_session", "denied",
)  # fmt: skip


def file_numbers(report: FileReport) -> dict[str, Any]:
    """Return the numbers of the files of a version."""
    counts = {name: report.counts[name] for name in FILE_COUNTS}
    return {**counts, "unknown_types": _ordered(report.unknown_types), "num_problems": report.num_problems}


def numbers_of(report: FileReport, counts: TraceCounts) -> dict[str, Any]:
    """Return the numbers of a version: `--report` prints them, the manifest and the card hold them."""
    of_model, hinted = counts.totals["sites_by_model"], counts.totals["sites_by_model_hinted"]
    return {
        **file_numbers(report),
        "traces": sum(counts.traces.values()),
        "traces_by_source": _ordered(counts.traces),
        "subagents": counts.totals["subagents"],
        "steps": counts.totals["num_steps"],
        "steps_off_main_branch": counts.totals["steps_off_main_branch"],
        "steps_by_family": _ordered(counts.families),
        "steps_by_reasoning": _ordered(counts.reasoning),
        "messages": counts.totals["num_messages"],
        "calls": counts.totals["num_calls"],
        "results": counts.totals["num_results"],
        "inexact_prefixes": counts.totals["steps_inexact"],
        "inexact_by_reason": _ordered(counts.inexact),
        **{
            name: sum(audit[count] for audit in counts.audits.values())
            for name, count in (
                ("steps_with_usage", "num_steps"),
                ("prompts_compared", "num_compared"),
                ("prompts_agree", "num_agree"),
            )
        },
        "tokens_per_char": {
            source: round(audit["num_tokens"] / audit["num_chars"], 3)
            for source, audit in sorted(counts.audits.items())
            if audit["num_chars"]
        },
        "synthetic_system_prompts": counts.totals["synthetic_system_prompts"],
        "error_sites": sum(counts.sites.values()),
        "error_sites_by_kind": _ordered(counts.sites),
        "error_sites_by_blame": _ordered(counts.blame),
        "hints": counts.totals["hints"],
        "hints_by_writer": _ordered(counts.hints),
        "hint_coverage": round(hinted / of_model, 4) if of_model else None,
        "redactions": sum(counts.redactions.values()),
        "redactions_by_kind": _ordered(counts.redactions),
        "unredacted": counts.totals["unredacted"],
        "tokens_dropped": counts.totals["tokens_dropped"],
    }


def _ordered(counts: Counter[str]) -> dict[str, int]:
    """Sort counts, the largest first and ties by name, so that a report is the same in every run."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
