"""Cline: `<session>.messages.json` (SDK, version 1) and the older `api_conversation_history.json` of a task.

In: Anthropic messages, in a document with a session id or as a bare list. Out: one session. After a compaction
(`metadata.kind`) the file no longer has the earlier messages, so the model reads on from that message. Old tasks write
calls as XML in the text; the text stays, and the next user message is the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_records, is_list, read_document
from composer_hub.ingest.foreign import IMAGE, arguments_of, as_bool, as_dict, as_int, as_list, as_text, dicts
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, ToolCall, canonical_json
from composer_hub.session import ResultFlag, Session

NAME = "cline"

_BLOCKS = {"text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "file", "document"}
_WORKDIR = re.compile(r"# Current Working Directory \((.+?)\) Files")


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a session document by its version and ids, and a history by Anthropic messages in a bare list."""
    records = head_records(head)
    if not records:
        return False
    if is_list(head):
        return all(map(_is_message, records[:3]))
    document = records[0]
    message = next(dicts(document.get("messages")), {})
    return (
        "projectHash" not in document and {"version", "messages", "agent"} <= document.keys() and _is_message(message)
    )


def _is_message(entry: dict[str, Any]) -> bool:
    kinds = [as_text(block.get("type")) for block in dicts(entry.get("content"))]
    return entry.get("role") in ("user", "assistant") and bool(kinds) and _BLOCKS.issuperset(kinds)


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the file's session."""
    document = read_document(path, report)
    history = document if isinstance(document, list) else as_list(as_dict(document).get("messages"))
    reader = _ClineReader(report, by_text=not any(_has_calls(entry) for entry in dicts(history)))
    if system := as_text(as_dict(document).get("system_prompt")):
        reader.talk.say(Message("system", system))
    for number, entry in enumerate(history, start=1):
        reader.read(number, as_dict(entry))
    agent, session_id = as_text(as_dict(document).get("agent")), as_text(as_dict(document).get("sessionId"))
    session = reader.talk.session(
        source=NAME,
        session_id=session_id,
        parent_session_id=path.parent.name if agent not in ("", "lead") and path.parent.name != session_id else "",
        name=path.parent.name if isinstance(document, list) else path.name.partition(".")[0],
        cwd=reader.cwd,
        provenance={"agent": agent} if agent else {},
    )
    if session:
        yield session


def _has_calls(entry: dict[str, Any]) -> bool:
    return any(block.get("type") == "tool_use" for block in dicts(entry.get("content")))


class _ClineReader:
    def __init__(self, report: FileReport, *, by_text: bool) -> None:
        self.report, self.by_text = report, by_text
        self.talk = Conversation(report)
        self.cwd = ""

    def read(self, number: int, entry: dict[str, Any]) -> None:
        content = entry.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(dicts(content))
        if as_text(as_dict(entry.get("metadata")).get("kind")).startswith("compaction"):
            self.report.add("boundaries")
            self.talk.forget(at for at in self.talk.view if self.talk.messages[at].role == "system")
        if entry.get("role") == "assistant":
            self._act(entry, blocks)
        elif entry.get("role") == "user":
            self._user(blocks)
        else:
            self.report.unknown(f"role {entry.get('role')}", number)

    def _act(self, entry: dict[str, Any], blocks: list[dict[str, Any]]) -> None:
        self.talk.act(
            Message("assistant", _text(blocks), _calls(blocks), reasoning_content=_thinking(blocks)),
            model=as_text(as_dict(entry.get("modelInfo")).get("id")),
            reasoning=_status(blocks),
            usage=usage_of(entry.get("metrics"), at=entry.get("ts")),
        )

    def _user(self, blocks: list[dict[str, Any]]) -> None:
        """Say the results first, then the user's words: one message of the file may hold both."""
        for block in blocks:
            if block.get("type") == "tool_result":
                text, failed = _result_text(block.get("content")), as_bool(block.get("is_error"))
                flag = ResultFlag(failed, status="failed" if failed else "") if failed is not None else _judged(block)
                self.talk.answer(Message("tool", text, tool_call_id=as_text(block.get("tool_use_id"))), flag)
        if text := _text(blocks):
            self.cwd = self.cwd or (found.group(1) if (found := _WORKDIR.search(text)) else "")
            message = Message("user", text)
            self.talk.observe(message) if self.by_text else self.talk.say(message)


def _text(blocks: list[dict[str, Any]]) -> str:
    return "\n".join(filter(None, map(_block_text, blocks)))


def _block_text(block: dict[str, Any]) -> str:
    kind = block.get("type")
    if kind == "file":
        return f"{as_text(block.get('path'))}\n{as_text(block.get('content'))}".strip()
    return IMAGE if kind == "image" else as_text(block.get("text")) if kind == "text" else ""


def _calls(blocks: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(name, arguments_of(block.get("input")), as_text(block.get("id")))
        for block in blocks
        if block.get("type") == "tool_use" and (name := as_text(block.get("name")))
    )


def _thinking(blocks: list[dict[str, Any]]) -> str:
    texts = (as_text(block.get("thinking")) for block in blocks if block.get("type") == "thinking")
    return "\n".join(filter(None, texts))


def _status(blocks: list[dict[str, Any]]) -> str:
    hidden = any(block.get("type") in ("thinking", "redacted_thinking") for block in blocks)
    return "encrypted" if hidden and not _thinking(blocks) else ""


def _result_text(content: Any) -> str:
    """Return a result's text; the SDK also keeps results as JSON values, which the model reads as JSON."""
    blocks = list(dicts(content))
    if blocks and all(as_text(block.get("type")) in _BLOCKS for block in blocks):
        return _text(blocks)
    return as_text(content) if isinstance(content, str) or content is None else canonical_json(content)


def _judged(block: dict[str, Any]) -> ResultFlag | None:
    """Take the verdicts that the SDK's own tools put into their results, one for each query."""
    verdicts = [as_bool(item.get("success")) for item in dicts(block.get("content"))]
    codes = [code for item in dicts(block.get("content")) if (code := as_int(item.get("exit_code"))) is not None]
    if False in verdicts:
        return ResultFlag(True, codes[0] if codes else None, "failed")
    return ResultFlag(exit_code=codes[0]) if codes else None
