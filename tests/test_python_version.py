"""The oldest Python is named in pyproject.toml; nothing else promises, tests or works around an older one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OLDEST = PROJECT["project"]["requires-python"].removeprefix(">=")
# Programs that run on the interpreter of somebody else's package.
ELSEWHERE = ("composer_hub/tasks/inside/", "composer_hub/environments/calls.py")
MENTION = re.compile(r"python(?:[- _]version)?\W{0,5}3\.(\d+)|\bpy3(\d+)\b|version_info\W+\(?3, (\d+)", re.IGNORECASE)
BACKPORT = re.compile(r"^\s*(?:import|from) (?:tomli|exceptiongroup|typing_extensions|backports\S*)\b", re.MULTILINE)
FILES = [
    path
    for pattern in ("*.md", "*.toml", "*.txt", "Makefile", "docs/**/*.md", ".github/**/*.yml", "space/**/*.md",
                    "composer_hub/**/*.py", "scripts/*.py", "space/**/*.py", "tests/**/*.py")
    for path in sorted(ROOT.glob(pattern))
    if path != Path(__file__) and not str(path.relative_to(ROOT)).startswith(ELSEWHERE)
]  # fmt: skip


def older(text: str) -> list[str]:
    """Return the mentions of a Python that is older than the oldest."""
    least = int(OLDEST.split(".")[1])
    return [match[0] for match in MENTION.finditer(text) if int(next(filter(None, match.groups()))) < least]


OLD = ["Python 3.10", "python:3.9", 'python-version: "3.8"', "py310", "version_info < (3, 10"]
OTHERS = [f"Python {OLDEST}", "python:3.12", "py313", "orjson>=3.10", "version_info >= (3, 12)"]


@pytest.mark.parametrize("text", OLD)
def test_a_mention_of_an_older_python_is_found(text: str) -> None:
    assert older(text)


@pytest.mark.parametrize("text", OTHERS)
def test_other_numbers_are_not_mistaken_for_one(text: str) -> None:
    assert not older(text)


def test_no_file_mentions_an_older_python_or_imports_a_backport() -> None:
    found = {}
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if traces := older(text) + BACKPORT.findall(text):
            found[str(path.relative_to(ROOT))] = traces
    assert len(FILES) > 500
    assert found == {}


def test_the_linters_check_for_the_oldest_python() -> None:
    assert PROJECT["tool"]["ruff"]["target-version"] == "py" + OLDEST.replace(".", "")
    assert PROJECT["tool"]["mypy"]["python_version"] == OLDEST


def test_the_readme_and_the_index_name_it() -> None:
    assert f"Python {OLDEST} or newer" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Programming Language :: Python :: {OLDEST}" in PROJECT["project"]["classifiers"]
