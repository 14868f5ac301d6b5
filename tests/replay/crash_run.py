"""A replay run in a process of its own, for tests that kill it."""

from __future__ import annotations

from multiprocessing.synchronize import Event
from pathlib import Path

from composer_hub.replay.cascade import Rules
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.run import run
from tests.replay.sample import judge_of, teachers_at, trace_of

RULES = Rules(policy="all", audit=0, repeat=0)


def main(url: str, path: str, cap: int, out: str, opened: Event) -> None:
    """Run, and write the ids of the votes to `out`; `opened` is set once the ledger is open."""
    traces = [trace_of(10, name=f"t{number}") for number in range(8)]
    with Ledger(path, cap=cap) as ledger:
        opened.set()
        ids = sorted(vote.vote_id for vote in run(traces, teachers_at(url), ledger, judge_of, RULES, environ={}))
    Path(out).write_text("\n".join(ids))
