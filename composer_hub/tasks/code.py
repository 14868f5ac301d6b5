"""Python source in, functions and text spans out. Edits are splices of the original text, so nothing else moves."""

from __future__ import annotations

import ast
import functools
import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from composer_hub.records import SourceEdit

Definition = ast.FunctionDef | ast.AsyncFunctionDef
MIN_QUOTE = 12  # characters of a line of the solution, without spaces


@dataclass(frozen=True, order=True)
class Splice:
    """The replacement of a span of a file's text."""

    path: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, eq=False)
class Source:
    """A parsed file."""

    path: str
    module: str
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @functools.cached_property
    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        return [one for one in ast.walk(self.tree) if isinstance(one, (ast.Import, ast.ImportFrom))]

    @functools.cached_property
    def _starts(self) -> list[int]:
        starts = [0]  # Python's lines end at line feeds and returns only, and `str.splitlines` at more
        for line in re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", self.text):
            starts.append(starts[-1] + len(line))
        return starts

    def at(self, line: int, column: int) -> int:
        """Return the place of a position that `ast` gives: a line and a column in bytes."""
        start = self._starts[line - 1]
        if column == 0:
            return start
        piece = self.text[start : self._starts[line] if line < len(self._starts) else None]
        return start + (column if piece.isascii() else len(piece.encode()[:column].decode(errors="ignore")))

    def start(self, node: ast.AST) -> int:
        return self.at(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        return self.at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def of(self, node: ast.AST) -> str:
        """Return the text of a node."""
        return self.text[self.start(node) : self.end(node)]

    def line_start(self, line: int) -> int:
        return self._starts[line - 1]

    def line_end(self, line: int) -> int:
        """Return the place after the end of a line."""
        return self._starts[line] if line < len(self._starts) else len(self.text)

    def whole_lines(self, node: ast.stmt) -> tuple[int, int]:
        """Return the span of the lines of a statement, with its decorators."""
        return self.line_start(first_line(node)), self.line_end(node.end_lineno or 0)

    def replace(self, node: ast.AST, text: str) -> Splice:
        return Splice(self.path, self.start(node), self.end(node), text)


@dataclass(frozen=True, eq=False)
class Function:
    """A function or method of the package."""

    source: Source
    node: Definition
    qualname: str  # without <locals>: functions inside functions are left out
    owner: ast.ClassDef | None

    @property
    def symbol(self) -> str:
        return f"{self.source.module}:{self.qualname}"

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def first_line(self) -> int:
        """Return the line that the code object names: of the first decorator, if there is one."""
        return first_line(self.node)

    @functools.cached_property
    def decorators(self) -> tuple[str, ...]:
        return tuple(ast.unparse(one) for one in self.node.decorator_list)

    @functools.cached_property
    def body(self) -> list[ast.stmt]:
        """Return the statements after the docstring."""
        return self.node.body[1:] if ast.get_docstring(self.node, clean=False) is not None else self.node.body

    @property
    def body_lines(self) -> tuple[int, int]:
        """Return the first and last line of the body; (1, 0) if there is only a docstring."""
        return (self.body[0].lineno, self.body[-1].end_lineno or 0) if self.body else (1, 0)

    @functools.cached_property
    def called_names(self) -> frozenset[str]:
        """Return every name and attribute that the body mentions."""
        return frozenset[str]().union(*map(mentioned, self.node.body))

    @property
    def is_cached(self) -> bool:
        return any("cache" in one for one in self.decorators)

    @functools.cached_property
    def size(self) -> int:
        return sum(isinstance(one, ast.stmt) for statement in self.body for one in ast.walk(statement))

    @functools.cached_property
    def digest(self) -> str:
        return digest(self.node)

    def can_be_emptied(self) -> bool:
        odd = ("overload", "abstractmethod", "fixture")
        return not self.is_trivial() and not any(name in one for one in self.decorators for name in odd)

    def is_trivial(self) -> bool:
        """Return whether the body has too little code to be worth writing again."""
        if len(self.body) > 1:
            return False
        if not self.body or isinstance(self.body[0], (ast.Pass, ast.Raise)):
            return True
        (only,) = self.body
        value = getattr(only, "value", None)
        plain = (ast.Constant, ast.Name, ast.Attribute, type(None))
        return isinstance(only, (ast.Expr, ast.Return, ast.Assign)) and isinstance(value, plain)


def first_line(node: ast.stmt) -> int:
    """Return the first line of a statement or of its decorators."""
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])


