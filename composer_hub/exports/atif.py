"""A trace as a document of ATIF 1.7, the format of Harbor.

ATIF is linear, so only the main branch is exported: each message once, in the order of the trace, without those of
rewound branches. Reading the document back gives the same trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from composer_hub.records import Message, Step, ToolCall, Trace
from composer_hub.session import ResultFlag

ATIF_VERSION = "ATIF-v1.7"
"""The newest version that both Harbor and the Agent Data Protocol accept."""


def to_atif(trace: Trace, flags: Mapping[int, ResultFlag] | None = None) -> dict[str, Any]:
    """Return the trace as an ATIF document; error sites and flags are in `observation.results[].extra.error`."""
    steps = {step.action: step for step in trace.steps if step.on_main_branch}
    entries: list[dict[str, Any]] = []
    callers: dict[str, dict[str, Any]] = {}
    answered = {index: step.action for step in steps.values() for index in step.results}
    agents: dict[int, dict[str, Any]] = {}
    for index in main_line(trace):
        message = trace.messages[index]
        result = _atif_result(trace, index, steps.get(answered.get(index, -1)), flags or {})
        if message.role == "assistant":
            entry = agents[index] = _atif_agent(message, steps.get(index), trace)
            callers.update((call.call_id, entry) for call in message.tool_calls)
            entries.append(entry)
        elif message.role == "tool" and message.tool_call_id in callers:
            _results_of(callers[message.tool_call_id]).append({"source_call_id": message.tool_call_id, **result})
        elif answered.get(index) in agents:
            _results_of(agents[answered[index]]).append(result)
        else:
            entries.append({"source": "system" if message.role == "system" else "user", "message": message.content})
    return {
        "schema_version": ATIF_VERSION,
        "session_id": trace.session_id,
        "trajectory_id": trace.trace_id,
        "agent": _atif_agent_config(trace),
        "steps": [{"step_id": number, **entry} for number, entry in enumerate(entries, start=1)],
        "final_metrics": {"total_steps": len(entries)},
        "extra": {"composer_hub": _atif_facts(trace)},
    }


def main_line(trace: Trace) -> list[int]:
    """Return the indices of the main branch: every message that a step on it read, wrote or got back."""
    steps = [step for step in trace.steps if step.on_main_branch]
    shown = {index for step in steps for start, stop in step.prompt for index in range(start, stop)}
    shown.update(step.action for step in steps)
    shown.update(index for step in steps for index in step.results)
    if trace.system_prompt_source == "synthetic":
        shown.discard(0)  # it was made up to complete the trace
    return sorted(shown)


def _results_of(entry: dict[str, Any]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = entry.setdefault("observation", {"results": []})["results"]
    return results


def _atif_agent(message: Message, step: Step | None, trace: Trace) -> dict[str, Any]:
    """Return an assistant's message; one without a step of this trace was copied into its context."""
    entry: dict[str, Any] = {"source": "agent", "message": message.content}
    if message.reasoning_content:
        entry["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        entry["tool_calls"] = [_atif_call(call) for call in message.tool_calls]
    if step is None:
        return {**entry, "is_copied_context": True}
    if step.model and step.model != trace.model:
        entry["model_name"] = step.model
    facts = {"step_id": step.step_id, "reasoning_status": step.reasoning_status, "prefix_reason": step.prefix_reason}
    return {**entry, "llm_call_count": 1, "extra": {"composer_hub": facts}}


def _atif_call(call: ToolCall) -> dict[str, Any]:
    """Return a call; arguments that did not parse go beside it, since ATIF takes only an object."""
    entry: dict[str, Any] = {"tool_call_id": call.call_id, "function_name": call.name, "arguments": call.arguments}
    if not isinstance(call.arguments, dict):
        entry |= {"arguments": {}, "extra": {"raw_arguments": call.arguments}}
    return entry


def _atif_result(trace: Trace, index: int, step: Step | None, flags: Mapping[int, ResultFlag]) -> dict[str, Any]:
    message = trace.messages[index]
    entry: dict[str, Any] = {"content": message.content}
    error: dict[str, Any] = {}
    if flag := flags.get(index):
        details = {"exit_code": flag.exit_code, "status": flag.status, "detail": flag.detail}
        error = {"is_error": flag.is_error, **{key: value for key, value in details.items() if value not in (None, "")}}
    sites = step.error_sites if step else ()
    site = next((site for site in sites if site.call_id == message.tool_call_id), None)
    if site:
        error = {"is_error": True, **error, "kind": site.kind, "blame": site.blame, "rule": site.rule}
    if error:
        entry["extra"] = {"error": error}
    return entry


def _atif_agent_config(trace: Trace) -> dict[str, Any]:
    version = str(trace.provenance.get("harness_version") or "unknown")
    config: dict[str, Any] = {"name": trace.source, "version": version}
    if trace.model:
        config["model_name"] = trace.model
    if trace.tools and trace.tools_source == "recorded":
        config["tool_definitions"] = list(trace.tools)
    return config


def _atif_facts(trace: Trace) -> dict[str, Any]:
    """Return the facts that ATIF has no field for, so that reading the document back gives the same trace."""
    names = ("source", "session_id", "cwd", "repository", "license", "resolved", "system_prompt_source")
    return {name: value for name in names if (value := getattr(trace, name)) not in (None, "")}
