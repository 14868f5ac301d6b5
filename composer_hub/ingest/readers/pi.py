"""Pi sessions (`~/.pi/agent/sessions/**/*.jsonl`, versions 1 to 3) as `Session`s.

Version 1 is a list of entries, versions 2 and 3 are a tree (`id`, `parentId`). An entry of type `message` is one
message, so a step is one entry. A compaction names the first entry that it keeps. Oh My Pi, a fork, also records the
system prompt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.harnesses import exit_code_in, harness_named
from composer_hub.ingest.assemble import TraceFacts
from composer_hub.ingest.documents import head_lines, json_lines
from composer_hub.ingest.foreign import as_text, dict_at, first_text, text_at
from composer_hub.ingest.readers.blocks import blocks_of
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.tree import Node, build_session
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "pi"

ENTRIES = {
    "session", "message", "model_change", "thinking_level_change", "compaction", "branch_summary", "custom",
    "custom_message", "label", "session_info", "context_transform", "ephemeral",
    # of Oh My Pi: facts of the session, of which the model reads the system prompt only
    "session_init", "title", "title_change", "credential_pin", "service_tier_change",
}  # fmt: skip
ENDED_BADLY = {"aborted": "interrupted", "error": "provider_error"}

# Pi's own words around a summary: the prompt is exact only with the same words.
COMPACTED = ("The conversation history before this point was compacted into the following summary:", "\n</summary>")
BRANCH = ("The following is a summary of a branch that this conversation came back from:", "</summary>")

_HARNESS = harness_named(NAME)


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a Pi session by its header, or by entries around a message with Pi's own keys."""
    records = head_lines(head)
    if any(r.get("type") == "session" and "harness" not in r and ("cwd" in r or "version" in r) for r in records):
        return True
    return any(
        r.get("type") == "message" and "timestamp" in r and "stopReason" in dict_at(r, "message") for r in records
    )


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the session of a file."""
    file = _PiFile(path, report)
    for number, entry in json_lines(path, report):
        file.take(number, entry)
    if session := build_session(file.nodes, file.facts(), report):
        yield session


class _PiFile:
    """The nodes while the file is read."""

    def __init__(self, path: Path, report: FileReport) -> None:
        self.path, self.report = path, report
        self.header: dict[str, Any] = {}
        self.model = ""
        self.system_prompt = ""
        self.nodes: list[Node] = []
        self.ids: set[str] = set()
        self.entry_ids: list[str] = []  # with the header: version 1 compactions point by position
        self.chain = hashlib.sha256()

    def take(self, number: int, entry: dict[str, Any]) -> None:
        """File one entry away."""
        kind = text_at(entry, "type")
        if kind not in ENTRIES:
            self.report.unknown(kind, number)
            if not text_at(entry, "id"):  # no entry names it as its parent
                self.entry_ids.append("")
                return
        if kind == "session":
            self.header = self.header or entry
            self.model = self.model or text_at(entry, "modelId")
            self.entry_ids.append("")
            return
        if kind == "title":  # no entry of the tree
            self.entry_ids.append("")
            return
        if kind == "session_init":
            self.system_prompt = self.system_prompt or _system_prompt(entry.get("systemPrompt"))
        if kind == "model_change":
            self.model = text_at(entry, "modelId") or self.model
        node = Node(*self._place(entry))
        self.entry_ids.append(node.node_id)
        if node.node_id in self.ids:
            self.report.add("duplicate_lines")
            return
        self.ids.add(node.node_id)
        self._fill(node, entry, kind, number)
        unread = self.report.take_unread()
        node.inexact = node.inexact or unread
        for message in node.messages:
            self.chain.update(f"{message.role}\0{message.content}\0{message.tool_call_id}".encode("utf-8", "replace"))
        self.nodes.append(node)

    def _place(self, entry: dict[str, Any]) -> tuple[str, str]:
        """Return the entry's id and its parent's: its own, or in version 1 the places in the file."""
        if own := text_at(entry, "id"):
            return own, text_at(entry, "parentId")
        return f"#{len(self.entry_ids)}", self.nodes[-1].node_id if self.nodes else ""

    def _fill(self, node: Node, entry: dict[str, Any], kind: str, number: int) -> None:
        if kind == "message":
            self._message(node, dict_at(entry, "message"), number)
        elif kind == "compaction":
            self._compaction(node, entry)
        elif kind == "branch_summary":
            node.messages = (Message("user", _summary(BRANCH, entry)),)
        elif kind == "custom_message":
            self._user(node, entry, number)
        elif kind == "context_transform":
            node.inexact = "context_transform"

    def _message(self, node: Node, message: dict[str, Any], number: int) -> None:
        role = text_at(message, "role")
        if role == "assistant":
            self._assistant(node, message, number)
        elif role == "toolResult":
            self._result(node, message, number)
        elif role in ("user", "custom", "hookMessage"):
            self._user(node, message, number)
        elif role == "bashExecution":
            if message.get("excludeFromContext") is not True:
                node.messages = (Message("user", _bash_text(message)),)
        elif role == "branchSummary":
            node.messages = (Message("user", _summary(BRANCH, message)),)
        elif role == "compactionSummary":
            node.messages = (Message("user", _summary(COMPACTED, message)),)
        else:
            self.report.unknown(f"message/{role}", number)

    def _assistant(self, node: Node, message: dict[str, Any], number: int) -> None:
        blocks = blocks_of(node, message.get("content"), self.report, number)
        status = ENDED_BADLY.get(text_at(message, "stopReason"), "")
        if status == "provider_error":
            self.report.add("provider_errors")
        node.messages = (blocks.action(),)
        node.reasoning_status = blocks.reasoning or node.reasoning_status
        node.turn = self._key(blocks.calls)
        node.model = text_at(message, "model") or self.model
        node.usage = usage_of(message.get("usage"), at=message.get("timestamp"))
        node.is_shown = not status  # Pi leaves messages that did not end out of what it sends
        if status or message.get("stopReason") == "length":
            node.flags = (ResultFlag(status=status or "truncated", detail=text_at(message, "errorMessage")),)

    def _key(self, calls: list[ToolCall]) -> str:
        """Return an id of this message that is the same in copies of the session."""
        self.chain.update("".join(call.call_id for call in calls).encode("utf-8", "replace") + b"\1")
        return self.chain.hexdigest()[:32]

    def _result(self, node: Node, message: dict[str, Any], number: int) -> None:
        text = blocks_of(node, message.get("content"), self.report, number).text
        is_error = message.get("isError")
        code = exit_code_in(text, _HARNESS) if is_error else None
        call_id, name = text_at(message, "toolCallId"), text_at(message, "toolName")
        node.messages = (Message("tool", text, tool_call_id=call_id, name=name),)
        node.flags = (ResultFlag(is_error if isinstance(is_error, bool) else None, code),)

    def _user(self, node: Node, message: dict[str, Any], number: int) -> None:
        if text := blocks_of(node, message.get("content"), self.report, number).text:
            node.messages = (Message("user", text),)

    def _compaction(self, node: Node, entry: dict[str, Any]) -> None:
        node.cut, node.logical_parent = True, node.parent
        node.messages = (Message("user", _summary(COMPACTED, entry)),)
        first, index = text_at(entry, "firstKeptEntryId"), entry.get("firstKeptEntryIndex")
        if not first and isinstance(index, int) and 0 <= index < len(self.entry_ids):
            first = self.entry_ids[index]
        if first and first != node.node_id:
            node.kept = (first, node.parent)

    def facts(self) -> TraceFacts:
        """Return the facts of the header."""
        provenance = {
            "harness_version": str(self.header.get("version", 1)),
            "started_at": text_at(self.header, "timestamp"),
            "forked_from": Path(first_text(self.header, "parentSession", "branchedFrom")).stem,
        }
        session_id = text_at(self.header, "id") or self.path.stem
        cwd = text_at(self.header, "cwd")
        return TraceFacts(NAME, session_id, system_prompt=self.system_prompt, cwd=cwd, provenance=provenance)


def _system_prompt(value: Any) -> str:
    """Return a system prompt, which is one text or several blocks."""
    return "\n\n".join(map(as_text, value)) if isinstance(value, list) else as_text(value)


def _summary(frame: tuple[str, str], entry: dict[str, Any]) -> str:
    return f"{frame[0]}\n\n<summary>\n{text_at(entry, 'summary')}{frame[1]}"


def _bash_text(message: dict[str, Any]) -> str:
    """Return a command of the user in the words that the model reads."""
    output = text_at(message, "output")
    lines = [f"Ran `{text_at(message, 'command')}`", f"```\n{output}\n```" if output else "(no output)"]
    if message.get("cancelled") is True:
        lines.append("\n(command cancelled)")
    elif message.get("exitCode"):
        lines.append(f"\nCommand exited with code {message['exitCode']}")
    return "\n".join(lines)
