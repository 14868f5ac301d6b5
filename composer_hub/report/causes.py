"""Failures with a named cause, and what worked instead: the raw material of repeated corrections.

In: the calls of a trace with their outcomes. Out: `Cause`s (a path that is not there, a flag that a program lacks) and
names of everything that worked, which disprove causes of other sessions.

Only exact facts count. A path belongs to the project if it is inside its folder; a path in a shell command is used only
if the shell is certainly still in that folder.
"""

from __future__ import annotations

import os.path
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from composer_hub.actions import Action, Actions, SimpleCommand, command_of, commands_in, family_of_tool, path_of
from composer_hub.actions.paths import is_absolute
from composer_hub.errors.context import SiteContext, context_of
from composer_hub.errors.corrections import Correction, complaint_of, correction_of, offered
from composer_hub.errors.exits import hides_exit_code
from composer_hub.errors.rules import EVERYWHERE
from composer_hub.harnesses import keeps_cwd
from composer_hub.records import ToolCall, Trace, canonical_json
from composer_hub.report.projects import folded

MAX_TEXT = 1500
MAX_SCRIPT = 20_000
MAX_GUIDE = 60_000
GUIDES = ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", "copilot-instructions.md", ".cursorrules")
BUILT_IN = frozenset(("read", "edit", "shell", "poll", "web", "ask", "agent", "finish"))
"""Families of tools that come with a harness: how they are called is no fact about a project."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One failure whose cause the environment named.

    `fix` is "" if no working call shows it.
    """

    kind: str  # path, flag, wrapper, field, target, program, module or tool
    subject: str  # the program with its subcommand; "" for a path
    name: str  # the wrong name
    fix: str
    at: float
    step: int
    key: str  # of the message
    call_text: str = ""  # raw evidence
    words: str = ""
    worked: str = ""


