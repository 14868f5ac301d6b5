"""Take secrets and personal data out of traces before anything leaves the machine.

In: a `Trace`. Out: the same trace with every secret and personal value replaced by a placeholder. Names, ids and types
stay, and JSON inside strings stays JSON.

A `Redactor` is pure and picklable, so each worker process has a copy. Its placeholders carry a keyed digest of the
value (`[EMAIL_x3f9a…]`), so workers agree without talking. `Numbering`, in the parent, turns them into `[EMAIL_3]` and
keeps the numbers stable between runs:

    numbering = Numbering.open(folder / "redaction.jsonl")             # makes the salt on first use, mode 0600
    redactor = Redactor(numbering.salt, exact=environment_secrets(os.environ))
    for trace in map(redactor.trace, traces):                          # also in worker processes
        write(numbering.number(trace))
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.named_files import text_of
from composer_hub.records import Message, Trace
from composer_hub.redact.beside import beside_people
from composer_hub.redact.data import digest
from composer_hub.redact.finders import FINDERS, STRICT_FINDERS
from composer_hub.redact.joins import Join, joined_secrets
from composer_hub.redact.judge_model import Opinion, opinions, texts_of
from composer_hub.redact.match import Subject, places
from composer_hub.redact.persons import MAX_PEOPLE, accounts_of, full_names, parts_of, words_among
from composer_hub.redact.publisher import NO_ONE, Publisher
from composer_hub.redact.review import Sample
from composer_hub.redact.session import KnownValues
from composer_hub.redact.structure import replaced, values_in
from composer_hub.redact.text import MAX_PASSES, redact_once
from composer_hub.redact.trace import map_named
from composer_hub.redact.users import people_among, user_names

MIN_CHARS = 4
"""Characters of the shortest text that is searched."""

MAX_CACHED_CHARS = 16_000_000
MAX_PIECE = 4_000_000
"""Characters that are searched at once; rules hold several copies of what they search."""


JUDGE = "judge"
"""The rule of what the learned judge finds."""

_CODES = frozenset(("code", "recovery_code", "setting:code"))
"""Rules whose values are short, but stand alone."""


_PASSWORDS = (
    "setting:password",
    "announced",
    "named:*pass",
    "named:pass",
    "named:pw",
    "sentence:",
    "command:",
    "login:",
)
_MIXED = re.compile(r"[^\W\d_]\W*\d|\d\W*[^\W\d_]")
"""Letters beside digits: a password that is recognized wherever it stands alone."""


Judge = Callable[[Trace, float], Iterable[Opinion]]
"""Return what is private in a trace with at least a probability."""
MIN_SUGGESTED = 0.35
"""Probability from which `ingest --review` suggests a value."""
MIN_SURE = 0.8
"""Probability from which a value is replaced as a secret."""
MIN_STRICT = 0.5
"""Probability from which `--personal strict` replaces a value."""


class RedactionError(exits.ComposerError, ValueError):
    """A redaction input (map, denylist, scanner output) cannot be used."""


@functools.cache
def rules_digest() -> str:
    """Return the digest of every source and data file of this package; `Trace.redaction` records it."""
    return digest()


@dataclass
class RedactionReport:
    """The number of replacements by kind and rule, without any value."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    num_traces: int = 0

    def __add__(self, other: RedactionReport) -> RedactionReport:
        return RedactionReport(self.counts + other.counts, self.num_traces + other.num_traces)

    def to_dict(self) -> dict[str, Any]:
        """Return the report for the manifest and the card."""
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


Replacement = tuple[str, str, str]
"""Label, value and rule."""


