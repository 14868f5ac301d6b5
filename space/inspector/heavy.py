"""The heavy columns, for one row at a time: a pair with its votes, a step with its trace, a rollout, a task.

Published rows are sorted by trace, and the manifest names the first trace of each file. So bisection finds the file of
a trace, and in it a condition on the trace lets DuckDB skip all other row groups.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inspector.library import Dataset, SpaceLibrary
from inspector.markup import parsed
from inspector.records import Pair, Task

Row = dict[str, Any]


@dataclass(frozen=True)
class Context:
    """The results, error sites and hints of a step, from its trace set."""

    results: list[str]
    error_sites: list[Row]
    hints: list[Row]


def files_of(dataset: Dataset, config: str, trace_id: str) -> list[str]:
    """Return the files that can hold rows of a trace; a file starts with the trace that the manifest names."""
    found = []
    for files, starts in dataset.groups(config):
        if len(starts) == len(files):
            files = files[max(0, bisect_left(starts, trace_id) - 1) : bisect_right(starts, trace_id)]
        found += files
    return found


def pair(library: SpaceLibrary, dataset: Dataset, light: Row) -> Row | None:
    """Return a whole pair, given its row of the list."""
    files = files_of(dataset, "default", light["trace_id"])
    if not files:
        return None
    rows = library.rows(
        'select * from read_parquet(?) where trace_id = ? and "index" = ? and pair_id = ?',
        [files, light["trace_id"], light["step"], light["id"]],
    )
    if not rows:
        return None
    row = _completed(Pair, rows[0])
    for column in ("prompt", "chosen", "rejected", "tools"):
        row[column] = [parsed(value) for value in row[column] or []]
    return row


def _completed(record: type, row: Row) -> Row:
    """Return a row with every column of its record: one that its version did not have yet has the default."""
    lacking = (one for one in dataclasses.fields(record) if one.name not in row)
    values = {one.name: one.default_factory() if callable(one.default_factory) else one.default for one in lacking}
    return row | {name: value for name, value in values.items() if value is not dataclasses.MISSING}


def votes(library: SpaceLibrary, dataset: Dataset, trace_id: str, step: int) -> list[Row]:
    """Return the votes on a step, first answers before repeated ones."""
    files = files_of(dataset, "votes", trace_id)
    if not files:
        return []
    rows = library.rows(
        "select teacher, family, status, answer, cost_usd, latency_s, attempt, excluded from read_parquet(?)"
        ' where trace_id = ? and "index" = ? order by attempt, teacher',
        [files, trace_id, step],
    )
    return [row | {"answer": parsed(row["answer"])} for row in rows]


def context(library: SpaceLibrary, traces: Dataset, trace_id: str, step: int) -> Context | None:
    """Return the results, error sites and hints of a step."""
    files = files_of(traces, "steps", trace_id)
    if not files:
        return None
    rows = library.rows(
        'select results, error_sites, hints from read_parquet(?) where trace_id = ? and "index" = ?',
        [files, trace_id, step],
    )
    return Context(**{name: value or [] for name, value in rows[0].items()}) if rows else None


def trace(library: SpaceLibrary, traces: Dataset, trace_id: str) -> Row | None:
    """Return a trace with its messages, steps and provenance."""
    files = files_of(traces, "traces", trace_id)
    if not files:
        return None
    rows = library.rows(
        "select trace_id, source, session_id, messages, steps, model, family, repository, provenance"
        " from read_parquet(?) where trace_id = ?",
        [files, trace_id],
    )
    if not rows:
        return None
    row = rows[0]
    row["messages"] = [parsed(message) for message in row["messages"] or []]
    row["provenance"] = parsed(row["provenance"]) or {}
    return row


def report(library: SpaceLibrary, dataset: Dataset) -> list[Row]:
    """Return the numbers that were published with a pair set."""
    files = dataset.files("report")
    return library.rows("select metric, scope, value, low, high, n from read_parquet(?)", [files]) if files else []


def tasks(library: SpaceLibrary, dataset: Dataset) -> list[Row]:
    """Return the tasks of a set."""
    files = dataset.files(next(iter(dataset.manifest.get("tables", {})), ""))
    rows = library.rows("select * from read_parquet(?) limit 5000", [files]) if files else []
    return [_completed(Task, row) for row in rows]


def steps(
    library: SpaceLibrary, traces: Dataset, trace_ids: Sequence[str], first: int = 0, stop: int = 1 << 31
) -> list[Row]:
    """Return the steps of traces in a range, without the results, in order; `action` is the message of the model."""
    columns = 'trace_id, step_id, "index", student_action, on_main_branch, error_sites, hints'
    rows = _steps(library, traces, columns, trace_ids, '"index" >= ? and "index" < ?', [first, stop])
    return [row | {"action": acted(row.pop("student_action"))} for row in rows]


def step_messages(library: SpaceLibrary, traces: Dataset, trace_id: str, step: int) -> list[Row]:
    """Return the model's action at a step, and its results."""
    rows = _steps(library, traces, "student_action, results", [trace_id], '"index" = ?', [step])
    return [
        message
        for row in rows
        for message in (acted(row["student_action"]), *({"role": "tool", "content": text} for text in row["results"]))
    ]


def _steps(
    library: SpaceLibrary,
    traces: Dataset,
    columns: str,
    trace_ids: Sequence[str],
    condition: str,
    values: Sequence[Any],
) -> list[Row]:
    files = sorted({file for id in trace_ids for file in files_of(traces, "steps", id)})
    if not files:
        return []
    marks = ", ".join("?" * len(trace_ids))
    order = 'order by trace_id, "index"'
    sql = f"select {columns} from read_parquet(?) where trace_id in ({marks}) and {condition} {order}"
    return library.rows(sql, [files, *trace_ids, *values])


def acted(text: str) -> Row:
    """Return the column `student_action` as a message: words, then one line of JSON for each call."""
    lines, calls = text.split("\n"), []
    while lines:
        call = parsed(lines[-1]) if lines[-1].startswith("{") else None
        if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
            break
        calls.append({"function": call})
        lines.pop()
    return {"role": "assistant", "content": "\n".join(lines), "tool_calls": calls[::-1]}


def vote_counts(
    library: SpaceLibrary, pairs: Dataset, trace_id: str, first: int, stop: int
) -> dict[int, tuple[int, int]]:
    """Return, for steps in a range, how many answers of teachers count, and how many there are."""
    files = files_of(pairs, "votes", trace_id)
    if not files:
        return {}
    rows = library.query(
        "select \"index\", count(*) filter (status = 'voted' and coalesce(excluded, '') = ''), count(*)"
        ' from read_parquet(?) where trace_id = ? and "index" >= ? and "index" < ? and attempt = 0 group by all',
        [files, trace_id, first, stop],
    )
    return {step: (voted, num) for step, voted, num in rows}
