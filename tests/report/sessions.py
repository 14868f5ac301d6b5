"""Claude Code sessions for tests of the report, written call by call."""

# ruff: noqa: E501  # a record of a session is one line

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MODEL = "claude-opus-4-7"


class Log:
    """One session file; every call is one message of the model, with its result."""

    def __init__(self, path: Path, cwd: str = "/work/shop", day: int = 1) -> None:
        self.path, self.cwd, self.day = path, cwd, day
        self.session = path.stem
        self.records: list[dict[str, Any]] = []
        self.number = 0
        self.say("Please fix the cart.")

    def say(self, text: str) -> Log:
        return self._add("user", {"role": "user", "content": text})

    def call(
        self, name: str, result: str = "ok", *, error: bool = False, key: str = "", output: int = 50, **arguments: Any
    ) -> Log:
        self.number += 1
        call_id = f"{self.session}-{self.number}"
        usage = {
            "input_tokens": 10,
            "cache_creation_input_tokens": 100,
            "cache_read_input_tokens": 1000,
            "output_tokens": output,
        }
        block = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        message = {
            "id": key or f"msg-{call_id}",
            "role": "assistant",
            "model": MODEL,
            "content": [block],
            "usage": usage,
            "stop_reason": "tool_use",
        }
        self._add("assistant", message)
        answer = {"type": "tool_result", "tool_use_id": call_id, "content": result, "is_error": error}
        return self._add("user", {"role": "user", "content": [answer]})

    def think(self, key: str, cache_read: int) -> Log:
        """Add a message that was cut off while the model was thinking."""
        block = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
        usage = {"input_tokens": 3, "cache_read_input_tokens": cache_read, "output_tokens": 7}
        return self._add(
            "assistant", {"id": key, "role": "assistant", "model": MODEL, "content": [block], "usage": usage}
        )

    def _add(self, kind: str, message: dict[str, Any]) -> Log:
        at = len(self.records)
        parent = self.records[-1]["uuid"] if self.records else None
        self.records.append({
            "type": kind, "uuid": f"{self.session}-u{at}", "parentUuid": parent, "sessionId": self.session, "cwd": self.cwd,
            "version": "2.1.42", "timestamp": f"2026-10-{self.day:02d}T10:{at // 60:02d}:{at % 60:02d}.000Z", "message": message,
        })  # fmt: skip
        return self

    def write(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(json.dumps(record) + "\n" for record in self.records))
        return self.path


MISSING = "<tool_use_error>File does not exist.</tool_use_error>"


def wrong_path(path: Path, day: int, cwd: str = "/work/shop") -> Log:
    """Return a session that reads a file under a wrong name, then under the right one."""
    log = Log(path, cwd, day)
    log.call("Read", MISSING, error=True, file_path=f"{cwd}/.golangci.yml")
    return log.call("Read", "run:", file_path=f"{cwd}/.golangci.yaml")
