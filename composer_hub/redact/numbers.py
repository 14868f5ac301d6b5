"""Phone, card, social security and bank account numbers.

In: a text. Out: spans. Vendors' test cards and the numbers of films and examples stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from composer_hub.redact.data import words
from composer_hub.redact.match import Span, Subject, is_escaped, is_inside
from composer_hub.redact.triggers import WordsWith

_NUMBER = re.compile(r"\d[\d().\-   ]{5,28}\d")
_INTERNATIONAL = re.compile(r"\+[1-9]\d{0,2}[ .\- ]?(?:\(0?\d{1,4}\)[ .\- ]?)?\d[\d .\-]{5,14}\d")
_NATIONAL = re.compile(
    r"(?:\+?1[ .-])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[-.])[2-9]\d{2}[-. ]\d{4}"
    r"|\(0\d{1,4}\) ?\d{3,4}[ -]?\d{3,4}|0\d{1,4}[ -]\d{3,4}[ -]\d{3,5}|0[1-9](?:[ .]\d{2}){4}|01[567]\d[ -]\d{7,8}|"
    r"8[ -]?(?:\(\d{3}\)|\d{3})[ -]?\d{3}[- ]\d{2}[- ]\d{2}|0\d{3}(?: \d{2,4}){2,3}|0[1-9]-\d{8}|0\d{2,4} ?/ ?\d{2,4}(?: \d{2,4}){1,3}|0\d{2,4} / \d{3,4}"  # noqa: E501
)
_CARD = re.compile(
    r"(?:4\d{3}|5[1-5]\d{2}|2[2-7]\d{2}|6(?:011|5\d{2}|2\d{2})|3(?:528|5[3-8]\d))([ -]?)\d{4}\1\d{4}\1\d{4}"
    r"|3[47]\d{2}([ -]?)\d{6}\2\d{5}|3(?:0[0-5]|[68]\d)\d([ -]?)\d{6}\3\d{4}"
)
_FICTION = re.compile(r"\+?15005550\d{3}\Z|555[-. ]01\d\d\Z")
_COUNTING = ("12345678", "23456789", "87654321", "98765432")
"""Digits that documentation counts up or down."""
_AMONG_NUMBERS = re.compile(
    r"(?<![\w./-])(?:(?P<CARD>(?:4\d{3}|5[1-5]\d{2}|2[2-7]\d{2}|6(?:011|5\d{2}))"
    r"(?P<gap>[ -]?)\d{4}(?P=gap)\d{4}(?P=gap)\d{4}"
    r"|3[47]\d{2}(?P<amex>[ -]?)\d{6}(?P=amex)\d{5})|(?P<SSN>(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4})"
    r"|(?P<PHONE>(?:\([2-9]\d{2}\) ?|[2-9]\d{2}-)[2-9]\d{2}-\d{4}))(?!\w|[.-]\d)"
)
_TEST_CARDS = frozenset(words("test cards"))
_EXAMPLE_NUMBERS = frozenset(words("example numbers"))
_SSN = re.compile(r"(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}")
_IBAN = re.compile(r"[A-Z][A-Z]\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])")
_PHONE_WORD = re.compile(
    r"(?i)(?:phone|mobile|m[oó]vil|mobil\w{0,5}|cell|cellulare|celular|handy|\btel\b|t[eé]l[eé]?fon\w{0,2}|t[eé]l\.|telephone"
    r"|fax|call|whatsapp|sms|dial|contact|msisdn|電話|电话|手机|전화|телефон|\bph\b)[\w \"'.]{0,16}[:=]?[ \"'(]{0,4}\Z"
)
_SLASHED_PHONE = re.compile(r"/\d{5,9}(?![\d/.-])")
_DIALING_CODE = re.compile(r"(?<![\d/.-])0\d{2,4}\Z")
_CARD_WORD = re.compile(
    r"(?i)(?:card|karte|carte|tarjeta|cartão|carta|kaart|kort|visa|mastercard|amex|карт\w*)\b[^\d\n]{0,24}\Z"
)
"""A card that a word names needs no check digit."""
_NAMED_SSN = re.compile(
    r"(?i)\b(?:ssn|social security)\b[^\d\n]{0,16}(?P<v>(?!000|666|9)\d{3}[ -]?\d{2}[ -]?\d{4})(?!\d)"
)


_FISCALE = re.compile(r"[A-Z]{6}\d{2}[A-EHLMPR-T]\d{2}[A-Z]\d{3}[A-Z](?!\w)")
"""Six letters, a date and a place: nothing else has this form."""
_WITH_FISCALE = WordsWith(_FISCALE.search)
_NATIONAL_ID = re.compile(
    r"(?<![\w.-])(?:(?P<cpf>\d{3}\.\d{3}\.\d{3}-\d{2})"
    r"|(?P<snils>\d{3}-\d{3}-\d{3} \d{2})|(?P<nhs>\d{3} \d{3} \d{4})"
    r"|(?P<dni>\d{8}-?[TRWAGMYFPDXBNJZSQVHLCKE])|(?P<china>[1-9]\d{5}(?:19|20)\d{2}(?:0[1-9]|1[0-2])[0-3]\d\d{3}[\dX])"
    r"|(?P<nir>[12] \d{2} (?:0[1-9]|1[0-2]) \d{2} \d{3} \d{3} \d{2})|(?P<sweden>(?:19|20)?\d{6}[-+]\d{4}))(?![\w-]|"
    r"\.\d)"
)
"""Numbers of persons whose form and check digit are enough."""


def _weighted(number: str, weights: Sequence[int]) -> int:
    return sum(int(c) * weight for c, weight in zip(_digits(number), weights, strict=False))


def _is_cpf(number: str) -> bool:
    digits = _digits(number)
    first = -_weighted(digits, range(10, 1, -1)) % 11 % 10
    second = -_weighted(digits, range(11, 1, -1)) % 11 % 10
    return digits[9:] == f"{first}{second}"


def _is_snils(number: str) -> bool:
    return _weighted(number, range(9, 0, -1)) % 101 % 100 == int(number[-2:])


def _is_dni(number: str) -> bool:
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(number[:8]) % 23] == number[-1]


def _is_china(number: str) -> bool:
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return "10X98765432"[_weighted(number[:17], weights) % 11] == number[-1]


_CHECKS: dict[str, Callable[[str], bool]] = {
    "cpf": _is_cpf,
    "snils": _is_snils,
    "nhs": lambda number: _weighted(number, range(10, 1, -1)) % 11 == (11 - int(number[-1])) % 11,
    "dni": _is_dni,
    "china": _is_china,
    "nir": lambda number: (97 - int(_digits(number)[:13]) % 97) == int(_digits(number)[13:]),
    "sweden": lambda number: _luhn(_digits(number)[-10:]) and 1 <= int(_digits(number)[-8:-6]) <= 12,
}


def personal_numbers(subject: Subject) -> Iterator[Span]:
    """Yield phone, card, social security and bank account numbers."""
    text = subject.text
    match = None
    for match in _NUMBER.finditer(text):
        start, end = match.span()
        while start and text[start - 1] in "+(":
            start -= 1
        yield from _number(text, start, end)
    if match is None:
        return  # a bank account also has seven digits in a row
    if "/" in text:
        for match in _SLASHED_PHONE.finditer(text):
            code = _DIALING_CODE.search(text, max(0, match.start() - 6), match.start())
            if code and _PHONE_WORD.search(text, max(0, code.start() - 32), code.start()):
                yield Span(code.start(), match.end(), "PHONE", "phone_named")
    if "ssn" in text or "SSN" in text or "ecurity" in text:
        for match in _NAMED_SSN.finditer(text):
            if match["v"] not in _EXAMPLE_NUMBERS:
                yield Span(*match.span("v"), "SSN", "ssn")
    for match in _FISCALE.finditer(text) if _WITH_FISCALE.of(text) else ():
        if not is_inside(text, match.start()):
            yield Span(*match.span(), "TAXID", "national_id:fiscale")
    for match in _IBAN.finditer(text):
        if match[0].replace(" ", "") in _EXAMPLE_NUMBERS:
            continue
        if not is_inside(text, match.start()) and _is_iban(match[0].replace(" ", "")):
            yield Span(*match.span(), "IBAN", "iban")


def _is_national(match: re.Match[str]) -> bool:
    number = match[0]
    return number not in _EXAMPLE_NUMBERS and len(set(number)) > 4 and _CHECKS[match.lastgroup or ""](number)


def _number(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the number here, if its form or the word before it shows its kind, or else those within it."""
    after = text[end : end + 1]
    number = text[start:end]
    digits = _digits(number)
    if _continues(text, start) or len(set(digits)) <= 2 or any(counted in digits for counted in _COUNTING):
        return
    if end - start >= 8 and (national := _NATIONAL_ID.match(text, start)) and _is_national(national):
        yield Span(*national.span(), "TAXID", f"national_id:{national.lastgroup}")
        return
    bare = _json_number(text, start)
    if after.isalnum() or after in ("_", "%"):
        yield from _number_within(text, start, end, bare)
    elif not _is_example(number):
        label, rule = _kind_of(number, text[max(0, start - 40) : start], bare)
        yield from [Span(start, end, label, rule)] if label else _number_within(text, start, end, bare)


