"""Name the failure of one call: an `Action` in, its `ErrorSite` or None out.

Evidence is read in this order: a typed flag of the harness, a sentence of the harness at the start of a result, an exit
code and, if no exit code proves anything, the output of a shell tool. The first evidence is the site's `source`; the
rule that chose the kind is its `rule`. The rules are data in `rules.py` and `exits.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Sequence

from composer_hub.actions.action import Action
from composer_hub.errors.excerpts import excerpt
from composer_hub.errors.exits import hides_exit_code, report_rule_of, rule_of_exit, text_rule_of
from composer_hub.errors.rules import (
    ANCHORS,
    ANY_HEAD,
    HEAD_CHARS,
    STATUSES,
    TAILS,
    ErrorRule,
    canonical_kind,
    unwrapped,
)
from composer_hub.errors.vocabulary import KINDS
from composer_hub.harnesses import body_of, exit_code_in, words_in
from composer_hub.records import ErrorSite, ToolCall
from composer_hub.session import ResultFlag

MAX_STATUS_CHARS = 40
MAX_QUIET_READ_CHARS = 1000  # an error of a read tool is a sentence; longer text is the file itself
TEXT_CONFIDENCE = 0.88  # of a rule that no exit code supports

_PROTOCOL_ERROR = "MCP error -326"
_NO_CALL = ToolCall("", None)
_BY_A_PERSON = re.compile(r"user|reject|declin", re.IGNORECASE)


def _plain_rule(rule_id: str, kind: str, confidence: float) -> ErrorRule:
    return ErrorRule(rule_id, kind, KINDS[kind], confidence, re.compile(""))


def _typed_rule(word: str, kind: str) -> ErrorRule:
    return _plain_rule(f"flag.{word}", kind, 0.97)


UNNAMED = _plain_rule("flag.error", "tool_error", 0.9)
_NO_RESULT = _plain_rule("derived.no_result", "dangling_call", 0.9)
_BROKEN_JSON = _plain_rule("flag.arguments_text", "json_decode", 0.9)
# of a program that others wrote, in which no name or value of the model's is wrong
_FOREIGN = _plain_rule("exit.foreign_exception", "nonzero_exit", 0.8)
_ANSWER = _plain_rule("exit.own_program", "program_exception", 0.9)


def site_of(outcome: Action, *, text_rules: bool = False) -> ErrorSite | None:
    """Return the error site of one call's result, or None if it succeeded."""
    text, flag = outcome.content or "", outcome.flag
    if outcome.is_running:
        return None  # a later poll has the outcome
    flagged = _flagged(outcome)
    if flagged is False:
        return _hidden_site(outcome, text_rules=text_rules)
    text = words_in(text) if flagged else text
    anchor = _match_anchor(text, outcome.family, trusted=flagged is True)
    word, typed = _kind_of_flag(flag)
    # A typed word names the kind, unless a sentence of the harness names more exactly who stopped the call.
    if typed and not (anchor and anchor.blame in ("user", "harness")):
        return _site(_typed_rule(word, typed), "flag", outcome.call, text or flag.detail)
    if anchor:
        return _site(anchor, "flag" if flagged else "anchor", outcome.call, text)
    code = flag.exit_code if flag.exit_code is not None else _exit_code(outcome)
    if code:
        return _exit_site(outcome, code, "flag" if flag.is_error else "exit")
    if flagged:
        return _unnamed_site(outcome)
    if _arguments_broke(outcome.call) and not text:
        return _site(_BROKEN_JSON, "flag", outcome.call, text)
    return _hidden_site(outcome, text_rules=text_rules) if code is None else None


def site_of_action(flag: ResultFlag) -> ErrorSite | None:
    """Return the error site of a message that its provider refused or cut."""
    word, kind = _kind_of_flag(flag)
    if not kind and flag.is_error:
        word, kind = "error", "api_error"
    return _site(_typed_rule(word, kind), "flag", _NO_CALL, flag.detail) if kind else None


