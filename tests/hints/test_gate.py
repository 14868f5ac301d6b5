"""The gate of error sites and hints: sites judged by reading, in eight formats, and the shares that must be right."""

# ruff: noqa: E501  # a line of a log is one line

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from composer_hub.errors.find import find_errors
from composer_hub.hints import write_hints
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.sources import source_named
from tests.hints.judged import SHELL, TOOLS

MIN_RIGHT = 0.97
MIN_SITES = 200
MIN_HINTS = 8
MIN_BLAMED = 60  # of the sites that readers blamed on the model; the others have no proof


@dataclass(frozen=True)
class Call:
    """A call as a harness logs it: `code` only for shells."""

    tool: str
    arguments: dict[str, Any]
    text: str
    failed: bool
    code: int | None = None


def claude_code(calls: list[Call]) -> str:
    lines: list[dict[str, Any]] = [line("u", None, "user", {"content": "go"})]
    for n, call in enumerate(calls):
        text = f"Exit code {call.code}\n{call.text}" if call.code else call.text
        said = {"type": "tool_use", "id": f"t{n}", "name": call.tool, "input": call.arguments}
        back = {"type": "tool_result", "tool_use_id": f"t{n}", "content": text, "is_error": call.failed}
        lines.append(
            line(f"a{n}", lines[-1]["uuid"], "assistant", {"id": f"m{n}", "model": "claude-x", "content": [said]})
        )
        lines.append(line(f"r{n}", f"a{n}", "user", {"content": [back]}))
    return jsonl(lines)


def line(uuid: str, parent: str | None, kind: str, message: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"uuid": uuid, "parentUuid": parent, "sessionId": "S", "type": kind, "message": message, **more}


def qwen_code(calls: list[Call]) -> str:
    lines = [line("u", None, "user", {"role": "user", "parts": [{"text": "go"}]})]
    for n, call in enumerate(calls):
        text = gemini_output(call)
        asked = {"functionCall": {"id": f"t{n}", "name": call.tool, "args": call.arguments}}
        back = {"functionResponse": {"id": f"t{n}", "name": call.tool, "response": {"output": text}}}
        status = "error" if call.failed and call.code is None else "success"
        lines.append(line(f"a{n}", lines[-1]["uuid"], "assistant", {"role": "model", "parts": [asked]}, model="qwen3"))
        lines.append(
            line(
                f"r{n}",
                f"a{n}",
                "tool_result",
                {"role": "user", "parts": [back]},
                toolCallResult={"callId": f"t{n}", "status": status},
            )
        )
    return jsonl(lines)


def gemini_output(call: Call) -> str:
    if call.code is None:
        return call.text
    shown = call.text or "(empty)"
    command = call.arguments.get("command")
    return f"Command: {command}\nDirectory: (root)\nOutput: {shown}\nError: (none)\nExit Code: {call.code}\nSignal: 0\nProcess Group PGID: 7"


def gemini(calls: list[Call]) -> str:
    lines: list[dict[str, Any]] = [
        {"sessionId": "S", "projectHash": "f" * 64, "kind": "main"},
        {"id": "u", "type": "user", "content": "go"},
    ]
    for n, call in enumerate(calls):
        status = (
            "cancelled" if "Cancelled" in call.text else "error" if call.failed and call.code is None else "success"
        )
        back = [{"functionResponse": {"id": f"t{n}", "name": call.tool, "response": {"output": gemini_output(call)}}}]
        asked = {"id": f"t{n}", "name": call.tool, "args": call.arguments, "status": status, "result": back}
        lines.append({"id": f"g{n}", "type": "gemini", "content": "", "model": "gemini-3", "toolCalls": [asked]})
    return jsonl(lines)


def codex(calls: list[Call]) -> str:
    def item(**payload: Any) -> dict[str, Any]:
        return {"timestamp": "t", "type": "response_item", "payload": payload}

    lines = [{"timestamp": "t", "type": "session_meta", "payload": {"id": "S", "cwd": "/w"}},
             item(type="message", role="user", content=[{"type": "input_text", "text": "go"}])]  # fmt: skip
    for n, call in enumerate(calls):
        text = (
            call.text
            if call.code is None
            else f"Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code {call.code}\nOriginal token count: 9\nOutput:\n{call.text}\n"
        )
        if call.tool == "apply_patch":
            lines.append(item(type="custom_tool_call", name=call.tool, input=call.arguments["input"], call_id=f"t{n}"))
            lines.append(item(type="custom_tool_call_output", call_id=f"t{n}", output=text))
        else:
            lines.append(
                item(type="function_call", name=call.tool, arguments=json.dumps(call.arguments), call_id=f"t{n}")
            )
            lines.append(item(type="function_call_output", call_id=f"t{n}", output=text))
    return jsonl(lines)


