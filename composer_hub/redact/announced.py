"""Secrets that a person announces: "the wifi password is …", "pw: …", "use PIN …", a phrase in quotes.

In: a text. Out: spans of values. A person who writes to an agent announces what a value is, so plain words
and numbers count here, which nothing gives away elsewhere. `sentences.py` reads all other texts, and asks for
more proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from composer_hub.redact.data import words
from composer_hub.redact.judge import is_uuid, looks_random
from composer_hub.redact.match import Span
from composer_hub.redact.needles import trie
from composer_hub.redact.settings import CODE, PASSWORD, is_setting_secret

MAX_CHARS = 4_000
"""Characters of a message that a person typed; longer ones are pasted, or written by a program."""
MAX_TOLD, MAX_SHOWN = 120, 60
"""Characters between a word and its code in the words of a person, and in those of a program."""

_NOUNS = trie(
    {
        noun
        for noun in (*words("nouns for secrets"), *words("settings with passwords"))
        if len(noun) > 3 and noun != "pass"
    }
)
_NOUN = re.compile(
    rf"(?<![^\W\d_])(?<!/)(?:[^\W\d_]{{0,20}}[ -]?)??"
    rf"(?:{_NOUNS}|pw|pwd|(?<!s )pass(?=[ \t]*[:=])|psk|mdp)(?![a-z]{{3}})"
)
_ANY_NOUN = re.compile(rf"{_NOUNS}|pw|pass|psk|mdp")
_LOCK = trie(words("what codes open"))
_CODES = (
    rf"pins?|puk|otp|totp|cvc|cvv|passcode|{_LOCK}[ -]?codes?|one[- ]time code|keypad|duress"
    r"|(?:verif\w+|otp|2fa|mfa|sms|log-?in)[^\n\d]{0,24}? code(?=[=:])|\d[ -]?digits? codes?|code (?:\w+ ){0,5}(?:sms|text|phone)|phone shows?"  # noqa: E501
    r"|(?:code|código|codice|codigo) (?:de|di) (?:la |del? )?(?:v[eé]rifi\w+|confirma\w+|s[eé]curi\w+|segur\w+|acc[eè]s\w*|porte|puerta|sicurezza)"  # noqa: E501
    r"|(?:verifizierungs|bestätigungs|einmal|sicherheits|zugangs)-?code|код (?:подтверждения|доступа)|验证码|驗證碼|認証コード|인증번호"  # noqa: E501
)
_CODE_NOUN = re.compile(rf"(?<![^\W\d_])(?:{_CODES})(?![a-z]|-[a-z])")  # no part of a path such as pin-resolution
_TOLD_CODE_NOUN = re.compile(
    rf"(?<![^\W\d_])(?:{_CODES}|second factor|2fa|mfa|authenticator|codes? (?:for|to|of) the|codes(?=: )|code de|código de|codice di"  # noqa: E501
    r"|(?:phone|app|token) shows?|(?:opens|apre|öffnet|abre|ouvre|åpnes) (?:with|con|mit|com|avec|med)"
    r"|(?:codice|código|codigo|code|kod|koden) (?:\w+['’ ]){0,2}(?:allarme|alarma|alarme|porta|puerta|porte|cancello|garage|dør|alarm)"  # noqa: E501, RUF001
    r"|(?:gate|door|alarm|safe|garage|locker|lockbox|bike lock)(?= (?:is |= ?)?#?\d{4}))(?![a-z])"  # noqa: E501, RUF100
)
"""The same in the words of a person."""
_NUMBER = re.compile(
    r"(?<![\w.:/#$€£,+~(-])(?<!RFC )(?<!PR )(?<!port )(?P<v>\d{3} \d{3,4}|\d{3,4}-\d{3}-\d{4}|\d\d \d\d \d\d|\d{4,8}(?:[#*](?!\*))?|(?<=cvv )\d{3}|(?<=cvc )\d{3})(?![\w%:/-]|\.\d|,\d| (?:[a-z]+(?:s|ed)\b|ms|px|MB|GB))"  # noqa: E501
)
_IS = (
    r"(?:[:=\uff1a→]|->|\b(?:is|was|be|says?|reads?|shows?|are|it's|ist|lautet|heißt|war|est|était|es|era|é|è|sarà|"
    r"är|er|je|jest|zu|sur)\b:?|是|为|為|は|은|는|это)"
)
_NOW = r"(?:(?:now|currently|still|just|simply|probably|actually|jetzt|nun|noch|einfach|ahora|maintenant|adesso|nu|teraz|теперь|simplemente)[ \t]+)?"  # noqa: E501
_OPEN, _CLOSE = "\"'`“”„«»‘’", "\"'`“”»«’"  # noqa: RUF001
_VALUE = re.compile(
    rf"(?:[ \t]+(?=\S*\d|[a-z]{{4}}(?:-[a-z]{{4}}){{3}})(?=\S*[^\W\d_])(?=\S{{6}})(?!\w*_)|[^\n!?&={{}}()]{{0,60}}?[ \t]*{_IS}|[ \t]+(?=[`\"'“„]))[ \t]*\n?[ \t]*{_NOW}\*{{0,2}}"  # noqa: E501
    rf"(?:[{_OPEN}](?P<quoted>[^\n{_CLOSE}]{{4,100}})[{_CLOSE}]|(?P<bare>[^\s{_OPEN}+]\S{{0,80}})(?P<rest>[^\n]{{0,80}}))"
)
_CLAUSE = re.compile(r"[,;.!?] ")
_TOKEN = re.compile("|".join(map(re.escape, (*words("nouns for tokens"), "credential", "creds"))))
_PROSE = re.compile(
    r"(?i)\b(?:the|and|that|with|for|not|you|your|from|have|but|when|which|will|should|must|i|it|we|my|is|are|be|can|or|if|please|und|der|die|das|nicht|ist|el|la|de|que|le|les|des)\b"
)
_SIGN = re.compile(r"[\d!@#$%^&*+?=~;]")
_NOT_TOLD = re.compile(r"[\u3000-\u9fff\uac00-\ud7af\"{}<>|]|\*\*|\w=\w|\ATest[A-Z]")


_APART = re.compile(r"[(|→\[{]|->|//")
"""Between a word and a number of a program that have nothing to do with each other."""
_KEYS = "key|schlüssel|clé|clave|llave|chiave|chave|sleutel|nyckel|nøkkel|klucz|ключ"
_ANY_KEY = re.compile(_KEYS)
_KEY_NOUN = re.compile(rf"(?<![a-z])[a-z]{{0,12}}[ _-]?(?:{_KEYS})(?![a-z])")
_PUBLIC = re.compile(r"pub|öffentlich|openbar|verif|host|cache")
_HALF = re.compile(
    r"(?i)\b(?:first|second|third|other|last|1st|2nd|erste|zweite) (?:part|half|word|piece|teil|hälfte|wort)(?: is|:| ist)?,? "  # noqa: E501
    r"[\"'`]?(?P<v>[^\s\"'`,;]{4,60}(?<![.!?]))"
)
"""A part of a secret that a person tells in several."""
_BELOW = re.compile(r"\s*\n[ \t]*\d{4,8}[ \t]*(?=\n|\Z)")
_LICENSE = re.compile(r"(?<![\w-])[A-Z0-9]{4,6}(?:-[A-Z0-9]{4,6}){1,7}(?![\w-])")


def _in_lines_with(quick: re.Pattern[str], slow: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of a slow expression, which stay within a line, in the lines with a match of a quick one."""
    end = 0
    while match := quick.search(text, end):
        end = text.find("\n", match.end())
        end = end if end >= 0 else len(text)
        yield from slow.finditer(text, text.rfind("\n", 0, match.start()) + 1, end)


