"""Hints: a `Trace` with error sites in, the same trace with `Step.hints` out.

A hint is a short text that would have helped if the model had read it before the step. It gives the right
words and never quotes the wrong ones, because the hinted model is the teacher and copies what it reads.
Writers are in an ordered tuple, and the first that has a hint wins: hindsight (what worked later), then the
environment's own offer. Opt-in are the environment's complaint, the user's words at a rejection, and a
`Judge` model. A writer is a function `SiteContext -> Hint | None`; `write_hint` drops a hint of any writer
that quotes the mistake.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal

from composer_hub.actions.action import Actions, actions_of
from composer_hub.errors.context import SiteContext, context_of, next_success
from composer_hub.errors.corrections import What, correction_of, offered, quotes_wrong
from composer_hub.errors.excerpts import excerpt, without_colors
from composer_hub.errors.rules import canonical_kind
from composer_hub.errors.vocabulary import KINDS
from composer_hub.exits import UsageError
from composer_hub.records import ErrorSite, Hint, Step, ToolCall, Trace, canonical_json

HintWriter = Callable[[SiteContext], "Hint | None"]

MAX_HINT_CHARS = 600
VERSION = 24  # of the writers in this module; increases when one of them changes its text for the same site


def write_hint(context: SiteContext, writers: Sequence[HintWriter] | None = None) -> Hint | None:
    """Return the hint of the first writer that has one for this site, unless it quotes the mistake."""
    hints = (write(context) for write in (DEFAULT_WRITERS if writers is None else writers))
    return next(
        (hint for hint in hints if hint and not quotes_wrong(hint.text, context.call, worked_call(context))), None
    )


def worked_call(context: SiteContext) -> ToolCall | None:
    """Return the call that worked instead: that of the correction, or else the next success of the same tool."""
    found = correction_of(context)
    if found and found.call:
        return found.call
    same = (one.action.call for one in context.later if one.ok and one.action.call.name == context.site.tool)
    return next(same, None)


def write_hints(
    trace: Trace,
    writers: Sequence[HintWriter] | None = None,
    *,
    outcome: bool = False,
    user_feedback: bool = False,
    environment: bool = False,
    actions: Actions | None = None,
) -> Trace:
    """Return the trace with a hint for each site that is the model's fault; earlier hints are replaced.

    `outcome` adds the words of tests and compilers, `user_feedback` the user's words at a rejection, and `environment`
    those of failures that are not proven to be the model's or the user's.
    """
    chosen = DEFAULT_WRITERS if writers is None else tuple(writers)
    others = chosen if from_environment in chosen else (*chosen, from_environment)
    users = (*chosen, from_user) if user_feedback and from_user not in chosen else chosen
    by_blame = {"model": users, "outcome": others * outcome, "user": users * user_feedback}
    by_blame |= dict.fromkeys(("env", "unknown"), others * environment)
    actions = actions_of(trace) if actions is None else actions
    steps = tuple(
        _with_hints(step, tuple(_hints_of(trace, position, by_blame, actions)))
        for position, step in enumerate(trace.steps)
    )
    return dataclasses.replace(trace, steps=steps)


def _with_hints(step: Step, hints: tuple[Hint, ...]) -> Step:
    return step if step.hints == hints else dataclasses.replace(step, hints=hints)


def _hints_of(
    trace: Trace, position: int, by_blame: Mapping[str, Sequence[HintWriter]], actions: Actions
) -> Iterator[Hint]:
    for site in trace.steps[position].error_sites:
        if writers := by_blame.get(site.blame):
            hint = write_hint(context_of(trace, position, site, actions), writers)
            if hint:
                yield hint


# --------------------------------------------------------------------------------------------------------- writers

SENTENCES: dict[What | Literal["offer", "tools", "field"], str] = {
    "path": "Use {}.",
    "program": "Use {}.",
    "command": "Use this command: {}",
    "folder": "Run it from {}.",
    "made": "First run: {}",
    "quotes": "Put it in quotes: {}.",
    "tool": "Use the tool `{}`.",
    "arguments": "Set {}.",
    "text": "The text there is:\n{}",
    "read": "First read {}.",
    "offer": "Use {}.",
    "tools": "Available {} are: {}. Use one of these.",
    "field": "Give `{}`.",
}
"""The sentence around the words that were right, by `Correction.what` or by the kind of offer."""


def from_hindsight(context: SiteContext) -> Hint | None:
    """Name what worked within the next steps, if it is an exact answer."""
    found = correction_of(context)
    return _hint(context, SENTENCES[found.what].format(found.right), "hindsight", found.what) if found else None


_MISSING_FIELDS = (
    re.compile(r"required (?:parameter|property|argument|field) [`'\"](\w{1,60})[`'\"](?: is missing)?"),
    re.compile(r"Missing (?:required )?(?:parameter|argument|key|property)s?:?\s+(?:at \[)?[`'\"]?(\w{1,60})"),
    re.compile(r"missing field `(\w{1,60})`"),
)
_LISTED = re.compile(r"Available (tools|agents|skills)(?: are)?: \[?([^\]\n]{1,20000})")
MAX_LISTED = 12


def from_quoted(context: SiteContext) -> Hint | None:
    """Repeat what the environment's own message offers: a name, the allowed values, a field that is missing."""
    text, kind = context.answer[:4000] or context.site.message, canonical_kind(context.site.kind)
    if kind == "tool_not_found":
        return _offered_tool(context, text)
    if found := offered(context, proven=True):
        return _hint(context, SENTENCES["offer"].format(found), "quoted", "offer")
    missing = next((match[1] for pattern in _MISSING_FIELDS if (match := pattern.search(text))), "")
    if missing and kind == "schema_validation":
        return _hint(context, SENTENCES["field"].format(missing), "quoted", "field")
    return None


