"""Secrets in places made for them, whatever they look like: headers, URLs, calls, statements, connection strings.

In: a text. Out: spans of values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set

from composer_hub.redact.data import words
from composer_hub.redact.judge import (
    is_basic,
    is_cookie,
    is_dummy,
    is_handed_over,
    is_header,
    is_hex,
    is_query_value,
    is_secret,
    is_url_password,
    is_uuid,
    looks_like_password,
    looks_random,
    num_classes,
    reads_as_words,
)
from composer_hub.redact.match import (
    MAX_JUDGED,
    Span,
    Subject,
    holds,
    line_before,
    matches,
    matches_at,
    places,
)

_HEADER = re.compile(
    r"(?i)(?:(?<![a-z])|(?<=\\n)|(?<=\\r))authorization[\"']?\]?\s{0,4}[:=,]\s{0,4}\\*[\"'`]?(?:f[\"'])?(?:(?:bearer|basic|token"
    r"|digest|apikey|bot|aws4-hmac-sha256|splunk|negotiate|[a-z][\w-]{1,24}(?=\s+[\w.~+/=-]{20}))\s+)?(?P<v>[^\s\"'`\\,;{}$<>]{8,4096})"
)
_BEARER = re.compile(r"(?i)bearer\s+(?P<v>[\w.~+/=-]{16,4096})")
_BASIC = re.compile(r"(?i)basic\s+(?P<v>[A-Za-z0-9+/]{12,400}={0,2})(?![\w/+])")
_COOKIE = re.compile(r"(?i)cookie[\"']?\s{0,4}[:=]\s{0,4}\\*[\"']?(?P<v>[\w.%-]{1,60}=[^\n\r\"'\\]{8,4096})")
_ONE_COOKIE = re.compile(r"(?P<name>[\w.%-]{1,60})=(?P<v>[^;\s]{8,4096})")
_PUBLIC_COOKIE = re.compile(
    r"(?i)_ga|_gid|_gcl|_fbp|_hj|_pk_|utm|intercom-id|ajs_|optimizely|amplitude|locale|lang|theme|consent|cookieconsent|timezone|tz\Z|path\Z|domain\Z|expires\Z|max-age\Z|samesite\Z"
)
_GENERATED = re.compile(r"random_password[^\0]{0,600}?\\?\"result\\?\":\s{0,4}\\?\"(?P<v>[^\"\\\n]{6,200})")
_COMMENT = re.compile(r"(?://|#|--|/\*)[^\n]*\Z")
_BELOW = re.compile(r"[^\n]{0,40}\n[^\n=:]{1,60}[=:]\s{0,4}[\"'](?P<v>[^\"'\s\\]{12,200})[\"']")
"""A literal below a comment that names it."""
_NESTED_TAG = re.compile(r"<\w*(?:[Pp]assword|[Ss]ecret)\w*>\s{0,20}<[Vv]alue>(?P<v>[^<>\s]{6,200})</[Vv]alue>")
_URL = re.compile(
    r"://[^\s/@:\"'<>\\{}$`]{0,128}:"
    # A password may hold a raw @: it ends at the last one before the path.
    r"(?P<v>[^\s@/\"'<>\\`]{1,128}(?:@[^\s@/\"'<>\\`]{1,64}){1,4}|[^\s@\"'<>\\`]{3,256})"
    r"@(?=[\w\[$.-])(?!host\b|example\b)"
)
_URL_USER = re.compile(r"://(?P<v>[^\s/@:\"'<>\\{}$`]{12,64}):[^\s@\"'<>`]{3,256}@")
_URL_TOKEN = re.compile(r"://(?P<v>[A-Za-z0-9_.~-]{16,256})@(?=[\w.-])")
_CAPABILITY = re.compile(
    r"://[^\s\"'`<>]{1,200}?/[\w-]{0,20}(?:hooks?|reset(?:[-_]password)?|invite|magic|verify|confirm|activate|unsubscribe|share)/"
    r"(?:[\w-]{1,12}/)?(?P<v>[A-Za-z0-9_-]{16,256})(?![\w./-])"
)
"""A URL that lets everyone who knows it do what its path says."""
_ROUTER = re.compile(
    r"(?m)(?:s(?<!\ws)ecret|p(?<!\wp)assword|k(?<!\wk)ey) [05789] (?P<v>\S{6,200})[ \t]*$"
    r"|s(?<!\ws)nmp-server community (?P<v2>\S{6,64})"
)
"""How the configuration of a router, in lower case, writes a secret: its encoding, a digit, before it. The engine skips
to a letter, but would not skip to the `\\b` that the look-behinds stand for."""
_ENCODINGS = (" 0 ", " 5 ", " 7 ", " 8 ", " 9 ")
_GIVEN = re.compile(
    r"(?:\baccounts\\*[\"']?\s{0,4}[:=]\s{0,4}\[\s{0,20}\\*[\"'](?=0x[0-9a-f]{64}\\*[\"'])"
    r"|::add-mask::|> AUTH (?:\w+ )?[\"']?|(?i:unseal(?: key \d+)?:?)\s+"
    r"|variable\s+\\*\"\w*(?:password|secret|token|api_key|access_key)\\*\"\s*\{[^}]{0,200}?default\s*=\s*\\*\")"
    r"(?P<v>[^\s\"'\\]{8,256})"
)
"""The accounts of a chain, the mask of a workflow, a database prompt, the default of a template."""
_HANDED = re.compile(
    r"(?:\\*\"auth\\*\"\s{0,4}:\s{0,4}\\*\"(?=[\w+/]{20})|input_value=\\*[\"'])(?P<v>[^\s\"'`\\]{8,256})(?=\\*[\"'`])"
)
"""The login of a registry, and the value that a validator complains about."""
_KEY_BYTES = re.compile(
    r"\"(?:value|(?:primary|secondary)(?:Readonly)?(?:Master)?Key|key[12])\\*\"\s{0,4}:\s{0,4}\\*\"(?P<v>[A-Za-z0-9+/]{86}==|[A-Za-z0-9+/]{43}=)\\*\""
)
"""Key lists of a cloud: 32 or 64 bytes under a name that promises nothing."""
_DIGEST = re.compile(r"\bresponse=\\*\"(?P<v>[0-9a-f]{32,64})\\*\"")
_JWK = re.compile(r"\"(?:d|k|p|q|dp|dq|qi)\\*\"\s{0,4}:\s{0,4}\\*\"(?P<v>[\w-]{20,1400})\\*\"")
_QUERY = re.compile(r"=(?P<v>[\w.~%+/-]{16,2048})(?![\w(])")
_QUERY_NAME = re.compile(
    r"(?:[?&#;]|\b)(?:auth|sig|code|hmac|ticket|sid|session|(?:client_)?assertion|SAMLResponse|key|id_token_hint|otp|pass"
    r"|pw)\Z"
)
_SQL = re.compile(
    r"(?i)(?:identified\s+(?:with|via)\s+\S{1,40}\s+(?:by|as|using)|set\s+password\s+for\s+\S{1,80}\s*=|encrypted\s+password|old_password\(|password\()\s{0,4}\\*'(?P<v>[^'\s\\]{4,200})\\*'"
)
_ORACLE = re.compile(
    r"(?:thin:|oci:|\b(?:sqlplus|expdp|impdp|sqlldr|rman)\s(?:-\S+\s)*)[\w.-]{1,60}/(?P<v>[^\s@\"'`\\]{4,128})@"
)
_CHPASSWD = re.compile(r"(?<![^\n])\s{1,12}[\w-]{1,32}:(?P<v>[^\s\"'\\]{6,128})(?=\s|\Z)")
_DSN = re.compile(r"[\w.-]{1,64}:(?P<v>[^\s\"'`@/\\:]{4,128})@(?:tcp|unix)?\(")
_PGPASS = re.compile(r":(?:\d{4,5}|\*):[\w*-]{1,64}:[\w*.-]{1,64}:(?P<v>[^\s\"'\\]{4,128})(?=\s|\\n|\Z)")
_PGPASS_HOST = re.compile(r"(?:^|[\n\s+]|\\n)[\w.*-]{1,100}\Z")


def _is_given(value: str) -> bool:
    return not is_dummy(value) and not reads_as_words(value)


def _is_commented(value: str) -> bool:
    return (
        not ("=" in value and "," in value)
        and is_secret(value[:MAX_JUDGED], "token", "quoted")
        and (looks_random(value) or is_uuid(value))
    )


def _is_pgpass(value: str) -> bool:
    return not is_dummy(value) and num_classes(value) >= 2


_BEGINNINGS: tuple[tuple[str, re.Pattern[str], str, Callable[[str], bool]], ...] = (
    ("authorization", _HEADER, "header", is_header),
    ("bearer", _BEARER, "bearer", is_header),
    ("basic", _BASIC, "basic", is_basic),
)
"""A trigger that begins a pattern, the pattern, the rule, and what accepts a value."""
_IN_URLS: tuple[tuple[re.Pattern[str], str, Callable[[str], bool]], ...] = (
    (_CAPABILITY, "capability", looks_random),
    (_URL, "url_password", is_url_password),
    (_URL_USER, "url_user", looks_random),
    (_URL_TOKEN, "url_token", looks_random),
)
"""The same for what begins with `://`."""
_CONTENTS: tuple[tuple[tuple[str, ...], re.Pattern[str], str, Callable[[str], bool]], ...] = (
    (
        (
            "::add-mask::",
            "> AUTH ",
            "nseal key",
            "nseal Key",
            "operator unseal",
            'variable "',
            'variable \\"',
            "accounts",
        ),
        *(_GIVEN, "given", _is_given),
    ),
    (('"auth', "input_value="), _HANDED, "handed", is_handed_over),
    (("@tcp(", "@unix(", "@("), _DSN, "dsn", is_url_password),
    (("random_password",), _GENERATED, "generated", lambda value: num_classes(value) >= 2),
    (("assword>", "ecret>"), _NESTED_TAG, "nested_tag", _is_given),
    (("Digest ",), _DIGEST, "digest", looks_random),
    (("kty",), _JWK, "jwk", looks_random),
    (("thin:", "oci:", "sqlplus", "expdp", "impdp"), _ORACLE, "oracle", is_url_password),
)
"""Words of which a text must contain one before a pattern is tried; the pattern, its rule, its check."""
_CALLS = words("calls with passwords")
_COMMENTED = {"token": "token", "secret": "secret", "password": "pass", "api key": "key"}
"""Words for the literal below a comment, and the trigger of each."""
PLACE_TRIGGERS = (
    *(*_CALLS, *(word for word, _, _, _ in _BEGINNINGS), "cookie", "identified", "chpasswd"),
    *_COMMENTED.values(),
)


def place_secrets(subject: Subject) -> Iterator[Span]:
    """Yield the credentials in headers, URLs, calls and statements."""
    text, lowered, triggers = subject
    for word, pattern, rule, accept in _BEGINNINGS:
        if word in triggers:
            yield from matches_at(text, lowered, word, pattern, rule, accept)
    if "cookie" in triggers:
        yield from _cookies(subject)
    if _may_be_a_router(text, lowered, triggers):
        yield from _of_routers(text, lowered)
    for pattern, rule, accept in _IN_URLS if "://" in text else ():
        yield from matches_at(text, text, "://", pattern, rule, accept)
    for contents, pattern, rule, accept in _CONTENTS:
        if holds(text, contents):
            yield from matches(text, pattern, rule, accept)
    for noun, trigger in _COMMENTED.items():
        if trigger in triggers:
            yield from _below_comments(text, lowered, noun)
    for name in _CALLS:
        if name in triggers:
            yield from _call_arguments(subject, name)
    if "key" in triggers and '"' in text:
        yield from matches(text, _KEY_BYTES, "key_bytes", looks_random)
    if "=" in text:
        yield from _behind(text, _QUERY, _QUERY_NAME, "query", is_query_value)
    if "identified" in triggers or "passw" in triggers:
        yield from matches(text, _SQL, "sql", lambda value: not is_dummy(value))
    if "chpasswd" in triggers and (at := text.find("chpasswd:")) >= 0:
        yield from matches(text[: at + 400], _CHPASSWD, "chpasswd", lambda value: num_classes(value) >= 2)
    if text.count(":") >= 4:
        yield from _behind(text, _PGPASS, _PGPASS_HOST, "pgpass", _is_pgpass)


def _of_routers(text: str, lowered: str) -> Iterator[Span]:
    """Yield the secrets in the configuration of a router: `enable secret 5 …`."""
    for match in _ROUTER.finditer(lowered):
        span = match.span("v" if match["v"] else "v2")
        value = text[slice(*span)]
        if not is_dummy(value) and value not in ("public", "private"):
            yield Span(*span, "SECRET", "router")


def _below_comments(text: str, lowered: str, noun: str) -> Iterator[Span]:
    """Yield the literals below a comment that names them: `// the staging token`."""
    for at in places(lowered, noun):
        end = at + len(noun)
        below = _BELOW.match(text, end) if text.find("\n", end, end + 41) >= 0 else None
        if below and _COMMENT.search(line_before(text, at)) and _is_commented(below["v"]):
            yield Span(*below.span("v"), "SECRET", "commented")


def _may_be_a_router(text: str, lowered: str, triggers: Set[str]) -> bool:
    named = "key" in triggers or "secret" in triggers or "pass" in triggers
    return (named and any(sign in text for sign in _ENCODINGS)) or "snmp-server" in lowered


def _cookies(subject: Subject) -> Iterator[Span]:
    """Yield the random values of cookies; those that count visitors and keep settings stay."""
    for header in matches_at(subject.text, subject.lowered, "cookie", _COOKIE, "cookie", is_cookie):
        for cookie in _ONE_COOKIE.finditer(subject.text, header.start, header.end):
            if not _PUBLIC_COOKIE.match(cookie["name"]) and is_cookie(cookie["v"]):
                yield Span(*cookie.span("v"), "SECRET", "cookie")


def _behind(
    text: str, pattern: re.Pattern[str], head: re.Pattern[str], rule: str, accept: Callable[[str], bool]
) -> Iterator[Span]:
    """Yield the values after a head; the pattern begins with a sign that is quick to find."""
    for match in pattern.finditer(text):
        begin = match.start()
        if accept(match["v"][:MAX_JUDGED]) and head.search(text[max(0, begin - 100) : begin]):
            yield Span(*match.span("v"), "SECRET", rule)


# ---------------------------------------------------------------------------------------------------------------- calls

_CALL = re.compile(r"\w{0,20}\s{0,2}=?\s{0,2}\((?P<arguments>[^()\n]{1,300})\)")
_LITERAL = re.compile(r"(?P<q>\\{0,3}[\"'`])(?P<v>(?:(?!(?P=q))[^\n\s]){4,256})(?P=q)")
_TYPERS = frozenset(("fill", "type", "keys"))
_TYPED = re.compile(r"(?i)passw|secret|token|pass\]|pwd")


def _call_arguments(subject: Subject, name: str) -> Iterator[Span]:
    """Yield the literals among the arguments of a call that look like passwords."""
    text = subject.text
    for at in places(subject.lowered, name):
        call = _CALL.match(text, at + len(name))
        if call and (name not in _TYPERS or _TYPED.search(text, max(0, at - 80), call.end())):
            for literal in _LITERAL.finditer(text, *call.span("arguments")):
                if _is_password(literal["v"], name):
                    yield Span(*literal.span("v"), "SECRET", f"call:{name}")


def _is_password(value: str, name: str) -> bool:
    if is_hex(value) and (len(value) < 32 or name not in ("client", "auth", "credential", "login")):
        return False
    if value.startswith("0x"):
        return name == "wallet" and len(value) == 66 and looks_random(value)
    return looks_like_password(value) and not is_uuid(value)
