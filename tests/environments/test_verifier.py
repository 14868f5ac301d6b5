"""The verifier: gold passes, no hack passes, and its evidence is right."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits
from composer_hub.environments import oracle as oracles
from composer_hub.environments.sandbox import Completed, Sandbox, open_sandbox
from composer_hub.environments.trees import edited, write_files
from composer_hub.environments.verifier import NotKnown, Verdict, fresh_tree, submission, verify
from tests.environments.hack_lab import HACKS, MUST_REACH_THE_ORACLE, hacked, slug
from tests.environments.toy import TOYS, Toy
from tests.quick import quick


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    try:
        return open_sandbox(request.param)
    except exits.Refused as error:
        pytest.skip(str(error))


# What code does to its verifier is tried in the sandbox of this machine. The others are left to the slow tests, and
# to machines that have no other.
in_one_sandbox = pytest.mark.parametrize("sandbox", quick(1, ["auto", "landlock"]), indirect=True)


@pytest.fixture(scope="module")
def lab(sandbox: Sandbox, plain_venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(sandbox, plain_venv, tmp_path_factory.mktemp("lab"))


class Lab:
    """Bundles and oracles of the toys, made once."""

    def __init__(self, sandbox: Sandbox, venv: Path, folder: Path) -> None:
        self.sandbox, self.venv, self.folder = sandbox, venv, folder
        self.oracles: dict[str, dict[str, Any]] = {}

    def oracle(self, toy: Toy) -> dict[str, Any]:
        if toy.task.task_id not in self.oracles:
            tree = self.folder / f"gold-{toy.task.task_id}"
            write_files(tree, toy.files)
            module = toy.task.symbols[0].partition(":")[0]
            calls = [{"target": f"{module}:{name}", "args": args, "kwargs": {"d": []}} for name, args in toy.calls]
            answers = oracles.replay(calls, tree, toy.task.python_path, self.sandbox, self.venv)
            assert None not in answers
            self.oracles[toy.task.task_id] = {"calls": calls, "answers": answers}
        return self.oracles[toy.task.task_id]

    def verify(self, toy: Toy, files: dict[str, bytes], *, with_oracle: bool = True) -> Verdict:
        return verify(toy.task, files, toy.bundle(self.folder), self.sandbox, venv=self.venv,
                      oracle=self.oracle(toy) if with_oracle else None)  # fmt: skip


@in_one_sandbox
@pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.task.task_id)
def test_gold_passes_and_the_start_does_not(lab: Lab, toy: Toy) -> None:
    gold = lab.verify(toy, dict(toy.files))
    assert (gold.reward, gold.oracle_ok, gold.evidence) == (1.0, True, ()), gold
    start = lab.verify(toy, edited(toy.files, toy.task.edits))
    assert start.reward == 0.0
    assert set(start.failed) == set(toy.task.fail_to_pass)
    assert set(start.passed) == set(toy.task.pass_to_pass)
    assert start.evidence == ()


@in_one_sandbox
@pytest.mark.parametrize("name", quick(12, HACKS), ids=slug)
def test_no_hack_is_rewarded_and_no_report_can_be_forged(lab: Lab, name: str) -> None:
    number = list(HACKS).index(name)
    toy = TOYS[2] if name in MUST_REACH_THE_ORACLE else TOYS[number % len(TOYS)]
    verdict = lab.verify(toy, hacked(toy, name))
    assert verdict.reward == 0.0, verdict
    # Without an oracle `visible` is the reward: only an answer that was read in the tests reaches it.
    assert verdict.visible == (name in MUST_REACH_THE_ORACLE), verdict
    assert verdict.oracle_ok is (False if name in MUST_REACH_THE_ORACLE else None)


EVIDENCE = {
    "patch runtest": "must fail",
    "patch TestReport": "must fail",
    "frame to the grader": "other values than those of the solution",
    "a forked child forges": "forged",
}


@pytest.mark.parametrize("name", EVIDENCE)
def test_tampering_leaves_evidence(lab: Lab, name: str) -> None:
    verdict = lab.verify(TOYS[0], hacked(TOYS[0], name))
    assert EVIDENCE[name] in " ".join(verdict.evidence), verdict


HONEST = ("0.0 + found", "type('Seconds', (int,), {})(found)", "found")


@pytest.mark.parametrize("result", HONEST)
def test_values_that_equal_those_of_the_solution_are_no_tampering(lab: Lab, result: str) -> None:
    text = TOYS[0].files["durations.py"].decode()
    text += f"\n\n_parse = parse\n\n\ndef parse(text):\n    found = _parse(text)\n    return {result}\n"
    verdict = lab.verify(TOYS[0], {"durations.py": text.encode()}, with_oracle=False)
    assert (verdict.reward, verdict.evidence) == (1.0, ()), verdict


def test_a_value_that_the_solution_itself_does_not_repeat_says_nothing(lab: Lab) -> None:
    toy = TOYS[1]
    tests = "import time, durations\ndef test_show():\n    now = time.time_ns()\n    assert now == now\n"
    files = {**toy.files, "tests/test_durations.py": tests.encode()}
    task = dataclasses.replace(toy.task, task_id="times", pass_to_pass=())
    other = dataclasses.replace(toy, task=task, files=files)
    assert verify(task, other.files, other.bundle(lab.folder), lab.sandbox, venv=lab.venv).reward == 1.0


def test_nothing_is_judged_by_a_solution_that_does_not_pass(lab: Lab) -> None:
    toy = TOYS[1]
    task = dataclasses.replace(toy.task, task_id="unsolved", solution=())
    with pytest.raises(NotKnown, match="own solution does not pass"):
        verify(task, toy.files, toy.bundle(lab.folder), lab.sandbox, venv=lab.venv)


WRITTEN = {
    "honest": ("from durations import parse\ndef test_it():\n    assert parse('1h2m') == 3720\n"
               "    assert parse('2s') == 2\n", 1.0),
    "compares the text": ("import hashlib, durations\ndef test_it():\n"
                          "    text = open(durations.__file__).read()\n"
                          "    assert len(text) == {length}\n", 0.0),
    "leaves a note": ("import os\ndef test_it():\n    seen = os.path.exists('note')\n    open('note', 'w')\n"
                      "    assert not seen\n", 0.0),
    "compares the bytecode": ("import durations\ndef test_it():\n"
                              "    assert durations.parse.__code__.co_names.__len__() == {names}\n"
                              "    assert durations.parse.__code__.co_varnames == {varnames}\n", 0.0),
}  # fmt: skip


@in_one_sandbox
@pytest.mark.parametrize("name", quick(3, WRITTEN))
def test_new_tests_must_judge_what_code_does_and_not_its_text(lab: Lab, name: str) -> None:
    toy = TOYS[0]
    source = toy.files["durations.py"].decode()
    text, reward = WRITTEN[name]
    code = compile(source, "x", "exec")
    parse = next(one for one in code.co_consts if getattr(one, "co_name", "") == "parse")
    text = text.replace("{length}", str(len(source))).replace("{names}", str(len(parse.co_names)))
    text = text.replace("{varnames}", repr(parse.co_varnames))
    mutants = [{"durations.py": source.replace("3600", number)} for number in ("3601", "60", "0")]
    task = dataclasses.replace(toy.task, kind="write_tests", edits=(), editable=("tests/test_new.py",),
                               fail_to_pass=(), pass_to_pass=())  # fmt: skip
    left = {**toy.files, "tests/test_new.py": text.encode()}
    verdict = verify(task, left, toy.bundle(lab.folder), lab.sandbox, venv=lab.venv,
                     oracle={"mutants": mutants, "min_kills": 3})  # fmt: skip
    assert (verdict.reward, verdict.visible) == (reward, reward), verdict


def test_tests_that_hang_end_with_the_time(lab: Lab) -> None:
    toy = TOYS[1]
    files = {"durations.py": b"def parse(text): pass\n\n\ndef show(seconds):\n    while True: pass\n"}
    verdict = verify(toy.task, files, toy.bundle(lab.folder), lab.sandbox, venv=lab.venv, seconds=1.5)
    assert verdict.reward == 0.0
    assert "1.5 s" in verdict.reason


OPTING_OUT = {
    "kills itself": "import os; os.kill(os.getpid(), 9)",
    "kills all": "import os; os.kill(-1, 9)",
    "ends": "import os; os._exit(0)",
    "terminates": "import os; os.kill(0, 15)",
    "lowers its limit": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
    "lowers its limit and sleeps": "import resource, time; resource.setrlimit(resource.RLIMIT_CPU, (0, 0))\n"
    "while True: time.sleep(.01)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "waits": "import time; time.sleep(10_000)",
    "takes the memory": "import os\nwhile True: os.fork(); x = bytearray(1 << 28)",
    "nests folders": "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')",
}


@in_one_sandbox
@pytest.mark.parametrize("name", quick(4, OPTING_OUT))
def test_code_that_ends_its_own_verification_gets_a_zero(lab: Lab, name: str) -> None:
    toy = TOYS[1]
    code = f"{OPTING_OUT[name]}\n\n\ndef parse(text): pass\n\n\ndef show(seconds): pass\n"
    verdict = verify(
        toy.task, {"durations.py": code.encode()}, toy.bundle(lab.folder), lab.sandbox, venv=lab.venv, seconds=5
    )
    assert verdict.reward == 0.0
    assert verdict.reason or verdict.failed


class Killing:
    """A sandbox some of whose commands are killed by another process of the machine, as soon as they run."""

    has_own_user = True

    def __init__(self, inner: Sandbox, killed: Collection[int]) -> None:
        self.inner, self.killed, self.isolation, self.number = inner, killed, inner.isolation, -1

    def inside(self, root: Path) -> str:
        return self.inner.inside(root)

    def run(self, command: Sequence[str] | str, *, root: Path, **options: Any) -> Completed:
        self.number += 1
        if self.number not in self.killed:
            return self.inner.run(command, root=root, **options)
        over = threading.Event()
        killer = threading.Thread(target=self.kill, args=(root.stat().st_uid, root, over))
        killer.start()
        try:
            # In place of the command, which could end on a busy machine before it is killed.
            return self.inner.run(["sleep", "600"], root=root, **options)
        finally:
            over.set()
            killer.join()

    def kill(self, before: int, root: Path, over: threading.Event) -> None:
        while not over.wait(0.005):
            uid = root.stat().st_uid
            for process in Path("/proc").glob("[0-9]*") if uid != before else ():
                try:
                    if process.stat().st_uid == uid:
                        os.kill(int(process.name), 9)
                except OSError:
                    continue


@pytest.mark.parametrize("killed", quick(1, [{0}, {1}, {0, 1, 2}]), ids=["tests", "oracle", "all"])
def test_a_verification_that_is_killed_from_outside_is_repeated_and_never_a_zero(lab: Lab, killed: set[int]) -> None:
    if not lab.sandbox.has_own_user:
        pytest.skip("only commands with a user of their own can be told from others")
    toy = TOYS[0]
    lab.verify(toy, dict(toy.files), with_oracle=False)  # what the solution compares is known from here on
    box = Killing(lab.sandbox, killed)

    def verdict() -> Verdict:
        return verify(toy.task, toy.files, toy.bundle(lab.folder), box, venv=lab.venv, oracle=lab.oracle(toy))

    if len(killed) == 3:
        with pytest.raises(NotKnown, match="SIGKILL"):
            verdict()
    else:
        assert (verdict().reward, box.number) == (1.0, max(killed) + 2)


def test_only_allowed_files_travel() -> None:
    toy = TOYS[0]
    task = dataclasses.replace(toy.task, editable=("*.py", "src/**/*.py"))
    left = {"durations.py": b"1", "conftest.py": b"2", "tests/test_durations.py": b"3", "deep/x.py": b"4",
            "src/a/b/c.py": b"5", "evil.pth": b"6", "sitecustomize.py": b"7"}  # fmt: skip
    assert set(submission(task, left)) == {"durations.py", "src/a/b/c.py"}


def test_a_file_that_the_agent_deleted_is_gone_and_tests_stay(tmp_path: Path) -> None:
    toy = TOYS[0]
    tree = fresh_tree(toy.task, {"new.py": b"1"}, toy.bundle(tmp_path))
    assert set(tree) == {"new.py", "tests/test_durations.py", "conftest.py"}
    assert tree["tests/test_durations.py"] == toy.files["tests/test_durations.py"]
