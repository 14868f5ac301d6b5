"""Read a script of Codex's code mode: JavaScript in, its tool calls and its prints out.

In code mode the model calls one tool, `exec`, with a script that calls the others:

    const r = await tools.exec_command({cmd: "make test", workdir: "/w"}); text(r.output);

`script_of` reads such a script without running it. It follows constants, templates, `Promise.all`, `map`, loops over
lists that the script writes out, and functions that it defines. A script is plain if each of its calls surely happens,
in this order, with arguments that the script writes out. Nothing is claimed about any other script.
"""

from __future__ import annotations

import contextlib
import functools
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

from composer_hub.actions.javascript import (
    assigned_in,
    names_in,
    part_of,
    script_tree,
    text_of,
    types_in,
    unescaped,
    unquoted,
    variables_in,
)
from composer_hub.actions.script_values import (
    MAX_ITEMS,
    MAX_SCRIPT_CHARS,
    SOME,
    UNKNOWN,
    Joined,
    Json,
    NotPlain,
    PlainScript,
    Print,
    ResultField,
    are_all,
    flat,
    is_plain,
    is_scalar,
    joined,
    number_of,
    pieces_of,
    sum_of,
)
from composer_hub.actions.tools import PATIENCE, is_script
from composer_hub.records import ToolCall, clean

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_CALLS = 100  # of a loop that is written out
MAX_DEPTH = 60
MAX_WORK = 20_000  # expressions and values that are read, so that loops in loops end


def calls_in(call: ToolCall) -> tuple[ToolCall, ...]:
    """Return the calls that a plain script makes, with the script's id; of anything else, the call itself."""
    if not is_script(call.name, call.arguments):
        return (call,)
    script = script_of(str(call.arguments["input"]))
    inner = script.calls if script else ()
    return tuple(ToolCall(name, arguments, call.call_id) for name, arguments in inner) or (call,)


def script_of(text: str) -> PlainScript | None:
    """Return the calls and prints of a script, None if it is not plain."""
    return _script_of(text) if len(text) <= MAX_SCRIPT_CHARS else None


@functools.lru_cache(maxsize=256)  # the readers of errors, forms and pairs ask about the same call
def _script_of(text: str) -> PlainScript | None:
    root = script_tree(text)
    if root.has_error:
        return None
    reader = _Interpreter()
    try:
        with contextlib.suppress(_Return):  # a script may leave early, by `exit()` for example
            reader.run(root.named_children, ChainMap(dict.fromkeys(variables_in(root), UNKNOWN)))
    except (NotPlain, RecursionError):
        return None
    return PlainScript(tuple(reader.calls), tuple(reader.prints))


@dataclass(frozen=True)
class _Function:
    parameters: Sequence[Node]
    body: Node
    scope: _Scope
    is_async: bool
    variables: Sequence[str]  # names that it declares by `var`, wherever that is


@dataclass(frozen=True)
class _Method:
    """A method of a value that is known, such as the `map` of a list."""

    owner: Any
    name: str


@dataclass
class _Return(Exception):
    value: Any = None


class _Exit(_Return):
    """The end of the whole script, also out of a function."""


_Scope = ChainMap[str, Any]
_TOOLS = object()


