"""Inspect logs: `.eval`, a zip with one JSON file per sample, or `.json`, one document with all samples.

In: the log; `header.json`, or `eval` in the document, names model and task. Out: one session per sample, one step per
`ModelEvent`. Its `input` is exactly what the model read, in the event or as `input_refs` into a pool of messages; long
texts are `attachment://` references. Tool errors are typed. For a sample without model events, the message list is
read.

Nothing is unpacked to disk, and no member is read past its limit, since an archive may claim any size.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_records, read_document
from composer_hub.ingest.foreign import (
    arguments_of,
    as_dict,
    as_list,
    bool_at,
    content_text,
    dict_at,
    dicts,
    dicts_at,
    first_text,
    joined,
    list_at,
    parse_json,
    text_at,
)
from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.ingest.tools import tool_schema
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "inspect"

MAX_MEMBER = 1 << 28
"""Bytes that one member of an archive may unpack to."""
MAX_TOTAL = 1 << 31
"""Bytes that all members of an archive may unpack to."""

_ATTACHMENT = "attachment://"
_MEMBERS = (b"_journal/start.json", b"header.json", b"samples/")
_STATUS = {"timeout": "timeout", "permission": "failed", "approval": "denied", "cancelled": "cancelled"}
_YES = {"C", "c", True}
_NO = {"I", "i", "N", False}


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a log from other zip files by the name of its first member, and a document by its `eval`."""
    if head[:1] == b"{":
        task = dict_at(next(iter(head_records(head)), {}), "eval")
        return {"run_id", "task", "model"} <= task.keys()
    length = int.from_bytes(head[26:28], "little")
    return head[:4] == b"PK\x03\x04" and head[30 : 30 + length].startswith(_MEMBERS)


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield one session per sample; unreadable members are counted and skipped."""
    with path.open("rb") as file:
        is_document = file.read(1) == b"{"
    if is_document:
        yield from _samples_of(read_document(path, report), path, report)
        return
    try:
        with zipfile.ZipFile(path) as archive:
            yield from _Log(archive, path, report).sessions()
    except zipfile.BadZipFile as error:
        raise SessionError(
            f"{path} is no whole zip archive ({error}). If the run is still going, wait for its end."
        ) from error


def _samples_of(document: Any, path: Path, report: FileReport) -> Iterator[Session]:
    log = as_dict(document)
    for sample in dicts_at(log, "samples"):
        report.add("records")
        yield from filter(None, [_Sample(sample, dict_at(log, "eval"), path, report).session()])


class _Log:
    def __init__(self, archive: zipfile.ZipFile, path: Path, report: FileReport) -> None:
        self.archive, self.path, self.report = archive, path, report
        self.unpacked = 0

    def sessions(self) -> Iterator[Session]:
        names = [name for name in self.archive.namelist() if name.startswith("samples/") and name.endswith(".json")]
        header = as_dict(self._member("header.json") or self._member("_journal/start.json"))
        for number, name in enumerate(names, start=1):
            sample = self._member(name, number)
            if isinstance(sample, dict):
                self.report.add("records")
                about = dict_at(header, "eval")
                yield from filter(None, [_Sample(sample, about, self.path, self.report).session()])

    def _member(self, name: str, number: int = 0) -> Any:
        """Return a member's JSON, or count it and return None if it is missing, broken or too large."""
        try:
            with self.archive.open(name) as file:
                data = file.read(min(MAX_MEMBER, MAX_TOTAL - self.unpacked) + 1)
        except KeyError:
            return None
        except NotImplementedError:
            self.report.corrupt(number, f"{name} is compressed in a way this Python cannot read, and was skipped.")
            return None
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
            self.report.corrupt(number, f"{name} cannot be unpacked ({error}) and was skipped.")
            return None
        self.unpacked += len(data)
        if len(data) > MAX_MEMBER or self.unpacked > MAX_TOTAL:
            self.report.corrupt(number, f"{name} unpacks to more than {MAX_MEMBER >> 20} MB, and was skipped.")
            return None
        try:
            return parse_json(data, self.report)
        except ValueError as error:
            self.report.corrupt(number, f"{name} is not JSON ({error}) and was skipped.")
            return None


