"""Claude Code sessions: real files against counts taken by hand, and small files written for one rule each."""

from __future__ import annotations

import json
import shutil

import pytest

from composer_hub.errors.find import find_errors
from composer_hub.ingest.assemble import trace_id_of
from composer_hub.ingest.readers import claude_code
from composer_hub.records import prompt_of
from composer_hub.session import ResultFlag

# Counted from the raw JSON, without the reader: api_messages = distinct message.id of assistant lines; merged =
# assistant lines minus those; calls and results = tool_use and tool_result blocks; flagged = results with is_error
# true; plain and encrypted = messages with a thinking block that has text / has none; last_* = what stands before the
# first line of the last API message, in characters (both files are without rewinds and compactions, so file order
# holds).
GOLDEN = {
    "cc-2.1-errors-mixed.jsonl": {
        "lines": 269, "api_messages": 72, "merged": 104, "calls": 78, "results": 78, "unanswered": 0, "flagged": 10,
        "plain": 72, "encrypted": 0, "calls_without_text": 46, "user_messages": 6, "last_assistants": 71,
        "last_assistant_chars": 4923, "last_results": 78, "last_result_chars": 71571, "last_user_chars": 8407,
        "model": "claude-opus-4-5-20251101",
    },
    "cc-2.1.128.jsonl": {
        # Besides 4 typed messages (236 characters) two attachments are prompt text: the skill listing and the deferred
        # tools; five messages are not contiguous and one parallel pair forks the chain.
        "lines": 108, "api_messages": 22, "merged": 31, "calls": 29, "results": 28, "unanswered": 1, "flagged": 2,
        "plain": 0, "encrypted": 14, "calls_without_text": 12, "user_messages": 6, "last_assistants": 21,
        "last_assistant_chars": 2986, "last_results": 28, "last_result_chars": 33358, "last_user_chars": None,
        "model": "claude-opus-4-7",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_a_real_session_gives_the_counts_taken_by_hand(name, samples, read):
    golden = GOLDEN[name]
    (session,), report = read(samples / "claude_code" / name)
    trace = session.trace
    actions = [trace.messages[step.action] for step in trace.steps]
    assert report.counts["lines"] == golden["lines"]
    assert len(trace.steps) == golden["api_messages"]
    assert report.counts["merged"] == golden["merged"]
    assert sum(len(action.tool_calls) for action in actions) == golden["calls"]
    assert sum(len(step.results) for step in trace.steps) == golden["results"]
    assert report.counts["dangling_calls"] == golden["unanswered"]
    assert sum(flag.is_error is True for flag in session.flags.values()) == golden["flagged"]
    statuses = [step.reasoning_status for step in trace.steps]
    assert (statuses.count("plain"), statuses.count("encrypted")) == (golden["plain"], golden["encrypted"])
    assert sum(bool(action.tool_calls) and not action.content for action in actions) == golden["calls_without_text"]
    assert sum(message.role == "user" for message in trace.messages) == golden["user_messages"]
    assert trace.model == golden["model"]
    assert {step.family for step in trace.steps} == {"anthropic"}
    assert all(step.on_main_branch and step.prefix_exact for step in trace.steps)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_last_step_of_a_real_session_read_the_messages_before_it(name, samples, read):
    golden = GOLDEN[name]
    (session,), _ = read(samples / "claude_code" / name)
    prompt = prompt_of(session.trace, session.trace.steps[-1])
    by_role = {role: [m.content for m in prompt if m.role == role] for role in ("assistant", "tool", "user")}
    assert len(by_role["assistant"]) == golden["last_assistants"]
    assert sum(map(len, by_role["assistant"])) == golden["last_assistant_chars"]
    assert len(by_role["tool"]) == golden["last_results"]
    assert sum(map(len, by_role["tool"])) == golden["last_result_chars"]
    if golden["last_user_chars"] is not None:
        assert sum(map(len, by_role["user"])) == golden["last_user_chars"]


def test_every_record_type_of_the_inventory_is_known(samples, read):
    _, report = read(samples / "schema_inventory/claude-all-record-types-2.1.161.jsonl")
    assert report.counts["lines"] == 89
    assert not report.unknown_types
    # Counted by hand: 44 records repeat the uuid of the first trimmed one.
    assert report.counts["duplicate_lines"] == 44
    assert report.counts["corrupt"] == 0


def test_a_message_split_over_lines_is_one_step_with_all_its_calls(logs, read):
    (session,), report = read(logs / "claude_code/parallel.jsonl")
    action = session.trace.messages[session.trace.steps[0].action]
    assert action.content == "I read both modules."
    assert [call.call_id for call in action.tool_calls] == ["toolu_cart", "toolu_coupon"]
    assert action.reasoning_content == "The cart and the coupon code both matter."
    assert report.counts["merged"] == 4


def test_results_of_parallel_calls_are_all_in_the_next_prompt(logs, read):
    (session,), _ = read(logs / "claude_code/parallel.jsonl")
    prompt = prompt_of(session.trace, session.trace.steps[1])
    assert [m.tool_call_id for m in prompt if m.role == "tool"] == ["toolu_cart", "toolu_coupon"]
    assert [m.name for m in prompt if m.role == "tool"] == ["Read", "Read"]


def test_attachments_that_are_prompt_text_are_read_and_telemetry_is_not(logs, read):
    (session,), _ = read(logs / "claude_code/parallel.jsonl")
    prompt = prompt_of(session.trace, session.trace.steps[2])
    assert prompt[-1].content == "Do not touch the tests."
    assert len(prompt) == 8


def test_harness_messages_in_the_assistant_role_are_not_steps(logs, read):
    (session,), report = read(logs / "claude_code/parallel.jsonl")
    assert [step.model for step in session.trace.steps] == ["claude-opus-4-6"] * 4
    assert "API Error" not in json.dumps([m.to_chat() for m in session.trace.messages])
    assert report.counts["provider_errors"] == 1


def test_flags_come_from_typed_fields(logs, read):
    (session,), _ = read(logs / "claude_code/parallel.jsonl")
    by_call = {session.trace.messages[at].tool_call_id: flag for at, flag in session.flags.items()}
    assert by_call["toolu_coupon"] == ResultFlag(is_error=True)
    assert by_call["toolu_bash"] == ResultFlag(is_error=True, exit_code=1)
    (rewound,), _ = read(logs / "claude_code/rewind.jsonl")
    assert ResultFlag(is_error=True, status="denied", detail="user-rejected") in rewound.flags.values()


def test_a_rewind_leaves_a_branch_that_is_kept_but_not_on_the_main_one(logs, read):
    (session,), report = read(logs / "claude_code/rewind.jsonl")
    trace = session.trace
    texts = [trace.messages[step.action].content for step in trace.steps]
    assert [text for text, step in zip(texts, trace.steps, strict=True) if not step.on_main_branch] == [
        "Gerne, hier ist sie."
    ]
    final = [m.content for m in prompt_of(trace, trace.steps[-1])]
    assert "No, in English." in final
    assert "Yes, in German." not in final
    assert (report.counts["forks"], report.counts["branch_steps"]) == (1, 1)


def test_a_prompt_after_a_compaction_holds_the_summary_and_what_was_kept_only(logs, read):
    (session,), report = read(logs / "claude_code/compaction.jsonl")
    trace = session.trace
    after = [m.content for m in prompt_of(trace, trace.steps[2])][1:]
    assert after == [
        "SUMMARY_ONE of the conversation so far.",
        "KEPT_ANSWER: the parser is ported.",
        "KEPT_QUESTION: now the lexer.",
    ]
    assert [m.content for m in prompt_of(trace, trace.steps[4])][1:] == ["SUMMARY_TWO of it all."]
    assert report.counts["boundaries"] == 2
    assert all(step.on_main_branch for step in trace.steps)


def test_a_microcompaction_makes_prompts_inexact_until_the_next_compaction(logs, read):
    (session,), _ = read(logs / "claude_code/compaction.jsonl")
    assert [step.prefix_reason for step in session.trace.steps] == ["", "", "", "microcompact", ""]
    assert [step.prefix_exact for step in session.trace.steps] == [True, True, True, False, True]


def test_a_subagent_file_is_a_trace_of_its_own_linked_to_the_call_that_started_it(logs, read):
    folder = logs / "claude_code/project"
    sid = "44444444-4444-4444-8444-444444444444"
    (parent,), _ = read(folder / f"{sid}.jsonl")
    (child,), _ = read(folder / sid / "subagents/agent-abc123.jsonl")
    assert child.trace.parent_trace_id == parent.trace.trace_id == trace_id_of("claude_code", sid)
    assert child.trace.spawn_call_id == "toolu_task"
    assert child.trace.trace_id != parent.trace.trace_id
    assert child.trace.model == "claude-haiku-4-5"


def test_without_its_meta_file_a_subagent_is_found_in_its_parents_results(logs, read, tmp_path):
    sid = "44444444-4444-4444-8444-444444444444"
    shutil.copytree(logs / "claude_code/project", tmp_path / "project")
    child = tmp_path / "project" / sid / "subagents/agent-abc123.jsonl"
    child.with_name("agent-abc123.meta.json").unlink()
    (session,), _ = read(child)
    assert session.trace.spawn_call_id == "toolu_task"


def test_an_inline_sidechain_is_a_trace_of_its_own(logs, read):
    (parent, child), _ = read(logs / "claude_code/inline_sidechain.jsonl")
    assert [m.content for m in parent.trace.messages if m.role == "user"] == ["Review the shop."]
    assert [m.content for m in child.trace.messages if m.role == "user"] == ["Count the files."]
    assert child.trace.parent_trace_id == parent.trace.trace_id
    assert child.trace.spawn_call_id == "toolu_task9"


def test_broken_records_are_counted_with_their_line_and_the_rest_is_read(logs, read):
    (session,), report = read(logs / "claude_code/broken.jsonl")
    assert [problem.line for problem in report.problems] == [8, 9, 10]
    assert report.counts["corrupt"] == 3
    assert dict(report.unknown_types) == {"never-seen-before": 1}
    assert report.counts["duplicate_lines"] == 1
    assert report.counts["bridged"] == 1
    assert [step.prefix_reason for step in session.trace.steps] == ["image_left_out", "image_left_out; missing_parent"]


def test_a_superseded_message_is_neither_a_step_nor_in_a_prompt(logs, read):
    (session,), report = read(logs / "claude_code/broken.jsonl")
    contents = [message.content for message in session.trace.messages]
    assert "I see a shopping cart." in contents
    assert "I see a cart." not in contents
    assert report.counts["retracted"] == 1


def test_images_leave_a_word_and_signatures_leave_nothing(logs, read):
    (broken,), _ = read(logs / "claude_code/broken.jsonl")
    assert broken.trace.messages[1].content == "Look at the picture.\n[image]"
    (parallel,), _ = read(logs / "claude_code/parallel.jsonl")
    assert "c2lnbmF0dXJl" not in json.dumps([m.to_chat() for m in parallel.trace.messages])


def test_a_trace_knows_where_it_came_from(logs, read):
    (session,), _ = read(logs / "claude_code/parallel.jsonl")
    trace = session.trace
    assert trace.session_id == "11111111-1111-4111-8111-111111111111"
    assert trace.cwd == "/home/maria/shop"
    assert trace.provenance["git_branch"] == "main"
    assert trace.provenance["harness_version"] == "2.1.150"
    assert trace.system_prompt_source == "synthetic"
    assert [tool["function"]["name"] for tool in trace.tools] == ["Read", "Grep", "Bash"]


def test_the_placeholder_id_of_a_call_without_one_is_its_own(tmp_path, read):
    lines = [
        {"type": "user", "uuid": "u1", "parentUuid": None, "sessionId": "s", "message": {"content": "hi"}},
        {
            "type": "assistant", "uuid": "a1", "parentUuid": "u1", "sessionId": "s",
            "message": {"content": [{"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}]},
        },
    ]  # fmt: skip
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    (session,), _ = read(path)
    assert session.trace.messages[2].tool_calls[0].call_id == "a1:0"


# --------------------------------------------------------------------------------------------- records of odd shape


def record(kind, uuid, parent, message=None, **more):
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message, **more}


def said(uuid, parent, text):
    return record("user", uuid, parent, {"role": "user", "content": text})


def spoken(uuid, parent, text, turn, **more):
    message = {"id": turn, "model": "claude-opus-4-6", "content": [{"type": "text", "text": text}], **more}
    return record("assistant", uuid, parent, message)


@pytest.fixture
def read_records(tmp_path, read_file):
    def read_them(*records, name="s.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(map(json.dumps, records)))
        return read_file(claude_code, path)

    return read_them


def test_a_type_that_is_not_text_is_an_unknown_record_and_a_link(read_records):
    (session,), report = read_records(
        said("u1", None, "hi"),
        {"type": ["x"], "uuid": "l1", "parentUuid": "u1"},
        {"type": "system", "subtype": ["x"], "uuid": "l2", "parentUuid": "l1"},
        {"type": "attachment", "attachment": {"type": ["x"]}, "uuid": "l3", "parentUuid": "l2"},
        spoken("a1", "l3", "hello", "m1"),
    )
    assert [m.content for m in prompt_of(session.trace, session.trace.steps[0])][1:] == ["hi"]
    assert report.counts["unknown"] == 3


def test_an_assistant_record_without_a_message_is_a_link(read_records):
    (session,), _ = read_records(
        said("u1", None, "hi"), record("assistant", "a1", "u1"), said("u2", "a1", "?"), spoken("a2", "u2", "yes", "m2")
    )
    assert [(m.role, m.content) for m in prompt_of(session.trace, session.trace.steps[0])][1:] == [
        ("user", "hi"),
        ("user", "?"),
    ]


def api_error(uuid, parent):
    content = [{"type": "text", "text": "API Error: 529 Overloaded"}]
    message = {"id": "e1", "model": "<synthetic>", "content": content, "stop_reason": "stop_sequence"}
    return record("assistant", uuid, parent, message, isApiErrorMessage=True)


def test_a_message_that_a_providers_error_broke_off_is_a_step_with_that_site(read_records):
    (session,), report = read_records(said("u1", None, "hi"), spoken("a1", "u1", "I wi", "m1"), api_error("e", "a1"))
    (step,) = find_errors(session).steps
    assert [(site.kind, site.blame, site.source) for site in step.error_sites] == [("api_error", "provider", "flag")]
    assert step.error_sites[0].message == "API Error: 529 Overloaded"
    assert report.counts["provider_errors"] == 1


def test_a_providers_error_in_place_of_an_answer_is_counted_and_belongs_to_no_step(read_records):
    (session,), report = read_records(
        said("u1", None, "hi"), spoken("a1", "u1", "Done.", "m1", stop_reason="end_turn"),
        api_error("e0", "a1"), said("u2", "e0", "more"), api_error("e", "u2"), said("u3", "e", "again"),
        spoken("a2", "u3", "ok", "m2", stop_reason="end_turn"),
    )  # fmt: skip
    assert report.counts["provider_errors"] == 2
    assert not any(step.error_sites for step in find_errors(session).steps)
    assert "API Error" not in json.dumps([m.to_chat() for m in session.trace.messages])


def test_the_meta_file_alone_names_the_call_that_started_a_subagent(tmp_path, read_file):
    folder = tmp_path / "sid/subagents/workflows"
    folder.mkdir(parents=True)
    (folder / "agent-a7.meta.json").write_text('{"agentType": "general", "toolUseId": "toolu_77"}')
    path = folder / "agent-a7.jsonl"
    lines = [said("u1", None, "Count."), spoken("a1", "u1", "Three.", "m1")]
    path.write_text("\n".join(json.dumps(line | {"isSidechain": True, "agentId": "a7"}) for line in lines))
    (session,), _ = read_file(claude_code, path)
    assert session.trace.spawn_call_id == "toolu_77"
    assert session.trace.parent_trace_id == trace_id_of("claude_code", "s")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"toolUseId": 7}'], ids=["empty", "cut", "list", "number"])
def test_a_broken_meta_file_leaves_the_call_open(text, tmp_path, read_file):
    path = tmp_path / "agent-a7.jsonl"
    path.with_name("agent-a7.meta.json").write_text(text)
    lines = [said("u1", None, "Count."), spoken("a1", "u1", "Three.", "m1")]
    path.write_text("\n".join(json.dumps(line | {"isSidechain": True, "agentId": "a7"}) for line in lines))
    (session,), _ = read_file(claude_code, path)
    assert session.trace.spawn_call_id == ""


def test_two_inline_sidechains_are_two_traces_each_with_its_call(read_records):
    def task(number):
        return {"type": "tool_use", "id": f"toolu_{number}", "name": "Task", "input": {"prompt": f"Job {number}."}}

    def aside(line):
        return line | {"isSidechain": True}

    asks = record("assistant", "a1", "u1", {"id": "m1", "model": "claude-opus-4-6", "content": [task(1), task(2)]})
    (parent, one, two), _ = read_records(
        said("u1", None, "Do both."), asks,
        aside(said("s1", None, "Job 1.")), aside(said("t1", None, "Job 2.")),
        aside(spoken("s2", "s1", "Did 1.", "m2")), aside(spoken("t2", "t1", "Did 2.", "m3")),
    )  # fmt: skip
    assert [session.trace.spawn_call_id for session in (one, two)] == ["toolu_1", "toolu_2"]
    assert {session.trace.parent_trace_id for session in (one, two)} == {parent.trace.trace_id}
    assert [m.content for m in prompt_of(two.trace, two.trace.steps[0])][1:] == ["Job 2."]


def attached(uuid, parent, **attachment):
    return {**record("attachment", uuid, parent), "attachment": attachment}


ATTACHMENTS = [
    ({"type": "directory", "path": "/r/d", "content": "PART"}, ""),
    ({"type": "selected_lines_in_ide", "filename": "a.py", "lineStart": 1, "lineEnd": 2, "content": "PART"}, ""),
    ({"type": "opened_file_in_ide", "filename": "PART"}, ""),
    ({"type": "diagnostics", "files": [{"uri": "a.py", "diagnostics": [{"message": "PART"}]}]}, ""),
    ({"type": "mcp_resource", "server": "s", "uri": "u", "content": {"contents": [{"text": "PART"}]}}, ""),
    ({"type": "agent_mention", "agentType": "PART"}, ""),
    ({"type": "plan_file_reference", "planFilePath": "/p", "planContent": "PART"}, ""),
    ({"type": "pdf_reference", "filename": "PART", "pageCount": 30}, ""),
    ({"type": "relevant_memories", "memories": [{"path": "m", "content": "PART"}]}, ""),
    ({"type": "teammate_mailbox", "messages": [{"from": "a", "text": "PART"}]}, ""),
    ({"type": "hook_success", "hookEvent": "SessionStart", "hookName": "x", "content": "PART"}, ""),
    ({"type": "async_hook_response", "response": {"hookSpecificOutput": {"additionalContext": "PART"}}}, ""),
    ({"type": "edited_image_file", "filename": "PART.png"}, "image_left_out"),
    ({"type": "file", "filename": "PART.png", "content": {"type": "image"}}, "image_left_out"),
    ({"type": "file", "filename": "PART.pdf", "content": {"type": "pdf"}}, "document_left_out"),
    ({"type": "queued_command", "prompt": [{"type": "text", "text": "PART"}, {"type": "image"}]}, "image_left_out"),
]  # fmt: skip


@pytest.mark.parametrize(("attachment", "reason"), ATTACHMENTS, ids=str)
def test_an_attachment_is_read_and_its_missing_part_is_named(attachment, reason, read_records):
    (session,), report = read_records(
        said("u", None, "go"), attached("t", "u", **attachment), spoken("a", "t", "done", "m")
    )
    (step,) = session.trace.steps
    assert "PART" in prompt_of(session.trace, step)[-1].content
    assert step.prefix_reason == reason
    assert not report.unknown_types


def test_an_attachment_of_an_unknown_type_makes_the_prompts_below_it_inexact(read_records):
    (session,), report = read_records(
        said("u", None, "go"), attached("t", "u", type="of_tomorrow", text="words"), spoken("a", "t", "done", "m")
    )
    assert session.trace.steps[0].prefix_reason == "attachment_not_read"
    assert report.unknown_types == {"attachment/of_tomorrow": 1}


def test_a_hook_that_the_model_does_not_hear_adds_nothing(read_records):
    hook = attached("t", "u", type="hook_success", hookEvent="PostToolUse", hookName="x", content="formatted")
    (session,), _ = read_records(said("u", None, "go"), hook, spoken("a", "t", "done", "m"))
    assert [m.content for m in prompt_of(session.trace, session.trace.steps[0])][1:] == ["go"]


def test_a_subagent_that_went_on_from_its_parents_context_says_that_it_is_not_here(read_records):
    side = {"isSidechain": True, "agentId": "aa"}
    (session,), report = read_records(
        {"type": "fork-context-ref", "agentId": "aa", "parentSessionId": "S", "contextLength": 4},
        {**said("u", None, "do it"), **side},
        {**spoken("a", "u", "did it", "m"), **side},
    )
    assert session.trace.steps[0].prefix_reason == "context_of_parent"
    assert not report.unknown_types
