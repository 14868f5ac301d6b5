"""OpenHands v0: lists of actions and observations, from the resolver, the benchmarks or the app's event store.

In: rows whose `history` is such a list (`output.jsonl`), a bare list of events, or a folder `events/0.json, 1.json, …`.
Out: one session per list. With `tool_call_metadata`, a step is the model's message, and results read as the model's
memory shows them. Without it (before 0.15) the model's text is lost, and the step is made from the action.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation, StepDraft
from composer_hub.ingest.documents import files_beside, head_records, read_records
from composer_hub.ingest.foreign import (
    as_int,
    bool_at,
    chat_calls,
    content_text,
    dict_at,
    dicts,
    dicts_at,
    int_at,
    list_at,
    text_at,
)
from composer_hub.ingest.readers.openhands_v1 import with_footer
from composer_hub.ingest.report import FileReport
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "openhands_v0"
REBUILT = "action_text_lost"
"""The events record the action that was parsed, not the text the model wrote."""

_STORED = re.compile(r"(\d+)\.json")
_SILENT_ACTIONS = {"recall", "change_agent_state", "condensation_request", "null", "start", "pause", "resume", "stop"}
_SILENT_OBSERVATIONS = {"agent_state_changed", "null", "recall", "loop_detection"}
_HARNESS_KEYS = frozenset(
    (
        "thought",
        "keep_prompt",
        "is_confirmed",
        "confirmation_state",
        "action_risk",
        "security_risk",
        "hidden",
        "kernel_init_code",
        "blocking",
        "is_static",
        "cwd",
        "is_input_mode",
        "agent",
        "impl_source",
    )
)


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a row by its history of events, and a bare list by its first events."""
    records = head_records(head)
    if not records:
        return False
    events = _events_of(records[0]) or (records if head.lstrip()[:1] == b"[" or _stored(path) else [])
    return bool(events) and all(map(_is_event, events[:3]))


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield one session per row, or one for the whole list; an event store is read once, from its newest file."""
    if _stored(path):
        files = files_beside(path, _STORED)
        if path == files[-1]:
            events = [event for file in files for _, event in read_records(file, report)]
            session = _EventList({}, report).session(events, session_id=path.parent.parent.name)
            yield from filter(None, [session])
        return
    records = [record for _, record in read_records(path, report)]
    if records and isinstance(records[0].get("history"), list):
        yield from _sessions([(row, _events_of(row)) for row in records], path.stem, report)
    else:
        yield from _sessions([({}, records)], path.stem, report)


def _sessions(
    lists: list[tuple[dict[str, Any], list[dict[str, Any]]]], stem: str, report: FileReport
) -> Iterator[Session]:
    for row, events in lists:
        if session := _EventList(row, report).session(events, stem=stem):
            yield session


def _events_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row's events; the benchmarks of 2024 wrote pairs of an action and its observation."""
    history = list_at(row, "history")
    return list(dicts([event for entry in history for event in (entry if isinstance(entry, list) else [entry])]))


def _stored(path: Path) -> bool:
    return path.parent.name == "events" and bool(_STORED.fullmatch(path.name))


def _is_event(event: dict[str, Any]) -> bool:
    """Recognize an event: an action with arguments (older: flat), or an observation with content."""
    if isinstance(event.get("action"), str):
        return "kind" not in event and ("args" in event or "action_risk" in event or "thought" in event)
    return isinstance(event.get("observation"), str) and "content" in event


