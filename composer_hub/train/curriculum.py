"""Which tasks a run plays next: those that the policy solves sometimes, with less help once it solves them.

In: task rows and what each group of rollouts solved. Out: the rows of the next batch. Open tasks that were never played
come first. Then a task is drawn with the weight p(1 - p) of its solve rate p, in which old groups count less. Rows with
the same `task_id` are one task at several `help_level`s: a solved task continues with less help, one that is never
solved with more. A row with `after` opens when one of those tasks is solved half of the time. A draw depends only on
the seed, its number and the groups before it, so a resumed run continues with the same tasks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from composer_hub.records import stable_id

KEPT = 0.7  # weight of the earlier groups of a row when it is played again
SOLVED, HALF = 0.8, 0.5
MIN_GROUPS = 2  # without a success, before a task gets more help


@dataclass
class Ladder:
    """One task at one or more levels of help."""

    rows: list[int]  # from the most help to the least
    at: int  # its current place in `rows`
    after: frozenset[str]


@dataclass
class Curriculum:
    """The choice of tasks, and what it has learned about them."""

    rows: Sequence[Mapping[str, Any]]
    size: int  # tasks of a batch
    seed: int = 0
    tries: list[float] = field(default_factory=list)  # by row
    solved: list[float] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    num_noted: int = 0  # batches whose results are known
    plan: dict[int, list[int]] = field(default_factory=dict)  # batches that were drawn and have no results yet

    def __post_init__(self) -> None:
        self.ladders: dict[str, Ladder] = {}
        self.tries, self.solved = [0.0] * len(self.rows), [0.0] * len(self.rows)
        self.groups = [0] * len(self.rows)
        for place, row in enumerate(self.rows):
            name = str(row.get("task_id") or place) if "help_level" in row else str(place)
            ladder = self.ladders.setdefault(name, Ladder([], 0, frozenset(row.get("after") or ())))
            ladder.rows.append(place)
        for ladder in self.ladders.values():  # the first row of a task is the one to begin with
            first = ladder.rows[0]
            ladder.rows.sort(key=lambda place: -int(self.rows[place].get("help_level") or 0))
            ladder.at = ladder.rows.index(first)

    def draw(self, number: int) -> list[int]:
        """Return the rows of a batch; those of batches with results are not kept, and are never played again."""
        if number < self.num_noted:
            return list(range(self.size))
        if number not in self.plan:
            self.plan[number] = self._drawn(random.Random(stable_id(self.seed, number)))
        return self.plan[number]

    def _drawn(self, chance: random.Random) -> list[int]:
        waiting = {place for places in self.plan.values() for place in places}
        current = [one.rows[one.at] for one in self.ladders.values() if self._is_open(one)]
        keys = {place: chance.random() for place in range(len(self.rows))}
        new = [place for place in current if not self.groups[place] and place not in waiting]
        known = [place for place in current if self.groups[place]]
        new.sort(key=keys.__getitem__)
        # The largest of these keys are a draw without replacement in proportion to the weights.
        known.sort(key=lambda place: -(keys[place] ** (1 / self.weight(place))))
        others = sorted(set(keys) - {*new, *known}, key=keys.__getitem__)
        return [*new, *known, *others][: self.size]

    def rate(self, place: int) -> float:
        """Return the solve rate of a row, near one half while little is known."""
        return (self.solved[place] + 0.5) / (self.tries[place] + 1)

    def weight(self, place: int) -> float:
        """Return how much can be learned from a row: nothing if every rollout ends alike."""
        rate = self.rate(place)
        return rate * (1 - rate)

    def _is_open(self, ladder: Ladder) -> bool:
        parts = [self.ladders[name] for name in ladder.after if name in self.ladders]
        return not parts or any(
            self.groups[place] and self.rate(place) >= HALF for part in parts for place in part.rows
        )

    def note(self, outcomes: Sequence[bool | None]) -> None:
        """Learn how the rollouts of the oldest batch ended, in its order; None for one without a score."""
        places = self.plan.pop(self.num_noted)
        each = len(outcomes) // len(places)
        for number, place in enumerate(places):
            scored = [one for one in outcomes[number * each : (number + 1) * each] if one is not None]
            if scored:
                self.tries[place] = KEPT * self.tries[place] + len(scored)
                self.solved[place] = KEPT * self.solved[place] + sum(scored)
                self.groups[place] += 1
        for ladder in self.ladders.values():
            place = ladder.rows[ladder.at]
            if place in places and self.groups[place]:
                ladder.at = self._next(ladder, place)
        self.num_noted += 1

    def _next(self, ladder: Ladder, place: int) -> int:
        share = self.solved[place] / max(self.tries[place], 1.0)
        if share >= SOLVED:
            return min(ladder.at + 1, len(ladder.rows) - 1)
        is_stuck = not self.solved[place] and self.groups[place] >= MIN_GROUPS
        easier = ladder.rows[max(ladder.at - 1, 0)]
        # A level that was left because it was too easy is not entered again.
        return ladder.at - 1 if is_stuck and ladder.at and not self.groups[easier] else ladder.at

    def numbers(self) -> dict[str, float]:
        """Return numbers for the log of a run."""
        seen = [place for place, count in enumerate(self.groups) if count]
        current = [one.rows[one.at] for one in self.ladders.values()]
        helped = [float(self.rows[place]["help_level"]) for place in current if "help_level" in self.rows[place]]
        played = sum(any(self.groups[place] for place in one.rows) for one in self.ladders.values())
        return {
            "curriculum/played": played / max(len(self.ladders), 1),
            "curriculum/solve_rate": sum(map(self.rate, seen)) / max(len(seen), 1),
            "curriculum/weight": sum(map(self.weight, seen)) / max(len(seen), 1),
            **({"curriculum/help_level": sum(helped) / len(helped)} if helped else {}),
        }

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {
            "tries": self.tries,
            "solved": self.solved,
            "groups": self.groups,
            "at": [one.at for one in self.ladders.values()],
            "num_noted": self.num_noted,
            "plan": self.plan,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of a checkpoint."""
        self.tries, self.solved, self.groups = (list(state[name]) for name in ("tries", "solved", "groups"))
        self.num_noted = state["num_noted"]
        self.plan = {int(number): list(places) for number, places in state["plan"].items()}
        for ladder, at in zip(self.ladders.values(), state["at"], strict=True):
            ladder.at = at


@dataclass(frozen=True)
class CurriculumSampler:
    """The order that TRL's trainer expects: each row once per rollout, and each batch once per update."""

    curriculum: Curriculum
    num_generations: int
    num_updates: int  # micro-batches for which one batch of rollouts is used
    first: Callable[[], int]  # the number of the epoch's first batch

    @property
    def num_batches(self) -> int:
        """Return the batches of an epoch."""
        return len(self.curriculum.rows) // self.curriculum.size

    def __len__(self) -> int:
        return self.num_batches * self.curriculum.size * self.num_generations * self.num_updates

    def __iter__(self) -> Iterator[int]:
        first = self.first()
        for number in range(first, first + self.num_batches):
            places = self.curriculum.draw(number)
            for _ in range(self.num_updates):
                for place in places:
                    yield from [place] * self.num_generations
