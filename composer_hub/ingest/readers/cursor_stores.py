"""Cursor's other files: the printed stream of `cursor-agent`, and the databases of its editor and its command line.

In: a file. Out: its sessions as the lines of a transcript, which `cursor.py` reads: `{"role", "message": {"content"}}`.

- `cursor-agent -p --output-format stream-json` prints a record per call when it ends, and texts once more when they are
  whole.
- The editor's `state.vscdb` holds a conversation as an ordered list of bubbles, each under its own key.
- The command line's `store.db` holds messages under their digests; a root lists the digests in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composer_hub.ingest.databases import opened, rows, tables_of
from composer_hub.ingest.documents import head_lines, json_lines
from composer_hub.ingest.foreign import (
    as_dict,
    as_int,
    as_text,
    dict_at,
    dicts,
    dicts_at,
    first_text,
    int_at,
    list_at,
    parsed,
    shallow_text,
    text_at,
)
from composer_hub.ingest.report import FileReport

Record = dict[str, Any]
SILENT = {"connection", "retry", "status", "interaction_query"}
_DIGEST = re.compile(rb"\x0a\x20([\x00-\xff]{32})")
_USER, _ASSISTANT = 1, 2


@dataclass
class StoredChat:
    """One session: its facts and the lines of its transcript."""

    session_id: str
    lines: list[Record] = field(default_factory=list)
    cwd: str = ""
    model: str = ""
    is_stream: bool = False


def is_stream(head: bytes) -> bool:
    """Recognize a stream by a call in Cursor's own form, or by its first record."""
    records = head_lines(head)
    if any(one.get("type") == "tool_call" and "tool_call" in one and "subtype" in one for one in records):
        return True
    first = records[0] if records else {}
    opens = first.get("type") == "system" and first.get("subtype") == "init" and "session_id" in first
    return opens and "tools" not in first and bool({"apiKeySource", "permissionMode"} & first.keys())


def has_store(head: bytes, path: Path) -> bool:
    """Recognize a database of the editor or of the command line."""
    tables = tables_of(head, path)
    return "cursorDiskKV" in tables or (tables.keys() >= {"meta", "blobs"} and "data" in tables["blobs"])


# ---------------------------------------------------------------------------------------------------------- stream


def of_stream(path: Path, report: FileReport) -> Iterator[StoredChat]:
    """Yield the session of a stream."""
    stored = StoredChat("", is_stream=True)
    for number, record in json_lines(path, report):
        kind = text_at(record, "type")
        stored.session_id = stored.session_id or text_at(record, "session_id")
        if kind == "system":
            stored.cwd, stored.model = text_at(record, "cwd"), text_at(record, "model")
        elif kind == "user":
            stored.lines.append({"role": "user", "message": record.get("message")})
        elif kind == "assistant":
            _add_text(stored.lines, record)
        elif kind == "thinking":
            if record.get("subtype") == "delta" and (text := text_at(record, "text")):
                _add(stored.lines, {"type": "thinking", "thinking": text, "is_delta": True})
        elif kind == "tool_call":
            if record.get("subtype") != "started":
                stored.lines += _call_lines(record, number)
        elif kind not in SILENT and kind != "result":
            report.unknown(kind, number)
    yield stored


def _add_text(lines: list[Record], record: Record) -> None:
    """Add a text or a delta of one; the whole text repeats its deltas."""
    content = dict_at(record, "message").get("content")
    text = content if isinstance(content, str) else "".join(text_at(block, "text") for block in dicts(content))
    last = _last_block(lines)
    if last.get("type") == "text" and last.get("is_delta") and text == last["text"]:
        last["is_delta"] = False
    elif text:
        is_delta = "timestamp_ms" in record and not record.get("model_call_id")
        _add(lines, {"type": "text", "text": text, "is_delta": is_delta})


def _last_block(lines: list[Record]) -> Record:
    """Return the last block of the message that is still being written."""
    if not lines or not lines[-1].get("is_open"):
        return {}
    block: Record = lines[-1]["message"]["content"][-1]
    return block


