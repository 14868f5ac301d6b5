"""Personal data that its key gives away, in any notation: `"phone": …`, `Geburtsdatum: …`, `<Street>…`, columns.

In: a text, or a key with its value. Out: spans, or the label of the value. The keys, in several languages, are in
`data/fields.txt`; each label has one expression for its values, so a span ends where its value ends.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from composer_hub.redact.data import lines, words
from composer_hub.redact.judge import is_dummy
from composer_hub.redact.match import PLACEHOLDER, Span, Subject, fold, places
from composer_hub.redact.needles import trie


class Field(NamedTuple):
    """The kind of personal data that a key announces."""

    label: str
    strength: int  # 2: the key alone is enough; 1: the value must read as a person's; 0: it counts beside personal data

    @property
    def strong(self) -> bool:
        return self.strength == 2


def _vocabulary() -> dict[str, tuple[Field, ...]]:
    fields: dict[str, dict[str, int]] = defaultdict(dict)
    label = ""
    for line in lines("fields.txt"):
        if line.startswith("["):
            label = line.strip("[]")
            continue
        for entry in filter(None, (part.strip() for part in line.split(","))):
            key = _normal(entry.rstrip(" ?"))
            fields[key][label] = max(fields[key].get(label, 0), 2 - entry[-2:].count("?"))
    return {key: tuple(Field(*field) for field in labels.items()) for key, labels in fields.items()}


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^\w']+|_|(?<=[^\W\d_])\d{1,2}\b")


def _normal(key: str) -> str:
    return fold(" ".join(part.strip("'.") for part in _CAMEL.sub(" ", key).split()))


_FIELDS = _vocabulary()
_LAST = {key.rpartition(" ")[2] for key in _FIELDS}
_UNSPACED = tuple(key for key in _LAST if ord(key[0]) >= 0x0E00)
"""Keys of scripts without spaces."""
_ENDING = re.compile(trie(word[::-1] for word in _LAST if len(word) >= 5))
"""The end of a word that is written backwards, so that one place is tried."""
_BEFORE_LAST = {
    last: tuple(sorted({key.split()[-2] for key in _FIELDS if " " in key and key.endswith(f" {last}")}))
    for last in _LAST
    if last not in _FIELDS
}
"""The words that must precede a word that is not a key by itself."""
_KEY_MARK = "\0"
_CONNECTORS = frozenset(("de", "of", "di", "du", "da", "del", "for", "pour", "para", "d"))


def keys_in(word: str) -> Collection[str]:
    """Return the parts of a word in lower case that may end a key."""
    if not word.isascii():
        folded = fold(word).rstrip("0123456789_").rpartition("_")[2]
        if folded in _LAST:
            return (word,)
        return [key for key in _UNSPACED if key in word] or ((word,) if word in _LAST else ())
    last = word.rstrip("0123456789_").rpartition("_")[2]
    if last in _LAST:
        return (last,)
    match = _ENDING.match(word.rstrip("0123456789")[::-1])
    return (match[0][::-1],) if match else ()


@functools.lru_cache(maxsize=8192)
def fields_of(key: str) -> tuple[Field, ...]:
    """Return the fields that a key announces by its last words, the weak ones last."""
    parts = _normal(key).split()
    for size in range(min(4, len(parts)), 0, -1):
        if found := _FIELDS.get(" ".join(parts[-size:])):
            return tuple(sorted(found, key=lambda field: -field.strength))
    joined = _FIELDS.get("".join(parts)) if len(parts) > 1 else None
    # In Romance languages what is named comes first: `endereço de entrega`.
    noun = next((" ".join(parts[:i]) for i, part in enumerate(parts) if i and part in _CONNECTORS), "")
    return joined or (fields_of(noun) if noun else ())


# --------------------------------------------------------------------------------------------------------------- values

_PARTICLE = "|".join(sorted((re.escape(particle) for particle in words("particles of names")), key=len, reverse=True))
WORD = r"[^\W\d_][^\W\d_]*(?:['\u2019.-][^\W\d_]+)*\.?"
_MONTH = r"[^\W\d_]{3,10}\.?"
_DATE = (
    rf"\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.] ?\d{{1,2}}[-/.] ?\d{{2,4}}|\d{{1,2}}(?:\.|st|nd|rd|"
    rf"th)? (?:de |of )?{_MONTH},? (?:de )?\d{{4}}"
    rf"|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}|(?:19|20)\d{{6}}|\d{{4}}年\d{{1,2}}月\d{{1,2}}日"
)
_DEGREES = r"-?\d{1,3}(?:\.\d{3,}|(?:°| deg)[ \d.'′\"″]{2,16})\s?°?\s?[NSEWO]?"  # noqa: RUF001
_VALUES = {
    "NAME": re.compile(rf"{WORD}(?:,? (?:(?:{_PARTICLE}) ){{0,2}}(?=[^\W\d_a-z]){WORD}){{0,4}}"),
    "USER": re.compile(r"@?[A-Za-z][\w.-]{2,38}"),
    "PHONE": re.compile(r"\+?\(?\d[\d ().\u2011\u2013/\u00a0-]{5,22}\d(?![\w:])"),
    "ADDRESS": re.compile(r"[^\W_][^\n\r\"'`<>|;{}\\\[\]=\t]{3,120}"),
    "BIRTHDATE": re.compile(rf"(?:{_DATE})(?![\d-])"),
    "PASSPORT": re.compile(r"[A-Z0-9](?:[ ./-]?[A-Z0-9]){4,19}(?![\w@])"),
    "TAXID": re.compile(r"[A-Z0-9](?:[ ./-]{0,2}[A-Z0-9]){4,21}(?![\w@])"),
    "ACCOUNT": re.compile(r"[A-Z0-9](?:[ ./-]?[A-Z0-9]){4,33}(?![\w@])"),
    "PLATE": re.compile(r"[^\W_a-z](?:[ ·•-]{0,2}[^\W_a-z]){3,9}(?!\w)"),
    "LOCATION": re.compile(rf"{_DEGREES}(?:\s{{0,2}}[,;/ ]\s{{0,3}}{_DEGREES})?(?![\w.])"),
    "HOST": re.compile(r"[^\s\"'`,;<>|]{4,63}"),
}
_SINGLE = re.compile(r"(?i)(?:family|given|nom|nome|nombre|naam|navn|namn|nimi|nume|meno|ad|adı)\W*\Z")  # noqa: RUF001
"""Keys under which a name may be one word."""
_CJK_NAME = re.compile(r"[\u4e00-\u9fff\u3040-\u30ff\uac00-\ud7af]{2,6}")
_NOT_ADDRESS = re.compile(
    r"(?i)://|@|^\d+(?:\.\d+)+|\d+\.\d+\.\d+\.\d+|^0x|::|\.(?:com|org|net|io|dev|local|internal)\b|^\W*\d+\W*$|[(){}$]|^[\w.-]+:\d+$"
)
_NUMBERED = re.compile(r"(?=.*\d)(?=.*[^\W\d_]{2})(?=.* )")
_STREET = re.compile(r"\d{1,5}\w? [^\W\d]|[^\W\d_]{3} \d{1,4}\b")
_NOT_PHONE = re.compile(r"555[-. ]?01\d\d\Z|15005550\d{3}\Z|\A\d{4}-\d\d-\d\d|\A\d+\.\d+\Z|\A0+\Z")
_ZIP = re.compile(
    r"\d{3,5}(?:[ -]?\d{2,4})?|[A-Z]{1,2}\d[\dA-Z]? ?\d[A-Z]{2}|\d{4} ?[A-Z]{2}|[A-Z]\d[A-Z] ?\d[A-Z]\d|"
    r"(?:[A-Z]{1,2}-)?\d{4,5}"
)
_ZIP_KEYS = re.compile(r"(?i)zip|post|plz|\bcap\b|\bcp\b|\bcep\b|psč")
_NO_NAME = frozenset(words("words that are no names"))
_PARTICLES = frozenset(words("particles of names"))
_EXAMPLE_NUMBERS = frozenset((*words("example numbers"), *words("test cards")))
_GENERIC = frozenset(words("users of no one"))
_FAMOUS = frozenset(words("people of public life"))


GIVEN_NAMES = frozenset(name for line in lines("given_names.txt") for name in line.split())


@functools.lru_cache(maxsize=65536)
def is_given(word: str) -> bool:
    """Return whether a word is a given name, or made of given names (`Sven-Åke`)."""
    folded = fold(word)
    return folded in GIVEN_NAMES or ("-" in folded and set(folded.split("-")) <= GIVEN_NAMES)


def is_name(value: str, *, min_words: int = 1) -> bool:
    """Return whether the words may be a person's name: capitalized, or of a script without case."""
    parts = value.replace(",", " ").split()
    if not min_words <= len(parts) <= 6 or len(value) > 60 or PLACEHOLDER.search(value):
        return False
    if (
        fold(" ".join(parts)) in _FAMOUS
        or any(c.isdigit() for c in value)
        or (value.isupper() and value.isascii() and len(parts) < 2)
    ):
        return False
    for i, part in enumerate(parts):
        lowered = part.lower().strip(".'")
        if (lowered in _NO_NAME and not (i and (len(lowered) == 1 or lowered in _PARTICLES))) or not (
            part[0] != part[0].lower() or lowered in _PARTICLES or part.lower() == part.upper()
        ):
            return False
        if re.search(r"[a-z][A-Z]", part) and not re.match(r"(?:Mc|Mac|De|Di|Van|Le|La|O')", part):
            return False
    return True