class Causes:
    """Everything about one trace that can prove or disprove a correction."""

    def __init__(self, trace: Trace, calls: Actions, times: Sequence[float], keys: Sequence[str]) -> None:
        self.trace, self.calls, self.times, self.keys = trace, calls, times, keys
        self.root = folded(trace.cwd)
        self.guides: list[tuple[str, str]] = []
        self.worked: dict[str, float] = {}
        self.moved: set[int] = set()  # steps before which the shell may have left the project's folder
        self.missing: dict[tuple[int, str], Action] = {}  # programs that a shell did not find, by step
        self._scan()

    # ---- what worked

    def _scan(self) -> None:
        lasts = keeps_cwd(self.trace.source)
        moved = False
        recent: deque[ToolCall] = deque(maxlen=8)  # a poll shows what an earlier call ran
        for position, step in enumerate(self.trace.steps):
            if moved:
                self.moved.add(position)
            failed = {site.call_id for site in step.error_sites}
            for outcome in self.calls[position]:
                recent.append(outcome.call)
                for name in missing_programs(outcome, recent):
                    self.missing[position, name] = outcome
                commands = outcome.commands if outcome.family == "shell" else ()
                if outcome.content is not None and outcome.call.call_id not in failed:
                    self._note(outcome, commands, position)
                moved = moved or (lasts and any(one.program in _MOVERS for one in commands))

    def _base(self, call: ToolCall, commands: Sequence[SimpleCommand], position: int) -> str | None:
        """Return the folder that a shell command ran in, None if it is not certain."""
        if commands and commands[0].program == "cd" and commands[0].words[1:2]:
            base = commands[0].words[1]
            rest = commands[1:]
        else:
            given = call.arguments if isinstance(call.arguments, Mapping) else {}
            named = next((given[key] for key in _FOLDERS if isinstance(given.get(key), str)), "")
            base = named or ("" if position in self.moved else self.root)
            rest = commands
        if not is_absolute(base, windows=True) or any(one.program in _MOVERS for one in rest):
            return None
        return folded(base)

    def _note(self, outcome: Action, commands: Sequence[SimpleCommand], position: int) -> None:
        at = self.times[position]
        if outcome.family == "shell":
            if hides_exit_code(command_of(outcome.call)):
                return
            base = self._base(outcome.call, commands, position)
            for part in _AND.split(command_of(outcome.call)[:MAX_TEXT]):
                self._did_work(f"program {part.split(maxsplit=1)[0] if part.strip() else ''}", at)
            for command in commands:
                for name in names_of(command):
                    self._did_work(name, at)
                for word in command.words[1:]:
                    if path := self.inside(word, base):
                        self._did_work(f"path {path}", at)
            return
        self._did_work(f"tool {outcome.call.name}", at)
        raw = path_of(outcome.call)
        name = raw.replace("\\", "/").rpartition("/")[2]
        if name in GUIDES and outcome.family == "read" and len(self.guides) < 8:
            self.guides.append((name, (outcome.content or "")[:MAX_GUIDE]))
        # A search below a folder that is not there also finds nothing.
        if (
            outcome.family in ("read", "edit")
            and not _EMPTY.match(outcome.content or "")
            and (path := self.inside(raw, self.root))
        ):
            self._did_work(f"path {path}", at)

    def _did_work(self, name: str, at: float) -> None:
        self.worked[name] = max(at, self.worked.get(name, 0.0))

    def inside(self, path: str, base: str | None) -> str:
        """Return a path relative to the project's folder, "" if it is outside or its folder is unknown."""
        if not path or not self.root or len(path) > 300:
            return ""
        path = folded(path)
        if _NOT_A_PATH.search(path) or path.startswith("-"):
            return ""
        if not is_absolute(path, windows=True):
            if base is None or path.startswith("~"):
                return ""
            path = f"{base}/{path}"
        path = os.path.normpath(path)
        return path[len(self.root) + 1 :] if path.startswith(f"{self.root}/") else ""

    # ---- what failed

    def found(self) -> Iterator[Cause]:
        """Yield the failures with a cause that a line of advice could prevent."""
        named = list(self._of_sites())
        yield from named
        known = {(cause.step, cause.name) for cause in named if cause.kind == "program"}
        for (position, name), outcome in self.missing.items():
            if (position, name) not in known:
                at, key = self.times[position], self.keys[position]
                call, words = spelled(outcome.call, MAX_TEXT), (outcome.content or "")[-MAX_TEXT:]
                yield Cause("program", "", name, "", at, position, key, call, words)

    def _of_sites(self) -> Iterator[Cause]:
        for position, step in enumerate(self.trace.steps):
            for site in step.error_sites:
                if site.blame not in ("model", "unknown") or site.kind not in _NAMERS or site.source == "critic":
                    continue
                context = context_of(self.trace, position, site, self.calls)
                named = _NAMERS[site.kind](self, context, position) if context.call else None
                if not named or context.call is None:
                    continue
                kind, subject, name = named
                correction = correction_of(context)
                worked = correction.call if correction else None
                yield Cause(
                    kind, subject, name, self._fix(kind, name, context, correction), self.times[position], position,
                    self.keys[position], spelled(context.call, MAX_TEXT), context.answer[:MAX_TEXT],
                    spelled(worked, MAX_TEXT) if worked else "",
                )  # fmt: skip

    def path(self, context: SiteContext, position: int) -> Named | None:
        """Name a path that is not there."""
        assert context.call is not None
        command = command_of(context.call)
        base = self._base(context.call, commands_in(command), position) if command else self.root
        wrong = self.inside(next(iter(complaint_of(context)), ""), base)
        return ("path", "", wrong) if wrong and os.path.basename(wrong) in (command or wrong) else None

    def usage(self, context: SiteContext, position: int) -> Named | None:
        """Name a flag, a field or a target that a program does not have."""
        assert context.call is not None
        text = context.answer or context.site.message
        commands = commands_in(command_of(context.call))
        for kind, pattern in _USAGES:
            match = pattern.search(text)
            name = match[1].strip("'\"`\u2018\u2019") if match else ""
            if name and kind == "flag" and not name.startswith("-"):
                name = f"-{name}" if len(name) == 1 else ""
            owner = next((one for one in commands if name and _has(one, name, kind)), None)
            if owner is None:
                continue
            # A wrapper may have taken the place of a program: its usage names it.
            usage = _USAGE.search(text)
            if kind == "flag" and usage and usage[1].split()[0] != owner.program:
                # Words after `--` go to the program that a script's name runs: `npm run format -- --write`.
                return "wrapper", verb_of(owner) if "--" in owner.words else owner.program, name
            return kind, verb_of(owner), name
        return None

    def program(self, context: SiteContext, position: int) -> Named | None:
        """Name a program that is not there."""
        assert context.call is not None
        name = next(iter(complaint_of(context)), "")
        ran = any(one.words[:1] == (name,) for one in commands_in(command_of(context.call)))
        return ("program", "", name) if ran and "/" not in name else None

    def tool(self, context: SiteContext, position: int) -> Named | None:
        """Name a skill, an agent or a server's tool that is not there."""
        match = _UNKNOWN.search(context.answer or context.site.message)
        return ("tool", match[1] or "agent", match[2].rstrip(".:")) if match else None

    def parameter(self, context: SiteContext, position: int) -> Named | None:
        """Name an argument that a tool of the project's own servers refuses."""
        assert context.call is not None
        if family_of_tool(context.call.name, context.call.arguments) in BUILT_IN:
            return None
        match = _PARAMETER.search(context.answer or context.site.message)
        return ("parameter", context.call.name, match[1]) if match else None

    # ---- what worked instead

    def _fix(self, kind: str, name: str, context: SiteContext, correction: Correction | None) -> str:
        """Return the words that took the place of the wrong ones, as far as a line of advice can name them."""
        if kind == "path":
            right = correction.right if correction and correction.what == "path" else offered(context)
            return self.inside(right, self.root)
        if kind == "wrapper":
            usage = _USAGE.search(context.answer or context.site.message)
            return usage[1].strip() if usage else ""
        if correction is None or correction.what not in ("program", "command") or context.call is None:
            return ""
        if correction.what == "program":
            return correction.right if kind == "program" else ""
        worked = commands_in(correction.right)[0]
        if kind == "target":
            return verb_of(worked)
        failed = next((one for one in commands_in(command_of(context.call)) if _has(one, name, kind)), None)
        gone, new = _differences(failed, worked, kind) if failed else (set(), set())
        return new.pop() if gone == {name} and len(new) == 1 else ""