def site_of_reply(text: str) -> ErrorSite | None:
    """Return the error site of a message whose form the harness refuses in its reply."""
    rule = _match_anchor(text, "any", kinds=("format_error", "json_decode", "schema_validation"))
    return _site(rule, "anchor", _NO_CALL, text) if rule else None


def site_without_result(call: ToolCall) -> ErrorSite:
    """Return the error site of a call of which the session holds no result."""
    return _site(_NO_RESULT, "flag", call, "")


def _flagged(outcome: Action) -> bool | None:
    """Return whether the harness knows a call as a failure (True), as a success (False), or as neither (None)."""
    flagged = _failed_by_flag(outcome.flag)
    if flagged is False and outcome.family != "shell" and (outcome.content or "").startswith(_PROTOCOL_ERROR):
        return True  # the harness ran the tool well, and its server refused the call
    if flagged is False and outcome.family == "poll":
        return None  # the poll worked, whatever became of its command
    return flagged


def _failed_by_flag(flag: ResultFlag) -> bool | None:
    """Return whether a typed flag marks a failure (True), a success (False), or neither (None)."""
    if flag.exit_code and not flag.is_error:
        return None  # OpenHands: the tool itself ran well, the command in it did not
    if flag.is_error is not None:
        return flag.is_error
    if flag.exit_code is not None:
        return False
    if flag.status in ("success", "completed", "ok", "done"):
        return False
    return True if flag.status in ("error", "failed", "failure") else None


def _exit_code(outcome: Action) -> int | None:
    # A file that a read tool shows may quote a harness; only what runs commands has an exit code.
    if outcome.family not in ("shell", "poll", "other", "edit"):
        return None
    return exit_code_in(outcome.content or "")


def _exit_site(outcome: Action, code: int, source: str) -> ErrorSite:
    body = body_of(outcome.content or "")
    rule = rule_of_exit(outcome.command, code, body)
    if rule.kind == "runtime_exception":
        rule = _rule_of_exception(rule, outcome, body)
    return _site(rule, source, outcome.call, body if body.strip() else f"exit code {code}")


_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|node|deno|bun|ruby|perl|php|Rscript|julia|lua|tsx|ts-node")
_INLINE_OPTIONS = frozenset(("-c", "-e", "--eval", "-p", "-"))
_RAISED = re.compile(
    r"(?:^|\n)[ \t]*(?:Uncaught )?(?:\w{1,60}\.){0,5}(\w{0,60}(?:Error|Exception|Exit|Failure|panic))\b"
)
_ON_PURPOSE = frozenset(("Error", "Exception", "SystemExit", "AssertionError", "AssertionFailure"))
_REFUSALS = frozenset(("SyntaxError", "IndentationError", "NameError", "UnboundLocalError", "ReferenceError"))
"""The interpreter refuses the text itself, whatever it works on."""
_FRAME = re.compile(r'File "([^"\n]{1,300})", line \d+')
_LIBRARY = re.compile(r"/lib(?:64)?/python\d|/(?:site|dist)-packages/|^<frozen ")


def _rule_of_exception(rule: ErrorRule, outcome: Action, body: str) -> ErrorRule:
    """Return whose fault an exception is: the model's only if the interpreter refuses a text that is in the call.

    Any other exception may be what the program was run to show: it raised it itself, or the project did.
    """
    if not outcome.commands:
        return rule  # a tool other than the shell, such as a notebook cell: its text is the call
    run = [one for one in outcome.commands if _INTERPRETER.fullmatch(one.program)]
    if not any(not one.words[1:] or _INLINE_OPTIONS & set(one.words[1:]) for one in run):
        return _ANSWER if run else _FOREIGN
    frames = [frame for frame in _FRAME.findall(body[-4000:]) if not _LIBRARY.search(frame)]
    is_own = not frames or frames[-1].startswith("<")
    raised = _RAISED.findall(body[-4000:])
    if not is_own or not raised or raised[-1] in _ON_PURPOSE:
        return _ANSWER
    return dataclasses.replace(rule, blame="model") if raised[-1] in _REFUSALS else rule