_INITIAL = re.compile(r"[a-z]\.[a-z]{4,20}(?:-[a-z]{2,20})?|[a-z]{4,20}\.[a-z]")
"""`m.okonjo`; a key or a sign that announces a user stands before it."""
_WORD_LOGIN = re.compile(r"[a-z]{5,16}\d{0,2}")


def may_be_login(value: str) -> bool:
    """Return whether a login may be a person's rather than a service's name or a word of code."""
    name = value.lower().lstrip("@")
    return (
        bool(_WORD_LOGIN.fullmatch(name))
        and name not in _GENERIC | _NO_NAME | _CODE
        and not any(word in name for word in _SERVICES)
    )


_USER_KEY = re.compile(
    r"(?i)(?:user[ _-]?(?:name|id)?|login|logname|account[ _-]?name|benutzer(?:name)?|utilisateur|usuario|utente|gebruiker)\W*\Z"  # noqa: E501
)
_CODE = frozenset(
    (
        "await",
        "const",
        "return",
        "import",
        "export",
        "static",
        "class",
        "function",
        "object",
        "required",
        "optional",
        "unique",
    )
)
_SERVICES = words("parts of service users")


def is_person_login(value: str) -> bool:
    """Return whether a login is made of a person's names: `anna.krause` or `annakrause`."""
    name = value.lower().lstrip("@")
    parts = [part for part in re.split(r"[._\d-]+", name) if part]
    if name in _GENERIC or not parts or not all(part.isalpha() for part in parts) or _NO_NAME.intersection(parts):
        return False
    if len(parts) > 1:
        return len(parts) <= 3 and any(len(part) > 2 and part in GIVEN_NAMES for part in parts)
    return any(name[:size] in GIVEN_NAMES for size in range(5, len(name) - 2))


