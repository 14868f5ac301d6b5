"""Leases of a cap: never more than the cap in all, unused money comes back, and a dead worker's calls stay counted."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from composer_hub.replay.leases import grant, shares, take_back, write_off
from composer_hub.replay.ledger import CapReached, Ledger, LedgerError, Question, Reserved

CAP = 1_000


def ask(ledger: Ledger, key: str, worst: int, cost: int | None, trace: str = "t") -> None:
    right = ledger.reserve(Question(key, "one", trace, f"{key}-step"), worst)
    assert isinstance(right, Reserved)
    ledger.settle(right.try_id, b'{"id": "x"}', cost=cost, cost_source="usage")


@pytest.fixture
def owner(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite", cap=CAP)


def test_a_lease_counts_against_the_cap_and_is_the_cap_of_its_shard(owner: Ledger, tmp_path: Path) -> None:
    grant(owner, tmp_path / "a", 600, ["t"])
    assert (owner.budget().left, owner.audit()) == (400, owner.budget())
    with pytest.raises(LedgerError, match="cap"):
        grant(owner, tmp_path / "b", 401, ["u"])
    with Ledger(tmp_path / "a") as shard, pytest.raises(CapReached):
        shard.reserve(Question("q", "one", "t", "s"), 601)


def test_unused_money_comes_back_with_the_answers(owner: Ledger, tmp_path: Path) -> None:
    grant(owner, tmp_path / "a", 600, ["t"])
    with Ledger(tmp_path / "a") as shard:
        ask(shard, "q", 500, 20)
        ask(shard, "lost", 300, None)
    for _ in range(2):  # a second time changes nothing
        take_back(owner, tmp_path / "a")
        money = owner.budget()
        assert (money.settled, money.reserved, money.ambiguous) == (20, 0, 300)
        assert owner.audit() == money
    stored = owner.lookup("q")
    assert stored is not None
    assert (stored.response, stored.cost) == (b'{"id": "x"}', 20)
    with Ledger(tmp_path / "a") as late, pytest.raises(CapReached):
        late.reserve(Question("more", "one", "t", "s"), 1)


def test_a_second_lease_continues_the_shard(owner: Ledger, tmp_path: Path) -> None:
    for number in range(3):
        grant(owner, tmp_path / "a", 100, ["t"])
        with Ledger(tmp_path / "a") as shard:
            ask(shard, f"q{number}", 100, 60)
        take_back(owner, tmp_path / "a")
    assert (owner.budget().settled, owner.budget().left) == (180, CAP - 180)


def test_a_new_shard_knows_the_answers_of_its_traces(owner: Ledger, tmp_path: Path) -> None:
    ask(owner, "mine", 100, 40, trace="t")
    ask(owner, "other", 100, 50, trace="u")
    grant(owner, tmp_path / "a", 10, ["t"])
    with Ledger(tmp_path / "a") as shard:
        known = shard.lookup("mine")
        assert known is not None
        assert known.cost == 40
        assert shard.lookup("other") is None
        assert shard.budget().left == 10
    take_back(owner, tmp_path / "a")
    assert owner.budget().settled == 90
    assert owner.audit() == owner.budget()


def test_the_calls_of_a_worker_that_died_are_counted_and_those_of_a_living_one_keep_the_lease(
    owner: Ledger, tmp_path: Path
) -> None:
    grant(owner, tmp_path / "a", 600, ["t"])
    living = Ledger(tmp_path / "a")
    living.reserve(Question("q", "one", "t", "s"), 250)
    take_back(owner, tmp_path / "a")
    assert owner.budget().reserved == 600
    living._db.close()  # it dies
    with sqlite3.connect(tmp_path / "a") as db:
        db.execute("UPDATE owners SET pid = 0, started = 'gone'")
    take_back(owner, tmp_path / "a")
    money = owner.budget()
    assert (money.reserved, money.ambiguous) == (0, 250)


@pytest.mark.parametrize("seed", range(3))
def test_random_leases_and_crashes_never_exceed_the_cap(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    owner, billed = Ledger(tmp_path / "ledger.sqlite", cap=CAP), 0
    paths = [tmp_path / f"shard{number}" for number in range(4)]
    for turn in range(12):
        for path, share in zip(paths, shares(owner.budget().left, [1, 2, 3, 4]), strict=True):
            grant(owner, path, share, [path.name])
        for path in paths:
            with Ledger(path) as shard:
                while rng.random() < 0.95 and shard.budget().left > 20:
                    cost = rng.choice([1, 5, 20, None])
                    ask(shard, f"{path.name}-{turn}-{rng.random()}", 20, cost, trace=path.name)
                    billed += 20 if cost is None else cost
        for path in rng.sample(paths, 3):  # the owner is interrupted before the last one
            take_back(owner, path)
        assert billed <= owner.budget().committed <= CAP
        assert owner.audit() == owner.budget()
    for path in paths:
        take_back(owner, path)
    assert owner.budget().committed == billed


def test_shares_are_never_more_than_what_is_left() -> None:
    assert sum(shares(1_000, [3, 3, 3])) <= 1_000
    assert shares(0, [1, 2]) == [0, 0]
    assert shares(10, []) == []


def test_a_lease_whose_ledger_is_lost_counts_as_spent_and_is_not_leased_again(owner: Ledger, tmp_path: Path) -> None:
    grant(owner, tmp_path / "a", 600, ["t"])
    with Ledger(tmp_path / "a") as shard:
        ask(shard, "q", 100, 20)
    for _ in range(2):  # a second time changes nothing
        write_off(tmp_path / "a", "one", "t")
        take_back(owner, tmp_path / "a")
        money = owner.budget()
        assert (money.settled, money.reserved, money.ambiguous, money.left) == (20, 0, 580, 400)
        assert owner.audit() == money
    assert [one.teacher for one in owner.ambiguous()] == ["one"]