Named = tuple[str, str, str]
"""Kind, subject and the name of what was wrong."""

_NAMERS = {
    "path_not_found": Causes.path,
    "usage_error": Causes.usage,
    "command_not_found": Causes.program,
    "tool_not_found": Causes.tool,
    "schema_validation": Causes.parameter,
}

_AND = re.compile(r"\s*(?:&&|\|\||;|\||\n)\s*")
_MOVERS = ("cd", "pushd", "popd")
_FOLDERS = ("workdir", "cwd", "working_directory", "directory", "dir_path")
_USAGE = re.compile(r"[Uu]sage: +((?:[a-z][\w.-]* ?){1,3})")
_EMPTY = re.compile(r"\s*(?:No (?:files|matches) found|Found 0 |$)")
_NOT_A_PATH = re.compile(r"[\n\0\s\"'`$*?{}<>|;&]|://")
_FLAG = r"[`'\"\u2018]?(--?[A-Za-z][\w-]{0,60})"
_USAGES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("flag", re.compile(
        r"(?:[Uu]nknown|[Uu]nrecogni[sz]ed|[Ii]nvalid|[Ii]llegal|[Uu]nexpected|[Nn]o such) "
        r"(?:long )?(?:flag|option|arguments?|shorthand flag|switch|command[- ]line option)s?:? *(?:-- )?" + _FLAG
    )),
    ("flag", re.compile(r"(?:illegal|invalid|unknown|unrecognized) option -- [`'\"\u2018]?([A-Za-z])\b")),
    ("flag", re.compile(r"flag provided but not defined: (-[\w-]{1,60})")),
    ("field", re.compile(r"Unknown JSON field: [\"'](\w{1,60})[\"']")),
    ("target", re.compile(r"No rule to make target [`'\"\u2018]([\w:./-]{1,80})['\u2019\"]\.?")),
    ("target", re.compile(r"[Mm]issing script: [\"']?([\w:.-]{1,80})")),
    ("target", re.compile(r"(?:Task|task|recipe|command) [`'\"]([\w:.-]{1,80})['\"`]? (?:not found|does not exist)")),
    ("target", re.compile(r"[Nn]o task (?:named )?[`'\"]?([\w:.-]{1,80})['\"`]? found")),
    ("target", re.compile(r"Justfile does not contain recipe [`'\"]([\w:.-]{1,80})")),
    ("target", re.compile(r"Command [\"']([\w:.-]{1,80})[\"'] not found")),
    ("target", re.compile(r"unknown command [\"'`]([\w:.-]{1,80})[\"'`] for ")),
)  # fmt: skip
_UNKNOWN = re.compile(r"(?:Unknown (skill|agent)\b:? [`'\"]?|\bAgent type [`'\"])([\w.:/-]{1,100})")
_PARAMETER = re.compile(r"[Uu]nexpected (?:parameter|argument|property|keyword argument) [`'\"]([\w.-]{1,60})")

