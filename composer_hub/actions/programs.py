"""The programs that agents call: their options, operands and kinds of effect.

In: the words after a program's name. Out: its options, and which words are operands. `data/programs.ini`
describes how each program reads its words. The words of other programs are read by their looks. A call with
an option that the program's `Spec` lacks is compared word by word.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

Options = list[list[str]]
_ATTACHED = re.compile(r"-([A-Za-z])(\d+)")


@dataclass(frozen=True, slots=True)
class Spec:
    """How one program reads its words; the keys of a section of `programs.ini`."""

    flags: str = ""  # short options without a value; `-rf` is `-r -f`
    valued: str = ""  # short options with a value; `-n5` is `-n 5`
    suffixed: str = ""  # short options whose value must be attached: sed's `-i.bak`
    long: Mapping[str, str] = field(default_factory=dict)  # long option -> its short letter, or its own name
    long_valued: Mapping[str, str] = field(default_factory=dict)
    rivals: tuple[frozenset[str], ...] = ()  # options of which the later wins: their order is kept
    operands: str = "paths"  # paths, pattern (then paths), script (then words), nodes, revisions (then paths) or words
    patternless: frozenset[str] = frozenset()  # options that give the pattern, so that every operand is a path
    synonyms: Mapping[str, str] = field(default_factory=dict)  # short option -> the one it means
    number: str = ""  # the option that `-5` means
    defaults: Mapping[str, str] = field(default_factory=dict)
    shown: frozenset[str] = frozenset()  # options that only change what is printed about the work
    folders: bool = False  # a slash after an operand changes nothing
    permutes: bool = False  # options may follow operands on every system
    unordered: bool = False  # the operands are a set
    passes_on: bool = False  # the words after `--` go to another program
    open: bool = False  # options that are not named are read by their looks


def read_options(words: Sequence[str | None], spec: Spec) -> tuple[Options, list[int]] | None:
    """Split the words after a program's name into options and indices of operands; None if one is unknown.

    A word that the shell still expands is None: it counts as an operand.
    """
    options: Options = []
    operands: list[int] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            # Behind it git expects files, and cargo the words of another program, so that it is kept for an operand.
            operands += range(at - 1 if spec.operands == "revisions" or spec.passes_on else at, len(words))
            break
        if word is None or word == "-" or not word.startswith("-"):
            operands.append(at - 1)
            if spec.operands == "script":
                operands += range(at, len(words))
                break
            continue
        if operands and not spec.permutes:
            return None
        taken = _long(word, spec) if word.startswith("--") else _short(word, spec)
        if taken is None and spec.open:
            taken = guessed(word, words[at] if at < len(words) else None)
        if taken is None:
            return None
        more, wants_value = taken
        if wants_value:
            value = words[at] if at < len(words) else None
            if value is None:
                return None
            more[-1].append(value)
            at += 1
        options += more
    return options, operands


def guessed(word: str, following: str | None) -> tuple[Options, bool]:
    """Read an option that no table names: by its looks, the next word is its value."""
    if attached := _ATTACHED.fullmatch(word):
        return [[attached[1], attached[2]]], False
    name, equals, value = word.partition("=")
    if not equals and len(name) > 2 and name[1] != "-":
        return [[name]], False  # several letters, or a long name with one dash
    if equals:
        return [[name.lstrip("-"), value]], False
    takes_value = following is not None and following[:1] not in ("", "-") and not _is_switch(name.lstrip("-"))
    return [[name.lstrip("-")]], takes_value


def _is_switch(name: str) -> bool:
    return name in SWITCHES or name.startswith(("no-", "with-", "without-", "skip-", "enable-", "disable-"))


def in_order(options: Options, spec: Spec) -> Options:
    """Sort options whose order does not matter; drop those that repeat the default or only change what is printed."""
    names = [option[0] for option in options]
    if len(set(names)) < len(names) or any(len(rivals.intersection(names)) > 1 for rivals in spec.rivals):
        return options
    return sorted(
        option for option in options if option[0] not in spec.shown and option[1:] != [spec.defaults.get(option[0])]
    )


def _long(word: str, spec: Spec) -> tuple[Options, bool] | None:
    name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
    if name in spec.long_valued and (equals or name not in spec.long):
        return ([[spec.long_valued[name], value]], False) if equals else ([[spec.long_valued[name]]], True)
    if name in spec.long and not equals:
        letter = spec.long[name]
        return [[letter, ""] if letter in spec.suffixed and letter else [letter]], False
    return None


def _short(word: str, spec: Spec) -> tuple[Options, bool] | None:
    if spec.number and word[1:].isdecimal():
        return [[spec.number, word[1:]]], False
    options: Options = []
    for at, letter in enumerate(word[1:], start=2):
        rest, letter = word[at:], spec.synonyms.get(letter, letter)
        if letter in spec.suffixed:
            return [*options, [letter, rest]], False
        if letter in spec.valued:
            return ([*options, [letter, rest]], False) if rest else ([*options, [letter]], True)
        if letter not in spec.flags:
            return None
        options.append([letter])
    return options, False


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _sets(*texts: str) -> tuple[frozenset[str], ...]:
    return tuple(_names(text) for text in texts)


def _map(pairs: str) -> dict[str, str]:
    return {
        name: short or name
        for name, _, short in (pair.rpartition(":") if ":" in pair else (pair, "", "") for pair in pairs.split())
    }


def _data(name: str) -> str:
    return (resources.files("composer_hub.actions") / "data" / name).read_text(encoding="utf-8")


def _specs() -> dict[str, Spec]:
    table = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("# ",))
    table.optionxform = str  # type: ignore[method-assign,assignment]
    table.read_string(_data("programs.ini"))
    return {name: _spec(table[names]) for names in table.sections() for name in names.split(", ")}


def _spec(keys: Mapping[str, str]) -> Spec:
    own: dict[str, Any] = dict(keys)
    own |= dict.fromkeys(own.pop("is", "").split(), True)
    own |= {name: _map(own[name]) for name in ("long", "long_valued", "synonyms", "defaults") if name in own}
    own |= {name: _names(own[name]) for name in ("patternless", "shown") if name in own}
    return Spec(**own | ({"rivals": _sets(*own["rivals"].split(","))} if "rivals" in own else {}))


SPECS: Mapping[str, Spec] = _specs()
"""Spec by program, or by program and subcommand."""

ALIASES: Mapping[str, str] = dict(
    line.split(" = ") for line in _data("aliases.txt").splitlines() if line[:1] not in ("", "#")
)
"""Leading words -> the leading words that mean the same."""

ANY = Spec(operands="words", permutes=True, passes_on=True, open=True)
"""How the words of a program without a section are read."""

AS_WRITTEN = _names(
    "find rsync ffmpeg ffprobe convert gcc g++ cc clang ld ar test [ [[ expr echo printf let read set unset export "
    "declare local alias trap eval source . awk perl ruby lua php dd xargs parallel bc return exit break continue "
    "shift wait true false : cd pushd popd chdir"
)
"""Programs whose words keep their order: an expression, or options that apply to the operand after them."""

NAMES_OR_PATHS = _names("go npm pnpm yarn bun npx bunx pip uv uvx docker podman cargo gh brew deno git kubectl helm")
"""Programs to which `./x` is a folder and `x` may be a name."""

INTERPRETERS = _names("python python3 node bash sh")
"""Programs whose first operand is a script, which reads the words after it."""

PLACELESS = _names(
    "cat head tail wc ls rm cp mv mkdir rmdir touch chmod chown ln grep egrep fgrep rg sed sort diff tee stat file "
    "cd echo printf pwd true : kill export which"
)
"""Programs that mean the same in every directory, once their files are paths."""

ENTERS: Mapping[str, tuple[str, ...]] = {
    "git": ("-C",),
    "make": ("-C", "--directory"),
    "npm": ("--prefix",),
    "pnpm": ("-C", "--dir"),
    "yarn": ("--cwd",),
    "bun": ("--cwd",),
    "go": ("-C",),
    "uv": ("--directory",),
    "ctest": ("--test-dir",),
    "poetry": ("-C", "--directory"),
}
"""Options of programs that then work in another directory."""

SWITCHES = _names(
    "verbose quiet silent help version force all yes dry-run json recursive watch fix check debug strict ci release "
    "v q h"
)
"""Names of options that hardly ever take a value."""


PLACED = _names("cp mv ln diff cmp git docker podman scp rsync tar zip convert ffmpeg install sed")
"""Programs whose operands have places, whatever their options."""

SUBCOMMANDS = _names(
    "git npm npx pnpm yarn bun cargo go docker kubectl gh pip pip3 uv poetry make just apt apt-get brew conda hf "
    "systemctl terraform dotnet mvn gradle"
)
"""Programs whose first plain word is a subcommand."""

WRAPPERS = _names("sudo nohup command exec nice env timeout stdbuf xvfb-run caffeinate")
"""Programs that run the program named after them."""

LAUNCHERS = WRAPPERS | _names("time gtimeout builtin npx bunx pnpx uvx xargs")
"""Words that come before the program that a line is about."""

RUNNERS = frozenset(("uv run", "poetry run", "pipenv run", "bundle exec", "mise exec", "pdm run"))
"""Pairs of words that come before the program that a line is about."""

_VALUED = frozenset(
    "sudo -u|sudo -g|sudo -p|sudo --user|timeout -s|timeout -k|timeout --signal|timeout --kill-after|env -u|env -C|"
    "nice -n|stdbuf -i|stdbuf -o|stdbuf -e|exec -a|xvfb-run -s|xvfb-run -n|xargs -I|xargs -d|uvx --with|uv --with|"
    "uv --python|uv -p|uv --extra|uv --group|uv --package|uv --project|uv --directory|poetry -C|npx -p".split("|")
)
_OWN = re.compile(r"-|\w+=|[\d.]+[smhd]?$|$")


def after_own(words: Sequence[str | None], start: int) -> int:
    """Return the place of the program after a wrapper's options with their values, its assignments and its time."""
    at = start
    while at < len(words) and (_OWN.match(words[at] or "") or f"{words[0]} {words[at - 1]}" in _VALUED):
        at += 1
    return at


MOVERS = _names("cd pushd popd chdir")
"""Programs that change the directory of the shell."""

SILENT = MOVERS | _names("echo printf true : export set unset source . sleep pwd ulimit")
"""Programs that are never the subject of a command that calls another one."""

SHAPERS = _names("head tail less more cat nl column")
"""Filters that show a part of the output, or show it otherwise."""

FILTERS = _names("head tail wc sort uniq cut tr awk sed grep egrep fgrep rg less more cat column nl jq tac rev fold")
"""Programs that, after a pipe and without a file, only shape the output."""

READERS = _names("cat head tail less more nl bat")
SEARCHERS = _names("grep egrep fgrep rg ag ack")
LISTERS = _names("ls tree")
FINDERS = _names("find")
WRITERS = _names("cat echo printf tee")

READ_ONLY = (
    READERS
    | SEARCHERS
    | LISTERS
    | FILTERS
    | _names("stat file which type du df diff cmp find cd pwd echo printf true : sleep")
    | frozenset(f"git {name}" for name in ("status", "diff", "log", "show", "blame", "ls-files", "rev-parse"))
)
"""Programs that leave every file as it was; `find` and `sed` also depend on their options."""