def _add(lines: list[Record], block: Record) -> None:
    last, words = _last_block(lines), "thinking" if block["type"] == "thinking" else "text"
    if last and last["type"] == block["type"] and last["is_delta"] and block["is_delta"]:
        last[words] += block[words]
    elif last:
        lines[-1]["message"]["content"].append(block)
    else:
        lines.append({"role": "assistant", "message": {"content": [block]}, "continues": True, "is_open": True})


def _call_lines(record: Record, number: int) -> Iterator[Record]:
    """Yield a call and its result as the lines of a transcript."""
    body = dict_at(record, "tool_call")
    call_id = text_at(record, "call_id") or text_at(body, "toolCallId") or f"line-{number}"
    tool = dict_at(body, "tool")
    name = text_at(tool, "case") or next((key for key in body if key.endswith("ToolCall")), "")
    value = dict_at(tool, "value") or dict_at(body, name)
    function = dict_at(body, "function")
    use = {
        "type": "tool_use",
        "id": call_id,
        "name": name.removesuffix("ToolCall") or text_at(function, "name"),
        "input": value.get("args", parsed(function.get("arguments"))),
    }
    turn = text_at(record, "model_call_id")
    yield {"role": "assistant", "message": {"content": [use]}, "continues": True, "turn": turn}
    result = value.get("result", function.get("result"))
    if result is not None:
        yield {"role": "user", "message": {"content": [_result_block(call_id, as_dict(result) or {"success": result})]}}


def _result_block(call_id: str, result: Record) -> Record:
    """Return a result under its outcome: success, failure (of a command), error, rejected, or a denial."""
    outcome = next(iter(result), "")
    value = result.get(outcome)
    words = as_dict(value)
    code = int_at(words, "exitCode")
    values = [words.get(key) for key in ("stdout", "stderr", "output", "content", "error", "message", "reason")]
    text = "\n".join(one for one in values if isinstance(one, str) and one)
    block: Record = {"type": "tool_result", "tool_use_id": call_id, "content": text or _text(value), "exit_code": code}
    if outcome == "rejected" or "ermission" in outcome:
        block["status"] = "rejected" if outcome == "rejected" else "denied"
    elif outcome != "success" and code is None:
        block["is_error"] = True
    return block


def _text(value: Any) -> str:
    return value if isinstance(value, str) else shallow_text(value) if value else ""


# ------------------------------------------------------------------------------------------------------- databases


