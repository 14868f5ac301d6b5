"""OpenCode: the document of `opencode export`, and the JSON folder `storage/` of versions before the database.

In: an export, or a file `storage/session/<project>/<session>.json` with its messages and parts in the folders beside
it. Out: one session. An assistant message is one model call; a tool part is a call with its result. After a
compaction the model reads its summary and what follows. OpenCode may then also shorten old outputs in the prompt, so
these prompts are not exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation, StepDraft
from composer_hub.ingest.documents import head_records, read_document
from composer_hub.ingest.foreign import IMAGE, arguments_of, as_dict, as_int, as_text, dicts
from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "opencode"
COMPACTED = "compacted"
_ENDS = {"MessageAbortedError": "interrupted", "MessageOutputLengthError": "truncated"}
_SILENT_PARTS = frozenset(["step-start", "step-finish", "patch", "snapshot", "agent", "subtask", "retry", "compaction"])


def sniff(head: bytes, path: Path) -> bool:
    """Recognize an export by its session's facts, and a stored session also by its folder."""
    first = next(iter(head_records(head)), {})
    if "info" in first:
        return {"projectID", "directory"} <= as_dict(first["info"]).keys()
    return {"id", "projectID", "directory", "time"} <= first.keys() and path.parent.parent.name == "session"


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the file's session."""
    document = as_dict(read_document(path, report))
    if "info" in document:
        info, entries = as_dict(document["info"]), list(dicts(document.get("messages")))
    else:
        info, entries = document, _stored_messages(path.parents[2], as_text(document.get("id")), report)
    reader = _Reader(report)
    for entry in entries:
        reader.take(as_dict(entry.get("info")), list(dicts(entry.get("parts"))))
    yield from filter(None, [reader.session(info)])


def _stored_messages(storage: Path, session_id: str, report: FileReport) -> list[dict[str, Any]]:
    """Return the messages of a session in the shape of an export."""
    infos = [info for _, info in _objects(storage / "message", session_id, report)]
    infos.sort(key=lambda info: as_int(as_dict(info.get("time")).get("created")) or 0)
    return [
        {"info": info, "parts": [part for _, part in _objects(storage / "part", as_text(info.get("id")), report)]}
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


class _Reader:
    """The conversation so far, and the place of each user message in it."""

    def __init__(self, report: FileReport) -> None:
        self.report = report
        self.talk = Conversation(report)
        self.starts: dict[str, int] = {}  # message id -> index of its first message

    def take(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        self.starts[as_text(info.get("id"))] = len(self.talk.messages)
        if info.get("role") == "user":
            self._user(parts)
        elif info.get("role") == "assistant":
            self._assistant(info, parts)
        else:
            self.report.unknown(f"role {info.get('role')}")

    def _user(self, parts: list[dict[str, Any]]) -> None:
        texts = [as_text(part.get("text")) for part in parts if part.get("type") == "text" and not part.get("ignored")]
        images = [IMAGE for part in parts if as_text(part.get("mime")).startswith("image/")]
        if text := "\n".join(filter(None, [*texts, *images])):
            self.talk.say(Message("user", text))

    def _assistant(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        texts: dict[str, list[str]] = {"text": [], "reasoning": []}
        tools = []
        for part in parts:
            kind = as_text(part.get("type"))
            if kind in texts:
                texts[kind].append(as_text(part.get("text")))
            elif kind == "tool":
                tools.append(part)
            elif kind not in _SILENT_PARTS:
                self.report.unknown(f"part {kind}")
        calls = [(part, call) for part in tools if (call := _call(part))]
        content, thinking = ("\n".join(filter(None, texts[kind])) for kind in ("text", "reasoning"))
        draft = self.talk.act(
            Message("assistant", content, tuple(call for _, call in calls), reasoning_content=thinking),
            model=as_text(info.get("modelID")) or as_text(as_dict(info.get("model")).get("modelID")),
            key=as_text(info.get("id")),
            usage=usage_of(info.get("tokens")),
        )
        if flag := _end(info):
            self.talk.flags[draft.action] = flag
        for part, call in zip([part for part, _ in calls], self.talk.messages[draft.action].tool_calls, strict=True):
            if result := _result(as_dict(part.get("state")), part.get("tool") == "invalid"):
                self.talk.answer(Message("tool", result[0], (), call.call_id, call.name), result[1])
        if info.get("summary") is True and info.get("finish"):
            self._compact(info, parts, draft)

    def _compact(self, info: dict[str, Any], parts: list[dict[str, Any]], draft: StepDraft) -> None:
        """Continue with the request for a summary, the summary, and the tail that the compaction names."""
        self.report.add("boundaries")
        self.talk.note(COMPACTED)
        start = self.starts.get(as_text(info.get("parentID")), draft.action)
        self.talk.forget(at for at in self.talk.view if at >= start)

    def session(self, info: dict[str, Any]) -> Session | None:
        return self.talk.session(
            source=NAME,
            session_id=as_text(info.get("id")),
            parent_session_id=as_text(info.get("parentID")),
            cwd=as_text(info.get("directory")),
            provenance={"harness_version": as_text(info.get("version"))},
        )


def _call(part: dict[str, Any]) -> ToolCall | None:
    """Return the call of a tool part. OpenCode renames calls of unknown tools to `invalid`."""
    arguments = as_dict(part.get("state")).get("input")
    name = as_text(part.get("tool"))
    if name == "invalid":
        name, arguments = as_text(as_dict(arguments).get("tool")) or name, {}
    return ToolCall(name, arguments_of(arguments), as_text(part.get("callID"))) if name else None


def _result(state: dict[str, Any], invalid: bool) -> tuple[str, ResultFlag] | None:
    """Return the result of a call, or None if the session ended before it."""
    status = as_text(state.get("status"))
    if status == "error":
        return as_text(state.get("error")), ResultFlag(is_error=True, status="failed")
    if status not in ("completed", "success"):
        return None
    code = as_int(as_dict(state.get("metadata")).get("exit"))
    if invalid:
        return as_text(state.get("output")), ResultFlag(is_error=True, status="failed", detail="invalid")
    return as_text(state.get("output")), ResultFlag(is_error=False, exit_code=code, status="completed")


def _end(info: dict[str, Any]) -> ResultFlag | None:
    """Return why a message was cut off, or None."""
    name = as_text(as_dict(info.get("error")).get("name"))
    if name:
        return ResultFlag(status=_ENDS.get(name, "provider_error"), detail=name)
    return ResultFlag(status="truncated") if info.get("finish") == "length" else None
