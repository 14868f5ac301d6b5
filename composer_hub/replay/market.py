"""The price of a further pair, by which `auto` asks one more teacher or stops.

In: the plan, who agreed with whom in its pilot, finished traces. Out: a verdict per step. The price of a pair
at a step is the expected cost of its open questions, over the chance that they end in a pair. It grows with
the prompt, and after a teacher that repeats the student.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from composer_hub.money import NANO
from composer_hub.records import Step
from composer_hub.replay.cascade import Ask, AuditTally, TraceRounds
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import AUTO
from composer_hub.replay.orders import Codes
from composer_hub.replay.planning import DEAR, ReplayPlan
from composer_hub.replay.teachers import Teacher
from composer_hub.replay.worth import after


class Market:
    """The prices of pairs in one run."""

    def __init__(self, planned: ReplayPlan, ledger: Ledger) -> None:
        self._planned, self._ledger = planned, ledger
        self._prices: list[float] = []  # one per pair, in finished traces
        self._without_pair = 0  # nano-dollars of the traces since the last pair
        self._num_pairs = self._num_foreseen = 1.0  # in finished traces, and by the chances

    @property
    def limit(self) -> float:
        """Return the highest price of a pair in nano-dollars, by the plan until a trace with a pair has ended."""
        if (named := self._planned.options.max_usd_per_pair) is not None:
            return named * NANO
        if self._prices:
            return DEAR * statistics.median(self._prices)
        auto = self._planned.order(AUTO)
        return DEAR * auto.cost / auto.pairs if auto.pairs else math.inf

    def finish(self, rounds: TraceRounds, tally: AuditTally) -> None:
        """Take the pairs and the cost of a finished trace into account."""
        self._without_pair += rounds.spent()
        self._num_pairs += tally.num_pairs
        for step in rounds.trace.steps:
            if panel := rounds.panel_of(step):
                self._num_foreseen += after(self._lines(panel), (), self._planned.options.agreement)[0]
        if tally.num_pairs:
            self._prices += [self._without_pair / tally.num_pairs] * tally.num_pairs
            self._without_pair = 0

    def is_worth(
        self, rounds: TraceRounds, step: Step, codes: Codes, teachers: Sequence[Teacher], priced: bool
    ) -> bool:
        """Return whether the open questions of a step are worth what they are expected to cost.

        Where every teacher is asked anyway (not `priced`), only the chance of a pair counts.
        """
        chance, asked = after(self._lines(rounds.panel_of(step)), codes, self._planned.options.agreement)
        if not priced:
            return chance > 0
        chance *= self._num_pairs / self._num_foreseen
        costs = (self._planned.question(rounds, step, teacher) for teacher in teachers)
        price = sum(share * cost for share, cost in zip(asked, costs, strict=True)) / chance if chance else math.inf
        # An answer that is paid for costs nothing.
        return (chance > 0 and price <= self.limit) or self._is_paid(rounds, step, teachers[0])

    def _lines(self, panel: Sequence[str]) -> Mapping[Codes, float]:
        return self._planned.facts.lines_of(panel)

    def _is_paid(self, rounds: TraceRounds, step: Step, teacher: Teacher) -> bool:
        return self._ledger.lookup(rounds.question(teacher, Ask(step)).key) is not None
