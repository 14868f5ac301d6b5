"""mini-swe-agent trajectories (.traj.json): the bare list of messages of v1 and the `mini-swe-agent-1.1` document of
v2.

In: one document per file. Out: one session. The history is linear, so a prompt is every message before the step. v2
answers calls with tool messages (or `function_call_output` items of the Responses API) and keeps return code and
exception in `extra`. v1, and v2 with text models, answer fenced commands with a user message. A format error contains
the model's rejected message, which becomes a separate step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.harnesses import exit_code_in, harness_named
from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_records, read_document
from composer_hub.ingest.foreign import (
    arguments_of,
    as_dict,
    chat_calls,
    content_text,
    dict_at,
    dicts,
    dicts_at,
    first_text,
    int_at,
    joined,
    text_at,
)
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.tools import tool_schema
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "mini_swe_agent"

_FENCE = re.compile(r"```(?:mswea_bash_command|bash)\s*\n")
_HARNESS = harness_named(NAME)
_COMMAND = {"type": "string", "description": "The bash command to execute"}
_BASH = tool_schema(
    "bash",
    "Execute a bash command",
    {"type": "object", "properties": {"command": _COMMAND}, "required": ["command"]},
)


def sniff(head: bytes, path: Path) -> bool:
    """Recognize v2 by its format or version; v1 by a system message followed by fenced commands or return codes."""
    records = head_records(head)
    if not records:
        return False
    info = dict_at(records[0], "info")
    if text_at(records[0], "trajectory_format").startswith("mini-swe-agent") or "mini_version" in info:
        return True
    return head.lstrip()[:1] == b"[" and records[0].get("role") == "system" and any(map(_is_v1_turn, records[1:]))


def _is_v1_turn(record: dict[str, Any]) -> bool:
    text = text_at(record, "content")
    if record.get("role") == "assistant":
        return bool(_FENCE.search(text))
    return record.get("role") == "user" and exit_code_in(text, _HARNESS) is not None


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the trajectory's session."""
    document = read_document(path, report)
    entries = document if isinstance(document, list) else as_dict(document).get("messages")
    info = dict_at(as_dict(document), "info")
    config = dict_at(info, "config")
    reader = _MiniReader(report)
    for number, entry in enumerate(dicts(entries), start=1):
        reader.read(number, entry)
    session = reader.talk.session(
        source=NAME,
        name=text_at(as_dict(document), "instance_id") or path.name.partition(".")[0],
        model=text_at(config, "model", "model_name"),
        cwd=text_at(config, "environment", "cwd"),
        tools=(_BASH,) if reader.has_calls else (),
        provenance={
            "harness_version": text_at(info, "mini_version"),
            "exit_status": text_at(info, "exit_status") or reader.exit_status,
        },
    )
    if session:
        yield session


class _MiniReader:
    def __init__(self, report: FileReport) -> None:
        self.report = report
        self.talk = Conversation(report)
        self.has_calls = False
        self.exit_status = ""

    def read(self, number: int, entry: dict[str, Any]) -> None:
        role, extra = text_at(entry, "role"), dict_at(entry, "extra")
        self.exit_status = text_at(extra, "exit_status") or self.exit_status
        if entry.get("object") == "response":
            self._act(_response(entry), extra, _response_status(entry))
        elif role == "assistant":
            self._act(_assistant(entry), extra)
        elif role == "tool" or entry.get("type") == "function_call_output":
            self._answer(entry, extra)
        elif role == "user":
            self._user(entry, extra)
        elif role == "system":
            self.talk.say(Message("system", content_text(entry.get("content"))))
        elif role != "exit":  # the exit message closes the log; the model never reads it
            self.report.unknown(f"role {role}", number)

    def _act(self, message: Message, extra: dict[str, Any], reasoning: str = "") -> None:
        self.has_calls = self.has_calls or bool(message.tool_calls)
        response = dict_at(extra, "response")
        usage = usage_of(response.get("usage"))
        self.talk.act(message, model=text_at(response, "model"), reasoning=reasoning, usage=usage)

    def _answer(self, entry: dict[str, Any], extra: dict[str, Any]) -> None:
        call_id = first_text(entry, "tool_call_id", "call_id")
        text = content_text(entry.get("content")) or content_text(entry.get("output"))
        self.talk.answer(Message("tool", text, tool_call_id=call_id), _flag(text, extra))

    def _user(self, entry: dict[str, Any], extra: dict[str, Any]) -> None:
        message = Message("user", content_text(entry.get("content")))
        if extra.get("interrupt_type") == "FormatError":
            self._format_error(message, extra)
        elif extra.get("exit_status"):  # v2's documented last message
            return
        elif self.talk.drafts and not self._last_called():
            self.talk.observe(message, _flag(message.content, extra))
        else:
            self.talk.say(message)

    def _last_called(self) -> bool:
        """Return whether the last step made calls: then a user message is the user's, not an observation."""
        return bool(self.talk.messages[self.talk.drafts[-1].action].tool_calls)

    def _format_error(self, complaint: Message, extra: dict[str, Any]) -> None:
        """Bring back the rejected message as a branch: the model never reads it again, only the complaint."""
        response = dict_at(extra, "response")
        choice = next(dicts_at(response, "choices"), {})
        message = _response(response) if "output" in response else _assistant(dict_at(choice, "message"))
        if not message.content and not message.tool_calls:
            message = Message("assistant", text_at(extra, "model_response"))
        view = self.talk.view
        if message.content or message.tool_calls:
            draft = self.talk.act(message, model=text_at(response, "model"), main=False)
            index = self.talk.answer_to(draft, complaint, ResultFlag(True, None, "failed", "format_error"))
            self.talk.forget([*view, index])
        else:
            self.talk.say(complaint)


def _assistant(entry: dict[str, Any]) -> Message:
    thinking = first_text(entry, "reasoning_content", "reasoning")
    text, calls = content_text(entry.get("content")), chat_calls(entry.get("tool_calls"))
    return Message("assistant", text, calls, reasoning_content=thinking)


def _response(entry: dict[str, Any]) -> Message:
    """Read a Responses API object: its message items are the text, its function calls the calls."""
    items = list(dicts_at(entry, "output"))
    texts = [content_text(item.get("content")) for item in items if item.get("type") == "message"]
    calls = tuple(
        ToolCall(
            text_at(item, "name"),
            arguments_of(item.get("arguments")),
            first_text(item, "call_id", "id"),
        )
        for item in items
        if item.get("type") == "function_call" and text_at(item, "name")
    )
    return Message("assistant", joined(texts), calls)


def _response_status(entry: dict[str, Any]) -> str:
    items = [item for item in dicts_at(entry, "output") if item.get("type") == "reasoning"]
    if any(item.get("summary") for item in items):
        return "summary"
    return "encrypted" if any(item.get("encrypted_content") for item in items) else ""


def _flag(text: str, extra: dict[str, Any]) -> ResultFlag | None:
    """Take the return code and exception of an execution; v1 wrote the code into the text only."""
    exception = text_at(extra, "exception_info")
    code = int_at(extra, "returncode")
    if code is None:
        code = exit_code_in(text, _HARNESS)
    if exception:
        kind = text_at(extra, "exception_type")
        return ResultFlag(True, None, "timeout" if kind == "TimeoutExpired" else "failed", kind or exception)
    return None if code is None else ResultFlag(exit_code=code)
