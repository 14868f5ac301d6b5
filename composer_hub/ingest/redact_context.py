"""Secrets that a header, a command line, a call or a URL hands over, whatever they look like.

In: a text and the words it holds. Out: spans of values with the rule that found them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Set

from composer_hub.ingest.redact_entropy import is_dummy, looks_random, num_classes
from composer_hub.ingest.redact_named import EXPRESSION, MAX_JUDGED, PLACEHOLDER, TRIVIAL, Span, reads_as_words

_HEADER = re.compile(
    r"(?i)authorization[\"']?\]?\s{0,4}[:=,]\s{0,4}\\*[\"'`]?(?:f[\"'])?(?:(?:bearer|basic|token"
    r"|digest|apikey|bot|aws4-hmac-sha256|splunk|negotiate)\s+)?(?P<v>[^\s\"'`\\,;{}$<>]{8,4096})"
)
_BEARER = re.compile(r"(?i)bearer\s+(?P<v>[\w.~+/=-]{16,4096})")
_BASIC = re.compile(r"(?i)basic\s+(?P<v>[A-Za-z0-9+/]{12,400}={0,2})(?![\w/+])")
_COOKIE = re.compile(r"(?i)cookie[\"']?\s{0,4}[:=]\s{0,4}\\*[\"']?(?P<v>[\w.%-]{1,60}=[^\n\r\"'\\]{8,4096})")
_URL = re.compile(r"://[^\s/@:\"'<>\\{}$`]{0,128}:(?P<v>[^\s@\"'<>\\`]{3,256})@(?=[\w\[$.-])")
_URL_TOKEN = re.compile(r"://(?P<v>[A-Za-z0-9_.~-]{16,256})@(?=[\w.-])")
_GIVEN = re.compile(
    r"(?:::add-mask::|> AUTH (?:\w+ )?[\"']?|(?i:unseal(?: key \d+)?:?)\s+"
    r"|variable\s+\\*\"\w*(?:password|secret|token|api_key|access_key)\\*\"\s*\{[^}]{0,200}?default\s*=\s*\\*\")"
    r"(?P<v>[^\s\"'\\]{8,256})"
)
"""Places that hand a secret over: a workflow's mask, a database prompt, an unseal key, a template's default."""
_PASSED = re.compile(
    r"(?:(?:NetworkCredential|\.login|HTTPBasicAuth|[Bb]asic_?[Aa]uth|\.authenticate|Wallet)\(\s{0,4}"
    r"(?:\\*[\"'`][^\s\"'`\\]{1,80}\\*[\"'`]\s{0,4},\s{0,4})?\\*[\"'`]|\\*\"auth\\*\"\s{0,4}:\s{0,4}\\*\"(?=[\w+/]{20})"
    r"|input_value=\\*[\"'])(?P<v>[^\s\"'`\\]{8,256})(?=\\*[\"'`])"
)
"""Calls that take a user and a password, a registry's login, the value that a validator complains about."""
_PASSED_ANCHORS = ("Credential(", ".login(", "uth(", ".authenticate(", "Wallet(", '"auth', "input_value=")
_GIVEN_ANCHORS = ("::add-mask::", "> AUTH ", "nseal key", "nseal Key", "operator unseal", 'variable "', 'variable \\"')
_PGPASS = re.compile(
    r"(?:^|(?<=[\n\s+])|(?<=\\n))[\w.*-]{1,100}:(?:\d{2,5}|\*):[\w*-]{1,64}:[\w*.-]{1,64}:(?P<v>[^\s\"'\\]{4,128})(?=\s|\\n|\Z)"
)

CONTEXT_TRIGGERS = ("authorization", "bearer", "basic", "cookie")


def context_spans(text: str, lowered: str, words: Set[str]) -> Iterator[Span]:
    """Yield credentials in headers, command lines and URLs."""
    for word, pattern, rule, accept in _ANCHORED:
        if word in words:
            yield from _anchored(text, lowered, word, pattern, rule, accept)
    if "://" in text:
        yield from _anchored(text, text, "://", _URL, "url_password", _is_url_password)
        yield from _anchored(text, text, "://", _URL_TOKEN, "url_token", looks_random)
    if any(anchor in text for anchor in _GIVEN_ANCHORS):
        yield from _scanned(text, _GIVEN, "given", lambda value: not is_dummy(value) and not reads_as_words(value))
    if any(anchor in text for anchor in _PASSED_ANCHORS):
        yield from _scanned(text, _PASSED, "passed", _is_passed)
    if ":" in text and (":5432:" in text or ":*:" in text):
        yield from _scanned(text, _PGPASS, "pgpass", lambda value: not is_dummy(value))


def _anchored(
    text: str, where: str, anchor: str, pattern: re.Pattern[str], rule: str, accept: Callable[[str], bool]
) -> Iterator[Span]:
    at = where.find(anchor)
    while at >= 0:
        found = pattern.match(text, at)
        if found and not PLACEHOLDER.search(found["v"]) and accept(found["v"][:MAX_JUDGED]):
            yield *found.span("v"), "SECRET", rule
        at = where.find(anchor, found.end() if found else at + len(anchor))


def _scanned(text: str, pattern: re.Pattern[str], rule: str, accept: Callable[[str], bool]) -> Iterator[Span]:
    for found in pattern.finditer(text):
        if not PLACEHOLDER.search(found["v"]) and accept(found["v"][:MAX_JUDGED]):
            yield *found.span("v"), "SECRET", rule


def _is_passed(value: str) -> bool:
    mixed = num_classes(value) >= 3 and any(c.isdigit() for c in value) and not reads_as_words(value)
    return looks_random(value) or (mixed and not is_dummy(value) and not EXPRESSION.search(value))


def _is_header(value: str) -> bool:
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
