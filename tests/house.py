"""Count what the house may hold, compare it with tests/house.json, and write the table and its page.

    python -m tests.house            # every figure beside the largest one that is allowed
    python -m tests.house --write    # allow what is there now, and write docs/results/house.md
    python -m tests.house --write 5  # allow five steps more of what is counted in steps, while much is in motion

A code token is a token of Python that is neither a comment, a docstring nor layout: folding lines does not
change the count. A figure may only fall. A change that raises one writes the table in the same commit, and its
message gives the reason.
"""

from __future__ import annotations

import ast
import collections
import functools
import gc
import io
import json
import math
import re
import sys
import tokenize
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "tests" / "house.json"
PAGE = ROOT / "docs" / "results" / "house.md"
MAX_COLUMNS = 110
_RATES = (
    "row|field|line|step|token|pair|message|day|trace|file|call|turn|site|rollout|run|config|split|second|core|model|"
    "batch|group|job|rank"
)
IDIOMS: dict[str, str] = {  # that a native engineer would put in other words
    "where, for if": r"\bwhere (?:one|it|that|they|there|a|an|the|none|nobody)\b",
    "say and tell, of code": r"\b(?:says|said|told|tells|tell whether)\b",
    "a clause that begins with what": r"(?:^|[.;:] )[Ww]hat (?!is|are|does|do|did|the|if|about|happens)\w+",
    "stand, for be": r"\bstand(?:s|ing)?\b|\bstood\b",
    "go on, for continue": r"\bgo(?:es)? on\b|\bwent on\b",
    "nobody and whoever, of code": r"\b(?:nobody|whoever|somebody)\b",
    "one a row, for one per row": rf"\b(?:one|\d+|rows?|tokens?|values?|lines?|files?) (?:a|an) (?:{_RATES})\b",
    "is no, for is not a": r"\b(?:is|are|was|were|be) no (?!longer|more\b|less|doubt|one\b|matter|other|such|way)\w+",
    "of its own": r"\bof (?:its|their|one's|his) own\b",
    "anew, too, so many": r"\banew\b|, too\b|\bso (?:many|much)\b",
}
STEPS = {"code tokens": 500, "words of docs": 500, "lines over 110 columns": 50, "idioms per 1,000 words": 0.1}
"""A limit is rounded up to these, so that a fix of one line does not need another table."""

_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (
    *(ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler),
    *(ast.comprehension, ast.match_case),
)
_FOR_TOOLS = re.compile(r"#\s*(type|fmt|noqa|ruff)")


class Source(NamedTuple):
    """A file of code, read once."""

    path: Path
    text: str
    nodes: list[ast.AST]
    tokens: list[tokenize.TokenInfo]

    @property
    def room(self) -> str:
        outer, *inner, _ = self.path.relative_to(ROOT).parts
        return outer if outer == "space" else inner[0] if inner else "top"

    def code_tokens(self) -> int:
        texts = {
            (node.value.lineno, node.value.col_offset)
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        }
        return sum(token.type not in _LAYOUT and token.start not in texts for token in self.tokens)

    def prose(self) -> str:
        """Return the docstrings and comments, without comments that only tools read."""
        docstrings = [ast.get_docstring(node) or "" for node in self.nodes if isinstance(node, _DOCUMENTED)]
        comments = [token.string for token in self.tokens if token.type == tokenize.COMMENT]
        return "\n".join(docstrings + [text.lstrip("# ") for text in comments if not _FOR_TOOLS.match(text)])


@functools.cache
def sources() -> tuple[Source, ...]:
    read = []
    gc.disable()  # of two million objects none is garbage, and looking for some takes longer than reading
    paths = sorted(path for folder in ("composer_hub", "space") for path in (ROOT / folder).rglob("*.py"))
    for path in (path for path in paths if not path.is_symlink()):  # the Space's links are files of the package
        text = path.read_text(encoding="utf-8")
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        read.append(Source(path, text, list(ast.walk(ast.parse(text))), tokens))
    gc.enable()
    return tuple(read)


def pages() -> list[str]:
    """Return the Markdown that people write, without the pages that are made from the code."""
    paths = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
    made = {PAGE, *(ROOT / "docs" / "reference").glob("*.md")}
    return [path.read_text(encoding="utf-8") for path in paths if path not in made]


def own_imports_in_functions() -> int:
    lazy = {
        (source.path, node.module)
        for source in sources()
        for function in source.nodes
        if isinstance(function, _FUNCTIONS)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("composer_hub")
    }
    return len(lazy)


def longest_expression() -> int:
    """Count the nodes of the largest expression that is not a table at the top of a file."""
    return max(
        sum(isinstance(part, ast.expr) for part in ast.walk(expression))
        for source in sources()
        for statement in source.nodes
        if isinstance(statement, ast.stmt) and statement.col_offset
        for expression in ast.iter_child_nodes(statement)
        if isinstance(expression, ast.expr)
    )


