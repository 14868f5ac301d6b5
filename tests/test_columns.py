"""Each computed column of pairs, steps and the index of traces has the value that was worked out by hand.

Other tests compare a column with the code that computes it. Here each value is written down, so a wrong one is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from composer_hub.ingest.dataset import SESSION_COLUMNS
from composer_hub.pairs import PairOptions, Policy, build_pairs, repairs
from composer_hub.pairs.rows import split_of
from composer_hub.pairs.same_effect import JUDGED, subject_of
from composer_hub.pairs.tables import pair_rows_table
from composer_hub.records import (
    ErrorSite,
    Hint,
    Message,
    Pair,
    Step,
    ToolCall,
    Trace,
    Vote,
    step_rows,
    to_row,
)

Row = Mapping[str, Any]


def call(tool: str, call_id: str, text: str = "", **arguments: Any) -> Message:
    return Message("assistant", text, (ToolCall(tool, arguments, call_id),))


def result(text: str, call_id: str, tool: str) -> Message:
    return Message("tool", text, tool_call_id=call_id, name=tool)


def vote(
    trace: Trace, index: int, teacher: str, family: str, cost_usd: float, answer: Message, order: int = 0, **fields: str
) -> Vote:
    about = {"status": "voted", "normal_form": "", **fields}
    of = trace.trace_id, trace.steps[index].step_id, index, teacher, family
    return Vote(f"{teacher} {order}", *of, answer=answer.to_chat(), cost_usd=cost_usd, attempt=order, **about)


# The student reads two files in one step, runs the tests, reads a file that does not exist, and is rewound. Then it
# searches, which is the model's own error, and lists a folder, which fails because of the environment. Two of three
# teachers would read a.py there, as the student does next. Before that step it took four, of which one is not in the
# prompt and one failed in it: what counts all steps, calls, successes or failures gets another number.
VOTED = Trace(
    "voted", "claude_code", "session-1",
    messages=(
        Message("system", "You code in /repo."),
        Message("user", "Fix the total in a.py."),
        Message("assistant", "", (ToolCall("Read", {"file_path": "/repo/b.py"}, "c0"),
                                  ToolCall("Read", {"file_path": "/repo/c.py"}, "c1"))),
        result("one = 1", "c0", "Read"),
        result("six = 6", "c1", "Read"),
        call("Bash", "c2", "Tests first.", command="pytest -q"),
        result("1 failed", "c2", "Bash"),
        call("Read", "c3", file_path="/repo/d.py"),
        result("File does not exist.", "c3", "Read"),
        call("Bash", "c4", command="grep total"),
        result("x" * 2000, "c4", "Bash"),
        call("Bash", "c5", "I look around.", command="ls /root"),
        result("ls: Permission denied", "c5", "Bash"),
        call("Read", "c6", file_path="/repo/a.py"),
        result("total = 1", "c6", "Read"),
    ),
    steps=(
        Step("v0", 0, 2, ((0, 2),), (3, 4), model="qwen3", family="qwen"),
        Step("v1", 1, 5, ((0, 5),), (6,), model="qwen3", family="qwen"),
        Step("v2", 2, 7, ((0, 7),), (8,), model="qwen3", family="qwen", on_main_branch=False, error_sites=(
            ErrorSite("path_not_found", "model", "text", 0.5, "r0", "Read", "c3", "not exist"),)),
        Step("v3", 3, 9, ((0, 7),), (10,), model="qwen3", family="qwen", error_sites=(
            ErrorSite("usage_error", "model", "text", 0.5, "r1", "Bash", "c4", "grep"),)),
        Step("v4", 4, 11, ((0, 7), (9, 11)), (12,), model="qwen3-next", family="qwen", reasoning_status="summary",
             prefix_exact=False, prefix_reason="compacted", on_main_branch=False, error_sites=(
            ErrorSite("permission_denied", "env", "text", 0.5, "r2", "Bash", "c5", "denied"),)),
        Step("v5", 5, 13, ((0, 7), (9, 13)), (14,), model="qwen3", family="qwen"),
    ),
    tools=({"name": "Bash"}, {"name": "Read"}), cwd="/repo", repository="org/voted", model="qwen3", family="qwen",
    resolved=True, license="mit",
)  # fmt: skip
# The student names a tool that does not exist, and then the right one.
REPAIRED = Trace(
    "repaired", "codex", "session-2",
    messages=(
        Message("user", "Show /repo/a.py."),
        call("ReadFile", "c0", "Reading.", file_path="/repo/a.py"),
        result("No such tool available: ReadFile", "c0", "ReadFile"),
        call("Read", "c1", file_path="/repo/a.py"),
        result("total = 1", "c1", "Read"),
        Message("user", "Thanks, now b.py."),
    ),
    steps=(
        Step("r0", 0, 1, ((0, 1),), (2,), model="glm-5", family="zai", error_sites=(
            ErrorSite("tool_not_found", "model", "anchor", 1.0, "r", "ReadFile", "c0", "No such tool available"),),
            hints=(Hint("Use the tool `Read`.", "hindsight", "tool", 1, "tool_not_found", "c0"),)),
        Step("r1", 1, 3, ((0, 3),), (4,), model="glm-5", family="zai"),
    ),
    cwd="/repo", repository="org/repaired-28", model="glm-5", family="zai", resolved=False, license="apache-2.0",
)  # fmt: skip
# The student keeps a list; both teachers replace a text that the prompt does not show.
LISTED = Trace(
    "listed", "codex", "session-3",
    messages=(
        Message("user", "Rename one to two in b.py."),
        call("TodoWrite", "c0", "A plan.", todos=[]),
        result("ok", "c0", "TodoWrite"),
    ),
    steps=(Step("l0", 0, 1, ((0, 1),), (2,), model="glm-5", family="zai"),),
    cwd="/repo", model="glm-5", family="zai",
)  # fmt: skip
READ = call("Read", "x", "I read it.", file_path="/repo/a.py")
EDIT = call("Edit", "x", file_path="/repo/b.py", old_string="one = 1", new_string="two = 1")


TRACES = [VOTED, REPAIRED, LISTED]
CUT = "x" * 250 + "\n[… 1,500 characters are left out here …]\n" + "x" * 250  # what a window of 550 tokens has room for


def voted_pair() -> Pair:
    verdict = Message("assistant", '{"same": "no", "why": "Another file."}')
    votes = [
        vote(VOTED, 4, "ann", "anthropic", 1.0, READ),
        vote(VOTED, 4, "bob", "openai", 0.5, READ),
        vote(VOTED, 4, "cleo", "mistral", 0.25, call("Bash", "x", command="git log")),
        vote(VOTED, 4, "dan", "qwen", 2.0, READ),
        vote(VOTED, 4, "judge", "", 0.125, verdict, 0, status=JUDGED, normal_form=subject_of(READ)),
        vote(VOTED, 4, "judge", "", 0.125, verdict, 1, status=JUDGED, normal_form=subject_of(READ)),
    ]
    ((pair,), _) = build_pairs(VOTED, votes, policy=Policy(min_agree=2), options=PairOptions(max_tokens=550))
    return pair


def listed_pair() -> Pair:
    votes = [vote(LISTED, 0, name, "openai", 0.5, EDIT) for name in ("ann", "eve", "fay")]
    ((pair,), _) = build_pairs(LISTED, votes, policy=Policy(min_agree=2))
    return pair


def schema(name: str, required: tuple[str, ...] = (), **properties: str) -> Row:
    """Return what is published of a tool of which only calls are known."""
    types = {"type": "object", "properties": {one: {"type": kind} for one, kind in properties.items()}}
    types |= {"additionalProperties": True, "x-synthesized": True} | ({"required": [*required]} if required else {})
    return {"type": "function", "function": {"name": name, "description": "", "parameters": types}}


def acted(tool: str, call_id: str = "71ac07df2", text: str = "", **arguments: Any) -> Row:
    function = {"name": tool, "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return {"role": "assistant", "content": text, "tool_calls": calls}


READS = [
    *acted("Read", "c0", file_path="/repo/b.py")["tool_calls"],
    *acted("Read", "c1", file_path="/repo/c.py")["tool_calls"],
]
PAIRS = [
    {
        "pair_id": "372d9ad040ea230fdcd1e80b", "trace_id": "voted", "step_id": "v4", "index": 4, "num_steps": 6,
        "prompt": [
            {"role": "system", "content": "You code in /repo."},
            {"role": "user", "content": "Fix the total in a.py."},
            {"role": "assistant", "content": "", "tool_calls": READS},
            {"role": "tool", "content": "one = 1", "tool_call_id": "c0", "name": "Read"},
            {"role": "tool", "content": "six = 6\n\n[Earlier messages are left out here.]", "tool_call_id": "c1",
             "name": "Read"},
            acted("Bash", "c4", command="grep total"),
            {"role": "tool", "content": CUT, "tool_call_id": "c4", "name": "Bash"},
        ],
        "chosen": [acted("Read", file_path="/repo/a.py")],
        "rejected": [acted("Bash", command="ls /root")],
        "tools": [schema("Bash", ("command",), command="string"),
                  schema("Read", ("file_path",), file_path="string")],
        "level": "L2", "num_agree": 2, "num_votes": 3, "teachers": ["ann", "bob"], "excluded_teachers": ["dan"],
        "families": ["anthropic", "openai"], "chosen_teacher": "bob", "source_model": "qwen3-next",
        "source_family": "qwen", "error_kind": "permission_denied", "after_error": True, "resolved": True,
        "chosen_text": "I read it.", "rejected_text": "I look around.", "cost_usd": 4.0, "license": "mit",
        "repository": "org/voted", "num_left_out": 2, "num_tokens": 540, "num_shortened": 1, "supported": True,
        "student_did_later": True, "bookkeeping": False, "judged": True, "judge_answer": "no",
        "judge_reason": "Another file.", "kind": "teachers", "split": "train", "family_mask": 513,
        "chosen_tool": "Read", "rejected_tool": "Bash", "chosen_preview": "/repo/a.py", "rejected_preview": "ls /root",
    },
    {
        "pair_id": "f688234863a05af6bce523b3", "trace_id": "repaired", "step_id": "r0", "index": 0, "num_steps": 2,
        "prompt": [{"role": "user", "content": "Show /repo/a.py."}],
        "chosen": [acted("Read", file_path="/repo/a.py")],
        "rejected": [acted("ReadFile", file_path="/repo/a.py")],
        "tools": [schema("Read", file_path="string"), schema("ReadFile", file_path="string")],
        "level": "", "num_agree": 0, "num_votes": 0, "teachers": [], "excluded_teachers": [], "families": [],
        "chosen_teacher": "", "source_model": "glm-5", "source_family": "zai", "error_kind": "tool_not_found",
        "after_error": False, "resolved": False, "chosen_text": "", "rejected_text": "Reading.", "cost_usd": 0.0,
        "license": "apache-2.0", "repository": "org/repaired-28", "num_left_out": 0, "num_tokens": 191,
        "num_shortened": 0, "supported": True, "student_did_later": False, "bookkeeping": False, "judged": False,
        "judge_answer": "", "judge_reason": "", "kind": "own_repair", "split": "test", "family_mask": 0,
        "chosen_tool": "Read", "rejected_tool": "ReadFile", "chosen_preview": "/repo/a.py",
        "rejected_preview": "/repo/a.py",
    },
    {
        "pair_id": "a670abfbbcf35f7c3acd7a69", "trace_id": "listed", "step_id": "l0", "index": 0, "num_steps": 1,
        "prompt": [{"role": "user", "content": "Rename one to two in b.py."}],
        "chosen": [acted("Edit", file_path="/repo/b.py", old_string="one = 1", new_string="two = 1")],
        "rejected": [acted("TodoWrite", todos=[])],
        "tools": [schema("TodoWrite", todos="array")],
        "level": "L2", "num_agree": 3, "num_votes": 3, "teachers": ["ann", "eve", "fay"], "excluded_teachers": [],
        "families": ["openai"], "chosen_teacher": "ann", "source_model": "glm-5", "source_family": "zai",
        "error_kind": "", "after_error": False, "resolved": None, "chosen_text": "", "rejected_text": "A plan.",
        "cost_usd": 1.5, "license": "", "repository": "", "num_left_out": 0, "num_tokens": 134, "num_shortened": 0,
        "supported": False, "student_did_later": False, "bookkeeping": True, "judged": False, "judge_answer": "",
        "judge_reason": "", "kind": "teachers", "split": "train", "family_mask": 512, "chosen_tool": "Edit",
        "rejected_tool": "TodoWrite", "chosen_preview": "/repo/b.py · one = 1 · two = 1", "rejected_preview": "[]",
    },
]  # fmt: skip
STEPS = [
    {
        "step_id": "v4", "trace_id": "voted", "index": 4,
        "student_action": 'I look around.\n{"name": "Bash", "arguments": {"command": "ls /root"}}',
        "tool_calls": acted("Bash", "c5", command="ls /root")["tool_calls"], "results": ["ls: Permission denied"],
        "model": "qwen3-next", "family": "qwen", "reasoning_status": "summary", "prefix_exact": False,
        "prefix_reason": "compacted", "on_main_branch": False, "num_prompt_messages": 9, "num_prompt_chars": 2189,
        "error_sites": [{"kind": "permission_denied", "blame": "env", "source": "text", "confidence": 0.5,
                         "rule": "r2", "tool": "Bash", "call_id": "c5", "message": "denied"}],
        "hints": [], "source": "claude_code", "license": "mit",
    },
    {
        "step_id": "r0", "trace_id": "repaired", "index": 0,
        "student_action": 'Reading.\n{"name": "ReadFile", "arguments": {"file_path": "/repo/a.py"}}',
        "tool_calls": acted("ReadFile", "c0", file_path="/repo/a.py")["tool_calls"],
        "results": ["No such tool available: ReadFile"], "model": "glm-5", "family": "zai",
        "reasoning_status": "absent", "prefix_exact": True, "prefix_reason": "", "on_main_branch": True,
        "num_prompt_messages": 1, "num_prompt_chars": 16,
        "error_sites": [{"kind": "tool_not_found", "blame": "model", "source": "anchor", "confidence": 1.0,
                         "rule": "r", "tool": "ReadFile", "call_id": "c0", "message": "No such tool available"}],
        "hints": [{"text": "Use the tool `Read`.", "writer": "hindsight", "rule": "tool", "version": 1,
                   "kind": "tool_not_found", "call_id": "c0"}],
        "source": "codex", "license": "apache-2.0",
    },
]  # fmt: skip
SESSIONS = [
    {
        "task": "Fix the total in a.py.", "num_steps": 6, "num_errors": 2, "num_hints": 0,
        "turns": '[[0,"Fix the total in a.py."]]',
        "marks": '[[2,[["path_not_found","model"]],[]],'
                 '[3,[["usage_error","model"]],[]],[4,[["permission_denied","env"]],[]]]',
    },
    {
        "task": "Show /repo/a.py.", "num_steps": 2, "num_errors": 1, "num_hints": 1,
        "turns": '[[0,"Show /repo/a.py."],[2,"Thanks, now b.py."]]',
        "marks": '[[0,[["tool_not_found","model"]],["hindsight"]]]',
    },
    {
        "task": "Rename one to two in b.py.", "num_steps": 1, "num_errors": 0, "num_hints": 0,
        "turns": '[[0,"Rename one to two in b.py."]]', "marks": "[]",
    },
]  # fmt: skip


def published_pair(trace: Trace, pair: Pair) -> Row:
    row = to_row(pair)
    derived = pair_rows_table([]).index_derived
    return row | {"split": split_of(trace)} | {name: of(row) for name, (_, of) in derived.items()}


def published_pairs() -> list[Row]:
    pairs = [voted_pair(), *repairs(REPAIRED)[0], listed_pair()]
    return [published_pair(trace, pair) for trace, pair in zip(TRACES, pairs, strict=True)]


def published_steps() -> list[Row]:
    return [to_row(row) for trace in TRACES for row in step_rows(trace) if row.step_id in ("v4", "r0")]


def published_sessions() -> list[Row]:
    return [{name: of(to_row(trace)) for name, (_, of) in SESSION_COLUMNS.items()} for trace in TRACES]


TABLES = {
    "PAIRS": (published_pairs, PAIRS),
    "STEPS": (published_steps, STEPS),
    "SESSIONS": (published_sessions, SESSIONS),
}


@pytest.mark.parametrize("table", TABLES)
def test_every_column_has_the_value_that_its_session_gives(table: str) -> None:
    publish, stated = TABLES[table]
    for row, values in zip(publish(), stated, strict=True):
        absent = row.keys() - values.keys()
        assert not absent, (
            f"Write the value of {', '.join(sorted(absent))} into each entry of {table}. Work it out by reading the "
            "sessions above; if you copy what the code prints, nothing is tested."
        )
        assert row == values


@pytest.mark.parametrize("table", TABLES)
def test_no_column_has_one_value_in_all_sessions(table: str) -> None:
    _, stated = TABLES[table]
    same = [name for name in stated[0] if all(row[name] == stated[0][name] for row in stated)]
    assert not same, f"A constant would pass for {', '.join(same)}: change a session so that a second value appears."
