"""The ordered rules over the words of harnesses that name an error.

The kinds with their blame are in `vocabulary.py`. `ALIASES` maps older names to kinds, `STATUSES` typed words to kinds.
`ANCHORS` are the rules over the first or last characters of a tool result. The first match wins, so narrow rules come
before wide ones. Rules over the output of failed commands are in `exits.py`.

A pattern is matched at the start of the head (after its wrapper, see `unwrapped`) or searched in the tail. No pattern
has nested repetition, so matching is linear in the few hundred characters that it reads.
"""

# ruff: noqa: E501  # a rule is one line, so that the tables can be read down

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from composer_hub.errors.vocabulary import KINDS

ALIASES = {"type_error": "schema_validation", "runtime_error": "runtime_exception", "not_found": "path_not_found"}
"""Names that other code uses for some kinds."""

STATUSES: dict[str, str] = {
    # Inspect's ToolCallError.type
    "parsing": "json_decode",
    "permission": "permission_denied",
    "file_not_found": "path_not_found",
    "is_a_directory": "is_directory",
    "limit": "output_limit",
    "approval": "policy_denied",
    "unicode_decode": "runtime_exception",
    # SWE-agent's FormatError.error_code
    "missing": "format_error",
    "multiple": "format_error",
    "incorrect_args": "schema_validation",
    "invalid_json": "json_decode",
    "invalid_command": "tool_not_found",
    "missing_arg": "schema_validation",
    "unexpected_arg": "schema_validation",
    # Qwen Code's errorType
    "invalid_tool_params": "schema_validation",
    # acts of people, harnesses and providers
    "rejected": "user_rejected",
    "user_reject": "user_rejected",
    "declined": "user_rejected",
    "denied": "policy_denied",
    "hook": "policy_denied",
    "blocked": "policy_denied",
    "timed_out": "timeout",
    "cancelled": "interrupted",
    "canceled": "interrupted",
    "aborted": "interrupted",
    "max_tokens": "truncated_output",
    "length": "truncated_output",
    "max_output_tokens": "truncated_output",
    "incomplete": "truncated_output",
    "truncated": "truncated_output",
    "provider_error": "api_error",
    "refused": "api_error",
    "refusal": "api_error",
    "overloaded": "api_error",
    "rate_limit": "api_error",
    "sandbox": "sandbox_unavailable",
}
"""Typed words of harnesses and their kind; every kind of `KINDS` also names itself."""


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """One way to recognize an error: a pattern, where it must match, and the kind and blame of a match."""

    rule_id: str
    kind: str
    blame: str
    confidence: float
    pattern: re.Pattern[str]
    families: str = "any"  # any; file = tools that read or edit; shell = tools that run commands
    where: str = "head"  # of a result: head or tail; output = of a command that failed
    purposes: frozenset[str] = frozenset()  # output rules: the purposes of the main command for which the rule holds
    codes: frozenset[int] = frozenset()  # output rules: holds only for these exit codes
    marks: tuple[str, ...] = ()  # one of them is in every match: looked for first, as that is quick
    in_lines: bool = False  # no match needs two lines, so only lines with a mark are read

    def meets(self, text: str) -> bool:
        """Return whether the pattern is in a text."""
        if self.in_lines:
            text = "\n".join(("", *lines_with(self.marks, text)))
        return (not self.marks or any(mark in text for mark in self.marks)) and self.pattern.search(text) is not None


def lines_with(marks: Sequence[str], text: str) -> list[str]:
    """Return the lines of a text that hold one of some words; looking for words is quicker than looking at lines."""
    spans = set()
    for mark in marks:
        at = text.find(mark)
        while at >= 0:
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            spans.add((text.rfind("\n", 0, at) + 1, end))
            at = text.find(mark, end)
    return [text[start:end] for start, end in sorted(spans)]


