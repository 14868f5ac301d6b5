"""Take secrets and personal data out of traces, before anything leaves the machine.

In: a `Trace` as a reader made it. Out: the same trace with every secret and personal value replaced by a placeholder;
ids, roles, types, tool names, argument names and model names are never touched, and JSON inside strings stays JSON.

A `Redactor` is pure and picklable, so each worker process holds a copy. It writes placeholders that carry a keyed
digest of the value (`[EMAIL_x3f9a…]`), so workers agree without talking; `Numbering`, in the parent, turns them into
`[EMAIL_3]` and keeps the numbers stable over runs:

    numbering = redact_numbers.Numbering.open(folder / "redaction.jsonl")   # makes the salt on first use, 0600
    redactor = Redactor(numbering.salt, exact=environment_secrets(os.environ))
    with ProcessPoolExecutor() as pool:
        for trace in pool.map(redactor.trace, traces):                 # or redactor.trace(trace) in this process
            write(numbering.number(trace))
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from composer_hub import exits
from composer_hub.records import Message, Step, ToolCall, Trace, stable_id
from composer_hub.redact import commands as redact_commands
from composer_hub.redact import context as redact_context
from composer_hub.redact import digits as redact_digits
from composer_hub.redact import homes as redact_homes
from composer_hub.redact import named as redact_named
from composer_hub.redact import names as redact_names
from composer_hub.redact import network as redact_network
from composer_hub.redact import people as redact_people
from composer_hub.redact import phrases as redact_phrases
from composer_hub.redact import tables as redact_tables
from composer_hub.redact import unknown as redact_unknown
from composer_hub.redact.homes import home_users
from composer_hub.redact.rules import SHAPES
from composer_hub.redact.text import MAX_PASSES, PLACEHOLDER, redact_once, same_length_lower

VERSION = 2
Found = tuple[str, str, str]
"""Label, value and rule of something that was replaced."""


class RedactionError(exits.ComposerError, ValueError):
    """A redaction input (map, denylist, scanner output) cannot be used."""


_RULE_MODULES = (
    *(redact_named, redact_names, redact_context, redact_commands, redact_phrases, redact_tables, redact_unknown),
    *(redact_people, redact_network, redact_digits, redact_homes),
)


@functools.cache
def rules_digest() -> str:
    """Return the digest of the rule set: it goes into `Trace.redaction`, so a version says what went over it."""
    patterns = [
        pattern.pattern
        for module in _RULE_MODULES
        for pattern in vars(module).values()
        if isinstance(pattern, re.Pattern)
    ]
    shapes = [(rule.name, rule.anchors, rule.pattern.pattern) for rule in SHAPES]
    words = (redact_commands.ARGUMENTS, redact_phrases.NOUNS, redact_names.STEMS)
    return f"v{VERSION}-{stable_id(shapes, patterns, words)[:12]}"


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
    [
        "mark",
        "will",
        "max",
        "art",
        "rose",
        "grace",
        "hope",
        "joy",
        "bill",
        "jack",
        "dean",
        "grant",
        "frank",
        "guy",
        "ray",
        "rob",
        "sue",
        "pat",
        "drew",
        "chase",
        "hunter",
        "mason",
        "carter",
        "cooper",
        "main",
        "base",
        "core",
        "data",
        "file",
        "line",
        "text",
        "code",
        "type",
        "name",
        "node",
        "list",
        "item",
        "user",
        "case",
        "rich",
        "sky",
        "dawn",
        "april",
        "may",
        "june",
        "summer",
    ]
)
_HOMES = ("/home/", "/Users/", "\\Users\\", "-Users-", "-home-", "%2FUsers%2F", "%2Fhome%2F", "/~", " ~", "\n~")
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
        self.exact = tuple(sorted(set(exact), key=lambda value: (-len(value), value)))
        self._users = tuple(sorted(set(users)))
        self._digest = rules_digest()
        self._cache: dict[tuple[str, str], tuple[str, tuple[Found, ...]]] = {}
        self._cached_chars = 0

    def __repr__(self) -> str:
        return f"Redactor(exact={len(self.exact)} values, users={len(self._users)})"

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
        return self._settle(text, "", _Known(self, (*self._users, *home_users(text))))

    def placeholder(self, label: str, value: str) -> str:
        """Return the placeholder of a value: the same wherever it occurs, and nothing to compute the value from."""
        canonical = re.sub(r"[ ().-]", "", value) if label in ("PHONE", "CARD", "IBAN") else value
        if label in ("EMAIL", "USER", "MAC"):
            canonical = value.lower().replace("%40", "@")
        digest = hmac.new(self._salt, f"{label}\0{canonical}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"[{label}_x{digest.hexdigest()[:16]}]"

    def _learn(self, trace: Trace) -> _Known:
        """Read the trace once for its users and once for its secrets, which then go wherever they stand."""
        known = _Known(self, self._users)

        texts: dict[tuple[str, str], None] = {}  # a set that keeps its order, so that runs do not differ

        def collect(text: str, name: str) -> str:
            if len(text) >= MIN_CHARS:
                texts[text, name] = None
            return text

        _map_trace(trace, collect)
        for text, _ in texts:
            known.add_users(home_users(text))
        for text, name in texts:
            for label, value, _ in self._rules(known.without_homes(text), name)[1]:
                if len(value) >= MIN_LEARNED and label in ("SECRET", "NAME") and "\n" not in value:
                    known.add_value(value, value, label, "learned")
        return known

    def _settle(self, text: str, name: str, known: _Known) -> str:
        """Apply what is known and the rules until nothing changes, so that redacting again changes nothing either."""
        if len(text) < MIN_CHARS:
            return text
        text = known.without_homes(text, self.report.counts)
        for _ in range(MAX_PASSES):
            redacted, found = self._rules(text, name)
            self.report.counts.update((label.lower(), rule) for label, _, rule in found)
            redacted = known.without_values(redacted, self.report.counts)
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


Counts = Counter[tuple[str, str]]


class _Known:
    """Values to replace wherever they stand in a trace: the publisher's own, users, what it gave away elsewhere."""

    def __init__(self, redactor: Redactor, users: Iterable[str]) -> None:
        self._redactor = redactor
        self._values: dict[str, tuple[str, str, str]] = {}
        self._users: dict[str, str] = {}
        self.add_users(users)
        for value in redactor.exact:
            for variant in _variants(value):
                self.add_value(variant, value, "SECRET", "exact")

    def add_users(self, users: Iterable[str]) -> None:
        for user in users:
            lowered = user.lower()
            if lowered not in self._users:
                # Harnesses name a session folder after the working directory, every sign written as a dash.
                self._users[lowered] = self._users[re.sub(r"[^a-z0-9]", "-", lowered)] = lowered

    def add_value(self, spelling: str, value: str, label: str, rule: str) -> None:
        self._values.setdefault(spelling, (value, label, rule))

    def without_homes(self, text: str, counts: Counts | None = None) -> str:
        """Replace the users' names where they name a home folder."""
        return self._without_users(text, counts, _names_home)

    def without_values(self, text: str, counts: Counts) -> str:
        """Replace the known values, and the users' names where they stand alone."""
        for spelling in sorted((value for value in self._values if value in text), key=len, reverse=True):
            value, label, rule = self._values[spelling]
            counts[label.lower(), rule] += text.count(spelling)
            text = text.replace(spelling, self._redactor.placeholder(label, value))
        return self._without_users(text, counts, _names_user)

    def _without_users(self, text: str, counts: Counts | None, accept: Callable[[str, int, str], bool]) -> str:
        lowered = same_length_lower(text) if self._users else ""
        for spelling in [spelling for spelling in self._users if spelling in lowered]:
            places = [at for at in _occurrences(lowered, spelling) if accept(text, at, spelling)]
            if places:
                if counts is not None:
                    counts["user", "home_folder"] += len(places)
                text = _replaced(text, places, len(spelling), self._redactor.placeholder("USER", self._users[spelling]))
                lowered = same_length_lower(text)
        return text


