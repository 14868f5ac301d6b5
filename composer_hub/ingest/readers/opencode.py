"""OpenCode: its database, exports, the JSON folder `storage/` of earlier versions, and the lines of `opencode run`.

In: a database, the document of `opencode export`, a file `storage/session/<project>/<session>.json` with its messages
and parts in the folders beside it, or the output of `opencode run --format json`. Out: its sessions. An assistant
message is one model call; a tool part is a call with its result. After a compaction the model reads its
summary and the later messages. OpenCode may then also shorten old outputs in the prompt, so these prompts are
not exact. A stream lacks the user's prompts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation, StepDraft
from composer_hub.ingest.databases import opened, rows, tables_of
from composer_hub.ingest.documents import HEAD, head_records, json_lines, read_document
from composer_hub.ingest.foreign import IMAGE, arguments_of, as_dict, dict_at, dicts_at, int_at, joined, parsed, text_at
from composer_hub.ingest.report import STREAM_LOG, FileReport, SessionError
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "opencode"
COMPACTED = "compacted"
_ENDS = {"MessageAbortedError": "interrupted", "MessageOutputLengthError": "truncated"}
_SILENT_PARTS = frozenset(["step-start", "step-finish", "patch", "snapshot", "agent", "subtask", "retry", "compaction"])


_RUN_TYPES = frozenset(["step_start", "step_finish", "text", "reasoning", "tool_use", "error"])

Entries = list[dict[str, Any]]
"""The messages of a session in the shape of an export: {"info", "parts"} each."""


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a database by its tables, an export by its session's facts, a stored session also by its folder."""
    if tables_of(head, path).keys() >= {"session", "message", "part"}:
        return True
    first = next(iter(head_records(head)), {})
    if "info" in first:
        return {"projectID", "directory"} <= as_dict(first["info"]).keys()
    if {"id", "projectID", "directory", "time"} <= first.keys():
        return path.parent.parent.name == "session"
    return is_stream(head)


def is_stream(head: bytes) -> bool:
    """Recognize the output of `opencode run --format json`."""
    first = next(iter(head_records(head)), {})
    return text_at(first, "type") in _RUN_TYPES and {"sessionID", "timestamp"} <= first.keys()


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the sessions of a file."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if tables_of(head, path):
        found = _of_database(path, report)
    elif is_stream(head):
        found = iter([_of_stream(path, report)])
    else:
        found = iter([_of_document(path, report)])
    for info, entries in found:
        reader = _OpenCodeChat(report)
        reader.talk.note(STREAM_LOG if info.get("is_stream") else "")
        for entry in entries:
            reader.take(dict_at(entry, "info"), list(dicts_at(entry, "parts")))
        yield from filter(None, [reader.session(info)])


def _of_document(path: Path, report: FileReport) -> tuple[dict[str, Any], Entries]:
    document = as_dict(read_document(path, report))
    if "info" in document:
        return as_dict(document["info"]), list(dicts_at(document, "messages"))
    return document, _stored_messages(path.parents[2], text_at(document, "id"), report)


def _of_database(path: Path, report: FileReport) -> Iterator[tuple[dict[str, Any], Entries]]:
    """Yield the facts and messages of each session; ids ascend in time."""
    with opened(path) as database:
        for session in rows(database, "SELECT * FROM session ORDER BY id"):
            report.add("records")
            info = {**session, "parentID": session.get("parent_id")}
            parts: dict[str, list[dict[str, Any]]] = {}
            for row in rows(database, "SELECT * FROM part WHERE session_id = ? ORDER BY id", session["id"]):
                parts.setdefault(row["message_id"], []).append(_object(row, report))
            messages = rows(database, "SELECT * FROM message WHERE session_id = ? ORDER BY id", session["id"])
            yield info, [{"info": _object(row, report), "parts": parts.get(row["id"], [])} for row in messages]


def _object(row: dict[str, Any], report: FileReport) -> dict[str, Any]:
    """Return the JSON of a row with the id beside it."""
    report.add("records")
    value = parsed(text_at(row, "data"))
    if not isinstance(value, dict):
        report.corrupt(0, f"row {row['id']} is not a JSON object and was skipped.")
    return {**as_dict(value), "id": row["id"]}


def _of_stream(path: Path, report: FileReport) -> tuple[dict[str, Any], Entries]:
    """Return the facts and messages of a stream, whose lines are the finished parts of messages."""
    info: dict[str, Any] = {"is_stream": True}
    entries: dict[str, dict[str, Any]] = {}
    for number, record in json_lines(path, report):
        kind, part = text_at(record, "type"), dict_at(record, "part")
        info.setdefault("id", record.get("sessionID"))
        message_id = text_at(part, "messageID") or next(reversed(entries), "")
        if kind not in _RUN_TYPES:
            report.unknown(kind, number)
            continue
        entry = entries.setdefault(message_id, {"info": {"id": message_id, "role": "assistant"}, "parts": []})
        if kind == "error":
            entry["info"]["error"] = record.get("error") or part.get("error")
        elif kind == "step_finish":
            entry["info"] |= {"tokens": part.get("tokens"), "finish": part.get("reason")}
        entry["parts"].append(part)
    return info, list(entries.values())


