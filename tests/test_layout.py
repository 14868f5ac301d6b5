"""The direction of imports, and what a stage may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import composer_hub

PACKAGE = Path(composer_hub.__file__).parent
# A part may import the parts named here, and itself.
MAY_IMPORT = {
    "exits": set(),
    "records": {"exits"},
    "output": {"exits"},
    "ingest": {"exits", "records", "output"},
    "hint_templates": {"exits", "records", "ingest"},
    "hindsight": {"exits", "records", "ingest", "hint_templates"},
    "hint_judge": {"exits", "records", "ingest", "hint_templates"},
    "hints": {"exits", "records", "ingest", "hint_templates", "hindsight", "hint_judge"},
    "prepare": {"exits", "records", "ingest", "hints"},
    "replay": {"exits", "records", "output", "ingest", "hints"},
    "tasks": {"exits", "records", "output"},
    "hub": {"exits", "records", "output"},
    "train": {"exits", "records", "output", "ingest", "hints", "hint_templates", "replay", "tasks", "hub"},
    "commands": {
        "exits",
        "records",
        "output",
        "ingest",
        "hints",
        "hint_judge",
        "prepare",
        "replay",
        "tasks",
        "hub",
        "train",
        "cli",
    },
    "cli": {"exits", "output"},
    "__main__": {"cli"},
}
HEAVY = {"torch", "transformers", "trl", "gradio", "accelerate", "peft"}
SLOW = {"datasets", "pyarrow", "pandas", "starlette", "uvicorn"}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name != "__init__.py")


def part_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def at_the_top(tree: ast.Module) -> ast.Module:
    """Leave out what runs only when called, and what only a type checker reads."""
    body = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return ast.Module(body=body, type_ignores=[])


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    part = part_of(path)
    tree = ast.parse(path.read_text())
    parts = {name.split(".")[1] for name in imported(tree) if name.startswith("composer_hub.")}
    known = {name for name in parts if name in MAY_IMPORT}
    assert known <= MAY_IMPORT[part] | {part}, f"{path.name} of {part} may not import {known - MAY_IMPORT[part]}"


@pytest.mark.parametrize(
    "path", [p for p in modules() if part_of(p) != "train"], ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_no_data_stage_imports_a_training_library(path: Path) -> None:
    tree = ast.parse(path.read_text())
    tops = {name.split(".")[0] for name in imported(tree)}
    allowed = HEAVY if part_of(path) == "commands" else set()
    assert not (tops & HEAVY) - allowed
    assert not {name.split(".")[0] for name in imported(at_the_top(tree))} & HEAVY


@pytest.mark.parametrize("module", ["records", "cli", "output", "exits", "ingest.readers", "hints", "replay.actions"])
def test_importing_a_stage_loads_no_slow_library(module: str) -> None:
    code = f"import sys, composer_hub.{module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in run.stdout.split()}
    assert not loaded & (SLOW | HEAVY)
