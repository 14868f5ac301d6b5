"""The effect of a hint before it is learned from: on the failed action and on the corrected one.

The hint channel distills what the hinted policy does, right or wrong, and a falling divergence can hide a hint that
misleads. In: hint sites and the model that is learned from. Out: one `SiteUplift` per site, a table by writer and
kind, and the writers to refuse. The margin of a site is the change of log p(corrected) - log p(failed), in nats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from composer_hub.records import Hint
from composer_hub.train.losses import token_logps
from composer_hub.train.sharded import agreed
from composer_hub.train.teacher import HintTeacher

Row = tuple[Sequence[int], Sequence[int]]  # prefix and action
MIN_SITES = 4  # a writer with fewer is never refused


class Attributed(Protocol):
    """A measurement of one site."""

    @property
    def writer(self) -> str: ...
    @property
    def kind(self) -> str: ...


S = TypeVar("S", bound=Attributed)


class Site(Protocol):
    """The parts of a site that are measured."""

    @property
    def hint(self) -> Hint: ...
    @property
    def prefix_ids(self) -> Sequence[int]: ...
    @property
    def hinted_ids(self) -> Sequence[int]: ...
    @property
    def action_ids(self) -> Sequence[int]: ...
    @property
    def corrected_ids(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class SiteUplift:
    """The nats by which a hint lowers the failed action and, if one is known, raises the corrected one."""

    writer: str
    kind: str
    lowered: float
    raised: float | None = None
    control: float | None = None  # margin of a control hint at the same site

    @property
    def margin(self) -> float | None:
        """How far the hint moves the model from the failed action to the corrected one, if that is known."""
        return None if self.raised is None else self.raised + self.lowered

    @property
    def value(self) -> float:
        """The smaller of both effects: words that only confuse the model make every action less likely."""
        return self.lowered if self.raised is None else min(self.lowered, self.raised)


@dataclass(frozen=True, slots=True)
class WriterUplift:
    """One line of the table: a writer at a kind of error."""

    writer: str
    kind: str
    num_sites: int
    lowered: float  # mean
    raised: float | None  # mean over the sites with a known correction
    share_lifting: float
    margin: float | None = None  # the same
    half_interval: float = 0.0  # half of the 95 % interval of the margin
    control: float | None = None  # mean margin of control hints at these sites

    @property
    def helps(self) -> bool:
        """Return whether the margin is above zero and above that of control hints; unknown margins count as such."""
        return self.margin is None or self.margin > max(0.0, self.control or 0.0)


def means_by_writer(uplifts: Iterable[SiteUplift]) -> Mapping[str, float]:
    """Return the mean uplift of each writer, by name."""
    groups: dict[str, list[float]] = defaultdict(list)
    for uplift in uplifts:
        groups[uplift.writer].append(uplift.value)
    return {writer: sum(values) / len(values) for writer, values in sorted(groups.items())}


def measure(sites: Sequence[Site], score: Callable[[list[Row]], list[float]]) -> list[SiteUplift]:
    """Return the uplift of each site; `score` returns log p of each action after its prefix."""
    rows: list[Row] = []
    for site in sites:
        for action in (site.action_ids, *([site.corrected_ids] if site.corrected_ids else ())):
            rows += [(site.prefix_ids, action), (site.hinted_ids, action)]
    scores = iter(score(rows))
    found = []
    for site in sites:
        lowered = next(scores) - next(scores)
        raised = -(next(scores) - next(scores)) if site.corrected_ids else None
        found.append(SiteUplift(site.hint.writer, site.hint.kind, lowered, raised))
    return found


def table(uplifts: Iterable[SiteUplift]) -> list[WriterUplift]:
    """Return one line per writer and kind, those with most sites first."""
    return [_line(writer, kind, group) for (writer, kind), group in by_writer(uplifts)]


def by_writer(sites: Iterable[S]) -> list[tuple[tuple[str, str], list[S]]]:
    """Group sites by writer and kind, those with most sites first."""
    groups: dict[tuple[str, str], list[S]] = defaultdict(list)
    for site in sites:
        groups[site.writer, site.kind].append(site)
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))


def refused(lines: Iterable[WriterUplift], *, max_loss: float = 0.0) -> frozenset[tuple[str, str]]:
    """Return the writers, by kind of error, whose margin is not above zero; writers with few sites are never refused.

    Where no correction is known, a hint has to lower the failed action at half of the sites. `max_loss` keeps writers
    whose margin is below zero by less than that many nats.
    """
    return frozenset(
        (line.writer, line.kind) for line in lines if line.num_sites >= MIN_SITES and not _is_fit(line, max_loss)
    )


def _is_fit(line: WriterUplift, max_loss: float) -> bool:
    if line.margin is None:
        return line.share_lifting >= 0.5
    return line.helps or (max_loss > 0 and line.margin > -max_loss)


def as_text(lines: Sequence[WriterUplift]) -> str:
    """Return the table for a terminal."""
    head = f"{'writer':<14}{'kind':<22}{'sites':>6}{'failed':>9}{'worked':>9}{'margin':>16}{'control':>9}"
    body = [
        f"{line.writer:<14}{line.kind:<22}{line.num_sites:>6}{-line.lowered:>+9.2f}{_signed(line.raised):>9}"
        f"{_signed(line.margin) + (f' ± {line.half_interval:.2f}' if line.margin is not None else ''):>16}"
        f"{_signed(line.control):>9}"
        for line in lines
    ]
    return "\n".join([head, *body])


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def site_uplifts(sites: Sequence[Site], reader: HintTeacher, *, rows_a_batch: int = 16) -> list[SiteUplift]:
    """Return the uplift of each site under the model that reads it."""
    return measure(sites, lambda rows: action_logps(reader, rows, rows_a_batch=rows_a_batch))


@torch.no_grad()
def action_logps(reader: HintTeacher, rows: Sequence[Row], *, rows_a_batch: int = 16) -> list[float]:
    """Return log p of each action after its prefix; ranks that share sharded weights read equally many batches."""
    device = next(reader.student.parameters()).device
    num_batches = agreed(-(-len(rows) // rows_a_batch), reader.student)
    found: list[float] = []
    for first in range(0, num_batches * rows_a_batch, rows_a_batch):
        part = rows[first : first + rows_a_batch]
        # A rank without rows reads one token for the others.
        ids, attention, action = (tensor.to(device) for tensor in right_padded(part or [((0,), (0,))]))
        hidden, head = reader.read(ids, attention)
        answer = action[:, 1:]
        logps, _ = token_logps(hidden[:, :-1][answer], head, ids[:, 1:][answer])
        found += row_sums(logps, answer).tolist()[: len(part)]
    return found


def row_sums(values: Tensor, wanted: Tensor) -> Tensor:  # (counted tokens,), (rows, time) bool -> (rows,)
    """Return the sum of the counted tokens' values of each row."""
    sums = torch.zeros(len(wanted), device=values.device, dtype=values.dtype)
    return sums.index_add(0, wanted.nonzero()[:, 0], values)


