"""Going on with a run: from where, and whether it is still the same run.

Nothing that changes the mathematics or the data may differ from what the run began with; what may differ is recorded
with the launch. The commits of the inputs come from the record, whatever the tags mean by now.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerState

from composer_hub.records import stable_id
from composer_hub.train.checkpoints import last_complete, torn
from composer_hub.train.run.inputs import DATA
from composer_hub.train.run.options import RunError, Told, shown
from composer_hub.train.run.record import Record

# How long a run goes on, what it prints and keeps, and what the machine needs: never what is computed.
MAY_CHANGE = (
    "max_steps", "logging_*", "log_level*", "report_to", "disable_tqdm", "project", "trackio_*",
    "save_*", "hub_*", "watchdogs", "bands", "keep_rollouts", "license", "dataloader_num_workers",
    "dataloader_pin_memory", "gradient_checkpointing*", "ddp_*", "vllm_gpu_memory_utilization", "vllm_server_*",
    "preflight_batches", "env_timeout_s", "eval_every",
)  # fmt: skip

Changes = dict[str, tuple[Any, Any]]  # option -> what it was, what it is now


def where_it_stands(told: Told, output: Path) -> tuple[Record | None, Path | None]:
    """Return the record and the checkpoint to go on from; a folder with a run is never trained over."""
    checkpoint, record = last_complete(output), Record.read(output)
    if told.run.resume:
        return record, checkpoint
    begun = [*torn(output), *output.glob("rollouts/rank*.jsonl")]
    if checkpoint is not None or begun:
        what = checkpoint.name if checkpoint else f"{begun[0].name}, and no complete checkpoint"
        raise RunError(f"{output} already holds a run ({what}): say --resume true, or choose another output_dir.")
    return None, None


def asked_of(told: Told) -> dict[str, Any]:
    """Return the inputs as they were named."""
    names = {name: getattr(told.run, name) for name in (*DATA, "eval_tasks", "environment")}
    names["model_name_or_path"] = told.model.model_name_or_path
    return {name: value for name, value in names.items() if value}


def changes(told: Told, record: Record) -> Changes:
    """Return what differs from how the run began, and refuse what would make it another run."""
    old, asked, pins = record.values["options"], record.values.get("asked", {}), record.values["pins"]
    # An input may be named as it was then, or at the commit that it is pinned to.
    named = asked_of(told)
    same = {name for name in named if named[name] in (asked.get(name), pins.get(name)) or _is_here(named[name])}
    new = _plain(shown(told.given, {name: pin for name, pin in pins.items() if name in same}))
    found = {name: (old.get(name), new.get(name)) for name in sorted({*old, *new}) if old.get(name) != new.get(name)}
    refused = {name: pair for name, pair in found.items() if not _may_change(name)}
    if refused:
        listed = "; ".join(f"{name} was {_said(then)}, now {_said(now)}" for name, (then, now) in refused.items())
        raise RunError(
            f"This would not be the run that {record.path.parent} holds: {listed}. Put it back, or begin another run "
            "in another output_dir."
        )
    return found


def check_tasks(record: Record, rows: list[dict[str, Any]]) -> None:
    """Refuse other tasks than the run began with, wherever they come from."""
    digest = stable_id(rows)
    if record.values.setdefault("tasks_digest", digest) != digest:
        raise RunError(
            "The tasks are not those that this run began with: put the file or the function back, or begin another "
            "run in another output_dir."
        )


def is_finished(trainer: Any, checkpoint: Path) -> bool:
    """Take a last checkpoint as it is: transformers would train on for a step after the last one."""
    saved = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    wanted = trainer.args.max_steps
    if saved.global_step < (wanted if wanted > 0 else saved.max_steps):
        return False
    trainer.state = saved
    trainer._load_from_checkpoint(str(checkpoint))
    return True


def _is_here(name: str) -> bool:
    # Files may lie elsewhere now; what is in them is compared by digest.
    return "@" not in name and Path(name).exists()


def _may_change(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in MAY_CHANGE)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(values))


def _said(value: Any) -> str:
    return "its default" if value is None else str(value)
