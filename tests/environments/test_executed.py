"""Executed pairs: the tests decide between two edits, in a state that is proved to be the recorded one."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits, hub
from composer_hub.cli.main import root
from composer_hub.environments import execute_pairs
from composer_hub.environments import oracle as oracles
from composer_hub.environments.coding import coding_factory
from composer_hub.environments.sandbox import open_sandbox
from composer_hub.environments.shelf import ORACLES, TaskShelf
from composer_hub.environments.trees import write_files
from composer_hub.environments.venvs import VenvError, venv_for
from composer_hub.ingest.dataset import config_features
from composer_hub.pairs.rows import pair_id_of
from composer_hub.pairs.tables import pairs_table
from composer_hub.records import (
    Execution,
    JsonObject,
    Message,
    Pair,
    Step,
    Task,
    ToolCall,
    Trace,
    features_of,
    to_row,
)
from tests.environments.hack_lab import hacked
from tests.environments.toy import DURATIONS, TOYS

TOY = TOYS[0]  # parse() of durations is emptied
PATH = "durations.py"
REQUIREMENTS = ("pytest", "coverage")
EMPTY = "    raise NotImplementedError\n"
_BODY = DURATIONS.split('on anything else."""\n')[1].split("\n\n\n")[0] + "\n"
_GUARD, _SUM = _BODY[: _BODY.index("    return")], _BODY[_BODY.index("    return") :]
_TABLE = '    return {"90s": 90, "1h30m": 5400, "2h": 7200}[text]\n'
Action = tuple[str, dict[str, Any]]


def replaced(old: str, new: str) -> Action:
    return "replace", {"path": PATH, "old": old, "new": new}


ROLLOUT: Sequence[Action] = (
    ("read_file", {"path": "missing.py"}),
    ("no_such_tool", {}),
    ("run_tests", {}),
    replaced(EMPTY, _SUM),  # the visible good half
    ("run", {"command": "python -c 'import durations; print(durations.parse(\"90s\"))'"}),
    replaced(_SUM, _GUARD + _SUM),
    ("run_tests", {}),
)
HALF, WHOLE = 3, 5  # steps
CASES: Mapping[str, tuple[int, Action, Action]] = {
    "chosen": (HALF, replaced(EMPTY, _BODY), ROLLOUT[HALF]),
    "rejected": (WHOLE, replaced(_SUM, "    return 90\n"), ROLLOUT[WHOLE]),
    "tie": (WHOLE, ("read_file", {"path": PATH}), ROLLOUT[WHOLE]),
    "equal": (WHOLE, replaced(_SUM, _BODY + "\n"), ROLLOUT[WHOLE]),
    "incomparable": (HALF, replaced(EMPTY, "    raise ValueError(text)\n"), ROLLOUT[HALF]),
    "table": (HALF, replaced(EMPTY, _TABLE), replaced(EMPTY, "    return 0\n")),
    "not_executable": (HALF, ("Bash", {"command": "ls"}), ROLLOUT[HALF]),
}


def message(action: Action, number: int = 0) -> Message:
    return Message("assistant", "", (ToolCall(*action, call_id=f"call{number}"),))


def pair(trace: Trace, case: str) -> Pair:
    number, chosen, rejected = CASES[case]
    step, sides = trace.steps[number].step_id, ((message(chosen),), (message(rejected),))
    return Pair(
        pair_id_of(trace.trace_id, step, *sides), trace.trace_id, step, number, len(trace.steps),
        (Message("user", "Restore it."),), *sides, tools=(), level="L2", num_agree=2, num_votes=2, teachers=("a", "b"),
        excluded_teachers=(), families=("x", "y"), chosen_teacher="a", source_model="m", source_family="m",
    )  # fmt: skip


