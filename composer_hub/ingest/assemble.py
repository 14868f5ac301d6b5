"""The end of every reader: the messages, steps and facts of a session in, a `Session` out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from composer_hub.harnesses import family_of
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.tools import tools_of_calls
from composer_hub.ingest.usage import checked
from composer_hub.records import Message, Step, Trace, stable_id
from composer_hub.session import ResultFlag, Session, Usage

SYNTHETIC_SYSTEM_PROMPT = (
    "You are a coding agent. You work in the user's repository with the tools you are given: read before you edit, "
    "run what you change, and say briefly what you did."
)
"""The first message if the harness records no system prompt; `Trace.system_prompt_source` is then `synthetic`."""


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """The facts of a session as a whole; the fields are those of `Trace`."""

    source: str
    session_id: str
    tools: tuple[dict[str, Any], ...] = ()  # as recorded
    tool_names: tuple[str, ...] = ()  # of tools that were offered and perhaps never called
    system_prompt: str = ""  # "" = none recorded
    cwd: str = ""
    repository: str = ""
    resolved: bool | None = None
    parent_session_id: str = ""
    spawn_call_id: str = ""
    license: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def trace_id(self) -> str:
        return trace_id_of(self.source, self.session_id)


def trace_id_of(source: str, session_id: str) -> str:
    """Return the id of a session's trace: the same on every machine and in every run."""
    return stable_id("trace", source, session_id)


def step_id_of(trace_id: str, key: str) -> str:
    """Return `stable_id` of a step's trace and key, computed faster because there are many steps."""
    return hashlib.sha256(orjson.dumps(("step", trace_id, key))).hexdigest()[:24]


def system_message(facts: TraceFacts) -> Message:
    """Return the system prompt that was recorded, or the synthetic one."""
    return Message("system", facts.system_prompt or SYNTHETIC_SYSTEM_PROMPT)


def finish_session(
    facts: TraceFacts,
    pool: tuple[Message, ...],
    steps: Sequence[Step],
    keys: Sequence[str],
    flags: dict[int, ResultFlag],
    system_prompt_source: str,
    usages: Sequence[Usage],
    report: FileReport,
) -> Session | None:
    """Put the parts together and count them; a session without a step is counted and left out."""
    if not steps:
        report.add("no_steps")
        return None
    dangling = sum(_dangling(pool, step) for step in steps)
    steps, audit = checked(pool, steps, usages)
    counts: dict[str, Any] = counts_of(pool, steps)
    if audit:
        counts["audit"] = audit
    report.add("traces")
    report.add("steps", len(steps))
    report.add("calls", counts["num_calls"])
    report.add("dangling_calls", dangling)
    report.add("inexact", sum(not step.prefix_exact for step in steps))
    report.add("branch_steps", sum(not step.on_main_branch for step in steps))
    models = [step.model for step in steps if step.model]
    model = max(dict.fromkeys(models), key=models.count, default="")
    tools, tools_source = facts.tools, "recorded"
    if not tools:
        tools, tools_source = tools_of_calls(facts.source, pool, flags, facts.tool_names)
    trace = Trace(
        trace_id=facts.trace_id(),
        source=facts.source,
        session_id=facts.session_id,
        messages=pool,
        steps=tuple(steps),
        tools=tools,
        tools_source=tools_source,
        system_prompt_source=system_prompt_source,
        cwd=facts.cwd,
        repository=facts.repository,
        model=model,
        family=family_of(model),
        resolved=facts.resolved,
        parent_trace_id=trace_id_of(facts.source, facts.parent_session_id) if facts.parent_session_id else "",
        spawn_call_id=facts.spawn_call_id,
        license=facts.license,
        provenance=dict(facts.provenance),
        counts=counts,
    )
    return Session(trace, flags, tuple(keys), tuple(usages))


def counts_of(pool: Sequence[Message], steps: Sequence[Step]) -> dict[str, int]:
    """Return the counts for `Trace.counts`."""
    return {
        "num_messages": len(pool),
        "num_steps": len(steps),
        "num_calls": sum(len(pool[step.action].tool_calls) for step in steps),
        "num_results": sum(message.role == "tool" for message in pool),
        "num_user_messages": sum(message.role == "user" for message in pool),
    }


def _dangling(pool: Sequence[Message], step: Step) -> int:
    """Count the calls of a step without a tool's answer; a user's message does not answer a call."""
    answered = {pool[at].tool_call_id or at for at in step.results if pool[at].role == "tool"}
    return max(0, len(pool[step.action].tool_calls) - len(answered))