def rule(rule_id: str, kind: str, pattern: str, confidence: float = 0.95, **more: object) -> ErrorRule:
    """Return a rule whose blame is that of its kind, if no other is given; `.` also meets a line end."""
    blame = str(more.pop("blame", KINDS[kind]))
    return ErrorRule(rule_id, kind, blame, confidence, re.compile(pattern, re.DOTALL), **more)  # type: ignore[arg-type]


EVERYWHERE = frozenset(
    "awk base64 basename bash cat chmod cp cut date dirname echo env false find grep head ls mkdir mv pwd rm sed sh "
    "sleep sort tail tee test touch tr true uname uniq wc which xargs".split()
)
"""Programs that every system has: if one is not found, the PATH is broken."""


def canonical_kind(kind: str) -> str:
    """Return the kind's name in `KINDS`, following an alias."""
    return ALIASES.get(kind, kind)


HEAD_CHARS = 400
_WRAPPER = re.compile(
    r"\s*(?:OBSERVATION:\s*|\[An error occurred during execution\.\]\s*)?(?:<tool_use_error>|<error>)?\s*(?:-32\d{3}: )?(?:(?:Error|ERROR|error):\s+)?(?:Error:\s+)?"
)


def unwrapped(text: str) -> str:
    """Return the head of a result without the words that harnesses put around an error."""
    head = text[: HEAD_CHARS + 100]
    match = _WRAPPER.match(head)
    return head[match.end() if match else 0 :][:HEAD_CHARS]


def _file(rule_id: str, kind: str, pattern: str, confidence: float = 0.95, **more: object) -> ErrorRule:
    return rule(rule_id, kind, pattern, confidence, families="file", **more)


def _shell(
    rule_id: str, kind: str, pattern: str, confidence: float = 0.95, where: str = "head", marks: tuple[str, ...] = ()
) -> ErrorRule:
    return rule(rule_id, kind, pattern, confidence, families="shell", where=where, marks=marks)


# Decisions of a person or the harness. They are not mistakes of the call, so these rules come first.
_DECISIONS = (
    rule("user.declined_use", "user_rejected", r"The user doesn't want to (?:proceed with this tool use|take this action)", 0.99),
    rule("user.cancelled", "user_rejected", r"(?:[Uu]ser (?:cancell?ed|rejected|declined) (?:the (?:operation|action|command|tool)|MCP tool call)|Command was cancelled by user\b|Blocked by user\b)", 0.95),
    rule("user.command_not_run", "user_rejected", r"(?:Command not executed\. The user rejected your command|\[\w{1,60} for '[^\n]{0,300}'\] Result:\s{1,4}The user denied this operation|exec_command failed for [^\n]{1,300}rejected by user)", 0.97),
    rule("user.rejected", "user_rejected", r"(?:exec command|patch|command|action|tool call) (?:was )?rejected by (?:the )?user", 0.97),
    rule("user.denied", "user_rejected", r"(?:The user denied this operation|User (?:rejected|denied)\b|Action rejected by user)", 0.95),
    rule("user.not_allowed", "user_rejected", r"\[Operation Cancelled\] Reason: User ", 0.97),
    rule("harness.request_interrupted", "interrupted", r"(?:Exit code \d{1,3}\s+)?\[Request interrupted by user", 0.99),
    rule("harness.aborted_by_user", "interrupted", r"(?:Wall time: [\d.]+ seconds\s+)?(?:command )?aborted by user\b", 0.97),
    rule("harness.aborted", "interrupted", r"(?:Command|Operation|Tool execution|Request was) aborted\b", 0.95),
    rule("harness.interrupted", "interrupted", r"(?:<error>)?(?:Command was aborted before completion|Interrupted by user)", 0.9),
    rule("harness.sibling_errored", "cancelled_sibling", r"Sibling tool call errored", 0.99),
    rule("harness.parallel_cancelled", "cancelled_sibling", r"Cancelled: parallel tool call", 0.99),
    _shell("policy.exec_rejected", "policy_denied", r"`.{0,300} rejected: [^\n]{1,300}\)\" \}\s*$", 0.95, "tail"),
    rule("policy.permission_denied", "policy_denied", r"Permission (?:to use [^\n]{1,200}|for this action) (?:has been|was) denied", 0.99),
    rule("policy.not_granted", "policy_denied", r"Claude requested permissions? to [^\n]{1,300} but you haven't granted it", 0.98),
    rule("policy.blocked_command", "policy_denied", r"Blocked: \S", 0.95),
    rule("policy.hook", "policy_denied", r"(?:\w{1,40}(?::\w{1,40})? (?:operation blocked by )?hook (?:blocking )?error|\w{1,40} operation blocked by hook)", 0.95),
    rule("policy.asks", "policy_denied", r"This (?:Bash )?command (?:requires approval\b|contains multiple operations\. The following)", 0.97),
    rule("policy.cwd_blocked", "policy_denied", r"[^\n]{1,300} was blocked\. For security,", 0.97),
    rule("harness.spawn_failed", "sandbox_unavailable", r"(?:ENOENT: no such file or directory, |spawn [^\n]{1,200}ENOENT)posix_spawn", 0.97),
    rule("harness.spawn", "sandbox_unavailable", r"(?:posix_spawn|spawn \S{1,200} E(?:NOENT|ACCES|AGAIN)|failed to (?:spawn|create unified exec))", 0.9),
    rule("provider.api_error", "api_error", r"(?:API Error: |Agent terminated early due to an API error)", 0.9),
)  # fmt: skip

