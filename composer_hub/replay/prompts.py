"""The prompt of a step: its chat messages, an upper bound of its tokens, and the key of the question.

In: a `Trace`. Out: chat messages (without thinking, each call followed by its result), a token bound and a digest. All
of it is computed once per message, so the cost of growing prompts is linear in the length of the trace.

**The token bound.** A byte-level tokenizer makes at most one token per byte, so the UTF-8 bytes of the JSON that is
sent bound the tokens of its text. The syntax of the JSON pays for most markers of a chat template; `MESSAGE_MARKERS`,
`TOOL_MARKERS` and `TEMPLATE_PREAMBLE` are added for the rest. Tokenizers that normalize (NFKC) may lengthen text
before they split it, so the longer form counts. Once the endpoint has counted a prefix of the prompt, its count plus
a margin replaces the bytes of the prefix (`bound_after`), which brings the bound within a few percent.
"""

from __future__ import annotations

import functools
import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from composer_hub.pairs.prompts import message_at, wire_message
from composer_hub.pairs.rows import published_tools
from composer_hub.records import Message, Step, Trace, canonical_json

MESSAGE_MARKERS = 16
TOOL_MARKERS = 64
TEMPLATE_PREAMBLE = 1024
PREFIX_MARGIN = 1.02
"""A template may render a message slightly differently if it is not the last one."""

BYTES_PER_TOKEN = 3.6  # of English and code, for expectations only


@dataclass(frozen=True, slots=True)
class Prompt:
    """The messages before a step, with their size and digest."""

    chat: list[dict[str, Any]]
    positions: tuple[int, ...]  # of each chat message in the trace; below 0 for one that is not in it
    bound: int  # tokens, at most, tools included
    num_bytes: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Counted:
    """A prompt that the endpoint has counted; bounds of later prompts in the lane build on it."""

    positions: tuple[int, ...]
    tokens: int


class Prompts:
    """The prompts of one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.tools = list(published_tools(trace))
        self._tool_text = canonical_json(self.tools)
        self.tool_bytes = len(self._tool_text.encode("utf-8", "surrogatepass"))
        self.tool_bound = self.tool_bytes + TOOL_MARKERS * len(self.tools) + TEMPLATE_PREAMBLE
        self._pieces: dict[int, _Piece] = {}

    def of(self, step: Step) -> Prompt:
        """Return the prompt of a step."""
        indices = self._positions(step)
        pieces = [self._piece(index) for index in indices]
        digest = hashlib.sha256(b"".join(piece.digest for piece in pieces)).digest()
        return Prompt(
            chat=[message for piece in pieces for message in piece.chat],
            positions=tuple(indices),
            bound=self.tool_bound + sum(piece.bound for piece in pieces),
            num_bytes=self.tool_bytes + sum(piece.num_bytes for piece in pieces),
            digest=digest,
        )

    def num_bytes(self, step: Step) -> int:
        """Return the size of a step's prompt without building it."""
        return self.tool_bytes + sum(size for _, size in self.sizes(step))

    def sizes(self, step: Step) -> list[tuple[int, int]]:
        """Return (position, bytes) of each message of a step's prompt."""
        return [(index, self._piece(index).num_bytes) for index in self._positions(step)]

    def bound_after(self, prompt: Prompt, counted: Counted | None) -> int:
        """Return the token bound of a prompt, given the endpoint's count of a prefix."""
        if counted is None or prompt.positions[: len(counted.positions)] != counted.positions:
            return prompt.bound
        new = prompt.positions[len(counted.positions) :]
        tail = sum(self._piece(index).bound for index in new)
        return min(prompt.bound, int(counted.tokens * PREFIX_MARGIN) + MESSAGE_MARKERS + tail)

    def key(self, route: str, prompt: Prompt, params: Mapping[str, Any], attempt: int) -> str:
        """Return the key of a question: a digest of everything that shapes its answer."""
        parts = (route.encode(), prompt.digest, self._tool_digest, canonical_json(params).encode(), b"%d" % attempt)
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()

    @functools.cached_property
    def _tool_digest(self) -> bytes:
        return hashlib.sha256(self._tool_text.encode("utf-8", "surrogatepass")).digest()

    def _positions(self, step: Step) -> list[int]:
        return [index for start, stop in step.prompt for index in range(start, stop)]

    def _piece(self, index: int) -> _Piece:
        if index not in self._pieces:
            self._pieces[index] = _piece(message_at(self.trace, index), index)
        return self._pieces[index]


@dataclass(frozen=True, slots=True)
class _Piece:
    chat: list[dict[str, Any]]  # empty for a message that has only thinking
    bound: int
    num_bytes: int
    digest: bytes


def _piece(message: Message, index: int) -> _Piece:
    chat = wire_message(message, index)
    if chat is None:
        return _Piece([], 0, 0, b"")
    text = canonical_json(chat)
    data = text.encode("utf-8", "surrogatepass")
    longest = (
        len(data)
        if text.isascii()
        else max(len(data), len(unicodedata.normalize("NFKC", text).encode(errors="replace")))
    )
    bound = longest + MESSAGE_MARKERS + TOOL_MARKERS * len(message.tool_calls)
    return _Piece([chat], bound, len(data), hashlib.sha256(data).digest())


def alone(message: Message) -> Prompt:
    """Return the prompt of one message, outside of any trace."""
    piece = _piece(message, 0)
    # No other prompt begins with this one, so no count of the endpoint bounds it.
    place = -1 - int.from_bytes(piece.digest[:8], "big")
    return Prompt(piece.chat, (place,), piece.bound + TEMPLATE_PREAMBLE, piece.num_bytes, piece.digest)


def marked(chat: Sequence[dict[str, Any]], also: int = 0) -> list[dict[str, Any]]:
    """Return the chat with cache marks on its last message, on the one before `also` and on the system prompt.

    The second mark is at the end of the lane's last prompt: the provider looks back only 20 blocks from a mark, and a
    step with many parallel calls adds more than that.
    """
    places = {len(chat) - 1, also - 1, 0 if chat and chat[0]["role"] == "system" else -1}
    return [_mark(message) if place in places else message for place, message in enumerate(chat)]


def _mark(message: dict[str, Any]) -> dict[str, Any]:
    if not message["content"]:
        return message
    part = {"type": "text", "text": message["content"], "cache_control": {"type": "ephemeral"}}
    return {**message, "content": [part]}


def expected_tokens(num_bytes: int) -> int:
    """Estimate the tokens of a text."""
    return int(num_bytes / BYTES_PER_TOKEN) + 1
