"""Corrections that repeat: causes of many sessions in, lines to copy into AGENTS.md out.

A line states a fact about one project: what is not there, and what worked instead. Most repeated failures are no such
fact, so every filter here drops candidates, and none adds one:

- the cause has a name, and it failed in several sessions that a person started, in different messages;
- nothing under that name worked later, in any session, and it is not on this machine's disk now;
- what worked is close to what failed, most sessions agree on it, and it destroys nothing;
- the project's own guide does not have it yet.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from composer_hub import exits
from composer_hub.named_files import text_of
from composer_hub.report.causes import GUIDES, Cause
from composer_hub.report.facts import SessionFacts
from composer_hub.report.projects import folder_below

MIN_SESSIONS = 2
MIN_SESSIONS_ALONE = 3
"""Sessions for a line that can name no replacement."""
MIN_CHILDREN = 3  # of a folder that is not there, if it was never asked for itself
MAX_QUOTE = 200
MAX_LINES = 7
"""Lines of one project: long guides make agents slower, not better."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One line, with the failures that prove it."""

    project: str  # "" if it is true in several
    line: str  # of Markdown, without the count
    num_failures: int
    num_sessions: int
    last: float
    is_written: bool  # the project's guide has it, and it still fails
    quote: str  # the sentence of the project's guide that is wrong, with its place; "" without one
    proof: tuple[tuple[SessionFacts, Cause], ...]

    @property
    def counted(self) -> str:
        """The line to copy."""
        return f"- {self.line} ({self.num_failures} failures in {self.num_sessions} sessions)."


_OF_MACHINE = ("flag", "wrapper", "field", "program")
"""Kinds of causes that are about the programs of a machine, whatever the project."""
_OF_FOLDER = ("path", "target", "tool", "parameter")
_Key = tuple[str, str, str]
"""The kind, the subject and the name of causes that are one."""
_Proof = tuple[SessionFacts, Cause]
_Groups = dict[_Key, list[_Proof]]
Guide = tuple[str, str]
"""The name of a guide, such as AGENTS.md, and its text."""


def lessons_of(sessions: Sequence[SessionFacts], projects: Mapping[str, str]) -> list[Lesson]:
    """Return all lessons, the most frequent first; `projects` maps a session's folder to its project."""
    # Paths are relative to the folder that a session ran in, which may be below the project's.
    by_folder: dict[tuple[str, str], list[SessionFacts]] = defaultdict(list)
    for session in sessions:
        if session.cwd:
            by_folder[projects[session.cwd], folder_below(session.cwd)].append(session)
    found = [
        lesson
        for (project, below), group in by_folder.items()
        for lesson in _of_folder(project, Path(project + below), group)
    ]
    found += _of_machine(sessions, projects)
    return sorted(found, key=lambda one: (-one.num_sessions, -one.num_failures, one.line))


def _of_machine(sessions: Sequence[SessionFacts], projects: Mapping[str, str]) -> list[Lesson]:
    """Return the lessons on a machine's programs; a line that only one project needed is that project's."""
    worked, groups = _worked(sessions), _grouped(sessions, _OF_MACHINE)
    lessons = []
    for key, proof in groups.items():
        found = sorted({projects.get(session.cwd, "") for session, _ in proof})
        project = found[0] if len(found) == 1 else ""
        guides = _guide([session for session, _ in proof], [Path(one) for one in found if one])
        if lesson := _lesson(project, Path(project), key, proof, worked, guides):
            lessons.append(lesson)
    return lessons


def _worked(sessions: Iterable[SessionFacts]) -> dict[str, float]:
    worked: dict[str, float] = {}
    for session in sessions:
        for name, at in session.worked.items():
            worked[name] = max(at, worked.get(name, 0.0))
    return worked


def _grouped(sessions: Iterable[SessionFacts], kinds: Container[str]) -> _Groups:
    groups: _Groups = defaultdict(list)
    for session in sessions:
        for cause in session.causes:
            if cause.kind in kinds:
                groups[cause.kind, cause.subject, cause.name].append((session, cause))
    return groups


def _guide(sessions: Iterable[SessionFacts], folders: Iterable[Path]) -> list[Guide]:
    """Return the guides of some projects, as they are on disk and as sessions read them."""
    on_disk = [guide for folder in folders for guide in _guides_on_disk(folder)]
    return on_disk + [guide for session in sessions for guide in session.guides]