class _Sample:
    def __init__(self, sample: dict[str, Any], task: dict[str, Any], path: Path, report: FileReport) -> None:
        self.sample, self.task, self.path = sample, task, path
        self.attachments = dict_at(sample, "attachments")
        pool = dict_at(sample, "events_data").get("messages") or sample.get("message_pool")
        self.pool = as_list(pool)
        self.talk = Conversation(report, interning=True)
        self.tools: dict[str, dict[str, Any]] = {}
        self.owners: dict[str, Any] = {}  # the step that made a call, by the call's id

    def session(self) -> Session | None:
        events = [event for event in dicts_at(self.sample, "events") if event.get("event") == "model"]
        for event in events:
            self._step(event)
        whole = bool(self.talk.drafts)
        if not whole:
            self._read_messages()
        self._last_results()
        number, epoch = text_at(self.sample, "id"), text_at(self.sample, "epoch")
        run = text_at(self.task, "run_id")
        return self.talk.session(
            source=NAME,
            session_id=text_at(self.sample, "uuid") or (f"{run}/{number}/{epoch}" if run else ""),
            name=f"{text_at(self.task, 'task')}/{number}/{epoch}",
            model=text_at(self.task, "model"),
            whole=whole,
            tools=tuple(self.tools.values()),
            resolved=_verdict(dict_at(self.sample, "scores")),
            provenance={
                "harness_version": text_at(self.task, "packages", "inspect_ai"),
                "task": text_at(self.task, "task"),
                "sample": number,
                "epoch": epoch,
            },
        )

    def _step(self, event: dict[str, Any]) -> None:
        """Add a call of the model as a step."""
        entries = self._input(event)
        prompt = [self._intern(entry) for entry in entries]
        output = dict_at(event, "output")
        reply = dict_at(next(dicts_at(output, "choices"), {}), "message")
        if not reply:
            return
        for tool in dicts_at(event, "tools"):
            name = text_at(tool, "name")
            self.tools.setdefault(name, tool_schema(name, text_at(tool, "description"), dict_at(tool, "parameters")))
        message = self._message({**reply, "role": "assistant"})
        draft = self.talk.act(
            message,
            model=text_at(output, "model") or text_at(event, "model"),
            reasoning=_reasoning_status(reply),
            prompt=prompt,
            key=text_at(reply, "id"),
            usage=usage_of(output.get("usage")),
        )
        self.owners.update((call.call_id, draft) for call in self.talk.messages[draft.action].tool_calls)

    def _input(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the messages that the model read, from the event itself or from ranges of the pool."""
        entries = list(dicts_at(event, "input"))
        for ref in list_at(event, "input_refs"):
            if isinstance(ref, list) and len(ref) == 2 and all(isinstance(end, int) and end >= 0 for end in ref):
                entries += dicts(self.pool[ref[0] : ref[1]])
        return entries

    def _intern(self, entry: dict[str, Any]) -> int:
        """Put a message the model read into the trace; a tool's answer goes to the step that asked."""
        message = self._message(entry)
        draft = self.owners.get(message.tool_call_id) if message.role == "tool" else None
        if draft is None:
            return self.talk.intern(message)
        known = next((at for at in draft.results if self.talk.messages[at] == message), None)
        return self.talk.answer_to(draft, message, _flag(entry)) if known is None else known

    def _last_results(self) -> None:
        """Take the answers to the last calls, which no model read, from the sample's own messages."""
        for entry in dicts_at(self.sample, "messages"):
            draft = self.owners.get(text_at(entry, "tool_call_id")) if entry.get("role") == "tool" else None
            answered = {self.talk.messages[at].tool_call_id for at in draft.results} if draft else set()
            if draft and text_at(entry, "tool_call_id") not in answered:
                self.talk.answer_to(draft, self._message(entry), _flag(entry))

    def _read_messages(self) -> None:
        """Read a sample without model events: the messages in order are all there is."""
        self.talk.note("no_model_events")
        for entry in dicts_at(self.sample, "messages"):
            message = self._message(entry)
            if message.role == "assistant":
                self.talk.act(message, model=text_at(entry, "model"), reasoning=_reasoning_status(entry))
            elif message.role == "tool":
                self.talk.answer(message, _flag(entry))
            else:
                self.talk.say(message)

    def _message(self, entry: dict[str, Any]) -> Message:
        role = text_at(entry, "role")
        role = role if role in ("system", "assistant", "tool") else "user"
        text = self._attached(content_text(_visible(entry.get("content"))))
        error = dict_at(entry, "error") if role == "tool" else {}
        return Message(
            role=role,
            content=text or self._attached(text_at(error, "message")),
            tool_calls=tuple(self._calls(entry)) if role == "assistant" else (),
            tool_call_id=text_at(entry, "tool_call_id") if role == "tool" else "",
            name=text_at(entry, "function") if role == "tool" else "",
            reasoning_content=self._attached(_reasoning(entry)) if role == "assistant" else "",
        )

    def _calls(self, entry: dict[str, Any]) -> Iterator[ToolCall]:
        for call in dicts_at(entry, "tool_calls"):
            name = first_text(call, "function")
            arguments = {key: self._resolved(value) for key, value in dict_at(call, "arguments").items()}
            if name:
                yield ToolCall(name, arguments_of(arguments), text_at(call, "id"))

    def _resolved(self, value: Any) -> Any:
        return self._attached(value) if isinstance(value, str) else value

    def _attached(self, text: str) -> str:
        """Put back a text that the log keeps once, under its hash."""
        if not text.startswith(_ATTACHMENT):
            return text
        return text_at(self.attachments, text[len(_ATTACHMENT) :]) or text


def _visible(content: Any) -> Any:
    """Leave reasoning out of the text."""
    return (
        [part for part in dicts(content) if part.get("type") != "reasoning"] if isinstance(content, list) else content
    )


def _reasoning_parts(entry: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in dicts_at(entry, "content") if part.get("type") == "reasoning"]


def _reasoning(entry: dict[str, Any]) -> str:
    """Return reasoning that can be read: encrypted parts hold ciphertext instead."""
    open_parts = (part for part in _reasoning_parts(entry) if not bool_at(part, "redacted"))
    return joined(text_at(part, "reasoning") for part in open_parts)


def _reasoning_status(entry: dict[str, Any]) -> str:
    parts = _reasoning_parts(entry)
    if not parts or _reasoning(entry):
        return ""
    return "summary" if any(text_at(part, "summary") for part in parts) else "encrypted"


def _flag(entry: dict[str, Any]) -> ResultFlag | None:
    kind = text_at(entry, "error", "type")
    return ResultFlag(True, status=_STATUS.get(kind, "failed"), detail=kind) if kind else None


def _verdict(scores: dict[str, Any]) -> bool | None:
    """Return the verdict of a sample's scores, or None if they are graded or disagree."""
    values = [as_dict(score).get("value") for score in scores.values()]
    verdicts = {_yes_or_no(value) for value in values}
    return verdicts.pop() if len(verdicts) == 1 else None


def _yes_or_no(value: Any) -> bool | None:
    if isinstance(value, (str, int, float)):
        return True if value in _YES else False if value in _NO else None
    return None
