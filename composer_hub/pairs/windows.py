"""Windows: a prompt, the answers to it and a test of what fits -> the part of the prompt that a trainer can take.

A window keeps the system messages, the first and the latest message of the user, the messages that show what the
answers depend on (`evidence.py`), and the last messages in whole groups of calls and results. A marker stands where
messages are missing. If even the last exchange does not fit so, long texts lose their middle, but never what an answer
depends on. Tools that nothing in the window calls are left out of a window, not of a whole prompt.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from composer_hub.actions.tools import is_script
from composer_hub.pairs.evidence import Need, needs_of, texts_in, texts_of
from composer_hub.records import MARKER, Message, ToolCall, canonical_json

MAX_TOKENS = 4096  # of prompt, tools and the longer answer; what the trainer takes by default
VERSION = "2"  # of the rule: reference log-probs hold for one rule only

# Real tokenizers take 3 to 4.5 bytes of code and English per token, so that this estimate is rarely too low.
_BYTES_PER_TOKEN = 3
_MESSAGE_TOKENS = 8
_GAP = 60  # a shorter gap is not worth its mark
_ROOMS = (8000, 4000, 2000, 1000, 500)
"""Characters that a text may keep, one after the other until the last exchange fits."""

Tools = Sequence[Mapping[str, Any]]
Spans = Sequence[tuple[int, int]]
Fits = Callable[[Sequence[Message], Tools], bool]
Count = Callable[[Sequence[Message], Tools, Iterable[Message]], int]


@dataclass(frozen=True, slots=True)
class Window:
    """A prompt, or the part of it that fits."""

    messages: tuple[Message, ...]
    num_left_out: int  # messages
    places: tuple[int, ...]  # of its messages in the prompt
    tools: tuple[Any, ...] = ()
    num_shortened: int = 0  # messages whose middle is missing


def window_of(messages: Sequence[Message], answers: Sequence[Message], tools: Tools, fits: Fits) -> Window:
    """Return the whole prompt if it fits, or its longest window that does; the shortest window if none does."""
    whole = Window(tuple(messages), 0, tuple(range(len(messages))), tuple(tools))
    if not messages or fits(messages, tools):
        return whole
    needs = list(dict.fromkeys(need for answer in answers for need in needs_of(answer)))
    shown = frozenset(at for need in needs if (at := place_of(need, messages)) is not None)
    kept = _pinned(messages) | {at for one in shown for at in _group(messages, one)}

    def used(view: Sequence[Message]) -> list[Any]:
        called = {call.name for message in (*view, *answers) for call in message.tool_calls}
        return [tool for tool in tools if tool.get("function", tool).get("name") in called]

    @functools.cache
    def spans(text: str) -> Spans:
        return [span for need in needs if (span := need.span(text))]

    window = whole
    message: Callable[[int], Message] = messages.__getitem__
    for room in (0, *_ROOMS):
        if room:
            message = _shortened_in(messages, room, spans)
        window = _longest(messages, message, lambda view: fits(view, used(view)), kept)
        if fits(window.messages, used(window.messages)):
            break
    num_shortened = sum(message(at) != messages[at] for at in window.places)
    return replace(window, tools=tuple(used(window.messages)), num_shortened=num_shortened)


def estimate(messages: Sequence[Message], tools: Tools, answers: Iterable[Message]) -> int:
    """Estimate the tokens of a prompt with its tools and the longest answer, without a tokenizer."""
    longest = max((num_tokens([message]) for message in answers), default=0)
    return num_tokens(messages) + tokens_of_tools(tools) + longest


def counter(tokenizer: Any) -> Count:
    """Return what counts as `estimate` does, by a tokenizer and its chat template; the estimate for None."""
    if tokenizer is None:
        return estimate

    def num_rendered(chat: Sequence[Message], tools: Tools) -> int:
        text = tokenizer.apply_chat_template([one.to_chat() for one in chat], tools=list(tools) or None, tokenize=False)
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    def count(messages: Sequence[Message], tools: Tools, answers: Iterable[Message]) -> int:
        return max(num_rendered([*messages, answer], tools) for answer in answers)

    return count


def is_supported(prompt: Sequence[Message], action: Message) -> bool:
    """Return whether a prompt shows every text that an action replaces and every file that it names."""
    return all(place_of(need, prompt) is not None for need in needs_of(action))


def _longest(
    messages: Sequence[Message],
    message: Callable[[int], Message],  # as a window shows it, by its place
    fits: Callable[[Sequence[Message]], bool],
    pinned: Collection[int],
) -> Window:
    """Return the longest window that fits; the shortest if none does."""
    starts = [at for at, one in enumerate(messages) if one.role != "tool"][:0:-1] or [0]

    def view(number: int) -> Window:
        return _view(len(messages), message, pinned, starts[number])

    # From the short end in growing strides: a long session is never rendered in full.
    stride = 1
    while stride < len(starts) and fits(view(stride).messages):
        stride *= 2
    low, high = stride // 2, min(stride, len(starts))
    return view(low + bisect_left(range(low + 1, high), True, key=lambda number: not fits(view(number).messages)))


def num_tokens(messages: Iterable[Message]) -> int:
    """Estimate the tokens of messages without a tokenizer: a third of their bytes, rounded up, and some for each."""
    return sum(-(-_num_bytes(message) // _BYTES_PER_TOKEN) + _MESSAGE_TOKENS for message in messages)


def tokens_of_tools(tools: Sequence[Mapping[str, Any]]) -> int:
    """Estimate the tokens of tool schemas."""
    return -(-len(canonical_json(list(tools)).encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def _num_bytes(message: Message) -> int:
    texts = [message.content, message.reasoning_content]
    for call in message.tool_calls:
        texts += [call.name, canonical_json(call.arguments)]
    return sum(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _pinned(messages: Sequence[Message]) -> frozenset[int]:
    """Return the places of the messages that every window keeps."""
    users = [at for at, message in enumerate(messages) if message.role == "user"]
    head = next((at for at, message in enumerate(messages) if message.role not in ("system", "developer")), 0)
    return frozenset([*range(head), *users[:1], *users[-1:]])


def _view(num: int, message: Callable[[int], Message], pinned: Collection[int], start: int) -> Window:
    """Return the window of `num` messages whose contiguous end begins at `start`."""
    kept = [at for at in range(num) if at >= start or at in pinned]
    shown = [] if kept[:1] in ([0], []) else [Message("user", MARKER)]
    for at, after in zip(kept, [*kept[1:], num], strict=True):
        one = message(at)
        if after > at + 1 and not one.content.endswith(MARKER):
            # In the message before the gap, because templates may refuse two messages of the user in a row.
            one = replace(one, content=f"{one.content}\n\n{MARKER}".lstrip())
        shown.append(one)
    return Window(tuple(shown), num - len(kept), tuple(kept))


# ---------------------------------------------------------------------------------------------------------- evidence


def place_of(need: Need, messages: Sequence[Message]) -> int | None:
    """Return the place of the last message that shows what is needed."""
    return next(
        (at for at in range(len(messages) - 1, -1, -1) if any(need.span(text) for text in texts_of(messages[at]))), None
    )


def _group(messages: Sequence[Message], at: int) -> range:
    """Return the places of the message's calls with all of their results."""
    start, stop = at, at + 1
    while start > 0 and messages[start].role == "tool":
        start -= 1
    while stop < len(messages) and messages[stop].role == "tool":
        stop += 1
    return range(start, stop)


