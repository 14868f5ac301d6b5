"""Features deleted and bugs put in: functions without bodies, clusters of them, branches gone, small changes.

In: a package that was measured. Out: candidates, each with the tests that its edit can change.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from composer_hub.records import SourceEdit
from composer_hub.tasks.baseline import Baseline
from composer_hub.tasks.code import Splice, apply
from composer_hub.tasks.language import Language, Package, Routine

VARIANTS = ("none", "argument", "text", "list", "true")
MAX_HELPERS = 8
T = TypeVar("T")


@dataclass(frozen=True)
class Candidate:
    """An edit of the package that may become a task."""

    kind: str
    site: str  # unique among the candidates of its kind
    symbols: tuple[str, ...]
    splices: tuple[Splice, ...]
    guided: frozenset[str]  # the passing tests that the edit can change
    lines: int  # of code that is deleted or changed
    probes: tuple[Splice, ...] = ()  # the same edit with bodies that give trivial answers
    files: tuple[SourceEdit, ...] = ()  # whole files that change besides
    gold: tuple[SourceEdit, ...] | None = None  # the solution, if it is not the original files
    hidden: tuple[tuple[SourceEdit, SourceEdit], ...] = ()  # test files as the agent and as the verifier has them
    breaks_imports: bool = False  # whether modules may fail to import
    notes: dict[str, str] = field(default_factory=dict)  # for the statement


@dataclass(frozen=True, eq=False)
class PackageModel:
    """A measured package, parsed."""

    package: Package
    baseline: Baseline

    @property
    def language(self) -> Language:
        return self.package.language

    @functools.cached_property
    def sources(self) -> dict[str, Any]:
        return {path: self._read(path) for path in self.package.sources}

    @functools.cached_property
    def tests(self) -> dict[str, Any]:
        return {path: self._read(path) for path in self.package.tests}

    @functools.cached_property
    def functions(self) -> tuple[Any, ...]:
        return tuple(one for source in self.sources.values() for one in self.language.functions(source))

    @functools.cached_property
    def texts(self) -> dict[str, str]:
        return {path: source.text for path, source in (self.sources | self.tests).items()}

    @functools.cached_property
    def by_name(self) -> dict[str, list[Routine]]:
        found: dict[str, list[Routine]] = {}
        for one in self.functions:
            found.setdefault(one.name, []).append(one)
        return found

    def _read(self, path: str) -> Any:
        return self.language.read(path, self.package.text(path), self.package.python_path)

    @functools.cache  # noqa: B019 (a model lives as long as its package is worked on)
    def tests_of(self, function: Routine) -> frozenset[str]:
        """Return the tests that run the body of a function, and for cached functions those of its callers."""
        tests = self.baseline.tests_of(function.path, *function.body_lines)
        if function.is_cached:
            for caller in self.functions:
                if function.name in caller.called_names:
                    tests |= self.baseline.tests_of(caller.path, *caller.body_lines)
        return tests

    def guided(self, tests: frozenset[str]) -> frozenset[str]:
        """Return the tests to run for an edit: those that run it, and those that start processes which may."""
        return tests | self.baseline.unseen

    def can_be_emptied(self, function: Routine) -> bool:
        """Return whether tests, and not only imports, run the body."""
        return (
            function.can_be_emptied()
            and bool(self.tests_of(function))
            and not self.baseline.runs_at_import(function.path, *function.body_lines)
        )


def stubs(model: PackageModel, random: random.Random) -> Iterator[Candidate]:
    """Yield every tested function with a body that is not written yet."""
    for function in shuffled(model.functions, random):
        if model.can_be_emptied(function):
            yield _emptied(model, "stub", [function])


def clusters(model: PackageModel, random: random.Random) -> Iterator[Candidate]:
    """Yield functions with up to MAX_HELPERS helpers that they reach and that no other test needs."""
    seen = set()
    for function in shuffled(model.functions, random):
        if not model.can_be_emptied(function):
            continue
        group = _closure(model, function)
        key = frozenset(one.symbol for one in group)
        if len(group) > 1 and key not in seen:
            seen.add(key)
            yield _emptied(model, "cluster", group)


def _closure(model: PackageModel, seed: Routine) -> list[Routine]:
    tests, group, todo = model.tests_of(seed), [seed], [seed]
    while todo and len(group) <= MAX_HELPERS:
        for name in sorted(todo.pop().called_names):
            for helper in model.by_name.get(name, ()):
                own = model.tests_of(helper)
                if helper not in group and own and own <= tests and model.can_be_emptied(helper):
                    group.append(helper)
                    todo.append(helper)
    return sorted(group, key=lambda one: (one is not seed, one.path, one.first_line))[: MAX_HELPERS + 1]


def _emptied(model: PackageModel, kind: str, group: list[Routine]) -> Candidate:
    tests = frozenset().union(*(model.tests_of(one) for one in group))
    return Candidate(
        kind,
        group[0].symbol,
        tuple(one.symbol for one in group),
        tuple(model.language.emptied(one, model.language.stub) for one in group),
        model.guided(tests),
        sum(one.body_lines[1] - one.body_lines[0] + 1 for one in group),
        tuple(model.language.emptied(one, model.language.answer) for one in group),
    )


def branches(model: PackageModel, random: random.Random) -> Iterator[Candidate]:
    """Yield functions in which one arm of an `if` is gone."""
    arms = [(one, arm) for one in model.functions for arm in model.language.arms(one)]
    for function, arm in shuffled(arms, random):
        first, last = arm.lines
        tests = model.baseline.tests_of(function.path, first, last)
        if not tests or model.baseline.runs_at_import(function.path, *function.body_lines):
            continue
        where = f"{function.symbol}:{arm.condition}:{arm.line}"
        yield Candidate("branch", where, (function.symbol,), (arm.without,), model.guided(tests), last - first + 1)


def bugs(model: PackageModel, random: random.Random) -> Iterator[Candidate]:
    """Yield one bug per site: the kind of change is drawn before the site, so that rare kinds occur."""
    by_kind: dict[str, list[tuple[Routine, int, Splice]]] = {}
    for function in model.functions:
        if model.can_be_emptied(function):
            for kind, line, splice in model.language.mutants(function):
                by_kind.setdefault(kind, []).append((function, line, splice))
    queues = {kind: shuffled(by_kind[kind], random) for kind in sorted(by_kind)}
    while any(queues.values()):
        for kind, queue in queues.items():
            if queue:
                candidate = _bug(model, kind, *queue.pop())
                if candidate is not None:
                    yield candidate


def _bug(model: PackageModel, kind: str, function: Routine, line: int, splice: Splice) -> Candidate | None:
    tests = model.baseline.tests_of(function.path, line, line) or model.tests_of(function)
    site = f"{function.symbol}:{kind}:{splice.start}"
    if model.texts[splice.path][splice.start : splice.end] == splice.text:
        return None
    return Candidate("bug", site, (function.symbol,), (splice,), model.guided(tests), 1, notes={"mutation": kind})


def shuffled(items: Iterable[T], random: random.Random) -> list[T]:
    """Return items in the order of a seed."""
    ordered = list(items)
    random.shuffle(ordered)
    return ordered


def edits_of(
    model: PackageModel, candidate: Candidate, splices: tuple[Splice, ...] | None = None
) -> tuple[SourceEdit, ...]:
    """Return the files that a candidate changes."""
    changed = apply(model.texts, candidate.splices if splices is None else splices)
    return tuple(sorted((*changed, *candidate.files), key=lambda edit: edit.path))
