"""Score what an agent has left: its source files in, a verdict with evidence out.

Nothing of the agent's machine takes part. A fresh tree gets the package's original files, the task's edits, and only
those files of the agent that the task allows; tests and configuration are the originals. The tests run in a sandbox of
their own, with tests that must fail among them, and then the hidden oracle, over a tree without tests.

A run that something else may have ended gives no verdict: it is repeated, and if that does not help, the task's own
solution shows whether the submission or the machine was the reason.
"""

from __future__ import annotations

import ast
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from composer_hub.environments import oracle as oracles
from composer_hub.environments.guard import Broken
from composer_hub.environments.process import memory_file
from composer_hub.environments.sandbox import CommandInterrupted, Limits, Sandbox
from composer_hub.environments.trees import Files, bundle_files, edited, matches, scratch, write_files
from composer_hub.records import Task

NUM_WORKERS = 2
_TRIES = 2
_GRADE = Path(__file__).with_name("grade.py")
_NEVER = ("conftest.py", "sitecustomize.py", "usercustomize.py", "pytest.py", "_pytest.py", "unittest.py")
_CANARIES = """\
import unittest
import pytest

def test_{0}_one():
    assert 1 == 2

def test_{0}_two():
    raise AssertionError("must fail")

def test_{0}_three():
    pytest.fail("must fail")

def test_{0}_four():
    with pytest.raises(ValueError):
        pass

class Test{0}(unittest.TestCase):
    def test_five(self):
        self.assertEqual(1, 2)
"""
_NAMES = ("test_{0}_one", "test_{0}_two", "test_{0}_three", "test_{0}_four", "Test{0}::test_five")


@dataclass(frozen=True)
class Verdict:
    """The reward of a submission; 1.0 only if every wanted test and the oracle pass and nothing was tampered with."""

    reward: float
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    oracle_ok: bool | None = None  # None: the task has no oracle, or the tests failed before
    evidence: tuple[str, ...] = ()  # of tampering
    reason: str = ""
    hidden: tuple[int, ...] = ()  # calls of the oracle that were answered right
    num_hidden: int = 0

    @property
    def visible(self) -> float:
        """Return the reward without the oracle."""
        return float(not self.failed and bool(self.passed) and not self.evidence)


class NotKnown(Broken):
    """A submission that cannot be judged now, because something other than its code ends the verification."""


def submission(task: Task, files: Files) -> dict[str, bytes]:
    """Return the files of an agent's tree that travel to the verifier."""
    return {path: data for path, data in files.items() if _travels(task, path)}


