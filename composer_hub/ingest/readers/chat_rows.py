"""Chat rows: datasets with one trajectory per row (SWE-smith, SWE-Gym, nebius SWE-agent, SWE-rebench-openhands, SFT).

In: a JSON list, JSON lines or a Parquet file. Out: one session per row. Rows are linear, so a prompt is every message
before the step. Calls and results are fields of messages, as in OpenAI's form, or blocks of their content, as in
Anthropic's. Calls that are written in the text (`<function=…>`, fenced commands) stay there, and the next user message
is their result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from composer_hub.harnesses import exit_code_in, harness_named
from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_records, parquet_columns, read_rows
from composer_hub.ingest.foreign import (
    as_dict,
    as_text,
    bool_at,
    chat_calls,
    content_text,
    dicts_at,
    first_text,
    int_at,
    list_at,
    parsed,
    parsed_dicts,
    text_at,
)
from composer_hub.ingest.readers.blocks import CALLS, RESULTS, Blocks
from composer_hub.ingest.report import FileReport
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "chat_rows"

_COLUMNS = ("messages", "trajectory", "conversations")
_FOREIGN = {"info", "harness", "sessionId", "schema_version", "trajectory_format", "projectHash", "history", "kind",
            "session_start", "started_at", "message_count"}  # fmt: skip
_ROLES = {"system": "system", "user": "user", "human": "user", "assistant": "assistant", "ai": "assistant",
          "gpt": "assistant", "tool": "tool", "function": "tool", "developer": "system"}  # fmt: skip
_BLOCKS = CALLS | RESULTS | {"thinking", "redacted_thinking"}
_TEXT_PROTOCOLS = (harness_named("mini_swe_agent"), harness_named("openhands_v1"))


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a row by a column of chat messages; Parquet by the names of its columns."""
    if head[:4] == b"PAR1":
        columns = parquet_columns(path)
        return bool(columns.intersection(_COLUMNS)) and not columns & _FOREIGN
    row = next(iter(head_records(head)), {})
    return not row.keys() & _FOREIGN and any(map(_is_chat, _messages(row)[:1]))


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the session of each row."""
    for _, row in read_rows(path, report):
        if session := session_of(as_dict(row), report):
            yield session


# ------------------------------------------------------------------------------------------------------------- a row


def session_of(
    row: Mapping[str, Any],
    report: FileReport,
    *,
    source: str = NAME,
    license: str = "",
    inexact: str = "",
    **facts: Any,
) -> Session | None:
    """Return the session of one row, with the columns of any dataset; `inexact` is the reason for all prompts."""
    texts = {name: text_at(row, name) for name in ("instance_id", "run_id", "exit_status")}
    provenance = {**facts.pop("provenance", {}), **{name: value for name, value in texts.items() if value}}
    report.take_unread()  # of a row before this one
    entries = _messages(row)
    system = content_text(row.get("system"))  # a request to Anthropic has it beside the messages
    if system and not any(_role(entry) == "system" for entry in entries):
        entries = [{"role": "system", "content": system}, *entries]
    return talk_of(entries, report, inexact).session(
        source=source,
        session_id=first_text(row, "traj_id", "trajectory_id", "session_id"),
        name=texts["instance_id"] or texts["run_id"],
        model=first_text(row, "model", "model_name", "model_name_or_path") or texts["run_id"].partition("_maxiter")[0],
        repository=first_text(row, "repo", "repository"),
        resolved=_verdict(row),
        tools=tuple(parsed_dicts(row.get("tools"))),
        license=first_text(row, "license") or license,
        provenance=provenance,
        **facts,
    )


def talk_of(entries: list[dict[str, Any]], report: FileReport, inexact: str = "") -> Conversation:
    """Read chat messages in order; without any call or tool message, the reply to a step is its observation."""
    talk = Conversation(report)
    talk.note(inexact)
    entries = [one for entry in entries for one in _unfolded(entry, report)]
    by_text = not any(_role(entry) == "tool" or (_role(entry) and _calls(entry)) for entry in entries)
    for entry in entries:
        message = message_of(entry)
        if message.role == "assistant":
            talk.act(message, reasoning=text_at(entry, "reasoning_status"))
        elif message.role == "tool":
            talk.answer(message, _flag(message.content, bool_at(entry, "is_error")))
        elif message.role == "user" and by_text:
            talk.observe(message, _flag(message.content))
        elif not message.role:
            report.unknown("role of a message")  # its name may be a person's, and kinds are published
        else:
            talk.say(message)
    return talk


def _unfolded(entry: dict[str, Any], report: FileReport) -> Iterator[dict[str, Any]]:
    """Yield a message of Anthropic's form as messages of OpenAI's; any other one stays as it is."""
    if not any(text_at(block, "type") in _BLOCKS for block in dicts_at(entry, "content")):
        yield entry
        return
    blocks = Blocks(entry["content"], report)
    for block in blocks.results:
        yield {**block, "role": "tool", "tool_call_id": text_at(block, "tool_use_id")}
    if blocks.text or _role(entry) == "assistant":
        calls = [{"id": call.call_id, "name": call.name, "arguments": call.arguments} for call in blocks.calls]
        thoughts = "\n".join(blocks.thoughts) or _thinking(entry)
        thinking = {"reasoning_content": thoughts, "reasoning_status": blocks.reasoning}
        yield {**entry, "content": blocks.text, "tool_calls": calls or entry.get("tool_calls"), **thinking}


def message_of(entry: Mapping[str, Any]) -> Message:
    """Read a message in the OpenAI form, nebius' `{role: ai, text}` or ShareGPT's `{from, value}`."""
    role = _role(entry)
    ids = list_at(entry, "tool_call_ids")
    texts = (content_text(entry.get(key)) for key in ("content", "text", "value", "system_prompt"))
    return Message(
        role=role,
        content=next(filter(None, texts), ""),
        tool_calls=_calls(entry) if role == "assistant" else (),
        tool_call_id=text_at(entry, "tool_call_id") or as_text(ids[0] if ids else "") if role == "tool" else "",
        name=text_at(entry, "name") if role == "tool" else "",
        reasoning_content=_thinking(entry) if role == "assistant" else "",
    )


def _calls(entry: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the calls of a message; before there were several, OpenAI's form had one `function_call`."""
    return chat_calls(parsed(entry.get("tool_calls"))) or chat_calls([parsed(entry.get("function_call"))])


