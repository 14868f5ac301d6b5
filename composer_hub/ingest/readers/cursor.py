"""Cursor's agent transcripts (`~/.cursor/projects/<project>/agent-transcripts/*/*.jsonl`), databases and streams.

In: one message per line, with content in blocks; `cursor_stores.py` brings the other files into this form. Out: one
session each. An assistant line is one model call. Transcripts often have no results and no ids of calls: such a call is
not a failure. Cursor writes these files for display, so no prompt is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation, StepDraft
from composer_hub.ingest.documents import HEAD, head_records, json_lines
from composer_hub.ingest.foreign import content_text, dict_at, dicts_at, first_text, int_at, text_at
from composer_hub.ingest.readers.blocks import Blocks
from composer_hub.ingest.readers.cursor_stores import StoredChat, has_store, is_stream, of_database, of_stream
from composer_hub.ingest.readers.pieces import Pieces
from composer_hub.ingest.report import STREAM_LOG, FileReport
from composer_hub.records import Message
from composer_hub.session import ResultFlag, Session

NAME = "cursor"
DISPLAY = "display_log"

_OTHERS = {"type", "uuid", "id", "timestamp", "parentId", "sessionId"}  # keys of other harnesses' lines


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a line that has a role and blocks, and no type, id or time; a stream or a database by their form."""
    return any(_is_ours(record) for record in head_records(head)) or is_stream(head) or has_store(head, path)


def _is_ours(record: dict[str, Any]) -> bool:
    if record.get("type") == "cursor_session_meta":
        return True
    blocks = dict_at(record, "message").get("content")
    return record.get("role") in ("user", "assistant") and isinstance(blocks, list) and not _OTHERS & record.keys()


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the sessions of a file."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if is_stream(head) or has_store(head, path):
        for stored in of_stream(path, report) if is_stream(head) else of_database(path, report):
            yield from filter(None, [_stored_session(stored, report)])
        return
    reader = _CursorFile(report)
    for number, record in json_lines(path, report):
        reader.take(number, record)
    yield from filter(None, [reader.session(path)])


def _stored_session(stored: StoredChat, report: FileReport) -> Session | None:
    reader = _CursorFile(report)
    reader.talk.note(STREAM_LOG if stored.is_stream else "")
    for line in stored.lines:
        reader.take(0, line)
    reader.open.close()
    return reader.talk.session(
        source=NAME,
        session_id=stored.session_id,
        cwd=stored.cwd,
        model=stored.model,
    )


class _CursorFile:
    """The conversation while the file is read."""

    def __init__(self, report: FileReport) -> None:
        self.report = report
        self.talk = Conversation(report)
        self.talk.note(DISPLAY)
        self.meta: dict[str, Any] = {}
        self.tools: list[dict[str, Any]] = []
        self.ids: set[str] = set()  # of calls, as far as they are recorded
        self.open = Pieces(self.talk)
        self.turn = ""  # of the last step
        self.draft: StepDraft | None = None

    def take(self, number: int, record: dict[str, Any]) -> None:
        """Add one line."""
        role, kind = record.get("role"), text_at(record, "type")
        content = dict_at(record, "message").get("content")
        if role == "user":
            self._user(Blocks(content, self.report, number))
        elif role == "system":
            self.talk.say(Message("system", content_text(content)))
        elif role == "assistant":
            self._act(record, Blocks(content, self.report, number))
        elif kind == "cursor_session_meta":
            self.meta = record
        elif kind == "cursor_available_tools":
            self.tools = list(dicts_at(record, "tools"))
        elif kind != "turn_ended":
            self.report.unknown(kind or f"role {role}", number)

    def _user(self, blocks: Blocks) -> None:
        """Add results to their calls, then the user's words with the context around them."""
        self._close()
        for block in blocks.results:
            self._answer(block)
        if blocks.text:
            self.talk.say(Message("user", blocks.text))

    def _act(self, record: dict[str, Any], blocks: Blocks) -> None:
        """Add a message, or a piece of one: pieces continue up to a result or the user's words."""
        turn, speaks = text_at(record, "turn"), blocks.texts or blocks.thoughts
        self.ids.update(call.call_id for call in blocks.calls if call.call_id)
        if turn and turn == self.turn and self.draft and not speaks and not self.open.is_open:
            self.talk.extend(self.draft, [call for call in blocks.calls if call.name])
            return
        self.open.take(blocks)
        self.open.add(model=text_at(record, "model"))
        self.turn = turn or self.turn
        if not record.get("continues"):
            self._close()

    def _close(self) -> None:
        self.draft = self.open.close() or self.draft

    def _answer(self, block: dict[str, Any]) -> None:
        """Give a result to its call; to calls without ids, results belong in order, whatever call they name."""
        call_id = first_text(block, "tool_use_id", "toolCallId")
        last = {call.call_id for draft in self.talk.drafts[-1:] for call in self.talk.messages[draft.action].tool_calls}
        if call_id not in self.ids and not last & self.ids:
            call_id = ""
        is_error = block.get("is_error")
        code, status = int_at(block, "exit_code"), text_at(block, "status")
        detail = "user_rejected" if status == "rejected" else ""
        status = "denied" if status == "rejected" else status
        flag = ResultFlag(is_error if isinstance(is_error, bool) else None, code, status, detail) or None
        self.talk.answer(Message("tool", content_text(block.get("content")), tool_call_id=call_id), flag)

    def session(self, path: Path) -> Session | None:
        parent = path.parents[1].name if path.parent.name == "subagents" else ""
        session_id = text_at(self.meta, "session_id") or path.stem
        return self.talk.session(
            source=NAME,
            session_id=f"{parent}/{session_id}" if parent else session_id,
            parent_session_id=parent,
            model=text_at(self.meta, "model"),
            tools=tuple(self.tools),
        )
