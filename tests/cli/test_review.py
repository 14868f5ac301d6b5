"""The review before publishing: what each key does, what is remembered, and what a later run does with it."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.cli.review import ask, check_review, shown
from composer_hub.output import Output
from composer_hub.records import Message, Trace
from composer_hub.redact import Decisions, Redactor, Sample

SALT = b"salt"
VALUE = "qX7vK2mR9tLw4ZpB8nHd"
TRACE = Trace("t", "x", "s", (Message("user", f"set API_TOKEN={VALUE} and mail jo@acme.io"),), ())


def samples() -> list[Sample]:
    redactor = Redactor(SALT, max_samples=3)
    redactor.trace(TRACE)
    return list(redactor.samples.values())


def keys(typed: str) -> Callable[[], str]:
    return iter(typed).__next__


def test_every_rule_is_shown_in_its_context() -> None:
    found = {sample.rule: sample for sample in samples()}
    assert set(found) == {"announced", "email"}  # a person typed it
    assert found["announced"].before == "set API_TOKEN="
    assert found["announced"].value == VALUE
    assert found["announced"].after.startswith(" and mail")


def test_a_kept_value_stays_in_later_runs_and_a_denied_one_goes(tmp_path: Path) -> None:
    path = tmp_path / "state/review.jsonl"
    assert ask(samples(), Decisions(path), keys("dk"))  # EMAIL comes before SECRET
    decisions = Decisions(path)
    text = Redactor(SALT, kept=decisions.kept).trace(TRACE).messages[0].content
    assert VALUE in text
    assert "acme" not in text
    assert VALUE not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_decision_is_asked_for_once(tmp_path: Path) -> None:
    path = tmp_path / "review.jsonl"
    assert not ask(samples(), Decisions(path), keys("dd"))
    assert not ask(samples(), Decisions(path), keys(""))


def test_q_stops_and_keeps_the_decisions_so_far(tmp_path: Path) -> None:
    path = tmp_path / "review.jsonl"
    with pytest.raises(exits.Refused, match="nothing was published"):
        ask(samples(), Decisions(path), keys("?dq"))
    assert sum(sample.placeholder in Decisions(path) for sample in samples()) == 1


def test_control_characters_of_a_trace_cannot_move_the_cursor() -> None:
    text = shown(Sample("SECRET", "r", "[SECRET_1]", "a\x1b[2J\r", "\x07\x9bvalue\u202e", "\nb"))
    assert text.replace("\x1b[7m", "").replace("\x1b[0m", "").isprintable()


def test_public_rows_need_a_review_or_yes() -> None:
    with pytest.raises(exits.UsageError, match="add --yes"):
        check_review(Output("quiet"), public=True, review=False, yes=False)
    assert not check_review(Output("quiet"), public=True, review=False, yes=True)
    with pytest.raises(exits.UsageError, match="needs a terminal"):
        check_review(Output("quiet"), public=False, review=True, yes=False)
