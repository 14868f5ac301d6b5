"""Factory Droid: stored sessions (`~/.factory/sessions/*/*.jsonl`) and the output of `droid exec -o stream-json`.

Both become messages in the order of the file. A stored message is one call of the model. A stream prints each text and
call of it as its own record, so an API message is a run of them up to a result. Only a flag marks a failure, and
older versions leave it out: a failed command is known by Droid's words before its output.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.harnesses import exit_code_in, harness_named
from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_records, json_lines
from composer_hub.ingest.foreign import (
    arguments_of,
    as_dict,
    bool_at,
    content_text,
    first_text,
    int_at,
    joined,
    shallow_text,
    text_at,
)
from composer_hub.ingest.readers.blocks import Blocks
from composer_hub.ingest.readers.pieces import Pieces
from composer_hub.ingest.report import STREAM_LOG, FileReport
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "droid"
REWOUND = "rewound"
SILENT = {"todo_state"}
SHELLS = {"Execute", "Shell"}
CANCELLED = "Error: Tool execution cancelled by user"

_HARNESS = harness_named(NAME)
_SESSION_KEYS = ("session_id", "sessionId")


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a stored session by its first record, and a stream by a message, call or result of Droid's shape."""
    records = head_records(head)
    if records and records[0].get("type") == "session_start":
        return {"id", "cwd"} <= records[0].keys() and "payload" not in records[0]
    return is_stream(head)


def is_stream(head: bytes) -> bool:
    """Recognize the output of `droid exec -o stream-json`."""
    return any(map(_is_streamed, head_records(head)))


def _is_streamed(record: dict[str, Any]) -> bool:
    if not any(key in record for key in _SESSION_KEYS):
        return False
    keys = {"message": {"role", "text"}, "tool_call": {"toolName", "parameters"}, "tool_result": {"value"}}
    wanted = keys.get(text_at(record, "type"))
    return wanted is not None and wanted <= record.keys()


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the file's session."""
    reader = _DroidFile(report)
    for number, record in json_lines(path, report):
        reader.take(number, record)
    yield from filter(None, [reader.session(path)])


class _DroidFile:
    """The conversation so far, and the pieces of a streamed message that is still open."""

    def __init__(self, report: FileReport) -> None:
        self.report = report
        self.talk = Conversation(report)
        self.facts: dict[str, str] = {}
        self.tools: dict[str, str] = {}  # call -> tool
        self.seen: dict[str, None] = {}  # ids of messages
        self.open = Pieces(self.talk)

    def take(self, number: int, record: dict[str, Any]) -> None:
        """Add one record."""
        kind = text_at(record, "type")
        if kind == "session_start":
            self._start(record, text_at(record, "id"))
        elif kind == "system":
            self._start(record, first_text(record, *_SESSION_KEYS))
            self.talk.note(STREAM_LOG)
        elif kind == "message" and "message" in record:
            self._stored(number, record, as_dict(record["message"]))
        elif kind == "message":
            self._add_words(record)
        elif kind == "tool_call":
            self._called(record)
        elif kind == "tool_result":
            self._close()
            self._answer(_call_id(record), record.get("value"), bool_at(record, "isError"))
        elif kind == "completion":
            self._completed(text_at(record, "finalText"))
        elif kind == "error":
            self.report.add("provider_errors")
        elif kind not in SILENT:
            self._close()
            self.report.unknown(kind, number)

    def _start(self, record: dict[str, Any], session_id: str) -> None:
        found = {"id": session_id} | {key: text_at(record, key) for key in ("cwd", "model", "version", "timestamp")}
        self.facts = {key: self.facts.get(key) or value for key, value in found.items()}

    # ---- stored messages

    def _stored(self, number: int, record: dict[str, Any], message: dict[str, Any]) -> None:
        record_id, role, content = text_at(record, "id"), message.get("role"), message.get("content")
        if record_id and record_id in self.seen:
            self.report.add("duplicate_lines")
            return
        parent = text_at(record, "parentId")
        if parent in self.seen and parent != next(reversed(self.seen)):
            self.talk.note(REWOUND)
        if record_id:
            self.seen[record_id] = None
        blocks = Blocks(content, self.report, number)
        if role == "assistant":
            self._act(record_id, message, blocks)
        elif role in ("user", "system"):
            for block in blocks.results:
                self._answer(_call_id(block), block.get("content"), bool_at(block, "is_error"))
            if blocks.text:
                self.talk.say(Message(role, blocks.text))
        else:
            self.report.unknown(f"role {role}", number)

    def _act(self, key: str, message: dict[str, Any], blocks: Blocks) -> None:
        if not any(blocks.thoughts):
            blocks.thoughts = [text_at(message, "chatCompletionReasoningContent")]
        self.tools |= {call.call_id: call.name for call in blocks.calls}
        self.talk.act(blocks.action(), reasoning=blocks.reasoning, key=key)

    # ---- streamed messages

    def _add_words(self, record: dict[str, Any]) -> None:
        text = text_at(record, "text")
        if record.get("role") == "assistant":
            if self.open.has_calls:  # a text after a call that has no result yet begins the next message
                self._close()
            self.open.add(text=text)
        else:
            self._close()
            self.talk.say(Message("user", text))

    def _completed(self, text: str) -> None:
        """Add the last message if it was not printed as one."""
        self._close()
        last = next((message for message in reversed(self.talk.messages) if message.role == "assistant"), None)
        if last is None or last.content != text:
            self.open.add(text=text)
            self._close()

    def _called(self, record: dict[str, Any]) -> None:
        name = first_text(record, "toolName", "toolId")
        call = ToolCall(name, arguments_of(record.get("parameters")), _call_id(record))
        self.tools[call.call_id] = name
        self.open.add(call=call)

    def _close(self) -> None:
        """Add the open message of a stream."""
        self.open.add(model=self.facts.get("model", ""))
        self.open.close()

    # ---- results

    def _answer(self, call_id: str, value: Any, is_error: bool | None) -> None:
        code, text = None, ""
        if isinstance(value, dict) and ("stdout" in value or "exitCode" in value):
            code = int_at(value, "exitCode")
            text = joined(text_at(value, name) for name in ("stdout", "stderr"))
        else:
            text = content_text(value) if not isinstance(value, dict) else shallow_text(value)
        if code is None and self.tools.get(call_id) in SHELLS:
            code = exit_code_in(text, _HARNESS)
        status = "cancelled" if is_error is not False and text.startswith(CANCELLED) else ""
        flag = ResultFlag(is_error=is_error, exit_code=code, status=status, detail="user_reject" if status else "")
        self.talk.answer(Message("tool", text, (), call_id, self.tools.get(call_id, "")), flag or None)

    def session(self, path: Path) -> Session | None:
        """Return the session of all that was read."""
        self._close()
        return self.talk.session(
            source=NAME,
            session_id=self.facts.get("id") or path.stem,
            model=self.facts.get("model", ""),
            cwd=self.facts.get("cwd", ""),
            provenance={
                "harness_version": self.facts.get("version", ""),
                "started_at": self.facts.get("timestamp", ""),
            },
        )


def _call_id(record: dict[str, Any]) -> str:
    return first_text(record, "toolCallId", "tool_use_id", "id")
