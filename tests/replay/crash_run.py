"""A replay run in a separate process, for tests that kill it."""

from __future__ import annotations

from multiprocessing.synchronize import Event
from pathlib import Path

from composer_hub.replay.collecting import collect
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ReplayOptions
from tests.replay.sample import compare, teachers_at, trace_of

OPTIONS = ReplayOptions(order="all", audit=0, repeat=0)


def main(url: str, path: str, cap: int, out: str, opened: Event) -> None:
    """Run, and write the ids of the votes to `out`. Set `opened` once the ledger is open."""
    traces = [trace_of(10, name=f"t{number}") for number in range(8)]
    with Ledger(path, cap=cap) as ledger:
        opened.set()
        votes = collect(traces, teachers_at(url), ledger, OPTIONS, compare=compare, environ={})
        ids = sorted(vote.vote_id for vote in votes)
    Path(out).write_text("\n".join(ids))
