"""Windows: the messages of a prompt and a test of what fits -> the part of it that a trainer can take.

A window keeps the system messages, the first and the latest message of the user, and the last messages in whole groups
of calls and results. A marker stands where messages are missing. A window of a window is the window of the whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from composer_hub.records import MARKER, Message, canonical_json

MAX_TOKENS = 4096  # of prompt, tools and the longer answer; what the trainer takes by default
VERSION = "1"  # of the rule: reference log-probs hold for one rule only

# Real tokenizers take 3 to 4.5 bytes of code and English per token, so that this estimate is rarely too low.
_BYTES_PER_TOKEN = 3
_MESSAGE_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Window:
    """A prompt, or the part of it that fits."""

    messages: tuple[Message, ...]
    num_left_out: int  # messages


def fitted(messages: Sequence[Message], fits: Callable[[Sequence[Message]], bool]) -> Window:
    """Return the whole prompt if it fits, or its longest window that does; the shortest window if none does."""
    whole = Window(tuple(messages), 0)
    if not messages or fits(messages):
        return whole
    pinned = _pinned(messages)
    starts = [at for at, message in enumerate(messages) if message.role != "tool"][:0:-1]
    if not starts:
        return whole
    # From the short end in growing strides: a long session is never rendered in full.
    stride = 1
    while stride < len(starts) and fits(_view(messages, pinned, starts[stride]).messages):
        stride *= 2
    low, high = stride // 2, min(stride, len(starts))
    longest = bisect_left(
        range(low + 1, high), True, key=lambda at: not fits(_view(messages, pinned, starts[at]).messages)
    )
    return _view(messages, pinned, starts[low + longest])


def window_of(
    messages: Sequence[Message], answers: Iterable[Message], tools: Sequence[Mapping[str, Any]], *, max_tokens: int
) -> tuple[Window, int]:
    """Return the window of a prompt, or with 0 all of it, and the estimated tokens with tools and the longer answer."""
    rest = max((num_tokens([message]) for message in answers), default=0) + tokens_of_tools(tools)
    if not max_tokens:
        window = Window(tuple(messages), 0)
    else:
        window = fitted(messages, lambda view: num_tokens(view) + rest <= max_tokens)
    return window, num_tokens(window.messages) + rest


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


def _view(messages: Sequence[Message], pinned: frozenset[int], start: int) -> Window:
    """Return the window whose contiguous end begins at `start`."""
    kept = [at for at in range(len(messages)) if at >= start or at in pinned]
    shown = [] if kept[0] == 0 else [Message("user", MARKER)]
    for at, after in zip(kept, [*kept[1:], len(messages)], strict=True):
        message = messages[at]
        if after > at + 1 and not message.content.endswith(MARKER):
            # In the message before the gap, because templates may refuse two messages of the user in a row.
            message = replace(message, content=f"{message.content}\n\n{MARKER}".lstrip())
        shown.append(message)
    return Window(tuple(shown), len(messages) - len(kept))
