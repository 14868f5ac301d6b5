"""The report for people: rows of `report_rows` -> Markdown tables for the dataset card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from composer_hub.actions.forms import LEVELS
from composer_hub.pairs.report import Metric

_HEADLINES = (
    ("pairs", "Pairs"),
    ("pairs_per_trace", "Pairs per trace"),
    ("answered_steps", "Share of steps that were answered"),
    ("recall", "Recall of pairs, by the audit"),
    ("fleiss_kappa", "Fleiss' kappa on tools (L4)"),
    ("chosen_longer", "P(chosen longer than rejected)"),
    ("length_auc", "AUC of length alone"),
    ("style_leak_auc", "AUC of spelling alone (style leak)"),
    ("after_error", "Share after an error"),
    ("from_resolved", "Share from solved traces"),
    ("judged", "Share whose effects a judge calls different"),
    ("usd", "$ in all, by the ledger"),
    ("usd_retried", "$ billed without an answer"),
    ("ambiguous_usd", "$ that may have been billed for lost answers"),
    ("usd_per_pair", "$ per pair"),
    ("usd_per_trace", "$ per trace"),
    ("cached_share", "Cached share of prompt tokens"),
)
_TEACHER_COLUMNS = (
    ("calls", "requests"),
    ("latency_p50_s", "p50 s"),
    ("latency_p95_s", "p95 s"),
    ("latency_p99_s", "p99 s"),
    ("usd_per_call", "$/answer"),
    ("usd", "total $"),
    ("usd_per_pair", "$/pair"),
    ("cached_share", "cached"),
)


def report_markdown(rows: Sequence[Metric], *, drops: bool = True) -> str:
    """Return the report as Markdown: headline numbers, teachers, agreement, votes, and steps without a pair."""
    sections = [
        ("", _headlines(rows)),
        ("Teachers", _teachers(rows)),
        ("Agreement at L2", _agreement(rows)),
        ("Agreement of a teacher with itself", _self_agreement(rows)),
        ("Votes", _scoped(rows, "votes", "agree on L2", "steps")),
        ("Length of pairs", _scoped(rows, "pairs_by_length", "estimated tokens", "pairs")),
        ("Steps without a pair", _scoped(rows, "steps_without_pair", "reason", "steps") if drops else ""),
    ]
    return "\n\n".join(f"### {title}\n\n{table}" if title else table for title, table in sections if table) + "\n"


def _headlines(rows: Iterable[Metric]) -> str:
    by_name = {row.metric: row for row in reversed(list(rows)) if row.scope in ("", *LEVELS)}
    lines = [[title, _value(by_name[name]), f"{by_name[name].n:,}"] for name, title in _HEADLINES if name in by_name]
    return table(["", "value (95 % over traces)", "n"], lines)


def _teachers(rows: Sequence[Metric]) -> str:
    cells = {(row.scope, row.metric): row for row in rows}
    teachers = [row.scope for row in rows if row.metric == "calls"]
    # Versions of earlier reports lack some of the columns.
    lines = [
        [
            code(teacher),
            *(_value(cells[teacher, name]) if (teacher, name) in cells else "-" for name, _ in _TEACHER_COLUMNS),
        ]
        for teacher in teachers
    ]
    return table(["teacher", *(title for _, title in _TEACHER_COLUMNS)], lines)


def _agreement(rows: Iterable[Metric]) -> str:
    lines = [
        [" and ".join(code(name) for name in row.scope.split(" ~ ")), _value(row), f"{row.n:,}"]
        for row in rows
        if row.metric == "agreement"
    ]
    return table(["teachers", "agree (95 % over traces)", "steps"], lines)


def _self_agreement(rows: Iterable[Metric]) -> str:
    levels = LEVELS[1:]
    by_teacher: dict[str, dict[str, Metric]] = {}
    for row in rows:
        if row.metric == "self_agreement":
            level, _, teacher = row.scope.partition(" ")
            by_teacher.setdefault(teacher, {})[level] = row
    lines = [
        [code(teacher), *(_value(cells[level]) for level in levels), f"{cells['L1'].n:,}"]
        for teacher, cells in by_teacher.items()
    ]
    return table(["teacher", *levels, "steps"], lines)


def _scoped(rows: Iterable[Metric], metric: str, scope: str, count: str) -> str:
    lines = [[code(row.scope), f"{row.value:,.0f}"] for row in rows if row.metric == metric and row.value is not None]
    return table([scope, count], lines)


def _value(row: Metric) -> str:
    if row.value is None:
        return "-"
    around = "" if row.low is None or row.high is None else f" ({_number(row.low)} to {_number(row.high)})"
    return _number(row.value) + around


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def code(text: str) -> str:
    """Return foreign text as a code span that cannot break a table."""
    # Names come from session files and providers: a bar would break the table, a backtick the code span.
    return f"`{text.replace('`', chr(39)).replace('|', '/')}`"


def table(head: Sequence[str], lines: Sequence[Sequence[str]], *, num_texts: int = 1) -> str:
    """Return a table whose first columns are texts and whose other columns are numbers."""
    if not lines:
        return ""
    rule = ["---"] * num_texts + ["---:"] * (len(head) - num_texts)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines])
