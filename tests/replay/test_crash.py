"""A run that is killed at any moment stays under its cap, keeps every answer, and repeats few questions."""

from __future__ import annotations

import dataclasses
import multiprocessing
import multiprocessing.process
import random
import time
from pathlib import Path

from composer_hub.money import NANO
from composer_hub.replay.fake import SCRIPTED, TeacherServer, serving
from composer_hub.replay.ledger import Ledger
from tests.replay.crash_run import main

# A fork server that has imported everything starts each run within milliseconds.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["composer_hub.replay.collecting", "composer_hub.replay.fake"])
NUM_KILLS = 20
CAP = 2 * NANO
MAX_IN_FLIGHT = 3 * 16


def start(url: str, folder: Path) -> multiprocessing.process.BaseProcess:
    """Start a run and return once it has opened its ledger."""
    opened = FORKS.Event()
    arguments = (url, str(folder / "ledger.sqlite"), CAP, str(folder / "votes.txt"), opened)
    process = FORKS.Process(target=main, args=arguments)
    process.start()
    assert opened.wait(600)
    return process


def settled(path: Path) -> set[str]:
    with Ledger(path) as ledger:
        return {row[0] for row in ledger._db.execute("SELECT key FROM questions WHERE state = 'settled'")}


def test_twenty_kills_at_random_moments_lose_no_answer_and_never_exceed_the_cap(tmp_path: Path) -> None:
    rng = random.Random(7)
    # Slow enough that a kill finds calls in flight; some answers are lost in addition.
    server = TeacherServer([dataclasses.replace(p, latency_s=0.03) for p in SCRIPTED], faults={"drop_billed": 0.02})
    path = tmp_path / "ledger.sqlite"
    known: set[str] = set()
    kills = 0
    with serving(server) as url:
        while kills < NUM_KILLS and not (tmp_path / "votes.txt").exists():
            process = start(url, tmp_path)
            time.sleep(rng.uniform(0.0, 0.15))
            process.kill()
            process.join()
            kills += 1
            now = settled(path)
            assert known <= now
            known = now
            with Ledger(path) as ledger:
                money = ledger.budget()
                assert money == ledger.audit()
                assert money.settled <= server.billed <= money.committed <= CAP
        process = start(url, tmp_path)
        process.join(600)
        assert process.exitcode == 0
    votes = (tmp_path / "votes.txt").read_text().splitlines()
    assert len(votes) == len(set(votes)) == 8 * 10 * 3
    duplicates = sum(times - 1 for bill in server.bills.values() for times in bill.keys.values())
    lost = sum(bill.calls for bill in server.bills.values()) - len(votes)
    with Ledger(path) as ledger:
        (ambiguous,) = ledger._db.execute("SELECT count(*) FROM tries WHERE state = 'ambiguous'").fetchone()
        money = ledger.budget()
    # Only a call that was in flight at a kill, or whose answer was dropped, may be repeated.
    assert duplicates == lost <= ambiguous
    assert ambiguous <= kills * MAX_IN_FLIGHT
    assert kills >= 10
    assert server.billed <= money.settled + money.ambiguous <= CAP
