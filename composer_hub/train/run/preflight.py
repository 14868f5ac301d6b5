"""Measure the hints of fresh rollouts before training, and refuse the writers whose hints do not help.

This happens once, when a run begins; a resumed run takes the table from its record.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object

from composer_hub.train.run.card import NO_HINTS
from composer_hub.train.run.record import RunRecord
from composer_hub.train.run.trainer import RunTrainer
from composer_hub.train.uplift import WriterUplift, as_text, refused, table


def preflight(trainer: RunTrainer, record: RunRecord, *, num_batches: int = 1) -> None:
    """Measure, print, and keep the trainer from using the refused writers."""
    known = record.values.get("preflight")
    lines = measure(trainer, num_batches) if known is None else [WriterUplift(**line) for line in known]
    record.values["preflight"] = [dataclasses.asdict(line) for line in lines]
    unfit = unfit_writers(lines, are_controls=trainer.hinter.control)
    trainer.hinter = dataclasses.replace(trainer.hinter, refused=trainer.hinter.refused | unfit)
    if PartialState().is_main_process:
        record.write()
        print(report(lines, unfit), flush=True)


def measure(trainer: RunTrainer, num_batches: int) -> list[WriterUplift]:
    """Return the table over the rollouts of all processes."""
    uplifts: list[Any] = trainer.preflight(num_batches=num_batches)
    return table(gather_object(uplifts), least=trainer.args.hint_min_uplift or 0.0)


def unfit_writers(lines: list[WriterUplift], *, are_controls: bool) -> frozenset[tuple[str, str]]:
    """Return the writers to refuse; control hints are kept, because a run with them is a baseline."""
    return frozenset() if are_controls else refused(lines)


def report(lines: list[WriterUplift], unfit: frozenset[tuple[str, str]]) -> str:
    """Return the table and its consequence."""
    if not lines:
        return f"{NO_HINTS} max_teacher_tokens. Try a larger --max_teacher_tokens."
    names = ", ".join(f"{writer} at {kind}" for writer, kind in sorted(unfit))
    end = f"Refused, because they help too seldom: {names}." if unfit else "No writer is refused."
    return f"{as_text(lines)}\n{end}"
