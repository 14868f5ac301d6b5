"""Find the errors of a session: a `Session` in, its `Trace` with `Step.error_sites` out.

Evidence is read in this order: a typed flag of the harness, a sentence of the harness at the start of a result, an exit
code and, only on request, the output of a shell tool. The first evidence is the site's `source`; the rule that chose
the kind is its `rule`. Then come sites that follow from others: calls without a result, the third failure in a row, the
third equal call. The rules are data in `rules.py` and `exits.py`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from composer_hub.actions.calls import call_in_text, command_of, path_of
from composer_hub.actions.commands import commands_in
from composer_hub.actions.tools import family_of_tool
from composer_hub.errors.doubts import Doubts
from composer_hub.errors.exits import (
    hides_exit_code,
    main_command,
    report_rule_of,
    rule_of_exit,
    text_rule_of,
    without_colors,
)
from composer_hub.errors.programs import WrittenPrograms, runs_a_script
from composer_hub.errors.rules import ANCHORS, HEAD_CHARS, KINDS, STATUSES, ErrorRule, canonical_kind, unwrapped
from composer_hub.harnesses import body_of, exit_code_in, words_in
from composer_hub.records import ErrorSite, Step, ToolCall, Trace
from composer_hub.session import ResultFlag, Session

MAX_MESSAGE_CHARS = 500
MAX_STATUS_CHARS = 40
MIN_REPEATS = 3  # the third time in a row is a pattern

_NO_FLAG = ResultFlag()
_DISPLAY = "display_log"
_PROTOCOL_ERROR = "MCP error -326"


def find_errors(session: Session, *, text_rules: bool = False) -> Trace:
    """Return the session's trace with the error sites of every step; earlier sites are replaced."""
    finder = _Finder(session.trace, session.flags, text_rules)
    steps = [_with_sites(step, finder.sites_of(step)) for step in session.trace.steps]
    for position, step in enumerate(steps):
        if any(site.rule == _UNNAMED.rule_id for site in step.error_sites):
            sites = tuple(_blamed_if_corrected(session.trace, steps, position, site) for site in step.error_sites)
            steps[position] = _with_sites(step, sites)
    return dataclasses.replace(session.trace, steps=tuple(steps))


MAX_STEPS_TO_CORRECT = 4
_TRANSIENT = re.compile(
    r"(?i)time ?out|timed out|rate.?limit|\b(?:429|5\d\d)\b|try again|unavailable|connection|network"
)


def _blamed_if_corrected(trace: Trace, steps: Sequence[Step], position: int, site: ErrorSite) -> ErrorSite:
    """Blame the model for an unnamed failure of a tool if its own next calls show that the arguments were wrong.

    That is so if the tool then works with some of the same arguments and some changed ones.
    """
    if site.rule != _UNNAMED.rule_id or _TRANSIENT.search(site.message):
        return site
    failed = next(
        (one for one in trace.messages[steps[position].action].tool_calls if one.call_id == site.call_id), None
    )
    before = failed.arguments if failed else None
    # What refuses an edit in its own words is a hook, which judges the text and not the call.
    if not failed or not isinstance(before, Mapping) or len(before) < MIN_ARGUMENTS:
        return site
    if family_of_tool(failed.name, before) == "edit":
        return site
    for step in steps[position + 1 : position + 1 + MAX_STEPS_TO_CORRECT]:
        wrong = {other.call_id for other in step.error_sites}
        for outcome in outcomes_of(trace, step):
            after = outcome.call.arguments
            if outcome.call.name != site.tool and outcome.family in ("shell", "edit"):
                return site  # something else may have made it work
            if outcome.call.name != site.tool or outcome.content is None or not isinstance(after, Mapping):
                continue
            if after == before:
                return site  # the same call again: whether it works depends on something else
            same = sum(after.get(name) == value for name, value in before.items())
            if outcome.call.call_id not in wrong and 2 * same >= len(before):
                kind = "usage_error"
                return dataclasses.replace(site, kind=kind, blame=KINDS[kind], rule="derived.corrected_call")
    return site


