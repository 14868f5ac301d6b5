"""The failure of a call and the correction that worked: the one answer for blame, hints and the report.

In: a `SiteContext`, an error site with the session's next actions. Out: `complaint_of` returns the words of the failed
call that the environment complains about; `correction_of` returns what took their place, with the call that proves it.

There is one principle. The environment names the words that are wrong; a later call that worked lacks them and is
otherwise alike; the words in their place are the correction. Nothing in between may have made the failed call right.
"""

from __future__ import annotations

import fnmatch
import itertools
import os.path
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from composer_hub.actions.action import Action
from composer_hub.actions.commands import SimpleCommand, commands_in
from composer_hub.actions.tools import bare_name
from composer_hub.errors.exits import hides_exit_code
from composer_hub.errors.rules import canonical_kind
from composer_hub.records import ToolCall, canonical_json

if TYPE_CHECKING:
    from composer_hub.errors.context import LaterCall, SiteContext

MAX_RIGHT_CHARS = 240
MAX_LISTING_CHARS = 60_000
MAX_LINES = 3  # of a text that is quoted
MIN_SPELLING = 0.9  # of two names of one folder
MIN_ALIKE = 0.6  # of the words of two commands, of the folders of two paths, of two texts


What = Literal["path", "program", "command", "folder", "made", "quotes", "tool", "arguments", "text", "read"]
"""The kind of a correction. `SENTENCES` of `hints/writers.py` has the words around each."""


@dataclass(frozen=True, slots=True)
class Correction:
    """The correction of a failed call, as the session proves it."""

    what: What
    right: str  # the words that were right
    call: ToolCall | None  # the later call that worked; None if a listing shows the path
    wrong: str = ""  # the words of the failed call that went; "" if something was missing


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed action, the kind of its failure, the environment's words, and the words of the call that they name."""

    action: Action
    kind: str
    message: str
    complaint: tuple[str, ...]


Finder = Callable[[Failure, Action, "Sequence[LaterCall]"], "Correction | None"]
"""Compares a failure with a later action that worked, given the calls between them."""


def correction_of(context: SiteContext) -> Correction | None:
    """Return the correction within the next steps, or None if the session does not prove one."""
    failure = failure_of(context)
    if failure is None:
        return None
    for _, found in proofs(failure, context.later):
        return found
    return _listed_path(failure, context) if failure.kind == "path_not_found" else None


def failure_of(context: SiteContext) -> Failure | None:
    """Return the failure at an error site, or None if no call is known."""
    if context.call is None:
        return None
    message = context.answer[:4000] or context.site.message
    action = Action(context.call, context.answer)
    return Failure(action, canonical_kind(context.site.kind), message, complaint_of(context))


def proofs(failure: Failure, later: Sequence[LaterCall]) -> Iterator[tuple[Finder, Correction]]:
    """Yield each finder that has a correction, in the order of the later calls, then in that of `FINDERS`."""
    in_shell, elsewhere = FINDERS.get(failure.kind, ((), ()))
    for position, one in enumerate(later):
        for find in (in_shell if failure.action.family == "shell" else elsewhere) if one.ok else ():
            found = find(failure, one.action, later[:position])
            if found and len(found.right) <= MAX_RIGHT_CHARS:
                yield find, found


_MEANT = r"[Dd]id you mean (?:one of (?:these|the following)(?: \w+)?\?\s*|)[`'\"]?"
_FACTS = (  # files that are there, and all values that are accepted
    re.compile(_MEANT + r"([^\s?<-][^\s?<]*[./][^\s`'\"?<]{1,200}|[./][^\s`'\"?<]{1,200})"),
    re.compile(r"[Mm]ust be one of:? ((?:[`'\"]?[\w.-]{1,40}[`'\"]?(?:, | \| |,? or )?){1,12})"),
    re.compile(r"expected one of ((?:['\"`]?[\w.-]{1,40}['\"`]?(?:\||, |,? or )?){1,12})"),
)
_GUESSES = (  # options and names, taken from the spelling of the wrong one
    re.compile(_MEANT + r"(-[^\s`'\"?<]{1,200})"),
    re.compile(r"[Dd]id you mean [`'\"]?([^\s`'\"?]{2,80})[`'\"?]"),
)


