"""A message that a harness prints or stores piece by piece: pieces in, one step of a `Conversation` out."""

from __future__ import annotations

from composer_hub.ingest.conversation import Conversation, StepDraft
from composer_hub.ingest.readers.blocks import Blocks
from composer_hub.records import Message, ToolCall
from composer_hub.session import NO_USAGE, Usage


class Pieces:
    """The pieces of the assistant's message that is still open; any other record closes it."""

    def __init__(self, talk: Conversation) -> None:
        self.talk = talk
        self.key = ""
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[ToolCall] = []
        self._usage, self._model, self._hides = NO_USAGE, "", False

    def add(
        self,
        *,
        text: str = "",
        thought: str = "",
        call: ToolCall | None = None,
        usage: Usage = NO_USAGE,
        model: str = "",
    ) -> None:
        """Add a piece."""
        self._texts += filter(None, [text])
        self._thoughts += filter(None, [thought])
        self._calls += filter(None, [call])
        self._usage |= usage
        self._model = model or self._model

    def take(self, blocks: Blocks) -> None:
        """Add the blocks of a piece."""
        self._texts += filter(None, blocks.texts)
        self._thoughts += filter(None, blocks.thoughts)
        self._calls += blocks.calls

    def hide(self) -> None:
        """Note that the message began with thinking that is recorded only encrypted or as a summary."""
        self._hides = True

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    @property
    def is_open(self) -> bool:
        return bool(self._texts or self._thoughts or self._calls)

    def close(self, separator: str = "\n") -> StepDraft | None:
        """Turn the pieces into a step, if there are any."""
        draft = None
        if self.is_open:
            message = Message(
                "assistant",
                separator.join(self._texts),
                tuple(self._calls),
                reasoning_content="\n".join(self._thoughts),
            )
            reasoning = "encrypted" if self._hides and not self._thoughts else ""
            draft = self.talk.act(message, model=self._model, reasoning=reasoning, key=self.key, usage=self._usage)
        self._texts, self._thoughts, self._calls = [], [], []
        self._usage, self._model, self._hides, self.key = NO_USAGE, "", False, ""
        return draft
