"""Hints: a `Trace` with error sites in, the same trace with `Step.hints` out.

A hint is a short text that would have helped if the model had read it before the step. Writers are in an ordered tuple,
and the first that has a hint wins: hindsight (the call on the same target that worked later), then the template of the
kind. Opt-in are the environment's own words, the user's words at a rejection, and a `Judge` model. A writer is a
function `SiteContext -> Hint | None`.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from composer_hub.actions.action import Actions, actions_of
from composer_hub.errors.excerpts import CUT, excerpt, without_colors
from composer_hub.errors.rules import canonical_kind
from composer_hub.errors.vocabulary import KINDS
from composer_hub.exits import UsageError
from composer_hub.hints.context import context_of
from composer_hub.hints.hindsight import next_success, what_worked
from composer_hub.hints.judge import Judge
from composer_hub.hints.templates import TEMPLATES, LaterCall, SiteContext, Template, register, template_of
from composer_hub.records import ErrorSite, Hint, Step, Trace, canonical_json

__all__ = [
    "DEFAULT_WRITERS", "LIVE_WRITERS", "TEMPLATES", "WRITERS", "HintWriter", "Judge", "LaterCall", "SiteContext",
    "Template", "control_hint", "from_environment", "from_hindsight", "from_sibling", "from_template",
    "from_user", "hint_coverage", "is_tool_runtime_kind", "register", "write_hint", "write_hints", "writers_named",
]  # fmt: skip

HintWriter = Callable[[SiteContext], "Hint | None"]

MAX_HINT_CHARS = 600
VERSION = 15  # of the writers in this module; increases when one of them changes its text for the same site


def write_hint(context: SiteContext, writers: Sequence[HintWriter] | None = None) -> Hint | None:
    """Return the hint of the first writer that has one for this site."""
    chosen = DEFAULT_WRITERS if writers is None else writers
    return next((hint for write in chosen if (hint := write(context))), None)


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
    those of failures that neither the user nor the model caused.
    """
    chosen = DEFAULT_WRITERS if writers is None else tuple(writers)
    others = chosen if from_environment in chosen else (*chosen, from_environment)
    users = (*chosen, from_user) if user_feedback and from_user not in chosen else chosen
    by_blame = {"model": users, "outcome": others * outcome, "user": users * user_feedback, "env": others * environment}
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


def from_template(context: SiteContext) -> Hint | None:
    """Fill in the template of the kind."""
    template = template_of(context.site.kind)
    text = template(context) if template else None
    return _hint(context, f"Reminder: {text}", "template", canonical_kind(context.site.kind)) if text else None


def from_hindsight(context: SiteContext) -> Hint | None:
    """Name the call that worked within the next eight: same tool, same target."""
    found = what_worked(context)
    return _hint(context, found.text, "hindsight", found.rule) if found else None


def from_environment(context: SiteContext) -> Hint | None:
    """Quote the environment, but only for kinds about tools and programs, never about style."""
    words = _complaint(context.site.message, context.answer)
    if (
        context.site.blame not in ("model", "env", "outcome")
        or not words
        or not is_tool_runtime_kind(context.site.kind)
        or context.site.kind.startswith("repeated_")  # its last failure has a site of its own
    ):
        return None
    return _hint(context, f"The environment answers this call with:\n{words}", "environment", "raw")


_COMPLAINS = re.compile(
    r"(?i)error|exception|fail|fatal|panic|not found|no such|cannot|can't|could not|unable|denied|invalid|illegal"
    r"|unknown|unexpected|unrecognized|unsupported|missing|required|must|refus|reject|usage"
    r'|not (?:allowed|defined|supported|a )|^ *File "'
)
MAX_COMPLAINTS = 6  # lines


def _complaint(message: str, answer: str) -> str:
    """Return the environment's words, or only the lines that complain if there are many; "" if no line does."""
    too_little = message.startswith("exit code ") or len(message.split()) < 3
    if not _COMPLAINS.search(message) and (too_little or len(message) > MAX_SENTENCE_CHARS):
        return ""
    if CUT not in message and message.count("\n") < MAX_COMPLAINTS:
        return excerpt(message, MAX_HINT_CHARS - 100)
    lines = [line for line in without_colors(answer[-20_000:]).split("\n") if _COMPLAINS.search(line)]
    return excerpt("\n".join(lines[-MAX_COMPLAINTS:]) or message, MAX_HINT_CHARS - 100)


_USER_WORDS = (
    re.compile(r"the user said:\s*(\S[\s\S]*)"),
    re.compile(r"(?:reason for the rejection|with (?:the following )?feedback|[Uu]ser feedback):\s*(\S[\s\S]*)"),
    re.compile(r"<feedback>\s*([\s\S]*?)\s*</feedback>"),
)


