"""Qwen Code chats (`~/.qwen/projects/*/chats/*.jsonl` and their `subagents/`) and printed streams as `Session`s.

A record is a node of a tree (`uuid`, `parentUuid`), and its `message` has the parts that went to or came from the
model. A compaction stores the whole history that the model reads from there on, so prompts below it are exact. The
record of a rewind is a link whose parent is the message to which the user went back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.harnesses import exit_code_in, harness_named
from composer_hub.ingest.assemble import TraceFacts
from composer_hub.ingest.documents import HEAD, head_records, json_lines
from composer_hub.ingest.foreign import (
    IMAGE,
    arguments_of,
    as_dict,
    content_text,
    dict_at,
    dicts,
    dicts_at,
    joined,
    shallow_text,
    text_at,
)
from composer_hub.ingest.readers.qwen_stream import is_stream, read_stream
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.tree import Node, build_session
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "qwen_code"

SILENT_SUBTYPES = {
    "ui_telemetry", "attribution_snapshot", "at_command", "custom_title", "rewind", "session_notes", "parent_session",
    "session_source", "session_execution_engine", "session_model", "session_approval_mode", "omni_recall",
    "agent_retry", "agent_session_ready", "file_history_snapshot", "user_text_elements", "session_artifact_event",
    "session_artifact_snapshot", "session_sources_snapshot", "branch_checkpoint", "goal_state", "goal_turn_end",
    "turn_result", "notification", "background_task_completed",
}  # fmt: skip
NEVER_SENT = "realtime_message"
STATUSES = {"success": "completed", "error": "failed", "cancelled": "cancelled"}

_HARNESS = harness_named(NAME)
_SHELL = "run_shell_command"
_PART_KEYS = ("text", "functionCall", "functionResponse", "inlineData")
_RECORD_KEYS = {"uuid", "parentUuid", "sessionId"}


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a record of the tree by a message in parts, or by a kind of record that only Qwen Code writes."""
    return is_stream(head) or any(_is_ours(record) for record in head_records(head) if record.keys() >= _RECORD_KEYS)


