"""Score what an agent has left: its source files in, a verdict with evidence out.

Nothing of the agent's machine takes part. A fresh tree gets the package's original files, the task's edits, and only
those files of the agent that the task allows; tests and configuration are the originals. The tests run in a sandbox of
their own, with tests that must fail among them, and then the hidden oracle, over a tree without tests.

A run that something else may have ended gives no verdict: it is repeated, and if that does not help, the task's own
solution shows whether the submission or the machine was the reason.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from composer_hub.environments import marks, node_tests
from composer_hub.environments import oracle as oracles
from composer_hub.environments.guard import Broken
from composer_hub.environments.node import manifest_of, node_version
from composer_hub.environments.sandbox import CommandInterrupted, Limits, Sandbox
from composer_hub.environments.trees import (
    Files,
    TreeError,
    bundle_files,
    edited,
    matches,
    read_file,
    scratch,
    write_files,
)
from composer_hub.records import Task

NUM_WORKERS = 2
_TRIES = 2
_MARK = "_composer_mark"
_MANY = 4096
_SOLUTIONS: dict[tuple[str, str, str], tuple[int, dict[str, dict[int, list[Any]]]]] = {}
"""Task, bundle and sandbox -> how often its solution ran, and what its tests compared there, as far as runs agree."""
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
        if not self.passed and not self.failed:  # the task has no tests to pass, so nothing visible differs
            return self.reward
        return float(not self.failed and not self.evidence)


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
    start = edited(bundle_files(bundle), (*task.edits, *task.hidden))
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
    """Score those of an agent's files that the task allows. `NotKnown` is not a verdict: try again later.

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
    if wants_tests:
        tree = fresh_tree(task, files, bundle)
        return oracles.check_tests(oracle, tree, sorted(submission(task, files)), task.python_path, sandbox, venv)
    results = []
    if oracle["calls"]:
        with scratch("composer-oracle-") as folder:
            write_files(folder / "tree", fresh_tree(task, files, bundle, tests=False))
            results.append(oracles.check(oracle, folder / "tree", task.python_path, sandbox, venv))
    if oracle.get("files"):
        with scratch("composer-oracle-") as folder:
            drivers = {path: text.encode() for path, text in oracle["files"].items()}
            write_files(folder / "tree", fresh_tree(task, files, bundle) | drivers)
            results.append(oracles.check_drivers(oracle, folder / "tree", task.python_path, sandbox, venv))
    return oracles.together(results)


def _tested(
    task: Task, wanted: tuple[str, ...], files: Files, bundle: Path, sandbox: Sandbox, venv: Path | None, seconds: float
) -> Verdict:
    if task.language == "javascript":
        return _tested_by_node(task, wanted, files, bundle, sandbox, venv, seconds)
    name = secrets.token_hex(4)
    canary_file = f"test_{name}.py"
    canaries = [f"{canary_file}::{one.format(name)}" for one in _NAMES]
    more = {canary_file: _CANARIES.format(name).encode()}

    def told_by(left: Files, more: dict[str, bytes], tests: Sequence[str]) -> marks.Told:
        tree = fresh_tree(task, left, bundle)
        test_files = sorted({node.partition("::")[0] for node in wanted} & tree.keys())
        tree |= {path: marks.marked(tree[path], _MARK) for path in task.tests if path in tree and path.endswith(".py")}
        with scratch("composer-verify-") as folder:
            write_files(folder / "tree", tree | more)
            files = (*more, *test_files)
            return marks.run_marked(folder / "tree", files, tests, _MARK, task.python_path, sandbox, venv, seconds)

    told = told_by(files, more, (*wanted, *canaries))
    if not told.values and not told.num_ends:
        told.done.check_uninterrupted()
    if told.done.timed_out or told.done.exceeded:
        most = f"more than {seconds:g} s" if told.done.timed_out else f"too much {told.done.exceeded}"
        return Verdict(0.0, failed=wanted, reason=f"The tests took {most}.")
    if told.end is None:
        # Ended without a word (an exit in the code under test) or with more than one.
        forgery = ("the report was forged",) if told.num_ends else ()
        output = told.done.output[-500:]
        return Verdict(0.0, failed=wanted, evidence=forgery, reason=f"The tests gave no report: {output}")
    ended = told.end["passed"]
    passed = tuple(node for node in wanted if ended.get(node) is True)
    evidence = [
        *(f"{one.partition('::')[2]} passed, which must fail" for one in canaries if ended.get(one)),
        *(f"{one} did not run" for one in canaries if one not in ended),
        *(f"{one} was replaced" for one in told.end.get("changed", ())),
    ]
    if len(passed) == len(wanted):
        forged = _untrue(task, wanted, told.values, bundle, sandbox, lambda left: told_by(left, {}, wanted))
        passed = tuple(node for node in passed if node not in forged)
        evidence += [f"{node} passed, although it compared other values than those of the solution" for node in forged]
    return _scored(wanted, passed, evidence)