# The call never reached a tool: its name, its arguments or its form were off.
_CALLS = (
    rule("call.mcp_issues", "schema_validation", r"(?:MCP error -?\d{1,6}: )?(?:Input validation error: |\[\s*\{\s*\"(?:code|expected|validation)\": \")", 0.95),
    rule("call.argument_validation", "schema_validation", r"(?:MCP error -?\d{1,6}: )?(?:Tool )?(?:Argument|Input|Parameter|Schema)s? [Vv]alidation (?:[Ee]rror|[Ff]ailed)", 0.96),
    rule("call.no_such_tool", "tool_not_found", r"No such tool available:?", 0.99),
    rule("call.unknown_tool", "tool_not_found", r"(?:Unknown (?:tool|skill|function|command)|Unrecognized tool)\b:? ?['\"`\w]", 0.93),
    rule("call.tool_missing", "tool_not_found", r"Tool ['\"`]?[\w.:/-]{1,100}['\"`]? (?:was )?(?:not found|does not exist|is not available)", 0.97),
    rule("script.no_such_tool", "tool_not_found", r"Script error:\s+TypeError: tools\.\w{1,100} is not a function", 0.98),
    rule("script.syntax", "format_error", r"Script error:\s+SyntaxError: ", 0.97),
    rule("script.exception", "runtime_exception", r"Script error:\s+(?:Uncaught )?\w{0,40}Error: ", 0.9),
    rule("call.agent_missing", "tool_not_found", r"Agent type '[^'\n]{1,100}' not found", 0.99),
    rule("call.unavailable_tool", "tool_not_found", r"(?:The arguments provided to the tool are invalid: )?Model tried to call unavailable tool", 0.98),
    rule("call.unsupported", "tool_not_found", r"unsupported (?:call|custom tool call): ?", 0.95),
    rule("call.arguments_json", "json_decode", r"failed to parse function arguments: (?!missing field|unknown field|invalid type|invalid value)", 0.95),
    rule("call.arguments_fields", "schema_validation", r"failed to parse function arguments: ", 0.95),
    rule("call.not_parsed", "json_decode", r"InputValidationError:? .{0,200}could not be parsed as JSON", 0.97),
    rule("call.input_validation", "schema_validation", r"(?:InputValidationError\b|\S{1,100} failed due to the following issues?:)", 0.99),
    rule("call.invalid_arguments", "schema_validation", r"(?:Invalid (?:arguments|parameters?|params) (?:for|to|provided)\b|Error validating (?:args|arguments)|Validation failed for tool|MCP error -32602|params must )", 0.96),
    rule("call.tool_called_with", "schema_validation", r"The [\w.:/-]{1,100} tool was called with invalid arguments", 0.98),
    rule("call.missing_argument", "schema_validation", r"(?:Missing (?:required )?(?:argument|parameter)s?\b|Required parameter\b|Missing value for required parameter|Unexpected argument\b)", 0.95),
    _file("file.bad_path_parameter", "path_not_found", r"Invalid `path` parameter: [^\n]{1,400} does not exist", 0.97),
    rule("form.not_formatted", "format_error", r"(?:Your (?:last )?output was not formatted correctly|Your last output did not use any tool calls|Your (?:last )?output could not be parsed)", 0.98),
    rule("form.one_action", "format_error", r"(?:Format error:|Please always provide EXACTLY ONE action|(?:No|Multiple) tool calls? (?:was |were )?found in (?:the|your) (?:response|output))", 0.97),
    rule("form.no_tool_used", "format_error", r"\[?(?:ERROR\] )?You did not use a tool in your previous response", 0.97),
    rule("form.many_commands", "format_error", r"(?:ERROR: )?Cannot execute multiple commands at once", 0.98),
)  # fmt: skip

