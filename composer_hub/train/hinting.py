"""Hints for live rollouts, put at their turn token by token: the action's own tokens are never tokenised again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from composer_hub import exits
from composer_hub.errors.find import excerpt
from composer_hub.hints.writers import (
    DEFAULT_WRITERS,
    MAX_HINT_CHARS,
    HintWriter,
    LaterCall,
    SiteContext,
    control_hint,
    write_hint,
)
from composer_hub.records import Hint, canonical_json
from composer_hub.train.turns import Rollout, TurnError, tool_call_of, turn_errors, turns


class TemplateError(exits.ComposerError, ValueError):
    """The chat template does not let a hint be put before a turn."""


@dataclass(frozen=True, slots=True)
class HintSite:
    """One turn to learn at: where it is, what the teacher reads before it."""

    error: TurnError
    hint: Hint
    prefix_ids: tuple[int, ...]  # what stood before the turn
    hinted_ids: tuple[int, ...]  # the same with the hint in it
    action_ids: tuple[int, ...]  # the turn's own tokens
    corrected_ids: tuple[int, ...] = ()  # a later turn of this rollout, or one of a sibling, that did not fail

    @property
    def teacher_ids(self) -> tuple[int, ...]:
        return self.hinted_ids + self.action_ids

    @property
    def num_tokens(self) -> int:
        return len(self.action_ids)


@dataclass(frozen=True)
class Hinter:
    """Finds the error turns of rollouts and writes their hints."""

    apply_template: Callable[..., list[int]]  # (messages, add_generation_prompt=…) -> token ids
    decode: Callable[[Sequence[int]], str]
    tools: tuple[dict[str, Any], ...] = ()  # schemas of the tools on offer
    writers: tuple[HintWriter, ...] = DEFAULT_WRITERS
    max_sites: int = 1  # a rollout; the first site pays best
    max_teacher_tokens: int = 4096
    refused: frozenset[tuple[str, str]] = frozenset()  # writers, with the kind of error, that failed the pre-flight
    control: bool = False  # hints of the same shape that say nothing about their site, for ablations

    def sites(self, rollout: Rollout, *, sibling: Rollout | None = None) -> list[HintSite]:
        """Return the hint sites of a rollout; `sibling` is a rollout of the same prompt that did better."""
        found: list[HintSite] = []
        for error in turn_errors(rollout, self.decode):
            if len(found) == self.max_sites:
                break
            if error.site.blame != "model" or any(site.error.turn == error.turn for site in found):
                continue
            site = self._site(rollout, error, sibling)
            if site is not None:
                found.append(site)
        return found

    def _site(self, rollout: Rollout, error: TurnError, sibling: Rollout | None) -> HintSite | None:
        hint = write_hint(self._context(rollout, error), self.writers)
        if hint is None and sibling is not None:
            hint = from_sibling(error, sibling, self.decode)
        if hint is None or (hint.writer, hint.kind) in self.refused:
            return None
        if self.control:
            hint = control_hint(hint, random.Random(hint.text))
        prefix = [*rollout.prompt_ids, *rollout.completion_ids[: error.turn.start]]
        action = rollout.completion_ids[error.turn.start : error.turn.stop]
        hinted = self.hinted(prefix, hint.text)
        if len(hinted) + len(action) > self.max_teacher_tokens:
            return None
        corrected = self._corrected(rollout, error, sibling)
        if len(hinted) + len(corrected) > self.max_teacher_tokens:
            corrected = ()
        return HintSite(error, hint, tuple(prefix), tuple(hinted), tuple(action), corrected)

    def _corrected(self, rollout: Rollout, error: TurnError, sibling: Rollout | None) -> tuple[int, ...]:
        """Return the tokens of the first call that worked: later in this rollout, or at this turn of a sibling."""
        places = [(rollout, error.turn.number + 1), *([(sibling, error.turn.number)] if sibling else [])]
        for other, first in places:
            failed = {found.turn.number for found in turn_errors(other, self.decode)}
            for turn in turns(other)[first:]:
                if turn.message.get("tool_calls") and turn.number not in failed:
                    return tuple(other.completion_ids[turn.start : turn.stop])
        return ()

    def hinted(self, prefix: list[int], text: str) -> list[int]:
        """Return the prefix with a user message that holds the hint put before its generation prompt."""
        base = [{"role": "user", "content": "x"}]
        said = [*base, {"role": "user", "content": text}]
        head = len(self.apply_template(base, add_generation_prompt=False))
        generation = self.apply_template(base, add_generation_prompt=True)[head:]
        if not generation or prefix[-len(generation) :] != generation:
            raise TemplateError(
                "The turn does not start right after the template's generation prompt, so no hint can be put there. "
                "Use one of the chat templates that TRL ships for training."
            )
        return prefix[: -len(generation)] + self.apply_template(said, add_generation_prompt=True)[head:]

    def _context(self, rollout: Rollout, error: TurnError) -> SiteContext:
        schemas = {str(_function(tool).get("name", "")): _function(tool).get("parameters") for tool in self.tools}
        return SiteContext(
            site=error.site,
            call=error.call,
            available_tools=tuple(schemas),
            tool_schema=schemas.get(error.call.name) if error.call else None,
            later=tuple(self._later(rollout, error)),
        )

    def _later(self, rollout: Rollout, error: TurnError) -> list[LaterCall]:
        failed = {found.turn.number for found in turn_errors(rollout, self.decode)}
        return [
            LaterCall(tool_call_of(call), turn.number not in failed)
            for turn in turns(rollout)[error.turn.number + 1 :]
            for call in turn.message.get("tool_calls") or ()
        ]


def hinter_of(trainer: Any) -> Hinter:
    """Return the hinter of a trainer's template, tools and options."""
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
        decode=trainer._tokenizer.decode,
        tools=tuple(get_json_schema(tool) for tool in trainer.tools or ()),
        max_sites=trainer.args.max_hint_sites,
        max_teacher_tokens=trainer.args.max_teacher_tokens,
        control=trainer.args.control_hints,
    )


def from_sibling(error: TurnError, sibling: Rollout, decode: Callable[[Sequence[int]], str]) -> Hint | None:
    """Write the call that worked in a better rollout of the same prompt, at this turn or later."""
    failed = {found.turn.number for found in turn_errors(sibling, decode)}
    worked = (turn for turn in turns(sibling)[error.turn.number :] if turn.number not in failed)
    call = next((tool_call_of(call) for turn in worked for call in turn.message.get("tool_calls") or ()), None)
    if call is None:
        return None
    text = f"Reminder: in an attempt that did better, this call worked: {call.name} {canonical_json(call.arguments)}"
    return Hint(excerpt(text, MAX_HINT_CHARS), "sibling", "same_turn", 1, error.site.kind, error.site.call_id)


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    return tool.get("function") or tool
