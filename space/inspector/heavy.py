"""The heavy columns, for one row at a time: a pair with its votes, a step with its trace, a rollout, a task.

Published rows are sorted by trace, so a condition on the trace lets DuckDB skip all other row groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from inspector.library import Dataset, Library
from inspector.markup import parsed

Row = dict[str, Any]


@dataclass(frozen=True)
class Context:
    """What the trace set knows of a step: what came back, what went wrong, and the hints."""

    results: list[str]
    error_sites: list[Row]
    hints: list[Row]


def pair(library: Library, dataset: Dataset, light: Row) -> Row | None:
    """Return a whole pair, given its row of the list."""
    rows = library.rows(
        'select * from read_parquet(?) where trace_id = ? and "index" = ? and pair_id = ?',
        [dataset.files("default"), light["trace_id"], light["step"], light["id"]],
    )
    if not rows:
        return None
    row = rows[0]
    for column in ("prompt", "chosen", "rejected", "tools"):
        row[column] = [parsed(value) for value in row.get(column) or []]
    return row


def votes(library: Library, dataset: Dataset, trace_id: str, step: int) -> list[Row]:
    """Return the votes on a step, first answers before repeated ones."""
    if not dataset.files("votes"):
        return []
    rows = library.rows(
        "select teacher, family, status, answer, cost_usd, latency_s, attempt, excluded from read_parquet(?)"
        ' where trace_id = ? and "index" = ? order by attempt, teacher',
        [dataset.files("votes"), trace_id, step],
    )
    return [row | {"answer": parsed(row["answer"])} for row in rows]


def context(library: Library, traces: Dataset, trace_id: str, step: int) -> Context | None:
    """Return what a trace set knows of a step."""
    rows = library.rows(
        'select results, error_sites, hints from read_parquet(?) where trace_id = ? and "index" = ?',
        [traces.files("steps"), trace_id, step],
    )
    return Context(**{name: value or [] for name, value in rows[0].items()}) if rows else None


def trace(library: Library, traces: Dataset, trace_id: str) -> Row | None:
    """Return a trace with its messages, steps and provenance."""
    rows = library.rows(
        "select trace_id, source, session_id, messages, steps, model, family, repository, provenance"
        " from read_parquet(?) where trace_id = ?",
        [traces.files("traces"), trace_id],
    )
    if not rows:
        return None
    row = rows[0]
    row["messages"] = [parsed(message) for message in row["messages"] or []]
    row["provenance"] = parsed(row["provenance"]) or {}
    return row


def report(library: Library, dataset: Dataset) -> list[Row]:
    """Return the numbers that were published with a pair set."""
    files = dataset.files("report")
    return library.rows("select metric, scope, value, low, high, n from read_parquet(?)", [files]) if files else []


def tasks(library: Library, dataset: Dataset) -> list[Row]:
    """Return the tasks of a set."""
    files = dataset.files(next(iter(dataset.manifest.get("tables", {})), ""))
    return library.rows("select * from read_parquet(?) limit 5000", [files]) if files else []
