"""Split the output of a script by call: a `PlainScript` and the text it printed in, the parts of each result out.

A script may print outputs, JSON of results and its own words between them. If these words settle which part
belongs to which call, each call gets its parts. Otherwise no call gets any.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from composer_hub.actions.script_values import UNKNOWN, Json, PlainScript, Print, ResultField

MAX_HOLES = 24
MAX_UNCERTAIN = 4  # texts that may be missing: each doubles the ways to read the others
MAX_BODY = 200_000  # a longer text is cut anyway
_HEADER = re.compile(
    r"Script (?:(completed)|(failed)|running with cell ID ([\w.-]{1,80}))\nWall time [\d.]+ seconds\nOutput:\n*"
)
_ERROR = re.compile(r"(?:\A|\n)Script error:\n")
_TRUNCATED = re.compile(r"\A(?:Warning: truncated output \([^\n]{1,80}\)\n(?:Total output lines: \d+\n)?\n*)+")
_NUMBER = r"-?\d{1,10}|null|undefined"
# The head of a result that is printed as JSON: the fields before its output are never cut.
_HEAD = re.compile(
    r'\{"chunk_id":"\w+","wall_time_seconds":[\d.e+-]+,(?:"exit_code":(?P<exit_code>-?\d+),'
    r'|"session_id":(?P<session_id>\d+),)?"original_token_count":\d+,"output":"'
)
_STRING = re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL)


@dataclass(frozen=True, slots=True)
class ScriptOutput:
    """A harness's account of a script: how it ended, what it printed, and its error."""

    body: str
    is_failed: bool = False
    cell_id: str = ""  # of a script that still runs
    error: str = ""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The parts of one call's result that a script shows."""

    output: str = ""
    exit_code: int | None = None
    session_id: str = ""  # of a command that still runs
    is_error: bool | None = None


def output_of(text: str) -> ScriptOutput | None:
    """Read the result of a script; None if it is not one."""
    header = _HEADER.match(text)
    if header is None:
        return None
    body = text[header.end() :]
    error = ""
    if header[2]:
        *printed, error = _ERROR.split(body)
        body = "\n".join(printed)
    return ScriptOutput(_TRUNCATED.sub("", body), bool(header[2]), header[3] or "", error)


def results_of(script: PlainScript, body: str) -> list[CallResult] | None:
    """Return the result of each call; None if the texts do not settle it."""
    is_only = len(script.calls) == 1
    is_known = is_only or all(_is_known(piece) for one in script.prints for piece in one.pieces)
    values = _found(script.prints, body) if is_known else None
    if values is None:
        return [_only(body)] if is_only else None
    parts: list[dict[str, Any]] = [{} for _ in script.calls]
    for piece, text in values:
        for call, name, value in _fields(piece, text):
            if name or not isinstance(value, str):
                _keep(parts[call], name, value)
            else:
                parts[call].setdefault("output", value)
    results = [_result(one) for one in parts]
    if is_only and "output" not in parts[0] and "content" not in parts[0]:
        # The script prints a part of the output, or makes something of it.
        results[0] = dataclasses.replace(results[0], output=body)
    return results


def _only(body: str) -> CallResult:
    """Return the result of the only call, whose texts are not as the script writes them: a long one is cut."""
    if not (head := _HEAD.match(body)):
        return CallResult(body)
    rest = _STRING.match(body, head.end())
    return CallResult(_unescaped(rest[0] if rest else ""), _whole(head["exit_code"]), head["session_id"] or "")


def _found(prints: Sequence[Print], body: str) -> list[tuple[Any, str]] | None:
    """Return the text of each `ResultField` and `Json` that was printed, or None."""
    if len(prints) == 1 and len(prints[0].pieces) == 1 and len(body) <= MAX_BODY and body[:1] not in ("", "\n"):
        # Half of all scripts print one thing, so there is nothing to split.
        (piece,) = prints[0].pieces
        is_line = isinstance(piece, Json) and body[0] in "[{" and body[-1] in "]}" and "\n" not in body
        if is_line or (isinstance(piece, ResultField) and _shape(piece) != _NUMBER):
            return [(piece, body)]
    pattern, holes = _pattern(prints)
    num_uncertain = sum(not one.is_certain for one in prints)
    if len(holes) > MAX_HOLES or num_uncertain > MAX_UNCERTAIN or len(body) > MAX_BODY:
        return None
    if not _is_settled(prints, body):
        return None
    found = re.fullmatch(pattern, body, re.DOTALL)
    texts = [(piece, found[f"h{number}"]) for number, piece in enumerate(holes)] if found else []
    return [(piece, text) for piece, text in texts if text is not None] if found else None


