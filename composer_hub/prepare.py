"""A session as it was read in, the trace as it is published out: error sites, hints, redaction, in that order.

Errors are found in the harness's own words, so they come before redaction; hints quote those words, so redaction comes
last and goes over everything. A `Preparation` is picklable: ingest runs it in its worker processes.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass

from composer_hub.hints import write_hints, writers_named
from composer_hub.ingest.errors import find_errors
from composer_hub.ingest.redact import Redactor
from composer_hub.ingest.session import Session

DEFAULT_WRITERS = "template,hindsight,environment"


@dataclass
class Preparation:
    """What is done to each session before it is published."""

    redactor: Redactor | None
    writers: str = DEFAULT_WRITERS
    outcome: bool = False  # hints from tests and compilers, too
    user_feedback: bool = False  # hints from the user's own words, too
    text_rules: bool = False  # look for failures that a pipe has hidden

    def __call__(self, session: Session) -> Session:
        """Return the session with error sites and hints, redacted where a redactor is given."""
        trace = find_errors(session, text_rules=self.text_rules)
        trace = write_hints(trace, writers_named(self.writers), outcome=self.outcome, user_feedback=self.user_feedback)
        if self.redactor is not None:
            before = self.redactor.report.counts.copy()
            trace = self.redactor.trace(trace)
            replaced = self.redactor.report.counts - before
            counts = {**trace.counts, "redactions": _by(replaced, 0), "redactions_by_rule": _by(replaced, 1)}
            trace = dataclasses.replace(trace, counts=counts)
        return session.with_trace(trace)


def _by(counts: Counter[tuple[str, str]], place: int) -> dict[str, int]:
    summed: Counter[str] = Counter()
    for names, number in counts.items():
        summed[names[place]] += number
    return dict(sorted(summed.items()))
