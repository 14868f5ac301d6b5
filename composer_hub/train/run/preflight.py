"""Before training: what the hints of fresh rollouts do, as a table, and the writers that are refused because of it.

It is measured once, when a run begins; a run that goes on takes the refusals from its record.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object

from composer_hub.train.run.finish import NO_HINTS
from composer_hub.train.run.options import Told
from composer_hub.train.run.record import Record
from composer_hub.train.run.trainer import RunTrainer
from composer_hub.train.uplift import WriterUplift, as_text, refused, table


def preflight(told: Told, trainer: RunTrainer, record: Record) -> None:
    """Measure, print, and tell the trainer which writers not to use."""
    if not (told.run.preflight or told.run.preflight_only):
        return
    known = record.values.get("preflight")
    lines = [WriterUplift(**line) for line in known] if known is not None else measured(told, trainer)
    record.values["preflight"] = [dataclasses.asdict(line) for line in lines]
    out = unfit(lines, are_controls=trainer.hinter.control)
    trainer.hinter = dataclasses.replace(trainer.hinter, refused=trainer.hinter.refused | out)
    if PartialState().is_main_process:
        record.write()
        print(said(lines, out), flush=True)


def measured(told: Told, trainer: RunTrainer) -> list[WriterUplift]:
    """Return the table over the rollouts of all processes."""
    found: list[Any] = trainer.preflight(num_batches=told.run.preflight_batches)
    return table(gather_object(found), least=trainer.args.hint_min_uplift or 0.0)


def unfit(lines: list[WriterUplift], *, are_controls: bool) -> frozenset[tuple[str, str]]:
    """Return the writers to refuse; control hints are there to be compared with, so they stay."""
    return frozenset() if are_controls else refused(lines)


def said(lines: list[WriterUplift], out: frozenset[tuple[str, str]]) -> str:
    """Return the table and what follows from it."""
    if not lines:
        return f"{NO_HINTS} max_teacher_tokens. Try more --preflight_batches, or a larger --max_teacher_tokens."
    names = ", ".join(f"{writer} at {kind}" for writer, kind in sorted(out))
    end = f"Refused, because they too seldom lift: {names}." if out else "No writer is refused."
    return f"{as_text(lines)}\n{end}"
