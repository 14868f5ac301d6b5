"""`pairs.make`: traces and the votes of their steps -> a set of preference pairs with everything its card reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from composer_hub import exits
from composer_hub.hub import Version
from composer_hub.pairs.consensus import parts
from composer_hub.pairs.parts import TracePairs
from composer_hub.pairs.policy import Policy
from composer_hub.pairs.repairing import repair_parts
from composer_hub.pairs.report import BallotSummary
from composer_hub.pairs.rows import PairOptions
from composer_hub.pairs.sharding import parts_over_shards
from composer_hub.pairs.spool import Spool, SpooledPairs
from composer_hub.pairs.votes import GivenVotes, Votes
from composer_hub.records import Trace, Vote
from composer_hub.shards import Plans, Sharding


@dataclass
class PairSet:
    """Pairs, the votes they come from, and the counts for their report. Pairs and counts per step are on disk."""

    policy: Policy | None  # None: the student's own repairs, without votes
    options: PairOptions
    votes: Votes
    pairs: SpooledPairs = field(default_factory=SpooledPairs)
    drops: Counter[str] = field(default_factory=Counter)  # reason -> steps that gave no pair
    summaries: Spool[BallotSummary] = field(default_factory=Spool)
    num_traces: int = 0  # that have votes
    num_cut: int = 0  # pairs whose window lacks messages or parts of them
    num_too_long: int = 0  # pairs that are longer than the window even so
    num_judged: int = 0  # pairs whose two effects a judge calls different
    teachers: set[str] = field(default_factory=set)
    price_stamps: set[str] = field(default_factory=set)
    num_votes: int = 0
    plans: Plans = field(default_factory=Plans)  # staged for the set until it is published

    def _add(self, part: TracePairs, seen: set[bytes]) -> None:
        """Add a trace's part; a pair that an earlier trace gave is dropped: forked sessions share their first steps."""
        self.num_traces += 1
        self.num_votes += part.num_votes
        self.teachers |= part.teachers
        self.price_stamps |= part.price_stamps
        self.drops += part.drops
        for key, row, outline in part.pairs:
            if key in seen:
                self.drops["duplicate"] += 1
                continue
            seen.add(key)
            self.pairs.append(row, outline)
            self.num_cut += outline.num_left_out > 0 or outline.num_shortened > 0
            self.num_judged += outline.judged
            self.num_too_long += 0 < self.options.max_tokens < outline.num_tokens
        for summary in part.summaries:
            self.summaries.append(summary)


def make(
    traces: Iterable[Trace] | Version,
    votes: Votes | Iterable[Vote],
    options: PairOptions = PairOptions(),  # noqa: B008 (frozen)
    *,
    sharding: Sharding | None = None,
) -> PairSet:
    """Turn traces and their votes into pairs, one trace at a time.

    Recorded votes are refused if they cannot answer the policy: `PolicyError` names the replay options that would.
    With `sharding`, shards of a published version are counted by its executor; the result is the same.
    """
    source: Votes = GivenVotes(votes) if isinstance(votes, Iterable) else votes
    poll = source.poll
    policy = options.policy or (poll.policy if poll else Policy())
    if poll:
        poll.check(policy)
    made, seen = PairSet(policy, options, source), set[bytes]()
    if sharding is None:
        stream = traces.records(Trace, "traces") if isinstance(traces, Version) else traces
        found = parts(((trace, source.of(trace.trace_id)) for trace in stream), policy, options)
    elif isinstance(traces, Version):
        found = parts_over_shards(traces, source, policy, sharding, made.plans, options)
    else:
        raise exits.UsageError("Pairs over shards need a published version of traces: publish them first.")
    for part in found:
        made._add(part, seen)
    return made


def make_repairs(
    traces: Iterable[Trace] | Version,
    options: PairOptions = PairOptions(),  # noqa: B008 (frozen)
) -> PairSet:
    """Turn the failures that a student repaired itself into pairs: without teachers, without dollars."""
    made, seen = PairSet(None, options, GivenVotes([])), set[bytes]()
    for part in repair_parts(traces.records(Trace, "traces") if isinstance(traces, Version) else traces, options):
        made._add(part, seen)
    return made
