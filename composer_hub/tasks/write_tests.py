"""Tasks whose answer is a test file: the tests of a function are gone, and mutants say what new ones must find."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from composer_hub.records import SourceEdit
from composer_hub.tasks.bench import Bench, Job
from composer_hub.tasks.code import Function, Source, Splice, apply, parts_of
from composer_hub.tasks.deletion import Candidate, PackageModel, shuffled
from composer_hub.tasks.gates import Checked, parses
from composer_hub.tasks.language import files_of
from composer_hub.tasks.mutation import mutants

MAX_MUTANTS, MIN_KILLED = 12, 3
MAX_TEST_FUNCTIONS = 12


def test_writing(
    bench: Bench, model: PackageModel, random: random.Random, number: int
) -> Iterator[tuple[Checked, list[dict]]]:
    """Yield functions whose tests are removed, with the mutants that new tests must detect."""
    tried = 0
    for function in shuffled(model.functions, random):
        if tried == 3 * number:
            return
        tests = model.tests_of(function)
        if not tests or function.node.name.startswith("_") or not model.can_be_emptied(function):
            continue
        found = _without_tests(model, function, tests)
        changes = [splice for _, _, splice in mutants(function)]
        if found is None or len(changes) < MIN_KILLED:
            continue
        tried += 1
        random.shuffle(changes)
        killed = _killed(bench, model, tests, changes[:MAX_MUTANTS])
        if len(killed) >= MIN_KILLED:
            yield _test_task(model, function, tests, found), killed


def _without_tests(model: PackageModel, function: Function, tests: frozenset[str]) -> tuple[list[Splice], str] | None:
    """Return the splices that take the tests of a function out of its one test file."""
    paths = files_of(tests)
    if len(paths) != 1 or tests & model.baseline.spawners:
        return None
    source = model.tests.get(paths[0])
    names = {parts_of(id)[1:] for id in tests}
    if source is None or len(names) > MAX_TEST_FUNCTIONS:
        return None
    nodes = [test_function(source, name) for name in sorted(names)]
    if any(node is None for node in nodes):
        return None
    splices = []
    for node, block in (one for one in nodes if one is not None):
        start, end = source.whole_lines(node)
        gone = sum(1 for other in nodes if other is not None and other[1] is block)
        keep = " " * node.col_offset + "pass\n" if node.col_offset and gone == len(block) else ""
        splices.append(Splice(source.path, start, end, keep))
    return splices, source.path


def test_function(source: Source, names: Sequence[str]) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, list] | None:
    """Return a test function and the block that holds it; None if there is none, or another of its name."""
    block: list[ast.stmt] = source.tree.body
    for number, name in enumerate(names):
        named = [one for one in block if getattr(one, "name", None) == name]
        node = named[0] if len(named) == 1 else None
        if number == len(names) - 1 and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return node, block
        if not isinstance(node, ast.ClassDef):
            return None
        block = node.body
    return None


def _killed(bench: Bench, model: PackageModel, tests: frozenset[str], splices: Sequence[Splice]) -> list[dict]:
    """Return the mutants, as path -> text, that the existing tests fail on."""
    files = files_of(tests)
    seconds = 20 + 10 * sum(model.baseline.seconds.get(id, 0) for id in tests)
    edits = [edit for splice in splices for edit in apply(model.texts, [splice]) if parses(model, [edit])]
    jobs = [
        Job(f"{n}", files, edits=(edit,), ids=tuple(sorted(tests)), seconds=seconds, test_seconds=5)
        for n, edit in enumerate(edits)
    ]
    return [
        {edit.path: edit.text}
        for edit, report in zip(edits, bench.run(jobs), strict=True)
        if not report.problem and not tests <= report.passed()
    ]


def _test_task(
    model: PackageModel, function: Function, tests: frozenset[str], found: tuple[list[Splice], str]
) -> Checked:
    splices, path = found
    own = PurePosixPath(path)
    new = str(own.with_name(f"test_{function.node.name}_added.py"))
    candidate = Candidate(
        "write_tests",
        function.symbol,
        (function.symbol,),
        tuple(splices),
        tests,
        len(splices),
        gold=(SourceEdit(new, model.texts[path]),),
        notes={"file": new},
    )
    rest = frozenset(model.baseline.by_file.get(path, frozenset()) - tests)
    return Checked(candidate, apply(model.texts, splices), frozenset(), rest)
