"""Toy packages with their tests, as tasks: what a generator would make of them, written by hand."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from composer_hub.environments.trees import Files
from composer_hub.records import SourceEdit, Task

DURATIONS = '''\
"""Durations."""
import re

UNITS = {"s": 1, "m": 60, "h": 3600}


def parse(text):
    """Return the seconds in a duration such as `1h30m`; raise ValueError on anything else."""
    if not re.fullmatch(r"(\\d+[smh])+", text):
        raise ValueError(text)
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\\d+)([smh])", text))


def show(seconds):
    """Return a duration as text."""
    return f"{seconds // 3600}h{seconds % 3600 // 60}m"
'''
DURATION_TESTS = """\
import pytest
from durations import parse, show


@pytest.mark.parametrize("text, seconds", [("90s", 90), ("1h30m", 5400), ("2h", 7200)])
def test_parse(text, seconds):
    assert parse(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "h1"])
def test_rejects(text):
    with pytest.raises(ValueError):
        parse(text)


def test_show():
    assert show(5400) == "1h30m"
"""
WORDS = '''\
"""Words."""


def camel(text):
    """Return `some_name` as `SomeName`."""
    return "".join(part.capitalize() for part in text.split("_"))


class Counter:
    """Counts words."""

    def __init__(self):
        self.counts = {}

    def add(self, text):
        """Add the words of a text and return the counter."""
        for word in text.lower().split():
            self.counts[word] = self.counts.get(word, 0) + 1
        return self
'''
WORD_TESTS = """\
import unittest
from wordtools.words import Counter, camel


class TestWords(unittest.TestCase):
    def test_camel(self):
        self.assertEqual(camel("some_name"), "SomeName")
        self.assertEqual(camel("a"), "A")

    def test_counter(self):
        self.assertEqual(Counter().add("a b A").counts, {"a": 2, "b": 1})
"""
CONFTEST = "import sys\n"


@dataclass(frozen=True)
class Toy:
    """A task with its bundle, and the hidden calls of its oracle."""

    task: Task
    files: Files
    calls: tuple[tuple[str, list[object]], ...]  # of an oracle: function, arguments

    def bundle(self, folder: Path) -> Path:
        path = folder / f"{self.task.task_id}.tar"
        with tarfile.open(path, "w") as archive:
            for name, data in self.files.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return path

    @property
    def solution(self) -> dict[str, bytes]:
        return {edit.path: (edit.text or "").encode() for edit in self.task.solution}


def emptied(source: str, function: str) -> str:
    """Return a module with the body of a function or method replaced."""
    head, line, rest = source.partition(next(line for line in source.splitlines(True) if f"def {function}(" in line))
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    body = rest.splitlines(True)
    last = next((number for number, one in enumerate(body) if one.strip() and not one.startswith(indent)), len(body))
    return head + line + indent + "raise NotImplementedError\n\n\n" + "".join(body[last:])


def toy(name: str, path: str, source: str, function: str, test_path: str, tests: str, f2p: list[str], p2p: list[str],
        module: str, calls: tuple[tuple[str, list[object]], ...], python_path: str) -> Toy:  # fmt: skip
    files = {path: source.encode(), test_path: tests.encode(), "conftest.py": CONFTEST.encode()}
    if "/" in path:
        files[path.rsplit("/", 1)[0] + "/__init__.py"] = b""
    task = Task(
        task_id=f"{name}-{function}", kind="stub", package=name, version="1", bundle_digest="0" * 64, license="MIT",
        copyleft=False, statement=f"Restore `{function}` in `{path}`.", statements=(), help_level=0,
        edits=(SourceEdit(path, emptied(source, function)),), solution=(SourceEdit(path, source),),
        editable=("**/*.py",), tests=(test_path,), fail_to_pass=tuple(f2p), pass_to_pass=tuple(p2p),
        python_path=(python_path,), symbols=(f"{module}:{function}",),
    )  # fmt: skip
    return Toy(task, files, calls)


TOYS = (
    toy("durations", "durations.py", DURATIONS, "parse", "tests/test_durations.py", DURATION_TESTS,
        [*(f"tests/test_durations.py::test_parse[{one}]" for one in ("90s-90", "1h30m-5400", "2h-7200")),
         *(f"tests/test_durations.py::test_rejects[{one}]" for one in ("", "1", "h1"))],
        ["tests/test_durations.py::test_show"], "durations",
        (("parse", ["91s"]), ("parse", ["3h2m"]), ("parse", ["x"]), ("parse", ["2h"])), "."),
    toy("durations", "durations.py", DURATIONS, "show", "tests/test_durations.py", DURATION_TESTS,
        ["tests/test_durations.py::test_show"],
        [f"tests/test_durations.py::test_parse[{one}]" for one in ("90s-90", "1h30m-5400", "2h-7200")], "durations",
        (("show", [5400]), ("show", [60]), ("show", [7320])), "."),
    toy("wordtools", "src/wordtools/words.py", WORDS, "camel", "tests/test_words.py", WORD_TESTS,
        ["tests/test_words.py::TestWords::test_camel"], ["tests/test_words.py::TestWords::test_counter"],
        "wordtools.words", (("camel", ["x_y"]), ("camel", ["some_name"]), ("camel", [""])), "src"),
)  # fmt: skip
