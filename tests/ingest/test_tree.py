"""The walk from a tree to a trace: rules one by one, and what must hold for any tree at all."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from composer_hub.ingest.assemble import TraceFacts
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.tree import Node, build_session
from composer_hub.records import Message, ToolCall, prompt_of
from tests.quick import cases

FACTS = TraceFacts("test", "session")


def said(node_id, parent, text, **more):
    return Node(node_id, parent, (Message("user", text),), **more)


def answered(node_id, parent, text, turn="", calls=(), **more):
    message = Message("assistant", text, tuple(ToolCall("Bash", {}, call) for call in calls))
    return Node(node_id, parent, (message,), turn=turn or node_id, **more)


def result(node_id, parent, call, **more):
    return Node(node_id, parent, (Message("tool", f"out of {call}", tool_call_id=call),), **more)


def build(*nodes, report=None):
    return build_session([dataclasses.replace(node) for node in nodes], FACTS, report or FileReport())


def texts(session, index):
    return [m.content for m in prompt_of(session.trace, session.trace.steps[index])][1:]


def test_file_order_is_not_the_prompt():
    session = build(said("1", "", "q"), answered("2", "1", "a"), said("3", "2", "x"), answered("4", "3", "b"),
                    said("5", "2", "y"), answered("6", "5", "c"))  # fmt: skip
    assert texts(session, 2) == ["q", "a", "y"]


def test_a_missing_parent_is_bridged_and_the_prompts_below_say_so():
    report = FileReport()
    session = build(said("1", "", "q"), answered("2", "1", "a"), said("3", "gone", "r"), answered("4", "3", "b"),
                    report=report)  # fmt: skip
    assert texts(session, 1) == ["q", "a", "r"]
    assert [step.prefix_reason for step in session.trace.steps] == ["", "missing_parent"]
    assert report.counts["bridged"] == 1


def test_a_circle_of_parents_is_cut_open():
    report = FileReport()
    session = build(said("1", "3", "q"), answered("2", "1", "a"), said("3", "2", "r"), answered("4", "3", "b"),
                    report=report)  # fmt: skip
    assert texts(session, 1) == ["q", "a", "r"]
    assert report.counts["bridged"] == 1


def test_a_result_follows_its_call_even_if_words_came_between():
    session = build(said("1", "", "q"), answered("2", "1", "", calls=["c"]), said("3", "2", "note"),
                    result("4", "3", "c"), answered("5", "4", "done"))  # fmt: skip
    assert texts(session, 1) == ["q", "", "out of c", "note"]


def test_a_result_without_its_call_is_left_out_and_counted():
    report = FileReport()
    session = build(said("1", "", "q"), result("2", "1", "nowhere"), answered("3", "2", "a"), report=report)
    assert texts(session, 0) == ["q"]
    assert session.trace.steps[0].prefix_reason == "orphan_result"
    assert report.counts["orphan_results"] == 1
    assert all(message.role != "tool" for message in session.trace.messages)


def test_one_call_has_one_result_the_one_on_the_way():
    session = build(said("1", "", "q"), answered("2", "1", "", calls=["c"]), result("3", "2", "c"),
                    answered("4", "3", "first"), result("5", "2", "c"), answered("6", "5", "second"))  # fmt: skip
    second = session.trace.steps[2]
    assert [m.tool_call_id for m in prompt_of(session.trace, second)].count("c") == 1
    assert second.prompt[-1][1] - 1 not in session.trace.steps[0].results


def test_a_long_chain_needs_one_range_a_prompt():
    nodes = [said("0", "", "q")]
    for n in range(1, 400, 2):
        nodes += [answered(str(n), nodes[-1].node_id, "", calls=[f"c{n}"]), result(str(n + 1), str(n), f"c{n}")]
    session = build(*nodes)
    assert {len(step.prompt) for step in session.trace.steps} == {1}


def test_a_session_without_a_step_is_counted_and_left_out():
    report = FileReport()
    assert build(said("1", "", "q"), report=report) is None
    assert report.counts["no_steps"] == 1


# ------------------------------------------------------------------------------------------ for any tree at all

IDS = [str(n) for n in range(14)]


@st.composite
def trees(draw, keeps=False):
    """Draw nodes with parents from anywhere: before, behind, themselves, nowhere; compactions may keep any records."""
    nodes = []
    for node_id in IDS[: draw(st.integers(1, len(IDS)))]:
        parent = draw(st.sampled_from(["", "gone", *IDS, *IDS[max(0, len(nodes) - 2) : len(nodes)] * 6]))
        kind = draw(st.sampled_from(["user", "turn", "turn", "result", "result", "link", "cut"]))
        call = draw(st.sampled_from(["c1", "c2", "c3", "c4"]))
        if kind == "turn":
            calls = draw(st.lists(st.sampled_from(["c1", "c2", "c3", "c4"]), max_size=2, unique=True))
            turn = draw(st.sampled_from(["t1", "t2", "t3", node_id]))
            # A call belongs to one API message, as in real files.
            nodes.append(answered(node_id, parent, f"a{node_id}", turn, [f"{turn}{one}" for one in calls]))
        elif kind == "result":
            nodes.append(result(node_id, parent, draw(st.sampled_from(["t1", "t2", "t3"])) + call))
        elif kind == "link":
            nodes.append(Node(node_id, parent))
        else:
            kept = draw(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS))) if keeps and kind == "cut" else ("", "")
            nodes.append(said(node_id, parent, f"u{node_id}", cut=kind == "cut", kept=kept))
    return nodes


anything = cases(100)


@given(trees(keeps=True))
@anything
def test_a_prompt_ends_before_its_action_and_holds_no_message_twice(nodes):
    if (session := build(*nodes)) is None:
        return
    for step in session.trace.steps:
        indices = [at for start, stop in step.prompt for at in range(start, stop)]
        assert indices[0] == 0
        assert len(set(indices)) == len(indices)
        assert max(indices) < step.action
        assert session.trace.messages[step.action].role == "assistant"


@given(trees())
@anything
def test_every_result_follows_its_call(nodes):
    if (session := build(*nodes)) is None:
        return
    for step in session.trace.steps:
        asked = set()
        for message in prompt_of(session.trace, step):
            asked |= {call.call_id for call in message.tool_calls}
            assert message.role != "tool" or message.tool_call_id in asked
        called = {call.call_id for call in session.trace.messages[step.action].tool_calls}
        assert {session.trace.messages[at].tool_call_id for at in step.results} <= called


@given(trees())
@anything
def test_no_prompt_holds_words_from_before_its_boundary(nodes):
    if (session := build(*nodes)) is None:
        return
    by_id = {node.node_id: node for node in nodes}
    for step in session.trace.steps:
        first = session.trace.messages[step.action].content.split("\n")[0][1:]
        above, node, exact = set(), by_id[first], by_id[first].parent in by_id
        while exact and node.node_id not in above and not node.cut and node.parent:
            above.add(node.node_id)
            if exact := node.parent in by_id:
                node = by_id[node.parent]
        if not node.cut or step.prefix_reason:
            continue  # a bridged walk has no parents to compare with
        above.add(node.node_id)
        words = {m.content for m in prompt_of(session.trace, step) if m.role == "user"}
        assert words <= {f"u{one}" for one in above}


@given(trees())
@anything
def test_the_same_records_give_the_same_trace(nodes):
    first, second = build(*nodes), build(*nodes)
    assert first == second
    if first is not None:
        ids = [step.step_id for step in first.trace.steps]
        assert len(set(ids)) == len(ids)
        assert all(at < len(first.trace.messages) for at in first.flags)


# ------------------------------------------------------------------------------------- copies and results that are late


def test_one_message_id_on_both_sides_of_a_boundary_is_two_messages():
    session = build(said("1", "", "q"), answered("2", "1", "before", "m1"), Node("5", "", cut=True),
                    said("6", "5", "summary"), answered("7", "6", "after", "m1"), said("8", "7", "go on"),
                    answered("9", "8", "done", "m2"))  # fmt: skip
    assert texts(session, 2) == ["summary", "after", "go on"]
    assert [session.trace.messages[step.action].content for step in session.trace.steps] == ["before", "after", "done"]


def test_a_message_repeated_by_a_compaction_is_read_but_is_not_a_step():
    report = FileReport()
    session = build(said("1", "", "q"), answered("2", "1", "kept", "m1", ["c"]), result("3", "2", "c"),
                    Node("5", "", cut=True), said("6", "5", "summary"), answered("7", "6", "kept", "m1", ["c"]),
                    result("8", "7", "c"), answered("9", "8", "done", "m2"), report=report)  # fmt: skip
    assert texts(session, 1) == ["summary", "kept", "out of c"]
    assert len(session.trace.steps) == 2
    assert all(step.prefix_exact for step in session.trace.steps)
    assert report.counts["copied_messages"] == 1


def test_a_message_copied_under_a_new_id_is_not_doubled():
    session = build(said("1", "", "q"), answered("2", "1", "t", "m1"), said("1b", "", "q"),
                    answered("2b", "1b", "t", "m1"), answered("3", "2b", "u", "m2"))  # fmt: skip
    assert session.trace.messages[session.trace.steps[0].action].content == "t"


def test_a_call_without_a_result_makes_the_prompts_below_it_inexact():
    session = build(said("1", "", "q"), answered("2", "1", "", calls=["c1"]), said("3", "2", "never mind"),
                    answered("4", "3", "ok"), said("5", "4", "more"), answered("6", "5", "done"),
                    Node("7", "6", cut=True), said("8", "7", "summary"), answered("9", "8", "new"))  # fmt: skip
    assert [step.prefix_reason for step in session.trace.steps] == ["", "missing_result", "missing_result", ""]


def test_a_late_parallel_result_follows_its_call_from_then_on():
    session = build(said("1", "", "q"), answered("2", "1", "", "m1", ["c1"]), answered("3", "2", "", "m1", ["c2"]),
                    result("4", "3", "c2"), answered("5", "4", "meanwhile", "m2"), result("6", "2", "c1"),
                    said("7", "5", "and now"), answered("8", "7", "done", "m3"))  # fmt: skip
    assert texts(session, 1) == ["q", "", "out of c2"]
    assert texts(session, 2) == ["q", "", "out of c2", "out of c1", "meanwhile", "and now"]
    assert [step.prefix_reason for step in session.trace.steps] == ["", "missing_result", ""]


def test_an_id_that_every_message_reuses_belongs_to_the_call_above_its_result():
    session = build(said("1", "", "q"), answered("2", "1", "", "m1", ["call_0"]), result("3", "2", "call_0"),
                    answered("4", "3", "", "m2", ["call_0"]), result("5", "4", "call_0"), said("6", "5", "stop"),
                    answered("7", "6", "", "m3", ["call_0"]), result("8", "7", "call_0"))  # fmt: skip
    assert [len(step.results) for step in session.trace.steps] == [1, 1, 1]
    assert all(step.prefix_exact for step in session.trace.steps)
    assert texts(session, 2) == ["q", "", "out of call_0", "", "out of call_0", "stop"]


def test_what_a_compaction_keeps_is_shown_once_wherever_the_file_has_it():
    early = [said("1", "", "q"), answered("2", "1", "a"), said("3", "2", "kept")]
    summary = said("6", "5", "summary", kept=("3", "3"))
    session = build(*early, Node("5", "", cut=True, logical_parent="3"), summary, said("7", "6", "go on"),
                    answered("8", "7", "done"))  # fmt: skip
    assert texts(session, 1) == ["summary", "kept", "go on"]
    # The boundary names a record after itself, on the way that the conversation takes.
    summary = said("6", "5", "summary", kept=("8", "8"))
    session = build(*early, Node("5", "", cut=True, logical_parent="8"), summary, said("7", "6", "first"),
                    said("8", "7", "kept"), answered("9", "8", "done"))  # fmt: skip
    assert texts(session, 1) == ["summary", "first", "kept"]
    # It keeps a record that is written late, beside that way.
    summary = said("6", "5", "summary", kept=("3", "8"))
    session = build(*early, Node("5", "", cut=True, logical_parent="8"), summary, said("8", "3", "late"),
                    said("9", "6", "go on"), answered("10", "9", "done"))  # fmt: skip
    assert texts(session, 1) == ["summary", "kept", "late", "go on"]


def test_a_compaction_may_keep_a_call_with_its_result():
    kept = (Message("user", "q"), Message("assistant", "", (ToolCall("Bash", {}, "c1"),)),
            Message("tool", "out of c1", tool_call_id="c1"))  # fmt: skip
    session = build(said("1", "", "q"), answered("2", "1", "", calls=["c1"]), result("3", "2", "c1"),
                    Node("4", "", kept, cut=True, logical_parent="3"), said("5", "4", "r"),
                    answered("6", "5", "b"))  # fmt: skip
    assert texts(session, 1) == ["q", "", "out of c1", "r"]
    assert session.trace.steps[1].prefix_exact
    assert len(session.trace.steps[0].results) == 1
