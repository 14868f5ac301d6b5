"""The language of the planted sets: templates with holes that are filled by chance.

In: a file of a set. Out: its `Kind`s and a `Language` that draws values. A line of a file is one of

    alphabet hex: 0-9a-f                 `«hex 40»` is forty of these characters, `«hex+ 40»` has a digit among them
    list word: amber anchor apron        `«word»` is one of these
    let mail: «word»@«host».io           `«mail»` is this template; several lines of one name are alternatives
    around anywhere: key=§ ¦ use §       contexts to share as `@anywhere`; `@anywhere X` puts X for NAME
    carriers plain numbered diff         how texts are shown: by the templates `carrier_plain`, …
    == unseen                            the half of the kinds below
    secret aws id: AKIA«B32 16» ¦ id=§   a class, a name, a value, contexts with the value at §; more on indented lines

Holes nest, and some change their content (`_CHANGES`). `\\n`, `\\t`, `\\e`, `\\f` and `\\s` mean a line end, a tab, an
escape, lines broken at 80 characters, and a space.
"""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

SETS = Path(__file__).parent / "sets"
_HOLE = re.compile(r"«(\S+?)(?: ([^«»]*))?»")
_ESCAPE = re.compile(r"\\([ntefs\\])")
_ESCAPES = {"n": "\n", "t": "\t", "e": "\x1b", "f": "\f", "s": " ", "\\": "\\"}


@dataclass(frozen=True)
class Kind:
    """One kind of value: its class, the half of its set, a template, and templates of the texts around it."""

    name: str
    klass: str  # secret, pii, or keep for a look-alike
    half: str
    value: str
    contexts: tuple[str, ...]


class Language:
    """What the holes of one set draw from."""

    def __init__(self) -> None:
        self.carriers: list[str] = []
        self._alphabets: dict[str, str] = {}
        self._templates: dict[str, list[str]] = {}
        self._around: dict[str, tuple[str, ...]] = {}

    def read(self, path: Path) -> Iterator[Kind]:
        """Read a file into this language and yield its kinds."""
        half = ""
        for line in re.sub(r"\n  ", " ¦ ", path.read_text(encoding="utf-8")).splitlines():
            head, _, body = line.partition(": ")
            word, _, name = head.partition(" ")
            if word == "alphabet":
                self._alphabets[name] = re.sub(r"(\w)-(\w)", lambda ends: _range(ends[1], ends[2]), body)
            elif word == "list":
                self._templates[name] = body.split()
            elif word == "let":
                self._templates.setdefault(name, []).append(_plain(body))
            elif word == "around":
                self._around[name] = tuple(map(_plain, body.split(" ¦ ")))
            elif word == "carriers":
                self.carriers = name.split()
            elif word == "==":
                half = name
            elif word in ("secret", "pii", "keep"):
                value, *contexts = body.split(" ¦ ")
                around = tuple(text for context in contexts for text in self._contexts(context))
                yield Kind(name, word, half, _plain(value), around)

    def _contexts(self, written: str) -> tuple[str, ...]:
        group, _, name = written[1:].partition(" ")
        if not written.startswith("@") or group not in self._around:
            return (_plain(written),)
        return tuple(one.replace("NAME", name).replace("LOWER", name.lower()) for one in self._around[group])

    def texts(self, name: str) -> list[str]:
        """Return the alternatives of a template."""
        return self._templates[name]

    def draw(self, template: str, rng: random.Random) -> str:
        """Return the template with each hole filled, the innermost first."""
        while "«" in template:
            template = _HOLE.sub(lambda hole: self._fill(hole[1], hole[2] or "", rng), template)
        return template

    def _fill(self, name: str, argument: str, rng: random.Random) -> str:
        if alphabet := self._alphabets.get(name.rstrip("+")):
            drawn = "".join(rng.choices(alphabet, k=_number(argument or "1", rng)))
            return drawn if name[-1] != "+" or any(c.isdigit() for c in drawn) else "7" + drawn[1:]
        if name in self._templates:
            return rng.choice(self._templates[name])
        if name == "rows":
            count, alphabet, width = argument.split()
            return "\n".join(f"«{alphabet} {width}»" for _ in range(_number(count, rng)))
        return _CHANGES[name](argument, rng)


def _plain(written: str) -> str:
    return _ESCAPE.sub(lambda escape: _ESCAPES[escape[1]], written)


def _range(first: str, last: str) -> str:
    return "".join(map(chr, range(ord(first), ord(last) + 1)))


def _number(size: str, rng: random.Random) -> int:
    low, _, high = size.partition("-")
    return rng.randint(int(low), int(high or low))


def _shuffled(text: str, rng: random.Random) -> str:
    return "".join(rng.sample(text, len(text)))


def _cut(argument: str, rng: random.Random) -> str:
    """Cut `4,6,5 - digits` into groups of these sizes, again and again; `_` means a space."""
    sizes, joint, text = argument.split(" ", 2)
    groups = []
    for size in cycle(map(int, sizes.split(","))):
        groups.append(text[:size])
        text = text[size:]
        if not text:
            return joint.replace("_", " ").join(groups)
    return ""


def _luhn(argument: str, rng: random.Random) -> str:
    """Return a card number with a correct check digit, from a prefix and a size."""
    prefix, size = argument.split()
    digits = prefix + "".join(rng.choices("0123456789", k=int(size) - len(prefix) - 1))
    total = sum(sum(divmod(int(d) * 2, 10)) if i % 2 == 0 else int(d) for i, d in enumerate(reversed(digits)))
    return digits + str(-total % 10)


def _iban(argument: str, rng: random.Random) -> str:
    """Return an account number with correct check digits, from a country and an account."""
    country, account = argument.split()
    number = "".join(str(int(c, 36)) for c in account + country + "00")
    return f"{country}{98 - int(number) % 97:02}{account}"


_CHANGES: dict[str, Callable[[str, random.Random], str]] = {
    "in": lambda text, rng: str(_number(text, rng)),
    "one": lambda text, rng: rng.choice(text.split("|")),
    "title": lambda text, rng: text.title(),
    "upper": lambda text, rng: text.upper(),
    "lower": lambda text, rng: text.lower(),
    "leet": lambda text, rng: text.translate(str.maketrans("aei", "431")),
    "bump": lambda text, rng: text[:-1] + str((int(text[-1]) + 1) % 10),  # a wrong check digit
    "flat": lambda text, rng: text.replace("\n", "\\n"),
    "base64": lambda text, rng: base64.b64encode(text.encode()).decode(),
    "b64url": lambda text, rng: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "shuffle": _shuffled,
    "cut": _cut,
    "luhn": _luhn,
    "iban": _iban,
}
