"""Aider's `.aider.chat.history.md`: consecutive chats as markdown.

In: `# aider chat started at`, `#### ` lines of the user, `> ` lines of the program, and the model's text between them.
Out: one session per chat with an answer of the model. System prompt, repository map and file contents are missing: no
prompt is exact. Edits are SEARCH/REPLACE blocks in the text; the program's lines after them are their result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.report import FileReport
from composer_hub.records import Message, stable_id
from composer_hub.session import ResultFlag, Session

NAME = "aider"
LOSSY = "markdown_log"

_STARTED = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_MODEL = re.compile(r"(?:Main model|Models?): (\S+?)(?:⚡)? with ")
_VERSION = re.compile(r"Aider v(\S+)")
_FENCE = re.compile(r"(`{3,})")
_FAILED = (
    ("SEARCH/REPLACE block failed to match", "edit_no_match"),
    ("SEARCH/REPLACE blocks failed to match", "edit_no_match"),
    ("did not conform to the edit format", "format_error"),
)
# Notices of the program about itself: not results of a step.
_NOTICE = re.compile(
    r"Tokens: |You can use /undo|Use /help|\^C|Git repo:|Repo-map:|Main model:|Models?: |Aider v|\S*aider( |$)"
)


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a history by the line that begins each chat."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().decode("utf-8", "replace")
    return bool(_STARTED.match(text))


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield one session per chat; chats without an answer are only counted."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, (started, lines) in enumerate(_chats(file, report)):
            chat = _read_chat(lines, report)
            session = chat.talk.session(
                source=NAME,
                session_id=stable_id(path.name, started, number, [text for _, text in chat.messages]),
                model=chat.model,
                provenance={"harness_version": chat.version, "started": started},
            )
            if session:
                yield session


def _chats(lines: Iterable[str], report: FileReport) -> Iterator[tuple[str, list[str]]]:
    """Split the file into chats."""
    started = ""
    chat: list[str] = []
    for line in lines:
        report.add("lines")
        if match := _STARTED.match(line):
            if chat:
                yield started, chat
            started, chat = match[1], []
        else:
            chat.append(line.rstrip("\n"))
    if chat:
        yield started, chat


@dataclass(slots=True)
class _AiderChat:
    talk: Conversation
    messages: list[tuple[str, str]]
    model: str = ""
    version: str = ""


def _read_chat(lines: list[str], report: FileReport) -> _AiderChat:
    talk = Conversation(report)
    talk.note(LOSSY)
    chat = _AiderChat(talk, [(who, text) for who, text in _blocks(lines) if text])
    before = ""
    for who, text in chat.messages:
        if who == "program":
            chat.model = (found[1] if (found := _MODEL.search(text)) else "") or chat.model
            chat.version = chat.version or (found[1] if (found := _VERSION.search(text)) else "")
            if before == "model":  # after a user's command it is that command's output
                _result(talk, text)
        elif who == "user":
            _ask(talk, text)
        else:
            talk.act(Message("assistant", text), model=chat.model)
        before = who
    return chat


def _ask(talk: Conversation, text: str) -> None:
    """Take the user's words; a command to the program never reaches the model."""
    if not text.startswith("/") or text.startswith(("/ask ", "/code ", "/architect ")):
        talk.say(Message("user", text))


def _result(talk: Conversation, text: str) -> None:
    """Return the program's lines after a step, without its notices about itself."""
    kept = "\n".join(line for line in text.split("\n") if not _NOTICE.match(line)).strip()
    if not kept:
        return
    kind = next((kind for words, kind in _FAILED if words in kept), "")
    talk.observe(Message("user", kept), ResultFlag(True, status="failed", detail=kind) if kind else None)


def _blocks(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield speaker and text; neighboring lines of one speaker are one block."""
    speaker = ""
    block: list[str] = []
    for who, text in _spoken(lines):
        if who != speaker and block:
            yield speaker, "\n".join(block).strip()
            block = []
        speaker = who
        block.append(text)
    if block:
        yield speaker, "\n".join(block).strip()


def _spoken(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Name the speaker of each line; quotes inside a fence of the model and blank lines continue its text."""
    who, fence = "model", ""
    for line in lines:
        mark = _FENCE.match(line.lstrip())
        if fence:
            fence = "" if mark and line.strip() == mark[1] and len(mark[1]) >= len(fence) else fence
        elif line.startswith("#### "):
            who = "user"
            yield who, line[5:].rstrip()
            continue
        elif line == ">" or line.startswith("> "):
            who = "program"
            yield who, line[2:].rstrip()
            continue
        elif line.strip():
            who = "model"
            fence = mark[1] if mark else ""
        yield who, line if who == "model" else line.strip()
