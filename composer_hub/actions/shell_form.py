"""The normal form of a shell command: text and working directory -> a JSON value for its effect.

Two texts have the same form if they differ only in quoting, spacing, option clusters, the order of independent options,
the spelling of file operands, or a `cd` to the current directory. A text that is not read with certainty is its form.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from composer_hub.actions import programs
from composer_hub.actions.paths import enter, is_windows, normal_path, tidy, without_slash
from composer_hub.actions.shell import Unparsable, parse_shell
from composer_hub.actions.shell_targets import (
    Act,
    is_safe,
    kind_and_targets,
    names_of,
    nested,
    path_text,
    program_text,
    reads_here,
    written,
)
from composer_hub.actions.shell_words import (
    name_set,
    of_both_streams,
    program,
    renamed,
    seconds,
    spec_of,
    unexpanded,
    with_errors,
    without_pwd,
    wrapped,
)
from composer_hub.actions.tree import Command, Compound, Group, Item, Part, Pipeline, Redirect, Simple, Word

_DEFAULT_FD = {">": "1", ">>": "1", ">|": "1", ">&": "1", "<": "0", "<<": "0", "<<<": "0", "<>": "0", "<&": "0"}
_MOVES = re.compile(r"\b(cd|pushd|popd|chdir)\b")
_ANY_SHELL = re.compile(r"[\w\s./:=@,+&|;<>\"-]*")
_PLAIN_FILE = re.compile(r"(?!.*\.\.)[^:~^@]*(?:\.[A-Za-z]\w*|[^/]/)")
_HAS_SUFFIX = re.compile(r"[^./]\.[A-Za-z]\w{0,4}$")
_IS_FILE = re.compile(r"[^/.][/.]\w")
_UNSPLIT = frozenset(("var", "sub", "raw"))


@dataclass(frozen=True, slots=True)
class ShellForm:
    """The normal form of a command, with its kind of tool, its targets and its possible effects."""

    value: Any  # equal values do the same
    kind: str  # shell; or read, search, … if the command does only that
    targets: tuple[Any, ...]  # the files, or the programs with their files
    moves: bool  # it may change the directory of the shell
    read_only: bool  # no file can have changed


def shell_form(text: str, *, base: str = "", cwd: str = "", keeps_cwd: bool = True) -> ShellForm:
    """Return the normal form of a command run in `cwd`; `keeps_cwd`: the next command starts in its last directory."""
    try:
        items = _items(text, base)
    except Unparsable:
        words = text.split(maxsplit=1)
        place = {"cwd": normal_path(cwd, base=base)} if cwd and cwd != base else {}
        return ShellForm({"text": text, **place}, "shell", tuple(words[:1]), bool(_MOVES.search(text)), read_only=False)
    former = _Former(base)
    start = cwd
    if not keeps_cwd and (inside := _folded(items, base, cwd)):
        items, start = inside
    value, after = former.items(items, start)
    form: dict[str, Any] = {"do": value}
    if start != base:
        form["cwd"] = normal_path(start, base=base) if start else ""
    if not cwd:
        # The directory is unknown, so `src/a.py` may be `/repo/src/a.py`: only the names can differ.
        for act in former.acts:
            act.paths, act.written = names_of(act.paths), names_of(act.written)
            act.program = act.program.rpartition("/")[2]
    kind, targets = kind_and_targets(former.acts)
    return ShellForm(form, kind, targets, after != start, all(map(is_safe, former.acts)))


def _items(text: str, base: str) -> tuple[Item, ...]:
    if is_windows(base) and not _ANY_SHELL.fullmatch(text):
        raise Unparsable("On Windows the shell may be another one, which reads backslashes and quotes otherwise.")
    return parse_shell(text)


def argv_text(argv: Sequence[str]) -> str:
    """Return the shell text of an argument vector: `bash -lc TEXT` is TEXT, anything else its words, quoted."""
    if len(argv) == 3 and argv[0].rsplit("/", 1)[-1] in ("bash", "sh", "zsh") and argv[1] in ("-c", "-lc"):
        return argv[2]
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in argv)


def _folded(items: tuple[Item, ...], base: str, cwd: str) -> tuple[tuple[Item, ...], str] | None:
    """Turn `cd X && rest` into rest, run in X, if every later command depends on the `cd`."""
    if len(items) != 1 or items[0].background or len(items[0].pipelines) < 2 or set(items[0].operators) != {"&&"}:
        return None
    target = _cd_target(items[0].pipelines[0])
    where = enter(target, base=base, cwd=cwd) if target else ""
    if not where:
        return None
    return (Item(items[0].pipelines[1:], items[0].operators[1:]),), where


def _cd_target(pipeline: Pipeline) -> str:
    """Return X of a plain `cd X`, else ""."""
    command = pipeline.commands[0]
    if pipeline.negated or len(pipeline.commands) > 1 or not isinstance(command, Simple):
        return ""
    if command.assignments or command.redirects or len(command.words) != 2 or command.words[0].literal != "cd":
        return ""
    target = command.words[1].literal or ""
    return "" if target.startswith("-") else target


class _Former:
    """Walks the tree, tracks the directory of the shell, and collects which programs act on which files."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.acts: list[Act] = []

    # ------------------------------------------------------------------------------------------- lists and pipes

    def items(self, items: Sequence[Item], cwd: str) -> tuple[Any, str]:
        """Return the form of a list of commands and the directory it ends in, "" if that is not certain."""
        values = []
        for number, item in enumerate(items):
            alone = len(item.pipelines) == 1 and not item.background
            if alone and number + 1 < len(items) and self._stays(item.pipelines[0], cwd):
                continue
            value, after = self._item(item, cwd)
            if item.background:
                values.append({"bg": value})
            elif isinstance(value, dict) and value.keys() == {"group"}:
                values += value["group"] if isinstance(value["group"], list) else [value["group"]]
            else:
                values.append(value)
            if after != cwd and not item.background:
                cwd = ""  # The `cd` may have failed.
        return values[0] if len(values) == 1 else values, cwd

    def _item(self, item: Item, cwd: str) -> tuple[Any, str]:
        values: list[Any] = []
        here, moved = cwd, False
        for pipeline, before, behind in zip(item.pipelines, ("", *item.operators), (*item.operators, ""), strict=True):
            if behind == "&&" and before != "||" and self._stays(pipeline, here):
                continue
            if before == "||" and moved:
                here = ""
            value, after = self._pipeline(pipeline, here)
            moved |= after != here
            here = after
            values += [before, value] if values else [value]
        return (values[0] if len(values) == 1 else {"chain": values}), here

    def _stays(self, pipeline: Pipeline, cwd: str) -> bool:
        """Return whether this is a `cd` to the current directory."""
        target = _cd_target(pipeline)
        return bool(target and cwd) and enter(target, base=self.base, cwd=cwd) == enter(".", base=self.base, cwd=cwd)

    def _pipeline(self, pipeline: Pipeline, cwd: str) -> tuple[Any, str]:
        values: list[Any] = []
        after = cwd
        for number, command in enumerate(pipeline.commands):
            if pipeline.pipes[number : number + 1] == ("|&",):
                command = with_errors(command)
            value, end = self._command(command, cwd, piped=number > 0)
            values += ["|", value] if number else [value]
            if end != cwd:
                after = end if len(pipeline.commands) == 1 and not pipeline.negated else ""
        value = values[0] if len(values) == 1 else {"pipe": values}
        return ({"not": value} if pipeline.negated else value), after

    def _command(self, command: Command, cwd: str, *, piped: bool) -> tuple[Any, str]:
        if isinstance(command, Simple):
            return self._simple(command, cwd, piped)
        if isinstance(command, Compound):
            form, after = self._compound(command, cwd)
        else:
            value, after = self.items(command.body, cwd)
            form = {"sub" if command.subshell else "group": value}
        if command.redirects:
            form["to"] = self._redirects(command.redirects, cwd)
            # Level L3 must see the files that a group writes to.
            self.acts.append(Act("(", written=written(form["to"])))
        return form, cwd if isinstance(command, Group) and command.subshell else after

    def _compound(self, command: Compound, cwd: str) -> tuple[dict[str, Any], str]:
        """Return the form of a loop or an `if`; which bodies run, and how often, is not known."""
        before = len(self.acts)
        form, after = self._bodies(command, cwd)
        if after != cwd:
            # A second iteration begins in the directory that the first one left.
            del self.acts[before:]
            form, after = self._bodies(command, "")
        return form, after

    def _bodies(self, command: Compound, cwd: str) -> tuple[dict[str, Any], str]:
        bodies = [(keyword, *self.items(body, cwd)) for keyword, body in command.bodies]
        form: dict[str, Any] = {"bodies": [[keyword, value] for keyword, value, _ in bodies]}
        if command.words:
            form["for"] = [self._word(word, cwd) for word in command.words]
        return form, cwd if all(after == cwd for *_, after in bodies) else ""

    # ------------------------------------------------------------------------------------------- simple commands

    def _simple(self, command: Simple, cwd: str, piped: bool) -> tuple[Any, str]:
        form: dict[str, Any] = {}
        if command.assignments:
            form["env"] = [self._word(word, cwd) for word in command.assignments]
            if all(isinstance(one, str) for one in form["env"]) and len({*map(name_set, form["env"])}) == len(
                form["env"]
            ):
                form["env"].sort()
        if command.redirects:
            form["to"] = self._redirects(command.redirects, cwd)
        act = Act(
            "",
            piped=piped,
            written=written(form.get("to", ())),
            appends=any(one.op in (">>", "&>>") for one in command.redirects),
            reads_file=any(one.op.startswith("<") for one in command.redirects),
        )
        after = cwd
        if (inner := self._inner_text(command)) is not None:
            return self.items(inner, cwd)[0], cwd
        if command.words:
            self._call(command.words, cwd, form, act)
            after = self._moved(command, cwd)
        self.acts.append(act)
        return form, after

    def _inner_text(self, command: Simple) -> tuple[Item, ...] | None:
        """Return the commands in `bash -c TEXT`, if nothing else is set for it."""
        literals = [word.literal for word in command.words]
        if command.assignments or command.redirects or len(literals) != 3 or literals[0] not in ("bash", "sh"):
            return None
        if literals[1] not in ("-c", "-lc") or not literals[2] or "$" in literals[2]:
            return None
        try:
            return _items(literals[2], self.base)
        except Unparsable:
            return None

    def _moved(self, command: Simple, cwd: str) -> str:
        if command.words[0].literal not in programs.MOVERS:
            return cwd
        target = _cd_target(Pipeline(False, (Simple((), command.words, ()),), ()))
        return enter(target, base=self.base, cwd=cwd) if target else ""

    def _call(self, words: Sequence[Word], cwd: str, form: dict[str, Any], act: Act) -> None:
        """Fill in the program, its options and its operands."""
        words, cwd = self._at_its_place([without_pwd(unexpanded(word), cwd) for word in words], cwd)
        if inner := wrapped(words):
            before = words[: len(words) - len(inner)]
            form["run"], form["args"] = (
                self._word(words[0], cwd),
                [seconds(self._word(word, cwd)) for word in before[1:]],
            )
            self._call(inner, cwd, form.setdefault("call", {}), act)
            return
        name, rest = program(words)
        spec = spec_of(name)
        read = programs.read_options([word.literal for word in rest], spec) if spec else None
        if spec and read:
            self._read_call(name, spec, read, rest, cwd, form, act)
        else:
            form["args"] = self._find(words[1:], cwd) if name == "find" else self._plain(name, words[1:], cwd)
            act.paths = [text for arg in form["args"] if (text := path_text(arg))]
            act.options = frozenset(word.literal for word in words[1:] if word.literal)
        if spec in (None, programs.ANY) or not read:
            form["run"] = self._path(words[0], cwd) if "/" in (words[0].literal or "") else self._word(words[0], cwd)
            if len(rest) < len(words) - 1:
                form["run"] = name if read else form["run"]
        place = normal_path(cwd, base=self.base) if cwd else "."
        if place != "." and name not in programs.PLACELESS:
            form["in"] = place
        act.program = program_text(name, words, form["run"])

    def _read_call(
        self,
        name: str,
        spec: programs.Spec,
        read: tuple[programs.Options, list[int]],
        rest: Sequence[Word],
        cwd: str,
        form: dict[str, Any],
        act: Act,
    ) -> None:
        """Fill in a call whose options are understood."""
        options, operands = read
        form["run"] = name
        if spec.operands != "pattern":
            options = [[one[0], *(self._loose(text, cwd, spec, name) for text in one[1:])] for one in options]
        form["opts"] = programs.in_order(options, spec)
        form["args"] = self._operands([rest[at] for at in operands], spec, {one[0] for one in options}, cwd)
        if name in programs.INTERPRETERS and len(operands) > 1:
            self._tail(rest[operands[0] + 1 :], cwd, form)
        elif spec.operands == "words":
            form["args"] = [self._loose(arg, cwd, spec, name) if isinstance(arg, str) else arg for arg in form["args"]]
        act.options = frozenset(one[0] for one in options)
        act.paths = [text for arg in form["args"] if (text := path_text(arg))]
        if spec.operands == "revisions":
            act.paths += [arg for arg in form["args"] if isinstance(arg, str)]  # some may be files
        if reads_here(name, len(operands), act):
            form["args"].append(self._path_of(".", cwd))

    def _tail(self, words: Sequence[Word], cwd: str, form: dict[str, Any]) -> None:
        """Fill in the words of a script: most scripts read theirs in any order."""
        options, operands = programs.read_options([word.literal for word in words], programs.ANY) or ([], [])
        options = [[one[0], *(self._loose(text, cwd, programs.ANY) for text in one[1:])] for one in options]
        values = [self._word(words[at], cwd) for at in operands]
        form["args"] = [
            form["args"][0],
            *(self._loose(v, cwd, programs.ANY) if isinstance(v, str) else v for v in values),
        ]
        form["rest"] = programs.in_order(options, programs.ANY)

    def _loose(self, text: str, cwd: str, spec: programs.Spec, name: str = "") -> str:
        """Return a word that looks like a path without the spelling of its place."""
        if name.partition(" ")[0] in programs.NAMES_OR_PATHS and not _HAS_SUFFIX.search(text):
            return text
        bare = without_slash(text) if spec.open and "/" in text else text
        if bare.startswith("./") and (_IS_FILE.search(bare) or (spec is not programs.ANY and len(bare) > 2)):
            return tidy(bare)
        if cwd and bare.startswith(f"{cwd.rstrip('/')}/"):
            return tidy(bare[len(cwd.rstrip("/")) + 1 :]) or "."
        return "." if cwd and bare == cwd.rstrip("/") else bare

    def _plain(self, name: str, words: Sequence[Word], cwd: str) -> list[Any]:
        """Return the words of an unknown program; only words that cannot be anything else become paths."""
        values = [self._word(word, cwd) for word in words]
        if name in programs.MOVERS and len(words) == 1 and not (words[0].literal or "-").startswith("-"):
            return [self._path(words[0], cwd, folder=True)]
        return values

    def _find(self, words: Sequence[Word], cwd: str) -> list[Any]:
        """Return the folders that `find` searches, then its expression."""
        literals = [word.literal for word in words]
        is_folder = [text is not None and text[:1] not in ("-", "(", "!") for text in literals]
        start = is_folder.index(False) if False in is_folder else len(words)
        folders = [self._path(word, cwd, folder=True) for word in words[:start]] or [self._path_of(".", cwd)]
        return [*folders, *(self._word(word, cwd) for word in words[start:])]

    def _operands(self, words: Sequence[Word], spec: programs.Spec, names: set[str], cwd: str) -> list[Any]:
        """Return operands as words or paths, in one order if their program takes them in any."""
        plain = [self._word(word, cwd) for word in words]
        if spec.operands == "words":
            return _in_any_order(plain, spec)
        if _have_part(words, _UNSPLIT):
            # An unquoted variable may become any number of words, so the role of each operand is unknown.
            return plain
        if spec.operands == "nodes":
            nodes = [self._node(word, cwd) for word in words]
            # With `-x` the first failure ends the run.
            return nodes if names & {"x", "maxfail"} else sorted(nodes, key=repr)
        if spec.operands == "revisions":
            return self._revisions(words, cwd)
        if spec.operands == "script":
            return [*(self._path(word, cwd) for word in words[:1]), *plain[1:]]
        paths = [self._path(word, cwd, folder=spec.folders) for word in words]
        first: list[Any] = []
        if spec.operands == "pattern" and not names & spec.patternless:
            if _have_part(words[:1], ("glob",)) and not isinstance(plain[0], str):
                return plain
            if plain[:1] == [""]:
                return plain  # BSD's `sed -i '' SCRIPT`: the script is not the first operand.
            first, paths = plain[:1], paths[1:]
        return [*first, *(sorted(paths, key=repr) if spec.unordered and not nested(paths) else paths)]

    def _revisions(self, words: Sequence[Word], cwd: str) -> list[Any]:
        """Return revisions as words and files as paths; git allows both without `--` if a name is plainly one."""
        literals = [word.literal for word in words]
        start = literals.index("--") if "--" in literals else len(words)
        while start and _PLAIN_FILE.fullmatch(literals[start - 1] or ""):
            start -= 1
        paths = []
        for word in words[start:]:
            path = self._path(word, cwd, folder=True)
            if word.literal != "--":
                # A name that may also be a revision is a file only after `--`.
                paths.append(path_text(path) if _PLAIN_FILE.fullmatch(word.literal or "") else path)
        return [*(self._word(word, cwd) for word in words[:start]), *sorted(paths, key=repr)]

    def _at_its_place(self, words: list[Word], cwd: str) -> tuple[list[Word], str]:
        """Drop the options of git that come before its command and `run` of a package manager; return the directory."""
        words, cwd = self._entered(words, cwd)
        literals = [word.literal for word in words]
        while literals[0] == "git" and len(words) > 2:
            # Without a terminal no pager waits for a key, so these options change nothing.
            if literals[1] in ("--no-pager", "-P"):
                words = [words[0], *words[2:]]
            elif literals[1] == "-c" and (literals[2] or "").startswith(("core.pager=", "color.")):
                words = [words[0], *words[3:]]
            else:
                break
            literals = [word.literal for word in words]
        return renamed(words, at_root=bool(cwd) and normal_path(cwd, base=self.base) == "."), cwd

    def _entered(self, words: list[Word], cwd: str) -> tuple[list[Word], str]:
        """Drop the options that make a program work in another directory; return that directory."""
        options = programs.ENTERS.get(words[0].literal or "", ())
        for at, word in enumerate(words):
            name, equals, value = (word.literal or "").partition("=")
            if not at or name not in options or word.literal == "--":
                continue
            if not equals:
                value = (words[at + 1].literal or "") if at + 1 < len(words) else ""
            if value and (place := enter(value, base=self.base, cwd=cwd)):
                rest = [*words[:at], *words[at + (1 if equals else 2) :]]
                return self._entered(rest, self._same_place(place, cwd))
            break
        return words, cwd

    def _same_place(self, place: str, cwd: str) -> str:
        return cwd if cwd and place == enter(".", base=self.base, cwd=cwd) else place

    # ------------------------------------------------------------------------------------------------ words, paths

    def _word(self, word: Word, cwd: str) -> Any:
        if (text := word.literal) is not None:
            return text
        return [self._part(part, cwd) for part in word.parts]

    def _part(self, part: Part, cwd: str) -> list[Any]:
        if isinstance(part.value, str):
            return [part.kind, part.value]
        # A substitution runs in a subshell, and the files it reads are not targets of the command.
        return [part.kind, _Former(self.base).items(part.value, cwd)[0]]

    def _path(self, word: Word, cwd: str, *, folder: bool = False) -> Any:
        """Return the form of a word that names a file; if it is for a folder, a final slash means nothing."""
        if (text := word.literal) is not None:
            return self._path_of(without_slash(text) if folder else text, cwd)
        first = word.parts[0]
        if first.kind != "lit" or "/" not in first.value:
            return self._word(word, cwd)
        parent, _, rest = str(first.value).rpartition("/")
        place = normal_path(parent or "/", base=self.base, cwd=cwd)
        if place is None:
            return self._word(word, cwd)
        tail = (Part("lit", rest), *word.parts[1:]) if rest else word.parts[1:]
        return [["path", place], *(self._part(part, cwd) for part in tail)]

    def _path_of(self, text: str, cwd: str) -> Any:
        if not text or text == "-" or text[0] in "+:" or "://" in text:
            return text
        place = normal_path(text, base=self.base, cwd=cwd)
        return {"rel": tidy(text)} if place is None else {"path": place}

    def _node(self, word: Word, cwd: str) -> Any:
        file, colons, test = (word.literal or "").partition("::")
        if not file or not colons:
            return self._path(word, cwd, folder=True)
        path = self._path_of(file, cwd)
        return {**path, "node": test} if isinstance(path, dict) else path

    def _redirects(self, redirects: Sequence[Redirect], cwd: str) -> list[Any]:
        """Return the redirections in order, `&> x` as `> x 2>&1`; a heredoc, which cannot fail, comes last."""
        split = [part for redirect in redirects for part in of_both_streams(redirect)]
        reads = [one for one in split if (one.fd or _DEFAULT_FD.get(one.op)) == "0" or one.target.literal == "0"]
        if len(reads) == 1 and reads[0].op in ("<<", "<<<"):
            split.sort(key=lambda one: one is reads[0])
        return [self._redirect(one, cwd) for one in split]

    def _redirect(self, redirect: Redirect, cwd: str) -> list[Any]:
        fd = "" if redirect.fd == _DEFAULT_FD.get(redirect.op) else redirect.fd
        if redirect.op == "<<":
            return [fd, "<<", redirect.body, "expands" if redirect.expands else ""]
        target = redirect.target.literal
        if redirect.op == "<<<" or (redirect.op in (">&", "<&") and target and (target.isdecimal() or target == "-")):
            return [fd, redirect.op, self._word(redirect.target, cwd)]
        return [fd, redirect.op, self._path(redirect.target, cwd)]


def _have_part(words: Sequence[Word], kinds: Container[str]) -> bool:
    """Return whether some words have a part of one of these kinds."""
    return any(part.kind in kinds for word in words for part in word.parts)


def _in_any_order(values: list[Any], spec: programs.Spec) -> list[Any]:
    """Return words in one order if their program takes them in any; its subcommand stays first."""
    if not spec.unordered or not all(isinstance(one, str) for one in values):
        return values
    first = 1 if spec.open else 0
    return [*values[:first], *sorted(values[first:])]
