"""SWE-agent trajectories (.traj, 0.x and 1.x): JSON with `trajectory`, `history` and `info`.

In: one document per file; a retry run has several `attempts`. Out: one session per attempt. 1.x records each step's
`query`, the model's exact input, also for requeries after a format error. Older logs have only the `history`, which
history processors may have shortened for the model.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.conversation import Conversation
from composer_hub.ingest.documents import head_records, read_document
from composer_hub.ingest.foreign import (
    as_dict,
    as_text,
    chat_calls,
    content_text,
    dict_at,
    dicts,
    dicts_at,
    joined,
    list_at,
    parsed,
    text_at,
)
from composer_hub.ingest.report import FileReport
from composer_hub.records import Message
from composer_hub.session import ResultFlag, Session

NAME = "swe_agent"
PROCESSED = "history_processed"
"""History processors may have shortened what the model read, and the log does not say."""

_EXIT = re.compile(r"Exit(?:ed)? (?:due to|because)\b")
"""How the harness begins the answer that it writes itself when it ends a run: out of money, of context, of patience."""
_ERROR_CODE = re.compile(r"error_code=(\w+)")
# Words of the default templates of 1.x for each code; custom templates have only the bracketed form.
_ERROR_TEXTS = (
    ("did not use any tool calls", "missing"),
    ("multiple tool calls", "multiple"),
    ("not an allowed argument", "unexpected_arg"),
    ("not valid JSON", "invalid_json"),
)


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a trajectory by its steps, or by a history whose messages name their agent."""
    document = next(iter(head_records(head)), {})
    steps = next(dicts_at(document, "trajectory"), {})
    history = next(dicts_at(document, "history"), {})
    return {"action", "observation", "response"} <= steps.keys() or {"role", "content", "agent"} <= history.keys()


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield a session an attempt."""
    document = as_dict(read_document(path, report))
    attempts = list(dicts_at(document, "attempts")) or [document]
    for number, attempt in enumerate(attempts):
        run = _Attempt({**document, **attempt}, path, report, number if len(attempts) > 1 else None)
        if session := run.session():
            yield session


class _Attempt:
    def __init__(self, document: dict[str, Any], path: Path, report: FileReport, attempt: int | None) -> None:
        self.trajectory = list(dicts_at(document, "trajectory"))
        self.history = list(dicts_at(document, "history"))
        self.info = dict_at(document, "info")
        self.config = as_dict(parsed(document.get("replay_config")))
        self.path, self.attempt = path, attempt
        self.talk = Conversation(report, interning=True)

    def session(self) -> Session | None:
        whole = any("query" in step or "messages" in step for step in self.trajectory)
        if whole:
            self._read_queries()
        else:
            self._read_history()
        name = text_at(self.config, "problem_statement", "id") or self.path.stem
        state = as_dict(parsed(self.trajectory[0].get("state"))) if self.trajectory else {}
        return self.talk.session(
            source=NAME,
            name=name if self.attempt is None else f"{name}.{self.attempt}",
            whole=whole,
            model=text_at(self.config, "agent", "model", "name"),
            cwd=text_at(state, "working_dir"),
            repository=text_at(self.config, "env", "repo", "repo_name"),
            provenance={
                "harness_version": text_at(self.info, "swe_agent_version"),
                "exit_status": text_at(self.info, "exit_status"),
            },
        )

    def _read_history(self) -> None:
        self.talk.note(PROCESSED)
        for entry in self.history:
            self._read_entry(entry)

    def _read_entry(self, entry: dict[str, Any]) -> None:
        message = _message(entry)
        if _acts(entry):
            self.talk.act(message)
        elif message.role == "tool":
            self.talk.answer(message)
        elif message.role == "user" and self.talk.drafts and not entry.get("is_demo"):
            self.talk.observe(message)
        else:
            self.talk.say(message)

    def _read_queries(self) -> None:
        """Take each step's prompt from its query, and its calls and results from the history."""
        kept = iter(self._kept_actions())
        action, results = next(kept, (None, []))
        for number, step in enumerate(self.trajectory):
            if _is_exit(step, text_at(step, "response")):
                continue
            prompt = [self.talk.intern(_message(entry)) for entry in self._query(number)]
            is_same = action is not None and action.content == text_at(step, "response")
            message = action if is_same and action else Message("assistant", text_at(step, "response"))
            draft = self.talk.act(message, prompt=prompt, reason="" if prompt else "no_query")
            if is_same:
                for result in results:
                    self.talk.answer_to(draft, result)
                action, results = next(kept, (None, []))
            elif complaint := self._complaint(number):
                self.talk.answer_to(draft, complaint, _format_error(complaint.content))

    def _query(self, number: int) -> list[dict[str, Any]]:
        """Return a step's input; 1.0 wrote `messages` after the step instead, which is the next step's input."""
        if query := [entry for entry in dicts_at(self.trajectory[number], "query") if entry]:
            return query
        if number:
            return list(dicts_at(self.trajectory[number - 1], "messages"))
        first = (n for n, entry in enumerate(self.history) if _acts(entry))
        return self.history[: next(first, 0)] if "messages" in self.trajectory[0] else []

    def _kept_actions(self) -> Iterator[tuple[Message, list[Message]]]:
        """Yield the assistant messages of the history, each with the messages up to the next one."""
        action: Message | None = None
        results: list[Message] = []
        for entry in self.history:
            message = _message(entry)
            if _acts(entry):
                if action:
                    yield action, results
                action, results = message, []
            elif action:
                results.append(message)
        if action:
            yield action, results

    def _complaint(self, number: int) -> Message | None:
        """Return the harness's answer to a response that it did not run: the end of the next step's query."""
        following = self._query(number + 1) if number + 1 < len(self.trajectory) else []
        return _message(following[-1]) if following and following[-1].get("role") == "user" else None


def _acts(entry: dict[str, Any]) -> bool:
    is_reply = entry.get("role") == "assistant" and not entry.get("is_demo")
    return is_reply and not _is_exit(entry, content_text(entry.get("content")))


def _is_exit(record: dict[str, Any], text: str) -> bool:
    """Recognize an answer that the harness wrote: the query is empty, or it names the reason for its end."""
    if "query" in record and not any(dicts(record["query"])):
        return True
    return bool(_EXIT.match(text)) and not record.get("action") and not record.get("tool_calls")


def _message(entry: dict[str, Any]) -> Message:
    role = text_at(entry, "role")
    ids = list_at(entry, "tool_call_ids")
    thinking = (text_at(block, "thinking") for block in dicts_at(entry, "thinking_blocks"))
    return Message(
        role=role if role in ("system", "assistant", "tool") else "user",
        content=content_text(entry.get("content")),
        tool_calls=chat_calls(_literal(entry.get("tool_calls"))) if role == "assistant" else (),
        tool_call_id=as_text(ids[0]) if role == "tool" and ids else "",
        reasoning_content=joined(thinking) if role == "assistant" else "",
    )


def _literal(calls: Any) -> Any:
    """Read calls that an old version wrote as the text of a Python list."""
    if not isinstance(calls, str):
        return calls
    try:
        return ast.literal_eval(calls)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _format_error(text: str) -> ResultFlag:
    match = _ERROR_CODE.search(text)
    code = match.group(1) if match else next((code for words, code in _ERROR_TEXTS if words in text), "")
    return ResultFlag(is_error=True, status="failed", detail=f"format_error {code}".rstrip())
