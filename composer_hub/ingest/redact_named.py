"""Secrets that only their surroundings give away: a name, a header, a flag or a URL beside the value.

In: a text. Out: spans of values with the rule that found them. A value counts only if it does not read as a word, an
identifier, an expression or a placeholder; how strict that is depends on the name (`password` says more than `key`)
and on how the value is written.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable, Iterator, Sequence

from composer_hub.ingest.redact_entropy import is_dummy, is_hex, is_uuid, looks_random, num_classes, surprise, switches

MAX_JUDGED = 160
"""Characters of a value by which it is judged random, a word or a placeholder."""

Span = tuple[int, int, str, str]
"""Start, end, label and rule of a value to replace."""

STEMS = (
    ("password", ("passw", "passphrase", "pwd", "_pass", "pass=", "pass:", "identified by", "securestring")),
    (
        "token",
        (
            "secret",
            "token",
            "credential",
            "_auth",
            "bearer",
            "jwt",
            "_pat",
            "_dsn",
            "signature=",
            "salt",
            "pepper",
            "webhook",
            "otp",
            "_sas",
            "hmac",
        ),
    ),
    ("key", ("key",)),
)
"""How much a word in a name promises: what stands under `password` needs less proof than what stands under `key`."""

_SECRET_KEY = re.compile(
    r"(?:api|access|auth|private|account|encryption|signing|master|license|service|client|storage"
    r"|shared|admin|deploy|app|consumer|session|"
    r"crypt\w*|secret|rpc)[_\- ]?\Z"
)

# What may stand between the word of the name and the end of the name, and ends the thought that it holds a secret.
_HARMLESS = re.compile(
    r"(?i)[_\-.]?(?:s?[_\-.]?(?:id|ids|name|names|count|counts|type|types|url|uri|path|file|filename"
    r"|field|length|len|size|limit|limits|expir\w*|ttl|ref|label|"
    r"regex|pattern|policy|hint|reset|manager|store|provider|service|version|versions|arn|format"
    r"|prefix|suffix|env|var|placeholder|title|text|"
    r"usage|budget|price|cost|rate|kind|status|state|method|endpoint|header|class|error|message|help"
    r"|description|required|min|max|"
    r"algorithm|alg|rotation|mount|mounts|sha|sha256|sha1|md5|hash|digest|checksum|fingerprint|at|by"
    r"|scan\w*|detect\w*|index|idx|pos|offset))(?![a-z])"
    r"|(?i:iz|is)[a-z]+|s_|_used"
)
_PUBLIC_KEY = re.compile(
    r"(?i)(?<![a-z])(?:public|primary|foreign|cache|sort|partition|idempotency|dedup\w*|publishable"
    r"|hot|short|arrow|row|col\w*|group|map|"
    r"dict|json|object|index|unique|translation|i18n|query|state|storage|config|bucket|routing|shard"
    r"|lookup|composite|react|message|event|"
    r"page|next|previous|start|pad|eos|bos|unk|mask|sep|cls|special|stop|max|num|min|total|prompt"
    r"|completion|input|output|cached|reasoning|"
    r"tokens?_per|known|authorized|item|field|column|metric|label|tag)[_\-. ]?\Z"
)
_ANSI = r"(?:\x1b\[[0-9;]*[A-Za-z])*"
_REST = rf"[\w.\-]{{0,40}}{_ANSI}"
_QUOTE = r"\\*[\"'`]"
_OPERATOR = (
    rf"(?:(?:{_QUOTE}|\])*\s{{0,12}}(?::\s{{0,4}}(?!=)[&\w\[\]<>|' ?]{{1,24}}?\s{{0,4}}="
    rf"|[A-Za-z]{{1,12}}\s{{0,4}}=|=>|:=|\?=|\+=|->|={{1,3}}|!={{1,2}}|:|\|)\s{{0,12}}"
    rf"|(?P<pair>{_QUOTE}\s{{0,4}},\s{{0,4}}(?=\\*[\"'`]))"
    rf"|(?P<valuekey>{_QUOTE}?\s*,?\s*{_QUOTE}?value{_QUOTE}?\s*[:=]>?\s*)|(?P<tag>>)"
    rf"|(?P<call>\(\s{{0,4}}(?=\\*[\"'`]))|(?P<space>{_QUOTE}?[ \t]{{1,8}}(?:is:?[ \t]{{1,4}})?))"
)
_VALUE = (
    rf"{_ANSI}(?:[bruf]{{0,2}}(?P<q>\\*(?:\"\"\""
    rf"|[\"'`]))(?P<quoted>(?:(?!(?P=q))[^\n\r]){{1,512}})(?P=q)|(?:(?i:bearer|basic|token"
    rf"|digest)\s+)?(?P<bare>[^\s\"'`\\]{{4,1024}}))"
)
NAMED = re.compile(f"{_REST}(?P<op>{_OPERATOR}){_VALUE}")
_IDENTIFIER = re.compile(r"[A-Za-z_$@&*!][\w$]*(?:(?:\.|::|->|\?\.|!\.|\[)[\w$\]\"']*)*[\])}(;,:?!.]*")
_WORDS = re.compile(r"[A-Za-z]*\d{0,4}(?:[ _\-./:,+|@#][A-Za-z]*\d{0,4})*[.!?:;,]*")
_EXPRESSION = re.compile(
    r"^[$<({\[%@!~*&|=.,;:)\]}>+#/\\-]|[({]\w*[)}]|\(\)|\(|=>|==|\$\{|://|^(?:None|null|nil|true|false"
    r"|undefined|string|str|int|bool|any|void)\b|\[[A-Z]+_\w+\]"
)
_PLACEHOLDER = re.compile(r"\[(?:[A-Z]+_\w+|IMAGE)\]")
_ENV_LINE = re.compile(
    r"(?:^|[\n\r]|\\n)[ \t]*(?:\d+[\t:→|-][ \t]?|[+>-][ \t]?)?[ \t]*(?:export |set |setx |ENV |ARG "
    r"|env |-e |--env )?[A-Z][A-Z0-9_.]*$"
)
_YAML_LINE = re.compile(r"(?:^|\\n)[ \t]*(?:\d+[\t:→|-][ \t]?)?[+>-]?[ \t]*(?:- )?[A-Za-z0-9_.-]*$")
_TRIVIAL = frozenset(
    [
        "postgres",
        "root",
        "admin",
        "password",
        "secret",
        "token",
        "test",
        "tests",
        "testing",
        "none",
        "null",
        "true",
        "false",
        "user",
        "guest",
        "default",
        "string",
        "mysql",
    ]
)


def named_spans(text: str, lowered: str) -> Iterator[Span]:
    """Yield the values that stand beside a name which promises a secret."""
    no_pass = "pass" not in lowered
    for strength, stems in STEMS:
        for stem in stems:
            at = -1 if no_pass and "pass" in stem else lowered.find(stem)
            while at >= 0:
                if span := _assigned(text, at, at + len(stem), _strength(strength, lowered, at)):
                    yield span
                    at = max(at, span[1] - len(stem))
                at = lowered.find(stem, at + len(stem))


def _strength(strength: str, lowered: str, at: int) -> str:
    """Return how much the name promises; an `api_key` says more than a `key`."""
    return "token" if strength == "key" and _SECRET_KEY.search(lowered[max(0, at - 12) : at]) else strength


def secret_name(name: str) -> str:
    """Return how much a name promises (`password`, `token`, `key`), or nothing."""
    lowered = name.lower() + "="
    for strength, stems in STEMS:
        for stem in stems:
            at = lowered.find(stem)
            if at >= 0 and not _harmless(lowered[:at], lowered[at + len(stem) :].rstrip("=")):
                return _strength(strength, lowered, at)
    return ""


def named_value(name: str, value: str) -> str:
    """Return the rule by which the value under this name is a secret, or nothing."""
    strength = secret_name(name) if len(name) <= 80 else ""
    return f"named_{strength}" if strength and is_secret(value[:MAX_JUDGED], strength, written="quoted") else ""


@functools.lru_cache(maxsize=8192)
def is_secret(value: str, strength: str, written: str) -> bool:
    """Judge a value: `written` is quoted, env (an environment line or a flag), bare (code, YAML) or prose."""
    if len(value) < 6 or value.lower() in _TRIVIAL or is_dummy(value) or _PLACEHOLDER.search(value):
        return False
    if strength == "password" and written in ("quoted", "env"):
        return _is_password(value, written)
    if _EXPRESSION.search(value):
        return False
    if written == "prose":
        return num_classes(value) >= 3 and any(c.isdigit() for c in value) and not _reads_as_words(value)
    if written == "bare" and strength == "password":
        return (
            num_classes(value) >= 2 and not _IDENTIFIER.fullmatch(value) and not _reads_as_words(value)
        ) or looks_random(value)
    if len(value) < 8:
        return False
    if strength == "key":
        return (
            len(value) >= 16 and looks_random(value) and not is_uuid(value) and (written == "env" or not is_hex(value))
        )
    return (
        looks_random(value)
        or (is_uuid(value) and written != "bare")
        or (
            written != "bare"
            and len(value) >= 10
            and num_classes(value) >= 2
            and any(c.isdigit() for c in value)
            and not _reads_as_words(value)
        )
    )


def _is_password(value: str, written: str) -> bool:
    if re.match(r"(?:\$\{|\{\{|\$\(|<|%[({s]|\$[A-Za-z_]+$|os\.|process\.|env[.(\[:]|https?://|/\w+/)", value):
        return False
    if " " in value:
        words = value.split()
        return (
            len(words) >= 4
            and all(w.isalpha() and w.islower() and len(w) > 3 for w in words)
            and not {"your", "must", "with", "password"} & set(words)
        )
    if value.isdigit():
        return len(value) >= 6
    if value.isalpha():
        return len(value) >= 8 and (surprise(value) >= 3.6 or switches(value) >= 0.4)
    if _IDENTIFIER.fullmatch(value) and not any(c.isdigit() for c in value):
        return looks_random(value)
    if re.fullmatch(r"[A-Za-z]+(?:[ _\-./:][A-Za-z]+)+[.:!?]?", value):
        return looks_random(value)
    return num_classes(value) >= 2


def _reads_as_words(value: str) -> bool:
    """Tell whether every part of the value is a word, perhaps with a small number behind it."""
    return bool(_WORDS.fullmatch(value)) and surprise(value) < 3.3 and switches(value) < 0.3


def _harmless(before: str, after: str) -> bool:
    return bool(_HARMLESS.match(after)) or bool(_PUBLIC_KEY.search(before[-24:]))


def _assigned(text: str, start: int, after: int, strength: str) -> Span | None:
    if _harmless(text[max(0, start - 24) : start], text[after : after + 24]):
        return None
    # The keyword may hold its own operator (`pass=`).
    found = NAMED.match(text, after - 1 if text[after - 1] in "=:" else after)
    if not found:
        return None
    quoted = found.group("quoted")
    group = "quoted" if quoted is not None else "bare"
    if len(set(found[group][:64])) < min(8, len(found[group]) // 2):
        return None
    value, written = _trimmed(text, start, found, group)
    if not value or not is_secret(value[:MAX_JUDGED], strength, written):
        return None
    at = found.start(group)
    return at, at + len(value), "SECRET", f"named_{strength}"


def _trimmed(text: str, start: int, found: re.Match[str], group: str) -> tuple[str, str]:
    """Return the value without what closes it, and how it is written."""
    value = found.group(group)
    line = text[max(0, start - 60) : found.start()]
    head = re.split(r"[\s\"'`]", line)[-1]
    if group == "quoted":
        loose = found.group("pair") or found.group("call") or found.group("space")
        return value, "quoted" if not loose or not value.replace("_", "").isalpha() else "prose"
    if found.group("tag"):
        return value.split("<")[0], "env"
    flag = "--" in head or head.startswith("-")
    if found.group("space") is not None:
        value = value.rstrip(".,;:!?)]}>")
        netrc = "login " in line or "set" in line
        return value, "env" if flag or netrc else "prose"
    colon = found["op"].strip(" \t\"'`\\]")[:1] == ":"
    if colon and _YAML_LINE.search(line_start(text, start)) and _ends_line(text, found.end()):
        return value, "env"
    if _ENV_LINE.search(text[max(0, start - 60) : _name_end(text, start)]) and not colon:
        return value.rstrip(",;"), "env"
    for stop in (",", ";", "&", ")", "}", "]", "<", "|"):
        value = value.split(stop)[0] if value[0] != stop else value
    return value.rstrip(".:!?>"), "env" if flag or _plain_name(head) else "bare"


def line_start(text: str, at: int) -> str:
    """Return what stands before this place in its line, as far as it matters."""
    begin = max(0, at - 60)
    return text[max(begin, text.rfind("\n", begin, at) + 1) : at]


def _ends_line(text: str, at: int) -> bool:
    return text[at : at + 1] in ("", "\n", "\r") or text[at : at + 2] in ("\\n", "\\r")


def _name_end(text: str, at: int) -> int:
    while at < len(text) and (text[at].isalnum() or text[at] in "_."):
        at += 1
    return at


def _plain_name(head: str) -> bool:
    """Tell whether the name stands alone: an upper-case variable, or a query parameter."""
    return head.isupper() or head[:1] in ("?", "&") or "?" in head or "&" in head


# ------------------------------------------------------------------------------------------- headers, flags and URLs

_HEADER = re.compile(
    r"(?i)authorization[\"']?\]?\s{0,4}[:=,]\s{0,4}\\*[\"'`]?(?:f[\"'])?(?:(?:bearer|basic|token"
    r"|digest|apikey|bot|aws4-hmac-sha256|splunk|negotiate)\s+)?(?P<v>[^\s\"'`\\,;{}$<>]{8,4096})"
)
_BEARER = re.compile(r"(?i)bearer\s+(?P<v>[\w.~+/=-]{16,4096})")
_BASIC = re.compile(r"(?i)basic\s+(?P<v>[A-Za-z0-9+/]{12,400}={0,2})(?![\w/+])")
_COOKIE = re.compile(r"(?i)cookie[\"']?\s{0,4}[:=]\s{0,4}\\*[\"']?(?P<v>[\w.%-]{1,60}=[^\n\r\"'\\]{8,4096})")
_URL = re.compile(r"://[^\s/@:\"'<>\\{}$`]{0,128}:(?P<v>[^\s@\"'<>\\`]{3,256})@(?=[\w\[$.-])")
_URL_TOKEN = re.compile(r"://(?P<v>[A-Za-z0-9_.~-]{16,256})@(?=[\w.-])")
_FLAGS = re.compile(
    r"(?:curl\b[^\n]{0,400}?\s(?:-u|--user|--proxy-user)\s*[\"']?[^\s:\"']{0,100}:|\b(?:mysql"
    r"|mysqldump|mysqladmin|mariadb)\b[^\n]{0,200}?\s-p|\bdocker\s+login\b[^\n]{0,200}?\s-p\s+[\"']?|"
    r"\bpodman\s+login\b[^\n]{0,200}?\s-p\s+[\"']?|\bsshpass\s+-p\s*[\"']?"
    r"|\bredis-cli\b[^\n]{0,200}?\s-a\s+[\"']?|\bldap\w+\b[^\n]{0,200}?\s-w\s+[\"']?"
    r"|\bsqlcmd\b[^\n]{0,200}?\s-P\s+[\"']?|"
    r"\bmongo(?:sh|dump|restore)?\b[^\n]{0,200}?\s-p\s+[\"']?|\bopenssl\b[^\n]{0,200}?\s-pass(?:in"
    r"|out)?\s+pass:|\bhttp\b[^\n]{0,200}?\s-a\s+[\"']?[^\s:\"']{1,100}:"
    r"|\bzip\b[^\n]{0,200}?\s-P\s+[\"']?)"
    r"(?P<v>[^\s\"'\\]{4,256})"
)
_FLAG_ANCHORS = (
    "curl",
    "mysql",
    "mariadb",
    "docker login",
    "podman login",
    "sshpass",
    "redis-cli",
    "ldap",
    "sqlcmd",
    "mongo",
    "openssl",
    "http ",
    "zip ",
)
_PGPASS = re.compile(r"(?m)^[\w.*-]{1,100}:(?:\d{2,5}|\*):[\w*-]{1,64}:[\w*.-]{1,64}:(?P<v>\S{4,128})$")


def context_spans(text: str, lowered: str) -> Iterator[Span]:
    """Yield credentials in headers, command lines and URLs."""
    yield from _anchored(text, lowered, ("authorization",), _HEADER, "header", _is_header)
    yield from _anchored(text, lowered, ("bearer ",), _BEARER, "bearer", _is_header)
    yield from _anchored(text, lowered, ("basic ",), _BASIC, "basic", _is_basic)
    yield from _anchored(
        text,
        lowered,
        ("cookie",),
        _COOKIE,
        "cookie",
        lambda value: any(looks_random(part) for part in re.split(r"[=;\s]", value)),
    )
    yield from _anchored(text, text, ("://",), _URL, "url_password", _is_url_password)
    yield from _anchored(text, text, ("://",), _URL_TOKEN, "url_token", looks_random)
    if " -" in text and any(word in lowered for word in _FLAG_ANCHORS):
        yield from _scanned(
            text, _FLAGS, "flag", lambda value: not is_dummy(value) and not value.startswith(("$", "<", "-", "/", "{"))
        )
    if ":" in text and (":5432:" in text or ":*:" in text):
        yield from _scanned(text, _PGPASS, "pgpass", lambda value: not is_dummy(value))


def _anchored(
    text: str, where: str, anchors: Sequence[str], pattern: re.Pattern[str], rule: str, accept: Callable[[str], bool]
) -> Iterator[Span]:
    for anchor in anchors:
        at = where.find(anchor)
        while at >= 0:
            found = pattern.match(text, at)
            if found and not _PLACEHOLDER.search(found["v"]) and accept(found["v"][:MAX_JUDGED]):
                yield *found.span("v"), "SECRET", rule
            at = where.find(anchor, found.end() if found else at + len(anchor))


def _scanned(text: str, pattern: re.Pattern[str], rule: str, accept: Callable[[str], bool]) -> Iterator[Span]:
    for found in pattern.finditer(text):
        if not _PLACEHOLDER.search(found["v"]) and accept(found["v"][:MAX_JUDGED]):
            yield *found.span("v"), "SECRET", rule


def _is_header(value: str) -> bool:
    return not is_dummy(value) and not _reads_as_words(value) and not _EXPRESSION.search(value)


def _is_basic(value: str) -> bool:
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        return False


def _is_url_password(value: str) -> bool:
    if value.startswith(("$", "{", "%", "<", "*")) or is_dummy(value) or "://" in value:
        return False
    return value.lower() not in _TRIVIAL and value.lower() not in ("pass", "pwd", "passwd")
