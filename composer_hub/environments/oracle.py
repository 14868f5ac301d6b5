"""The hidden differential oracle: recorded and mutated calls, and the answers that the original code gave.

The calls are replayed over a tree in the sandbox; the answers stay outside and are compared there, with exact types.
For tasks that ask for tests, the oracle is a set of mutants instead, which the tests must tell from the original.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub.environments.sandbox import Limits, Sandbox
from composer_hub.records import canonical_json

SCRIPT = Path(__file__).with_name("calls.py")


@dataclass(frozen=True)
class OracleResult:
    """How a tree did; `ok` if every call was answered as the original answers it."""

    ok: bool
    num_right: int
    num_calls: int
    first_wrong: str = ""  # the call, its answer and the right one; private, never shown to the agent
    right: tuple[int, ...] = ()  # the calls that were answered right, or the mutants that were found


def check(
    oracle: Mapping[str, Any], tree: Path, python_path: Sequence[str], sandbox: Sandbox, venv: Path | None = None
) -> OracleResult:
    """Replay an oracle over a tree and compare the answers."""
    calls, wanted = oracle["calls"], oracle["answers"]
    answers = replay(calls, tree, python_path, sandbox, venv)
    right = [canonical_json(one) == canonical_json(other) for one, other in zip(answers, wanted, strict=True)]
    wrong = ""
    if not all(right):
        place = right.index(False)
        wrong = json.dumps({"call": calls[place], "answer": answers[place], "wanted": wanted[place]})[:2000]
    places = tuple(place for place, one in enumerate(right) if one)
    return OracleResult(all(right) and bool(right), len(places), len(right), wrong, places)


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
            env=python_env(place, python_path),
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


def check_tests(
    oracle: Mapping[str, Any],
    tree: Path,  # the original code with the agent's test files
    files: Sequence[str],  # of the agent
    python_path: Sequence[str],
    sandbox: Sandbox,
    venv: Path | None = None,
) -> OracleResult:
    """Run new tests: they must pass on the original code and fail on enough of the mutants."""
    if not files or not _pass(tree, files, python_path, sandbox, venv):
        return OracleResult(False, 0, len(oracle["mutants"]), "the tests do not pass on the original code")
    killed = []
    for number, mutant in enumerate(oracle["mutants"]):
        before = {path: (tree / path).read_bytes() for path in mutant}
        try:
            for path, text in mutant.items():
                (tree / path).write_bytes(text.encode())
            if not _pass(tree, files, python_path, sandbox, venv):
                killed.append(number)
        finally:
            for path, data in before.items():
                (tree / path).write_bytes(data)
    return OracleResult(len(killed) >= oracle["min_kills"], len(killed), len(oracle["mutants"]), right=tuple(killed))


def _pass(tree: Path, files: Sequence[str], python_path: Sequence[str], sandbox: Sandbox, venv: Path | None) -> bool:
    command = ["python" if venv else "python3", "-B", "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
    done = sandbox.run(
        [*command, "-o", "addopts=", "-o", "required_plugins=", *files],
        root=tree,
        venv=venv,
        env=python_env(sandbox.inside(tree), python_path),
        limits=Limits(seconds=60),
    )
    done.check_uninterrupted()
    return done.exit_code == 0


def python_env(place: str, python_path: Sequence[str]) -> dict[str, str]:
    """Return the variables under which a tree at `place` is imported and tested."""
    paths = [place if one == "." else f"{place}/{one}" for one in python_path]
    return {"PYTHONPATH": ":".join(dict.fromkeys([*paths, place])), "PYTHONHASHSEED": "0", "TZ": "UTC"}


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
