"""What one trace and its votes add to a set of pairs: the part of the work that depends on no other trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from composer_hub.pairs.ballots import ballots
from composer_hub.pairs.consensus import pairs_from
from composer_hub.pairs.policy import Policy
from composer_hub.pairs.report import BallotSummary, summary_of
from composer_hub.pairs.rows import split_of
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


def parts(
    voted: Iterable[tuple[Trace, Sequence[Vote]]], policy: Policy, *, with_prose: bool, max_tokens: int
) -> Iterator[TracePairs]:
    """Yield what each trace with votes gives."""
    for trace, votes in voted:
        if not votes:
            continue
        counted = list(ballots(trace, votes, exclude_same_family=policy.exclude_same_family))
        pairs, drops = pairs_from(counted, policy=policy, with_prose=with_prose, max_tokens=max_tokens)
        split = {"split": split_of(trace)}
        yield TracePairs(
            [(key, to_row(pair) | split, replace(pair, prompt=(), tools=())) for key, pair in pairs.items()],
            drops,
            [summary_of(ballot) for ballot in counted],
            frozenset(vote.teacher for vote in votes),
            frozenset(vote.price_stamp for vote in votes if vote.price_stamp),
            len(votes),
        )
