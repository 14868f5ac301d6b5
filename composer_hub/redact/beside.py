"""Personal data that only its neighbor gives away: the phone number of a person, the login of a password.

In: a text in which names, addresses and secrets are placeholders already. Out: spans. Texts are searched until nothing
changes, so each pass sees what the one before has found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from composer_hub.redact.fields import is_person_login
from composer_hub.redact.match import Span, Subject

REACH = 60
"""Characters between a person and what belongs to them, on one line."""
_PERSON = re.compile(r"\[(?:NAME|EMAIL|ADDRESS)_x?\w{1,16}\]")
_NUMBER = re.compile(r"(?<![\w.:/#+$€-])(?P<v>\(?0\d[\d ()/-]{5,16}\d|\d{2,5}(?:[ -]\d{2,4}){2,4})(?![\w:/%]|[.-]\d)")
_DATE = re.compile(r"\d{4}[- /]\d\d[- /]\d\d|\d\d[-/]\d\d[-/]\d{4}|(?:19|20)\d\d ")
_LOGIN = re.compile(
    r"(?://|\s(?:-u|--user) ?|(?i:\b(?:login|user(?:name)?|account|as))[ :=]{1,3})"
    r"[\"'`]?(?P<v>[A-Za-z][\w.-]{2,31})[\"'`]?"
    r"(?:\s?[/:|,]\s?|\s+(?:and |with )?(?i:password|passwd|pass|pw)[ :=]{1,3})[\"'`]?(?=\[SECRET_)"
)
_INITIAL = re.compile(r"[a-z]\.[a-z]{3,20}|[a-z]{3,20}\.[a-z]")


def beside_people(subject: Subject) -> Iterator[Span]:
    """Yield the phone numbers of people, and the logins of their passwords."""
    text = subject.text
    if "[SECRET_" in text:
        for match in _LOGIN.finditer(text):
            if _INITIAL.fullmatch(match["v"]) or is_person_login(match["v"]):
                yield Span(*match.span("v"), "USER", "beside_secret")
    for person in _PERSON.finditer(text):
        begin, end = text.rfind("\n", 0, person.start()) + 1, text.find("\n", person.end())
        begin = max(begin, person.start() - REACH)
        end = min(end if end >= 0 else len(text), person.end() + REACH)
        for match in _NUMBER.finditer(text, begin, end):
            digits = sum(c.isdigit() for c in match["v"])
            if 8 <= digits <= 13 and not _DATE.match(match["v"]) and len(set(match["v"])) > 4:
                yield Span(*match.span("v"), "PHONE", "beside_person")