def pi(calls: list[Call]) -> str:
    def entry(name: str, parent: str | None, **message: Any) -> dict[str, Any]:
        return {
            "type": "message",
            "id": name,
            "parentId": parent,
            "timestamp": "t",
            "message": {"timestamp": 1, **message},
        }

    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": "S", "timestamp": "t", "cwd": "/w"},
        entry("u", None, role="user", content="go"),
    ]
    for n, call in enumerate(calls):
        text = f"{call.text}\n\nCommand exited with code {call.code}" if call.code else call.text
        said = [{"type": "toolCall", "id": f"t{n}", "name": call.tool, "arguments": call.arguments}]
        lines.append(
            entry(f"a{n}", lines[-1]["id"], role="assistant", content=said, model="claude-x", stopReason="toolUse")
        )
        lines.append(
            entry(
                f"r{n}",
                f"a{n}",
                role="toolResult",
                toolCallId=f"t{n}",
                toolName=call.tool,
                content=[{"type": "text", "text": text}],
                isError=call.failed,
            )
        )
    return jsonl(lines)


def openhands_v1(calls: list[Call]) -> str:
    lines: list[dict[str, Any]] = [{"id": "s", "source": "agent", "kind": "SystemPromptEvent", "system_prompt": {"type": "text", "text": "You are."}, "tools": []},
             {"id": "u", "source": "user", "kind": "MessageEvent", "llm_message": {"role": "user", "content": [{"type": "text", "text": "go"}]}}]  # fmt: skip
    for n, call in enumerate(calls):
        asked = {"id": f"t{n}", "name": call.tool, "arguments": json.dumps(call.arguments)}
        lines.append(
            {
                "id": f"a{n}",
                "source": "agent",
                "kind": "ActionEvent",
                "thought": [],
                "action": {"kind": "X"},
                "tool_name": call.tool,
                "tool_call_id": f"t{n}",
                "tool_call": asked,
                "llm_response_id": f"l{n}",
            }
        )
        back: dict[str, Any] = {
            "content": [{"type": "text", "text": call.text}],
            "is_error": call.failed and call.code is None,
            "kind": "TerminalObservation",
        }
        if call.code is not None:
            back |= {"exit_code": call.code, "metadata": {"exit_code": call.code, "working_dir": "/w"}}
        lines.append(
            {
                "id": f"o{n}",
                "source": "environment",
                "kind": "ObservationEvent",
                "tool_name": call.tool,
                "tool_call_id": f"t{n}",
                "action_id": f"a{n}",
                "observation": back,
            }
        )
    return jsonl(lines)


def opencode(calls: list[Call]) -> str:
    info = {"id": "ses", "projectID": "p", "directory": "/w", "version": "1", "time": {"created": 1}}
    messages: list[dict[str, Any]] = [{"info": {"id": "u", "role": "user"}, "parts": [{"type": "text", "text": "go"}]}]
    for n, call in enumerate(calls):
        state: dict[str, Any] = {
            "status": "completed",
            "input": call.arguments,
            "output": call.text,
            "metadata": {"exit": call.code} if call.code is not None else {},
        }
        if call.failed and call.code is None:
            state = {"status": "error", "input": call.arguments, "error": call.text}
        part = {"type": "tool", "tool": call.tool, "callID": f"t{n}", "state": state}
        messages.append({"info": {"id": f"a{n}", "role": "assistant", "modelID": "m"}, "parts": [part]})
    return json.dumps({"info": info, "messages": messages})


def swe_agent(calls: list[Call]) -> str:
    system = [{"role": "system", "content": "You are.", "agent": "main", "message_type": "system_prompt"}]
    history, trajectory = list(system), []
    for n, call in enumerate(calls):
        asked = {
            "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
            "id": f"t{n}",
            "type": "function",
        }
        query = [*history]
        history.append(
            {
                "role": "assistant",
                "content": "",
                "thought": "",
                "action": "x",
                "agent": "main",
                "message_type": "action",
                "tool_calls": [asked],
            }
        )  # type: ignore[dict-item]
        history.append(
            {
                "role": "tool",
                "content": [{"type": "text", "text": call.text}],
                "agent": "main",
                "message_type": "observation",
                "tool_call_ids": [f"t{n}"],
            }
        )  # type: ignore[dict-item]
        trajectory.append(
            {
                "action": "x",
                "observation": call.text,
                "response": "",
                "thought": "",
                "query": query,
                "state": {},
                "extra_info": {},
            }
        )
    return json.dumps({"trajectory": trajectory, "history": history, "info": {}, "environment": "main"})


def jsonl(lines: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(one) for one in lines)


