"""GitHub Copilot CLI events (`~/.copilot/session-state/<id>/events.jsonl`) as `Session`s.

In: one event per line, in the order in which things happened. Out: the session, and one per subagent. An
`assistant.message` is one model call. `success` of a result means that the tool ran, also for a command that failed:
its exit code is in the text or beside it. The file does not say what a truncation removed, so later prompts are not
exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composer_hub.harnesses import exit_code_in, harness_named
from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_records, json_lines
from composer_hub.ingest.foreign import (
    arguments_of,
    as_dict,
    as_text,
    content_text,
    dict_at,
    dicts_at,
    first_text,
    int_at,
    text_at,
)
from composer_hub.ingest.report import FileReport
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "copilot"

SILENT = {
    "session.resume", "session.info", "session.warning", "session.error", "session.idle", "session.shutdown",
    "session.title_changed", "session.mode_changed", "session.plan_changed", "session.permissions_changed",
    "session.workspace_file_changed", "session.context_changed", "session.usage_info", "session.usage_checkpoint",
    "session.task_complete", "session.tools_updated", "session.skills_loaded", "session.custom_agents_updated",
    "session.mcp_servers_loaded", "session.mcp_server_status_changed", "session.extensions_loaded",
    "session.background_tasks_changed", "session.remote_steerable_changed", "session.schedule_created",
    "session.schedule_cancelled", "session.autopilot_objective_changed", "pending_messages.modified",
    "assistant.turn_start", "assistant.intent", "assistant.reasoning", "assistant.reasoning_delta",
    "assistant.streaming_delta", "assistant.message_start", "assistant.message_delta", "assistant.usage",
    "assistant.turn_retry", "tool.execution_partial_result", "tool.execution_progress", "hook.start", "hook.end",
    "subagent.selected", "subagent.deselected", "subagent.completed", "subagent.failed", "model.call_failure", "abort",
    "user_input.requested", "user_input.completed", "elicitation.requested", "elicitation.completed",
    "exit_plan_mode.requested", "exit_plan_mode.completed", "command.queued", "command.completed",
    # A tool of the program around the CLI also has `tool.execution_*` events, which hold its call and result.
    "external_tool.requested", "external_tool.completed",
}  # fmt: skip
TRUNCATED, COMPACTED, UNRECORDED = "context_truncated", "compacted", "compacted_history_not_recorded"
REWOUND, REWOUND_TOO_FAR = "rewound", "rolled_back_past_compaction"
TEXT_LOST, PARENT, SKILL_LOST = "action_text_lost", "context_of_parent", "skill_not_recorded"
SKILL_CHARS = 200  # at the end of a skill's text, by which a message is known that holds it

_HARNESS = harness_named(NAME)
_TYPICAL = {"user.message", "assistant.message", "assistant.turn_start", "tool.execution_start", "session.model_change"}
_REMOVED = ("tokensRemovedDuringTruncation", "messagesRemovedDuringTruncation", "droppedTokens")
_CODES = {"rejected": ("denied", "rejected"), "denied": ("denied", "denied"), "timeout": ("timeout", "timed_out")}


def sniff(head: bytes, path: Path) -> bool:
    """Recognize the first event by its producer, and a file without one by the envelope of an event."""
    return any(map(_is_ours, head_records(head)))


def _is_ours(event: dict[str, Any]) -> bool:
    data = event.get("data")
    if not isinstance(data, dict) or not {"id", "parentId"} <= event.keys():
        return False
    if event.get("type") == "session.start":
        return data.get("producer") == "copilot-agent" or "copilotVersion" in data
    return event.get("type") in _TYPICAL


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the session of a file, then those of its subagents."""
    file = _CopilotFile(path, report)
    for number, event in json_lines(path, report):
        file.take(number, event)
    yield from file.sessions()


@dataclass
class _Thread:
    """The conversation of one agent."""

    talk: Conversation
    starts: dict[str, ToolCall] = field(default_factory=dict)  # calls that began and that no message asked for yet
    asked: dict[str, str] = field(default_factory=dict)  # call -> its tool
    system: int = -1
    places: dict[str, int] = field(default_factory=dict)  # event -> the first message at or after it
    cut: int = 0  # messages before this one are gone from the context
    compacting: int = -1  # the message at which a compaction began
    skills: list[tuple[int, str]] = field(default_factory=list)  # messages at an invocation, and the skill's text


