"""Random scripts of Codex's code mode: most of what models write there, and much that they could."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

_WORDS = ("'a'", "'b'", '"make"', "''")
_TEXTS = (
    "@s + @s", "`${@s} ${@s}`", "(@c ? @s : @s)", "(@s || @s)", "(@s ?? @s)", "(@s && @s)", "(@s).trim()",
    "(@s).toUpperCase()", "(@s).replace('a', 'z')", "(@s).slice(1)", "String(@s)", "String(@n)", "JSON.stringify(@s)",
    "JSON.stringify(@o)", "`${@n}-${@s}`", "(@s).repeat(2)", "[@s, @s].join(',')", "(@s).split('')[0]",
    "(() => @s)()", "@G(@s)", "@l[1]", "@l.join(' ')", "@l.at(-1)", "@o.k", "@o['k']", "@r.output",
)  # fmt: skip
_NUMBERS = ("0", "1", "2", "1.5", "(@n + @n)", "@l.length", "@r.exit_code", "1e21")
_LISTS = (
    "[]", "[@s]", "[@s, @s]", "[, @s]", "@l.map(x => x + '!')", "@l.map((x, i) => `${i}${x}`)", "@l.filter(x => x)",
    "[...@l, @s]", "@l.slice(1)", "@l.concat(@l)", "(@s).split(' ')", "Object.keys(@o)",
)  # fmt: skip
_OBJECTS = ("{k: @s}", "{k: @s, n: @n}", "{...@o, n: 1}", "{...@o, k: @s}")
_CONDITIONS = (
    "true", "false", "@s === @s", "@s", "!@s", "@n === 0", "@n > 0", "(@s).includes('a')", "@s == null", "@n == @s",
    "typeof @s === 'string'", "@n", "@r.exit_code === 0", "@r.session_id", "@r.output.includes('ok')", "@o.n",
    "(@c && @c)", "(@c || @c)", "'k' in @o", "null === undefined",
)  # fmt: skip
_ARGUMENTS = ("{cmd: @s}", "{cmd: @s, workdir: @s}", "{cmd: @s, list: @l}", "{cmd: @s, count: @n}", "@o")
_CHANGES = (
    "@S = @s;", "@S += @s;", "@S ||= @s;", "[@S] = @l;", "({k: @S} = @o);", "@N++;", "@N += 1;", "@N = @n;",
    "@O.k = @s;", "@O.k += 'x';", "delete @O.k;", "Object.assign(@O, {k: @s});", "@O['k'] = 'q';", "@L.reverse();",
    "@L.sort();", "@L.pop();", "@L[0] = @s;", "@L.length = 0;",
)  # fmt: skip
_STATEMENTS = (
    "const @+r = await @call;", "const @+r = await @call;", "@change", "@change", "await @call;", "@call;", "text(@s);",
    "text(@o);", "let @+s = @s;", "let @+l = @l;", "let @+o = @o;", "let @+n = @n;", "var @+s = @s;",
    "if (@c) @block", "if (@c) @block else @block", "for (let @+s of @l) @block", "for (@S of @l) @block",
    "for (let @+s of @l) { if (@c) break; await @call; }", "for (let @+n = 0; false;) @block",
    "await Promise.all(@l.map(async @+s => @block));", "await Promise.all(@l.map(@+s => @call));",
    "@l.forEach(async @+s => @block);", "const @+f = async @+s => @block; await @F(@s); @F(@s);",
    "async function @+f(@+s) { if (@c) return; @inner } await @F(@s); await @F(@s);", "@c && await @call;",
    "@c || exit();", "if (@c) exit();", "if (@c) return;", "@c ? await @call : null;", "exit();",
    "try @block catch (e) @block", "try @block catch (e) @block finally @block",
    "switch (@s) { case 'a': @inner break; default: @inner }", "while (false) @block", "do @block while (false);",
    "const @+g = @+s => { if (@c) return @s; };", "function @+g(@+s) { if (@c) { return @s; } @change return @s; }",
    "@block", "{ let @S = 'q'; @inner }", "{ var @S = 'q'; }",
)  # fmt: skip
_FLAT = [form for form in _STATEMENTS if "@block" not in form and "@inner" not in form]
_BY_LETTER = {"s": _TEXTS, "n": _NUMBERS, "l": _LISTS, "o": _OBJECTS, "c": _CONDITIONS}
_SIMPLE = {"s": _WORDS, "n": ("0", "1"), "l": ("['a', 'b']",), "o": ("({k: 'a'})",), "c": ("true", "false"),
           "r": ("({output: 'ok', exit_code: 0})",), "f": ("String",), "g": ("String",)}  # fmt: skip
_BEFORE = "let s = 'a', n = 0, l = ['a', 'b'], o = {k: 'a'}; const f = async one => text(one), g = String;"
_FIELD = re.compile(r"@(\+?\w+)")


def script(seed: int) -> str:
    """Return a script."""
    maker = _Maker(seed)
    return " ".join([_BEFORE, *(maker.statement(2) for _ in range(maker.chance.randrange(2, 7)))])


class _Maker:
    """Fills forms: `@s` is a text, `@S` a name that holds one, `@+s` a new name for one."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.num_names = 0
        self.scopes: list[dict[str, str]] = [{letter: letter for letter in "snlofg"}]  # name -> letter

    def statement(self, depth: int) -> str:
        form = self.chance.choice(_STATEMENTS if depth else _FLAT)
        is_parameter = any(sign in form for sign in ("=> ", "for (", "function"))
        new: dict[str, str] = {}

        def field(found: re.Match[str]) -> str:
            name = found[1]
            if name.startswith("+"):
                self.num_names += 1
                (self.scopes[-1] if name in ("+f", "+g") else new)[f"v{self.num_names}"] = name[1]
                return f"v{self.num_names}"
            if name not in ("block", "inner", "call"):
                return self.field(name, depth)
            self.scopes.append(dict(new) if is_parameter else {})
            text = self.call() if name == "call" else self.inner(depth - 1)
            self.scopes.pop()
            return f"{{ {text} }}" if name == "block" else text

        text = _FIELD.sub(field, form)
        self.scopes[-1].update({} if is_parameter else new)
        return text

    def inner(self, depth: int) -> str:
        return " ".join(self.statement(depth) for _ in range(self.chance.randrange(1, 4)))

    def call(self) -> str:
        return f"tools.{self.chance.choice(('exec_command', 'write'))}({self.filled(_ARGUMENTS, 1)})"

    def filled(self, forms: Sequence[str], depth: int) -> str:
        return _FIELD.sub(lambda found: self.field(found[1], depth), self.chance.choice(forms))

    def field(self, field: str, depth: int) -> str:
        if field == "change":
            return self.filled(_CHANGES, 1)
        letter = field.lower()
        names = [name for scope in self.scopes for name, kind in scope.items() if kind == letter]
        if names and (field.isupper() or letter == "r" or self.chance.random() < 0.6):
            return self.chance.choice(names)
        if depth and letter in _BY_LETTER and not field.isupper() and self.chance.random() < 0.5:
            return self.filled(_BY_LETTER[letter], depth - 1)
        return self.chance.choice(_SIMPLE[letter])
