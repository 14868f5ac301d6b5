"""Grok CLI's chat histories (`~/.grok/sessions/**/chat_history.jsonl`, with the facts in `summary.json`) as `Session`s.

In: the messages of a session, one per line. Out: one session. Results have no flag. The file does not say what a
compaction removed, so no prompt is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_lines, json_lines, read_document
from composer_hub.ingest.foreign import as_dict, chat_calls, content_text, dict_at, text_at
from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.records import Message
from composer_hub.session import Session

NAME = "grok"
LINEAR = "linear_export"
_TYPES = {"system", "user", "assistant", "reasoning", "tool_result", "backend_tool_call"}
_OTHERS = {"uuid", "sessionId", "session_id", "timestamp", "message", "data", "payload", "part"}  # of other harnesses


def sniff(head: bytes, path: Path) -> bool:
    """Recognize lines with a type and content, without ids and times."""
    records = head_lines(head)[:20]
    if not records or any(text_at(one, "type") not in _TYPES or _OTHERS & one.keys() for one in records):
        return False
    return any("model_id" in one or "prompt_index" in one or "synthetic_reason" in one for one in records) or (
        records[0]["type"] == "system" and isinstance(records[0].get("content"), str) and "subtype" not in records[0]
    )


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the session of a file."""
    talk = Conversation(report)
    talk.note(LINEAR)
    hidden = ""
    for number, record in json_lines(path, report):
        kind, text = text_at(record, "type"), content_text(record.get("content"))
        if kind in ("system", "user"):
            talk.say(Message(kind, text))
        elif kind == "reasoning":
            hidden = "encrypted"
        elif kind == "assistant":
            message = Message("assistant", text, chat_calls(record.get("tool_calls")))
            talk.act(message, model=text_at(record, "model_id"), reasoning=hidden)
            hidden = ""
        elif kind == "tool_result":
            talk.answer(Message("tool", text, tool_call_id=text_at(record, "tool_call_id")))
        elif kind == "backend_tool_call":
            talk.note("provider_result_not_recorded")
        else:
            report.unknown(kind, number)
    yield from filter(None, [_session(talk, path)])


def _session(talk: Conversation, path: Path) -> Session | None:
    summary = _summary_of(path.with_name("summary.json"))
    info = dict_at(summary, "info")
    return talk.session(
        source=NAME,
        session_id=text_at(info, "id") or (path.parent.name if path.stem == "chat_history" else path.stem),
        cwd=text_at(info, "cwd"),
        model=text_at(summary, "current_model_id"),
        provenance={
            "git_branch": text_at(summary, "head_branch"),
            "started_at": text_at(summary, "created_at"),
        },
    )


def _summary_of(path: Path) -> dict[str, Any]:
    try:
        return as_dict(read_document(path, FileReport()))
    except (OSError, SessionError):
        return {}
