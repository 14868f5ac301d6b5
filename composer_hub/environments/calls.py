"""Calls in, answers out: the script of the differential oracle, run over a tree inside the sandbox.

Values travel as JSON that keeps exact types. The script holds no expected answer, so code that it runs can spoil an
answer but never guess one. Nothing but the standard library is imported here.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import fractions
import hashlib
import importlib
import itertools
import json
import os
import random
import signal
import sys
import types

CALL_SECONDS = 1.0  # of processor time
CALL_PATIENCE = 60.0  # on the clock, for a call that waits for something
MAX_ITEMS, MAX_DEPTH, MAX_CHARS = 200, 6, 20_000
_BUILT_FROM = {
    datetime.date: lambda v: [v.year, v.month, v.day],
    datetime.datetime: lambda v: [v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond],
    datetime.time: lambda v: [v.hour, v.minute, v.second, v.microsecond],
    datetime.timedelta: lambda v: [v.days, v.seconds, v.microseconds],
    decimal.Decimal: lambda v: [str(v)],
    fractions.Fraction: lambda v: [v.numerator, v.denominator],
    complex: lambda v: [v.real, v.imag],
    range: lambda v: [v.start, v.stop, v.step],
    slice: lambda v: [v.start, v.stop, v.step],
}
_TYPES = {f"{cls.__module__}:{cls.__name__}": cls for cls in _BUILT_FROM}
_PLAIN_CALLABLES = ("builtins", "operator", "math", "_operator", "string")
_SEQUENCES = {tuple: "t", set: "s", frozenset: "z", bytearray: "y"}


class Opaque(ValueError):
    """A value that cannot be built again from JSON."""


def encode(value, depth=0, answer=False):
    """Return the JSON form of a value; for answers, objects become their type and state."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if depth > MAX_DEPTH:
        raise Opaque("too deep")

    def inner(item):
        return encode(item, depth + 1, answer)

    if kind is float:
        return {"f": repr(value)}
    if kind in (bytes, bytearray):
        return {"b" if kind is bytes else "y": value.hex()}
    if kind in (list, tuple, set, frozenset):
        if len(value) > MAX_ITEMS:
            raise Opaque("too long")
        items = [inner(item) for item in value]
        if kind in (set, frozenset):
            items.sort(key=json.dumps)
        return items if kind is list else {_SEQUENCES[kind]: items}
    if kind is dict:
        if len(value) > MAX_ITEMS:
            raise Opaque("too long")
        return {"d": [[inner(key), inner(item)] for key, item in value.items()]}
    if kind in _BUILT_FROM and not getattr(value, "tzinfo", None):
        return {"o": f"{kind.__module__}:{kind.__name__}", "a": [inner(one) for one in _BUILT_FROM[kind](value)]}
    if name := _plain_name(value):
        return {"n": name}
    if not answer:
        raise Opaque(kind.__name__)
    return _object(value, kind, depth)


def _object(value, kind, depth):
    """Return type and state of an object that only an answer may hold."""
    shown = {"x": f"{kind.__module__}:{kind.__qualname__}"}
    if isinstance(value, BaseException):
        return shown
    for base in (bool, int, float, str, bytes, list, tuple, dict, set, frozenset):
        if isinstance(value, base) and base is not bool:
            with contextlib.suppress(Exception):
                shown["base"] = encode(base(value), depth + 1, True)
            return shown
    if hasattr(value, "__next__"):
        shown["x"] = "iterator"
        shown["items"] = [encode(item, depth + 1, True) for item in itertools.islice(value, MAX_ITEMS)]
        return shown
    if callable(value):
        return shown
    state = getattr(value, "__dict__", None)
    if state:
        public = {key: item for key, item in sorted(state.items()) if not key.startswith("_")}
        with contextlib.suppress(Opaque):
            shown["state"] = {key: encode(item, depth + 1, True) for key, item in public.items()}
    with contextlib.suppress(Exception):
        text = repr(value)
        if " at 0x" not in text and len(text) < 2000:
            shown["repr"] = text
    return shown