def _offered_tool(context: SiteContext, text: str) -> Hint | None:
    """Name the offered tool with a similar name, or all of them if they are few."""
    listed = _LISTED.search(text)
    offered = [name.strip(" .`'\"") for name in listed[2].split(",")] if listed else list(context.available_tools)
    offered = [name for name in dict.fromkeys(offered) if name and name != "invalid"]
    values = context.call.arguments.values() if context.call and isinstance(context.call.arguments, Mapping) else ()
    asked = [context.site.tool] if not listed or listed[1] == "tools" else [v for v in values if isinstance(v, str)]
    plain = {re.split(r"[:/]|__", name.casefold())[-1]: name for name in offered}
    for name in asked:
        if near := get_close_matches(re.split(r"[:/]|__", name.casefold())[-1], sorted(plain), n=1, cutoff=0.75):
            return _hint(context, SENTENCES["tool"].format(plain[near[0]]), "quoted", "nearest")
    is_whole = bool(listed) or (context.trace is None or context.trace.tools_source == "recorded")
    if not offered or len(offered) > MAX_LISTED or not is_whole:
        return None
    names = ", ".join(f"`{name}`" for name in offered)
    sentence = SENTENCES["tools"].format(listed[1] if listed else "tools", names)
    return _hint(context, f"Reminder: {sentence}", "quoted", "offered")


_COMPLAINS = re.compile(
    r"(?i)error|exception|fail|fatal|panic|not found|no such|cannot|can't|could not|unable|denied|invalid|illegal"
    r"|unknown|unexpected|unrecognized|unsupported|missing|required|must|refus|reject|usage|expected"
    r"|not (?:allowed|defined|supported|a )"
)
MAX_COMPLAINTS = 6  # lines
# Kinds about tools and programs, also those of a user; words about style are left to the judge.
_RUNTIME = re.compile(rf"(?!repeated_|style)(?:(?:{'|'.join(KINDS)})$|.*(?:error|exception|fail|crash|exit))")


def from_environment(context: SiteContext) -> Hint | None:
    """Quote the lines in which the environment complains, without those that repeat the mistake."""
    site = context.site
    if site.blame not in ("model", "unknown", "env", "outcome") or not _RUNTIME.match(canonical_kind(site.kind)):
        return None
    worked = worked_call(context)
    lines = without_colors(context.answer[-20_000:] or site.message).split("\n")
    complaints = [line for line in lines if _COMPLAINS.search(line) and not quotes_wrong(line, context.call, worked)]
    words = excerpt("\n".join(complaints[-MAX_COMPLAINTS:]), MAX_HINT_CHARS - 100)
    if len(words.split()) < 3 or words.startswith("exit code "):
        return None
    return _hint(context, f"The environment answers:\n{words}", "environment", "raw")


_USER_WORDS = (
    re.compile(r"the user said:\s*(\S[\s\S]*)"),
    re.compile(r"(?:reason for the rejection|with (?:the following )?feedback|[Uu]ser feedback):\s*(\S[\s\S]*)"),
    re.compile(r"<feedback>\s*([\s\S]*?)\s*</feedback>"),
)


def words_at_rejection(context: SiteContext) -> str:
    """Return the user's words at a rejected call, or else the next prompt."""
    found = (match[1] for pattern in _USER_WORDS if (match := pattern.search(context.site.message)))
    return next(found, "") or context.user_words


def from_user(context: SiteContext) -> Hint | None:
    """Quote the user at a rejected call; opt-in, because these are a person's words."""
    if context.site.blame != "user":
        return None
    words = excerpt(_instructions(words_at_rejection(context)), 400)
    return _hint(context, f"The user says: {words}", "user", "words_at_rejection") if words else None


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_INSTRUCTS = re.compile(r"(?i)\b(?:use|using|instead|should|must|don'?t|do not|need|want|only|rather)\b")
MAX_SENTENCE_CHARS = 200  # a longer one has something to say


