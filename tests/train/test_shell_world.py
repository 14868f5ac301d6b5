"""The shell world: the old interface fails in a new world with real messages, and the new one is rewarded."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from benchmarks import shell_world
from benchmarks.shell_world import ARMS, NEW, PROGRAMS, SEEN, Shell, call_of, changed, held_out, tasks, world

EVERY = range(len(PROGRAMS))


@pytest.fixture(scope="module")
def shell() -> Shell:
    return Shell(1)


@pytest.mark.parametrize("number", changed(1), ids=lambda number: PROGRAMS[number].name)
def test_only_the_interface_of_its_world_is_rewarded(number: int) -> None:
    row = tasks(1, [number])[0]
    for old in (False, True):
        shell = Shell(None if old else 1)
        shell.reset(**row)
        with pytest.raises(ValueError, match=r"(?s)usage:.*error: .*exit code 2"):
            shell.run(call_of(row, 1 if old else None))
        assert shell.get_reward() == 0.0
        assert "usage:" in shell.run(f"{PROGRAMS[number].name} --help")
        assert shell.get_reward() == 0.0
        assert len(shell.run(call_of(row, None if old else 1))) == 8
        assert shell.get_reward() == pytest.approx(1 / 3)
        assert all(str(row[name]) in row["prompt"][0]["content"] for name in ("file", "number"))


def test_a_first_call_that_works_is_worth_most(shell: Shell) -> None:
    row = tasks(1, changed(1))[0]
    shell.reset(**row)
    shell.run(call_of(row, 1))
    shell.run(call_of(row, 1))
    assert shell.get_reward() == 1.0


def test_a_world_changes_one_word_of_half_of_the_programs() -> None:
    assert world(None) == {number: program.old for number, program in enumerate(PROGRAMS)}
    for seed in (*range(20), *map(str, range(20))):
        now = world(seed)
        assert len(changed(seed)) == shell_world.NUM_CHANGED
        for number in changed(seed):
            same = [getattr(now[number], name) == getattr(PROGRAMS[number].old, name) for name in NEW]
            assert same.count(False) == 1
    assert len({json.dumps(sorted(map(str, world(seed).values()))) for seed in range(20)}) == 20


def test_no_demonstration_has_a_word_of_a_new_interface() -> None:
    new = {word for words in NEW.values() for word in words}
    old = {word for program in PROGRAMS for word in (program.old.command, program.old.file, program.old.number)}
    assert not new & (old | {word for words in SEEN.values() for word in words})


def test_held_out_tasks_combine_files_and_numbers_that_no_training_task_does() -> None:
    def combined(rows: list[dict[str, object]]) -> set[tuple[object, object]]:
        return {(row["file"], row["number"]) for row in rows}

    training, held = tasks(500, EVERY), held_out(200, EVERY)
    assert (len(training), len(held)) == (500, 200)
    assert not combined(training) & combined(held)
    counts = [sum(row["program"] == number for row in held_out(30, changed(1))) for number in changed(1)]
    assert counts == [5] * 6


def test_a_demonstration_teaches_what_the_assistant_wrote_and_nothing_else(world: object, shell: Shell) -> None:
    _, tokenizer = world  # type: ignore[misc]
    tokenizer = shell_world.with_template(copy.deepcopy(tokenizer))
    for talk in shell_world.demonstrations(6, 0):
        ids, mask = shell_world.encoded(talk, tokenizer, shell.run)
        assert len(ids) == len(mask)
        learned = tokenizer.decode([token for token, own in zip(ids, mask, strict=True) if own])
        commands = [
            call["function"]["arguments"]["command"] for message in talk for call in message.get("tool_calls", ())
        ]
        assert learned.count("<tool_call>") == len(commands)
        assert all(command in learned for command in commands)
        assert "tool_response" not in learned
        assert talk[-1]["content"] in learned


def test_every_second_demonstration_follows_an_error() -> None:
    talks = list(shell_world.demonstrations(6, 0))
    errors = ["usage:" in talk[2]["content"] for talk in talks]
    assert errors == [False, True] * 3
    assert all(len(talk[-1]["content"]) == 8 for talk in talks)


def test_the_page_has_the_tables_of_the_recorded_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "results" / "real_model.md").read_text()
    assert [line for line in shell_world.report() if line and line not in page.splitlines()] == []


def test_every_arm_has_equally_many_runs_of_one_size() -> None:
    runs = shell_world._runs(shell_world.RECORDED)
    assert len({json.dumps(run["size"]) for run in runs}) <= 1
    assert len({(run["seed"], run["arm"]) for run in runs}) == len(runs)
    assert {run["arm"] for run in runs} <= set(ARMS)
