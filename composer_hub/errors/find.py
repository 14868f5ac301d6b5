"""Find the errors of a session: a `Session` in, its `Trace` with `Step.error_sites` out.

`sites.py` names the failure of each call. Then come sites that follow from others: the third failure in a row,
the third equal call. The model is to blame only if the tool's own message or the session proves it:

- The tool validates the call itself and names what is wrong with it: an unknown tool, a text that is not in the
  file, an option that the program lacks, a name that a script never defines. The rules of such messages blame the
  model. A message that offers the right words proves that the call had others.
- A later call of the same aim differs just in the part that the message complains about, and works
  (`corrections.py`).

Neither counts if the wrong words are not the model's: the user, the system or a document that it read named them, or
the file had the text of the edit when it was read.
A failure without a proof is `unknown`. It remains an error, but it is neither learned from nor hinted.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from composer_hub.actions.action import Action, Actions, actions_of
from composer_hub.errors.context import SiteContext, context_of
from composer_hub.errors.corrections import complaint_of, correction_of, missed_texts, offered
from composer_hub.errors.excerpts import excerpt
from composer_hub.errors.exits import main_command
from composer_hub.errors.sites import site_of, site_of_action, site_of_reply, site_without_result
from composer_hub.errors.vocabulary import KINDS
from composer_hub.records import ErrorSite, Step, ToolCall, Trace, from_the_end
from composer_hub.session import ResultFlag, Session

MIN_REPEATS = 3  # the third time in a row is a pattern

MAX_CHARS = 200_000  # of each message
MAX_LINES = 200  # of a text that an edit looks for
NAMES = frozenset(("tool_not_found", "path_not_found", "command_not_found", "usage_error", "vcs_error"))
"""Kinds whose message names the wrong words: that of an edit names its file."""


def find_errors(session: Session, actions: Actions | None = None, *, text_rules: bool = False) -> Trace:
    """Return the session's trace with the error sites of every step; earlier sites are replaced."""
    actions = actions_of(session.trace, session.flags) if actions is None else actions
    finder = _Finder(session.trace, session.flags, text_rules)
    failures = [finder.failures_of(step, own) for step, own in zip(session.trace.steps, actions, strict=True)]
    # Whose fault a failure was may show only later, so all failures are named first.
    named = [_with_sites(step, _sites(found)) for step, found in zip(session.trace.steps, failures, strict=True)]
    trace = dataclasses.replace(session.trace, steps=tuple(named))
    instructions = Instructions(trace, actions)
    steps = []
    for position, (step, found) in enumerate(zip(session.trace.steps, failures, strict=True)):
        blamed = [(action, _blamed(trace, position, site, actions, instructions)) for action, site in found]
        repeated = (*finder.repeated_failures(step, blamed), *finder.repeated_calls(step, actions[position]))
        steps.append(_with_sites(step, (*_sites(blamed), *repeated)))
    return dataclasses.replace(trace, steps=tuple(steps))


def _blamed(
    trace: Trace, position: int, site: ErrorSite | None, actions: Actions, instructions: Instructions
) -> ErrorSite | None:
    if site is None or site.blame not in ("model", "unknown"):
        return site
    blame = blame_of(context_of(trace, position, site, actions), instructions)
    return site if blame == site.blame else dataclasses.replace(site, blame=blame)


def _sites(found: _Found) -> tuple[ErrorSite, ...]:
    return tuple(site for _, site in found if site)


def _with_sites(step: Step, sites: tuple[ErrorSite, ...]) -> Step:
    return step if step.error_sites == sites else dataclasses.replace(step, error_sites=sites)


@dataclass(frozen=True, slots=True)
class _Streak:
    """How often a thing happened in a row, up to and with one step."""

    key: str
    count: int


_Found = Sequence[tuple["Action | None", "ErrorSite | None"]]


def _same_call(one: Action, other: Action) -> bool:
    """True where name, arguments and result are equal; the call ids always differ."""
    first, second = one.call, other.call
    return (first.name, first.arguments, one.content) == (second.name, second.arguments, other.content)


def _came_back(outcome: Action, site: ErrorSite | None) -> bool:
    """Return whether the call ended by itself: False if a person or the harness stopped it."""
    return outcome.content is not None and not (site and site.blame in ("user", "harness", "provider"))


