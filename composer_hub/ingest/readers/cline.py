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
from composer_hub.ingest.foreign import as_dict, as_text, bool_at, dicts, dicts_at, int_at, list_at, text_at
from composer_hub.ingest.readers.blocks import Blocks
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, canonical_json
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
    message = next(dicts_at(document, "messages"), {})
    return (
        "projectHash" not in document and {"version", "messages", "agent"} <= document.keys() and _is_message(message)
    )


def _is_message(entry: dict[str, Any]) -> bool:
    kinds = [text_at(block, "type") for block in dicts_at(entry, "content")]
    return entry.get("role") in ("user", "assistant") and bool(kinds) and _BLOCKS.issuperset(kinds)


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the file's session."""
    document = read_document(path, report)
    history = document if isinstance(document, list) else list_at(as_dict(document), "messages")
    reader = _ClineReader(report, by_text=not any(_has_calls(entry) for entry in dicts(history)))
    if system := text_at(as_dict(document), "system_prompt"):
        reader.talk.say(Message("system", system))
    for number, entry in enumerate(history, start=1):
        reader.read(number, as_dict(entry))
    agent, session_id = text_at(as_dict(document), "agent"), text_at(as_dict(document), "sessionId")
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
    return any(block.get("type") == "tool_use" for block in dicts_at(entry, "content"))


class _ClineReader:
    def __init__(self, report: FileReport, *, by_text: bool) -> None:
        self.report, self.by_text = report, by_text
        self.talk = Conversation(report)
        self.cwd = ""

    def read(self, number: int, entry: dict[str, Any]) -> None:
        blocks = Blocks(entry.get("content"), self.report, number)
        if text_at(entry, "metadata", "kind").startswith("compaction"):
            self.report.add("boundaries")
            self.talk.forget(at for at in self.talk.view if self.talk.messages[at].role == "system")
        if entry.get("role") == "assistant":
            self._act(entry, blocks)
        elif entry.get("role") == "user":
            self._user(blocks)
        else:
            self.report.unknown(f"role {entry.get('role')}", number)

    def _act(self, entry: dict[str, Any], blocks: Blocks) -> None:
        self.talk.act(
            blocks.action(),
            model=text_at(entry, "modelInfo", "id"),
            reasoning=blocks.reasoning,
            usage=usage_of(entry.get("metrics"), at=entry.get("ts")),
        )

    def _user(self, blocks: Blocks) -> None:
        """Add the results first, then the user's words: one message of the file may hold both."""
        for block in blocks.results:
            text, failed = self._result_text(block.get("content")), bool_at(block, "is_error")
            flag = ResultFlag(failed, status="failed" if failed else "") if failed is not None else _judged(block)
            self.talk.answer(Message("tool", text, tool_call_id=text_at(block, "tool_use_id")), flag)
        if text := blocks.text:
            self.cwd = self.cwd or (found.group(1) if (found := _WORKDIR.search(text)) else "")
            message = Message("user", text)
            self.talk.observe(message) if self.by_text else self.talk.say(message)

    def _result_text(self, content: Any) -> str:
        """Return a result's text; the SDK also keeps results as JSON values, which the model reads as JSON."""
        blocks = list(dicts(content))
        if blocks and all(text_at(block, "type") in _BLOCKS for block in blocks):
            return Blocks(content, self.report).text
        return as_text(content) if isinstance(content, str) or content is None else canonical_json(content)


def _judged(block: dict[str, Any]) -> ResultFlag | None:
    """Take the verdicts that the SDK's own tools put into their results, one for each query."""
    verdicts = [bool_at(item, "success") for item in dicts_at(block, "content")]
    codes = [code for item in dicts_at(block, "content") if (code := int_at(item, "exit_code")) is not None]
    if False in verdicts:
        return ResultFlag(True, codes[0] if codes else None, "failed")
    return ResultFlag(exit_code=codes[0]) if codes else None
