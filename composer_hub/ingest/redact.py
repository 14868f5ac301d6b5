"""Take secrets and personal data out of traces, before anything leaves the machine.

In: a `Trace` as a reader made it. Out: the same trace with every secret and personal value replaced by a placeholder; ids, roles,
types, tool names, argument names and model names are never touched, and JSON inside strings stays JSON.

A `Redactor` is pure and picklable, so each worker process holds a copy. It writes placeholders that carry a keyed digest of the
value (`[EMAIL_x3f9a…]`), so workers agree without talking; `Numbering`, in the parent, turns them into `[EMAIL_3]` and keeps the
numbers stable over runs:

    numbering = redact_numbers.Numbering.open(folder / "redaction.jsonl")   # makes the salt on first use, 0600
    redactor = Redactor(numbering.salt, exact=environment_secrets(os.environ))
    with ProcessPoolExecutor() as pool:
        for trace in pool.map(redactor.trace, traces):                 # or redactor.trace(trace) in this process
            write(numbering.number(trace))
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.ingest import redact_named, redact_people
from composer_hub.ingest.redact_people import home_users
from composer_hub.ingest.redact_rules import SHAPES
from composer_hub.ingest.redact_text import MAX_PASSES, redact_once
from composer_hub.records import Message, Step, ToolCall, Trace, stable_id

VERSION = 1
Found = tuple[str, str, str]
"""Label, value and rule of something that was replaced."""


class RedactionError(exits.ComposerError, ValueError):
    """A redaction input (map, denylist, scanner output) cannot be used."""


def rules_digest() -> str:
    """Return the digest of the rule set: it goes into `Trace.redaction`, so a version says what went over it."""
    patterns = [
        pattern.pattern
        for module in (redact_named, redact_people)
        for pattern in vars(module).values()
        if isinstance(pattern, re.Pattern)
    ]
    return (
        f"v{VERSION}-{stable_id([(rule.name, rule.anchors, rule.pattern.pattern) for rule in SHAPES], patterns)[:12]}"
    )


# -------------------------------------------------------------------------------------------------------------- report


@dataclass
class RedactionReport:
    """How much was replaced, by kind and by rule: counts only, never a value."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    num_traces: int = 0

    def __add__(self, other: RedactionReport) -> RedactionReport:
        return RedactionReport(self.counts + other.counts, self.num_traces + other.num_traces)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as the manifest and the card show it."""
        kinds: Counter[str] = Counter()
        rules: Counter[str] = Counter()
        for (kind, rule), number in self.counts.items():
            kinds[kind] += number
            rules[rule] += number
        return {
            "rules": rules_digest(),
            "num_traces": self.num_traces,
            "kinds": dict(sorted(kinds.items())),
            "by_rule": dict(sorted(rules.items())),
        }


# ------------------------------------------------------------------------------------------------------------ redactor

# A user name that is also a word is replaced in paths only.
_WORDLIKE = frozenset(
    "mark will max art rose grace hope joy bill jack dean grant frank guy ray rob sue pat drew chase hunter mason carter cooper "
    "main base core data file line text code type name node list item user case rich sky dawn april may june summer".split()
)
_PATH = r"(?:/home/|/Users/|[\\/]Users[\\/]{1,2}|-Users-|-home-|~|%2FUsers%2F|%2Fhome%2F)"
_DESCRIPTIVE = frozenset(("description", "title", "default", "example", "examples", "const"))
MIN_CHARS = 4
MAX_CACHED_CHARS = 16_000_000
MIN_LEARNED = 10
"""Characters from which a secret found by its surroundings is looked for in the rest of its trace as well."""


class Redactor:
    """Replace secrets and personal values in traces; the same salt gives the same placeholders everywhere."""

    def __init__(self, salt: bytes, *, exact: Collection[str] = (), users: Collection[str] = ()) -> None:
        self.report = RedactionReport()
        self._salt = salt
        self._exact = tuple(sorted(set(exact), key=lambda value: (-len(value), value)))
        self._users = tuple(sorted(set(users)))
        self._digest = rules_digest()
        self._cache: dict[tuple[str, str], tuple[str, tuple[Found, ...]]] = {}
        self._cached_chars = 0

    def __repr__(self) -> str:
        return f"Redactor(exact={len(self._exact)} values, users={len(self._users)})"

    def __getstate__(self) -> dict[str, Any]:
        # A worker starts with an empty cache and its own counts.
        return {**self.__dict__, "_cache": {}, "_cached_chars": 0, "report": RedactionReport()}

    def trace(self, trace: Trace) -> Trace:
        """Return the trace redacted, and add what was replaced to the report."""
        known = self._learn(trace)
        self.report.num_traces += 1
        return replace(_map_trace(trace, lambda text, name: self._settle(text, name, known)), redaction=self._digest)

    def text(self, text: str) -> str:
        """Return one text redacted on its own, as before a teacher is asked."""
        return self._settle(text, "", _Known(self, self._users + tuple(home_users(text)), ()))

    def placeholder(self, label: str, value: str) -> str:
        """Return the placeholder of a value: the same wherever it occurs, and nothing to compute the value from."""
        canonical = re.sub(r"[ ().-]", "", value) if label in ("PHONE", "CARD", "IBAN") else value
        if label in ("EMAIL", "USER", "MAC"):
            canonical = value.lower()
        digest = hmac.new(self._salt, f"{label}\0{canonical}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"[{label}_x{digest.hexdigest()[:16]}]"

    def _learn(self, trace: Trace) -> _Known:
        users: dict[str, None] = dict.fromkeys(self._users)
        values: dict[str, str] = {}

        def look(text: str, name: str) -> str:
            if len(text) < MIN_CHARS:
                return text
            users.update(dict.fromkeys(home_users(text)))
            for label, value, _ in self._rules(text, name)[1]:
                if len(value) >= MIN_LEARNED and label in ("SECRET", "NAME") and "\n" not in value:
                    values[value] = label
            return text

        _map_trace(trace, look)
        return _Known(self, tuple(users), tuple(values.items()))

    def _settle(self, text: str, name: str, known: _Known) -> str:
        if len(text) < MIN_CHARS:
            return text
        for _ in range(MAX_PASSES):
            redacted, found = self._rules(text, name)
            redacted = known.replace_in(redacted)
            self.report.counts.update((label.lower(), rule) for label, _, rule in found)
            if redacted == text:
                break
            text = redacted
        return text

    def _rules(self, text: str, name: str) -> tuple[str, tuple[Found, ...]]:
        """Run the rules over one string, remembering the answer: results recur over steps and resumed sessions."""
        key = (text, name)
        if key in self._cache:
            return self._cache[key]
        found: list[Found] = []

        def place(label: str, value: str, rule: str) -> str:
            found.append((label, value, rule))
            return self.placeholder(label, value)

        answer = (redact_once(text, place, name), tuple(found))
        self._cached_chars += len(text)
        if self._cached_chars > MAX_CACHED_CHARS:
            self._cache.clear()
            self._cached_chars = len(text)
        self._cache[key] = answer
        return answer


class _Known:
    """Values to replace wherever they stand: the publisher's own, and those this trace gave away elsewhere."""

    def __init__(self, redactor: Redactor, users: Sequence[str], values: Sequence[tuple[str, str]]) -> None:
        self._redactor = redactor
        exact = {variant: (value, "exact", "SECRET") for value in redactor._exact for variant in _variants(value)}
        self._values = {**{value: (value, "learned", label) for value, label in values}, **exact}
        self._by_length = sorted(self._values, key=len, reverse=True)
        self._users = {
            spelling: user for user in users for spelling in (user.lower(), re.sub(r"[^a-z0-9]", "-", user.lower()))
        }
        self._pattern = _users_pattern(self._users)

    def replace_in(self, text: str) -> str:
        for spelling in self._by_length:
            if spelling in text:
                value, rule, label = self._values[spelling]
                self._redactor.report.counts[label.lower(), rule] += text.count(spelling)
                text = text.replace(spelling, self._redactor.placeholder(label, value))
        if self._pattern and (lowered := text.lower()) and any(spelling in lowered for spelling in self._users):
            text = self._pattern.sub(self._user, text)
        return text

    def _user(self, found: re.Match[str]) -> str:
        self._redactor.report.counts["user", "home_folder"] += 1
        user = self._users[found["name"].lower() if found["name"] else found["word"].lower()]
        return (found["path"] or "") + self._redactor.placeholder("USER", user)


