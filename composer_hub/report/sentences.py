"""The sentences at the head of a report: its days, the headline and the lead, and the news since the last one."""

from __future__ import annotations

import datetime

from composer_hub.output import plural
from composer_hub.report import words as say
from composer_hub.report.numbers import MIN_RATE, Numbers, ReportNews


def period(numbers: Numbers, zone: datetime.tzinfo | None = None) -> str:
    """Return the first and the last day with a message."""
    first, last = say.day(numbers.first, zone), say.day(numbers.last, zone)
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
        f"Since the report of {say.day(change.at, zone)}: {plural(change.num_sessions, 'session')} and "
        f"{plural(calls, 'call')} more; {failed:,} of them failed by the agent's own fault"
    )
    if calls >= MIN_RATE and before >= MIN_RATE:
        earlier = 100 * (numbers.by_blame["model"] - failed) / before
        sentence += f", {say.rate(100 * failed / calls)} of 100 (before: {say.rate(max(0.0, earlier))})"
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
        return f"Failed calls and their direct repair took at most {say.percent(share)} of the spend."
    return f"{say.rate(numbers.rate)} of 100 calls fail by the agent's own fault."


def lead(numbers: Numbers) -> str:
    """Return the sentences after the headline, without repeating it."""
    failed, noes = numbers.by_blame["model"], numbers.by_blame["user"]
    share = numbers.share(numbers.direct)
    shown = headline(numbers)
    sentences = []
    if failed and numbers.rate is None:
        sentences.append(f"{plural(failed, 'call')} failed by the agent's own fault.")
    elif numbers.rate is not None and "of 100 calls" not in shown:
        sentences.append(f"{say.rate(numbers.rate)} of 100 calls failed by the agent's own fault.")
    if failed and share is not None and "of the spend" not in shown:
        sentences.append(f"With their direct repair, they took at most {say.percent(share)} of the spend.")
    if noes:
        sentences.append(f"You said no {plural(noes, 'time')}.")
    return " ".join(sentences)
