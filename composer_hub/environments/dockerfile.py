"""Dockerfiles that need no Docker: a text in, instructions out, and a refusal with a reason for all others.

Accepted is what most Python tasks consist of: one `FROM python:X.Y`, files of the context, environment variables,
users, and commands. Programs that `apt-get` would install are taken from this machine if they are common tools.
"""

from __future__ import annotations

import json
import re
import shlex
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from composer_hub import exits

_IGNORED = {"LABEL", "CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "MAINTAINER", "VOLUME"}
_KNOWN = {"FROM", "WORKDIR", "ENV", "ARG", "COPY", "ADD", "RUN", "USER"} | _IGNORED
_BASE = re.compile(
    r"(?:docker\.io/library/|library/)?python:(3\.\d+)(?:\.\d+)?(?:-(?:slim|bookworm|bullseye|trixie))*$"
)
_TOOLS = set(
    "bash ca-certificates coreutils curl findutils git grep gzip jq less procps sed sqlite3 tar tmux unzip wget".split()
)
_OPTIONS = {"-y", "--yes", "-q", "-qq", "--no-install-recommends", "--assume-yes"}


class UnsupportedDockerfile(exits.Refused):
    """A Dockerfile that needs a container."""


@dataclass(frozen=True)
class Instruction:
    """One instruction with its text, and the line that it begins on."""

    name: str
    text: str
    line: int


def parse(text: str) -> tuple[Instruction, ...]:
    """Return the instructions of a Dockerfile; refuse what bubblewrap cannot do."""
    found = tuple(_lines(text))
    if not found or next((one.name for one in found if one.name != "ARG"), "") != "FROM":
        raise UnsupportedDockerfile("The Dockerfile does not begin with FROM.")
    for one in found:
        if one.name not in _KNOWN:
            raise _refused(one, f"{one.name} is not supported")
        if "<<" in one.text and one.name in ("RUN", "COPY"):
            raise _refused(one, "documents inside a Dockerfile are not supported")
    if sum(one.name == "FROM" for one in found) > 1:
        raise UnsupportedDockerfile("The Dockerfile has several stages. Only one FROM is supported without Docker.")
    return found


def check(text: str) -> None:
    """Refuse a Dockerfile that bubblewrap cannot execute, before anything is executed."""
    for one in parse(text):
        if one.name == "FROM":
            python_of(one)
        elif one.name == "RUN":
            command_of(one)


def python_of(instruction: Instruction) -> str:
    """Return the version of Python that a FROM names."""
    match = _BASE.match(instruction.text.split(" AS ")[0].split(" as ")[0].strip())
    if match is None:
        raise _refused(instruction, f"the base image {instruction.text} is not python:X.Y")
    return match[1]


def command_of(instruction: Instruction) -> str:
    """Return the command of a RUN, without installing tools that this machine has."""
    text = instruction.text
    if text.startswith("["):
        try:
            return shlex.join(json.loads(text))
        except (ValueError, TypeError) as error:
            raise _refused(instruction, "its list is not JSON") from error
    if text.startswith("--"):
        raise _refused(instruction, "RUN with options needs BuildKit")
    if not re.search(r"\b(?:apt-get|apt|apk|yum|dnf)\b", text):
        return text
    kept = []
    for part in re.split(r"\s*(?:&&|;)\s*", text):
        try:
            words = shlex.split(part)
        except ValueError as error:
            raise _refused(instruction, "its quotes span several commands") from error
        if words[:1] in (["apt-get"], ["apt"]) and {"update", "clean"} & set(words[1:2]):
            continue
        if words[:1] in (["apt-get"], ["apt"]) and "install" in words:
            packages = set(words[words.index("install") + 1 :]) | set(words[1 : words.index("install")])
            if missing := packages - _TOOLS - _OPTIONS:
                raise _refused(instruction, f"it installs {', '.join(sorted(missing))} from the distribution")
        elif words[:2] == ["rm", "-rf"] and all(word.startswith("/var/lib/apt") for word in words[2:]):
            continue
        elif words[:1] and words[0] in ("apk", "yum", "dnf", "apt", "apt-get"):
            raise _refused(instruction, f"{words[0]} cannot run without a container")
        elif part:
            kept.append(part)
    return " && ".join(kept)


def pairs_of(instruction: Instruction) -> dict[str, str]:
    """Return the variables of an ENV or ARG."""
    if "=" not in instruction.text.split(" ")[0]:
        name, _, value = instruction.text.partition(" ")
        return {name: value.strip()} if instruction.name == "ENV" else {}
    words = shlex.split(instruction.text)
    if not all("=" in word for word in words):
        raise _refused(instruction, "it has a word without =")
    return dict(word.split("=", 1) for word in words)


def filled(text: str, variables: Mapping[str, str]) -> str:
    """Put variables into a text."""
    return string.Template(text).safe_substitute(variables)


def _refused(instruction: Instruction, reason: str) -> UnsupportedDockerfile:
    return UnsupportedDockerfile(
        f"Line {instruction.line} of the Dockerfile needs a container: {reason}. Run this task with Docker."
    )


def _lines(text: str) -> Iterator[Instruction]:
    logical, begun = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        begun = begun if logical else number
        if line.rstrip().endswith("\\"):
            logical += line.rstrip()[:-1] + " "
            continue
        name, _, rest = (logical + line).strip().partition(" ")
        yield Instruction(name.upper(), rest.strip(), begun)
        logical = ""
    if logical.strip():
        name, _, rest = logical.strip().partition(" ")
        yield Instruction(name.upper(), rest.strip(), begun)