def _is_name_under(field: Field, key: str, value: str) -> bool:
    """Return whether a value is a person's name; one word is enough under some keys (`surname: Krause`)."""
    is_single = field.strong or (not field.strength and _SINGLE.search(key)) or _CJK_NAME.fullmatch(value)
    return is_name(value, min_words=1 if is_single else 2)


def _is_login_under(field: Field, key: str, value: str) -> bool:
    """Return whether a value is a person's login; under some keys one with an initial is (`m.okonjo`)."""
    if any(a.islower() and b.isupper() for a, b in itertools.pairwise(value)):
        return False
    initial = _INITIAL.fullmatch(value) and not _NO_NAME.intersection(value.split("."))
    return is_person_login(value) or bool(initial and _USER_KEY.search(key))


def _is_phone(field: Field, key: str, value: str) -> bool:
    """Return whether a value is a phone number rather than a date or a number from films (`555-0142`)."""
    return 7 <= _num_digits(value) <= 15 and not _NOT_PHONE.search(value) and len(set(value)) > 3


def _is_address(field: Field, key: str, value: str) -> bool:
    """Return whether a value is a street with a number rather than a host, a version or a path."""
    if _ZIP_KEYS.search(key):
        return False  # only beside a street
    is_numbered = not _NOT_ADDRESS.search(value) and _NUMBERED.match(value)
    return bool(is_numbered and (field.strong or _STREET.search(value)))


def _is_plate(field: Field, key: str, value: str) -> bool:
    """Return whether a value is a license plate: capitals and digits, such as `B-KX 4127`."""
    return _num_digits(value) >= 1 and any(c.isalpha() for c in value) and value.upper() == value


def _is_number(field: Field, key: str, value: str) -> bool:
    """Return whether a value is the number of a passport, a taxpayer or an account, and not a date."""
    min_digits = 6 if not field.strong else 4 if field.label == "PASSPORT" else 5
    return _num_digits(value) >= min_digits and len(set(value)) > 3 and not re.fullmatch(_DATE, value)


def _is_host(field: Field, key: str, value: str) -> bool:
    """Return whether a value is the name of a machine rather than a variable (`$HOST`)."""
    return field.strong and not value.startswith(("$", "<", "{", "!"))