def _plain_name(value):
    """Return the importable name of a function or class of the standard library that does one plain thing."""
    owner = getattr(value, "__objclass__", None)
    name = getattr(value, "__qualname__", "")
    module = getattr(value, "__module__", None) or (getattr(owner, "__module__", "") if owner else "")
    if module not in _PLAIN_CALLABLES or not name or "<" in name:
        return ""
    name = f"{module.removeprefix('_')}:{name}"
    with contextlib.suppress(Exception):
        return name if resolve(name) is value else ""
    return ""


_BASES = {
    bool: bool,
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: bytes.__add__(value, b""),
    list: list.__iter__,
    tuple: tuple.__iter__,
    set: set.__iter__,
    frozenset: frozenset.__iter__,
    dict: dict.items,
}


def plain(value, depth=0):
    """Return a value as the built-in that it is or derives from: equal values of two programs look the same."""
    kind = type(value)
    base = next((one for one in _BASES if issubclass(kind, one)), None)
    if base is None or depth > MAX_DEPTH:
        return value
    held = _BASES[base](value)  # of the base class, whatever the subclass overrides
    if base is dict:
        return {plain(key, depth + 1): plain(item, depth + 1) for key, item in held}
    return base(plain(one, depth + 1) for one in held) if base in (list, tuple, set, frozenset) else base(held)


class Marks:
    """Record the values that tests compare.

    `mark(site, value)` reports a value and returns it; `observe` and `raises` replace an assertion.
    """

    def __init__(self, tell, deep=False):
        self.tell, self.deep, self.test, self.numbers = tell, deep, "", {}

    def __call__(self, site, value):
        try:
            shown = self.shown(value)
            text = json.dumps(shown)
            shown = shown if len(text) < 2000 else {"#": hashlib.sha256(text.encode()).hexdigest()}
        except Exception:  # noqa: BLE001 - a value may refuse to be shown in any way
            shown = {"x": type(value).__name__}
        self.note(site, shown)
        return value

    def shown(self, value, depth=0):
        """Return the form of a value; of an object its type and, if it is looked at deeply, its public state."""
        with contextlib.suppress(Exception):
            return encode(plain(value))
        shown = {"x": f"{type(value).__module__}:{type(value).__qualname__}"}
        if self.deep and depth < 3:
            if type(value) in (list, tuple):
                shown["state"] = [self.shown(one, depth + 1) for one in value[:MAX_ITEMS]]
            elif isinstance(getattr(value, "__dict__", None), dict) and not callable(value):
                public = {name: one for name, one in sorted(vars(value).items()) if not name.startswith("_")}
                shown["state"] = {name: self.shown(one, depth + 1) for name, one in public.items()}
        return shown

    def note(self, site, shown):
        number = self.numbers[self.test] = self.numbers.get(self.test, 0) + 1
        if self.test and number <= MAX_ITEMS:
            self.tell([self.test, site, shown])

    def observe(self, site, make):
        """Report a value, or the error that making it raises; the test continues."""
        try:
            self(site, make())
        except Exception as error:  # noqa: BLE001 - any error of the package is its answer
            self.note(site, {"raises": type(error).__qualname__})

    def other(self, key, value):
        """Return another plain value in the place of one that comes from elsewhere, the same in every process."""
        source = random.Random(f"{key}{value!r}")
        kind = type(value)
        if kind in (int, float):
            return value + source.choice((1, -1, 10))
        if kind in (str, bytes):
            place = source.randrange(len(value) + 1)
            more = value[:place][-1:] or (b"a" if kind is bytes else "a")
            return source.choice((value[:place] + more + value[place:], value[:place] + value[place + 1 :]))
        if kind in (list, tuple) and value:
            place = source.randrange(len(value))
            return kind((*value[:place], self.other(key, value[place]), *value[place + 1 :]))
        if kind is dict and value:
            name = source.choice(list(value))
            return {**value, name: self.other(key, value[name])}
        return value

    @contextlib.contextmanager
    def raises(self, site, kinds, **_):
        """Report whether the block raises one of the named errors."""
        caught = types.SimpleNamespace(value=None, exception=None, type=None, match=lambda *_: True)
        try:
            yield caught
        except Exception as error:  # noqa: BLE001 - any error of the package is its answer
            caught.value = caught.exception = error
            caught.type = type(error)
        named = caught.value is None or isinstance(caught.value, kinds)
        self.note(site, {"raises": caught.value is not None and (named or type(caught.value).__qualname__)})


