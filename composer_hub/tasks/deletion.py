"""Feature deletion: functions without their bodies, clusters of them, and branches that are gone.

In: a package that was measured. Out: candidates, each with the tests that its edit can change.
"""

from __future__ import annotations

import ast
import functools
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from composer_hub.records import SourceEdit
from composer_hub.tasks.baseline import Baseline
from composer_hub.tasks.code import Function, Source, Splice, apply, emptied, functions, read
from composer_hub.tasks.sources import Package

STUB = "raise NotImplementedError"
ANSWER = 'return __import__("composer_variant").answer(locals())'  # of inside/run.py
VARIANTS = ("none", "argument", "text", "list", "true")
MAX_HELPERS = 8
T = TypeVar("T")


@dataclass(frozen=True)
class Candidate:
    """An edit of the package that may become a task."""

    kind: str
    site: str  # what tells it from the other candidates of its kind
    symbols: tuple[str, ...]
    splices: tuple[Splice, ...]
    guided: frozenset[str]  # the passing tests that the edit can change
    lines: int  # of code that is deleted or changed
    probes: tuple[Splice, ...] = ()  # the same edit with bodies that give trivial answers
    files: tuple[SourceEdit, ...] = ()  # whole files that change besides
    gold: tuple[SourceEdit, ...] | None = None  # the solution, where it is not the original of the changed files
    hidden: tuple[tuple[SourceEdit, SourceEdit], ...] = ()  # test files as the agent and as the verifier has them
    breaks_imports: bool = False  # whether modules may fail to import
    notes: dict[str, str] = field(default_factory=dict)  # for the statement


@dataclass(frozen=True, eq=False)
class Model:
    """A measured package, parsed."""

    package: Package
    baseline: Baseline

    @functools.cached_property
    def sources(self) -> dict[str, Source]:
        return {path: self._read(path) for path in self.package.sources}

    @functools.cached_property
    def tests(self) -> dict[str, Source]:
        return {path: self._read(path) for path in self.package.tests}

    @functools.cached_property
    def functions(self) -> tuple[Function, ...]:
        return tuple(one for source in self.sources.values() for one in functions(source))

    @functools.cached_property
    def texts(self) -> dict[str, str]:
        return {path: source.text for path, source in (self.sources | self.tests).items()}

    @functools.cached_property
    def by_name(self) -> dict[str, list[Function]]:
        found: dict[str, list[Function]] = {}
        for one in self.functions:
            found.setdefault(one.node.name, []).append(one)
        return found

    def _read(self, path: str) -> Source:
        return read(path, self.package.text(path), self.package.python_path)

    @functools.cache  # noqa: B019 (a model lives as long as its package is worked on)
    def tests_of(self, function: Function) -> frozenset[str]:
        """Return the tests that run the body of a function, and for cached functions those of its callers."""
        tests = self.baseline.tests_of(function.path, *function.body_lines)
        if any("cache" in one for one in function.decorators):
            for caller in self.functions:
                if function.node.name in caller.called_names:
                    tests |= self.baseline.tests_of(caller.path, *caller.body_lines)
        return tests

    def guided(self, tests: frozenset[str]) -> frozenset[str]:
        """Return the tests to run for an edit: those that run it, and those that start processes which may."""
        return tests | self.baseline.unseen

    def can_be_emptied(self, function: Function) -> bool:
        """Return whether tests, and not only imports, run the body."""
        odd = ("overload", "abstractmethod", "fixture")
        return (
            not function.is_trivial()
            and not any(name in one for one in function.decorators for name in odd)
            and bool(self.tests_of(function))
            and not self.baseline.runs_at_import(function.path, *function.body_lines)
        )


def stubs(model: Model, random: random.Random) -> Iterator[Candidate]:
    """Yield every tested function with its body replaced by `raise NotImplementedError`."""
    for function in shuffled(model.functions, random):
        if model.can_be_emptied(function):
            yield _emptied(model, "stub", [function])


def clusters(model: Model, random: random.Random) -> Iterator[Candidate]:
    """Yield functions with every helper that they reach and that no other test needs."""
    seen = set()
    for function in shuffled(model.functions, random):
        if not model.can_be_emptied(function):
            continue
        group = _closure(model, function)
        key = frozenset(one.symbol for one in group)
        if len(group) > 1 and key not in seen:
            seen.add(key)
            yield _emptied(model, "cluster", group)


