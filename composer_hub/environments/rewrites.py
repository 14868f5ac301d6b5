"""Other ways to write the same Python, to find tests that judge a program's text instead of its behavior.

Each rewrite is a function from a module's text to another text. Rewrites keep the meaning of plain code;
callers drop a rewrite that the tests of the package reject.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

_ODD = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Import,
        ast.ImportFrom, ast.Match)  # fmt: skip
_READS_NAMES = {"locals", "vars", "eval", "exec", "dir", "globals"}
_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\r\f\v"}


def rewrites(suffix: str = "_") -> tuple[Callable[[str], str], ...]:
    """Return three rewrites; `suffix` goes into new names, so that no code under test can know them before."""
    return tuple(
        lambda text, make=make: ast.unparse(ast.fix_missing_locations(make.visit(ast.parse(text))))
        for make in (_Renamed(suffix), _Inverted(), _Respelled())
    )


class _Renamed(ast.NodeTransformer):
    """Local variables get other names."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        inner = [one for statement in node.body for one in ast.walk(statement)]
        names = [one for one in inner if isinstance(one, ast.Name)]
        if any(isinstance(one, _ODD) for one in inner) or _READS_NAMES & {one.id for one in names}:
            return self.generic_visit(node)
        kept = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        kept |= {one.name for one in inner if isinstance(one, ast.ExceptHandler) and one.name}
        own = {one.id for one in names if isinstance(one.ctx, ast.Store)} - kept
        for one in names:
            if one.id in own:
                one.id += self.suffix
        return node


class _Inverted(ast.NodeTransformer):
    """Both arms of a condition change places."""

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if not node.orelse or isinstance(node.orelse[0], ast.If):
            return node
        return ast.If(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        return ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body)


class _Respelled(ast.NodeTransformer):
    """Respell comprehensions, comparisons, texts and regular expressions; tests may notice these."""

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(ast.Name("list", ast.Load()), [ast.GeneratorExp(node.elt, node.generators)], [])

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(ast.Name("set", ast.Load()), [ast.GeneratorExp(node.elt, node.generators)], [])

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        return ast.Assign([node.target], ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            return ast.Compare(node.comparators[0], node.ops, [node.left])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        pattern = getattr(node.args[0], "value", None) if node.args else None
        if ast.unparse(node.func).startswith("re.") and isinstance(pattern, str):
            node.args[0] = ast.Constant(_narrowed(pattern))
        return node


def _narrowed(pattern: str) -> str:
    r"""Write the classes of a pattern for ASCII: `\d+` becomes `[0-9]+`, and `[\w-]` becomes `[a-zA-Z0-9_-]`."""
    done, is_inside = "", False
    for piece in re.findall(r"\\.|.", pattern, re.DOTALL):
        members = _CLASSES.get(piece[1:]) if piece[0] == "\\" else None
        done += piece if members is None else members if is_inside else f"[{members}]"
        is_inside = piece == "[" or (is_inside and piece != "]")
    return done