class _EventList:
    def __init__(self, row: dict[str, Any], report: FileReport) -> None:
        self.row, self.report = row, report
        self.talk = Conversation(report)
        self.at: dict[int, set[int]] = {}  # the events that a message in view came from
        self.rebuilt: dict[int, str] = {}  # the call made up for an action that has no metadata
        self.cwd = self.response = self.model = self.version = ""
        self.tools: tuple[dict[str, Any], ...] = ()
        self.draft: StepDraft | None = None

    def session(self, events: list[dict[str, Any]], *, stem: str = "", session_id: str = "") -> Session | None:
        for position, event in enumerate(events):
            if isinstance(event.get("action"), str):
                self._action(event, int_at(event, "id") or position)
            elif isinstance(event.get("observation"), str):
                self._observation(event, int_at(event, "id") or position)
            else:
                self.report.unknown("neither action nor observation", position)
        issue, metadata = dict_at(self.row, "issue"), dict_at(self.row, "metadata")
        repository = "/".join(filter(None, [text_at(issue, "owner"), text_at(issue, "repo")]))
        number = text_at(issue, "number")
        name = text_at(self.row, "instance_id") or (f"{repository}#{number}" if repository and number else stem)
        return self.talk.session(
            source=NAME,
            session_id=session_id,
            name=name,
            model=text_at(metadata, "llm_config", "model") or self.model,
            cwd=self.cwd,
            repository=repository,
            resolved=_resolved(self.row),
            tools=self.tools,
            provenance={"harness_version": self.version},
        )

    # ----------------------------------------------------------------------------------------------------- actions

    def _action(self, event: dict[str, Any], number: int) -> None:
        kind, args = text_at(event, "action"), _arguments(event)
        if kind == "system":
            self._keep(number, self.talk.say(Message("system", text_at(args, "content"))))
            self.tools = self.tools or tuple(dicts_at(args, "tools"))
            self.version = text_at(args, "openhands_version")
        elif kind == "condensation":
            self._condense(event, args, number)
        elif kind in _SILENT_ACTIONS:
            return
        elif kind == "message" and not self._by_agent(event):
            self._keep(number, self.talk.say(Message("user", text_at(args, "content"))))
        elif self._by_user(event):
            self._keep(
                number, self.talk.say(Message("user", f"User executed the command:\n{text_at(args, 'command')}"))
            )
        else:
            self._step(event, kind, args, number)

    def _by_agent(self, event: dict[str, Any]) -> bool:
        """Return whether the agent spoke; old events do not record it, and there the first message is the user's."""
        source = event.get("source")
        return source == "agent" if isinstance(source, str) else bool(self.talk.drafts)

    def _by_user(self, event: dict[str, Any]) -> bool:
        return event.get("source") == "user" and not event.get("tool_call_metadata")

    def _step(self, event: dict[str, Any], kind: str, args: dict[str, Any], number: int) -> None:
        response = dict_at(event, "tool_call_metadata", "model_response")
        response_id = text_at(response, "id")
        if self.draft and response_id and response_id == self.response:
            self.report.add("merged")
            self.at[self.draft.action].add(number)
            return
        reply = next((dict_at(choice, "message") for choice in dicts_at(response, "choices")), None)
        if reply is None:
            message = _rebuilt(kind, args, number)
            self.rebuilt.update((number, call.call_id) for call in message.tool_calls)
            self.talk.note(REBUILT if message.tool_calls else "")
        else:
            message = _spoken(reply)
        self.draft = self.talk.act(message, model=text_at(response, "model"), key=response_id)
        self.response = response_id
        self.model = self.model or text_at(response, "model")
        self._keep(number, self.draft.action)

    # ------------------------------------------------------------------------------------------------ observations

    def _observation(self, event: dict[str, Any], number: int) -> None:
        kind, extras = text_at(event, "observation"), dict_at(event, "extras")
        if kind in _SILENT_OBSERVATIONS:
            if kind == "recall" and self._tells_more(extras):
                self.talk.note("recall_template")
            return
        metadata = dict_at(extras, "metadata")
        self.cwd = self.cwd or text_at(metadata, "working_dir")
        call = dict_at(event, "tool_call_metadata")
        code = as_int(metadata.get("exit_code", extras.get("exit_code", event.get("exit_code"))))
        flag = ResultFlag(kind in _STATUS or None, None if code == -1 else code, *_STATUS.get(kind, ("", "")))
        text = _shown(kind, text_at(event, "content"), metadata)
        if event.get("source") == "user" or not self.talk.drafts:
            self._keep(number, self.talk.say(Message("user", text)))
            return
        cause = int_at(event, "cause")
        call_id = text_at(call, "tool_call_id") or ("" if cause is None else self.rebuilt.get(cause, ""))
        name = text_at(call, "function_name")
        if not call_id and not self._awaits_result():
            self._keep(number, self.talk.observe(Message("user", text), flag))
            return
        index = self.talk.answer(Message("tool", text, tool_call_id=call_id, name=name), flag)
        if index is not None:
            self._keep(number, index)

    def _awaits_result(self) -> bool:
        draft = self.talk.drafts[-1]
        return len(self.talk.messages[draft.action].tool_calls) > len(draft.results)

    def _tells_more(self, extras: dict[str, Any]) -> bool:
        return any(
            extras.get(key) for key in ("repo_name", "repo_instructions", "runtime_hosts", "microagent_knowledge")
        )

    # ------------------------------------------------------------------------------------------------ condensation

    def _condense(self, event: dict[str, Any], args: dict[str, Any], number: int) -> None:
        """Remove the events that a condensation names, by list or range, and insert its summary."""
        self.report.add("boundaries")
        first, last = int_at(args, "forgotten_events_start_id"), int_at(args, "forgotten_events_end_id")
        gone = {item for item in list_at(args, "forgotten_event_ids") if isinstance(item, int)}
        kept = [i for i in self.talk.view if not self._gone(self.at.get(i, set()), gone, first, last)]
        summary, offset = text_at(args, "summary"), int_at(args, "summary_offset")
        if summary and offset is not None and offset >= 0:
            index = self.talk.say(Message("user", summary))
            kept.insert(min(offset, len(kept)), index)
            self._keep(number, index)
        self.talk.forget(kept)

    @staticmethod
    def _gone(events: set[int], gone: set[int], first: int | None, last: int | None) -> bool:
        in_range = first is not None and last is not None and any(first <= event <= last for event in events)
        return bool(events & gone) or in_range

    def _keep(self, number: int, index: int) -> None:
        self.at.setdefault(index, set()).add(number)


