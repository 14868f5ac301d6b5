"""Python packages, tested by pytest."""

from __future__ import annotations

import ast
import builtins
import copy
import fnmatch
import itertools
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from composer_hub.environments.venvs import VenvError, pinned, site_packages, venv_for
from composer_hub.tasks import inside
from composer_hub.tasks.code import (
    Function,
    Source,
    Splice,
    bound,
    digest,
    emptied,
    functions,
    is_only,
    loads,
    parts_of,
    passed_on,
    read,
)
from composer_hub.tasks.language import Arm, Package, PackageRefused, bundle_digest, pack, shown_symbol
from composer_hub.tasks.metadata import Metadata, is_tool, read_metadata, version_file
from composer_hub.tasks.mutation import mutants

_TEST_FILES = ("test_*.py", "*_test.py", "tests.py", "test.py")
_NO_SOURCES = set("docs doc examples example benchmarks benchmark scripts tools tests test testing".split())
_VERSION = '__version__ = version = "{0}"\n__version_tuple__ = version_tuple = tuple("{0}".split("."))\n'
MAX_USERS, MAX_EXAMPLES, MAX_EXAMPLE = 3, 3, 120  # characters of one
_NO_MODULES = {"setup", "conftest", "noxfile", "fabfile", "tasks", "versioneer"}
_UNINSTALLABLE: set[tuple[str, ...]] = set()  # requirements that this process need not try again, as for each commit
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Python:
    """Python, as a `Language`."""

    name, label, fence = "python", "Python package", "python"
    kinds: tuple[str, ...] = ("stub", "cluster", "branch", "removal", "feature", "bug", "write_tests", "commit")
    has_oracles = True
    stub = "raise NotImplementedError"
    answer = 'return __import__("composer_variant").answer(locals())'  # of inside/run.py
    runner = Path(inside.__file__).with_name("run.py")
    code: tuple[str, ...] = (".py",)
    defines = re.compile(rb"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)

    def claims(self, tree: Path) -> bool:
        return True  # the default, if no other language claims it

    def metadata(self, folder: Path) -> Metadata:
        return read_metadata(folder)

    def describe(self, tree: Path, metadata: Metadata, source: str, skipped: Counter[str]) -> Package:
        if (name := version_file(tree)) and not (place := tree / name).exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(_VERSION.format(metadata.version))
        files = sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*.py"))
        readable = [path for path in files if _parses(tree / path, skipped)]
        if not readable:
            newer = f" ({skipped['syntax']} files do not parse with Python {sys.version.split()[0]})" * bool(
                skipped["syntax"]
            )
            raise PackageRefused("syntax" if skipped["syntax"] else "no_python", f"{source} has no Python code{newer}.")
        tests = tuple(path for path in readable if self.is_test(path))
        if not tests:
            raise PackageRefused(
                "no_tests", f"{source} has no test files (test_*.py). An sdist or a checkout may have them."
            )
        start = "src" if any(path.startswith("src/") and path.count("/") <= 2 for path in readable) else "."
        modules = self._modules(tree / start)
        if clash := sorted(set(modules) & sys.stdlib_module_names):
            raise PackageRefused(
                "shadows_stdlib", f"{source} has a module named like one of Python's own: {', '.join(clash)}."
            )
        inside = tuple(path for path in readable if path not in tests and _is_source(path, start, modules))
        if not inside:
            links = " Links are not followed: put the files themselves there." if skipped["link"] else ""
            raise PackageRefused("no_sources", f"{source} has no importable module in {start}/.{links}")
        _write_dist_info(tree / start, metadata)
        own = _editable(tree / start, "" if start == "." else f"{start}/", modules)
        mark = bundle_digest(pack(tree))
        return Package(tree, metadata, mark, (start,), modules, inside, tests, skipped, self, own)

    def read(self, path: str, text: str, python_path: Sequence[str]) -> Source:
        return read(path, text, python_path)

    def functions(self, source: Source) -> Iterator[Function]:
        return functions(source)

    def is_test(self, path: str) -> bool:
        return any(fnmatch.fnmatch(PurePosixPath(path).name, one) for one in _TEST_FILES)

    def meaning(self, path: str, text: str) -> str:
        try:
            parsed = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return text
        for node in ast.walk(parsed):
            body = getattr(node, "body", None)
            first = body[0] if isinstance(body, list) and body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = body[1:]  # type: ignore[attr-defined, index]
        return ast.dump(parsed)

    def names(self, source: Source) -> set[str]:
        found = set()
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef):
                found.add(node.name)
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            found |= {one.id for one in targets if isinstance(one, ast.Name)}
        return found

    def parses(self, path: str, text: str) -> bool:
        try:
            return not path.endswith(".py") or bool(ast.parse(text))
        except (SyntaxError, ValueError):
            return False

    def emptied(self, function: Function, body: str) -> Splice:
        return emptied(function, body)

    def arms(self, function: Function) -> Iterator[Arm]:
        for node in ast.walk(function.node):
            if isinstance(node, ast.If) and (without := _without_arm(function, node)) is not None:
                lines = node.body[0].lineno, node.body[-1].end_lineno or 0
                yield Arm(ast.unparse(node.test)[:80], node.lineno, lines, without)

    def mutants(self, function: Function) -> Iterator[tuple[str, int, Splice]]:
        return ((kind, node.lineno, splice) for kind, node, splice in mutants(function))  # type: ignore[attr-defined]

    def _modules(self, folder: Path) -> tuple[str, ...]:
        """Return the names that can be imported from a folder."""
        found = [one.parent.name for one in folder.glob("*/__init__.py") if one.parent.name.lower() not in _NO_SOURCES]
        found += [one.stem for one in folder.glob("*.py") if one.stem not in _NO_MODULES and not self.is_test(one.name)]
        return tuple(sorted(name for name in set(found) if name.isidentifier()))

    def environment(self, package: Package, requirements: Sequence[str]) -> Path:
        needed = ["pytest", "coverage", *requirements, *package.metadata.requirements]
        wanted = package.metadata.test_requirements
        # Tests that need what cannot be installed, or what brings a copy of the package, are not used.
        for some in dict.fromkeys((wanted, tuple(one for one in wanted if is_tool(one)))):
            if not some or (*needed, *some) in _UNINSTALLABLE:
                continue
            try:
                venv = venv_for([*needed, *some])
            except VenvError:
                _UNINSTALLABLE.add((*needed, *some))
                continue
            if not _installed(package, venv):
                return venv
        venv = venv_for(needed)
        if twice := _installed(package, venv):
            raise PackageRefused(
                "installed_twice",
                f"{twice[0]} is also installed where the tests of {package.name} run, because pytest or a requirement "
                "needs it. That copy holds every solution, and pytest may load it before a task's edit. Leave out this "
                "package, or the requirement that brings it.",
            )
        return venv

    def pinned(self, environment: Path) -> tuple[str, ...]:
        return pinned(environment)

    def settings(self, package: Package, wants_lines: bool) -> dict[str, Any]:
        return {}  # coverage sees the lines

    def head(self, source: Source, name: str) -> str | None:
        node = _definition(source, name)
        return None if node is None else _in_class(source, name, node)

    def known(self, model: Any, symbols: Sequence[str], source: Source, name: str, failing: Sequence[str]) -> str:
        node = _definition(source, name)
        try:
            return " ".join(_behavior(model, symbols, source, name, node, failing)) if node is not None else ""
        except RecursionError:
            return ""  # an expression of a thousand terms

    def function_of(self, id: str) -> str:
        return id.split("[")[0]

    def test_source(self, source: Source, id: str) -> tuple[str, str] | None:
        names = parts_of(id)[1:]
        node = _definition(source, ".".join(names)) if names else None
        if node is None:
            return None
        return names[-1], source.text[source.line_start(node.lineno) : source.end(node)]  # type: ignore[attr-defined]

    def readable(self, environment: Path) -> list[Path]:
        version = "python{}.{}".format(*sys.version_info)
        packages = sorted(path for path in site_packages(environment).iterdir() if path.is_dir())
        return [Path(sys.base_prefix, "lib", version), *packages]

    def digests(self, path: str, data: bytes) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = {}
        try:
            tree = ast.parse(data.decode("utf-8", errors="replace"))
        except (SyntaxError, ValueError, RecursionError):
            return found
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.setdefault(node.name, set()).add(digest(node))
        return found


