"""True removal: functions or classes gone with their exports, imports, and everything that needs them at import time.

The edit is the fixpoint of one rule: a statement that loads a removed name while its module is imported is removed too,
and so is the name that it binds. Uses inside function bodies stay; they fail when they run.
"""

from __future__ import annotations

import ast
import functools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from composer_hub.tasks.code import Source, Splice, absolute, bound, is_only, loads, mentioned, passed_on
from composer_hub.tasks.deletion import Candidate, PackageModel, shuffled

MAX_SYMBOLS, MAX_LINES = 10, 400
MIN_FEATURE_LINES = 15
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_NAMING = (
    Definition | ast.Assign | ast.AnnAssign | ast.AugAssign
)  # of another statement, the task cannot name the effect
Top = tuple[Source, Definition]  # at the top of a module
_mentioned = functools.lru_cache(maxsize=10_000)(mentioned)  # by every pair of definitions


@dataclass
class _Removal:
    """The names that are gone and the statements that go with them."""

    names: set[tuple[str, str]]  # module, name
    statements: dict[tuple[str, int], ast.stmt] = field(default_factory=dict)
    possible: bool = True


def removals(model: PackageModel, random: random.Random) -> Iterator[Candidate]:
    """Yield tested functions and classes of modules, removed without a trace."""
    for top in shuffled(_tops(model), random):
        if _tests_of(model, top) and (candidate := _candidate(model, "removal", [top])) is not None:
            yield candidate


def features(model: PackageModel, random: random.Random) -> Iterator[Candidate]:
    """Yield removals over several files: a definition, and those that only it or its tests need."""
    tops, seen = _tops(model), set[frozenset[str]]()
    users = _users(tops)
    for top in shuffled(tops, random):
        group, tests = [top], _tests_of(model, top)
        for one in group:  # grows
            for other in tops:
                needed = other not in group and other[1].name in _mentioned(one[1])
                own = _tests_of(model, other) if needed and len(group) < MAX_SYMBOLS else frozenset()
                alone = users[other[1].name] <= {id(inner) for _, inner in group}
                if own and (alone or own <= tests):
                    group.append(other)
        key = frozenset(f"{source.module}:{node.name}" for source, node in group)
        if not tests or key in seen or len({source.path for source, _ in group}) < 2:
            continue
        seen.add(key)
        candidate = _candidate(model, "feature", group)
        if candidate is not None and candidate.lines >= MIN_FEATURE_LINES:
            yield candidate


def _tops(model: PackageModel) -> list[Top]:
    return [
        (source, node)
        for source in model.sources.values()
        for node in source.tree.body
        if isinstance(node, Definition) and not node.name.startswith("__")
    ]


def _tests_of(model: PackageModel, top: Top) -> frozenset[str]:
    return model.baseline.tests_of(top[0].path, top[1].body[0].lineno, top[1].end_lineno or 0)


def _users(tops: list[Top]) -> dict[str, set[int]]:
    """Return the definitions that mention the name of each definition."""
    return {node.name: {id(other) for _, other in tops if other is not node and node.name in _mentioned(other)}
            for _, node in tops}  # fmt: skip


def _candidate(model: PackageModel, kind: str, group: list[Top]) -> Candidate | None:
    if any(_is_ambiguous(source, node.name) for source, node in group):
        return None
    removal = _removal(model, group)
    statements = [(model.sources[path], one) for (path, _), one in removal.statements.items()]
    lines = sum((one.end_lineno or 0) - one.lineno + 1 for _, one in statements)
    if not removal.possible or len(statements) > MAX_SYMBOLS or lines > MAX_LINES:
        return None
    if not all(isinstance(one, _NAMING) and _is_alone(one_source, one) for one_source, one in statements):
        return None
    splices = [_without(one_source, one) for one_source, one in statements]
    for other in model.sources.values():
        gone = [one for one_source, one in statements if one_source is other]
        splices += _exports(other, removal.names, gone)
    names = {name for _, name in removal.names}
    if not _leaves_a_file(model, names):
        return None
    # Names of a class that go with it are not those of a module, but tests that use them fail all the same.
    guided = _guided(model, statements, names.union(*(_names(one) for _, one in statements)))
    named = {f"{one_source.module}:{one.name}" for one_source, one in statements if isinstance(one, Definition)}
    first = f"{group[0][0].module}:{group[0][1].name}"
    values = [f"`{ast.unparse(target)}` in `{one_source.path}`" for one_source, one in statements
              for target in _assigned(one)]  # fmt: skip
    return Candidate(
        kind,
        first,
        (first, *sorted(named - {first})),
        tuple(sorted(set(splices))),
        guided,
        lines,
        breaks_imports=True,
        notes={"values": ", ".join(sorted(set(values)))},
    )


