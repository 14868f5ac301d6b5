"""The facts that the report keeps of a session: a `Session` in, `SessionFacts` out, a few bytes per call.

Worker processes run `facts_of`, so that prompts and results never travel to the parent. Only failed calls keep their
words, up to a limit, because the page shows them as evidence.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from composer_hub.actions import Action, Actions, action_at, actions_of
from composer_hub.errors.context import SiteContext, context_of, steps_after
from composer_hub.errors.excerpts import excerpt
from composer_hub.errors.exits import main_command
from composer_hub.errors.find import find_errors
from composer_hub.hints import write_hints
from composer_hub.hints.writers import words_at_rejection
from composer_hub.records import Step, ToolCall, Trace
from composer_hub.report.causes import Cause, Causes, spelled
from composer_hub.session import NO_USAGE, Session, Usage

MAX_WORDS = 3000
"""Characters of a call or a result that are kept: redaction sees them all, the page shows fewer."""
MAX_QUOTED = 400
"""Failures of a session whose words are kept."""
MAX_REASON = 400
MIN_REASON = 30  # characters of a reason that a rejection quotes
MAX_EPISODE = 30
"""Steps after which a failed call counts as dropped."""
RUNS = ("repeated_failure", "repeated_call")
"""Kinds of sites that say that other failures were a run; they are no failures of their own."""


@dataclass(frozen=True, slots=True)
class CallFailure:
    """One failed call of a step; `call_text` and `words` are raw."""

    kind: str
    blame: str
    tool: str
    call_text: str = ""
    words: str = ""  # of the environment
    reason: str = ""  # that the user gave for a no


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One message of a model: its cost, the tools that it called and its failures."""

    key: str  # the same in every copy; "" if the format has none
    at: float  # seconds since 1970, 0 if unknown
    model: str
    usage: Usage
    tools: tuple[str, ...]  # of its calls
    failures: tuple[CallFailure, ...]
    is_exact: bool
    num_hints: int


@dataclass(frozen=True, slots=True)
class Episode:
    """A run from a first failed call to the next success of the same purpose; places are indices of steps."""

    failed: tuple[int, ...]
    worked: int  # -1: dropped
    kind: str
    tool: str
    purpose: str  # raw


@dataclass(frozen=True)
class SessionFacts:
    """One session; the parent process sets `path`."""

    trace_id: str
    parent_id: str
    spawn_call_id: str
    source: str
    cwd: str
    steps: tuple[StepFacts, ...]
    thoughts: tuple[StepFacts, ...]  # messages that hold only thinking: tokens, and no step
    episodes: tuple[Episode, ...]
    spawned: tuple[str, ...]  # calls that started a subagent
    causes: tuple[Cause, ...]
    worked: dict[str, float]  # names that worked, spelled as in `causes.py` -> when they last did
    guides: tuple[tuple[str, str], ...]  # name and text of each AGENTS.md and its like that the session shows
    path: str = ""

    @property
    def root_id(self) -> str:
        """The session that a person started."""
        return self.parent_id or self.trace_id


def facts_of(session: Session) -> SessionFacts:
    """Reduce a session to what the report counts and shows."""
    trace = session.trace
    calls = actions_of(trace, session.flags)
    if not session.is_prepared:
        trace = write_hints(find_errors(session, calls), actions=calls)
    usages = session.usages or (NO_USAGE,) * len(trace.steps)
    keys = session.keys or ("",) * len(trace.steps)
    at = unix_seconds(str(trace.provenance.get("started_at") or ""))
    steps: list[StepFacts] = []
    num_quoted = 0
    for position, (key, usage) in enumerate(zip(keys, usages, strict=True)):
        at = unix_seconds(usage.at) or at
        steps.append(_step(trace, position, key, usage, at, calls, tell=num_quoted < MAX_QUOTED))
        num_quoted += len(steps[-1].failures)
    causes = Causes(trace, calls, [step.at for step in steps], keys)
    return SessionFacts(
        trace.trace_id,
        trace.parent_trace_id,
        trace.spawn_call_id,
        trace.source,
        trace.cwd,
        tuple(steps),
        tuple(
            StepFacts(
                one.key, unix_seconds(one.usage.at), one.model, dataclasses.replace(one.usage, at=""), (), (), False, 0
            )
            for one in session.thoughts
        ),
        tuple(_episodes(trace, calls)),
        tuple(one.call.call_id for outcomes in calls for one in outcomes if _starts_agent(one)),
        tuple(causes.found()),
        causes.worked,
        tuple(causes.guides),
    )


