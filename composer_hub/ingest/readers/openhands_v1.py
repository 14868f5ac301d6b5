"""OpenHands v1 (Agent SDK): events with a `kind`, as JSONL, a JSON list, or a folder of `event-00000-<id>.json` files.

In: the events of one conversation. Out: one session. Calls of one `llm_response_id` are one step. A result reads as the
SDK shows it to the model (error header, working directory, exit code). A `Condensation` removes events from view and
inserts its summary. `AgentErrorEvent` and `UserRejectObservation` become typed flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import files_beside, head_records, read_records
from composer_hub.ingest.foreign import (
    arguments_of,
    as_dict,
    as_text,
    bool_at,
    chat_calls,
    content_text,
    dict_at,
    dicts_at,
    first_text,
    int_at,
    joined,
    list_at,
    text_at,
)
from composer_hub.ingest.report import FileReport
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "openhands_v1"
CUT = 30_000
"""Terminal output is cut at this length before the model sees it, with a note that the log does not hold."""

_EVENT_FILE = re.compile(r"event-(\d{5,})-[0-9a-fA-F-]{8,}\.json")
_ERROR_HEADER = "[An error occurred during execution.]\n"
_SILENT = {"PauseEvent", "InterruptEvent", "CondensationRequest", "TokenEvent", "LLMCompletionLogEvent",
           "ConversationErrorEvent", "StreamingDeltaEvent", "HookExecutionEvent", "ACPToolCallEvent"}  # fmt: skip


def sniff(head: bytes, path: Path) -> bool:
    """Recognize the events by their kind: each names its class, its id and its source."""
    records = head_records(head)
    return bool(records) and all(
        {"kind", "id", "source"} <= record.keys() and "type" not in record for record in records[:3]
    )


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the conversation; a folder of event files is read once, from its newest file.

    The newest file is the one that an incremental run sees as changed when the conversation continues.
    """
    stored = bool(_EVENT_FILE.fullmatch(path.name))
    files = files_beside(path, _EVENT_FILE) if stored else [path]
    if path != files[-1]:
        return
    events = _Events(report)
    for file in files:
        for number, event in read_records(file, report):
            events.read(number, event)
    folder = path.parent.parent if path.parent.name == "events" else path.parent
    if session := events.session(session_id=folder.name if stored else "", name=path.stem):
        yield session


class _Events:
    def __init__(self, report: FileReport) -> None:
        self.report = report
        self.talk = Conversation(report)
        self.at: dict[int, str] = {}  # the event that a message in view came from
        self.model = self.cwd = self.response = ""
        self.closed = ""  # the response of the last step
        self.tools: tuple[dict[str, Any], ...] = ()
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def read(self, number: int, event: dict[str, Any]) -> None:
        kind = text_at(event, "kind")
        if kind == "ActionEvent":
            self._action(event)
            return
        self._close_step()
        reader = _READERS.get(kind)
        if reader:
            reader(self, event)
        elif kind not in _SILENT:
            self.report.unknown(kind, number)

    def session(self, session_id: str, name: str) -> Session | None:
        self._close_step()
        facts: dict[str, Any] = {"model": self.model, "cwd": self.cwd, "tools": self.tools}
        return self.talk.session(source=NAME, session_id=session_id, name=name, **facts)

    def _action(self, event: dict[str, Any]) -> None:
        """Gather the calls of one response; a call of another response closes the step."""
        response = first_text(event, "llm_response_id", "id")
        if response != self.response:
            self._close_step()
        if response and response in (self.response, self.closed):
            self.report.add("merged")
        self.response = response
        self.calls.append((text_at(event, "id"), event))

    def _close_step(self) -> None:
        if not self.calls:
            return
        first = self.calls[0][1]
        calls = tuple(call for _, event in self.calls if (call := _call(event)))
        # An argument error is answered before the other calls are written down.
        if self.response and self.response == self.closed:
            self.talk.extend(self.talk.drafts[-1], calls)
            self.calls, self.response = [], ""
            return
        self._begin()
        draft = self.talk.act(
            Message("assistant", content_text(first.get("thought")), calls, reasoning_content=_thinking(first)),
            reasoning=_status(first),
            key=text_at(first, "llm_response_id"),
        )
        self.at[draft.action] = self.calls[0][0]
        self.calls, self.response, self.closed = [], "", self.response

    def _begin(self) -> None:
        if not self.talk.messages:
            self.talk.note("log_starts_late")

    def _keep(self, event: dict[str, Any], index: int | None) -> None:
        if index is not None:
            self.at[index] = text_at(event, "id")

    def _system(self, event: dict[str, Any]) -> None:
        parts = [event.get("system_prompt"), event.get("dynamic_context")]
        self._keep(event, self.talk.say(Message("system", joined(map(content_text, parts)))))
        self.tools = self.tools or tuple(map(_tool, dicts_at(event, "tools")))

    def _message(self, event: dict[str, Any]) -> None:
        inner = dict_at(event, "llm_message")
        text = joined([content_text(inner.get("content")), content_text(event.get("extended_content"))])
        if event.get("source") == "agent" or inner.get("role") == "assistant":
            message = Message(
                "assistant", text, chat_calls(inner.get("tool_calls")), reasoning_content=_thinking(inner)
            )
            self._begin()
            self.closed = ""
            draft = self.talk.act(message, reasoning=_status(inner), key=text_at(event, "llm_response_id"))
            self._keep(event, draft.action)
        else:
            self._keep(event, self.talk.say(Message("user", text)))

    def _observation(self, event: dict[str, Any]) -> None:
        seen = dict_at(event, "observation")
        metadata = dict_at(seen, "metadata")
        self.cwd = self.cwd or text_at(metadata, "working_dir")
        text = _shown(seen, metadata)
        if extra := content_text(event.get("extended_content")):
            text = f"{text}\n{extra}"
        if len(text) > CUT and "metadata" in seen:
            self.talk.note("long_output_cut")
        code = int_at(seen, "exit_code")
        failed = bool_at(seen, "is_error")
        status = "timeout" if bool_at(seen, "timeout") else "failed" if failed else ""
        flag = ResultFlag(failed, None if code == -1 else code, status)
        self._answer(event, text, flag)

    def _error(self, event: dict[str, Any]) -> None:
        kind = text_at(event, "classification", "kind")
        self._answer(event, text_at(event, "error"), ResultFlag(True, None, "failed", f"agent_error {kind}".rstrip()))

    def _rejection(self, event: dict[str, Any]) -> None:
        reason = text_at(event, "rejection_reason") or "User rejected the action"
        by_hook = event.get("rejection_source") == "hook"
        flag = ResultFlag(True, None, "denied", "hook" if by_hook else "user")
        self._answer(event, f"Action rejected: {reason}", flag)

    def _answer(self, event: dict[str, Any], text: str, flag: ResultFlag) -> None:
        call_id, name = text_at(event, "tool_call_id"), text_at(event, "tool_name")
        index = self.talk.answer(Message("tool", text, tool_call_id=call_id, name=name), flag)
        self._keep(event, index)

    def _state(self, event: dict[str, Any]) -> None:
        """Learn the model's name from the state updates: the agent's settings, or the metrics it is billed under."""
        value = dict_at(event, "value")
        agent = dict_at(value, "agent") or (value if event.get("key") == "agent" else {})
        billed = as_dict(dict_at(value, "usage_to_metrics", "default"))
        self.model = text_at(agent, "llm", "model") or text_at(billed, "model_name") or self.model

    def _condensation(self, event: dict[str, Any]) -> None:
        """Remove the events that a condensation names and insert its summary, as the SDK's view does."""
        self.report.add("boundaries")
        forgotten = {as_text(item) for item in list_at(event, "forgotten_event_ids")}
        kept = [index for index in self.talk.view if self.at.get(index) not in forgotten]
        summary, offset = text_at(event, "summary"), int_at(event, "summary_offset")
        if summary and offset is not None and offset >= 0:
            index = self.talk.say(Message("user", summary))
            self.at[index] = f"{text_at(event, 'id')}-summary"
            kept.insert(self._place(kept, offset), index)
        self.talk.forget(kept)

    def _place(self, kept: list[int], offset: int) -> int:
        """Convert an offset into events to an offset into messages; a step has one message for all its calls."""
        for position, index in enumerate(kept):
            if offset <= 0:
                return position
            offset -= max(1, len(self.talk.messages[index].tool_calls))
        return len(kept)


