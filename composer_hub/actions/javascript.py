"""The syntax tree of a script in JavaScript: its parts, its names, and the texts of its strings."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from composer_hub.actions.script_values import NotPlain

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_NAMES = frozenset(("identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"))


def script_tree(text: str) -> Node:
    """Return the root of a script's tree."""
    # A lone surrogate has no UTF-8 form.
    return _parser().parse(text.encode("utf-8", "replace")).root_node


@functools.cache
def _parser() -> Parser:
    # Most commands read no script, and the import takes 15 ms.
    import tree_sitter_javascript
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_javascript.language()))


def part_of(node: Node, name: str) -> Node:
    """Return a named part of a node; raise NotPlain if the code has none there."""
    part = node.child_by_field_name(name)
    if part is None:
        raise NotPlain
    return part


def text_of(node: Node) -> str:
    """Return the source of a node, with its quotes and escapes."""
    return (node.text or b"").decode("utf-8", "replace")


def _below(node: Node) -> Iterator[Node]:
    """Yield a node and all below it, in their order."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(reversed(one.children))


def names_in(node: Node) -> Iterator[str]:
    """Yield the variables that a node names, in their order and as often; of `o.a` it is `o`."""
    return (text_of(one) for one in _below(node) if one.type in _NAMES)


def types_in(node: Node) -> Iterator[str]:
    """Yield the type of syntax of a node and of each node below it."""
    return (one.type for one in _below(node))


def assigned_in(node: Node) -> Iterator[str]:
    """Yield the names that code assigns to, also in parts: of `o.a[i] = 1` it is `o`, and `i` with it."""
    for one in _below(node):
        if one.type in ("assignment_expression", "augmented_assignment_expression"):
            yield from names_in(part_of(one, "left"))
        elif one.type == "update_expression":
            yield from names_in(part_of(one, "argument"))
        elif one.type == "for_in_statement" and not one.child_by_field_name("kind"):
            yield from names_in(part_of(one, "left"))


def variables_in(node: Node) -> Iterator[str]:
    """Yield the names that code declares by `var`: they are those of the whole function."""
    for one in _below(node):
        if one.type == "variable_declaration":
            for part in one.named_children:
                yield from names_in(part_of(part, "name") if part.type == "variable_declarator" else part)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_ESCAPE = re.compile(r"\\(?:(?:x|u\{?)([0-9a-fA-F]{1,6})\}?|([0-7]{1,3}|\r\n|.))", re.DOTALL)


def unquoted(node: Node) -> str:
    """Return the text of a string; its pieces as nodes would take most of the time."""
    return _without_escapes(text_of(node)[1:-1])


def _without_escapes(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))  # most are escaped as in JSON, which is quicker to read
    except ValueError:
        return _ESCAPE.sub(_character, text)


def unescaped(node: Node) -> str:
    """Return the text of a piece of a template."""
    return _ESCAPE.sub(_character, text_of(node)) if node.type == "escape_sequence" else text_of(node)


def _character(escape: re.Match[str]) -> str:
    code, other = escape.groups()
    return chr(min(int(code, 16), 0x10FFFF)) if code else _ESCAPES.get(other, other)
