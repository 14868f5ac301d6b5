"""Other spellings of one command: tree -> tree, words -> words, into the spelling that the forms compare.

A rewrite happens only where the programs document that both spellings do the same. Anything that the shell would still
expand stays as written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from composer_hub.actions import programs
from composer_hub.actions.tree import Command, Compound, Item, Part, Pipeline, Redirect, Simple, Word

STDIN_READERS: Mapping[str, str] = {
    "grep": "HlLrRf",
    "egrep": "HlLrRf",
    "fgrep": "HlLrRf",
    "sed": "isf",
    "head": "v",
    "tail": "vfF",
    "sort": "o",
    "cat": "",
    "jq": "f",
}
"""Programs that do the same with `< FILE` and with FILE, and the options with which they do not."""

_ONLY_STDIN = frozenset(("wc", "tr"))  # they name a file that is an operand, or take none
_SIGNALS = {"1": "HUP", "2": "INT", "3": "QUIT", "6": "ABRT", "9": "KILL", "14": "ALRM", "15": "TERM"}
_SIGNAL = re.compile(r"-(?:SIG)?([A-Z]+|\d+)")
_FIRST_LINES = re.compile(r"1,([1-9]\d*)p")
_SUBSTITUTE = re.compile(r"s([^\w\s\\/])((?:(?!\1)[^/\\\n])*)\1((?:(?!\1)[^/\\\n])*)\1([gpI\d]*)")
_CLUSTER = re.compile(r"[cxtruvzjJkpf]+")
_PARENT = re.compile(r"(?:[\w/.-]+\.\.\.?)?(?:HEAD|@|[\w/-]+)(?:\^|~\d*)+(?:\.\.\.?[\w/.-]+)?")
_MAX_TURNS = 20
_PLAIN_VALUE = re.compile(r"[\w./:@%+,=-]+")
_MODE = re.compile(r"([ugoa]+)=([rwx]*)")


def plain_pipeline(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline without a `cat` of one file before a reader, and `sort | uniq` as `sort -u`."""
    commands: list[Command] = []
    pipes: list[str] = []
    for pipe, command in zip(("", *pipeline.pipes), pipeline.commands, strict=True):
        command = _file_as_operand(_plain_simple(command)) if isinstance(command, Simple) else command
        joined = _joined(commands[-1], command) if pipe == "|" else None
        if joined:
            commands[-1] = _file_as_operand(joined)
        else:
            commands.append(command)
            pipes.append(pipe)
    return replace(pipeline, commands=tuple(commands), pipes=tuple(pipes[1:]))


def unrolled(loop: Compound) -> tuple[Item, ...] | None:
    """Return the commands of a loop over given words, written out; None if it is another loop or a long one."""
    literals = [word.literal for word in loop.words]
    if len(loop.bodies) != 1 or len(literals) < 3 or literals[1] != "in" or None in literals:
        return None
    name, values = literals[0] or "", [text or "" for text in literals[2:]]
    body = loop.bodies[0][1]
    plain = len(values) <= _MAX_TURNS and all(map(_PLAIN_VALUE.fullmatch, values))
    if loop.bodies[0][0] != "do" or not plain or _keeps_name(body, name):
        return None
    return tuple(item for value in values for item in _with_value(body, name, value))


def _keeps_name(value: Any, name: str) -> bool:
    """Return whether commands may read a loop's name in a way that is not followed, set it, or leave the loop."""
    if isinstance(value, Redirect) and f"${name}" in value.body.replace("{", ""):
        return True
    if isinstance(value, Word) and value.assignment == f"{name}=":
        return True
    if isinstance(value, Word) and value.bare and value.literal in ("break", "continue", "read", "eval", name):
        return True
    if isinstance(value, Part):
        follows = value.kind in ("var", "dvar") and value.value == f"${name}"
        text = value.value if isinstance(value.value, str) and value.kind != "lit" else ""
        if not follows and re.search(rf"\b{re.escape(name)}\b", text):
            return True
    return any(_keeps_name(one, name) for one in _fields(value))