def _unnamed_site(outcome: Action) -> ErrorSite:
    """Name a failure that no anchor explains: by its output for a shell, as an unnamed error for other tools."""
    if outcome.family == "shell":
        return _exit_site(outcome, 1, "flag")
    rule = _BROKEN_JSON if _arguments_broke(outcome.call) else UNNAMED
    return _site(rule, "flag", outcome.call, words_in(outcome.content or "") or outcome.flag.detail)


def _hidden_site(outcome: Action, *, text_rules: bool) -> ErrorSite | None:
    """Read the output of a shell if the exit code proves nothing; never read files, pages or words of subagents.

    By default, only reports of tests, linters and builds count, and complaints about a word of the command.
    """
    if not outcome.content or not (outcome.family == "shell" or outcome.polled):
        return None
    command = outcome.command
    code_known = outcome.flag.exit_code is not None or _exit_code(outcome) is not None or outcome.flag.is_error is False
    if code_known and not any(mark in command for mark in "|;\n"):
        return None
    # The output is read before the command is parsed: most outputs complain of nothing.
    body = body_of(outcome.content)
    rule = report_rule_of(command, body, code_known=code_known)
    if not rule and text_rules:
        rule = text_rule_of(command, body)
    if not rule or (code_known and not hides_exit_code(command)):
        return None
    if rule.kind == "runtime_exception":
        rule = _rule_of_exception(rule, outcome, body)
    confidence = min(rule.confidence, TEXT_CONFIDENCE)
    return _site(dataclasses.replace(rule, confidence=confidence), "text", outcome.call, body)


def _match_anchor(text: str, family: str, *, trusted: bool = False, kinds: Sequence[str] = ()) -> ErrorRule | None:
    head, tail = unwrapped(text), text[-HEAD_CHARS:]
    if not ANY_HEAD.match(head) and not any(rule.meets(tail) for rule in TAILS):
        return None
    for rule in ANCHORS:
        met = rule.pattern.search(tail) if rule.where == "tail" else rule.pattern.match(head)
        if met and (not kinds or rule.kind in kinds) and (trusted or _may_hold(rule, family, text)):
            return rule
    return None


def _may_hold(rule: ErrorRule, family: str, text: str) -> bool:
    """Without a flag, a rule holds for its own families only, and never for a long text that a tool fetched."""
    if family in ("read", "web", "agent", "bookkeeping") and len(text) > MAX_QUIET_READ_CHARS:
        return text.lstrip().startswith("<tool_use_error>")
    if rule.families == "file":
        return family not in ("shell", "poll", "web", "agent")
    return rule.families == "any" or family in ("shell", "poll", "other")


def _kind_of_flag(flag: ResultFlag) -> tuple[str, str]:
    """Return the typed word that names a kind, and the kind; two empty strings without one."""
    if flag.status == "denied":
        return "denied", "user_rejected" if _BY_A_PERSON.search(flag.detail) else "policy_denied"
    named = ((word, _kind_of_status(word)) for word in (flag.detail, flag.status))
    return next(((word, kind) for word, kind in named if kind), ("", ""))


@functools.lru_cache(maxsize=1024)
def _kind_of_status(status: str) -> str:
    """Return the kind of a typed word, or of a part of it ("user.rejected")."""
    if len(status) > MAX_STATUS_CHARS:
        return ""  # a sentence, not a word
    word = canonical_kind(re.sub(r"[^a-z_]+", "_", status.casefold()).strip("_"))
    if word in KINDS:
        return word
    return STATUSES.get(word) or next((STATUSES[part] for part in word.split("_") if part in STATUSES), "")


def _arguments_broke(call: ToolCall) -> bool:
    """Return whether the arguments look like JSON but do not parse."""
    text = call.arguments
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


def _site(rule: ErrorRule, source: str, call: ToolCall, text: str) -> ErrorSite:
    return ErrorSite(
        rule.kind, rule.blame, source, rule.confidence, rule.rule_id, call.name, call.call_id, excerpt(text)
    )