def _stored_messages(storage: Path, session_id: str, report: FileReport) -> list[dict[str, Any]]:
    """Return the messages of a session in the shape of an export."""
    infos = [info for _, info in _objects(storage / "message", session_id, report)]
    infos.sort(key=lambda info: int_at(info, "time", "created") or 0)
    return [
        {"info": info, "parts": [part for _, part in _objects(storage / "part", text_at(info, "id"), report)]}
        for info in infos
    ]


def _objects(folder: Path, name: str, report: FileReport) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the JSON files of a subfolder by name; its name comes from a file, so it must not lead elsewhere."""
    if not name or name != Path(name).name:
        return
    for path in sorted((folder / name).glob("*.json")):
        try:
            yield path, as_dict(read_document(path, report))
        except SessionError as error:
            report.corrupt(0, f"{error}")


class _OpenCodeChat:
    """The conversation so far, and the place of each user message in it."""

    def __init__(self, report: FileReport) -> None:
        self.report = report
        self.talk = Conversation(report)
        self.starts: dict[str, int] = {}  # message id -> index of its first message

    def take(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        self.starts[text_at(info, "id")] = len(self.talk.messages)
        if info.get("role") == "user":
            self._user(parts)
        elif info.get("role") == "assistant":
            self._assistant(info, parts)
        else:
            self.report.unknown(f"role {info.get('role')}")

    def _user(self, parts: list[dict[str, Any]]) -> None:
        texts = [text_at(part, "text") for part in parts if part.get("type") == "text" and not part.get("ignored")]
        images = [IMAGE for part in parts if text_at(part, "mime").startswith("image/")]
        if text := joined([*texts, *images]):
            self.talk.say(Message("user", text))

    def _assistant(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        texts: dict[str, list[str]] = {"text": [], "reasoning": []}
        tools = []
        for part in parts:
            kind = text_at(part, "type")
            if kind in texts:
                texts[kind].append(text_at(part, "text"))
            elif kind == "tool":
                tools.append(part)
            elif kind not in _SILENT_PARTS:
                self.report.unknown(f"part {kind}")
        calls = [(part, call) for part in tools if (call := _call(part))]
        content, thinking = (joined(texts[kind]) for kind in ("text", "reasoning"))
        draft = self.talk.act(
            Message("assistant", content, tuple(call for _, call in calls), reasoning_content=thinking),
            model=text_at(info, "modelID") or text_at(info, "model", "modelID"),
            key=text_at(info, "id"),
            usage=usage_of(info.get("tokens"), at=dict_at(info, "time").get("created")),
        )
        if flag := _end(info):
            self.talk.flags[draft.action] = flag
        for part, call in zip([part for part, _ in calls], self.talk.messages[draft.action].tool_calls, strict=True):
            if result := _result(dict_at(part, "state"), part.get("tool") == "invalid"):
                self.talk.answer(Message("tool", result[0], (), call.call_id, call.name), result[1])
        if info.get("summary") is True and info.get("finish"):
            self._compact(info, parts, draft)

    def _compact(self, info: dict[str, Any], parts: list[dict[str, Any]], draft: StepDraft) -> None:
        """Continue with the request for a summary, the summary, and the tail that the compaction names."""
        self.report.add("boundaries")
        self.talk.note(COMPACTED)
        start = self.starts.get(text_at(info, "parentID"), draft.action)
        self.talk.forget(at for at in self.talk.view if at >= start)

    def session(self, info: dict[str, Any]) -> Session | None:
        return self.talk.session(
            source=NAME,
            session_id=text_at(info, "id"),
            parent_session_id=text_at(info, "parentID"),
            cwd=text_at(info, "directory"),
            provenance={"harness_version": text_at(info, "version")},
        )


def _call(part: dict[str, Any]) -> ToolCall | None:
    """Return the call of a tool part. OpenCode renames calls of unknown tools to `invalid`."""
    arguments = dict_at(part, "state").get("input")
    name = text_at(part, "tool")
    if name == "invalid":
        name, arguments = text_at(as_dict(arguments), "tool") or name, {}
    return ToolCall(name, arguments_of(arguments), text_at(part, "callID")) if name else None


def _result(state: dict[str, Any], invalid: bool) -> tuple[str, ResultFlag] | None:
    """Return the result of a call, or None if the session ended before it."""
    status = text_at(state, "status")
    if status == "error":
        return text_at(state, "error"), ResultFlag(is_error=True, status="failed")
    if status not in ("completed", "success"):
        return None
    code = int_at(state, "metadata", "exit")
    if invalid:
        return text_at(state, "output"), ResultFlag(is_error=True, status="failed", detail="invalid")
    return text_at(state, "output"), ResultFlag(is_error=False, exit_code=code, status="completed")


def _end(info: dict[str, Any]) -> ResultFlag | None:
    """Return why a message was cut off, or None."""
    name = text_at(info, "error", "name")
    if name:
        return ResultFlag(status=_ENDS.get(name, "provider_error"), detail=name)
    return ResultFlag(status="truncated") if info.get("finish") == "length" else None
