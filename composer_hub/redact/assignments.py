"""Values beside a name that promises a secret: assignments, flags, fields, headers, lines of a configuration.

In: a text. Out: spans of values. A value counts only if it does not read as a word, an identifier, an expression or a
placeholder. How strictly it is judged depends on the name (`password` promises more than `key`) and on the notation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from composer_hub.redact.judge import is_secret, is_test_name, is_worded, num_classes
from composer_hub.redact.match import MAX_JUDGED, NEXT_FIELD, PLACEHOLDER, Span, Subject, line_before, places
from composer_hub.redact.names import STEMS, Stem, is_public, is_whole, promise_of, strength_at, takes_back
from composer_hub.redact.settings import is_setting_secret, is_vocabulary, kind_of

_ANSI = r"(?:\x1b\[[0-9;]*[A-Za-z])*"
# A look-ahead that is then matched whole: the engine need not try the rest again after each letter of the
# name.
_REST = rf"(?=(?P<rest>(?:[\w.]|-(?!>)){{0,40}}))(?P=rest){_ANSI}"
_QUOTE = r"\\*[\"'`]"
_BETWEEN = (
    rf"(?:\s|\\n|\d{{1,6}}[\t:→|]|(?<=\n)[+>-]"
    rf"|{_QUOTE}\w{{1,20}}{_QUOTE}\s{{0,4}}:\s{{0,4}}{_QUOTE}[^\"'\n]{{0,60}}{_QUOTE},){{0,40}}"
)
"""Between a name and the `value` beside it: line numbers, signs of a diff, one or two other fields."""
_WRAPPER = r"(?:\[\]byte|(?:\w+\.)*(?:Buffer\.from|GetBytes|encode|[bB]64decode|fromhex|from_hex|decodeString)|\w+String::from|String::from|\w*Secret\w*(?:::\w+)?|bytes|str|std::string|Some|Ok)"  # noqa: E501
"""Gives a literal another type."""
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
    rf"|(?P<call>[({{]\s{{0,4}}(?=\\*[\"'`]))|(?P<space>{_QUOTE}?[ \t]{{1,24}}(?:is:?[ \t]{{1,4}})?))"
)
_VALUE = (
    rf"{_ANSI}(?:(?:![\w:-]{{1,40}}|&\w{{1,40}}|<<)[ \t]{{0,4}})?(?:[bNruf]{{0,2}}(?P<q>\\*(?:\"\"\""
    rf"|[\"'`]))(?P<quoted>(?:(?!(?P=q))[^\n\r]){{1,512}})(?P=q)|(?:(?i:bearer|basic|token"
    rf"|digest)\s+)?(?P<bare>[^\s\"'`\\]{{4,1024}}))"
)
_NAMED = re.compile(f"{_REST}(?P<op>{_OPERATOR}){_VALUE}")
_IN_PROSE = re.compile(
    r"[a-z]{0,20} (?:(?:is|bearer|basic|token|digest) )*(?!(?:is|bearer|basic|token|digest) )[a-z]{1,7} [a-z]"
)
"""Behind a name, a word that is too short for a secret of letters, and another word: quick to tell, and frequent."""
_ENV_LINE = re.compile(
    r"(?:^|[\n\r]|\\n)[ \t]*(?:\d+[\t:→|-][ \t]?|[+>-][ \t]?)?[ \t]*(?:export |set |setx |ENV |ARG "
    r"|env |-e |--env )?[A-Z][A-Z0-9_.]*$"
)
_YAML_LINE = re.compile(r"(?:^|\\n)[ \t]*(?:\d+[\t:→|-][ \t]?)?[+>-]?[ \t]*(?:- )?[A-Za-z0-9_.-]*$")
_FOLDER = re.compile(r"(?:[A-Za-z]{1,6}:)?[/\\]|\.{1,2}/|~")
_LETTERS = re.compile(r"[A-Za-z0-9]+")
_CONNECTION = re.compile(
    r"(?i)\b(?:server|host|data source|initial catalog|database|user id|username|uid|driver|account)=[^;=]{1,80};"
)
_VERDICT = re.compile(r"(?<![A-Za-z0-9_])[XK]?PASS:\Z")
_VERDICT_HEAD = re.compile(r"(?:[^A-Za-z]|\b(?:not|ok|INFO|DEBUG)\b|\dT\d|\dZ\b|\x1b\[[\d;]*m)*")
"""Before a test's result there are marks, numbers and times, but no words."""
_CREDENTIALS = re.compile(
    r"(?i)[^\w\n]*(?:\w+[_ ])?(?:user|login|uid|account|e-?mail|host|server|port|url|db|database|env|data|stringdata"
    r"|auth|credential|secret|var|arg|config)\w*[ \t]*[:=]"
)
_LOGIN_BEFORE = re.compile(
    r"(?i)(?:\b(?:login|user(?:name)?|uid)|_user)[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?[\w.@+-]{2,60}[\"']?[ \t,;]{1,6}[\"']?(?:[a-z]{1,12}_)?\Z"  # noqa: E501
)
"""A login and its password on one line."""
_NAME_ONLY = re.compile(r"\A[ \t]*(?:\d{1,6}[\t:→|])?[+>-]?[ \t]*[\w.-]*\Z")


