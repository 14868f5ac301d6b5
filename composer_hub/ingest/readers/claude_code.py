"""Claude Code sessions (`~/.claude/projects/*/*.jsonl` and their `subagents/`, or a printed stream) as `Session`s.

A line is a node of a tree (`uuid`, `parentUuid`); an API message is spread over lines that share `message.id`. Nothing
in the file is the prompt as it was sent: no system prompt, no tool schemas, attachments as data. What is text for the
model is kept, the rest is a link of the chain.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.harnesses import exit_code_in, harness_named
from composer_hub.ingest.assemble import TraceFacts
from composer_hub.ingest.documents import (
    HEAD,
    head_lines,
    head_records,
    is_list,
    json_lines,
    read_document,
    read_records,
)
from composer_hub.ingest.foreign import as_dict, as_list, as_text, dict_at, list_at, text_at
from composer_hub.ingest.readers.blocks import blocks_of
from composer_hub.ingest.readers.claude_attachments import attachment_text, unseen_part
from composer_hub.ingest.readers.claude_stream import ClaudeStream, is_first
from composer_hub.ingest.report import STREAM_LOG, FileReport, SessionError
from composer_hub.ingest.tree import Node, build_session
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "claude_code"

SYNTHETIC_MODEL = "<synthetic>"

IN_TREE = {"user", "assistant", "system", "attachment", "progress"}
BESIDE_TREE = {
    "queue-operation", "file-history-snapshot", "summary", "ai-title", "custom-title", "agent-name", "agent-color",
    "agent-setting", "tag", "last-prompt", "pr-link", "mode", "permission-mode", "isolation-latch", "worktree-state",
    "bridge-session", "relocated", "frame-link", "atis-latch", "content-replacement", "started", "result",
    "attribution-snapshot", "file-history-delta", "cost-state", "continued-in", "launched", "failed",
    "speculation-accept", "fork-context-ref", "marble-origami-commit", "marble-origami-snapshot",
}  # fmt: skip
SYSTEM_SUBTYPES = {
    "compact_boundary", "microcompact_boundary", "stop_hook_summary", "turn_duration", "api_error", "api_refusal",
    "model_refusal_fallback", "local_command", "away_summary", "bridge_status", "informational", "error",
    "session_start",
}  # fmt: skip
STOPPED = {"max_tokens": "truncated", "model_context_window_exceeded": "truncated", "refusal": "refused"}

_HARNESS = harness_named(NAME)
_PARENT_KEY = re.compile(rb'"parentUuid"\s*:')
_QWEN_PARTS = re.compile(rb'"message"\s*:\s*\{[^{}\[\]]*"parts"\s*:')


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a Claude Code session by its records' own keys."""
    if is_list(head):
        return is_stream(head)
    records = head_lines(head)
    if not records:
        # The first line alone may be longer than the head.
        return (
            b"\n" not in head
            and head[:1] == b"{"
            and bool(_PARENT_KEY.search(head[:4096]))
            and b'"harness"' not in head[:4096]
            and not _QWEN_PARTS.search(head[:4096])
        )
    return any(_is_ours(record) or is_first(record) for record in records)


def is_stream(head: bytes) -> bool:
    """Recognize the output of `claude -p --output-format stream-json`."""
    return any(map(is_first, head_records(head)))


