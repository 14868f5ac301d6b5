"""Everything that must not leave the machine: the ordered finders, and how they see a text.

In: a text. Out: spans without overlaps. Finders see the text without color codes and without what tools write before
each line (line numbers, `file:12:`, times, `> `), so a value is found however it was printed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from composer_hub.redact.assignments import named_values
from composer_hub.redact.beside import beside_people
from composer_hub.redact.commands import COMMAND_WORDS, command_secrets
from composer_hub.redact.encoded import hidden_texts
from composer_hub.redact.fields import keys_in, personal_fields
from composer_hub.redact.judge import is_private, looks_like_password
from composer_hub.redact.keys import private_keys
from composer_hub.redact.match import PLACEHOLDER, Finder, Span, Subject, same_length_lower
from composer_hub.redact.names import NAME_TRIGGERS
from composer_hub.redact.network import network_addresses
from composer_hub.redact.numbers import personal_numbers
from composer_hub.redact.people import PERSON_TRIGGERS, mail_addresses, person_names
from composer_hub.redact.personal import any_personal_data, personal_data
from composer_hub.redact.places import PLACE_TRIGGERS, place_secrets
from composer_hub.redact.sentences import SENTENCE_TRIGGERS, sentence_secrets
from composer_hub.redact.settings import SETTING_TRIGGERS, setting_secrets
from composer_hub.redact.tables import table_secrets
from composer_hub.redact.tokens import known_tokens
from composer_hub.redact.triggers import Triggers

Cut = tuple[int, int]
"""A part of a text that finders do not see."""

FINDERS: tuple[Finder, ...] = (
    private_keys,
    known_tokens,
    place_secrets,
    command_secrets,
    named_values,
    setting_secrets,
    sentence_secrets,
    table_secrets,
    mail_addresses,
    network_addresses,
    personal_numbers,
    person_names,
    personal_fields,
    personal_data,
    beside_people,
)
PROVEN: frozenset[Finder] = frozenset((private_keys, known_tokens))
"""Finders of values that are secrets by themselves; what others find is a secret only if it is nothing else."""
STRICT_FINDERS: tuple[Finder, ...] = (*FINDERS, any_personal_data)
"""Also what may be personal data, at the cost of look-alikes."""
MAX_HIDDEN = 3
"""Documents inside documents that are opened."""
_TOKEN_FINDERS: tuple[Finder, ...] = (known_tokens, named_values)
_TRIGGERS = Triggers(
    (*NAME_TRIGGERS, *PLACE_TRIGGERS, *SENTENCE_TRIGGERS, *SETTING_TRIGGERS, *PERSON_TRIGGERS),
    COMMAND_WORDS,
    keys_in,
)


def find(text: str, finders: Sequence[Finder] = FINDERS, depth: int = 0) -> list[Span]:
    """Return everything that must not leave the machine, in order and without overlaps."""
    # Where values overlap, the one that begins first wins, then the longest, then that of the earlier finder: a finder
    # that recognizes a part of a secret must not uncover the rest.
    kept: list[Span] = []
    for span in sorted(_all_spans(text, finders, depth), key=lambda span: (span.start, -span.end)):
        if (not kept or span.start >= kept[-1].end) and not _touches_placeholder(text, span):
            kept.append(span)
    return kept


def _all_spans(text: str, finders: Sequence[Finder], depth: int) -> Iterator[Span]:
    cuts = _with_leads(text, _color_codes(text))
    yield from _spans(text, finders, cuts)
    joints = [match.span() for match in _JOINT.finditer(text)]
    if '"}' in text and ("data: " in text or '"delta"' in text or '"partial_json"' in text):
        joints = _merged(sorted([*joints, *(match.span() for match in _CHUNK.finditer(text))]))
    if joints:
        yield from _across(text, joints, _spans(text, _TOKEN_FINDERS, _merged(sorted([*cuts, *joints]))))
    for hidden in hidden_texts(text) if depth < MAX_HIDDEN else ():
        if inner := find(hidden.text, finders, depth + 1) or _login(hidden.text):
            yield Span(hidden.start, hidden.end, inner[0].label, f"encoded:{inner[0].rule}")


_USER_NAME = re.compile(r"[\w.@+-]{1,64}")


def _login(text: str) -> list[Span]:
    """Return the password of `user:password`, which only its encoding gives away."""
    user, colon, password = text.strip().partition(":")
    given = (
        colon
        and not user.isdigit()
        and _USER_NAME.fullmatch(user)
        and " " not in text.strip()
        and looks_like_password(password)
    )
    return [Span(len(user) + 1, len(text), "SECRET", "login")] if given else []


def _across(text: str, joints: list[Cut], spans: Iterator[Span]) -> Iterator[Span]:
    """Yield the parts of values that go across joints; what is within one part was found before."""
    for span in spans:
        inner = [joint for joint in joints if span.start < joint[0] and joint[1] < span.end]
        edges = [span.start, *(edge for joint in inner for edge in joint), span.end]
        for start, end in zip(edges[::2], edges[1::2], strict=True) if inner else ():
            yield Span(start, end, span.label, f"joined:{span.rule}")


def _touches_placeholder(text: str, span: Span) -> bool:
    match = PLACEHOLDER.search(text, max(0, span.start - 1), span.end + 32)
    return match is not None and match.start() < span.end


def _spans(text: str, finders: Sequence[Finder], cuts: list[Cut]) -> Iterator[Span]:
    plain, starts, shifts = _without(text, cuts) if cuts else (text, [0], [0])
    lowered = same_length_lower(plain)
    subject = Subject(plain, lowered, _TRIGGERS.of(lowered))
    for finder in finders:
        for start, end, label, rule in finder(subject):
            if label == "SECRET" and finder not in PROVEN and not is_private(plain[start:end]):
                continue
            if not cuts:
                yield Span(start, end, label, rule)
                continue
            yield Span(
                start + shifts[bisect_right(starts, start) - 1],
                end + shifts[bisect_right(starts, end - 1) - 1],
                label,
                rule,
            )


# ---------------------------------------------------------------------------------------- what finders need not look at

_ANSI = re.compile(r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033|\\e)\[[0-9;?]*[A-Za-z]")
_LEAD = re.compile(
    r"\n(?P<lead>)(?:[ \t]*\d{1,6}[\t→][ \t]?|[\w.@+-]{0,60}/[\w./@+-]{1,120}:\d{1,6}[:-]"
    r"|[\w.@+-]{1,60}\.(?:[cm]?[jt]sx?|py|go|rs|java|kt|rb|php|cc?|cpp|h|cs|sh|sql|md|txt|json|ya?ml|toml|ini|cfg|conf|env|xml|tf|log)"
    r":\d{1,6}[:-]|> "
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,:+]*Z?\]?[ \t])"
)


_JOINT = re.compile(
    r"(?P<joint>(?P<q>[\"'`])(?<=[\w+/=.-]{3}.)[ \t]*(?:\\?\r?\n[ \t]*)?(?:[+.&]|\.\.|<>|\|\||\+=)?[ \t]*\\?"
    r"(?:\r?\n[ \t]*)?(?:[+.&]|[A-Za-z_]\w{0,30}[ \t]*(?:\+|\.)=)?[ \t]*[bfru]?(?P=q))(?=[\w+/=.-]{3})"
)
"""The text between the literals of `"abc" + "def"`, or of `key = "abc"` and `key += "def"` on two lines."""


_CHUNK = re.compile(
    r"(?<=[\w+/=-]{3})\"\}[^\n]{0,80}\n(?:\r?\n|(?:event|id): ?[^\n]{0,60}\n)*(?:data: ?)?\{[^\n]{0,160}?"
    r"\"(?:content|text|partial_json|delta|token|chunk|data|output|part)\": ?\"(?=[\w+/=-]{3})"
)
"""Between the parts of an answer that a server streams."""


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