class _CopilotFile:
    """The threads while the file is read."""

    def __init__(self, path: Path, report: FileReport) -> None:
        self.path, self.report = path, report
        self.threads: dict[str, _Thread] = {"": _Thread(Conversation(report))}
        self.spawned: dict[str, str] = {}  # agent id -> the call that started it
        self.requests: dict[str, str] = {}  # permission request -> call
        self.denials: dict[str, str] = {}  # call -> the kind of its denial
        self.start: dict[str, Any] = {}
        self.started_at = self.model = ""

    def take(self, number: int, event: dict[str, Any]) -> None:
        """Add one event."""
        kind, data = text_at(event, "type"), dict_at(event, "data")
        if unread := self.report.take_unread():
            for each in self.threads.values():
                each.talk.note(unread)
        thread = self._thread(event, data)
        thread.places.setdefault(text_at(event, "id"), len(thread.talk.messages))
        if kind in ("session.start", "session.model_change", "session.auto_mode_resolved"):
            self._facts(event, data)
        elif kind in ("session.truncation", "session.context_cleared"):
            self._shorten(thread, kind, data)
        elif kind in ("session.compaction_start", "session.compaction_complete"):
            self._compact(thread, kind, data)
        elif kind == "session.snapshot_rewind":
            self._rewind(thread, text_at(data, "upToEventId"), number)
        elif kind in ("permission.requested", "permission.completed"):
            self._permission(data)
        elif kind == "subagent.started":
            if agent := text_at(event, "agentId"):
                self.spawned[agent] = text_at(data, "toolCallId")
        elif not self._message(thread, kind, data) and kind not in SILENT:
            self.report.unknown(kind, number)

    def _thread(self, event: dict[str, Any], data: dict[str, Any]) -> _Thread:
        agent = text_at(event, "agentId")
        key = text_at(data, "parentToolCallId") or self.spawned.get(agent, agent)
        if key not in self.threads:
            self.threads[key] = _Thread(Conversation(self.report))
        return self.threads[key]

    def _message(self, thread: _Thread, kind: str, data: dict[str, Any]) -> bool:
        """Add an event of the conversation; return False for any other."""
        if kind == "system.message":
            self._system(thread, text_at(data, "content"))
        elif kind in ("user.message", "system.notification"):
            self._user(thread, data)
        elif kind == "assistant.message":
            self._act(thread, data)
        elif kind == "tool.execution_start":
            if (call := _call(data, "toolName")) and call.call_id not in thread.asked:
                thread.starts[call.call_id] = call
        elif kind == "tool.execution_complete":
            self._answer(thread, data)
        elif kind == "assistant.turn_end":
            self._settle(thread)
        elif kind == "skill.invoked":
            thread.skills.append((len(thread.talk.messages), text_at(data, "content").strip()))
        else:
            return False
        return True

    def _facts(self, event: dict[str, Any], data: dict[str, Any]) -> None:
        self.model = first_text(data, "newModel", "selectedModel", "chosenModel") or self.model
        if event.get("type") == "session.start" and not self.start:
            self.start, self.started_at = data, text_at(event, "timestamp")

    def _system(self, thread: _Thread, text: str) -> None:
        """Put a system prompt first; a resumed session records its prompt again."""
        talk = thread.talk
        if not text or (thread.system >= 0 and talk.messages[thread.system].content == text):
            return
        rest = [at for at in talk.view if at != thread.system]
        thread.system = talk.say(Message("system", text))
        talk.forget([thread.system, *rest])

    def _user(self, thread: _Thread, data: dict[str, Any]) -> None:
        self._settle(thread)
        if text := first_text(data, "transformedContent", "content"):
            thread.talk.say(Message("user", text))
        files = dicts_at(data, "attachments")
        if any(file.get("type") == "blob" or text_at(file, "mimeType").startswith("image/") for file in files):
            thread.talk.note("image_left_out")

    def _act(self, thread: _Thread, data: dict[str, Any]) -> None:
        calls = tuple(call for item in dicts_at(data, "toolRequests") if (call := _call(item, "name")))
        for call in calls:
            thread.starts.pop(call.call_id, None)
        self._settle(thread)
        self._read_skills(thread)
        thread.asked.update({call.call_id: call.name for call in calls})
        thinking = text_at(data, "reasoningText")
        thread.talk.act(
            Message("assistant", text_at(data, "content"), calls, reasoning_content=thinking),
            model=text_at(data, "model") or self.model,
            reasoning="" if thinking or not data.get("encryptedContent") else "encrypted",
            key=text_at(data, "messageId"),
        )

    def _read_skills(self, thread: _Thread) -> None:
        """Note a skill whose text no message holds, although the model has read it."""
        skills, thread.skills = thread.skills, []
        for start, text in skills:
            if not any(text[-SKILL_CHARS:] in message.content for message in thread.talk.messages[start:]):
                thread.talk.note(SKILL_LOST)

    def _settle(self, thread: _Thread) -> None:
        """Make a step of calls that began although no message asks for them: their message was not written."""
        if not thread.starts:
            return
        calls, thread.starts = tuple(thread.starts.values()), {}
        thread.asked.update({call.call_id: call.name for call in calls})
        thread.talk.act(Message("assistant", "", calls), model=self.model, reason=TEXT_LOST)
        thread.talk.note(TEXT_LOST)

    def _answer(self, thread: _Thread, data: dict[str, Any]) -> None:
        call_id = text_at(data, "toolCallId")
        if call_id in thread.starts:
            self._settle(thread)
        result, error = data.get("result"), dict_at(data, "error")
        output = as_text(result) or content_text(as_dict(result).get("content"))
        text = output if data.get("success") is True else text_at(error, "message") or output
        flag = self._flag(call_id, thread.asked.get(call_id, ""), text, data)
        thread.talk.answer(Message("tool", text, tool_call_id=call_id), flag)

    def _flag(self, call_id: str, tool: str, text: str, data: dict[str, Any]) -> ResultFlag | None:
        success, error = data.get("success"), dict_at(data, "error")
        if success is not True:
            code = text_at(error, "code")
            code = ("rejected" if "by-user" in denial else "denied") if (denial := self.denials.get(call_id)) else code
            status, detail = _CODES.get(code, ("failed", code))
            return ResultFlag(True, status=status, detail=detail) if success is False else None
        shell = tool.endswith(("bash", "powershell"))
        return ResultFlag(False, _exit_code(data, text) if shell else None, "completed")

    def _permission(self, data: dict[str, Any]) -> None:
        request = text_at(data, "requestId")
        if call_id := text_at(data, "permissionRequest", "toolCallId"):
            self.requests[request] = call_id
        kind = text_at(data, "result", "kind")
        if kind.startswith("denied"):
            self.denials[text_at(data, "toolCallId") or self.requests.get(request, "")] = kind

    def _shorten(self, thread: _Thread, kind: str, data: dict[str, Any]) -> None:
        talk = thread.talk
        if kind == "session.context_cleared":
            talk.forget(_kept(thread, len(talk.messages)))
            thread.cut = len(talk.messages)
            return
        removed = [data[name] for name in _REMOVED if name in data]
        if not removed or any(removed):
            talk.note(TRUNCATED)

    def _compact(self, thread: _Thread, kind: str, data: dict[str, Any]) -> None:
        """Continue with the summary and with the messages that came while it was written."""
        talk = thread.talk
        if kind == "session.compaction_start":
            thread.compacting = len(talk.messages)
            return
        start = len(talk.messages) if thread.compacting < 0 else thread.compacting
        thread.compacting = -1
        if data.get("success") is False:
            return
        self.report.add("boundaries")
        kept = _kept(thread, start)
        summary = text_at(data, "summaryContent")
        talk.note(COMPACTED if summary else UNRECORDED)
        thread.cut = len(talk.messages)
        if summary:
            kept.insert(1 if thread.system >= 0 else 0, talk.say(Message("user", summary)))
        talk.forget(kept)

    def _rewind(self, thread: _Thread, event: str, number: int) -> None:
        """Go back to before an event; steps after it are a branch. Older versions may have kept the event itself."""
        place = thread.places.get(event)
        if place is None:
            self.report.unknown("session.snapshot_rewind without its event", number)
            return
        talk = thread.talk
        talk.note(REWOUND_TOO_FAR if place < thread.cut else REWOUND)
        thread.starts.clear()
        talk.forget([at for at in talk.view if at < place or at == thread.system])
        for draft in talk.drafts:
            draft.main = draft.main and draft.action < place

    def sessions(self) -> Iterator[Session]:
        """Yield the session and those of its subagents."""
        context = dict_at(self.start, "context")
        session_id = text_at(self.start, "sessionId") or (
            self.path.parent.name if self.path.name == "events.jsonl" else self.path.stem
        )
        for key, thread in self.threads.items():
            if key and not thread.talk.messages and not thread.starts:
                continue
            if key and not any(message.role == "user" for message in thread.talk.messages):
                for draft in thread.talk.drafts:
                    draft.reason = "; ".join(filter(None, [PARENT, draft.reason]))
            self._settle(thread)
            session = thread.talk.session(
                source=NAME,
                session_id=f"{session_id}/{key}" if key else session_id,
                parent_session_id=session_id if key else "",
                spawn_call_id=key if key in self.threads[""].asked else "",
                cwd=text_at(context, "cwd"),
                provenance={
                    "harness_version": text_at(self.start, "copilotVersion"),
                    "git_branch": text_at(context, "branch"),
                    "started_at": self.started_at,
                },
            )
            if session:
                yield session


def _call(item: dict[str, Any], name: str) -> ToolCall | None:
    """Return a call; the arguments of a tool with a grammar are its bare text."""
    tool, call_id = text_at(item, name), text_at(item, "toolCallId")
    return ToolCall(tool, arguments_of(item.get("arguments")), call_id) if tool else None


def _exit_code(data: dict[str, Any], text: str) -> int | None:
    """Return the exit code that is beside a result, or else in its text."""
    ends = [item for item in dicts_at(data, "result", "contents") if item.get("type") == "shell_exit"]
    metrics = dict_at(data, "toolTelemetry", "metrics")
    codes = [int_at(end, "exitCode") for end in ends] + [int_at(metrics, "exit_code")]
    return next((code for code in codes if code is not None), exit_code_in(text, _HARNESS))


def _kept(thread: _Thread, start: int) -> list[int]:
    """Return the system prompt and the messages from a place on, without results whose call is before it."""
    messages = thread.talk.messages
    later = [at for at in thread.talk.view if at >= start and at != thread.system]
    asked = {call.call_id for at in later for call in messages[at].tool_calls}
    later = [at for at in later if messages[at].role != "tool" or messages[at].tool_call_id in asked]
    return ([thread.system] if thread.system >= 0 else []) + later
