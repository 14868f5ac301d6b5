"""Read the `attachment` records of Claude Code: the text that the model got, or nothing for telemetry.

The file holds the attachment's data, not the words it was sent with: the frame around the text is our own.
"""

from __future__ import annotations

import re
from typing import Any

from composer_hub.ingest.foreign import IMAGE, as_dict, as_list, as_text, dict_at, first_text, joined, list_at, text_at
from composer_hub.ingest.readers.blocks import DOCUMENT

SILENT = {
    "hook_system_message", "hook_non_blocking_error", "hook_cancelled", "hook_error_during_execution",
    "hook_permission_decision", "hook_stopped_continuation", "command_permissions", "budget_usd", "token_usage",
    "already_read_file", "structured_output", "compact_file_reference", "skill_discovery", "dynamic_skill",
    "ultra_effort_enter", "ultra_effort_exit", "auto_mode", "auto_mode_exit", "plan_mode", "plan_mode_exit",
    "plan_mode_reentry", "verify_plan_reminder", "task_status", "task_progress", "max_turns_reached",
    "memory_update", "current_session_memory", "context_efficiency", "companion_intro", "deferred_tools_delta_end",
}  # fmt: skip
"""Types without text: telemetry, or switches whose words only the harness knows."""

TEXT_KEYS = {
    "hook_additional_context": "content", "skill_listing": "content", "total_tokens_reminder": "text",
    "batching_reminder_sent": "text", "silent_turn_reminder": "text", "read_truncation_notice": "banner",
    "output_style": "style", "critical_system_reminder": "content", "date_change": "newDate", "ultramemory": "content",
    "directory": "content",
}  # fmt: skip


_FRAMES = {  # words around the attachment's own, and the field without which there is nothing to say
    "agent_mention": ("The user asks for the agent {agentType}.", ""),
    "edited_image_file": (f"{{filename}}:\n{IMAGE}", ""),
    "edited_text_file": ("{filename} was changed outside this session:\n{snippet}", "snippet"),
    "opened_file_in_ide": ("The user opened the file {filename} in the IDE.", ""),
    "pdf_reference": ("PDF file: {filename} ({pageCount} pages).", ""),
    "plan_file_reference": ("The plan in {planFilePath}:\n{planContent}", "planContent"),
    "selected_lines_in_ide": ("The user selected the lines {lineStart} to {lineEnd} from {filename}:\n{content}", ""),
}
_HEARD_HOOKS = ("SessionStart", "UserPromptSubmit")
"""Only of these does the model read what they print."""


def attachment_text(attachment: dict[str, Any]) -> str | None:
    """Return the prompt text of an attachment, "" if it has none, None if its type is unknown."""
    kind = text_at(attachment, "type")
    if kind in SILENT:
        return ""
    if kind in TEXT_KEYS:
        return _reminder(_plain(attachment.get(TEXT_KEYS[kind])))
    if kind in _FRAMES:
        frame, needed = _FRAMES[kind]
        fields = {name: text_at(attachment, name) for name in re.findall(r"\{(\w+)\}", frame)}
        return _reminder(frame.format(**fields)) if not needed or fields[needed] else ""
    writer = _WRITERS.get(kind)
    return None if writer is None else writer(attachment)


def unseen_part(text: str) -> str:
    """Return why an attachment's text is not everything that the model saw, or ""."""
    end = text.removesuffix("\n</system-reminder>")
    return "image_left_out" if end.endswith(IMAGE) else "document_left_out" if end.endswith(DOCUMENT) else ""


