"""The direction of imports between rooms and inside them, what a stage may load, and how large the house may be."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import composer_hub
from tests import house

PACKAGE = Path(composer_hub.__file__).parent
# A room may import the rooms above it, never one below it, and none on its own line.
LADDER: tuple[str, ...] = (
    "exits records local_hub",
    "session harnesses output money named_files extras options",
    "actions redact hub",
    "shards errors",
    "exports",
    "hints",
    "ingest pairs environments",
    "replay tasks report",
    "train",
    "jobs",
    "integrations",
    "cli",
    "__main__",
)
WINGS: dict[str, str] = {  # rooms that a reader looks for together; docs/architecture.md shows the same table
    "base": "exits records session harnesses output money named_files extras options",
    "hub": "local_hub hub shards",
    "sessions": "actions redact errors hints ingest report exports",
    "learning": "replay pairs environments tasks train jobs integrations",
    "tools": "cli __main__",
}
MAX_LEVELS = 14
MAX_IN_CYCLES = 0
MAX_COMMAND_LINES = 150  # in a file of cli/
MAX_BRANCHES = 20  # of a function
HEAVY = {"torch", "transformers", "trl", "gradio", "accelerate", "peft"}
SLOW = {"datasets", "pyarrow", "pandas", "starlette", "uvicorn"}
MAY_LOAD_HEAVY = {"train", "integrations"}
LOADS_HEAVY_LATE = {"cli", "environments"}  # inside functions

Graph = dict[str, set[str]]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


PATHS = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"}


def room_of(name: str) -> str:
    return name.split(".")[0]


@functools.cache
def parsed(name: str) -> ast.Module:
    return ast.parse(PATHS[name].read_text())


def imported(*nodes: ast.AST) -> set[str]:
    """Return the full names that some nodes import, with everything below them."""
    names: set[str] = set()
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def own(name: str, names: set[str]) -> set[str]:
    """Return the modules of the package among imported names; a package counts only if nothing inside it was named."""
    inside = {one.removeprefix("composer_hub.") for one in names if one.startswith("composer_hub.")} & PATHS.keys()
    return {one for one in inside if not any(other.startswith(f"{one}.") for other in inside)} - {name}


def at_the_top(name: str) -> list[ast.stmt]:
    """Leave out what runs only when called, and what only a type checker reads."""
    return [node for node in parsed(name).body if isinstance(node, (ast.Import, ast.ImportFrom))]


def in_functions(name: str) -> list[ast.AST]:
    return [node for node in ast.walk(parsed(name)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


@functools.cache
def graph(lazy: bool) -> Graph:
    """Return module -> modules it imports at the top, with those inside functions if `lazy`."""
    return {name: own(name, imported(*at_the_top(name), *(in_functions(name) if lazy else ()))) for name in PATHS}


def reachable(start: str, edges: Graph) -> set[str]:
    seen: set[str] = set()
    todo = [*edges[start]]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(edges[name])
    return seen


def test_no_module_is_hidden_by_a_name_of_its_package() -> None:
    hidden = {
        f"{package}.{alias.asname or alias.name}"
        for package, path in PATHS.items()
        if path.name == "__init__.py"
        for node in ast.walk(parsed(package))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if f"{package}.{alias.asname or alias.name}" in PATHS and node.module != f"composer_hub.{package}"
    }
    assert hidden <= {"tasks.make"}


def test_commands_stay_short() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in PATHS.items() if room_of(name) == "cli"}
    assert {name: length for name, length in lengths.items() if length > MAX_COMMAND_LINES} == {}


def test_every_room_is_on_the_ladder_once() -> None:
    rungs = [room for line in LADDER for room in line.split()]
    assert sorted(rungs) == sorted({room_of(name) for name in PATHS})


def test_every_room_is_in_one_wing_and_the_docs_name_it() -> None:
    assert sorted(room for wing in WINGS.values() for room in wing.split()) == sorted({room_of(name) for name in PATHS})
    text = (house.ROOT / "docs" / "architecture.md").read_text()
    for wing, rooms in WINGS.items():
        assert f"| {wing} | {', '.join(f'`{room}`' for room in rooms.split())} |" in text


def test_the_docs_list_the_rooms_as_the_ladder_does() -> None:
    table = (house.ROOT / "docs" / "architecture.md").read_text().partition("| room |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)(?:/|\.py)`", line.split("|")[1]) for line in table.splitlines()[2:]]
    rung = {room: number for number, line in enumerate(LADDER) for room in line.split()}
    assert sorted(room for row in rows for room in row) == sorted(rung)
    rungs = [{rung[room] for room in row} for row in rows]
    assert rungs == sorted(rungs, key=min)
    assert all(len(row) == 1 for row in rungs), "rooms of one row are on one line of the ladder"


def test_imports_go_up_the_ladder_only() -> None:
    rung = {room: number for number, line in enumerate(LADDER) for room in line.split()}
    down = {
        f"{name} may not import {one}"
        for name, imports in graph(lazy=True).items()
        for one in imports
        if room_of(one) != room_of(name) and rung[room_of(one)] >= rung[room_of(name)]
    }
    assert not down


def test_few_modules_import_themselves_through_others() -> None:
    edges = graph(lazy=True)
    circular = [name for name in PATHS if name in reachable(name, edges)]
    assert len(circular) <= MAX_IN_CYCLES, circular


def test_the_embedded_hub_imports_nothing_else_of_the_package() -> None:
    foreign = {
        f"{name} imports {one}"
        for name in PATHS
        if room_of(name) == "local_hub"
        for one in imported(parsed(name))
        if one.startswith("composer_hub") and not f"{one}.".startswith("composer_hub.local_hub.")
    }
    assert not foreign


def test_chains_of_imports_stay_short() -> None:
    edges = graph(lazy=False)

    @functools.cache
    def level(name: str) -> int:
        return 1 + max((level(one) for one in edges[name]), default=0)

    deepest = max(PATHS, key=level)
    assert level(deepest) <= MAX_LEVELS, f"{deepest} is on level {level(deepest)}"


def test_the_house_does_not_grow() -> None:
    raised = house.raised(house.table())
    assert not raised, (
        f"{'; '.join(raised)}. Make it smaller: look for the helper that exists, delete what your change made dead, "
        "fold no lines. If it must grow, run `python -m tests.house --write` and give the reason in the commit message."
    )


def test_no_function_has_many_branches() -> None:
    counted = house.branches_by_function()
    assert {"main", "_awaited"} <= {name.split()[1] for name in counted}
    large = {name: number for name, number in counted.items() if number > MAX_BRANCHES}
    assert not large, (
        f"More than {MAX_BRANCHES} branches: {large}. Look for the idea that is missing: a table, a question with a "
        "name, a generator of reasons. Two halves of a function are not easier to read."
    )


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("pass", 0),
        ("if a: pass\nelif b: pass\nelse: pass", 2),
        ("x = a or b or (c and d) if e else f", 4),
        ("for a in b: pass\nwhile c: pass", 2),
        ("async for a in b: pass", 1),
        ("try: pass\nexcept A: pass\nexcept B: pass\nfinally: pass", 2),
        ("x = [a for b in c for a in b if a]", 2),
        ("match a:\n case 1: pass\n case _: pass", 2),
        ("def g(): return 1 if a else 2", 1),
    ],
)
def test_branches_are_counted(code: str, number: int) -> None:
    function = ast.parse("async def f():\n" + "".join(f" {line}\n" for line in code.splitlines())).body[0]
    assert house.branches(function) == number


def test_the_page_about_the_size_is_written_from_the_table() -> None:
    assert house.PAGE.read_text() == house.page(house.table()), "Run `python -m tests.house --write`."


def test_no_data_stage_imports_a_training_library() -> None:
    stages = [name for name in PATHS if room_of(name) not in MAY_LOAD_HEAVY | LOADS_HEAVY_LATE]
    assert not [name for name in stages if loads_heavy(imported(parsed(name)))]


def test_commands_and_environments_load_training_libraries_late() -> None:
    late = [name for name in PATHS if room_of(name) in LOADS_HEAVY_LATE]
    assert not [name for name in late if loads_heavy(imported(*at_the_top(name)))]


def loads_heavy(names: Iterable[str]) -> bool:
    return any(one.split(".")[0] in HEAVY for one in names)


@pytest.mark.parametrize("name", ["records", "cli.main", "output", "exits", "ingest.sources", "hints", "actions.forms"])
def test_importing_a_stage_loads_no_slow_library(name: str) -> None:
    code = f"import sys, composer_hub.{name}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {one.split(".")[0] for one in run.stdout.split()}
    assert not loaded & (SLOW | HEAVY)
