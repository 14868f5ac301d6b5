"""Pairs over shards: workers anywhere count the votes of a part of the traces; the caller merges in their order.

A shard is a range of rows of the published traces. Its votes are in the folder of the plan, so that a worker needs no
ledger. The caller drops copies over all traces, as it does without shards.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from composer_hub.hub import Version
from composer_hub.pairs.policy import Policy
from composer_hub.pairs.rows import PairOptions
from composer_hub.pairs.votes import Votes
from composer_hub.shards import Plans, Sharding, balanced
from composer_hub.shards.plan import drafted, file_digest
from composer_hub.shards.tables import merged_ranges, row_ranges, rows_in

if TYPE_CHECKING:
    from composer_hub.pairs.parts import TracePairs

VOTES, PARTS = "votes.jsonl", "parts.pickle"


def parts_over_shards(
    version: Version,
    votes: Votes,
    policy: Policy,
    sharding: Sharding,
    plans: Plans,
    options: PairOptions,
) -> Iterator[TracePairs]:
    """Yield the pairs of each trace of a version, in order; the work runs in shards."""
    with drafted(sharding.root) as given:
        groups = []
        for number, ranges in enumerate(balanced(row_ranges(version, "traces"), sharding.num_shards)):
            inputs = merged_ranges(ranges)
            folder = given / f"{number:05d}"
            folder.mkdir(parents=True)
            with (folder / VOTES).open("wb") as file:
                for one in inputs:
                    for row in rows_in(one, version.destination, ["trace_id"]):
                        file.writelines(votes.lines(row["trace_id"]))
            about = {**inputs[0].about, "votes": file_digest(folder / VOTES), "shard": number}
            groups.append([replace(inputs[0], about=about), *inputs[1:]])
        staging = plans.carry_out(
            sharding,
            "pairs",
            "composer_hub.pairs.shard_work:count",
            groups,
            options={**asdict(policy), **options.facts()},
            private=pickle.dumps((version.destination, policy, options)),
            given=given,
            repo=version.repo,
            head=version.revision,
        )
    for shard in staging.plan.shards:
        with (staging.result(shard.number) / PARTS).open("rb") as file:
            while file.peek(1):
                yield pickle.load(file)
