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
    # kind: (blame, words)
    "tool_not_found": ("model", "unknown tool"),
    "json_decode": ("model", "arguments not JSON"),
    "schema_validation": ("model", "wrong arguments"),
    "format_error": ("model", "wrong form of the answer"),
    "edit_no_match": ("model", "edit: text not found"),
    "edit_ambiguous": ("model", "edit: text found twice"),
    "edit_noop": ("model", "edit: no change"),
    "edit_syntax_rejected": ("model", "edit: broken syntax"),
    "stale_read": ("model", "edit before reading"),
    "path_not_found": ("unknown", "path not found"),
    "is_directory": ("model", "folder taken for a file"),
    "output_limit": ("unknown", "too much output"),
    "command_not_found": ("unknown", "program not found"),
    "usage_error": ("unknown", "wrong options"),
    "vcs_error": ("unknown", "git refused"),
    "timeout": ("unknown", "ran out of time"),
    "runtime_exception": ("unknown", "slip in a script"),
    "repeated_failure": ("model", "same failure again"),
    "repeated_call": ("model", "same call again"),
    "permission_denied": ("env", "permission denied"),
    "dependency_missing": ("env", "missing dependency"),
    "network_or_remote": ("env", "network or server"),
    "nonzero_exit": ("env", "other exit codes"),
    "nonzero_empty": ("env", "found nothing"),
    "tool_error": ("env", "tool failed"),
    "test_failure": ("outcome", "tests failed"),
    "compile_or_lint": ("outcome", "build or linter"),
    "merge_conflict": ("outcome", "merge conflict"),
    "program_exception": ("outcome", "own script failed"),
    "user_rejected": ("user", "stopped by the user"),
    "policy_denied": ("harness", "not permitted"),
    "cancelled_sibling": ("harness", "cancelled with another"),
    "interrupted": ("harness", "interrupted"),
    "dangling_call": ("harness", "no result recorded"),
    "sandbox_unavailable": ("harness", "sandbox not there"),
    "api_error": ("provider", "API error"),
    "truncated_output": ("provider", "answer cut off"),
}

KINDS = {kind: blame for kind, (blame, _) in _KINDS.items()}
"""Every kind an error site can have, and who is to blame as far as the message alone proves it."""

WRITERS = {
    "hindsight": "what worked later",
    "quoted": "the tool's own words",
    "environment": "the complaint itself",
    "user": "the user's words",
    "judge": "a model that judges",
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
