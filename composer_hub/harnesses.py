"""Everything that the package knows about each harness or session format, one record each, and about makers of models.

`docs/contributing/add_a_harness.md` walks through a new one.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from composer_hub.exits import UsageError


@dataclass(frozen=True)
class Shell:
    """How a harness runs commands and frames their output; patterns are regular expressions.

    `first` and `last` find the exit code before and after the output, in their first group. `header` and `footer` match
    the whole text around the output, and are needed only if error rules would misread it.
    """

    keeps_cwd: bool | None  # a `cd` lasts until the next call; None, not known, is read as True
    first: str = ""
    last: tuple[str, ...] = ()
    header: str = ""
    footer: str = ""


# Facts of a session and their meaning. The fixtures of a harness show each fact that it gives, and no other
# (`tests/ingest/test_statements.py`).
IN_EVERY_FILE = {  # each fixture shows these, unless `gives` has a limit
    "the system prompt": "as the file records it",
    "tool schemas": "as the file records them",
    "exact prompts": "what the model read before a step, message by message",
    "the user's words": "the first message",
    "the folder": "in which the session began",
    "the model": "of every step",
    "times": "of the calls of the model",
}
TO_DECIDE = IN_EVERY_FILE | {  # a harness gives or lacks each of these
    "token counts": "what the provider counted",
    "tool calls": "with their arguments",
    "results": "of tool calls, or of commands in the text",
    "compactions": "later prompts leave out what the harness forgot",
    "branches": "steps that were rewound, rolled back or rejected",
    "error flags": "the file marks failures",
    "exit codes": "of commands",
    "thinking": "in plain text",
    "subagents": "traces with their parent",
}
FACTS = TO_DECIDE | {
    "parallel calls": "several in one message",
    "typed errors": "a word of the harness for the kind of a failure",
    "denials": "the user refused a call",
    "cancellations": "the user stopped a call or an answer",
    "timeouts": "a command ran too long",
    "hidden thinking": "signs of encrypted reasoning",
    "summaries of thinking": "the file marks a summary of the reasoning; its text is not kept",
    "unparsed arguments": "the text of arguments that are not JSON",
    "the verdict": "whether the task was solved",
    "the repository": "owner and name",
    "the license": "of the text",
    "the version": "of the harness",
    "the start": "when the session began",
    "error sites": "found before",
    "hints": "written before",
    "token ids": "of a rollout",
}
TESTED_ON = {
    "real sessions": "public sessions of users",
    "the release": "files that the released harness wrote for a scripted model",
    "trimmed sessions": "recordings that another project trimmed",
    "the source": "the source or the documentation of the format, without a session",
}


def facts_of(text: str) -> dict[str, str]:
    """Return the facts that `gives`, `lacks` or `tested_on` states, each with its limit or ""."""
    return {word.strip(): limit for word, limit in re.findall(r"([^,()]+)(?:\(([^)]*)\))?,?", text)}


@dataclass(frozen=True)
class Harness:
    """A harness, or a format that several of them write."""

    name: str  # as in `Trace.source` and `--from`
    title: str
    reader: str  # module in ingest/readers/
    files: str  # where sessions are, or what the files look like
    gives: str  # words of `FACTS`, each perhaps with a limit in parentheses, as in "thinking (not in streams)"
    lacks: str  # the rest of `TO_DECIDE`
    tested_on: str  # words of `TESTED_ON`
    shell: Shell
    folders: tuple[str, ...] = ()  # or databases with sessions; `${NAME:-default}` is an environment variable


UNKNOWN = Shell(keeps_cwd=None)
"""The default for formats: without knowledge of the harness, no command is assumed to start in the project."""
FRESH = Shell(keeps_cwd=False)

_POLL_TAGS = r"(?:<(?:retrieval_status|task_id|task_type|status|exit_code)>[^<\n]{0,80}</\w{1,20}>\s*){1,6}"
_CODEX_HEADER = r"(?:Command(?=:)|Chunk ID|Wall time|Total output lines|Original token count)"
_GEMINI_FOOTER = (
    r"(?:Error|Signal|Background PIDs|Process Group PGID): [^\n]{0,300}(?:\n(?!Exit Code: )[^\n]{0,300}){0,3}"
)
_GEMINI_EXIT = rf"\nExit Code: (-?\d{{1,10}})(?:\n{_GEMINI_FOOTER})?\s*$"
_OPENHANDS = Shell(
    keeps_cwd=True,
    last=(r"\[(?:The command completed|Command finished) with exit code (-?\d{1,10})\.?\]?[^\n]{0,200}\s*$",),
    footer=r"\[(?:The command completed|Command finished) with exit code[^\n]*",
)

# Formats with a telling first record come before looser ones, and a longer `header` before one that it begins with:
# Qwen Code's header starts with a line that is all of Codex's.
HARNESSES: tuple[Harness, ...] = (
    Harness(
        name="claude_code",
        title="Claude Code",
        reader="claude_code",
        files="`~/.claude/projects/*/*.jsonl`, `subagents/agent-*.jsonl`; the output of `claude -p "
        "--output-format stream-json`",
        folders=(
            "${CLAUDE_CONFIG_DIR:-~/.claude}/projects",
            "~/.config/claude/projects",
        ),
        gives="exact prompts (not in streams), the user's words (not in streams), the folder, the model, token "
        "counts, times (not in streams), tool calls, parallel calls, results, compactions, branches, error "
        "flags, typed errors, denials, exit codes, thinking (up to 2.1.42), subagents, the version, the "
        "start (not in streams)",
        lacks="the system prompt, tool schemas",
        tested_on="real sessions, the release (streams)",
        shell=Shell(
            keeps_cwd=True,
            # A poll of a command in the background has its status and exit code in tags.
            first=rf"(?:(?:Error: )?Exit code:? |{_POLL_TAGS}<exit_code>)(-?\d{{1,10}})\b",
            header=rf"(?:(?:Error: )?Exit code:? -?\d{{1,10}}\b[^\n]*\n?|{_POLL_TAGS}(?:<(?:stdout|stderr|output)>)?)",
            footer=r"</(?:stdout|stderr|output)>(?:\s*<timestamp>[^<\n]{0,80}</timestamp>)?",
        ),
    ),
    Harness(
        name="qwen_code",
        title="Qwen Code",
        reader="qwen_code",
        files="`~/.qwen/projects/*/chats/*.jsonl`, `subagents/*/agent-*.jsonl`; the output of `qwen -o stream-json`",
        folders=("~/.qwen/projects",),
        gives="exact prompts (not in streams; without the first message about the environment), the user's words "
        "(not in streams), the folder, the model (not of subagents), token counts, times (not in streams), "
        "tool calls, parallel calls, results, compactions, branches, error flags, typed errors, "
        "cancellations, exit codes (in streams only of commands that print nothing), thinking, subagents (without the "
        "call that started them), the version, the start (not in streams)",
        lacks="the system prompt, tool schemas",
        tested_on="the release",
        shell=Shell(
            keeps_cwd=False,
            last=(_GEMINI_EXIT,),
            header=r"Command: (?:[^\n]*\n){1,40}?Directory: [^\n]*\nOutput: ",
            footer=rf"(?:\(empty\))?(?:\nError: \(none\))?\nExit Code: -?\d{{1,10}}(?:\n{_GEMINI_FOOTER})?",
        ),
    ),
    Harness(
        name="codex",
        title="Codex CLI",
        reader="codex",
        files="`~/.codex/sessions/**/rollout-*.jsonl`, 0.2x to 0.149; the output of `codex exec --json`",
        folders=(
            "${CODEX_HOME:-~/.codex}/sessions",
            "${CODEX_HOME:-~/.codex}/archived_sessions",
        ),
        gives="the system prompt (not in streams), exact prompts (not in streams), the user's words (not in "
        "streams), the folder (not in streams), the model (not in streams), token counts (not in streams), "
        "times (not in streams), tool calls (in streams not those that were refused), parallel calls, "
        "results (not of the provider's searches), compactions, branches, error flags, typed errors, "
        "cancellations, exit codes, subagents, hidden thinking, summaries of thinking, unparsed arguments, "
        "the repository, the version (not in streams), the start (not in streams)",
        lacks="tool schemas, thinking",
        tested_on="real sessions, the release (streams)",
        shell=Shell(
            keeps_cwd=False,
            first=rf"(?:{_CODEX_HEADER}\b[^\n]*\n)*(?:Process exited with code|Exit code:) (-?\d{{1,10}})\b",
            last=(r'"metadata":\s?\{"exit_code":\s?(-?\d{1,10})[^{}]{0,100}\}\s*\}\s*$',),
            header=rf"(?:(?:{_CODEX_HEADER}|Process exited with code)\b[^\n]*\n)+(?:Output:[ \t]*\n?)?",
        ),
    ),
    Harness(
        name="pi",
        title="Pi",
        reader="pi",
        files="`~/.pi/agent/sessions/**/*.jsonl`, versions 1 to 3",
        folders=("${PI_CODING_AGENT_DIR:-~/.pi/agent}/sessions",),
        gives="exact prompts, the user's words, the folder, the model, token counts, times, tool calls, "
        "results, compactions, branches, error flags, typed errors, cancellations, exit codes, thinking, "
        "the version, the start",
        lacks="the system prompt, tool schemas, subagents",
        tested_on="real sessions",
        shell=Shell(
            keeps_cwd=False,
            last=(r"(?:^|\n)Command exited with code (-?\d{1,10})\s*$",),
            footer=r"\n*Command exited with code -?\d{1,10}",
        ),
    ),
    Harness(
        name="openhands_v1",
        title="OpenHands v1 (Agent SDK)",
        reader="openhands_v1",
        files="SDK events as JSONL, a JSON list, or a folder of `event-00000-<id>.json`",
        folders=("~/.openhands/conversations",),
        gives="the system prompt, tool schemas (in newer logs some), exact prompts, the user's words, the "
        "folder, the model, tool calls, parallel calls, results (terminal output up to 30,000 characters), "
        "compactions, error flags, typed errors, denials, exit codes, thinking, hidden thinking, unparsed "
        "arguments",
        lacks="token counts, times (not read), branches, subagents",
        tested_on="real sessions",
        shell=_OPENHANDS,
    ),
    Harness(
        name="openhands_v0",
        title="OpenHands v0",
        reader="openhands_v0",
        files="resolver and benchmark rows (`history`), event lists, `events/0.json` and so on",
        folders=("~/.openhands/sessions",),
        gives="the system prompt, tool schemas, exact prompts (without workspace context and microagents), the "
        "user's words, the folder, the model, tool calls (before 0.15 without the model's text), parallel "
        "calls, results, compactions, error flags, typed errors, exit codes, the version",
        lacks="token counts, times (not read), branches, thinking, subagents",
        tested_on="real sessions",
        shell=_OPENHANDS,
    ),
    Harness(
        name="swe_agent",
        title="SWE-agent",
        reader="swe_agent",
        files="`.traj` of 0.x, 1.0 and 1.x, also retry runs with `attempts`",
        gives="the system prompt, exact prompts (since 1.0), the user's words, the folder, the model, tool "
        "calls, results, compactions, error flags (of calls that did not parse), typed errors, thinking, "
        "the repository, the version",
        lacks="tool schemas, token counts, times, branches, exit codes, subagents",
        tested_on="real sessions",
        shell=UNKNOWN,
    ),
    Harness(
        name="mini_swe_agent",
        title="mini-swe-agent",
        reader="mini_swe_agent",
        files="v1 message lists; `mini-swe-agent-1.1` with tool calls, text or the Responses API",
        gives="the system prompt, tool schemas, exact prompts, the user's words, the folder (if it is "
        "configured), the model (not in v1), token counts, tool calls, parallel calls, results, branches, "
        "error flags, typed errors, timeouts, exit codes, thinking, summaries of thinking, the version",
        lacks="times (not read), compactions, subagents",
        tested_on="real sessions",
        shell=Shell(
            keeps_cwd=False,
            first=r"<returncode>(-?\d{1,10})</returncode>",
            header=r"<returncode>-?\d{1,10}</returncode>\s*(?:<output>)?",
            footer=r"</output>",
        ),
    ),
    Harness(
        name="atif",
        title="Harbor ATIF",
        reader="atif",
        files="ATIF 1.0 to 1.8, one document or one per line",
        gives="the system prompt, tool schemas, exact prompts, the user's words, the model (if the file names "
        "it), token counts, times, tool calls, parallel calls, results, error flags (in `extra`), "
        "thinking, subagents, the version",
        lacks="the folder (but in files of composer_hub), compactions, branches, exit codes",
        tested_on="the source",
        shell=UNKNOWN,
    ),
    Harness(
        name="gemini",
        title="Gemini CLI",
        reader="gemini",
        files="`ConversationRecord` JSON; JSONL since 0.40",
        folders=("~/.gemini/tmp",),
        gives="the user's words, the folder (in newer versions), the model, token counts, times, tool calls, "
        "parallel calls, results (up to 50 kB), compactions, branches, error flags, typed errors, "
        "cancellations, exit codes, subagents, summaries of thinking",
        lacks="the system prompt, tool schemas, exact prompts, thinking",
        tested_on="real sessions",
        shell=Shell(
            keeps_cwd=False,
            first=r"(?:(?:Command|Directory|Stdout|Stderr|Error): [^\n]{0,300}\n){1,8}Exit Code: (-?\d{1,10})\b",
            last=(_GEMINI_EXIT,),
        ),
    ),
    Harness(
        name="opencode",
        title="OpenCode",
        reader="opencode",
        files="`~/.local/share/opencode/opencode.db`; `opencode export` documents; before the database "
        "`storage/session/<project>/*.json`; the output of `opencode run --format json`",
        folders=(
            "${XDG_DATA_HOME:-~/.local/share}/opencode/opencode.db",
            "${XDG_DATA_HOME:-~/.local/share}/opencode/storage",
        ),
        gives="exact prompts (not in streams), the user's words (not in streams), the folder (not in streams), "
        "the model (not in streams), token counts, times (not in streams), tool calls, parallel calls, "
        "results, compactions, error flags, typed errors, exit codes, thinking, subagents, the version "
        "(not in streams)",
        lacks="the system prompt, tool schemas, branches",
        tested_on="real sessions (exports), the release (database and stream), trimmed sessions (older storage)",
        shell=FRESH,
    ),
    Harness(
        name="copilot",
        title="GitHub Copilot CLI",
        reader="copilot",
        files="`~/.copilot/session-state/*/events.jsonl`; before 1.0.11 `session-state/*.jsonl`",
        folders=("~/.copilot/session-state",),
        gives="the system prompt (in newer versions), exact prompts, the user's words, the folder, the model, "
        "tool calls, parallel calls, results, compactions (without what a truncation removed), branches, "
        "error flags, typed errors, denials, exit codes, thinking (in newer versions), subagents, unparsed "
        "arguments, the version, the start",
        lacks="tool schemas, token counts (but of the output), times (not read)",
        tested_on="real sessions",
        shell=Shell(
            keeps_cwd=True,
            last=(r"<(?:exited|shellId: [^\n<>]{1,80} completed) with exit code (-?\d{1,10})>\s*$",),
            footer=r"<(?:exited|shellId: [^\n<>]{1,80} completed) with exit code -?\d{1,10}>",
        ),
    ),
    Harness(
        name="droid",
        title="Factory Droid",
        reader="droid",
        files="`~/.factory/sessions/*/*.jsonl`; the output of `droid exec -o stream-json`",
        folders=("~/.factory/sessions",),
        gives="exact prompts (not in streams), the user's words, the folder, the model (in streams), tool calls, "
        "parallel calls, results, error flags, typed errors, cancellations, exit codes, thinking, the "
        "version (not in streams), the start (in streams)",
        lacks="the system prompt, tool schemas, token counts (not read), times (not read), compactions, "
        "branches, subagents",
        tested_on="trimmed sessions",
        shell=Shell(
            keeps_cwd=None,
            first=r"(?:Error: )?Command failed \(exit code: (-?\d{1,10})\)",
            header=r"(?:Error: )?Command failed \(exit code: -?\d{1,10}\)[^\n]*\n?",
        ),
    ),
    Harness(
        name="cursor",
        title="Cursor",
        reader="cursor",
        files="`~/.cursor/projects/*/agent-transcripts/**/*.jsonl`; the editor's "
        "`globalStorage/state.vscdb`; `~/.cursor/chats/*/*/store.db`; the output of `cursor-agent -p "
        "--output-format stream-json`",
        folders=(
            "~/.cursor/projects",
            "~/.cursor/chats",
            "~/.config/Cursor/User/globalStorage/state.vscdb",
            "~/Library/Application Support/Cursor/User/globalStorage/state.vscdb",
        ),
        gives="the user's words, the folder (not in transcripts), the model (not in transcripts), tool calls, "
        "parallel calls, results (in transcripts some), error flags, typed errors, denials, exit codes "
        "(not in transcripts), thinking, subagents",
        lacks="the system prompt (but in databases), tool schemas, exact prompts, token counts, times, "
        "compactions, branches",
        tested_on="trimmed sessions (transcripts), the source (databases and stream)",
        shell=UNKNOWN,
    ),
    Harness(
        name="kimi",
        title="Kimi Code",
        reader="kimi",
        files="`~/.kimi-code/sessions/*/*/agents/*/wire.jsonl`; kimi-cli's `~/.kimi/sessions/*/*/wire.jsonl`",
        folders=(
            "~/.kimi-code/sessions",
            "~/.kimi/sessions",
        ),
        gives="the system prompt (not of kimi-cli), tool schemas (not of kimi-cli), exact prompts (not of "
        "kimi-cli), the user's words, the folder (not of kimi-cli), the model (not of kimi-cli), token "
        "counts, tool calls, parallel calls, results, compactions (without what they cut from kept "
        "messages), branches, error flags, exit codes, thinking, subagents",
        lacks="times (not read)",
        tested_on="trimmed sessions, the source (kimi-cli)",
        shell=Shell(
            keeps_cwd=False,
            last=(r"(?:^|\n)Command failed with exit code: (-?\d{1,10})\.\s*$",),
            footer=r"Command failed with exit code: -?\d{1,10}\.",
        ),
    ),
    Harness(
        name="hermes",
        title="Hermes",
        reader="hermes",
        files="`~/.hermes/state.db`; `hermes sessions export`; older `~/.hermes/sessions/session_*.json`",
        folders=(
            "${HERMES_HOME:-~/.hermes}/state.db",
            "${HERMES_HOME:-~/.hermes}/sessions",
        ),
        gives="the system prompt, exact prompts (not around a compaction), the user's words, the folder, the "
        "model, tool calls, parallel calls, results, compactions, branches, error flags, exit codes, "
        "thinking, subagents",
        lacks="tool schemas, token counts, times (not read)",
        tested_on="real sessions (exports), the release (database)",
        shell=UNKNOWN,
    ),
    Harness(
        name="goose",
        title="Goose",
        reader="goose",
        files="`~/.local/share/goose/sessions/sessions.db`; older `sessions/*.jsonl`; the output of `goose "
        "run --output-format stream-json`",
        folders=(
            "${XDG_DATA_HOME:-~/.local/share}/goose/sessions",
            "~/Library/Application Support/Block/goose/sessions",
        ),
        gives="exact prompts (not in streams, nor around a compaction), the user's words (not in streams), the "
        "folder (not in streams), the model (in newer versions), tool calls (but those that did not "
        "parse), parallel calls, results, compactions, error flags, exit codes, thinking",
        lacks="the system prompt, tool schemas, token counts (but of a session), times (not read), branches, subagents",
        tested_on="the source",
        shell=FRESH,
    ),
    Harness(
        name="grok",
        title="Grok CLI",
        reader="grok",
        files="`~/.grok/sessions/**/chat_history.jsonl`",
        folders=("~/.grok/sessions",),
        gives="the system prompt, the user's words, the model, tool calls, results, hidden thinking",
        lacks="tool schemas, exact prompts, the folder (but beside the file), token counts, times, "
        "compactions, branches, error flags, exit codes, thinking, subagents",
        tested_on="trimmed sessions",
        shell=UNKNOWN,
    ),
    Harness(
        name="cline",
        title="Cline",
        reader="cline",
        files="`*.messages.json` v1; `api_conversation_history.json`",
        folders=(
            "~/.config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks",
            "~/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/tasks",
        ),
        gives="the system prompt (in newer versions), exact prompts, the user's words, the folder (in older "
        "versions), the model (in newer versions), times, tool calls (in older versions as text), parallel "
        "calls, results, compactions (without the removed text), error flags, thinking, subagents",
        lacks="tool schemas, token counts, branches, exit codes",
        tested_on="the source",
        shell=UNKNOWN,
    ),
    Harness(
        name="aider",
        title="Aider",
        reader="aider",
        files="`.aider.chat.history.md`",
        gives="the user's words, the model, results (of edits), error flags (of edits), typed errors, the "
        "version, the start",
        lacks="the system prompt, tool schemas, exact prompts, the folder, token counts, times, tool calls, "
        "compactions, branches, exit codes, thinking, subagents",
        tested_on="real sessions",
        shell=UNKNOWN,
    ),
    Harness(
        name="inspect",
        title="Inspect",
        reader="inspect_eval",
        files="`.eval` archives (zstd in them needs Python 3.14, or `inspect log convert`); the `.json` log",
        gives="the system prompt, tool schemas, exact prompts, the user's words, the model, token counts, "
        "tool calls, results, error flags, typed errors, timeouts, thinking, the verdict (by scores)",
        lacks="the folder, times, compactions, branches, exit codes, subagents",
        tested_on="real sessions",
        shell=UNKNOWN,
    ),
    Harness(
        name="composer_hub",
        title="Traces and rollouts that composer_hub published",
        reader="published_traces",
        files="tables `traces` as Parquet or on the Hub; the `rollouts/*.jsonl` of a training run",
        gives="the system prompt (if the session had one), tool schemas, exact prompts, the user's words, the "
        "folder (if the session had one), the model, tool calls, parallel calls, results, compactions, "
        "branches, thinking, subagents, the license, error sites, hints, token ids (if redaction did not "
        "change the text)",
        lacks="token counts, times, error flags, exit codes",
        tested_on="the source",
        shell=UNKNOWN,
    ),
    Harness(
        name="hf_native",
        title="Hub trace rows",
        reader="hf_native",
        files="rows with `harness, session_id, messages, trace, …`: JSON, JSONL, Parquet, Hub; raw events "
        "in them are read as files of their harness",
        gives="the system prompt, tool schemas, exact prompts (from raw events), the user's words, the "
        "folder, the model, times (from raw events), tool calls, results, thinking, the version, the start",
        lacks="token counts, compactions, branches, error flags, exit codes, subagents",
        tested_on="the source",
        shell=UNKNOWN,
    ),
    Harness(
        name="chat_rows",
        title="Chat rows (SWE-smith, SWE-Gym, nebius, SFT)",
        reader="chat_rows",
        files="rows with `messages`, `trajectory` or `conversations`: JSON, JSONL, Parquet, Hub",
        gives="the system prompt, tool schemas (in some datasets), exact prompts, the user's words, the model "
        "(in some datasets), tool calls (in some datasets), parallel calls, results, error flags (in Anthropic's "
        "form), exit codes (at some places), thinking (in some datasets), unparsed arguments, the verdict, the "
        "repository",
        lacks="the folder, token counts, times, compactions, branches, subagents",
        tested_on="real sessions",
        shell=UNKNOWN,
    ),
)


_BY_NAME = {harness.name: harness for harness in HARNESSES}
_ALIASES = {"mini": "mini_swe_agent"}
_BEFORE = r"\s*(?:OBSERVATION:\s*)?"  # SWE-agent's word before every result
_FIRST_CHARS, _LAST_CHARS = 2000, 600
LAST_MARK = "xit"  # in every `Shell.last`: most results have neither, and looking for it is quick
FOOTER_MARKS = (LAST_MARK, "</")


def harness_named(name: str) -> Harness:
    """Return the harness of that name; raise UsageError with all names otherwise."""
    if name not in _BY_NAME:
        raise UsageError(f"There is no session format {name!r}. Known formats: {', '.join(_BY_NAME)}.")
    return _BY_NAME[name]


def session_folders(environment: Mapping[str, str], home: Path) -> dict[Path, Harness]:
    """Return the folders and databases in which harnesses keep their sessions, whether they exist or not."""
    return {_expanded(folder, environment, home): harness for harness in HARNESSES for folder in harness.folders}


def _expanded(folder: str, environment: Mapping[str, str], home: Path) -> Path:
    filled = _VARIABLE.sub(lambda match: environment.get(match[1]) or match[2], folder)
    return home / filled[2:] if filled.startswith("~/") else Path(filled)


_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


@functools.cache
def keeps_cwd(source: str) -> bool:
    """Return whether a `cd` lasts until the next shell call in traces of a source such as `codex` or `Gemini-CLI`."""
    words = source.lower().replace("-", "_").split("_")
    prefixes = ["_".join(words[:end]) for end in range(len(words), 0, -1)]
    names = [name for prefix in prefixes if (name := _ALIASES.get(prefix, prefix)) in _BY_NAME]
    return not names or _BY_NAME[names[0]].shell.keeps_cwd is not False


@functools.cache
def _patterns(harnesses: tuple[Harness, ...]) -> tuple[list[re.Pattern[str]], list[re.Pattern[str]]]:
    shells = [harness.shell for harness in harnesses]
    firsts = dict.fromkeys(_BEFORE + shell.first for shell in shells if shell.first)
    lasts = dict.fromkeys(pattern for shell in shells for pattern in shell.last)
    return [re.compile(pattern) for pattern in firsts], [re.compile(pattern) for pattern in lasts]


_EVERY = _patterns(HARNESSES)


def exit_code_in(text: str, harness: Harness | None = None) -> int | None:
    """Return the exit code that a harness (None: any) wrote at the start or the end of a result, or None."""
    firsts, lasts = _patterns((harness,)) if harness else _EVERY
    head, tail = text[:_FIRST_CHARS], text[-_LAST_CHARS:]
    for pattern in firsts:
        if match := pattern.match(head):
            return int(match[1])
    if LAST_MARK in tail:
        for pattern in lasts:
            if match := pattern.search(tail):
                return int(match[1])
    return None


_JSON_WORDS = ("output", "stdout", "stderr", "error", "message")
_JSON_FACTS = {"exit_code", "returncode", "success", "error", "metadata"}
_MAX_JSON = 1 << 20


def words_in(text: str) -> str:
    """Return the words of a result that a harness wrote as a JSON object, perhaps followed by text."""
    if text[:2] not in ('{"', "{ ", "{\n") or len(text) > _MAX_JSON:
        return text
    try:
        result, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return text
    words = [result.get(name) for name in _JSON_WORDS] if _JSON_FACTS & result.keys() else []
    return "\n".join(word for word in words if isinstance(word, str) and word) or text


_STILL_RUNS = re.compile(
    r"(?:running with session ID|running in (?:the )?background with ID:?) ([\w.-]{1,80})"
    r"|<status>running</status>"
)


def running_id(text: str) -> str | None:
    """Return the id of a command that still runs after a result, "" if it is not named, None if it ended."""
    found = _STILL_RUNS.search(text[:_FIRST_CHARS])
    return (found[1] or "").rstrip(".") if found else None


def body_of(text: str) -> str:
    """Return the output of a command, without the header and footer of any harness."""
    text = words_in(text)
    header = _HEADER.match(text[:_FIRST_CHARS])
    body = text[header.end() :] if header else text
    tail = body[-_LAST_CHARS:]
    footer = _FOOTER.search(tail) if any(mark in tail for mark in FOOTER_MARKS) else None
    return body[: len(body) - len(tail) + footer.start()] if footer else body


def _any_of(patterns: Iterable[str]) -> str:
    return "|".join(dict.fromkeys(filter(None, patterns)))


_HEADER = re.compile(f"{_BEFORE}(?:{_any_of(harness.shell.header for harness in HARNESSES)})")
_FOOTER = re.compile(rf"(?:{_any_of(harness.shell.footer for harness in HARNESSES)})\s*$")

# ------------------------------------------------------------------------------------------------------------ models

FAMILIES: tuple[tuple[str, str], ...] = (
    # Fine-tunes name their base, so a maker's own line comes before the lines it builds on (deepseek-r1-distill-qwen
    # speaks like deepseek, its teacher; hermes-llama like llama).
    ("anthropic", r"claude|anthropic"),
    ("deepseek", r"deepseek"),
    ("moonshot", r"kimi|moonshot|composer[-_ ]?2\.5"),
    ("zhipu", r"\bglm|chatglm|zhipu|z-ai/|\bzai-org/|codegeex"),
    ("minimax", r"minimax|\babab"),
    ("xai", r"\bgrok|\bx-ai/|\bxai/"),
    ("google", r"gemini|gemma|\bpalm\b|\bbison|codey"),
    ("qwen", r"qwen|qwq|\bqvq|tongyi"),
    ("mistral", r"mi[sx]tral|codestral|devstral|magistral|ministral|pixtral"),
    ("openai", r"\bgpt|chatgpt|\bo[1345](-|\b)|codex|davinci|openai/|computer-use-preview"),
    ("meta", r"llama|\bmeta/|meta-llama"),
    ("cohere", r"command-(a|r|light|nightly)|\bcohere|\baya\b|c4ai"),
    ("microsoft", r"\bphi-?[1-5]|\bwizardlm|\bmai-"),
    ("ibm", r"granite"),
    ("nvidia", r"nemotron"),
    ("amazon", r"\bnova-|amazon\.|titan"),
    ("ai21", r"jamba|\bj2-"),
    ("bigcode", r"starcoder|octocoder"),
    ("allenai", r"\bolmo|tulu"),
    ("huggingface", r"smollm"),
    ("bytedance", r"doubao|\bseed-|seed-oss|bytedance"),
    ("baidu", r"ernie"),
    ("tencent", r"hunyuan"),
    ("xiaomi", r"\bmimo"),
    ("stepfun", r"\bstep-?[123]"),
    ("01ai", r"\byi-"),
    ("tii", r"falcon"),
    ("perplexity", r"sonar"),
    ("inclusionai", r"\bling-|\bring-"),
    ("meituan", r"longcat"),
    ("arcee", r"\barcee|trinity-"),
    ("liquid", r"\blfm"),
    ("servicenow", r"apriel"),
)

_FAMILY_RULES = tuple((family, re.compile(pattern)) for family, pattern in FAMILIES)


@functools.lru_cache(maxsize=1024)
def family_of(model: str) -> str:
    """Return the family that made a model, by its name, router alias or deployment id, or "" if it is unknown.

    Teachers of the student's own family do not vote on its steps.
    """
    name = model.lower().replace("_", "-")
    return next((family for family, rule in _FAMILY_RULES if rule.search(name)), "")
