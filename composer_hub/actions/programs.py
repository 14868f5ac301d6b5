"""The programs that agents call: their options, operands and kinds of effect.

In: the words behind a program's name. Out: its options, and which words are operands. `data/programs.ini` says how each
program reads its words. Those of a program that is not there are read by their looks; one called with an option that
its `Spec` does not name is compared word by word.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

Options = list[list[str]]
_FIND_ACTIONS = ("-exec", "-print", "-delete", "-ok", "-fprint", "-ls", "-prune")
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
    means: Mapping[str, str] = field(default_factory=dict)  # `name=value` -> the option that it is
    shown: frozenset[str] = frozenset()  # options that only change what is printed about the work
    detail: frozenset[str] = frozenset()  # options that print more or less of a report: no other opinion
    folders: bool = False  # a slash behind an operand changes nothing
    permutes: bool = False  # options may follow operands on every system
    unordered: bool = False  # the operands are a set
    single: bool = False  # Go's style: long options have one dash, and there are no clusters
    passes_on: bool = False  # the words behind `--` go to another program
    here: bool = False  # without an operand it works on the current folder
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
        taken = _long(word, spec) if word.startswith("--") or spec.single else _short(word, spec)
        if taken is None and spec.open:
            taken = guessed(word, words[at] if at < len(words) else None, single=spec.single)
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
    return [_meant(option, spec) for option in options], operands


def guessed(word: str, following: str | None, *, single: bool = False) -> tuple[Options, bool]:
    """Read an option that no table names: by its looks, the word behind it is its value."""
    if attached := _ATTACHED.fullmatch(word):
        return [[attached[1], attached[2]]], False
    name, equals, value = word.partition("=")
    if not equals and len(name) > 2 and name[1] != "-" and not single:
        return [[name]], False  # several letters, or a long name with one dash
    if equals:
        return [[name.lstrip("-"), value]], False
    takes_value = following is not None and following[:1] not in ("", "-") and not _is_switch(name.lstrip("-"))
    return [[name.lstrip("-")]], takes_value


def _is_switch(name: str) -> bool:
    return name in SWITCHES or name.startswith(("no-", "with-", "without-", "skip-", "enable-", "disable-"))


def _meant(option: list[str], spec: Spec) -> list[str]:
    return [spec.means["=".join(option)]] if spec.means and "=".join(option) in spec.means else option


def without_run(words: Sequence[str | None]) -> bool:
    """Return whether `run` may be left out of a package manager's words: `npm run test` is `npm test`."""
    rule, names = SCRIPT_RUNNERS.get(words[0] or "", ("only", frozenset()))
    if len(words) < 3 or words[1] not in ("run", "run-script") or not words[2] or words[2].startswith("-"):
        return False
    return (words[2] in names) == (rule == "only")


def find_in_order(words: Sequence[str | None]) -> list[int]:
    """Return the indices of the words of a find expression, those of leading tests sorted by their text.

    A test only narrows the files down, so that their order does not matter until something acts on a file. In an
    expression with `-o`, parentheses or negation every word keeps its place.
    """
    start, words = _unwrapped(words)
    tests: list[tuple[tuple[str, ...], list[int]]] = []
    at = 0
    while at < len(words) and words[at] in FIND_TESTS | FIND_FLAGS:
        size = 2 if words[at] in FIND_TESTS else 1
        group = list(range(at, min(at + size, len(words))))
        tests.append((tuple(words[one] or "" for one in group), group))
        at += size
    rest = list(range(at, len(words)))
    plain = not {"-o", "-or", ",", "-prune"} & {words[one] for one in rest} and all(all(text) for text, _ in tests)
    groups = [group for _, group in (sorted(tests) if plain else tests)]
    if plain and [words[one] for one in rest] == ["-print"]:
        rest = []  # the default
    return [start + one for one in [one for group in groups for one in group] + rest]


def _unwrapped(words: Sequence[str | None]) -> tuple[int, Sequence[str | None]]:
    """Return a find expression without the parentheses around all of it and the default action, and where it begins."""
    acts = any(
        word and word.startswith(("-exec", "-print", "-delete", "-ok", "-fprint", "-ls", "-prune"))
        for word in words[:-1]
    )
    if not acts and words[-1:] == ["-print"] and (words[:1] == ["("] or not {"-o", "-or"} & set(words)):
        words = words[:-1]
    if not acts and words[:1] == ["("] and words[-1:] == [")"] and list(words).count("(") == 1:
        return 1, words[1:-1]
    return 0, words


def in_order(options: Options, spec: Spec) -> Options:
    """Sort options whose order does not matter, and drop those that repeat the default."""
    names = [option[0] for option in options]
    if len(set(names)) < len(names) or any(len(rivals.intersection(names)) > 1 for rivals in spec.rivals):
        return options
    return sorted(option for option in options if option[1:] != [spec.defaults.get(option[0])])


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
    own |= {name: _map(own[name]) for name in ("long", "long_valued", "synonyms", "defaults", "means") if name in own}
    own |= {name: _names(own[name]) for name in ("patternless", "shown", "detail") if name in own}
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
    "find ffmpeg ffprobe convert magick sox gcc g++ cc c++ clang clang++ ld ar test [ [[ expr echo printf let read set "
    "unset export declare local alias trap eval source . awk gawk mawk perl ruby lua php dd xargs parallel bc dc tput "
    "return exit break continue shift wait getopts true false : cd pushd popd chdir"
)
"""Programs whose words keep their order: an expression, or options that apply to the operand behind them."""

