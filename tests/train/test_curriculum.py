"""The choice of tasks by their solve rate: exploration, weights, levels of help, combinations, and resuming."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from composer_hub.environments.shelf import TaskShelf
from composer_hub.records import Task
from composer_hub.train.curriculum import Curriculum, CurriculumSampler
from tests.environments.toy import TOYS

GROUP = 4


def play(curriculum: Curriculum, number: int, solves: dict[int, int]) -> list[int]:
    """Draw a batch and note so many solved rollouts of each row."""
    places = curriculum.draw(number)
    curriculum.note([bool(turn < solves.get(place, 0)) for place in places for turn in range(GROUP)])
    return places


def leveled(*names: str, **after: list[str]) -> list[dict[str, Any]]:
    return [
        {"task_id": name, "help_level": level, "after": after.get(name, [])} for name in names for level in (1, 0, 2)
    ]


def test_every_task_is_played_once_before_any_is_played_again() -> None:
    curriculum = Curriculum([{"a": number} for number in range(12)], 4)
    played = [place for number in range(3) for place in play(curriculum, number, {})]
    assert sorted(played) == list(range(12))


def test_batches_that_are_drawn_ahead_hold_different_new_tasks() -> None:
    curriculum = Curriculum([{}] * 8, 4)
    assert not set(curriculum.draw(0)) & set(curriculum.draw(1))


def test_tasks_that_are_solved_sometimes_are_drawn_more_often_and_the_choice_moves_with_the_policy() -> None:
    curriculum = Curriculum([{}] * 8, 2)
    first = {0: 2, 1: 2, 2: 4, 3: 4}  # 0 and 1 are solved half of the time, 2 and 3 always, the others never
    early = Counter(place for number in range(60) for place in play(curriculum, number, first))
    later = {0: 4, 1: 4, 6: 2, 7: 2}
    late = Counter(place for number in range(60, 160) for place in play(curriculum, number, later))
    assert early[0] + early[1] > 2 * (early[2] + early[3])
    assert early[0] + early[1] > (early[4] + early[5] + early[6] + early[7])
    assert late[6] + late[7] > late[0] + late[1]
    assert min(early.values()) > 0


def test_a_solved_task_continues_with_less_help_and_one_that_is_never_solved_with_more() -> None:
    rows = leveled("easy", "hard")
    curriculum = Curriculum(rows, 2)
    levels: dict[str, list[int]] = {"easy": [], "hard": []}
    solves = {place: GROUP if row["task_id"] == "easy" else 0 for place, row in enumerate(rows)}
    for number in range(12):
        for place in play(curriculum, number, solves):
            levels[rows[place]["task_id"]].append(rows[place]["help_level"])
    assert levels["easy"][:2] == [1, 0]
    assert levels["hard"][:3] == [1, 1, 2]
    assert set(levels["easy"][2:]) == {0}


def test_a_combination_opens_when_one_of_its_parts_is_solved() -> None:
    rows = leveled("part", "other", "third", "whole", whole=["part", "other"])
    curriculum = Curriculum(rows, 2)
    whole = {place for place, row in enumerate(rows) if row["task_id"] == "whole"}
    parts = {place for place, row in enumerate(rows) if row["task_id"] == "part"}
    before = [place for number in range(6) for place in play(curriculum, number, {})]
    assert not whole & set(before)
    after = [place for number in range(6, 16) for place in play(curriculum, number, dict.fromkeys(parts, GROUP))]
    assert whole & set(after)


def test_lost_rollouts_count_as_nothing() -> None:
    curriculum = Curriculum([{}], 1)
    curriculum.draw(0)
    curriculum.note([None, True, None, False])
    assert (curriculum.tries, curriculum.solved) == ([2.0], [1.0])
    curriculum.draw(1)
    curriculum.note([None] * 4)
    assert (curriculum.tries, curriculum.groups) == ([2.0], [1])


def test_a_restored_curriculum_draws_what_the_first_one_would_have_drawn() -> None:
    rows = leveled("a", "b", "c", "d")
    one, other = Curriculum(rows, 2, seed=5), Curriculum(rows, 2, seed=5)
    for number in range(5):
        play(one, number, {0: 1, 4: GROUP})
        ahead = one.draw(number + 1)  # as a data loader does
    other.restore(json.loads(json.dumps(one.state())))
    assert other.draw(5) == ahead
    for number in range(5, 12):
        assert play(copy.deepcopy(one), number, {0: 3}) == play(other, number, {0: 3})
        play(one, number, {0: 3})


def test_the_sampler_repeats_rows_as_the_trainer_groups_them_and_skips_batches_with_results() -> None:
    curriculum = Curriculum([{}] * 6, 2)
    sampler = CurriculumSampler(curriculum, 3, 2, lambda: 0)
    indexes = list(sampler)
    assert len(indexes) == len(sampler) == 36
    assert indexes[:6] == indexes[6:12]
    assert [indexes[0]] * 3 == indexes[:3]
    assert indexes[:6:3] == curriculum.plan[0]
    play(curriculum, 0, {})
    assert list(sampler)[12:] == indexes[12:]


@pytest.mark.parametrize("kind", ["stub", "combine"])
def test_a_shelf_gives_every_level_of_help_and_the_parts_of_a_combination(kind: str, tmp_path: Path) -> None:
    (toy, *_) = TOYS
    part: Task = dataclasses.replace(toy.task, kind="stub", statement="middle", statements=("few", "middle", "most"),
                                     help_level=1, split="train")  # fmt: skip
    task = dataclasses.replace(part, task_id="other", kind=kind, statements=("few", "middle", "middle"))
    rows = TaskShelf({part.task_id: part, "other": task}, {}, {}).rows(with_levels=True)
    assert [row["help_level"] for row in rows] == [1, 0, 2, 1, 0]  # equal texts are one level
    assert "most" in rows[2]["prompt"][0]["content"]
    assert rows[3]["after"] == ([part.task_id] if kind == "combine" else [])