def _step(trace: Trace, position: int, key: str, usage: Usage, at: float, actions: Actions, *, tell: bool) -> StepFacts:
    step, outcomes = trace.steps[position], actions[position]
    failures: list[CallFailure] = []
    for site in step.error_sites:
        if site.kind in RUNS or site.source == "critic":
            continue
        outcome = action_at(site, outcomes)
        is_no = site.blame == "user"
        reason = _reason(context_of(trace, position, site, actions), outcome) if tell and is_no else ""
        if is_no and (earlier := next((one for one in failures if one.blame == "user"), None)):
            if reason and not earlier.reason:
                failures[failures.index(earlier)] = dataclasses.replace(earlier, reason=reason)
            continue  # one "no" stops every call of a message
        failures.append(
            CallFailure(
                site.kind,
                site.blame,
                site.tool,
                spelled(outcome.call, MAX_WORDS) if outcome and tell else "",
                ((outcome.content if outcome else "") or site.message)[:MAX_WORDS] if tell else "",
                reason,
            )
        )
    num_hints = sum(hint.writer != "user" for hint in step.hints)
    tools = tuple(one.call.name for one in outcomes if one.call.name)
    return StepFacts(key, at, step.model, dataclasses.replace(usage, at=""), tools, tuple(failures), step.prefix_exact,
                     num_hints)  # fmt: skip


def _reason(context: SiteContext, outcome: Action | None) -> str:
    """Return a person's words about the call that they refused, or ""."""
    # A hint never repeats words of the failed call, but a reason usually does.
    reason = excerpt(words_at_rejection(context), MAX_REASON)
    is_own = reason[:MIN_REASON] in context.site.message or (outcome and is_about(reason, outcome.call))
    return reason if is_own else ""  # the next prompt, which is about something else


def is_about(reason: str, call: ToolCall) -> bool:
    """Return whether a person's words name something that a call names: a file, a program, an argument."""
    named = set(_NAMES.findall(f"{call.name} {spelled(call, MAX_WORDS)}".casefold()))
    return not named.isdisjoint(_NAMES.findall(reason.casefold()))


_NAMES = re.compile(r"[^\W\d_]{4,}")


def _starts_agent(outcome: Action) -> bool:
    return outcome.call.name.casefold() in ("task", "agent", "spawn_agent") and outcome.content is not None


# ---------------------------------------------------------------------------------------------------------- episodes


def _episodes(trace: Trace, calls: Sequence[Sequence[Action]]) -> Iterator[Episode]:
    """Yield the runs that begin with a failure of the model, each failed call in one of them only."""
    used: set[tuple[int, str]] = set()
    for position, step in enumerate(trace.steps):
        for site in step.error_sites:
            if site.blame != "model" or site.kind in RUNS or (position, site.call_id) in used:
                continue
            outcome = action_at(site, calls[position])
            if outcome is None:
                continue
            purpose = purpose_of(outcome)
            used.update((position, one.call.call_id) for one in calls[position] if purpose_of(one) == purpose)
            failed, worked = _followed(trace, calls, position, purpose, used)
            yield Episode((position, *failed), worked, site.kind, site.tool, purpose[:200])


def _followed(
    trace: Trace, calls: Sequence[Sequence[Action]], position: int, purpose: str, used: set[tuple[int, str]]
) -> tuple[list[int], int]:
    """Return the later steps that failed at the same purpose, and the one that worked or -1."""
    failed: list[int] = []
    action = trace.steps[position].action
    for later in islice(steps_after(trace, position), MAX_EPISODE):
        if _has_prompt(trace, action, later):
            break
        action = later.action
        blames = {site.call_id: site.blame for site in later.error_sites if site.kind not in RUNS}
        for outcome in calls[later.index]:
            if purpose_of(outcome) != purpose or outcome.content is None:
                continue
            if outcome.call.call_id not in blames:
                return failed, later.index
            if blames[outcome.call.call_id] == "model":
                used.add((later.index, outcome.call.call_id))
                failed.append(later.index)
    return list(dict.fromkeys(failed)), -1


def _has_prompt(trace: Trace, after: int, later: Step) -> bool:
    """Return whether a person typed something between an action and a later step; harnesses write in tags."""
    for start, stop in reversed(later.prompt):
        for index in range(stop - 1, start - 1, -1):
            if index <= after:
                return False
            message = trace.messages[index]
            if message.role == "user" and message.content and not message.content.startswith("<"):
                return True
    return False


def purpose_of(action: Action) -> str:
    """Name what a call is for: the tool and its file, or the program and its subcommand."""
    if action.family == "shell":
        main = main_command(action.commands)
        if main is None:
            return action.call.name
        verb = next((word for word in main.words[1:2] if not word.startswith("-") and "/" not in word), "")
        return f"{main.program} {verb}".strip()
    name = action.path.rstrip("/").rpartition("/")[2]
    return f"{action.call.name} {name}".strip()


def unix_seconds(text: str) -> float:
    """Return a time as seconds since 1970, 0 if it is not one."""
    if text.isdigit():
        number = float(text)
        return number / 1000 if number > 1e11 else number
    try:
        when = datetime.datetime.fromisoformat(text) if text else None
    except ValueError:
        return 0.0
    return when.timestamp() if when else 0.0