def _closure(model: Model, seed: Function) -> list[Function]:
    tests, group, todo = model.tests_of(seed), [seed], [seed]
    while todo and len(group) <= MAX_HELPERS:
        for name in sorted(todo.pop().called_names):
            for helper in model.by_name.get(name, ()):
                own = model.tests_of(helper)
                if helper not in group and own and own <= tests and model.can_be_emptied(helper):
                    group.append(helper)
                    todo.append(helper)
    return sorted(group, key=lambda one: (one is not seed, one.path, one.node.lineno))[: MAX_HELPERS + 1]


def _emptied(model: Model, kind: str, group: list[Function]) -> Candidate:
    tests = frozenset().union(*(model.tests_of(one) for one in group))
    return Candidate(
        kind,
        group[0].symbol,
        tuple(one.symbol for one in group),
        tuple(emptied(one, STUB) for one in group),
        model.guided(tests),
        sum(one.body_lines[1] - one.body_lines[0] + 1 for one in group),
        tuple(emptied(one, ANSWER) for one in group),
    )


def branches(model: Model, random: random.Random) -> Iterator[Candidate]:
    """Yield functions in which one arm of an `if` is gone."""
    arms = [(one, node) for one in model.functions for node in ast.walk(one.node) if isinstance(node, ast.If)]
    for function, node in shuffled(arms, random):
        first, last = node.body[0].lineno, node.body[-1].end_lineno or 0
        tests = model.baseline.tests_of(function.path, first, last)
        if not tests or model.baseline.runs_at_import(function.path, *function.body_lines):
            continue
        splice = _without_arm(function, node)
        if splice is not None:
            where = f"{function.symbol}:{ast.unparse(node.test)[:80]}:{node.lineno}"
            yield Candidate("branch", where, (function.symbol,), (splice,), model.guided(tests), last - first + 1)


def _without_arm(function: Function, node: ast.If) -> Splice | None:
    """Return the splice that drops the first arm of an `if` and keeps what follows it."""
    source = function.source
    text, start = source.text, source.start(node)
    is_elif = text.startswith("elif", start)
    line = source.line_start(node.lineno)
    indent = text[line:start]
    if indent.strip():
        return None  # more than one statement on the line
    body_end = source.line_end(node.body[-1].end_lineno or 0)
    if not node.orelse:
        if is_elif:
            return Splice(source.path, line, body_end, "")
        blocks = [getattr(one, name, ()) for one in ast.walk(function.node) for name in ("body", "orelse", "finalbody")]
        alone = any(block == [node] for block in blocks)
        return Splice(source.path, line, body_end, f"{indent}pass\n" if alone else "")
    other = node.orelse[0]
    if isinstance(other, ast.If) and text.startswith("elif", source.start(other)):
        keep = source.start(other)
        return Splice(source.path, start, keep + 4, "elif" if is_elif else "if")
    found = re.search(r"^[ \t]*else[ \t]*:", text[body_end : source.start(other)], re.MULTILINE)
    if found is None or found.start() + body_end < body_end:
        return None
    if is_elif:
        return Splice(source.path, line, body_end + found.start(), "")
    first = source.line_start(other.lineno)
    inner = text[first : source.start(other)]
    end = source.line_end(node.end_lineno or 0)
    if inner.strip() or not inner.startswith(indent):
        return None
    if any(isinstance(one, ast.Constant) and isinstance(one.value, str) and one.lineno != one.end_lineno
           for statement in node.orelse for one in ast.walk(statement)):  # fmt: skip
        return None  # moving a text of several lines would change it
    lines = [
        indent + one[len(inner) :] if one.startswith(inner) else one
        for one in text[first:end].splitlines(keepends=True)
    ]
    return Splice(source.path, line, end, "".join(lines))


def shuffled(items: Iterable[T], random: random.Random) -> list[T]:
    """Return items in the order of a seed."""
    ordered = list(items)
    random.shuffle(ordered)
    return ordered


def edits_of(model: Model, candidate: Candidate, splices: tuple[Splice, ...] | None = None) -> tuple[SourceEdit, ...]:
    """Return the files that a candidate changes."""
    changed = apply(model.texts, candidate.splices if splices is None else splices)
    return tuple(sorted((*changed, *candidate.files), key=lambda edit: edit.path))
