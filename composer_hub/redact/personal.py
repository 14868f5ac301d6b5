"""Personal data that its label gives away, and with `strict` also without one.

In: a text. Out: spans of birth dates, numbers of documents, street addresses, coordinates and names. The labels are in
`data/words.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from composer_hub.redact.data import words
from composer_hub.redact.match import PLACEHOLDER, Span, Subject
from composer_hub.redact.people import is_person


def _any(name: str) -> str:
    return "|".join(words(name))


_DATE_LABELS, _PASSPORTS = words("triggers of birth dates"), words("labels of passports")
_TAX_LABELS, _TAX_CODES = words("triggers of tax numbers"), words("codes of tax numbers")
PERSONAL_TRIGGERS = (*_DATE_LABELS, *_PASSPORTS, *_TAX_LABELS)
PERSONAL_WORDS = _TAX_CODES
"""These count as whole words only."""

_GAP = r"\\*[\"'`*]{0,3}\s{0,3}(?:[:=#|\t]|\bis\b|\bno\.?|\bnumber\b)?[:\s|]{0,4}\\*[\"'`]?"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_DATE = re.compile(
    rf"(?i)(?:{_any('labels of birth dates')}){_GAP}(?P<v>\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}"
    rf"|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}|\d{{1,2}}\.? {_MONTH},? \d{{4}}|{_MONTH} \d{{1,2}},? \d{{4}})"
)
_NUMBER = re.compile(
    rf"(?i)(?<!\[)\b(?:(?P<passport>{_any('labels of passports')})|{_any('labels of tax numbers')}"
    rf"|(?:{_any('codes of tax numbers')})\b)"
    rf"[_ ]?(?:number|no|nr|num|id)?\.?{_GAP}"
    r"(?P<v>(?=[\w ./-]{0,8}\d)(?=(?:[^\d\n]*\d){5})[A-Z0-9](?:[ ./-]?[A-Z0-9]){5,19})(?!\w)"
)
_CAPITAL = r"[A-ZÄÖÜÉ][\wäöüßé'.-]"
_STREET = re.compile(
    rf"(?P<v>\b\d{{1,5}}[a-zA-Z]? (?:[NSEW]\.? )?(?:{_CAPITAL}{{1,20}} ){{1,3}}(?:{_any('streets')})\b\.?"
    r"(?:,? (?:Apt|Suite|Unit|Flat|#)\.? ?\w{1,6})?"
    rf"(?P<zip>,? {_CAPITAL}[\w. -]{{1,30}},? (?:[A-Z]{{2,3}} )?"
    r"(?:\d{5}(?:-\d{4})?|[A-Z]{1,2}\d[\dA-Z]? ?\d[A-Z]{2}))?"
    rf"|\b{_CAPITAL}{{2,30}}(?:{_any('endings of streets')}) \d{{1,4}}[a-z]?(?P<plz>,? \d{{4,5}} {_CAPITAL}{{2,30}})?"
    rf"|\b\d{{1,4}}(?: bis| ter)?,? (?:{_any('streets in front')}) (?:d[eu] |des |de la |l')?{_CAPITAL}[\w' -]{{1,40}}?"
    rf"(?P<cp>,? \d{{5}} {_CAPITAL}{{1,30}}))"
)
_STREET_WORDS = re.compile("|".join((*words("streets"), *words("endings of streets"), *words("streets in front"))))
_ADDRESS_LABEL = re.compile(rf"(?i)(?:{_any('labels of addresses')})[^\n]{{0,24}}\Z")
_COORDINATES = re.compile(
    r"(?<![\d.])(?P<v>-?(?:[1-8]?\d|90)\.\d{4,8}°?\s?[NS]?,\s{0,3}-?(?:1[0-7]\d|\d{1,2}|180)\.\d{4,8}°?\s?[EW]?)(?![\d.])"
)
_NAMED = re.compile(
    rf"(?i:\b(?:{_any('labels of names')}))\\*[\"']?[:=]?[ \t]{{1,3}}\\*[\"']?"
    r"(?P<v>[A-Z][a-zà-ÿ'-]{1,20}(?: [A-Z]\.)?(?: [A-Z][a-zà-ÿ'-]{1,20}){1,2})(?![\w:(=])"
)


def personal_data(subject: Subject) -> Iterator[Span]:
    """Yield birth dates, numbers of documents and street addresses that are labeled or complete."""
    text, _, triggers = subject
    if not triggers.isdisjoint(_DATE_LABELS):
        yield from (_span(match, "BIRTHDATE", "birth_date") for match in _DATE.finditer(text))
    if not triggers.isdisjoint((*_PASSPORTS, *_TAX_LABELS, *_TAX_CODES)):
        for match in _NUMBER.finditer(text):
            if not PLACEHOLDER.search(match["v"]):
                yield _span(match, "PASSPORT" if match["passport"] else "TAXID", "document_number")
    yield from _streets(text, strict=False)


def any_personal_data(subject: Subject) -> Iterator[Span]:
    """Yield coordinates, unlabeled street addresses and names behind a label or a copyright sign."""
    text = subject.text
    yield from _streets(text, strict=True)
    if "." in text and "," in text:
        yield from (_span(match, "LOCATION", "coordinates") for match in _COORDINATES.finditer(text))
    for match in _NAMED.finditer(text):
        if is_person(match["v"]):
            yield _span(match, "NAME", "labeled_name")


def _streets(text: str, *, strict: bool) -> Iterator[Span]:
    if _STREET_WORDS.search(text):
        for match in _STREET.finditer(text):
            complete = match["zip"] or match["plz"] or match["cp"]
            if strict or complete or _ADDRESS_LABEL.search(text, max(0, match.start() - 40), match.start()):
                yield _span(match, "ADDRESS", "street")


def _span(match: re.Match[str], label: str, rule: str) -> Span:
    return Span(*match.span("v"), label, rule)
