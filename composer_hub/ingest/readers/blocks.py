"""The content of a message, block by block, in Anthropic's shape or nearly so, as most harnesses write it.

In: a text, or a list such as `[{"type": "text", "text": …}, {"type": "tool_use", "name": …, "input": …, "id": …}]`.
Out: its text, thinking, calls and results. A block without text, such as an image, leaves a placeholder.
"""

from __future__ import annotations

from typing import Any

from composer_hub.ingest.foreign import IMAGE, arguments_of, as_dict, as_list, first_text, joined, text_at
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.tree import Node
from composer_hub.records import Message, ToolCall

CALLS = {"tool_use", "server_tool_use", "mcp_tool_use", "toolCall", "tool_call", "tool-call"}
RESULTS = {"tool_result", "tool-result"}
DOCUMENT, ENCRYPTED = "[document]", "[encrypted]"


class Blocks:
    """The blocks of one message.

    `report` counts blocks of an unknown kind. With a `prefix`, a call without an id gets `prefix:0`, `prefix:1`, …
    """

    def __init__(self, content: Any, report: FileReport, number: int = 0, prefix: str = "") -> None:
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolCall] = []
        self.results: list[dict[str, Any]] = []
        self.hides = False  # the model thought, and the record may have only ciphertext
        self.lost = ""  # why a prompt with this content is not exact
        self._prefix = prefix
        for block in [content] if isinstance(content, str) else as_list(content):
            if isinstance(block, str):
                self.texts.append(block)
            elif not self._take(as_dict(block)):
                report.unknown(f"content/{as_dict(block).get('type')}", number)

    def _take(self, block: dict[str, Any]) -> bool:
        """Sort a block by its kind; return False if it has none that is known."""
        kind = text_at(block, "type")
        if kind == "text" or kind.endswith("_text"):
            self.texts.append(text_at(block, "text"))
        elif kind in ("thinking", "redacted_thinking"):
            self.thoughts.append(first_text(block, "thinking", "text"))
            self.hides = True
        elif kind in CALLS:
            call_id = first_text(block, "id", "toolCallId") or (self._prefix and f"{self._prefix}:{len(self.calls)}")
            arguments = arguments_of(block.get("input", block.get("arguments")))
            self.calls.append(ToolCall(text_at(block, "name"), arguments, call_id))
        elif kind in RESULTS:
            self.results.append(block)
        else:
            return self._show(kind, block)
        return True

    def _show(self, kind: str, block: dict[str, Any]) -> bool:
        """Put a placeholder into the text."""
        if kind == "image" or kind.endswith("_image"):
            self.texts.append(IMAGE)
            self.lost = self.lost or "image_left_out"
        elif kind == "document":
            self.texts.append(DOCUMENT)
            self.lost = self.lost or "document_left_out"
        elif kind == "file":
            self.texts.append(f"{text_at(block, 'path')}\n{text_at(block, 'content')}".strip())
        elif kind == "tool_reference":
            self.texts.append(f"[tool {text_at(block, 'tool_name')}]")
        elif kind == "encrypted_content":
            self.texts.append(ENCRYPTED)
        else:
            return False
        return True

    @property
    def text(self) -> str:
        return joined(self.texts)

    @property
    def reasoning(self) -> str:
        """Return `plain` or `encrypted` if the model thought, else an empty text."""
        return "plain" if any(self.thoughts) else "encrypted" if self.hides else ""

    def action(self) -> Message:
        """Return the message of the assistant."""
        return Message("assistant", self.text, tuple(self.calls), reasoning_content=joined(self.thoughts))


def blocks_of(node: Node, content: Any, report: FileReport, number: int) -> Blocks:
    """Read the content of a node, which is not exact if a block is lost."""
    blocks = Blocks(content, report, number, node.node_id)
    node.inexact = node.inexact or blocks.lost
    return blocks
