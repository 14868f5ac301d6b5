"""The words that the page shows, and what each number links to: sites in, clean excerpts out.

Only shown words are redacted, in one pass over all of them, so that a secret which one result gives away is also
replaced where another call uses it.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from composer_hub.errors.find import excerpt
from composer_hub.records import Message, ToolCall, Trace
from composer_hub.redact import Redactor
from composer_hub.report.numbers import Numbers, Site, week_of

MAX_PER_KIND = {"model": 40}
MAX_OF_OTHERS = 8
MAX_CALL, MAX_RESULT = 240, 420
Pair = tuple[str, str]
"""What was called and what came back, or any other text in one of the two."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A site on the page."""

    anchor: str
    site: Site
    call_text: str
    words: str


@dataclass
class Evidence:
    """Everything that is shown of single calls, and the first example of each number."""

    shown: list[Shown] = field(default_factory=list)
    anchors: dict[Hashable, str] = field(default_factory=dict)

    def anchor(self, *key: str) -> str:
        """Return the place on the page that proves a number, "" if there is none."""
        return self.anchors.get(key, "")


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
    """Tell whether a placeholder stands in a text."""
    return bool(re.search(r"\[[A-Z_]{2,30}_\d+\]", text))


def evidence_of(numbers: Numbers, cleaner: Cleaner, zone: datetime.tzinfo | None = None) -> Evidence:
    """Choose the sites to show, the newest first, clean their words, and note where each number is proved."""
    chosen: list[tuple[Site, list[Hashable]]] = []
    room: Counter[tuple[str, str]] = Counter()
    proved: set[Hashable] = set()
    for site in sorted(numbers.sites, key=lambda one: -one.step.at):
        kind = (site.failure.blame, site.failure.kind)
        proves = _proved_by(site, zone)
        is_first = not proved.issuperset(proves)
        if not (site.failure.call_text or site.failure.words):
            continue
        if is_first or room[kind] < MAX_PER_KIND.get(kind[0], MAX_OF_OTHERS):
            room[kind] += 1
            proved.update(proves)
            chosen.append((site, proves))
    cleaned = cleaner.pairs([(site.failure.call_text, site.failure.words) for site, _ in chosen])
    evidence = Evidence()
    for number, ((site, proves), (call, words)) in enumerate(zip(chosen, cleaned, strict=True), start=1):
        shown = Shown(f"e{number}", site, excerpt(call, MAX_CALL), excerpt(words, MAX_RESULT))
        evidence.shown.append(shown)
        for key in proves:
            evidence.anchors.setdefault(key, shown.anchor)
    return evidence


def _proved_by(site: Site, zone: datetime.tzinfo | None) -> list[Hashable]:
    """Return the numbers of the page that a site is part of."""
    failure = site.failure
    keys: list[Hashable] = [("blame", failure.blame), ("kind", failure.blame, failure.kind)]
    if site.step.at:
        keys.append(("week", week_of(site.step.at, zone), failure.blame))
    if failure.blame == "model":
        keys += [("tool", failure.tool), ("tool", failure.tool, failure.kind), ("model", site.step.model)]
    if failure.blame == "user":
        keys.append(("no", failure.tool))
    return keys