_STATUS = {"error": ("failed", "error"), "user_rejected": ("denied", "user")}


def _arguments(event: dict[str, Any]) -> dict[str, Any]:
    """Return an action's arguments; the first versions wrote them flat beside the action."""
    if isinstance(event.get("args"), dict):
        return event["args"]
    return {key: value for key, value in event.items() if key not in ("action", "id", "timestamp", "source", "message")}


def _spoken(reply: dict[str, Any]) -> Message:
    thinking = text_at(reply, "reasoning_content")
    return Message(
        "assistant", content_text(reply.get("content")), chat_calls(reply.get("tool_calls")), reasoning_content=thinking
    )


def _rebuilt(kind: str, args: dict[str, Any], number: int) -> Message:
    """Make the model's message from the action it was parsed into."""
    if kind == "message":
        return Message("assistant", text_at(args, "content"))
    thought = text_at(args, "thought")
    arguments = {key: value for key, value in args.items() if key not in _HARNESS_KEYS and value is not None}
    return Message("assistant", thought, (ToolCall(kind, arguments, f"event-{number}"),))


def _shown(kind: str, content: str, metadata: dict[str, Any]) -> str:
    """Return an observation as the memory writes it into the prompt."""
    if kind == "error":
        return content + "\n[Error occurred in processing last action]"
    if kind == "user_rejected":
        return f"OBSERVATION:\n{content}\n[Last action has been rejected by the user]"
    return with_footer(content, metadata) if kind == "run" and metadata else content


def _resolved(row: dict[str, Any]) -> bool | None:
    """Return the benchmark's verdict; the resolver's `success` is only the model's opinion."""
    report = dict_at(row, "test_result", "report") or dict_at(row, "report")
    return bool_at(report, "resolved")
