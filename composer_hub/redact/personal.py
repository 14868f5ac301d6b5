"""Street addresses, machines of persons, and with `strict` coordinates and names after a label.

In: a text. Out: spans. `fields.py` finds the values that a key announces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from composer_hub.redact.data import words
from composer_hub.redact.fields import is_given
from composer_hub.redact.match import Span, Subject
from composer_hub.redact.people import is_person


def _any(name: str) -> str:
    return "|".join(words(name))


_CAPITAL = r"[^\W\d_a-z][\w'\u2019.-]"
_CITY = rf"{_CAPITAL}{{1,30}}(?: {_CAPITAL}{{1,30}}){{0,2}}"
_CODE = r"(?:[A-Z]{2} \d{5}(?:-\d{4})?|[A-Z]{1,2}\d[\dA-Z]? ?\d[A-Z]{2}|[A-Z]{2} [A-Z]\d[A-Z] ?\d[A-Z]\d|(?:NSW|VIC|QLD|WA|SA|TAS|ACT) \d{4})(?!\w)"  # noqa: E501
"""A postal code after the city."""
_CODE_CITY = (
    rf"(?:[A-Z]{{1,2}}-)?(?:\d{{4,5}}|\d{{3}} \d{{2}}|\d{{2}}-\d{{3}}|\d{{4}}-\d{{3}}|\d{{4}} ?[A-Z]{{2}}),? {_CITY}"
)
_UNIT = r"(?:,? (?:Apt|Suite|Unit|Flat|Apartment|Floor|#)\.? ?\w{1,6}| ?[/-] ?\d{1,4}\w?| (?:m|lok)\. ?\d{1,4}|,? \d\.?[ºª°o]? ?[\w.]{1,8})"  # noqa: E501
_AHEAD = re.compile(
    r"\d[a-zA-Z]?(?: ?bis| ?ter)?,? (?=[^\W\d_a-z]|rue|avenue|boulevard|place|chemin|impasse|allée|quai)"
)
_NUMBER_FIRST = re.compile(
    rf"(?P<v>\d{{1,5}}[a-zA-Z]? (?:[NSEW]{{1,2}}\.? )?(?:{_CAPITAL}{{0,20}} ){{1,3}}(?:{_any('streets')})\b\.?{_UNIT}?(?:,? {_CITY}(?:, {_CITY})?,? {_CODE})?"  # noqa: E501
    rf"|\d{{1,5}}[a-zA-Z]? (?:{_CAPITAL}{{1,20}} ){{0,4}}{_CAPITAL}{{1,20}},(?: {_CITY},?){{1,3}} {_CODE}"
    rf"|\d{{1,4}}(?: ?bis| ?ter|[a-zA-Z])?,? (?:{_any('streets in front')}|"
    # With a capital it may be any word, as in `2 Place Order`.
    rf"(?i:{_any('streets in front')})(?= d[eu']| l[ae' ]|[^,\n]{{3,42}}, {_CODE_CITY})) "
    rf"(?:d[eu] |des |de la |de l'|la |le |l'|d')?{_CAPITAL}[\w' -]{{1,40}}?"
    rf"(?:, {_CODE_CITY}|(?=[,.;\n\"'<)]|\Z)))"
)
_BEHIND = re.compile(
    r" (?=[n°º\d])(?:(?<=[^\W\d_][^\W\d_] )|(?<=[.,][^\W\d_] )|(?<=[^\W\d_][.,] ))"
    r"n?[°º]?\d{1,4}[a-zA-Z]?(?=[\s,./;:)\"'<\\-]|\Z)"
)
"""A number after a word, perhaps with a comma or a period between."""
_NAME_FIRST = re.compile(
    rf"(?P<v>\b(?:{_any('streets with a number')}) (?:(?:d[aeo]s?|del|della|dei|la|de la|los|las|"
    rf"św\.) )?(?:{_CAPITAL}{{1,25}} ){{1,4}}?n?[°º]?\d{{1,4}}[a-zA-Z]?(?![\w.]){_UNIT}{{0,2}}(?:,? {_CODE_CITY})?"
    rf"|"
    rf"(?:\b{_CAPITAL}{{1,30}} ){{0,3}}\b{_CAPITAL}{{0,30}}(?:{_any('endings of streets')}) \d{{1,4}}[a-zA-Z]?{_UNIT}?(?:,? {_CODE_CITY})?"  # noqa: E501
    rf"|\b{_CAPITAL}{{1,30}} (?:(?:{_CAPITAL}{{1,20}}|d[aeou]s?|del|della|la|van|der|den|"
    rf"of) ){{0,4}}\d{{1,4}}[a-zA-Z]?{_UNIT}{{0,2}}, {_CODE_CITY})"
)
_COUNTED = re.compile(
    r"(?i)\b(?:step|version|table|page|line|chapter|section|figure|item|phase|level|part|rule|test|case|build|column|"
    r"row|v) ?\Z"
)
_HAN = r"\u4e00-\u9fff\u3040-\u30ff\uac00-\ud7af々"
_HONORIFIC = re.compile(
    r"(?:(?<=[はがをにのとでへも、。「 \n（(:：])|\A)(?P<v>[\u4e00-\u9fff々]{1,4}[ \u3000]?[\u4e00-\u9fff\u3040-\u30ff々]{1,4}|"  # noqa: E501, RUF001
    r"[\uac00-\ud7af]{2,4})(?=さん|(?<![仕同模多異有各])様|氏|殿|님|씨|先生)"
)
_DOUBLE_SURNAME = re.compile(
    r"(?P<v>(?:欧阳|歐陽|司马|上官|诸葛|皇甫|尉迟|公孙|慕容|令狐|宇文|长孙|司徒|夏侯)[\u4e00-\u9fff]{1,2}|(?:남궁|제갈|선우|황보|독고|사공)[\uac00-\ud7af]{2})"
)
"""Chinese surnames of two signs, which are no words."""
_EAST_ASIAN = re.compile(
    rf"(?P<v>〒?\d{{3}}-\d{{4}}[ \u3000]?[\u4e00-\u9fff][{_HAN}\d\-−ー丁目番地号]{{4,40}}|"  # noqa: RUF001
    rf"[\u4e00-\u9fff]{{1,8}}(?:[省市][\u4e00-\u9fff]{{1,8}}[区县市]|"
    rf"[都道府県][\u4e00-\u9fff]{{1,8}}[区市町村])[\u4e00-\u9fff\d\-−]{{2,30}}[号室路楼弄\d][\u4e00-\u9fff\d\-]{{0,12}})"  # noqa: RUF001
)
_EXAMPLES = re.compile(_any("addresses of no one"), re.IGNORECASE)
_DEVICE = re.compile(
    r"(?i)-(?P<what>macbook(?:-(?:pro|air))?|mbp|mba|imac|thinkpad|laptop|notebook|xps(?:-?\d+)?|zenbook|ideapad|elitebook|latitude|surface|iphone|ipad|phone"
    r"|pixel|galaxy|desktop|pc|workstation|mac(?:-mini)?|framework|vivobook|chromebook)(?:-\d{1,4})?(?:\.(?:local|lan|home|fritz\.box))?(?![\w-])"
)
_OWNER = re.compile(r"(?<![\w.-])(?P<who>[A-Za-z][A-Za-z0-9_]{2,24})\Z")
_WINDOWS = re.compile(r"(?:DESKTOP|LAPTOP)-[A-Z0-9]{6,8}(?![\w-])")
_CJK = re.compile(r"[\u4e00-\u9fff\uac00-\ud7af]")
_NO_NAME = frozenset(words("words that are no names"))
_IN_STREETS = frozenset(
    word.lower() for name in ("streets", "streets in front", "words in street names") for word in words(name)
)
_SHARED = frozenset(words("users of no one")) | _NO_NAME
_LOOSE_DEVICES = (
    "desktop",
    "pc",
    "phone",
    "surface",
    "pixel",
    "galaxy",
    "framework",
    "mac",
    "workstation",
    "iphone",
    "ipad",
    "latitude",
    "laptop",
    "notebook",
)
_COORDINATES = re.compile(
    r"(?<![\d.])(?P<v>-?(?:[1-8]?\d|90)\.\d{4,8}°?\s?[NS]?,\s{0,3}-?(?:1[0-7]\d|\d{1,2}|180)\.\d{4,8}°?\s?[EW]?)(?![\d.])"
)
_NAMED = re.compile(
    rf"(?i:\b(?:{_any('labels of names')}))\\*[\"']?[:=]?[ \t]{{1,3}}\\*[\"']?"
    r"(?P<v>[A-Z][a-zà-ÿ'-]{1,20}(?: [A-Z]\.)?(?: [A-Z][a-zà-ÿ'-]{1,20}){1,2})(?![\w:(=])"
)


def _street_matches(text: str) -> Iterator[re.Match[str]]:
    """Yield possible streets, by their numbers, which are quick to find."""
    for ahead in _AHEAD.finditer(text):
        start = ahead.start()
        while start and text[start - 1].isdigit() and ahead.start() - start < 5:
            start -= 1
        inside = start and (text[start - 1].isalnum() or text[start - 1] in "._-")
        if not inside and (match := _NUMBER_FIRST.match(text, start)):
            yield match
    for behind in _BEHIND.finditer(text):
        begin = max(text.rfind("\n", 0, behind.start()) + 1, behind.start() - 60)
        head = text[begin : behind.start()]
        if head == head.lower():
            continue
        match = _NAME_FIRST.search(text, begin, min(len(text), behind.end() + 80))
        if match and match.end() >= behind.end():
            yield match


def personal_data(subject: Subject) -> Iterator[Span]:
    """Yield street addresses and the names of persons' machines."""
    text, after = subject.text, -1
    for match in _street_matches(text):
        if match.end() > after:
            after = match.end()
            if _COUNTED.search(text, max(0, match.start() - 16), match.start()):
                continue
            street = set(match["v"].partition(",")[0].lower().split())
            if not _EXAMPLES.search(match["v"]) and not (street & _NO_NAME) - _IN_STREETS:
                yield _span(match, "ADDRESS", "street")
    if not text.isascii() and _CJK.search(text):
        yield from (_span(match, "NAME", "honorific") for match in _HONORIFIC.finditer(text))
        yield from (_span(match, "NAME", "double_surname") for match in _DOUBLE_SURNAME.finditer(text))
        yield from (_span(match, "ADDRESS", "east_asian") for match in _EAST_ASIAN.finditer(text))
    if "-" in text:
        if "TOP-" in text:
            yield from (Span(*match.span(), "HOST", "machine") for match in _WINDOWS.finditer(text))
        for match in _DEVICE.finditer(text):
            owner = _OWNER.search(text, max(0, match.start() - 27), match.start())
            if owner and _is_owner(owner["who"].lower(), match["what"].lower()):
                yield Span(owner.start(), match.end(), "HOST", "machine")


def _is_owner(who: str, what: str) -> bool:
    if is_given(who) or (who.endswith("s") and is_given(who[:-1])):
        return True
    return not what.startswith(_LOOSE_DEVICES) and who not in _SHARED


def any_personal_data(subject: Subject) -> Iterator[Span]:
    """Yield coordinates, and names after a label or a copyright sign."""
    text = subject.text
    if "." in text and "," in text:
        yield from (_span(match, "LOCATION", "coordinates") for match in _COORDINATES.finditer(text))
    for match in _NAMED.finditer(text):
        if is_person(match["v"]):
            yield _span(match, "NAME", "labeled_name")


def _span(match: re.Match[str], label: str, rule: str) -> Span:
    return Span(*match.span("v"), label, rule)
