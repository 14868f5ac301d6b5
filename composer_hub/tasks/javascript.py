"""JavaScript and TypeScript packages, tested by node's test runner, vitest or jest; code is read by tree-sitter."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from composer_hub import extras
from composer_hub.environments.node import installed, lock_of, manifest_of, modules_for, node_version
from composer_hub.environments.node_tests import RUNNERS, TYPED, runner_of, strips_types
from composer_hub.tasks import inside
from composer_hub.tasks.code import Splice
from composer_hub.tasks.language import Arm, Package, PackageRefused, bundle_digest, pack
from composer_hub.tasks.metadata import Metadata, license_of

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_UNTYPED = (".js", ".mjs", ".cjs", ".jsx")
CODE = (*_UNTYPED, *TYPED)
_TESTS = ("*.test.*", "*.spec.*", "*_test.*", "*-test.*", "test.*", "tests.*")
_TEST_FOLDERS = {"test", "tests", "__tests__", "spec"}
_NOT_TESTS = {"fixtures", "fixture", "helpers", "helper", "utils", "__fixtures__", "__mocks__", "snapshots", "bench"}
_NO_SOURCES = {
    *("docs", "doc", "examples", "example", "benchmarks", "benchmark", "bench", "scripts", "tools", "website", "demo"),
    *("playground", "coverage", "fixtures", "__mocks__", "e2e"),
}
_BUILDS = {"dist", "build", "out", "es", "esm", "cjs", "umd", ".next", "coverage"}  # anywhere; `lib` beside `src`
_COPIES = ("*.map", "*.min.js", "*.min.mjs", "*.bundle.js", "*.tsbuildinfo", "*.umd.js")
_NOT_NEEDED = {"eslint", "prettier", "xo", "rollup", "webpack", "tsup", "unbuild", "karma"}
_SETTINGS = re.compile(
    r"\.config\.|\.setup\.|^setup[-.\w]*\.|^\.|^(gulp|grunt|rollup|webpack|vite|karma)[\w.]*file", re.IGNORECASE
)
_FUNCTIONS = {
    *("function_declaration", "generator_function_declaration", "method_definition", "arrow_function"),
    *("function_expression", "generator_function", "function"),
}
_NAMED_BY = {
    "variable_declarator": "name", "pair": "key", "public_field_definition": "name", "field_definition": "property",
    "assignment_expression": "left",
}  # fmt: skip
_TYPES = {
    *("comment", "type_annotation", "type_arguments", "type_parameters", "accessibility_modifier", "override_modifier"),
    *("implements_clause", ";", ",", "?", "!", "readonly"),
}
_SWAPPED = {
    "<": ("boundary", "<="), "<=": ("boundary", "<"), ">": ("boundary", ">="), ">=": ("boundary", ">"),
    "===": ("comparison", "!=="), "!==": ("comparison", "==="), "==": ("comparison", "!="), "!=": ("comparison", "=="),
    "-": ("operator", "+"), "*": ("operator", "+"), "/": ("operator", "*"), "%": ("operator", "/"),
    "&&": ("operator", "||"), "||": ("operator", "&&"), "??": ("operator", "&&"), "&": ("operator", "|"),
    "|": ("operator", "&"), "<<": ("operator", ">>"), ">>": ("operator", "<<"),
}  # fmt: skip
_HIT = (
    'globalThis.__composer{0}??=(process.getBuiltinModule("fs").appendFileSync(process.env.COMPOSER_HITS,"{0}\\n"),1);'
)
# The answers of `deletion.VARIANTS`; without one, a body that is not written yet.
_ANSWER = (
    "switch (process.env.COMPOSER_VARIANT) {{"
    ' case "none": return undefined as never; case "argument": return {0} as never; case "text": return "" as never;'
    ' case "list": return [] as never; case "true": return true as never;'
    ' default: throw new Error("not implemented"); }}'
)


@functools.cache
def _parser(suffix: str) -> Parser:
    from tree_sitter import Language, Parser

    if suffix in TYPED:
        import tree_sitter_typescript as typed

        return Parser(Language(typed.language_tsx() if suffix == ".tsx" else typed.language_typescript()))
    import tree_sitter_javascript

    return Parser(Language(tree_sitter_javascript.language()))


@dataclass(frozen=True, eq=False)
class Script:
    """A parsed file. Places are counted in characters, as in Python's texts."""

    path: str
    text: str

    @property
    def module(self) -> str:
        return self.path

    @functools.cached_property
    def data(self) -> bytes:
        return self.text.encode("utf-8", "surrogatepass")

    @functools.cached_property
    def root(self) -> Node:
        return _parser(PurePosixPath(self.path).suffix).parse(self.data).root_node

    def at(self, place: int) -> int:
        return place if self.text.isascii() else len(self.data[:place].decode("utf-8", "ignore"))

    def of(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def replace(self, first: Node, text: str, last: Node | None = None) -> Splice:
        return Splice(self.path, self.at(first.start_byte), self.at((last or first).end_byte), text)

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]

    def line_start(self, line: int) -> int:
        return self._starts[line - 1]

    def line_end(self, line: int) -> int:
        return self._starts[line] if line < len(self._starts) else len(self.text)