def _shortened_in(messages: Sequence[Message], room: int, spans: Callable[[str], Spans]) -> Callable[[int], Message]:
    """Return the messages by place; a text is cut when it is asked for, because most never are."""
    return functools.cache(lambda at: _shortened(messages[at], room, spans))


def _shortened(message: Message, room: int, spans: Callable[[str], Spans]) -> Message:
    def cut(text: str) -> str:
        return text if len(text) <= room else _cut(text, room, spans(text))

    def shortened(call: ToolCall) -> ToolCall:
        # In a script, a text is spelled with its escapes, where no span can be found.
        if is_script(call.name, call.arguments) and any(map(spans, texts_in(call))):
            return call
        return replace(call, arguments=_mapped(call.arguments, cut))

    return replace(message, content=cut(message.content), tool_calls=tuple(map(shortened, message.tool_calls)))


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(one, change) for key, one in value.items()}
    return [_mapped(one, change) for one in value] if isinstance(value, list) else value


def _cut(text: str, room: int, spans: Spans) -> str:
    """Return the beginning, the spans with their surroundings, and the end of a long text."""
    around = room // (2 * len(spans) + 2)
    parts: list[tuple[int, int]] = []
    for start, stop in sorted([(0, 0), *spans, (len(text), len(text))]):
        start, stop = max(start - around, 0), min(stop + around, len(text))
        if parts and start <= parts[-1][1] + _GAP:
            parts[-1] = parts[-1][0], max(stop, parts[-1][1])
        else:
            parts.append((start, stop))
    shown = [text[: parts[0][1]]]
    for (_, before), (start, stop) in itertools.pairwise(parts):
        shown += [f"\n[… {start - before:,} characters are left out here …]\n", text[start:stop]]
    return "".join(shown)