def _is_source(path: str, start: str, modules: tuple[str, ...]) -> bool:
    parts = PurePosixPath(path).parts
    if start != ".":
        if parts[0] != start:
            return False
        parts = parts[1:]
    top = parts[0].removesuffix(".py")
    return top in modules and not set(parts[:-1]) & {"tests", "test", "testing"} and parts[-1] != "conftest.py"


def _editable(folder: Path, prefix: str, modules: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of the package's own code."""
    return tuple(f"{prefix}{one}/**/*.py" if (folder / one).is_dir() else f"{prefix}{one}.py" for one in modules)


def _parses(path: Path, skipped: Counter[str]) -> bool:
    try:
        ast.parse(path.read_bytes().decode("utf-8"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        skipped["syntax"] += 1
        return False
    return True


def _write_dist_info(folder: Path, metadata: Metadata) -> None:
    """Write metadata beside the imported package, because many ask for their own version at import."""
    place = folder / f"{re.sub(r'[-_.]+', '_', metadata.name)}-{metadata.version}.dist-info"
    place.mkdir(exist_ok=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {metadata.name}\nVersion: {metadata.version}\n")


def _without_arm(function: Function, node: ast.If) -> Splice | None:
    """Return the splice that drops the first arm of an `if` and keeps what follows it."""
    source = function.source
    text, start = source.text, source.start(node)
    line, end = source.whole_lines(node)
    is_elif, indent = _is_elif(source, node), text[line:start]
    if indent.strip():
        return None  # more than one statement on the line
    body_end = source.line_end(node.body[-1].end_lineno or 0)
    if not node.orelse:
        kept = f"{indent}pass\n" if not is_elif and is_only(function.node, node) else ""
        return Splice(source.path, line, body_end, kept)
    other = source.start(node.orelse[0])
    if _is_elif(source, node.orelse[0]):
        return Splice(source.path, start, other + 4, "elif" if is_elif else "if")
    found = re.search(r"^[ \t]*else[ \t]*:", text[body_end:other], re.MULTILINE)
    if found is None:
        return None
    if is_elif:
        return Splice(source.path, line, body_end + found.start(), "")
    block = _moved_left(source, node.orelse, indent, end)
    return None if block is None else Splice(source.path, line, end, block)


def _is_elif(source: Source, node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and source.text.startswith("elif", source.start(node))


def _moved_left(source: Source, block: Sequence[ast.stmt], indent: str, end: int) -> str | None:
    """Return the lines from a block to an end with less indentation; None if that would change more than places."""
    first = source.line_start(block[0].lineno)
    inner = source.text[first : source.start(block[0])]
    nodes = [one for statement in block for one in ast.walk(statement) if isinstance(one, ast.Constant)]
    has_lines = any(isinstance(one.value, str) and one.lineno != one.end_lineno for one in nodes)
    if has_lines or inner.strip() or not inner.startswith(indent):
        return None
    lines = source.text[first:end].splitlines(keepends=True)
    return "".join(indent + one[len(inner) :] if one.startswith(inner) else one for one in lines)


def _installed(package: Package, venv: Path) -> list[str]:
    """Return the modules of a package that an environment also has."""
    site = site_packages(venv)
    return [name for name in package.modules if (site / name).exists() or (site / f"{name}.py").exists()]


def _definition(source: Source, qualname: str) -> ast.AST | None:
    node: ast.AST = source.tree
    for part in qualname.split("."):
        defined = (one for one in ast.walk(node) if one is not node and isinstance(one, Definition))
        found = [one for one in defined if one.name == part]
        if not found:
            return None
        node = next(
            (one for one in found if not any("overload" in ast.unparse(d) for d in one.decorator_list)), found[0]
        )
    return node


def _head(source: Source, node: ast.AST) -> str:
    """Return the signature and docstring of a definition; of a class, also its fields and those of its methods."""
    lines = [ast.unparse(_bare(node))]
    if isinstance(node, ast.ClassDef):
        for one in node.body:
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines += ["", *(f"    {line}" for line in ast.unparse(_bare(one)).splitlines())]
    return "\n".join(lines)


def _bare(node: ast.AST) -> ast.AST:
    """Return a definition with its docstring and fields, and without anything else in its body."""
    doc = ast.get_docstring(node, clean=True)  # type: ignore[arg-type]
    body: list[ast.stmt] = [ast.Expr(ast.Constant(textwrap.indent(doc, "    ").strip()))] if doc else []
    body += _fields(node) or [ast.Expr(ast.Constant(...))]
    copy = type(node)(**dict(ast.iter_fields(node)))
    copy.body = body  # type: ignore[attr-defined]
    return ast.fix_missing_locations(ast.copy_location(copy, node))


def _fields(node: ast.AST) -> list[ast.stmt]:
    """Return the public fields of a class without their values: of an enum or a typed dict, nothing else is known."""
    fields: list[ast.stmt] = []
    for one in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(one, ast.AnnAssign) and _is_public(one.target):
            value = ast.Constant(...) if one.value is not None else None
            fields.append(ast.AnnAssign(one.target, one.annotation, value, one.simple))
        elif isinstance(one, ast.Assign) and all(map(_is_public, one.targets)):
            fields.append(ast.Assign(one.targets, ast.Constant(...)))
    return fields


def _is_public(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and not target.id.startswith("_")


def _in_class(source: Source, name: str, node: ast.AST) -> str:
    owner = name.rpartition(".")[0]
    head = _head(source, node)
    return f"class {owner.rpartition('.')[2]}:\n{textwrap.indent(head, '    ')}" if owner else head


def _behavior(
    model: Any, symbols: Sequence[str], source: Source, name: str, node: ast.AST, failing: Sequence[str]
) -> Iterator[str]:
    """Yield what a definition raises, whether it is a generator, what uses it, and what its tests assert."""
    inner = [] if _is_wrapped(node) else list(_own(node))
    if errors := _errors(inner):
        yield f"It raises {', '.join(f'`{one}`' for one in errors)}."
    if any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in inner):
        yield "It is a generator."
    uses = _uses(model, source, name)
    others = [one for one in model.functions if not any(f"{one.symbol}.".startswith(f"{own}.") for own in symbols)]
    users = [one.symbol for one in others if uses(one.source, one.node)]
    if users:
        more = f" and {len(users) - MAX_USERS} more" if len(users) > MAX_USERS else ""
        named = ", ".join(map(shown_symbol, users[:MAX_USERS]))
        yield f"{named}{more} {'uses' if len(users) == 1 else 'use'} it."
    if shown := _examples(model, uses, failing):
        yield "Its tests assert, for example:\n\n```python\n" + "\n".join(shown) + "\n```"


def _errors(inner: Sequence[ast.AST]) -> list[str]:
    """Return the errors that code raises and does not catch itself."""
    caught = {id(inside) for one in inner if isinstance(one, ast.Try) and one.handlers
              for statement in one.body for inside in ast.walk(statement)}  # fmt: skip
    raised = {one.exc for one in inner if isinstance(one, ast.Raise) and one.exc is not None and id(one) not in caught}
    named = {ast.unparse(one.func if isinstance(one, ast.Call) else one) for one in raised}
    return sorted(one for one in named if one[:1].isupper())


def _is_wrapped(node: ast.AST) -> bool:
    """Return whether a decorator may change what a caller sees of a function."""
    kept = {"staticmethod", "classmethod", "property", "overload", "typing.overload"}
    return any(ast.unparse(one) not in kept for one in getattr(node, "decorator_list", ()))


def _uses(model: Any, source: Source, name: str) -> Callable[[Source, ast.AST], bool]:
    """Return a check that code of a file uses a definition, and not another one of its name."""
    owner, _, last = name.rpartition(".")
    names = {(source.module, name.partition(".")[0])}
    size = 0
    while size < len(names):  # an import may be imported from there
        size = len(names)
        names = names.union(*(passed_on(one, names) for one in model.sources.values()))
    known: dict[str, tuple[set[str], set[str]]] = {}

    def uses(other: Source, code: ast.AST) -> bool:
        if other.path not in known:  # of a test file, names inside of other tests are not those of this one
            known[other.path] = bound(other, names, _imports(other) if other.path in model.tests else other.imports)
        attributes = {one.attr for one in ast.walk(code) if isinstance(one, ast.Attribute)} if owner else {last}
        return last in attributes and loads(code, *known[other.path])  # a method: beside its class

    return uses


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions inside it; of a class, none."""
    for one in ast.iter_child_nodes(node) if not isinstance(node, (ast.ClassDef, ast.Lambda)) else ():
        yield one
        if not isinstance(one, Definition):
            yield from _own(one)


def _examples(model: Any, uses: Callable[[Source, ast.AST], bool], failing: Sequence[str]) -> list[str]:
    """Return a few short assertions of failing tests that use a definition, with the values of their variables."""
    found: dict[str, None] = {}
    for path, *names in dict.fromkeys(map(parts_of, failing)):
        source = model.tests.get(path)
        test = _definition(source, ".".join(names)) if source is not None and names else None
        if isinstance(test, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for check in _checks(source, test):
                if uses(source, check) and len(text := ast.unparse(check)) <= MAX_EXAMPLE:
                    found[text] = None
        if len(found) >= MAX_EXAMPLES:
            break
    return list(found)[:MAX_EXAMPLES]


def _checks(source: Source, test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yield the assertions of a test that does nothing else, with the values of its first cases.

    What a test does before an assertion, its fixtures and its module's own names may be the reason that it holds.
    """
    constants: dict[str, ast.expr] = {}
    checks: list[ast.stmt] = []
    for one in test.body:
        match one:
            case ast.Assign(targets=[ast.Name(id=name), *_], value=ast.Constant() as value):
                if checks or name in constants:
                    return
                constants[name] = value
            case ast.Expr(value=ast.Constant()):
                pass
            case _ if isinstance(one, ast.Assert) or _expects_error(one):
                checks.append(one)
            case _:
                return
    known = {
        *dir(builtins),
        *(alias.asname or alias.name.split(".")[0] for one in _imports(source) for alias in one.names),
    }
    for case, check in itertools.product(_cases(source, test, constants), checks):
        nodes = list(ast.walk(check))
        stored = {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        if stored & case.keys() or any(isinstance(one, ast.Lambda) for one in nodes):
            continue
        whole = _Values(case).visit(copy.deepcopy(check))
        if {one.id for one in ast.walk(whole) if isinstance(one, ast.Name)} <= known | stored:
            yield whole


def _cases(
    source: Source, test: ast.FunctionDef | ast.AsyncFunctionDef, constants: dict[str, ast.expr]
) -> list[dict[str, ast.expr]]:
    """Return the variables of a test in its first cases; none if an argument comes from elsewhere."""
    cases = [constants]
    for call in test.decorator_list:
        cases = [case | own for case, own in itertools.product(cases, _rows(source, call))]
    arguments = {one.arg for one in ast.walk(test.args) if isinstance(one, ast.arg)} - {"self"}
    return [case for case in cases[:MAX_EXAMPLES] if arguments <= case.keys()]


def _imports(source: Source) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports at the top of a file."""
    return [one for one in source.tree.body if isinstance(one, (ast.Import, ast.ImportFrom))]


def _expects_error(node: ast.AST) -> bool:
    """Return whether code is one statement that must raise an error: `with pytest.raises(…)`."""
    if not isinstance(node, ast.With) or len(node.items) != 1 or len(node.body) != 1:
        return False
    manager = node.items[0].context_expr
    return isinstance(manager, ast.Call) and ast.unparse(manager.func).rpartition(".")[2] == "raises"


class _Values(ast.NodeTransformer):
    """Writes values in place of variables."""

    def __init__(self, values: Mapping[str, ast.expr]):
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)

    def visit_Starred(self, node: ast.Starred) -> ast.expr | list[ast.expr]:
        value = self.visit(node.value)
        return value.elts if isinstance(value, (ast.List, ast.Tuple)) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return node  # a value inside of an f-string would not be read as one


def _rows(source: Source, call: ast.expr) -> list[dict[str, ast.expr]]:
    """Return the first cases that a `parametrize` writes out; none of another decorator."""
    if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("parametrize") or len(call.args) != 2:
        return []
    if any(one.arg != "ids" for one in call.keywords):  # such as `indirect`, by which fixtures make other values
        return []
    named, listed = call.args
    assigned = [one for one in source.tree.body if isinstance(one, (ast.Assign, ast.AugAssign, ast.AnnAssign))]
    own = [one for one in assigned if ast.unparse(listed) in ast.unparse(one).split("=")[0].split()]
    if len(own) == 1 and isinstance(own[0], ast.Assign):
        listed = own[0].value
    words = [str(one.value) for one in ast.walk(named) if isinstance(one, ast.Constant)]
    names = re.findall(r"\w+", " ".join(words))
    rows = [_row(one, isinstance(named, ast.Constant) and len(names) == 1) for one in getattr(listed, "elts", ())]
    return [dict(zip(names, row, strict=True)) for row in rows[:MAX_EXAMPLES] if row and len(row) == len(names)]


def _row(node: ast.expr, is_bare: bool) -> list[ast.expr]:
    """Return the values of one case of a parametrized test; none if they are not written in it."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("param"):
        row = node.args if all(one.arg == "id" for one in node.keywords) else []
    else:
        row = [node] if is_bare else getattr(node, "elts", [])
    plain = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.USub, ast.Load)
    return row if all(isinstance(inner, plain) for one in row for inner in ast.walk(one)) else []
