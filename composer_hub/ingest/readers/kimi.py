"""Kimi Code's wire files (`~/.kimi-code/sessions/*/*/agents/*/wire.jsonl`) and those of the older kimi-cli.

Kimi Code replays its wire file to rebuild the model's context, so the file has all of it: the system prompt, tool
schemas, messages, the pieces of each answer, and compactions. A step is the pieces with one `stepUuid`. kimi-cli wraps
its records in `message{type, payload}` and lacks the system prompt and what its compactions keep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.harnesses import exit_code_in, harness_named
from composer_hub.ingest.conversation import Conversation, StepDraft
from composer_hub.ingest.documents import head_lines, json_lines, read_document
from composer_hub.ingest.foreign import (
    arguments_of,
    as_dict,
    as_text,
    bool_at,
    content_text,
    dict_at,
    dicts_at,
    int_at,
    joined,
    text_at,
)
from composer_hub.ingest.readers.pieces import Pieces
from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session, Usage

NAME = "kimi"
COMPACTED, REWOUND, SHORTENED, HIDDEN = "compacted", "rewound", "microcompact", "display_log"

# Records beside the context: screens, permissions, goals, counters, requests and the prompt before it is appended.
_SILENT = re.compile(
    r"metadata|(?:turn|goal|plan_mode|swarm_mode|permission|usage|token_counting|runtime|plugin|task|skill|session|cron"
    r"|mcp|plan|full_compaction)\..*|llm\.request|context\.update_token_count|tools\..*"
)
_SILENT_EVENTS = {"step.begin", "step.retry", "tool.progress", "tool.call.delta", "tool.call.started"}
_SILENT_CLI = {
    "StepBegin", "StepRetry", "TurnEnd", "StatusUpdate", "ApprovalRequest", "ApprovalResponse",
    "ApprovalRequestResolved", "HookTriggered", "HookResolved", "MCPLoadingBegin", "MCPLoadingEnd", "Notification",
    "QuestionRequest", "BtwBegin", "BtwEnd", "PlanDisplay", "SteerInput", "ToolCallRequest", "MCPStatusSnapshot",
}  # fmt: skip
_HARNESS = harness_named(NAME)
_SHELLS = {"Bash", "Shell"}


def sniff(head: bytes, path: Path) -> bool:
    """Recognize the first record, which names the protocol."""
    first = next(iter(head_lines(head)), {})
    return first.get("type") == "metadata" and "protocol_version" in first


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the session of a wire file."""
    file = _WireFile(path, report)
    for number, record in json_lines(path, report):
        if isinstance(record.get("message"), dict) and "timestamp" in record:
            file.take_cli(number, record["message"])
        else:
            file.take(number, record)
    yield from filter(None, [file.session()])