_EDITS = (
    _file("edit.string_missing", "edit_no_match", r"(?:String|Text) to replace (?:was )?not found in (?:the )?file", 0.99),
    _file("edit.ambiguous_old_str", "edit_ambiguous", r"No replacement was performed\. Multiple occurrences of old_str", 0.99),
    _file("edit.old_str_same", "edit_noop", r"No replacement was performed\. (?:`?old_str`? and `?new_str`?|Neither)", 0.95),
    _file("edit.old_str_missing", "edit_no_match", r"No replacement was performed, old_str", 0.98),
    rule("edit.no_exact_match", "edit_no_match", r"\[No exact match found in [^\n]{1,400} for", 0.98),
    _file("edit.exact_text_missing", "edit_no_match", r"Could not find (?:the exact text|old text|oldString in the file|edits\[\d{1,4}\])", 0.98),
    _file("edit.zero_occurrences", "edit_no_match", r"Failed to edit, (?:0 occurrences found|could not find the string)", 0.98),
    _file("edit.old_string_missing", "edit_no_match", r"(?:Could not find )?`?[oO]ld_?[sS]tring`? (?:was )?not found (?:in|verbatim)", 0.96),
    rule("harness.patch_sandbox", "sandbox_unavailable", r"apply_patch verification failed: [^\n]{1,300}\bsandbox (?:helper )?failed", 0.95),
    rule("edit.patch_lines_missing", "edit_no_match", r"(?:apply_patch verification failed: )?(?:Failed to find (?:expected lines|context)|Invalid Context)", 0.97),
    rule("edit.patch_invalid", "format_error", r"(?:apply_patch verification failed: )?(?:invalid (?:patch|hunk)|Invalid patch)\b", 0.95),
    rule("edit.patch_failed", "edit_no_match", r"apply_patch verification failed", 0.8),
    _file("edit.found_many", "edit_ambiguous", r"Found \d+ (?:matches|occurrences) of (?:the (?:string to replace|text)|edits\[\d+\])", 0.99),
    _file("edit.found_several", "edit_ambiguous", r"(?:Found multiple matches for oldString|oldString found multiple times|Multiple matches found|[^\n]{0,60}\bold_?\w* (?:matches|occurs in|found in) (?:[2-9]|\d{2,}) (?:locations|places)\b)", 0.95),
    _file("edit.same_strings", "edit_noop", r"No changes to make: ", 0.99),
    rule("edit.syntax", "edit_syntax_rejected", r"\[?Your proposed edit has introduced new syntax error", 0.99),
    _file("edit.not_read", "stale_read", r"File has not been read yet", 0.99),
    _file("edit.modified_since", "stale_read", r"File (?:has been modified|content has changed) since", 0.99, blame="unknown"),  # by whom?
    _file("edit.must_read", "stale_read", r"You must read (?:the )?file .{0,300} before (?:overwriting|editing|writing)", 0.97),
)  # fmt: skip

