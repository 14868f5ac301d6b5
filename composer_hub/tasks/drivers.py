"""Hidden oracles for values that no recorded call can rebuild: tests with other arguments that only report.

A test knows how to make an object, which properties it has, which errors it raises and when a generator ends.
So each test of a task is rewritten: its assertions report the value that they would compare, the expected
values are removed, and literals are changed. The original gives the answers. A value is kept if two runs
agree on it, if a rewritten package also gives it (so that nothing is asked that no test describes), if the
unchanged test does not show it, and if the broken code does not give it.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeGuard

from composer_hub.environments import marks
from composer_hub.environments.rewrites import rewrites
from composer_hub.records import SourceEdit, canonical_json, stable_id
from composer_hub.tasks.bench import Bench, Job
from composer_hub.tasks.code import apply, emptied, parts_of
from composer_hub.tasks.deletion import PackageModel
from composer_hub.tasks.gates import Checked
from composer_hub.tasks.language import file_of, files_of
from composer_hub.tasks.mutation import other_text

NUM_VARIANTS = 6  # besides the unchanged test
MAX_VALUES = 24
_PLAIN = (bool, int, float, str, bytes)
Place = tuple[str, int, int]
"""A test, a place in its source, and how often it was there before."""


@dataclass(frozen=True)
class Driver:
    """A test file in one of its variants."""

    path: str  # of the original
    new_path: str
    number: int  # 0: the literals are those of the test
    text: str


def drivers(path: str, text: str, names: Iterable[tuple[str, ...]], seed: int) -> list[Driver]:
    """Return the variants of a test file with some of its tests."""
    tree, wanted = ast.parse(text), set(names)
    done = []
    for number in range(NUM_VARIANTS + 1):
        writer = _Writer(wanted, number, stable_id(seed, path, number))
        new = writer.visit(copy.deepcopy(tree))
        digest = stable_id(path, seed, number)[:8]
        new_path = str(PurePosixPath(path).with_name(f"test_{digest}_{number}.py"))
        done.append(Driver(path, new_path, number, ast.unparse(ast.fix_missing_locations(new))))
    return done


class _Writer(ast.NodeTransformer):
    """Writes a test module again; places have the same numbers in every variant, whichever tests are left."""

    def __init__(self, wanted: set[tuple[str, ...]], number: int, seed: str) -> None:
        self.wanted, self.number, self.seed = wanted, number, seed
        self.names: tuple[str, ...] = ()
        self.is_inside = False
        self.num_sites = 0

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        before, self.names = self.names, (*self.names, node.name)
        node.body = [self.visit(one) for one in node.body]
        self.names = before
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        names, end = (*self.names, node.name), self.num_sites + sum(1 for _ in ast.walk(node))
        is_test = not self.is_inside and node.name.startswith("test")
        if is_test and names not in self.wanted:
            self.num_sites = end
            return ast.Pass()
        self.source = random.Random(f"{self.seed}{names}")
        if is_test:
            node.decorator_list = [self._decorator(one) for one in node.decorator_list]
        before, self.is_inside = self.is_inside, True
        node.body = [self.visit(one) for one in node.body]
        self.is_inside, self.num_sites = before, self.num_sites if before else end
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return ast.Pass() if node.name.startswith("test") else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if self.is_inside or (not self.names and isinstance(node.value, (ast.List, ast.Tuple, ast.Dict))):
            self.source = self.source if self.is_inside else random.Random(f"{self.seed}{ast.unparse(node.targets[0])}")
            self._change(node.value, 0.5)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if self.is_inside and node.value is not None:
            self._change(node.value, 0.5)  # of a fixture or a helper
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if not self.is_inside or isinstance(node.value, ast.Constant):
            return node
        call = node.value
        if marks.is_equality(call):
            return self._told(call.args[:2])  # type: ignore[attr-defined]
        name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
        if name in ("assertTrue", "assertFalse", "assertIsNone", "assertIsNotNone") and isinstance(call, ast.Call):
            return self._told(call.args[:1])
        self._change(call, 0.5)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        test = node.test
        is_equal = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is))
        return self._told([test.left, *test.comparators] if is_equal else [test])  # type: ignore[attr-defined]

    def visit_For(self, node: ast.For) -> ast.AST:
        self._change(node.iter, 1.0)
        return self.generic_visit(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        for item in node.items:
            call = item.context_expr
            name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
            if isinstance(call, ast.Call) and call.args and name.endswith((".raises", "assertRaises")):
                item.context_expr = _call("raises", [ast.Constant(self._site()), call.args[0]])
        return node

    def _told(self, values: Sequence[ast.expr]) -> ast.AST:
        """Return a statement that reports the first value, and any other one that contains a call."""
        chosen = [one for one in values if not isinstance(one, ast.Constant)]
        first = [one for one in chosen if one is values[0]]
        chosen = first + [one for one in chosen if one not in first and any(map(_is_call, ast.walk(one)))]
        told: list[ast.stmt] = []
        for one in chosen:
            self._change(one, 1.0)
            if not any(isinstance(inner, (ast.NamedExpr, ast.Await, ast.Yield)) for inner in ast.walk(one)):
                make = ast.Lambda(ast.arguments([], [], None, [], [], None, []), one)
                told.append(ast.Expr(_call("observe", [ast.Constant(self._site()), make])))
        return ast.If(ast.Constant(True), told or [ast.Pass()], [])

    def _site(self) -> int:
        self.num_sites += 1
        return self.num_sites

    def _decorator(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize"):
            for one in node.args[1:2]:
                self._change(one, 1.0)
        return node

    def _change(self, node: ast.expr, share: float) -> None:
        """Change one literal of a value, and one of each row if it is a table; in every second variant, variables."""
        if not self.number:
            return
        if self.is_inside and self.number % 2 == 0:
            for call in [one for one in ast.walk(node) if _is_call(one)]:
                for place, one in enumerate(call.args):
                    if isinstance(one, (ast.Name, ast.Subscript)) and ast.unparse(call.func) not in dir(builtins):
                        key = ast.Constant(f"{self.seed}{self.num_sites}{place}")
                        call.args[place] = _call("other", [key, one])
        for group in _groups(node):
            if self.source.random() < share:
                one = self.source.choice(group)
                one.value = _other(one.value, self.source)


def _call(method: str, arguments: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(marks.DRIVER, ast.Load()), method, ast.Load()), arguments, [])


def _is_call(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and not ast.unparse(node.func).endswith("approx")


def _groups(node: ast.AST) -> list[list[ast.Constant]]:
    """Return the literals of a value, those of each row of a table by themselves."""
    rows = node.elts if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else []
    if sum(isinstance(one, (ast.List, ast.Tuple, ast.Dict, ast.Call)) for one in rows) > 1:
        return [group for row in rows for group in _groups(row)]
    found, todo = [], [node]
    while todo:
        one = todo.pop()
        if isinstance(one, ast.Constant) and isinstance(one.value, _PLAIN):
            found.append(one)
        elif not isinstance(one, (ast.JoinedStr, ast.Lambda)):
            todo += ast.iter_child_nodes(one)
    return [found] if found else []


def _other(value: Any, source: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return source.choice([value + 1, value - 1, value + 10, value * 2 + 1, 0])
    if isinstance(value, float):
        return source.choice([value + 0.5, value * 3, 0.25])
    if isinstance(value, bytes):
        return other_text(value.decode("latin-1"), source).replace("é", "e").encode("latin-1")
    return other_text(value, source)


# ------------------------------------------------------------------------------------------------------------- answers


def rewritten(model: PackageModel) -> Iterator[tuple[SourceEdit, ...]]:
    """Yield rewrites of the package with the same meaning."""
    for write in rewrites():
        edits = []
        for path, source in model.sources.items():
            with contextlib.suppress(SyntaxError, ValueError, RecursionError):
                edits.append(SourceEdit(path, write(source.text)))
        yield tuple(edits)


class Drivers:
    """The values that a package's tests report of the original code, as far as they are certain."""

    def __init__(self, bench: Bench, model: PackageModel, tests: Iterable[str], seed: int) -> None:
        self.bench, self.model, self.seed = bench, model, seed
        by_path: dict[str, set[tuple[str, ...]]] = {}
        for test in tests:
            if model.baseline.seconds.get(test, 0) <= 2:
                path, *names = parts_of(test)
                by_path.setdefault(path, set()).add(tuple(names))
        self.files: list[Driver] = []
        for path, wanted in sorted(by_path.items()):
            source = model.tests.get(path)
            self.files += drivers(path, source.text, wanted, seed) if source is not None else []
        self.by_new_path = {one.new_path: one.path for one in self.files}
        self.hidden = self._hidden(self._certain())

    def _job(self, name: str, one: Driver, edits: Sequence[SourceEdit] = (), seed: int = 0) -> Job:
        return Job(name, (one.new_path,), edits=(*edits, SourceEdit(one.new_path, one.text)), seconds=60.0,
                   test_seconds=2.0, options={"mark": marks.DRIVER, "max_hanging": 5}, seed=seed)  # fmt: skip

    def _told(self, edits: Sequence[SourceEdit] = (), seed: int = 0, files: Sequence[Driver] = ()) -> dict[Place, Any]:
        jobs = [self._job(f"{number}", one, edits, seed) for number, one in enumerate(files or self.files)]
        return {place: value for report in self.bench.run(jobs) for place, value in _places(report.values).items()}

    def _certain(self) -> dict[Place, Any]:
        """Return the values on which two runs of the original and three of rewritten code agree."""
        first, second = (self._told(seed=seed) for seed in (0, 1))
        values = {place: value for place, value in first.items() if _is_plain(value) and second.get(place) == value}
        for edits in rewritten(self.model):
            passed = self._passed(edits)
            told = self._told(edits)
            values = {
                place: value for place, value in values.items()
                if self._test_of(place) not in passed or (place in told and marks.same(told[place], value))
            }  # fmt: skip
        return values

    def _passed(self, edits: Sequence[SourceEdit]) -> set[tuple[str, ...]]:
        """Return the test functions that pass with other sources: only these can judge a rewrite."""
        paths = sorted({one.path for one in self.files})
        jobs = [
            Job(f"{n}", (path,), edits=tuple(edits), seconds=60.0, test_seconds=5.0) for n, path in enumerate(paths)
        ]
        passed, failed = set[tuple[str, ...]](), set[tuple[str, ...]]()
        for report in self.bench.run(jobs):
            for test, status in report.statuses.items():
                (passed if status in ("passed", "skipped") else failed).add(parts_of(test))
        return passed - failed

    def _test_of(self, place: Place) -> tuple[str, ...]:
        path, *names = parts_of(place[0])
        return self.by_new_path[path], *names

    def _hidden(self, values: Mapping[Place, Any]) -> dict[Place, Any]:
        """Return the values that no unchanged test reports at the same place of its source."""
        keys = {place: (self._test_of(place), place[1], canonical_json(value)) for place, value in values.items()}
        unchanged = {one.new_path for one in self.files if not one.number}
        shown = {key for place, key in keys.items() if file_of(place[0]) in unchanged}
        return {place: values[place] for place, key in keys.items() if key not in shown}

    def oracle_of(self, one: Checked) -> dict[str, Any]:
        """Return the changed tests of a candidate and the values that they must report, or {}."""
        tests = set(map(parts_of, one.fail_to_pass))
        known = {
            place: value for place, value in self.hidden.items()
            if self._test_of(place) in tests and not _own_object(value, one.candidate.symbols)
        }  # fmt: skip
        if not known:
            return {}
        files: list[Driver] = []
        for path in sorted({test[0] for test in tests} & {file.path for file in self.files}):
            names = {test[1:] for test in tests if test[0] == path}
            files += [file for file in drivers(path, self.model.tests[path].text, names, self.seed) if file.number]
        symbols = set(one.candidate.symbols)
        empty = [
            emptied(function, self.model.language.stub)
            for function in self.model.functions
            if function.symbol in symbols and function.body
        ]
        broken, gone = (self._told(edits, files=files) for edits in (one.edits, apply(self.model.texts, empty)))

        def differs(place: Place, told: Mapping[Place, Any]) -> bool:
            return place not in told or not marks.same(told[place], known[place])

        telling = [place for place in known if differs(place, broken)]
        # The others also run the function, and keep a submission from answering the first ones alone.
        others = [place for place in known if not differs(place, broken) and differs(place, gone)] if telling else []
        kept = (_spread(telling, known) + _spread(others, known))[:MAX_VALUES]
        used = files_of(place[0] for place in kept)
        return {
            "files": {file.new_path: file.text for file in files if file.new_path in used},
            "values": [[*place, known[place]] for place in kept],
        }