def _of_folder(project: str, folder: Path, sessions: Sequence[SessionFacts]) -> list[Lesson]:
    worked, groups = _worked(sessions), _grouped(sessions, _OF_FOLDER)
    guides = _guide(sessions, [Path(project), folder])
    _fold_paths(groups, worked)
    lessons = {key: _lesson(project, folder, key, proof, worked, guides) for key, proof in groups.items()}
    gone = {name for (kind, _, name), lesson in lessons.items() if kind == "path" and lesson}
    # A file below a folder that is not there needs no separate line.
    return [
        lesson
        for (kind, _, name), lesson in lessons.items()
        if lesson and not (kind == "path" and gone.intersection(_folders(name)))
    ]


def _lesson(
    project: str,
    folder: Path,
    key: _Key,
    proof: Sequence[_Proof],
    worked: Mapping[str, float],
    guides: Sequence[Guide],
) -> Lesson | None:
    kind, subject, name = key
    times = [cause.at for _, cause in proof]
    messages = {cause.key or (session.trace_id, cause.step) for session, cause in proof}
    num_sessions = len({session.root_id for session, _ in proof})
    if min(len(messages), num_sessions) < MIN_SESSIONS or _PASSING.search(name):
        return None
    if _disproved(key, folder, min(times), worked):
        return None
    fix = _replacement(kind, name, folder, proof, worked)
    is_file = kind == "path" and "." in name.rpartition("/")[2]
    if not fix and (is_file or (kind not in ("flag", "field") and num_sessions < MIN_SESSIONS_ALONE)):
        return None
    line = _LINES[kind](subject, name, fix)
    if not line:
        return None
    quote = wrong_sentence(guides, name, fix)
    return Lesson(
        project,
        line,
        len(messages),
        num_sessions,
        max(times),
        not quote and any(_names(text, fix if kind == "path" and fix else name) for _, text in guides),
        quote,
        tuple(proof),
    )


def _replacement(kind: str, name: str, folder: Path, proof: Sequence[_Proof], worked: Mapping[str, float]) -> str:
    """Return what worked instead, if most sessions agree on it and the disk does not disprove it; else ""."""
    fix = _agreed([cause.fix for _, cause in proof])
    if kind == "program" and not fix and f"program {name}3" in worked:
        return f"{name}3"
    is_gone = kind == "path" and os.path.isdir(folder) and not os.path.exists(folder / fix)
    return "" if is_gone else fix


def _disproved(key: _Key, folder: Path, first: float, worked: Mapping[str, float]) -> bool:
    """Return whether what failed is on the disk now, or worked after it first failed."""
    kind, subject, name = key
    if kind == "path":
        if _may_exist(folder / name):
            return True
        names: Iterable[str] = (one for one in worked if one == f"path {name}" or one.startswith(f"path {name}/"))
    elif kind in ("flag", "wrapper", "target"):
        word = "target" if kind == "target" else "flag"
        names = (f"{word} {subject} {name}", f"{word} {subject.split()[0]} {name}")
    elif kind == "program":
        names = (f"program {name}",)
    else:
        return False
    return any(one in worked and (worked[one] >= first or not first) for one in names)


def _may_exist(path: Path) -> bool:
    """Return whether a path is on the disk, or may be in a folder without access."""
    try:
        path.stat()
    except PermissionError:
        return True
    except (OSError, ValueError):  # a name that is too long, or has a null byte
        return False
    return True


def _fold_paths(groups: _Groups, worked: Mapping[str, float]) -> None:
    """Put the failures below a folder that is not there under the folder's name."""
    paths = sorted(name for kind, _, name in groups if kind == "path")
    alive: dict[str, float] = {}
    for name, at in worked.items():
        if name.startswith("path "):
            for folder in (*_folders(name[5:]), name[5:]):
                alive[folder] = max(at, alive.get(folder, -1.0))
    children: dict[str, set[str]] = defaultdict(set)
    first: dict[str, float] = {}
    for path in paths:
        at = min(cause.at for _, cause in groups["path", "", path])
        for folder in (*_folders(path), path):
            first[folder] = min(at, first.get(folder, at))
            children[folder].add(path)
    for path in paths:
        # The highest folder in which nothing worked since, if it failed itself or many of its files did.
        dead = [one for one in _folders(path) if alive.get(one, -1.0) < first[one]]
        home = next((one for one in dead if one in paths or len(children[one]) >= MIN_CHILDREN), "")
        if home:
            moved = [(session, _of_folder_itself(cause, home)) for session, cause in groups.pop(("path", "", path))]
            groups["path", "", home].extend(moved)