class _WireFile:
    """The conversation while the file is read."""

    def __init__(self, path: Path, report: FileReport) -> None:
        self.path, self.report = path, report
        self.talk = Conversation(report)
        self.open = Pieces(self.talk)
        self.model = self.system = self.cwd = ""
        self.tools: list[dict[str, Any]] = []
        self.prompts: list[int] = []  # messages of the user, to which an undo goes back
        self.shells: set[str] = set()  # calls
        self.step = self.acted = ""  # the step that is open, and the one of `draft`
        self.draft: StepDraft | None = None

    # ---- Kimi Code

    def take(self, number: int, record: dict[str, Any]) -> None:
        """Add one record."""
        kind = text_at(record, "type")
        if kind == "context.append_loop_event":
            self._event(dict_at(record, "event"), number)
            return
        if kind.startswith(("context.", "turn.")):
            self._close()
        if kind == "context.append_message":
            self._append(dict_at(record, "message"))
        elif kind in ("config.update", "profile.bind"):
            self._configure(record)
        elif kind == "llm.tools_snapshot":
            self.tools = [tool for tool in dicts_at(record, "tools") if text_at(tool, "name")]
        elif kind == "context.apply_compaction":
            self._compact(record)
        elif kind == "context.clear":
            self.talk.forget(self._parted()[0])
        elif kind == "context.undo":
            self._undo(int_at(record, "count") or 0)
        elif kind == "micro_compaction.apply":
            self.talk.note(SHORTENED)
        elif not _SILENT.fullmatch(kind):
            self.report.unknown(kind, number)
        if kind == "llm.request":
            self.model = text_at(record, "model") or self.model

    def _configure(self, record: dict[str, Any]) -> None:
        self.cwd = self.cwd or text_at(record, "cwd") or text_at(record, "environmentDisclosure", "cwd")
        self.model = text_at(record, "modelAlias") or self.model
        system = text_at(record, "systemPrompt")
        if system and system != self.system:
            self.system = system
            rest = self._parted()[1]
            self.talk.forget([self.talk.say(Message("system", system)), *rest])

    def _append(self, message: dict[str, Any]) -> None:
        text = content_text(message.get("content"))
        if message.get("role") != "user":
            self.report.unknown(f"message of role {message.get('role')}")
        elif text:
            index = self.talk.say(Message("user", text))
            if dict_at(message, "origin").get("kind") in (None, "user"):
                self.prompts.append(index)

    def _event(self, event: dict[str, Any], number: int) -> None:
        kind, step = text_at(event, "type"), text_at(event, "stepUuid")
        if step and step != self.step:
            self._close()
            self.step = self.open.key = step
        if kind == "content.part":
            self._part(dict_at(event, "part"), number)
        elif kind == "tool.call":
            self._call(text_at(event, "name"), event.get("args"), text_at(event, "toolCallId"))
        elif kind == "tool.result":
            result = dict_at(event, "result")
            is_error = bool_at(result, "isError")
            self._answer(text_at(event, "toolCallId"), content_text(result.get("output")), bool(is_error))
        elif kind == "step.end":
            self._close()
            if self.draft:
                self.draft.usage = _usage(dict_at(event, "usage"))
                if text_at(event, "finishReason") in ("max_tokens", "length", "truncated"):
                    self.talk.flags[self.draft.action] = ResultFlag(status="truncated")
        elif kind not in _SILENT_EVENTS:
            self.report.unknown(f"event {kind}", number)

    def _part(self, part: dict[str, Any], number: int) -> None:
        kind = text_at(part, "type")
        if kind == "think":
            self.open.add(thought=text_at(part, "think"))
        elif kind == "text":
            self.open.add(text=text_at(part, "text"))
        else:
            self.report.unknown(f"part {kind}", number)

    def _call(self, name: str, arguments: Any, call_id: str) -> None:
        self.shells |= {call_id} if name in _SHELLS else set()
        call = ToolCall(name, arguments_of(arguments), call_id)
        if self.draft and not self.open.is_open and self.step == self.acted:
            self.talk.extend(self.draft, [call] if name else [])  # an earlier call of the step was answered already
        else:
            self.open.add(call=call)

    def _answer(self, call_id: str, text: str, is_error: bool) -> None:
        self._close()
        code = exit_code_in(text, _HARNESS) if call_id in self.shells else None
        status = "failed" if is_error else "completed"
        # A failed command is marked as an error of its tool, which ran it well.
        flag = ResultFlag(is_error if code is None else None, code, status if code is None else "")
        self.talk.answer(Message("tool", text, tool_call_id=call_id), flag)

    def _close(self) -> None:
        if self.open.is_open:
            self.open.add(model=self.model)
        if draft := self.open.close("\n"):
            self.draft, self.acted = draft, self.step

    def _compact(self, record: dict[str, Any]) -> None:
        """Continue with the user's words that were kept and the summary, as Kimi Code rebuilds them."""
        self.report.add("boundaries")
        self.talk.note(COMPACTED)
        system, rest = self._parted()
        kept, head = int_at(record, "keptUserMessageCount"), int_at(record, "keptHeadUserMessageCount") or 0
        typed = [index for index in rest if index in self.prompts]
        tail = typed[head:][-(kept - head) :] if kept is not None and kept > head else []
        before = typed[:head] + tail
        after: list[int] = []
        if kept is None:  # older versions keep the newest messages after the summary
            before, after = [], rest[int_at(record, "compactedCount") or 0 :]
        summary = record.get("contextSummary") or record.get("summary")
        text = content_text(as_dict(summary).get("content")) if isinstance(summary, dict) else as_text(summary)
        self.talk.forget([*system, *before, self.talk.say(Message("user", text)), *after])

    def _undo(self, count: int) -> None:
        """Go back to before the user's last messages."""
        view = self.talk.view
        typed = [place for place, index in enumerate(view) if index in self.prompts]
        if 0 < count <= len(typed):
            left = set(view[typed[-count] :])
            for draft in self.talk.drafts:
                draft.main = draft.main and draft.action not in left
            self.talk.forget(view[: typed[-count]])
        else:
            self.talk.note(REWOUND)

    def _parted(self) -> tuple[list[int], list[int]]:
        """Return the view as its system prompt and the rest."""
        view = self.talk.view
        system = [index for index in view if self.talk.messages[index].role == "system"]
        return system, [index for index in view if index not in set(system)]

    # ---- kimi-cli

    def take_cli(self, number: int, message: dict[str, Any]) -> None:
        """Add one record of kimi-cli. A step begins with `StepBegin`; its calls may be written in pieces."""
        kind, payload = text_at(message, "type"), dict_at(message, "payload")
        self.talk.note(HIDDEN)  # the system prompt and reminders are in another file
        if kind in ("StepBegin", "TurnBegin", "CompactionBegin", "StepInterrupted"):
            self._close()
            self.step = f"{number}"
        if kind == "TurnBegin":
            self._append({"role": "user", "content": payload.get("user_input")})
        elif kind == "ContentPart":
            self._part(payload, number)
        elif kind == "ToolCall":
            function = dict_at(payload, "function")
            self._call(text_at(function, "name"), function.get("arguments"), text_at(payload, "id"))
        elif kind == "ToolResult":
            value = dict_at(payload, "return_value")
            text = joined([content_text(value.get("output")), text_at(value, "message")])
            self._answer(text_at(payload, "tool_call_id"), text, bool_at(value, "is_error") is True)
        elif kind == "CompactionEnd":
            self.report.add("boundaries")
            self.talk.note("compacted_history_not_recorded")
            self.talk.forget(())
        elif kind in ("ToolCallPart", "SubagentEvent"):
            self.talk.note(HIDDEN)
        elif kind not in _SILENT_CLI and kind not in ("CompactionBegin", "StepInterrupted"):
            self.report.unknown(kind, number)

    # ---- facts

    def session(self) -> Session | None:
        """Return the session, or the subagent's whose file this is."""
        self._close()
        agent = self.path.parent.name if self.path.parent.parent.name == "agents" else ""
        folder = self.path.parents[2] if agent else self.path.parent
        state = _state_of(folder / "state.json")
        session_id = folder.name.removeprefix("session_") if agent or self.path.stem == "wire" else self.path.stem
        is_main = agent in ("", "main")
        return self.talk.session(
            source=NAME,
            session_id=session_id if is_main else f"{session_id}/{agent}",
            parent_session_id="" if is_main else session_id,
            cwd=self.cwd or text_at(state, "workDir"),
            model=self.model,
            tools=tuple(self.tools),
            provenance={"started_at": text_at(state, "createdAt")},
        )


def _usage(value: dict[str, Any]) -> Usage:
    names = ("inputOther", "inputCacheRead", "inputCacheCreation", "output")
    other, read, written, output = (max(0, int_at(value, name) or 0) for name in names)
    return Usage(other + read + written, output, read, written)


def _state_of(path: Path) -> dict[str, Any]:
    """Return the facts that Kimi Code keeps beside the session, or none."""
    try:
        return as_dict(read_document(path, FileReport()))
    except (OSError, SessionError):
        return {}