class Redactor:
    """Replace secrets and personal values in traces; the same salt gives the same placeholders everywhere."""

    def __init__(
        self,
        salt: bytes,
        *,
        exact: Collection[str] = (),
        publisher: Publisher = NO_ONE,
        kept: Collection[str] = (),  # placeholders of values that a person looked at and that stay
        accepted: Collection[str] = (),  # placeholders of suggestions that a person accepted
        strict: bool = False,  # also what may be personal data, and what the judge is sure of
        max_samples: int = 0,  # of each rule, for a person to look at
        judge: Judge | None = opinions,  # asked about what the rules left
    ) -> None:
        self._judge = judge
        self.report = RedactionReport()
        self._salt = salt
        self.exact = tuple(sorted(set(exact), key=lambda value: (-len(value), value)))
        self._publisher = publisher
        self._finders = STRICT_FINDERS if strict else FINDERS
        self._strict = strict
        self._kept, self._accepted = frozenset(kept), frozenset(accepted)
        self._max_samples = max_samples
        self._num_samples: Counter[str] = Counter()
        self.samples: dict[str, Sample] = {}
        self._digest = rules_digest()
        self._cache: dict[tuple[str, str], tuple[str, tuple[Replacement, ...]]] = {}
        self._cached_chars = 0
        self._placeholders: dict[tuple[str, str], str] = {}

    def __repr__(self) -> str:
        return f"Redactor(exact={len(self.exact)} values)"

    def __getstate__(self) -> dict[str, Any]:
        # A worker starts with an empty cache and no counts.
        return {
            **self.__dict__,
            "_cache": {},
            "_cached_chars": 0,
            "_placeholders": {},
            "samples": {},
            "report": RedactionReport(),
        }

    def trace(self, trace: Trace) -> Trace:
        """Return the trace redacted, and add what was replaced to the report."""
        return self.trace_and_secrets(trace)[0]

    def trace_and_secrets(self, trace: Trace) -> tuple[Trace, dict[str, str]]:
        """Return the trace redacted, and the values found in it (with labels) that other traces may repeat."""
        known, joins = self._learn(trace)
        self.report.num_traces += 1

        def settle(text: str, name: str) -> str:
            return self._settle(self._without_joins(text, joins), name, known)

        clean = replace(map_named(trace, settle), redaction=self._digest)
        return self._judged(trace, clean), known.learned

    def _judged(self, trace: Trace, clean: Trace) -> Trace:
        """Ask the learned judge about what the rules left: replace what is likely or accepted, suggest the rest."""
        if self._judge is None:
            return clean
        left, found = "", list[Replacement]()
        for value, label, probability in self._judge(trace, MIN_SUGGESTED):
            left = left or "\n".join(text for _, text in texts_of(clean))
            if value not in left or _is_also_a_word(value, left) or not self._replaces(label, value):
                continue
            placeholder = self.placeholder(label, value)
            min_share = MIN_STRICT if self._strict else MIN_SURE if label == "SECRET" else 1.0
            if probability >= min_share or placeholder in self._accepted:
                self._sample(label, JUDGE, left, value)
                found.append((label, value, JUDGE))
            elif self._max_samples:
                self.samples[placeholder] = Sample.of(label, JUDGE, placeholder, left, value, probability)
        return self.without_found(clean, found) if found else clean

    def without_found(self, trace: Trace, found: Iterable[Replacement]) -> Trace:
        """Replace what a judge or a reader found in a redacted trace, wherever it is a whole word."""
        known = self._known()
        known.add_words(one for one in found if self._replaces(one[0], one[1]))
        return map_named(trace, lambda text, name: known.without_values(text, self.report.counts))

    def without_secrets(self, trace: Trace, secrets: Mapping[str, str]) -> Trace:
        """Replace values that other traces of the run gave away."""
        known = self._known()
        for value, label in secrets.items():
            known.learn(label, value)
        return map_named(trace, lambda text, name: known.without_values(text, self.report.counts))

    def text(self, text: str) -> str:
        """Return one text redacted by itself, as before a teacher is asked."""
        known = self._known()
        known.add_users(user_names(text))
        self._learn_people(known, {"NAME": (), "EMAIL": (), "USER": ()}, [text])
        raw, clean = (Trace("", "", "", (Message("user", one),), ()) for one in (text, self._settle(text, "", known)))
        return self._judged(raw, clean).messages[0].content

    def placeholder(self, label: str, value: str) -> str:
        """Return the placeholder of a value, the same wherever it occurs; the value cannot be computed from it."""
        if (label, value) in self._placeholders:
            return self._placeholders[label, value]
        canonical = re.sub(r"[ ().-]", "", value) if label in ("PHONE", "CARD", "IBAN") else value
        if label in ("EMAIL", "USER", "MAC"):
            canonical = value.lower().replace("%40", "@")
        digest = hmac.new(self._salt, f"{label}\0{canonical}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        placeholder = self._placeholders[label, value] = f"[{label}_x{digest.hexdigest()[:16]}]"
        return placeholder

    def _replaces(self, label: str, value: str) -> bool:
        return not self._kept or self.placeholder(label, value) not in self._kept

    def _sample(self, label: str, rule: str, text: str, value: str) -> None:
        if self._num_samples[rule] < self._max_samples:
            placeholder = self.placeholder(label, value)
            if placeholder not in self.samples:
                self._num_samples[rule] += 1
                self.samples[placeholder] = Sample.of(label, rule, placeholder, text, value)

    def _known(self) -> KnownValues:
        return KnownValues(self.placeholder, self.exact, self._publisher)

    def _learn(self, trace: Trace) -> tuple[KnownValues, dict[str, list[Join]]]:
        """Read the trace for its users, for its secrets, and for what two messages give away together."""
        known = self._known()
        texts: dict[tuple[str, str], None] = {}  # a set that keeps its order, so that runs do not differ

        def collect(text: str, name: str) -> str:
            if len(text) >= MIN_CHARS:
                texts[text, name] = None
            return text

        map_named(trace, collect)

        def pieces() -> Iterator[str]:
            return (piece for text, _ in texts for piece in pieces_of(text))

        users = {name.lower() for piece in pieces() for name in user_names(piece)}
        for user in sorted(people_among(users, trace, pieces())):
            if self._replaces("USER", user):
                known.add_users([user])
                if self._max_samples:
                    text = next((text for text, _ in texts if f"/{user}" in text.lower()), "")
                    self._sample("USER", "home_folder", text, user)
        joins = self._learn_joins(known, trace)
        changed: list[str] = []
        found: dict[str, dict[str, None]] = {"NAME": {}, "EMAIL": {}, "USER": dict.fromkeys(users)}
        for piece, name in ((piece, name) for text, name in texts for piece in pieces_of(text)):
            redacted, replacements = self._rules(known.without_homes(piece), name)
            if replacements:
                changed.append(redacted)
            for label, value, rule in replacements:
                _learn_replaced(known, label, value, rule)
                if label in found:
                    found[label][value] = None
        self._learn_people(known, found, [text for text, _ in texts])
        for text in map(known.without_values, changed):
            for span in beside_people(Subject(text, "", frozenset())):
                if self._replaces(span.label, text[span.start : span.end]):
                    known.learn(span.label, text[span.start : span.end], alone=True)
        return known, joins

    def _learn_joins(self, known: KnownValues, trace: Trace) -> dict[str, list[Join]]:
        """Learn and return, by text, what two messages give away together."""
        joins: dict[str, list[Join]] = {}
        for join in _fitted(joined_secrets(trace)):
            if self._replaces(join.label, join.value):
                self._sample(join.label, join.rule, join.text, join.value)
                joins.setdefault(join.text, []).append(join)
                is_code = join.rule in _CODES
                for spelled in {join.value, join.value.replace(" ", "")} if is_code else (join.value,):
                    known.learn(join.label, spelled, alone=join.rule != "cut_in_two", is_code=is_code)
        return joins

    def _learn_people(self, known: KnownValues, found: Mapping[str, Iterable[str]], texts: list[str]) -> None:
        """Learn the people whom the texts name, with the spellings of their names."""
        accounts = accounts_of(found["EMAIL"], found["USER"])
        names = dict.fromkeys(found["NAME"])
        known.learn_logins(found["EMAIL"])
        for text in texts:
            for name in full_names(text, accounts):
                if self._replaces("NAME", name):
                    self._sample("NAME", "full_name", text, name)
                    names[name] = None
        people = list(names)[:MAX_PEOPLE]
        parts = {name: set(parts_of(name)) for name in people}
        words = words_among(set().union(*parts.values()), texts) if parts else set()
        for name in people:
            known.learn_person(name, parts[name] - words)

    def _without_joins(self, text: str, joins: Mapping[str, list[Join]]) -> str:
        for _, value, label, rule in joins.get(text, ()):
            self.report.counts[label.lower(), rule] += 1
            for spelling in {value, json.dumps(value)[1:-1]}:
                spans = [(at, at + len(spelling), (label, value)) for at in places(text, spelling)]
                text = replaced(text, spans, lambda known, part: self.placeholder(*known))
        return text

    def _settle(self, text: str, name: str, known: KnownValues) -> str:
        """Apply the known values and the rules until nothing changes, so that redacting again changes nothing."""
        if len(text) < MIN_CHARS:
            return text
        if len(text) > MAX_PIECE:
            return "".join(self._settle(piece, name, known) for piece in pieces_of(text))
        text = known.without_broken(known.without_homes(text, self.report.counts), self.report.counts)
        for _ in range(MAX_PASSES):
            redacted, replacements = self._rules(text, name)
            self.report.counts.update((label.lower(), rule) for label, _, rule in replacements)
            redacted = known.without_values(redacted, self.report.counts)
            if redacted == text:
                break
            text = redacted
        return text

    def _rules(self, text: str, name: str) -> tuple[str, tuple[Replacement, ...]]:
        """Apply the rules to one string and remember the answer: results recur over steps and resumed sessions."""
        key = (text, name)
        if key in self._cache:
            return self._cache[key]
        replacements: list[Replacement] = []

        def place(label: str, value: str, rule: str) -> str:
            if not self._replaces(label, value):
                return value
            self._sample(label, rule, text, value)
            replacements.append((label, value, rule))
            return self.placeholder(label, value)

        answer = (redact_once(text, place, name, finders=self._finders), tuple(replacements))
        self._cached_chars += len(text)
        if self._cached_chars > MAX_CACHED_CHARS:
            self._cache.clear()
            self._cached_chars = len(text)
        self._cache[key] = answer
        return answer


def _learn_replaced(known: KnownValues, label: str, value: str, rule: str) -> None:
    """Learn a value that a rule replaced: the trace may repeat it in base64, or a code in groups."""
    known.learn(label, value, alone=rule in _CODES or bool(rule.startswith(_PASSWORDS) and _MIXED.search(value)))
    if label == "SECRET":
        known.learn_decoded(value)
    if rule == "code":
        is_plain = value.isdigit() and len(value) == 6
        known.learn(label, f"{value[:3]} {value[3:]}" if is_plain else value.replace(" ", ""), alone=True)


def _is_also_a_word(value: str, text: str) -> bool:
    """Return whether a capitalized value is also a plain word of the text, which may begin sentences."""
    return value.isalpha() and value.istitle() and bool(re.search(rf"\b{value.lower()}\b", text))


def _fitted(joins: Iterable[Join]) -> Iterator[Join]:
    """Yield the joins with values that do not reach into the structure of their texts."""
    for join in joins:
        yield from (join._replace(value=value) for value in values_in(join.text, join.value))


def pieces_of(text: str) -> Iterator[str]:
    """Yield a text, or the parts of a huge one, cut at the end of a line or a word if possible."""
    start = 0
    while len(text) - start > MAX_PIECE:
        end = start + MAX_PIECE
        cut = max(text.rfind("\n", end - MAX_PIECE // 4, end), text.rfind(" ", end - 10_000, end)) + 1
        yield text[start : cut or end]
        start = cut or end
    yield text[start:] if start else text


# -------------------------------------------------------------------------------------------------------------- removal


def read_denylist(path: Path) -> frozenset[str]:
    """Read the ids of traces to leave out, one per line; `#` begins a comment."""
    lines = (line.partition("#")[0].strip() for line in text_of(path).splitlines())
    ids = [line for line in lines if line]
    if bad := next((line for line in ids if len(line.split()) > 1), None):
        raise RedactionError(
            f"{path}: {bad[:60]!r} is not a trace id. Write one id per line and begin a comment with '#'."
        )
    return frozenset(ids)


def drop_denied(traces: Iterable[Trace], denylist: Collection[str]) -> Iterator[Trace]:
    """Yield the traces that are not denied; a subagent's trace goes with the trace that started it."""
    return (trace for trace in traces if trace.trace_id not in denylist and trace.parent_trace_id not in denylist)
