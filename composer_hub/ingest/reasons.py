"""Why the prompt of a step is not exactly what the model read: the values of `Step.prefix_reason`, in words.

Readers set a reason, and it holds until the next compaction; `missing_result` until the result arrives. The system
prompt does not count. The reference shows the table.
"""

from __future__ import annotations

PREFIX_REASONS = {
    "missing_parent": "the walk has a gap",
    "orphan_result": "a result was left out because its call is not in the prompt",
    "missing_result": "a call has no result, as after an interruption",
    "microcompact": "older results were shortened, and the new text is not recorded",
    "content_replaced": "older results were shortened, and the new text is not recorded",
    "image_left_out": "the prompt has a placeholder for an image",
    "document_left_out": "the prompt has a placeholder for a document",
    "attachment_not_read": "an unknown type of Claude Code attachment",
    "record_not_read": "a record above is of an unknown type, or its line is not JSON",
    "context_shrank": (
        "the provider's token count fell although the prompt grew: the harness edited the context without a record"
    ),
    "context_of_parent": "the prompt begins with messages in the parent's file",
    "compacted_history_not_recorded": "the history after a compaction is missing",
    "encrypted_compaction": "the history after a compaction is encrypted",
    "rolled_back_past_compaction": ("a rollback of Codex or Copilot CLI reached into the history of a compaction"),
    "provider_result_not_recorded": "a search or an image of the provider has no result in the file",
    "skill_not_recorded": "Copilot CLI: a skill was invoked, and no message holds its text",
    "context_transform": "a Pi extension rewrote the context; Hermes sent other words than it shows",
    "log_starts_late": "OpenHands v1: the log misses its start",
    "long_output_cut": "OpenHands v1: terminal output was cut",
    "recall_template": "OpenHands v0: context comes from a template",
    "action_text_lost": "OpenHands v0, Copilot CLI: only the parsed action was kept",
    "history_processed": "SWE-agent before 1.0: history processors may have shortened the input",
    "linear_export": "ATIF, Grok CLI: several contexts were written as one line of messages",
    "converted_row": "Hub rows: several contexts were written as one line of messages",
    "stream_log": "a printed stream lacks the user's words and the harness's additions",
    "display_log": "Gemini CLI, Cursor, kimi-cli: the file has the display, not the prompt",
    "markdown_log": "Aider: the file has the display, not the prompt",
    "no_model_events": "Inspect: a sample without model events",
    "compacted": (
        "OpenCode: after a compaction, old outputs may be shortened in the prompt; Copilot CLI, "
        "Goose, Hermes: the words around the summary are not recorded; Kimi Code: messages that it "
        "keeps may be cut"
    ),
    "rewound": (
        "Copilot CLI: versions differ in whether the message at a rewind stays; Droid: a message "
        "continues one before the last, and the remaining messages are not known; Hermes: rows were"
        " taken out of the context"
    ),
    "context_truncated": "Copilot CLI: old messages were dropped, and the file does not name them",
}
