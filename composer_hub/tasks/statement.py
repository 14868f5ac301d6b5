"""The statement of a task at three levels of help, from signatures, docstrings and tests; no model is asked.

0: which tests fail. 1: also what to write and where. 2: also the source of failing tests.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from composer_hub.tasks.code import Source
from composer_hub.tasks.deletion import Candidate, Model

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
MAX_NAMED, MAX_TEST_CHARS = 12, 6000
_ASKS = {
    "stub": "The body of {what} was removed.",
    "cluster": "The bodies of several functions that belong together were removed.",
    "branch": "A case that {what} used to handle was removed.",
    "removal": "{what} and everything that refers to it at import time were removed.",
    "bug": "{what} has a bug.",
    "combine": "Several things in one module do not work.",
    "write_tests": "{what} has no tests.",
}
_DO = {
    "stub": "Write it again.",
    "cluster": "Write them again.",
    "branch": "Find what is missing and add it.",
    "removal": "Add it again, where it was, with its exports and imports.",
    "bug": "Find and fix it.",
    "combine": "Repair all of them.",
    "write_tests": "Write tests in `{file}` that pass now and fail when its behavior changes.",
}


def statements(model: Model, candidate: Candidate, failing: Iterable[str]) -> tuple[str, str, str]:
    """Return the statement at every level of help."""
    package, ordered = model.package, sorted(failing)
    what = _symbol(candidate.symbols[0])
    ask = _ASKS[candidate.kind].format(what=what)
    do = _DO[candidate.kind].format(**({"file": ""} | candidate.notes))
    start = f"This is the source tree of the Python package `{package.name}` {package.metadata.version}."
    end = (
        "Tests and configuration are restored before grading, so change only the package's own code."
        if candidate.kind != "write_tests"
        else "Only the new test file is graded."
    )
    tests = _tests(ordered)
    if candidate.kind == "write_tests":
        least = " ".join([start, f"Write tests for {what}, in `{candidate.notes['file']}`.", end])
    else:
        least = "\n\n".join([f"{start} These tests fail; make them pass without breaking others.", tests, end])
    contract = _contract(model, candidate)
    parts = [f"{start} {ask} {do}", *([contract] if contract else []), *([tests] if ordered else []), end]
    more = "\n\n".join(parts)
    source = _sources(model, ordered)
    most = "\n\n".join([*parts[:-1], *([f"Failing tests:\n\n```python\n{source}\n```"] if source else []), end])
    return least, more, most


def _symbol(symbol: str) -> str:
    module, _, name = symbol.partition(":")
    return f"`{name}` of `{module}`"


def _tests(failing: list[str]) -> str:
    shown = "\n".join(f"- `{id}`" for id in failing[:MAX_NAMED])
    more = len(failing) - MAX_NAMED
    return f"Failing tests:\n\n{shown}" + (f"\n- and {more:,} more" if more > 0 else "") if failing else ""


def _contract(model: Model, candidate: Candidate) -> str:
    """Return signatures and docstrings of what is to be written."""
    if candidate.kind in ("bug", "combine"):
        return "Look at: " + ", ".join(_symbol(one) for one in candidate.symbols) + "."
    blocks = []
    for symbol in candidate.symbols[:MAX_NAMED]:
        module, _, name = symbol.partition(":")
        for source in model.sources.values():
            node = _definition(source, name) if source.module == module else None
            if node is not None:
                blocks.append(f"In `{source.path}`:\n\n```python\n{_head(source, node)}\n```")
    return "\n\n".join(blocks)


def _definition(source: Source, qualname: str) -> ast.AST | None:
    node: ast.AST = source.tree
    for part in qualname.split("."):
        defined = (one for one in ast.walk(node) if one is not node and isinstance(one, Definition))
        found = next((one for one in defined if one.name == part), None)
        if found is None:
            return None
        node = found
    return node


def _head(source: Source, node: ast.AST) -> str:
    """Return the signature and docstring of a definition; of a class, those of its methods too."""
    lines = [f"{ast.unparse(_bare(node))}"]
    if isinstance(node, ast.ClassDef):
        for one in node.body:
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines += ["", *(f"    {line}" for line in ast.unparse(_bare(one)).splitlines())]
    return "\n".join(lines)


def _bare(node: ast.AST) -> ast.AST:
    """Return a definition with its docstring and without anything else in its body."""
    doc = ast.get_docstring(node, clean=True)  # type: ignore[arg-type]
    body = [ast.Expr(ast.Constant(doc))] if doc else []
    copy = type(node)(**dict(ast.iter_fields(node)))
    copy.body = [*body, ast.Expr(ast.Constant(...))]  # type: ignore[attr-defined]
    return ast.fix_missing_locations(ast.copy_location(copy, node))


def _sources(model: Model, failing: list[str]) -> str:
    """Return the source of failing test functions, each once, up to a length."""
    shown: dict[tuple[str, str], str] = {}
    size = 0
    for id in failing:
        path, *names = id.split("[")[0].split("::")
        source = model.tests.get(path)
        if source is None or not names or (path, names[-1]) in shown:
            continue
        node = _definition(source, ".".join(names))
        if node is None:
            continue
        text = source.text[source.line_start(node.lineno) : source.end(node)]  # type: ignore[attr-defined]
        size += len(text)
        if size > MAX_TEST_CHARS:
            break
        shown[path, names[-1]] = text.rstrip()
    return "\n\n".join(shown.values())
