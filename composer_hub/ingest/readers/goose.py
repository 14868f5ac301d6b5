"""Goose: the database `sessions.db`, older `sessions/*.jsonl`, the output of `goose run --output-format stream-json`.

In: messages whose content is a list of parts; results are in messages of the user's role. Out: one session each. A
compaction hides messages from the agent (`agentVisible`) and adds a summary; later prompts leave out what is hidden.
The system prompt is not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.databases import opened, rows, tables_of
from composer_hub.ingest.documents import HEAD, head_records, json_lines
from composer_hub.ingest.foreign import (
    arguments_of,
    as_dict,
    bool_at,
    content_text,
    dict_at,
    dicts_at,
    first_text,
    int_at,
    parsed,
    text_at,
)
from composer_hub.ingest.readers.pieces import Pieces
from composer_hub.ingest.report import STREAM_LOG, FileReport
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "goose"
COMPACTED = "compacted"
_PARTS = {"toolRequest", "toolResponse", "frontendToolRequest", "toolConfirmationRequest"}
_SILENT_PARTS = {"toolConfirmationRequest", "actionRequired", "systemNotification", "contextLengthExceeded"}
_SILENT_LINES = {"notification", "complete", "model_change"}


def sniff(head: bytes, path: Path) -> bool:
    """Recognize the database by its columns, a file of one session by its facts, a stream by its parts."""
    if "content_json" in tables_of(head, path).get("messages", ()):
        return True
    first = next(iter(head_records(head)), {})
    return {"working_dir", "message_count"} <= first.keys() or is_stream(head)


def is_stream(head: bytes) -> bool:
    """Recognize the output of `goose run --output-format stream-json`."""
    return any(
        record.get("type") == "message" and part.get("type") in _PARTS
        for record in head_records(head)
        for part in dicts_at(record, "message", "content")
    )


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the sessions of a file."""
    with path.open("rb") as file:
        is_database = bool(tables_of(file.read(HEAD), path))
    yield from _of_database(path, report) if is_database else _of_lines(path, report)


def _of_database(path: Path, report: FileReport) -> Iterator[Session]:
    with opened(path) as database:
        for facts in rows(database, "SELECT * FROM sessions ORDER BY id"):
            reader = _GooseChat(report)
            for row in rows(database, "SELECT * FROM messages WHERE session_id = ? ORDER BY id", facts["id"]):
                report.add("records")
                content, metadata = parsed(text_at(row, "content_json")), parsed(text_at(row, "metadata_json"))
                if not isinstance(content, list):
                    report.corrupt(0, f"message {row['id']} of session {facts['id']} is not a list and was skipped.")
                reader.take({**row, "id": row.get("message_id"), "content": content, "metadata": metadata})
            yield from filter(None, [reader.session(facts)])


def _of_lines(path: Path, report: FileReport) -> Iterator[Session]:
    """Read a stored session, whose first line has its facts, or a printed stream."""
    reader, facts = _GooseChat(report), {"id": ""}
    for number, record in json_lines(path, report):
        kind = text_at(record, "type")
        if kind == "message":
            reader.talk.note(STREAM_LOG)
            reader.take(dict_at(record, "message"))
        elif kind == "error":
            reader.fail(text_at(record, "error"))
        elif "role" in record and "content" in record:
            reader.take(record)
        elif "working_dir" in record:
            facts = {**record, "id": path.stem}
        elif kind not in _SILENT_LINES:
            report.unknown(kind, number)
    yield from filter(None, [reader.session(facts)])


class _GooseChat:
    """The conversation so far; the chunks of a printed message share its id."""

    def __init__(self, report: FileReport) -> None:
        self.report = report
        self.talk = Conversation(report)
        self.open = Pieces(self.talk)
        self.hidden: set[int] = set()  # messages that the agent no longer sees

    def take(self, message: dict[str, Any]) -> None:
        """Add a message, or a chunk of one."""
        is_assistant, metadata = message.get("role") == "assistant", dict_at(message, "metadata")
        is_seen = metadata.get("agentVisible") is not False
        message_id = text_at(message, "id")
        if not is_assistant or not message_id or message_id != self.open.key:
            self.open.close("")
        if is_seen and self.hidden:
            self.talk.note(COMPACTED)
            self.talk.forget(index for index in self.talk.view if index not in self.hidden)
        before = len(self.talk.messages)
        if is_assistant:
            self.open.key = message_id
            self.open.add(model=text_at(metadata, "inference", "requestedModel"))
        for part in dicts_at(message, "content"):
            if is_assistant:
                self._write(part)
            else:
                self._hear(part)
        if not message_id:
            self.open.close("")
        if not is_seen:
            self.open.close("")
            self.hidden.update(range(before, len(self.talk.messages)))

    def _write(self, part: dict[str, Any]) -> None:
        kind = text_at(part, "type")
        if kind in ("toolRequest", "frontendToolRequest"):
            self._request(part)
        elif kind == "text":
            self.open.add(text=text_at(part, "text"))
        elif kind in ("thinking", "reasoning"):
            self.open.add(thought=first_text(part, "thinking", "text"))
        elif kind == "redactedThinking":
            self.open.hide()
        elif kind not in _SILENT_PARTS:
            self.report.unknown(f"part {kind}")

    def _request(self, part: dict[str, Any]) -> None:
        call, call_id = dict_at(part, "toolCall"), text_at(part, "id")
        value = as_dict(call.get("value", call.get("Ok", call)))
        if name := text_at(value, "name"):
            self.open.add(call=ToolCall(name, arguments_of(value.get("arguments")), call_id))
        else:  # what the model wrote did not parse, and only the error is kept
            self.report.unknown("call that did not parse")

    def _hear(self, part: dict[str, Any]) -> None:
        kind = text_at(part, "type")
        if kind == "toolResponse":
            text, flag = _result(dict_at(part, "toolResult"))
            self.talk.answer(Message("tool", text, tool_call_id=text_at(part, "id")), flag)
        elif kind in ("text", "image"):
            self.talk.say(Message("user", content_text(part)))
        elif kind not in _SILENT_PARTS:
            self.report.unknown(f"part {kind}")

    def fail(self, words: str) -> None:
        """Note that the provider ended the run."""
        self.open.close("")
        if self.talk.drafts:
            self.talk.flags[self.talk.drafts[-1].action] = ResultFlag(status="provider_error", detail=words[:200])

    def session(self, facts: dict[str, Any]) -> Session | None:
        self.open.close("")
        model = as_dict(parsed(facts.get("model_config_json")))
        return self.talk.session(
            source=NAME,
            session_id=text_at(facts, "id"),
            cwd=text_at(facts, "working_dir"),
            model=first_text(model, "model_name", "model"),
            provenance={"started_at": text_at(facts, "created_at")},
        )


def _result(result: dict[str, Any]) -> tuple[str, ResultFlag]:
    """Return the text and facts of a result. `success` means that the tool ran; the tool may still say `isError`."""
    error = first_text(result, "error", "Err")
    if error or result.get("status") == "error":
        return error, ResultFlag(is_error=True, status="failed")
    value = result.get("value", result.get("Ok"))
    body = as_dict(value) or {"content": value}
    code = int_at(body, "structuredContent", "exit_code")
    is_error = bool_at(body, "isError") is True
    if code is not None:
        return content_text(body.get("content")), ResultFlag(exit_code=code, status="" if code else "completed")
    return content_text(body.get("content")), ResultFlag(is_error or None, None, "failed" if is_error else "")