def is_only(outer: ast.AST, node: ast.stmt) -> bool:
    """Return whether a statement inside other code is alone in its block."""
    blocks = ("body", "orelse", "finalbody")
    return any(getattr(one, name, None) == [node] for one in ast.walk(outer) for name in blocks)


def mentioned(node: ast.AST) -> frozenset[str]:
    """Return every name and attribute in some code."""
    found = (getattr(one, "id", None) or getattr(one, "attr", None) for one in ast.walk(node))
    return frozenset(one for one in found if one)


def digest(node: Definition) -> str:
    """Return a digest of what a function does, without words about it."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    text = "\n".join([",".join(names), *(ast.dump(one) for one in body)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def read(path: str, text: str, python_path: Sequence[str]) -> Source:
    """Return a source file with the name that it is imported by."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    for start in python_path:
        if start != "." and path.startswith(f"{start}/"):
            parts = parts[len(PurePosixPath(start).parts) :]
    return Source(path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts), text)


def functions(source: Source) -> Iterator[Function]:
    """Yield the functions and methods of a file, in order; those inside functions are part of their function."""

    def inside(body: Iterable[ast.stmt], prefix: str, owner: ast.ClassDef | None) -> Iterator[Function]:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield Function(source, node, prefix + node.name, owner)
            elif isinstance(node, ast.ClassDef):
                yield from inside(node.body, f"{prefix}{node.name}.", node)
            elif isinstance(node, (ast.If, ast.Try)):
                yield from inside([*node.body, *node.orelse, *getattr(node, "finalbody", ())], prefix, owner)

    yield from inside(source.tree.body, "", None)


def apply(texts: Mapping[str, str], splices: Iterable[Splice]) -> tuple[SourceEdit, ...]:
    """Return the new texts of the files that some splices change; splices must not overlap."""
    by_path: dict[str, list[Splice]] = {}
    for splice in splices:
        by_path.setdefault(splice.path, []).append(splice)
    edits = []
    for path, own in sorted(by_path.items()):
        text = texts[path]
        ordered = sorted(own, reverse=True)
        for splice, earlier in itertools.zip_longest(ordered, ordered[1:]):
            start, end = splice.start, splice.end
            if not splice.text and text[end - 1 : end] == "\n" and text[start - 1 : start] in ("\n", ""):
                start, end = _closed(text, start, end)
                start = max(start, earlier.end if earlier else 0)
            text = text[:start] + splice.text + text[end:]
        edits.append(SourceEdit(path, text))
    return tuple(edits)


def _closed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span of whole lines with the blank lines beside it that a formatter would remove after it."""
    is_blank = re.compile(r"(?:[ \t]*\r?\n)*")
    before, after = text[:start], text[end:]
    gap = re.search(r"(?:(?<=\n)[ \t]*\r?\n)*\Z", before)[0]  # type: ignore[index]
    if gap or not before or re.search(r"[{:(\[][ \t]*\r?\n\Z", before):
        end += is_blank.match(after).end()  # type: ignore[union-attr]
    if not text[end:] or re.match(r"[ \t]*[})\]]", text[end:]):
        start -= len(gap)
    return start, end


def emptied(function: Function, body: str) -> Splice:
    """Return the splice that replaces a function's body after its docstring, with the comments in it."""
    source, (first, last) = function.source, function.body_lines
    start, end = source.start(function.body[0]), source.end(function.body[-1])
    lines = source.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if decorated := getattr(function.body[0], "decorator_list", None):
        first = decorated[0].lineno
        while not lines[first - 1].lstrip().startswith("@"):  # the name may be on a later line
            first -= 1
        start = source.line_start(first) + lines[first - 1].index("@")
    indent = source.text[source.line_start(first) : start]
    if indent.strip() == "":
        above = first - 1  # comments above the first statement explain the body
        while above > function.node.lineno and re.match(r"\s*(#.*)?$", lines[above - 1]):
            above -= 1
        start = source.line_start(above + 1) + len(indent) if above + 1 < first else start
        if above + 1 < first:
            start, body = source.line_start(above + 1), indent + body
    below = last  # and so do those at its end
    while below < len(lines) and re.match(rf"{indent or ' '}\s*#", lines[below]):
        below += 1
    rest = source.text[end : source.line_end(last)]
    if below > last:
        end, rest = source.line_start(below), source.text[source.line_start(below) : source.line_end(below)]
    if below > last or "#" in rest:
        end += len(rest.rstrip("\r\n"))
    return Splice(source.path, start, end, body)