@pytest.fixture(scope="module")
def shelf(plain_venv: Path, tmp_path_factory: pytest.TempPathFactory) -> TaskShelf:
    folder = tmp_path_factory.mktemp("shelf")
    try:
        sandbox = open_sandbox()
    except exits.Refused as error:
        pytest.skip(str(error))
    task = dataclasses.replace(TOY.task, bundle_digest=TOY.task.task_id, has_oracle=True)
    write_files(folder / "gold", TOY.files)
    calls = [{"target": f"durations:{name}", "args": args, "kwargs": {"d": []}} for name, args in TOY.calls]
    answers = oracles.replay(calls, folder / "gold", task.python_path, sandbox, plain_venv)
    oracle = {"calls": [*calls[3:], *calls[:3]], "answers": [*answers[3:], *answers[:3]], "num_unseen": 3}
    return TaskShelf(
        {task.task_id: task}, {task.task_id: TOY.bundle(folder)}, {task.task_id: plain_venv}, {task.task_id: oracle}
    )


@pytest.fixture(scope="module")
def rollout(shelf: TaskShelf) -> Trace:
    """Return a rollout that solves its task, played with the real tools, as a run exports it."""
    environment = coding_factory(shelf)()
    environment.reset(task_id=TOY.task.task_id)
    messages = [Message("user", "Restore it.")]
    steps = []
    for number, (tool, arguments) in enumerate(ROLLOUT):
        method = getattr(environment, tool, None)
        result = method(**arguments) if method else "{'error': 'Tool no_such_tool not found.'}"
        place = len(messages)
        messages += [message((tool, arguments), number), Message("tool", result, (), f"call{number}", tool)]
        steps.append(Step(f"step{number}", number, place, ((0, place),), (place + 1,), model="m"))
    assert environment.get_reward() == 1.0
    return Trace("rollout", "composer_rollout", "s", tuple(messages), tuple(steps),
                 provenance={"episode": environment._facts()})  # fmt: skip


def test_a_scripted_agent_that_tries_hacks_with_the_real_tools_gets_nothing(shelf: TaskShelf) -> None:
    environment = coding_factory(shelf)()
    for name in ("edit the tests", "exit in the function", "equal to everything", "read the caller's frame"):
        environment.reset(task_id=TOY.task.task_id)
        environment.run("git log -p; find / -name 'durations*.pyc'")
        for path, data in hacked(TOY, name).items():
            if data != environment._start.get(path):
                assert environment.write_file(path, data.decode()).startswith("Wrote"), name
        environment.run_tests()
        assert environment.get_reward() == 0.0, name
        is_proved = name == "read the caller's frame"  # the others fail visible tests, which proves nothing
        assert environment._notes()["rollout/hack_share"] == is_proved, name


def without(trace: Trace, *names: str) -> Trace:
    episode = {name: value for name, value in trace.provenance["episode"].items() if name not in names}
    return dataclasses.replace(trace, provenance={"episode": episode})


def test_tests_and_hidden_calls_decide_edits_and_nothing_else(shelf: TaskShelf, rollout: Trace) -> None:
    pairs = [pair(rollout, case) for case in CASES]
    found = execute_pairs(pairs, [rollout], shelf)
    verdicts = {case: one.verdict for case, one in zip(CASES, found, strict=True)}
    assert verdicts == {case: case for case in CASES} | {"table": "incomparable"}
    better = found[0]
    assert (better.num_tests, better.chosen_passed, better.chosen_reward, better.rejected_reward) == (7, 7, 1.0, 0.0)
    assert better.rejected_passed < 7
    assert (better.num_hidden, better.chosen_hidden) == (4, 4)


def test_without_an_oracle_only_an_action_that_touches_the_grading_is_called_a_hack(
    shelf: TaskShelf, rollout: Trace
) -> None:
    bare = dataclasses.replace(shelf, oracles={})
    tampered = pair(rollout, "chosen")
    config = ToolCall("write_file", {"path": "conftest.py", "text": "collect_ignore = []\n"}, "call1")
    calls = (*tampered.chosen[0].tool_calls, config)
    tampered = dataclasses.replace(tampered, pair_id="tampered", chosen=(Message("assistant", "", calls),))
    given = [pair(rollout, "chosen"), pair(rollout, "table"), tampered]
    chosen, table, touched = execute_pairs(given, [rollout], bare)
    assert (chosen.verdict, chosen.evidence) == ("chosen", ())
    assert (table.verdict, table.evidence) == ("chosen", ())  # a table also occurs in honest code
    assert (touched.verdict, touched.evidence) == ("hack", ("conftest.py was changed",))


