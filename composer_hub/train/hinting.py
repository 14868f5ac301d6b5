"""Hints for turns of a trace, inserted right before the turn, token by token.

In: rollouts, or the tokens of a recorded turn. Out: `HintSite`s. The action keeps its own tokens and is never tokenized
again.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from composer_hub import exits
from composer_hub.hints.hindsight import next_success, steps_after
from composer_hub.hints.writers import (
    DEFAULT_WRITERS,
    HintWriter,
    context_of,
    control_hint,
    from_sibling,
    write_hint,
)
from composer_hub.records import ErrorSite, Hint, Step, Trace
from composer_hub.train.batch import HintSite
from composer_hub.train.rollouts import Rollout


class TemplateError(exits.ComposerError, ValueError):
    """The chat template does not allow a hint before a turn."""


@dataclass(frozen=True)
class Hinter:
    """Writes the hints of error turns and puts them into the tokens."""

    apply_template: Callable[..., list[int]]  # (messages, add_generation_prompt=…) -> token ids
    tools: tuple[dict[str, Any], ...] = ()  # schemas of the available tools
    writers: tuple[HintWriter, ...] = DEFAULT_WRITERS
    max_sites: int = 1  # per rollout
    max_teacher_tokens: int = 4096
    refused: frozenset[tuple[str, str]] = frozenset()  # (writer, kind of error) that failed the pre-flight
    control: bool = False  # uninformative hints of the same shape, for ablations

    def sites(self, rollout: Rollout, *, sibling: Rollout | None = None) -> list[HintSite]:
        """Return the first hint sites of a rollout; `sibling` is a better rollout of the same prompt."""
        trace = replace(rollout.trace, tools=self.tools)
        sites: list[HintSite] = []
        for step in trace.steps:
            if len(sites) == self.max_sites or not step.prefix_exact:
                break
            at_step = (self._site(rollout, trace, step, error, sibling) for error in step.error_sites)
            sites += [site for site in at_step if site is not None][:1]
        return sites

    def _site(
        self, rollout: Rollout, trace: Trace, step: Step, error: ErrorSite, sibling: Rollout | None
    ) -> HintSite | None:
        if error.blame != "model":
            return None
        hint = write_hint(context_of(trace, step.index, error), self.writers)
        if hint is None and sibling is not None:
            hint = from_sibling(error, sibling.trace, step.index)
        if hint is None or (hint.writer, hint.kind) in self.refused:
            return None
        prefix, action = rollout.tokens(step)
        site = self.place(hint, prefix, action, _corrected(rollout, step, sibling))
        return site and replace(site, step=step.index, span=rollout.spans[step.index])

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
        pairs = enumerate(zip(prefix, hinted, strict=False))
        cut = next((place for place, (one, other) in pairs if one != other), len(prefix))
        before, inserted, own, better = (array("i", ids) for ids in (prefix, hinted[cut:], action, corrected))
        return HintSite(hint, before, cut, inserted, own, better)

    def hinted(self, prefix: list[int], text: str) -> list[int]:
        """Return the prefix with the hint as a user message before its generation prompt."""
        base = [{"role": "user", "content": "x"}]
        head = len(self.apply_template(base, add_generation_prompt=False))
        generation = self.apply_template(base, add_generation_prompt=True)[head:]
        if not generation or prefix[-len(generation) :] != generation:
            raise TemplateError(
                "The turn does not start right after the template's generation prompt, so no hint can be inserted. "
                "Use one of the chat templates that TRL ships for training."
            )
        hint = [*base, {"role": "user", "content": text}]
        return prefix[: -len(generation)] + self.apply_template(hint, add_generation_prompt=True)[head:]


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
        max_teacher_tokens=trainer.args.max_teacher_tokens,
        control=trainer.args.control_hints,
    )