_FILES = (
    _file("file.missing", "path_not_found", r"(?:File|Path|Directory|Notebook) (?:file )?does not exist", 0.99),
    _file("file.path_missing", "path_not_found", r"The path .{1,300} does not exist", 0.98),
    _file("file.not_found", "path_not_found", r"(?:File|Path|Directory) (?:[^\n]{1,300} )?not found\b", 0.95),
    _file("file.enoent", "path_not_found", r"ENOENT: no such file or directory", 0.97),
    _file("file.eisdir", "is_directory", r"EISDIR: ", 0.99),
    _file("file.is_directory", "is_directory", r"(?:The path .{1,300} is a directory|[^\n]{1,300} is a directory\b|\[Errno 21\])", 0.95),
    _file("file.too_large", "output_limit", r"(?:File content \([\d.,]+ ?\w+\) exceeds maximum|File too large to read at once)", 0.99),
    _file("file.binary", "usage_error", r"(?:This tool cannot read binary files|Cannot (?:read|display) binary)", 0.95),
    _file("file.pattern", "usage_error", r"(?:regex parse error|ripgrep (?:error|failed)|rg: (?:regex parse error|unrecognized file type))", 0.95),
    rule("task.unknown_process", "usage_error", r"write_stdin failed: Unknown process id ", 0.97),
    rule("task.not_running", "usage_error", r"(?:Task|Shell) (?:\S{1,100} )?(?:is not running|not found)", 0.93),
)  # fmt: skip

_SHELLS = (
    rule("shell.timed_out", "timeout", r"(?:Exit code \d{1,3}\s+)?(?:Command|Process|Script|command) timed out(?: after)?\b", 0.97),
    _shell("shell.execution_timed_out", "timeout", r"(?:EXECUTION TIMED OUT|The command '.{0,300}' was cancelled because it took more than)", 0.97),
    _shell("shell.mini_timed_out", "timeout", r"<exception>[^\n]{0,300}timed out after", 0.97),
    _shell("shell.tail_timed_out", "timeout", r"(?:^|\n)Command timed out after [\d.]+ ?\w+\s*$", 0.95, "tail", ("timed out after",)),
    _shell("shell.tail_no_output", "timeout", r"\[The command (?:has no new output after|timed out after) [\d.]+ seconds\.[^\n]{0,600}\]?\s*$", 0.93, "tail", ("[The command ",)),
    _shell("shell.tail_aborted", "interrupted", r"(?:^|\n)Command aborted\s*$", 0.95, "tail", ("Command aborted",)),
    _shell("shell.mini_exception", "tool_error", r"<exception>", 0.85),
)  # fmt: skip

_WEB = (
    rule("web.status", "network_or_remote", r"(?:StatusCode: non 2xx|Request failed with status code \d{3}|The server returned HTTP \d{3}|HTTP (?:error )?\d{3}\b)", 0.95),
    rule("web.unreachable", "network_or_remote", r"(?:getaddrinfo E\w+|connect E\w+|Unable to (?:fetch|verify|connect)|(?:Failed to|Could not) (?:fetch|connect)|Unable to verify if domain|unable to get local issuer certificate)", 0.92),
)  # fmt: skip

ANCHORS: tuple[ErrorRule, ...] = (*_DECISIONS, *_CALLS, *_EDITS, *_FILES, *_SHELLS, *_WEB)
"""Sentences that harnesses write into a result, in the order in which they are tried."""
ANY_HEAD = re.compile("|".join(rule.pattern.pattern for rule in ANCHORS if rule.where == "head"), re.DOTALL)
"""Matches where some rule of the head does: most results begin with none of the sentences."""
TAILS = tuple(rule for rule in ANCHORS if rule.where == "tail")
