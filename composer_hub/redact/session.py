"""Values that are replaced wherever they occur: the publisher's, the users of a trace, and secrets found somewhere.

In: values. Out: `KnownValues`, which replaces them in each text, however they are spelled there. Rules see one text at
a time; `joins.py` finds what only two messages together give away.
"""

from __future__ import annotations

import base64
import html
import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from composer_hub.redact.data import words
from composer_hub.redact.encoded import decoded
from composer_hub.redact.judge import looks_random
from composer_hub.redact.match import PLACEHOLDER, is_escaped, same_length_lower
from composer_hub.redact.needles import Needles
from composer_hub.redact.persons import login_spellings_of, spellings_of
from composer_hub.redact.publisher import NO_ONE, Publisher
from composer_hub.redact.structure import replaced

Counts = Counter[tuple[str, str]]
"""Replacements by (kind, rule)."""

MIN_LEARNED = 10
"""Characters from which a secret found by its surroundings is also replaced in the rest of its trace."""
MIN_ALONE = 6
"""The same for a secret that is all that a command printed or a person answered; it must be a whole word."""
MAX_ESCAPED = 4
"""Strings inside strings, as JSON in a log of JSON, in which a value is found."""
MIN_CODE = 5
"""The same for a code that opens a door or an account."""
MIN_LOGIN = 5
MIN_PIECE = 12
"""Letters and digits of a secret that are replaced without the rest of it: cut short, or broken in two."""

_ROLES = frozenset(words("users of no one")) | frozenset(words("words that are no names"))
_USERS_THAT_ARE_WORDS = frozenset(words("users that are words"))
_HOMES = (
    "/home/",
    "/homes/",
    "/users/",
    "\\users\\",
    "-users-",
    "-home-",
    "%2fusers%2f",
    "%2fhome%2f",
    "/~",
    " ~",
    "\n~",
)
_NUMBERS = frozenset(("TAXID", "PHONE", "CARD", "IBAN", "SSN", "ACCOUNT", "PASSPORT"))
MIN_DIGITS = 9
"""Digits of a number that is also replaced without its label and its signs."""
_PUNCTUATION = re.compile(r"[ ./()-]")
_CODE_BEFORE = re.compile(r"(?:\\[ntr]|\[[0-9;]{0,12}m)\Z")
_BASE64_BEFORE = re.compile(r"[A-Za-z0-9+/_-]{0,4000}\Z")
_BASE64_AFTER = re.compile(r"[A-Za-z0-9+/_-]{0,4000}={0,2}")
_LETTERS = bytes(c + 32 if 65 <= c <= 90 else c for c in range(256))
_SIGNS = bytes(c for c in range(256) if not (48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122))
_SIGN = re.compile(r"[^a-z0-9]")
_LETTER = re.compile(r"[a-z0-9]")
_WORD_BEFORE, _WORD_AFTER = re.compile(r"[a-z0-9][_.+/=-]?\Z"), re.compile(r"[_.+/=-]?[a-z0-9]")
_KEY_ENDS = re.compile(r"\\*[\"']\s*:")
_BETWEEN_PIECES = re.compile(r"(?:\\[nrt]|[\"'`\n\r(){}\[\],;&|<>+\\])+")
"""Between the parts of a broken secret: quotes, brackets and line ends stay, so that code and JSON stay whole."""


class Known(NamedTuple):
    """A value and why it is replaced."""

    value: str
    label: str
    rule: str
    is_encoded: bool = False  # the base64 around it goes as well


class _Place(NamedTuple):
    start: int
    end: int
    known: Known
    is_broken: bool = False