@dataclass
class _Interpreter:
    """Reads statements in order, with the values of the names that it knows."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    prints: list[Print] = field(default_factory=list)
    doubt: int = 0  # above 0 if the statement may not run, or may run again
    exits: int = 0  # the part of it that stays after a function: the whole script may have ended
    is_apart: bool = False  # in an asynchronous function that nothing waits for
    is_late: bool = False  # in such a function after its first `await`: other code runs before the statement
    depth: int = 0
    work: int = 0

    # ---- statements

    def run(self, statements: Sequence[Node], scope: _Scope) -> None:
        for node in statements:
            if node.type == "function_declaration":
                scope[text_of(part_of(node, "name"))] = _function(node, scope)
        for node in statements:
            self.statement(node, scope)

    def statement(self, node: Node, scope: _Scope) -> None:
        if handler := _STATEMENTS.get(node.type):
            handler(self, node, scope)
        elif node.type not in _SILENT:
            self.value(node, scope)

    def block(self, node: Node, scope: _Scope) -> None:
        self.run(node.named_children, scope.new_child())

    def declaration(self, node: Node, scope: _Scope) -> None:
        for part in node.named_children:
            if part.type == "variable_declarator":
                value = part.child_by_field_name("value")
                named = _declare if node.type == "lexical_declaration" else self.assign
                self.bind(part_of(part, "name"), self.value(value, scope) if value else None, scope, named)

    def bind(self, target: Node, value: Any, scope: _Scope, named: Callable[[_Scope, str, Any], None]) -> None:
        """Give names to a value or its parts."""
        if target.type in ("identifier", "shorthand_property_identifier_pattern"):
            named(scope, text_of(target), value)
        elif target.type == "array_pattern":
            place = 0
            for part in target.children:
                if part.type == ",":  # `[, b]` leaves a place out
                    place += 1
                elif part.is_named and part.type != "comment":
                    self.bind(part, _item(value, place), scope, named)
        elif target.type == "object_pattern":
            for part in target.named_children:
                if part.type == "pair_pattern":
                    self.bind(part_of(part, "value"), _member(value, text_of(part_of(part, "key"))), scope, named)
                elif part.type == "shorthand_property_identifier_pattern":
                    named(scope, text_of(part), _member(value, text_of(part)))
                elif part.type == "rest_pattern" and isinstance(value, ResultField):
                    named(scope, text_of(part.named_children[0]), value)  # prints as the rest of the result
                else:
                    self.forget(part, scope)
        else:
            self.forget(target, scope)

    def forget(self, node: Node, scope: _Scope) -> None:
        """Make every name below a node unknown, and see to it that it calls no tool."""
        for name in names_in(node):
            _assign(scope, name, UNKNOWN)
            scope[name] = UNKNOWN
        self.opaque(node, scope)

    def opaque(self, node: Node, scope: _Scope) -> None:
        """Pass over code that is not understood: it may print and change what it names, but not call a tool."""
        names = set(names_in(node))
        if "tools" in names or names & _UNSAFE:
            raise NotPlain
        self.handed_over([scope.get(name) for name in names])
        for name in assigned_in(node):
            _forget(scope, name)
        if "text" in names:
            self.prints.append(Print((UNKNOWN,), is_certain=False))
        if "exit" in names or _LEAVING.intersection(types_in(node)):
            self.may_end()

    def may_end(self) -> None:
        """Doubt all that follows: the whole script may end here."""
        self.doubt, self.exits = self.doubt + 1, self.exits + 1

    @contextlib.contextmanager
    def in_doubt(self) -> Iterator[None]:
        """Read code that may not run; if it can leave, neither may the code that follows."""
        self.doubt += 1
        try:
            yield
        except _Exit:
            self.exits += 1
        except _Return:
            return
        else:
            self.doubt -= 1

    def choice(self, node: Node, scope: _Scope) -> None:
        condition = self.value(part_of(node, "condition"), scope)
        ways = [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
        if is_scalar(condition):
            if taken := ways[not condition]:
                self.statement(taken, scope)
            return
        for way in filter(None, ways):
            with self.in_doubt():
                self.statement(way, scope)

    def loop(self, node: Node, scope: _Scope) -> None:
        inner = scope.new_child()
        if node.type == "for_in_statement" and any(child.type == "of" for child in node.children):
            values = self.value(part_of(node, "right"), scope)
            if _is_counted(values):
                for _, value in _each(values):
                    inner = scope.new_child()
                    kind = node.child_by_field_name("kind")
                    named = _declare if kind and text_of(kind) != "var" else self.assign
                    self.bind(part_of(node, "left"), value, inner, named)
                    self.in_loop(part_of(node, "body"), inner)
                return
        for name in assigned_in(node):
            _forget(inner, name)
        with self.in_doubt():
            self.run(node.named_children, inner)

    def in_loop(self, body: Node, scope: _Scope) -> None:
        self.again(body)
        leaves = {"break_statement", "continue_statement"}.intersection(types_in(body))
        with self.in_doubt() if leaves else contextlib.nullcontext():
            self.statement(body, scope)

    def again(self, body: Node) -> None:
        """Count the work of code that may run many times, also of its parts that are only looked through."""
        self.spend((body.end_byte - body.start_byte) // 20)

    def spend(self, work: int) -> None:
        self.work += work
        if self.work > MAX_WORK:
            raise NotPlain

    def stringified(self, arguments: Sequence[Any]) -> Any:
        value = self.copied(arguments[0]) if arguments else UNKNOWN
        if isinstance(value, (ResultField, dict, list)) and not any(isinstance(one, _Function) for one in arguments):
            return Joined((Json(value, is_indented=len(arguments) > 2),))
        return UNKNOWN

    def attempt(self, node: Node, scope: _Scope) -> None:
        try:
            self.block(part_of(node, "body"), scope)
        except _Return as left:
            if node.child_by_field_name("finalizer") or isinstance(left, _Exit):
                raise NotPlain from None  # which runs after all, as the handler of an exit may
            raise
        if handler := node.child_by_field_name("handler"):
            inner = scope.new_child()
            if name := handler.child_by_field_name("parameter"):
                self.forget(name, inner)
            with self.in_doubt():
                self.statement(part_of(handler, "body"), inner)
        if final := node.child_by_field_name("finalizer"):
            self.statement(part_of(final, "body"), scope)

    def leave(self, node: Node, scope: _Scope) -> None:
        value = self.value(node.named_children[0], scope) if node.named_children else None
        raise _Return(UNKNOWN if self.doubt else value)

    def fail(self, node: Node, scope: _Scope) -> None:
        if not self.doubt:
            raise NotPlain  # a handler may continue
        self.may_end()

    def expression(self, node: Node, scope: _Scope) -> None:
        for part in node.named_children:
            self.value(part, scope)

    # ---- expressions

    def value(self, node: Node, scope: _Scope) -> Any:
        self.spend(1)
        if self.depth > MAX_DEPTH:
            raise NotPlain
        if reader := _EXPRESSIONS.get(node.type):
            self.depth += 1
            found = reader(self, node, scope)
            self.depth -= 1
            return found
        if node.type in _LITERALS:
            return _LITERALS[node.type]
        self.opaque(node, scope)
        return UNKNOWN

    def name(self, node: Node, scope: _Scope) -> Any:
        name = text_of(node)
        if name in _UNSAFE:
            raise NotPlain
        return scope.get(name, _TOOLS if name == "tools" else UNKNOWN)

    def first(self, node: Node, scope: _Scope) -> Any:
        return self.value(node.named_children[0], scope) if node.named_children else UNKNOWN

    def template(self, node: Node, scope: _Scope) -> Any:
        return self.filled(node, scope, unescaped)

    def filled(self, node: Node, scope: _Scope, plain: Callable[[Node], str]) -> Any:
        parts = node.named_children
        return joined([self.first(one, scope) if one.type == "template_substitution" else plain(one) for one in parts])

    def list(self, node: Node, scope: _Scope) -> Any:
        values: list[Any] = []
        before = ","
        for part in node.children[1:-1]:
            if part.type == "," == before:
                values.append(SOME)  # `[, b]` leaves a place out, which `map` passes over
            elif part.type == "spread_element":
                more = self.first(part, scope)
                values += more if isinstance(more, list) else [SOME]
            elif part.is_named and part.type != "comment":
                values.append(self.value(part, scope))
            before = before if part.type == "comment" else part.type
            if len(values) > MAX_ITEMS:
                raise NotPlain
        return values

    def copied(self, value: Any) -> Any:
        """Return a value as it is now: the script may change its lists and objects later."""
        self.spend(1)
        if isinstance(value, list):
            return [self.copied(one) for one in value]
        return {name: self.copied(one) for name, one in value.items()} if isinstance(value, dict) else value

    def object(self, node: Node, scope: _Scope) -> Any:
        values: dict[str, Any] = {}
        is_known = True
        for part in node.named_children:
            if part.type == "pair":
                key = part_of(part, "key")
                name = unquoted(key) if key.type == "string" else text_of(key)
                is_known = is_known and key.type in ("string", "property_identifier", "number")
                values[name] = self.value(part_of(part, "value"), scope)
            elif part.type == "shorthand_property_identifier":
                values[text_of(part)] = self.name(part, scope)
            elif part.type == "spread_element" and isinstance(more := self.first(part, scope), dict):
                values |= more
            elif part.type != "comment":
                self.opaque(part, scope)
                is_known = False
        return values if is_known else UNKNOWN

    def member(self, node: Node, scope: _Scope) -> Any:
        owner, name = self.value(part_of(node, "object"), scope), text_of(part_of(node, "property"))
        if owner is None and all(child.type != "optional_chain" for child in node.children):
            raise NotPlain  # the script fails here
        if name in _METHODS and isinstance(owner, (list, str, Joined)):
            return _Method(owner, name)
        return _member(owner, name)

    def item(self, node: Node, scope: _Scope) -> Any:
        owner, key = self.value(part_of(node, "object"), scope), self.value(part_of(node, "index"), scope)
        if owner is _TOOLS:
            if isinstance(key, str):
                return _Method(owner, key)
            raise NotPlain
        if isinstance(owner, list):
            return _item(owner, key)
        return _member(owner, key) if isinstance(key, str) else UNKNOWN

    def wait(self, node: Node, scope: _Scope) -> Any:
        inner = node.named_children[0]
        while inner.type == "parenthesized_expression":
            inner = inner.named_children[0]
        value = self.call(inner, scope, is_apart=False) if inner.type == "call_expression" else self.value(inner, scope)
        self.is_late = self.is_late or self.is_apart
        return value

    def call(self, node: Node, scope: _Scope, *, is_apart: bool = True) -> Any:
        callee, given = part_of(node, "function"), part_of(node, "arguments")
        name = text_of(callee) if callee.type in ("identifier", "member_expression") else ""
        if name == "String.raw" and given.type == "template_string":
            return self.filled(given, scope, text_of)
        arguments = self.list(given, scope) if given.type == "arguments" else UNKNOWN
        if not _is_counted(arguments):
            self.opaque(callee, scope)
            return UNKNOWN
        if callee.type == "identifier" and name not in scope:
            return self.built_in(name, arguments)
        if name in ("Promise.all", "Promise.allSettled"):
            values = arguments[0] if arguments else UNKNOWN
            if name == "Promise.all" or not isinstance(values, list):
                return values
            return [{"status": "fulfilled", "value": one} for one in values]
        if name == "JSON.stringify":
            return self.stringified(arguments)
        function = self.value(callee, scope)
        if isinstance(function, _Function):
            return self.apply(function, arguments, is_apart=is_apart)
        if isinstance(function, _Method):
            return self.method(function, arguments)
        if name.split(".")[0] in _READING and name != "Object.assign":
            return self.called_back(arguments)
        return self.handed_over(arguments)

    def handed_over(self, arguments: Sequence[Any]) -> Any:
        """Pass over a call of an unknown function, which may call and change what it is given."""
        for one in arguments:
            _spoil(one)
        return self.called_back(arguments)

    def called_back(self, arguments: Sequence[Any]) -> Any:
        for one in arguments:
            if one is _TOOLS or (isinstance(one, _Method) and one.owner is _TOOLS):
                raise NotPlain
            if isinstance(one, _Function):
                with self.in_doubt():
                    self.apply(one, [])
        return UNKNOWN

    def built_in(self, name: str, arguments: Sequence[Any]) -> Any:
        if name == "text":
            value = self.copied(arguments[0]) if arguments else ""
            if isinstance(value, ResultField) and not value.name and self.calls[value.call][0] != "apply_patch":
                value = Joined((Json(value),))  # an object is printed as JSON
            self.prints.append(Print(pieces_of(value), is_certain=not self.doubt))
        elif name in ("image", "generatedImage"):
            self.prints.append(Print((UNKNOWN,), is_certain=False))
        elif name == "String" and arguments:
            return joined(arguments[:1])
        elif name == "exit":
            if not self.doubt:
                raise NotPlain if self.is_apart else _Exit(UNKNOWN)
            self.may_end()
        elif name in _UNSAFE:
            raise NotPlain
        elif name not in _READING:
            return self.handed_over(arguments)
        return self.called_back(arguments)

    def method(self, method: _Method, arguments: Sequence[Any]) -> Any:
        owner, name = method.owner, method.name
        if owner is _TOOLS:
            return self.tool(name, arguments)
        if _is_counted(owner) or (isinstance(owner, list) and name in _CHANGING | {"push"}):
            return self.list_method(owner, name, arguments)
        if isinstance(owner, str) and not arguments:
            return {"trim": owner.strip, "toString": lambda: owner}.get(name, lambda: UNKNOWN)()
        return self.handed_over(arguments)

    def list_method(self, owner: Any, name: str, arguments: Sequence[Any]) -> Any:
        """Return the value of a list's method; one with another use may call what it is given."""
        function = arguments[0] if arguments and isinstance(arguments[0], _Function) else None
        if name in ("map", "forEach", "flatMap") and function:
            values = [self.apply(function, [one, place]) for place, one in _each(owner)]
            return flat(values) if name == "flatMap" and are_all(values, list) else values
        if name == "join" and are_all(arguments, str):
            between = arguments[0] if arguments else ","
            return joined([part for one in owner for part in (between, one)][1:])
        if name == "push":
            owner.extend([SOME] if self.is_unsure else arguments)
            return UNKNOWN
        if name == "concat" and are_all(arguments, list):
            return flat((owner, *arguments))
        if name == "entries":
            return [[place, one] for place, one in enumerate(owner)]
        if name in _CHANGING:
            _spoil(owner)
        return self.handed_over(arguments)

    def apply(self, function: _Function, arguments: Sequence[Any], *, is_apart: bool = True) -> Any:
        self.again(function.body)
        scope = function.scope.new_child(dict.fromkeys(function.variables, UNKNOWN))
        for place, parameter in enumerate(function.parameters):
            self.bind(parameter, arguments[place] if place < len(arguments) else UNKNOWN, scope, _declare)
        before, doubt = (self.is_apart, self.is_late), self.doubt - self.exits
        self.is_apart = self.is_apart or (is_apart and function.is_async)
        try:
            if function.body.type != "statement_block":
                return self.value(function.body, scope)
            self.statement(function.body, scope)
            return None if self.doubt - self.exits == doubt else UNKNOWN  # it may have returned before
        except _Exit:
            raise
        except _Return as left:
            return left.value
        finally:
            self.doubt = doubt + self.exits
            if is_apart and function.is_async:
                self.is_apart, self.is_late = before

    @property
    def is_unsure(self) -> bool:
        return self.doubt > 0 or self.is_late

    def tool(self, name: str, arguments: Sequence[Any]) -> Any:
        given = clean(self.copied(arguments[0])) if arguments else {}  # joins the two escapes of an emoji
        session = given.get("session_id") if isinstance(given, dict) else None
        if name == "write_stdin" and isinstance(session, ResultField) and session.name == "session_id":
            return ResultField(session.call)  # the script waits for its own command
        if isinstance(given, dict):  # how long a call may take is often computed
            given = {key: value for key, value in given.items() if key not in PATIENCE or is_plain(value)}
        if self.is_unsure or not is_plain(given) or len(arguments) > 1 or len(self.calls) >= MAX_CALLS:
            raise NotPlain
        self.calls.append((name, {"input": given} if name == "apply_patch" and isinstance(given, str) else given))
        return ResultField(len(self.calls) - 1)

    def assignment(self, node: Node, scope: _Scope) -> Any:
        left, operator = part_of(node, "left"), node.child_by_field_name("operator")
        sign = text_of(operator) if operator else "="
        with self.in_doubt() if sign in ("&&=", "||=", "??=") else contextlib.nullcontext():
            value = self.value(part_of(node, "right"), scope)
        if sign != "=":
            value = sum_of(self.value(left, scope), value) if sign == "+=" else UNKNOWN
        if left.type in ("member_expression", "subscript_expression"):
            self.put(left, value, scope)
            return value
        self.bind(left, value, scope, self.assign)
        return value

    def assign(self, scope: _Scope, name: str, value: Any) -> None:
        is_same = isinstance(value, ResultField) and value == scope.get(name)
        _assign(scope, name, UNKNOWN if self.is_unsure and not is_same else value)

    def put(self, place: Node, value: Any, scope: _Scope) -> None:
        """Set a key of an object that the script builds."""
        owner = self.value(part_of(place, "object"), scope)
        key = place.child_by_field_name("index")
        name = self.value(key, scope) if key else text_of(part_of(place, "property"))
        if isinstance(owner, dict) and isinstance(name, str):
            owner[name] = UNKNOWN if self.is_unsure else value
        else:
            _spoil(owner)

    def binary(self, node: Node, scope: _Scope) -> Any:
        operator, left = text_of(part_of(node, "operator")), self.value(part_of(node, "left"), scope)
        if operator in ("&&", "||", "??"):
            if is_scalar(left):
                keeps = left is not None if operator == "??" else bool(left) == (operator == "||")
                return left if keeps else self.value(part_of(node, "right"), scope)
            with self.in_doubt():
                self.value(part_of(node, "right"), scope)
            return left if operator != "&&" and isinstance(left, ResultField) else UNKNOWN
        right = self.value(part_of(node, "right"), scope)
        if operator in _EQUALITIES and is_scalar(left) and is_scalar(right):
            if left is right is None or (type(left) is not type(right) and operator in ("==", "!=")):
                return UNKNOWN  # JavaScript converts one of them, and null is not undefined
            return (type(left) is type(right) and left == right) == operator.startswith("=")
        return sum_of(left, right) if operator == "+" else UNKNOWN

    def ternary(self, node: Node, scope: _Scope) -> Any:
        condition = self.value(part_of(node, "condition"), scope)
        if is_scalar(condition):
            return self.value(part_of(node, "consequence" if condition else "alternative"), scope)
        for way in ("consequence", "alternative"):
            with self.in_doubt():
                self.value(part_of(node, way), scope)
        return UNKNOWN

    def number(self, node: Node, scope: _Scope) -> Any:
        try:
            return number_of(float(text_of(node).replace("_", "")))
        except ValueError:
            return UNKNOWN

    def string(self, node: Node, scope: _Scope) -> Any:
        return unquoted(node)

    def function(self, node: Node, scope: _Scope) -> Any:
        return _function(node, scope)

    def parts(self, node: Node, scope: _Scope) -> Any:
        for part in node.named_children:
            self.value(part, scope)
        if node.text and node.text.startswith(b"delete"):
            self.put(node.named_children[0], None, scope)
        return UNKNOWN


