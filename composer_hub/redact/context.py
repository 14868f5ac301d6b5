"""Secrets that a header, a command line, a call or a URL hands over, whatever they look like.

In: a text and the words it holds. Out: spans of values with the rule that found them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Set

from composer_hub.redact.entropy import is_dummy, is_hex, is_uuid, is_worded, looks_random, num_classes
from composer_hub.redact.named import (
    EXPRESSION,
    MAX_JUDGED,
    PLACEHOLDER,
    TRIVIAL,
    Span,
    is_secret,
    reads_as_words,
    scanned,
)
from composer_hub.redact.phrases import looks_like_password

_HEADER = re.compile(
    r"(?i)(?:(?<![a-z])|(?<=\\n)|(?<=\\r))authorization[\"']?\]?\s{0,4}[:=,]\s{0,4}\\*[\"'`]?(?:f[\"'])?(?:(?:bearer|basic|token"
    r"|digest|apikey|bot|aws4-hmac-sha256|splunk|negotiate|[a-z][\w-]{1,24}(?=\s+[\w.~+/=-]{20}))\s+)?(?P<v>[^\s\"'`\\,;{}$<>]{8,4096})"
)
_BEARER = re.compile(r"(?i)bearer\s+(?P<v>[\w.~+/=-]{16,4096})")
_BASIC = re.compile(r"(?i)basic\s+(?P<v>[A-Za-z0-9+/]{12,400}={0,2})(?![\w/+])")
_COOKIE = re.compile(r"(?i)cookie[\"']?\s{0,4}[:=]\s{0,4}\\*[\"']?(?P<v>[\w.%-]{1,60}=[^\n\r\"'\\]{8,4096})")
_URL = re.compile(r"://[^\s/@:\"'<>\\{}$`]{0,128}:(?P<v>[^\s@\"'<>\\`]{3,256})@(?=[\w\[$.-])")
_URL_TOKEN = re.compile(r"://(?P<v>[A-Za-z0-9_.~-]{16,256})@(?=[\w.-])")
_GIVEN = re.compile(
    r"(?:\baccounts\\*[\"']?\s{0,4}[:=]\s{0,4}\[\s{0,20}\\*[\"'](?=0x[0-9a-f]{64}\\*[\"'])"
    r"|::add-mask::|> AUTH (?:\w+ )?[\"']?|(?i:unseal(?: key \d+)?:?)\s+"
    r"|variable\s+\\*\"\w*(?:password|secret|token|api_key|access_key)\\*\"\s*\{[^}]{0,200}?default\s*=\s*\\*\")"
    r"(?P<v>[^\s\"'\\]{8,256})"
)
"""Places that hand a secret over: a chain's accounts, a workflow's mask, a database prompt, a template's default."""
_CALL = re.compile(r"\w{0,20}\s{0,2}=?\s{0,2}\((?P<arguments>[^()\n]{1,300})\)")
_LITERAL = re.compile(r"(?P<q>\\{0,3}[\"'`])(?P<v>(?:(?!(?P=q))[^\n\s]){4,256})(?P=q)")
_CALLS = (
    *(
        "login",
        "connect",
        "auth",
        "credential",
        "passw",
        "signin",
        "sign_in",
        "getconnection",
        "pdo",
        "user",
        "wallet",
        "hash",
    ),
    *("fill", "type", "keys", "bind", "client"),
)
"""What functions are called that take a user and a password."""
_TYPERS = frozenset(("fill", "type", "keys"))
_TYPED = re.compile(r"(?i)passw|secret|token|pass\]|pwd")
_HANDED = re.compile(
    r"(?:\\*\"auth\\*\"\s{0,4}:\s{0,4}\\*\"(?=[\w+/]{20})|input_value=\\*[\"'])(?P<v>[^\s\"'`\\]{8,256})(?=\\*[\"'`])"
)
"""A registry's login, and the value that a validator complains about."""
_KEY_BYTES = re.compile(
    r"\"(?:value|(?:primary|secondary)(?:Readonly)?(?:Master)?Key|key[12])\\*\"\s{0,4}:\s{0,4}\\*\"(?P<v>[A-Za-z0-9+/]{86}==|[A-Za-z0-9+/]{43}=)\\*\""
)
"""Key lists of a cloud: 32 or 64 bytes under a name that says nothing."""
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
_GIVEN_ANCHORS = (
    *("::add-mask::", "> AUTH ", "nseal key", "nseal Key", "operator unseal", 'variable "', 'variable \\"'),
    "accounts",
)
_PGPASS = re.compile(r":(?:\d{4,5}|\*):[\w*-]{1,64}:[\w*.-]{1,64}:(?P<v>[^\s\"'\\]{4,128})(?=\s|\\n|\Z)")
_PGPASS_HOST = re.compile(r"(?:^|[\n\s+]|\\n)[\w.*-]{1,100}\Z")
CONTEXT_TRIGGERS = (
    *_CALLS,
    "authorization",
    "bearer",
    "basic",
    "cookie",
    "kty",
    "identified",
    "sqlplus",
    "expdp",
    "impdp",
    "chpasswd",
)


