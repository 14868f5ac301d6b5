"""The cost of a run's votes: the sums of its ledger, as the report and the card of a pair set need them.

Votes alone would not do: a call that was billed and had to be repeated is in the ledger and in no vote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from composer_hub.money import Budget


@dataclass(frozen=True, slots=True)
class TeacherBill:
    """The questions to one teacher and their cost; amounts in nano-dollars."""

    requests: int = 0  # sent, with those that failed
    answers: int = 0
    unasked: int = 0  # planned questions without an outcome
    spent: int = 0
    ambiguous: int = 0
    retried: int = 0  # of `spent`: calls without an answer
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Purchase:
    """The money of a run."""

    budget: Budget
    teachers: Mapping[str, TeacherBill] = field(default_factory=dict)
    by_trace: Mapping[str, int] = field(default_factory=dict)  # trace -> settled nano-dollars
    price_stamps: tuple[str, ...] = ()
