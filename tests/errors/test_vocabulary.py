"""The report, the Space and the docs use the same words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from composer_hub.errors import vocabulary
from composer_hub.errors.vocabulary import BLAMES, EVIDENCE, KINDS, WRITERS, blame_words, kind_words, writer_words
from composer_hub.hints import writers as hints
from composer_hub.hub import spaces
from tests import house

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors_and_hints.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8")
ROWS = {
    cells[1].split("`")[1]: [cell.strip() for cell in cells[2:]]
    for cells in (line.split("|") for line in PAGE.splitlines() if line.startswith("| `"))
}
OF_USERS = {"train/hinting.py: short"}  # writers that a user's own code names


class Module(NamedTuple):
    """A file's constants, and its calls with the function around each."""

    constants: dict[str, ast.expr]
    calls: list[tuple[ast.Call, ast.FunctionDef | None]]

    @classmethod
    def of(cls, nodes: Iterable[ast.AST]) -> Module:
        tree = [*nodes]
        outer = {
            inner: function
            for function in tree
            if isinstance(function, ast.FunctionDef)
            for inner in ast.walk(function)
            if isinstance(inner, ast.Call)
        }
        assigned = (one for one in tree[0].body if isinstance(one, ast.Assign))
        constants = {one.targets[0].id: one.value for one in assigned if isinstance(one.targets[0], ast.Name)}
        return cls(constants, [(call, outer.get(call)) for call in tree if isinstance(call, ast.Call)])

    def texts(self, value: ast.expr, function: ast.FunctionDef | None) -> Iterator[str | None]:
        """Yield every text that an expression may be; None if that depends on more than this module."""
        if isinstance(value, ast.Name):
            parameters = [one.arg for one in function.args.args] if function else []
            if function and value.id in parameters:
                for call, around in self.calls:
                    if isinstance(call.func, ast.Name) and call.func.id == function.name and around is not function:
                        yield from self.texts(argument(call, parameters.index(value.id), value.id) or value, around)
                return
            value = self.constants.get(value.id, value)
        yield value.value if isinstance(value, ast.Constant) else None


def argument(call: ast.Call, at: int, name: str) -> ast.expr | None:
    by_name = {one.arg: one.value for one in call.keywords}
    return call.args[at] if at < len(call.args) else by_name.get(name)


def writers_of(nodes: Iterable[ast.AST], name: str = "") -> set[str]:
    """Return the writers that a module can give a hint, and `file: expression` for one that it cannot know."""
    module, found = Module.of(nodes), set()
    for call, function in module.calls:
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        value = argument(call, 1 if called == "Hint" else 99, "writer") if called in ("Hint", "replace") else None
        if value is not None:
            found |= {text or f"{name}: {ast.unparse(value)}" for text in module.texts(value, function)}
    return found


def writers_of_the_package() -> set[str]:
    package = ROOT / "composer_hub"
    files = (one for one in house.sources() if one.path.is_relative_to(package) and "Hint" in one.text)
    return set().union(*(writers_of(one.nodes, one.path.relative_to(package).as_posix()) for one in files))


def test_every_kind_has_an_example_of_its_evidence() -> None:
    assert all(EVIDENCE[kind] for kind in KINDS)


@pytest.mark.parametrize("blame", BLAMES)
def test_the_reference_has_each_blame_with_its_words(blame: str) -> None:
    assert f"`{blame}`: {blame_words(blame)}" in REFERENCE


def test_the_docs_name_every_writer_in_its_words() -> None:
    documented = {writer: cells[0] for writer, cells in ROWS.items()}
    assert documented == WRITERS, "docs/errors_and_hints.md has a row per writer, with its words."


def test_every_writer_of_the_package_has_words() -> None:
    found = writers_of_the_package()
    assert found >= hints.WRITERS.keys()
    assert found - OF_USERS == {*WRITERS}, (
        "Each writer under whose name the package makes a hint has its words in WRITERS of errors/vocabulary.py. If a "
        "user's own code names the writer, add the expression to OF_USERS."
    )
    assert found >= OF_USERS


@pytest.mark.parametrize(
    ("code", "writers"),
    [
        ('Hint(text, "me", "r", 1)', {"me"}),
        ('Hint(text, rule="r", writer="me")', {"me"}),
        ('NAME = "me"\ndef f(): return Hint(text, NAME, "r", 1)', {"me"}),
        ('def f(a, who): return Hint(a, who, "r")\ndef g(): return f(1, "me") or f(2, who="you")', {"me", "you"}),
        ('def f(who): return Hint(text, who, "r")\ndef g(who): return f(who)\ng("me")', {"me"}),
        ('dataclasses.replace(hint, text="", writer="me")', {"me"}),
        ("Hint(text, name_of(writer), 1)", {"file: name_of(writer)"}),
        ('Other(text, "me")', set()),
    ],
)
def test_a_writer_is_found_however_it_reaches_its_hint(code: str, writers: set[str]) -> None:
    assert writers_of(ast.walk(ast.parse(code)), "file") == writers


def test_no_two_kinds_have_the_same_words() -> None:
    words = [kind_words(kind) for kind in KINDS]
    assert len(set(words)) == len(words)


def test_every_kind_is_somebody_s_fault() -> None:
    assert set(KINDS.values()) == set(BLAMES)


def test_the_words_of_a_kind_from_elsewhere_are_its_name() -> None:
    assert kind_words("some_other_kind") == "some other kind"
    assert (blame_words("moon"), writer_words("me"), writer_words("")) == ("moon", "me", "no hint")


def test_a_deployed_space_has_the_package_s_own_words() -> None:
    content = spaces.app_files(["me/pairs@v1.0.0"])["inspector/vocabulary.py"]
    assert content == Path(str(vocabulary.__file__)).read_bytes()
    assert not re.search(rb"(?m)^(?:from|import) composer_hub", content)
