"""Codex CLI rollouts (`~/.codex/sessions/**/rollout-*.jsonl`) and the output of `codex exec --json` as `Session`s.

A rollout is a line of response items, which are the items of the model's input, between events for the screen. It has
no message ids: an API message is a run of assistant items up to a token count or an answer. `compacted` records hold
the history that replaces everything before them. A rollback makes a branch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from composer_hub.harnesses import exit_code_in, harness_named
from composer_hub.ingest.assemble import TraceFacts
from composer_hub.ingest.documents import head_lines, json_lines
from composer_hub.ingest.foreign import (
    as_dict,
    as_text,
    dict_at,
    first_text,
    joined,
    list_at,
    shallow,
    text_at,
)
from composer_hub.ingest.readers.blocks import Blocks
from composer_hub.ingest.readers.codex_exec import ExecStream, is_first, without_lost_calls
from composer_hub.ingest.report import STREAM_LOG, FileReport
from composer_hub.ingest.tree import Node, build_session
from composer_hub.ingest.usage import usage_of
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag, Session, Usage

NAME = "codex"

RECORDS = {"session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state"}
SILENT_RECORDS = {"turn_context", "world_state", "inter_agent_communication_metadata", "session_state",
                  "token_usage_record"}  # fmt: skip
SILENT_ITEMS = {"ghost_snapshot", "other", "additional_tools", "configuration_update", "compaction_trigger"}
CALLS = {"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"}
PROVIDER_CALLS = {"web_search_call": "web_search", "image_generation_call": "image_generation"}
OUTPUTS = {"function_call_output", "custom_tool_call_output", "tool_search_output", "local_shell_call_output"}
EVENTS = {
    "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "agent_reasoning_section_break",
    "context_compacted", "collab_agent_interaction_begin", "collab_agent_interaction_end",
    "collab_agent_spawn_begin", "collab_agent_spawn_end", "collab_close_begin", "collab_close_end",
    "collab_waiting_begin", "collab_waiting_end", "dynamic_tool_call_request", "entered_review_mode",
    "exited_review_mode", "guardian_assessment", "image_generation_begin", "image_generation_end",
    "sub_agent_activity", "task_complete", "task_started", "thread_goal_updated", "thread_name_updated",
    "plan_update", "thread_settings_applied", "undo_completed", "undo_started", "user_message",
    "view_image_tool_call", "warning", "web_search_begin", "web_search_end", "exec_command_begin",
    "patch_apply_begin", "mcp_tool_call_begin",
}  # fmt: skip
CONTEXT_PREFIXES = ("<", "# AGENTS.md", "# Context from my IDE")
"""How user items that no person typed begin; a rollback counts the others."""

NOT_RECORDED = "[done by the provider; the result is not recorded]"

_HARNESS = harness_named(NAME)


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a rollout by the envelope of its records."""
    records = head_lines(head)
    if not records:  # the first record, with all instructions, is longer than the head
        return re.match(rb'\{"timestamp":"[^"]+",("ordinal":\d+,)?"type":"session_meta"', head) is not None
    enveloped = any(text_at(r, "type") in RECORDS and isinstance(r.get("payload"), dict) for r in records)
    return enveloped or any(r.get("record_type") == "state" or is_first(r) for r in records)