NAMES_OR_PATHS = _names("go npm pnpm yarn bun npx bunx pip uv uvx docker podman cargo gh brew deno git kubectl helm")
"""Programs to which `./x` is a folder and `x` may be a name."""

INTERPRETERS = _names("python python3 node bash sh")
"""Programs whose first operand is a script, which reads the words behind it."""

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


OUTPUT = _names(
    "verbose quiet silent color colour no-color no-colour progress no-progress no-pager no-header no-headers v q s vv "
    "verbosity show-progress no-input no-interaction no-interactive non-interactive yes y assume-yes plain pretty "
    "no-ansi ansi noinput no-warn no-banner no-version-check disable-pip-version-check no-warnings no-summary "
    "no-heading nologo console no-transfer-progress ntp output-on-failure"
)
"""Options of unknown programs that change what is printed, or who answers questions."""

PLACED = _names("cp mv ln diff cmp git docker podman scp rsync tar zip convert ffmpeg install sed")
"""Programs whose operands have places, whatever their options."""

BRACES = (
    ".ts",
    ".tsx",
    ".js",
    ".jsx",
    ".go",
    ".rs",
    ".java",
    ".kt",
    ".c",
    ".h",
    ".cc",
    ".cpp",
    ".cs",
    ".swift",
    ".css",
)
"""Files of languages that read braces, not indentation."""

ASKERS = _names("codebase_search semantic_search websearch web_search google_web_search search_web")
"""Tools that take a question in plain words."""

PLANNERS = _names("todowrite todo_write todoread update_plan think")
"""Tools that only change a list of the agent's own."""

SUBCOMMANDS = _names(
    "git npm npx pnpm yarn bun cargo go docker kubectl gh pip pip3 uv poetry make just apt apt-get brew conda hf "
    "systemctl terraform dotnet mvn gradle"
)
"""Programs whose first plain word is a subcommand."""

SCRIPT_RUNNERS: Mapping[str, tuple[str, frozenset[str]]] = {
    "npm": ("only", _names("test start stop restart")),
    "yarn": (
        "but",
        _names(
            "add audit autoclean bin cache check config constraints create dedupe dlx exec explain generate-lock-entry "
            "global help import info init install licenses link list login logout node npm outdated owner pack patch "
            "plugin policies prune publish rebuild remove run search set stage tag team unlink unplug up upgrade "
            "upgrade-interactive version versions why workspace workspaces"
        ),
    ),
    "pnpm": (
        "but",
        _names(
            "add approve-builds audit bin cat-file cat-index ci config create dedupe deploy dlx doctor env exec fetch "
            "find-hash help i import init install install-test it licenses link list ll ln ls outdated pack patch "
            "patch-commit patch-remove prune publish rb rebuild recursive remove rm root run search self-update server "
            "setup store un uninstall unlink up update upgrade why"
        ),
    ),
}
"""The package managers whose `run` may be left out: of these scripts only, or of all but their own commands."""

JOINED = frozenset(("git add", "git rm", "touch", "rm", "mkdir"))
"""Programs of which two calls in a row do the same as one call with the operands of both."""

WRAPPERS = _names("sudo nohup command exec nice env timeout stdbuf xvfb-run caffeinate")
"""Programs that run the program named after them."""

LAUNCHERS = WRAPPERS | _names("time builtin npx bunx pnpx uvx xargs")
"""Words that come before the program that a line is about."""

RUNNERS = frozenset(("uv run", "poetry run", "pipenv run", "bundle exec", "mise exec", "pdm run"))
"""Pairs of words that come before the program that a line is about."""

MOVERS = _names("cd pushd popd chdir")
"""Programs that change the directory of the shell."""

SILENT = MOVERS | _names("echo printf true : export set unset source . sleep pwd ulimit")
"""Programs that are never the subject of a command that calls another one."""

SHAPERS = _names("head tail less more cat nl column")
"""Filters that show a part of the output, or show it otherwise."""

FILTERS = _names("head tail wc sort uniq cut tr awk sed grep egrep fgrep rg less more cat column nl jq tac rev fold")
"""Programs that, after a pipe and without a file, only shape the output."""

FIND_TESTS = _names(
    "-name -iname -path -ipath -wholename -type -size -mtime -mmin -atime -amin -ctime -cmin -newer -perm -user -group "
    "-regex -iregex -maxdepth -mindepth -links -inum"
)
"""Tests and limits of `find` with one value: all must hold, in any order."""

FIND_FLAGS = _names("-empty -readable -writable -executable -nouser -nogroup")
"""Tests of `find` without a value."""

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
"""Programs that leave every file as it was; `find` and `sed` by their options too."""
