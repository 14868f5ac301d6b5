"""API migrations: a function gets a new name or a stricter signature, and all its call sites with it.

The tests change first: they use the new API, and a new test file asks for it. The original code fails them. The code
with the change, made by the same rule, is the solution.
"""

from __future__ import annotations

import ast
import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import PurePosixPath

from composer_hub.records import SourceEdit
from composer_hub.tasks.code import Function, Source, Splice, apply
from composer_hub.tasks.deletion import Candidate, Model, shuffled

_NAME_TEST = '''"""The new name of `{old}`."""

import importlib


def test_{new}_is_the_only_name():
    module = importlib.import_module("{module}")
    assert callable(module.{new})
    assert not hasattr(module, "{old}")
'''
_SIGNATURE_TEST = '''"""The new signature of `{old}`."""

import importlib
import inspect


def test_{old}_takes_options_by_name_only():
    function = importlib.import_module("{module}").{old}
    parameters = inspect.signature(function).parameters
    assert list(parameters) == {parameters!r}
    assert [name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY] == {only!r}
'''


def migrations(model: Model, random: random.Random) -> Iterator[Candidate]:
    """Yield renames and signatures that become keyword-only, of functions whose name means one thing."""
    for function in shuffled(model.functions, random):
        name = function.node.name
        tests = model.tests_of(function)
        if not tests or function.owner is not None or name.startswith("_") or function.node.decorator_list:
            continue
        if len(name) < 4 or not _is_unique(model, function):
            continue
        candidate = _keyword_only(model, function, tests) or _renamed(model, function, tests)
        if candidate is not None:
            yield candidate


def _is_unique(model: Model, function: Function) -> bool:
    """Return whether the name is bound once in package and tests, and never as something else."""
    name = function.node.name
    for source in (*model.sources.values(), *model.tests.values()):
        for node in ast.walk(source.tree):
            if node is function.node:
                continue
            bound = (
                getattr(node, "name", None)
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                else None
            )
            bound = bound or (node.arg if isinstance(node, (ast.arg, ast.keyword)) else None)
            if bound == name or (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)):
                return False
            if isinstance(node, ast.alias) and (node.asname == name or node.name.endswith(f".{name}")):
                return False
            if isinstance(node, ast.alias) and node.name == name and isinstance(node, ast.Import):
                return False
    return not any(one.module.rpartition(".")[2] == name for one in model.sources.values())


def _renamed(model: Model, function: Function, tests: frozenset[str]) -> Candidate | None:
    old = function.node.name
    words = old.split("_")
    new = "_".join([*words[1:], words[0]]) if len(words) > 1 else f"{old}_value"
    if any(re.search(rf"\b{new}\b", text) for text in model.texts.values()):
        new = f"{old}_value"
    splices = [one for source in (*model.sources.values(), *model.tests.values()) for one in _tokens(source, old, new)]
    change = f"Rename `{old}` to `{new}`, in every module that uses it. The old name must be gone."
    test = _NAME_TEST.format(old=old, new=new, module=function.source.module)
    return _candidate(model, function, tests, splices, test, change)


def _tokens(source: Source, old: str, new: str) -> Iterator[Splice]:
    if not re.search(rf"\b{old}\b", source.text):
        return
    exported = {
        (one.lineno, one.col_offset)
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.Assign, ast.AugAssign)) and "__all__" in ast.unparse(node)
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and one.value == old
    }
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        start = source.line_start(token.start[0]) + token.start[1]
        if token.type == tokenize.NAME and token.string == old:
            yield Splice(source.path, start, start + len(old), new)
        elif token.type == tokenize.STRING and token.start in exported:
            yield Splice(source.path, start, start + len(token.string), token.string.replace(old, new))


def _keyword_only(model: Model, function: Function, tests: frozenset[str]) -> Candidate | None:
    arguments, name = function.node.args, function.node.name
    if arguments.vararg or arguments.kwonlyargs or arguments.posonlyargs or not arguments.defaults:
        return None
    number = len(arguments.args) - len(arguments.defaults)
    if number < 1:
        return None
    source = function.source
    only = [one.arg for one in arguments.args[number:]]
    place = source.start(arguments.args[number])
    splices = [Splice(source.path, place, place, "*, ")]
    for other in (*model.sources.values(), *model.tests.values()):
        called = set()
        for node in ast.walk(other.tree):
            if isinstance(node, ast.Call) and name in (getattr(node.func, "id", ""), getattr(node.func, "attr", "")):
                called.add(id(node.func))
                if any(isinstance(one, ast.Starred) for one in node.args[number:]):
                    return None
                for argument, keyword in zip(node.args[number:], only, strict=False):
                    start = other.start(argument)
                    splices.append(Splice(other.path, start, start, f"{keyword}="))
        for node in ast.walk(other.tree):  # a function that is passed on is called with nobody knows what
            named = getattr(node, "id", None) == name or getattr(node, "attr", None) == name
            if named and isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in called:
                return None
    if len(splices) < 2:
        return None
    listed = ", ".join(f"`{one}`" for one in only)
    change = f"Make {listed} of `{name}` keyword-only, and change every call that passes them by position."
    names = [one.arg for one in arguments.args] + ([arguments.kwarg.arg] if arguments.kwarg else [])
    test = _SIGNATURE_TEST.format(old=name, module=source.module, parameters=names, only=only)
    return _candidate(model, function, tests, splices, test, change)


def _candidate(
    model: Model, function: Function, tests: frozenset[str], splices: list[Splice], test: str, change: str
) -> Candidate | None:
    folder = PurePosixPath(min(tests).split("::")[0]).parent
    path = str(folder / f"test_{function.node.name}_api.py")
    if path in model.texts:
        return None
    own = [one for one in splices if one.path in model.sources]
    try:
        gold = apply(model.texts, own)
        for edit in gold:
            ast.parse(edit.text or "")
    except SyntaxError:
        return None
    in_tests = tuple(one for one in splices if one.path in model.tests)
    files = {one.path for one in in_tests}
    guided = tests | frozenset(id for file in files for id in model.baseline.by_file.get(file, ()))
    guided |= model.baseline.spawners
    return Candidate(
        "migrate", f"{function.symbol}:{change[:6]}", (function.symbol,), in_tests, guided, len(own),
        files=(SourceEdit(path, test),), gold=gold, notes={"change": change},
    )  # fmt: skip
