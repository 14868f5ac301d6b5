"""The words for kinds of errors, for blame and for writers of hints: one table for the report, the Space and the docs.

The Space has this file as well (`space/inspector/vocabulary.py` is a link to it), so it imports nothing of the package.
"""

from __future__ import annotations

BLAMES = {
    "model": "the agent's own fault",
    "unknown": "not proven",
    "outcome": "tests, linters, builds",
    "env": "the environment",
    "user": "the user said no",
    "harness": "the harness",
    "provider": "the provider",
}
"""Whose fault an error is, with its words, in the order in which pages show them."""

_KINDS = {
    # kind: (blame, words, evidence, for example)
    "tool_not_found": ("model", "unknown tool", '"No such tool available"'),
    "json_decode": ("model", "arguments not JSON", "arguments that do not parse"),
    "schema_validation": ("model", "wrong arguments", '"InputValidationError"'),
    "format_error": ("model", "wrong form of the answer", '"EXACTLY ONE action"'),
    "edit_no_match": ("model", "edit: text not found", '"String to replace not found in file"'),
    "edit_ambiguous": ("model", "edit: text found twice", '"Found 3 matches"'),
    "edit_noop": ("model", "edit: no change", '"No changes to make"'),
    "edit_syntax_rejected": ("model", "edit: broken syntax", '"introduced new syntax error(s)"'),
    "stale_read": ("model", "edit before reading", '"File has not been read yet"'),
    "path_not_found": ("unknown", "path not found", '"No such file or directory"'),
    "is_directory": ("model", "folder taken for a file", '"EISDIR"'),
    "output_limit": ("unknown", "too much output", '"exceeds maximum allowed tokens"'),
    "command_not_found": ("unknown", "program not found", "exit code 127"),
    "usage_error": ("unknown", "wrong options", '"unknown flag", shell syntax'),
    "vcs_error": ("unknown", "git refused", '"fatal: not a git repository"'),
    "timeout": ("unknown", "ran out of time", '"Command timed out"'),
    "runtime_exception": ("unknown", "slip in a script", "a traceback or a panic of a failed command"),
    "repeated_failure": ("model", "same failure again", "same tool, kind, target and words, three steps in a row"),
    "repeated_call": ("model", "same call again", "same call, same result, three steps in a row"),
    "permission_denied": ("env", "permission denied", '"Permission denied"'),
    "dependency_missing": ("env", "missing dependency", '"ModuleNotFoundError"'),
    "network_or_remote": ("env", "network or server", '"Could not resolve host", HTTP 404'),
    "nonzero_exit": ("env", "other exit codes", "a failed command that no rule explains"),
    "nonzero_empty": ("env", "found nothing", "`grep` without a match, a look: no error at all"),
    "tool_error": ("env", "tool failed", "a flag without words of a known rule"),
    "test_failure": ("outcome", "tests failed", "a failed test runner"),
    "compile_or_lint": ("outcome", "build or linter", "a failed compiler, linter or commit hook"),
    "merge_conflict": ("outcome", "merge conflict", '"CONFLICT (content)"'),
    "program_exception": ("outcome", "own script failed", "an exception of a program that the model wrote and ran"),
    "user_rejected": ("user", "stopped by the user", '"The user doesn\'t want to proceed"'),
    "policy_denied": ("harness", "not permitted", '"Permission … has been denied", a hook'),
    "cancelled_sibling": ("harness", "cancelled with another", '"Sibling tool call errored"'),
    "interrupted": ("harness", "interrupted", '"Request interrupted by user"'),
    "dangling_call": ("harness", "no result recorded", "no result, unless a last `submit` or `finish`"),
    "sandbox_unavailable": ("harness", "sandbox not there", '"posix_spawn"'),
    "api_error": ("provider", "API error", "an error or refusal of the provider"),
    "truncated_output": ("provider", "answer cut off", "finish reason `max_tokens`"),
}

KINDS = {kind: blame for kind, (blame, *_) in _KINDS.items()}
"""Every kind an error site can have, and who is to blame as far as the message alone proves it."""

EVIDENCE = {kind: evidence for kind, (*_, evidence) in _KINDS.items()}
"""An example of what shows each kind, for the reference."""

WRITERS = {
    "hindsight": "what worked later",
    "quoted": "the tool's own words",
    "environment": "the complaint itself",
    "user": "the user's words",
    "judge": "a model that judges",
    "critic": "a model that criticizes",
    "sibling": "a better attempt",
    "reviewer": "a reviewer",
    "control": "a control without advice",
}
"""Who wrote a hint, with its words."""


def kind_words(kind: str) -> str:
    """Return a kind of error in words that need no manual; one that is not known loses its underscores."""
    return _KINDS[kind][1] if kind in _KINDS else kind.replace("_", " ")


def blame_words(blame: str) -> str:
    """Return whose fault an error is, in words."""
    return BLAMES.get(blame, blame)


def writer_words(writer: str) -> str:
    """Return who wrote a hint, in words."""
    return WRITERS.get(writer, writer) or "no hint"