class KnownValues:
    """Values to replace wherever they occur."""

    def __init__(
        self,
        placeholder: Callable[[str, str], str],  # of (label, value)
        exact: Iterable[str] = (),
        publisher: Publisher = NO_ONE,
    ) -> None:
        self._placeholder = placeholder
        self.learned: dict[str, str] = {}
        """Values found in this trace that hold for the others of the run, with their labels."""
        self._spellings: dict[str, Known] = {}
        self._pieces: dict[str, tuple[Known, str, bool]] = {}  # of secrets, without signs
        self._users: dict[str, str] = {}
        self._names: dict[str, Known] = {}  # of people, as texts write them
        self._logins: dict[str, Known] = {}  # that are made of the names
        self._needles: tuple[Needles, ...] | None = None
        self.add_users(publisher.users)
        for value in exact:
            self._add(Known(value, "SECRET", "exact"))
        for label, value in publisher.values():
            self._add(Known(value, label, "publisher"))

    def add_users(self, users: Iterable[str]) -> None:
        for user in users:
            lowered = user.lower()
            if lowered not in self._users:
                # Harnesses name a session folder after the working directory, with a dash for every sign.
                self._users[lowered] = self._users[_SIGN.sub("-", lowered)] = lowered
                self._needles = None

    def learn_person(self, name: str, parts: Iterable[str]) -> None:
        """Remember a person, whose name is also replaced in other spellings, and these parts of it by themselves."""
        known = Known(name, "NAME", "learned_name")
        self._needles = None
        self.learned.setdefault(name, "NAME")
        for spelling in spellings_of(name):
            self._names[spelling] = known
        for part in parts:
            self._names.setdefault(part, known)
        for login in login_spellings_of(name):
            if len(login) >= MIN_LOGIN:
                self._logins.setdefault(login, Known(login, "USER", "login_of_name"))

    def learn_logins(self, emails: Iterable[str]) -> None:
        """Remember the logins that the address of a person suggests: `alindqvist` for `anna.lindqvist@`."""
        for email in emails:
            parts = email.lower().replace("%40", "@").partition("@")[0].split(".")
            for part in parts if len(parts) > 1 and not _ROLES & set(parts) else ():
                if len(part) > MIN_LOGIN and part.isalpha():
                    self._names.setdefault(part.title(), Known(part.title(), "NAME", "name_of_address"))
                    self._needles = None
            if len(parts) == 2 and all(len(part) > 2 and part.isalpha() for part in parts) and not _ROLES & set(parts):
                for login in login_spellings_of(" ".join(parts)):
                    if len(login) > MIN_LOGIN:
                        self._logins.setdefault(login, Known(login, "USER", "login_of_address"))
                self._needles = None

    def learn(self, label: str, value: str, *, alone: bool = False, is_code: bool = False) -> None:
        """Remember a value that a rule found, if it is long enough to be recognized without its surroundings."""
        shortest = MIN_CODE if is_code else MIN_ALONE if alone else MIN_LEARNED
        fits = len(value) >= shortest and ("\n" not in value or "PRIVATE KEY" in value)
        if label in _NUMBERS and sum(c.isdigit() for c in value) >= MIN_DIGITS:
            known = Known(value, label, "learned")
            self._needles = None
            for spelling in {value, _PUNCTUATION.sub("", value)}:
                self._names.setdefault(spelling, known)
        if fits and label in ("SECRET", "USER") and value not in self.learned:
            self.learned[value] = label
            self._add(Known(value, label, "learned"))

    def learn_decoded(self, value: str) -> None:
        """Remember the text that a secret in base64 or hexadecimal hides."""
        plain = (decoded(value) or "").strip()
        password = plain.rpartition(":")[2]
        if password and not any(c.isspace() for c in password):
            self.learn("SECRET", password, alone=True)

    def add_words(self, values: Iterable[tuple[str, str, str]]) -> None:
        """Replace these (label, value, rule) wherever they are whole words."""
        self._needles = None
        for label, value, rule in values:
            for spelling in {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}:
                self._names.setdefault(spelling, Known(value, label, rule))

    def _add(self, known: Known) -> None:
        self._needles = None
        for spelling in {spelling.lower() for spelling in _spellings(known.value)}:
            self._spellings.setdefault(spelling, known)
        if known.label == "SECRET" and len(known.value) >= MIN_LEARNED:
            for spelling in _encodings(known.value):
                self._spellings.setdefault(spelling.lower(), known._replace(is_encoded=True))
            for line in known.value.split("\n"):
                self._add_pieces(known, _SIGN.sub("", line.lower()))
            self._add_pieces(known, known.value.encode("utf-8", "replace").hex())

    def _add_pieces(self, known: Known, letters: str) -> None:
        if len(letters) < MIN_PIECE or letters.isdigit() or (letters.isalpha() and not looks_random(letters[:64])):
            return
        if not looks_random(letters[:64]):
            # A part of a password of words is a word; the whole is not.
            self._pieces.setdefault(letters[:MIN_PIECE], (known, letters, False))
            return
        # All private keys begin with the same line.
        if not letters.startswith("begin"):
            self._pieces.setdefault(letters[:MIN_PIECE], (known, letters, False))
        self._pieces.setdefault(letters[-MIN_PIECE:], (known, letters, True))

    def without_homes(self, text: str, counts: Counts | None = None) -> str:
        """Replace the names of users in home folders."""
        lowered = same_length_lower(text) if self._users and _may_hold_home(text) else ""
        return self._replaced(text, self._user_places(lowered, text, _names_home) if lowered else [], counts)

    def without_values(self, text: str, counts: Counts | None = None) -> str:
        """Replace the values, and the names of users everywhere."""
        if not (self._spellings or self._users or self._names):
            return text
        lowered = same_length_lower(text)
        _, spelled, pieced, names, logins = self._compiled()
        places = [
            *_whole(names, self._names, text),
            *_whole(logins, self._logins, lowered),
            *self._spelled(spelled, text, lowered),
            *self._user_places(lowered, text, _names_user),
        ]
        if pieced:
            places += self._broken(pieced, lowered)
        return self._replaced(text, places, counts)

    def without_broken(self, text: str, counts: Counts | None = None) -> str:
        """Replace the parts of broken values, before rules look at each part by itself."""
        if not self._pieces:
            return text
        places = self._broken(self._compiled()[2], same_length_lower(text))
        return self._replaced(text, (place for place in places if place.is_broken), counts)

    def _compiled(self) -> tuple[Needles, ...]:
        if self._needles is None:
            tables = (self._users, self._spellings, self._pieces, self._names, self._logins)
            self._needles = tuple(Needles(table) for table in tables)
        return self._needles

    def _user_places(self, lowered: str, text: str, accept: Callable[[str, int, int], bool]) -> list[_Place]:
        if not self._users:
            return []
        found = self._compiled()[0].find(lowered, lambda start, end: accept(lowered, start, end))
        return [_Place(at, at + len(name), Known(self._users[name], "USER", "home_folder")) for at, name in found]

    def _spelled(self, needles: Needles, text: str, lowered: str) -> Iterator[_Place]:
        def is_whole(start: int, end: int) -> bool:
            return end - start >= MIN_LEARNED or not (_is_letter(text, start - 1) or _is_letter(text, end))

        for start, spelling in needles.find(lowered, is_whole):
            known, end = self._spellings[spelling], start + len(spelling)
            if known.is_encoded:
                before, after = _BASE64_BEFORE.search(text, max(0, start - 4000), start), _BASE64_AFTER.match(text, end)
                start, end = before.start() if before else start, after.end() if after else end
            yield _Place(start, end, known)

    def _broken(self, needles: Needles, lowered: str) -> Iterator[_Place]:
        """Yield the parts of secrets that are grouped, wrapped, concatenated or cut short."""
        letters = lowered.encode("utf-8", "surrogatepass").translate(_LETTERS, _SIGNS).decode()
        places: list[int] = []
        after = 0
        for at, piece in needles.find(letters):
            known, whole, is_end = self._pieces[piece]
            start, end = at, at + len(piece)
            while not is_end and end - start < len(whole) and letters[end : end + 1] == whole[end - start]:
                end += 1
            while (
                is_end and end - start < len(whole) and start > after and letters[start - 1] == whole[start - end - 1]
            ):
                start -= 1
            is_part = end - start < len(whole)
            if start < after or (is_part and not looks_random(whole[:64])):
                continue
            places = places or [match.start() for match in _LETTER.finditer(lowered)]
            first, last = places[start], places[end - 1] + 1
            # Tokens of one kind begin alike. A word that continues differently is another token, not a part.
            if is_part and (_WORD_BEFORE.search(lowered, max(0, first - 2), first) if is_end else
                            _WORD_AFTER.match(lowered, last)):  # fmt: skip
                continue
            after = end
            known = known._replace(rule="learned_piece")
            is_broken = last - first > end - start and not whole.isdigit()
            yield from (_Place(*span, known, is_broken) for span in _parts(lowered, first, last))

    def _replaced(self, text: str, places: Iterable[_Place], counts: Counts | None) -> str:
        return replaced(text, _apart(text, places), lambda known, value: self._placed(known, counts))

    def _placed(self, known: Known, counts: Counts | None) -> str:
        if counts is not None:
            counts[known.label.lower(), known.rule] += 1
        return self._placeholder(known.label, known.value)


