"""Sessions whose secrets, personal data and look-alikes are listed: how much is gone, and how much is kept.

    python -m benchmarks.redaction.sessions [--set sessions12] [--misses]

The authors of the sets had seen neither the rules nor their tests, documentation or other sets, and also listed what no
rule claims.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from composer_hub.records import Message, ToolCall, Trace, strings_in
from composer_hub.redact import Redactor

SETS = Path(__file__).parent / "sets"
LISTS = ("secrets", "personal", "kept")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--misses", action="store_true", help="also print what was missed or wrongly replaced")
    parser.add_argument(
        "--set",
        default="sessions12",
        choices=("sessions", *(f"sessions{number}" for number in range(2, 13))),
        help="the set (sessions12)",
    )
    args = parser.parse_args()
    sessions = json.loads((SETS / f"{args.set}.json").read_text("utf-8"))
    after = {one["id"]: text_of(Redactor(salt=b"sessions of others").trace(trace_of(one))) for one in sessions}
    for name in LISTS:
        values = [(one["id"], value) for one in sessions for value in one[name]]
        misses = [(place, value) for place, value in values if (value in after[place]) != (name == "kept")]
        print(f"{name}: {len(values) - len(misses)} of {len(values)} ({1 - len(misses) / len(values):.3f})")
        if args.misses:
            print("".join(f"  {place}: {value!r}\n" for place, value in misses), end="")


def trace_of(session: Mapping[str, Any]) -> Trace:
    names = {call["id"]: call["name"] for message in session["messages"] for call in message.get("calls", ())}
    messages = (
        Message(
            message["role"],
            message.get("content") or "",
            tuple(ToolCall(call["name"], call["arguments"], call["id"]) for call in message.get("calls", ())),
            tool_call_id=message.get("id", ""),
            name=names.get(message.get("id", ""), ""),
        )
        for message in session["messages"]
    )
    return Trace(session["id"], "claude_code", session["id"], tuple(messages), ())


def text_of(trace: Trace) -> str:
    """Return every text of a trace."""
    parts = [message.content for message in trace.messages]
    parts += [text for message in trace.messages for call in message.tool_calls for text in strings_in(call.arguments)]
    return "\n".join(parts)


if __name__ == "__main__":
    main()
