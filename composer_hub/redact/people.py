"""Mail addresses and names of people.

In: a text. Out: spans. Addresses that belong to no person (example.com, no-reply senders of services) stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from composer_hub.redact.data import words
from composer_hub.redact.match import Span, Subject, line_before, places

# ----------------------------------------------------------------------------------------------------------------- mail

_LOCAL_SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-"
_DOMAIN = re.compile(
    r"@(?:[^\W_](?:(?:[^\W_]|-){0,62}[^\W_])?\.){1,8}(?:[A-Za-z]{2,24}|xn--[a-z0-9-]{2,40})(?![A-Za-z0-9_-])"
)
_ENCODED_MAIL = re.compile(
    r"(?:(?<![\w.%+-])|(?<=%3D)|(?<=%3A)|(?<=%20)|(?<=%22)|(?<=%2F)|(?<=%3C)|(?<=%26))[A-Za-z0-9][\w.+-]{0,63}%40(?:[A-Za-z0-9][A-Za-z0-9-]{0,62}\.){1,8}[A-Za-z]{2,24}(?![\w-])"
)
_SPELLED_MAIL = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{1,63}(?:\s?[\[({]\s?at\s?[\])}]\s?|&#(?:64|x40);|&commat;|\\u0040)[A-Za-z0-9][\w-]{0,62}"
    r"(?:\s?[\[(]\s?dot\s?[\])]\s?[A-Za-z0-9-]{2,62}|\.[A-Za-z]{2,24}){1,4}"
)
_WORDED_MAIL = re.compile(
    r"(?i)(?<![\w.+-])[a-z0-9][\w.+-]{1,40}(?: dot [a-z0-9][\w-]{0,40}){0,3} at [a-z0-9][\w-]{1,62}"
    r"(?: dot [a-z0-9][\w-]{1,40}){1,3}(?![\w-])"
)
_NO_PERSON = re.compile(
    r"(?i)(?:^|[.@])(?:example\.(?:com|org|net|edu)|example|test|invalid|localhost|local)$|^(?:git|hg"
    r"|svn|npm|user|username|you|your\.?(?:name|email)|name|email|foo|bar|me|someone|ec2-user|ubuntu"
    r"|root)@"
    r"|^(?:no-?reply|do-?not-?reply|mailer-daemon|postmaster|bounce|notifications?|support|security"
    r"|info|hello|abuse|webmaster|actions?|bot|dependabot|renovate|opensource|conduct)@|\[bot\]@"
    r"|^(?:\d+\+)?(?:[\w.]*[-_])?bot@|\.iam\.gserviceaccount\.com$|\.gserviceaccount\.com$"
)
_MESSAGE_ID = re.compile(r"(?i)(?:message-id|in-reply-to|references|content-id)[\"']?: ?[^:]*<[\w=+-]*\Z")
_COPYRIGHT = re.compile(r"(?i)copyright|©|\(c\) ?\d{4}")
_LEAD = re.compile(r"[^\w\"']*")
_FILE_ENDINGS = frozenset(words("file endings"))


def mail_addresses(subject: Subject) -> Iterator[Span]:
    """Yield e-mail addresses of people."""
    return _mail(subject.text)


def _mail(text: str) -> Iterator[Span]:
    at = text.find("@")
    while at >= 0:
        domain = _DOMAIN.match(text, at) if at and text[at - 1] in _LOCAL_SAFE else None
        if domain:
            head = text[max(0, at - 64) : at]
            start = _after_escape(text, at - (len(head) - len(head.rstrip(_LOCAL_SAFE))))
            while start < at and text[start] in ".%+-":
                start += 1
            address = text[start : domain.end()]
            if start < at and _is_mail(address, text, start):
                yield Span(start, domain.end(), "EMAIL", "email")
        at = text.find("@", domain.end() if domain else at + 1)
    for match in _SPELLED_MAIL.finditer(text) if _may_spell(text) else ():
        yield Span(*match.span(), "EMAIL", "email_spelled")
    if (" dot " in text and " at " in text) or (" DOT " in text and " AT " in text):
        yield from (Span(*match.span(), "EMAIL", "email_spelled") for match in _WORDED_MAIL.finditer(text))
    if "%40" in text:
        for match in _ENCODED_MAIL.finditer(text):
            if _is_mail(match[0].replace("%40", "@"), text, match.start()):
                yield Span(*match.span(), "EMAIL", "email_encoded")


def _may_spell(text: str) -> bool:
    return "[at]" in text or "(at)" in text or "[ at ]" in text or "( at )" in text or "&#" in text or "u0040" in text


def _is_mail(address: str, text: str, start: int) -> bool:
    if _NO_PERSON.search(address) or address.rpartition(".")[2].lower() in _FILE_ENDINGS:
        return False
    if text[start + len(address) : start + len(address) + 1] == "(":  # a product of matrices
        return False
    line = line_before(text, start, 160)
    if _MESSAGE_ID.search(line) or is_credited(text, start, line):
        return False
    # `user:pass@host` and `git@host:path` are addresses of machines.
    return text[max(0, start - 3) : start] != "://" and not (
        start and text[start - 1] == ":" and "://" in text[max(0, start - 40) : start]
    )


def is_credited(text: str, at: int, line: str) -> bool:
    """Return whether a license names its authors in this line or the line above."""
    if _COPYRIGHT.search(line):
        return True
    above = at - len(line) - 1
    if not (above > 0 and text[above] == "\n" and _COPYRIGHT.search(above_line := line_before(text, above, 160))):
        return False
    # A list of authors continues below its first line, after the same signs.
    return line[:1].isspace() or _LEAD.match(line)[0] == _LEAD.match(above_line)[0] != ""  # type: ignore[index]


def _after_escape(text: str, start: int) -> int:
    r"""Step over the letter of an escape: in `\nalice@…` the address begins after `\n`."""
    before = text[max(0, start - 32) : start]
    backslashes = len(before) - len(before.rstrip("\\"))
    if backslashes % 2 and start < len(text):
        return start + (5 if text[start] == "u" else 1) if text[start] in "nrtbfu" else start
    return start


# ---------------------------------------------------------------------------------------------------------------- names

_PERSON = r"[^\W\d_][\w.'\u2019-]{0,30}(?: (?:[^\W\d_][\w.'\u2019-]{0,30})){0,4}"
_MAIL_OPENS = re.compile(r"<(?:sips?:|mailto:)?[\w.%+-]{1,64}@")
_PERSON_ENDS = re.compile(rf"(?P<v>{_PERSON})[\"']? ?\Z")
_BLAME = re.compile(rf"\((?P<v>{_PERSON}) +\d{{4}}-\d\d-\d\d(?: \d\d:\d\d:\d\d [+-]\d{{4}})? +\d+\)")
_CAPITALIZED = r"[A-Z][\w'\u2019-]{1,30}(?: [A-Z][\w.'\u2019-]{0,30}){1,3}"
_SIGNED = re.compile(
    rf"(?:[mM]y name is |(?:[rR]egards,?|Thanks,|Cheers,|[sS]incerely,?)(?:\r?\n|\\{{1,8}}n)[ >+-]{{0,6}})"
    rf"(?P<v>{_CAPITALIZED})"
    r"(?![\w:(=])"
)
_SIGNING_WORDS = ("regards", "thanks", "cheers", "sincerely")
_ACCOUNT = re.compile(rf":x:\d{{1,6}}:\d{{1,6}}:(?P<v>{_PERSON})[,:]")
_TRAILER_WORDS = {"author": "author", "committer": "committer", "tagger": "tagger", "-by:": "_by", "user.name": "user"}
PERSON_TRIGGERS = (*_TRAILER_WORDS.values(), *_SIGNING_WORDS)
_PARTICLES = frozenset(words("particles of names"))
_TRAILER = re.compile(
    rf"(?i:author|committer|tagger|-by|user\.name)(?i:_name)?[\"']?[:=\s]{{1,4}}[\"']?(?P<v>{_PERSON})"
)
_NOT_PEOPLE = re.compile(
    r"(?i)\b(?:claude|anthropic|bot|github|gitlab|openai|codex|copilot|cursor|gemini|google|actions?"
    r"|dependabot|renovate|team|inc|ltd|llc|gmbh|foundation|contributors?|authors?|"
    r"noreply|no-reply|example|your|name|unknown|user|date|commit|merge|openhands|devin|aider|amp"
    r"|agent|assistant|ci|semantic-release|web-flow|the|community|project|developers?|maintainers?|not"
    r"|committed|yet)\b"
)


def person_names(subject: Subject) -> Iterator[Span]:
    """Yield the names of people: beside an address, in git trailers, under a letter."""
    text, lowered, triggers = subject
    if "@" in text and "<" in text:
        for mail in _MAIL_OPENS.finditer(text):
            yield from _person_before(text, mail.start())
    if " 20" in text and "(" in text and ") " in text:
        yield from _named_people(text, _BLAME, "git_blame")
    if "y name is " in text or not triggers.isdisjoint(_SIGNING_WORDS):
        yield from _named_people(text, _SIGNED, "signed")
    if ":x:" in text:
        yield from _named_people(text, _ACCOUNT, "account")
    for word, trigger in _TRAILER_WORDS.items():
        for at in places(lowered, word) if trigger in triggers else ():
            if (match := _TRAILER.match(text, at)) and is_person(name := match["v"].strip()):
                yield Span(match.start("v"), match.start("v") + len(name), "NAME", "git_name")


def _named_people(text: str, pattern: re.Pattern[str], rule: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        if is_person(match["v"]):
            yield Span(*match.span("v"), "NAME", rule)


def is_person(name: str) -> bool:
    """Return whether these words are the full name of a person."""
    return (
        " " in name
        and not _NOT_PEOPLE.search(name)
        and all(part[:1].isupper() or part in _PARTICLES or not part.isascii() for part in name.split())
    )


def _person_before(text: str, at: int) -> Iterator[Span]:
    """Yield the capitalized words before a mail address if they name a person."""
    begin = max(0, at - 80)
    match = _PERSON_ENDS.search(text[begin:at])
    if not match:
        return
    parts, start = match["v"].split(" "), begin + match.start("v")
    while parts and parts[0][:1] == parts[0][:1].lower() != parts[0][:1].upper():
        start += len(parts.pop(0)) + 1
    person = " ".join(parts)
    alone = len(parts) == 1 and next(_mail(text[at : at + 120]), None) is None
    if person and not alone and not _NOT_PEOPLE.search(person):
        yield Span(start, start + len(person), "NAME", "name_before_mail")
