"""An audit turns ambiguous money into what the provider billed."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.money import NANO
from composer_hub.replay import audit, purchase_of, run
from composer_hub.replay.fake import TeacherServer, serving
from composer_hub.replay.options import ReplayOptions
from tests.replay.sample import teachers_at, trace_of

ALL = ReplayOptions(order="all", audit=0, repeat=0)


def ambiguous(folder: Path) -> int:
    purchase = purchase_of(folder)
    assert purchase is not None
    return purchase.budget.ambiguous


def settled(folder: Path) -> int:
    purchase = purchase_of(folder)
    assert purchase is not None
    return purchase.budget.settled


def test_lost_answers_are_looked_up_and_the_rest_is_settled_by_the_keys_usage(tmp_path: Path) -> None:
    server = TeacherServer(tells_cost=False)
    with serving(server) as url:
        panel = teachers_at(url)
        # The first is billed and lost, the second lost before it was billed, the third has no usage.
        server.queued.extend(["drop_billed", "drop", "no_usage"])
        run([trace_of(6)], panel, tmp_path, ALL, max_usd=1)
        before = ambiguous(tmp_path)
        assert before > 0
        assert settled(tmp_path) < server.billed <= settled(tmp_path) + before
        (row,) = audit(tmp_path, panel)
        assert (row.looked_up, row.ambiguous) == (2, 1)
        assert row.unexplained_usd == 0
        assert settled(tmp_path) == server.billed
        (row,) = audit(tmp_path, panel, own_key=True)
        assert (row.looked_up, row.ambiguous, row.ambiguous_usd) == (0, 0, 0)
    assert ambiguous(tmp_path) == 0
    assert settled(tmp_path) == server.billed


def test_a_key_that_something_else_used_settles_nothing(tmp_path: Path) -> None:
    server = TeacherServer()
    with serving(server) as url:
        panel = teachers_at(url, ["small"])
        server.queued.append("drop")
        run([trace_of(3)], panel, tmp_path, ALL, max_usd=1)
        server.bills["small"].cost += NANO
        with pytest.raises(exits.UsageError, match="Something else used the key"):
            audit(tmp_path, panel, own_key=True)
    assert ambiguous(tmp_path) > 0


def test_an_endpoint_that_tells_nothing_changes_nothing(tmp_path: Path) -> None:
    server = TeacherServer()
    with serving(server) as url:
        panel = teachers_at(url, ["small"])
        server.queued.append("drop_billed")
        run([trace_of(3)], panel, tmp_path, ALL, max_usd=1)
        (row,) = audit(tmp_path, panel, get=lambda url, key, query: None)
        assert (row.looked_up, row.ambiguous, row.key_spent_usd) == (0, 1, None)
        with pytest.raises(exits.UsageError, match="does not tell"):
            audit(tmp_path, panel, own_key=True, get=lambda url, key, query: None)
    with pytest.raises(exits.NothingToDo):
        audit(tmp_path / "none", panel)