def right_padded(rows: Sequence[Row], *, padding: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, attention and the places of the actions, each (rows, time), padded on the right."""
    longest = max(len(before) + len(action) for before, action in rows)
    ids = torch.full((len(rows), longest), padding)
    attention, wanted = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
    for number, (before, action) in enumerate(rows):
        end = len(before) + len(action)
        ids[number, :end] = torch.tensor([*before, *action])
        attention[number, :end] = 1
        wanted[number, len(before) : end] = True
    return ids, attention, wanted


def _line(writer: str, kind: str, group: Sequence[SiteUplift]) -> WriterUplift:
    raised = [uplift.raised for uplift in group if uplift.raised is not None]
    margins = [uplift.margin for uplift in group if uplift.margin is not None]
    controls = [uplift.control for uplift in group if uplift.control is not None]
    margin, half = mean_and_half_interval(margins) if margins else (None, 0.0)
    return WriterUplift(
        writer=writer,
        kind=kind,
        num_sites=len(group),
        lowered=sum(uplift.lowered for uplift in group) / len(group),
        raised=sum(raised) / len(raised) if raised else None,
        share_lifting=sum(uplift.value >= 0 for uplift in group) / len(group),
        margin=margin,
        half_interval=half,
        control=sum(controls) / len(controls) if controls else None,
    )


def mean_and_half_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of some values and half of its 95 % interval."""
    mean = sum(values) / len(values)
    spread = (sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)) ** 0.5
    return mean, 1.96 * spread / len(values) ** 0.5
