"""The programs that agents call: their options, operands and kinds of effect.

A program that is not here, or one called with an option its `Spec` does not name, is compared word by word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Options = list[list[str]]


@dataclass(frozen=True, slots=True)
class Spec:
    """How one program reads its words."""

    flags: str = ""  # short options without a value; `-rf` is `-r -f`
    valued: str = ""  # short options with a value; `-n5` is `-n 5`
    suffixed: str = ""  # short options whose value must be attached: sed's `-i.bak`
    long: Mapping[str, str] = field(default_factory=dict)  # long option -> its short letter, or its own name
    long_valued: Mapping[str, str] = field(default_factory=dict)
    rivals: tuple[frozenset[str], ...] = ()  # options of which the later wins: their order is kept
    operands: str = "paths"  # paths, pattern (then paths), script (then words), nodes, revisions (then paths) or words
    folders: bool = False  # a slash behind an operand changes nothing
    patternless: frozenset[str] = frozenset()  # options that give the pattern, so that every operand is a path
    permutes: bool = False  # options may follow operands on every system
    unordered: bool = False  # the operands are a set
    synonyms: Mapping[str, str] = field(default_factory=dict)  # short option -> the one it means
    number: str = ""  # the option that `-5` means
    single: bool = False  # Go's style: long options have one dash, and there are no clusters
    defaults: Mapping[str, str] = field(default_factory=dict)
    passes_on: bool = False  # the words behind `--` go to another program


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
    return [one for group in groups for one in group] + rest


def in_order(options: Options, spec: Spec) -> Options:
    """Sort options whose order does not matter, and drop those that repeat the default."""
    names = [option[0] for option in options]
    if len(set(names)) < len(names) or any(len(rivals.intersection(names)) > 1 for rivals in spec.rivals):
        return options
    return sorted(option for option in options if option[1:] != [spec.defaults.get(option[0])])


def _long(word: str, spec: Spec) -> tuple[Options, bool] | None:
    name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
    if name in spec.long_valued:
        return ([[spec.long_valued[name], value]], False) if equals else ([[spec.long_valued[name]]], True)
    if name in spec.long and not equals:
        return [[spec.long[name]]], False
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
    return {name: short or name for name, _, short in (pair.partition(":") for pair in pairs.split())}


_GREP = Spec(
    flags="EFGPivwxcLlqsohHnTaIrRU",
    valued="efmABCD",
    number="C",
    long=_map(
        "extended-regexp:E fixed-strings:F basic-regexp:G perl-regexp:P ignore-case:i invert-match:v word-regexp:w "
        "line-regexp:x count:c files-without-match:L files-with-matches:l quiet:q silent:q no-messages:s "
        "only-matching:o no-filename:h with-filename:H line-number:n text:a recursive:r dereference-recursive:R"
    ),
    long_valued=_map(
        "regexp:e file:f max-count:m after-context:A before-context:B context:C include exclude exclude-dir"
    ),
    rivals=_sets("E F G P", "h H", "l L c q o", "r R D", "A B C", "include exclude exclude-dir", "a I U"),
    operands="pattern",
    patternless=frozenset("ef"),
    permutes=True,
    unordered=True,
    folders=True,
)
_RG = Spec(
    flags="iSsnNvwxlcoFPUzaHIu.0pq",
    valued="efABCmgtTdjM",
    long=_map(
        "ignore-case:i smart-case:S case-sensitive:s line-number:n no-line-number:N invert-match:v word-regexp:w "
        "files-with-matches:l count:c only-matching:o fixed-strings:F pcre2:P multiline:U hidden:. no-ignore files "
        "no-heading with-filename:H no-filename:I quiet:q"
    ),
    long_valued=_map(
        "regexp:e file:f after-context:A before-context:B context:C max-count:m glob:g type:t type-not:T max-depth:d"
    ),
    rivals=_sets("i S s", "n N p", "l c o q files", "A B C", "H I", "t T g", "u . no-ignore", "F P"),
    operands="pattern",
    patternless=frozenset(["e", "f", "files"]),
    permutes=True,
    unordered=True,
    folders=True,
)
_PYTEST = Spec(
    flags="xqvsl",
    valued="kmpcnorW",
    long=_map("exitfirst:x quiet:q verbose:v showlocals:l last-failed failed-first no-header collect-only"),
    long_valued=_map("tb maxfail durations timeout ignore deselect rootdir cov cov-report"),
    rivals=_sets("x maxfail", "q v", "last-failed failed-first", "ignore deselect"),
    operands="nodes",
    permutes=True,
    folders=True,
)
_HEAD = Spec(
    flags="qv",
    valued="nc",
    number="n",
    long=_map("quiet:q silent:q verbose:v"),
    long_valued=_map("lines:n bytes:c"),
    rivals=_sets("n c", "q v"),
    defaults={"n": "10"},
)
_CP = Spec(
    flags="rRafpvniuLPHd",
    long=_map("recursive:r archive:a force:f verbose:v no-clobber:n interactive:i update:u"),
    rivals=_sets("f n i", "L P H d a", "a p"),
    synonyms={"R": "r"},
)
_PYTHON = Spec(flags="uBEsSIOvq", valued="WX", operands="script")
_COMMIT = Spec(
    flags="aqvsen",
    valued="mCcFt",
    long=_map("all:a quiet:q verbose:v signoff:s amend no-edit no-verify:n allow-empty"),
    long_valued=_map("message:m file:F author date"),
    rivals=_sets("e no-edit", "m F C c t", "q v"),
)
_DIFF = Spec(
    flags="pswb",
    valued="U",
    long=_map(
        "stat shortstat numstat name-only name-status cached staged:cached patch:p no-patch:s color no-color oneline "
        "ignore-all-space:w ignore-space-change:b word-diff check summary"
    ),
    long_valued=_map("unified:U diff-filter format"),
    rivals=_sets("p s stat shortstat numstat name-only name-status", "color no-color", "oneline format", "w b"),
    operands="revisions",
    permutes=True,
)

_CARGO = Spec(
    passes_on=True,
    flags="rqv",
    valued="pjF",
    long=_map("release:r quiet:q verbose:v workspace all-features no-default-features lib bins tests all-targets"),
    long_valued=_map("package:p jobs:j features:F test bin example target manifest-path"),
    rivals=_sets("q v"),
    operands="words",
    permutes=True,
)
_TSC = Spec(
    flags="w",
    valued="p",
    long=_map("noEmit strict watch:w skipLibCheck"),
    long_valued=_map("project:p target outDir"),
    permutes=True,
)
_PIP = Spec(
    flags="qvU",
    valued="rec",
    long=_map("quiet:q verbose:v upgrade:U no-cache-dir no-deps pre user force-reinstall break-system-packages"),
    long_valued=_map("requirement:r editable:e constraint:c index-url extra-index-url target"),
    rivals=_sets("q v"),
    operands="words",
    permutes=True,
)

SPECS: Mapping[str, Spec] = {
    "cat": Spec(flags="nbsAeEtTv", rivals=_sets("n b")),
    "head": _HEAD,
    "tail": Spec(
        flags="qvfF",
        valued="nc",
        number="n",
        long=_map("quiet:q verbose:v follow:f"),
        long_valued=_map("lines:n bytes:c"),
        rivals=_sets("n c", "q v", "f F"),
        defaults={"n": "10"},
    ),
    "wc": Spec(flags="lwcmL", long=_map("lines:l words:w bytes:c chars:m")),
    "ls": Spec(
        flags="aAlhtrSR1dFipnGgos",
        long=_map("all:a almost-all:A human-readable:h reverse:r recursive:R directory:d"),
        rivals=_sets("a A", "l 1 n g o G", "t S", "F p"),
        folders=True,
    ),
    "rm": Spec(
        flags="rRfivdI",
        long=_map("recursive:r force:f verbose:v dir:d"),
        rivals=_sets("f i I"),
        synonyms={"R": "r"},
        unordered=True,
    ),
    "cp": _CP,
    "mv": Spec(
        flags="fnivu",
        long=_map("force:f no-clobber:n interactive:i verbose:v update:u"),
        rivals=_sets("f n i"),
    ),
    "mkdir": Spec(
        flags="pv",
        valued="m",
        long=_map("parents:p verbose:v"),
        long_valued=_map("mode:m"),
        folders=True,
        unordered=True,
    ),
    "rmdir": Spec(flags="pv", long=_map("parents:p verbose:v"), folders=True),
    "touch": Spec(flags="acm", long=_map("no-create:c"), unordered=True),
    "chmod": Spec(
        flags="Rvcf",
        long=_map("recursive:R verbose:v changes:c quiet:f silent:f"),
        operands="pattern",
        unordered=True,
        folders=True,
    ),
    "chown": Spec(
        flags="Rvcfh",
        long=_map("recursive:R verbose:v changes:c no-dereference:h"),
        operands="pattern",
        unordered=True,
        folders=True,
    ),
    "ln": Spec(flags="sfnvr", long=_map("symbolic:s force:f no-dereference:n verbose:v relative:r")),
    "scp": Spec(flags="rpqCv", valued="Pi", operands="words"),
    "rsync": Spec(
        flags="avzrnhPu",
        valued="e",
        long=_map("archive:a verbose:v compress:z recursive:r dry-run:n human-readable:h update:u delete progress"),
        long_valued=_map("rsh:e"),
        rivals=_sets("a r"),
        operands="words",
        permutes=True,
    ),
    "tar": Spec(
        flags="xctzjJvkpru",
        valued="fC",
        long=_map(
            "extract:x get:x create:c list:t gzip:z bzip2:j xz:J verbose:v keep-old-files:k preserve-permissions:p "
            "append:r update:u"
        ),
        long_valued=_map("file:f directory:C exclude strip-components"),
        operands="words",
        permutes=True,
    ),
    "jq": Spec(
        flags="rcnseSMCj",
        valued="f",
        long=_map("raw-output:r compact-output:c null-input:n slurp:s exit-status:e sort-keys:S join-output:j"),
        rivals=_sets("M C", "r j"),
        operands="pattern",
        patternless=frozenset("f"),
        permutes=True,
    ),
    "tee": Spec(flags="ai", long=_map("append:a")),
    "stat": Spec(valued="c", long_valued=_map("format:c")),
    "file": Spec(flags="bi", long=_map("brief:b mime:i")),
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": _RG,
    "sed": Spec(
        flags="nErsuz",
        valued="ef",
        suffixed="i",
        long=_map("quiet:n silent:n regexp-extended:E"),
        long_valued=_map("expression:e file:f"),
        rivals=_sets("e f", "i s"),
        operands="pattern",
        patternless=frozenset("ef"),
    ),
    "pytest": _PYTEST,
    "python": _PYTHON,
    "python3": _PYTHON,
    "node": Spec(operands="script"),
    "python -m pytest": _PYTEST,
    "python3 -m pytest": _PYTEST,
    "bash": Spec(flags="xe", operands="script"),
    "sh": Spec(flags="xe", operands="script"),
    "pip install": _PIP,
    "pip3 install": _PIP,
    "curl": Spec(
        flags="sSfLkIiv",
        valued="XHdomAu",
        long=_map("silent:s show-error:S fail:f location:L insecure:k head:I include:i verbose:v"),
        long_valued=_map("request:X header:H data:d output:o max-time:m user-agent:A user:u"),
        rivals=_sets("X d I", "I i", "s v"),
        operands="words",
        permutes=True,
        defaults={"X": "GET"},
    ),
    "docker compose up": Spec(
        flags="d",
        long=_map("detach:d build no-build force-recreate wait quiet-pull remove-orphans no-deps"),
        rivals=_sets("build no-build"),
        operands="words",
        permutes=True,
    ),
    "make": Spec(
        flags="knBsiw",
        valued="jCfl",
        long=_map("keep-going:k dry-run:n always-make:B silent:s quiet:s ignore-errors:i"),
        long_valued=_map("jobs:j directory:C file:f"),
        operands="words",
        permutes=True,
    ),
    "git restore": Spec(
        flags="SWqp",
        valued="s",
        long=_map("staged:S worktree:W quiet:q patch:p"),
        long_valued=_map("source:s"),
        unordered=True,
        folders=True,
    ),
    "git branch": Spec(
        flags="avrdDmf",
        long=_map("all:a verbose:v remotes:r delete:d force:f list show-current"),
        rivals=_sets("a r", "d D"),
        operands="words",
    ),
    "sort": Spec(
        flags="unrhVfbgMRcs",
        valued="kto",
        long=_map("unique:u reverse:r numeric-sort:n human-numeric-sort:h version-sort:V ignore-case:f stable:s"),
        long_valued=_map("key:k field-separator:t output:o"),
    ),
    "diff": Spec(
        flags="uqrNbBwsy",
        valued="U",
        long=_map("unified:u brief:q recursive:r new-file:N ignore-space-change:b ignore-all-space:w"),
        rivals=_sets("u U y q", "b w"),
    ),
    "python -m venv": Spec(long=_map("clear system-site-packages upgrade without-pip"), folders=True),
    "python3 -m venv": Spec(long=_map("clear system-site-packages upgrade without-pip"), folders=True),
    "git add": Spec(
        flags="Aunvfp",
        long=_map("all:A update:u dry-run:n verbose:v force:f patch:p"),
        rivals=_sets("A u"),
        unordered=True,
        folders=True,
    ),
    "git rm": Spec(
        flags="frnq", long=_map("force:f dry-run:n quiet:q cached"), unordered=True, folders=True, permutes=True
    ),
    "git stash push": Spec(
        flags="ukSpqa",
        valued="m",
        long=_map("include-untracked:u keep-index:k staged:S patch:p quiet:q all:a"),
        long_valued=_map("message:m"),
        rivals=_sets("u a"),
        unordered=True,
        folders=True,
    ),
    "npm install": Spec(
        flags="DEPOgf",
        long=_map(
            "save-dev:D save-exact:E save-prod:P save-optional:O global:g force:f legacy-peer-deps no-save no-audit "
            "no-fund silent ignore-scripts"
        ),
        rivals=_sets("D P O no-save"),
        operands="words",
        permutes=True,
    ),
    "go test": Spec(
        single=True,
        long=_map("v race short cover failfast json"),
        long_valued=_map("run count timeout bench tags cpu parallel coverprofile"),
        operands="words",
        permutes=True,
    ),
    "cargo test": _CARGO,
    "cargo build": _CARGO,
    "cargo check": _CARGO,
    "cargo clippy": _CARGO,
    "ruff check": Spec(
        flags="qvn",
        long=_map("fix unsafe-fixes diff quiet:q verbose:v no-cache:n no-fix statistics"),
        long_valued=_map("select ignore extend-select config output-format target-version line-length"),
        rivals=_sets("fix no-fix", "q v"),
        permutes=True,
        unordered=True,
        folders=True,
    ),
    "ruff format": Spec(
        flags="qvn",
        long=_map("check diff quiet:q verbose:v no-cache:n"),
        long_valued=_map("config line-length target-version"),
        rivals=_sets("q v"),
        permutes=True,
        unordered=True,
        folders=True,
    ),
    "npx tsc": _TSC,
    "tsc": _TSC,
    "git diff": _DIFF,
    "git show": _DIFF,
    "git commit": _COMMIT,
    "git status": Spec(flags="sbz", long=_map("short:s branch:b")),
    "git log": Spec(
        flags="p",
        valued="n",
        number="n",
        long=_map("oneline all stat patch:p graph decorate reverse no-merges"),
        long_valued=_map("max-count:n author grep since until format"),
        rivals=_sets("oneline format", "p stat"),
        operands="revisions",
        permutes=True,
    ),
}
"""Spec by program, or by program and subcommand."""

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

JOINED = frozenset(("git add", "git rm", "touch"))
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
