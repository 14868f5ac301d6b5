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
from composer_hub.pairs.spool import Spool, SpooledPairs
from composer_hub.pairs.votes import GivenVotes, Votes
from composer_hub.pairs.windows import MAX_TOKENS
from composer_hub.records import Trace, Vote


@dataclass(frozen=True, slots=True)
class PairOptions:
    """How votes become pairs."""

    policy: Policy | None = None  # None: the policy that the votes were collected for
    with_prose: bool = False  # keep the words beside the calls in chosen and rejected
    max_tokens: int = MAX_TOKENS  # the window of prompt, tools and answer, in estimated tokens; 0: whole prompts


@dataclass
class PairSet:
    """Pairs, the votes they come from, and the counts for their report. Pairs and counts per step are on disk."""

    policy: Policy
    options: PairOptions
    votes: Votes
    pairs: SpooledPairs = field(default_factory=SpooledPairs)
    drops: Counter[str] = field(default_factory=Counter)  # reason -> steps that gave no pair
    summaries: Spool[BallotSummary] = field(default_factory=Spool)
    num_traces: int = 0  # that have votes
    num_cut: int = 0  # pairs whose window lacks messages
    num_too_long: int = 0  # pairs that are longer than the window even so
    teachers: set[str] = field(default_factory=set)
    price_stamps: set[str] = field(default_factory=set)
    num_votes: int = 0


def make(traces: Iterable[Trace], votes: Votes | Iterable[Vote], options: PairOptions | None = None) -> PairSet:
    """Turn traces and their votes into pairs, one trace at a time.

    Recorded votes are refused if they cannot answer the policy: `PolicyError` names the replay options that would.
    """
    options = options or PairOptions()
    source: Votes = GivenVotes(votes) if isinstance(votes, Iterable) else votes
    poll = source.poll
    policy = options.policy or (poll.policy if poll else Policy())
    if poll:
        poll.check(policy)
    made, seen = PairSet(policy, options, source), set[bytes]()
    for trace in traces:
        cast = source.of(trace.trace_id)
        if not cast:
            continue
        counted = list(ballots(trace, cast, exclude_same_family=policy.exclude_same_family))
        pairs, drops = pairs_from(
            counted, seen, policy=policy, with_prose=options.with_prose, max_tokens=options.max_tokens
        )
        made.drops += drops
        made.num_traces += 1
        split = split_of(trace)
        for pair in pairs:
            made.pairs.append(pair, split)
            made.num_cut += pair.num_left_out > 0
            made.num_too_long += 0 < options.max_tokens < pair.num_tokens
        for ballot in counted:
            made.summaries.append(summary_of(ballot))
        made.teachers |= {vote.teacher for vote in cast}
        made.price_stamps |= {vote.price_stamp for vote in cast if vote.price_stamp}
        made.num_votes += len(cast)
    return made
