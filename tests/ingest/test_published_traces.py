"""Traces that composer_hub published, read again: nothing is lost but what redaction takes out, and what spells it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from composer_hub.hub.tables import build
from composer_hub.ingest.dataset import TraceCounts, numbers_of, trace_tables
from composer_hub.ingest.one_file import ReadOptions
from composer_hub.ingest.prepare import Preparation
from composer_hub.ingest.readers import published_traces
from composer_hub.ingest.reading import Reading
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.sources import HEAD_BYTES, sniff
from composer_hub.records import ErrorSite, Hint, Message, Step, ToolCall, Trace, from_row, states, to_row
from composer_hub.redact import Redactor, rules_digest, without_tokens_of_changed_text
from tests.ingest.test_fuzz import mutated
from tests.quick import cases

SALT = b"0" * 32
SECRET = "ghp_" + "Zq3vT9xLw2Rk8Yb5Nc7Jd1Hf6Gs4Pm0Ae9Qu"[:36]
TOKENS = {
    "prompt_ids": [1, 2, 3], "completion_ids": [4, 5, 6, 7], "tool_mask": [1, 1, 0, 1],
    "logps": [-0.5, -1 / 3, 0.0, -2.25], "turns": [[0, 2], [3, 4]], "token_uplift": [0.25, None, None, 0.5],
}  # fmt: skip


def rollout(number: int = 0, said: str = "three files", **changes: Any) -> Trace:
    """Return a rollout as the trainer exports it: a wrong call, its hint, and an answer."""
    call = ToolCall("plus", {"b": 2**40, "a": 1 / 3, "deep": {"list": [None, True, {}]}, "empty": ""}, "call_1")
    messages = (
        Message("user", "How many files are there?"),
        Message("assistant", "", (call,), reasoning_content="I add them up."),
        Message("tool", said, tool_call_id="call_1", name="plus"),
        Message("assistant", "Three."),
    )
    site = ErrorSite("tool_not_found", "model", "flag", 0.97, "rollout.tool_not_found", "plus", "call_1", said)
    hint = Hint("Reminder: there is add.", "template", "tool_not_found", 2, "tool_not_found", "call_1")
    steps = (
        Step(f"step-{number}-0", 0, 1, ((0, 1),), (2,), "me/student", "qwen", error_sites=(site,), hints=(hint,)),
        Step(f"step-{number}-1", 1, 3, ((0, 3),), (), "me/student", "qwen", prefix_exact=False, prefix_reason="why"),
    )
    trace = Trace(
        trace_id=f"trace-{number}", source="composer_rollout", session_id=f"run-0-{number}", messages=messages,
        steps=steps, tools=({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}},),
        tools_source="recorded", model="me/student", family="qwen", parent_trace_id="trace-of-the-parent",
        spawn_call_id="call_9", license="apache-2.0",
        provenance={
            "run_id": "r", "tokenizer": "0a1b", "rewards": {"f": 1.0, "g": None}, "writers": ["template"],
        } | TOKENS,
    )  # fmt: skip
    return dataclasses.replace(trace, **changes)


def as_parquet(folder: Path, *traces: Trace) -> Path:
    """Write the files of a published version and return the one with the traces."""
    for table in trace_tables(lambda: iter(traces)):
        build(table, folder)
    return next(path for path in folder.rglob("*.parquet") if sniff(b"PAR1", path))


def as_lines(folder: Path, *rows: Any) -> Path:
    """Write rows as a training run does while it goes on."""
    path = folder / "rank000-00000.jsonl"
    path.write_text("".join(json.dumps(to_row(row) if isinstance(row, Trace) else row) + "\n" for row in rows))
    return path


def read(path: Path) -> tuple[list[Trace], FileReport]:
    report = FileReport(str(path))
    with path.open("rb") as file:
        source = sniff(file.read(HEAD_BYTES), path)
    assert source is not None
    assert source.name == "composer_hub"
    return [session.trace for session in source.read(path, report)], report


def ingested(*paths: Path) -> list[Trace]:
    return [session.trace for session in Reading(paths, ReadOptions(transform=Preparation(Redactor(SALT))))]


# ---------------------------------------------------------------------------------------------------------- round trip


@pytest.mark.parametrize("write", [as_parquet, as_lines])
@pytest.mark.parametrize("trace", [
    rollout(),
    rollout(resolved=False, redaction="rules-1", counts={"num_steps": 2, "redactions": {"email": 3}}),
    rollout(provenance={}, tools=(), cwd="/w", repository="a/b", system_prompt_source="synthetic"),
    rollout(said="x" * 200_000),
], ids=["a rollout", "a redacted trace", "other columns", "a row longer than a head"])  # fmt: skip
def test_a_published_trace_comes_back_field_by_field(trace: Trace, write: Any, tmp_path: Path) -> None:
    (back,), report = read(write(tmp_path, trace))
    for column in dataclasses.fields(Trace):
        assert getattr(back, column.name) == getattr(trace, column.name), column.name
    assert list(back.messages[1].tool_calls[0].arguments) == ["b", "a", "deep", "empty"]  # as templates render them
    assert (report.counts["traces"], report.counts["steps"], report.counts["calls"]) == (1, 2, 1)


def test_only_the_table_of_traces_is_read_of_a_published_folder(tmp_path: Path) -> None:
    as_parquet(tmp_path, rollout(1), rollout(2))
    ingest = Reading([tmp_path])
    assert {session.trace.trace_id for session in ingest} == {"trace-1", "trace-2"}
    assert ingest.report.counts["read"] == 1


def test_rollouts_that_say_the_same_are_all_kept_and_a_trace_named_twice_is_kept_once(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v2").mkdir()
    first = as_parquet(tmp_path / "v1", rollout(1), rollout(2))
    second = as_parquet(tmp_path / "v2", rollout(1), rollout(2), rollout(3))
    assert sorted(trace.trace_id for trace in ingested(first, second)) == ["trace-1", "trace-2", "trace-3"]


def test_of_a_rollout_that_a_resumed_run_wrote_again_the_later_one_counts(tmp_path: Path) -> None:
    path = as_lines(tmp_path, rollout(1, said="before"), rollout(2), rollout(1, said="after"))
    traces, report = read(path)
    assert [(trace.trace_id, trace.messages[2].content) for trace in traces] == [
        ("trace-2", "three files"),
        ("trace-1", "after"),
    ]
    assert report.counts["duplicate_lines"] == 1


def test_other_rows_with_the_same_names_are_not_published_traces(tmp_path: Path) -> None:
    row = {"trace_id": "t", "source": "app", "session_id": "s", "messages": [{"role": "user", "content": "Hi"}]}
    others: list[dict[str, Any]] = [row | {"metadata": {}}, {"name": "x"} | row]
    for other in others:
        head = json.dumps(other).encode()
        source = sniff(head, tmp_path / "none")
        assert source is not None
        assert source.name == "chat_rows"


# ----------------------------------------------------------------------------------------------------------- redaction


def test_a_secret_in_a_tools_answer_is_gone_and_so_are_the_tokens_that_spell_it(tmp_path: Path) -> None:
    leaking, clean = rollout(1, said=f"export GITHUB_TOKEN={SECRET}"), rollout(2)
    found = {trace.trace_id: trace for trace in ingested(as_parquet(tmp_path, leaking, clean))}
    after = found["trace-1"]
    assert SECRET not in json.dumps(to_row(after))
    assert after.redaction == rules_digest()
    assert {name: after.provenance[name] for name in TOKENS} == {name: [] for name in TOKENS}
    assert after.provenance["tokenizer"] == ""  # so that training tokenizes its messages again
    assert after.provenance.keys() >= leaking.provenance.keys()
    assert after.provenance["writers"] == ["template"]
    assert after.provenance["rewards"] == {"f": 1.0, "g": None}
    (site,), (before,) = after.steps[0].error_sites, leaking.steps[0].error_sites
    assert site == dataclasses.replace(before, message=site.message)
    assert "[SECRET_" in site.message
    assert after.steps[0].hints == leaking.steps[0].hints

    kept = found["trace-2"]
    assert kept.provenance == clean.provenance | {"file_digest": kept.provenance["file_digest"]}
    assert dataclasses.replace(kept, redaction="", provenance=clean.provenance, counts={}) == clean

    tally = TraceCounts()
    for session in Reading([tmp_path], ReadOptions(transform=Preparation(Redactor(SALT)))):
        tally.add(session.trace)
    numbers = numbers_of(FileReport(), tally)
    assert (numbers["tokens_dropped"], numbers["unredacted"]) == (1, 0)
    assert (numbers["messages"], numbers["steps"], numbers["calls"], numbers["results"]) == (8, 4, 2, 2)


@pytest.mark.parametrize(
    "part", [{"messages": (Message("user", "other"),)}, {"tools": ({"type": "function"},)}, {"steps": ()}],
    ids=["messages", "tools", "steps"],
)  # fmt: skip
def test_any_changed_text_drops_every_list_of_numbers(part: dict[str, Any]) -> None:
    before = rollout(provenance={"a": {"ids": [1]}, "b": [[1], []], "c": [], "d": "x", "e": 3, "f": [None, 2]})
    after = without_tokens_of_changed_text(before, dataclasses.replace(before, **part))
    assert after.provenance == {"a": {"ids": []}, "b": [], "c": [], "d": "x", "e": 3, "f": []}
    assert after.counts["token_columns_dropped"] == 3
    elsewhere = dataclasses.replace(before, cwd="/home/[USER_1]")
    assert without_tokens_of_changed_text(before, elsewhere) is elsewhere


def test_a_version_that_is_read_again_says_what_was_replaced_at_first_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    once = ingested(as_parquet(tmp_path / "a", rollout(1, said=f"export GITHUB_TOKEN={SECRET}")))
    assert once[0].counts["redactions"]["secret"] > 0
    assert ingested(as_parquet(tmp_path / "b", *once)) == once


# ------------------------------------------------------------------------------------------------------------ bad rows


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def changed(**columns: Any) -> dict[str, Any]:
    return json.loads(json.dumps(to_row(rollout()))) | columns


def step(**columns: Any) -> dict[str, Any]:
    first, second = changed()["steps"]
    return changed(steps=[first | columns, second])


@pytest.mark.parametrize(("row", "said"), [
    (changed(trace_id=""), "trace_id is empty"),
    (changed(model=7), "model is int, not str"),
    (changed(messages="[{"), "and was left out"),
    (changed(messages=[None]), "messages is NoneType, not Message"),
    (changed(messages=[{"content": "x"}]), "'role' is missing"),
    (changed(messages=[{"role": "user", "content": [1]}]), "messages.content is list, not str"),
    (changed(messages=[{"role": "root", "content": "x"}]), "'root' is no role"),
    (step(action=-1), "the action of step 0 is no message of the assistant"),
    (step(action=4), "the action of step 0 is no message of the assistant"),
    (step(action=0), "the action of step 0 is no message of the assistant"),
    (step(index=-1), "step 0 is numbered -1"),
    (step(prompt=[[0, 2]]), "the prompt of step 0 does not end before its action"),
    (step(prompt=[[-1, 1]]), "the prompt of step 0 does not end before its action"),
    (step(prompt=[[1, 0]]), "the prompt of step 0 does not end before its action"),
    (step(prompt=[[0]]), "the prompt of step 0 does not end before its action"),
    (step(results=[4]), "the results of step 0 do not stand behind its action"),
    (step(results=[0]), "the results of step 0 do not stand behind its action"),
    (step(results=["2"]), "steps.results is str, not int"),
    (step(step_id="step-0-1"), "two steps have one id"),
    (step(hints=[{"text": 1}]), "and was left out"),
    (step(error_sites=["x"]), "and was left out"),
    (changed(counts={"note": SECRET}), "counts.note is no number"),
    (changed(counts={"redactions": {"email": "x"}}), "counts.redactions is no number"),
    (changed(provenance={"x": nested(300)}), "nested more than 200 levels deep"),
    (changed(provenance=[1]), "provenance is list, not dict"),
])  # fmt: skip
def test_a_broken_row_is_named_and_left_out(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    (trace,), report = read(as_lines(tmp_path, rollout(5), row))
    assert trace.trace_id == "trace-5"
    (problem,) = report.problems
    assert str(problem).startswith(f"{tmp_path}/rank000-00000.jsonl:2 is no trace that composer_hub published")
    assert said in str(problem)
    assert report.counts["corrupt"] == 1


@cases(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_wrong_values_cost_at_most_a_row_and_the_rest_can_be_redacted(tmp_path: Path, data: Any) -> None:
    rows = [mutated(to_row(rollout(number)), data) for number in (1, 2)]
    path = as_lines(tmp_path, rollout(0), *rows)
    report = FileReport(str(path))
    prepare = Preparation(Redactor(SALT))
    found = [prepare(session).trace for session in published_traces.read(path, report)]
    assert found[0].trace_id == "trace-0" or report.counts["duplicate_lines"]
    assert len(found) + report.counts["corrupt"] + report.counts["duplicate_lines"] + report.counts["no_steps"] == 3
    for trace in found:
        assert from_row(Trace, json.loads(json.dumps(to_row(trace)))) == trace
        assert list(states(trace))


def test_a_rollout_without_an_answer_has_no_step(tmp_path: Path) -> None:
    traces, report = read(as_lines(tmp_path, rollout(1), rollout(2, steps=())))
    assert [trace.trace_id for trace in traces] == ["trace-1"]
    assert report.counts["no_steps"] == 1