def branches(function: ast.AST) -> int:
    """Count the places where a function can go more than one way, with those of functions inside it.

    The parts of `and` and `or` count, except the first; conditions of comprehensions and guards of cases do not.
    """
    return sum(
        len(node.values) - 1 if isinstance(node, ast.BoolOp) else isinstance(node, _BRANCHES)
        for node in ast.walk(function)
    )


def branches_by_function() -> dict[str, int]:
    return {
        f"{source.path.relative_to(ROOT)}:{node.lineno} {node.name}": branches(node)
        for source in sources()
        for node in source.nodes
        if isinstance(node, _FUNCTIONS)
    }


@functools.cache
def figures() -> dict[str, float]:
    """Return every figure that may only fall, by its name."""
    rooms: collections.Counter[str] = collections.Counter()
    for source in sources():
        rooms[source.room] += source.code_tokens()
    classes = collections.Counter(
        node.name for source in sources() for node in source.nodes if isinstance(node, ast.ClassDef)
    )
    docs = pages()
    prose = "\n".join(
        [*(one.prose() for one in sources()), *(re.sub(r"```.*?```", "", page, flags=re.DOTALL) for page in docs)]
    )
    num_idioms = sum(len(re.findall(regex, prose, re.MULTILINE)) for regex in IDIOMS.values())
    lines = [line for source in sources() for line in source.text.splitlines()]
    return {f"code tokens of {room}": number for room, number in rooms.most_common()} | {
        "class names used more than once": sum(number > 1 for number in classes.values()),
        "own imports inside functions": own_imports_in_functions(),
        "lines over 110 columns": sum(len(line) > MAX_COLUMNS for line in lines),
        "nodes of the longest expression in a function": longest_expression(),
        "words of docs": num_words("\n".join(docs)),
        "idioms per 1,000 words": round(1000 * num_idioms / num_words(prose), 2),
    }


def num_words(text: str) -> int:
    return len(re.findall(r"[A-Za-z']+", text))


def limit(name: str, value: float, slack: int = 0) -> float:
    step = next((step for kind, step in STEPS.items() if name.startswith(kind)), None)
    return value if step is None else round((math.ceil(round(value / step, 6)) + slack) * step, 2)


def table() -> dict[str, dict[str, float]]:
    """Return each figure's limit, and its value when the table was begun."""
    return json.loads(TABLE.read_text(encoding="utf-8"))


def page(limits: dict[str, dict[str, float]]) -> str:
    """Write the table for readers."""
    rooms = {name: row for name, row in limits.items() if name.startswith("code tokens of ")}
    sums = {when: sum(row[when] for row in rooms.values()) for when in ("first", "limit")}
    rows = [f"| {name} | {row['first']:,} | {row['limit']:,} |" for name, row in limits.items() if name not in rooms]
    rooms = {name.removeprefix("code tokens of "): row for name, row in rooms.items()}
    tokens = [f"| `{name}` | {row['first']:,} | {row['limit']:,} |" for name, row in rooms.items()]
    head = ["|---|---:|---:|"]
    lines = [
        "# The size of the house",
        "",
        "`tests/test_layout.py` holds every number here: it may fall and not rise.",
        "`python -m tests.house --write` writes this page and `tests/house.json`.",
        "Limits are rounded up. The first column is commit `5ca6871`.",
        "",
        "| code tokens of a room | first | at most |",
        *head,
        *tokens,
        f"| **all** | **{sums['first']:,}** | **{sums['limit']:,}** |",
        "",
        "| of the package | first | at most |",
        *head,
        *rows,
    ]
    return "\n".join(lines) + "\n"


def raised(limits: dict[str, dict[str, float]]) -> list[str]:
    """Describe each figure above its limit, and each room that has none."""
    return [
        f"{name}: {value:,} (at most {limits[name]['limit']:,})"
        if name in limits
        else f"{name}: {value:,} (no limit yet)"
        for name, value in figures().items()
        if name not in limits or value > limits[name]["limit"]
    ]


def write(slack: int = 0) -> None:
    before = table() if TABLE.exists() else {}
    limits = {
        name: {
            "first": before.get(name, {}).get("first", value if not before else 0),
            "limit": limit(name, value, slack),
        }
        for name, value in figures().items()
    }
    rows = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in limits.items()]
    TABLE.write_text("{\n " + ",\n ".join(rows) + "\n}\n", encoding="utf-8")
    PAGE.write_text(page(limits), encoding="utf-8")


def main() -> None:
    if "--write" in sys.argv:
        write(int(sys.argv[-1]) if sys.argv[-1].isdigit() else 0)
    limits = table()
    for name, value in figures().items():
        print(f"{name}: {value:,} of {limits[name]['limit']:,}" if name in limits else f"{name}: {value:,}")


if __name__ == "__main__":
    main()