def _users_pattern(spellings: Iterable[str]) -> re.Pattern[str] | None:
    ordered = sorted(spellings, key=len, reverse=True)
    if not ordered:
        return None
    plain = [re.escape(s) for s in ordered if len(s) >= 4 and s not in _WORDLIKE] or ["(?!)"]
    anything = "|".join(map(re.escape, ordered))
    end = "(?![A-Za-z0-9])"
    return re.compile(
        rf"(?P<path>{_PATH})(?P<word>{anything}){end}|(?:(?<![A-Za-z0-9])|(?<=\\n)|(?<=\\t)|(?<=\\r))(?P<name>{'|'.join(plain)}){end}",
        re.IGNORECASE,
    )


def _variants(value: str) -> set[str]:
    """Return the spellings a value takes in logs: as it is, in a URL, in JSON."""
    import json
    from urllib.parse import quote

    return {value, quote(value, safe=""), json.dumps(value)[1:-1]}


# -------------------------------------------------------------------------------------------- where text is in a trace

Rewrite = Callable[[str, str], str]
"""Return what stands for (text, the name it stands under)."""


def _map_trace(trace: Trace, rewrite: Rewrite) -> Trace:
    return replace(
        trace,
        messages=tuple(_map_message(message, rewrite) for message in trace.messages),
        steps=tuple(_map_step(step, rewrite) for step in trace.steps),
        tools=tuple(_map_schema(tool, rewrite) for tool in trace.tools),
        cwd=rewrite(trace.cwd, ""),
        repository=rewrite(trace.repository, ""),
        provenance=_map_json(trace.provenance, rewrite, ""),
    )


