"""Prepare a session for publishing: find errors, write hints, redact, in that order.

Errors are found in the harness's words, so they come before redaction. Hints quote those words, so redaction comes last
and covers everything. A `Preparation` is picklable, because worker processes run it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from composer_hub.actions import actions_of
from composer_hub.errors.find import find_errors
from composer_hub.hints.writers import write_hints, writers_named
from composer_hub.records import Trace
from composer_hub.redact import Redactor, without_tokens_of_changed_text
from composer_hub.redact.reader import Reader
from composer_hub.session import Session

DEFAULT_WRITERS = "hindsight,quoted"


@dataclass
class Preparation:
    """The steps before a session is published."""

    redactor: Redactor | None
    writers: str = DEFAULT_WRITERS  # "" writes no hints
    outcome: bool = False  # also hints from tests and compilers
    user_feedback: bool = False  # also hints from the user's words
    text_rules: bool = False  # also read other failures from shell output without an exit code

    def __call__(self, session: Session) -> Session:
        """Return the session with error sites and hints, redacted if there is a redactor."""
        # A trace that was published before keeps its sites and hints, since the harness's flags are not in it.
        trace = session.trace
        if not session.is_prepared:
            actions = actions_of(trace, session.flags)
            trace = find_errors(session, actions, text_rules=self.text_rules)
            if self.writers:
                writers = writers_named(self.writers)
                feedback = {"outcome": self.outcome, "user_feedback": self.user_feedback}
                trace = write_hints(trace, writers, actions=actions, **feedback)
        if self.redactor is None:
            return session.with_trace(trace)
        before = self.redactor.report.counts.copy()
        clean, secrets = self.redactor.trace_and_secrets(trace)
        trace = _counted(trace, clean, self.redactor.report.counts - before)
        samples, self.redactor.samples = tuple(self.redactor.samples.values()), {}
        return dataclasses.replace(session, trace=trace, secrets=secrets, samples=samples)

    def without_secrets(self, trace: Trace, secrets: Mapping[str, str]) -> Trace:
        """Return a redacted trace without the values that other sessions of the run gave away."""
        if self.redactor is None:
            return trace
        before = self.redactor.report.counts.copy()
        clean = self.redactor.without_secrets(trace, secrets)
        return _counted(trace, clean, self.redactor.report.counts - before)

    def read_by(self, reader: Reader, trace: Trace) -> Trace:
        """Return a redacted trace without what a reader finds in it."""
        if self.redactor is None:
            return trace
        before = self.redactor.report.counts.copy()
        clean = self.redactor.without_found(trace, reader.found(trace))
        return _counted(trace, clean, self.redactor.report.counts - before)


def _counted(trace: Trace, redacted: Trace, replaced: Counter[tuple[str, str]]) -> Trace:
    clean = without_tokens_of_changed_text(trace, redacted)
    # Add the replacements of an earlier redaction: they are still in the text.
    counts = {
        **clean.counts,
        "redactions": _by(replaced, 0, trace.counts.get("redactions", {})),
        "redactions_by_rule": _by(replaced, 1, trace.counts.get("redactions_by_rule", {})),
    }
    return dataclasses.replace(clean, counts=counts)


def _by(counts: Counter[tuple[str, str]], place: int, earlier: Mapping[str, int]) -> dict[str, int]:
    summed: Counter[str] = Counter(earlier)
    for names, number in counts.items():
        summed[names[place]] += number
    return dict(sorted(summed.items()))
