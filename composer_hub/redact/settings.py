"""Lines of settings: a name, a value and how they are written, judged together.

In: a text, or a name with its value. Out: spans of values. In a file of settings, a form or a command line a literal
beside the name of a secret is a secret even if it is a word or a number. Code is left to `assignments.py`, which asks
for more proof.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from composer_hub.redact.data import words
from composer_hub.redact.judge import (
    TRIVIAL,
    is_dummy,
    is_hex,
    is_ordinary,
    is_test_name,
    is_uuid,
    looks_random,
    reads_as_words,
)
from composer_hub.redact.match import Span, Subject, fold, places

PASSWORD, TOKEN, KEY, CODE, LICENSE = "password", "token", "key", "code", "license"

_NOUNS = {noun: kind for kind in (PASSWORD, TOKEN, KEY, CODE, LICENSE) for noun in words(f"settings with {kind}s")}
_ENDINGS = tuple(sorted((noun for noun in _NOUNS if len(noun) >= 5), key=len, reverse=True))
_LOCKED = frozenset(words("what codes open"))
_PUBLIC = frozenset(words("public keys and tokens"))
_FILLERS = frozenset(("value", "val", "plain", "plaintext", "old", "new", "current", "prod", "production", "staging", "raw", "text", "string", "encoded", "base64", "b64", "hex", "default", "main", "primary", "secondary", "temp", "initial", "base"))  # fmt: skip  # noqa: E501
SETTING_TRIGGERS = tuple(_NOUNS)
_VOCABULARY = (
    frozenset(words("words that are no names"))
    | frozenset(words("words of settings"))
    | frozenset(words("words about passwords"))
    | frozenset(words("users of no one"))
    | TRIVIAL
)

_SMALL = frozenset(("a", "am", "an", "and", "con", "das", "de", "der", "die", "e", "el", "im", "in", "la", "las", "le", "les", "los", "of", "para", "por", "the", "und", "y"))  # fmt: skip  # noqa: E501
"""Words that join the words of a phrase."""

_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_NAME_BEFORE = re.compile(r"[\w.-]{0,60}")
"""Of what is before, backwards, so that one place is tried."""
_NAME_AFTER = re.compile(r"[\w.-]{0,30}")
_OPERATOR = re.compile(
    r"(?P<close>\\?[\"'])?(?:(?:[ \t](?:\([\w ,.-]{1,24}\)|(?:for|of|on|für|de|pour) [^\s:=]{1,40}))?(?P<sign>[ \t]{0,12}(?:::?|:=|=>|=)[ \t]{0,12}|,[ \t]{0,4}(?=[\"']))|(?P<space>[ \t]{1,12}))"  # noqa: E501
    r"(?:(?P<q>\\?[\"'])(?P<quoted>(?:(?!(?P=q))[^\n\r\\]){3,200})(?P=q)|(?P<bare>[^\s\"'`][^\n\r]{2,200}))"
)
_BYTES = re.compile(
    r"[\"']?(?:\[\w*\])?[ \t]{0,4}(?::|=|:=)[ \t]{0,4}"
    r"(?P<v>[\[{](?:\s{0,12}(?:\d{1,3}|0x[0-9a-fA-F]{1,2})\s{0,4},?){16,64}\s{0,8}[\]}])"
)
_LINE_HEAD = re.compile(
    r"[ \t]*(?:\d{1,6}[\t→:|][ \t]?)?[+-]?[ \t]*(?:[-*•] |[#;] ?|//[ ])?"
    r"(?:export |set |setx |declare -x |ENV |ARG |\$env:|\$Env:|default )?[ \t]*\\?[\"'*]{0,2}"
)
_LABEL_HEAD = re.compile(r"[ \t]*(?:\d{1,6}[\t→:|][ \t]?)?(?:[-*•] )?[\"'*]{0,2}(?:[^\W\d_][\w'&/-]{0,20}[ \t]){1,4}")
"""Words before the name: `Admin panel password: `."""
_ATTRIBUTE_HEAD = re.compile(r"<[\w:.-]{1,60}\s[^<>]{0,400}\Z")
MAX_REST = 100
"""Characters after a value on its line."""
_REST = re.compile(r"(?:,|[ \t]+[#;].*|[ \t]+//.*|[ \t]*/?>.*)?[ \t]*")
_COMMENT = re.compile(r"[ \t]+(?:#|//|;).*\Z")
_STATEMENT = re.compile(
    r"\A[\"'\[{(]|[;({\[]\Z|[;,]\Z|\A(?:if|for|return|const|let|var|def|import|from|class)\b|\w\(|=>|=="
)
_SETTING_LINE = re.compile(
    r"[ \t]*(?:\d{1,6}[\t→:|][ \t]?)?[+-]?[ \t]*(?:[#;].*|\[[\w .:\"/-]+\]|(?:- )?(?:export )?[\"']?[\w./ -]{1,60}[\"']?"  # noqa: E501
    r"(?:[ \t]*[:=][^;{}()]*|:))"
)
_REFERENCE = re.compile(
    r"[$<{\[(%@~&*!|`>/\\#=]|\.{1,2}/|\w+://|(?:process|import|os|env|secrets|vars?|data|module|local|self|this|config|settings|args|req|params|options)[.\[]"
    r"|(?i:op|vault|ssm|sops|ref\+\w+|file|env|arn|enc|sm)[:\[]|v?\d+(?:\.\d+)+(?:[-+~].*)?\Z|[\^~><=]+\d"
)
_CALL = re.compile(r"\w\(|\)|\$\{|\{\{|\$\(|=>|<[a-zA-Z]|\.\.\.|…|\*{3}|[•●]{2}|::|\w\[|%s|\\[wdsnt]")
_FILE = re.compile(r"(?:[\w.~-]*/)*[\w.-]+\.[a-z][a-z0-9]{1,4}|(?:[\w.-]+/){2,}[\w.-]*")
_CODE_VALUE = re.compile(r"\d{2,4}[ -]\d{2,4}(?:[ -]\d{2,4})?|\d{4,8}[#*]?")
_ROUND = re.compile(r"0+|1234(?:5\d*)?|(?:19|20)\d\d|(\d)\1+|\d{1,2}0{2,}")
_PARTS = re.compile(r"[^\W\d_]+")
_PHRASE = re.compile(r"[^\W_]+(?:[ ,/+&!-]{1,2}[^\W_]+)*!?")
_LICENSE_KEY = re.compile(r"(?=.*\d)[A-Z0-9]{4,8}(?:-[A-Z0-9]{4,8}){2,}")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
_UNIT = re.compile(r"[<>~]?-?\d[\d.,:_-]*(?:[a-zA-Z%]{1,7}|/\w+)?")


def setting_secrets(subject: Subject) -> Iterator[Span]:
    """Yield the values of settings, forms and flags whose name is that of a secret."""
    text, lowered, triggers = subject
    seen: set[int] = set()
    for noun in SETTING_TRIGGERS:
        if noun not in triggers:
            continue
        for at in places(lowered, noun):
            before = _NAME_BEFORE.match(text[max(0, at - 60) : at][::-1])
            start = at - before.end() if before else at
            if start not in seen and (span := _setting(text, start, at + len(noun))):
                seen.add(start)
                yield span


def _setting(text: str, start: int, after: int) -> Span | None:
    """Return the value of the setting whose name begins here."""
    tail = _NAME_AFTER.match(text, after)
    end = tail.end() if tail else after
    name = text[start:end].strip("-.")
    kind = kind_of(name)
    if not kind:
        return None
    line = text.rfind("\n", 0, start) + 1
    head = text[max(line, start - 500) : start]
    if kind in (KEY, TOKEN) and (match := _BYTES.match(text, end)):
        return Span(*match.span("v"), "SECRET", "setting:bytes")
    match = _OPERATOR.match(text, end)
    if not match:
        return None
    group = "bare" if match["quoted"] is None else "quoted"
    notation = _notation(text, head, text[start:end], match, group)
    if not notation:
        return None
    value = match[group]
    if group == "bare":
        value = _bare(value, notation)
    if not is_setting_secret(value, kind, notation if group == "bare" else f"quoted {notation}"):
        return None
    is_variable = name.isupper() and match["sign"] == "="
    if (name == "PASS" and is_test_name(value)) or (name.lower() == "pwd" and len(value) < 8 and value.isalnum()):
        return None  # the result of a test, or an option about the working directory
    if notation == "line" and value.isalpha() and not is_variable and not _among_settings(text, line):
        return None
    begin = match.start(group)
    return Span(begin, begin + len(value), "SECRET", f"setting:{kind}")


def _notation(text: str, head: str, name: str, match: re.Match[str], group: str) -> str:
    """Return how a name and its value are written (line, flag, attribute, field), or "" for code."""
    close, sign = match["close"], match["sign"] or ""
    if name.startswith("-") or head.endswith("--"):
        # `--password x`, `--password=x`, or the next of a list: `"--password", "x"`
        is_flag = sign.startswith(",") if close else match["space"] or sign.startswith("=")
        return "flag" if is_flag else ""
    if match["space"] or sign.startswith(","):
        return ""
    if sign == "=" and head[-1:] in ("&", "?"):
        return "field"
    if sign == "=" and group == "quoted" and _ATTRIBUTE_HEAD.search(head):
        return "attribute"
    rest = text[match.end() : match.end() + MAX_REST + 1].partition("\n")[0]
    is_line = len(rest) <= MAX_REST and _begins_line(head, match)
    if group == "quoted":
        return _notation_of_literal(close, sign, rest) if is_line else "code"
    return "line" if is_line and not close and "=>" not in sign else ""


def _begins_line(head: str, match: re.Match[str]) -> bool:
    """Return whether a name begins its line, perhaps after other words (`Admin panel password:`)."""
    is_label = match["sign"].strip() == ":" and not match["close"] and _LABEL_HEAD.fullmatch(head)
    return bool(is_label or _LINE_HEAD.fullmatch(head))


def _notation_of_literal(close: str | None, sign: str, rest: str) -> str:
    """Return whether a quoted value is a member (`"a": "x",`), a line (`a: "x"`), or code (`a := "x"`)."""
    # Code quotes its literals as well; `assignments.py` judges those.
    if not _REST.fullmatch(rest) or (not close and "=" in sign and sign != "="):
        return "code"
    return "member" if close or rest.startswith(",") else "line"


def _bare(value: str, notation: str) -> str:
    """Return a value that no quotes end."""
    if notation == "flag":
        return value.split()[0].rstrip(",;)")
    if notation == "field":
        return re.split(r"[&\s\"'`;<>]", value)[0]
    value = _COMMENT.sub("", value).strip()
    return "" if value[-1:] in (",", ";", "(", "{", "[") else value


def _among_settings(text: str, line: int) -> bool:
    """Return whether the lines around this one are also settings, rather than code or sentences."""
    above = [one for one in text[max(0, line - 400) : line].split("\n") if one.strip()][-2:]
    end = text.find("\n", line)
    below = [one for one in text[end : end + 400].split("\n") if one.strip()][:2] if end >= 0 else []
    around = [one.strip() for one in (*above[-1:], *below[:1])]
    return any(map(_SETTING_LINE.fullmatch, around)) and not any(map(_STATEMENT.search, around))


@functools.lru_cache(maxsize=8192)
def kind_of(name: str) -> str:
    """Return the kind of secret in a setting of this name: a password, a token, a key, a code, or ""."""
    parts = [fold(part) for part in _NAME_PART.findall(name)]
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in _FILLERS):
        parts.pop()
    if not parts:
        return ""
    last, before = parts[-1], parts[:-1]
    for size in (3, 2, 1):
        if kind := _NOUNS.get("".join(parts[-size:])) if len(parts) >= size else None:
            before = parts[:-size]
            break
    else:
        ending = next((noun for noun in _ENDINGS if last.endswith(noun)), "")
        kind = _NOUNS.get(ending, "")
        before = [*before, last.removesuffix(ending)]
    if kind in (TOKEN, KEY) and _PUBLIC.intersection(before):
        return ""
    if kind == KEY and not before:
        return ""
    if kind == CODE and last in ("code", "number", "nummer") and not _LOCKED.intersection(before):
        return ""
    return kind or ""


def is_setting_secret(value: str, kind: str, notation: str) -> bool:
    """Judge a value by what its name promises and how both are written."""
    if not 3 <= len(value) <= 200:
        return False
    if kind == CODE:
        return bool(_CODE_VALUE.fullmatch(value)) and not _ROUND.fullmatch(value.replace(" ", "").replace("-", ""))
    if kind == LICENSE:
        return bool(_LICENSE_KEY.fullmatch(value)) and not is_dummy(value)
    if kind == PASSWORD and value.isdigit():
        return "line" in notation and 5 <= len(value) <= 10 and not _ROUND.fullmatch(value) and not is_dummy(value)
    if _is_of_programs(value):
        return False
    if kind == PASSWORD:
        return not notation.endswith("code") and _is_chosen(value, notation)
    if " " in value:
        return False
    if notation.endswith("code"):
        return len(value) >= 32 and looks_random(value) and not is_uuid(value)
    if kind == KEY:
        return _is_key(value)
    return _is_token(value) or (value.count("-") >= 2 and _is_chosen(value, notation))


def _is_of_programs(value: str) -> bool:
    """Return whether a value is one that settings hold: `true`, `${TOKEN}`, `getenv("A")`, `30s`."""
    return bool(
        value.lower() in _VOCABULARY
        or _REFERENCE.match(value)
        or _CALL.search(value)
        or _FILE.fullmatch(value)
        or _UNIT.fullmatch(value)
        or is_ordinary(value)
    )


def _is_key(value: str) -> bool:
    """Return whether a value under the name of a key is random, and not an id or a digest."""
    random = len(value) >= 16 and (looks_random(value) or (is_hex(value) and len(value) >= 32))
    return random and not is_uuid(value) and not (is_hex(value) and len(value) in (16, 40))


def _is_token(value: str) -> bool:
    """Return whether a value is random, or letters and digits that are not words."""
    mixed = len(value) >= 10 and any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return (looks_random(value) or (mixed and not reads_as_words(value))) and not is_uuid(value)


def _is_chosen(value: str, notation: str) -> bool:
    """Return whether a person may have chosen a value as a password, rather than named a thing."""
    parts = [fold(part) for part in _PARTS.findall(value)]
    if " " in value:
        return _is_phrase(value, parts) and ("quoted" in notation or notation == "line")
    plain = value.isalpha()
    if _VOCABULARY.intersection(parts if len(parts) < 3 else set(parts) - _SMALL) and not (
        any(c.isdigit() for c in value) and looks_random(value)
    ):
        return False
    if plain:
        return len(value) >= 6 and (value.islower() or value.istitle())
    if _IDENTIFIER.fullmatch(value) and not any(c.isdigit() for c in value):
        return False
    return len(value) >= 5 and bool(parts)


def is_vocabulary(value: str) -> bool:
    """Return whether a value is made of words about secrets and programs, perhaps with dashes."""
    parts = [part for part in _PARTS.findall(value.lower()) if len(part) > 1]
    return (
        sum(c.isdigit() for c in value) <= 1
        and bool(_IDENTIFIER.fullmatch(value.replace("-", "_")))
        and _VOCABULARY.issuperset(parts)
    )


def is_chosen_word(value: str) -> bool:
    """Return whether a word is one that a person may have chosen as a password, not a word of a command."""
    return is_setting_secret(value, PASSWORD, "flag")


def _is_phrase(value: str, parts: list[str]) -> bool:
    if not 2 + value.islower() <= value.count(" ") + 1 <= 12 or not _PHRASE.fullmatch(value):
        return False
    if not parts:
        return value.count(" ") >= 3 and len(value) >= 16  # groups of digits
    if len(value) < 12 or 2 * sum(part in _VOCABULARY for part in parts) >= len(parts):
        return False
    return value.islower() or any(c.isdigit() for c in value)