def _of_folder_itself(cause: Cause, folder: str) -> Cause:
    """Return a failure below a folder as one of the folder; its fix is the folder that has the same file."""
    below = cause.name[len(folder) :]
    fix = cause.fix.removesuffix(below) if cause.fix.endswith(below) else ""
    return dataclasses.replace(cause, name=folder, fix=fix)


def _folders(path: str) -> list[str]:
    """Return the folders above a path, the highest first."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _agreed(fixes: Iterable[str]) -> str:
    """Return the fix that more than half of the found ones agree on, or ""."""
    counted = Counter(filter(None, fixes))
    if not counted:
        return ""
    best, count = counted.most_common(1)[0]
    return best if 2 * count > sum(counted.values()) else ""


_PASSING = re.compile(
    r"(?i)(?:^|/)(?:tmp|temp|node_modules|dist|build|target|coverage|\.git|__pycache__|\.venv|venv|out|logs?)(?:/|$)"
    r"|\d{6}|[0-9a-f]{8,}|\d{4}-\d\d-\d\d|\[[A-Z]+_"
)
"""Names of what comes and goes: build output, a dated file, a hash."""


def _guides_on_disk(root: Path) -> Iterable[Guide]:
    for name in (*GUIDES, ".github/copilot-instructions.md"):
        try:
            yield name, text_of(root / name, errors="replace")
        except (OSError, exits.UsageError):
            continue


def _names(text: str, name: str) -> bool:
    return bool(re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w-])", text))


_NUMBERED = re.compile(r"\s{0,8}(\d{1,6})(?:\u2192|\t)(.*)")  # as harnesses show files
_WARNS = re.compile(r"(?i)\b(?:no|not|never|without|instead|missing|avoid)\b|n't\b")


def wrong_sentence(guides: Iterable[Guide], name: str, fix: str) -> str:
    """Return the first line of a guide that names what failed, and neither warns of it nor names what works."""
    for guide, text in guides:
        for number, line in enumerate(text.splitlines(), start=1):
            if name in line and _names(line, name) and not _WARNS.search(line) and not (fix and _names(line, fix)):
                shown = _NUMBERED.match(line)
                place, words = (shown[1], shown[2]) if shown else (number, line)
                return f"{guide}, line {place}: {words.strip()[:MAX_QUOTE]}"
    return ""


def _path_line(subject: str, name: str, fix: str) -> str:
    return f"The right path is `{fix}`; there is no `{name}`" if fix else f"There is no `{name}`"


def _flag_line(subject: str, name: str, fix: str) -> str:
    return f"`{subject}` has no `{name}`" + (f"; use `{fix}`" if fix else "")


def _wrapper_line(subject: str, name: str, fix: str) -> str:
    return f"`{name}` does not work with `{subject}` here, which runs `{fix}`" if fix else ""


def _field_line(subject: str, name: str, fix: str) -> str:
    return f"`{subject} --json` has no field `{name}`" + (f"; use `{fix}`" if fix else "")


def _target_line(subject: str, name: str, fix: str) -> str:
    return f"There is no `{subject.split()[0]} {name}`" + (f"; use `{fix}`" if fix else "")


def _program_line(subject: str, name: str, fix: str) -> str:
    return f"`{name}` is not on the PATH" + (f"; use `{fix}`" if fix else "; do without it, or install it first")


def _tool_line(subject: str, name: str, fix: str) -> str:
    return f"There is no {subject} `{name}`"


def _parameter_line(subject: str, name: str, fix: str) -> str:
    return f"The tool `{subject}` has no parameter `{name}`"


_LINES = {
    "path": _path_line,
    "flag": _flag_line,
    "wrapper": _wrapper_line,
    "field": _field_line,
    "target": _target_line,
    "program": _program_line,
    "tool": _tool_line,
    "parameter": _parameter_line,
}