def same(one, other):
    """Return whether two reported values are equal in Python: `1 == 1.0`, and dicts without order."""
    if isinstance(one, dict) and isinstance(other, dict) and len(one) == len(other) == 1 and one.keys() == other.keys():
        ((tag, a), (_, b)) = (*one.items(), *other.items())
        if tag == "d":
            return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
        return same(a, b) if tag != "f" else a == b or float(a) == float(b)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if _is_set(one) and _is_set(other):
        return same(*(next(iter(value.values())) for value in (one, other)))
    numbers = [_number(value) for value in (one, other)]
    return one == other if None in numbers else numbers[0] == numbers[1]


def _is_set(value):
    return isinstance(value, dict) and value.keys() in ({"s"}, {"z"})


def _number(value):
    if isinstance(value, dict) and value.keys() == {"f"}:
        return float(value["f"])
    return value if isinstance(value, int) else None


def decode(data):
    """Return the value of a JSON form."""
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    ((tag, body), *_) = data.items()
    if tag == "f":
        return float(body)
    if tag == "b":
        return bytes.fromhex(body)
    if tag == "y":
        return bytearray.fromhex(body)
    if tag in ("t", "s", "z"):
        return {"t": tuple, "s": set, "z": frozenset}[tag](decode(item) for item in body)
    if tag == "d":
        return {decode(key): decode(item) for key, item in body}
    if tag == "n":
        return resolve(body)
    return _TYPES[body](*(decode(item) for item in data["a"]))


def resolve(target):
    """Import `module:name.name`."""
    module, _, name = target.partition(":")
    value = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


class _TooLong(BaseException):
    pass


class _Late(BaseException):
    pass


def _out_of_time(number, frame):
    raise _Late if number == signal.SIGALRM else _TooLong


def answers(calls):
    """Return one answer per call: a value, the type of an exception, or nothing if it cannot be compared."""
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _out_of_time)
    return map(_answer, calls)


def _limit(seconds, patience):
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, patience)


def _answer(call):
    try:
        _limit(CALL_SECONDS, CALL_PATIENCE)
        try:
            return _call(call)
        except Opaque:
            return {"opaque": True}
        except Exception as error:  # noqa: BLE001 - any error of the package is its answer
            return {"raises": f"{type(error).__module__}:{type(error).__qualname__}"}
        finally:
            _limit(0, 0)
    except _Late:  # it waited for something, or the machine is too busy: this is not an answer
        return {"late": True}
    except BaseException as error:  # noqa: BLE001 - also exits: they are an answer, not an end
        return {"ends": type(error).__name__}


def _call(call):
    if "steps" not in call:
        args, kwargs = decode(call["args"]), decode(call["kwargs"])
        result = encode(resolve(call["target"])(*args, **kwargs), answer=True)
        return _bounded({"is": result, **_changed(call["args"], args)})
    args, kwargs = decode(call["args"]), decode(call["kwargs"])
    thing = resolve(call["target"])(*args, **kwargs)
    results = []
    for name, is_property, step_args, step_kwargs in call["steps"]:
        try:
            found = getattr(thing, name)
            value = found if is_property else found(*decode(step_args), **decode(step_kwargs))
            results.append({"is": "self" if value is thing else encode(value, answer=True)})
        except Exception as error:  # noqa: BLE001 - any error of the package is its answer
            results.append({"raises": f"{type(error).__module__}:{type(error).__qualname__}"})
    return _bounded({"steps": results})


def _changed(before, args):
    """Return the arguments after a call if the call changed them."""
    with contextlib.suppress(Opaque):
        after = encode(args)
        if after != before:
            return {"args": after}
    return {}


def _bounded(answer):
    if len(json.dumps(answer)) > MAX_CHARS:
        raise Opaque("too long")
    return answer


def main():
    """Answer the calls of stdin on the descriptor that the caller names, one line each."""
    calls = json.load(sys.stdin)
    with os.fdopen(int(sys.argv[1]), "w") as out:
        for answer in answers(calls):
            out.write(json.dumps(answer) + "\n")
            out.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    main()