MIN_ARGUMENTS = 2  # of a call with one argument, another value is another question


def _with_sites(step: Step, sites: tuple[ErrorSite, ...]) -> Step:
    return step if step.error_sites == sites else dataclasses.replace(step, error_sites=sites)


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """A call, the text of its result (None without a result), and the flag of the result."""

    call: ToolCall
    content: str | None
    flag: ResultFlag = _NO_FLAG
    polled: str = ""  # the command that a poll asks about

    @property
    def family(self) -> str:
        return family_of_tool(self.call.name, self.call.arguments)

    @property
    def command(self) -> str:
        return self.polled or command_of(self.call)


def outcomes_of(trace: Trace, step: Step, flags: Mapping[int, ResultFlag] | None = None) -> tuple[CallOutcome, ...]:
    """Pair the step's calls with their results by call id, or by position if the harness keeps no ids.

    In text protocols the message itself contains the call, and its observations are the results.
    """
    calls = trace.messages[step.action].tool_calls
    if not calls and step.results:
        spelled = call_in_text(trace.messages[step.action].content)
        return tuple(_outcome(trace, spelled, index, flags or {}) for index in step.results)
    by_id = {trace.messages[index].tool_call_id: index for index in step.results}
    ids_known = all(call.call_id for call in calls) and any(call.call_id in by_id for call in calls)
    in_order = [*step.results, *[None] * len(calls)]
    indices = [by_id.get(call.call_id) for call in calls] if ids_known else in_order[: len(calls)]
    return tuple(_outcome(trace, call, index, flags or {}) for call, index in zip(calls, indices, strict=True))


def _outcome(trace: Trace, call: ToolCall, index: int | None, flags: Mapping[int, ResultFlag]) -> CallOutcome:
    if index is None:
        return CallOutcome(call, None)
    return CallOutcome(call, trace.messages[index].content, flags.get(index, _NO_FLAG))


# ------------------------------------------------------------------------------------------------------- the finder


@dataclass(frozen=True, slots=True)
class _Streak:
    """How often a thing happened in a row, up to and with one step."""

    key: str
    count: int


_Found = Sequence[tuple[CallOutcome, "ErrorSite | None"]]


def _same_call(one: CallOutcome, other: CallOutcome) -> bool:
    """True where name, arguments and result are equal; the call ids always differ."""
    return (one.call.name, one.content) == (
        other.call.name,
        other.content,
    ) and one.call.arguments == other.call.arguments


def _came_back(outcome: CallOutcome, site: ErrorSite | None) -> bool:
    """Tell whether the call ended by itself: False if a person or the harness stopped it."""
    return outcome.content is not None and not (site and site.blame in ("user", "harness", "provider"))


