"""A second reader: a model that tags private spans, asked about what the rules left.

In: redacted traces, and a `Tagger`, which loads and runs the model (`composer_hub/integrations/token_classifier.py`).
Out: values to replace, under our labels. A model's labels become ours by a table; a model without one is
refused, since an unknown label may mean anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from composer_hub import exits
from composer_hub.records import Trace
from composer_hub.redact.judge import is_ordinary
from composer_hub.redact.match import PLACEHOLDER
from composer_hub.redact.trace import map_named

MAX_PIECE = 2_000
"""Characters of a piece; a longer text is cut at a line end or a space."""
MAX_REMEMBERED = 200_000
"""Pieces whose answers are remembered: results recur over steps and resumed sessions."""
MIN_CHARS = 4
_TRIAL = 16
"""Pieces that are read to measure the speed."""
KEPT = ""
"""Ours for a label whose values stay."""

TABLES: Mapping[str, Mapping[str, str]] = {
    "openai/privacy-filter": {
        "account_number": "ACCOUNT", "private_address": "ADDRESS", "private_date": "BIRTHDATE",
        "private_email": "EMAIL", "private_person": "NAME", "private_phone": "PHONE", "private_url": "HOST",
        "secret": "SECRET",
    },
    "iiiorg/piiranha-v1-detect-personal-information": {
        "ACCOUNTNUM": "ACCOUNT", "BUILDINGNUM": "ADDRESS", "CITY": "ADDRESS", "CREDITCARDNUMBER": "CARD",
        "DATEOFBIRTH": "BIRTHDATE", "DRIVERLICENSENUM": "PASSPORT", "EMAIL": "EMAIL", "GIVENNAME": "NAME",
        "IDCARDNUM": "PASSPORT", "PASSWORD": "SECRET", "SOCIALNUM": "SSN", "STREET": "ADDRESS", "SURNAME": "NAME",
        "TAXNUM": "TAXID", "TELEPHONENUM": "PHONE", "USERNAME": "USER", "ZIPCODE": "ADDRESS",
    },
    "names of people, as CoNLL-2003 has them": {"PER": "NAME", "ORG": KEPT, "LOC": KEPT, "MISC": KEPT},
}  # fmt: skip
"""The labels of known models, without `B-` and the like. A table also holds for other models with the same labels."""


class Tagged(NamedTuple):
    """A span of a text under a label of the model."""

    start: int
    end: int
    label: str


class Tagger(Protocol):
    """A model for token classification that is ready to run."""

    name: str  # owner/name, or the name of a folder
    revision: str  # the commit, or the digest of the folder
    labels: Sequence[str]  # without `B-` and the like, and without the label of ordinary text
    device: str

    def __call__(self, texts: Sequence[str]) -> list[list[Tagged]]:
        """Return the tagged spans of each text, in order."""
        ...

    def num_tokens(self, texts: Sequence[str]) -> int:
        """Return how many tokens texts have."""
        ...


class Reader:
    """Asks a tagger about traces, each piece of text once."""

    def __init__(self, tagger: Tagger, say: Callable[[str], object] = lambda sentence: None) -> None:
        self._tagger, self._say = tagger, say
        self._table = table_of(tagger.name, tagger.labels)
        self._answers: dict[str, tuple[tuple[str, str], ...]] = {}  # (label, value) of each piece

    @property
    def id(self) -> str:
        """The model with its commit, as the card names it."""
        return f"hf:{self._tagger.name}@{self._tagger.revision}"

    def announce(self, traces: Iterable[Trace]) -> None:
        """Print how much there is to read, how fast this machine reads, and how long it takes."""
        pieces = list(dict.fromkeys(piece for trace in traces for piece in pieces_of(trace)))
        if not pieces:
            return
        trial = pieces[:: max(1, len(pieces) // _TRIAL)][:_TRIAL]
        tokens = max(1, self._tagger.num_tokens(trial))
        began = time.perf_counter()
        self._read(trial)
        speed = tokens / max(time.perf_counter() - began, 1e-6)
        total = tokens * sum(map(len, pieces)) / sum(map(len, trial))
        self._say(
            f"{self.id} reads what the rules left: about {total:,.0f} tokens on {self._tagger.device} at "
            f"{speed:,.0f} tokens per second, {_duration(total / speed)}. It runs on this machine and costs nothing "
            "else. Ctrl-C stops it."
        )

    def found(self, trace: Trace) -> list[tuple[str, str, str]]:
        """Return (label, value, rule) of everything that the model finds in a redacted trace."""
        pieces = list(dict.fromkeys(pieces_of(trace)))
        self._read([piece for piece in pieces if piece not in self._answers])
        found = dict.fromkeys(answer for piece in pieces for answer in self._answers[piece])
        return [(label, value, f"reader:{label.lower()}") for label, value in found]

    def _read(self, pieces: Sequence[str]) -> None:
        if len(self._answers) + len(pieces) > MAX_REMEMBERED:
            self._answers.clear()
        for piece, spans in zip(pieces, self._tagger(pieces) if pieces else (), strict=True):
            self._answers[piece] = tuple(dict.fromkeys(self._values(piece, spans)))

    def _values(self, text: str, spans: Iterable[Tagged]) -> Iterator[tuple[str, str]]:
        for start, end, label in spans:
            value = text[start:end].strip()
            ours = self._table[label]
            is_whole = len(value) >= MIN_CHARS and "\n" not in value and not PLACEHOLDER.search(value)
            if ours != KEPT and is_whole and not (ours == "SECRET" and is_ordinary(value)):
                yield ours, value


def table_of(name: str, labels: Sequence[str]) -> Mapping[str, str]:
    """Return the table that has all labels of a model."""
    for table in TABLES.values():
        if set(labels) <= set(table):
            return table
    known = max(TABLES.values(), key=lambda table: len(set(labels) & set(table)))
    unknown = ", ".join(sorted(set(labels) - set(known))[:5])
    raise exits.UsageError(
        f"--reader {name} has labels without a meaning here ({unknown}). Name a model with the labels of "
        f"{' or '.join(name for name in TABLES if '/' in name)}, or add a table to composer_hub/redact/reader.py."
    )


def pieces_of(trace: Trace) -> Iterator[str]:
    """Yield the texts of a trace in pieces that a model can read."""
    texts: list[str] = []

    def collect(text: str, name: str) -> str:
        texts.append(text)
        return text

    map_named(trace, collect)
    for text in texts:
        start = 0
        while len(text) - start > MAX_PIECE:
            end = start + MAX_PIECE
            cut = max(text.rfind("\n", start, end), text.rfind(" ", start + MAX_PIECE // 2, end)) + 1
            yield text[start : cut or end]
            start = cut or end
        if len(text) - start >= MIN_CHARS:
            yield text[start:]


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
