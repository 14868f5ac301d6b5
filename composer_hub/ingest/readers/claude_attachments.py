"""What the `attachment` records of Claude Code put in front of the model: their text, or nothing for telemetry.

The file holds the attachment's data, not the words it was sent with: the frame around the text is our own.
"""

from __future__ import annotations

from typing import Any

from composer_hub.ingest.foreign import IMAGE, as_dict, as_list, as_text

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


DOCUMENT = "[document]"
_HEARD_HOOKS = ("SessionStart", "UserPromptSubmit")
"""Only of these does the model read what they print."""


def attachment_text(attachment: dict[str, Any]) -> str | None:
    """Return the prompt text of an attachment, "" if it has none, None if its type is unknown."""
    kind = as_text(attachment.get("type"))
    if kind in SILENT:
        return ""
    if kind in TEXT_KEYS:
        return _reminder(_plain(attachment.get(TEXT_KEYS[kind])))
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
    parts = [one if isinstance(one, str) else as_text(as_dict(one).get("text")) for one in as_list(value)]
    return "\n".join(part for part in parts if part)


def _queued(attachment: dict[str, Any]) -> str:
    blocks = as_list(attachment.get("prompt"))
    images = [IMAGE for block in blocks if as_dict(block).get("type") == "image"]
    return "\n".join(filter(None, [_plain(attachment.get("prompt")), *images]))


def _file(attachment: dict[str, Any]) -> str:
    name, content = as_text(attachment.get("filename")), as_dict(attachment.get("content"))
    if content.get("type") in ("image", "pdf"):
        return _reminder(f"{name}:\n{IMAGE if content['type'] == 'image' else DOCUMENT}")
    text = as_text(as_dict(content.get("file")).get("content")) or as_text(content.get("content"))
    return _reminder(f"{name}:\n{text}") if text else ""


def _edited(attachment: dict[str, Any]) -> str:
    snippet = as_text(attachment.get("snippet"))
    return (
        _reminder(f"{as_text(attachment.get('filename'))} was changed outside this session:\n{snippet}")
        if snippet
        else ""
    )


def _memory(attachment: dict[str, Any]) -> str:
    text = as_text(as_dict(attachment.get("content")).get("content"))
    return _reminder(f"Contents of {as_text(attachment.get('path'))}:\n{text}") if text else ""


def _deferred(attachment: dict[str, Any]) -> str:
    added = [as_text(name) for name in as_list(attachment.get("addedLines")) or as_list(attachment.get("addedNames"))]
    return _reminder("Tools that can be loaded by name:\n" + "\n".join(added)) if added else ""


def _lines(attachment: dict[str, Any]) -> str:
    return _reminder(_plain(attachment.get("addedLines")) or _plain(attachment.get("addedBlocks")))


def _todos(attachment: dict[str, Any]) -> str:
    items = [as_dict(item) for item in as_list(attachment.get("content"))]
    lines = [f"- [{as_text(i.get('status'))}] {as_text(i.get('content')) or as_text(i.get('subject'))}" for i in items]
    return _reminder("The task list now:\n" + "\n".join(lines)) if lines else ""


def _blocked(attachment: dict[str, Any]) -> str:
    return _reminder(as_text(as_dict(attachment.get("blockingError")).get("blockingError")))


def _skills(attachment: dict[str, Any]) -> str:
    return _reminder("\n\n".join(as_text(as_dict(one).get("content")) for one in as_list(attachment.get("skills"))))


def _hook(attachment: dict[str, Any]) -> str:
    text = as_text(attachment.get("content"))
    heard = text and attachment.get("hookEvent") in _HEARD_HOOKS
    return _reminder(f"{as_text(attachment.get('hookName'))} hook success: {text}") if heard else ""


def _late_hook(attachment: dict[str, Any]) -> str:
    response = as_dict(attachment.get("response"))
    more = as_dict(response.get("hookSpecificOutput")).get("additionalContext")
    return _reminder("\n".join(filter(None, [as_text(response.get("systemMessage")), as_text(more)])))


def _selected(attachment: dict[str, Any]) -> str:
    lines = f"{attachment.get('lineStart')} to {attachment.get('lineEnd')}"
    text = as_text(attachment.get("content"))
    return _reminder(f"The user selected the lines {lines} from {as_text(attachment.get('filename'))}:\n{text}")


def _opened(attachment: dict[str, Any]) -> str:
    return _reminder(f"The user opened the file {as_text(attachment.get('filename'))} in the IDE.")


def _diagnostics(attachment: dict[str, Any]) -> str:
    lines = []
    for file in map(as_dict, as_list(attachment.get("files"))):
        lines.append(f"{as_text(file.get('uri'))}:")
        found = map(as_dict, as_list(file.get("diagnostics")))
        lines += [f"  [{as_text(one.get('severity'))}] {as_text(one.get('message'))}" for one in found]
    return _reminder("New diagnostics:\n" + "\n".join(lines)) if lines else ""


def _resource(attachment: dict[str, Any]) -> str:
    text = _plain(as_dict(attachment.get("content")).get("contents"))
    return _reminder(f"{as_text(attachment.get('server'))} {as_text(attachment.get('uri'))}:\n{text}") if text else ""


def _agent(attachment: dict[str, Any]) -> str:
    return _reminder(f"The user asks for the agent {as_text(attachment.get('agentType'))}.")


def _plan(attachment: dict[str, Any]) -> str:
    text = as_text(attachment.get("planContent"))
    return _reminder(f"The plan in {as_text(attachment.get('planFilePath'))}:\n{text}") if text else ""


def _pdf(attachment: dict[str, Any]) -> str:
    return _reminder(f"PDF file: {as_text(attachment.get('filename'))} ({attachment.get('pageCount')} pages).")


def _image(attachment: dict[str, Any]) -> str:
    return _reminder(f"{as_text(attachment.get('filename'))}:\n{IMAGE}")


def _memories(attachment: dict[str, Any]) -> str:
    found = [as_dict(one) for one in as_list(attachment.get("memories"))]
    return _reminder("\n\n".join(f"{as_text(one.get('path'))}:\n{as_text(one.get('content'))}" for one in found))


def _mail(attachment: dict[str, Any]) -> str:
    found = [as_dict(one) for one in as_list(attachment.get("messages"))]
    return _reminder("\n\n".join(f"{as_text(one.get('from'))}: {as_text(one.get('text'))}" for one in found))


_WRITERS = {
    "hook_success": _hook,
    "async_hook_response": _late_hook,
    "selected_lines_in_ide": _selected,
    "opened_file_in_ide": _opened,
    "diagnostics": _diagnostics,
    "mcp_resource": _resource,
    "agent_mention": _agent,
    "plan_file_reference": _plan,
    "pdf_reference": _pdf,
    "edited_image_file": _image,
    "relevant_memories": _memories,
    "teammate_mailbox": _mail,
    "queued_command": _queued,
    "file": _file,
    "edited_text_file": _edited,
    "nested_memory": _memory,
    "deferred_tools_delta": _deferred,
    "agent_listing_delta": _lines,
    "mcp_instructions_delta": _lines,
    "todo_reminder": _todos,
    "task_reminder": _todos,
    "hook_blocking_error": _blocked,
    "invoked_skills": _skills,
}
