"""Windows: a prompt, the answers to it and a test of what fits -> the part of the prompt that a trainer can take.

A window keeps the system messages, the first and the latest words of the user, the messages that show what the answers
depend on (`evidence.py`), and the last messages in whole groups of calls and results. A marker replaces
missing messages. Messages that are kept as evidence alone are excerpts. If the last exchange still does not
fit, or hides names that the answer needs, long texts lose their middle, but never what an answer depends on.
Tools that nothing in the window calls are left out of a window, not of a whole prompt.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from composer_hub.actions.tools import is_script
from composer_hub.pairs.evidence import Need, names_of, needs_of, texts_in, texts_of
from composer_hub.pairs.prompts import NO_RESULT
from composer_hub.records import MARKER, Message, ToolCall, canonical_json, own_words

MAX_TOKENS = 4096  # of prompt, tools and the longer answer; what the trainer takes by default
VERSION = "3"  # of the rule: reference log-probs hold for one rule only

# Windows fill their limit, so the estimate must not be too low: a tokenizer of 49,000 words that splits numbers into
# digits takes 2.5 bytes or more per token in nine of ten windows.
_BYTES_PER_TOKEN = 2.5
_MESSAGE_TOKENS = 8
_GAP = 60  # a shorter gap is not worth its mark
_ROOMS = (8000, 4000, 2000, 1000, 500)
"""Characters that a text may keep, one after the other until the last exchange fits."""
_LEAST_ROOM = 1000  # for the sake of a name, no text is cut shorter
_EXCERPT = 1500  # characters around what a message from before the last ones shows
_BESIDE = 300  # characters of a call or result that is kept only because its group is

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
    """Return the whole prompt if it fits, or a window that does; the shortest window if none does.

    The first of the answers is the one to learn. What the others depend on is shown if there is room.
    """
    if not messages or fits(messages, tools):
        return Window(tuple(messages), 0, tuple(range(len(messages))), tuple(tools))

    def used(shown: Sequence[Message]) -> list[Any]:
        called = {call.name for message in (*shown, *answers) for call in message.tool_calls}
        return [tool for tool in tools if tool.get("function", tool).get("name") in called]

    def fitting(window: Window) -> bool:
        return fits(window.messages, used(window.messages))

    needs = [need for answer in answers[:1] for need in needs_of(answer)]
    places = [(at, need) for need in needs if (at := place_of(need, messages)) is not None]
    view = _View(messages, _pinned(messages)).showing(places)
    starts = [at for at, one in enumerate(messages) if one.role != "tool"][:0:-1] or [0]
    wishes, own = _wishes(messages, answers), {need for answer in answers[:1] for need in names_of(answer)}
    best, fewest = replace(view, room=_ROOMS[-1]), len(wishes) + 1
    for room in (0, *_ROOMS):
        base = replace(view, room=room)
        if not fitting(base.window(starts[0])):
            continue
        missing = _missing(wishes, base.window(starts[0]))
        views = [base.showing(missing[:num]) for num in range(len(missing) + 1)]
        num = bisect_left(views, True, lo=1, key=lambda one: not fitting(one.window(starts[0]))) - 1
        num_hidden = sum(need in own for _, need in missing[num:])
        if num_hidden < fewest:
            best, fewest = views[num], num_hidden
        if not fewest or room == _LEAST_ROOM:
            break
    window = _longest(best, starts, fitting)
    return replace(window, tools=tuple(used(window.messages)))


def estimate(messages: Sequence[Message], tools: Tools, answers: Iterable[Message]) -> int:
    """Estimate the tokens of a prompt with its tools and the longest answer, without a tokenizer."""
    longest = max((num_tokens([message]) for message in answers), default=0)
    return num_tokens(messages) + tokens_of_tools(tools) + longest


def counter(tokenizer: Any) -> Count:
    """Return a counter like `estimate` that uses a tokenizer and its chat template; `estimate` for None."""
    if tokenizer is None:
        return estimate

    def num_rendered(chat: Sequence[Message], tools: Tools) -> int:
        text = tokenizer.apply_chat_template([one.to_chat() for one in chat], tools=list(tools) or None, tokenize=False)
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    def count(messages: Sequence[Message], tools: Tools, answers: Iterable[Message]) -> int:
        return max(num_rendered([*messages, answer], tools) for answer in answers)

    return count


def is_supported(shown: Sequence[Message], action: Message, whole: Sequence[Message]) -> bool:
    """Return whether a window shows what an action depends on, and its names that the whole prompt shows.

    It shows nothing if the results of the last calls were not recorded: the student read them.
    """
    if any(one.content == NO_RESULT for one in itertools.takewhile(lambda one: one.role == "tool", reversed(shown))):
        return False
    names = (name for name in names_of(action) if place_of(name, shown) is None)
    return all(place_of(need, shown) is not None for need in needs_of(action)) and all(
        place_of(name, whole) is None for name in names
    )


def _longest(view: _View, starts: Sequence[int], fitting: Callable[[Window], bool]) -> Window:
    """Return the longest window that fits; the shortest if none does."""
    # From the short end in growing strides: a long session is never rendered in full.
    stride = 1
    while stride < len(starts) and fitting(view.window(starts[stride])):
        stride *= 2
    low, high = stride // 2, min(stride, len(starts))
    places = range(low + 1, high)
    return view.window(starts[low + bisect_left(places, True, key=lambda at: not fitting(view.window(starts[at])))])


def num_tokens(messages: Iterable[Message]) -> int:
    """Estimate the tokens of messages without a tokenizer, by their bytes, and some for each."""
    return sum(math.ceil(_num_bytes(message) / _BYTES_PER_TOKEN) + _MESSAGE_TOKENS for message in messages)


def tokens_of_tools(tools: Sequence[Mapping[str, Any]]) -> int:
    """Estimate the tokens of tool schemas."""
    return math.ceil(len(canonical_json(list(tools)).encode("utf-8", "surrogatepass")) / _BYTES_PER_TOKEN)


def _num_bytes(message: Message) -> int:
    texts = [message.content, message.reasoning_content]
    for call in message.tool_calls:
        texts += [call.name, canonical_json(call.arguments)]
    return sum(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _pinned(messages: Sequence[Message]) -> frozenset[int]:
    """Return the places of the messages that every window keeps."""
    users = _words_of_users(messages)
    head = next((at for at, message in enumerate(messages) if message.role not in ("system", "developer")), 0)
    return frozenset([*range(head), *users[:1], *users[-1:]])


def _words_of_users(messages: Sequence[Message]) -> list[int]:
    """Return the places of the messages with a user's own words; some harnesses put all of them in blocks."""
    users = [at for at, message in enumerate(messages) if message.role == "user" and message.content.strip()]
    return [at for at in users if own_words(messages[at].content)] or users