class _Finder:
    def __init__(self, trace: Trace, flags: Mapping[int, ResultFlag], text_rules: bool) -> None:
        self.trace, self.flags, self.text_rules = trace, flags, text_rules
        self.actions = {step.action for step in trace.steps}
        # Files for display may hold calls only; a missing result proves nothing there.
        self.has_results = any(step.results or "display_log" not in step.prefix_reason for step in trace.steps)
        self.failures: dict[int, dict[str, _Streak]] = {}  # action -> tool -> failures in a row
        self.repeats: dict[int, tuple[Action, int]] = {}  # action -> equal calls in a row
        self.replies = _replies(trace)

    def failures_of(self, step: Step, outcomes: Sequence[Action]) -> _Found:
        """Return the site of the message itself, and each action of the step with its site."""
        of_message = [(None, site) for site in self._of_action(step)]
        return [*of_message, *((outcome, self._site_of(step, outcome)) for outcome in outcomes)]

    def _site_of(self, step: Step, outcome: Action) -> ErrorSite | None:
        if outcome.is_missing:
            expected = self.has_results and not self._ends_the_session(step, outcome)
            return site_without_result(outcome.call) if expected else None
        return site_of(outcome, text_rules=self.text_rules)

    def _ends_the_session(self, step: Step, outcome: Action) -> bool:
        """A submit or finish call is not answered: the session is over."""
        return outcome.family == "finish" and step.index == self.trace.steps[-1].index

    def _of_action(self, step: Step) -> Iterator[ErrorSite]:
        """Yield errors of the message itself: a provider's error, a cut answer, a form that was refused."""
        flag = self.flags.get(step.action)
        site = site_of_action(flag) if flag else None
        if not site and not step.results and (reply := self.replies.get(step.action)):
            site = site_of_reply(reply)
        if site:
            yield site

    def repeated_failures(self, step: Step, found: _Found) -> Iterator[ErrorSite]:
        """Yield a site for each tool that failed on the same target in the same way, three or more steps in a row."""
        pairs = [(outcome, site) for outcome, site in found if outcome]
        if not self.failures and not any(site for _, site in pairs):
            return  # most sessions go well for long
        streaks = dict(self.failures.get(self._previous(step), {}))
        for tool in dict.fromkeys(outcome.call.name for outcome, _ in pairs):
            seen = [site for outcome, site in pairs if outcome.call.name == tool and _came_back(outcome, site)]
            failed = [site for site in seen if site and site.blame == "model"]
            if not failed:
                if seen:
                    streaks.pop(tool, None)
                continue
            site = failed[-1]
            last = streaks.get(tool)
            key = _way_of_failing(next(outcome for outcome, found_site in pairs if found_site is site), site)
            streaks[tool] = _Streak(key, last.count + 1 if last and last.key == key else 1)
            if streaks[tool].count >= MIN_REPEATS and len(failed) == len(seen):
                text = excerpt(f"{site.kind} from {tool}, {streaks[tool].count} times in a row:\n{site.message}")
                rule = "derived.failures_in_a_row"
                yield dataclasses.replace(site, kind="repeated_failure", rule=rule, message=text)
        if streaks:
            self.failures[step.action] = streaks

    def repeated_calls(self, step: Step, outcomes: Sequence[Action]) -> Iterator[ErrorSite]:
        """Yield a site if three steps in a row read the same and got the same: a repeated command may be waiting."""
        if not outcomes or outcomes[0].content is None or outcomes[0].family != "read":
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
        return next((index for index in from_the_end(step.prompt) if index in self.actions), -1)


_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_EXCEPTION_LINE = re.compile(r"(?:^|\n)((?:\w{1,60}\.){0,5}\w{0,60}(?:Error|Exception|panic)\b[^\n]*)")


def _way_of_failing(action: Action, site: ErrorSite) -> str:
    """Return the kind, the target and, unless the target is a file, the harness's words without their numbers."""
    if action.path and action.family != "shell":
        return f"{site.kind}\n{action.path}"
    main = main_command(action.commands)
    lines = _EXCEPTION_LINE.findall(site.message)
    words = lines[-1] if lines else "\n".join(site.message.split("\n")[:2])
    return f"{site.kind}\n{main.program if main else ''}\n{_NUMBERS.sub('0', words)}"


