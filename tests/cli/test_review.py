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
from composer_hub.redact.judge_model import Opinion

SALT = b"salt"
VALUE = "qX7vK2mR9tLw4ZpB8nHd"
TRACE = Trace("t", "x", "s", (Message("user", f"set API_TOKEN={VALUE} and mail jo@acme.io"),), ())


def samples() -> list[Sample]:
    redactor = Redactor(SALT, max_samples=3, judge=None)
    redactor.trace(TRACE)
    return [sample for sample in redactor.samples.values() if not sample.is_suggestion]


def unsure(trace: Trace, threshold: float) -> list[Opinion]:
    """A judge who is sure of one value, doubts another, and would take one that the rules have taken."""
    found = (Opinion("heron", "PERSONAL", 0.9), Opinion("Falcon1402", "SECRET", 0.4), Opinion(VALUE, "SECRET", 0.99))
    return [one for one in found if one.probability >= threshold]


QUIET = Trace("t", "x", "s", (Message("user", f"API_TOKEN={VALUE}, then Falcon1402 for heron"),), ())


def suggestions() -> list[Sample]:
    redactor = Redactor(SALT, max_samples=3, judge=unsure)
    redactor.trace(QUIET)
    return [sample for sample in redactor.samples.values() if sample.is_suggestion]


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


def test_what_the_judge_doubts_is_suggested_and_not_replaced() -> None:
    redactor = Redactor(SALT, max_samples=3, judge=unsure)
    assert "Falcon1402 for heron" in redactor.trace(QUIET).messages[0].content
    assert {(s.value, s.probability) for s in suggestions()} == {("heron", 0.9), ("Falcon1402", 0.4)}


def test_a_suggestion_stays_unless_it_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "review.jsonl"
    assert ask(suggestions(), Decisions(path), keys("\rd"))  # the likeliest comes first
    decisions = Decisions(path)
    text = (
        Redactor(SALT, kept=decisions.kept, accepted=decisions.accepted, judge=unsure).trace(QUIET).messages[0].content
    )
    assert "heron" in text
    assert "Falcon1402" not in text
    assert not ask(suggestions(), Decisions(path), keys(""))


def test_strict_replaces_what_the_judge_is_sure_of() -> None:
    redactor = Redactor(SALT, strict=True, judge=unsure)
    text = redactor.trace(QUIET).messages[0].content
    assert "heron" not in text
    assert "Falcon1402" in text
    assert redactor.report.to_dict()["by_rule"]["judge"] == 1
    kept = Redactor(SALT, strict=True, judge=unsure, kept=[redactor.placeholder("PERSONAL", "heron")])
    assert "heron" in kept.trace(QUIET).messages[0].content


def test_a_word_that_begins_a_sentence_is_no_suggestion() -> None:
    trace = Trace("t", "x", "s", (Message("user", "Heron came. The heron left. Bittern stayed."),), ())
    birds = [Opinion(word, "PERSONAL", 0.9) for word in ("Heron", "Bittern")]
    redactor = Redactor(SALT, strict=True, judge=lambda *asked: birds)
    assert "Heron came. The heron left. [PERSONAL_" in redactor.trace(trace).messages[0].content


def test_a_secret_that_the_judge_is_sure_of_is_replaced_and_a_person_is_not() -> None:
    def judge(trace: Trace, threshold: float) -> list[Opinion]:
        return [Opinion("Falcon1402", "SECRET", 0.8), Opinion("heron", "PERSONAL", 0.99)]

    redactor = Redactor(SALT, judge=judge)
    assert redactor.trace(QUIET).messages[0].content.endswith("] for heron")
    assert redactor.text("Falcon1402 for heron").endswith("] for heron")
    assert redactor.report.to_dict()["by_rule"]["judge"] == 2
    kept = Redactor(SALT, judge=judge, kept=[redactor.placeholder("SECRET", "Falcon1402")])
    assert "Falcon1402" in kept.trace(QUIET).messages[0].content
    assert "Falcon1402" in Redactor(SALT, judge=None).trace(QUIET).messages[0].content


def test_a_redactor_without_a_judge_suggests_nothing() -> None:
    redactor = Redactor(SALT, max_samples=3, strict=True)
    redactor.trace(QUIET)
    assert not any(sample.is_suggestion for sample in redactor.samples.values())