def _is_ours(record: dict[str, Any]) -> bool:
    return (
        "parts" in dict_at(record, "message")
        or record.get("type") == "tool_result"
        or record.get("subtype") in ("ui_telemetry", "attribution_snapshot")
    )


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the session of a file, or those of a stream."""
    with path.open("rb") as opened:
        if is_stream(opened.read(HEAD)):
            yield from read_stream(path, report)
            return
    file = _QwenFile(path, report)
    for number, record in json_lines(path, report):
        file.take(number, record)
    if session := build_session(file.nodes, file.facts(), report):
        yield session


class _QwenFile:
    """The nodes while the file is read."""

    def __init__(self, path: Path, report: FileReport) -> None:
        self.path, self.report = path, report
        self.nodes: list[Node] = []
        self.pieces: dict[str, list[Any]] = {}  # uuid -> the messages under it
        self.turns: dict[str, str] = {}  # uuid of an assistant record -> its turn
        self.typed: Node | None = None  # the latest record with a message, if it is the user's
        self.first: dict[str, str] = {}  # the first value of a field

    def take(self, number: int, record: dict[str, Any]) -> None:
        """Add one record."""
        uuid, message = text_at(record, "uuid"), dict_at(record, "message")
        pieces = self.pieces.setdefault(uuid, [])
        if not uuid:
            self.report.unknown("record without uuid", number)
            return
        if message in pieces:
            self.report.add("duplicate_lines")
            return
        pieces.append(message)
        for key in ("sessionId", "cwd", "version", "gitBranch", "timestamp", "agentId"):
            self.first.setdefault(key, text_at(record, key))
        node = Node(uuid if len(pieces) == 1 else f"{uuid}#{len(pieces)}", text_at(record, "parentUuid"))
        kind = text_at(record, "type")
        if kind == "system":
            self._system(node, record, number)
        elif kind in ("user", "assistant", "tool_result"):
            self._message(node, record, message, number)
        else:
            self.report.unknown(kind, number)
        unread = self.report.take_unread()
        node.inexact = node.inexact or unread
        self.nodes.append(node)

    def _message(self, node: Node, record: dict[str, Any], message: dict[str, Any], number: int) -> None:
        if record.get("subtype") == NEVER_SENT:
            return
        node.messages = self._messages(node, message, number)
        kind = record["type"]
        self.typed = node if kind == "user" and not record.get("subtype") else None
        if kind == "assistant" and node.messages:
            self._turn(node, record)
        elif kind == "tool_result":
            node.flags = tuple(_flag(m, dict_at(record, "toolCallResult")) for m in node.messages)

    def _turn(self, node: Node, record: dict[str, Any]) -> None:
        """Name the API message of a record; a subagent writes text and calls of one message as several records."""
        uuid = text_at(record, "uuid")
        above = self.turns.get(node.parent) if record.get("isSidechain") is True else None
        node.turn = self.turns[uuid] = self.turns.get(uuid) or above or uuid
        node.model = text_at(record, "model")
        node.usage = usage_of(record.get("usageMetadata"), at=record.get("timestamp"))
        node.reasoning_status = "plain" if node.messages[0].reasoning_content else "absent"

    def _system(self, node: Node, record: dict[str, Any], number: int) -> None:
        subtype, payload = text_at(record, "subtype"), dict_at(record, "systemPayload")
        if subtype == "chat_compression":
            self._compact(node, payload.get("compressedHistory"), number)
        elif subtype == "slash_command":
            self._command(payload)
        elif subtype == "agent_bootstrap":
            node.inexact = "context_of_parent"
        elif subtype not in SILENT_SUBTYPES:
            self.report.unknown(f"system/{subtype}", number)

    def _compact(self, node: Node, history: Any, number: int) -> None:
        if not history:  # the compaction failed, and the model reads what it read before
            return
        self.typed = None
        node.cut, node.logical_parent = True, node.parent
        node.messages = tuple(m for content in dicts(history) for m in self._messages(node, content, number))
        if not node.messages:
            node.inexact = "compacted_history_not_recorded"

    def _command(self, payload: dict[str, Any]) -> None:
        """Leave out what the user typed if Qwen Code answered it as a command, without the model."""
        typed, self.typed = self.typed, None
        if typed is None or payload.get("phase") != "result" or payload.get("sentToModel") is True:
            return
        if [message.content for message in typed.messages] == [payload.get("rawCommand")]:
            typed.messages = ()

    def _messages(self, node: Node, content: dict[str, Any], number: int) -> tuple[Message, ...]:
        """Return the messages of one content: the model's, or results and then the user's text."""
        parts = list(dicts_at(content, "parts"))
        for part in parts:
            if not any(key in part for key in _PART_KEYS):
                self.report.unknown(f"part/{next(iter(part), '')}", number)
        text = content_text([part for part in parts if part.get("thought") is not True])
        results = tuple(_result(as_dict(part["functionResponse"])) for part in parts if "functionResponse" in part)
        if any(IMAGE in shown.split("\n") for shown in (text, *(result.content for result in results))):
            node.inexact = node.inexact or "image_left_out"
        if content.get("role") == "model":
            thought = content_text([part for part in parts if part.get("thought") is True])
            calls = tuple(call for at, part in enumerate(parts) if (call := _call(part, f"{node.node_id}:{at}")))
            return (Message("assistant", text, calls, reasoning_content=thought),)
        return (*results, Message("user", text)) if text else results

    def facts(self) -> TraceFacts:
        """Return the facts of the session, or of the subagent if the file is one's."""
        session, agent = self.first.get("sessionId") or self.path.stem, self.first.get("agentId", "")
        return TraceFacts(
            NAME,
            f"{session}/{agent}" if agent else session,
            cwd=self.first.get("cwd", ""),
            parent_session_id=session if agent else "",
            provenance={
                "harness_version": self.first.get("version", ""),
                "git_branch": self.first.get("gitBranch", ""),
                "started_at": self.first.get("timestamp", ""),
            },
        )


def _call(part: dict[str, Any], otherwise: str) -> ToolCall | None:
    call = dict_at(part, "functionCall")
    name = text_at(call, "name")
    return ToolCall(name, arguments_of(call.get("args")), text_at(call, "id") or otherwise) if name else None


def _result(answer: dict[str, Any]) -> Message:
    response = dict_at(answer, "response")
    value = response.get("output", response.get("error"))
    text = value if isinstance(value, str) else shallow_text(response) if response else ""
    images = [IMAGE for part in dicts_at(answer, "parts") if "inlineData" in part]
    text = joined([text, *images])
    return Message("tool", text, tool_call_id=text_at(answer, "id"), name=text_at(answer, "name"))


def _flag(message: Message, outcome: dict[str, Any]) -> ResultFlag | None:
    """Return the facts of a result; `success` means that the tool ran, also for a command that failed."""
    if message.role != "tool" or text_at(outcome, "callId") not in ("", message.tool_call_id):
        return None
    status = text_at(outcome, "status")
    is_error = {"success": False, "error": True}.get(status)
    code = exit_code_in(message.content, _HARNESS) if message.name == _SHELL and not is_error else None
    return ResultFlag(is_error, code, STATUSES.get(status, ""), text_at(outcome, "errorType") or status) or None