@dataclass(frozen=True, slots=True)
class _View:
    """How a prompt is shown: the places that are kept, and how much of each message."""

    messages: Sequence[Message]
    pinned: frozenset[int]
    room: int = 0  # characters of a text; 0: all of it
    evidence: Mapping[int, tuple[Need, ...]] = field(default_factory=dict)  # place -> what it shows
    _rendered: dict[Any, Message] = field(default_factory=dict)  # shared by all views of the prompt

    def showing(self, places: Iterable[tuple[int, Need | None]]) -> _View:
        """Return the view that keeps some more places."""
        evidence = dict(self.evidence)
        for at, need in places:
            evidence[at] = (*evidence.get(at, ()), *([need] if need else []))
        return replace(self, evidence=evidence)

    def window(self, start: int) -> Window:
        """Return the window whose contiguous end begins at a place."""
        num = len(self.messages)
        groups = {at for one in self.evidence for at in _group(self.messages, one)}
        kept = [at for at in range(num) if at >= start or at in self.pinned or at in groups]
        shown = [] if kept[:1] in ([0], []) else [Message("user", MARKER)]
        texts = [self._message(at, start) for at in kept]
        for one, at, after in zip(texts, kept, [*kept[1:], num], strict=True):
            if after > at + 1 and not one.content.endswith(MARKER):
                # In the message before the gap, because templates may refuse two messages of the user in a row.
                one = replace(one, content=f"{one.content}\n\n{MARKER}".lstrip())
            shown.append(one)
        num_shortened = sum(one != self.messages[at] for one, at in zip(texts, kept, strict=True))
        return Window(tuple(shown), num - len(kept), tuple(kept), num_shortened=num_shortened)

    def _message(self, at: int, start: int) -> Message:
        room, needs = self.room, self.evidence.get(at, ())
        if at < start and at not in self.pinned:
            most = _EXCERPT if at in self.evidence else _BESIDE
            room = min(room // 2, most) if room else most
        key = at, room, needs
        if key not in self._rendered:
            self._rendered[key] = _shortened(self.messages[at], room, needs) if room else self.messages[at]
        return self._rendered[key]


# ---------------------------------------------------------------------------------------------------------- evidence


@dataclass(frozen=True, slots=True)
class _Wish:
    """A name that the session showed, or words of the user, which a window keeps if there is room."""

    places: Sequence[int]  # that show it
    need: Need | None = None  # None: the whole message


def _wishes(messages: Sequence[Message], answers: Sequence[Message]) -> list[_Wish]:
    """Return the names of the first answer, the words of the user, and all that the others depend on.

    The rarest name comes first: it is the one that the last messages are least likely to show.
    """
    texts = [[*texts_of(message)] for message in messages]

    def shown(needs: Iterable[Need]) -> list[_Wish]:
        places = {need: [at for at, one in enumerate(texts) if any(map(need.span, one))] for need in needs}
        return [_Wish(found, need) for need, found in places.items() if found]

    def rarest(actions: Sequence[Message]) -> list[_Wish]:
        return sorted(shown([need for one in actions for need in names_of(one)]), key=lambda wish: len(wish.places))

    users = [_Wish([at]) for at in reversed(_words_of_users(messages))]
    replaced = shown([need for one in answers[1:] for need in needs_of(one)])
    return [*rarest(answers[:1]), *users, *replaced, *rarest(answers[1:])]


def _missing(wishes: Iterable[_Wish], window: Window) -> list[tuple[int, Need | None]]:
    """Return the wishes that a window does not show, each at a place that is kept anyway, or its last one."""
    kept, missing = set(window.places), []
    for wish in wishes:
        if wish.need is None and wish.places[-1] in kept:
            continue
        if wish.need is not None and place_of(wish.need, window.messages) is not None:
            continue
        at = next((at for at in reversed(wish.places) if at in kept), wish.places[-1])
        kept.add(at)
        missing.append((at, wish.need))
    return missing


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


def _shortened(message: Message, room: int, needs: Sequence[Need]) -> Message:
    def spans(text: str) -> Spans:
        return [span for need in needs if (span := need.span(text))]

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