def offered(context: SiteContext, *, proven: bool = False) -> str:
    """Return the name or the values that the environment's own message offers, "" if it offers nothing.

    A guess is proven by a later call that has the word and worked.
    """
    text = context.answer[:4000] or context.site.message
    for pattern in (*_FACTS, *_GUESSES):
        if match := pattern.search(text):
            word = match[1].rstrip(" .,?:")
            return word if not proven or pattern in _FACTS or _worked_with(context, word) else ""
    return ""


def _worked_with(context: SiteContext, word: str) -> bool:
    texts = (canonical_json(later.action.call.arguments) for later in context.later if later.ok)
    return any(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) for text in texts)


# ---------------------------------------------------------------------------------------------------- the complaint

_TOKEN = re.compile(r"[^\s'\"`\u2018\u2019\u201c\u201d,;()<>{}|]+")
_LETTER = re.compile(r"(?:illegal|invalid|unknown|unrecognized) option(?: --|:) [`'\"\u2018]?([A-Za-z])\b")


def complaint_of(context: SiteContext) -> tuple[str, ...]:
    """Return the words of the failed call that the message names, in its order; programs only if one is missing."""
    call, message = context.call, context.site.message
    if call is None:
        return ()
    action, kind = Action(call, None), canonical_kind(context.site.kind)
    if action.family != "shell":
        if kind == "path_not_found":
            return (action.path,) if action.path else ()
        texts = {text for _, text in _texts(call.arguments) if len(text) < MAX_RIGHT_CHARS}
        return tuple(_named(message, texts | {call.name} if kind == "tool_not_found" else texts))
    programs = {name for one in action.commands for name in (one.program, one.words[0])}
    if kind == "command_not_found":
        return tuple(_named(message, programs))
    words = {
        part for one in action.commands for word in one.words[1:] for part in (word, *word.split("="), *word.split(","))
    }
    letter = _LETTER.search(message)
    short = [word for word in words if letter and re.match(rf"-\w*{letter[1]}", word)]
    return (*_named(message, words - programs), *short)


def _named(message: str, known: set[str]) -> Iterator[str]:
    seen = set()
    for token in _TOKEN.findall(message):
        bare = token.rstrip(".:")
        for word in (token, bare, bare.rpartition(":")[2], token.partition("=")[0]):
            if word in known and len(word) > 1 and word not in seen:
                seen.add(word)
                yield word


# ------------------------------------------------------------------------------------------------------------ paths

# Many folders have a file of such a name, so that the same name proves little.
_COMMON_NAME = re.compile(
    r"(?i)(?:index|main|mod|lib|types?|utils?|config|__init__|conftest|readme|license|changelog|makefile|dockerfile"
    r"|package|tsconfig|pyproject|cargo|go|setup|test|src|skill|agents|claude|page|route|layout)(?:\.\w{1,5})*"
)
_READERS = frozenset(
    "cat head tail ls find grep egrep rg fd tree wc stat cd echo sed nl awk bat file diff sort uniq jq less".split()
)


def _other_path(failure: Failure, later: Action, between: Sequence[LaterCall]) -> Correction | None:
    """Find the place at which a file of the same name was."""
    written = _plain_text(f"{later.path} {later.command}")
    for missing in _missing_paths(failure):
        if "*" not in missing and _plain(os.path.basename(missing.replace("\\", "/"))) not in written:
            continue  # most calls name no such file, and need not be parsed
        if _writes(later, missing) or any(_writes(one.action, missing) for one in between):
            return None  # the file was made only now
        for word in _paths_of(later):
            if is_other_path(missing, word) and (os.path.isabs(word) or _in_one_place(failure.action, later, between)):
                return Correction("path", word, later.call, missing)
    return None