def is_stream(head: bytes) -> bool:
    """Recognize the output of `codex exec --json`."""
    return any(map(is_first, head_lines(head)))


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the session of a rollout or a stream."""
    rollout, stream = _Rollout(path, report), ExecStream()
    for number, record in json_lines(path, report):
        for one in stream.records(record):
            rollout.take(number, one)
    if stream.runs and rollout.nodes:
        rollout.nodes[0].inexact = rollout.nodes[0].inexact or STREAM_LOG
        without_lost_calls(rollout.nodes)
    if session := rollout.session():
        yield session


class _Rollout:
    """The chain of nodes while the file is read."""

    def __init__(self, path: Path, report: FileReport) -> None:
        self.path, self.report = path, report
        self.nodes: list[Node] = []
        self.meta: dict[str, Any] = {}
        self.model = ""
        self.cwd = ""
        self.turn = ""  # the API message that is still open
        self.owed: list[tuple[str, str]] = []  # (call, tool) of the provider's own calls in the open message
        self.chain = hashlib.sha256()  # of all messages so far: the same in every copy of this history
        self.prompts: list[str] = []  # the node before each thing a person typed
        self.context: str | None = None  # the node before the run of context items that ends the chain, if one does
        self.time = ""  # of the last record
        self.counted: Any = None  # the last count of all tokens
        self.flags: dict[str, ResultFlag] = {}  # call -> facts from events about its result

    # ---- records

    def take(self, number: int, record: dict[str, Any]) -> None:
        """File one record away."""
        kind, payload = text_at(record, "type"), record.get("payload")
        self.time = text_at(record, "timestamp") or self.time
        if not isinstance(payload, dict):
            self._bare(number, record, kind)
        elif kind == "response_item":
            self._item(number, payload)
        elif kind == "event_msg":
            self._event(number, payload)
        elif kind == "compacted":
            self._compacted(number, payload)
        elif kind == "inter_agent_communication":
            self._from_agent(payload)
        elif kind == "session_meta":
            self.meta = self.meta or payload  # a fork repeats the header of what it was forked from
        elif kind not in SILENT_RECORDS:
            self.report.unknown(kind, number)
        if kind == "turn_context" and isinstance(payload, dict):
            self.model = text_at(payload, "model") or self.model
            self.cwd = self.cwd or text_at(payload, "cwd")

    def _bare(self, number: int, record: dict[str, Any], kind: str) -> None:
        """Take a record of the first rollouts, which had no envelope."""
        if "record_type" in record:
            return
        if not kind and "id" in record:
            self.meta = self.meta or {**record, "base_instructions": {"text": record.get("instructions")}}
        else:
            self._item(number, record)

    def _item(self, number: int, item: dict[str, Any]) -> None:
        kind = text_at(item, "type")
        if kind == "message":
            self._message(item, number)
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind in CALLS:
            self._piece(Message("assistant", tool_calls=(_call(item, kind),)))
        elif kind in PROVIDER_CALLS:
            self._provider_call(item, kind, number)
        elif kind in OUTPUTS:
            self._output(item, number)
        elif kind == "agent_message":
            self._from_agent({**item, "content": self._text(item.get("content"), number)})
        elif kind in ("compaction", "compaction_summary", "context_compaction"):
            self._close()
            self._add(Node(self._id(), inexact="encrypted_compaction"))
        elif kind not in SILENT_ITEMS:
            self.report.unknown(f"response_item/{kind}", number)

    def _message(self, item: dict[str, Any], number: int) -> None:
        text, role = self._text(item.get("content"), number), item.get("role")
        if (communication := _communication(text)) is not None:
            self._from_agent(communication)
        elif role == "assistant":
            self._piece(Message("assistant", text))
        else:
            typed = role == "user" and not text.startswith(CONTEXT_PREFIXES)
            self._add_words(text, _has_image(item.get("content")), is_prompt=typed)

    def _from_agent(self, communication: dict[str, Any]) -> None:
        """Add another agent's message: the input begins a turn like a person's, in any role."""
        hidden = "[encrypted]" if communication.get("encrypted_content") else ""
        text = text_at(communication, "content") or hidden
        self._add_words(f"[{text_at(communication, 'author')}] {text}", is_prompt=True)

    def _reasoning(self, item: dict[str, Any]) -> None:
        plain = "\n".join(text_at(as_dict(part), "text") for part in list_at(item, "content"))
        status = "plain" if plain.strip() else "summary" if list_at(item, "summary") else "encrypted"
        self._piece(Message("assistant", reasoning_content=plain if status == "plain" else ""), status)

    def _provider_call(self, item: dict[str, Any], kind: str, number: int) -> None:
        call_id = first_text(item, "call_id", "id") or f"{kind}:{number}"
        arguments = item.get("action") if kind == "web_search_call" else {"prompt": item.get("revised_prompt")}
        self._piece(Message("assistant", tool_calls=(ToolCall(PROVIDER_CALLS[kind], shallow(arguments), call_id),)))
        self.owed.append((call_id, PROVIDER_CALLS[kind]))

    def _output(self, item: dict[str, Any], number: int) -> None:
        self._close()
        call_id, output = text_at(item, "call_id"), item.get("output", item.get("tools"))
        if item.get("type") == "tool_search_output":
            text = orjson.dumps(output).decode()
        else:
            text, code = _output_text(output if not isinstance(output, list) else self._text(output, number))
            if code is not None and (flag := self.flags.get(call_id, ResultFlag())).exit_code is None:
                self.flags[call_id] = dataclasses.replace(flag, exit_code=code)
        node = Node(self._id(), messages=(Message("tool", text, tool_call_id=call_id),))
        node.inexact = "image_left_out" if _has_image(output) else ""
        self._add(node)

    def _add_words(self, text: str, has_image: bool = False, *, is_prompt: bool) -> None:
        """Add a message of the user, the harness (developer items, context) or another agent; only prompts begin a
        turn.
        """
        self._close()
        before = self._last() if self.context is None else self.context
        if is_prompt:
            # A rollback also removes the context before a prompt, except for the session's first.
            self.prompts.append(before if self.prompts else self._last())
        if text:
            node = Node(self._id(), messages=(Message("user", text),))
            node.inexact = "image_left_out" if has_image else ""
            self._add(node)
            self.context = None if is_prompt else before

    # ---- events

    def _event(self, number: int, event: dict[str, Any]) -> None:
        kind = text_at(event, "type")
        call_id = text_at(event, "call_id")
        if kind == "token_count":
            self._close()
            self._count(dict_at(event, "info"))
        elif kind == "exec_command_end":
            self.flags[call_id] = _exec_flag(event)
        elif kind == "patch_apply_end":
            self.flags[call_id] = ResultFlag(is_error=_not(event.get("success")), status=_status(event.get("status")))
        elif kind == "mcp_tool_call_end":
            self.flags[call_id] = _mcp_flag(dict_at(event, "result"))
        elif kind == "dynamic_tool_call_response":
            self.flags[call_id] = ResultFlag(is_error=_not(event.get("success")))
        elif kind == "item_completed":
            self._completed(dict_at(event, "item"))
        elif kind == "turn_aborted":
            self._aborted(text_at(event, "reason"))
        elif kind == "thread_rolled_back":
            self._roll_back(event.get("num_turns"))
        elif kind in ("error", "stream_error"):
            self.report.add("provider_errors")
        elif kind not in EVENTS:
            self.report.unknown(f"event_msg/{kind}", number)

    def _count(self, info: dict[str, Any]) -> None:
        """Give the tokens of a model call to its message; Codex repeats the last count when a limit changes."""
        total, last = info.get("total_token_usage"), dict_at(info, "last_token_usage")
        node = next((node for node in reversed(self.nodes) if node.turn), None)
        if node is not None and total != self.counted:
            self.counted = total
            counts = {**last, "prompt_tokens": last.get("input_tokens"), "output": last.get("output_tokens")}
            node.usage = usage_of(counts, at=node.usage.at)

    def _completed(self, item: dict[str, Any]) -> None:
        """Take the typed result of 0.149 and later, which has one event kind for many."""
        call_id = text_at(item, "id")
        if item.get("type") == "CommandExecution":
            self.flags[call_id] = _exec_flag(item)
        elif item.get("type") == "FileChange":
            self.flags[call_id] = ResultFlag(status=_status(item.get("status")))
        elif item.get("type") == "McpToolCall":
            self.flags[call_id] = _mcp_flag({"Ok": item.get("result"), "Err": item.get("error")})

    def _aborted(self, reason: str) -> None:
        self._close()
        last = next((node for node in reversed(self.nodes) if node.turn), None)
        if last is not None and last is self.nodes[-1]:
            last.flags = (ResultFlag(status="interrupted", detail=reason),)

    def _roll_back(self, num_turns: Any) -> None:
        """Continue from before the last prompts; everything after them stays as a branch.

        Codex keeps the messages before the first prompt, however many turns are rolled back. Below a compaction, older
        prompts may be part of the new history, and the file does not record which of them remain.
        """
        self._close()
        count = num_turns if isinstance(num_turns, int) and num_turns > 0 else 0
        cut = next((node for node in reversed(self.nodes) if node.cut), None)
        if count > len(self.prompts) and cut is not None:
            self._branch(cut.node_id, "rolled_back_past_compaction")
        elif count and self.prompts:
            self._branch(self.prompts[-min(count, len(self.prompts))])
        del self.prompts[max(0, len(self.prompts) - count) :]

    def _branch(self, parent: str, inexact: str = "") -> None:
        self.nodes.append(Node(self._id(), parent, inexact=inexact))
        self.context = None

    def _compacted(self, number: int, payload: dict[str, Any]) -> None:
        self._close()
        history = payload.get("replacement_history")
        node = Node(self._id(), cut=True, logical_parent=self._last())
        if isinstance(history, list):
            inner = _Rollout(self.path, FileReport())
            for item in map(as_dict, history):
                inner._item(number, item)
            inner._close()
            node.messages = tuple(_grouped(inner.nodes))
            lost = inner.report.take_unread()
            node.inexact = next((one.inexact for one in inner.nodes if one.inexact), lost)
        else:
            summary = text_at(payload, "message")
            node.messages = (Message("user", summary),) if summary else ()
            node.inexact = "compacted_history_not_recorded"
        self.nodes.append(node)
        self.prompts.clear()
        self.context = None

    # ---- the chain

    def _piece(self, message: Message, reasoning_status: str = "absent") -> None:
        """Add an assistant item to the open API message, or open one."""
        if not self.turn:
            self.turn = self._digest("turn")
        node = Node(self._id(), messages=(message,), turn=self.turn, model=self.model, usage=Usage(at=self.time))
        node.reasoning_status = reasoning_status
        self._add(node)

    def _close(self) -> None:
        """End the open API message; what the provider itself did in it is answered here."""
        self.turn = ""
        owed, self.owed = self.owed, []
        for call_id, tool in owed:
            message = Message("tool", NOT_RECORDED, tool_call_id=call_id, name=tool)
            self._add(Node(self._id(), messages=(message,), inexact="provider_result_not_recorded"))

    def _add(self, node: Node) -> None:
        node.parent = self._last()
        unread = self.report.take_unread()
        node.inexact = node.inexact or unread
        self.nodes.append(node)
        self.context = None
        for message in node.messages:
            calls = "".join(call.call_id for call in message.tool_calls)
            self._digest(f"{message.role}\0{message.content}\0{calls}\0{message.tool_call_id}")

    def _digest(self, text: str) -> str:
        self.chain.update(text.encode("utf-8", "replace"))
        return self.chain.hexdigest()[:32]

    def _last(self) -> str:
        return self.nodes[-1].node_id if self.nodes else ""

    def _id(self) -> str:
        return str(len(self.nodes) + 1)

    def _text(self, content: Any, number: int) -> str:
        return Blocks(content, self.report, number).text

    # ---- the session

    def session(self) -> Session | None:
        """Return the session of all that was read."""
        self._close()
        for node in self.nodes:
            if not node.turn and len(node.messages) == 1 and (flag := self.flags.get(node.messages[0].tool_call_id)):
                node.flags = (flag,)
        git = dict_at(self.meta, "git")
        session_id = first_text(self.meta, "id", "session_id") or self.path.stem
        facts = TraceFacts(
            NAME,
            session_id,
            system_prompt=text_at(self.meta, "base_instructions", "text"),
            cwd=text_at(self.meta, "cwd") or self.cwd,
            repository=text_at(git, "repository_url"),
            parent_session_id=_parent_thread(self.meta),
            provenance={
                "harness_version": text_at(self.meta, "cli_version"),
                "git_branch": text_at(git, "branch"),
                "git_commit": text_at(git, "commit_hash"),
                "started_at": text_at(self.meta, "timestamp"),
                "forked_from": text_at(self.meta, "forked_from_id"),
            },
        )
        return build_session(self.nodes, facts, self.report)


def _parent_thread(meta: dict[str, Any]) -> str:
    """Return the thread that spawned this one; older headers say it only under their source."""
    spawn = dict_at(meta, "source", "subagent", "thread_spawn")
    return text_at(meta, "parent_thread_id") or text_at(spawn, "parent_thread_id")


def _communication(text: str) -> dict[str, Any] | None:
    """Return the text that one agent wrote to another.

    The harness writes such a message as JSON in the assistant's role.
    """
    if not text.startswith("{") or '"recipient"' not in text:
        return None
    try:
        value = as_dict(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None
    return value if {"author", "recipient", "content", "trigger_turn"} <= value.keys() else None


def _call(item: dict[str, Any], kind: str) -> ToolCall:
    call_id = first_text(item, "call_id", "id")
    if kind == "custom_tool_call":
        return ToolCall(text_at(item, "name"), {"input": text_at(item, "input")}, call_id)
    if kind == "local_shell_call":
        return ToolCall("local_shell", shallow(item.get("action")), call_id)
    namespace = text_at(item, "namespace")
    name = text_at(item, "name") or ("tool_search" if kind == "tool_search_call" else "")
    return ToolCall(f"{namespace}.{name}" if namespace else name, _arguments(item.get("arguments")), call_id)


def _arguments(raw: Any) -> Any:
    """Return the parsed arguments, or their raw text if it is not JSON."""
    if not isinstance(raw, str):
        return shallow(raw)
    try:
        return shallow(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return raw


def _output_text(output: Any) -> tuple[str, int | None]:
    """Return an output's text and its exit code, out of the three shapes an output has had."""
    if isinstance(output, dict):
        inner = output.get("content", output.get("text", output.get("output")))
        return _output_text(inner if isinstance(inner, (str, list)) else "")
    text = as_text(output)
    if text.startswith('{"output"'):
        try:
            value = as_dict(orjson.loads(text))
        except orjson.JSONDecodeError:
            return text, None
        code = dict_at(value, "metadata").get("exit_code")
        return text_at(value, "output"), code if isinstance(code, int) else None
    return text, exit_code_in(text, _HARNESS)


