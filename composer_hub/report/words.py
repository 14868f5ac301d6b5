"""How the report writes numbers, dates and names for people."""

from __future__ import annotations

import datetime
import re

from composer_hub.output import plural
from composer_hub.report.numbers import MIN_RATE, Numbers, ReportNews

NONE = "\u2013"


def count(number: float) -> str:
    return f"{number:,.0f}"


def tokens(number: float) -> str:
    """Return a number of tokens, short: 950, 12.3 k, 4.5 M, 1.2 G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}" if number < 1000 * size else f"{number / size:,.0f} {unit}"
    return f"{number:.0f}"


def percent(share: float | None) -> str:
    """Return a share in per cent; small ones keep a digit."""
    if share is None:
        return NONE
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %" if value >= 0.05 else "< 0.1 %"


def rate(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f}"


_DATED = re.compile(r"-20\d{6}$")


def model_name(model: str) -> str:
    """Return a model's name without its date."""
    return _DATED.sub("", model)[:40]


def day(at: float, zone: datetime.tzinfo | None = None) -> str:
    when = datetime.datetime.fromtimestamp(at, zone)
    return f"{when.day} {when:%b %Y}" if at else "undated"


def minute(at: float, zone: datetime.tzinfo | None = None) -> str:
    return f"{day(at, zone)}, {datetime.datetime.fromtimestamp(at, zone):%H:%M}" if at else "undated"


def week_name(monday: str) -> str:
    when = datetime.date.fromisoformat(monday)
    return f"{when.day} {when:%b}"


def period(numbers: Numbers, zone: datetime.tzinfo | None = None) -> str:
    """Return the first and the last day with a message."""
    first, last = day(numbers.first, zone), day(numbers.last, zone)
    if not numbers.last:
        return "no dates in the files"
    if first == last:
        return last
    same_year = first[-4:] == last[-4:]
    return f"{first[:-5] if same_year else first} to {last}"


def news(change: ReportNews, numbers: Numbers, zone: datetime.tzinfo | None = None) -> str:
    """Return the sentence about what changed since an earlier report."""
    calls, failed = change.num_calls, change.num_failed
    before = numbers.num_calls - calls
    sentence = (
        f"Since the report of {day(change.at, zone)}: {plural(change.num_sessions, 'session')} and "
        f"{plural(calls, 'call')} more; {failed:,} of them failed by the agent's own fault"
    )
    if calls >= MIN_RATE and before >= MIN_RATE:
        earlier = 100 * (numbers.by_blame["model"] - failed) / before
        sentence += f", {rate(100 * failed / calls)} of 100 (before: {rate(max(0.0, earlier))})"
    return sentence + "."


def headline(numbers: Numbers) -> str:
    """Return the one sentence that the report comes down to."""
    if not numbers.num_calls:
        return "No tool calls to judge."
    if numbers.rate is None:
        return f"Only {plural(numbers.num_calls, 'call')} so far: too few for a rate."
    if numbers.is_little:
        return "Little is lost here."
    share = numbers.share(numbers.direct)
    if share is not None:
        return f"Failed calls and their direct repair took at most {percent(share)} of the spend."
    return f"{rate(numbers.rate)} of 100 calls fail by the agent's own fault."


def lead(numbers: Numbers) -> str:
    """Return the sentences after the headline, without repeating it."""
    failed, noes = numbers.by_blame["model"], numbers.by_blame["user"]
    share = numbers.share(numbers.direct)
    shown = headline(numbers)
    sentences = []
    if failed and numbers.rate is None:
        sentences.append(f"{plural(failed, 'call')} failed by the agent's own fault.")
    elif numbers.rate is not None and "of 100 calls" not in shown:
        sentences.append(f"{rate(numbers.rate)} of 100 calls failed by the agent's own fault.")
    if failed and share is not None and "of the spend" not in shown:
        sentences.append(f"With their direct repair, they took at most {percent(share)} of the spend.")
    if noes:
        sentences.append(f"You said no {plural(noes, 'time')}.")
    return " ".join(sentences)
