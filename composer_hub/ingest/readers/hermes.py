"""Hermes sessions: the database `~/.hermes/state.db`, `hermes sessions export`, and older `sessions/session_*.json`.

In: sessions with messages in the shape of OpenAI's chat API. Out: one session each. Rows with `active` 0 were rewound
or compacted away: later prompts leave them out. Results of built-in tools are JSON, in which the exit code is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.databases import opened, rows, tables_of
from composer_hub.ingest.documents import HEAD, head_records, read_records
from composer_hub.ingest.foreign import (
    as_dict,
    chat_calls,
    content_text,
    dicts,
    dicts_at,
    first_text,
    int_at,
    parsed,
    text_at,
)
from composer_hub.ingest.report import FileReport
from composer_hub.records import Message
from composer_hub.session import ResultFlag, Session

NAME = "hermes"
COMPACTED, REWOUND, TRANSFORMED = "compacted", "rewound", "context_transform"
_TOOLS_WITH_CODES = {"terminal", "execute_code", "process"}


def sniff(head: bytes, path: Path) -> bool:
    """Recognize the database by its columns, an export or a file of one session by their facts."""
    if tables_of(head, path).get("messages", frozenset()) >= {"tool_calls", "finish_reason", "session_id"}:
        return True
    first = next(iter(head_records(head)), {})
    return {"session_id", "platform", "session_start"} <= first.keys() or (
        {"source", "system_prompt", "started_at", "model"} <= first.keys() and "trace_id" not in first
    )


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the sessions of a file."""
    with path.open("rb") as file:
        is_database = bool(tables_of(file.read(HEAD), path))
    for row in _of_database(path, report) if is_database else (row for _, row in read_records(path, report)):
        yield from filter(None, [_session(row, report)])


def _of_database(path: Path, report: FileReport) -> Iterator[dict[str, Any]]:
    with opened(path) as database:
        for session in rows(database, "SELECT * FROM sessions ORDER BY started_at, id"):
            messages = list(rows(database, "SELECT * FROM messages WHERE session_id = ? ORDER BY id", session["id"]))
            report.add("records", 1 + len(messages))
            yield {**session, "messages": messages}


def _session(row: dict[str, Any], report: FileReport) -> Session | None:
    talk = Conversation(report)
    if system := text_at(row, "system_prompt"):
        talk.say(Message("system", system))
    left: set[int] = set()  # messages that later prompts leave out
    for message in dicts_at(row, "messages"):
        is_active = message.get("active") not in (0, False)
        if is_active and left:
            talk.note(COMPACTED if any_compacted(row) else REWOUND)
            talk.forget(index for index in talk.view if index not in left)
        before = len(talk.messages)
        _take(talk, message, report, main=is_active or message.get("compacted") in (1, True))
        if not is_active:
            left.update(range(before, len(talk.messages)))
    return talk.session(
        source=NAME,
        session_id=first_text(row, "id", "session_id"),
        parent_session_id=text_at(row, "parent_session_id"),
        cwd=text_at(row, "cwd"),
        model=text_at(row, "model"),
        tools=tuple(tool for tool in dicts(parsed(row.get("tools"))) if tool),
        provenance={"git_branch": text_at(row, "git_branch")},
    )


def any_compacted(row: dict[str, Any]) -> bool:
    """Return whether a message left the context at a compaction."""
    return any(message.get("compacted") in (1, True) for message in dicts_at(row, "messages"))


def _take(talk: Conversation, message: dict[str, Any], report: FileReport, *, main: bool) -> None:
    role, text = text_at(message, "role"), content_text(message.get("content"))
    if text_at(message, "api_content") not in ("", text):
        talk.note(TRANSFORMED)  # the text sent differs from the text shown
    if role in ("user", "system"):
        talk.say(Message(role, text))
    elif role == "assistant":
        calls = chat_calls(parsed(message.get("tool_calls")))
        thinking = first_text(message, "reasoning_content", "reasoning")
        # A row's number is unique in its session; the database and its exports have the same one.
        number = int_at(message, "id")
        session = text_at(message, "session_id")
        key = f"{session}/{number}" if session and number is not None else ""
        draft = talk.act(Message("assistant", text, calls, reasoning_content=thinking), main=main, key=key)
        if message.get("finish_reason") == "length":
            talk.flags[draft.action] = ResultFlag(status="truncated")
    elif role == "tool":
        name = first_text(message, "tool_name", "name")
        talk.answer(Message("tool", text, (), text_at(message, "tool_call_id"), name), _flag(name, text) or None)
    elif role != "session_meta":
        report.unknown(f"role {role}")


def _flag(tool: str, text: str) -> ResultFlag:
    """Return the facts in a result. Text may follow its JSON, such as a warning of a loop."""
    try:
        result = as_dict(json.JSONDecoder().raw_decode(text.lstrip())[0])
    except (ValueError, RecursionError):
        return ResultFlag()
    if result.get("status") == "error" or result.get("success") is False:
        return ResultFlag(is_error=True, status="failed")
    if tool in _TOOLS_WITH_CODES and (code := int_at(result, "exit_code")) is not None:
        return ResultFlag(exit_code=code, status="" if code else "completed")
    if text_at(result, "error"):
        return ResultFlag(is_error=True, status="failed")
    return ResultFlag(is_error=False, status="completed") if "success" in result else ResultFlag()
