"""Secrets that people say in words: a password named in a sentence, a login beside its password, a wallet's words.

In: a text and the words it holds. Out: spans of values with the rule that found them. Sentences say little, so the
value itself must look like a password: three kinds of characters, and no word with a number behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from composer_hub.redact.entropy import is_dummy, is_hex, is_worded, looks_random, num_classes, switches
from composer_hub.redact.named import ALGORITHM, PLACEHOLDER, Span
from composer_hub.redact.names import is_harmless

NOUNS = (
    *("password", "passwd", "passcode", "passphrase", "pwd", "pw", "credential", "creds", "token", "secret", "api key"),
    *("access key", "signing key", "license key", "recovery key", "master key", "private key"),
    *("passwort", "kennwort", "zugangsdaten", "schlüssel", "mot de passe", "mdp", "identifiants", "clé"),
    *("contraseña", "clave", "senha", "palavra-passe", "parola", "wachtwoord", "hasło", "lösenord", "adgangskode"),
    *("passord", "salasana", "heslo", "jelszó", "şifre", "parolă", "kata sandi", "mật khẩu"),
    *("пароль", "пароля", "токен", "ключ", "κωδικ", "סיסמ", "كلمة المرور", "كلمة السر"),
    *("密码", "密碼", "口令", "密钥", "令牌", "パスワード", "トークン", "비밀번호", "암호"),
)
"""What a secret is called, in the languages that people write to agents in."""

_GAP = r"(?:[ \t]|\n|\\n|(?<=\n)[>+|]|(?<=\n)[ \t]{0,8}\d{1,6}[\t:→|]){0,60}"
_OPEN = r"(?:\\?[\"'`“”„«»\u2018\u2019*]){0,4}"
_VALUE = r"(?=[^\s\"'`]{0,60}[\d!@#$%^&*?+])(?P<v>[!#-&(-+\--;=-\[\]^_a-z{|}~]{6,200})"
_IS = (
    r"(?:[:=\uff1a→—\u2013]|->|=>|は|是|为|為|은|는|\b(?:is|was|be|to|as|are|it's|ist|lautet|heißt|wäre|est|es|era|é|è|sarà|foi|er"
    r"|är|je|jest|on|van|olarak)\b:?|(?<=')s\b)"
)
_SAID = re.compile(
    rf"[^\W\d_]{{0,6}}(?:\*\*)?(?:[ \t]*[(\[][^()\[\]\n]{{1,40}}[)\]])?"
    rf"(?:'(?=s )|[ \t]+[\w@.'\u2019/()-]{{1,40}}){{0,8}}?"
    rf"[ \t]*(?:{_IS}[ \t]*(?:now[ \t]+)?){{1,2}}(?:\*\*)?{_GAP}{_OPEN}{_VALUE}"
)
_AS = re.compile(
    rf"(?<![^\s\"'`(]){_VALUE}[\"'`]?\s(?:as|is|for|für|als|como|comme)\s(?:[\w'\u2019-]{{1,20}}\s){{0,3}}\Z"
)
_LOGIN = re.compile(
    r"\w{0,9}[^\n]{0,60}?(?:[\s:=(\"'`]|\\?[\"'])(?P<user>[\w.@+-]{2,60})\\?[\"'`]?"
    r"(?:\s{0,3}[/:|,]\s{0,3}|\s+(?:and|und|et|y|e|with|pw|pass)\s+)"
    rf"\\?[\"'`]?{_VALUE}"
)
_AS_BEFORE = re.compile(r" (?:as|is|for|für|als|como|comme) (?:[^ ]{1,20} ){0,3}\Z")
_USER_IS = re.compile(
    r"(?i)s?(?:[_ ]?name)?(?:\\?[\"'`])?[ \t]{0,3}(?:[:=]|is\b|[\w.@-]{2,40}[ \t]{0,3}(?:[/|,]|and\b|with\b|pw\b))"
)
_LOGINS = {
    "log in": "log",
    "login": "login",
    "sign in": "sign",
    "creds": "cred",
    "credential": "cred",
    "account": "account",
}
_LOGINS |= {"user": "user", "logon": "logon", "zugang": "zugang", "anmeld": "anmeld"}
"""What a login is announced by, and the trigger of each."""
_SEED = re.compile(
    r"[^\n]{0,60}?(?:[\s:=\"'`(]|\\n)"
    r"(?:\s|\\n|\d{1,6}[\t→]|[+>*-] )*"
    r"(?P<v>(?:(?:(?:\d{1,2}[.):]?[ \t]{0,2})?[a-z]{3,8}(?:,?[ \t]{1,3}|,?[ \t]{0,3}\n[ \t+>]{0,9})){11,23}"
    r"(?:\d{1,2}[.):]?[ \t]{0,2})?[a-z]{3,8}))(?![\w])"
)
_SEED_WORDS = ("mnemonic", "seed", "recovery", "wallet", "bip")
_PROSE = re.compile(r" (?:the|and|that|this|with|for|are|not|was|you|from|have|has|but|when|which|will|its|been) ")
_CODES = re.compile(
    r"(?i)\w{0,9}[ _-]?(?:2fa |login )?codes?\b[^\n]{0,40}?[:\n]"
    r"(?P<list>(?:(?:\s|\\n|[,|>+*\"'-]|\d{1,6}[\t→.)])*[a-z0-9]{4,12}(?:-[a-z0-9]{4,12}){1,3}\b){1,24})"
)
_CODES_OF = ("recovery", "backup", "scratch", "emergency")
_CODE = re.compile(r"(?i)(?<![\w-])[a-z0-9]{4,12}(?:-[a-z0-9]{4,12}){1,3}(?![\w-])")

PHRASE_TRIGGERS = (*{noun.split()[0].split("-")[0] for noun in NOUNS}, *_SEED_WORDS, *_LOGINS.values(), *_CODES_OF)

_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?")
_MADE = re.compile(r"\d\W*[!@#$%^&*?]|[!@#$%^&*?+]\w|(?<=[a-z])\d{3,4}[!?.]{0,2}\Z")
"""What people add to words to make a password of them: a sign, or a year."""
_NEXT_FIELD = re.compile(r"[&;]\w{1,40}=")
_NO_PASSWORD = re.compile(
    r"://|^[*/.~$<{(\[%@#&|=-]|\$\{|\{\{|\(|\)|^(?:[a-z_]{2,}|[A-Z_]{2,})=|\.(?:py|js|ts|go|rs|rb|java|md|json|ya?ml|toml|txt|sh|html|css|lock|log|env)\b"
    r"|^v?\d+(?:\.\d+)+|^[\d:.,TZ/+-]+$|::|\[\]|[A-Za-z]\.[a-z_]{3,}\.|^0x[0-9a-fA-F]{1,40}$|^[A-Z]{2,10}-\d+$|\\|;$|^\w+\[|@[\w-]+\.\w{2,}$"
)


def phrase_spans(text: str, lowered: str, words: Set[str]) -> Iterator[Span]:
    """Yield the secrets that sentences name."""
    for noun in NOUNS:
        if noun.split()[0].split("-")[0] in words:
            yield from _said(text, lowered, noun)
    for login, trigger in _LOGINS.items():
        if trigger in words:
            yield from _logins(text, lowered, login)
    for word in _SEED_WORDS:
        if word in words:
            yield from _seeds(text, lowered, word)
    for word in _CODES_OF:
        if word in words:
            yield from _codes(text, lowered, word)


def _seeds(text: str, lowered: str, word: str) -> Iterator[Span]:
    """Yield the twelve to twenty-four words that open a wallet."""
    at = lowered.find(word)
    while at >= 0:
        end = at + len(word)
        if (found := _SEED.match(text, end)) and not _PROSE.search(f" {found['v']} "):
            yield *found.span("v"), "SECRET", "seed_phrase"
        at = lowered.find(word, found.end() if found else end)


def _codes(text: str, lowered: str, word: str) -> Iterator[Span]:
    at = lowered.find(word)
    while at >= 0:
        end = at + len(word)
        if listed := _CODES.match(text, end):
            for code in _CODE.finditer(text, *listed.span("list")):
                if any(c.isdigit() for c in code[0]) and any(c.isalpha() for c in code[0]):
                    yield *code.span(), "SECRET", "recovery_code"
        at = lowered.find(word, end)


def looks_like_password(value: str) -> bool:
    """Tell a password from the words, names, versions and paths that stand in sentences and calls."""
    if _NO_PASSWORD.search(value) or ALGORITHM.fullmatch(value) or PLACEHOLDER.search(value):
        return False
    made = any(c.isdigit() or c in "!@#$%^&*?+" for c in value)
    if len(value) < 6 or num_classes(value) < 3 or not made or is_dummy(value):
        # A digest has forty characters or more.
        return (
            looks_random(value) and value.isalnum() and not value.isdigit() and not (is_hex(value) and len(value) > 32)
        )
    if "/" in value and _PATH.fullmatch(value) and switches(value) < 0.35:
        return False
    if len(re.findall(r"[-_.]\w", value)) >= 3 and not re.search(r"[^\w.-]", value):
        return False
    # What reads as words is a password only where people put a sign into it to make it one.
    return not is_worded(value) or bool(_MADE.search(value) and any(c.isupper() for c in value))


def _said(text: str, lowered: str, noun: str) -> Iterator[Span]:
    at = lowered.find(noun)
    while at >= 0:
        end = at + len(noun)
        before = lowered[max(0, at - 1) : at]
        if is_harmless(lowered[max(0, at - 24) : at], lowered[end : end + 24], "token"):
            pass
        elif before != ":" and not (before.isalnum() and len(noun) < 4):
            found = _SAID.match(text, end)
            if (found and (span := _span(text, found))) or (
                _AS_BEFORE.search(lowered, max(0, at - 40), at)
                and (head := _AS.search(text, max(0, at - 120), at))
                and (span := _span(text, head))
            ):
                yield *span, "SECRET", "said"
        at = lowered.find(noun, end)


def _logins(text: str, lowered: str, login: str) -> Iterator[Span]:
    at = lowered.find(login)
    while at >= 0:
        end = at + len(login)
        may = login != "user" or _USER_IS.match(text, end)
        if may and (found := _LOGIN.match(text, end)) and (span := _span(text, found)):
            yield *span, "SECRET", "login"
        at = lowered.find(login, end)


def _span(text: str, found: re.Match[str]) -> tuple[int, int] | None:
    start, end = found.span("v")
    value = _NEXT_FIELD.split(text[start:end])[0].rstrip(".,;:)]}>|*")
    return (start, start + len(value)) if looks_like_password(value) and value.isascii() else None
