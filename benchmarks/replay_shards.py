"""A replay over shards whose workers are killed, or on an engine, against a scripted teacher server that keeps a bill.

    python -m benchmarks.replay_shards [--executor processes] [--traces 256] [--shards 64] [--workers 2] [--kills 20]
                                       [--engine KEY=VALUE …]

Asks two teachers about made-up traces over shards, and kills a random worker that many times. Then it checks, and ends
with 1 if one of these is not so: every vote is there once and is that of one process; no answer was paid for twice,
except those that died with a worker; the ledger never exceeded its cap; and after `replay audit` the ledger has the
server's bill, to the nano-dollar.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from composer_hub import exits, replay, shards
from composer_hub.cli.sharding import EXECUTORS
from composer_hub.money import show_usd
from composer_hub.pairs.votes import VOTES_FILE, RecordedVotes
from composer_hub.records import to_row
from composer_hub.replay import fake
from composer_hub.replay.ledger import Ledger
from tests.replay.sample import trace_of

OPTIONS = replay.ReplayOptions(order="all", audit=0, repeat=0)
STEPS = 4


def killing(executor: shards.Executor, number: int, killed: list[int]) -> shards.Executor:
    """Return an executor of which a random worker is killed now and then, spread over the whole run."""
    chance = random.Random(1)

    def execute(staging: shards.Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        def look() -> None:
            watch()
            progress = len(staging.done()) / len(staging.plan.shards)
            notes = [note for shard, note in staging.notes("running").items() if shard not in staging.done()]
            if notes and len(killed) < number and progress * number >= len(killed):
                process = int(str(chance.choice(notes)["where"]).rpartition(":")[2])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)

        executor(staging, numbers, look)

    return execute


def votes_of(folder: Path, traces: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the votes of a run folder in the order of the traces."""
    recorded = RecordedVotes(folder)
    return [to_row(vote) for trace in traces for vote in recorded.of(trace.trace_id)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executor", choices=EXECUTORS, default="processes")
    parser.add_argument("--traces", type=int, default=256)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--max-usd", type=float, default=5.0)
    parser.add_argument("--engine", nargs="*", default=[], metavar="KEY=VALUE")
    asked = parser.parse_args()
    options = dict(word.split("=", 1) for word in asked.engine)
    traces = [trace_of(STEPS, name=f"t{number}") for number in range(asked.traces)]
    server, killed, runs = fake.TeacherServer(), list[int](), 0
    with tempfile.TemporaryDirectory(prefix="replay-shards-") as scratch, fake.serving(server) as url:
        folder, root = Path(scratch, "run"), Path(scratch, "staging")
        root.mkdir()
        teachers = replay.find_teachers([f"{url}#small", f"{url}#large"], max_tokens=300)
        executor = killing(EXECUTORS[asked.executor](None, asked.workers, **options), asked.kills, killed)
        sharding = shards.Sharding(root, executor, asked.shards)
        started, summary = time.perf_counter(), None
        while summary is None or summary.stopped:
            runs += 1
            with contextlib.suppress(shards.ShardError):  # a shard was hit three times; the same command continues
                summary = replay.run(traces, teachers, folder, OPTIONS, max_usd=asked.max_usd, sharding=sharding)
            if summary and summary.stopped:
                sys.exit(str(summary.stopped))
        seconds = time.perf_counter() - started
        with Ledger(folder / VOTES_FILE) as ledger:
            money, added_up, num_unknown = ledger.budget(), ledger.audit(), len(ledger.ambiguous())
        votes, billed = votes_of(folder, traces), server.billed
        with sqlite3.connect(folder / VOTES_FILE) as db:
            db.execute("DELETE FROM votes")
        again = replay.run(traces, teachers, folder, OPTIONS, max_usd=asked.max_usd)
        paid = sum(times for bill in server.bills.values() for times in bill.keys.values())
        with contextlib.suppress(exits.NothingToDo):
            replay.audit(folder, teachers, own_key=True)
        with Ledger(folder / VOTES_FILE) as ledger:
            settled = ledger.budget()
        wanted = asked.traces * STEPS * len(teachers)
        checks = {
            "every vote is there once": len(votes) == len({vote["vote_id"] for vote in votes}) == wanted,
            "one process gives these votes and asks nothing": votes_of(folder, traces) == votes
            and (server.billed, again.progress.num_requests) == (billed, 0),
            "an answer was paid for again only if its worker was killed": 0 <= paid - wanted <= num_unknown,
            "the bill is at most what the ledger counts, under its cap": billed <= money.committed <= money.cap,
            "the ledger's sum is that of its requests": money == added_up,
            "after the audit, the ledger has the server's bill": (settled.settled, settled.ambiguous) == (billed, 0),
        }  # fmt: skip
        print(
            f"{asked.executor}: {asked.traces} traces, {wanted:,} questions, {asked.shards} shards, {asked.workers} "
            f"workers: {seconds:.1f} s, {len(killed)} kills, {runs} runs of the command. {paid - wanted} answers were "
            f"lost and bought again. The server billed {show_usd(billed)}; the ledger had {money}."
        )
        for claim, holds in checks.items():
            print(f"  {'yes' if holds else 'NO '}  {claim}")
    sys.exit(not all(checks.values()))


if __name__ == "__main__":
    main()
