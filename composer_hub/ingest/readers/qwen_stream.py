"""The output of `qwen -o stream-json`: its lines in, the sessions of the main agent and of its subagents out.

Each line holds one block of a message. The blocks of an API message have different ids, so a message is a run of
assistant lines. Results of failed commands carry neither an exit code nor a flag.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.harnesses import exit_code_in, harness_named
from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_lines, json_lines
from composer_hub.ingest.foreign import arguments_of, as_bool, as_dict, as_list, as_text, content_text, dicts
from composer_hub.ingest.readers.pieces import Pieces
from composer_hub.ingest.report import STREAM_LOG, FileReport
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, ToolCall
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
    return "qwen_code_version" in record or "run_shell_command" in as_list(record.get("tools"))


def read_stream(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the sessions of a stream."""
    first: dict[str, Any] = {}
    lanes: dict[str, _Lane] = {}  # "" or the call that started a subagent
    for number, record in json_lines(path, report):
        kind = as_text(record.get("type"))
        first = first or (record if kind == "system" else {})
        if kind in ("assistant", "user"):
            agent = as_text(record.get("parent_tool_use_id"))
            lane = lanes.setdefault(agent, _Lane(report))
            lane.take(kind, as_dict(record.get("message")), number)
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
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(dicts(content))
        for block in blocks:
            kind = as_text(block.get("type"))
            if role == "user":
                self.open.close()
            if kind == "tool_result":
                self._answer(block)
            elif kind == "text" and role == "user":
                self.talk.say(Message("user", as_text(block.get("text"))))
            elif kind == "text":
                self.open.add(text=as_text(block.get("text")))
            elif kind == "thinking":
                self.open.add(thought=as_text(block.get("thinking")))
            elif kind == "tool_use":
                call = ToolCall(as_text(block.get("name")), arguments_of(block.get("input")), as_text(block.get("id")))
                self.open.add(call=call)
            else:
                self.report.unknown(f"block {kind}", number)
        if role == "assistant":
            self.open.add(usage=usage_of(message.get("usage")), model=as_text(message.get("model")))

    def _answer(self, block: dict[str, Any]) -> None:
        text, is_error = content_text(block.get("content")), as_bool(block.get("is_error"))
        code = None if is_error else exit_code_in(text, _HARNESS)
        # `false` says only that the tool ran, whatever became of the command in it.
        flag = ResultFlag(True if is_error else None, code, "failed" if is_error else "")
        self.talk.answer(Message("tool", text, tool_call_id=as_text(block.get("tool_use_id"))), flag or None)

    def session(self, first: dict[str, Any], agent: str) -> Session | None:
        self.open.close()
        session_id = as_text(first.get("session_id"))
        return self.talk.session(
            source=_NAME,
            session_id=f"{session_id}/{agent}" if agent else session_id,
            parent_session_id=session_id if agent else "",
            spawn_call_id=agent,
            cwd=as_text(first.get("cwd")),
            model=as_text(first.get("model")),
            tool_names=tuple(name for name in as_list(first.get("tools")) if isinstance(name, str)),
            provenance={"harness_version": as_text(first.get("qwen_code_version"))},
        )
