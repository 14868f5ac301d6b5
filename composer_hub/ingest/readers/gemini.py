"""Gemini CLI chats: the `ConversationRecord` document, and the JSON lines that replaced it in 0.40.

In: messages of type user and gemini, with results inside the calls. Out: one session. In JSON lines, a message that
grows is appended again (the last copy counts), `$rewindTo` takes back a message and all after it (the steps stay as a
branch), and `$set` with `messages` is a checkpoint from which the model continues. The CLI records its display: no
system prompt, thoughts as summaries, outputs cut at 50 kB.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.harnesses import exit_code_in, harness_named
from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_records, read_records
from composer_hub.ingest.foreign import (
    arguments_of,
    as_text,
    content_text,
    dict_at,
    dicts,
    dicts_at,
    first_text,
    joined,
    list_at,
    text_at,
)
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, ToolCall, canonical_json
from composer_hub.session import ResultFlag, Session, Usage

NAME = "gemini"
DISPLAYED = "display_log"
"""The file has the CLI's display; the text that it sent may have been longer."""

_HARNESS = harness_named(NAME)
_STATUS = {"success": "completed", "error": "failed", "cancelled": "cancelled"}


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a chat by its session and project hash, which its first record or the document holds."""
    first = next(iter(head_records(head)), {})
    return {"sessionId", "projectHash"} <= first.keys() and "uuid" not in first


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the chat's session."""
    chat = _Chat()
    for number, record in read_records(path, report):
        chat.take(number, record, report)
    yield from filter(None, [chat.session(path, report)])


class _Chat:
    """The file as a list of acts on the conversation, and the latest text of each message."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.acts: list[tuple[str, Any]] = []  # ("add", id), ("rewind", id) or ("keep", ids)
        self.line: dict[str, None] = {}  # ids of the messages in force, in order

    def take(self, number: int, record: dict[str, Any], report: FileReport) -> None:
        """Take one line, or a whole document."""
        if "$rewindTo" in record:
            self._rewind(as_text(record["$rewindTo"]), report)
        elif isinstance(record.get("$set"), dict):
            self._set(record["$set"], report)
        elif "projectHash" in record:
            self.facts.update(record)
            self._add_all(record.get("messages"))
        elif text_at(record, "id") and "type" in record:
            self._add(record)
        else:
            report.unknown("neither message nor metadata", number)

    def _add_all(self, messages: Any) -> None:
        for message in dicts(messages):
            if text_at(message, "id"):
                self._add(message)

    def _add(self, record: dict[str, Any]) -> None:
        name = as_text(record["id"])
        if name not in self.line:
            while name in self.records:  # the id was taken back by a rewind and is used again
                name += "'"
            self.line[name] = None
            self.acts.append(("add", name))
        self.records[name] = record

    def _rewind(self, name: str, report: FileReport) -> None:
        """Take back a message and all after it, or everything if the id is unknown, as the CLI does."""
        report.add("forks")
        names = list(self.line)
        gone = names[names.index(name) if name in self.line else 0 :]
        for taken in gone:
            del self.line[taken]
        self.acts.append(("rewind", gone))

    def _set(self, change: dict[str, Any], report: FileReport) -> None:
        """Take new facts; a list of messages among them is a checkpoint from which the model reads on."""
        self.facts.update({key: value for key, value in change.items() if key != "messages"})
        if not isinstance(change.get("messages"), list):
            return
        names = [text_at(message, "id") for message in dicts(change["messages"])]
        if any(name not in self.line for name in names):
            report.add("boundaries")
        self.line = {name: None for name in self.line if name in names}
        self.acts.append(("keep", tuple(self.line)))
        self._add_all(change["messages"])

    def session(self, path: Path, report: FileReport) -> Session | None:
        talk = Conversation(report)
        talk.note(DISPLAYED)
        spoken: dict[str, range] = {}  # the messages that a message of the file became
        for act, about in self.acts:
            if act == "add":
                start = len(talk.messages)
                _speak(talk, self.records[about])
                spoken[about] = range(start, len(talk.messages))
            elif act == "keep":
                talk.forget([at for name in about for at in spoken[name]])
            else:
                _take_back(talk, {at for name in about for at in spoken[name]})
        return talk.session(
            source=NAME,
            session_id=text_at(self.facts, "sessionId"),
            name=path.stem,
            parent_session_id=path.parent.name if self.facts.get("kind") == "subagent" else "",
            cwd=as_text(next(iter(list_at(self.facts, "directories")), "")),
        )


def _take_back(talk: Conversation, gone: set[int]) -> None:
    """Continue without some messages; their steps become a branch."""
    talk.forget([at for at in talk.view if at not in gone])
    for draft in talk.drafts:
        draft.main = draft.main and draft.action not in gone


def _speak(talk: Conversation, record: dict[str, Any]) -> None:
    """Put a message of the file into the conversation, followed by the results of its calls."""
    if record.get("type") == "user":
        talk.say(Message("user", content_text(record.get("content"))))
    if record.get("type") != "gemini":  # info, warning, error: shown to the user, never sent
        return
    items = [item for item in dicts_at(record, "toolCalls") if _call(item)]
    draft = talk.act(
        Message("assistant", content_text(record.get("content")), tuple(filter(None, map(_call, items)))),
        model=text_at(record, "model"),
        reasoning="summary" if list_at(record, "thoughts") else "",
        key=text_at(record, "id"),
        usage=_usage(record),
    )
    for item, call in zip(items, talk.messages[draft.action].tool_calls, strict=True):
        if result := _result(item, call):
            talk.answer(*result)


def _usage(record: dict[str, Any]) -> Usage:
    """Return the tokens of a message; here, `input` holds what came from a cache."""
    tokens = dict_at(record, "tokens")
    counts = {"prompt_tokens": tokens.get("input"), "cached": tokens.get("cached"), "output": tokens.get("output")}
    return usage_of(counts, at=record.get("timestamp"))


def _call(item: dict[str, Any]) -> ToolCall | None:
    name = text_at(item, "name")
    return ToolCall(name, arguments_of(item.get("args")), text_at(item, "id")) if name else None


def _result(item: dict[str, Any], call: ToolCall) -> tuple[Message, ResultFlag] | None:
    """Return the result of a call, or None if the chat ended before it."""
    response = [dict_at(part, "functionResponse", "response") for part in dicts_at(item, "result")]
    texts = [first_text(r, "output", "error") or (canonical_json(r) if r else "") for r in response]
    text = joined(texts) or content_text(item.get("result"))
    status = _STATUS.get(text_at(item, "status"), "")
    if not text and not status:
        return None
    code = exit_code_in(text, _HARNESS) if call.name == "run_shell_command" else None
    failed = True if status in ("failed", "cancelled") else False if status else None
    flag = ResultFlag(failed, code, status, text_at(item, "status"))
    return Message("tool", text, tool_call_id=call.call_id, name=call.name), flag
