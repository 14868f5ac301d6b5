"""A person's decisions about replaced values before anything is published.

In: samples of each rule in context. Out: `Decisions`, a local file of keyed digests, never of values. A kept value is a
false alarm: it stays as it is in every later run.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

AROUND = 100
"""Characters of context on either side of a sample."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A replaced value with its context. It stays on this machine."""

    label: str
    rule: str
    placeholder: str
    before: str
    value: str
    after: str
    probability: float = 1.0  # below 1, it is a suggestion of the learned judge and was not replaced

    @property
    def is_suggestion(self) -> bool:
        return self.probability < 1

    @classmethod
    def of(cls, label: str, rule: str, placeholder: str, text: str, value: str, probability: float = 1.0) -> Sample:
        """Return the sample of the first occurrence in a text."""
        at = text.find(value)
        start, end = (at, at + len(value)) if at >= 0 else (0, 0)
        before, after = (text[max(0, start - AROUND) : start], text[end : end + AROUND]) if at >= 0 else ("", "")
        return cls(label, rule, placeholder, before, value, after, min(probability, 0.999) if probability < 1 else 1.0)


class Decisions:
    """The decisions about one dataset, by placeholder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._decided: dict[str, str] = {}  # keep, deny or accept (a suggestion), by placeholder
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for line in lines:
            try:
                entry = json.loads(line)
                self._decided[entry["placeholder"]] = entry["decision"]
            except (ValueError, KeyError, TypeError):
                continue  # a line that a crash cut off is asked again

    @property
    def kept(self) -> frozenset[str]:
        """The placeholders of values that stay as they are."""
        return self._with("keep")

    @property
    def accepted(self) -> frozenset[str]:
        """The placeholders of suggestions that are replaced from now on."""
        return self._with("accept")

    def _with(self, decision: str) -> frozenset[str]:
        return frozenset(placeholder for placeholder, decided in self._decided.items() if decided == decision)

    def __contains__(self, placeholder: str) -> bool:
        return placeholder in self._decided

    def add(self, sample: Sample, *, keep: bool) -> None:
        """Remember a decision at once."""
        decision = "keep" if keep else "accept" if sample.is_suggestion else "deny"
        self._decided[sample.placeholder] = decision
        entry = {"placeholder": sample.placeholder, "rule": sample.rule, "decision": decision}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
