"""Sessions as the rows of the `traces` and `steps` configs, and a run as the numbers of its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from composer_hub.ingest.assemble import counts_of
from composer_hub.ingest.report import FileReport
from composer_hub.records import StepRow, Trace, features_of, step_row, to_row
from composer_hub.redact import tokens as redact_tokens
from composer_hub.session import Session

if TYPE_CHECKING:
    from datasets import Features

CONFIGS: dict[str, type] = {"traces": Trace, "steps": StepRow}
"""The configs that ingest publishes and the record that a row of each is."""


def config_features() -> dict[str, Features]:
    """Return the features of each config."""
    return {name: features_of(record) for name, record in CONFIGS.items()}


def trace_row(session: Session) -> dict[str, Any]:
    """Return the session's row of the `traces` config."""
    return to_row(session.trace)


def step_rows(session: Session) -> Iterator[dict[str, Any]]:
    """Yield the session's rows of the `steps` config, in order."""
    for step in session.trace.steps:
        yield to_row(step_row(session.trace, step))


@dataclass
class Tally:
    """What came out of a run, counted while it streams by; redactions are read from `Trace.counts["redactions"]`."""

    traces: Counter[str] = field(default_factory=Counter)  # by source
    families: Counter[str] = field(default_factory=Counter)  # steps by model family
    reasoning: Counter[str] = field(default_factory=Counter)  # steps by reasoning status
    inexact: Counter[str] = field(default_factory=Counter)  # steps by the reason that their prompt is not exact
    totals: Counter[str] = field(default_factory=Counter)
    sites: Counter[str] = field(default_factory=Counter)  # error sites by kind
    blame: Counter[str] = field(default_factory=Counter)  # error sites by blame
    hints: Counter[str] = field(default_factory=Counter)  # hints by writer
    redactions: Counter[str] = field(default_factory=Counter)  # by kind

    def add(self, session: Session) -> Session:
        """Count a session and hand it on."""
        trace = session.trace
        self.traces[trace.source] += 1
        self.totals["subagents"] += bool(trace.parent_trace_id)
        self.totals["synthetic_system_prompts"] += trace.system_prompt_source == "synthetic"
        # Rollouts come without counts.
        counts = trace.counts if "num_steps" in trace.counts else counts_of(trace.messages, trace.steps)
        for name in ("num_messages", "num_steps", "num_calls", "num_results"):
            self.totals[name] += counts.get(name, 0)
        self.totals["unredacted"] += not trace.redaction
        self.totals["tokens_dropped"] += bool(trace.counts.get(redact_tokens.COUNT))
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
        return session


FILE_COUNTS = (
    "files", "read", "empty", "unrecognised", "unreadable", "unchanged", "bytes", "lines", "corrupt", "repaired",
    "unknown", "merged", "forks", "boundaries", "bridged", "orphan_results", "dangling_calls", "synthetic", "retracted",
    "empty_actions", "provider_errors", "no_steps", "duplicate_lines", "duplicate_steps", "duplicate_traces",
    "same_session", "denied",
)  # fmt: skip


def ingest_report(report: FileReport, tally: Tally) -> dict[str, Any]:
    """Return the numbers of a run: what `--report` prints, the manifest keeps and the card shows."""
    of_model, hinted = tally.totals["sites_by_model"], tally.totals["sites_by_model_hinted"]
    return {
        **{name: report.counts[name] for name in FILE_COUNTS},
        "unknown_types": _ordered(report.unknown_types),
        "traces": sum(tally.traces.values()),
        "traces_by_source": _ordered(tally.traces),
        "subagents": tally.totals["subagents"],
        "steps": tally.totals["num_steps"],
        "steps_off_main_branch": tally.totals["steps_off_main_branch"],
        "steps_by_family": _ordered(tally.families),
        "steps_by_reasoning": _ordered(tally.reasoning),
        "messages": tally.totals["num_messages"],
        "calls": tally.totals["num_calls"],
        "results": tally.totals["num_results"],
        "inexact_prefixes": tally.totals["steps_inexact"],
        "inexact_by_reason": _ordered(tally.inexact),
        "synthetic_system_prompts": tally.totals["synthetic_system_prompts"],
        "error_sites": sum(tally.sites.values()),
        "error_sites_by_kind": _ordered(tally.sites),
        "error_sites_by_blame": _ordered(tally.blame),
        "hints": tally.totals["hints"],
        "hints_by_writer": _ordered(tally.hints),
        "hint_coverage": round(hinted / of_model, 4) if of_model else None,
        "redactions": sum(tally.redactions.values()),
        "redactions_by_kind": _ordered(tally.redactions),
        "unredacted": tally.totals["unredacted"],
        "tokens_dropped": tally.totals["tokens_dropped"],
        "num_problems": report.num_problems,
    }


def _ordered(counts: Counter[str]) -> dict[str, int]:
    """Return counts, the largest first and ties by name, so that a report is the same in every run."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