def _with_value(value: Any, name: str, text: str) -> Any:
    """Return commands with a name's value in its place."""
    if isinstance(value, Part):
        if value.kind in ("var", "dvar") and value.value == f"${name}":
            return Part("lit", text)
        return value._replace(value=_with_value(value.value, name, text))
    if isinstance(value, Word):
        return value._replace(parts=_with_value(value.parts, name, text))
    if isinstance(value, tuple):
        return tuple(_with_value(one, name, text) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _with_value(getattr(value, one.name), name, text) for one in fields(value)})
    return value


def _fields(value: Any) -> Sequence[Any]:
    if isinstance(value, tuple):
        return value
    return [getattr(value, one.name) for one in fields(value)] if is_dataclass(value) else []


def plain_words(words: list[Word]) -> list[Word]:
    """Return the words of one call in the spelling that is compared."""
    literals = [word.literal for word in words]
    for count in (4, 3, 2, 1):
        if len(words) >= count and (plain := programs.ALIASES.get(" ".join(text or "" for text in literals[:count]))):
            if plain == "test" and literals[-1] != "]":
                return words
            return [*map(_lit, plain.split()), *(words[count:-1] if plain == "test" else words[count:])]
    texts = [text for text in literals if text is not None]
    if len(texts) < len(words):
        return words
    if texts[:2] == ["git", "stash"] and (len(texts) == 2 or texts[2].startswith("-")):
        texts.insert(2, "push")
    elif texts[0] == "git":
        texts = _git(texts)
    elif texts[0] == "kill" and len(texts) > 1:
        texts = _kill(texts)
    elif texts[0] == "tar" and len(texts) > 1 and _CLUSTER.fullmatch(texts[1]) and "f" not in texts[1][:-1]:
        texts[1] = "-" + texts[1]
    elif texts[0] == "sed":
        texts = _sed(texts)
    elif texts[0] == "chmod" and len(texts) > 2:
        texts = [_octal(text) for text in texts]
        texts[1:] = [re.sub(r"^(?:a|ugo)(?=[+-])", "", text) for text in texts[1:]]
    return [*map(_lit, texts)]


def _lit(text: str) -> Word:
    return Word((Part("lit", text),))


def _plain_simple(command: Simple) -> Simple:
    """Return `env A=b cmd` as `A=b cmd`."""
    words = command.words
    if not words or words[0].literal != "env" or command.assignments:
        return command
    count = next((at for at, word in enumerate(words) if at and not word.assignment), 0)
    program = words[count].literal if count else None
    if count < 2 or not program or program.startswith("-") or program in programs.SILENT | programs.WRAPPERS:
        return command
    if any(word.literal is None for word in words[1:count]):
        return command
    return replace(command, assignments=words[1:count], words=words[count:])


def _joined(first: Command, second: Command) -> Simple | None:
    """Return one command for two that a pipe joins, or None."""
    if not isinstance(first, Simple) or not isinstance(second, Simple) or first.redirects:
        return None
    left, right = [word.literal for word in first.words], [word.literal for word in second.words]
    if not left or not right or second.assignments:
        return None
    if left[0] == "sort" and right == ["uniq"] and all(_may_be_unique(text) for text in left[1:]):
        return replace(first, words=(first.words[0], _lit("-u"), *first.words[1:]), redirects=second.redirects)
    if left[0] != "cat" or len(left) != 2 or not left[1] or left[1].startswith("-") or first.assignments:
        return None
    if right[0] not in STDIN_READERS and right[0] not in _ONLY_STDIN:
        return None
    if _reads_redirect(second) or {"-f", "-F", "--follow"} & set(right):
        return None
    return replace(second, redirects=(*second.redirects, Redirect("", "<", first.words[1])))


def _may_be_unique(text: str | None) -> bool:
    return text is not None and (not text.startswith("-") or text in ("-r", "--reverse"))


def _reads_redirect(command: Simple) -> bool:
    return any(one.op.startswith("<") for one in command.redirects)


