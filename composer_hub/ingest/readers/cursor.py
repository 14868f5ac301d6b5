"""Cursor's agent transcripts (`~/.cursor/projects/<project>/agent-transcripts/*/*.jsonl`) as `Session`s.

In: one message per line, with content in blocks. Out: one session. An assistant line is one model call. Transcripts
often have no results and no ids of calls: such a call is not a failure. Cursor writes these files for display, so no
prompt is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_records, json_lines
from composer_hub.ingest.foreign import arguments_of, as_dict, as_text, content_text, dicts, first_text
from composer_hub.ingest.report import FileReport
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "cursor"
READER_VERSION = 1
DISPLAY = "display_log"

_CALLS = ("tool_use", "tool_call", "tool-call")
_RESULTS = ("tool_result", "tool-result")
_OTHERS = {"type", "uuid", "id", "timestamp", "parentId", "sessionId"}  # keys of other harnesses' lines


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a line that has a role and blocks, and no type, id or time."""
    return any(_is_ours(record) for record in head_records(head))


def _is_ours(record: dict[str, Any]) -> bool:
    if record.get("type") == "cursor_session_meta":
        return True
    blocks = as_dict(record.get("message")).get("content")
    return record.get("role") in ("user", "assistant") and isinstance(blocks, list) and not _OTHERS & record.keys()


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the session of a file."""
    file = _CursorFile(report)
    for number, record in json_lines(path, report):
        file.take(number, record)
    if session := file.session(path):
        yield session


class _CursorFile:
    """The conversation while the file is read."""

    def __init__(self, report: FileReport) -> None:
        self.report = report
        self.talk = Conversation(report)
        self.talk.note(DISPLAY)
        self.meta: dict[str, Any] = {}
        self.tools: list[dict[str, Any]] = []
        self.ids: set[str] = set()  # of calls, as far as they are recorded

    def take(self, number: int, record: dict[str, Any]) -> None:
        """Add one line."""
        role, kind = record.get("role"), as_text(record.get("type"))
        content = as_dict(record.get("message")).get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(dicts(content))
        if role == "user":
            self._user(blocks, number)
        elif role == "assistant":
            self._act(blocks, as_text(record.get("model")), number)
        elif kind == "cursor_session_meta":
            self.meta = record
        elif kind == "cursor_available_tools":
            self.tools = list(dicts(record.get("tools")))
        elif kind != "turn_ended":
            self.report.unknown(kind or f"role {role}", number)

    def _user(self, blocks: list[dict[str, Any]], number: int) -> None:
        """Add results to their calls, then the user's words with the context around them."""
        texts = []
        for block in blocks:
            kind = as_text(block.get("type"))
            if kind in _RESULTS:
                self._answer(block)
            elif kind in ("text", "image"):
                texts.append(content_text(block))
            else:
                self.report.unknown(f"block {kind}", number)
        if text := "\n".join(filter(None, texts)):
            self.talk.say(Message("user", text))

    def _act(self, blocks: list[dict[str, Any]], model: str, number: int) -> None:
        texts, thoughts, calls = [], [], []
        for block in blocks:
            kind = as_text(block.get("type"))
            if kind in _CALLS:
                call_id = first_text(block, "id", "toolCallId")
                calls.append(ToolCall(as_text(block.get("name")), arguments_of(block.get("input")), call_id))
            elif kind == "thinking":
                thoughts.append(first_text(block, "thinking", "text"))
            elif kind == "text":
                texts.append(as_text(block.get("text")))
            else:
                self.report.unknown(f"block {kind}", number)
        self.ids.update(call.call_id for call in calls if call.call_id)
        content, thinking = ("\n".join(filter(None, parts)) for parts in (texts, thoughts))
        self.talk.act(Message("assistant", content, tuple(calls), reasoning_content=thinking), model=model)

    def _answer(self, block: dict[str, Any]) -> None:
        """Give a result to its call; to calls without ids, results belong in order, whatever call they name."""
        call_id = first_text(block, "tool_use_id", "toolCallId")
        last = {call.call_id for draft in self.talk.drafts[-1:] for call in self.talk.messages[draft.action].tool_calls}
        if call_id not in self.ids and not last & self.ids:
            call_id = ""
        is_error = block.get("is_error")
        flag = ResultFlag(is_error) if isinstance(is_error, bool) else None
        self.talk.answer(Message("tool", content_text(block.get("content")), tool_call_id=call_id), flag)

    def session(self, path: Path) -> Session | None:
        parent = path.parents[1].name if path.parent.name == "subagents" else ""
        session_id = as_text(self.meta.get("session_id")) or path.stem
        return self.talk.session(
            source=NAME,
            session_id=f"{parent}/{session_id}" if parent else session_id,
            parent_session_id=parent,
            model=as_text(self.meta.get("model")),
            tools=tuple(self.tools),
            provenance={"reader": f"{NAME}/{READER_VERSION}"},
        )
