"""`pairs.make`: traces and the votes of their steps -> a set of preference pairs with everything its card reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from composer_hub.pairs.ballots import ballots
from composer_hub.pairs.consensus import pairs_from
from composer_hub.pairs.policy import Policy
from composer_hub.pairs.report import BallotSummary, summary_of
from composer_hub.pairs.rows import split_of
from composer_hub.pairs.votes import GivenVotes, Votes
from composer_hub.records import Pair, Trace, Vote


@dataclass(frozen=True, slots=True)
class PairOptions:
    """How votes become pairs."""

    policy: Policy | None = None  # None: the policy that the votes were collected for
    with_prose: bool = False  # keep the words beside the calls in chosen and rejected


@dataclass
class PairSet:
    """Pairs, the votes they come from, and the counts for their report."""

    policy: Policy
    with_prose: bool
    votes: Votes
    pairs: list[Pair] = field(default_factory=list)
    drops: Counter[str] = field(default_factory=Counter)  # reason -> steps that gave no pair
    summaries: list[BallotSummary] = field(default_factory=list)
    splits: dict[str, str] = field(default_factory=dict)  # trace -> train or test
    teachers: set[str] = field(default_factory=set)
    price_stamps: set[str] = field(default_factory=set)
    num_votes: int = 0

    @property
    def num_traces(self) -> int:
        """Return the number of traces that have votes."""
        return len(self.splits)


def make(traces: Iterable[Trace], votes: Votes | Iterable[Vote], options: PairOptions | None = None) -> PairSet:
    """Turn traces and their votes into pairs; traces are read one at a time.

    Recorded votes are refused if they cannot answer the policy: `PolicyError` names the replay options that would.
    """
    options = options or PairOptions()
    source: Votes = GivenVotes(votes) if isinstance(votes, Iterable) else votes
    poll = source.poll
    policy = options.policy or (poll.policy if poll else Policy())
    if poll:
        poll.check(policy)
    made, seen = PairSet(policy, options.with_prose, source), set[str]()
    for trace in traces:
        cast = source.of(trace.trace_id)
        if not cast:
            continue
        counted = list(ballots(trace, cast, exclude_same_family=policy.exclude_same_family))
        pairs, drops = pairs_from(counted, seen, policy=policy, with_prose=options.with_prose)
        made.pairs += pairs
        made.drops += drops
        made.summaries += [summary_of(ballot) for ballot in counted]
        made.splits[trace.trace_id] = split_of(trace)
        made.teachers |= {vote.teacher for vote in cast}
        made.price_stamps |= {vote.price_stamp for vote in cast if vote.price_stamp}
        made.num_votes += len(cast)
    return made
