#!/usr/bin/env python3
"""Measure this repository: size, shape, imports and English. Standard library only.

    python scripts/house.py [ROOT] [--json]          ROOT is the repository (default: the current folder)

Reads composer_hub/, space/, tests/, benchmarks/ and docs/ (those that exist). Prints one line per figure;
docs/results/house.md has them before and after the rooms were built.
"""

from __future__ import annotations

import ast
import collections
import io
import json
import re
import statistics
import sys
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import Any

UNITS = (
    "row field line step token pair message day trace file call turn site rollout chat run config table split teacher "
    "second core key tool model round batch group word job vote process worker rank prompt name kind source "
    "harness session"
)
IDIOMS = {  # occurrences per 1,000 words of docstrings, comments and docs; six model projects: 0.8 in all
    "where, as a condition": r"\bwhere (?:one|it|that|they|there|a|an|the|none|nobody)\b",
    "say, said, told, tell": r"\b(?:says|said|told|tells|tell whether)\b",
    "a clause that begins with what": r"(?:^|[.;:] )[Ww]hat (?!is|are|does|do|did|the|if|about|happens)\w+",
    "stand, for being": r"\bstand(?:s|ing)?\b|\bstood\b",
    "go on, for continue": r"\bgo(?:es)? on\b|\bwent on\b",
    "nobody, whoever": r"\b(?:nobody|whoever|somebody)\b",
    "one a row, for one per row": r"\b(?:one|a|an|two|three|\d+|rows?|tokens?|values?|lines?|files?|session|step) "
    r"(?:a|an) "
    rf"(?:{'|'.join(UNITS.split())})\b",
    "is no X": r"\b(?:is|are|was|were|be) no (?!longer|more\b|less|doubt|one\b|matter|other|such|way|need)\w+",
    "of its own": r"\bof (?:its|their|one's|his) own\b",
    "anew; , too; so many": r"\banew\b|, too\b|\bso (?:many|much)\b",
}


def trees(paths: list[Path]) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return node.end_lineno - node.lineno + 1 - (first.end_lineno - first.lineno + 1 if doc else 0)


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def imports(root: Path, parsed: dict[Path, ast.Module]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return module -> imported modules of the package: at the top of the file, and inside functions."""
    names = {}
    for path in parsed:
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        names[name.removesuffix(".__init__")] = path
    top: dict[str, set[str]] = {name: set() for name in names}
    inside: dict[str, set[str]] = {name: set() for name in names}

    def wanted(node: ast.Import | ast.ImportFrom) -> set[str]:
        if isinstance(node, ast.Import):
            found = {alias.name for alias in node.names}
        else:
            found = {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
            deep = {name for name in found if name in names and name != node.module}
            found = deep or found
        return {name for name in found if name in names}

    for name, path in names.items():
        for node in parsed[path].body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                top[name] |= wanted(node) - {name}
        for function in functions(parsed[path]):
            for node in ast.walk(function):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    inside[name] |= wanted(node) - {name}
    return top, inside


def components(graph: dict[str, set[str]]) -> list[list[str]]:
    sys.setrecursionlimit(10_000)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            part = []
            while not part or part[-1] != node:
                part.append(stack.pop())
            result.append(part)

    for node in graph:
        if node not in index:
            visit(node)
    return result


def levels(graph: dict[str, set[str]]) -> int:
    parts = components(graph)
    part_of = {name: number for number, part in enumerate(parts) for name in part}
    depth: dict[int, int] = {}
    for number, part in enumerate(parts):  # targets come before those that import them
        below = {part_of[target] for name in part for target in graph[name]} - {number}
        depth[number] = 1 + max((depth[one] for one in below), default=0)
    return max(depth.values(), default=0)


def prose(path: Path, tree: ast.Module) -> str:
    """Return the docstrings and comments of a file."""
    documented = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    texts += [text.lstrip("# ") for text in comments if not re.match(r"#\s*([-=]{5}|type|fmt|noqa|ruff)", text)]
    return "\n".join(texts)


def num_lines(paths: Iterable[Path]) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def share(values: list[int], part: float) -> int:
    return sorted(values)[min(len(values) - 1, round(part * (len(values) - 1)))] if values else 0


def code_figures(root: Path, code: dict[Path, ast.Module]) -> dict[str, Any]:
    """Return size and shape of the source."""
    lengths = [length for path in code if (length := num_lines([path]))]
    sizes = [function_lines(function) for tree in code.values() for function in functions(tree)]
    top, inside = imports(root, code)
    both = {name: top[name] | inside[name] for name in top}
    classes = collections.Counter(
        node.name for tree in code.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    return {
        "files": len(lengths),
        "lines": sum(lengths),
        "file lines: median, p90, max": [int(statistics.median(lengths)), share(lengths, 0.9), max(lengths)],
        "function lines: median, p90, max": [int(statistics.median(sizes)), share(sizes, 0.9), max(sizes)],
        "functions per 1,000 lines": round(1000 * len(sizes) / sum(lengths)),
        "import levels": levels(top),
        "cycles at the top": [part for part in components(top) if len(part) > 1],
        "cycles with imports inside functions": [part for part in components(both) if len(part) > 1],
        "own imports inside functions": sum(map(len, inside.values())),
        "class names used more than once": sorted(name for name, number in classes.items() if number > 1),
        "modules with __all__": sum("__all__ = [" in path.read_text(encoding="utf-8") for path in code),
        "longest file of cli/": max((num_lines([path]) for path in root.glob("composer_hub/cli/*.py")), default=0),
    }


def main() -> None:
    root = Path(next((word for word in sys.argv[1:] if not word.startswith("-")), ".")).resolve()
    code = trees(sorted(path for part in ("composer_hub", "space") for path in root.glob(f"{part}/**/*.py")))
    tests = trees(sorted(root.glob("tests/**/*.py")))
    pages = [path.read_text(encoding="utf-8") for path in [*root.glob("docs/**/*.md"), *root.glob("*.md")]]
    texts = [
        *(prose(path, tree) for path, tree in code.items()),
        *(re.sub(r"```.*?```", "", page, flags=re.DOTALL) for page in pages),
    ]
    text = "\n".join(texts)
    words = max(1, len(re.findall(r"[A-Za-z']+", text)))
    idioms = {
        name: round(1000 * len(re.findall(regex, text, re.MULTILINE)) / words, 2) for name, regex in IDIOMS.items()
    }
    figures = code_figures(root, code) | {
        "test files": len(tests),
        "test lines": num_lines(tests),
        "test functions": sum(one.name.startswith("test") for tree in tests.values() for one in functions(tree)),
        "benchmark lines": num_lines(root.glob("benchmarks/**/*.py")),
        "words of docs": len(re.findall(r"[A-Za-z']+", "\n".join(pages))),
        "idioms per 1,000 words": idioms,
        "idioms in all": round(sum(idioms.values()), 2),
    }
    if "--json" in sys.argv:
        print(json.dumps(figures, indent=1))
        return
    for name, value in figures.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