def _replies(trace: Trace) -> dict[int, str]:
    """Return, for each action, the user message that came right after it, as later prompts show it."""
    actions = {step.action for step in trace.steps}
    replies: dict[int, str] = {}
    for step in trace.steps:
        reply = ""
        for index in from_the_end(step.prompt):
            if index in actions:
                replies.setdefault(index, reply)
            if trace.messages[index].role != "user":
                break
            reply = trace.messages[index].content
    return replies


# --------------------------------------------------------------------------------------------------------- blame


class Instructions:
    """The text that the model was given in a session by users, the system, skills and documents."""

    def __init__(self, trace: Trace, actions: Actions) -> None:
        self.trace, self.actions = trace, actions
        self.texts: list[tuple[int, str]] | None = None  # only a failure asks for them
        self.failed = {site.call_id for step in trace.steps for site in step.error_sites if site.call_id}

    def name(self, word: str, before: int) -> bool:
        """Return whether a message before an action names a word, or a path by its place in the session's folder."""
        if self.texts is None:
            self.texts = list(self._read())
        texts = [text for index, text in self.texts if index < before]
        below = word.removeprefix(self.trace.cwd.rstrip("/") + "/")
        wholes = {one: re.compile(rf"(?<![\w/.~-]){re.escape(one)}(?![\w/-]|\.\w)") for one in (word, below)}
        return any(one in text and whole.search(text) for one, whole in wholes.items() for text in texts)

    def show(self, text: str, step: Step) -> bool:
        """Return whether one result in a prompt shows every line of a text, perhaps with line numbers."""
        lines = [f"{line.strip()}\n" for line in text.split("\n") if line.strip()][:MAX_LINES]
        read = (self.trace.messages[at] for start, stop in step.prompt for at in range(start, stop))
        # A failed edit quotes what it looked for.
        shown = (one for one in read if one.role == "tool" and one.tool_call_id not in self.failed)
        return any(all(line in f"{one.content}\n" for line in lines) for one in shown if lines)

    def _read(self) -> Iterator[tuple[int, str]]:
        documents = {action.index for step in self.actions for action in step if _is_document(action.call)}
        results = {index for step in self.trace.steps for index in step.results}
        for index, message in enumerate(self.trace.messages):
            if index in documents or (message.role in ("user", "system") and index not in results):
                yield index, message.content[:MAX_CHARS]


def _is_document(call: ToolCall) -> bool:
    """Return whether a call is about a skill or a Markdown file."""
    values = call.arguments.values() if isinstance(call.arguments, Mapping) else (call.arguments,)
    return call.name.casefold() == "skill" or any(isinstance(text, str) and ".md" in text for text in values)


def blame_of(context: SiteContext, instructions: Instructions) -> str:
    """Return who is to blame for a failure that may be the model's."""
    site = context.site
    if site.blame not in ("model", "unknown") or context.call is None or context.step is None:
        return site.blame
    if site.blame == "unknown" and KINDS.get(site.kind) == "model":
        return "unknown"  # the message leaves it open, and no later call can settle it
    if site.kind == "edit_no_match" and any(instructions.show(text, context.step) for text in missed_texts(context)):
        return "unknown"  # the file had this text when the model read it, so it has changed since
    words = [word for word in complaint_of(context) if site.kind in NAMES and not _is_bare_name(word, site.kind)]
    is_refused = site.kind == "usage_error" and any(_is_of_a_tool(word, context.call) for word in words)
    later = [(one.ok, one.action.call.name, one.action.call.arguments) for one in context.later]
    was_right = (True, site.tool, context.call.arguments) in later
    is_told = not was_right and (site.blame == "model" or is_refused or offered(context))
    is_proven = is_told or correction_of(context)
    if is_proven and not any(instructions.name(word, context.step.action) for word in words):
        return "model"
    return "unknown"


def _is_of_a_tool(word: str, call: ToolCall) -> bool:
    """Return whether a word was for an installed program; one that is run by its path is the project's."""
    commands = Action(call, None).commands
    return any(word in part for one in commands if "/" not in one.words[0] for part in one.words[1:])


def _is_bare_name(word: str, kind: str) -> bool:
    """Return whether a word is a bare file name, whose folder the model had to find out."""
    return kind == "path_not_found" and "/" not in word.strip("/")