def _places(values: Mapping[str, Any]) -> dict[Place, Any]:
    found: dict[Place, Any] = {}
    counts: dict[tuple[str, int], int] = {}
    for test, site, value in values.get("told", ()):
        number = counts[test, site] = counts.get((test, site), -1) + 1
        found[test, site, number] = value
    return found


def _is_plain(value: Any) -> bool:
    """Return whether a value proves something, unlike a bare type or an error that no test names."""
    text = canonical_json(value)
    named = not isinstance(value, dict) or "raises" not in value or isinstance(value["raises"], bool)
    return named and '{"x":' not in text and " at 0x" not in text and "@" not in text


def _own_object(value: Any, symbols: Iterable[str]) -> bool:
    """Return whether a value holds the state of a class that the task asks to write: others may keep it otherwise."""
    text = canonical_json(value)
    names = (symbol.rsplit(".", 1)[0] if symbol.endswith(".__init__") else symbol for symbol in symbols)
    return any(f'"x":{canonical_json(name)}' in text for name in names)


def _spread(places: Sequence[Place], values: Mapping[Place, Any]) -> list[Place]:
    """Return at most `MAX_VALUES` places: other values and other places in the source come first."""
    seen: dict[Any, int] = {}

    def rank(place: Place) -> tuple[int, str]:
        keys = canonical_json(values[place]), (parts_of(place[0])[1:], place[1])
        for key in keys:
            seen[key] = seen.get(key, 0) + 1
        return max(seen[key] for key in keys), stable_id(*place)

    return [place for _, place in sorted((rank(place), place) for place in places)][:MAX_VALUES]
