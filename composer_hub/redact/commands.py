"""Secrets that a command gets as an argument or through a pipe, or that it prints.

In: a text. Out: spans of values. The arguments are in `data/commands.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from composer_hub.redact.data import lines, words
from composer_hub.redact.judge import is_argument, looks_like_password, looks_random
from composer_hub.redact.match import MAX_JUDGED, Span, Subject, matches, places
from composer_hub.redact.settings import is_chosen_word, is_vocabulary

MAX_COMMAND = 800
"""Characters of a command line that are searched."""

_QUOTED = r"(?P<q>\\{0,3}[\"'])(?P<quoted>(?:(?!(?P=q))[^\n]){3,512})(?P=q)"
_BARE = r"(?P<bare>[^\s\"'`\\|<>()]{4,512})"
_ANY = r"(?:\\?[\"'])?[^\s\"']{1,200}(?:\\?[\"'])?"


def _compiled(argument: str) -> re.Pattern[str]:
    spaced = argument.replace("[= ]", r"(?:=|\s+)").replace("[= :]", r"(?:[=:]|\s+)")
    spaced = spaced.replace(" ?", r"\s*").replace(" ", r"\s+").replace("@", _ANY)
    return re.compile(spaced.replace("~", f"(?:{_QUOTED}|{_BARE})"), re.DOTALL)


def _by_command() -> dict[str, list[re.Pattern[str]]]:
    patterns: dict[str, list[re.Pattern[str]]] = {}
    for line in lines("commands.txt"):
        commands, _, argument = line.partition(" …")
        for command in commands.split():
            patterns.setdefault(command, []).append(_compiled(argument))
    return patterns


_ARGUMENTS = _by_command()
_WORD_OF = {command: command.replace("-", "_").strip("0123456789") for command in _ARGUMENTS}
_PIPED = re.compile(
    r"(?:echo|printf|yes)\s+(?:-[neE]+\s+)?(?:\\?[\"']%s(?:\\\\?n)?\\?[\"']\s+)?"
    r"(?:\\{0,3}[\"'])?(?:(?P<user>[\w.-]{1,40}):)?(?P<v>[^\s\"'$`\\|:]{6,256})(?:\\{1,2}n)?(?:\\{0,3}[\"'])?\s*\|[^\n|]{0,80}?"
    r"(?:stdin|with-token|chpasswd|sudo -S|\bsu\b|\bpasswd\b|kinit|cryptsetup|luks|secrets? |passphrase-fd|pass insert)"
)
_HERE_STRING = re.compile(
    r"(?:password|passphrase|token|secret|key)-(?:stdin|fd)\b[^\n]{0,160}?<<<[ \t]*\\?[\"'](?P<v>[^\n\"'\\]{6,200})\\?[\"']"  # noqa: E501
)
_PRINTS_NAMED = re.compile(r"\{?[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|_PASS)\b")
_SECRET_FILE = re.compile(
    r"[^\n|]{0,120}(?:secret|token|passw|api_?key|credential|master\.key|\.pass\b)[^\n|]{0,60}(?=\n)"
)
_PRINTED = re.compile(
    r"[^\n]{0,200}(?:\n[ \t]*(?:\d+[\t:→|-][ \t]?)?[+>]?[ \t]*|\\n\s{0,8})"
    r"(?P<v>[^\s\"'`\\]{8,512})(?=[ \t]*(?:\n|\\n|\Z))"
)
_CONDITIONS = {"echo": _PRINTS_NAMED, "printenv": _PRINTS_NAMED, "cat": _SECRET_FILE}
"""The pattern that must follow a command that may print anything."""
_PRINTS = {
    command: re.findall(r"[a-z][a-z-]*", command)[0].replace("-", "_").strip("_")
    for command in words("commands that print secrets")
}
"""Commands that print a secret, and the trigger of each."""
_PROSE = re.compile(
    r"(?<![\w./$=-])(?!(?:sudo|exec|then|do|else|time|env|nohup|run|npx|uvx|and|with|use|using|via|type|enter|execute"
    r"|command|RUN|CMD) )[A-Za-z][a-z]* \Z"
)
"""A word of a sentence before what is also the name of a command."""
_PIPE_WORDS = frozenset(("echo", "printf", "yes"))
COMMAND_WORDS = (*_WORD_OF.values(), *_PRINTS.values(), *_PIPE_WORDS)
"""A text with a command contains one of these as a whole word."""
_ANY_WORD = frozenset(COMMAND_WORDS)


def command_secrets(subject: Subject) -> Iterator[Span]:
    """Yield the secrets that commands get or print."""
    text, _, triggers = subject
    if _ANY_WORD.isdisjoint(triggers):
        return
    for command, patterns in _ARGUMENTS.items():
        if _WORD_OF[command] in triggers:
            for at in places(text, command):
                if _is_command(text, at, at + len(command)):
                    yield from _arguments(text, at + len(command), command, patterns)
    if "|" in text and not triggers.isdisjoint(_PIPE_WORDS):
        yield from matches(text, _PIPED, "piped", _is_given)
    if "<<<" in text:
        yield from matches(text, _HERE_STRING, "piped", _is_given)
    for command, word in _PRINTS.items():
        for at in places(text, command) if word in triggers else ():
            yield from _printed(text, at + len(command), command)


def _is_given(value: str) -> bool:
    return is_chosen_word(value) or (is_argument(value) and not is_vocabulary(value))


def _is_command(text: str, at: int, end: int) -> bool:
    """Return whether the name of the command is a whole word followed by white space."""
    before = text[at - 1 : at]
    begins = not (before.isalnum() or before in ("-", "_", ".")) or text[max(0, at - 2) : at] in ("\\n", "\\t")
    return begins and text[end : end + 1] in (" ", "\t") and not _PROSE.search(text, max(0, at - 24), at)


def _arguments(text: str, begin: int, command: str, patterns: list[re.Pattern[str]]) -> Iterator[Span]:
    end = _line_end(text, begin)
    for pattern in patterns:
        accept = looks_random if "cookie" in pattern.groupindex else _is_given
        for match in pattern.finditer(text, begin, end):
            group = "bare" if match["quoted"] is None else "quoted"
            if accept(match[group][:MAX_JUDGED]):
                yield Span(*match.span(group), "SECRET", f"command:{command}")


def _line_end(text: str, begin: int) -> int:
    r"""Return the end of the command: a line end without a `\` before it."""
    end = text.find("\n", begin)
    while 0 <= end - begin < MAX_COMMAND and text[end - 1] == "\\":
        end = text.find("\n", end + 1)
    return min(end if end >= 0 else len(text), begin + MAX_COMMAND)


def _printed(text: str, end: int, command: str) -> Iterator[Span]:
    condition = _CONDITIONS.get(command.partition(" ")[0])
    match = _PRINTED.match(text, end) if not condition or condition.match(text, end) else None
    value = match["v"][:MAX_JUDGED] if match else ""
    if match and (looks_random(value) or looks_like_password(value)):
        yield Span(*match.span("v"), "SECRET", f"printed:{command.strip()}")