Write = Callable[[list[Call]], str]
SHELLS: dict[str, tuple[Write, str, str]] = {
    "claude_code": (claude_code, "Bash", "command"),
    "codex": (codex, "exec_command", "cmd"),
    "gemini": (gemini, "run_shell_command", "command"),
    "qwen_code": (qwen_code, "run_shell_command", "command"),
    "pi": (pi, "bash", "command"),
    "openhands_v1": (openhands_v1, "terminal", "command"),
    "opencode": (opencode, "bash", "command"),
}
WRITERS: dict[str, Write] = {name: write for name, (write, _, _) in SHELLS.items()} | {"swe_agent": swe_agent}


@dataclass(frozen=True)
class Verdict:
    """What the rules and writers made of one judged case."""

    harness: str
    case: str
    expected: tuple[str, str]
    found: tuple[str, str]
    hint: str
    is_hint_right: bool
    is_known: bool  # a later call, or the message itself, says what is right

    @property
    def is_kind_right(self) -> bool:
        return self.found[0] == self.expected[0]


def verdicts(folder: Path) -> Iterator[Verdict]:
    names = list(SHELLS)
    for number, case in enumerate(SHELL):
        for harness in (names[number % len(names)], names[(number + 3) % len(names)]):
            write, tool, key = SHELLS[harness]
            calls = [
                Call(
                    tool,
                    {key: case.call},
                    case.output,
                    bool(case.code),
                    case.code or (None if harness in ("claude_code", "pi") else 0),
                )
            ]
            calls += (
                [Call(tool, {key: case.then}, "done", False, None if harness in ("claude_code", "pi") else 0)]
                if case.then
                else []
            )
            yield judge(folder, harness, write(calls), case.call, (case.kind, case.blame), case.words, case.never)
    for harness, tool, arguments, failed, text, kind, blame, words in TOOLS:
        log = WRITERS[harness]([Call(tool, arguments, text, failed)])
        yield judge(folder, harness, log, f"{tool} {text}", (kind, blame), words, ())


def judge(
    folder: Path,
    harness: str,
    log: str,
    case: str,
    expected: tuple[str, str],
    words: tuple[str, ...],
    never: tuple[str, ...],
) -> Verdict:
    path = folder / ("S.traj" if harness == "swe_agent" else "S.json" if harness == "opencode" else "S.jsonl")
    path.write_text(log)
    (session,) = source_named(harness).read(path, FileReport())
    marked = find_errors(session)
    step = write_hints(marked).steps[0]
    site = step.error_sites[0] if step.error_sites else None
    hint = step.hints[0].text if step.hints else ""
    right = all(word in hint for word in words) and not any(word in hint for word in never)
    right = right and (not hint or expected[1] == "model")
    return Verdict(harness, case, expected, (site.kind, site.blame) if site else ("", ""), hint, right, bool(words))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    return list(verdicts(tmp_path_factory.mktemp("gate")))


def share(right: list[bool]) -> float:
    return sum(right) / len(right)


def test_the_gate_has_enough_sites_in_eight_formats(judged: list[Verdict]) -> None:
    by_harness = Counter(one.harness for one in judged if one.expected[0])
    assert sum(by_harness.values()) >= MIN_SITES
    assert set(by_harness) == set(WRITERS)


def test_kinds_are_right(judged: list[Verdict]) -> None:
    wrong = [
        f"{one.harness}: {one.case!r} is {one.expected}, not {one.found}" for one in judged if not one.is_kind_right
    ]
    assert share([one.is_kind_right for one in judged]) >= MIN_RIGHT, "\n".join(wrong)


def test_the_model_is_blamed_only_for_its_own_mistakes(judged: list[Verdict]) -> None:
    blamed = [one for one in judged if one.found[1] == "model"]
    wrong = [f"{one.harness}: {one.case!r} is {one.expected}" for one in blamed if one.expected[1] != "model"]
    assert len(blamed) >= MIN_BLAMED
    assert 1 - len(wrong) / len(blamed) >= MIN_RIGHT, "\n".join(wrong)


def test_a_blame_that_is_not_proven_is_unknown(judged: list[Verdict]) -> None:
    others = [one for one in judged if one.found[1] not in (one.expected[1], "unknown", "model")]
    wrong = [f"{one.harness}: {one.case!r} is {one.expected}, not {one.found}" for one in others]
    assert 1 - len(wrong) / len(judged) >= MIN_RIGHT, "\n".join(wrong)


def test_default_hints_are_true_and_speak_only_where_something_right_is_known(judged: list[Verdict]) -> None:
    hinted = [one for one in judged if one.hint or one.is_known]
    wrong = [f"{one.harness}: {one.case!r} got {one.hint!r}" for one in hinted if not one.is_hint_right]
    assert share([one.is_hint_right for one in hinted]) >= MIN_RIGHT, "\n".join(wrong)
    assert [one.case for one in hinted if not one.is_known] == []
    assert sum(bool(one.hint) for one in hinted) >= MIN_HINTS