def context_spans(text: str, lowered: str, words: Set[str]) -> Iterator[Span]:
    """Yield credentials in headers, command lines and URLs."""
    for word, pattern, rule, accept in _ANCHORED:
        if word in words:
            yield from _anchored(text, lowered, word, pattern, rule, accept)
    if "://" in text:
        yield from _anchored(text, text, "://", _URL, "url_password", _is_url_password)
        yield from _anchored(text, text, "://", _URL_TOKEN, "url_token", looks_random)
    if any(anchor in text for anchor in _GIVEN_ANCHORS):
        yield from scanned(text, _GIVEN, "given", lambda value: not is_dummy(value) and not reads_as_words(value))
    for name in _CALLS:
        if name in words:
            yield from _call_spans(text, lowered, name)
    if '"auth' in text or "input_value=" in text:
        yield from scanned(text, _HANDED, "handed", _is_passed)
    if "key" in words and '"' in text:
        yield from scanned(text, _KEY_BYTES, "key_bytes", looks_random)
    if "kty" in words:
        yield from scanned(text, _JWK, "jwk", looks_random)
    if "=" in text:
        yield from _behind(text, _QUERY, _QUERY_NAME, "query", _is_query)
    if "identified" in words or "passw" in words:
        yield from scanned(text, _SQL, "sql", lambda value: not is_dummy(value) and value.lower() not in TRIVIAL)
    if "@tcp(" in text or "@unix(" in text or "@(" in text:
        yield from scanned(text, _DSN, "dsn", _is_url_password)
    if "thin:" in text or "oci:" in text or not words.isdisjoint(("sqlplus", "expdp", "impdp")):
        yield from scanned(text, _ORACLE, "oracle", _is_url_password)
    if "chpasswd" in words and (at := text.find("chpasswd:")) >= 0:
        yield from scanned(text[: at + 400], _CHPASSWD, "chpasswd", lambda value: num_classes(value) >= 2)
    if text.count(":") >= 4:
        yield from _behind(text, _PGPASS, _PGPASS_HOST, "pgpass", _is_pgpass)


def _call_spans(text: str, lowered: str, name: str) -> Iterator[Span]:
    """Yield the literals among a call's arguments that look like passwords."""
    at = lowered.find(name)
    while at >= 0:
        end = at + len(name)
        call = _CALL.match(text, end)
        if call and (name not in _TYPERS or _TYPED.search(text, max(0, at - 80), call.end())):
            for literal in _LITERAL.finditer(text, *call.span("arguments")):
                if _is_literal(literal["v"], name):
                    yield *literal.span("v"), "SECRET", "call"
        at = lowered.find(name, end)


def _is_literal(value: str, name: str) -> bool:
    if is_hex(value) and (len(value) < 32 or name not in ("client", "auth", "credential", "login")):
        return False
    if value.startswith("0x"):
        return name == "wallet" and len(value) == 66 and looks_random(value)
    return looks_like_password(value) and not PLACEHOLDER.search(value) and not is_uuid(value)


def _anchored(
    text: str, where: str, anchor: str, pattern: re.Pattern[str], rule: str, accept: Callable[[str], bool]
) -> Iterator[Span]:
    at = where.find(anchor)
    while at >= 0:
        found = pattern.match(text, at)
        if found and not PLACEHOLDER.search(found["v"]) and accept(found["v"][:MAX_JUDGED]):
            yield *found.span("v"), "SECRET", rule
        at = where.find(anchor, found.end() if found else at + len(anchor))


def _behind(
    text: str, pattern: re.Pattern[str], head: re.Pattern[str], rule: str, accept: Callable[[str], bool]
) -> Iterator[Span]:
    """Yield the values behind a head; the pattern begins with a sign that is quick to find."""
    for found in pattern.finditer(text):
        if not accept(found["v"][:MAX_JUDGED]) or PLACEHOLDER.search(found["v"]):
            continue
        if head.search(text[max(0, found.start() - 100) : found.start()]):
            yield *found.span("v"), "SECRET", rule


def _is_query(value: str) -> bool:
    return is_secret(value.lstrip("-_.~+/"), "key", "bare")


def _is_pgpass(value: str) -> bool:
    return not is_dummy(value) and num_classes(value) >= 2


def _is_passed(value: str) -> bool:
    mixed = num_classes(value) >= 3 and any(c.isdigit() for c in value) and not reads_as_words(value)
    return looks_random(value) or (mixed and not is_dummy(value) and not EXPRESSION.search(value))


def _is_header(value: str) -> bool:
    if value.endswith("]") or (value.isalpha() and is_worded(value)):
        return False
    return not is_dummy(value) and not reads_as_words(value) and not EXPRESSION.search(value.rstrip("="))


def _is_cookie(value: str) -> bool:
    return any(looks_random(part) for part in re.split(r"[=;\s]", value))


def _is_basic(value: str) -> bool:
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        return False


def _is_url_password(value: str) -> bool:
    if value.startswith(("$", "{", "%", "<", "*")) or is_dummy(value) or "://" in value:
        return False
    return value.lower() not in TRIVIAL and value.lower() not in ("pass", "pwd", "passwd")


_ANCHORED = (
    ("authorization", _HEADER, "header", _is_header),
    ("bearer", _BEARER, "bearer", _is_header),
    ("basic", _BASIC, "basic", _is_basic),
    ("cookie", _COOKIE, "cookie", _is_cookie),
)