class _Finder:
    def __init__(self, trace: Trace, flags: Mapping[int, ResultFlag], text_rules: bool) -> None:
        self.trace, self.flags, self.text_rules = trace, flags, text_rules
        self.actions = {step.action for step in trace.steps}
        # Files for display may hold calls only; a call without a result says nothing there.
        self.has_results = any(step.results or _DISPLAY not in step.prefix_reason for step in trace.steps)
        self.failures: dict[int, dict[str, _Streak]] = {}  # action -> tool -> failures in a row
        self.repeats: dict[int, tuple[CallOutcome, int]] = {}  # action -> equal calls in a row
        self.replies = _replies(trace)
        self.programs = WrittenPrograms()
        self.doubts = Doubts(trace)
        self.running: dict[str, str] = {}  # the id of a command in the background -> the command

    def sites_of(self, step: Step) -> tuple[ErrorSite, ...]:
        outcomes = tuple(map(self._polled, outcomes_of(self.trace, step, self.flags)))
        for outcome in outcomes:
            self.programs.note(outcome.call)
        found = [(outcome, self._site_of(step, outcome)) for outcome in outcomes]
        sites = [*self._of_action(step), *(site for _, site in found if site)]
        return (*sites, *self._repeated_failures(step, found), *self._repeated_calls(step, outcomes))

    def _polled(self, outcome: CallOutcome) -> CallOutcome:
        """Name the command that a poll is about, and remember commands that continue in the background."""
        arguments = outcome.call.arguments
        if outcome.family == "shell" and (found := _RUNS_ON.search((outcome.content or "")[:_FIRST_WORDS])):
            self.running[found[1].rstrip(".")] = command_of(outcome.call)
        elif outcome.family == "poll" and isinstance(arguments, Mapping):
            asked = (self.running.get(str(arguments[key])) for key in _POLL_KEYS if key in arguments)
            return dataclasses.replace(outcome, polled=next(filter(None, asked), ""))
        return outcome

    def _site_of(self, step: Step, outcome: CallOutcome) -> ErrorSite | None:
        if outcome.content is None and outcome.flag is _NO_FLAG:
            expected = self.has_results and not self._ends_the_session(step, outcome)
            return _dangling(outcome.call) if expected else None
        site = site_of(outcome, text_rules=self.text_rules)
        if not site:
            self.doubts.note_success(outcome.call)
        elif site.blame == "model" and self.doubts.about(site, outcome.call, outcome.content or "", step):
            return dataclasses.replace(
                site, kind="nonzero_exit", blame=KINDS["nonzero_exit"], rule=f"doubt.{site.kind}"
            )
        if site and self._is_under_test(site, outcome):
            kind = "program_exception"
            return dataclasses.replace(site, kind=kind, blame=KINDS[kind], rule="derived.own_program")
        return site

    def _is_under_test(self, site: ErrorSite, outcome: CallOutcome) -> bool:
        """Tell whether the failure is what a program of the session's own was run to show."""
        if site.kind == "runtime_exception":
            return self.programs.explain(outcome.call, outcome.content or "")
        return site.rule.startswith("exit.usage") and self.programs.runs_built(outcome.call)

    def _ends_the_session(self, step: Step, outcome: CallOutcome) -> bool:
        """A submit or finish call is not answered: the session is over."""
        return outcome.family == "finish" and step.index == self.trace.steps[-1].index

    def _of_action(self, step: Step) -> Iterator[ErrorSite]:
        """Yield what happened to the message itself: a provider's error, a cut answer, a form the harness refused."""
        flag = self.flags.get(step.action)
        word, kind = _kind_of_flag(flag) if flag else ("", "")
        if flag and not kind and flag.is_error:
            word, kind = "error", "api_error"
        if flag and kind:
            yield ErrorSite(kind, KINDS[kind], "flag", 0.97, f"flag.{word}", message=excerpt(flag.detail))
        elif not step.results and (reply := self.replies.get(step.action)):
            rule = _match_anchor(reply, "any", kinds=("format_error", "json_decode", "schema_validation"))
            if rule:
                yield _site(rule, "anchor", ToolCall("", None), reply)

    def _repeated_failures(self, step: Step, found: _Found) -> Iterator[ErrorSite]:
        """Yield a site for each tool that failed on the same target in the same way, three or more steps in a row."""
        streaks = dict(self.failures.get(self._previous(step), {}))
        for tool in dict.fromkeys(outcome.call.name for outcome, _ in found):
            seen = [site for outcome, site in found if outcome.call.name == tool and _came_back(outcome, site)]
            failed = [site for site in seen if site and site.blame == "model"]
            if not failed:
                if seen:
                    streaks.pop(tool, None)
                continue
            site = failed[-1]
            last = streaks.get(tool)
            key = _way_of_failing(next(outcome for outcome, found_site in found if found_site is site).call, site)
            streaks[tool] = _Streak(key, last.count + 1 if last and last.key == key else 1)
            if streaks[tool].count >= MIN_REPEATS and len(failed) == len(seen):
                text = excerpt(f"{site.kind} from {tool}, {streaks[tool].count} times in a row:\n{site.message}")
                yield dataclasses.replace(site, kind="repeated_failure", rule="derived.failures_in_a_row", message=text)
        self.failures[step.action] = streaks

    def _repeated_calls(self, step: Step, outcomes: Sequence[CallOutcome]) -> Iterator[ErrorSite]:
        """Yield a site if three steps in a row made the same call and got the same result."""
        if not outcomes or outcomes[0].content is None or outcomes[0].family in ("poll", "ask"):
            return
        if any(not _same_call(outcomes[0], other) for other in outcomes[1:]):
            return
        last, count = self.repeats.get(self._previous(step), (outcomes[0], 0))
        count = count + 1 if _same_call(outcomes[0], last) else 1
        self.repeats[step.action] = (outcomes[0], count)
        if count >= MIN_REPEATS:
            call = outcomes[0].call
            text = excerpt(f"{call.name} with the same arguments, {count} times in a row:\n{outcomes[0].content}")
            rule = "derived.calls_in_a_row"
            yield ErrorSite("repeated_call", KINDS["repeated_call"], "flag", 0.9, rule, call.name, call.call_id, text)

    def _previous(self, step: Step) -> int:
        """Return the action that the model read last before this step, or -1."""
        return next((index for index in _from_the_end(step.prompt) if index in self.actions), -1)


