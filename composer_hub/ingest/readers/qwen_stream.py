"""The output of `qwen -o stream-json`: its lines in, the sessions of the main agent and of its subagents out.

Each line holds one block of a message. The blocks of an API message have different ids, so a message is a run of
assistant lines. The result of a failed command carries no flag, and an exit code only if the command printed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.harnesses import exit_code_in, harness_named
from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_lines, json_lines
from composer_hub.ingest.foreign import bool_at, content_text, dict_at, list_at, text_at
from composer_hub.ingest.readers.blocks import Blocks
from composer_hub.ingest.readers.pieces import Pieces
from composer_hub.ingest.report import STREAM_LOG, FileReport
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message
from composer_hub.session import ResultFlag, Session

SILENT = {"result", "stream_event", "control_request", "control_response"}
_NAME = "qwen_code"
_HARNESS = harness_named(_NAME)


def is_stream(head: bytes) -> bool:
    """Recognize the record that opens a stream."""
    return any(_is_first(record) for record in head_lines(head)[:1])


def _is_first(record: dict[str, Any]) -> bool:
    if record.get("type") != "system" or record.get("subtype") != "init" or "session_id" not in record:
        return False
    return "qwen_code_version" in record or "run_shell_command" in list_at(record, "tools")


def read_stream(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the sessions of a stream."""
    first: dict[str, Any] = {}
    lanes: dict[str, _Lane] = {}  # "" or the call that started a subagent
    for number, record in json_lines(path, report):
        kind = text_at(record, "type")
        first = first or (record if kind == "system" else {})
        if kind in ("assistant", "user"):
            agent = text_at(record, "parent_tool_use_id")
            lane = lanes.setdefault(agent, _Lane(report))
            lane.take(kind, dict_at(record, "message"), number)
        elif kind not in SILENT and kind != "system":
            report.unknown(kind, number)
    for agent, lane in lanes.items():
        if session := lane.session(first, agent):
            yield session


class _Lane:
    """The conversation of the main agent or of a subagent."""

    def __init__(self, report: FileReport) -> None:
        self.report, self.talk = report, Conversation(report)
        self.talk.note(STREAM_LOG)
        self.open = Pieces(self.talk)

    def take(self, role: str, message: dict[str, Any], number: int) -> None:
        blocks = Blocks(message.get("content"), self.report, number)
        if role == "user":
            self.open.close()
            for block in blocks.results:
                self._answer(block)
            if blocks.text:
                self.talk.say(Message("user", blocks.text))
            return
        self.open.take(blocks)
        self.open.add(usage=usage_of(message.get("usage")), model=text_at(message, "model"))

    def _answer(self, block: dict[str, Any]) -> None:
        text, is_error = content_text(block.get("content")), bool_at(block, "is_error")
        code = None if is_error else exit_code_in(text, _HARNESS)
        # `false` means only that the tool ran, whatever became of the command in it.
        flag = ResultFlag(True if is_error else None, code, "failed" if is_error else "")
        self.talk.answer(Message("tool", text, tool_call_id=text_at(block, "tool_use_id")), flag or None)

    def session(self, first: dict[str, Any], agent: str) -> Session | None:
        self.open.close()
        session_id = text_at(first, "session_id")
        return self.talk.session(
            source=_NAME,
            session_id=f"{session_id}/{agent}" if agent else session_id,
            parent_session_id=session_id if agent else "",
            spawn_call_id=agent,
            cwd=text_at(first, "cwd"),
            model=text_at(first, "model"),
            tool_names=tuple(name for name in list_at(first, "tools") if isinstance(name, str)),
            provenance={"harness_version": text_at(first, "qwen_code_version")},
        )