def _is_ambiguous(source: Source, name: str) -> bool:
    """Return whether a file has several definitions of a name, of which a test may mean any."""
    return sum(isinstance(one, Definition) and one.name == name for one in ast.walk(source.tree)) > 1


def _leaves_a_file(model: PackageModel, names: set[str]) -> bool:
    """Return whether some test file can still be imported, because no removed name is in its imports."""
    for path, ids in model.baseline.by_file.items():
        source = model.tests.get(path)
        if source is None or not ids:
            continue
        imported = {alias.name for one in source.tree.body if isinstance(one, ast.ImportFrom) for alias in one.names}
        if not imported & names:
            return True
    return False


def _guided(model: PackageModel, statements: list[tuple[Source, ast.stmt]], names: set[str]) -> frozenset[str]:
    found: set[str] = set()
    for source, one in statements:
        found |= model.baseline.tests_of(source.path, one.lineno, one.end_lineno or 0)
    word = re.compile(r"\b(" + "|".join(sorted(re.escape(name) for name in names)) + r")\b")
    for path, ids in model.baseline.by_file.items():
        if path not in model.tests or word.search(model.tests[path].text):
            found |= ids
    for function in model.functions:
        if function.called_names & names:
            found |= model.baseline.tests_of(function.path, *function.body_lines)
    return frozenset(found) | model.baseline.spawners


# ------------------------------------------------------------------------------------------------------------ fixpoint


def _removal(model: PackageModel, group: list[Top]) -> _Removal:
    """Return everything that goes with some definitions."""
    removal = _Removal(
        {(source.module, node.name) for source, node in group},
        {(source.path, node.lineno): node for source, node in group},
    )
    before = 0
    while removal.possible and before != len(removal.names) + len(removal.statements):
        before = len(removal.names) + len(removal.statements)
        for other in model.sources.values():
            _spread(model, other, removal)
    return removal


def _spread(model: PackageModel, source: Source, removal: _Removal) -> None:
    """Remove what a module needs removed names for while it is imported, and pass on the names that it re-exports."""
    plain, dotted = bound(source, removal.names)
    if not plain and not dotted:
        return
    removal.names |= passed_on(source, removal.names)
    future = any(isinstance(one, ast.ImportFrom) and one.module == "__future__" for one in source.tree.body)
    _block(source, source.tree.body, plain, dotted, removal, annotations=not future, top=True)
    for function in model.functions:
        at_import = function.source is source and model.baseline.runs_at_import(function.path, *function.body_lines)
        if at_import and any(loads(one, plain, dotted) for one in function.body):
            removal.possible &= (source.path, function.node.lineno) in removal.statements


def _block(
    source: Source,
    body: list[ast.stmt],
    plain: set[str],
    dotted: set[str],
    removal: _Removal,
    *,
    annotations: bool,
    top: bool,
) -> None:
    for node in body:
        if (source.path, node.lineno) in removal.statements or isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
            heads: list[ast.AST | None] = [getattr(node, name, None) for name in ("test", "iter")]
            if any(head is not None and loads(head, plain, dotted) for head in heads):
                removal.possible = False
            parts = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
            for block in [*parts, *(one.body for one in getattr(node, "handlers", []))]:
                _block(source, block, plain, dotted, removal, annotations=annotations, top=top)
            continue
        if _is_all(node):
            continue
        if any(loads(one, plain, dotted) for one in _at_import(node, annotations)):
            removal.statements[source.path, node.lineno] = node
            if top:
                removal.names |= {(source.module, name) for name in _names(node)}
        elif isinstance(node, ast.ClassDef):
            _block(source, node.body, plain, dotted, removal, annotations=annotations, top=False)