def _listed_path(failure: Failure, context: SiteContext) -> Correction | None:
    """Find the only path with the same file and folder in what the session listed before, or right after."""
    missing = next(iter(_missing_paths(failure)), "")
    name = os.path.basename(missing)
    if "." not in name or _COMMON_NAME.fullmatch(name) or any(_writes(one.action, missing) for one in context.later):
        return None
    if "id you mean" in failure.message:
        return None  # the environment knows better what was meant
    line = re.compile(rf"(?m)^(?:\S*/)?{re.escape(name)}$")
    found = {os.path.normpath(path) for text in _printed(context) for path in line.findall(text[:MAX_LISTING_CHARS])}
    path = found.pop() if len(found) == 1 else ""
    is_same_folder = missing.split("/")[-2:] == path.split("/")[-2:] and "/" in path
    return Correction("path", path, None, missing) if is_same_folder and is_other_path(missing, path) else None


def _printed(context: SiteContext) -> Iterator[str]:
    """Yield the outputs of the session's tools before the call, in its prompt, and after it."""
    if context.trace and context.step:
        shown = (context.trace.messages[at] for start, stop in context.step.prompt for at in range(start, stop))
        yield from (message.content for message in shown if message.role == "tool")
    yield from (later.action.content or "" for later in context.later if later.ok)


def _missing_paths(failure: Failure) -> list[str]:
    words = [word for word in failure.complaint if "/" in word or "." in word.strip(".")]
    return [word.partition("::")[0].rstrip("/") for word in words if not re.search(r"[?$]|://", word)]


def _paths_of(action: Action) -> list[str]:
    commands = action.commands if action.family == "shell" else ()
    words = (word for one in commands for word in one.words[1:] if not word.startswith("-"))
    return [*filter(None, (action.path,)), *words]


def is_other_path(before: str, after: str) -> bool:
    """Return whether two different paths very likely mean the same file."""
    before, after = before.replace("\\", "/"), after.replace("\\", "/")
    one, other = os.path.normpath(before).split("/"), os.path.normpath(after).split("/")
    if not before or "/" not in after or one == other or re.search(r"[\s*?$<>]", after):
        return False
    if one[:-1] == other[:-1]:  # another ending or spelling, as `env.mjs` for `env.js`
        return _plain(one[-1]) == _plain(other[-1]) or ("*" in before and fnmatch.fnmatch(after, before))
    if one[-1] != other[-1]:
        return False
    if len(one) == len(other) and any(_ratio(*pair) < MIN_SPELLING for pair in zip(one, other, strict=False)):
        return False  # a folder in the place of another one is a sibling, whose file of this name is another file
    if not _COMMON_NAME.fullmatch(one[-1]):
        return True
    shorter, longer = sorted((one[:-1], other[:-1]), key=len)
    rest = iter(longer)
    is_part = all(part in rest for part in shorter)
    return is_part and SequenceMatcher(None, one[:-1], other[:-1], autojunk=False).ratio() >= MIN_ALIKE


def _plain(name: str) -> str:
    return _plain_text(os.path.splitext(name.lstrip("."))[0])  # README.ko.md is no other spelling of README.md


def _plain_text(text: str) -> str:
    return re.sub(r"[-_ ]", "", text.casefold())


def _writes(action: Action, path: str) -> bool:
    """Return whether an action may have created the file, so that its path was not wrong before."""
    name = os.path.basename(path)
    if action.family == "shell":
        return name in action.command and any(one.program not in _READERS for one in action.commands)
    return action.family == "edit" and os.path.basename(action.path) == name and not old_texts_of(action.call)


