"""How two actions differ: first their structure (tools, then arguments key by key), words only inside a changed one.

In: the assistant messages of both sides and the sides' names. Out: escaped rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rapidfuzz.distance import Indel

from inspector.elements import Html, esc, h
from inspector.markup import badge, block, parsed, pretty

MIN_SIMILARITY = 0.3  # Below it a word diff is colored noise.
MAX_DIFF_TOKENS = 4_000
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True)
class ToolUse:
    """A tool call, with whatever arguments it came with."""

    tool: str
    arguments: Any


def calls_of(message: Mapping[str, Any] | None) -> list[ToolUse]:
    """Return the calls of a message; unusual shapes are kept, not refused."""
    listed = (message or {}).get("tool_calls")
    calls = []
    for call in listed if isinstance(listed, list) else []:
        function = call.get("function", call) if isinstance(call, Mapping) else {}
        function = function if isinstance(function, Mapping) else {}
        calls.append(ToolUse(str(function.get("name") or "?"), parsed(function.get("arguments"))))
    return calls


def text_of(message: Mapping[str, Any] | None) -> str:
    """Return the text of a message; parts that are not text are shown as JSON."""
    content = (message or {}).get("content") or ""
    return content if isinstance(content, str) else pretty(content)


def action_diff(left: Mapping[str, Any] | None, right: Mapping[str, Any] | None, names: tuple[str, str]) -> Html:
    """Return both actions side by side, call by call."""
    sections = [_call_diff(*both, names) for both in aligned(calls_of(left), calls_of(right))]
    words = [text_of(left), text_of(right)]
    if any(words):
        sections.insert(0, _section("Text", "", [_value_row("text", *words)], names))
    return h("div", sections or h("p", "Neither side acts.", cls="quiet"), cls="diff")


def aligned(left: Sequence[ToolUse], right: Sequence[ToolUse]) -> list[tuple[ToolUse | None, ToolUse | None]]:
    """Return the calls of both sides in pairs: equal calls first, then calls of one tool, then the rest in order."""
    partner: dict[int, int] = {}
    for alike in (lambda one, other: one == other, lambda one, other: one.tool == other.tool, lambda one, other: True):
        for at, call in enumerate(left):
            if at not in partner:
                free = [to for to, other in enumerate(right) if to not in partner.values() and alike(call, other)]
                if free:
                    partner[at] = free[0]
    both = [(call, right[partner[at]] if at in partner else None) for at, call in enumerate(left)]
    return [*both, *((None, call) for to, call in enumerate(right) if to not in partner.values())]


def _call_diff(left: ToolUse | None, right: ToolUse | None, names: tuple[str, str]) -> Html:
    if left is None or right is None:
        call, name, side = (left, names[0], "left") if right is None else (right, names[1], "right")
        head = h("h3", h("span", call.tool if call else "", cls="name"), " ", badge(f"only {name}", "warn"), cls="call")
        return h("section", head, h("div", _listed(call) if call else None, cls=f"cell only {side}"))
    if left == right:
        title = [h("span", left.tool, cls="name"), " ", badge("the same call", "ok"), " ", _in_short(left)]
        return h("details", h("summary", title, cls="call"), _listed(left), cls="folded")
    if left.tool != right.tool:
        title = [
            h("span", left.tool, cls="name del"),
            h("span", " → ", cls="quiet"),
            h("span", right.tool, cls="name ins"),
        ]
        rows = [_whole_row(_arguments(left), _arguments(right))]
        return _section(title, badge("another tool", "warn"), rows, names)
    before, after = _arguments(left), _arguments(right)
    keys = list(dict.fromkeys([*before, *after]))
    changed = [key for key in keys if before.get(key, _MISSING) != after.get(key, _MISSING)]
    rows = [_value_row(key, before.get(key), after.get(key)) for key in changed]
    same = {key: before[key] for key in keys if key not in changed}
    section = _section(left.tool, badge(f"{len(changed)} of {len(keys)} arguments differ"), rows, names)
    if not same:
        return section
    folded = h("summary", f"The same on both sides: {', '.join(same)}")
    return h("div", section, h("details", folded, _listed(ToolUse(left.tool, same)), cls="folded"))


_MISSING = object()


def _arguments(call: ToolUse) -> dict[str, Any]:
    if isinstance(call.arguments, dict):
        return {str(key): value for key, value in call.arguments.items()}
    return {"(not an object)": call.arguments} if call.arguments not in (None, "") else {}


def _section(title: Any, note: Any, rows: Sequence[Html], names: tuple[str, str]) -> Html:
    head = h("h3", h("span", title, cls="name"), " ", note, cls="call")
    if not rows:
        return h("section", head, h("p", "No arguments.", cls="quiet"))
    columns = h(
        "div",
        h("span", "argument", role="columnheader", cls="key"),
        [
            h("span", name, role="columnheader", cls=f"heading {side}")
            for name, side in zip(names, ("left", "right"), strict=True)
        ],
        role="row",
        cls="row titles",
    )
    return h("section", head, h("div", columns, rows, role="table", aria_label="Arguments of both calls", cls="sides"))


def _row(key: str, left: Any, right: Any, kind: str) -> Html:
    name = h("span", key, cls="key", role="rowheader")
    cells = [h("div", left, role="cell", cls="cell left"), h("div", right, role="cell", cls="cell right")]
    return h("div", name, cells, cls=f"row {kind}", role="row")


def _value_row(key: str, left: Any, right: Any) -> Html:
    if left is None or right is None:
        absent = h("span", "not given", cls="quiet")
        shown = [absent if value is None else block(pretty(value)) for value in (left, right)]
        return _row(key, *shown, "changed")
    before, after = pretty(left), pretty(right)
    marked = word_diff(before, after)
    if marked is None:
        return _row(key, block(before), block(after), "changed")
    return _row(key, *(h("pre", side, cls="text") for side in marked), "changed")


def _whole_row(left: Mapping[str, Any], right: Mapping[str, Any]) -> Html:
    empty = h("span", "no arguments", cls="quiet")
    sides = [_listed(ToolUse("", side)) if side else empty for side in (left, right)]
    return _row("all", *sides, "changed")


def _listed(call: ToolUse) -> Html:
    return h("dl", [(h("dt", key), h("dd", block(pretty(value)))) for key, value in _arguments(call).items()])


def _in_short(call: ToolUse) -> Html:
    return h(
        "span", short_action({"tool_calls": [{"name": call.tool, "arguments": call.arguments}]}, 120), cls="quiet line"
    )


def word_diff(before: str, after: str) -> tuple[Html, Html] | None:
    """Return both texts with what differs marked, or None if they are too unlike or too long for it."""
    left, right = _WORDS.findall(before), _WORDS.findall(after)
    if len(left) + len(right) > MAX_DIFF_TOKENS:
        return None
    if Indel.normalized_similarity(left, right) < MIN_SIMILARITY:
        return None
    sides: tuple[list[Any], list[Any]] = ([], [])
    for code in Indel.opcodes(left, right):
        first, second = "".join(left[code.src_start : code.src_end]), "".join(right[code.dest_start : code.dest_end])
        if code.tag == "equal":
            sides[0].append(esc(first))
            sides[1].append(esc(second))
            continue
        if first:
            sides[0].append(h("del", first))
        if second:
            sides[1].append(h("ins", second))
    return h("span", sides[0]), h("span", sides[1])


def short_action(message: Mapping[str, Any] | None, limit: int = 160) -> str:
    """Return an action in one line: the tool and its first telling argument, or the beginning of the text."""
    calls = calls_of(message)
    if not calls:
        return text_of(message)[:limit] or "no action"
    lines = []
    for call in calls:
        arguments = _arguments(call)
        values = [pretty(value) for value in arguments.values() if value not in (None, "", False)]
        lines.append(f"{call.tool} {' · '.join(values)}")
    return " ; ".join(lines)[:limit].replace("\n", " ⏎ ")