def announced_secrets(text: str) -> Iterator[Span]:
    """Yield the secrets that the person who wrote this message announces."""
    if len(text) > MAX_CHARS:
        return
    lowered = text.lower()
    nouns = list(_in_lines_with(_ANY_NOUN, _NOUN, lowered))
    for noun in nouns:
        match = _VALUE.match(text, noun.end())
        if match and (span := _announced(text, match, is_phrase=not _TOKEN.search(noun[0]))):
            yield Span(*span, "SECRET", "announced")
    yield from _announced_keys(text, lowered)
    if nouns or _TOKEN.search(lowered):
        for part in _HALF.finditer(text):
            if is_setting_secret(part["v"], PASSWORD, "line"):
                yield Span(*part.span("v"), "SECRET", "announced")
    yield from numeric_codes(text, lowered, _TOLD_CODE_NOUN, MAX_TOLD)
    if any(word in lowered for word in ("licen", "product key", "activation", "recovery key")):
        for key in _LICENSE.finditer(text):
            if any(c.isdigit() for c in key[0]) and any(c.isalpha() for c in key[0]):
                yield Span(*key.span(), "SECRET", "announced")


def _announced_keys(text: str, lowered: str) -> Iterator[Span]:
    """Yield the random values of keys that are not public."""
    for key in _in_lines_with(_ANY_KEY, _KEY_NOUN, lowered):
        match = _VALUE.match(text, key.end())
        if not match or _PUBLIC.search(lowered, max(0, key.start() - 12), key.end()):
            continue
        group = "quoted" if match["quoted"] else "bare"
        value = match[group].rstrip(".,;:!?)]}*\"'`")
        if len(value) >= 20 and "(" not in value and looks_random(value) and not is_uuid(value):
            start = match.start(group)
            yield Span(start, start + len(value), "SECRET", "announced")