def _num_digits(value: str) -> int:
    return sum(c.isdigit() for c in value)


_CHECKS: dict[str, Callable[[Field, str, str], bool]] = {
    "NAME": _is_name_under,
    "USER": _is_login_under,
    "PHONE": _is_phone,
    "ADDRESS": _is_address,
    "PLATE": _is_plate,
    **dict.fromkeys(("TAXID", "PASSPORT", "ACCOUNT"), _is_number),
    "HOST": _is_host,
}
"""What a value must prove beyond its form, of (field, key, value); the form of dates and places is enough."""


def _accepts(field: Field, key: str, value: str) -> bool:
    """Return whether a value that has the form of its field (`555-0142`) is one, rather than an example."""
    may_be_dummy = field.label in ("PHONE", "LOCATION", "BIRTHDATE")
    if PLACEHOLDER.search(value) or value in _EXAMPLE_NUMBERS or (not may_be_dummy and is_dummy(value)):
        return False
    check = _CHECKS.get(field.label)
    return check is None or check(field, key, value)


def personal_value(key: str, value: str) -> tuple[str, str]:
    """Return the label and the rule of a value under its key, or nothing."""
    if not 3 <= len(value) <= 160 or len(key) > 80:
        return "", ""
    for field in fields_of(key):
        plain = value.strip()
        if field.strength and _VALUES[field.label].fullmatch(plain) and _accepts(field, key, plain):
            return field.label, f"field:{field.label.lower()}"
    return "", ""


# --------------------------------------------------------------------------------------------------------------- a text

_OPERATOR = re.compile(
    r"(?P<close>\\{0,3}[\"'`*\]]{1,3})?(?:(?:;[\w=,\"-]{1,40}){0,3}\s{0,3}"
    r"(?::|=>|=|\||→|->|：|#|是|为|は|는|은)[ \t]{0,10}|"  # noqa: RUF001
    r"(?P<tag>>)|\\{0,3}[\"']?\s(?:value|content|title)=(?=\\{0,3}[\"'])"
    r"|(?P<space>\t|[ ]{2,12}(?=\S)|\s(?:is|was|are|ist|est|es|è|é):?\s|\s(?:no|nr|n°|num)\.?:?\s|"
    r" ))(?P<open>\[?(?:(?:new )?(?:ISODate|Date|Decimal|NumberLong|Timestamp)\()?(?:\\{0,3}[\"'`*]){0,3})"
)
_BEFORE_KEY = re.compile(r"[^\w .'_-]|\s\s|\n")
_NUMBER_SIGN = re.compile(r"\s(?:no|nr|n°|num)\.?:?\s")
_NUMBER_SIGNS = frozenset(("no", "nr", "num"))
REACH = 160
"""Characters around a name in which other personal data may stand."""
_NUMBERS = frozenset(("PHONE", "BIRTHDATE", "PASSPORT", "TAXID", "ACCOUNT", "LOCATION", "PLATE"))


@functools.cache
def _frequent(key: str) -> re.Pattern[str] | None:
    """Return a pattern for a key that is also a frequent word or part of many, such as `to` in `ship to`."""
    before = _BEFORE_LAST.get(key, ())
    if not before and len(key) > 2:
        return None
    ends = f"[{re.escape(''.join({word[-1] for word in before}))}]"
    words = [word + gap for word in (ends, *map(re.escape, before)) for gap in ("", "(?s:.)")]
    heads = [f"(?<={word}{re.escape(key)})" for word in words]
    behind = f"(?:{'|'.join(heads[:2])})(?:{'|'.join(heads[2:])})" if before else ""
    return re.compile(rf"{re.escape(key)}(?![^\W\d_]){behind}")


@functools.lru_cache(maxsize=2)
def key_places(text: str, lowered: str, triggers: frozenset[str]) -> tuple[tuple[int, int], ...]:
    """Return the places of keys' last words; cached, because two finders ask for those of one text."""
    found: list[tuple[int, int]] = []
    for key in sorted(trigger[1:] for trigger in triggers):
        before = _BEFORE_LAST.get(key, ())
        if 0 < len(before) < 8 and not any(word in lowered for word in before):
            continue
        frequent = _frequent(key)
        for at in (match.start() for match in frequent.finditer(lowered)) if frequent else places(lowered, key):
            end = at + len(key)
            if text[end : end + 1].isalpha():
                continue
            if (
                len(key) < 5
                and at
                and text[at - 1].isalpha()
                and not (text[at].isupper() and text[at - 1].islower())
                and text[at - 1].isascii()
            ):
                continue
            found.append((at, end))
    return tuple(found)