_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_EXCEPTION_LINE = re.compile(r"(?:^|\n)((?:\w{1,60}\.){0,5}\w{0,60}(?:Error|Exception|panic)\b[^\n]*)")


def _way_of_failing(call: ToolCall, site: ErrorSite) -> str:
    """Return the kind, the target and, unless the target is a file, the harness's words without their numbers."""
    path = path_of(call)
    if path and family_of_tool(call.name, call.arguments) != "shell":
        return f"{site.kind}\n{path}"
    main = main_command(commands_in(command_of(call)))
    lines = _EXCEPTION_LINE.findall(site.message)
    words = lines[-1] if lines else "\n".join(site.message.split("\n")[:2])
    return f"{site.kind}\n{main.program if main else ''}\n{_NUMBERS.sub('0', words)}"


_FIRST_WORDS = 600
_RUNS_ON = re.compile(r"(?:running with session ID|running in (?:the )?background with ID:?) ([\w.-]{1,80})")
_STILL_RUNS = re.compile(r"<status>running</status>|Process running with session ID ")
_POLL_KEYS = ("session_id", "bash_id", "task_id", "shell_id", "id")


def _replies(trace: Trace) -> dict[int, str]:
    """Return, for each action, the user message that came right after it, as later prompts show it."""
    actions = {step.action for step in trace.steps}
    replies: dict[int, str] = {}
    for step in trace.steps:
        reply = ""
        for index in _from_the_end(step.prompt):
            if index in actions:
                replies.setdefault(index, reply)
            if trace.messages[index].role != "user":
                break
            reply = trace.messages[index].content
    return replies


def _from_the_end(prompt: Sequence[tuple[int, int]]) -> Iterator[int]:
    for start, stop in reversed(prompt):
        yield from range(stop - 1, start - 1, -1)


# ----------------------------------------------------------------------------------------------------- one outcome