def numeric_codes(
    text: str,
    lowered: str,
    nouns: re.Pattern[str] = _CODE_NOUN,
    reach: int = MAX_SHOWN,
    begin: int = 0,
    end: int | None = None,  # of the part in which a noun may be
) -> Iterator[Span]:
    """Yield the digits after a word for what opens a door or an account."""
    for noun in nouns.finditer(lowered, begin, len(lowered) if end is None else end):
        stop = min(
            (at for at in (text.find(sign, noun.end()) for sign in ("\n", ". ", ";")) if at >= 0),
            default=len(text),
        )
        if text[noun.end() : stop].rstrip()[-1:] in (":", "?", ">") and (below := _BELOW.match(text, stop)):
            stop = below.end()  # a prompt, and what was typed at it
        for number in _NUMBER.finditer(text, noun.end(), min(stop, noun.end() + reach)):
            if nouns is _CODE_NOUN and _APART.search(text, noun.end(), number.start("v")):
                break
            if is_setting_secret(number["v"], CODE, "quoted line"):
                yield Span(*number.span("v"), "SECRET", "code")


def asks_for_code(question: str) -> bool:
    """Return whether a question is for a PIN or a one-time code."""
    return bool(_TOLD_CODE_NOUN.search(question.lower()))


def _announced(text: str, match: re.Match[str], *, is_phrase: bool) -> tuple[int, int] | None:
    if value := match["quoted"]:
        start = match.start("quoted")
        secret = is_setting_secret(value, PASSWORD, "quoted line") or (value.isalpha() and looks_random(value))
        return (start, start + len(value)) if secret and _is_told(value, is_quoted=True) else None
    start = match.start("bare")
    value = match["bare"].rstrip(".,;:!?)]}*\"'`")
    if (
        is_setting_secret(value, PASSWORD, "line")
        and _is_told(value)
        and not (value.isalpha() or (value.isdigit() and not is_phrase))
    ):
        return start, start + len(value)
    line = (match["bare"] + match["rest"]).rstrip(" .!")
    whole = match.end() == len(text) or text[match.end()] == "\n"
    for phrase in (*([line] if whole else []), _CLAUSE.split(line)[0]) if is_phrase else ():
        if " " in phrase and _is_told(phrase) and is_setting_secret(phrase, PASSWORD, "quoted line"):
            return start, start + len(phrase)
    return None


def _is_told(value: str, *, is_quoted: bool = False) -> bool:
    """Return whether a value is a secret rather than the name of a variable, a file or a thing."""
    if _NOT_TOLD.search(value):
        return False
    if " " in value:
        return not _PROSE.search(value)
    if value.isupper() and "_" in value:
        return False
    parts = re.split(r"[-_.]", value)
    if is_quoted and len(parts) == 2 and all(part.istitle() for part in parts):
        return True
    return bool(_SIGN.search(value)) or (
        len(parts) > 2 and all(parts) and (is_quoted or any(part.istitle() for part in parts))
    )
