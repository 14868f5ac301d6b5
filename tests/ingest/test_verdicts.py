"""Reviewers' verdicts on hints reach the next version of a trace set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits, hub
from composer_hub.errors.vocabulary import BLAMES, writer_words
from composer_hub.hub.verdicts import VerdictError
from composer_hub.ingest.dataset import TraceCounts, marks_of, numbers_of, trace_card, trace_tables, turns_of
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.verdicts import UNKNOWN, VERDICTS, WRITER, HintVerdict, Review, read_verdicts, reviewed_draft
from composer_hub.records import ErrorSite, Hint, Message, Trace, from_row, to_row
from tests.factories import make_trace

SITES = tuple(ErrorSite(kind, "model", "flag", 1.0, "r", "Bash", "c0") for kind in ("usage_error", "path_not_found"))
HINTS = tuple(Hint(f"About {site.kind}.", "template", "r", 1, site.kind, "c0") for site in SITES)
PLAIN = make_trace()
FIRST = replace(PLAIN.steps[0], error_sites=SITES, hints=HINTS)
TRACE = replace(PLAIN, steps=(FIRST, PLAIN.steps[1]))
ONE, OTHER = (f"{FIRST.step_id}:{number}" for number in (1, 2))


def said(verdict: str, site: str = ONE, reviewer: str = "ada", **fields: Any) -> HintVerdict:
    return HintVerdict(site, verdict, reviewer, **fields)


def after(*verdicts: HintVerdict) -> tuple[list[str], list[str]]:
    """Return the texts of the hints and the blames of the sites of the step, after review."""
    step = Review.of(verdicts).apply(TRACE).steps[0]
    assert [site.kind for site in step.error_sites] == [site.kind for site in SITES]  # their numbers are in their ids
    return [hint.text for hint in step.hints], [site.blame for site in step.error_sites]


TEXTS = [hint.text for hint in HINTS]
OWN = ["model", "model"]


@pytest.mark.parametrize(
    ("verdicts", "hints", "blames"),
    [
        ([], TEXTS, OWN),
        ([said("good_hint")], TEXTS, OWN),
        ([said("bad_hint")], TEXTS[1:], OWN),
        ([said("bad_hint", OTHER)], TEXTS[:1], OWN),
        ([said("edit_hint", edited_hint=" Use `ls`. ")], [TEXTS[1], "Use `ls`."], OWN),
        ([said("wrong_blame", blame="env")], TEXTS[1:], ["env", "model"]),
        ([said("wrong_blame")], TEXTS[1:], [UNKNOWN, "model"]),
        ([said("good_hint"), said("bad_hint", reviewer="bob")], TEXTS[1:], OWN),
        ([said("bad_hint", created_at="1"), said("good_hint", created_at="2")], TEXTS, OWN),
        ([said("bad_hint", f"{PLAIN.steps[1].step_id}:1"), said("bad_hint", "nowhere:1")], TEXTS, OWN),
    ],
)
def test_a_verdict_changes_its_own_site_only(
    verdicts: Sequence[HintVerdict], hints: list[str], blames: list[str]
) -> None:
    assert after(*verdicts) == (hints, blames)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_same_verdicts_on_the_next_version_change_nothing(verdict: str) -> None:
    review = Review.of([said(verdict, edited_hint="Use `ls`." if verdict == "edit_hint" else "")])
    once = review.apply(TRACE)
    assert review.apply(once) == once


def test_a_corrected_hint_names_its_writer_and_answers_its_site() -> None:
    step = Review.of([said("edit_hint", edited_hint="Use `ls`.")]).apply(TRACE).steps[0]
    assert step.hints[-1] == Hint("Use `ls`.", WRITER, "verdict", 1, SITES[0].kind, "c0")
    assert writer_words(WRITER) != WRITER


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"verdict": "maybe"}, "not a verdict"),
        ({"verdict": "edit_hint", "edited_hint": " "}, "has no text"),
        ({"verdict": "wrong_blame", "blame": "moon"}, "is no blame"),
        ({"site_id": None, "verdict": "good_hint", "reviewer": []}, "not a verdict"),
    ],
)
def test_a_row_that_cannot_be_followed_is_named_with_its_line(row: dict[str, Any], reason: str, tmp_path: Path) -> None:
    file = tmp_path / "v.jsonl"
    rows = [{"target": "pair", "pair_id": "p", "verdict": "accept", "reviewer": "a"}]
    rows.append({"target": "hint", "site_id": ONE, "reviewer": "a"} | row)
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    with pytest.raises(VerdictError, match=f"v.jsonl:2 .*{reason}"):
        list(read_verdicts(file))


def test_every_blame_may_be_named() -> None:
    assert {said("wrong_blame", blame=blame).blame for blame in BLAMES} == set(BLAMES)


@pytest.fixture
def published(tmp_path: Path) -> hub.Version:
    where = hub.FolderDestination(tmp_path / "hub")
    counts = TraceCounts()
    counts.add(TRACE)
    numbers = numbers_of(FileReport(), counts) | {"files": 7}
    card = trace_card("me/traces", "mit", numbers, redacted=True)
    lineage = hub.Lineage(sources={"files": "d", "numbers": numbers})
    hub.publish(where, "me/traces", trace_tables(lambda: iter([TRACE])), card, lineage=lineage)
    return hub.load(where, "me/traces@v1.0.0")


def test_the_next_version_has_the_reviewed_hints_in_all_its_tables(published: hub.Version, tmp_path: Path) -> None:
    verdicts = [said("bad_hint"), said("wrong_blame", OTHER, blame="env"), said("good_hint", "nowhere:1")]
    draft, counts = reviewed_draft(published, verdicts, tmp_path)
    assert counts == {"bad_hint": 1, "wrong_blame": 1, "unknown_site": 1}
    hub.publish(published.destination, "me/traces", draft.tables, draft.card, lineage=draft.lineage)
    version = hub.load(published.destination, "me/traces@v1.1.0")
    (trace,) = version.records(Trace, "traces")
    assert trace == Review.of(verdicts).apply(TRACE)
    assert [row["hints"] for row in version.rows("steps")] == [[], []]
    assert version.manifest["sources"]["numbers"]["files"] == 7
    assert version.manifest["sources"]["numbers"]["hints"] == 0
    assert "bad hint 1" in version.destination.fetch("me/traces", version.revision, "README.md").read_text()


def test_traces_that_were_never_redacted_do_not_become_public_by_a_review(
    published: hub.Version, tmp_path: Path
) -> None:
    raw = replace(TRACE, redaction="")
    card = trace_card("me/raw", "mit", numbers_of(FileReport(), TraceCounts()), redacted=False)
    hub.publish(published.destination, "me/raw", trace_tables(lambda: iter([raw])), card)
    source = hub.load(published.destination, "me/raw")
    with pytest.raises(exits.Refused, match="never redacted"):
        reviewed_draft(source, [said("bad_hint")], tmp_path, public=True)


def test_the_index_tells_a_session_without_its_messages() -> None:
    again = Message("user", "And now the tests.\n" * 100)
    harness = Message("user", "<system-reminder>Be <i>brief</i>.</system-reminder>\n")
    row = to_row(replace(TRACE, messages=(*TRACE.messages, harness, again)))
    assert turns_of(row) == [(0, "Fix bug 0."), (len(TRACE.steps), again.content[:160])]
    assert marks_of(row) == [(0, [(site.kind, "model") for site in SITES], ["template", "template"])]
    assert from_row(Trace, row).steps == TRACE.steps