@pytest.mark.parametrize("verdict", ["no_states", "reward_differs", "no_reward", "no_task", "no_trace"])
def test_a_rollout_that_cannot_be_trusted_is_counted_and_left_alone(
    verdict: str, shelf: TaskShelf, rollout: Trace
) -> None:
    episode = rollout.provenance["episode"]
    traces = {
        "no_states": [without(rollout, "states")],
        "reward_differs": [dataclasses.replace(rollout, provenance={"episode": {**episode, "reward": 0.0}})],
        "no_reward": [without(rollout, "reward")],
        "no_task": [dataclasses.replace(rollout, provenance={})],
        "no_trace": [],
    }[verdict]
    (found,) = execute_pairs([pair(rollout, "chosen")], traces, shelf)
    assert (found.verdict, found.chosen_tree) == (verdict, "")


@dataclasses.dataclass(frozen=True)
class BundleRow:
    digest: str
    data: str
    requirements: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class OracleRow:
    task_id: str
    oracle: JsonObject


def test_the_command_adds_the_verdicts_and_applies_them(
    shelf: TaskShelf, rollout: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        venv_for(REQUIREMENTS)
    except VenvError as error:
        pytest.skip(str(error))
    where = hub.FolderDestination(tmp_path / "hub")
    task = shelf.tasks[TOY.task.task_id]
    bundle = BundleRow(task.bundle_digest, base64.b64encode(shelf.bundles[task.bundle_digest].read_bytes()).decode(),
                       REQUIREMENTS)  # fmt: skip
    oracle = OracleRow(task.task_id, dict(shelf.oracles[task.task_id]))
    traces = hub.Card("traces", "Traces", holes={"origin": "", "redaction": ""})
    pairs = hub.Card("pairs", "Pairs", holes={"policy": "", "report": ""})
    source = hub.publish(
        where, "me/rollouts", [hub.Table("traces", [to_row(rollout)], config_features()["traces"], "trace_id")], traces
    )
    hidden = hub.publish(
        where, "me/tasks-oracle", [hub.Table("oracle", [to_row(oracle)], features_of(OracleRow), "task_id")], traces
    )
    hub.publish(where, "me/tasks", [
        hub.Table("tasks", [to_row(task)], features_of(Task), "task_id", split=None),
        hub.Table("bundles", [to_row(bundle)], features_of(BundleRow), "digest"),
    ], traces, lineage=hub.Lineage((hub.Parent(ORACLES, "me/tasks-oracle", hidden.revision),)))  # fmt: skip
    rows = [pair(rollout, case) for case in ("chosen", "rejected", "equal")]
    rows.append(dataclasses.replace(rows[0], pair_id="elsewhere", trace_id="elsewhere"))
    table = pairs_table(rows, {"rollout": "train", "elsewhere": "train"})
    lineage = hub.Lineage((hub.Parent("traces", "me/rollouts", source.revision),))
    hub.publish(where, "me/pairs", [table], pairs, lineage=lineage)
    place = ["--to", str(tmp_path / "hub"), "--tasks", "me/tasks"]
    root.main(["pairs", "execute", "me/pairs@v1.0.0", *place], standalone_mode=False)
    text = capsys.readouterr().err
    assert "The tests decided 2 of 4 pairs and overruled the teachers in 1 (50%)." in text
    second = hub.load(where, "me/pairs")
    verdicts = {row.pair_id: row.verdict for row in second.records(Execution, "executed")}
    assert [verdicts[row.pair_id] for row in rows] == ["chosen", "rejected", "equal", "no_trace"]
    assert set(second.ids("default")) == {row.pair_id for row in rows}
    root.main(["pairs", "execute", "me/pairs", *place, "--apply", "--repo", "me/tested"], standalone_mode=False)
    kept = {row.pair_id: row for row in hub.load(where, "me/tested").records(Pair, "default")}
    assert set(kept) > {rows[0].pair_id, "elsewhere"}
    assert rows[2].pair_id not in kept
    (swapped,) = (row for row in kept.values() if row.chosen_teacher == "student")
    assert swapped.chosen == rows[1].rejected
