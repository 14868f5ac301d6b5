"""The output of `codex exec --json` as records of a rollout.

An item that starts is a call, and one that is completed is its result. Codex prints neither what the user typed nor
calls that it refused, and of a change of files only the paths.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator
from typing import Any

from composer_hub.ingest.foreign import dict_at, dicts_at, shallow_text, text_at
from composer_hub.ingest.tree import Node

Record = dict[str, Any]

NOT_RECORDED = "[the result is not recorded]"
SILENT = {"turn.started", "turn.completed", "item.updated"}
SILENT_ITEMS = {"todo_list"}
_LOGIN_SHELL = 3  # words of `/bin/bash -lc '…'`


def is_first(record: Record) -> bool:
    """Recognize the record that opens a stream."""
    return record.get("type") == "thread.started" and isinstance(record.get("thread_id"), str)


class ExecStream:
    """The items that were started, and what the stream lost."""

    def __init__(self) -> None:
        self.runs = 0  # in this file: a resumed session numbers its items from 0 again
        self._asked: set[str] = set()
        self._has_spoken = False  # since the last call

    def records(self, record: Record) -> Iterator[Record]:
        """Yield the records of a rollout for one of the stream; others stay as they are."""
        self.runs += is_first(record)
        kind, item = text_at(record, "type"), dict_at(record, "item")
        if not self.runs:
            yield record
        elif is_first(record):
            yield {"type": "session_meta", "payload": {"id": record["thread_id"]}}
        elif kind in ("turn.failed", "error") or item.get("type") == "error":
            yield {"type": "event_msg", "payload": {"type": "error"}}
        elif kind in ("item.started", "item.completed"):
            if item.get("type") not in SILENT_ITEMS:
                yield from self._item(item, is_done=kind == "item.completed")
        elif kind not in SILENT:
            yield {"type": kind, "payload": {}}

    def _item(self, item: Record, *, is_done: bool) -> Iterator[Record]:
        kind, call_id = (
            text_at(item, "type"),
            f"{text_at(item, 'id')}{f'#{self.runs}' if self.runs > 1 else ''}",
        )
        call = _call(item)
        if kind == "web_search" and not is_done:  # its words are not known yet
            return
        if call is not None:
            self._has_spoken = False
            if call_id not in self._asked:
                self._asked.add(call_id)
                yield _response({**call, "call_id": call_id})
            if is_done and kind != "web_search":
                yield from _result(item, call_id)
        elif not is_done:
            return
        elif kind == "agent_message":
            yield from self._next_message()
            self._has_spoken = True
            content = [{"type": "output_text", "text": item.get("text")}]
            yield _response({"type": "message", "role": "assistant", "content": content})
        elif kind == "reasoning":
            yield from self._next_message()
            yield _response({"type": "reasoning", "summary": [{"type": "summary_text", "text": item.get("text")}]})
        else:
            yield {"type": f"item/{kind}", "payload": {}}

    def _next_message(self) -> Iterator[Record]:
        """End the API message if it has its text."""
        if self._has_spoken:
            self._has_spoken = False
            yield {"type": "event_msg", "payload": {"type": "token_count"}}


def without_lost_calls(nodes: list[Node]) -> None:
    """Take the steps from messages that have no call although the model continued: Codex refused the call."""
    turns: dict[str, list[Node]] = {}
    for node in nodes:
        if node.turn:
            turns.setdefault(node.turn, []).append(node)
    for node, after in itertools.pairwise(nodes):
        if node.turn and after.turn and node.turn != after.turn:
            for piece in turns[node.turn]:
                piece.is_target = False


def _response(item: Record) -> Record:
    return {"type": "response_item", "payload": item}


def _call(item: Record) -> Record | None:
    """Return the call that an item shows, or None."""
    kind = item.get("type")
    if kind == "command_execution":
        return {
            "type": "function_call",
            "name": "shell",
            "arguments": {"command": _words(text_at(item, "command"))},
        }
    if kind == "file_change":
        return {"type": "function_call", "name": "apply_patch", "arguments": {"changes": item.get("changes")}}
    if kind == "mcp_tool_call":
        name = f"mcp__{text_at(item, 'server')}__{text_at(item, 'tool')}"
        return {"type": "function_call", "name": name, "arguments": dict_at(item, "arguments")}
    if kind == "web_search":
        return {"type": "web_search_call", "action": {"query": item.get("query")}}
    return None


def _words(command: str) -> list[str] | str:
    """Return a command as the shell tool takes it, if Codex joined `bash -lc` and the script into one line."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    return words if len(words) == _LOGIN_SHELL and words[1] in ("-lc", "-c") else command


def _result(item: Record, call_id: str) -> Iterator[Record]:
    """Yield the output of an item and the event with its facts."""
    kind, error = item.get("type"), text_at(item, "error", "message")
    event: Record = {"type": "exec_command_end", "status": item.get("status"), "exit_code": item.get("exit_code")}
    output = text_at(item, "aggregated_output")
    if kind == "mcp_tool_call":
        result = dict_at(item, "result")
        texts = [text_at(part, "text") or shallow_text(part) for part in dicts_at(result, "content")]
        output = error or "\n".join(texts)
        event = {
            "type": "mcp_tool_call_end",
            "result": {"Err": error, "Ok": {"isError": item.get("status") == "failed"}},
        }
    elif kind == "file_change":
        event = {"type": "patch_apply_end", "status": item.get("status"), "success": item.get("status") != "failed"}
        output = NOT_RECORDED
    yield _response({"type": "function_call_output", "call_id": call_id, "output": output})
    yield {"type": "event_msg", "payload": {**event, "call_id": call_id}}
