"""Digests of the code that decides hints, so that each change of it asks whether hints change.

    python -m tests.hints.digests    # write tests/hints/digests.json

A digest is of the syntax: docstrings, comments, annotations and layout are not in it.
"""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path
from typing import Any

from tests.test_layout import graph, parsed, reachable, room_of

TABLE = Path(__file__).with_suffix(".json")
ENTRIES = ("errors.find", "hints.writers")
ROOMS = ("actions", "errors", "hints")  # the rooms above them hold rows, files and words of a harness
TYPES = ("annotation", "returns", "type_comment", "type_params")


def digests() -> dict[str, str]:
    """Return the digest of each module that the entries load, by its name."""
    edges = graph(lazy=True)
    loaded = {*ENTRIES, *(name for entry in ENTRIES for name in reachable(entry, edges))}
    return {name: digest(parsed(name)) for name in sorted(loaded) if room_of(name) in ROOMS}


def digest(tree: ast.AST) -> str:
    return hashlib.sha256(repr(spelled(tree)).encode()).hexdigest()[:16]


def spelled(node: Any) -> Any:
    """Return syntax as nested tuples that are the same under every version of Python."""
    if isinstance(node, list):
        return tuple(spelled(one) for one in node if not _is_docstring(one))
    if not isinstance(node, ast.AST):
        return node
    # Newer versions have more fields, which are empty here.
    fields = ((name, value) for name, value in ast.iter_fields(node) if name not in TYPES and value not in (None, []))
    return (type(node).__name__, *((name, spelled(value)) for name, value in fields))


def _is_docstring(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def known() -> dict[str, str]:
    return json.loads(TABLE.read_text("utf-8"))


if __name__ == "__main__":
    TABLE.write_text(json.dumps(digests(), indent=1) + "\n", "utf-8")