def map_strings(trace: Trace, rewrite: Callable[[str], str]) -> Trace:
    """Return the trace with each of its texts rewritten; ids, names and types stay."""
    return _map_trace(trace, lambda text, name: rewrite(text))


def _map_message(message: Message, rewrite: Rewrite) -> Message:
    content = rewrite(message.content, "")
    reasoning = rewrite(message.reasoning_content, "") if message.reasoning_content else ""
    calls = tuple(
        ToolCall(call.name, _map_json(call.arguments, rewrite, ""), call.call_id) for call in message.tool_calls
    )
    if content == message.content and reasoning == message.reasoning_content and calls == message.tool_calls:
        return message
    return replace(message, content=content, reasoning_content=reasoning, tool_calls=calls)


def _map_step(step: Step, rewrite: Rewrite) -> Step:
    return replace(
        step,
        error_sites=tuple(replace(site, message=rewrite(site.message, "")) for site in step.error_sites),
        hints=tuple(replace(hint, text=rewrite(hint.text, "")) for hint in step.hints),
    )


def _map_json(value: Any, rewrite: Rewrite, name: str) -> Any:
    if isinstance(value, str):
        return rewrite(value, name)
    if isinstance(value, Mapping):
        return {_map_key(key, rewrite): _map_json(item, rewrite, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map_json(item, rewrite, name) for item in value)
    return value


def _map_key(key: str, rewrite: Rewrite) -> str:
    """Keep a key that is a name; one that is a path or an address is text."""
    return rewrite(key, "") if any(c in key for c in "/\\@") else key


def _map_schema(schema: Any, rewrite: Rewrite) -> Any:
    """Redact what a tool's schema says, not what it is made of."""
    if isinstance(schema, Mapping):
        return {
            key: _map_json(item, rewrite, "")
            if key in _DESCRIPTIVE and not isinstance(item, Mapping)
            else _map_schema(item, rewrite)
            for key, item in schema.items()
        }
    if isinstance(schema, (list, tuple)):
        return type(schema)(_map_schema(item, rewrite) for item in schema)
    return schema


# ------------------------------------------------------------------------------------------------------------- removal


def read_denylist(path: Path) -> frozenset[str]:
    """Read trace ids to leave out: one a line; `#` begins a comment."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    ids = [line for line in lines if line]
    if bad := next((line for line in ids if len(line.split()) > 1), None):
        raise RedactionError(f"{path}: {bad!r} is not a trace id. Write one id a line; begin a comment with '#'.")
    return frozenset(ids)


def drop_denied(traces: Iterable[Trace], denylist: Collection[str]) -> Iterator[Trace]:
    """Yield the traces that are not denied; a subagent's trace goes with the trace that started it."""
    return (trace for trace in traces if trace.trace_id not in denylist and trace.parent_trace_id not in denylist)
