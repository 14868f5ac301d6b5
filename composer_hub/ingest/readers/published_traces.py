"""Traces that this package published, including rollouts of training runs, read back unchanged.

In: Parquet files of the config `traces`, or the JSON lines that a training run writes. Out: the `Trace` of each row,
with its ids, steps, error sites, hints and provenance. Broken rows are counted with their place and left out.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

from composer_hub.ingest.assemble import counts_of
from composer_hub.ingest.documents import head_records, parquet_columns, read_rows, without_nulls
from composer_hub.ingest.foreign import is_within, parse_json
from composer_hub.ingest.report import FileReport
from composer_hub.records import Trace, from_row
from composer_hub.session import Session

NAME = "composer_hub"

MAX_NESTING = 200
"""Deepest nesting of a JSON column; deeper values cannot be walked."""
_COLUMNS = tuple(column.name for column in dataclasses.fields(Trace))
_FIRST = _COLUMNS.index("messages") + 1
_JSON_COLUMNS = ("messages", "tools", "provenance", "counts")
_ROLES = ("system", "user", "assistant", "tool")


class _NoTrace(ValueError):
    """The reason why a row is not a trace."""


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a trace by the names of its columns; of a long JSON row only the first are in the head."""
    if head[:4] == b"PAR1":
        return parquet_columns(path) >= {*_COLUMNS[:_FIRST], "steps", "redaction"}
    names = tuple(next(iter(head_records(head)), {}))
    return len(names) >= _FIRST and names[:_FIRST] == _COLUMNS[:_FIRST] and names[_FIRST:][:1] in ((), ("steps",))


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the trace of each row; of lines written twice, as by a resumed run, only the last."""
    last = _last_lines(path)
    for number, row in read_rows(path, report):
        if last.get(_id_of(row), number) != number:
            report.add("duplicate_lines")
            continue
        try:
            session = session_of(row)
        except _NoTrace as error:
            report.corrupt(number, f"is no trace that composer_hub published ({error}) and was left out.")
            continue
        if session.trace.steps:
            _count(session.trace, report)
            yield session
        else:
            report.add("no_steps")


def session_of(row: Mapping[str, Any]) -> Session:
    """Return a row as the session it is."""
    trace = trace_of(row)
    # Rollouts that say the same are not copies of each other, so a step's key is its id.
    return Session(trace, keys=tuple(step.step_id for step in trace.steps), is_prepared=True)


def trace_of(row: Mapping[str, Any]) -> Trace:
    """Return the published trace of a row; raise _NoTrace for other rows."""
    try:
        given = without_nulls({name: value for name, value in row.items() if name not in _JSON_COLUMNS})
        texts = {name: _decoded(row[name]) for name in _JSON_COLUMNS if row.get(name) is not None}
        if not all(is_within(value, MAX_NESTING) for value in texts.values()):
            raise _NoTrace(f"nested more than {MAX_NESTING} levels deep")
        trace = from_row(Trace, given | texts)
    except _NoTrace:
        raise
    except KeyError as error:
        raise _NoTrace(f"{error} is missing") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise _NoTrace(str(error)) from error
    _check(trace)
    return trace


def _id_of(row: Mapping[str, Any]) -> str:
    return str(row.get("trace_id"))


def _last_lines(path: Path) -> dict[str, int]:
    """Return the last line of each trace in lines of JSON; a table has each trace once."""
    with path.open("rb") as file:
        if file.read(4) == b"PAR1":
            return {}
    return {_id_of(row): number for number, row in read_rows(path, FileReport())}


def _count(trace: Trace, report: FileReport) -> None:
    report.add("traces")
    report.add("steps", len(trace.steps))
    report.add("calls", counts_of(trace.messages, trace.steps)["num_calls"])
    report.add("inexact", sum(not step.prefix_exact for step in trace.steps))
    report.add("branch_steps", sum(not step.on_main_branch for step in trace.steps))


# ------------------------------------------------------------------------------------------------------- a row's values


def _decoded(value: Any) -> Any:
    """Decode a value of a JSON column, which is text in Parquet, whole or item by item."""
    if isinstance(value, list):
        return [_decoded(item) if isinstance(item, str) else item for item in value]
    return parse_json(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else value


# ------------------------------------------------------------------------------------------------------------ checks


def _check(trace: Trace) -> None:
    """Raise _NoTrace if a value does not have its column's type, or a step refers to messages out of range."""
    _check_types(trace, "")
    size = len(trace.messages)
    if not trace.trace_id:
        raise _NoTrace("trace_id is empty")
    for name, count in trace.counts.items():
        # Counts are not redacted, so nothing else may hide there.
        if not all(_fits(number, float) for number in (count.values() if isinstance(count, dict) else [count])):
            raise _NoTrace(f"counts.{name[:40]} is no number")
    for message in trace.messages:
        if message.role not in _ROLES:
            raise _NoTrace(f"{message.role[:40]!r} is no role")
    for number, step in enumerate(trace.steps):
        if step.index != number:
            raise _NoTrace(f"step {number} is numbered {step.index}")
        if not 0 <= step.action < size or trace.messages[step.action].role != "assistant":
            raise _NoTrace(f"the action of step {number} is no message of the assistant")
        if not all(len(span) == 2 and 0 <= span[0] <= span[1] <= step.action for span in step.prompt):
            raise _NoTrace(f"the prompt of step {number} does not end before its action")
        if not all(step.action < place < size for place in step.results):
            raise _NoTrace(f"the results of step {number} do not stand behind its action")
    ids = [step.step_id for step in trace.steps]
    if "" in ids or len(set(ids)) < len(ids):
        raise _NoTrace("two steps have one id, or a step has none")


def _check_types(record: Any, where: str) -> None:
    for name, hint in _hints(record.__class__).items():
        _check_type(getattr(record, name), hint, f"{where}{name}")


def _check_type(value: Any, hint: Any, where: str) -> None:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        if value is not None:
            _check_type(value, typing.get_args(hint)[0], where)
    elif hint is not Any and not _fits(value, origin or hint):
        raise _NoTrace(f"{where} is {type(value).__name__}, not {(origin or hint).__name__}")
    elif origin is tuple:
        for item in value:
            _check_type(item, typing.get_args(hint)[0], where)
    elif dataclasses.is_dataclass(hint):
        _check_types(value, f"{where}.")


def _fits(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


@functools.cache
def _hints(cls: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(cls)
