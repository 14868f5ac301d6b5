"""The small changes of Python code that are bugs: one expression or statement each."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

from composer_hub.tasks.code import Function, Source, Splice

_SWAPPED: dict[str, dict[type[ast.AST], str]] = {  # kind of change -> operator -> the one in its place
    "boundary": {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"},
    "comparison": {
        ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
    },
    "operator": {
        ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "/", ast.Mod: "//", ast.Pow: "*",
        ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&", ast.And: "or", ast.Or: "and",
    },
}  # fmt: skip


def mutants(function: Function) -> Iterator[tuple[str, ast.AST, Splice]]:
    """Yield the small changes of a function's body as (kind, node, splice)."""
    source = function.source
    typed = {id(inner) for one in ast.walk(function.node) for inner in _annotations(one)}
    for statement in function.body:
        for node in ast.walk(statement):
            if id(node) not in typed:
                yield from _of_node(source, node)


def _of_node(source: Source, node: ast.AST) -> Iterator[tuple[str, ast.AST, Splice]]:
    match node:
        case ast.BinOp(left=left, right=right) if _is_text(left) or _is_text(right):
            pass  # texts have few operators besides `+`
        case (
            ast.Compare(left=left, ops=[operator], comparators=[right])
            | ast.BinOp(left=left, op=operator, right=right)
            | ast.BoolOp(op=operator, values=[left, right])
        ):
            for kind, swapped in _SWAPPED.items():
                if type(operator) in swapped:
                    yield kind, node, _between(source, left, swapped[type(operator)], right)
        case ast.UnaryOp(op=ast.Not()):
            yield "negation", node, source.replace(node, source.of(node.operand))
        case ast.If() | ast.While() | ast.IfExp():
            yield "negation", node, source.replace(node.test, f"not ({source.of(node.test)})")
        case ast.Constant(value=bool(value)):
            yield "constant", node, source.replace(node, str(not value))
        case ast.Constant(value=int(value)):
            yield "constant", node, source.replace(node, str(value + 1))
        case ast.Call():
            yield from _of_call(source, node)
        case ast.Return(value=ast.expr() as returned) if not isinstance(returned, ast.Constant):
            yield "lost_return", node, source.replace(node, source.of(returned).strip())
        case ast.Slice(lower=ast.expr() as first, upper=None):
            yield "off_by_one", node, source.replace(first, f"{source.of(first)} + 1")
        case ast.Slice(upper=ast.expr() as last):
            yield "off_by_one", node, source.replace(last, f"{source.of(last)} - 1")


def _of_call(source: Source, node: ast.Call) -> Iterator[tuple[str, ast.AST, Splice]]:
    if any(isinstance(one, ast.Starred) for one in node.args):
        return
    if isinstance(node.func, ast.Name) and node.func.id == "range" and node.args:
        last = node.args[-1 if len(node.args) < 3 else 1]
        yield "off_by_one", node, source.replace(last, f"{source.of(last)} - 1")
    elif len(node.args) == 2 and source.of(node.args[0]) != source.of(node.args[1]):
        first, second = node.args
        between = source.text[source.end(first) : source.start(second)]
        text = source.of(second) + between + source.of(first)
        yield "swapped_arguments", node, Splice(source.path, source.start(first), source.end(second), text)


def _between(source: Source, left: ast.AST, operator: str, right: ast.AST) -> Splice:
    """Replace the operator between two operands; brackets and line breaks around it stay."""
    start, end = source.end(left), source.start(right)
    between = source.text[start:end]
    before = len(between) - len(between.lstrip(" \t\r\n)\\"))
    after = len(between) - len(between.rstrip(" \t\r\n(\\"))
    middle = between[before : len(between) - after]
    space = "" if not middle.isalpha() or (before and between[before - 1].isspace()) else " "
    spaced = f"{space}{operator}" if operator[0].isalpha() else operator
    if operator[0].isalpha() and not between[len(between) - after :].startswith((" ", "\n", "\t", "(")):
        spaced += " "
    return Splice(source.path, start + before, end - after, spaced)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("annotation", "returns"):
        if (value := getattr(node, name, None)) is not None:
            yield from ast.walk(value)
    if isinstance(node, ast.JoinedStr):  # before Python 3.12 the places inside an f-string are wrong
        yield from ast.walk(node)


def other_text(value: str, source: random.Random) -> str:
    """Return a text that differs a little from another one."""
    if not value:
        return source.choice(["a", " ", "0"])
    place = source.randrange(len(value))
    return source.choice(
        [
            value[:place] + value[place + 1 :],
            value[:place] + value[place] + value[place:],
            value.swapcase(),
            value[::-1] if len(value) < 40 else value[place:],
            value + value[:3],
            value[:place] + source.choice("aZ0 _-é") + value[place + 1 :],
        ]
    )
