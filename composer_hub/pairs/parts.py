"""One trace's part of a set of pairs: rows to publish, the reasons why other steps gave none, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from composer_hub.pairs.report import BallotSummary
from composer_hub.pairs.rows import PairOptions, reason_aside, split_of
from composer_hub.pairs.same_effect import JUDGED
from composer_hub.records import Pair, Trace, Vote, to_row


@dataclass(frozen=True, slots=True)
class TracePairs:
    """The pairs of a trace, before copies in other traces are dropped, and its counts."""

    pairs: Sequence[tuple[bytes, dict[str, Any], Pair]]  # key of the content, row with its split, outline
    drops: Counter[str]
    summaries: Sequence[BallotSummary]
    teachers: frozenset[str]
    price_stamps: frozenset[str]
    num_votes: int


def finished(
    trace: Trace,
    pairs: Mapping[bytes, Pair],
    drops: Counter[str],
    summaries: Sequence[BallotSummary],
    options: PairOptions,
    votes: Sequence[Vote] = (),
) -> TracePairs:
    """Return the part of a set that one trace gives, without the pairs that are left aside."""
    reasons = {key: reason_aside(pair, options.keep) for key, pair in pairs.items()}
    drops.update(filter(None, reasons.values()))
    split = {"split": split_of(trace)}
    return TracePairs(
        [
            (key, to_row(pair) | split, replace(pair, prompt=(), tools=()))
            for key, pair in pairs.items()
            if not reasons[key]
        ],
        drops,
        summaries,
        frozenset(vote.teacher for vote in votes if vote.status != JUDGED),
        frozenset(vote.price_stamp for vote in votes if vote.price_stamp),
        sum(vote.status != JUDGED for vote in votes),
    )
