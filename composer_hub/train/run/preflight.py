"""Measure the hints of fresh rollouts before training, and refuse the writers whose hints do not help.

Two questions: does a hint move the teacher from the failed action to the corrected one, against no hint and against a
control hint, and do retries with it succeed more often than with words of the same length about other errors? This
happens once, when a run begins; a resumed run takes both tables from its record.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object

from composer_hub.train import retries
from composer_hub.train.retries import FailedTurn, WriterRetries
from composer_hub.train.run.card import NO_HINTS
from composer_hub.train.run.record import RunRecord
from composer_hub.train.run.trainer import RunTrainer
from composer_hub.train.uplift import WriterUplift, as_text, refused, table

MAX_TURNS = 16  # that are tried again, per process


def preflight(
    trainer: RunTrainer, record: RunRecord, *, num_batches: int = 1, num_retries: int = 0, max_loss: float = 0.0
) -> None:
    """Measure, print, and keep the trainer from using the refused writers."""
    known = record.values.get("preflight")
    if known is None:
        lines, tried = measure(trainer, num_batches, num_retries)
    else:
        lines = [WriterUplift(**line) for line in known]
        tried = [WriterRetries(**line) for line in record.values.get("preflight_retries", ())]
    record.values["preflight"] = [dataclasses.asdict(line) for line in lines]
    record.values["preflight_retries"] = [dataclasses.asdict(line) for line in tried]
    unfit = unfit_writers(lines, tried, are_controls=trainer.hinter.control, max_loss=max_loss)
    trainer.hinter = dataclasses.replace(trainer.hinter, refused=trainer.hinter.refused | unfit)
    if PartialState().is_main_process:
        record.write()
        print(report(lines, tried, unfit), flush=True)


def measure(trainer: RunTrainer, num_batches: int, num_retries: int) -> tuple[list[WriterUplift], list[WriterRetries]]:
    """Return both tables over the rollouts of all processes; retries need an environment."""
    turns: list[FailedTurn] = []
    controls: list[Any] = []

    def look(batch: Any) -> None:
        found = zip(batch, trainer.last_rollouts, trainer.last_sites, strict=True)
        turns.extend(FailedTurn.of(row, rollout, site) for row, rollout, sites in found for site in sites)
        controls.extend(_measured_controls(trainer))

    uplifts: list[Any] = trainer.preflight(num_batches=num_batches, look=look)
    # Recorded sites come first and have no controls; those of rollouts are in the same order as theirs.
    at = len(uplifts) - len(controls)
    beside = [dataclasses.replace(one, control=margin) for one, margin in zip(uplifts[at:], controls, strict=True)]
    lines = table(gather_object([*uplifts[:at], *beside]))
    does = num_retries > 0 and trainer.environment_factories is not None and not trainer.hinter.control
    tried = retries.measure(trainer, turns[:MAX_TURNS], num_retries) if does and lines else []
    return lines, retries.table(tried)


def _measured_controls(trainer: RunTrainer) -> list[float | None]:
    """Return the margin of a control hint at each site of the batch that was just measured."""
    if trainer.hinter.control:
        return [None for sites in trainer.last_sites for _ in sites]
    hinter = dataclasses.replace(trainer.hinter, control=True)
    own = [site for sites in trainer.last_sites for site in sites]
    placed = [hinter.place(site.hint, site.prefix_ids, site.action_ids, site.corrected_ids) for site in own]
    # Every rank measures, also one without sites: ranks that share weights read equally many batches.
    margins = iter(trainer.uplifts([site for site in placed if site]))
    return [next(margins).margin if site else None for site in placed]


def unfit_writers(
    lines: list[WriterUplift], tried: list[WriterRetries], *, are_controls: bool, max_loss: float = 0.0
) -> frozenset[tuple[str, str]]:
    """Return the writers to refuse; control hints are kept, because a run with them is a baseline."""
    return frozenset() if are_controls else refused(lines, max_loss=max_loss) | retries.refused(tried)


def report(lines: list[WriterUplift], tried: list[WriterRetries], unfit: frozenset[tuple[str, str]]) -> str:
    """Return the tables and their consequence."""
    if not lines:
        return f"{NO_HINTS} max_teacher_tokens. Try a larger --max_teacher_tokens."
    texts = [as_text(lines)]
    if tried:
        texts += ["Share of retries from the same turns that succeed:", retries.as_text(tried)]
    if not unfit:
        return "\n".join([*texts, "No writer is refused."])
    losing = retries.refused(tried) & unfit
    for names, why in (
        (
            unfit - losing,
            "their margin is not above zero, or not above that of controls (keep them with --preflight_max_loss NATS)",
        ),
        (losing, "the model does no better with them than with controls"),
    ):
        if names:
            texts.append(f"Refused, because {why}: {', '.join(f'{one} at {kind}' for one, kind in sorted(names))}.")
    return "\n".join(texts)