_NO_PROGRAM = re.compile(
    r"(?m)^(?:\S{0,40}sh|\(eval\)):(?: ?(?:line )?\d+:)* "
    r"(?:command not found: ([\w@.+-]{1,80})|([\w@.+-]{1,80}): (?:command )?not found)[ \t]*$"
)


def missing_programs(outcome: Action, recent: Iterable[ToolCall]) -> set[str]:
    """Return the programs that a shell did not find, in its own words, and that one of the last calls names.

    This asks for no error site: the sentence may be in a result that failed for another reason, or in a poll.
    """
    text = outcome.content or ""
    if "not found" not in text or outcome.family in BUILT_IN - {"shell", "poll"}:
        return set()
    names = {one or other for one, other in _NO_PROGRAM.findall(text[-MAX_SCRIPT:])} - EVERYWHERE
    calls = "\n".join(canonical_json(call.arguments)[:MAX_SCRIPT] for call in recent) if names else ""
    if "PATH=" in calls:
        return set()
    return {name for name in names if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])", calls)}


def names_of(command: SimpleCommand) -> Iterator[str]:
    """Yield the flags and the first words of a command that worked."""
    verb = verb_of(command)
    for word in command.words[1:]:
        if word.startswith("-"):
            yield f"flag {verb} {word.partition('=')[0]}"
    for word in command.words[1:3]:
        if not word.startswith("-"):
            yield f"target {command.program} {word}"


def verb_of(command: SimpleCommand) -> str:
    """Return a program with its subcommands: the words before the first option that look like names."""
    words = [command.program]
    for word in command.words[1:3]:
        if not _VERB.fullmatch(word):
            break
        words.append(word)
    return " ".join(words) if command.program in _WITH_VERBS or len(words) == 1 else command.program


_VERB = re.compile(r"[a-z][a-z:-]{1,30}")
_WITH_VERBS = frozenset((
    "git gh glab go cargo npm pnpm yarn bun docker kubectl make just mise task uv pip poetry rails bundle dotnet aws "
    "helm gcloud az terraform swift flutter dart mix deno turbo nx composer php artisan linear vercel supabase "
    "wrangler bd prisma npx"
).split())  # fmt: skip


def _has(command: SimpleCommand, name: str, kind: str) -> bool:
    if kind == "field":
        return any(name in word.split(",") for word in command.words[1:])
    if kind == "flag" and len(name) == 2:
        return any(re.match(rf"-\w*{re.escape(name[1])}", word) for word in command.words[1:])
    return any(word.partition("=")[0] == name for word in command.words[1:])


def _differences(failed: SimpleCommand, worked: SimpleCommand, kind: str) -> tuple[set[str], set[str]]:
    """Return the options (or fields) that went and that came; other words are about another question."""

    def parts(command: SimpleCommand) -> set[str]:
        if kind == "field":
            return {
                part for word in command.words[1:] if "," in word or word.isidentifier() for part in word.split(",")
            }
        return {word.partition("=")[0] for word in command.words[1:] if word.startswith("-")}

    before, after = parts(failed), parts(worked)
    return before - after, after - before


def spelled(call: ToolCall, max_chars: int) -> str:
    """Return a call as a person would write it: its command, or its name and what it is about."""
    if family_of_tool(call.name, call.arguments) == "shell" and (command := command_of(call)):
        return command[:max_chars]
    subject = path_of(call)
    if not subject and call.arguments:
        subject = call.arguments if isinstance(call.arguments, str) else canonical_json(call.arguments)
    return f"{call.name} {subject}"[:max_chars]
