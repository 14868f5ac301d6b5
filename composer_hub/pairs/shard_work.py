"""The work of one shard of pairs: count the votes of its traces."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from composer_hub.pairs.consensus import parts
from composer_hub.pairs.sharding import PARTS, VOTES
from composer_hub.records import Trace, Vote, from_row
from composer_hub.shards import Input, ShardError, Staging
from composer_hub.shards.plan import file_digest
from composer_hub.shards.tables import rows_in


def count(staging: Staging, inputs: Sequence[Input], result: Path) -> Mapping[str, int]:
    """Count the votes of a shard and write what each of its traces gives."""
    destination, policy, options = pickle.loads(staging.private())
    about = inputs[0].about
    path = staging.given(about["shard"]) / VOTES
    if file_digest(path) != about["votes"]:
        raise ShardError(f"{path} changed since the plan was made. Remove {staging.folder} and run the command again.")
    by_trace: dict[str, list[Vote]] = {}
    with path.open("rb") as file:
        for line in file:
            vote = from_row(Vote, orjson.loads(line))
            by_trace.setdefault(vote.trace_id, []).append(vote)
    traces = (from_row(Trace, row) for one in inputs for row in rows_in(one, destination))
    num_traces = num_pairs = 0
    with (result / PARTS).open("wb") as file:
        for part in parts(((trace, by_trace.get(trace.trace_id, [])) for trace in traces), policy, options):
            pickle.dump(part, file, pickle.HIGHEST_PROTOCOL)
            num_traces += 1
            num_pairs += len(part.pairs)
    return {"traces": num_traces, "pairs": num_pairs}