def _travels(task: Task, path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return matches(path, task.editable) and path not in task.tests and name not in _NEVER and not name.endswith(".pth")


def fresh_tree(task: Task, files: Files, bundle: Path, *, tests: bool = True) -> dict[str, bytes]:
    """Return the tree that is judged: the originals, and what travels of the agent's files."""
    start = edited(bundle_files(bundle), task.edits)
    kept = {path: data for path, data in start.items() if not _travels(task, path)}
    if not tests:
        kept = {path: data for path, data in kept.items() if path not in task.tests}
    return kept | submission(task, files)


def verify(
    task: Task,
    files: Files,
    bundle: Path,
    sandbox: Sandbox,
    *,
    venv: Path | None = None,
    oracle: Mapping[str, Any] | None = None,
    seconds: float = 60.0,
    always_ask: bool = False,
) -> Verdict:
    """Score an agent's files; only those that the task allows are looked at. `NotKnown` is no verdict: try again later.

    `always_ask` also asks the oracle if tests fail: two unfinished states can be compared by what they answer.
    """

    def verdict(left: Files) -> Verdict:
        return _verdict(task, left, bundle, sandbox, venv, oracle, seconds, always_ask)

    why: object = ""
    for _ in range(_TRIES):
        try:
            return verdict(files)
        except CommandInterrupted as error:
            why = error
    try:
        # A submission could end its own verification to escape a zero. It cannot end this one.
        verdict(edited(bundle_files(bundle), (*task.edits, *task.solution)))
    except CommandInterrupted as error:
        raise NotKnown(f"{error} The task's solution ended in the same way: the machine is the reason.") from error
    wanted = (*task.fail_to_pass, *task.pass_to_pass)
    return Verdict(0.0, failed=wanted, reason=f"{why} The task's solution does not end like this.")


def _verdict(
    task: Task,
    files: Files,
    bundle: Path,
    sandbox: Sandbox,
    venv: Path | None,
    oracle: Mapping[str, Any] | None,
    seconds: float,
    always_ask: bool,
) -> Verdict:
    wanted = (*task.fail_to_pass, *task.pass_to_pass)
    try:
        if wanted:
            verdict = _tested(task, wanted, files, bundle, sandbox, venv, seconds)
            if oracle is None or not (verdict.reward or always_ask):
                return verdict
        else:
            verdict = Verdict(0.0)
        if oracle is None:
            return Verdict(0.0, reason="The task has no tests, and its oracle was not given.")
        result = _asked(task, oracle, files, bundle, sandbox, venv, wants_tests=not wanted)
    except OSError as error:  # a tree with a file in the place of a folder
        return Verdict(0.0, failed=wanted, reason=f"The tree cannot be written: {error.strerror}.")
    reason = "" if result.ok else f"The oracle: {result.num_right} of {result.num_calls}."
    return replace(
        verdict,
        reward=float(result.ok and (bool(verdict.reward) or not wanted)),
        oracle_ok=result.ok,
        reason=reason or verdict.reason,
        hidden=result.right,
        num_hidden=result.num_calls,
    )


def _asked(
    task: Task,
    oracle: Mapping[str, Any],
    files: Files,
    bundle: Path,
    sandbox: Sandbox,
    venv: Path | None,
    *,
    wants_tests: bool,
) -> oracles.OracleResult:
    with scratch("composer-oracle-") as folder:
        tree = folder / "tree"
        write_files(tree, fresh_tree(task, files, bundle, tests=wants_tests))
        if wants_tests:
            return oracles.check_tests(oracle, tree, sorted(submission(task, files)), task.python_path, sandbox, venv)
        return oracles.check(oracle, tree, task.python_path, sandbox, venv)


def _tested(
    task: Task, wanted: tuple[str, ...], files: Files, bundle: Path, sandbox: Sandbox, venv: Path | None, seconds: float
) -> Verdict:
    nonce, mark, name = secrets.token_hex(16), f"_{secrets.token_hex(8)}", secrets.token_hex(4)
    tree = fresh_tree(task, files, bundle)
    for path in task.tests:
        if path in tree and path.endswith(".py"):
            tree[path] = marked(tree[path], mark)
    test_files = sorted({node.partition("::")[0] for node in wanted} & tree.keys())
    canary_file = f"test_{name}.py"
    tree[canary_file] = _CANARIES.format(name).encode()
    canaries = [f"{canary_file}::{one.format(name)}" for one in _NAMES]
    with scratch("composer-verify-") as folder, tempfile.TemporaryFile() as report:
        root = folder / "tree"
        write_files(root, tree)
        place = sandbox.inside(root)
        env = oracles.python_env(place, task.python_path)
        order = {
            "nonce": nonce,
            "mark": mark,
            "wanted": wanted,
            "canaries": canaries,
            "path": [place, *(one for one in env.pop("PYTHONPATH").split(":") if one != place)],
            "arguments": [
                *("-p", "no:cacheprovider", "-q", "--tb=no", "--continue-on-collection-errors", "--rootdir", place),
                *("-o", "addopts=", "-o", "required_plugins=", "-o", "xfail_strict=false"),
                *(canary_file, *test_files),
            ],
        }
        order_fd = memory_file(json.dumps(order).encode())
        try:
            done = sandbox.run(
                ["python" if venv else "python3", "-B", str(_GRADE), str(order_fd), str(report.fileno())],
                root=root,
                venv=venv,
                read_only=[_GRADE],
                env=env,
                limits=Limits(seconds=seconds, cpu_seconds=int(seconds) + 1),
                pass_fds=[order_fd, report.fileno()],
            )
        finally:
            os.close(order_fd)
        report.seek(0)
        text = report.read(64 << 20).decode(errors="replace")
    if not text:
        done.check_uninterrupted()
    if done.timed_out:
        return Verdict(0.0, failed=wanted, reason=f"The tests took more than {seconds:g} s.")
    return _judged(text, nonce, wanted, canaries, done.output)


def _judged(text: str, nonce: str, wanted: tuple[str, ...], canaries: Sequence[str], output: str) -> Verdict:
    lines = text.splitlines()
    try:
        (report,) = map(json.loads, lines)
        ok = isinstance(report, dict) and report.pop("nonce") == nonce
    except (ValueError, KeyError):
        ok = False
    if not ok:
        # Ended without a word (an exit in the code under test) or with more than one.
        evidence = ("the report was forged",) if lines else ()
        return Verdict(0.0, failed=wanted, evidence=evidence, reason=f"The tests gave no report: {output[-500:]}")
    passed = tuple(node for node in wanted if report["passed"].get(node) is True)
    failed = tuple(node for node in wanted if report["passed"].get(node) is not True)
    evidence = (
        *(f"{name.partition('::')[2]} passed, which must fail" for name in canaries if report["passed"].get(name)),
        *(f"{name} did not run" for name in canaries if name not in report["passed"]),
        *(f"{name} was replaced" for name in report["changed"]),
        *report["liars"],
    )
    return Verdict(float(not failed and not evidence), passed, failed, evidence=evidence)


def marked(source: bytes, mark: str) -> bytes:
    """Put a call around the left side of what tests compare, so that values that equal everything are noticed."""
    try:
        text = source.decode()
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return source
    lines = text.encode().splitlines(keepends=True)  # the columns of ast are bytes
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = b"".join(lines)
    for first, last in sorted(_compared(tree), reverse=True):
        begin, end = starts[first[0] - 1] + first[1], starts[last[0] - 1] + last[1]
        data = data[:begin] + mark.encode() + b"(" + data[begin:end] + b")" + data[end:]
    return data


def _compared(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    for node in ast.walk(tree):
        value: ast.expr | None = None
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
            if isinstance(node.test.ops[0], (ast.Eq, ast.NotEq)):
                value = node.test.left
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr.startswith("assert")
            and node.func.attr.endswith(("Equal", "Equals"))
            and node.args
        ):
            value = node.args[0]
        if value is None or isinstance(value, (ast.Constant, ast.Starred, ast.GeneratorExp)):
            continue
        if any(isinstance(inner, (ast.NamedExpr, ast.Await, ast.JoinedStr, ast.Call)) and _nested(inner)
               for inner in ast.walk(value)):  # fmt: skip
            continue
        yield (value.lineno, value.col_offset), (value.end_lineno or 0, value.end_col_offset or 0)


def _nested(node: ast.AST) -> bool:
    """Return True where a second mark inside the first would break the columns or the meaning."""
    return isinstance(node, (ast.NamedExpr, ast.Await)) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("assert")
    )