def _inside(failure: Failure, later: Action, between: Sequence[LaterCall]) -> Correction | None:
    """Find the file in a folder that was read as if it were a file."""
    folder = os.path.normpath(failure.action.path or "?")
    is_inner = later.family == "read" and os.path.normpath(later.path).startswith(folder + "/")
    return Correction("path", later.path, later.call) if is_inner and len(between) < 4 else None


_CD = re.compile(r"\s*cd\s+(['\"]?)([^'\"\n;&|$]{1,160}?)\1\s*(?:&&|;|\n)")


def _other_folder(failure: Failure, later: Action, between: Sequence[LaterCall]) -> Correction | None:
    """Find the folder from which the same command works."""
    (was, asked), (folder, works) = _entered(failure.action), _entered(later)
    is_same = works == asked != "" and later.family == "shell"
    return Correction("folder", folder, later.call) if is_same and folder and folder != was else None


def _entered(action: Action) -> tuple[str, str]:
    """Return the folder that a command enters or that its call names, and the rest of the command."""
    met = _CD.match(action.command)
    return (met[2] if met else action.cwd), " ".join(action.command[met.end() if met else 0 :].split())


def _in_one_place(failed: Action, later: Action, between: Sequence[LaterCall]) -> bool:
    """Return whether two commands ran in the same folder; a `cd` of a call in between may still hold."""
    folder = _entered(failed)[0]
    moving = (one.action for one in between if "cd" in one.action.command or "pushd" in one.action.command)
    moved = any(command.program in ("cd", "pushd") for action in moving for command in action.commands)
    return folder == _entered(later)[0] and (folder.startswith(("/", "~")) or not moved)


def _made_folder(failure: Failure, later: Action, between: Sequence[LaterCall]) -> Correction | None:
    """Find the `mkdir -p` that a command needed before it."""
    for part in parts_of(later.command) if "mkdir" in later.command else ():
        words = commands_in(part)[0].words if commands_in(part) else ()
        made = [word.rstrip("/") + "/" for word in words[2:] if words[:2] == ("mkdir", "-p")]
        if any(missing.startswith(folder) for folder in made for missing in _missing_paths(failure)):
            return Correction("made", part, later.call)
    return None


# --------------------------------------------------------------------------------------------------------- commands

_PART = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|>&|&>|[^|&;\n"'\\])+""", re.DOTALL)
_DESTRUCTIVE = frozenset("rm rmdir shred truncate dd kill pkill killall mkfs sudo chmod chown unlink".split())
_DESTROYING = frozenset((
    "--hard --force -f -D -delete --delete clean prune drop --force-with-lease --no-verify --theirs --ours -rf --help "
    "-h help reset checkout restore destroy uninstall --break-system-packages --yolo --dangerously-skip-permissions"
).split())  # fmt: skip


def is_destructive(command: SimpleCommand) -> bool:
    """Return whether a command removes work, skips a check or only asks for help: never a correction."""
    return command.program in _DESTRUCTIVE or not _DESTROYING.isdisjoint(command.words[1:])


def parts_of(command: str) -> list[str]:
    """Return the commands of a shell line as they are written, with their wrappers and quotes."""
    return [part.strip() for part in _PART.findall(command[:4000]) if part.strip()]


def _other_words(failure: Failure, later: Action, between: Sequence[LaterCall]) -> Correction | None:
    """Find the same command without a word that the environment complains about."""
    owners = [one for one in failure.action.commands if failure.complaint and one.program in later.command]
    if not owners or hides_exit_code(later.command) or not _in_one_place(failure.action, later, between):
        return None
    if failure.kind == "vcs_error" and any("git" in one.action.command for one in between):
        return None  # another git command may have made it possible
    for owner in owners:
        for part in parts_of(later.command):
            one = next(iter(commands_in(part)), None)
            if not one or one.program != owner.program or len(one.words) < 2 or is_destructive(one) or "<<" in part:
                continue
            if wrong := _corrected_word(failure.complaint, owner, one):
                return Correction("command", part, later.call, wrong)
    return None


