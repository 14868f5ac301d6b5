"""The output of `claude -p --output-format stream-json` (lines, or a list as the GitHub action keeps it) as records of
a stored session.

A stream has no `parentUuid`, so a record's parent follows from the order: a piece of an API message follows its last
piece, a result its call, anything else the record before it. `parent_tool_use_id` marks a subagent's records.
"""

from __future__ import annotations

from typing import Any

from composer_hub.ingest.foreign import as_text, dict_at, dicts_at, list_at, text_at

SILENT = {
    "stream_event", "result", "rate_limit_event", "tool_progress", "tool_use_summary", "auth_status", "keep_alive",
    "control_request", "control_response", "control_cancel_request", "prompt_suggestion",
}  # fmt: skip
SILENT_SUBTYPES = {
    "init", "status", "hook_started", "hook_progress", "hook_response", "task_started", "task_progress",
    "task_updated", "task_notification", "files_persisted", "api_retry", "session_state_changed", "post_turn_summary",
    "elicitation_complete", "permission_denied", "thinking_tokens",
}  # fmt: skip
TOOLS = {"Bash", "Read", "Task"}


def is_first(record: dict[str, Any]) -> bool:
    """Recognize the record that opens a stream; Qwen Code and others write the same with tools of other names."""
    if record.get("type") != "system" or record.get("subtype") != "init" or "session_id" not in record:
        return False
    return "claude_code_version" in record or {as_text(name) for name in list_at(record, "tools")} >= TOOLS


class ClaudeStream:
    """The place of the next record of each conversation in the stream."""

    def __init__(self) -> None:
        self.is_open = False
        self.tools: dict[str, None] = {}  # offered to the model
        self.denied: set[str] = set()  # calls
        self._last: dict[str, str] = {}  # "" or the call of a subagent -> its last record
        self._above: dict[tuple[str, str], str] = {}  # subagent, API message or call -> the record that it follows

    def stored(self, number: int, record: dict[str, Any]) -> dict[str, Any] | None:
        """Return a record as a stored session has it, or None if it is not for the model."""
        self.is_open |= "session_id" in record and not {"sessionId", "parentUuid"} & record.keys()
        if not self.is_open:
            return record
        kind, subtype = text_at(record, "type"), text_at(record, "subtype")
        self.denied |= {text_at(one, "tool_use_id") for one in dicts_at(record, "permission_denials")}
        if kind in SILENT:
            return None
        agent = text_at(record, "parent_tool_use_id")
        uuid = text_at(record, "uuid") or f"{number}"
        stored = {
            **record,
            "uuid": uuid,
            "parentUuid": self._parent(agent, kind, uuid, dict_at(record, "message")),
            "sessionId": record.get("session_id"),
            "version": record.get("claude_code_version"),
            "toolUseResult": record.get("tool_use_result"),
            "compactMetadata": record.get("compact_metadata"),
            "isApiErrorMessage": bool(record.get("error")) and kind == "assistant",
        }
        if agent:
            stored |= {"isSidechain": True, "agentId": agent}
        if kind == "system" and subtype in SILENT_SUBTYPES:
            self.tools |= dict.fromkeys(as_text(name) for name in list_at(record, "tools"))
            stored["subtype"] = "informational"
        return stored

    def _parent(self, agent: str, kind: str, uuid: str, message: dict[str, Any]) -> str:
        """Return the parent of a record and note what follows it."""
        last = self._last.get(agent, "")
        blocks = list(dicts_at(message, "content"))
        if kind == "assistant":
            turn = agent, text_at(message, "id") or uuid
            last = self._above.get(turn, last)
            self._above[turn] = uuid
            self._above |= {(agent, text_at(block, "id")): uuid for block in blocks if block.get("id")}
        elif kind == "user":
            calls = [(agent, text_at(block, "tool_use_id")) for block in blocks]
            last = next((self._above[call] for call in calls if call in self._above), last)
        self._last[agent] = uuid
        return last
