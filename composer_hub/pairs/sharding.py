"""Pairs over shards: workers anywhere count the votes of a part of the traces; the caller merges in their order.

A shard is a range of rows of the published traces. Its votes are in the folder of the plan, so that a worker needs no
ledger. The caller drops copies over all traces, as it does without shards.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import orjson

from composer_hub.hub import Version
from composer_hub.pairs.parts import TracePairs, parts
from composer_hub.pairs.policy import Policy
from composer_hub.pairs.votes import Votes
from composer_hub.records import Trace, Vote, from_row
from composer_hub.shards import Input, Plans, ShardError, Sharding, Staging, balanced
from composer_hub.shards.plan import file_digest
from composer_hub.shards.tables import joined, row_ranges, rows_in

_VOTES, _PARTS = "votes.jsonl", "parts.pickle"


def parts_over_shards(
    version: Version,
    votes: Votes,
    policy: Policy,
    sharding: Sharding,
    plans: Plans,
    *,
    with_prose: bool,
    max_tokens: int,
) -> Iterator[TracePairs]:
    """Yield what each trace of a version gives, in order; the work runs in shards."""
    given = sharding.root / f".votes-{secrets.token_hex(4)}"
    groups = []
    for number, ranges in enumerate(balanced(row_ranges(version, "traces"), sharding.num_shards)):
        inputs = joined(ranges)
        folder = given / f"{number:05d}"
        folder.mkdir(parents=True)
        with (folder / _VOTES).open("wb") as file:
            for one in inputs:
                for row in rows_in(one, version.destination, ["trace_id"]):
                    file.writelines(votes.lines(row["trace_id"]))
        about = {**inputs[0].about, "votes": file_digest(folder / _VOTES), "shard": number}
        groups.append([replace(inputs[0], about=about), *inputs[1:]])
    options = {"with_prose": with_prose, "max_tokens": max_tokens}
    staging = plans.carry_out(
        sharding,
        "pairs",
        f"{__name__}:count",
        groups,
        options={**asdict(policy), **options},
        private=pickle.dumps((version.destination, policy, options)),
        given=given,
        repo=version.repo,
        head=version.revision,
    )
    for shard in staging.plan.shards:
        with (staging.result(shard.number) / _PARTS).open("rb") as file:
            while file.peek(1):
                yield pickle.load(file)


def count(staging: Staging, inputs: Sequence[Input], result: Path) -> Mapping[str, int]:
    """Count the votes of a shard and write what each of its traces gives."""
    destination, policy, options = pickle.loads(staging.private())
    about = inputs[0].about
    path = staging.given(about["shard"]) / _VOTES
    if file_digest(path) != about["votes"]:
        raise ShardError(f"{path} changed since the plan was made. Remove {staging.folder} and run the command again.")
    by_trace: dict[str, list[Vote]] = {}
    with path.open("rb") as file:
        for line in file:
            vote = from_row(Vote, orjson.loads(line))
            by_trace.setdefault(vote.trace_id, []).append(vote)
    traces = (from_row(Trace, row) for one in inputs for row in rows_in(one, destination))
    num_traces = num_pairs = 0
    with (result / _PARTS).open("wb") as file:
        for part in parts(((trace, by_trace.get(trace.trace_id, [])) for trace in traces), policy, **options):
            pickle.dump(part, file, pickle.HIGHEST_PROTOCOL)
            num_traces += 1
            num_pairs += len(part.pairs)
    return {"traces": num_traces, "pairs": num_pairs}