def _is_known(value: Any) -> bool:
    """Return whether a printed value is made of known values and fields of results alone."""
    if isinstance(value, Json):
        return _is_known(value.value)
    if isinstance(value, (dict, list)):
        return all(map(_is_known, value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, (str, int, float, bool, ResultField))


def _pattern(prints: Sequence[Print]) -> tuple[str, list[Any]]:
    holes: list[Any] = []
    pattern = ""
    for one in prints:
        inner = ""
        for piece in one.pieces:
            if isinstance(piece, str):
                inner += re.escape(piece)
            elif piece is UNKNOWN:
                inner += ".*?"
            else:
                start = "(?m:^)" if isinstance(piece, Json) and not inner else ""
                inner += f"{start}(?P<h{len(holes)}>{_shape(piece)})"
                holes.append(piece)
        # The reader leaves an empty text out, with its line end.
        pattern += f"(?:\\n?{inner})" + ("" if one.is_certain else "?")
    return pattern, holes


def _shape(piece: Any) -> str:
    if isinstance(piece, Json):
        return r"[\[{].*?[\]}]" if piece.is_indented else r"[\[{][^\n]*[\]}]"
    return _NUMBER if isinstance(piece, ResultField) and piece.name in ("exit_code", "session_id") else ".*?"


def _is_settled(prints: Sequence[Print], body: str) -> bool:
    """Return whether any two outputs have a text of the script between them that no output repeats."""
    pieces = [piece for one in prints for piece in (*one.pieces, "\n")]
    written = "\0".join(piece for piece in pieces if isinstance(piece, str))
    marks: list[str] = []  # since the last output
    is_open = False
    for piece in pieces:
        if isinstance(piece, str):
            marks.append(piece.strip())
        elif not isinstance(piece, Json) and _shape(piece) != _NUMBER:
            if is_open and not any(mark and body.count(mark) <= written.count(mark) for mark in marks):
                return False
            marks, is_open = [], True
    return True


def _fields(piece: Any, text: str) -> Iterator[tuple[int, str, Any]]:
    """Yield the call, the name and the value of everything that a printed text shows of results."""
    if isinstance(piece, Json):
        try:
            yield from _inside(piece.value, json.loads(text))
        except (ValueError, RecursionError):
            if isinstance(piece.value, ResultField) and not piece.value.name:
                cut = _only(text)
                yield from ((piece.value.call, one.name, getattr(cut, one.name)) for one in dataclasses.fields(cut))
    elif (piece.name and not _HEAD.match(text)) or not text.startswith("{"):
        yield piece.call, piece.name, text
    else:
        yield from _fields(Json(ResultField(piece.call)), text)


def _inside(value: Any, shown: Any) -> Iterator[tuple[int, str, Any]]:
    if isinstance(value, ResultField):
        yield from (
            ((value.call, name, one) for name, one in shown.items())
            if isinstance(shown, Mapping) and not value.name
            else [(value.call, value.name, shown)]
        )
    elif isinstance(value, Mapping) and isinstance(shown, Mapping):
        for name, one in value.items():
            yield from _inside(one, shown.get(name))
    elif isinstance(value, Sequence) and isinstance(shown, Sequence):
        for one, part in zip(value, shown, strict=False):
            yield from _inside(one, part)


def _keep(part: dict[str, Any], name: str, value: Any) -> None:
    if name == "output" or value not in (None, "null", "undefined"):
        part[name] = value


def _result(part: Mapping[str, Any]) -> CallResult:
    output = part.get("output")
    if output is None and isinstance(content := part.get("content"), list):  # of an MCP server
        output = "\n".join(str(one["text"]) for one in content if isinstance(one, Mapping) and "text" in one)
    error = part.get("isError", part.get("is_error"))
    return CallResult(
        output if isinstance(output, str) else "",
        _whole(part.get("exit_code")),
        str(part.get("session_id") or ""),
        error if isinstance(error, bool) else None,
    )


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, str)) and re.fullmatch(r"-?\d{1,10}", str(value)) else None


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:  # cut inside an escape
        return text.replace("\\n", "\n").replace('\\"', '"')
