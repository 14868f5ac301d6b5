"""The review before publishing: samples of every rule in context, one key for each."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any

import click

from composer_hub import exits
from composer_hub.local_hub.characters import visible
from composer_hub.output import Output
from composer_hub.redact import Decisions, Sample, find_kingfisher

_KEYS = "k keep it as it is   d or Enter: replace it   a: replace all of this rule   q: stop, publish nothing"
_SUGGESTION_KEYS = (
    "k or Enter: keep it as it is   d: replace it   a: replace all that are left   q: stop, publish nothing"
)
_MAX_RULES = 12
MAX_SUGGESTIONS = 60
"""Suggestions of the learned judge in one review, the likeliest first."""


def check_review(out: Output, *, public: bool, review: bool, yes: bool) -> bool:
    """Return whether to review; refuse to make traces public that no person looked at."""
    terminal = sys.stdin.isatty() and sys.stderr.isatty()
    if review and not terminal:
        raise exits.UsageError("--review needs a terminal. Run the command in one, or leave --review out.")
    if public and not yes and not terminal:
        raise exits.UsageError(
            "--public needs a review of what was replaced and what was not. Run it in a terminal, or add --yes if you "
            "have looked at the rows."
        )
    if public and not find_kingfisher():
        out.note("kingfisher is not installed, so no second scanner checks the rows: `pip install kingfisher-bin`.")
    return review or (public and not yes)


def ask(
    samples: Iterable[Sample], decisions: Decisions, read_key: Callable[[], str] = click.getchar, width: int = 100
) -> bool:
    """Show each undecided sample, then what the learned judge suggests; return whether a decision changes the rows."""
    undecided = sorted((s for s in samples if s.placeholder not in decisions), key=lambda s: (s.label, s.rule))
    replaced = [s for s in undecided if not s.is_suggestion]
    groups = [(rule, list(group)) for rule, group in groupby(replaced, key=lambda s: (s.label, s.rule))]
    suggested = sorted((s for s in undecided if s.is_suggestion), key=lambda s: -s.probability)
    any_kept = False
    for number, ((label, rule), group) in enumerate(groups, start=1):
        rest = False
        for sample in group:
            title = f"{label} by the rule {rule} ({number} of {len(groups)} rules)"
            key = "d" if rest else _ask_one(title, sample, _KEYS, read_key, width)
            rest = rest or key == "a"
            decisions.add(sample, keep=key == "k")
            any_kept = any_kept or key == "k"
    return _ask_suggested(suggested[:MAX_SUGGESTIONS], decisions, read_key, width) or any_kept


def _ask_suggested(samples: list[Sample], decisions: Decisions, read_key: Callable[[], str], width: int) -> bool:
    """Show what the learned judge would replace; it stays unless the person decides otherwise."""
    any_accepted = rest = False
    for number, sample in enumerate(samples, start=1):
        kind = "a secret" if sample.label == "SECRET" else "personal data"
        sure = f"{sample.probability:.0%}"
        title = f"Not replaced: perhaps {kind} ({sure}, {number} of {len(samples)} suggestions)"
        key = "d" if rest else _ask_one(title, sample, _SUGGESTION_KEYS, read_key, width, enter="k")
        rest = rest or key == "a"
        decisions.add(sample, keep=key == "k")
        any_accepted = any_accepted or key != "k"
    return any_accepted


def _ask_one(
    title: str, sample: Sample, keys: str, read_key: Callable[[], str], width: int, *, enter: str = "d"
) -> str:
    """Show a sample and return the key of the person's decision."""
    for text in (f"\n{title}", shown(sample, width), click.style(keys, dim=True)):
        click.echo(text, err=True)
    key = _key(read_key, enter)
    if key == "q":
        raise exits.Refused("Stopped in the review: nothing was published. The decisions so far are kept.")
    return key


def _key(read_key: Callable[[], str], enter: str) -> str:
    while True:
        key = read_key().lower()
        if key in ("\x03", "\x04", ""):
            return "q"
        if key in ("\r", "\n", " "):
            return enter
        if key in ("k", "d", "a", "q"):
            return key


def shown(sample: Sample, width: int = 100) -> str:
    """Return a sample in its context on a few lines; control characters cannot move the cursor."""
    value = _inert(sample.value)
    value = value if len(value) <= width else f"{value[: width - 20]}… ({len(sample.value):,} characters)"
    return f"  {_inert(sample.before)}{click.style(value, reverse=True)}{_inert(sample.after)}"


def _inert(text: str) -> str:
    return visible(text.replace("\n", "⏎").replace("\t", " "))


def show_replaced(out: Output, numbers: Mapping[str, Any], rules: Counter[str]) -> None:
    """Print what was replaced, by kind and by the rules that replaced most."""
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in numbers["redactions_by_kind"].items()) or "nothing"
    out.note(f"Replaced: {kinds}.")
    if rules:
        most = ", ".join(f"{rule} {number:,}" for rule, number in rules.most_common(_MAX_RULES))
        out.note(f"By rule: {most}{', …' if len(rules) > _MAX_RULES else ''}.")
