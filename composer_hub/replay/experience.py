"""What earlier runs teach about a panel: length of answers, tokens per byte, cache hits, and who agrees with whom.

In: answers while they come in, or the `poll.json` of run folders. Out: an `Experience`, from which `planning` expects
dollars and pairs and by which teachers are ranked. A run writes its own experience beside its votes.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composer_hub.pairs.policy import POLL_FILE, Poll
from composer_hub.replay.orders import Codes, canonical
from composer_hub.replay.prompts import BYTES_PER_TOKEN
from composer_hub.replay.teachers import Teacher

OUTPUT_TOKENS = 400
"""Of an answer whose teacher is unknown; models that think write several times as many."""

Lines = Counter[tuple[tuple[str, ...], Codes]]


@dataclass(slots=True)
class Habits:
    """The sums over a teacher's answers."""

    answers: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0
    prompt_bytes: int = 0
    cacheable_tokens: int = 0  # of prefixes that the call before in the lane has sent
    cached_tokens: int = 0  # of these, those that the endpoint counted as cached

    @property
    def mean_output(self) -> float:
        return self.output_tokens / self.answers if self.answers else OUTPUT_TOKENS

    @property
    def bytes_per_token(self) -> float:
        return self.prompt_bytes / self.prompt_tokens if self.prompt_tokens else BYTES_PER_TOKEN

    @property
    def hit_rate(self) -> float:
        return min(1.0, self.cached_tokens / self.cacheable_tokens) if self.cacheable_tokens else 1.0

    def __iadd__(self, other: Habits) -> Habits:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


@dataclass(slots=True)
class Experience:
    """What is known about some teachers."""

    habits: dict[str, Habits] = field(default_factory=dict)  # by the teacher's name
    codes: Lines = field(default_factory=Counter)  # (teachers in order, codes) -> steps
    full: Lines = field(default_factory=Counter)  # the same, of steps that all answered, weighted by the audit

    def of(self, teacher: str) -> Habits:
        return self.habits.get(teacher) or Habits()

    def knows(self, teachers: Iterable[Teacher]) -> bool:
        """Return whether an answer of every teacher was seen."""
        return all(self.of(teacher.name).answers for teacher in teachers)

    def seen(self, teachers: Sequence[str]) -> dict[Codes, float]:
        """Return the codes of the steps at which these teachers were asked, in this order."""
        exact = {codes: float(count) for (names, codes), count in self.codes.items() if names == tuple(teachers)}
        if exact:
            return exact
        found: Counter[Codes] = Counter()
        for (names, codes), count in self.full.items():
            if set(teachers) <= set(names):
                found[canonical(tuple(codes[names.index(name)] for name in teachers))] += count
        return {codes: float(count) for codes, count in found.items()}

    def __iadd__(self, other: Experience) -> Experience:
        for name, habits in other.habits.items():
            self.habits[name] = self.habits.get(name) or Habits()
            self.habits[name] += habits
        self.codes += other.codes
        self.full += other.full
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the experience as plain values."""
        return {
            "habits": {name: dataclasses.asdict(habits) for name, habits in self.habits.items()},
            "codes": [[list(names), list(codes), count] for (names, codes), count in self.codes.items()],
            "full": [[list(names), list(codes), count] for (names, codes), count in self.full.items()],
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> Experience:
        """Read it back."""
        lines = (
            Counter({(tuple(names), tuple(codes)): count for names, codes, count in row.get(name, ())})
            for name in ("codes", "full")
        )
        return cls({name: Habits(**habits) for name, habits in row.get("habits", {}).items()}, *lines)


def learn(folders: Iterable[Path]) -> Experience:
    """Return the experience of some run folders; one without a run teaches nothing."""
    learned = Experience()
    for folder in folders:
        if (folder / POLL_FILE).is_file():
            learned += Experience.of_json(Poll.read(folder).experience)
    return learned


def ranked(teachers: Iterable[Teacher], experience: Experience) -> list[Teacher]:
    """Return the teachers in the order of what a typical step costs with answers of their usual length."""
    return sorted(
        teachers,
        key=lambda one: (one.price.typical(min(one.max_tokens, experience.of(one.name).mean_output)), one.name),
    )