def _scored(wanted: Sequence[str], passed: tuple[str, ...], evidence: Iterable[str]) -> Verdict:
    """Return the verdict of tests that have ended: every wanted one must pass, without evidence of tampering."""
    failed, signs = tuple(node for node in wanted if node not in passed), tuple(evidence)
    return Verdict(float(not failed and not signs), passed, failed, evidence=signs)


def _tested_by_node(
    task: Task, wanted: tuple[str, ...], files: Files, bundle: Path, sandbox: Sandbox, venv: Path | None, seconds: float
) -> Verdict:
    """Run JavaScript tests: each test file in a process that does not hold the report, with tests that must fail."""
    tree = fresh_tree(task, files, bundle)
    manifest = manifest_of(tree["package.json"])
    paths = sorted({node.partition("::")[0] for node in wanted} & tree.keys())
    mine, canaries = random.Random(secrets.randbits(64)), list[str]()
    for path in paths:
        # Titles like those of the file, so that code under test cannot recognize these tests.
        words = [word for node in wanted if node.startswith(f"{path}::") for word in node.partition("::")[2].split()]
        drawn = [mine.choices(words or ["is"], k=3) for _ in range(node_tests.NUM_CANARIES)]
        titles = [" ".join([*one, secrets.token_hex(2)]) for one in drawn]
        tree[path] += node_tests.canaries(manifest, titles).encode()
        canaries += [node_tests.shown(f"{path}::{title}") for title in titles]
    with scratch("composer-verify-") as folder:
        write_files(folder / "tree", tree)
        place, report = sandbox.inside(folder / "tree"), f".{secrets.token_hex(16)}"
        done = sandbox.run(
            node_tests.command(manifest, paths, version=node_version(), seconds=seconds, report=f"{place}/{report}",
                               reporter=str(node_tests.REPORTER)),
            root=folder / "tree",
            venv=venv,
            read_only=[node_tests.REPORTER],
            env=node_tests.VARIABLES,
            limits=Limits(seconds=seconds, cpu_seconds=int(seconds) + 1, memory_mb=4096, processes=256),
        )  # fmt: skip
        try:
            text = read_file(folder / "tree", report, most=64 << 20).decode(errors="replace")
        except (OSError, TreeError):
            text = ""
        found = node_tests.results(text, place)
    if not text:
        done.check_uninterrupted()
    if done.timed_out:
        return Verdict(0.0, failed=wanted, reason=f"The tests took more than {seconds:g} s.")
    if not found:
        return Verdict(0.0, failed=wanted, reason=f"The tests gave no report: {done.output[-500:]}")
    passed = tuple(node for node in wanted if found.get(node, {}).get("status") == "passed")
    evidence = (
        f"{name.partition('::')[2]} {'passed, which must fail' if name in found else 'did not run'}"
        for name in canaries
        if found.get(name, {}).get("status") != "failed"
    )
    return _scored(wanted, passed, evidence)


def _untrue(
    task: Task,
    wanted: Sequence[str],
    values: marks.Values,
    bundle: Path,
    sandbox: Sandbox,
    told_by: Callable[[Files], marks.Told],
) -> list[str]:
    """Return the tests that compared other values than in the run of the task's solution, whatever their end was."""
    key = task.task_id, str(bundle), sandbox.isolation

    def solution() -> dict[str, dict[int, list[Any]]]:
        told = told_by(edited(bundle_files(bundle), (*task.edits, *task.solution)))
        if told.end is None:
            told.done.check_uninterrupted()
        ended = {} if told.end is None else told.end["passed"]
        if failed := [test for test in wanted if ended.get(test) is not True]:
            raise NotKnown(f"The task's own solution does not pass {failed[0]} here, so nothing can be judged by it.")
        return {test: {site: list(one) for site, one in told.values.get(test, {}).items()} for test in wanted}

    while True:
        num_runs, known = _SOLUTIONS.get(key, (0, {}))
        untrue = [test for test, sites in known.items() if not marks.agree(values.get(test, {}), sites)]
        if num_runs == 2 or (num_runs and not untrue):
            return untrue
        found = solution()
        if num_runs:  # a value that two runs of the solution do not share (a time, an address) is dropped
            found = {
                test: {site: one for site, one in sites.items() if marks.same(one, found[test].get(site))}
                for test, sites in known.items() if test in found
            }  # fmt: skip
        while len(_SOLUTIONS) >= _MANY:
            _SOLUTIONS.pop(next(iter(_SOLUTIONS)), None)
        _SOLUTIONS[key] = num_runs + 1, found