def _declare(scope: _Scope, name: str, value: Any) -> None:
    scope[name] = value


def _is_counted(value: Any) -> TypeGuard[list[Any]]:
    """Return whether a value is a list whose length is known."""
    return isinstance(value, list) and SOME not in value


def _item(values: Any, place: Any) -> Any:
    if not isinstance(values, list) or type(place) is not int or not 0 <= place < len(values):
        return UNKNOWN
    return values[place] if _is_counted(values[: place + 1]) else UNKNOWN


def _each(values: list[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the places and items of a list that stays as it is."""
    for place, one in enumerate(before := [*values]):
        yield place, one
        if len(values) != len(before) or SOME in values:
            raise NotPlain


def _spoil(value: Any) -> None:
    """Make the parts of a list or an object unknown, in whatever way the script holds it."""
    if isinstance(value, list):
        value[:] = [SOME]
    elif isinstance(value, dict):
        value.update(dict.fromkeys([*value, "?"], UNKNOWN))


def _assign(scope: _Scope, name: str, value: Any) -> None:
    """Change a name in the scope that declares it."""
    next((names for names in scope.maps if name in names), scope)[name] = value


def _forget(scope: _Scope, name: str) -> None:
    # A list or text that a loop builds is known up to here only; the result of a call stays that of its call.
    if not isinstance(scope.get(name), ResultField):
        _assign(scope, name, UNKNOWN)


def _member(owner: Any, name: str) -> Any:
    if owner is _TOOLS:
        return _Method(owner, name)
    if isinstance(owner, ResultField):
        return ResultField(owner.call, name) if not owner.name else UNKNOWN
    if isinstance(owner, dict):
        return owner.get(name, UNKNOWN if "?" in owner else None)
    return len(owner) if name == "length" and (isinstance(owner, str) or _is_counted(owner)) else UNKNOWN


def _function(node: Node, scope: _Scope) -> _Function:
    parameter, parameters = node.child_by_field_name("parameter"), node.child_by_field_name("parameters")
    names = [parameter] if parameter else parameters.named_children if parameters else []
    body, is_async = part_of(node, "body"), any(child.type == "async" for child in node.children)
    return _Function(names, body, scope, is_async, tuple(variables_in(body)))


_Step = Callable[[_Interpreter, "Node", _Scope], Any]
_STATEMENTS: Mapping[str, _Step] = {
    "lexical_declaration": _Interpreter.declaration,
    "variable_declaration": _Interpreter.declaration,
    "expression_statement": _Interpreter.expression,
    "statement_block": _Interpreter.block,
    "else_clause": _Interpreter.block,
    "if_statement": _Interpreter.choice,
    "for_in_statement": _Interpreter.loop,
    "for_statement": _Interpreter.loop,
    "while_statement": _Interpreter.loop,
    "do_statement": _Interpreter.loop,
    "try_statement": _Interpreter.attempt,
    "return_statement": _Interpreter.leave,
    "throw_statement": _Interpreter.fail,
}
_SILENT = frozenset((
    "comment", "empty_statement", "function_declaration", "break_statement", "continue_statement", "hash_bang_line",
))  # fmt: skip
_EXPRESSIONS: Mapping[str, _Step] = {
    "identifier": _Interpreter.name,
    "string": _Interpreter.string,
    "template_string": _Interpreter.template,
    "number": _Interpreter.number,
    "array": _Interpreter.list,
    "object": _Interpreter.object,
    "member_expression": _Interpreter.member,
    "subscript_expression": _Interpreter.item,
    "call_expression": _Interpreter.call,
    "await_expression": _Interpreter.wait,
    "parenthesized_expression": _Interpreter.first,
    "arrow_function": _Interpreter.function,
    "function_expression": _Interpreter.function,
    "assignment_expression": _Interpreter.assignment,
    "augmented_assignment_expression": _Interpreter.assignment,
    "binary_expression": _Interpreter.binary,
    "ternary_expression": _Interpreter.ternary,
    "unary_expression": _Interpreter.parts,
    "sequence_expression": _Interpreter.parts,
}
_EQUALITIES = ("===", "==", "!==", "!=")
_LITERALS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "undefined": None}
_CHANGING = frozenset("copyWithin fill pop reverse shift sort splice unshift".split())
_METHODS = _CHANGING | frozenset(
    "map forEach flatMap filter join push concat entries trim toString slice split replace reduce some every".split()
)
_READING = frozenset("store console Object Array Math Number Boolean Promise".split())  # no argument changes
_LEAVING = frozenset(("return_statement", "throw_statement"))
_UNSAFE = frozenset(("eval", "Function", "globalThis"))