@dataclass(frozen=True, eq=False)
class ScriptFunction:
    """A function, a method, or an arrow function that has a name."""

    source: Script
    node: Node
    name: str
    symbol: str
    outer: Node  # the statement or member that holds it, with `export` and `const`
    is_cached = False

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def first_line(self) -> int:
        return self.outer.start_point[0] + 1

    @property
    def body(self) -> Node:
        return _field(self.node, "body")

    @functools.cached_property
    def statements(self) -> list[Node]:
        is_block = self.body.type == "statement_block"
        return [one for one in self.body.named_children if one.type != "comment"] if is_block else [self.body]

    @property
    def body_lines(self) -> tuple[int, int]:
        if not self.statements:
            return (1, 0)
        return self.statements[0].start_point[0] + 1, self.statements[-1].end_point[0] + 1

    @functools.cached_property
    def called_names(self) -> frozenset[str]:
        return frozenset(
            self.source.of(one) for one in _walk(self.body) if one.type in ("identifier", "property_identifier")
        )

    @functools.cached_property
    def size(self) -> int:
        return sum("statement" in one.type or one.type.endswith("declaration") for one in _walk(self.body)) - 1

    @functools.cached_property
    def digest(self) -> str:
        parts = [_field(self.node, "parameters") or _field(self.node, "parameter"), self.body]
        words = [word for part in parts if part is not None for word in _words(self.source, part)]
        return hashlib.sha256(" ".join(words).encode()).hexdigest()[:20]

    def can_be_emptied(self) -> bool:
        if len(self.statements) != 1:
            return bool(self.statements)
        only = self.statements[0]
        value = only.named_children[0] if only.type == "return_statement" and only.named_children else only
        plain = ("identifier", "this", "member_expression", "number", "string", "true", "false", "null", "undefined")
        return value.type not in (*plain, "throw_statement", "return_statement")


