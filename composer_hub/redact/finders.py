"""Everything that must not leave the machine: the ordered finders, and how they see a text.

In: a text. Out: spans without overlaps. Finders see the text without color codes and without what tools write before
each line (line numbers, `file:12:`, times, `> `), so a value is found however it was printed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from composer_hub.redact.assignments import named_values
from composer_hub.redact.commands import COMMAND_WORDS, command_secrets
from composer_hub.redact.keys import private_keys
from composer_hub.redact.match import PLACEHOLDER, Finder, Span, Subject, same_length_lower
from composer_hub.redact.names import NAME_TRIGGERS
from composer_hub.redact.network import network_addresses
from composer_hub.redact.numbers import personal_numbers
from composer_hub.redact.people import PERSON_TRIGGERS, mail_addresses, person_names
from composer_hub.redact.places import PLACE_TRIGGERS, place_secrets
from composer_hub.redact.sentences import SENTENCE_TRIGGERS, sentence_secrets
from composer_hub.redact.tables import table_secrets
from composer_hub.redact.tokens import BROKEN_TRIGGERS, broken_tokens, known_tokens
from composer_hub.redact.triggers import Triggers

FINDERS: tuple[Finder, ...] = (
    private_keys,
    known_tokens,
    broken_tokens,
    place_secrets,
    command_secrets,
    named_values,
    sentence_secrets,
    table_secrets,
    mail_addresses,
    network_addresses,
    personal_numbers,
    person_names,
)
_TRIGGERS = Triggers(
    (*NAME_TRIGGERS, *PLACE_TRIGGERS, *SENTENCE_TRIGGERS, *BROKEN_TRIGGERS, *PERSON_TRIGGERS), COMMAND_WORDS
)


def find(text: str, finders: Sequence[Finder] = FINDERS) -> list[Span]:
    """Return everything that must not leave the machine, in order and without overlaps."""
    # Where values overlap, the one that begins first wins, then the longest, then that of the earlier finder: a finder
    # that recognizes a part of a secret must not uncover the rest.
    kept: list[Span] = []
    for span in sorted(_spans(text, finders), key=lambda span: (span.start, -span.end)):
        if (not kept or span.start >= kept[-1].end) and not _touches_placeholder(text, span):
            kept.append(span)
    return kept


def _touches_placeholder(text: str, span: Span) -> bool:
    match = PLACEHOLDER.search(text, max(0, span.start - 1), span.end + 32)
    return match is not None and match.start() < span.end


def _spans(text: str, finders: Sequence[Finder]) -> Iterator[Span]:
    cuts = _with_leads(text, _color_codes(text))
    plain, starts, shifts = _without(text, cuts) if cuts else (text, [0], [0])
    lowered = same_length_lower(plain)
    subject = Subject(plain, lowered, _TRIGGERS.of(lowered))
    for finder in finders:
        if not cuts:
            yield from finder(subject)
            continue
        for start, end, label, rule in finder(subject):
            yield Span(
                start + shifts[bisect_right(starts, start) - 1],
                end + shifts[bisect_right(starts, end - 1) - 1],
                label,
                rule,
            )


# ---------------------------------------------------------------------------------------- what finders need not look at

Cut = tuple[int, int]

_ANSI = re.compile(r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033|\\e)\[[0-9;?]*[A-Za-z]")
_LEAD = re.compile(
    r"\n(?P<lead>)(?:[ \t]*\d{1,6}[\t→][ \t]?|[\w.@+-]{0,60}/[\w./@+-]{1,120}:\d{1,6}[:-]"
    r"|[\w.@+-]{1,60}\.(?:[cm]?[jt]sx?|py|go|rs|java|kt|rb|php|cc?|cpp|h|cs|sh|sql|md|txt|json|ya?ml|toml|ini|cfg|conf|env|xml|tf|log)"
    r":\d{1,6}[:-]|> "
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,:+]*Z?\]?[ \t])"
)


def _color_codes(text: str) -> list[Cut]:
    if "\x1b[" not in text and "[0m" not in text and "\\u001b" not in text:
        return []
    return [match.span() for match in _ANSI.finditer(text)]


def _with_leads(text: str, cuts: list[Cut]) -> list[Cut]:
    """Add the beginnings of lines that tools write: a number, a file and a number, a time, a quotation sign."""
    first = _LEAD.match("\n" + text[:200])
    if "\n" not in text and not first:
        return cuts
    leads = [(match.start("lead"), match.end()) for match in _LEAD.finditer(text)]
    if first and first.end() > 1:
        leads.insert(0, (0, first.end() - 1))
    return _merged(sorted([*cuts, *leads])) if leads else cuts


def _merged(cuts: list[Cut]) -> list[Cut]:
    merged: list[Cut] = []
    for start, end in cuts:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _without(text: str, cuts: list[Cut]) -> tuple[str, list[int], list[int]]:
    """Return the text without the cuts, the beginnings of its pieces, and how far each piece moved."""
    parts, starts, shifts = [], [0], [0]
    last = length = cut = 0
    for start, end in cuts:
        parts.append(text[last:start])
        length += start - last
        cut += end - start
        starts.append(length)
        shifts.append(cut)
        last = end
    parts.append(text[last:])
    return "".join(parts), starts, shifts
