"""The work of one shard of a replay: ask about its traces under its lease, and write votes and report."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from composer_hub.records import Trace, from_row, to_row
from composer_hub.replay.collect import ReplayReport, collect
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.sharding import REPORT, VOTES, ledger_of
from composer_hub.shards import Input, ShardError, Staging
from composer_hub.shards.plan import file_digest


def ask(staging: Staging, inputs: Sequence[Input], result: Path) -> Mapping[str, int]:
    """Ask about the traces of a shard under its lease."""
    teachers, options = pickle.loads(staging.private())
    (one,) = inputs
    path = staging.given(one.about["shard"]) / one.name
    if file_digest(path) != one.digest:
        raise ShardError(f"{path} changed since the plan was made. Remove {staging.folder} and run the command again.")
    report, number = ReplayReport(), 0
    with Ledger(ledger_of(staging, one.about["shard"])) as ledger, (result / VOTES).open("wb") as file:
        for vote in collect(_traces(path), teachers, ledger, options, environ=os.environ, report=report):
            file.write(orjson.dumps(to_row(vote)) + b"\n")
            number += 1
    (result / REPORT).write_bytes(pickle.dumps(report))
    return {"votes": number, "requests": report.progress.num_requests}


def _traces(path: Path) -> Iterator[Trace]:
    with path.open("rb") as file:
        for line in file:
            yield from_row(Trace, orjson.loads(line))