def named_values(subject: Subject) -> Iterator[Span]:
    """Yield the values beside a name that promises a secret."""
    for stem in STEMS if subject.words else ():
        after = 0
        for at in places(subject.lowered, stem.word) if stem.trigger in subject.words else ():
            if at >= after and (span := _assigned(subject, at, stem)):
                yield span
                after = span.end


def named_value(name: str, value: str) -> str:
    """Return the rule by which the value under this name is a secret, or nothing."""
    strength, stem = promise_of(name) if len(name) <= 80 else ("", "")
    if strength and is_secret(value[:MAX_JUDGED], strength, written="quoted"):
        return f"named:{stem}"
    kind = kind_of(name) if len(name) <= 80 else ""
    return f"setting:{kind}" if kind and is_setting_secret(value, kind, "quoted document") else ""


def _assigned(subject: Subject, start: int, stem: Stem) -> Span | None:
    """Return the value beside the name with this stem, if it is a secret."""
    text, after = subject.text, start + len(stem.word)
    if not _may_name(text, start, after, stem):
        return None
    # The stem may contain its own operator (`pass=`).
    match = _NAMED.match(text, after - 1 if text[after - 1] in "=: " else after)
    if not match:
        return None
    group = "bare" if match["quoted"] is None else "quoted"
    if len(set(match[group][:64])) < min(8, len(match[group]) // 2):
        return None
    value, written = _trimmed(text, start, match, group)
    strength = strength_at(stem.strength, subject.lowered, start)
    if match["pair"] and (value[:1] == "-" or (strength != "password" and is_worded(value))):
        return None  # the next of a list of arguments or names
    if strength == "key" and _is_lone(text, start) and num_classes("".join(_LETTERS.findall(value))) < 3:
        return None
    if not value or is_vocabulary(value) or not is_secret(value[:MAX_JUDGED], strength, written):
        return None
    if is_public(text[max(0, start - 24) : start], strength) or _is_no_password(text, start, after, stem, value):
        return None
    at = match.start(group)
    return Span(at, at + len(value), "SECRET", f"named:{stem.word}")


def _may_name(text: str, start: int, after: int, stem: Stem) -> bool:
    """Return whether a stem may name a value: it is not in a placeholder, a sentence, or `max_tokens`."""
    if text[start - 1 : start] == "[" and PLACEHOLDER.match(text, start - 1):
        return False
    # The cheap checks that reject most come first.
    in_prose = _IN_PROSE.match(text, after) and text[after - 1].isalnum()
    return not in_prose and is_whole(text, start, stem) and not takes_back(text[after : after + 24])


def _is_no_password(text: str, start: int, after: int, stem: Stem, value: str) -> bool:
    """Return whether `pwd` is the working directory (`PWD=/srv/app`), or `pass` the result of a test."""
    if stem.trigger == "pwd":
        return bool(_FOLDER.match(value))
    return stem.trigger == "pass" and _is_verdict(text, start, after, value)


def _is_verdict(text: str, start: int, after: int, value: str) -> bool:
    """Return whether this is a test result (`--- PASS: TestLogin2`), not a password with its user or host."""
    name = _VERDICT.search(text, max(0, start - 1), after)
    if not name:
        return False
    *above, head = text[max(0, name.start() - 160) : name.start()].replace("\\n", "\n").split("\n")
    if head.endswith("--- "):
        return True
    below = text[after : after + 160].replace("\\n", "\n").split("\n")[1:2]
    return bool(
        is_test_name(value)
        and _VERDICT_HEAD.fullmatch(head)
        and not any(_CREDENTIALS.match(line) for line in (*above[-1:], *below))
    )


def _is_lone(text: str, start: int) -> bool:
    """Return whether a name is just `key`, which may be anything in dictionaries, caches and lists."""
    before = text[max(0, start - 24) : start].rstrip(" \"'")[-1:]
    return not (before.isalnum() or before in ("_", "-", ".", ")"))


def _trimmed(text: str, start: int, match: re.Match[str], group: str) -> tuple[str, str]:
    """Return the value without its closing signs, and how it is written."""
    line = text[max(0, start - 60) : match.start()]
    head = re.split(r"[\s\"'`]", line)[-1]
    if head.startswith("arn:") or "::" in head:
        return "", "bare"
    if group == "bare":
        return _unquoted(NEXT_FIELD.split(match["bare"])[0], text, start, match, line, head)
    is_loose = match["pair"] or match["call"] or match["space"]
    return match["quoted"], "prose" if is_loose and match["quoted"].replace("_", "").isalpha() else "quoted"


def _unquoted(value: str, text: str, start: int, match: re.Match[str], line: str, head: str) -> tuple[str, str]:
    """Return a value up to the sign that ends it, and how it is written: `x);` in code gives `x`."""
    if match["form"]:
        return value, "env"
    if match["tag"]:
        return value.split("<")[0], "env"
    if match["space"] is None and _LOGIN_BEFORE.search(text, max(0, start - 100), start):
        return value.split(",")[0].rstrip(".,;)}]"), "env"
    is_flag = "--" in head or head.startswith("-") or _connects(text, start, match)
    if match["space"] is not None:
        is_setting = is_flag or _sets(text, start, match, line, head)
        return value.rstrip(".,;:!?)]}>"), "env" if is_setting else "prose"
    if _ends_line(text, match.end()) and _is_entry(value, line_before(text, start), match["op"], head):
        return value, "env"
    if not _is_colon(match["op"]) and _ENV_LINE.search(text[max(0, start - 60) : _name_end(text, start)]):
        return value.rstrip(",;"), "env"
    for stop in (",", ";", "&", ")", "}", "]", "<", "|"):
        value = value.split(stop)[0] if value[0] != stop else value
    return value.rstrip(".:!?>"), "env" if is_flag or _is_variable(head) else "bare"


def _sets(text: str, start: int, match: re.Match[str], line: str, head: str) -> bool:
    """Return whether words set a value: `login bob password x`, `set PASSWORD x`, `API_KEY is x`."""
    is_stated = "is" in match["op"] and "_" in head and (head + match["rest"]).isupper()
    is_alone = _NAME_ONLY.search(line_before(text, start)) and _ends_line(text, match.end())
    return bool("login " in line or "set" in line or is_stated or is_alone)


def _is_entry(value: str, before: str, operator: str, head: str) -> bool:
    """Return whether a line is one of a `.properties` file (`db.password=x`) or of YAML (`password: x`)."""
    if operator == "=":
        return "." in head and head.startswith(before.strip() or "=")
    return _is_colon(operator) and value[-1:] != "," and bool(_YAML_LINE.search(before))


def _is_colon(operator: str) -> bool:
    """Return whether a colon is the sign between a name and its value, perhaps after a quote: `": `."""
    return operator.strip(" \t\"'`\\]")[:1] == ":"


def _connects(text: str, start: int, match: re.Match[str]) -> bool:
    """Return whether the value is in a connection string, after `Server=db;Uid=app;Pwd=`."""
    before = line_before(text, start, 160)
    return match["op"] == "=" and before[-1:] == ";" and bool(_CONNECTION.search(before))


def _ends_line(text: str, at: int) -> bool:
    return text[at : at + 1] in ("", "\n", "\r") or text[at : at + 2] == " #" or text[at : at + 2] in ("\\n", "\\r")


def _name_end(text: str, at: int) -> int:
    while at < len(text) and (text[at].isalnum() or text[at] in "_."):
        at += 1
    return at


def _is_variable(head: str) -> bool:
    """Return whether a name is `API_KEY`, a query parameter, or a setting such as `//host/:_password`."""
    return head.isupper() or head.startswith("//") or "?" in head or "&" in head
