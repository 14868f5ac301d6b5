"""Facts from the answers to some steps: lengths, tokens per byte, cache hits, and who agrees with whom.

The steps of a pilot are asked of every teacher, so they say without bias what each order would ask and find. In: the
places of these steps, the ledger. Out: `Facts`. They are read from the stored answers, so nothing else has to be kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from composer_hub.records import Trace
from composer_hub.replay.answers import TeacherAnswer
from composer_hub.replay.orders import Codes, canonical
from composer_hub.replay.prompts import BYTES_PER_TOKEN, Counted, Prompt
from composer_hub.replay.teachers import Teacher

OUTPUT_TOKENS = 400
"""Of an answer whose teacher is unknown; models that think write several times as many."""
CACHE_BLOCK = 128  # tokens; caches hold whole blocks
RUN = 2  # steps of a pilot that follow each other, to see the prefix cache at work

Places = Mapping[str, frozenset[int]]
"""Trace -> places among its steps that may be asked about."""
Lines = Counter[tuple[tuple[str, ...], Codes]]
"""(teachers in order, their codes) -> number of steps."""


@dataclass(slots=True)
class Habits:
    """The sums over a teacher's answers."""

    answers: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0
    prompt_bytes: int = 0
    cacheable_tokens: int = 0  # of prefixes that the call before in the lane has sent
    cached_tokens: int = 0  # of these, those that the endpoint counted as cached

    @property
    def mean_output(self) -> float:
        return self.output_tokens / self.answers if self.answers else OUTPUT_TOKENS

    @property
    def bytes_per_token(self) -> float:
        return self.prompt_bytes / self.prompt_tokens if self.prompt_tokens else BYTES_PER_TOKEN

    @property
    def hit_rate(self) -> float:
        return min(1.0, self.cached_tokens / self.cacheable_tokens) if self.cacheable_tokens else 1.0

    def add(self, answer: TeacherAnswer, teacher: Teacher, prompt: Prompt, before: Counted | None) -> None:
        """Count one answer; `before` is the prompt that the same lane sent before it."""
        counted = answer.counted
        known = before is not None and prompt.positions[: len(before.positions)] == before.positions
        cacheable = before.tokens if before and known and teacher.price.caches else 0
        # Caches hold whole blocks: the tokens that they round off are not a miss.
        cacheable = cacheable // CACHE_BLOCK * CACHE_BLOCK if cacheable >= teacher.cache_min_tokens else 0
        self.answers += 1
        self.output_tokens += counted.output_tokens or 0
        self.prompt_tokens += counted.prompt_tokens or 0
        self.prompt_bytes += prompt.num_bytes
        self.cacheable_tokens += cacheable
        self.cached_tokens += min(counted.cached_tokens, cacheable)


@dataclass(slots=True)
class Facts:
    """Known habits and costs of some teachers."""

    habits: dict[str, Habits] = field(default_factory=dict)  # by the teacher's name
    lines: Lines = field(default_factory=Counter)  # of the steps that every teacher has answered
    spent: dict[str, int] = field(default_factory=dict)  # nano-dollars for these answers, by the teacher's name

    def of(self, teacher: str) -> Habits:
        return self.habits.get(teacher) or Habits()

    @property
    def num_steps(self) -> int:
        return self.lines.total()

    def lines_of(self, panel: Sequence[str]) -> dict[Codes, float]:
        """Return the codes of these teachers, in this order, at the steps that all answered; else what is assumed."""
        found: Counter[Codes] = Counter()
        for (names, codes), count in self.lines.items():
            if set(panel) <= set(names):
                found[canonical(tuple(codes[names.index(name)] for name in panel))] += count
        return {codes: float(count) for codes, count in found.items()} or assumed(len(panel))


def assumed(num_teachers: int) -> dict[Codes, float]:
    """Return lines of codes for teachers that were never asked: they repeat the student, agree, or differ at first."""
    return {
        (-1,) * num_teachers: 6.0,
        (1,) * num_teachers: 2.0,
        tuple(range(1, num_teachers + 1)): 1.0,
        (1, 2, *(1,) * (num_teachers - 2))[:num_teachers]: 1.0,
    }


def pilot_places(num_steps: Mapping[str, int], num: int) -> Places:
    """Choose the steps of a pilot: short runs at equal distances over all steps of all traces, so they represent both.

    `num_steps` has the steps of each trace that may be asked about.
    """
    total, chosen = sum(num_steps.values()), set[int]()
    num = min(num, total)
    num_runs = -(-num // RUN)
    for number in range(num_runs):
        at = int((number + 0.5) * total / num_runs)
        while len(chosen) < min(num, (number + 1) * RUN):
            chosen.add(at % total)
            at += 1
    of_trace: dict[str, set[int]] = defaultdict(set)
    ordered, start = sorted(chosen), 0
    for trace_id, size in num_steps.items():
        while ordered and ordered[0] < start + size:
            of_trace[trace_id].add(ordered.pop(0) - start)
        start += size
    return {trace_id: frozenset(found) for trace_id, found in of_trace.items()}


def traces_of(traces: Iterable[Trace], places: Places) -> Iterator[Trace]:
    """Yield the traces that have steps in a pilot."""
    return (trace for trace in traces if trace.trace_id in places)