def _apart(text: str, places: Iterable[_Place]) -> Iterator[tuple[int, int, Known]]:
    """Yield the places in order, without those that overlap an earlier one or a placeholder."""
    last = 0
    taken = _Placeholders(text)
    for start, end, known, _ in sorted(places, key=lambda place: (place.start, -place.end)):
        if start >= last and not taken.touch(start, end):
            yield start, end, known
            last = end


class _Placeholders:
    """The places of placeholders, looked for only if they matter."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._spans: list[tuple[int, int]] | None = None

    def touch(self, start: int, end: int) -> bool:
        if self._spans is None:
            self._spans = [match.span() for match in PLACEHOLDER.finditer(self._text)]
        at = bisect_right(self._spans, (end, 0)) - 1
        return at >= 0 and self._spans[at][1] > start


def _whole(needles: Needles, values: dict[str, Known], text: str) -> Iterator[_Place]:
    """Yield the names that are whole words."""

    def is_whole(start: int, end: int) -> bool:
        begins = not (_is_letter(text, start - 1) or text[start - 1 : start] == "_") or is_escaped(text, start)
        return begins and not (_is_letter(text, end) or text[end : end + 1] == "_")

    if needles:
        yield from (_Place(at, at + len(name), values[name]) for at, name in needles.find(text, is_whole))


def _spellings(value: str) -> Iterator[str]:
    """Yield the value as text, JSON, URLs and HTML spell it."""
    yield value
    yield json.dumps(value)[1:-1]
    escaped = value
    for _ in range(MAX_ESCAPED if '"' in value or "\\" in value else 1):
        escaped = json.dumps(escaped, ensure_ascii=False)[1:-1]
        yield escaped
    safe = value.encode("utf-8", "replace")
    yield from (quote(safe, safe=""), quote(safe), quote_plus(safe))
    yield from (html.escape(value), html.escape(value, quote=False))


def _encodings(value: str) -> Iterator[str]:
    """Yield the base64 and hex spellings of the value at every alignment."""
    data = value.encode("utf-8", "replace")
    yield data.hex()
    for shift in range(3):
        code = base64.b64encode(b"\0" * shift + data).decode()
        # The first characters mix with what precedes the value, the last with what follows.
        core = code[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]
        if len(core) >= MIN_LEARNED:
            yield from {core, core.replace("+", "-").replace("/", "_")}


def _parts(text: str, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a broken value without what joins them."""
    start = first
    for gap in _BETWEEN_PIECES.finditer(text, first, last):
        # A document that is a secret as a whole, laid out in another way, keeps its keys.
        is_part = gap.start() > start and _LETTER.search(text, start, gap.start())
        if is_part and not _KEY_ENDS.match(text, gap.start()):
            yield start + len(text[start : gap.start()]) - len(text[start : gap.start()].lstrip()), gap.start()
        start = gap.end()
    yield start + len(text[start:last]) - len(text[start:last].lstrip()), last


def _may_hold_home(text: str) -> bool:
    return "ome" in text or "sers" in text or "~" in text


def _is_letter(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at].isalnum()


def _names_home(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - 40) : start]
    before = before.rstrip("\\") + "\\" if before.endswith("\\") else before
    return before.endswith(_HOMES) and not _is_letter(text, end)


def _names_user(text: str, start: int, end: int) -> bool:
    """Return whether the user's name is a whole word here; names that are also words count in paths only."""
    if _names_home(text, start, end):
        return True
    begins = not _is_letter(text, start - 1) or bool(_CODE_BEFORE.search(text, max(0, start - 12), start))
    return begins and not _is_letter(text, end) and end - start >= 4 and text[start:end] not in _USERS_THAT_ARE_WORDS
