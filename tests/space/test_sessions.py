"""A session as a story, read in small pieces; and rollouts and tasks beside what came of them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from inspector import heavy, view_runs, view_tasks
from inspector.desk import ReviewDesk
from inspector.heavy import acted
from inspector.library import Dataset, SpaceLibrary
from inspector.remote import RangeFile, RangeSource

from composer_hub import hub
from composer_hub.ingest.dataset import trace_card, trace_tables
from composer_hub.records import ErrorSite, Hint, Message, ToolCall, Trace, action_text, stable_id
from tests.factories import make_trace

TOKEN = "hf_test_me"
NUM_STEPS = 2_500
SITE = ErrorSite("edit_no_match", "model", "flag", 1.0, "r", "Bash", "c1", "String to replace not found.")
HINT = Hint("Read the file first.", "hindsight", "r", 1, SITE.kind, SITE.call_id)


def noise(chance: random.Random, length: int) -> str:
    return " ".join(f"{chance.getrandbits(64):x}" for _ in range(length // 16))


def long_session() -> Trace:
    """Return a session whose messages do not compress, with one error, and words of the user before step 700."""
    chance = random.Random(7)
    trace = make_trace(5, num_steps=NUM_STEPS)
    messages = [
        replace(message, content=noise(chance, 4_000)) if message.role == "tool" else message
        for message in trace.messages
    ]
    steps = list(trace.steps)
    steps[701] = replace(steps[701], error_sites=(SITE,), hints=(HINT,))
    messages[steps[699].results[0]] = Message("user", "And now the weeks.")
    return replace(trace, messages=tuple(messages), steps=tuple(steps), repository="org/long")


@pytest.fixture(scope="session")
def library(where: hub.HubDestination) -> Iterator[SpaceLibrary]:
    card = trace_card("me/long", "mit", _Zeros(), redacted=True)
    hub.publish(where, "me/long", trace_tables(lambda: iter([long_session(), make_trace(6)])), card)
    library = SpaceLibrary(["me/long@main"], endpoint=where.api.endpoint)
    yield library
    library.db.close()


class _Zeros(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return {} if "_by_" in name or name == "tokens_per_char" else 0


def opened(library: SpaceLibrary) -> Dataset:
    return library.open("me/long", "main", TOKEN)


def test_a_page_of_a_long_session_reads_less_than_a_megabyte(library: SpaceLibrary) -> None:
    id = long_session().trace_id
    shown = ReviewDesk(library).show({"view": "sessions", "session": id, "at": "701"}, TOKEN)
    source = opened(library).source
    assert sum(size for _, size, _ in source.places.values()) > 5_000_000
    assert source.num_bytes < 1_000_000
    detail = shown.detail or ""
    assert "Steps 601 to 800 of 2,500" in detail
    assert detail.index("And now the weeks.") < detail.index("String to replace not found.")
    assert detail.index("String to replace not found.") < detail.index("Read the file first.")
    assert "Fix bug 5." in detail
    assert 'href="./?dataset=me%2Flong&amp;revision=main&amp;view=sessions&amp;session=' in detail
    assert detail.count("<li") < 260  # the quiet steps of a page, once each
    assert len(detail) < 300_000


def test_a_step_is_fetched_in_full_on_demand(library: SpaceLibrary) -> None:
    trace = long_session()
    parameters = {"view": "sessions", "session": trace.trace_id, "step": "3"}
    html = ReviewDesk(library).text(parameters, TOKEN)["html"]
    assert trace.messages[trace.steps[3].results[0]].content[:100] in html
    assert "cat file3.py" in html


@pytest.mark.parametrize("at", ["", "x", "-1", "999999999999", "2499"])
def test_every_address_of_a_session_shows_a_page(library: SpaceLibrary, at: str) -> None:
    shown = ReviewDesk(library).show({"view": "sessions", "session": long_session().trace_id, "at": at}, TOKEN)
    assert "The task" in (shown.detail or "")


def test_the_list_begins_with_the_errors_and_finds_words(library: SpaceLibrary) -> None:
    desk = ReviewDesk(library)
    first = desk.show({"view": "sessions"}, TOKEN)
    assert (first.list_ or "").index(long_session().trace_id) < (first.list_ or "").index(make_trace(6).trace_id)
    assert "1 session<" in (desk.show({"view": "sessions", "session_q": "bug 6"}, TOKEN).list_ or "")
    assert "No session has these words" in (desk.show({"view": "sessions", "session_q": "%"}, TOKEN).list_ or "")


@pytest.mark.parametrize(
    "message",
    [
        Message("assistant", "Words only."),
        Message("assistant", "", (ToolCall("Bash", {"command": "ls\n{}"}), ToolCall("Read", {}))),
        Message("assistant", 'Two lines,\n{"name": 1}', (ToolCall("Bash", "not an object"),)),
        Message("assistant", ""),
    ],
)
def test_an_action_is_read_back_from_its_text(message: Message) -> None:
    read = acted(action_text(message))
    calls = [(one["function"]["name"], one["function"]["arguments"]) for one in read["tool_calls"]]
    assert (read["content"], calls) == (message.content, [(call.name, call.arguments) for call in message.tool_calls])


def test_rows_are_found_in_every_part_of_a_growing_dataset(where: hub.HubDestination) -> None:
    traces = [make_trace(number) for number in range(40, 52)]
    card = trace_card("me/parts", "mit", _Zeros(), redacted=True)
    for part in (traces[::2], traces[1::2]):
        draft = hub.Draft(trace_tables(lambda part=part: iter(part)), card, adds=True)
        hub.update(where, "me/parts", lambda before, draft=draft: draft)
    library = SpaceLibrary(["me/parts@main"], endpoint=where.api.endpoint)
    dataset = library.open("me/parts", "main", TOKEN)
    assert [len(dataset.groups("steps")), len(dataset.indexes("traces"))] == [2, 2]
    desk = ReviewDesk(library)
    for trace in traces:
        assert heavy.trace(library, dataset, trace.trace_id) is not None
        detail = desk.show({"view": "sessions", "session": trace.trace_id}, TOKEN).detail or ""
        assert trace.messages[1].content in detail
    library.db.close()


def test_each_thread_that_shares_a_file_has_its_own_position() -> None:
    source = RangeSource("http://127.0.0.1:1", "me/x", "main", None)
    source.place = lambda path: ("", 100)  # type: ignore[method-assign]
    source.read = lambda path, start, stop: bytes(range(start, stop))  # type: ignore[method-assign]
    file, found = RangeFile(source, "x"), []
    file.seek(10)

    def read() -> None:
        found.append(file.read(2))
        file.seek(50)
        found.append(file.read(2))

    other = threading.Thread(target=read)
    other.start()
    other.join()
    assert found == [bytes([0, 1]), bytes([50, 51])]
    assert file.read(2) == bytes([10, 11])


# ------------------------------------------------------------------------------------------------------ runs and tasks


def rollout(id: str, prompt: str = "p", step: int = 1, **episode: Any) -> dict[str, Any]:
    """Return a rollout of the list."""
    return {
        "trace_id": id, "policy_step": step, "prompt": prompt, "advantage": float(len(id)), "rewards": {"tests": 1.0},
        "num_sites": 0, "num_hints": 0, "num_turns": 1, "environment": "coding", "episode": episode,
    }  # fmt: skip


def test_a_rollout_stands_beside_those_of_its_step_and_prompt_alone() -> None:
    rows = [rollout("a"), rollout("bbb"), rollout("cc"), rollout("d", prompt="q"), rollout("e", step=2)]
    assert [row["trace_id"] for row in view_runs.beside(rows, "a")] == ["a", "bbb", "cc"]
    assert view_runs.beside(rows, "nowhere") == []


@pytest.mark.parametrize(
    ("hack", "found"),
    [
        ([{"rule": "frames", "evidence": "a.py: f_back"}], [("frames", "a.py: f_back")]),
        ('[{"rule": "exit"}]', [("exit", "")]),
        (["words", 3], [("words", ""), ("3", "")]),
        (None, []),
        ({"rule": "x"}, []),
    ],
)
def test_findings_are_read_whatever_an_environment_wrote(hack: Any, found: list[tuple[str, str]]) -> None:
    assert view_runs.findings_of(rollout("a", hack=hack)) == found


def test_a_task_shows_what_rollouts_made_of_it() -> None:
    finding = [{"rule": "only-visible", "evidence": "The hidden calls do not pass."}]
    tried = [
        rollout("a", reward=1.0, visible_reward=1.0),
        rollout("b", reward=0.5, visible_reward=1.0, hack=finding),
        rollout("c", reward="lost"),
    ]
    assert view_tasks.solve_rate(tried) == 0.5
    assert view_tasks.solve_rate([]) is None
    row = {"task_id": stable_id("t"), "kind": "stub", "package": "p", "version": "1", "statement": "Do it.",
           "statements": [], "symbols": [], "difficulty": 0.5, "has_oracle": True, "license": "MIT", "validation": "{}",
           "fail_to_pass": [], "pass_to_pass": [], "edits": [], "solution": [], "help_level": 1}  # fmt: skip
    shown = view_tasks.task_detail(row, {"dataset": "me/t"}, tried)
    assert "only-visible" in shown
    assert "The hidden calls do not pass." in shown
    assert "<b>0.25</b><span>visible minus hidden reward, mean</span>" in shown
    listed = view_tasks.task_list([row, row | {"has_oracle": False}], {}, "", {row["task_id"]: tried})
    assert "2 tasks, 50% with a hidden oracle" in listed