def _is_ours(record: dict[str, Any]) -> bool:
    kind = text_at(record, "type")
    if "parentUuid" in record and "uuid" in record:
        # Qwen Code writes the same keys, but its messages have parts and its other records a payload.
        return kind in IN_TREE and "parts" not in dict_at(record, "message") and "systemPayload" not in record
    return kind in BESIDE_TREE and any(key in record for key in ("sessionId", "leafUuid", "messageId"))


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the sessions of a file: the main one, then its inline subagents."""
    file = _File(path, report)
    with path.open("rb") as opened:
        records = read_records if is_list(opened.read(HEAD)) else json_lines
    for number, record in records(path, report):
        if stored := file.stream.stored(number, record):
            file.take(number, stored)
    yield from file.sessions()


class _File:
    """The records of one file, collected before its trees can be walked."""

    def __init__(self, path: Path, report: FileReport) -> None:
        self.path, self.report = path, report
        self.stream = ClaudeStream()
        self.nodes: dict[str, Node] = {}
        self.side: dict[str, str] = {}  # uuid of a sidechain record -> its agent id or ""
        self.session_ids: dict[str, int] = {}
        self.provider_errors: dict[str, str] = {}  # uuid of a record that shows one -> its text
        self.unfinished: set[str] = set()  # uuids of assistant records without a stop reason
        self.withdrawn: set[str] = set()  # uuids that a later record takes back
        self.replaced: set[str] = set()  # calls whose results were shortened in later prompts
        self.kept: dict[str, tuple[str, str]] = {}
        self.spawned: dict[str, str] = {}  # agent id -> call
        self.forked: set[str] = set()  # agents that continued their parent's context, which only its file has
        self.deferred: dict[str, None] = {}
        self.seen: dict[str, str] = {}  # the first value of each of the next
        self.unseen = {"cwd", "version", "gitBranch", "timestamp"}

    # ---- lines

    def take(self, number: int, record: dict[str, Any]) -> None:
        """Add one record of the file."""
        kind = text_at(record, "type")
        if session := text_at(record, "sessionId"):
            self.session_ids[session] = self.session_ids.get(session, 0) + 1
        if kind == "content-replacement":
            self.replaced |= {text_at(one, "toolUseId") for one in map(as_dict, list_at(record, "replacements"))} - {""}
        if kind == "fork-context-ref":
            self.forked.add(text_at(record, "agentId"))
        if kind not in IN_TREE and kind not in BESIDE_TREE:
            self.report.unknown(kind, number)
        uuid = text_at(record, "uuid")
        if not uuid or kind in BESIDE_TREE:
            return
        if uuid in self.nodes:
            self.report.add("duplicate_lines")
            return
        if self.unseen:
            self._see(record)
        if record.get("isSidechain") is True:
            self.side[uuid] = text_at(record, "agentId")
        for key in ("supersedesUuids", "retractedMessageUuids"):
            if key in record:
                self.withdrawn.update(as_text(one) for one in as_list(record[key]))
        node = self.nodes[uuid] = self._node(uuid, record, number)
        unread = self.report.take_unread()
        node.inexact = node.inexact or unread

    def _see(self, record: dict[str, Any]) -> None:
        for key in tuple(self.unseen):
            if value := text_at(record, key):
                self.seen[key] = value
                self.unseen.discard(key)

    def _node(self, uuid: str, record: dict[str, Any], number: int) -> Node:
        node = Node(uuid, text_at(record, "parentUuid"))
        kind = record.get("type")
        if kind == "user":
            self._user(node, record, number)
        elif kind == "assistant":
            self._assistant(node, record, number)
        elif kind == "system":
            self._system(node, record, number)
        elif kind == "attachment":
            self._attachment(node, dict_at(record, "attachment"), number)
        return node

    def _user(self, node: Node, record: dict[str, Any], number: int) -> None:
        is_summary = record.get("isCompactSummary") is True
        if record.get("isVisibleInTranscriptOnly") is True and not is_summary:
            return
        node.cut = is_summary  # settled in `_cuts`, once the boundary above it is known
        blocks = blocks_of(node, dict_at(record, "message").get("content"), self.report, number)
        messages: list[Message] = []
        flags: list[ResultFlag | None] = []
        for block in blocks.results:
            call_id = text_at(block, "tool_use_id") or text_at(record, "sourceToolUseID")
            text = blocks_of(node, block.get("content"), self.report, number).text
            messages.append(Message("tool", text, tool_call_id=call_id))
            flags.append(self._flag(block, record, text))
            self._spawn(record, call_id)
        if blocks.text:
            messages.append(Message("user", blocks.text))
            flags.append(None)
        node.messages, node.flags = tuple(messages), tuple(flags)

    def _flag(self, block: dict[str, Any], record: dict[str, Any], text: str) -> ResultFlag | None:
        is_error = block.get("is_error")
        copy = record.get("toolUseResult")
        denial = text_at(record, "toolDenialKind")
        code, status = None, "denied" if denial else ""
        if isinstance(copy, dict):
            code = copy.get("exitCode", copy.get("exit_code"))
            if copy.get("interrupted") is True:
                status = status or "interrupted"
        if code.__class__ is not int:
            code = exit_code_in(text, _HARNESS) if is_error else None
        return _result_flag(is_error if isinstance(is_error, bool) else None, code, status, denial)

    def _spawn(self, record: dict[str, Any], call_id: str) -> None:
        if agent := text_at(record, "toolUseResult", "agentId"):
            self.spawned.setdefault(agent, call_id)

    def _assistant(self, node: Node, record: dict[str, Any], number: int) -> None:
        message = dict_at(record, "message")
        model = text_at(message, "model")
        if record.get("isApiErrorMessage") is True:  # shown to the user, never sent to the model
            self.report.add("provider_errors")
            self.provider_errors[node.node_id] = blocks_of(node, message.get("content"), self.report, number).text
            return
        if model == SYNTHETIC_MODEL:
            self.report.add("synthetic")
        blocks = blocks_of(node, message.get("content"), self.report, number)
        node.turn = text_at(message, "id") or node.node_id
        node.model = "" if model == SYNTHETIC_MODEL else model
        node.is_target = model != SYNTHETIC_MODEL
        node.messages = (blocks.action(),)
        node.reasoning_status = blocks.reasoning or node.reasoning_status
        stopped = text_at(message, "stop_reason")
        node.usage = usage_of(message.get("usage"), at=record.get("timestamp"), is_open=not stopped)
        if not stopped:
            self.unfinished.add(node.node_id)
        status = "interrupted" if record.get("isAbortedMidStream") is True else STOPPED.get(stopped, "")
        if status:
            detail = text_at(message, "stop_details", "category")
            node.flags = (ResultFlag(status=status, detail=detail or stopped),)

    def _system(self, node: Node, record: dict[str, Any], number: int) -> None:
        subtype = text_at(record, "subtype")
        if subtype not in SYSTEM_SUBTYPES:
            self.report.unknown(f"system/{subtype}", number)
        elif subtype == "compact_boundary":
            node.cut = True
            node.logical_parent = text_at(record, "logicalParentUuid") or node.parent
            node.parent = ""
            self._kept_over(dict_at(record, "compactMetadata"))
        elif subtype == "microcompact_boundary":
            node.inexact = "microcompact"
        elif subtype == "api_error":
            self.report.add("provider_errors")
        elif subtype == "local_command" and (text := text_at(record, "content")):
            node.messages = (Message("user", text),)

    def _kept_over(self, metadata: dict[str, Any]) -> None:
        """Note the messages that a compaction keeps word for word after its anchor."""
        segment = dict_at(metadata, "preservedSegment")
        ends = text_at(segment, "headUuid"), text_at(segment, "tailUuid")
        if all(ends):
            self.kept[text_at(segment, "anchorUuid")] = ends

    def _attachment(self, node: Node, attachment: dict[str, Any], number: int) -> None:
        if attachment.get("type") == "deferred_tools_delta":
            self.deferred |= dict.fromkeys(as_text(name) for name in list_at(attachment, "addedNames"))
        text = attachment_text(attachment)
        if text is None:
            self.report.unknown(f"attachment/{attachment.get('type')}", number)
            node.inexact = "attachment_not_read"
        elif text:
            node.messages = (Message("user", text),)
            node.inexact = unseen_part(text)

    # ---- trees

    def sessions(self) -> Iterator[Session]:
        """Yield the main session, then one session per inline subagent."""
        self._withdraw()
        self._cuts()
        self._cut_off()
        if self.stream.is_open:
            self._as_streamed()
        lanes: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            lanes.setdefault(self._lane(node), []).append(node)
        session_id = self._session_id()
        main = lanes.pop("", [])
        calls = {call.call_id: call for node in main for message in node.messages for call in message.tool_calls}
        if main and (session := build_session(main, self._facts(session_id, main), self.report)):
            yield session
        for lane, nodes in lanes.items():
            if lane in self.forked:
                nodes[0].inexact = nodes[0].inexact or "context_of_parent"
            facts = self._subagent_facts(session_id, lane, nodes, calls)
            if session := build_session(nodes, facts, self.report):
                yield session

    def _withdraw(self) -> None:
        """Turn records that were superseded or retracted into links."""
        for uuid in self.withdrawn & self.nodes.keys():
            node = self.nodes[uuid]
            self.report.add("retracted", bool(node.messages))
            node.messages, node.flags, node.turn = (), (), ""

    def _cuts(self) -> None:
        """Cut at a summary only where no boundary cuts above it; set what compactions keep and what was replaced."""
        for node in self.nodes.values():
            if node.cut and node.messages:
                above = self.nodes.get(node.parent)
                links = 0
                while above is not None and not above.cut and not above.messages and links < len(self.nodes):
                    above, links = self.nodes.get(above.parent), links + 1
                node.cut = above is None or not above.cut
                node.logical_parent = node.parent if node.cut else ""
            if self.replaced and any(message.tool_call_id in self.replaced for message in node.messages):
                node.inexact = node.inexact or "content_replaced"
        for anchor, ends in self.kept.items():
            if anchor in self.nodes:
                self.nodes[anchor].kept = ends

    def _cut_off(self) -> None:
        """Flag the API message that a provider's error broke off: the one right above it, if it has no stop reason.

        An error in place of an answer belongs to no step: it is counted, and that is all.
        """
        for uuid, detail in self.provider_errors.items():
            node = self.nodes.get(self.nodes[uuid].parent)
            if node is not None and node.turn and node.is_target and node.node_id in self.unfinished:
                node.flags = node.flags or (ResultFlag(status="provider_error", detail=detail),)

    def _as_streamed(self) -> None:
        """Add what a stream records at its ends: the offered tools and the denied calls. No prompt is whole."""
        self.deferred |= self.stream.tools
        for node in self.nodes.values():
            if not node.parent:
                node.inexact = node.inexact or STREAM_LOG
            if any(message.tool_call_id in self.stream.denied for message in node.messages):
                node.flags = tuple(flag and dataclasses.replace(flag, status="denied") for flag in node.flags)

    def _lane(self, node: Node) -> str:
        """Return "" for the main conversation, else the agent or the root of the sidechain the node belongs to."""
        if not self.side:
            return ""  # as in nearly every file
        way: list[str] = []
        uuid = node.node_id
        while uuid in self.side and not self.side[uuid]:
            way.append(uuid)
            parent = self.nodes[uuid].parent
            if parent not in self.side or len(way) > len(self.side):
                self.side[uuid] = uuid
            uuid = parent if not self.side[uuid] else uuid
        lane = self.side.get(uuid, "")
        self.side.update(dict.fromkeys(way, lane))
        return lane

    def _session_id(self) -> str:
        return self.path.stem if self.path.stem in self.session_ids else next(iter(self.session_ids), self.path.stem)

    def _facts(self, session_id: str, nodes: list[Node], **more: Any) -> TraceFacts:
        provenance = {
            "harness_version": self.seen.get("version", ""),
            "git_branch": self.seen.get("gitBranch", ""),
            "started_at": self.seen.get("timestamp", ""),
        }
        return TraceFacts(
            NAME,
            session_id,
            tool_names=tuple(self.deferred),
            cwd=self.seen.get("cwd", ""),
            provenance=provenance,
            **more,
        )

    def _subagent_facts(self, session_id: str, lane: str, nodes: list[Node], calls: dict[str, ToolCall]) -> TraceFacts:
        spawn = (
            self.spawned.get(lane, "")
            or (lane if lane in calls else "")
            or _call_with_prompt(nodes, calls)
            or _meta_call_id(self.path)
            or _call_in_parent(self.path, session_id, lane)
        )
        return self._facts(f"{session_id}/{lane}", nodes, parent_session_id=session_id, spawn_call_id=spawn)


@functools.lru_cache(maxsize=256)
def _result_flag(is_error: bool | None, code: int | None, status: str, detail: str) -> ResultFlag | None:
    """Return a flag, or None if it is empty; cached, since a session repeats a few flags thousands of times."""
    return ResultFlag(is_error=is_error, exit_code=code, status=status, detail=detail) or None


def _meta_call_id(path: Path) -> str:
    """Return the call that started a subagent, from the file beside its own."""
    meta = path.with_name(f"{path.stem}.meta.json")
    if not path.stem.startswith("agent-") or not meta.is_file():
        return ""
    try:
        call_id = as_dict(read_document(meta, FileReport())).get("toolUseId")
        return call_id if isinstance(call_id, str) else ""
    except (OSError, SessionError):
        return ""


def _call_in_parent(path: Path, session_id: str, agent: str) -> str:
    """Return the call whose result, in the parent's file, names this agent."""
    folder = next((parent for parent in path.parents if parent.name == "subagents"), None)
    parent = folder.parent.with_suffix(".jsonl") if folder else path.with_name(f"{session_id}.jsonl")
    if parent == path or not parent.is_file():
        return ""
    needle = f'"{agent}"'.encode("utf-8", "replace")
    try:
        with parent.open("rb") as file:
            records = head_lines(b"".join(line for line in file if b'"agentId"' in line and needle in line))
    except OSError:
        return ""
    for record in records:
        if dict_at(record, "toolUseResult").get("agentId") == agent:
            blocks = list_at(record, "message", "content")
            return next((text_at(block, "tool_use_id") for block in map(as_dict, blocks)), "")
    return ""


def _call_with_prompt(nodes: list[Node], calls: dict[str, ToolCall]) -> str:
    """Return the call whose prompt opens a sidechain: how older files, without agent ids, link the two."""
    first = next((message.content for node in nodes for message in node.messages if message.role == "user"), "")
    return next(
        (call_id for call_id, call in calls.items() if first and as_dict(call.arguments).get("prompt") == first), ""
    )