def _corrected_word(complaint: Sequence[str], failed: SimpleCommand, worked: SimpleCommand) -> str:
    """Return the word of a complaint without which a command worked, if it still asks the same; else ""."""
    wrong = next((word for word in complaint if _has(failed, word) and not _has(worked, word)), "")
    new, gone = _only_in(worked, failed), _only_in(failed, worked)
    if not wrong or (set(worked.words) <= set(failed.words) and not gone):
        return ""  # without its option, it is another question
    # Words of the complaint may be replaced. Others may go with the wrong one, but none may be added.
    is_swap = len(new) <= len(gone) and set(gone) <= set(complaint)
    is_alike = _alike(failed.words, worked.words) or get_close_matches(wrong, worked.words, cutoff=0.75)
    is_same = (is_swap and is_alike) or (not new and gone[:1] == [wrong])
    return wrong if is_same else ""


def _other_program(failure: Failure, later: Action, between: Sequence[LaterCall]) -> Correction | None:
    """Find another spelling of a program that is not on the PATH: `python3`, `npx tsc`, `/usr/local/bin/go`."""
    name = next(iter(failure.complaint), "").rsplit("/", 1)[-1]
    owner = next((one for one in failure.action.commands if one.program == name), None)
    spelling = re.compile(rf"(['\"]?)(?:[^\s=]*/)?{re.escape(name)}[\d.]*\1")  # a quote also ends there
    for part in parts_of(later.command) if owner and not hides_exit_code(later.command) else ():
        words = part.split()
        place = next((at for at, word in enumerate(words[:4]) if spelling.fullmatch(word)), -1)
        if place < 0 or " ".join(words[: place + 1]) in failure.action.command:
            continue  # it failed so, and what came before it made it work
        asked = [word.strip("'\"") for word in words[place + 1 :]]
        if owner and (_alike(owner.words[1:], asked) or set(asked) & set(owner.words[1:])):
            return Correction("program", " ".join(words[: place + 1]), later.call, name)
    return None


def _quoted_word(failure: Failure, later: Action, between: Sequence[LaterCall]) -> Correction | None:
    """Find the quotes around a word that zsh took for a pattern."""
    met = re.search(r"no matches found: ([^\n]{1,200})", failure.message)
    for quoted in (f"'{met[1]}'", f'"{met[1]}"') if met else ():
        if quoted in later.command and quoted not in failure.action.command:
            return Correction("quotes", quoted, later.call)
    return None


def _has(command: SimpleCommand, word: str) -> bool:
    if re.fullmatch(r"-[A-Za-z]", word):
        return any(re.match(rf"-\w*{word[1]}", one) for one in command.words[1:])
    return any(word in (one, *one.split("=")) for one in command.words[1:])


def _only_in(one: SimpleCommand, other: SimpleCommand) -> list[str]:
    return [word for word in one.words[1:] if not word.startswith("-") and word not in other.words]


def _alike(one: Sequence[str], other: Sequence[str]) -> bool:
    return set(one) <= set(other) or SequenceMatcher(None, one, other, autojunk=False).ratio() >= MIN_ALIKE


# -------------------------------------------------------------------------------------------------------- arguments


def _other_tool(failure: Failure, later: Action, between: Sequence[LaterCall]) -> Correction | None:
    """Find the tool that took the same arguments, or the nearest name that took some of them."""
    failed, one, other = failure.action, failure.action.call.arguments, later.call.arguments
    if failed.call.name == later.call.name or not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return None
    target = failed.path or failed.command
    same = one == other or (bool(target) and target == (later.path or later.command))
    near = get_close_matches(bare_name(failed.call.name), [bare_name(later.call.name)], cutoff=0.75)
    if (same and failed.family == later.family) or (near and set(one) & set(other)):
        return Correction("tool", later.call.name, later.call, failed.call.name)
    return None