def site_of(outcome: CallOutcome, *, text_rules: bool = False) -> ErrorSite | None:
    """Return the error site of one call's result, or None if it succeeded."""
    text, flag = outcome.content or "", outcome.flag
    if outcome.family in ("shell", "poll") and _STILL_RUNS.search(text[:_FIRST_WORDS]):
        return None  # a later poll has the outcome
    flagged = _flagged(outcome)
    if flagged is False and outcome.family != "shell" and text.startswith(_PROTOCOL_ERROR):
        flagged = True  # the harness ran the tool well, and its server refused the call
    if flagged is False and outcome.family == "poll":
        flagged = None  # the poll worked, whatever became of its command
    if flagged is False:
        return _hidden_site(outcome, text_rules=text_rules)
    text = words_in(text) if flagged else text
    anchor = _match_anchor(text, outcome.family, trusted=flagged is True)
    word, typed = _kind_of_flag(flag)
    # A typed word names the kind, unless a sentence of the harness names more exactly who stopped the call.
    if typed and not (anchor and anchor.blame in ("user", "harness")):
        return _site(_status_rule(word, typed), "flag", outcome.call, text or flag.detail)
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


def _flagged(outcome: CallOutcome) -> bool | None:
    """Return whether the typed flag marks a failure (True), a success (False), or neither (None)."""
    flag = outcome.flag
    if flag.exit_code and not flag.is_error:
        return None  # OpenHands: the tool itself ran well, the command in it did not
    if flag.is_error is not None:
        return flag.is_error
    if flag.exit_code is not None:
        return False
    if flag.status in ("success", "completed", "ok", "done"):
        return False
    return True if flag.status in ("error", "failed", "failure") else None


def _exit_code(outcome: CallOutcome) -> int | None:
    # A file that a read tool shows may quote a harness; only what runs commands has an exit code.
    if outcome.family not in ("shell", "poll", "other", "edit"):
        return None
    return exit_code_in(outcome.content or "")


def _exit_site(outcome: CallOutcome, code: int, source: str) -> ErrorSite:
    body = body_of(outcome.content or "")
    rule = rule_of_exit(outcome.command, code, body)
    if rule.kind == "runtime_exception" and not runs_a_script(outcome.command):
        rule = _FOREIGN  # of a program that others wrote, in which no name or value of the model's is wrong
    return _site(rule, source, outcome.call, body if body.strip() else f"exit code {code}")


_FOREIGN = ErrorRule("exit.foreign_exception", "nonzero_exit", KINDS["nonzero_exit"], 0.8, re.compile(""))


def _unnamed_site(outcome: CallOutcome) -> ErrorSite:
    """Name a failure that no anchor explains: by its output for a shell, as an unnamed error for other tools."""
    if outcome.family == "shell":
        return _exit_site(outcome, 1, "flag")
    rule = _BROKEN_JSON if _arguments_broke(outcome.call) else _UNNAMED
    return _site(rule, "flag", outcome.call, words_in(outcome.content or "") or outcome.flag.detail)


TEXT_CONFIDENCE = 0.88  # of a rule that no exit code supports


def _hidden_site(outcome: CallOutcome, *, text_rules: bool) -> ErrorSite | None:
    """Read the output of a shell if the exit code proves nothing; never read files, pages or words of subagents.

    By default, only the reports of tests, linters and builds count.
    """
    if not outcome.content or not (outcome.family == "shell" or outcome.polled):
        return None
    command = outcome.command
    code_known = outcome.flag.exit_code is not None or _exit_code(outcome) is not None or outcome.flag.is_error is False
    if code_known and not hides_exit_code(command):
        return None
    body = body_of(outcome.content)
    rule = report_rule_of(command, body, code_known=code_known)
    if not rule and text_rules:
        rule = text_rule_of(command, body)
    found = _site(rule, "text", outcome.call, body) if rule else None
    return dataclasses.replace(found, confidence=min(found.confidence, TEXT_CONFIDENCE)) if found else None


def _match_anchor(text: str, family: str, *, trusted: bool = False, kinds: Sequence[str] = ()) -> ErrorRule | None:
    head, tail = unwrapped(text), text[-HEAD_CHARS:]
    for rule in ANCHORS:
        met = rule.pattern.search(tail) if rule.where == "tail" else rule.pattern.match(head)
        if met and (not kinds or rule.kind in kinds) and (trusted or _may_hold(rule, family, text)):
            return rule
    return None


