"""The judge, asked through a real server and paid through a ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.errors.context import SiteContext
from composer_hub.records import ErrorSite
from composer_hub.replay import judge_of
from composer_hub.replay.fake import TeacherServer, serving
from composer_hub.replay.ledger import Ledger


def context(kind: str = "verbose_style") -> SiteContext:
    return SiteContext(ErrorSite(kind, "model", "text", 0.5, "test", message="Far too long an explanation."))


def test_a_judge_without_a_cap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(exits.UsageError, match="--judge-max-usd"):
        judge_of("http://127.0.0.1:9/v1#small", None, tmp_path)


def test_an_answer_is_asked_for_once_and_costs_the_servers_bill(tmp_path: Path) -> None:
    teachers = TeacherServer()
    with serving(teachers) as url:
        asked = [judge_of(f"{url}#small", 1.0, tmp_path).answer("Which?", None, str.strip) for _ in range(2)]
    assert asked[0] == asked[1] != ""
    assert sum(bill.requests for bill in teachers.bills.values()) == 1
    with Ledger(tmp_path / "judge.sqlite") as ledger:
        money = ledger.budget()
    assert (money.settled, money.reserved, money.ambiguous) == (teachers.billed, 0, 0)


def test_a_cap_that_is_too_small_prevents_the_request(tmp_path: Path) -> None:
    teachers = TeacherServer()
    with serving(teachers) as url:
        judge = judge_of(f"{url}#large", 0.000001, tmp_path)
        assert judge(context()) is None
    assert judge.problems["budget reached"] == 1
    assert teachers.billed == 0