def _other_arguments(failure: Failure, later: Action, between: Sequence[LaterCall]) -> Correction | None:
    """Find the arguments of the next valid call of the same tool that the message is about."""
    before, after = failure.action.call.arguments, later.call.arguments
    if failure.action.call.name != later.call.name or not isinstance(after, Mapping) or after == before:
        return None
    earlier = before if isinstance(before, Mapping) else {}
    changed = {name: value for name, value in after.items() if name not in earlier or earlier[name] != value}
    if failure.kind == "schema_validation":
        named = set(_TOKEN.findall(failure.message))
        changed = {name: value for name, value in changed.items() if name in named}
    else:  # here only numbers and switches are an answer: another text is another question
        texts = {name: value for name, value in changed.items() if not isinstance(value, bool | int | float)}
        if texts.keys() - {"description", "summary", "justification"}:
            return None
        changed = {name: value for name, value in changed.items() if name not in texts}
    spelled = ", ".join(f"{name} = {_shape(value)}" for name, value in changed.items())
    return Correction("arguments", spelled, later.call) if changed else None


def _shape(value: Any) -> str:
    """Return a value as JSON, or only its form if it is long."""
    text = canonical_json(value)
    if len(text) > 80 and isinstance(value, list):
        return f"[{_shape(value[0])}]"
    if len(text) > 80 and isinstance(value, Mapping):
        return "{" + ", ".join(f'"{key}"' for key in list(value)[:8]) + "}"
    return text if len(text) <= 80 else "a text"


def _other_text(failure: Failure, later: Action, between: Sequence[LaterCall]) -> Correction | None:
    """Find the text of the file that the next edit of the same place replaced."""
    name = os.path.basename(later.path)
    if later.family != "edit" or os.path.basename(failure.action.path) != name:
        return None
    if any(one.ok and one.action.family == "edit" and os.path.basename(one.action.path) == name for one in between):
        return None  # then the text is another one
    before, after = old_texts_of(failure.action.call), old_texts_of(later.call)
    missed = [text for text in before if text not in after]
    if len(missed) > 1:  # the message quotes the lines that it looked for
        expected = re.split(r"expected lines in [^\n]+:\n", failure.message)[-1].split("\n")
        missed = [text for text in missed if all(line in text for line in expected if line.strip())]
    if len(missed) != 1:
        return None
    alike = next((text for text in after if text not in before and _ratio(missed[0], text) >= MIN_ALIKE), "")
    right = _first_difference(missed[0].split("\n"), alike.split("\n"), kept=failure.kind == "edit_ambiguous")
    return Correction("text", right, later.call) if re.search(r"\w{3}", right) else None


def _first_difference(wrong: Sequence[str], right: Sequence[str], *, kept: bool) -> str:
    """Return the first lines that the right text has within the wrong one, with the lines around a single one.

    `kept` is whether the wrong text may be part of the right one: a text was ambiguous, not missing. Otherwise lines
    before and after it say nothing: the later edit may just begin earlier or end later.
    """
    one, other = ([line.strip() for line in lines] for lines in (wrong, right))
    known = {"", *one}
    for _, begin, end, first, last in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        # At an edge only as many lines count as differ in the wrong text.
        if not kept and begin == 0 < len(one) - end:
            first = max(first, last - end)
        elif not kept and end == len(one) and begin > 0:
            last = min(last, first + end - begin)
        new = [at for at in range(first, last) if other[at] not in known]
        if new:
            block = itertools.takewhile(lambda line: line.strip() not in known, right[new[0] : last])
            lines = list(itertools.islice(block, MAX_LINES))
            return "\n".join(lines if len(lines) > 1 else right[max(0, new[0] - 1) : new[0] + 2])
    return ""  # nothing shows why it did not match


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one[:2000], other[:2000], autojunk=False).ratio()