def removed_lines(start: Iterable[SourceEdit], solution: Iterable[SourceEdit]) -> set[str]:
    """Return the lines that only the solution has, without spaces."""
    before = {edit.path: edit.text or "" for edit in start}
    found = set()
    for edit in solution:
        there = {_without_spaces(line) for line in before.get(edit.path, "").splitlines()}
        found |= {_without_spaces(line) for line in (edit.text or "").splitlines()} - there
    return {line for line in found if len(line) >= MIN_QUOTE and not line.startswith("#")}


def _without_spaces(text: str) -> str:
    """Return a text without spaces."""
    return "".join(text.split())


def parts_of(id: str) -> tuple[str, ...]:
    """Return the file of a pytest id and the names of its classes and its function, without its case."""
    return tuple(id.split("[")[0].split("::"))


# --------------------------------------------------------------------------------------------------- names of modules


def absolute(source: Source, node: ast.ImportFrom) -> str:
    """Return the full name of the module that a `from` statement names."""
    if not node.level:
        return node.module or ""
    parts = source.module.split(".")
    if not source.path.endswith("__init__.py"):
        parts = parts[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def bound(
    source: Source, names: Collection[tuple[str, str]], imports: Iterable[ast.Import | ast.ImportFrom] | None = None
) -> tuple[set[str], set[str]]:
    """Return what a module calls some names of modules: plain names, and `module.name` texts."""
    plain = {name for module, name in names if module == source.module}
    dotted: set[str] = set()
    for node in source.imports if imports is None else imports:
        for alias in node.names:
            known_as, full = alias.asname or alias.name, alias.name
            if isinstance(node, ast.ImportFrom):
                module = absolute(source, node)
                if alias.name == "*":
                    plain |= {name for owner, name in names if owner == module}
                elif (module, alias.name) in names:
                    plain.add(known_as)
                full = f"{module}.{alias.name}"
            dotted |= {f"{known_as}.{name}" for owner, name in names if owner == full}
            if isinstance(node, ast.Import):  # of `import package`, `package.module.name` is the name as well
                inner = [(owner, name) for owner, name in names if owner.startswith(f"{full}.")]
                dotted |= {f"{known_as}{owner.removeprefix(full)}.{name}" for owner, name in inner}
    return plain, dotted


def passed_on(source: Source, names: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the names that a module has of others' names, because it imports them."""
    found: set[tuple[str, str]] = set()
    for node in source.imports:
        if not isinstance(node, ast.ImportFrom):
            continue
        module = absolute(source, node)
        for alias in node.names:
            if (module, alias.name) in names:
                found.add((source.module, alias.asname or alias.name))
            elif alias.name == "*":
                found |= {(source.module, name) for owner, name in names if owner == module}
    return found


def loads(node: ast.AST, plain: set[str], dotted: set[str]) -> bool:
    """Return whether code uses one of the names that `bound` gave."""
    last = {one.rpartition(".")[2] for one in dotted}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in plain:
            return True
        if isinstance(inner, ast.Attribute) and inner.attr in last and ast.unparse(inner) in dotted:
            return True
    return False