def from_user(context: SiteContext) -> Hint | None:
    """Quote the user at a rejected call; opt-in, because these are a person's words."""
    if context.site.blame != "user":
        return None
    found = (match[1] for pattern in _USER_WORDS if (match := pattern.search(context.site.message)))
    words = excerpt(_instructions(next(found, "") or context.user_words), 400)
    return _hint(context, f"The user says: {words}", "user", "words_at_rejection") if words else None


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
MAX_SENTENCE_CHARS = 200  # a longer one has something to say
# Sentences of a person who takes over, reacts, or asks for another try: they hold nothing to do differently.
_NO_INSTRUCTION = re.compile(
    r"""(?ix) \W*
    (?:(?:ok(?:ay)?|huh|hm+|oh|well|so|and|but|please|actually|sorry|no|nope|yes|yeah|thanks?|let'?s|just|then|now|wait|stop)\b\W*)*
    (?:
      (?!.*\b(?:use|using|instead|should|must|don'?t|not|need|want|only|rather)\b)
      (?:i'?ll|i'?m|i'?ve|i\ (?:will|am|have|already|can|did|just)|let\ me|we'?ll|that'?s|this\ is|it'?s|too
        |do\ you\ have|thank\ you)\b.*
      |(?:try|(?:do|run)\ (?:it|that))?\s*(?:again|once\ more|one\ more\ time)
      |re-?try|continue|go\ on|go\ ahead|proceed|carry\ on|keep\ going|resume|stop|wait|hold\ on
      |never\ ?mind|cancel|abort|not\ now|not\ yet|later|skip|hello|hi
    )? \W*"""
)


def _instructions(words: str) -> str:
    """Return a person's words, or nothing if no sentence asks for something to be done in another way."""
    sentences = [one for one in _SENTENCE_END.split(words[:20_000]) if len(one.split()) > 2]
    return (
        words if any(len(one) > MAX_SENTENCE_CHARS or not _NO_INSTRUCTION.fullmatch(one) for one in sentences) else ""
    )


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


DEFAULT_WRITERS: tuple[HintWriter, ...] = (from_hindsight, from_template)
"""Of traces: what the session or the harness's message proves, since nobody tries these hints before they teach."""
LIVE_WRITERS: tuple[HintWriter, ...] = (*DEFAULT_WRITERS, from_environment)
"""Of a trainer's own rollouts: its preflight refuses writers whose hints do not help."""

WRITERS: dict[str, HintWriter] = {
    "hindsight": from_hindsight,
    "template": from_template,
    "environment": from_environment,
    "user": from_user,
}


def writers_named(names: str) -> tuple[HintWriter, ...]:
    """Return the writers of a comma-separated list, in its order."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in WRITERS]
    if unknown or not wanted:
        raise UsageError(
            f"No hint writer is named {', '.join(unknown) or 'nothing'}. Choose from: {', '.join(WRITERS)}."
        )
    return tuple(WRITERS[name] for name in wanted)


# ------------------------------------------------------------------------------------------------ kinds of error kinds

_STYLE_WORDS = tuple("style communic verbos effort concis tone format wordy rambl explan etiquette clarity".split())
_RUNTIME_WORDS = tuple(
    "error exception fail decode timeout traceback exit nonzero syntax import assert tool "
    "runtime crash exec path command".split()
)


def is_tool_runtime_kind(kind: str) -> bool:
    """Return whether a kind is about a tool or a program, so that its raw words can be a hint."""
    name = canonical_kind(kind.lower())
    if name in KINDS:
        return True
    words = re.split(r"[^a-z0-9]+", name)
    if any(word.startswith(_STYLE_WORDS) for word in words):
        return False
    return any(word.startswith(_RUNTIME_WORDS) for word in words)


# ------------------------------------------------------------------------------------------------------ for ablations


def control_hint(hint: Hint, rng: random.Random) -> Hint:
    """Return an uninformative hint of the same shape and length: advice for other kinds of error."""
    pool = [kind for kind in _ADVICE if kind != canonical_kind(hint.kind)]
    text = "Reminder: " if hint.text.startswith("Reminder: ") else ""
    for kind in rng.sample(pool, len(pool)):
        text += _ADVICE[kind] + " "
        if len(text) > len(hint.text):
            break
    return dataclasses.replace(
        hint, text=_cut_to(text, len(hint.text)), writer="control", rule=f"{hint.writer}.{hint.rule}"
    )


def _plain_advice(template: Template, kind: str) -> str:
    return template(SiteContext(ErrorSite(kind, "model", "flag", 1.0, ""))) or ""


# Of the package, where the kind alone is enough: a registered template may need more than a blank site.
_ADVICE = {kind: text for kind, template in TEMPLATES.items() if (text := _plain_advice(template, kind))}


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
