"""The normal form of a shell command: text and working directory -> a JSON value for its effect.

Two texts have the same form if they differ only in quoting, spacing, option clusters, the order of independent options,
the spelling of file operands, or a `cd` to the current directory. A text that is not read with certainty is its form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from composer_hub.actions import programs, spellings
from composer_hub.actions.paths import enter, is_windows, normal_path, tidy, without_slash
from composer_hub.actions.shell import Unparsable, parse
from composer_hub.actions.tree import Command, Compound, Group, Item, Part, Pipeline, Redirect, Simple, Word

_DEFAULT_FD = {">": "1", ">>": "1", ">|": "1", ">&": "1", "<": "0", "<<": "0", "<<<": "0", "<>": "0", "<&": "0"}
_MOVES = re.compile(r"\b(cd|pushd|popd|chdir)\b")
_ANY_SHELL = re.compile(r"[\w\s./:=@,+&|;<>\"-]*")
_OPTION = re.compile(r"--[a-z][a-z-]*=")
_PLAIN_FILE = re.compile(r"(?!.*\.\.)[^:~^@]*(?:\.[A-Za-z]\w*|[^/]/)")
_ERRORS_TOO = Redirect("2", ">&", Word((Part("lit", "1"),)))
_UNSPLIT = frozenset(("var", "sub", "raw"))


@dataclass(frozen=True, slots=True)
class ShellForm:
    value: Any  # equal values do the same
    kind: str  # shell; or read, search, … if the command does only that
    targets: tuple[Any, ...]  # the files, or the programs with their files
    moves: bool  # it may change the directory of the shell
    read_only: bool  # no file can have changed


@dataclass(slots=True)
class _Act:
    """One program call, as far as level L3 looks."""

    program: str
    paths: list[str] = field(default_factory=list)
    options: frozenset[str] = frozenset()
    piped: bool = False  # it reads from a pipe
    written: list[str] = field(default_factory=list)  # by redirection
    appends: bool = False
    reads_file: bool = False  # by redirection


def shell_form(text: str, *, base: str = "", cwd: str = "", keeps_cwd: bool = True) -> ShellForm:
    """Return the normal form of a command run in `cwd`; `keeps_cwd`: the next command starts in its last directory."""
    try:
        items = _items(text, base)
    except Unparsable:
        words = text.split(maxsplit=1)
        return ShellForm({"text": text}, "shell", tuple(words[:1]), bool(_MOVES.search(text)), read_only=False)
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
            act.paths, act.written = _names_of(act.paths), _names_of(act.written)
            act.program = act.program.rpartition("/")[2]
    kind, targets = _kind_and_targets(former.acts)
    return ShellForm(form, kind, targets, after != start, all(map(_is_safe, former.acts)))


def _items(text: str, base: str) -> tuple[Item, ...]:
    if is_windows(base) and not _ANY_SHELL.fullmatch(text):
        raise Unparsable("On Windows the shell may be another one, which reads backslashes and quotes otherwise.")
    return parse(text)


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
        self.acts: list[_Act] = []

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
            if before == "&&" and "||" not in values and values and (both := self._both(values[-1], value)):
                values[-1] = both
            else:
                values += [before, value] if values else [value]
        return (values[0] if len(values) == 1 else {"chain": values}), here

    def _both(self, first: Any, second: Any) -> Any:
        """Return `git add a b` for `git add a && git add b`, and the like, else None."""
        calls = (first, second)
        if not all(isinstance(one, dict) and one.keys() == {"run", "opts", "args"} and one["args"] for one in calls):
            return None
        if first["run"] not in programs.JOINED or first["run"] != second["run"] or first["opts"] != second["opts"]:
            return None
        last = self.acts.pop()
        self.acts[-1].paths += last.paths
        return {**first, "args": sorted([*first["args"], *second["args"]], key=repr)}

    def _stays(self, pipeline: Pipeline, cwd: str) -> bool:
        """Return whether this is a `cd` to the current directory."""
        target = _cd_target(pipeline)
        return bool(target and cwd) and enter(target, base=self.base, cwd=cwd) == enter(".", base=self.base, cwd=cwd)

    def _pipeline(self, pipeline: Pipeline, cwd: str) -> tuple[Any, str]:
        values: list[Any] = []
        after = cwd
        pipeline = spellings.plain_pipeline(pipeline)
        for number, command in enumerate(pipeline.commands):
            if pipeline.pipes[number : number + 1] == ("|&",):
                command = _with_errors(command)
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
            self.acts.append(_Act("(", written=_written(form["to"])))
        return form, cwd if isinstance(command, Group) and command.subshell else after

    def _compound(self, command: Compound, cwd: str) -> tuple[dict[str, Any], str]:
        """Return the form of a loop or an `if`; which bodies run, and how often, is not known."""
        before = len(self.acts)
        form, after = self._bodies(command, cwd)
        if after != cwd:
            # A second turn begins where the first one ended.
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
            if all(isinstance(one, str) for one in form["env"]) and len({*map(_name_set, form["env"])}) == len(
                form["env"]
            ):
                form["env"].sort()
        if command.redirects:
            form["to"] = self._redirects(command.redirects, cwd)
        act = _Act(
            "",
            piped=piped,
            written=_written(form.get("to", ())),
            appends=any(one.op in (">>", "&>>") for one in command.redirects),
            reads_file=any(one.op.startswith("<") for one in command.redirects),
        )
        after = cwd
        if command.words:
            self._call(command.words, cwd, form, act)
            after = self._moved(command, cwd)
        self.acts.append(act)
        return form, after

    def _moved(self, command: Simple, cwd: str) -> str:
        if command.words[0].literal not in programs.MOVERS:
            return cwd
        target = _cd_target(Pipeline(False, (Simple((), command.words, ()),), ()))
        return enter(target, base=self.base, cwd=cwd) if target else ""

    def _call(self, words: Sequence[Word], cwd: str, form: dict[str, Any], act: _Act) -> None:
        """Fill in the program, its options and its operands."""
        words, place = self._at_its_place([_unexpanded(word) for word in words], cwd)
        if place != cwd:
            form["in"] = normal_path(place, base=self.base)
            cwd = place
        name, rest = _program(words)
        spec = programs.SPECS.get(name)
        read = programs.read_options([word.literal for word in rest], spec) if spec else None
        if spec and read:
            options, operands = read
            form["run"] = name
            form["opts"] = programs.in_order(options, spec)
            form["args"] = self._operands([rest[at] for at in operands], spec, {one[0] for one in options}, cwd)
            act.options = frozenset(one[0] for one in options)
            act.paths = [text for arg in form["args"] if (text := _path_text(arg))]
            if spec.operands == "revisions":
                act.paths += [arg for arg in form["args"] if isinstance(arg, str)]  # some may be files
            if _reads_here(name, len(operands), act):
                form["args"].append(self._path_of(".", cwd))
        else:
            form["run"] = self._path(words[0], cwd) if "/" in (words[0].literal or "") else self._word(words[0], cwd)
            form["args"] = self._find(words[1:], cwd) if name == "find" else self._plain(name, words[1:], cwd)
            act.paths = [text for arg in form["args"] if (text := _path_text(arg))]
            act.options = frozenset(word.literal for word in words[1:] if word.literal)
        act.program = _program_text(name, words, form["run"])
        if inner := _wrapped(words):
            self._call(inner, cwd, {}, act)

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
        order = programs.find_in_order(literals[start:])
        return [*folders, *(self._word(words[start + at], cwd) for at in order)]

    def _operands(self, words: Sequence[Word], spec: programs.Spec, names: set[str], cwd: str) -> list[Any]:
        plain = [self._word(word, cwd) for word in words]
        if spec.operands == "words" or any(part.kind in _UNSPLIT for word in words for part in word.parts):
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
        if spec.operands == "pattern" and not names & spec.patternless:
            if plain and not isinstance(plain[0], str) and any(part.kind == "glob" for part in words[0].parts):
                return plain
            if plain[:1] == [""]:
                return plain  # BSD's `sed -i '' SCRIPT`: the script is not the first operand.
            first, paths = plain[:1], paths[1:]
        else:
            first = []
        return [*first, *(sorted(paths, key=repr) if spec.unordered and not _nested(paths) else paths)]

    def _revisions(self, words: Sequence[Word], cwd: str) -> list[Any]:
        """Return revisions as words and files as paths; git allows both without `--` if a name is plainly one."""
        literals = [word.literal for word in words]
        start = literals.index("--") if "--" in literals else len(words)
        while start and _PLAIN_FILE.fullmatch(literals[start - 1] or ""):
            start -= 1
        paths = [self._path(word, cwd, folder=True) for word in words[start:] if word.literal != "--"]
        return [*(self._word(word, cwd) for word in words[:start]), *sorted(paths, key=repr)]

    def _at_its_place(self, words: list[Word], cwd: str) -> tuple[list[Word], str]:
        """Drop the options of git that come before its command and `run` of a package manager; return the directory."""
        literals = [word.literal for word in words]
        if programs.without_run(literals):
            return [words[0], *words[2:]], cwd
        while literals[0] == "git" and len(words) > 2:
            # No pager waits for a key where nobody looks at a terminal.
            if literals[1] in ("--no-pager", "-P"):
                words = [words[0], *words[2:]]
            elif literals[1] == "-c" and (literals[2] or "").startswith("core.pager="):
                words = [words[0], *words[3:]]
            elif literals[1] == "-C" and literals[2] and enter(literals[2], base=self.base, cwd=cwd):
                cwd = self._same_place(enter(literals[2], base=self.base, cwd=cwd), cwd)
                words = [words[0], *words[3:]]
            else:
                break
            literals = [word.literal for word in words]
        return spellings.plain_words(words), cwd

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
        """Return the form of a word that names a file; to a program for folders, a slash behind it means nothing."""
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
        split = [part for redirect in redirects for part in _of_both_streams(redirect)]
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


def _unexpanded(word: Word) -> Word:
    """Return a word such as `--include=*.py`, which no file matches, as its text."""
    first, *rest = word.parts or (Part("null", ""),)
    is_option = first.kind == "lit" and _OPTION.match(str(first.value))
    if not is_option or any(part.kind not in ("lit", "glob") for part in rest):
        return word
    return word._replace(parts=(Part("lit", "".join(str(part.value) for part in word.parts)),))


def _name_set(assignment: str) -> str:
    return assignment.partition("=")[0].removesuffix("+")


def _of_both_streams(redirect: Redirect) -> tuple[Redirect, ...]:
    """Split `&> x` into `> x 2>&1`."""
    target = redirect.target.literal or ""
    if redirect.op in ("&>", "&>>"):
        op = redirect.op[1:]
    elif redirect.op == ">&" and redirect.fd in ("", "1") and target and not target.isdecimal() and target != "-":
        op = ">"
    else:
        return (redirect,)
    return Redirect("", op, redirect.target), _ERRORS_TOO


def _with_errors(command: Command) -> Command:
    """Return the command before a `|&`, which is `2>&1 |`."""
    return replace(command, redirects=(*command.redirects, _ERRORS_TOO))


def _reads_here(name: str, num_operands: int, act: _Act) -> bool:
    """Return whether a program that names no folder reads the current one."""
    if name in programs.LISTERS:
        return not num_operands
    if name in programs.SEARCHERS and not act.piped and not act.reads_file:
        searches_folders = name == "rg" or act.options & {"r", "R"}
        return bool(searches_folders) and num_operands == (0 if act.options & {"e", "f", "files"} else 1)
    return False


# ------------------------------------------------------------------------------------------------------- level L3


def _program(words: Sequence[Word]) -> tuple[str, Sequence[Word]]:
    """Return the name of a program, with its subcommand if `SPECS` has it, and the words after it."""
    texts = [word.literal or "" for word in words[:3]]
    for count in (3, 2):
        if len(texts) >= count and " ".join(texts[:count]) in programs.SPECS and all(texts[:count]):
            return " ".join(texts[:count]), words[count:]
    return texts[0], words[1:]


def _wrapped(words: Sequence[Word]) -> Sequence[Word]:
    """Return the call inside `timeout 60 …`, `sudo …` and the like, else nothing."""
    if words[0].literal not in programs.WRAPPERS:
        return ()
    own = re.compile(r"-|\d|\w+=|$")
    return next((words[at:] for at, word in enumerate(words) if at and not own.match(word.literal or "")), ())


def _program_text(name: str, words: Sequence[Word], run: Any) -> str:
    if name not in programs.SUBCOMMANDS:
        return _path_text(run) or name
    plain = [text for word in words[1:] if (text := word.literal) and text[0] != "-" and not text.isdecimal()]
    # `npm run test` and `npm run build` are two programs.
    return " ".join([name, *plain[: 2 if plain[:1] == ["run"] else 1]])


def _path_text(value: Any) -> str:
    """Return the path of a form that is one, else ""."""
    if isinstance(value, dict):
        return without_slash(str(value.get("path") or value.get("rel") or ""))
    if isinstance(value, list) and value and value[0][0] == "path":
        return "".join([str(value[0][1]), "/", *(str(part[1]) for part in value[1:])])
    return ""


def _nested(paths: Iterable[Any]) -> bool:
    """Return whether a path lies in another one, so that a program may need them in this order."""
    texts = [_path_text(path) for path in paths]
    return any(text and one.startswith(text + "/") for text in texts for one in texts)


def _names_of(paths: Iterable[str]) -> list[str]:
    return [path.rstrip("/").rpartition("/")[2] for path in paths]


def _written(redirects: Iterable[Any]) -> list[str]:
    paths = [_path_text(target) for _, op, target, *_ in redirects if ">" in op]
    return [path for path in paths if path and path != "/dev/null"]


def _kind_and_targets(acts: Sequence[_Act]) -> tuple[str, tuple[Any, ...]]:
    """Return the kind and targets of the whole command: those of a file tool, or its programs with their files."""
    about = [act for act in acts if act.written or not _is_aside(act)] or list(acts)
    if len(about) == 1 and (kind := _file_act(about[0])):
        return kind[0], tuple(sorted(set(kind[1])))
    return "shell", tuple(sorted({(act.program, *sorted({*act.paths, *act.written})) for act in about}))


def _is_aside(act: _Act) -> bool:
    return act.program in programs.SILENT or (act.piped and act.program in programs.FILTERS and not act.paths)


def _file_act(act: _Act) -> tuple[str, list[str]] | None:
    """Return the kind of file tool that a program call equals, with its files; None if there is none."""
    if act.written:
        plain = act.program in programs.WRITERS and not act.paths
        return ("edit" if act.appends else "write", act.written) if plain else None
    if act.program == "sed" and act.paths:
        return ("edit" if "i" in act.options else "read", act.paths)
    if act.program in programs.READERS and act.paths:
        return "read", act.paths
    if act.program in programs.SEARCHERS:
        return "search", act.paths or ["."]
    if act.program in programs.LISTERS:
        return "list", act.paths or ["."]
    if act.program in programs.FINDERS and _is_safe(act):
        return "glob", act.paths or ["."]
    return None


def _is_safe(act: _Act) -> bool:
    """Return whether a call leaves every file as it was."""
    if act.written or (act.program and act.program not in programs.READ_ONLY):
        return False
    if act.program == "find":
        return not act.options & {"-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprintf", "-fls"}
    # Without a known option list, `sed` may write.
    return act.program != "sed" or not any(option.startswith(("i", "-i", "--in-place")) for option in act.options)
