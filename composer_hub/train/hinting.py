"""Hints for turns of a trace, inserted right before the turn, token by token.

In: rollouts, or the tokens of a recorded turn. Out: `HintSite`s. The action keeps its own tokens and is never tokenized
again.
"""

from __future__ import annotations

import random
import sys
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2.exceptions import TemplateError as JinjaError

from composer_hub import exits
from composer_hub.actions import actions_of
from composer_hub.errors.context import SiteContext, context_of, next_success, steps_after
from composer_hub.hints.writers import (
    LIVE_WRITERS,
    MAX_HINT_CHARS,
    HintWriter,
    control_hint,
    from_sibling,
    write_hint,
)
from composer_hub.records import ErrorSite, Hint, Step, Trace
from composer_hub.train.batch import HintSite, first_difference
from composer_hub.train.rollouts import Rollout

# Conversations that end before a turn. After a result, some templates (Gemma 4) continue without a generation
# prompt.
_CALL = {"type": "function", "function": {"name": "x", "arguments": {}}}


def _starts(text: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    first: list[dict[str, Any]] = [{"role": "user", "content": text}]
    call = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
    return first, [*first, call, {"role": "tool", "name": "x", "content": text}]


_NO_TOOLS = (JinjaError, TypeError)  # a template without tools, or with another form of arguments

REASONS = ("too_long", "no_hint", "refused", "no_place", "later", "not_exact")
"""Why a turn that the model erred in is not learned from."""


class TemplateError(exits.ComposerError, ValueError):
    """The chat template does not allow a hint before a turn."""


@dataclass(frozen=True)
class Hinter:
    """Writes the hints of error turns and puts them into the tokens."""

    apply_template: Callable[..., list[int]]  # (messages, add_generation_prompt=…) -> token ids
    tools: tuple[dict[str, Any], ...] = ()  # schemas of the available tools
    writers: tuple[HintWriter, ...] = LIVE_WRITERS
    max_sites: int = 1  # per rollout
    max_teacher_tokens: int = sys.maxsize
    refused: frozenset[tuple[str, str]] = frozenset()  # (writer, kind of error) that failed the preflight
    control: bool = False  # uninformative hints of the same shape, for ablations

    def sites(
        self, rollout: Rollout, *, sibling: Rollout | None = None, left_out: Counter[str] | None = None
    ) -> list[HintSite]:
        """Return the first hint sites of a rollout; `sibling` is a better rollout of the same prompt.

        `left_out` counts the turns that the model erred in and that are not among them, by reason.
        """
        trace, counts = replace(rollout.read, tools=self.tools), Counter[str]() if left_out is None else left_out
        sites: list[HintSite] = []
        for step in trace.steps:
            errors = [error for error in step.error_sites if error.blame == "model"]
            if not errors:
                continue
            if len(sites) == self.max_sites or not step.prefix_exact:
                counts["not_exact" if not step.prefix_exact else "later"] += 1
                continue
            found = [self._site(rollout, trace, step, error, sibling) for error in errors]
            if placed := [site for site in found if isinstance(site, HintSite)]:
                sites.append(placed[0])
            else:
                counts[str(found[0])] += 1
        return sites

    def _site(
        self, rollout: Rollout, trace: Trace, step: Step, error: ErrorSite, sibling: Rollout | None
    ) -> HintSite | str:
        """Return the site of an error, or the reason why it has none."""
        hint = write_hint(context_of(trace, step.index, error, actions_of(trace)), self.writers)
        if hint is None and sibling is not None:
            hint = from_sibling(error, sibling.trace, step.index)
        if hint is None:
            return "no_hint"
        if (hint.writer, hint.kind) in self.refused:
            return "refused"
        prefix, action = rollout.tokens(step)
        try:
            site = self.place(hint, prefix, action, _corrected(rollout, step, sibling))
        except TemplateError:
            return "no_place"
        return replace(site, step=step.index, span=rollout.spans[step.index]) if site else "too_long"

    def place(
        self, hint: Hint, prefix: Sequence[int], action: Sequence[int], corrected: Sequence[int]
    ) -> HintSite | None:
        """Put a hint before a turn; None if the hinted prompt is too long for the teacher."""
        if self.control and hint.writer != "control":
            hint = control_hint(hint, random.Random(hint.text))
        hinted = self.hinted(list(prefix), hint.text)
        if len(hinted) + len(action) > self.max_teacher_tokens:
            return None
        if len(hinted) + len(corrected) > self.max_teacher_tokens:
            corrected = ()
        cut = first_difference(prefix, hinted)
        before, inserted, own, better = (array("i", ids) for ids in (prefix, hinted[cut:], action, corrected))
        return HintSite(hint, before, cut, inserted, own, better)

    def hinted(self, prefix: list[int], text: str) -> list[int]:
        """Return the prefix with the hint as a user message right before the turn that follows it."""
        hint = {"role": "user", "content": text}
        for start in _starts("x"):
            ends = self._ends(start, hint)
            if ends is not None and prefix[-len(ends[0]) :] == ends[0]:
                return prefix[: -len(ends[0])] + ends[1]
        raise TemplateError(
            "The chat template has no place for a hint before this turn. Use one of the chat templates that TRL ships "
            "for training."
        )

    def _ends(self, start: list[dict[str, Any]], hint: dict[str, Any]) -> tuple[list[int], list[int]] | None:
        """Return a conversation's end without and with a hint before the next turn, less the common part."""
        try:
            plain, hinted = (self.apply_template(talk, add_generation_prompt=True) for talk in (start, [*start, hint]))
            closed = self.apply_template(start, add_generation_prompt=False)
        except _NO_TOOLS:
            return None
        # Cut before the generation prompt, and keep a token to compare if the model continues right after a result.
        same = min(first_difference(plain, hinted), len(closed), len(plain) - 1)
        return plain[same:], hinted[same:]

    def has_place(self, *, after_tool: bool) -> bool:
        """Return whether the template allows a hint before the first turn, or one after a tool result."""
        try:
            self.hinted(self.apply_template(_starts("y")[after_tool], add_generation_prompt=True), "x")
        except (TemplateError, *_NO_TOOLS):
            return False
        return True


def own_writer(name: str, write: Callable[[SiteContext], Any]) -> HintWriter:
    """Return a function of the user's as a writer; it may return a `Hint`, a text, or None."""
    short = name.rpartition(":")[2] or name

    def writer(context: SiteContext) -> Hint | None:
        try:
            hint = write(context)
        except Exception as error:
            raise exits.ComposerError(f"The hint writer {name} raised {type(error).__name__}: {error}.") from error
        if isinstance(hint, str) and hint.strip():
            return Hint(hint[:MAX_HINT_CHARS], short, "own", 1, context.site.kind, context.site.call_id)
        if not isinstance(hint, (str, Hint, type(None))):
            raise exits.ComposerError(f"The hint writer {name} returned {hint!r}. Return a text, a Hint or None.")
        return hint if isinstance(hint, Hint) else None

    return writer


def _corrected(rollout: Rollout, step: Step, sibling: Rollout | None) -> Sequence[int]:
    """Return the tokens of the next calls that worked: later in this rollout, or from this turn on in a sibling."""
    later = [(rollout, steps_after(rollout.trace, step.index))]
    if sibling is not None:
        later.append((sibling, iter(sibling.trace.steps[step.index :])))
    for other, steps in later:
        success = next_success(other.trace, steps)
        if success is not None and success.prefix_exact:
            return other.tokens(success)[1]
    return ()


def check_places(hinter: Hinter) -> None:
    """Refuse a chat template without a place for hints; warn about one that has none after a tool result."""
    if not hinter.has_place(after_tool=False):
        raise TemplateError(
            "The chat template has no place for a hint before a turn. Use one of the chat templates that TRL ships for "
            "training, or turn hints and own_pairs off."
        )
    if not hinter.has_place(after_tool=True):
        warnings.warn(
            "The chat template has no place for a hint after a tool result, so only errors of first turns get hints.",
            stacklevel=3,
        )


def token_limit(asked: int, model_config: Any) -> int:
    """Return the longest hinted prompt with its action: the model's window, or less if that is asked."""
    window = getattr(model_config.get_text_config(), "max_position_embeddings", None) or sys.maxsize
    return min(asked or window, window)


def hinter_of(trainer: Any) -> Hinter:
    """Return the hinter for a trainer's template, tools and options."""
    from transformers.utils import get_json_schema

    def apply_template(messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> list[int]:
        return trainer.processing_class.apply_chat_template(
            messages,
            add_generation_prompt=add_generation_prompt,
            tokenize=True,
            return_dict=False,
            chat_template=trainer.chat_template,
            **trainer.chat_template_kwargs,
        )

    return Hinter(
        apply_template=apply_template,
        tools=tuple(get_json_schema(tool) for tool in trainer.tools or ()),
        max_sites=trainer.args.max_hint_sites,
        max_teacher_tokens=token_limit(trainer.args.max_teacher_tokens, trainer.model.config),
        control=trainer.args.control_hints,
    )
