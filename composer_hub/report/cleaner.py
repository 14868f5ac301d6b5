"""Redact the words that the page shows.

Only shown words are redacted, in one pass over all of them, so that a secret which one result gives away is also
replaced where another call uses it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from composer_hub.records import Message, ToolCall, Trace
from composer_hub.redact.redactor import Redactor

Pair = tuple[str, str]
"""A call and its result, or any other text in one of the two."""


class Cleaner:
    """Redact texts together; without a redactor they stay as they are."""

    def __init__(self, redactor: Redactor | None, home: str = "") -> None:
        self.redactor, self.home = redactor, home.rstrip("/")
        self._numbers: dict[str, dict[str, int]] = {}

    def pairs(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Return the texts without secrets and personal data, with the home folder as `~`."""
        if self.redactor is None:
            return list(pairs)
        messages = []
        for number, (call, words) in enumerate(pairs):
            asked = ToolCall("Bash", {"command": self._at_home(call)}, f"c{number}")
            messages.append(Message("assistant", tool_calls=(asked,)))
            messages.append(Message("tool", self._at_home(words), tool_call_id=f"c{number}", name="Bash"))
        trace = Trace("report", "claude_code", "", tuple(messages), ())
        clean, secrets = self.redactor.trace_and_secrets(trace)
        clean = self.redactor.without_secrets(clean, secrets) if secrets else clean
        told = iter(clean.messages)
        return [
            (self._numbered(asked.tool_calls[0].arguments["command"]), self._numbered(answer.content))
            for asked, answer in zip(told, told, strict=True)
        ]

    def _at_home(self, text: str) -> str:
        return text.replace(f"{self.home}/", "~/") if self.home and self.home != "/" else text

    def _numbered(self, text: str) -> str:
        return _PLACEHOLDER.sub(self._placeholder, text)

    def _placeholder(self, match: re.Match[str]) -> str:
        known = self._numbers.setdefault(match[1], {})
        return f"[{match[1]}_{known.setdefault(match[2], len(known) + 1)}]"


_PLACEHOLDER = re.compile(r"\[([A-Z_]{2,30})_x([0-9a-f]{16})\]")


def is_redacted(text: str) -> bool:
    """Return whether a text contains a placeholder."""
    return bool(re.search(r"\[[A-Z_]{2,30}_\d+\]", text))