def _kind_of(number: str, before: str, bare: bool) -> tuple[str, str]:
    """Return the label and the rule of a number (`("PHONE", "phone_national")`), or two empty texts."""
    num_digits = len(_digits(number))
    if not bare and _CARD.fullmatch(number) and (_luhn(number) or _CARD_WORD.search(before)):
        return "CARD", "card"
    if _SSN.fullmatch(number):
        return "SSN", "ssn"
    if _INTERNATIONAL.fullmatch(number) and 8 <= num_digits <= 15:
        return "PHONE", "phone_international"
    if _NATIONAL.fullmatch(number):
        return "PHONE", "phone_national"
    is_named = not bare and 9 <= num_digits <= 15 and number[0] != "." and _PHONE_WORD.search(before[-32:])
    return ("PHONE", "phone_named") if is_named else ("", "")


def _is_example(number: str) -> bool:
    """Return whether a number comes from films, documentation or test cards."""
    return number in _EXAMPLE_NUMBERS or bool(_FICTION.search(number)) or _digits(number) in _TEST_CARDS


def _number_within(text: str, start: int, end: int, bare: bool) -> Iterator[Span]:
    """Yield the numbers in a run of several: a card beside its date, a phone beside its hours."""
    if end - start <= 11:
        return
    for match in _AMONG_NUMBERS.finditer(text, start, end):
        label = match.lastgroup or ""
        if not _is_example(match[0]) and (label != "CARD" or (not bare and _luhn(match[0]))):
            yield Span(*match.span(), label, "among_numbers")


def _digits(number: str) -> str:
    return "".join(c for c in number if c.isdigit())


def _continues(text: str, start: int) -> bool:
    """Return whether the digits continue a word, an amount, a path or a hash."""
    before = text[start - 1 : start]
    return bool(before) and (before.isalnum() or before in "_#$/-.") and not is_escaped(text, start)


def _json_number(text: str, start: int) -> bool:
    """Return whether the digits are a JSON number: a placeholder without quotes would break the text."""
    return text[max(0, start - 8) : start].rstrip().endswith('":')


def _luhn(number: str) -> bool:
    digits = [int(c) for c in number if c.isdigit()][::-1]
    doubled = [2 * d - 9 if d > 4 else 2 * d for d in digits[1::2]]
    return len(set(digits)) > 2 and (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _is_iban(number: str) -> bool:
    turned = number[4:] + number[:4]
    return 15 <= len(number) <= 34 and int("".join(str(int(c, 36)) for c in turned)) % 97 == 1
