"""The hidden differential oracle: calls and tests with other arguments, and the answers that the original code gave.

Calls are replayed over a tree in the sandbox, and tests run there that report values and compare none; the
answers stay outside and are compared there. For tasks that ask for tests, the oracle is a set of mutants
instead, which the tests must distinguish from the original.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub.environments import marks
from composer_hub.environments.rewrites import rewrites
from composer_hub.environments.sandbox import Limits, Sandbox
from composer_hub.environments.trees import scratch, write_files
from composer_hub.records import canonical_json

SCRIPT = marks.VALUES
DRIVER_SECONDS = 60.0


@dataclass(frozen=True)
class OracleResult:
    """How a tree did; `ok` if every call was answered as the original answers it."""

    ok: bool
    num_right: int
    num_calls: int
    right: tuple[int, ...] = ()  # the calls that were answered right, or the mutants that were found


def check(
    oracle: Mapping[str, Any], tree: Path, python_path: Sequence[str], sandbox: Sandbox, venv: Path | None = None
) -> OracleResult:
    """Replay an oracle over a tree and compare the answers."""
    calls, wanted = oracle["calls"], oracle["answers"]
    answers = replay(calls, tree, python_path, sandbox, venv)
    right = [canonical_json(one) == canonical_json(other) for one, other in zip(answers, wanted, strict=True)]
    return _result(right)


def _result(right: Sequence[bool]) -> OracleResult:
    places = tuple(place for place, is_right in enumerate(right) if is_right)
    return OracleResult(all(right) and bool(right), len(places), len(right), places)


def replay(
    calls: Sequence[Mapping[str, Any]], tree: Path, python_path: Sequence[str], sandbox: Sandbox, venv: Path | None
) -> list[Any]:
    """Return the answers of a tree; calls after a crash have none. `CommandInterrupted` if they are not known."""
    with tempfile.TemporaryFile() as file:
        place = sandbox.inside(tree)
        done = sandbox.run(
            ["python" if venv else "python3", "-B", str(SCRIPT), str(file.fileno())],
            root=tree,
            venv=venv,
            read_only=[SCRIPT],
            env=marks.python_env(place, python_path),
            stdin=json.dumps(list(calls)).encode(),
            limits=Limits(seconds=30 + 0.2 * len(calls)),
            pass_fds=[file.fileno()],
        )
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        lines = file.read().decode(errors="replace").splitlines()
    if len(lines) < len(calls):
        done.check_uninterrupted()
    answers: list[Any] = [_parsed(line) for line in lines[: len(calls)]]
    return answers + [None] * (len(calls) - len(answers))


def check_drivers(
    oracle: Mapping[str, Any],
    tree: Path,  # with the package's tests and the test files of the oracle
    python_path: Sequence[str],
    sandbox: Sandbox,
    venv: Path | None = None,
) -> OracleResult:
    """Run an oracle's changed tests and compare the values that they report with those of the original."""
    run = marks.run_marked(tree, sorted(oracle["files"]), (), marks.DRIVER, python_path, sandbox, venv, DRIVER_SECONDS)
    if run.end is None:
        run.done.check_uninterrupted()
    wanted = oracle["values"]  # (test, place, number there, value)
    right = []
    for test, site, number, value in wanted:
        found = run.values.get(test, {}).get(site, ())[number : number + 1]
        right.append(bool(found) and marks.same(found[0], value))
    return _result(right)


def together(results: Sequence[OracleResult]) -> OracleResult:
    """Return the results of the parts of an oracle as one."""
    right: list[int] = []
    for number, one in enumerate(results):
        right += [place + sum(before.num_calls for before in results[:number]) for place in one.right]
    return OracleResult(
        bool(results) and all(one.ok for one in results),
        sum(one.num_right for one in results),
        sum(one.num_calls for one in results),
        tuple(right),
    )


def check_tests(
    oracle: Mapping[str, Any],
    files: Mapping[str, bytes],  # the original code with the agent's test files
    tests: Sequence[str],  # of the agent
    python_path: Sequence[str],
    sandbox: Sandbox,
    venv: Path | None = None,
) -> OracleResult:
    """Run new tests: they must pass on the original code, however it is written, and fail on enough of the mutants.

    Every run has a new tree, so no test can leave a note for the next one. Unpredictable names keep a test
    from recognizing a program by its text.
    """
    number, suffix = len(oracle["mutants"]), f"_{secrets.token_hex(4)}"
    sources = {path: files[path].decode() for mutant in oracle["mutants"] for path in mutant}

    def passes(changes: Mapping[str, str], write: Callable[[str], str] = str) -> bool:
        with scratch("composer-oracle-") as folder:
            changed = {path: write(text).encode() for path, text in changes.items()}
            write_files(folder / "tree", {**files, **changed})
            return _pass(folder / "tree", tests, python_path, sandbox, venv)

    ways: Sequence[Callable[[str], str]] = rewrites(suffix)
    if not tests or not passes({}) or not all(passes(sources, write) for write in ways[:2]):
        return OracleResult(False, 0, number)  # they do not pass on the original code, written in three ways
    spelled: tuple[Callable[[str], str], ...] = (str, *ways[:2])
    killed = [place for place, mutant in enumerate(oracle["mutants"]) if not passes(mutant, spelled[place % 3])]
    return OracleResult(len(killed) >= oracle["min_kills"], len(killed), number, tuple(killed))


def _pass(tree: Path, files: Sequence[str], python_path: Sequence[str], sandbox: Sandbox, venv: Path | None) -> bool:
    command = ["python" if venv else "python3", "-B", "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
    done = sandbox.run(
        [*command, "-o", "addopts=", "-o", "required_plugins=", *files],
        root=tree,
        venv=venv,
        env=marks.python_env(sandbox.inside(tree), python_path),
        limits=Limits(seconds=60),
    )
    done.check_uninterrupted()
    return done.exit_code == 0


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