_READERS = {
    "ConversationStateUpdateEvent": _Events._state,
    "SystemPromptEvent": _Events._system,
    "MessageEvent": _Events._message,
    "ObservationEvent": _Events._observation,
    "AgentErrorEvent": _Events._error,
    "UserRejectObservation": _Events._rejection,
    "Condensation": _Events._condensation,
}


def _call(event: dict[str, Any]) -> ToolCall | None:
    call = dict_at(event, "tool_call")
    name = text_at(call, "name") or text_at(event, "tool_name")
    call_id = text_at(call, "id") or text_at(event, "tool_call_id")
    return ToolCall(name, arguments_of(call.get("arguments")), call_id) if name else None


def _thinking(event: dict[str, Any]) -> str:
    if text := text_at(event, "reasoning_content"):
        return text
    return joined(text_at(block, "thinking") for block in dicts_at(event, "thinking_blocks"))


def _status(event: dict[str, Any]) -> str:
    """Name the state of the reasoning; a Responses item holds a summary or only ciphertext."""
    if _thinking(event):
        return "plain"
    item = dict_at(event, "responses_reasoning_item")
    if item.get("summary") or item.get("content"):
        return "summary"
    redacted = any(block.get("data") or block.get("signature") for block in dicts_at(event, "thinking_blocks"))
    return "encrypted" if item.get("encrypted_content") or redacted else "absent"


def _shown(seen: dict[str, Any], metadata: dict[str, Any]) -> str:
    """Return an observation as the SDK writes it into the prompt; only terminals carry metadata."""
    text = content_text(seen.get("content"))
    text = with_footer(text, metadata) if metadata else text
    return _ERROR_HEADER + text if bool_at(seen, "is_error") else text


def with_footer(text: str, metadata: dict[str, Any]) -> str:
    """Return the output of a terminal with the state of its shell below it."""
    text = f"{text_at(metadata, 'prefix')}{text}{text_at(metadata, 'suffix')}"
    if where := text_at(metadata, "working_dir"):
        text += f"\n[Current working directory: {where}]"
    if python := text_at(metadata, "py_interpreter_path"):
        text += f"\n[Python interpreter: {python}]"
    if (code := int_at(metadata, "exit_code")) not in (None, -1):
        text += f"\n[Command finished with exit code {code}]"
    return text


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool in the OpenAI form; newer logs keep the SDK's own definition, without a schema."""
    if isinstance(tool.get("function"), dict):
        return tool
    name = first_text(tool, "name", "title", "kind")
    return {"type": "function", "function": {"name": name, "description": text_at(tool, "description")}}