def personal_fields(subject: Subject) -> Iterator[Span]:
    """Yield the personal data beside keys that announce it."""
    text, lowered, triggers = subject
    spans: list[Span] = []
    loose: list[Span] = []  # they count beside other personal data
    for at, end in key_places(text, lowered, frozenset(trigger for trigger in triggers if trigger[0] == _KEY_MARK)):
        for span, strength in _field(text, at, end):
            (spans if strength else loose).append(span)
    yield from spans
    for span in loose:
        around = text[max(0, span.start - REACH) : span.end + REACH]
        name = text[span.start : span.end]
        if (
            (is_given(name.split()[0]) and " " in name)
            or (("@" in around or "[EMAIL_" in around) and (" " in name or span.label == "USER"))
            or any(
                (other.label != "NAME" or " " not in name) and abs(other.start - span.start) < REACH for other in spans
            )
        ):
            yield span


def _field(text: str, at: int, end: int) -> Iterator[tuple[Span, int]]:
    """Yield the value beside the key whose last word is here, with its strength."""
    key, match = _key_at(text, at, end)
    if not match:
        return
    for field in fields_of(key):
        value = _value_of(field, text, match)
        if not value:
            continue
        found = value[0].rstrip(" .,:-")
        if field.label == "NAME" and not match["open"] and "," in found and not field.strong:
            found = found.partition(",")[0]
        span = Span(match.end(), match.end() + len(found), field.label, f"field:{field.label.lower()}")
        # A number of a JSON object stays: a placeholder without quotes would break it.
        bare = match["close"] and match["close"].endswith('"') and not match["open"] and field.label in _NUMBERS
        if not bare and _accepts(field, key, found):
            yield span, field.strength
            return
        stated = match[0].lstrip(" \t\"'`*\\")[:1] in (":", "=")
        ends = text[value.end() : value.end() + 1] not in ("/", ".", "(", "[")
        if field.label == "USER" and stated and ends and _USER_KEY.search(key) and may_be_login(found):
            yield span, 0


def _key_at(text: str, at: int, end: int) -> tuple[str, re.Match[str] | None]:
    """Return the key whose last word is here, and the sign between it and its value: `Phone no` and `: `."""
    while text[end : end + 1].isdigit() and text[end - 1].isalpha():
        end += 1
    if text[end : end + 2] == ". " and text[at:end].lower() in _NUMBER_SIGNS:
        end += 1
    match = _OPERATOR.match(text, end)
    if not match or (match["space"] is None and match["tag"] is None and match.end() == end):
        return "", None
    before = text[max(0, at - 30) : at]
    key = _BEFORE_KEY.split(before + text[at:end])[-1]
    if match["tag"] and "<" not in before and before.strip() != key[: at - end].strip():
        return "", None  # not the name of an element
    is_numbered = match["space"] and _NUMBER_SIGN.match(match["space"])
    return f"{key} number" if is_numbered else key, match


def _value_of(field: Field, text: str, sign: re.Match[str]) -> re.Match[str] | None:
    """Return the value after the sign, if it has the form of the field; a space alone is often not enough."""
    is_clear = field.strong and (field.label in _NUMBERS or sign["open"] or len(sign["space"] or "") > 1)
    if sign["space"] is not None and not is_clear:
        return None
    value = _VALUES[field.label].match(text, sign.end())
    is_mail = value and field.label == "USER" and text[value.end() : value.end() + 1] == "@"
    return None if is_mail else value


def beside(fields: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the values of a record (with labels) that only their neighbors make personal, such as a postal code."""
    labels = {field.label for key in fields for field in fields_of(key) if field.strong}
    has_person = bool(labels & {"NAME", "PHONE", "ADDRESS", "BIRTHDATE", "TAXID", "PASSPORT", "PLATE"}) or any(
        "mail" in key.lower() for key in fields
    )
    for key, value in fields.items():
        for field in fields_of(key):
            label = field.label
            if field.strong or not has_person or not value:
                continue
            if label == "USER" and _USER_KEY.search(key) and may_be_login(value):
                yield value, label
            if (
                label == "NAME" and is_name(value, min_words=1 if "NAME" in labels or _CJK_NAME.fullmatch(value) else 2)
            ) or (
                label == "ADDRESS" and _ZIP_KEYS.search(key) and "ADDRESS" in labels and _ZIP.fullmatch(value.strip())
            ):
                yield value, label