def _occurrences(text: str, word: str) -> Iterator[int]:
    """Yield where the word ends at a word's end."""
    at = text.find(word)
    while at >= 0:
        if not text[at + len(word) : at + len(word) + 1].isalnum():
            yield at
        at = text.find(word, at + len(word))


def _replaced(text: str, places: Sequence[int], length: int, replacement: str) -> str:
    ends = [0, *(at + length for at in places)]
    return replacement.join(text[start:stop] for start, stop in zip(ends, [*places, len(text)], strict=True))


def _names_home(text: str, at: int, user: str) -> bool:
    before = text[max(0, at - 40) : at]
    return (before.rstrip("\\") + "\\" if before.endswith("\\") else before).endswith(_HOMES)


_CODE_BEFORE = re.compile(r"(?:\\[ntr]|\[[0-9;]{0,12}m)\Z")


def _names_user(text: str, at: int, user: str) -> bool:
    """Tell whether the user's name stands here on its own; names that are words too are left to their paths."""
    begins = at == 0 or not text[at - 1].isalnum() or bool(_CODE_BEFORE.search(text, max(0, at - 12), at))
    return begins and len(user) >= 4 and user not in _WORDLIKE and not _in_placeholder(text, at)


def _in_placeholder(text: str, at: int) -> bool:
    found = PLACEHOLDER.search(text, max(0, at - 32), at + 40)
    return found is not None and found.start() <= at < found.end()


def _variants(value: str) -> set[str]:
    """Return the spellings a value takes in logs: as it is, in a URL, in JSON."""
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
    if not step.error_sites and not step.hints:
        return step
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
    if isinstance(value, (list, tuple)) and not _TEXTLESS.issuperset(map(type, value)):
        return type(value)(_map_json(item, rewrite, name) for item in value)
    return value


# Token ids and log-probs stand in lists of thousands.
_TEXTLESS = frozenset((int, float, bool, type(None)))


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
