"""A trace as tokens for supervised fine-tuning, with a mask that leaves out the model's own mistakes.

One row per trace, or per window of it: `input_ids` of its main branch, and `assistant_masks`, 1 on the tokens of the
turns to learn from. A turn whose call was the model's mistake, or that the provider cut off, stays as context with 0,
so that the model learns to recover from an error and not to make it. `SFTTrainer` takes these columns as they are.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from composer_hub import exits
from composer_hub.exports.atif import main_line
from composer_hub.records import MARKER, Message, Step, Trace

if TYPE_CHECKING:
    from datasets import Features

NOT_LEARNED = ("model", "provider")
"""Whose fault an error must be for its turn to be left out."""


class SftError(exits.UsageError):
    """A tokenizer or chat template that does not mark the beginning of a turn."""


class Tokenizer(Protocol):
    """The part of a `transformers` tokenizer that is used."""

    eos_token: str | None

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...

    def __call__(self, text: str, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of the conversation; `learned` if its tokens count."""

    message: Message
    learned: bool
    step: Step | None = None


def features() -> Features:
    """Return the features of the rows."""
    from datasets import Features, Json, List, Value

    return Features(
        {
            "input_ids": List(Value("int32")),
            "assistant_masks": List(Value("int8")),
            "messages": List(Json()),
            "learned_turns": List(Value("int32")),  # places in `messages`
            "trace_id": Value("string"),
            "num_left_out": Value("int32"),  # turns of the model that are context only
        }
    )


def turns_of(trace: Trace, *, compress: bool = False) -> list[Turn]:
    """Return the main branch; `compress` keeps only the last of several failed turns in a row, with its result."""
    steps = {step.action: step for step in trace.steps if step.on_main_branch}
    line = main_line(trace)
    gone: set[int] = set()
    if compress:
        ordered = [steps[index] for index in line if index in steps]
        for step, after in itertools.pairwise(ordered):
            if not _is_learned(step) and not _is_learned(after):
                gone |= {step.action, *step.results}
    return [
        Turn(trace.messages[index], index in steps and _is_learned(steps[index]), steps.get(index))
        for index in line
        if index not in gone
    ]


def _is_learned(step: Step) -> bool:
    return not any(site.blame in NOT_LEARNED for site in step.error_sites)


def sft_rows(
    trace: Trace, tokenizer: Tokenizer, *, compress: bool = False, max_tokens: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a trace: one, or with `max_tokens` as many windows as its turns need.

    Each window opens with the system and the task. Each turn is in one window; one that does not fit is left out.
    """
    turns = turns_of(trace, compress=compress)
    if not any(turn.learned for turn in turns):
        return
    windows: Iterable[Sequence[Turn]] = [turns]
    if max_tokens and _size(trace, turns, tokenizer) > max_tokens:
        windows = _windows(trace, turns, tokenizer, max_tokens)
    for window in windows:
        row = _row(trace, window, tokenizer)
        if row and not 0 < max_tokens < len(row["input_ids"]):
            yield row


def _windows(trace: Trace, turns: Sequence[Turn], tokenizer: Tokenizer, max_tokens: int) -> Iterator[list[Turn]]:
    """Cut a conversation into windows of whole turns with their results."""
    starts = [at for at, turn in enumerate(turns) if turn.message.role == "assistant"]
    opening, marked = list(turns[: starts[0]]), list(turns[: starts[0]])
    if not marked:
        marked = [Turn(Message("user", MARKER), False)]
    else:
        last = marked[-1]
        message = dataclasses.replace(last.message, content=f"{last.message.content}\n\n{MARKER}".lstrip())
        marked[-1] = dataclasses.replace(last, message=message)

    room = max_tokens - _size(trace, marked, tokenizer)
    window, used = opening, 0
    for start, stop in zip(starts, [*starts[1:], len(turns)], strict=True):
        group = turns[start:stop]
        needed = _size(trace, [*marked, *group], tokenizer) + room - max_tokens
        if used and used + needed > room:
            yield window
            window, used = list(marked), 0
        if needed <= room:
            window, used = [*window, *group], used + needed
        elif not used:
            window = list(marked)
    if used:
        yield window


def _size(trace: Trace, turns: Sequence[Turn], tokenizer: Tokenizer) -> int:
    text = _render(tokenizer, [turn.message.to_chat(reasoning=False) for turn in turns], _tools(trace))
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _tools(trace: Trace) -> list[dict[str, Any]]:
    return [dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)} for tool in trace.tools]


def _row(trace: Trace, turns: Sequence[Turn], tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Return the row of a conversation, None if it has no turn to learn from."""
    # A turn that opens a conversation answers nothing, and templates cannot show what comes before it.
    learned = [at for at, turn in enumerate(turns) if turn.learned and at]
    if not learned:
        return None
    messages = [turn.message.to_chat(reasoning=False) for turn in turns]
    tools = _tools(trace)
    text = _render(tokenizer, messages, tools)
    spans = [_span(tokenizer, text, messages, tools, at) for at in learned]
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return {
        "input_ids": encoded["input_ids"],
        "assistant_masks": _mask(encoded["offset_mapping"], spans),
        "messages": messages,
        "learned_turns": learned,
        "trace_id": trace.trace_id,
        "num_left_out": sum(turn.message.role == "assistant" for turn in turns) - len(learned),
    }


def _render(tokenizer: Tokenizer, messages: Sequence[Any], tools: Sequence[Any], *, opened: bool = False) -> str:
    try:
        return str(
            tokenizer.apply_chat_template(
                list(messages), tools=list(tools) or None, tokenize=False, add_generation_prompt=opened
            )
        )
    except Exception as error:  # templates raise what they like
        raise SftError(f"The chat template cannot show a conversation ({error}). Take another --tokenizer.") from error


def _span(
    tokenizer: Tokenizer, text: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], at: int
) -> tuple[int, int]:
    """Return the range of a turn's own tokens: after the assistant's header, with the end mark."""
    before = _render(tokenizer, messages[:at], tools, opened=True)
    if not text.startswith(before):
        raise SftError(
            "The chat template renders a turn in another way once others follow, so its tokens cannot be found. Take "
            "a tokenizer whose template keeps earlier turns as they are."
        )
    closed = _render(tokenizer, messages[: at + 1], tools).rstrip("\n")
    if len(closed) > len(before) and text.startswith(closed):
        end = len(closed)
    else:
        # Some templates add an empty think block to the last turn only. The end mark of a turn is then the next one.
        mark = tokenizer.eos_token or ""
        found = text.find(mark, len(before)) if mark else -1
        end = len(text) if found < 0 else found + len(mark)
    own, after = text[len(before) : end], str(messages[at + 1].get("content") or "") if at + 1 < len(messages) else ""
    # A result may repeat words of its call (`echo ok`), so only what the turn alone does not show is foreign.
    alone = closed[len(os.path.commonprefix([before, closed])) :]  # noqa: RUF071 (of texts, not of paths)
    if (after := after.strip()) and own.count(after) > alone.count(after):
        raise SftError("The end of a turn cannot be found in the chat template's text. Take another --tokenizer.")
    if any(call["function"]["name"] not in own for call in messages[at].get("tool_calls") or ()):
        raise SftError("The chat template does not show tool calls. Take a --tokenizer of a model that calls tools.")
    return len(before), end


def _mask(offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return 1 for each token that is inside a span; both come in order."""
    mask, place = [], 0
    for start, stop in offsets:
        while place < len(spans) and spans[place][1] <= start:
            place += 1
        mask.append(int(place < len(spans) and spans[place][0] <= start and stop <= spans[place][1]))
    return mask
