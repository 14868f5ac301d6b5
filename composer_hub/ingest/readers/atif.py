"""Reader of Harbor's Agent Trajectory Interchange Format (ATIF 1.0 to 1.8); `export.to_atif` writes it.

In: one trajectory document. Out: sessions, including one for each of the embedded `subagent_trajectories`. ATIF is
linear: a step's prompt is everything before it, which is exact only if the producer kept one document per context. The
format has no errors; they are read from `observation.results[].extra`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_records, read_records
from composer_hub.ingest.foreign import (
    arguments_of,
    bool_at,
    content_text,
    dict_at,
    dicts_at,
    first_text,
    int_at,
    text_at,
)
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session

NAME = "atif"
LINEAR = "linear_export"
"""The producer wrote several contexts, or several calls of the model, into one line of steps."""

MAX_NESTING = 8
"""Subagents of subagents are followed this far down."""

_OURS = "composer_hub"
_ERROR_KEYS = ("error", "is_error", "tool_result_is_error", "tool_use_is_error")


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a trajectory by its schema version."""
    return text_at(next(iter(head_records(head)), {}), "schema_version").startswith("ATIF-")


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield a trajectory's session, then its subagents'; a file may hold one trajectory a line."""
    for _, document in read_records(path, report):
        yield from trajectories(document, report, path.stem)


def trajectories(
    document: Mapping[str, Any], report: FileReport, stem: str = "", parent: str = "", call_id: str = "", depth: int = 0
) -> Iterator[Session]:
    """Yield the sessions of a trajectory and of those embedded in it."""
    session = _session(document, report, stem, parent, call_id)
    if session:
        yield session
    spawned = session.trace.session_id if session else parent
    calls = _spawn_calls(document)
    for subagent in dicts_at(document, "subagent_trajectories") if depth < MAX_NESTING else ():
        call_id = calls.get(text_at(subagent, "trajectory_id"), "")
        yield from trajectories(subagent, report, stem, spawned, call_id, depth + 1)


def _spawn_calls(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the call that started each subagent, by the references in the results."""
    return {
        text_at(ref, "trajectory_id"): text_at(result, "source_call_id")
        for step in dicts_at(document, "steps")
        for result in dicts_at(step, "observation", "results")
        for ref in dicts_at(result, "subagent_trajectory_ref")
    }


def _session(document: Mapping[str, Any], report: FileReport, stem: str, parent: str, call_id: str) -> Session | None:
    agent, extra = dict_at(document, "agent"), dict_at(document, "extra")
    ours = dict_at(extra, _OURS)
    report.take_unread()  # of a document before this one
    talk = Conversation(report)
    for number, step in enumerate(dicts_at(document, "steps"), start=1):
        _read_step(talk, step, number, report)
    name = first_text(document, "trajectory_id", "session_id")
    return talk.session(
        source=text_at(ours, "source") or NAME,
        session_id=text_at(ours, "session_id") or name,
        name=stem,
        model=text_at(agent, "model_name"),
        tools=tuple(dicts_at(agent, "tool_definitions")),
        cwd=text_at(ours, "cwd"),
        repository=text_at(ours, "repository"),
        license=text_at(ours, "license"),
        resolved=bool_at(ours, "resolved"),
        parent_session_id=parent,
        spawn_call_id=call_id,
        provenance={
            "format": text_at(document, "schema_version"),
            "harness": text_at(agent, "name"),
            "harness_version": text_at(agent, "version"),
        },
    )


def _read_step(talk: Conversation, step: dict[str, Any], number: int, report: FileReport) -> None:
    source, text = step.get("source"), content_text(step.get("message"))
    if source == "agent":
        _read_agent_step(talk, step, text)
    elif source in ("user", "system"):
        role = "system" if source == "system" and not talk.drafts else "user"
        if text:
            talk.say(Message(role, text))
        _observe(talk, step)
    else:
        report.unknown(f"step source {source}", number)


def _read_agent_step(talk: Conversation, step: dict[str, Any], text: str) -> None:
    """Take an inference as a step; copied context and dispatches without a model are only read by later ones."""
    calls = tuple(call for item in dicts_at(step, "tool_calls") if (call := _call(item)))
    message = Message("assistant", text, calls, reasoning_content=text_at(step, "reasoning_content"))
    count = int_at(step, "llm_call_count")
    if step.get("is_copied_context") is True or count == 0:
        talk.recall(message)
        talk.note(LINEAR if count != 0 else "")
    else:
        extra = dict_at(step, "extra", _OURS)
        reasons = [text_at(extra, "prefix_reason"), LINEAR if (count or 1) > 1 else ""]
        talk.act(
            message,
            model=text_at(step, "model_name"),
            reasoning=text_at(extra, "reasoning_status"),
            reason="; ".join(filter(None, reasons)),
            main=extra.get("on_main_branch") is not False,
            usage=usage_of(step.get("metrics"), at=step.get("timestamp")),
        )
    _observe(talk, step)


def _observe(talk: Conversation, step: dict[str, Any]) -> None:
    """Put a step's results after it; one that names no call is a message of the harness."""
    for result in dicts_at(step, "observation", "results"):
        text, call_id = content_text(result.get("content")), text_at(result, "source_call_id")
        flag = _flag(dict_at(result, "extra"))
        if call_id:
            talk.answer(Message("tool", text, tool_call_id=call_id), flag)
        elif text:
            message = Message("user", text)
            talk.observe(message, flag) if step.get("source") == "agent" else talk.say(message)


def _call(item: dict[str, Any]) -> ToolCall | None:
    name = text_at(item, "function_name")
    raw = dict_at(item, "extra").get("raw_arguments")
    arguments = arguments_of(item.get("arguments") if raw is None else raw)
    return ToolCall(name, arguments, text_at(item, "tool_call_id")) if name else None


def _flag(extra: dict[str, Any]) -> ResultFlag | None:
    """Read an error in the form of `export.to_atif`, or any producer's truth value."""
    error = extra.get("error")
    if isinstance(error, dict):
        status, detail = text_at(error, "status"), text_at(error, "detail")
        return ResultFlag(bool_at(error, "is_error"), int_at(error, "exit_code"), status, detail)
    marks = [mark for key in _ERROR_KEYS if (mark := bool_at(extra, key)) is not None]
    code = int_at(extra, "exit_code")
    if isinstance(error, str) and error:
        return ResultFlag(True, code, "failed", error)
    failed = any(marks) if marks else None
    return ResultFlag(failed, code, "failed" if failed else "")
