"""Secrets in sentences: a password that someone names, a login beside its password, the words of a wallet.

In: a text. Out: spans of values. Sentences give little away, so the value itself must look like a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from composer_hub.redact.announced import numeric_codes
from composer_hub.redact.data import words
from composer_hub.redact.judge import is_example_key, is_hex, looks_like_password
from composer_hub.redact.match import NEXT_FIELD, Span, Subject, places
from composer_hub.redact.names import is_harmless

_NOUNS = {noun: noun.split()[0].split("-")[0] for noun in words("nouns for secrets")}
"""Nouns for secrets in the languages that people write to agents in, and the trigger of each."""
_LOGINS = {
    login: {"creds": "cred", "credential": "cred"}.get(login, login.split()[0])
    for login in words("announcements of logins")
}
_WALLETS = words("announcements of wallets")
_CODE_LISTS = words("announcements of codes")
_DOORS = frozenset(
    ("code", "pin", "puk", "otp", "cvc", "cvv", "keypad", "duress", "验证码", "驗證碼", "認証コード", "인증번호", "код")
)
SENTENCE_TRIGGERS = (*_NOUNS.values(), *_LOGINS.values(), *_WALLETS, *_CODE_LISTS, *_DOORS)
_ANY_TRIGGER = frozenset(SENTENCE_TRIGGERS)

MAX_STATED = 1_000
"""Characters between a noun and the end of a value that a sentence names."""
_SIGN = re.compile(r"[\d!@#$%^&*?+]")
"""A value in a sentence has at least one of these."""
_GAP = r"(?:[ \t]|\n|\\n|(?<=\n)[>+|]|(?<=\n)[ \t]{0,8}\d{1,6}[\t:→|]){0,60}"
_OPEN = r"(?:\\?[\"'`“”„«»\u2018\u2019*]){0,4}"
_VALUE = r"(?=[^\s\"'`]{0,60}[\d!@#$%^&*?+])(?P<v>[!#-&(-+\--;=-\[\]^_a-z{|}~\u00c0-\u024f\u0400-\u04ff]{6,200})"
_IS = (
    r"(?:[:=\uff1a→—\u2013]|->|=>|は|是|为|為|은|는|\b(?:is|was|be|to|as|are|it's|ist|lautet|heißt|wäre|est|es|era|é|è|sarà|foi|er"
    r"|är|je|jest|on|van|olarak)\b:?|(?<=')s\b)"
)
_STATED = re.compile(
    rf"[^\W\d_]{{0,6}}(?:\*\*)?(?:[ \t]*[(\[][^()\[\]\n]{{1,40}}[)\]])?"
    rf"(?:'(?=s )|[ \t]+[\w@.'\u2019/()-]{{1,40}}){{0,8}}?"
    rf"[ \t]*(?:{_IS}[ \t]*(?:now[ \t]+)?){{1,2}}(?:\*\*)?{_GAP}{_OPEN}{_VALUE}"
)
_NAMED_AFTER = re.compile(
    rf"(?<![^\s\"'`(]){_VALUE}[\"'`]?\s(?:as|is|for|für|als|como|comme)\s(?:[\w'\u2019-]{{1,20}}\s){{0,3}}\Z"
)
_LOGIN = re.compile(
    r"\w{0,9}[^\n]{0,60}?(?:[\s:=(\"'`]|\\?[\"'])(?P<user>[\w.@+-]{2,60})\\?[\"'`]?"
    r"(?:\s{0,3}[/:|,]\s{0,3}|\s+(?:and|und|et|y|e|with|pw|pass)\s+)"
    rf"\\?[\"'`]?{_VALUE}"
)
_NUMBERED_SEED = re.compile(
    r"(?<!\d)(?P<v>1[.)] ?[a-z]{3,8}(?:[, \n]{1,3}(?:[2-9]|1\d|2[0-4])[.)] ?[a-z]{3,8}){11,23})"
)
_AS = re.compile(r" (?:as|is|for|für|als|como|comme) (?:[^ ]{1,20} ){0,3}\Z")
_AS_WORDS = (" as ", " is ", " for ", " für ", " als ", " como ", " comme ")
_USER_IS = re.compile(
    r"(?i)s?(?:[_ ]?name)?(?:\\?[\"'`])?[ \t]{0,3}(?:[:=]|is\b|[\w.@-]{2,40}[ \t]{0,3}(?:[/|,]|and\b|with\b|pw\b))"
)
_SEED = re.compile(
    r"[^\n]{0,60}?(?:[\s:=\"'`(]|\\n)"
    r"(?:\s|\\n|\d{1,6}[\t→]|[+>*-] )*"
    r"(?P<v>(?:(?:(?:\d{1,2}[.):]?[ \t]{0,2})?[a-z]{3,8}(?:,?[ \t]{1,3}|,?[ \t]{0,3}\n[ \t+>]{0,9})){11,23}"
    r"(?:\d{1,2}[.):]?[ \t]{0,2})?[a-z]{3,8}))(?![\w])"
)
_PROSE = re.compile(r" (?:the|and|that|this|with|for|are|not|was|you|from|have|has|but|when|which|will|its|been) ")
_CODES = re.compile(
    r"(?i)\w{0,9}[ _-]?(?:2fa |login )?codes?\b[^\n]{0,80}?[:\n ]"
    r"(?P<list>(?:(?:\s|\\n|[,|>+*\"'-]|\d{1,6}[\t→.)])*[a-z0-9]{4,12}(?:-[a-z0-9]{4,12}){1,3}\b){1,24})"
)
_NUMBER = re.compile(r"\d{3}")
_DRIVE_KEY = re.compile(r"(?<![\d-])\d{6}(?:-\d{6}){7}(?![\d-])")
"""Opens an encrypted drive."""
_DIGITS = re.compile(r"(\d{4,6})-\d{4,6}")
_CODE = re.compile(r"(?i)(?<![\w-])[a-z0-9]{4,12}(?:-[a-z0-9]{4,12}){1,3}(?![\w-])")

_LONE_SEED = re.compile(
    r"(?P<q>[\"'`])(?P<v>[a-z]{3,8}(?: [a-z]{3,8}){11}(?:(?: [a-z]{3,8}){3}){0,4})(?P=q)"
    r"|(?m:^[ \t>]*(?P<line>[a-z]{3,8}(?: [a-z]{3,8}){11}(?:(?: [a-z]{3,8}){3}){0,4})[ \t.]*$)"
)
_QUOTED_SEED = re.compile(r"[\"'][a-z]{3,8}[\"'](?:,\s{1,40}[\"'][a-z]{3,8}[\"']){11,23}")
_WALLET_WORD = re.compile(r"(?i)mnemonic|seed|recovery|wallet|bip-?39|frompphrase|phrase")


_PART_OF_ANOTHER = re.compile(r"node_id|ENC\[")
"""Between a login and what is no password: an id, or a value that is encrypted already."""


def sentence_secrets(subject: Subject) -> Iterator[Span]:
    """Yield the secrets that sentences name."""
    if "12. " in subject.text or "12) " in subject.text:
        yield from (Span(*match.span("v"), "SECRET", "seed_phrase") for match in _NUMBERED_SEED.finditer(subject.text))
    if _ANY_TRIGGER.isdisjoint(subject.words):
        return
    reversible = any(word in subject.lowered for word in _AS_WORDS)
    for noun, trigger in _NOUNS.items():
        if trigger in subject.words:
            yield from _stated(subject, noun, reversible)
    for login, trigger in _LOGINS.items():
        if trigger in subject.words:
            yield from _logins(subject, login)
    for word in sorted(_DOORS & subject.words):
        for at in places(subject.lowered, word):
            if _NUMBER.search(subject.text, at, at + 90):
                yield from numeric_codes(subject.text, subject.lowered, begin=max(0, at - 32), end=at + len(word) + 12)
    if "recovery" in subject.words and "-" in subject.text:
        yield from (Span(*key.span(), "SECRET", "recovery_code") for key in _DRIVE_KEY.finditer(subject.text))
    for word in _WALLETS:
        if word in subject.words:
            yield from _seed_phrases(subject, word)
    if not subject.words.isdisjoint(_WALLETS):
        yield from _lone_seed_phrases(subject.text)
    for word in _CODE_LISTS:
        if word in subject.words:
            yield from _codes(subject, word)


def _stated(subject: Subject, noun: str, reversible: bool) -> Iterator[Span]:
    """Yield the values after a noun and, if the text has a word for it (`use x as password`), before it."""
    text, lowered, sign = subject.text, subject.lowered, -1
    for at in places(lowered, noun):
        end = at + len(noun)
        before = lowered[max(0, at - 1) : at]
        if before == ":" or (before.isalnum() and len(noun) < 4):
            continue
        if sign < end:
            sign = next_sign.start() if (next_sign := _SIGN.search(text, end)) else len(text) + MAX_STATED
        match = _STATED.match(text, end) if sign < end + MAX_STATED else None
        span = _password(text, match) if match else None
        if reversible and not span and before == " " and _AS.search(lowered, max(0, at - 40), at):
            match = _NAMED_AFTER.search(text, max(0, at - 120), at)
            span = _password(text, match) if match else None
        # Asked last, because it is slow and few places are left.
        if span and not is_harmless(lowered[max(0, at - 24) : at], lowered[end : end + 24], "token"):
            yield Span(*span, "SECRET", f"sentence:{noun}")


def _logins(subject: Subject, login: str) -> Iterator[Span]:
    for at in places(subject.lowered, login):
        end = at + len(login)
        if login == "user" and not _USER_IS.match(subject.text, end):
            continue
        match = _LOGIN.match(subject.text, end)
        if match and (span := _password(subject.text, match)) and _is_login_of(subject.text[slice(*span)], match[0]):
            yield Span(*span, "SECRET", f"login:{login}")


def _is_login_of(value: str, between: str) -> bool:
    """Return whether a value is a password rather than a digest, path or id beside a login."""
    return not is_hex(value) and value.count("/") < 2 and "=" not in value[:-1] and not _PART_OF_ANOTHER.search(between)


def _password(text: str, match: re.Match[str]) -> tuple[int, int] | None:
    start, end = match.span("v")
    value = NEXT_FIELD.split(text[start:end])[0].rstrip(".,;:)]}>|*")
    if value[:1] == "+" and value[1:].isalpha():
        return None  # an added line of a diff
    return (start, start + len(value)) if looks_like_password(value) else None


def _seed_phrases(subject: Subject, word: str) -> Iterator[Span]:
    """Yield the twelve to twenty-four words that open a wallet."""
    after = 0
    for at in places(subject.lowered, word):
        if at >= after and (match := _SEED.match(subject.text, at + len(word))):
            after = match.end()
            if not _PROSE.search(f" {match['v']} ") and not is_example_key(match["v"]):
                yield Span(*match.span("v"), "SECRET", "seed_phrase")


def _codes(subject: Subject, word: str) -> Iterator[Span]:
    for at in places(subject.lowered, word):
        if codes := _CODES.match(subject.text, at + len(word)):
            for code in _CODE.finditer(subject.text, *codes.span("list")):
                mixed = any(c.isdigit() for c in code[0]) and any(c.isalpha() for c in code[0])
                if mixed or _DIGITS.fullmatch(code[0]):
                    yield Span(*code.span(), "SECRET", "recovery_code")


def _lone_seed_phrases(text: str) -> Iterator[Span]:
    """Yield twelve to twenty-four words on their own in a text that mentions a wallet."""
    if not _WALLET_WORD.search(text):
        return
    for match in _QUOTED_SEED.finditer(text):
        yield Span(*match.span(), "SECRET", "seed_phrase")
    for match in _LONE_SEED.finditer(text):
        group = "v" if match["v"] else "line"
        value = match[group]
        if not _PROSE.search(f" {value} ") and len(set(value.split())) > 9:
            yield Span(*match.span(group), "SECRET", "seed_phrase")
