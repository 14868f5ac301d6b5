"""The shell world: the old interface fails in the new world with real messages, and the new one is rewarded."""

from __future__ import annotations

import pytest

from benchmarks import shell_world
from benchmarks.shell_world import PROGRAMS, OldShell, Shell, call_of, held_out, tasks


@pytest.fixture(scope="module")
def shells() -> tuple[Shell, Shell]:
    return Shell(), OldShell()


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=[program.name for program in PROGRAMS])
def test_only_the_interface_of_its_world_is_rewarded(number: int, shells: tuple[Shell, Shell]) -> None:
    row = next(row for row in tasks(400) if row["program"] == number)
    for shell, old in zip(shells, (False, True), strict=True):
        shell.reset(**row)
        with pytest.raises(ValueError, match=r"(?s)usage:.*error: .*exit code 2|No such file.*exit code 1"):
            shell.run(call_of(row, old=not old))
        assert shell.get_reward() == 0.0
        program = PROGRAMS[number]
        assert "usage:" in shell.run(f"{program.name} --help")
        assert shell.get_reward() == 0.0
        assert len(shell.run(call_of(row, old=old))) == 8
        assert shell.get_reward() == 1.0
        assert all(str(row[name]) in row["prompt"][0]["content"] for name in ("file", "number"))


def test_held_out_tasks_combine_files_and_numbers_that_no_training_task_does() -> None:
    def combined(rows: list[dict[str, object]]) -> set[tuple[object, object]]:
        return {(row["file"], row["number"]) for row in rows}

    training, held = tasks(500), held_out(200)
    assert (len(training), len(held)) == (500, 200)
    assert not combined(training) & combined(held)
    assert {row["program"] for row in held} == set(range(len(PROGRAMS)))


def test_a_demonstration_teaches_what_the_assistant_wrote_and_nothing_else(
    world: object, shells: tuple[Shell, Shell]
) -> None:
    _, tokenizer = world  # type: ignore[misc]
    for talk in shell_world.demonstrations(6, 0):
        ids, mask = shell_world.encoded(talk, tokenizer, shells[1].run)
        assert len(ids) == len(mask)
        learned = tokenizer.decode([token for token, own in zip(ids, mask, strict=True) if own])
        commands = [
            call["function"]["arguments"]["command"] for message in talk for call in message.get("tool_calls", ())
        ]
        assert learned.count("<tool_call>") == len(commands)
        assert all(command in learned for command in commands)
        assert "tool_response" not in learned
        assert talk[-1]["content"] in learned