def _has_image(content: Any) -> bool:
    parts = content if isinstance(content, list) else [content]
    return any(text_at(as_dict(part), "type").endswith("image") for part in parts)


def _exec_flag(event: dict[str, Any]) -> ResultFlag:
    code = event.get("exit_code", event.get("exitCode"))
    return ResultFlag(exit_code=code if isinstance(code, int) else None, status=_status(event.get("status")))


def _mcp_flag(result: dict[str, Any]) -> ResultFlag:
    error = result.get("Err")
    if error:
        return ResultFlag(is_error=True, detail=str(error))
    return ResultFlag(is_error=dict_at(result, "Ok").get("isError") is True)


def _status(value: Any) -> str:
    return {"declined": "denied", "inProgress": ""}.get(as_text(value), as_text(value))


def _not(value: Any) -> bool | None:
    return not value if isinstance(value, bool) else None


def _grouped(nodes: list[Node]) -> list[Message]:
    """Return a replacement history as messages; the items of one API message are one message."""
    messages: list[Message] = []
    turn = ""
    for node in nodes:
        for message in node.messages:
            if node.turn and node.turn == turn:
                last = messages[-1]
                text = joined((last.content, message.content))
                messages[-1] = Message("assistant", text, last.tool_calls + message.tool_calls)
            elif message.content or message.tool_calls or not node.turn:
                messages.append(message)
                turn = node.turn
    return messages
