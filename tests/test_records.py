"""Records go to rows, through Parquet, and back without a change."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.hub import decode_rows
from composer_hub.hub.tables import to_arrow
from composer_hub.records import (
    ErrorSite,
    Hint,
    Message,
    Pair,
    SourceEdit,
    StepRow,
    Task,
    ToolCall,
    Trace,
    Vote,
    action_text,
    features_of,
    from_row,
    num_prompt_chars,
    prompt_of,
    ranges,
    stable_id,
    states,
    step_row,
    step_rows,
    to_row,
)
from tests.factories import call, make_pair, make_trace, result
from tests.quick import cases

STABLE = cases(60)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
arguments = st.dictionaries(st.sampled_from(["command", "path", "limit", "flags"]), json_values, max_size=3)


def through_parquet(record: Any) -> Any:
    table = to_arrow([to_row(record)], features_of(type(record)))
    (row,) = decode_rows(table.to_batches()[0])
    return from_row(type(record), row)


@STABLE
@given(st.lists(arguments, min_size=1, max_size=3))
def test_tool_arguments_of_mixed_types_come_back_exactly_and_in_order(all_arguments: list[dict[str, Any]]) -> None:
    calls = tuple(ToolCall("tool", value, f"c{i}") for i, value in enumerate(all_arguments))
    pair = make_pair(chosen=(Message("assistant", tool_calls=calls),))
    back = through_parquet(pair)
    assert back == pair
    assert [list(call.arguments) for call in back.chosen[0].tool_calls] == [list(value) for value in all_arguments]


def test_every_record_class_survives_parquet() -> None:
    site = ErrorSite("edit_no_match", "model", "flag", 0.9, "claude.edit_no_match", "Edit", "c1", "String not found")
    hint = Hint("Re-read the file.", "template", "edit_no_match", 1, "edit_no_match", "c1")
    trace = make_trace(1)
    trace = dataclasses.replace(
        trace,
        steps=(dataclasses.replace(trace.steps[0], error_sites=(site,), hints=(hint,)), *trace.steps[1:]),
        resolved=False,
        provenance={"file": "abc", "lines": 3},
    )
    vote = Vote("v", "t", "s", 0, "teacher", "openai", "voted", call().to_chat(), "Bash ls", usage={"prompt_tokens": 5})
    edits = (SourceEdit("a.py", "def f(): ...\n"), SourceEdit("b.py", None))
    task = Task("t", "stub", "tiny", "1.0", "0a", "mit", False, "Restore.", ("f fails", "Restore."), 1, edits,
                edits[:1], ("a.py",), ("t.py",), ("t.py::a",), ("t.py::b",), leaks={"copies": []})  # fmt: skip
    for record in (trace, vote, task, make_pair(), step_row(trace, trace.steps[0])):
        assert through_parquet(record) == record


def test_an_integer_beyond_64_bits_becomes_text_so_that_the_row_still_loads() -> None:
    back = through_parquet(make_pair(chosen=(call(number=2**80),)))
    assert back.chosen[0].tool_calls[0].arguments == {"number": str(2**80)}


def test_a_message_has_no_empty_keys_in_chat_form() -> None:
    assert Message("user", "hi").to_chat() == {"role": "user", "content": "hi"}
    assert result().to_chat() == {"role": "tool", "content": "ok", "tool_call_id": "c1", "name": "Bash"}


def test_a_row_that_spells_out_missing_keys_as_none_reads_the_same() -> None:
    row = {"role": "assistant", "content": None, "tool_calls": None, "tool_call_id": None, "name": None}
    assert Message.from_chat(row) == Message("assistant")


def test_reasoning_can_be_left_out_of_the_chat_form() -> None:
    message = Message("assistant", "done", reasoning_content="thinking")
    assert "reasoning_content" not in message.to_chat(reasoning=False)
    assert Message.from_chat(message.to_chat()) == message


def test_a_newer_row_with_an_unknown_column_still_reads() -> None:
    row = to_row(make_pair()) | {"column_of_tomorrow": 1}
    assert from_row(Pair, row) == make_pair()


def test_an_older_row_without_a_defaulted_column_still_reads() -> None:
    row = to_row(make_pair())
    del row["license"]
    assert from_row(Pair, row).license == ""


def test_ids_depend_on_content_only() -> None:
    assert stable_id("a", {"x": 1, "y": 2}) == stable_id("a", {"y": 2, "x": 1})
    assert stable_id("a") != stable_id("b")
    assert stable_id("a", "b") != stable_id("ab")


def test_ids_are_the_same_in_another_process() -> None:
    code = "from composer_hub.records import stable_id; print(stable_id('x', {'é': [1, None]}))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == stable_id("x", {"é": [1, None]})


def test_a_state_holds_the_messages_before_its_action() -> None:
    trace = make_trace()
    first, second = states(trace)
    assert first.messages == trace.messages[:2]
    assert second.messages == trace.messages[:4]
    assert second.student_action == action_text(trace.messages[4])
    assert second.state_id == trace.steps[1].step_id


def test_states_leave_out_prompts_longer_than_the_window() -> None:
    trace = make_trace()
    limit = num_prompt_chars(trace, trace.steps[0])
    assert [state.step.index for state in states(trace, max_chars=limit)] == [0]


def test_the_rows_of_a_trace_are_the_rows_of_its_steps() -> None:
    trace = make_trace()
    assert list(step_rows(trace)) == [step_row(trace, step) for step in trace.steps]


@STABLE
@given(st.lists(st.integers(0, 30), max_size=20))
def test_ranges_keep_every_index_in_order(indices: list[int]) -> None:
    assert [i for start, stop in ranges(indices) for i in range(start, stop)] == indices


def test_a_prompt_may_jump_over_messages() -> None:
    trace = make_trace()
    step = dataclasses.replace(trace.steps[1], prompt=((0, 1), (2, 4)))
    assert prompt_of(trace, step) == (trace.messages[0], *trace.messages[2:4])


@pytest.mark.parametrize("cls", [Trace, StepRow, Vote, Pair, Task])
def test_features_name_every_field_in_order(cls: type) -> None:
    assert list(features_of(cls)) == [field.name for field in dataclasses.fields(cls)]
