"""What anyone may have written in sessions, rollouts, tasks and verdicts is text on the page, and fits it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from inspector import heavy, parts, verdicts, view_hints, view_runs, view_sessions, view_tasks

from composer_hub.records import to_row
from tests.hidden import NO_HALVES, hidden_in
from tests.space import hostile

LONG = "A" * 200_000
FILE = {"path": "/etc/hostname", "meta": {"_type": "gradio.FileData"}}
VALUES = [*hostile.PAYLOADS, NO_HALVES, LONG, str(FILE)]
PLACE = {"dataset": "me/traces", "revision": "main", "view": "sessions"}
FACTS = {"repo": "me/traces", "revision": "v1", "reviewer": "ada", "now": "2026-11-22T10:00:00+00:00"}


class Tags(HTMLParser):
    """The elements of a page with the names of their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[tuple[str, ...]] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.add((tag, *sorted({name for name, _ in attributes})))


def filled(row: Any, value: str) -> Any:
    """Return a row whose every text is a value; an id is the value's beginning."""
    if isinstance(row, str):
        return value
    if isinstance(row, dict):
        return {name: filled(inner, value[:200] if name.endswith("_id") else value) for name, inner in row.items()}
    return [filled(inner, value) for inner in row] if isinstance(row, (list, tuple)) else row


def session_page(value: str) -> str:
    trace = filled(to_row(hostile.trace(1)), value)
    session = dict.fromkeys(("source", "model", "repository", "task"), value) | {"id": value[:200]}
    session |= {"num_steps": 2, "num_errors": 1, "num_hints": 1}
    steps = [
        step | {"step_id": value[:200], "index": at, "action": heavy.acted(value)}
        for at, step in enumerate(trace["steps"])
    ]
    pairs = {1: [{"id": value[:200], "num_agree": 1, "num_votes": 2}]}
    marks = [(0, [(value, value)], [value])]
    story = view_sessions.Story(session, [(0, value), (1, value)], marks, steps, pairs, {0: (1, 2)}, 0)
    listed = view_sessions.session_list([session], 1, 0, PLACE, value)
    return listed + view_sessions.session_detail(story, PLACE)


def run_page(value: str) -> str:
    trace = filled(to_row(hostile.rollout(1)), value)
    hack = [{"rule": value, "evidence": value}, value] * 30
    row = {
        "trace_id": value[:200],
        "policy_step": 0,
        "prompt": "p",
        "advantage": 0.5,
        "environment": value,
        "num_turns": 2,
    }
    row |= {"num_sites": 1, "num_hints": 1, "rewards": {value: 1.0}, "episode": {"task_id": value[:200], "hack": hack}}
    steps = [step | {"action": heavy.acted(value)} for step in trace["steps"]]
    known = dict.fromkeys(("run_id", "policy", "environment"), value) | {"policy_step": 0, "completion_ids": [1]}
    other = row | {"trace_id": f"{value[:200]} 2"}
    detail = view_runs.run_detail(trace | {"provenance": known}, [(row, steps), (other, steps)], PLACE)
    return view_runs.run_list([row, other], PLACE, value) + detail


def task_page(value: str) -> str:
    row = filled(to_row(next(hostile.tasks())), value) | {"validation": value, "symbols": [value] * 3}
    row |= {"fail_to_pass": [value] * 3, "pass_to_pass": [value] * 300}
    tried = [
        {
            "trace_id": value[:200],
            "rewards": {value: 1.0},
            "episode": {"reward": 0.5, "visible_reward": 1.0, "hack": [value]},
        }
    ]
    return view_tasks.task_list([row], PLACE, "", {row["task_id"]: tried}) + view_tasks.task_detail(row, PLACE, tried)


def hint_page(value: str) -> str:
    site = dict.fromkeys(("id", "step_id", "trace_id", "call_id"), value[:200])
    site |= dict.fromkeys(("model", "kind", "blame", "rule", "tool"), value) | {
        "message": value,
        "writer": value,
        "text": value,
        "step": 0,
    }
    said = verdicts.check({"id": "s:1", "verdict": "bad_hint", "note": value}, **FACTS) | {"reviewer": value[:100]}
    counts = [(value, value, value, 1)]
    listed = view_hints.hint_list([site], 1, 0, PLACE, value) + view_hints.hint_summary(counts)
    trace = filled(to_row(hostile.trace(1)), value)
    return listed + view_hints.hint_filters(counts, PLACE) + view_hints.hint_detail(site, trace, PLACE, [said])


@functools.cache
def benign(page: Callable[[str], str]) -> set[tuple[str, ...]]:
    return Tags(page("a word")).found | Tags(page(LONG)).found  # a long text has a button for the rest


PAGES = (session_page, run_page, task_page, hint_page)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_no_text_of_a_view_becomes_an_element_or_hides(page: Callable[[str], str], value: str) -> None:
    shown = page(value)
    assert Tags(shown).found <= benign(page)
    assert hidden_in(shown) == []


@pytest.mark.parametrize("page", PAGES)
def test_long_fields_cost_a_page_little(page: Callable[[str], str]) -> None:
    assert len(page(LONG)) < 400_000


@pytest.mark.parametrize("value", [*VALUES, FILE, [FILE], 3, None], ids=range(len(VALUES) + 4))
def test_a_verdict_on_a_hint_holds_short_texts_alone(value: Any) -> None:
    draft = {
        "id": "s:1",
        "verdict": "bad_hint",
        "note": value,
        "reason": value,
        "edited_hint": value,
        "trace_id": value,
    }
    row = verdicts.check(draft, **FACTS)
    assert all(isinstance(row[name], str) for name in ("note", "reason", "edited_hint", "blame", "trace_id"))
    assert max(len(text) for text in row.values() if isinstance(text, str)) <= verdicts.MAX_NOTE
    bar = parts.verdict_bar((), "hint", [row])
    assert Tags(bar).found == Tags(parts.verdict_bar((), "hint", [row | {"note": "a word"}])).found
    assert hidden_in(bar) == []


@pytest.mark.parametrize("value", [FILE, [FILE], 3, None, "", " \n"])
def test_an_edited_hint_is_a_text(value: Any) -> None:
    with pytest.raises(verdicts.BadVerdict, match="needs a text"):
        verdicts.check({"id": "s:1", "verdict": "edit_hint", "edited_hint": value}, **FACTS)


@pytest.mark.parametrize("value", [FILE, ["model"], "everybody"])
def test_a_blame_is_one_of_the_vocabulary(value: Any) -> None:
    draft = {"id": "s:1", "verdict": "wrong_blame", "blame": value}
    if isinstance(value, str):
        with pytest.raises(verdicts.BadVerdict, match="not a blame"):
            verdicts.check(draft, **FACTS)
    else:
        assert verdicts.check(draft, **FACTS)["blame"] == ""