MAX_QUIET_READ_CHARS = 1000  # an error of a read tool is a sentence; longer text is the file itself


def _may_hold(rule: ErrorRule, family: str, text: str) -> bool:
    """Without a flag, a rule holds for its own families only, and never for a long text that a tool fetched."""
    if family in ("read", "web", "agent") and len(text) > MAX_QUIET_READ_CHARS:
        return text.lstrip().startswith("<tool_use_error>")
    if rule.families == "file":
        return family not in ("shell", "poll", "web", "agent")
    return rule.families == "any" or family in ("shell", "poll", "other")


_BY_A_PERSON = re.compile(r"user|reject|declin", re.IGNORECASE)


def _kind_of_flag(flag: ResultFlag) -> tuple[str, str]:
    """Return the typed word that names a kind, and the kind; two empty strings without one."""
    if flag.status == "denied":
        return "denied", "user_rejected" if _BY_A_PERSON.search(flag.detail) else "policy_denied"
    named = ((word, _kind_of_status(word)) for word in (flag.detail, flag.status))
    return next(((word, kind) for word, kind in named if kind), ("", ""))


def _kind_of_status(status: str) -> str:
    """Return the kind of a typed word, or of a part of it ("user.rejected")."""
    if len(status) > MAX_STATUS_CHARS:
        return ""  # a sentence, not a word
    word = canonical_kind(re.sub(r"[^a-z_]+", "_", status.casefold()).strip("_"))
    if word in KINDS:
        return word
    return STATUSES.get(word) or next((STATUSES[part] for part in word.split("_") if part in STATUSES), "")


def _status_rule(word: str, kind: str) -> ErrorRule:
    return ErrorRule(f"flag.{word}", kind, KINDS[kind], 0.97, re.compile(""))


_UNNAMED = ErrorRule("flag.error", "tool_error", KINDS["tool_error"], 0.9, re.compile(""))
_BROKEN_JSON = ErrorRule("flag.arguments_text", "json_decode", KINDS["json_decode"], 0.9, re.compile(""))


def _arguments_broke(call: ToolCall) -> bool:
    """Tell whether the arguments look like JSON but do not parse."""
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


def _dangling(call: ToolCall) -> ErrorSite:
    kind = "dangling_call"
    return ErrorSite(kind, KINDS[kind], "flag", 0.9, "derived.no_result", call.name, call.call_id)


# -------------------------------------------------------------------------------------------------------- messages

_TAGS = re.compile(r"\A\s*OBSERVATION:|</?(?:tool_use_error|error|output|returncode)>|\r(?=\n)")
CUT = "[…]"


MAX_SCANNED_CHARS = 50_000


def excerpt(text: str, max_chars: int = MAX_MESSAGE_CHARS) -> str:
    """Return the text, or its first and last lines if it is too long. A line that is too long is cut between words."""
    if len(text) > 2 * MAX_SCANNED_CHARS:
        text = f"{text[:MAX_SCANNED_CHARS]}\n{text[-MAX_SCANNED_CHARS:]}"
    clean = _TAGS.sub("", without_colors(text)).strip()
    if len(clean) <= max_chars:
        return clean
    lines = clean.split("\n")
    head = _lines_within(lines, max_chars // 2)
    if not head:
        return _words_within(lines[0], max_chars)
    tail = _lines_within(lines[:0:-1], max_chars - len("\n".join(head)) - len(CUT) - 2)
    return "\n".join([*head, CUT, *reversed(tail)])


def _lines_within(lines: Sequence[str], max_chars: int) -> list[str]:
    kept, used = [], -1
    for line in lines:
        used += len(line) + 1
        if used > max_chars:
            break
        kept.append(line)
    return kept


def _words_within(line: str, max_chars: int) -> str:
    if len(line) <= max_chars:
        return line
    cut = line[: max_chars - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut else cut}…"