def _thinking(entry: Mapping[str, Any]) -> str:
    return first_text(entry, "reasoning_content", "reasoning", "thinking")


def _messages(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = (parsed_dicts(row.get(name)) for name in _COLUMNS)
    return next((found for found in columns if found), [])


def _is_chat(entry: Mapping[str, Any]) -> bool:
    return bool(_role(entry)) and any(
        key in entry for key in ("content", "text", "value", "tool_calls", "function_call")
    )


def _role(entry: Mapping[str, Any]) -> str:
    return _ROLES.get(first_text(entry, "role", "from"), "")


def _verdict(row: Mapping[str, Any]) -> bool | None:
    verdicts = (bool_at(row, name) for name in ("resolved", "target"))
    return next((verdict for verdict in verdicts if verdict is not None), None)


_LAST_LINE = re.compile(r"(?:^|\n)[\[(]?[Ee]xit (?:code|status):? (-?\d{1,3})[\])]?\s*$")


def _flag(text: str, is_error: bool | None = None) -> ResultFlag | None:
    """Add the exit code: of a JSON object, where OpenHands and mini-swe-agent write it, or of a last line."""
    facts = as_dict(parsed(text)) if text[:1] == "{" else {}
    typed = (int_at(facts, name) for name in ("exit_code", "returncode"))
    fixed = (exit_code_in(text, harness) for harness in _TEXT_PROTOCOLS)
    last = (int(met[1]) for met in _LAST_LINE.finditer(text[-80:]))
    return ResultFlag(is_error, next((code for code in chain(typed, fixed, last) if code is not None), None)) or None