def _at_import(node: ast.stmt, annotations: bool) -> Iterator[ast.AST]:
    """Yield the parts of a statement that run when its module is imported."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from node.decorator_list
        arguments = node.args
        yield from (one for one in (*arguments.defaults, *arguments.kw_defaults) if one is not None)
        if annotations:
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            yield from (one.annotation for one in every if one is not None and one.annotation is not None)
            if node.returns is not None:
                yield node.returns
    elif isinstance(node, ast.ClassDef):
        yield from [*node.decorator_list, *node.bases, *(one.value for one in node.keywords)]
    else:
        yield node


def _assigned(node: ast.stmt) -> list[ast.expr]:
    return getattr(node, "targets", None) or [one for one in [getattr(node, "target", None)] if one is not None]


def _targets(node: ast.stmt) -> list[str]:
    names = (inner for one in _assigned(node) for inner in ast.walk(one))
    return [one.id for one in names if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]


def _names(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines or assigns."""
    return [node.name] if isinstance(node, Definition) else _targets(node)


def _is_all(node: ast.stmt) -> bool:
    return "__all__" in _targets(node)


# --------------------------------------------------------------------------------------------------------------- edits


def _is_alone(source: Source, node: ast.stmt) -> bool:
    """Return whether a statement shares its lines with no other one."""
    before = source.text[source.line_start(node.lineno) : source.start(node)].strip()
    after = source.text[source.end(node) : source.line_end(node.end_lineno or 0)].strip()
    return not before and not after.startswith(";")


def _without(source: Source, node: ast.stmt) -> Splice:
    """Remove a statement with its decorators; a block that it leaves empty gets a `pass`."""
    start, end = source.whole_lines(node)
    indent = source.text[start : start + node.col_offset]
    return Splice(source.path, start, end, f"{indent}pass\n" if node.col_offset and is_only(source.tree, node) else "")


def _exports(source: Source, names: set[tuple[str, str]], gone: list[ast.stmt]) -> Iterator[Splice]:
    """Yield the splices that take removed names out of imports and `__all__`."""
    plain, _ = bound(source, names)
    skipped = {id(inner) for one in gone for inner in ast.walk(one)}
    for node in ast.walk(source.tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom):
            module = absolute(source, node)
            kept = [one for one in node.names if (module, one.name) not in names]
            if len(kept) < len(node.names):
                text = source.of(node)
                head = text[: re.search(r"\bimport\b", text).end()]  # type: ignore[union-attr]
                listed = ", ".join(f"{one.name} as {one.asname}" if one.asname else one.name for one in kept)
                wide = len(head) + len(listed) > 90
                new = f"{head} (\n    {listed.replace(', ', f',{chr(10)}    ')},\n)" if wide else f"{head} {listed}"
                yield source.replace(node, new) if kept else _without(source, node)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and _is_all(node):
            yield from _all_without(source, node, plain)


def _all_without(source: Source, node: ast.stmt, plain: set[str]) -> Iterator[Splice]:
    for listed in (one for one in ast.walk(node) if isinstance(one, ast.Tuple)):
        kept = [one for one in listed.elts if not (isinstance(one, ast.Constant) and one.value in plain)]
        if len(kept) == 1 < len(listed.elts) and kept[0] is listed.elts[-1]:
            end = source.end(kept[0])  # a tuple of one needs its comma
            yield Splice(source.path, end, end, "," if not source.text[end:].lstrip().startswith(",") else "")
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value in plain:
            start, end = source.start(one), source.end(one)
            following = re.match(r"\s*,[ \t]*(\r?\n[ \t]*)?", source.text[end:])
            yield Splice(source.path, start, end + (following.end() if following else 0), "")
