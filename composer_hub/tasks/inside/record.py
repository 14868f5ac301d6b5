"""Record the calls that tests make to a package: arguments that can be built again, and which functions each call runs.

A call from outside the package is recorded with its arguments; a call of a method with the calls that its object had
seen before it. A call inside the package is recorded if its arguments are plain values.
"""

from __future__ import annotations

import json
import sys

MAX_CALLS, MAX_STEPS, MAX_OBJECTS = 40, 10, 400
MAX_CHARS = 4_000
_FIRST = 2  # f_lasti beyond this: a generator that resumes, not a call


class Recorder:
    """A context under which calls are recorded; `targets` maps `path:line` of a function to what it is."""

    def __init__(self, targets, tree, values):
        self.targets, self.tree, self.values = targets, tree + "/", values
        self.known, self.calls, self.counts = {}, {}, {}
        self.objects, self.outer, self.touched = {}, None, None

    def __enter__(self):
        self.objects, self.outer = {}, None
        sys.setprofile(self.event)

    def __exit__(self, *error):
        sys.setprofile(None)

    def target(self, code):
        if code not in self.known:
            path = code.co_filename
            inside = path.startswith(self.tree)
            self.known[code] = self.targets.get(f"{path[len(self.tree) :]}:{code.co_firstlineno}") if inside else None
        return self.known[code]

    def event(self, frame, event, argument):
        if event == "return":
            if frame is self.outer:
                self.outer = self.touched = None
        elif event == "call":
            target = self.target(frame.f_code)
            if target is None or frame.f_lasti > _FIRST:
                return
            sys.setprofile(None)
            try:
                self.call(frame, target)
            finally:
                sys.setprofile(self.event)

    def call(self, frame, target):
        name = target["name"]
        if self.touched is not None:
            self.touched.add(name)
        is_outer = self.outer is None
        call = None
        if self.counts.get(name, 0) < MAX_CALLS:
            call = self.described(frame, target, is_outer)
        if is_outer:
            self.outer = frame
            self.touched = set() if call is None else self.calls[call]
            self.touched.add(name)
        elif call is not None:
            self.calls[call].add(name)

    def described(self, frame, target, is_outer):
        """Return the text of a call that can be made again, or nothing."""
        kind, names = target["kind"], target["name"]
        try:
            args, kwargs = arguments(frame)
            if kind in ("function", "static"):
                pass
            elif kind == "class":
                args = args[1:]
            elif kind == "init":
                if not is_outer or type(args[0]).__qualname__ != target["class"].partition(":")[2]:
                    return None
                if len(self.objects) < MAX_OBJECTS:
                    encoded = self.values.encode(args[1:]), self.values.encode(kwargs)
                    self.objects[id(args[0])] = (args[0], target["class"], encoded, [])
                return None
            else:
                return self.method(target, args, kwargs, is_outer)
            call = {"target": names, "args": self.values.encode(args), "kwargs": self.values.encode(kwargs)}
        except Exception:  # noqa: BLE001 - a call whose values cannot be written is left out
            return None
        return self.kept(call, names)

    def method(self, target, args, kwargs, is_outer):
        known = self.objects.get(id(args[0]))
        if not is_outer or known is None or known[0] is not args[0] or len(known[3]) >= MAX_STEPS:
            return None
        try:
            step = [target["name"].rpartition(".")[2], target["kind"] == "property",
                    self.values.encode(args[1:]), self.values.encode(kwargs)]  # fmt: skip
        except Exception:  # noqa: BLE001 - its later state cannot be built again
            self.objects.pop(id(args[0]))
            return None
        known[3].append(step)
        call = {"target": known[1], "args": known[2][0], "kwargs": known[2][1], "steps": list(known[3])}
        return self.kept(call, target["name"])

    def kept(self, call, name):
        text = json.dumps(call)
        if len(text) > MAX_CHARS:
            return None
        if text not in self.calls:
            self.calls[text] = set()
            self.counts[name] = self.counts.get(name, 0) + 1
        return text

    def result(self):
        return [{"call": json.loads(text), "touched": sorted(names)} for text, names in self.calls.items() if names]


def arguments(frame):
    """Return positional and keyword arguments of a call from the variables of its new frame."""
    code, variables = frame.f_code, frame.f_locals
    number = code.co_argcount
    names = code.co_varnames
    args = [variables[name] for name in names[:number]]
    kwargs = {name: variables[name] for name in names[number : number + code.co_kwonlyargcount]}
    place = number + code.co_kwonlyargcount
    if code.co_flags & 0x04:
        args += variables[names[place]]
        place += 1
    if code.co_flags & 0x08:
        kwargs |= variables[names[place]]
    return args, kwargs
