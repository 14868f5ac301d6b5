"""Hint sites of published traces as tokens of the student.

In: `Trace`s with hints, and the student's tokenizer and name. Out: `HintSite`s like those of live rollouts, and a count
of the hinted steps that cannot be learned from. Exported rollouts carry the tokens that were sampled; other traces are
rendered with the student's template, prompt and action separately. A site's correction is its action with the call
that worked; of a rollout, whose tokens are all that counts, it is the next turn that did not fail.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jinja2.exceptions import TemplateError as JinjaError

from composer_hub import exits
from composer_hub.actions.action import Actions, actions_of
from composer_hub.actions.arguments import parsed_arguments
from composer_hub.errors.context import context_of, next_success, steps_after
from composer_hub.harnesses import family_of
from composer_hub.hints.writers import worked_call
from composer_hub.hub import Model
from composer_hub.pairs.rows import published_prompt, published_tools
from composer_hub.records import Hint, Message, Step, Trace, num_prompt_chars, prompt_of
from composer_hub.train.batch import HintSite
from composer_hub.train.hinting import Hinter, TemplateError
from composer_hub.train.tokens import PairEncoder, tokenizer_digest

# Prompts with more characters per allowed token than this are not tokenized: whole sessions would take minutes.
_CHARS_A_TOKEN = 16


class ForeignTraces(exits.Refused, ValueError):
    """Traces of another model than the student."""


@dataclass(frozen=True, slots=True)
class Student:
    """The model whose traces may be learned from."""

    name: str
    family: str

    @classmethod
    def of(cls, model: Model, config: Any) -> Student:
        """Take the family from the name, or from the architecture if the name does not show it, as for a folder."""
        named = family_of(model.name) if model.is_published else ""
        return cls(model.name, named or family_of(str(getattr(config, "model_type", ""))))

    def wrote(self, trace: Trace, step: Step) -> bool:
        """Return whether the student or a model of its family wrote a step."""
        model = step.model or trace.model
        family = step.family or trace.family or family_of(model)
        return family == self.family if family and self.family else bool(model) and model == self.name


@dataclass
class TraceSites:
    """The sites to learn from, and the reasons why other hinted steps are left out."""

    sites: list[HintSite] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class TraceEncoder:
    """Finds the hinted error steps of traces and turns them into tokens."""

    chats: PairEncoder
    hinter: Hinter
    student: Student
    tokenizer: str  # digest; the tokens of a rollout are valid for the same tokenizer only
    vocabulary: int
    other_families: str = "refuse"

    @classmethod
    def of(
        cls,
        tokenizer: Any,
        student: Student,
        *,
        max_tokens: int,
        template_kwargs: Mapping[str, Any] | None = None,
        other_families: str = "refuse",
        control: bool = False,
    ) -> TraceEncoder:
        """Use the template that live rollouts of the same student would use."""
        chats = PairEncoder.of(tokenizer, max_tokens=max_tokens, template_kwargs=template_kwargs)
        hinter = Hinter(_template_of(chats), max_teacher_tokens=max_tokens, control=control)
        return cls(chats, hinter, student, tokenizer_digest(tokenizer), len(tokenizer), other_families)

    def encode(self, traces: Iterable[Trace]) -> TraceSites:
        """Encode every hinted step that is the student's own fault; count the others by reason."""
        found = TraceSites()
        found.sites.extend(self.each(traces, found.dropped))
        return found

    def each(self, traces: Iterable[Trace], dropped: Counter[str]) -> Iterator[HintSite]:
        """Yield the site of every hinted step that is the student's own fault; count the others by reason."""
        for trace in traces:
            places = [
                place
                for place, step in enumerate(trace.steps)
                if any(site.blame == "model" for site in step.error_sites)
            ]
            actions = actions_of(trace) if places else ()  # once: a long session has many places
            for place in places:
                site = self.one(trace, place, actions)
                if isinstance(site, str):
                    dropped[site] += 1
                else:
                    yield site

    def one(self, trace: Trace, place: int, actions: Actions) -> HintSite | str:
        """Return a step as a site, or why it cannot be one."""
        step = trace.steps[place]
        hint = hint_of(step)
        if step.failed_by_provider or hint is None:
            return "provider_failure" if step.failed_by_provider else "no_hint"
        if hint.writer == "control" and not self.hinter.control:
            return "control_hint"
        sampled = trace.provenance.get("tokenizer") == self.tokenizer
        if not sampled and self._is_foreign(trace, step):
            return "other_family"
        tokens = self._tokens(trace, step, sampled)
        if isinstance(tokens, str):
            return tokens
        corrected = self._succeeding(trace, place) if sampled else self._repaired(trace, place, hint, actions)
        try:
            site = self.hinter.place(hint, *tokens, corrected)
        except TemplateError:
            return "template_has_another_generation_prompt"
        return dataclasses.replace(site, is_exact=sampled) if site else "longer_than_max_teacher_tokens"

    def _is_foreign(self, trace: Trace, step: Step) -> bool:
        if self.other_families == "take" or self.student.wrote(trace, step):
            return False
        if self.other_families == "leave_out":
            return True
        model = step.model or trace.model or "an unknown model"
        own = self.student.family or "unknown"
        raise ForeignTraces(
            f"Step {step.index} of trace {trace.trace_id} was written by {model}, not by the student "
            f"{self.student.name} (family {own}). Hints should come from the student's own traces: use "
            "--other_families leave_out to learn from those only, or take to learn from all."
        )

    # ------------------------------------------------------------------------------------------------------ tokens

    def tokens_of(self, trace: Trace, step: Step) -> tuple[Sequence[int], Sequence[int]] | str:
        """Return the tokens before any step and those of its action, or why the student cannot read them."""
        tokens = self._tokens(trace, step, trace.provenance.get("tokenizer") == self.tokenizer)
        is_long = not isinstance(tokens, str) and len(tokens[0]) + len(tokens[1]) > self.hinter.max_teacher_tokens
        return "longer_than_max_tokens" if is_long else tokens

    def _tokens(self, trace: Trace, step: Step, sampled: bool) -> tuple[Sequence[int], Sequence[int]] | str:
        return self._sampled(trace, step) if sampled else self._written(trace, step)

    def _sampled(self, trace: Trace, step: Step) -> tuple[Sequence[int], Sequence[int]] | str:
        """Return the tokens before a turn of an exported rollout and those of the turn."""
        try:
            prompt, completion, turns = (trace.provenance[name] for name in ("prompt_ids", "completion_ids", "turns"))
            if not step.prefix_exact or step.index >= len(turns):
                return "no_sampled_tokens"
            start, stop = turns[step.index]
            fits = 0 <= start < stop <= len(completion) and prompt and min(*prompt, *completion) >= 0
            if not fits or max(*prompt, *completion) >= self.vocabulary:
                return "tokens_do_not_fit"
            return array("i", [*prompt, *completion[:start]]), array("i", completion[start:stop])
        except (KeyError, TypeError, ValueError):  # these rows come from another program
            return "tokens_do_not_fit"

    def _written(
        self, trace: Trace, step: Step, action: Message | None = None
    ) -> tuple[Sequence[int], Sequence[int]] | str:
        """Return the prompt of a step, and its action or another one, as the student's template renders them."""
        action = action or trace.messages[step.action]
        if step.reasoning_status in ("summary", "encrypted"):
            return "thinking_was_not_recorded"  # without it these are not the tokens that were sampled
        if any(parsed_arguments(call) is None for call in action.tool_calls):
            return "template_cannot_write_it"
        if num_prompt_chars(trace, step) > _CHARS_A_TOKEN * self.hinter.max_teacher_tokens:
            return "longer_than_max_teacher_tokens"
        messages, tools = _as_read(prompt_of(trace, step)), published_tools(trace)
        try:
            prompt = self.chats.text(messages, tools, add_generation_prompt=True)
            answer = self.chats.answer(prompt, messages, _as_read((action,)), tools)
        except (JinjaError, TypeError, ValueError):
            return "template_cannot_write_it"
        if answer is None:
            return "template_rewrites_the_prompt"
        ids = self.chats.ids(answer)
        return (self.chats.ids(prompt), ids) if ids else "empty_action"

    def _succeeding(self, trace: Trace, place: int) -> Sequence[int]:
        """Return the sampled tokens of the first later call on the same branch that worked, as at live sites."""
        success = next_success(trace, steps_after(trace, place))
        tokens = self._sampled(trace, success) if success else ""
        return () if isinstance(tokens, str) else tokens[1]

    def _repaired(self, trace: Trace, place: int, hint: Hint, actions: Actions) -> Sequence[int]:
        """Return the tokens of the action with the call that worked later in the place of the one that failed.

        The words around it stay, so that both actions part at the mistake and nowhere before.
        """
        step = trace.steps[place]
        site = next(one for one in step.error_sites if (one.kind, one.call_id) == (hint.kind, hint.call_id))
        worked = worked_call(context_of(trace, place, site, actions))
        if worked is None:
            return ()
        action, failed = trace.messages[step.action], (site.call_id, site.tool)
        calls = tuple(
            dataclasses.replace(worked, call_id=call.call_id) if (call.call_id, call.name) == failed else call
            for call in action.tool_calls
        )
        tokens = self._written(trace, step, dataclasses.replace(action, tool_calls=calls))
        return () if isinstance(tokens, str) else tokens[1]


def hint_of(step: Step) -> Hint | None:
    """Return the first hint for a site of the step that is the model's fault."""
    sites = {(site.kind, site.call_id) for site in step.error_sites if site.blame == "model"}
    return next((hint for hint in step.hints if (hint.kind, hint.call_id) in sites), None)


def _as_read(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return messages with objects as arguments, as templates expect, and with their recorded thinking."""
    return tuple(
        dataclasses.replace(published, reasoning_content=message.reasoning_content)
        for message, published in zip(messages, published_prompt(messages), strict=True)
    )


def _template_of(chats: PairEncoder) -> Callable[..., list[int]]:
    def apply_template(messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> list[int]:
        plain = [Message(message["role"], message["content"]) for message in messages]
        return list(chats.ids(chats.text(plain, (), add_generation_prompt=add_generation_prompt)))

    return apply_template
