"""A replay over shards gives the votes of one process, keeps one cap, and pays for nothing twice when workers die."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from composer_hub import exits, replay
from composer_hub.pairs.votes import VOTES_FILE, RecordedVotes
from composer_hub.records import to_row
from composer_hub.replay import fake
from composer_hub.replay.ledger import Ledger
from composer_hub.shards import Sharding, Staging, here, in_processes
from tests.replay.sample import trace_of

TRACES = [trace_of(3, name=f"t{number}") for number in range(12)]
OPTIONS = replay.ReplayOptions(order="all", audit=0, repeat=0)


def asked(url: str, folder: Path, sharding: Sharding | None) -> replay.ReplaySummary:
    teachers = replay.find_teachers([f"{url}#small", f"{url}#large"], max_tokens=300)
    return replay.run(TRACES, teachers, folder, OPTIONS, max_usd=5, sharding=sharding)


def votes_of(folder: Path) -> list[dict[str, object]]:
    recorded = RecordedVotes(folder)
    return [to_row(vote) for trace in TRACES for vote in recorded.of(trace.trace_id)]


def assert_one_process_gives_these_votes(url: str, server: fake.TeacherServer, folder: Path) -> replay.ReplaySummary:
    """Make the votes again in one process, from the answers that the shards bought; nothing is asked."""
    votes, billed = votes_of(folder), server.billed
    with sqlite3.connect(folder / VOTES_FILE) as db:
        db.execute("DELETE FROM votes")
    summary = asked(url, folder, None)
    assert (server.billed, summary.progress.num_requests) == (billed, 0)
    assert votes_of(folder) == votes
    assert len(votes) == 12 * 3 * 2
    return summary


@pytest.mark.parametrize("num_shards", [1, 5, 64])
def test_any_number_of_shards_gives_the_votes_of_one_process(tmp_path: Path, num_shards: int) -> None:
    (tmp_path / "root").mkdir()
    server = fake.TeacherServer()
    with fake.serving(server) as url:
        many = asked(url, tmp_path / "run", Sharding(tmp_path / "root", here, num_shards))
        assert many.stopped is None
        with Ledger(tmp_path / "run" / "ledger.sqlite") as ledger:
            money = ledger.budget()
            assert (money.settled, money.reserved, money.ambiguous) == (server.billed, 0, 0)
            assert money == ledger.audit()
            assert [row["settled"] for row in ledger.by_teacher()] == [36, 36]
        one = assert_one_process_gives_these_votes(url, server, tmp_path / "run")
    assert many.tally == one.tally
    assert not list((tmp_path / "root").iterdir())


def test_a_cap_that_pays_for_a_part_is_kept_and_a_higher_one_continues(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    server = fake.TeacherServer()
    with fake.serving(server) as url:
        teachers = replay.find_teachers([f"{url}#small", f"{url}#large"], max_tokens=300)
        for max_usd, num_shards in ((0.05, 4), (5, 7)):  # another number of shards, and no answer is bought twice
            summary = replay.run(
                TRACES, teachers, tmp_path / "run", OPTIONS, max_usd=max_usd, change_cap=True,
                sharding=Sharding(root, here, num_shards),
            )  # fmt: skip
            assert server.billed == summary.budget.settled <= summary.budget.cap
            assert (summary.stopped is None) == (max_usd == 5)
        assert isinstance(summary, replay.ReplaySummary)
    asked_once = [times for bill in server.bills.values() for times in bill.keys.values()]
    assert set(asked_once) == {1}
    assert len(votes_of(tmp_path / "run")) == 12 * 3 * 2


def test_killed_workers_lose_no_vote_and_keep_the_cap(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    rng, killed = random.Random(3), set[int]()

    def killing(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        def look() -> None:
            watch()
            for note in staging.notes("running").values():
                worker = int(str(note["where"]).rpartition(":")[2])
                if len(killed) < 5 and worker not in killed and rng.random() < 0.5:
                    killed.add(worker)  # its note outlives it, and another process may get its number
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGKILL)

        in_processes(2)(staging, numbers, look)

    server = fake.TeacherServer()
    with fake.serving(server) as url:
        for _ in range(4):  # a shard that killed three workers needs the command again
            with contextlib.suppress(exits.ComposerError):
                asked(url, tmp_path / "run", Sharding(root, killing, 6))
                break
        with Ledger(tmp_path / "run" / "ledger.sqlite") as ledger:
            money = ledger.budget()
            assert money == ledger.audit()
            assert server.billed <= money.committed <= money.cap
            assert money.reserved == 0
        assert_one_process_gives_these_votes(url, server, tmp_path / "run")