def _reminder(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>" if text else ""


def _plain(value: Any) -> str:
    """Return the text of a string, a list of strings or of content blocks."""
    if isinstance(value, str):
        return value
    parts = [one if isinstance(one, str) else text_at(as_dict(one), "text") for one in as_list(value)]
    return joined(parts)


def _queued(attachment: dict[str, Any]) -> str:
    blocks = list_at(attachment, "prompt")
    images = [IMAGE for block in blocks if as_dict(block).get("type") == "image"]
    return joined([_plain(attachment.get("prompt")), *images])


def _file(attachment: dict[str, Any]) -> str:
    name, content = text_at(attachment, "filename"), dict_at(attachment, "content")
    if content.get("type") in ("image", "pdf"):
        return _reminder(f"{name}:\n{IMAGE if content['type'] == 'image' else DOCUMENT}")
    text = text_at(content, "file", "content") or text_at(content, "content")
    return _reminder(f"{name}:\n{text}") if text else ""


def _memory(attachment: dict[str, Any]) -> str:
    text = text_at(attachment, "content", "content")
    return _reminder(f"Contents of {text_at(attachment, 'path')}:\n{text}") if text else ""


def _deferred(attachment: dict[str, Any]) -> str:
    added = [as_text(name) for name in list_at(attachment, "addedLines") or list_at(attachment, "addedNames")]
    return _reminder("Tools that can be loaded by name:\n" + "\n".join(added)) if added else ""


def _lines(attachment: dict[str, Any]) -> str:
    return _reminder(_plain(attachment.get("addedLines")) or _plain(attachment.get("addedBlocks")))


def _todos(attachment: dict[str, Any]) -> str:
    items = [as_dict(item) for item in list_at(attachment, "content")]
    lines = [f"- [{text_at(i, 'status')}] {first_text(i, 'content', 'subject')}" for i in items]
    return _reminder("The task list now:\n" + "\n".join(lines)) if lines else ""


def _blocked(attachment: dict[str, Any]) -> str:
    return _reminder(text_at(attachment, "blockingError", "blockingError"))


def _skills(attachment: dict[str, Any]) -> str:
    return _reminder("\n\n".join(text_at(as_dict(one), "content") for one in list_at(attachment, "skills")))


def _hook(attachment: dict[str, Any]) -> str:
    text = text_at(attachment, "content")
    heard = text and attachment.get("hookEvent") in _HEARD_HOOKS
    return _reminder(f"{text_at(attachment, 'hookName')} hook success: {text}") if heard else ""


def _late_hook(attachment: dict[str, Any]) -> str:
    response = dict_at(attachment, "response")
    more = dict_at(response, "hookSpecificOutput").get("additionalContext")
    return _reminder(joined([text_at(response, "systemMessage"), as_text(more)]))


def _diagnostics(attachment: dict[str, Any]) -> str:
    lines = []
    for file in map(as_dict, list_at(attachment, "files")):
        lines.append(f"{text_at(file, 'uri')}:")
        found = map(as_dict, list_at(file, "diagnostics"))
        lines += [f"  [{text_at(one, 'severity')}] {text_at(one, 'message')}" for one in found]
    return _reminder("New diagnostics:\n" + "\n".join(lines)) if lines else ""


def _resource(attachment: dict[str, Any]) -> str:
    text = _plain(dict_at(attachment, "content").get("contents"))
    return _reminder(f"{text_at(attachment, 'server')} {text_at(attachment, 'uri')}:\n{text}") if text else ""


def _memories(attachment: dict[str, Any]) -> str:
    found = [as_dict(one) for one in list_at(attachment, "memories")]
    return _reminder("\n\n".join(f"{text_at(one, 'path')}:\n{text_at(one, 'content')}" for one in found))


def _mail(attachment: dict[str, Any]) -> str:
    found = [as_dict(one) for one in list_at(attachment, "messages")]
    return _reminder("\n\n".join(f"{text_at(one, 'from')}: {text_at(one, 'text')}" for one in found))


_WRITERS = {
    "hook_success": _hook,
    "async_hook_response": _late_hook,
    "diagnostics": _diagnostics,
    "mcp_resource": _resource,
    "relevant_memories": _memories,
    "teammate_mailbox": _mail,
    "queued_command": _queued,
    "file": _file,
    "nested_memory": _memory,
    "deferred_tools_delta": _deferred,
    "agent_listing_delta": _lines,
    "mcp_instructions_delta": _lines,
    "todo_reminder": _todos,
    "task_reminder": _todos,
    "hook_blocking_error": _blocked,
    "invoked_skills": _skills,
}
