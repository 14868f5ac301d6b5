"""The ledger never exceeds its cap (settled, in flight and lost amounts together) and never pays twice."""

from __future__ import annotations

import random
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub import exits
from composer_hub.money import NANO
from composer_hub.replay.ledger import Busy, CapReached, Ledger, LedgerError, Overbilled, Question, Reserved, Stored
from composer_hub.replay.owners import Owner
from composer_hub.replay.prices import per_million
from tests.quick import cases

stable = cases(60)


def question(key: str, teacher: str = "small") -> Question:
    return Question(key, teacher, "trace", f"step-{key}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def reserve(ledger: Ledger, key: str, amount: int) -> int:
    answer = ledger.reserve(question(key), amount)
    assert isinstance(answer, Reserved)
    return answer.try_id


def test_a_settled_answer_is_returned_and_never_asked_again(path: Path) -> None:
    with Ledger(path, cap=100) as ledger:
        ledger.settle(reserve(ledger, "a", 60), b'{"x": 1}', cost=7, cost_source="usage", latency_s=1.5)
    with Ledger(path) as ledger:
        stored = ledger.reserve(question("a"), 60)
        assert isinstance(stored, Stored)
        assert (stored.response, stored.cost, stored.cost_source, stored.latency_s) == (b'{"x": 1}', 7, "usage", 1.5)
        assert ledger.budget().committed == 7


def test_a_request_that_does_not_fit_is_refused_before_it_is_sent(path: Path) -> None:
    with Ledger(path, cap=100) as ledger:
        reserve(ledger, "a", 60)
        with pytest.raises(CapReached, match="--change-cap") as caught:
            ledger.reserve(question("b"), 50)
        assert caught.value.later
        assert caught.value.exit_code == exits.STOPPED
        with pytest.raises(CapReached) as caught:
            ledger.reserve(question("b"), 101)
        assert not caught.value.later


def test_the_database_itself_rejects_a_try_above_the_cap(path: Path) -> None:
    with Ledger(path, cap=100):
        other = sqlite3.connect(path, isolation_level=None)
        with pytest.raises(sqlite3.IntegrityError, match="cap"):
            other.execute("INSERT INTO tries (key, owner, state, reserved) VALUES ('k', 'o', 'reserved', 101)")
        other.close()


@pytest.mark.parametrize(
    ("cost", "state"), [(0, "failed"), (None, "ambiguous"), (5, "settled")], ids=["unbilled", "lost", "billed"]
)
def test_a_failed_try_counts_its_possible_cost(path: Path, cost: int | None, state: str) -> None:
    with Ledger(path, cap=100) as ledger:
        ledger.fail(reserve(ledger, "a", 40), "dropped", cost=cost)
        money = ledger.budget()
        assert money.committed == {"failed": 0, "ambiguous": 40, "settled": 5}[state]
        assert money.reserved == 0
        assert isinstance(ledger.reserve(question("a"), 40), Reserved)


def test_a_final_failure_and_an_answer_of_unknown_cost_are_stored_and_not_asked_again(path: Path) -> None:
    with Ledger(path, cap=100) as ledger:
        ledger.fail(reserve(ledger, "a", 40), "too_long", cost=0, final=True)
        ledger.settle(reserve(ledger, "b", 30), b"{}", cost=None, cost_source="worst_case")
        failure, answer = ledger.reserve(question("a"), 40), ledger.reserve(question("b"), 40)
        assert isinstance(failure, Stored)
        assert (failure.kind, failure.response) == ("too_long", None)
        assert isinstance(answer, Stored)
        assert (answer.response, answer.cost, ledger.budget().ambiguous) == (b"{}", 30, 30)


def test_the_reservations_of_a_dead_process_become_ambiguous_and_stay_counted(path: Path) -> None:
    code = (
        "import os, sys\nfrom composer_hub.replay.ledger import Ledger, Question\n"
        "ledger = Ledger(sys.argv[1], cap=100)\nledger.reserve(Question('a', 't', 'trace', 's'), 30)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], cwd=Path(__file__).parents[2], check=False)
    with Ledger(path) as ledger:
        assert (ledger.budget().reserved, ledger.budget().ambiguous) == (0, 30)
        assert isinstance(ledger.reserve(question("a"), 30), Reserved)
        assert ledger.budget().committed == 60


def test_a_question_of_a_living_process_is_left_to_it(path: Path) -> None:
    with Ledger(path, cap=100) as one, Ledger(path) as two:
        try_id = reserve(one, "a", 30)
        assert isinstance(two.reserve(question("a"), 30), Busy)
        one.settle(try_id, b"{}", cost=1, cost_source="usage")
        assert isinstance(two.reserve(question("a"), 30), Stored)


def test_an_answer_is_settled_even_if_its_process_was_taken_for_dead(path: Path) -> None:
    with Ledger(path, cap=100) as one:
        try_id = reserve(one, "a", 30)
        with Ledger(path, alive=lambda owner, silent: False) as two:
            assert two.budget().ambiguous == 30
        one.settle(try_id, b"{}", cost=2, cost_source="usage")
        assert (one.budget().settled, one.budget().ambiguous) == (2, 0)


@pytest.mark.parametrize("jump", [-1e9, 1e9], ids=["back", "ahead"])
def test_a_clock_that_jumps_frees_no_money_and_no_question_of_a_living_process(path: Path, jump: float) -> None:
    with Ledger(path, cap=100, clock=lambda: 1e9) as one:
        reserve(one, "a", 30)
        with Ledger(path, clock=lambda: 1e9 + jump) as two:
            assert isinstance(two.reserve(question("a"), 30), Busy)
            assert two.budget().committed == 30


def test_a_process_on_another_machine_is_dead_once_its_heartbeat_is_old(path: Path) -> None:
    far = Owner("far", "elsewhere", "boot", 1, "0")
    with Ledger(path, cap=100, owner=far, clock=lambda: 1000.0) as one:
        reserve(one, "a", 30)
        with Ledger(path, clock=lambda: 1100.0) as two:
            assert isinstance(two.reserve(question("a"), 30), Busy)
        with Ledger(path, clock=lambda: 2000.0) as three:
            assert isinstance(three.reserve(question("a"), 30), Reserved)


def test_a_new_ledger_needs_a_cap_that_changes_only_on_request_and_not_below_the_committed_amount(path: Path) -> None:
    with pytest.raises(exits.UsageError, match="--max-usd"):
        Ledger(path)
    with Ledger(path, cap=100) as ledger:
        ledger.settle(reserve(ledger, "a", 40), b"{}", cost=40, cost_source="usage")
    with pytest.raises(exits.UsageError, match="--change-cap"):
        Ledger(path, cap=200)
    with pytest.raises(exits.UsageError, match="lower than"):
        Ledger(path, cap=39, change_cap=True)
    with Ledger(path, cap=200, change_cap=True) as ledger:
        assert ledger.budget().cap == 200


def test_planned_questions_are_counted_until_they_are_asked(path: Path) -> None:
    with Ledger(path, cap=100) as ledger:
        ledger.plan([question("a"), question("b")])
        ledger.plan([question("a")])
        reserve(ledger, "a", 10)
        (row,) = ledger.by_teacher()
        assert (row["teacher"], row["planned"], row["reserved"]) == ("small", 1, 1)


@pytest.mark.parametrize("way", ["settled", "failed", "resolved"])
def test_an_endpoint_that_overbilled_is_not_asked_by_later_runs_until_its_price_changes(path: Path, way: str) -> None:
    stamp, day_after, other_price = "given 2026-01-01 aa", "given 2026-01-02 aa", "given 2026-01-02 bb"
    with Ledger(path, cap=1000) as ledger:
        first = ledger.reserve(question("a"), 10, price_stamp=stamp)
        assert isinstance(first, Reserved)
        if way == "settled":
            ledger.settle(first.try_id, b"{}", cost=11, cost_source="usage")
        else:
            ledger.fail(first.try_id, "dropped", cost=11 if way == "failed" else None)
            ledger.resolve(first.try_id, 11, source="provider")
    with Ledger(path) as ledger:
        with pytest.raises(Overbilled, match="billed"):
            ledger.reserve(question("b"), 10, price_stamp=day_after)
        with pytest.raises(Overbilled):
            ledger.reserve(question("c", "judge"), 10, price_stamp=day_after, names={"judge", "small"})
        assert isinstance(ledger.reserve(question("d", "other"), 10, price_stamp=day_after), Reserved)
        assert isinstance(ledger.reserve(question("b"), 10, price_stamp=other_price), Reserved)
        if way == "settled":
            assert isinstance(ledger.reserve(question("a"), 10, price_stamp=day_after), Stored)


def test_a_changed_price_is_reported_once(path: Path) -> None:
    old, new = per_million("1", "2", stamp="list"), per_million("3", "2", stamp="list")
    with Ledger(path, cap=100) as ledger:
        assert ledger.note_price("route", old) is None
        assert ledger.note_price("route", old) is None
        before = ledger.note_price("route", new)
        assert before is not None
        assert before["rates"]["input"] == 10**6
        assert ledger.note_price("route", new) is None


@stable
@given(seed=st.integers(0, 10**6))
def test_any_mix_of_outcomes_over_two_processes_keeps_the_sum_under_the_cap(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng = random.Random(seed)
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    cap = rng.randint(50, 500)
    ledgers = [Ledger(path, cap=cap), Ledger(path)]
    in_flight: list[tuple[Ledger, int, int]] = []
    for number in range(40):
        ledger = rng.choice(ledgers)
        try:
            amount = rng.randint(0, 80)
            answer = ledger.reserve(question(f"k{rng.randint(0, 15)}"), amount)
            if isinstance(answer, Reserved):
                in_flight.append((ledger, answer.try_id, amount))
        except CapReached:
            pass
        if in_flight and rng.random() < 0.7:
            owner, try_id, amount = in_flight.pop(rng.randrange(len(in_flight)))
            if rng.random() < 0.5:
                owner.settle(try_id, b"{}", cost=rng.randint(0, amount), cost_source="usage")
            else:
                owner.fail(try_id, "dropped", cost=rng.choice([0, None, amount]))
        assert ledger.budget().committed <= cap
        if number % 10 == 0:
            assert ledger.budget() == ledger.audit()
    for ledger in ledgers:
        ledger.close()
    with Ledger(path) as ledger:
        assert ledger.budget() == ledger.audit()
        assert ledger.budget().reserved == 0


def test_a_full_disk_keeps_the_reservation_and_the_error_names_it(path: Path) -> None:
    with Ledger(path, cap=NANO) as ledger:
        try_id = reserve(ledger, "a", 30)
        pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
        ledger._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(LedgerError, match="disk is full"):
            ledger.settle(try_id, random.Random(0).randbytes(100_000), cost=3, cost_source="usage")
        assert ledger.budget().reserved == 30
        ledger._db.execute("PRAGMA max_page_count = 100000")
        ledger.settle(try_id, b"{}", cost=3, cost_source="usage")
        assert ledger.budget().committed == 3


def test_a_damaged_ledger_is_reported_as_damaged(path: Path) -> None:
    with Ledger(path, cap=NANO) as ledger:
        for number in range(200):
            ledger.settle(reserve(ledger, f"k{number}", 1), b"x" * 200, cost=0, cost_source="usage")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"damaged|SQLite reports"):
        Ledger(path).by_teacher()


def test_a_ledger_that_cannot_be_used_is_refused_with_the_reason_and_not_changed(path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger(path.parent / "nowhere" / "ledger.sqlite", cap=1)
    path.write_text("this is not a database" * 100)
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(path, cap=100)
    assert path.read_text().startswith("this is not")
    path.unlink()
    with Ledger(path, cap=100) as ledger:
        ledger._db.execute("UPDATE meta SET value = '99' WHERE name = 'version'")
    with pytest.raises(LedgerError, match="another version"):
        Ledger(path)


def test_a_damaged_answer_is_named_with_the_command_that_buys_it_again(path: Path) -> None:
    with Ledger(path, cap=100) as ledger:
        for key in ("a", "b"):
            ledger.settle(reserve(ledger, key, 10), b"{}", cost=1, cost_source="usage")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE questions SET response = substr(response, 1, 4) WHERE key = 'a'")
    with Ledger(path) as ledger:
        with pytest.raises(LedgerError, match="answer to question a is damaged") as caught:
            ledger.lookup("a")
        stored = ledger.lookup("b")
        assert stored is not None
        assert stored.response == b"{}"
    command = re.search(r'`sqlite3 \S+ "(.*)"`', str(caught.value))
    assert command is not None
    with sqlite3.connect(path) as db:
        db.execute(command[1])
    with Ledger(path) as ledger:
        assert ledger.lookup("a") is None
        reserve(ledger, "a", 10)