def of_database(path: Path, report: FileReport) -> Iterator[StoredChat]:
    """Yield the sessions of a database."""
    with opened(path) as database:
        tables = {row["name"] for row in rows(database, "SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "cursorDiskKV" not in tables:
            yield from _of_blobs(database, path, report)
            return
        for row in rows(database, "SELECT key, value FROM cursorDiskKV WHERE key LIKE 'composerData:%' ORDER BY key"):
            report.add("records")
            composer = as_dict(parsed(_text_of(row["value"])))
            composer_id = row["key"].partition(":")[2]
            found = rows(
                database,
                "SELECT key, value FROM cursorDiskKV WHERE key >= ? AND key < ?",
                f"bubbleId:{composer_id}:",
                f"bubbleId:{composer_id};",
            )
            bubbles = {one["key"].rpartition(":")[2]: as_dict(parsed(_text_of(one["value"]))) for one in found}
            yield _of_composer(composer_id, composer, bubbles, report)


def _text_of(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else as_text(value)


def _of_composer(composer_id: str, composer: Record, bubbles: dict[str, Record], report: FileReport) -> StoredChat:
    place = dict_at(composer, "workspaceIdentifier", "uri")
    stored = StoredChat(composer_id, cwd=first_text(place, "fsPath", "path"))
    stored.model = text_at(composer, "modelConfig", "modelName")
    headers = list(dicts_at(composer, "fullConversationHeadersOnly")) or list(dicts_at(composer, "conversation"))
    for header in headers:
        bubble = bubbles.get(text_at(header, "bubbleId"), header if "text" in header else {})
        report.add("records")
        kind = as_int(bubble.get("type", header.get("type")))
        if not bubble:
            report.corrupt(0, f"conversation {composer_id} lacks the bubble {header.get('bubbleId')}.")
        elif kind == _USER:
            stored.lines.append({"role": "user", "message": {"content": text_at(bubble, "text")}})
        elif kind == _ASSISTANT:
            stored.lines += _bubble_lines(bubble)
        else:
            report.unknown(f"bubble of type {kind}")
    return stored


def _bubble_lines(bubble: Record) -> Iterator[Record]:
    """Yield an assistant's bubble, which is a text, a thought or a call with its result."""
    model = dict_at(bubble, "modelInfo").get("modelName") or bubble.get("modelName")
    thought = text_at(bubble, "thinking", "text")
    tool = dict_at(bubble, "toolFormerData")
    blocks: list[Record] = [{"type": "thinking", "thinking": thought}] if thought else []
    if text := text_at(bubble, "text"):
        blocks.append({"type": "text", "text": text})
    if name := text_at(tool, "name"):
        arguments = parsed(tool.get("rawArgs")) or parsed(tool.get("params"))
        blocks.append({"type": "tool_use", "id": tool.get("toolCallId"), "name": name, "input": arguments})
    if blocks:
        # A turn of the model is several bubbles: thought, text, calls.
        turn = text_at(tool, "modelCallId")
        yield {"role": "assistant", "message": {"content": blocks}, "model": model, "continues": True, "turn": turn}
    status, decision = text_at(tool, "status"), text_at(tool, "userDecision")
    if name and (tool.get("result") or status in ("error", "cancelled") or decision == "rejected"):
        yield {"role": "user", "message": {"content": [_former_result(tool, status, decision)]}}


def _former_result(tool: Record, status: str, decision: str) -> Record:
    result = parsed(tool.get("result"))
    words = as_dict(result)
    text = first_text(words, "output", "contents", "error") or _text(tool.get("result")) or _text(tool.get("error"))
    block: Record = {"type": "tool_result", "tool_use_id": tool.get("toolCallId"), "content": text}
    block["exit_code"] = next(
        (code for key in ("exitCodeV2", "exitCode") if (code := int_at(words, key)) is not None), None
    )
    if decision == "rejected":
        block["status"] = "rejected"
    elif status in ("error", "cancelled"):
        block |= {"is_error": True} if status == "error" else {"status": "cancelled"}
    return block


def _of_blobs(database: Any, path: Path, report: FileReport) -> Iterator[StoredChat]:
    """Yield the session of the command line's store, in the order of its newest root."""
    meta: Record = {}
    for row in rows(database, "SELECT key, value FROM meta"):
        meta |= as_dict(parsed(_unhexed(row["value"])))
    stored = StoredChat(text_at(meta, "agentId") or path.parent.name, model=text_at(meta, "lastUsedModel"))
    root = _blob(database, text_at(meta, "latestRootBlobId"))
    for digest in _DIGEST.findall(root):
        report.add("records")
        message = parsed(_blob(database, digest.hex()).decode("utf-8", "replace"))
        if isinstance(message, dict) and "role" in message:
            stored.lines += _message_lines(message, report)
        else:
            report.unknown("blob that is not a message")
    yield stored


def _unhexed(value: Any) -> str:
    text = _text_of(value)
    try:
        return bytes.fromhex(text).decode("utf-8", "replace")
    except ValueError:
        return text


def _blob(database: Any, digest: str) -> bytes:
    for row in rows(database, "SELECT data FROM blobs WHERE id = ?", digest):
        data = row["data"]
        return data if isinstance(data, bytes) else as_text(data).encode()
    return b""


def _message_lines(message: Record, report: FileReport) -> Iterator[Record]:
    """Yield a message in the shape of the AI SDK as the lines of a transcript."""
    role, content = text_at(message, "role"), message.get("content")
    if role == "system":
        yield {"role": "system", "message": {"content": content}}
    elif role == "tool":
        for block in dicts(content):
            result = block.get("result", block.get("output"))
            text = _text(result) or _text(list_at(block, "experimental_content"))
            yield {"role": "user", "message": {"content": [{**block, "type": "tool_result", "content": text}]}}
    elif role in ("user", "assistant"):
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        yield {"role": role, "message": {"content": [_block(block) for block in dicts(blocks)]}}
    else:
        report.unknown(f"role {role}")


def _block(block: Record) -> Record:
    kind = block.get("type")
    if kind == "tool-call":
        return {**block, "name": block.get("toolName"), "input": block.get("args", block.get("input"))}
    return {**block, "type": "thinking"} if kind in ("reasoning", "redacted-reasoning") else block
