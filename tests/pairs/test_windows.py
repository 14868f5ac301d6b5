"""Windows: what a prompt keeps when it is too long, and what its row says about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub import pairs
from composer_hub.pairs.prompts import NO_RESULT
from composer_hub.pairs.rows import ASIDE
from composer_hub.pairs.windows import Window, estimate, is_supported, num_tokens, window_of
from composer_hub.records import MARKER, Message, ToolCall, from_row, to_row
from tests.quick import cases

stable = cases(60)


def session(num_groups: int, *, users: Sequence[int] = (), size: int = 90, system: bool = True) -> list[Message]:
    """Return a prompt with groups of a call and two results, and later words of the user before some of them."""
    messages = [Message("system", "You code in /repo.")] if system else []
    messages.append(Message("user", "Fix it."))
    for number in range(num_groups):
        if number in users:
            messages.append(Message("user", f"And {number}."))
        calls = tuple(ToolCall("Read", {"path": f"{number}.{at}"}, f"c{number}.{at}") for at in range(2))
        messages.append(Message("assistant", "", calls))
        messages += [Message("tool", "é" * size, tool_call_id=call.call_id) for call in calls]
    return messages


def up_to(limit: int) -> Callable[[Sequence[Message]], bool]:
    return lambda messages: num_tokens(messages) <= limit


def fitted(messages: Sequence[Message], fits: Callable[[Sequence[Message]], bool]) -> Window:
    """Return the window of a prompt whose answers depend on nothing."""
    return window_of(messages, (), (), lambda view, _: fits(view))


def test_a_prompt_that_fits_stays_as_it_is() -> None:
    messages = session(3)
    assert fitted(messages, up_to(10_000)) == fitted(messages, lambda _: True)
    assert fitted(messages, up_to(10_000)).messages == tuple(messages)


def test_a_window_keeps_system_task_the_latest_words_and_whole_groups_of_calls() -> None:
    messages = session(20, users=(4, 9))
    window = fitted(messages, up_to(600))
    kept = [message.content for message in window.messages if message.role in ("system", "user")]
    assert kept == ["You code in /repo.", f"Fix it.\n\n{MARKER}", *(f"And {at}.\n\n{MARKER}" for at in (4, 9))]
    end = window.messages[4:]
    assert end == tuple(messages[-len(end) :])
    assert len(end) > 3
    assert end[0].tool_calls
    assert window.num_left_out == len(messages) - len(window.messages)
    assert num_tokens(window.messages) <= 600 < num_tokens(window.messages) + num_tokens(messages[-3:])


def test_the_shortest_window_is_returned_if_none_fits() -> None:
    messages = session(5)
    assert fitted(messages, lambda _: False).messages[2:] == tuple(messages[-3:])
    alone = [Message("user", "x" * 400)]  # no text is cut below 500 characters
    assert fitted(alone, lambda _: False).messages == tuple(alone)
    (long,) = fitted([Message("user", "x" * 900)], lambda _: False).messages
    assert len(long.content) < 600
    assert fitted([], lambda _: False).messages == ()


def test_a_window_without_words_of_the_user_begins_with_the_marker() -> None:
    messages = session(5)[2:]
    assert fitted(messages, up_to(200)).messages[0] == Message("user", MARKER)


@stable
@given(
    st.integers(0, 30), st.sets(st.integers(0, 30), max_size=3), st.integers(0, 200), st.booleans(),
    st.integers(0, 3000), st.integers(0, 3000),
)  # fmt: skip
def test_a_window_of_a_window_is_the_window_of_the_whole(
    num_groups: int, users: set[int], size: int, system: bool, one: int, other: int
) -> None:
    messages = session(num_groups, users=sorted(users), size=size, system=system)
    wide, narrow = max(one, other), min(one, other)
    first = fitted(messages, up_to(wide))
    second, direct = fitted(first.messages, up_to(narrow)), fitted(messages, up_to(narrow))
    assert second.messages == direct.messages
    assert first.num_left_out + second.num_left_out == direct.num_left_out
    results = [message.tool_call_id for message in direct.messages if message.role == "tool"]
    calls = [call.call_id for message in direct.messages for call in message.tool_calls]
    assert results == calls


def test_a_pair_records_its_window_and_the_card_counts_it(
    make_trace: Callable[..., Any], make_vote: Callable[..., Any]
) -> None:
    look, read = ("Bash", {"command": "ls"}), ("Read", {"file_path": "/repo/a.py"})
    trace = make_trace(*[look] * 6, results=["x" * 3000] * 6)
    votes = [make_vote(trace, index, teacher, read) for index in range(6) for teacher in ("a-x", "b-x")]
    made = pairs.make([trace], votes, pairs.PairOptions(max_tokens=3000, keep=ASIDE))
    rows = list(made.pairs)
    assert [pair.num_left_out for pair in rows] == [0, 0, 0, 2, 4, 6]
    assert all(pair.num_tokens <= 3000 for pair in rows)
    assert all(from_row(type(pair), to_row(pair)) == pair for pair in rows)
    draft = pairs.draft(made, "small")
    assert "Cut: 3 of 6 pairs." in draft.card.holes["policy"]
    assert "`up to 4,096` | 4 |" in draft.card.holes["report"]
    whole = pairs.make([trace], votes, pairs.PairOptions(max_tokens=0, keep=ASIDE))
    assert [pair.num_left_out for pair in whole.pairs] == [0] * 6
    assert max(pair.num_tokens for pair in whole.pairs) > 3500


@pytest.mark.parametrize("limit", [1, 50])
def test_a_pair_that_no_window_fits_keeps_its_shortest_one(
    make_trace: Callable[..., Any], make_vote: Callable[..., Any], limit: int
) -> None:
    trace = make_trace(*[("Bash", {"command": "ls"})] * 3)
    votes = [make_vote(trace, 2, teacher, ("Read", {"file_path": "a"})) for teacher in ("a-x", "b-x")]
    made = pairs.make([trace], votes, pairs.PairOptions(max_tokens=limit, keep=ASIDE))
    notes: list[str] = []
    pairs.draft(made, "small", on_note=notes.append)
    assert any(note.startswith(f"Longer than {limit} tokens even as a window: 1 of 1 pair.") for note in notes)
    assert "3 steps gave 1 pair;" in " ".join(notes)
    (pair,) = made.pairs
    assert len(pair.prompt) == 4
    assert pair.num_tokens > limit


# ---------------------------------------------------------------------------------------------------------- evidence

READ = "".join(f"{number:>6}→    line {number} of the file\n" for number in range(1, 2000))


def long_session(*evidence: Message) -> list[Message]:
    """Return a session with two messages in the middle and 40 long groups behind them."""
    behind = session(40, size=400)[2:]
    return [*session(3), *evidence, *behind]


def shown_in(messages: Sequence[Message], action: Message, limit: int, tools: Sequence[Any] = ()) -> Any:
    return window_of(messages, [action], tools, lambda *view: estimate(*view, [action]) <= limit)


def call(name: str, **arguments: Any) -> Message:
    return Message("assistant", "", (ToolCall(name, arguments, "c"),))


def replaced(old: str, new: str) -> Message:
    return call("Edit", file_path="src/a.py", old_string=old, new_string=new)


def result(text: str) -> Message:
    return Message("tool", text, tool_call_id="c")


EDITS = {
    "edit": call("Edit", file_path="/repo/a.py", old_string="    line 7 of the file\n    line 8 of", new_string="x"),
    "patch": call(
        "apply_patch", input="*** Begin Patch\n*** Update File: a.py\n@@\n-line 7 of the file\n+x\n*** End Patch"
    ),
    "shell": call("Bash", command="sed -n 1,20p src/a.py | head"),
    "multi": call("MultiEdit", file_path="a.py", edits=[{"old_string": "line 1900 of", "new_string": "y"}]),
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("limit", [1000, 4000])
def test_a_window_shows_what_an_action_depends_on(name: str, limit: int) -> None:
    messages = long_session(call("Read", file_path="src/a.py"), result(READ))
    window = shown_in(messages, EDITS[name], limit)
    assert estimate(window.messages, (), [EDITS[name]]) <= limit
    assert window.num_left_out
    assert is_supported(window.messages, EDITS[name], messages)
    assert window.num_shortened, "the file is longer than the window"
    assert "characters are left out here" in "".join(message.content for message in window.messages)


def test_an_action_is_supported_if_the_prompt_shows_its_texts_and_files() -> None:
    messages = [*session(2), call("Read", file_path="src/a.py"), result("12→def f():\n13→    return 1\n")]
    edit = call("Edit", file_path="/repo/src/a.py", old_string="def f():\n    return 1", new_string="")
    assert is_supported(messages, edit, messages)
    assert not is_supported(messages[:-1], edit, messages)
    assert not is_supported(messages, replaced("return 2", ""), messages)
    assert not is_supported(messages, call("Read", file_path="src/b.py"), messages)
    assert is_supported(messages, call("Write", file_path="src/new.py", content="x"), messages)
    command = "git diff main..HEAD > out.txt; pytest -q src/a.py; cp a.py b.py"
    assert is_supported(messages, call("Bash", command=command), messages)
    assert not is_supported(messages, call("Bash", command="cat src/other.py"), messages)
    assert is_supported(messages, Message("assistant", "done"), messages)


def test_a_name_that_the_session_showed_must_be_shown_and_a_new_one_need_not() -> None:
    shown = [*session(2), call("Read", file_path="src/a.py"), result("1→return 1\n")]
    whole = [*session(1), result("MAX_AGE = 2554"), *shown[1:]]
    assert is_supported(shown, replaced("return 1", "return MIN_AGE"), whole)
    assert not is_supported(shown, replaced("return 1", "return MAX_AGE"), whole)
    assert not is_supported(shown, replaced("return 1", "return 2554"), whole)
    assert is_supported(whole, replaced("return 1", "return MAX_AGE"), whole)


@pytest.mark.parametrize("limit", [1300, 4000])
def test_a_window_shows_the_names_of_the_action_to_learn(limit: int) -> None:
    log = "".join(f"entry {number} says nothing\n" for number in range(999))
    messages = long_session(
        call("Bash", command="cat log"), result(f"{log}MAX_AGE = 2554\n{log}"),
        *session(3)[2:], Message("user", "Keep sessions for 4711 days."), *session(3)[2:],
        call("Read", file_path="src/a.py"), result(READ),
    )  # fmt: skip
    action = replaced("line 7 of the file", "oldest = MAX_AGE or 2554")
    window = shown_in(messages, action, limit)
    texts = "".join(message.content for message in window.messages)
    assert estimate(window.messages, (), [action]) <= limit
    assert "MAX_AGE = 2554" in texts
    assert is_supported(window.messages, action, messages)
    assert "4711 days" in texts, "words of the user come next"


def test_an_action_is_not_supported_without_the_results_of_the_last_calls() -> None:
    action = call("Read", file_path="1.0")
    assert is_supported(session(2), action, session(2))
    unknown = [*session(2), call("Bash", command="ls"), result(NO_RESULT)]
    assert not is_supported(unknown, action, unknown)
    later = [*unknown, Message("user", "Stop that.")]
    assert is_supported(later, action, later)


def test_cursors_edit_needs_its_old_text() -> None:
    edit = call("StrReplace", path="1.0", old_string="def f():", new_string="def g():")
    assert not is_supported(session(2), edit, session(2))


@pytest.mark.parametrize(("path", "shown"), [("/repo/new/a.py", True), ("/other/a.py", False), ("a.py", True)])
def test_the_folders_of_an_absolute_path_must_be_shown(path: str, shown: bool) -> None:
    messages = [*session(1), result("new/a.py")]
    assert is_supported(messages, call("Read", file_path=path), messages) == shown


def test_an_empty_message_and_what_a_harness_adds_are_not_the_users_words() -> None:
    for text in (" \n", "<system-reminder>\nUse skills.\n</system-reminder>"):
        messages = [*session(2), Message("user", text), *session(8, size=400)[2:]]
        window = fitted(messages, up_to(500))
        assert [message.content for message in window.messages if message.role == "user"] == [f"Fix it.\n\n{MARKER}"]


def test_what_an_earlier_patch_wrote_is_shown() -> None:
    patch = "*** Begin Patch\n*** Add File: a.py\n+def f():\n+    return 1\n*** End Patch"
    edit = call("Edit", file_path="a.py", old_string="def f():\n    return 1\n", new_string="")
    messages = [*session(2), call("apply_patch", input=patch), result("Done")]
    assert is_supported(messages, edit, messages)


def test_tools_that_are_not_called_leave_a_window_and_not_a_whole_prompt() -> None:
    tools = [{"type": "function", "function": {"name": name, "description": "d" * 900}} for name in ("Read", "Other")]
    action = call("Read", path="1.0")
    whole = shown_in(session(3), action, 10_000, tools)
    assert [tool["function"]["name"] for tool in whole.tools] == ["Read", "Other"]
    window = shown_in(session(3), action, 900, tools)
    assert [tool["function"]["name"] for tool in window.tools] == ["Read"]
    assert estimate(window.messages, window.tools, [action]) <= 900


@stable
@given(st.integers(1, 40), st.integers(0, 5000), st.integers(1, 6000), st.integers(0, 2000))
def test_a_window_keeps_evidence_whatever_its_size(num_groups: int, size: int, limit: int, line: int) -> None:
    shown = Message("user", "".join(f"line {number} of the file\n" for number in range(2001)))
    action = call("Edit", file_path="9.1", old_string=f"line {line} of the file", new_string="x")
    messages = [*session(10, size=size), shown, *session(num_groups, size=size)[2:]]
    window = shown_in(messages, action, limit)
    assert is_supported(window.messages, action, messages)
    results = [message.tool_call_id for message in window.messages if message.role == "tool"]
    assert results == [one.call_id for message in window.messages for one in message.tool_calls]


def test_a_tokenizer_counts_in_place_of_the_estimate(
    make_trace: Callable[..., Any], make_vote: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    from composer_hub.train.tiny import small_model

    _, tokenizer = small_model()
    trace = make_trace(*[("Bash", {"command": "ls"})] * 4, results=["é" * 900] * 4)
    votes = [make_vote(trace, 3, teacher, ("Read", {"file_path": "a.py"})) for teacher in ("a-x", "b-x")]
    made = pairs.make([trace], votes, pairs.PairOptions(max_tokens=1500, tokenizer=tokenizer))
    (pair,) = made.pairs
    text = tokenizer.apply_chat_template(
        [one.to_chat() for one in (*pair.prompt, *pair.chosen)], tools=list(pair.tools), tokenize=False
    )
    assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) <= pair.num_tokens <= 1500
    assert pair.num_left_out or pair.num_shortened
    assert pairs.draft(made, "small").lineage.config["max_tokens"] == 1500