def missed_texts(context: SiteContext) -> list[str]:
    """Return the texts that an edit did not find: those that the message quotes, or else all that it replaces."""
    quoted = re.search(r"expected lines in [^\n]+:\n([\s\S]+)", context.answer)
    return [quoted[1]] if quoted else old_texts_of(context.call) if context.call else []


def old_texts_of(call: ToolCall) -> list[str]:
    """Return the texts that an edit replaces: arguments named old…, or the old lines of each hunk of a patch."""
    found = [text for key, text in _texts(call.arguments) if "old" in key.lower() or key == "search"]
    patch = next((text for _, text in _texts(call.arguments) if "*** Update File" in text), "")
    for hunk in re.split(r"(?m)^(?:@@.*|\*\*\* .*)$", patch):
        old = "\n".join(line[1:] for line in hunk.split("\n") if line[:1] in (" ", "-"))
        found += [old] if old.strip() else []
    return found


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of a call's arguments, each with its name."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, str(name))
    elif isinstance(value, list):
        for inner in value[:20]:
            yield from _texts(inner, key)


def _read_first(failure: Failure, later: Action, between: Sequence[LaterCall]) -> Correction | None:
    """Find the read after which the same edit worked."""
    path = later.path
    if failure.action.call.name != later.call.name or not path or path != failure.action.path:
        return None
    about = [one for one in between if one.action.path == path]
    read = next((one.action for one in about if one.action.family == "read"), None)
    # If an edit also fails after the read, something else keeps changing the file.
    return Correction("read", path, read.call) if read and all(one.ok for one in about) else None


FINDERS: Mapping[str, tuple[tuple[Finder, ...], tuple[Finder, ...]]] = {
    # kind: (of a shell, of another tool), in this order
    "path_not_found": ((_quoted_word, _made_folder, _other_path, _other_folder), (_other_path,)),
    "command_not_found": ((_other_program,), ()),
    "usage_error": ((_quoted_word, _other_words, _other_folder), ()),
    "vcs_error": ((_other_folder, _other_words), ()),
    "timeout": ((_other_arguments,), ()),
    "is_directory": ((), (_inside,)),
    "output_limit": ((), (_other_arguments,)),
    "schema_validation": ((_other_arguments,), (_other_arguments,)),
    "tool_not_found": ((_other_tool,), (_other_tool,)),
    "edit_no_match": ((), (_other_text,)),
    "edit_ambiguous": ((), (_other_arguments, _other_text)),
    "stale_read": ((), (_read_first,)),
}
"""The comparisons for each kind. A kind that is missing has no exact answer."""


# ------------------------------------------------------------------------------------------------------ wrong words

_WORD = re.compile(r"[\w./-]{2,}")


def quotes_wrong(text: str, failed: ToolCall | None, worked: ToolCall | None) -> bool:
    """Return whether a hint's text holds words of the failed call that the working call lacks.

    Words are names, paths, options and whole values. A model copies what it reads, so a hint that quotes a wrong one
    makes the mistake likelier. Plain words of a longer text do not count: any sentence shares some with an edit.
    """
    if failed is None:
        return False
    spelled = f"{worked.name} {canonical_json(worked.arguments)}" if worked else ""
    right = {*_WORD.findall(spelled), *(_values_in(worked) if worked else ())}
    return not set(_values_in(failed)).difference(right).isdisjoint(_words_in(text))


def _words_in(text: str) -> set[str]:
    return {part for word in _WORD.findall(text) for part in (word, word.rstrip("."))}  # a sentence may end after it


def _values_in(call: ToolCall) -> Iterator[str]:
    yield call.name
    action, texts = Action(call, None), [text for _, text in _texts(call.arguments)]
    words = [word for one in action.commands for word in one.words] if action.family == "shell" else []
    yield from (one for one in (*texts, *words) if len(one) > 1 and not re.search(r"\s", one))
    for text in texts:
        yield from (word for word in _WORD.findall(text) if not (word.isalpha() and word.islower()))