def _instructions(words: str) -> str:
    """Return a person's words, or nothing if no sentence asks for something to be done in another way."""
    sentences = _SENTENCE_END.split(words[:20_000])
    return words if any(len(one) > MAX_SENTENCE_CHARS or _INSTRUCTS.search(one) for one in sentences) else ""


def from_sibling(site: ErrorSite, trace: Trace, position: int) -> Hint | None:
    """Name the call that worked in a better attempt at the same task, from the same step on."""
    step = next_success(trace, trace.steps[position:])
    if step is None:
        return None
    call = trace.messages[step.action].tool_calls[0]
    text = f"Reminder: in an attempt that did better, this call worked: {call.name} {canonical_json(call.arguments)}"
    return _hint(SiteContext(site), text, "sibling", "same_turn")


def _hint(context: SiteContext, text: str, writer: str, rule: str) -> Hint:
    site = context.site
    return Hint(excerpt(text, MAX_HINT_CHARS), writer, rule, VERSION, kind=site.kind, call_id=site.call_id)


DEFAULT_WRITERS: tuple[HintWriter, ...] = (from_hindsight, from_quoted)
"""Of traces: what the session or the environment's message proves, since nobody tries these hints before they teach."""
LIVE_WRITERS: tuple[HintWriter, ...] = (*DEFAULT_WRITERS, from_environment)
"""Of a trainer's own rollouts: its preflight refuses writers whose margin is not above zero."""

WRITERS: dict[str, HintWriter] = {
    "hindsight": from_hindsight,
    "quoted": from_quoted,
    "environment": from_environment,
    "user": from_user,
}


def writers_named(names: str) -> tuple[HintWriter, ...]:
    """Return the writers of a comma-separated list, in its order."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in WRITERS]
    if "judge" in unknown:
        raise UsageError("The hint writer judge asks a model: give --judge URL#MODEL.")
    if unknown or not wanted:
        raise UsageError(
            f"No hint writer is named {', '.join(unknown) or 'nothing'}. Choose from: {', '.join(WRITERS)}."
        )
    return tuple(WRITERS[name] for name in wanted)


# ------------------------------------------------------------------------------------------------------ for ablations

_OTHER_ADVICE = (
    "Use the tool `list_pages`.", "Set depth = 2.", "First read notes/plan.txt.", "Use docs/guide/start.md.",
    "Use this command: date -u", "Give `title`.", "First run: mkdir -p out/logs", "Run it from packages/core.",
    "Available tools are: `search_web`, `open_page`. Use one of these.", "Put it in quotes: '*.csv'.",
)  # fmt: skip


def control_hint(hint: Hint, rng: random.Random) -> Hint:
    """Return an uninformative hint of the same shape and length: advice about nothing in the session."""
    text = "Reminder: " if hint.text.startswith("Reminder: ") else ""
    for advice in rng.sample(_OTHER_ADVICE, len(_OTHER_ADVICE)):
        text += advice + " "
        if len(text) > len(hint.text):
            break
    return dataclasses.replace(
        hint, text=_cut_to(text, len(hint.text)), writer="control", rule=f"{hint.writer}.{hint.rule}"
    )


def _cut_to(text: str, length: int) -> str:
    cut = text[: max(length, 1)]
    if len(text) > len(cut) and " " in cut:
        cut = cut[: cut.rfind(" ")]
    return cut.strip()


# ---------------------------------------------------------------------------------------------------------- counting


def hint_coverage(traces: Iterable[Trace]) -> dict[str, Any]:
    """Count error sites by kind and blame, and how many of those that are the model's fault have a hint, by writer."""
    kinds: Counter[str] = Counter()
    blames: Counter[str] = Counter()
    writers: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    num_model_sites = 0
    for step in (step for trace in traces for step in trace.steps):
        hinted = {(hint.kind, hint.call_id) for hint in step.hints}
        writers.update(hint.writer for hint in step.hints)
        kinds.update(site.kind for site in step.error_sites)
        blames.update(site.blame for site in step.error_sites)
        faults = [site for site in step.error_sites if site.blame == "model"]
        num_model_sites += len(faults)
        missed.update(site.kind for site in faults if (site.kind, site.call_id) not in hinted)
    return {
        "num_sites": sum(kinds.values()),
        "sites_by_kind": dict(kinds.most_common()),
        "sites_by_blame": dict(blames.most_common()),
        "num_model_sites": num_model_sites,
        "num_model_sites_hinted": num_model_sites - sum(missed.values()),
        "hints_by_writer": dict(writers.most_common()),
        "unhinted_by_kind": dict(missed.most_common()),
    }