def _file_as_operand(command: Simple) -> Simple:
    """Return `grep x < F` as `grep x F`, if the program does the same with both."""
    literals = [word.literal for word in command.words]
    name = literals[0] if literals else None
    spec = programs.SPECS.get(name or "")
    read = programs.read_options(literals[1:], spec) if spec and name in STDIN_READERS else None
    reads = [one for one in command.redirects if one.op.startswith("<")]
    if not spec or not read or len(reads) != 1 or reads[0].op != "<" or reads[0].fd not in ("", "0"):
        return command
    names = {option[0] for option in read[0]}
    needed = 1 if spec.operands == "pattern" and not names & spec.patternless else 0
    target = reads[0].target
    # Before the shell opens a file that is missing, it has emptied the ones before it.
    if command.redirects[-1] is not reads[0]:
        return command
    if len(read[1]) != needed or names & set(STDIN_READERS[name or ""]) or None in literals:
        return command
    if not target.literal or target.literal.startswith("-") or "--" in literals:
        return command
    rest = tuple(one for one in command.redirects if one is not reads[0])
    return replace(command, words=(*command.words, target), redirects=rest)


def _git(texts: list[str]) -> list[str]:
    """Return revisions by one name, without a default `HEAD`, and `reset FILE` as `restore --staged FILE`."""
    if texts[1:2] == ["commit"]:
        return texts
    texts = [re.sub(r"\^(?![\^{\d@!-])", "~1", text) if _PARENT.fullmatch(text) else text for text in texts]
    texts = [re.sub(r"~(?=$|\.)", "~1", text) if _PARENT.fullmatch(text) else text for text in texts]
    texts = [re.sub(r"^(--(?:pretty|format)=)tformat:", r"\1", text) for text in texts]
    plain = not any(text.startswith("-") and text != "--" for text in texts[2:])
    texts = [text for text in texts if text not in ("-q", "--quiet")] if texts[1:2] == ["reset"] else texts
    plain = plain or (texts[1:2] == ["reset"] and not any(text.startswith("-") and text != "--" for text in texts[2:]))
    if texts[1:2] == ["reset"] and len(texts) > 2 and plain:
        files = [text for text in (texts[3:] if texts[2] == "HEAD" else texts[2:]) if text != "--"]
        if files and ("--" in texts or all("." in text or "/" in text for text in files)):
            return ["git", "restore", "--staged", *files]
    if texts[1:2] in (["show"], ["log"], ["reset"]) and texts[-1] == "HEAD":
        texts = texts[:-1]
    return texts


def _kill(texts: list[str]) -> list[str]:
    """Return the signal of `kill` by its name; without one it is TERM."""
    if texts[1] in ("-s", "-n") and len(texts) > 3:
        texts = [texts[0], "-" + texts[2], *texts[3:]]
    if signal := _SIGNAL.fullmatch(texts[1]):
        return [texts[0], "-" + _SIGNALS.get(signal[1], signal[1]), *texts[2:]]
    return texts if texts[1].startswith("-") else [texts[0], "-TERM", *texts[1:]]


def _sed(texts: list[str]) -> list[str]:
    """Return `sed -n 1,9p F` as `head -n 9 F`, and slashes between the parts of a substitution."""
    if len(texts) == 4 and texts[1] == "-n" and (lines := _FIRST_LINES.fullmatch(texts[2])) and texts[3][0:1] != "-":
        return ["head", "-n", lines[1], texts[3]]
    return [f"s/{found[2]}/{found[3]}/{found[4]}" if (found := _SUBSTITUTE.fullmatch(text)) else text for text in texts]


def _octal(text: str) -> str:
    """Return a mode that sets the bits of user, group and others as its number."""
    if re.fullmatch(r"0?[0-7]{3}", text):
        return text[-3:]
    modes: dict[str, int] = {}
    for clause in text.split(","):
        found = _MODE.fullmatch(clause)
        if not found:
            return text
        for who in found[1].replace("a", "ugo"):
            modes[who] = sum({"r": 4, "w": 2, "x": 1}[bit] for bit in set(found[2]))
    return "".join(str(modes[who]) for who in "ugo") if len(modes) == 3 else text
