"""Secrets that only their surroundings give away: a name, a header, a flag or a URL beside the value.

In: a text. Out: spans of values with the rule that found them. A value counts only if it does not read as a word, an
identifier, an expression or a placeholder; how strict that is depends on the name (`password` says more than `key`)
and on how the value is written.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable, Iterator, Set

from composer_hub.redact.entropy import (
    is_dummy,
    is_hex,
    is_uuid,
    is_worded,
    looks_random,
    num_classes,
    surprise,
    switches,
)
from composer_hub.redact.names import NAME_TRIGGERS, STEMS, is_harmless, secret_name, strength_of

MAX_JUDGED = 160
"""Characters of a value by which it is judged random, a word or a placeholder."""

Span = tuple[int, int, str, str]
"""Start, end, label and rule of a value to replace."""

_ANSI = r"(?:\x1b\[[0-9;]*[A-Za-z])*"
# A look-ahead that is then matched whole: the engine need not try what follows behind each letter of the name again.
_REST = rf"(?=(?P<rest>(?:[\w.]|-(?!>)){{0,40}}))(?P=rest){_ANSI}"
_QUOTE = r"\\*[\"'`]"
_BETWEEN = (
    rf"(?:\s|\\n|\d{{1,6}}[\t:→|]|(?<=\n)[+>-]"
    rf"|{_QUOTE}\w{{1,20}}{_QUOTE}\s{{0,4}}:\s{{0,4}}{_QUOTE}[^\"'\n]{{0,60}}{_QUOTE},){{0,40}}"
)
"""What may stand between a name and the `value` beside it: line numbers, a diff's signs, one or two other fields."""
_WRAPPER = r"(?:\w+String::from|String::from|\w*Secret\w*(?:::\w+)?|bytes|str|std::string|Some|Ok)"
"""What only gives a literal another type."""
_OPERATOR = (
    rf"(?:\s{{0,4}}=\s{{0,4}}{_WRAPPER}\(\s{{0,2}}(?=\\*[\"'`])"
    rf"|(?:{_QUOTE}|\])*\s{{0,12}}(?::\s{{0,4}}(?![='])[&\w\[\]<>|' ?]{{1,24}}?\s{{0,4}}="
    rf"|\{{[^{{}}\n]{{1,40}}\}}\s{{0,4}}=|\|\|=|\?\?=|:\*\*|\*\*:|[A-Za-z]{{1,12}}\s{{1,4}}=|=>|:=|\?=|\+=|->|→|<-|={{1,3}}|!={{1,2}}|:{{1,2}}"
    rf"|\|\||\?\?|\|)\s{{0,12}}"
    rf"|(?P<valuekey>{_QUOTE}?\s{{0,4}},?{_BETWEEN}{_QUOTE}?(?:\w{{0,20}}[Vv]|v)alue{_QUOTE}?\s{{0,4}}[:=]>?\s{{0,4}})"
    rf"|(?P<pair>{_QUOTE}\s{{0,4}},\s{{0,16}}(?:default\w*[:=]\s{{0,4}})?(?=\\*[\"'`]))"
    rf"|(?P<matcher>\)\.(?:toBe|toEqual|toStrictEqual|equals?|eql?)\((?=\\*[\"'`]))"
    rf"|(?P<other>{_QUOTE}?\]?\)?\s{{0,4}}(?:\|\||\?\?|\?:)\s{{0,4}}(?=\\*[\"'`]))"
    rf"|(?P<tag>>)"
    rf"|(?P<form>{_QUOTE}(?:(?:\r?\n|(?:\\r)?\\n){{2}}))"
    rf"|(?P<call>[({{]\s{{0,4}}(?=\\*[\"'`]))|(?P<space>{_QUOTE}?[ \t]{{1,8}}(?:is:?[ \t]{{1,4}})?))"
)
_VALUE = (
    rf"{_ANSI}(?:(?:![\w:-]{{1,40}}|&\w{{1,40}}|<<)[ \t]{{0,4}})?(?:[bNruf]{{0,2}}(?P<q>\\*(?:\"\"\""
    rf"|[\"'`]))(?P<quoted>(?:(?!(?P=q))[^\n\r]){{1,512}})(?P=q)|(?:(?i:bearer|basic|token"
    rf"|digest)\s+)?(?P<bare>[^\s\"'`\\]{{4,1024}}))"
)
NAMED = re.compile(f"{_REST}(?P<op>{_OPERATOR}){_VALUE}")
_IDENTIFIER = re.compile(r"[A-Za-z_$@&*!][\w$]*(?:(?:\.|::|->|\?\.|!\.|\[)[\w$\]\"']*)*[\])}(;,:?!.]*")
_WORDS = re.compile(r"[A-Za-z]*\d{0,4}(?:[ _\-./:,+|@#][A-Za-z]*\d{0,4})*[.!?:;,]*")
EXPRESSION = re.compile(
    r"^[$<({\[%@!~*&|=.,;:)\]}>+#/\\-]|[({]\w*[)}]|\(\)|\(|=>|==|\$\{|://|^(?:None|null|nil|true|false"
    r"|undefined|string|str|int|bool|any|void)\b|\[[A-Z]+_\w+\]"
)
PLACEHOLDER = re.compile(r"\[(?:[A-Z]+_\w+|IMAGE)\]")
_ENV_LINE = re.compile(
    r"(?:^|[\n\r]|\\n)[ \t]*(?:\d+[\t:→|-][ \t]?|[+>-][ \t]?)?[ \t]*(?:export |set |setx |ENV |ARG "
    r"|env |-e |--env )?[A-Z][A-Z0-9_.]*$"
)
_YAML_LINE = re.compile(r"(?:^|\\n)[ \t]*(?:\d+[\t:→|-][ \t]?)?[+>-]?[ \t]*(?:- )?[A-Za-z0-9_.-]*$")
_LETTERS = re.compile(r"[A-Za-z0-9]+")
_ALNUM = frozenset(string.ascii_letters + string.digits)
_PATTERN = re.compile(r"\s|A-Z|a-z|0-9|\\[wdsb]|\(\?|\.\*|[A-Za-z]{10,}|://|\{\{|\$\{|\{[a-z_]+[.}(\[]")
"""What a long text of all kinds of signs holds if it is no salt but an expression."""
ALGORITHM = re.compile(
    r"(?i)(?:(?:pbkdf2|sha\d?|aes|hmac|rsa|dsa|ecdsa|eddsa|ed25519|x25519|argon2\w{0,2}|bcrypt|scrypt|[hrpe]s\d{3}|gcm|cbc|ctr|base\d\d"
    r"|utf|md5|blake\w{1,2}|chacha20|poly1305|oaep|pkcs\d?|with|encoded|oauth\d?|tls|p|secp\w{5}|\d{1,4})[-_/ ]?){1,7}"
)
_CONNECTION = re.compile(
    r"(?i)\b(?:server|host|data source|initial catalog|database|user id|username|uid|driver|account)=[^;=]{1,80};"
)
_YEARED = re.compile(r"(?=[^\s]*[A-Z])(?:[A-Z]?[a-z]+){1,4}\d{3,4}[!?.]?")
"""Words with a year or a number behind them, as people make passwords."""
_NAME_ONLY = re.compile(r"\A[ \t]*(?:\d{1,6}[\t:→|])?[+>-]?[ \t]*[\w.-]*\Z")
_KEY_BYTES = re.compile(r"[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{86}==")
_AWS_SECRET = re.compile(r"[A-Za-z0-9/+]{40}")
_LOOKED_UP = re.compile(
    r"(?i)(?:process\.env|import\.meta\.env|deno\.env|os\.(?:environ|getenv)|std::env|env::var|system\.getenv|secrets\."
    r"|op://|vault:|ssm:|sops:|ref\+\w+:|enc\[|\{cipher\}|projects/[\w-]+/secrets|!ref|!sub|!getatt|fn::"
    r"|var\.[a-z]|local\.[a-z]|module\.[a-z]|data\.[a-z]|random_password\.|arn:aws)"
)
"""Where a program or a template reads its secret from."""
_PUBLIC = re.compile(
    r"[A-Za-z][\w.]*(?:-[\w.]+)+-[0-9a-f]{32,64}|0x[0-9a-fA-F]{40}|(?:SHA256|SHA512|MD5|sha\d{3}|h1)[:-].*"
    r"|(?:[\w.-]+/)+[\w.-]+\.[a-z][a-z0-9]{1,4}|[\w-]+\.(?:png|jpe?g|svg|pdf|js|css|html|md|py|json|ya?ml|pem|pub|crt)"
    r"|[A-Z]{2,10}-\d{1,6}|v?\d+\.\d+\.\d+(?:[-+][\w.+-]*)?|(?:[0-9A-Fa-f]{2}:){7,}[0-9A-Fa-f]{2}|age1[a-z0-9]{58}|ssh-(?:rsa|ed25519)\b.*|AAAA[BCE][0-9]?N?z.*|0x[0-9a-fA-F]{1,16}"
)
"""What is public although a name promises a secret: cache keys, addresses, fingerprints, files."""
TRIVIAL = frozenset(
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


def named_spans(text: str, lowered: str, words: Set[str]) -> Iterator[Span]:
    """Yield the values that stand beside a name which promises a secret; `words` are the triggers in the text."""
    for strength, stems in STEMS:
        for stem in stems:
            at = lowered.find(stem) if NAME_TRIGGERS[stem] in words else -1
            while at >= 0:
                if span := _assigned(text, at, at + len(stem), strength_of(strength, lowered, at)):
                    yield span
                    at = max(at, span[1] - len(stem))
                at = lowered.find(stem, at + len(stem))


def named_value(name: str, value: str) -> str:
    """Return the rule by which the value under this name is a secret, or nothing."""
    strength = secret_name(name) if len(name) <= 80 else ""
    return f"named_{strength}" if strength and is_secret(value[:MAX_JUDGED], strength, written="quoted") else ""


def scanned(text: str, pattern: re.Pattern[str], rule: str, accept: Callable[[str], bool]) -> Iterator[Span]:
    """Yield the values `v` of a pattern that are accepted and no placeholder."""
    for found in pattern.finditer(text):
        if not PLACEHOLDER.search(found["v"]) and accept(found["v"][:MAX_JUDGED]):
            yield *found.span("v"), "SECRET", rule


@functools.lru_cache(maxsize=8192)
def is_secret(value: str, strength: str, written: str) -> bool:
    """Judge a value: `written` is quoted, env (an environment line or a flag), bare (code, YAML) or prose."""
    if len(value) < 6 or value.lower() in TRIVIAL or is_dummy(value) or PLACEHOLDER.search(value):
        return False
    if _LOOKED_UP.match(value) or _PUBLIC.fullmatch(value) or ALGORITHM.fullmatch(value):
        return False
    if " " in value and strength != "password":
        return False
    if strength == "password" and written in ("quoted", "env"):
        return _is_password(value, written)
    if _AWS_SECRET.fullmatch(value) and not is_hex(value) and looks_random(value) and switches(value) >= 0.4:
        return True
    if written == "quoted" and len(value) >= 48 and len(set(value) - _ALNUM) >= 6 and not _PATTERN.search(value):
        return True
    if _KEY_BYTES.fullmatch(value) and looks_random(value):
        return True
    if EXPRESSION.search(value.rstrip("=")):
        return False
    letters = value.replace(".", "").replace("_", "")
    if (
        written == "bare"
        and letters.isalpha()
        and _IDENTIFIER.fullmatch(value)
        and (len(value) < 24 or is_worded(value))
    ):
        return False
    if written == "prose":
        if is_hex(value):
            return strength == "token" and len(value) == 32 and looks_random(value)
        return (
            num_classes(value) >= 3
            and any(c.isdigit() for c in value)
            and not reads_as_words(value)
            and (strength == "token" or not is_uuid(value))
        )
    if written == "bare" and strength == "password":
        return (
            (num_classes(value) >= 2 and not _IDENTIFIER.fullmatch(value) and not reads_as_words(value))
            or looks_random(value)
            or bool(_YEARED.fullmatch(value))
        )
    if len(value) < 8:
        return False
    if strength == "key":
        return (
            len(value) >= 16
            and looks_random(value)
            and not is_uuid(value)
            and (written == "env" or (not is_hex(value) and switches(value) >= 0.3))
        )
    return (
        looks_random(value)
        or (is_uuid(value) and written != "bare")
        or (
            written != "bare"
            and len(value) >= 10
            and num_classes(value) >= 2
            and any(c.isdigit() for c in value)
            and not reads_as_words(value)
        )
    )


_NO_PASSWORD = re.compile(
    r"\w{2,10}://(?![^/]*@)|\w+\([^()]*\)\Z|[#.]\w+(?:[ >.#-]\w+)*\Z|(?:input|form|div|button)\b[\[#.]|//\w+\["
    r"|[a-z][\w.-]*(?:/[\w.-]+)+\Z|\w+(?:[|:,]\w+){2,}\Z|[a-z]+(?:[.:][a-z_]+)+\d?\Z|\w+\[[\w\"'=-]+\]\Z"
)
"""What stands under `password` in code: references, types, selectors, validators, messages."""


def _is_password(value: str, written: str) -> bool:
    if value.startswith("//") or (_NO_PASSWORD.match(value) and not looks_random(value)):
        return False
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


def reads_as_words(value: str) -> bool:
    """Tell whether every part of the value is a word, perhaps with a small number behind it."""
    return bool(_WORDS.fullmatch(value)) and surprise(value) < 3.3 and switches(value) < 0.3


def _assigned(text: str, start: int, after: int, strength: str) -> Span | None:
    if is_harmless(text[max(0, start - 24) : start], text[after : after + 24], strength):
        return None
    if (strength == "key" or text[start + 1 : after].lower() == "auth") and _goes_on(text, after):
        return None
    # The keyword may hold its own operator (`pass=`).
    found = NAMED.match(text, after - 1 if text[after - 1] in "=: " else after)
    if not found:
        return None
    quoted = found.group("quoted")
    group = "quoted" if quoted is not None else "bare"
    if len(set(found[group][:64])) < min(8, len(found[group]) // 2):
        return None
    value, written = _trimmed(text, start, found, group)
    if found["pair"] and (value[:1] == "-" or (strength != "password" and is_worded(value))):
        return None  # the next of a list of arguments or names
    if strength == "key" and _stands_alone(text, start) and num_classes("".join(_LETTERS.findall(value))) < 3:
        return None
    if not value or not is_secret(value[:MAX_JUDGED], strength, written):
        return None
    at = found.start(group)
    return at, at + len(value), "SECRET", f"named_{strength}"


def _goes_on(text: str, after: int) -> bool:
    """Tell whether `key` is only the beginning of a word: keycloak, keyboard, KEYNOTE."""
    last, following = text[after - 1], text[after : after + 2]
    return (following[:1].islower() and following[:1] != "s") if last.islower() else following[:1].isupper()


def _stands_alone(text: str, start: int) -> bool:
    """Tell whether a name is `key` and nothing else: what a dictionary, a cache or a list calls anything."""
    before = text[max(0, start - 24) : start].rstrip(" \"'")[-1:]
    return not (before.isalnum() or before in ("_", "-", ".", ")"))


def _trimmed(text: str, start: int, found: re.Match[str], group: str) -> tuple[str, str]:
    """Return the value without what closes it, and how it is written."""
    value = found.group(group)
    line = text[max(0, start - 60) : found.start()]
    head = re.split(r"[\s\"'`]", line)[-1]
    if head.startswith("arn:") or "::" in head:
        return "", "bare"
    if group == "quoted":
        loose = found.group("pair") or found.group("call") or found.group("space")
        return value, "quoted" if not loose or not value.replace("_", "").isalpha() else "prose"
    if found["form"]:
        return value, "env"
    if found.group("tag"):
        return value.split("<")[0], "env"
    flag = "--" in head or head.startswith("-") or _connects(text, start, found)
    if found.group("space") is not None:
        value = value.rstrip(".,;:!?)]}>")
        # `login bob password …`, `set PASSWORD …`, and a line of a configuration: a name and its value alone.
        alone = _NAME_ONLY.search(line_start(text, start)) and _ends_line(text, found.end())
        netrc = "login " in line or "set" in line or alone
        said = "is" in found["op"] and "_" in head and (head + found["rest"]).isupper()
        return value, "env" if flag or netrc or said else "prose"
    colon = found["op"].strip(" \t\"'`\\]")[:1] == ":"
    if colon and _YAML_LINE.search(line_start(text, start)) and _ends_line(text, found.end()):
        return value, "env"
    if _ENV_LINE.search(text[max(0, start - 60) : _name_end(text, start)]) and not colon:
        return value.rstrip(",;"), "env"
    for stop in (",", ";", "&", ")", "}", "]", "<", "|"):
        value = value.split(stop)[0] if value[0] != stop else value
    return value.rstrip(".:!?>"), "env" if flag or head.startswith("//") or _plain_name(head) else "bare"


def _connects(text: str, start: int, found: re.Match[str]) -> bool:
    """Tell a connection string: `Server=db;Uid=app;Pwd=` before the value."""
    before = line_start(text, start, 160)
    return found["op"] == "=" and before[-1:] == ";" and bool(_CONNECTION.search(before))


def line_start(text: str, at: int, reach: int = 60) -> str:
    """Return what stands before this place in its line, as far as it matters."""
    begin = max(0, at - reach)
    return text[max(begin, text.rfind("\n", begin, at) + 1) : at]


def _ends_line(text: str, at: int) -> bool:
    return text[at : at + 1] in ("", "\n", "\r") or text[at : at + 2] == " #" or text[at : at + 2] in ("\\n", "\\r")


def _name_end(text: str, at: int) -> int:
    while at < len(text) and (text[at].isalnum() or text[at] in "_."):
        at += 1
    return at


def _plain_name(head: str) -> bool:
    """Tell whether the name stands alone: an upper-case variable, or a query parameter."""
    return head.isupper() or head[:1] in ("?", "&") or "?" in head or "&" in head
