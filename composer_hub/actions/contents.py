"""Texts of a known language in one layout: the text of a file or an argument -> what tells two of them apart.

Keys of a JSON object have no order, Python has no quotes, SQL has no case, and braces make indentation free. Anything
else is the text itself.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable

from composer_hub.actions import programs
from composer_hub.records import canonical_json, stable_id

_MAX_CODE = 20_000  # a longer text is compared as it is written
_SQL = re.compile(
    r"\s*(select|insert|update|delete|with|explain|create|alter|drop|show|describe|pragma|vacuum|analyze|truncate)\s",
    re.IGNORECASE,
)
_PIECE = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", re.DOTALL)
_TIGHT = re.compile(r"\s*([|,;:(){}\[\]=<>!+*/-])\s*")


def content_id(file: str, text: str) -> str:
    """Return the identity of a file's text."""
    if file.endswith(".py"):
        return stable_id(python_tree(text))
    if file.endswith(programs.BRACES) and "`" not in text:
        return stable_id("\n".join(line for one in text.splitlines() if (line := one.strip())))
    return stable_id(_json(text) if file.endswith(".json") else text)


def plain_text(text: str) -> str:
    """Return a text of an argument: JSON without its layout, SQL in one case."""
    if len(text) > _MAX_CODE:
        return text
    if text[:1] in ("{", "["):
        return _json(text)
    if _SQL.match(text):
        return _outside_quotes(text.strip().rstrip(";"), lambda piece: _tight(re.sub(r"\basc\b", "", piece.lower())))
    return text


def tight_script(text: str) -> str:
    """Return a script of awk or jq without the spaces that mean nothing."""
    return _outside_quotes(text.strip(), _tight)


def python_tree(code: str) -> str:
    """Return Python code as the text of its tree, or as it is if it has none."""
    if len(code) > _MAX_CODE:
        return code
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code


def _json(text: str) -> str:
    try:
        pairs = json.loads(text, object_pairs_hook=_distinct)
        return canonical_json(pairs)
    except (ValueError, RecursionError):
        return text


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _outside_quotes(text: str, change: Callable[[str], str]) -> str:
    pieces = _PIECE.split(text)
    return "".join(piece if at % 2 else change(piece) for at, piece in enumerate(pieces))


def _tight(text: str) -> str:
    return re.sub(r"\s+", " ", _TIGHT.sub(r"\1", text))
