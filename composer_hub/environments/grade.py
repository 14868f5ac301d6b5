"""Run a task's tests beside untrusted code and report through a pipe. Run as a program inside the sandbox.

The order comes as JSON through one inherited descriptor, the report leaves through another, each line with a nonce.
Code under test shares this process, so a report is evidence and not proof: only the oracle keeps its answers outside.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
import types
import unittest.case
from typing import Any

WATCHED = (
    "_pytest.runner _pytest.reports _pytest.python _pytest.outcomes _pytest.skipping _pytest.python_api _pytest.raises "
    "_pytest.main _pytest.nodes _pytest.assertion.rewrite pluggy._hooks pluggy._callers unittest.case unittest.mock "
    "builtins json os"
).split()
PLAIN = (int, float, str, bytes, bool, type(None), complex)


class Nothing:
    """A value that is equal to nothing else."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def functions_of(names: list[str]) -> dict[str, Any]:
    """Return the functions of some modules and of their classes, with their code."""
    found: dict[str, Any] = {}
    for name in names:
        module = sys.modules.get(name)
        for attribute, value in list(vars(module).items()) if module else []:
            found[f"{name}.{attribute}"] = _identity(value)
            if isinstance(value, type) and getattr(value, "__module__", "") == name:
                for inner, function in list(vars(value).items()):
                    found[f"{name}.{attribute}.{inner}"] = _identity(function)
    return {name: identity for name, identity in found.items() if identity}


def _identity(value: Any) -> Any:
    value = getattr(value, "__func__", value)
    if isinstance(value, types.FunctionType):
        return value, value.__code__, value.__defaults__
    return (value,) if isinstance(value, (type, types.BuiltinFunctionType)) else None


def changed(before: dict[str, Any]) -> list[str]:
    """Return what was replaced since."""
    after = functions_of(WATCHED)

    def same(one: tuple[Any, ...], other: tuple[Any, ...] | None) -> bool:
        return other is not None and all(a is b for a, b in zip(one, other, strict=True))

    return [name for name, identity in before.items() if not same(identity, after.get(name))]


class Grader:
    """A pytest plugin that selects the wanted tests and notes how each ended."""

    def __init__(self, wanted: set[str], canaries: set[str], any_type: type) -> None:
        self.wanted, self.canaries, self.any_type = wanted, canaries, any_type
        self.passed: dict[str, bool] = {}
        self.liars: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.wanted or item.nodeid in self.canaries]

    def pytest_runtest_logreport(self, report: Any) -> None:
        ok = report.passed and not hasattr(report, "wasxfail")
        self.passed[report.nodeid] = self.passed.get(report.nodeid, True) and ok

    def compared(self, value: Any, depth: int = 2) -> Any:
        """Note a value that claims to equal everything; called around what the tests compare."""
        kind = type(value)
        if kind in PLAIN or kind is self.any_type:
            return value
        if kind in (list, tuple, set, frozenset) and depth:
            for one in list(value)[:20]:
                self.compared(one, depth - 1)
        elif kind is dict and depth:
            for one in list(value.values())[:20]:
                self.compared(one, depth - 1)
        try:
            if (value == Nothing()) is True:
                self.liars.add(f"{kind.__module__}.{kind.__qualname__} equals everything")
        except Exception:  # a comparison may raise, as in arrays of other shapes
            return value
        return value


def main() -> None:
    order_fd, report_fd = map(int, sys.argv[1:])
    with open(order_fd, "rb") as file:
        order = json.loads(file.read())
    sys.argv[1:] = []
    sys.path[:1] = [path for path in order["path"] if path not in sys.path]
    import pytest

    os.environ["PYTHONPATH"] = ":".join(order["path"])
    grader = Grader(set(order["wanted"]), set(order["canaries"]), type(unittest.mock.ANY))
    compared = grader.compared
    setattr(builtins, order["mark"], compared)
    before = functions_of(WATCHED)
    nonce, write, dumps = order["nonce"], os.write, json.dumps
    del order["nonce"]
    pytest.main(order["arguments"], plugins=[grader])
    replaced = changed(before)
    if vars(builtins).get(order["mark"]) != compared:
        replaced.append("the mark of comparisons")
    report = {"nonce": nonce, "passed": grader.passed, "changed": replaced, "liars": sorted(grader.liars)}
    view = memoryview((dumps(report) + "\n").encode())
    while view:
        view = view[write(report_fd, view) :]
    os._exit(0)


if __name__ == "__main__":
    import unittest.mock

    main()