class JavaScript:
    """JavaScript and TypeScript, as a `Language`."""

    name, label, fence = "javascript", "JavaScript package", "ts"
    kinds: tuple[str, ...] = ("stub", "cluster", "branch", "bug", "commit")
    has_oracles = False
    stub = 'throw new Error("not implemented");'
    answer = _ANSWER
    runner = Path(inside.__file__).with_name("run_node.py")
    code: tuple[str, ...] = CODE
    defines = re.compile(  # possessive: a long line of text is read once
        rb"(?<![\w$])([A-Za-z_$][\w$]*+)\s*(?:\([^()\n]*\)\s*(?::[^{\n]+)?\{|[=:]\s*(?:async\s+)?(?:function\b|\(|[\w$]+\s*=>))"
    )

    # ---- find

    def claims(self, tree: Path) -> bool:
        python = ("pyproject.toml", "setup.py", "setup.cfg", "PKG-INFO")
        return (tree / "package.json").is_file() and not any((tree / name).is_file() for name in python)

    def metadata(self, folder: Path) -> Metadata:
        manifest = manifest_of((folder / "package.json").read_bytes())
        name = re.sub(r"[^\w.-]+", "-", str(manifest.get("name") or folder.resolve().name)).strip("-")
        version = re.sub(r"[^\w.!+-]+", "", str(manifest.get("version") or "0"))
        return Metadata(
            name or "package", version or "0", license_of(folder, {"license": manifest.get("license")}, None)
        )

    def describe(self, tree: Path, metadata: Metadata, source: str, skipped: Counter[str]) -> Package:
        extras.need("Making tasks from JavaScript packages", "javascript", "tree_sitter_typescript")
        manifest = manifest_of((tree / "package.json").read_bytes())
        if not manifest:
            raise PackageRefused("no_manifest", f"The package.json of {source} is not a JSON object. Correct it.")
        _take_builds(tree, skipped)
        files = sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.suffix in CODE)
        tests = tuple(path for path in files if self.is_test(path))
        if _is_monorepo(tree, manifest):
            packages = sorted(str(one.parent.relative_to(tree)) for one in tree.glob("*/*/package.json"))
            raise PackageRefused(
                "monorepo", f"{source} holds several packages. Name the folder of one: {', '.join(packages[:5])}."
            )
        if not tests:
            raise PackageRefused(
                "no_tests", f"{source} has no test files (*.test.ts, test/*.js). A checkout may have them."
            )
        if (runner := runner_of(manifest)) not in RUNNERS:
            raise PackageRefused(
                "no_runner", f"The tests of {source} run with {runner or 'a program of its own'}. node's test runner, "
                "vitest and jest are known.",
            )  # fmt: skip
        version = node_version()
        loaded = _loaded(runner, manifest, version)
        tests = tuple(path for path in tests if path.endswith(loaded))
        if not tests:
            raise PackageRefused(
                "old_node", f"The tests of {source} are TypeScript, which node {version} cannot run. Install "
                "Node.js 22.6 or later.",
            )  # fmt: skip
        sources = tuple(path for path in files if not _is_test(path) and _is_source(tree / path, path))
        if not sources:
            raise PackageRefused("no_sources", f"{source} has no source file beside its tests, builds and settings.")
        _write_slim(tree, manifest, runner)
        digest = bundle_digest(pack(tree))
        return Package(tree, metadata, digest, (".",), (), sources, tests, skipped, self, _editable(sources))

    def read(self, path: str, text: str, python_path: Sequence[str]) -> Script:
        return Script(path, text)

    def functions(self, source: Script) -> Iterator[ScriptFunction]:
        return _functions(source, source.root, "")

    def is_test(self, path: str) -> bool:
        return path.endswith(CODE) and _is_test(path)

    def meaning(self, path: str, text: str) -> str:
        source = Script(path, text)
        return text if not path.endswith(CODE) or source.root.has_error else " ".join(_words(source, source.root))

    def names(self, source: Script) -> set[str]:
        found = set()
        for node in source.root.named_children:
            own = _field(node, "declaration") if node.type == "export_statement" else node
            parts = [] if own is None else [own, *(one for one in own.named_children if one.type in _NAMED_BY)]
            named = [_field(one, "name") for one in parts if not one.type.startswith("function")]
            found |= {source.of(one) for one in named if one is not None}
        return found

    # ---- edit

    def parses(self, path: str, text: str) -> bool:
        return not path.endswith(CODE) or not Script(path, text).root.has_error

    def emptied(self, function: ScriptFunction, body: str) -> Splice:
        source = function.source
        if body is _ANSWER:
            body = _ANSWER.format(_first_argument(function))
            body = body if function.path.endswith(TYPED) else body.replace(" as never", "")
        if function.body.type != "statement_block":
            return source.replace(function.body, f"{{ {body} }}")
        line = source.text[source.line_start(function.first_line) :]
        indent = line[: len(line) - len(line.lstrip())]
        step = "\t" if "\n\t" in source.text else "  " if "\n  " in source.text else "    "
        return source.replace(function.body, f"{{\n{indent}{step}{body}\n{indent}}}")

    def arms(self, function: ScriptFunction) -> Iterator[Arm]:
        for node in _walk(function.body):
            if node.type == "if_statement" and (without := _without_arm(function.source, node)) is not None:
                inner = _field(node, "consequence")
                lines = inner.start_point[0] + 1, inner.end_point[0] + 1
                condition = function.source.of(_field(node, "condition"))[:80]
                yield Arm(condition, node.start_point[0] + 1, lines, without)

    def mutants(self, function: ScriptFunction) -> Iterator[tuple[str, int, Splice]]:
        for node in _walk(function.body):
            for kind, splice in _mutants(function.source, node):
                yield kind, node.start_point[0] + 1, splice

    # ---- run, and read results

    def environment(self, package: Package, requirements: Sequence[str]) -> Path:
        manifest = manifest_of(package.text("package.json"))
        lock = package.folder / "package-lock.json"
        return modules_for(manifest, lock.read_bytes() if lock.exists() else None)

    def pinned(self, environment: Path) -> tuple[str, ...]:
        return installed(environment)

    def settings(self, package: Package, wants_lines: bool) -> dict[str, Any]:
        blocks = _probed({path: package.text(path) for path in package.sources}) if wants_lines else {}
        return {"version": node_version(), "blocks": blocks}

    # ---- describe

    def head(self, source: Script, name: str) -> str | None:
        for one in _functions(source, source.root, ""):
            if one.symbol.partition(":")[2] == name:
                start = one.outer
                while start.prev_sibling is not None and start.prev_sibling.type == "comment":
                    start = start.prev_sibling
                text = source.data[start.start_byte : one.body.start_byte].decode("utf-8", "replace").rstrip()
                owner = name.rpartition(".")[0]
                return f"// of {owner}\n{text}" if owner else text
        return None

    def known(self, model: Any, symbols: Sequence[str], source: Script, name: str, failing: Sequence[str]) -> str:
        return ""

    def function_of(self, id: str) -> str:
        return id  # which titles one list of cases gave is not known

    def test_source(self, source: Script, id: str) -> tuple[str, str] | None:
        title = id.partition("::")[2].rpartition(" > ")[2]
        for node in _walk(source.root):
            if node.type != "call_expression":
                continue
            inner = _field(node, "arguments").named_children
            if inner and inner[0].type in ("string", "template_string") and source.of(inner[0])[1:-1] == title:
                return title, source.of(node)
        return None

    def readable(self, environment: Path) -> list[Path]:
        return [environment / "node_modules"]

    def digests(self, path: str, data: bytes) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = {}
        source = Script(path.replace("!", "/"), data.decode("utf-8", "replace"))
        for one in _functions(source, source.root, ""):
            found.setdefault(one.name, set()).add(one.digest)
        return found


