"""Session files of Claude Code, made up: many small ones, with copies, errors, secrets and people."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

TOKEN = "qX7vK2mR9tLw4ZpB8nHd" + "3JfG6sYc"


def write_sessions(folder: Path, number: int, *, num_turns: int = 3, filler: int = 0) -> Path:
    """Write sessions; one names a secret that others repeat without its name, and every tenth is a copy."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(number):
        original = index - 1 if index % 10 == 9 else index
        text = "".join(json.dumps(line) + "\n" for line in session_lines(original, num_turns, filler))
        # A copy is smaller than what it copies, and is read after it.
        (folder / f"s{index:05d}.jsonl").write_text(text if original == index else text.rstrip("\n"))
    return folder


def session_lines(index: int, num_turns: int, filler: int) -> list[dict[str, Any]]:
    session = f"{index:08x}-0000-4000-8000-000000000000"
    shuffled = random.Random(index)
    words = ["merge", "index", "cache", "branch", "parser", "widget", "schema", "queue", "token", "frame"]
    fill = lambda: " ".join(shuffled.choices(words, k=filler))  # noqa: E731
    name = "API_KEY=" if index == 0 else "value "
    lines: list[dict[str, Any]] = []

    def add(kind: str, message: dict[str, Any]) -> None:
        parent = lines[-1]["uuid"] if lines else None
        lines.append(
            {
                "type": kind, "uuid": f"u{index}-{len(lines)}", "parentUuid": parent, "sessionId": session,
                "isSidechain": False, "cwd": f"/home/person{index % 7}/app", "version": "2.0.0",
                "timestamp": f"2026-01-01T00:{len(lines) // 60:02d}:{len(lines) % 60:02d}.000Z", "message": message,
            }
        )  # fmt: skip

    add("user", {"role": "user", "content": f"Fix bug {index} for person{index % 7}@mail{index % 5}.org. {fill()}"})
    for turn in range(num_turns):
        call = f"toolu_{index}_{turn}"
        command = {"command": f"cat /home/person{index % 7}/app/f{turn}.py", "description": "look"}
        content = [{"type": "text", "text": f"Step {turn}. {fill()}"},
                   {"type": "tool_use", "id": call, "name": "Bash", "input": command}]  # fmt: skip
        add("assistant", {"role": "assistant", "id": f"msg_{index}_{turn}", "type": "message",
                          "model": "claude-opus-4-7", "content": content, "stop_reason": "tool_use",
                          "usage": {"input_tokens": 10, "output_tokens": 5}})  # fmt: skip
        output = f"{name}{TOKEN}\n{fill()}" if turn == 1 and index % 3 == 0 else f"x = {turn}\n{fill()}"
        is_error = turn == 0 and index % 4 == 0
        output = f"cat: f{turn}.py: No such file or directory" if is_error else output
        add("user", {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call, "content": output, "is_error": is_error}]})  # fmt: skip
    return lines
