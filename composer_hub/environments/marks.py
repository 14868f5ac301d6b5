"""Tests that report what they compare: marks in their source, a run in the sandbox, a comparison outside.

A test that reports "passed" beside the code under test proves nothing, because that code can report it as
well. So a test reports the values that it compares, and they are judged where the solution's values are
known.
"""

from __future__ import annotations

import ast
import json
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub.environments.calls import same
from composer_hub.environments.process import Completed, memory_file
from composer_hub.environments.sandbox import Limits, Sandbox

GRADE, VALUES = Path(__file__).with_name("grade.py"), Path(__file__).with_name("calls.py")
FLAGS = (
    *("-p", "no:cacheprovider", "-q", "--tb=no", "--continue-on-collection-errors"),
    *("-o", "addopts=", "-o", "required_plugins=", "-o", "xfail_strict=false"),
)
DRIVER = "_composer_driver"  # the mark in the tests of oracles, which are published
Values = Mapping[str, Mapping[int, Sequence[Any]]]
"""Test -> place in its source -> the values that it compared there, in their order."""


@dataclass(frozen=True)
class Told:
    """Everything that the test process has reported; none of it is proof."""

    values: Values
    end: Mapping[str, Any] | None  # how each test ended, and what was replaced; None without exactly one such line
    num_ends: int
    done: Completed


def python_env(place: str, python_path: Sequence[str]) -> dict[str, str]:
    """Return the variables under which a tree at `place` is imported and tested."""
    paths = [place if one == "." else f"{place}/{one}" for one in python_path]
    return {"PYTHONPATH": ":".join(dict.fromkeys([*paths, place])), "PYTHONHASHSEED": "0", "TZ": "UTC"}


def run_marked(
    root: Path,  # a tree whose tests call `mark`
    files: Sequence[str],
    wanted: Collection[str],  # tests; empty: all of the files
    mark: str,
    python_path: Sequence[str],
    sandbox: Sandbox,
    venv: Path | None,
    seconds: float,
) -> Told:
    """Run test files over a tree in the sandbox."""
    place = sandbox.inside(root)
    env = python_env(place, python_path)
    order = {
        "mark": mark,
        "deep": mark == DRIVER,
        "wanted": sorted(wanted),
        "values": str(VALUES),
        "path": [place, *(one for one in env.pop("PYTHONPATH").split(":") if one != place)],
        "arguments": [*FLAGS, "--rootdir", place, *files],
    }
    order_fd = memory_file(json.dumps(order).encode())
    try:
        with tempfile.TemporaryFile() as report:
            done = sandbox.run(
                ["python" if venv else "python3", "-B", str(GRADE), str(order_fd), str(report.fileno())],
                root=root,
                venv=venv,
                read_only=[GRADE, VALUES],
                env=env,
                limits=Limits(seconds=seconds, cpu_seconds=int(seconds) + 1),
                pass_fds=[order_fd, report.fileno()],
            )
            report.seek(0)
            lines = report.read(64 << 20).decode(errors="replace").splitlines()
    finally:
        os.close(order_fd)
    values, ends = read_marks(lines)
    return Told(values, ends[0] if len(ends) == 1 else None, len(ends), done)


def read_marks(lines: Sequence[str]) -> tuple[Values, list[Mapping[str, Any]]]:
    """Return the values and the last words among the lines of a process; other lines say nothing."""
    values: dict[str, dict[int, list[Any]]] = {}
    ends: list[Mapping[str, Any]] = []
    for line in lines:
        try:
            read = json.loads(line)
        except ValueError:
            continue
        if isinstance(read, list) and len(read) == 3 and isinstance(read[0], str) and isinstance(read[1], int):
            values.setdefault(read[0], {}).setdefault(read[1], []).append(read[2])
        elif isinstance(read, dict) and isinstance(read.get("passed"), dict):
            ends.append(read)
    return values, ends


def agree(values: Mapping[int, Sequence[Any]], wanted: Mapping[int, Sequence[Any]]) -> bool:
    """Return whether a test has reported the right value at each place."""
    return all(same(list(values.get(site, ())), list(recorded)) for site, recorded in wanted.items())


# --------------------------------------------------------------------------------------------------------------- source


def marked(source: bytes, mark: str) -> bytes:
    """Put a call around each side of the equalities that tests assert; lines keep their numbers."""
    try:
        text = source.decode()
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return source
    lines = text.encode().splitlines(keepends=True)  # the columns of ast are bytes
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = b"".join(lines)
    places = sorted({one for node in ast.walk(tree) for one in map(_place, sides(node))})
    after = [one[0] for one in places[1:]] + [(len(lines) + 1, 0)]
    kept = [one for one, begin in zip(places, after, strict=False) if one[1] <= begin]
    for number, (first, last) in reversed(list(enumerate(kept))):
        begin, end = starts[first[0] - 1] + first[1], starts[last[0] - 1] + last[1]
        data = data[:begin] + f"{mark}({number}, ".encode() + data[begin:end] + b")" + data[end:]
    return data


def _place(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def sides(node: ast.AST) -> Iterator[ast.expr]:
    """Yield both sides of an equality that a node asserts, except constants and approximations."""
    compared: Sequence[ast.expr] = ()
    if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare) and len(node.test.ops) == 1:
        if isinstance(node.test.ops[0], (ast.Eq, ast.Is)):
            compared = (node.test.left, *node.test.comparators)
    elif is_equality(node):
        compared = node.args[:2]  # type: ignore[attr-defined]
    if not any("approx" in ast.unparse(one) for one in compared):
        yield from (one for one in compared if _can_be_marked(one))


def is_equality(node: ast.AST) -> bool:
    """Return whether a node calls `assertEqual` or one of its kin."""
    name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return (
        name.startswith("assert") and name.endswith(("Equal", "Equals")) and "Almost" not in name and "Not" not in name
    )


def _can_be_marked(value: ast.expr) -> bool:
    if isinstance(value, (ast.Constant, ast.Starred, ast.GeneratorExp)):
        return False
    return not any(isinstance(inner, (ast.NamedExpr, ast.Await, ast.Yield)) or is_equality(inner)
                   for inner in ast.walk(value))  # fmt: skip