# ---------------------------------------------------------------------------------------------------------------- find


def _take_builds(tree: Path, skipped: Counter[str]) -> None:
    """Remove what was built from the sources: it holds every answer."""
    for path in sorted(tree.rglob("*")):
        beside = path.name == "lib" and (path.parent / "src").is_dir()
        if path.is_dir() and (path.name in _BUILDS or beside) and not _TEST_FOLDERS & set(path.relative_to(tree).parts):
            shutil.rmtree(path)
            skipped["build"] += 1
        elif path.is_file() and any(fnmatch.fnmatch(path.name, one) for one in _COPIES):
            path.unlink()
            skipped["build"] += 1


def _is_monorepo(tree: Path, manifest: Mapping[str, Any]) -> bool:
    pnpm = tree / "pnpm-workspace.yaml"  # also holds settings of single packages
    return bool(manifest.get("workspaces")) or (pnpm.is_file() and b"packages:" in pnpm.read_bytes())


def _loaded(runner: str, manifest: Mapping[str, Any], version: str) -> tuple[str, ...]:
    """Return how names of the files end that a runner can load."""
    is_typed = runner != "node" or "tsx" in str(manifest.get("scripts")) or strips_types(version)
    return CODE if is_typed else _UNTYPED


def _editable(sources: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of the package's own code."""
    tops = sorted({path.partition("/")[0] for path in sources})
    return tuple(one for top in tops for one in ([top] if top in sources else [f"{top}/**/*{end}" for end in CODE]))


def _write_slim(tree: Path, manifest: Mapping[str, Any], runner: str) -> None:
    """Write the manifest without the tools that no code and no settings of the tests name, and a lock if it needs one.

    The tools are those of builds, linters and releases.
    """
    named = {
        found.decode("utf-8", "replace")
        for path in tree.rglob("*")
        if path.suffix in (*CODE, ".json") and not path.name.startswith("package") and path.stat().st_size < 1 << 20
        if not _NO_SOURCES & set(path.relative_to(tree).parts[:-1])
        for found in re.findall(rb"""["']((?:@[\w.-]+/)?[\w.-]+)[\w./-]*["']""", path.read_bytes())
    }
    table = manifest.get("devDependencies")
    tools = [part for part in (runner, "babel", "typescript", "tsx", "ts-node", "swc") if part != "node"]
    wanted = {
        name: version
        for name, version in (table.items() if isinstance(table, dict) else ())
        if any(tool in name for tool in tools) or (name in named and name not in _NOT_NEEDED)
    }
    slim = {**manifest, "devDependencies": wanted}
    (tree / "package.json").write_text(json.dumps(slim, indent=2) + "\n")
    if not (tree / "package-lock.json").exists() and (lock := lock_of(slim)):
        (tree / "package-lock.json").write_bytes(lock)


def _is_test(path: str) -> bool:
    *folders, name = PurePosixPath(path).parts
    if _NOT_TESTS & set(folders) or re.search(r"\.d\.[mc]?ts$|[.-]d\.ts$", name) or _SETTINGS.search(name):
        return False
    return any(fnmatch.fnmatch(name, one) for one in _TESTS) or bool(_TEST_FOLDERS & set(folders))


def _is_source(file: Path, path: str) -> bool:
    *folders, name = PurePosixPath(path).parts
    outside = _NO_SOURCES | _TEST_FOLDERS
    if outside & set(folders) or re.search(r"\.d\.[mc]?ts$", name) or _SETTINGS.search(name):
        return False
    try:
        text = file.read_bytes().decode("utf-8")
    except ValueError:
        return False
    is_bundle = len(text) > 1000 and max(map(len, text.splitlines()), default=0) > 2000
    return not is_bundle and not Script(path, text).root.has_error


def _functions(source: Script, node: Node, prefix: str) -> Iterator[ScriptFunction]:
    """Yield the named functions of a block; those inside functions are part of their function."""
    for child in node.named_children:
        if child.type in _FUNCTIONS:
            name = _name(source, child)
            if name and _field(child, "body") is not None:
                yield ScriptFunction(source, child, name, f"{source.path}:{prefix}{name}", _outer(child))
        elif child.type in ("class_declaration", "class", "abstract_class_declaration"):
            named = _field(child, "name")
            yield from _functions(source, _field(child, "body"), f"{prefix}{source.of(named)}." if named else prefix)
        elif child.type not in ("call_expression", "binary_expression", "ternary_expression", "array"):
            yield from _functions(source, child, prefix)


def _name(source: Script, node: Node) -> str:
    own = _field(node, "name")
    if own is not None:
        return source.of(own)
    parent = node.parent
    if parent is None or parent.type not in _NAMED_BY:
        return "default" if parent is not None and parent.type == "export_statement" else ""
    named = source.of(_field(parent, _NAMED_BY[parent.type]))
    last = named.rpartition(".")[2]
    return last if re.fullmatch(r"#?[\w$]+", last) else ""


def _outer(node: Node) -> Node:
    kinds = {*_NAMED_BY, "lexical_declaration", "variable_declaration", "export_statement", "expression_statement"}
    while node.parent is not None and node.parent.type in kinds:
        node = node.parent
    return node


def _first_argument(function: ScriptFunction) -> str:
    if function.node.type != "arrow_function":
        return "arguments[0]"
    given = _field(function.node, "parameters") or _field(function.node, "parameter")
    found = re.match(r"\(?\s*([A-Za-z_$][\w$]*)", function.source.of(given)) if given is not None else None
    return found[1] if found else "undefined"


def _walk(node: Node) -> Iterator[Node]:
    todo = [node]
    while todo:
        one = todo.pop()
        yield one
        todo += reversed(one.named_children)


def _words(source: Script, node: Node) -> Iterator[str]:
    """Yield the words of code without types, comments and what a formatter changes."""
    todo = [node]  # not by recursion: a sum of a thousand parts is a thousand levels deep
    while todo:
        one = todo.pop()
        if one.type in ("as_expression", "satisfies_expression", "non_null_expression"):
            todo.append(one.named_children[0])
        elif one.type == "string":
            yield repr(source.of(one)[1:-1])
        elif one.type not in _TYPES and (not one.children or one.type == "template_string"):
            yield source.of(one)
        elif one.type not in _TYPES:
            todo += reversed(one.children)


def _field(node: Node, name: str) -> Any:
    return node.child_by_field_name(name)


# ---------------------------------------------------------------------------------------------------------------- edit


def _without_arm(source: Script, node: Node) -> Splice | None:
    """Return the splice that drops the first arm of an `if` and keeps what follows it."""
    alternative, parent = _field(node, "alternative"), node.parent
    is_else = parent is not None and parent.type == "else_clause"
    if alternative is None:
        if parent is not None and parent.type == "else_clause" and parent.prev_sibling is not None:
            return Splice(source.path, source.at(parent.prev_sibling.end_byte), source.at(parent.end_byte), "")
        if parent is None or parent.type not in ("statement_block", "program"):
            return None
        first, last = source.line_start(node.start_point[0] + 1), source.line_end(node.end_point[0] + 1)
        start, end = source.at(node.start_byte), source.at(node.end_byte)
        alone = not source.text[first:start].strip() and not source.text[end:last].strip()
        return Splice(source.path, first, last, "") if alone else Splice(source.path, start, end, "")
    rest = alternative.named_children[0]
    if is_else or rest.type != "statement_block" or any(one.type == "template_string" for one in _walk(rest)):
        return source.replace(node, source.of(rest))
    lines = source.of(rest)[1:-1].strip("\n").splitlines()
    margin = min((len(one) - len(one.lstrip()) for one in lines if one.strip()), default=0)
    indent = " " * node.start_point[1] if "\n\t" not in source.text else "\t" * node.start_point[1]
    text = "\n".join(f"{indent}{one[margin:]}" if one.strip() else "" for one in lines).strip()
    return source.replace(node, text)


def _mutants(source: Script, node: Node) -> Iterator[tuple[str, Splice]]:
    kind = node.type
    if kind == "binary_expression":
        left, operator, right = (_field(node, name) for name in ("left", "operator", "right"))
        is_text = {left.type, right.type} & {"string", "template_string"}
        if (found := _SWAPPED.get(operator.type)) and not is_text:
            yield found[0], source.replace(operator, found[1])
    elif kind == "unary_expression" and source.of(node).startswith("!"):
        yield "negation", source.replace(node, source.of(_field(node, "argument")))
    elif kind in ("if_statement", "while_statement"):
        condition = _field(node, "condition")
        yield "negation", source.replace(condition, f"(!{source.of(condition)})")
    elif kind == "ternary_expression":
        condition = _field(node, "condition")
        yield "negation", source.replace(condition, f"!({source.of(condition)})")
    elif kind in ("true", "false"):
        yield "constant", source.replace(node, "false" if kind == "true" else "true")
    elif kind == "number" and source.of(node).isdecimal() and not source.of(node).startswith("0" * 2):
        yield "constant", source.replace(node, str(int(source.of(node)) + 1))
    elif kind == "return_statement" and node.named_children and node.named_children[0].type == "call_expression":
        yield "lost_return", source.replace(node.children[0], "void")
    elif kind == "call_expression":
        inner = _field(node, "arguments").named_children
        if len(inner) == 2 and source.of(inner[0]) != source.of(inner[1]) and inner[0].type != "spread_element":
            between = source.data[inner[0].end_byte : inner[1].start_byte].decode("utf-8", "replace")
            text = source.of(inner[1]) + between + source.of(inner[0])
            yield "swapped_arguments", source.replace(inner[0], text, inner[1])


# ----------------------------------------------------------------------------------------------------------------- run


def _probed(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the sources with a report at the start of each block, and the lines that belong to each block."""
    edits, blocks = [], list[tuple[str, list[int]]]()
    for path, text in texts.items():
        source, places = Script(path, text), dict[int, int]()  # line -> innermost block
        inserts: list[tuple[int, str]] = []
        for node in _walk(source.root):
            if node.type != "statement_block" or not node.named_children or node.parent is None:
                continue
            if node.parent.type == "if_statement" or node.parent.type in (*_FUNCTIONS, "else_clause"):
                number = len(blocks)
                blocks.append((path, []))
                inserts.append((source.at(node.start_byte) + 1, _HIT.format(number)))
                places |= dict.fromkeys(range(node.start_point[0] + 1, node.end_point[0] + 2), number)
        for node in _walk(source.root):  # an arrow function without a block
            if node.type == "arrow_function" and _field(node, "body").type != "statement_block":
                number, body = len(blocks), _field(node, "body")
                blocks.append((path, []))
                inserts += [
                    (source.at(body.start_byte), f"({_HIT.format(number)[:-1]},"),
                    (source.at(body.end_byte), ")"),
                ]
                places |= {line: number for line in range(body.start_point[0] + 1, body.end_point[0] + 2)
                           if line not in places}  # fmt: skip
        for line, number in places.items():
            blocks[number][1].append(line)
        for place, one in sorted(inserts, reverse=True):
            text = text[:place] + one + text[place:]
        edits.append((path, text))
    return {"edits": edits, "lines": blocks}
