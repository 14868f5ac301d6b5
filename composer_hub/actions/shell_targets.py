"""The loose form of a shell command, as far as level L3 looks: its program calls -> a kind of tool and its targets.

In: the calls that `shell_form` found, each with its files and options. Out: a kind of file tool and its
targets if the command does only what that tool would do, else the programs with their files; and whether any
file may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from composer_hub.actions import programs
from composer_hub.actions.paths import without_slash
from composer_hub.actions.tree import Word


@dataclass(slots=True)
class Act:
    """One program call, as far as level L3 looks."""

    program: str
    paths: list[str] = field(default_factory=list)
    options: frozenset[str] = frozenset()
    piped: bool = False  # it reads from a pipe
    written: list[str] = field(default_factory=list)  # by redirection
    appends: bool = False
    reads_file: bool = False  # by redirection


def reads_here(name: str, num_operands: int, act: Act) -> bool:
    """Return whether a program that names no folder reads the current one."""
    if name in programs.LISTERS:
        return not num_operands
    if name in programs.SEARCHERS and not act.piped and not act.reads_file:
        searches_folders = name == "rg" or act.options & {"r", "R"}
        return bool(searches_folders) and num_operands == (0 if act.options & {"e", "f", "files"} else 1)
    return False


def program_text(name: str, words: Sequence[Word], run: Any) -> str:
    """Return a program as level L3 names it: its path, or its name with the subcommand (`npm run test`)."""
    if name not in programs.SUBCOMMANDS:
        return path_text(run) or name
    plain = [text for word in words[1:] if (text := word.literal) and text[0] != "-" and not text.isdecimal()]
    # `npm run test` and `npm run build` are two programs.
    return " ".join([name, *plain[: 2 if plain[:1] == ["run"] else 1]])


def path_text(value: Any) -> str:
    """Return the path of a form that is one, else ""."""
    if isinstance(value, dict):
        return without_slash(str(value.get("path") or value.get("rel") or ""))
    if isinstance(value, list) and value and value[0][0] == "path":
        return "".join([str(value[0][1]), "/", *(str(part[1]) for part in value[1:])])
    return ""


def nested(paths: Iterable[Any]) -> bool:
    """Return whether a path is inside another one, so that a program may need them in this order."""
    texts = [path_text(path) for path in paths]
    return any(text and one.startswith(text + "/") for text in texts for one in texts)


def names_of(paths: Iterable[str]) -> list[str]:
    """Return the last part of each path, in order."""
    return [path.rstrip("/").rpartition("/")[2] for path in paths]


def written(redirects: Iterable[Any]) -> list[str]:
    """Return the paths that redirects write to, in order and without /dev/null."""
    paths = [path_text(target) for _, op, target, *_ in redirects if ">" in op]
    return [path for path in paths if path and path != "/dev/null"]


def kind_and_targets(acts: Sequence[Act]) -> tuple[str, tuple[Any, ...]]:
    """Return the kind and targets of the whole command: those of a file tool, or its programs with their files."""
    about = [act for act in acts if act.written or not _is_aside(act)] or list(acts)
    if len(about) == 1 and (kind := _file_act(about[0])):
        return kind[0], tuple(sorted(set(kind[1])))
    return "shell", tuple(sorted({(act.program, *sorted({*act.paths, *act.written})) for act in about}))


def _is_aside(act: Act) -> bool:
    return act.program in programs.SILENT or (act.piped and act.program in programs.FILTERS and not act.paths)


def _file_act(act: Act) -> tuple[str, list[str]] | None:
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
    if act.program in programs.FINDERS and is_safe(act):
        return "glob", act.paths or ["."]
    return None


def is_safe(act: Act) -> bool:
    """Return whether a call leaves every file as it was."""
    if act.written or (act.program and act.program not in programs.READ_ONLY):
        return False
    if act.program == "find":
        return not act.options & {"-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprintf", "-fls"}
    # Without a known option list, `sed` may write.
    return act.program != "sed" or not any(option.startswith(("i", "-i", "--in-place")) for option in act.options)
