"""Run tests beside untrusted code and report what they compare. Run as a program inside the sandbox.

The order comes as JSON through one inherited descriptor, lines leave through another: one per value that a
test compares, and a last one with how each test ended. Code under test shares this process and can write
both, so nothing here proves that a submission is right: the verifier outside compares the values with those
of the solution.
"""

from __future__ import annotations

import builtins
import importlib.util
import json
import os
import sys
import types
from typing import Any

WATCHED = (
    "_pytest.runner _pytest.reports _pytest.python _pytest.outcomes _pytest.skipping _pytest.python_api _pytest.raises "
    "_pytest.main _pytest.nodes _pytest.assertion.rewrite pluggy._hooks pluggy._callers unittest.case unittest.mock "
    "builtins json os"
).split()


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
    """Return the names of watched functions that were replaced since."""
    after = functions_of(WATCHED)

    def same(one: tuple[Any, ...], other: tuple[Any, ...] | None) -> bool:
        return other is not None and all(a is b for a, b in zip(one, other, strict=True))

    return [name for name, identity in before.items() if not same(identity, after.get(name))]


class Grader:
    """A pytest plugin that selects tests, names the one that runs, and notes how each ended."""

    def __init__(self, wanted: set[str], marks: Any) -> None:
        self.wanted, self.marks = wanted, marks
        self.passed: dict[str, bool] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.wanted:
            items[:] = [item for item in items if item.nodeid in self.wanted]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.marks.test = nodeid

    def pytest_runtest_logreport(self, report: Any) -> None:
        ok = report.passed and not hasattr(report, "wasxfail")
        self.passed[report.nodeid] = self.passed.get(report.nodeid, True) and ok


def main() -> None:
    """Run the tests of the order, send each value that they compare, and end without atexit handlers."""
    order_fd, report_fd = map(int, sys.argv[1:])
    with open(order_fd, "rb") as file:
        order = json.loads(file.read())
    sys.argv[1:] = []
    sys.path[:1] = [path for path in order["path"] if path not in sys.path]
    import pytest

    spec = importlib.util.spec_from_file_location("composer_values", order["values"])
    assert spec is not None
    assert spec.loader is not None
    values = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(values)
    os.environ["PYTHONPATH"] = ":".join(order["path"])
    write, dumps, place = os.write, json.dumps, order["path"][0]

    def tell(line: Any) -> None:
        view = memoryview((dumps(line).replace(place, "@") + "\n").encode())
        while view:
            view = view[write(report_fd, view) :]

    marks = values.Marks(tell, order["deep"])
    setattr(builtins, order["mark"], marks)
    grader = Grader(set(order["wanted"]), marks)
    before = functions_of(WATCHED)
    pytest.main(order["arguments"], plugins=[grader])
    tell({"passed": grader.passed, "changed": changed(before)})
    os._exit(0)


if __name__ == "__main__":
    main()
