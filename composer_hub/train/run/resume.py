"""Resuming a run: its last complete checkpoint, and a check that it is still the same run.

Nothing that changes the mathematics or the data may differ from the options that the run began with. Other changes are
recorded with the launch.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerState

from composer_hub.hub import Model
from composer_hub.records import stable_id
from composer_hub.train.checkpoints import last_complete, torn
from composer_hub.train.run.config_file import RunError
from composer_hub.train.run.options import settings_of
from composer_hub.train.run.record import RunRecord

# The length of a run, its output and the needs of its machine: nothing that changes what is computed.
MAY_CHANGE = (
    "max_steps", "logging_*", "log_level*", "report_to", "disable_tqdm", "project", "trackio_*",
    "save_*", "hub_*", "bands", "license", "dataloader_num_workers",
    "dataloader_pin_memory", "gradient_checkpointing*", "ddp_*", "vllm_gpu_memory_utilization", "vllm_server_*",
    "env_timeout_s", "eval_every",
)  # fmt: skip
_OTHER_FOLDER = "or begin another run in another output_dir."

Changes = dict[str, tuple[Any, Any]]  # option -> old value, new value


def find_run(output: Path, *, resume: bool) -> tuple[RunRecord | None, Path | None]:
    """Return the record and the checkpoint to resume from; a folder that holds a run is never trained over."""
    checkpoint, record = last_complete(output), RunRecord.read(output)
    if resume:
        return record, checkpoint
    begun = [*torn(output), *output.glob("rollouts/rank*.jsonl")]
    if checkpoint is not None or begun:
        evidence = checkpoint.name if checkpoint else f"{begun[0].name}, and no complete checkpoint"
        raise RunError(f"{output} already holds a run ({evidence}). Add --resume true, or choose another output_dir.")
    return None, None


@contextlib.contextmanager
def held(output: Path, *, is_main: bool) -> Iterator[None]:
    """Keep other runs away from the folder until this one ends; a lock ends with its process."""
    if not is_main:
        yield
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
        file = (output / "lock").open("ab")
    except (PermissionError, FileNotFoundError, NotADirectoryError) as error:
        raise RunError(f"{output} cannot be written ({error.strerror}). Name another output_dir.") from error
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"Another run trains in {output}. Wait until it has ended, {_OTHER_FOLDER}") from None
        except (ImportError, OSError):
            pass  # Windows and some network file systems have no such locks
        yield


def changes(record: RunRecord, given: Mapping[str, Any], names: Mapping[str, str]) -> Changes:
    """Return the options that differ from the run's first launch; refuse those that would make it another run."""
    old, named, pins = record.values["options"], record.values.get("names", {}), record.values["pins"]
    # An input may be named as it was then, or at the commit that it is pinned to.
    same = {name for name in names if names[name] in (named.get(name), pins.get(name)) or _is_here(names[name])}
    new = _plain(settings_of(given, {name: pin for name, pin in pins.items() if name in same}))
    changed = {name: (old.get(name), new.get(name)) for name in sorted({*old, *new}) if old.get(name) != new.get(name)}
    if refused := {name: values for name, values in changed.items() if not _may_change(name)}:
        listed = "; ".join(f"{name} was {_show(then)}, now {_show(now)}" for name, (then, now) in refused.items())
        raise RunError(f"{record.path.parent} holds a run with other options: {listed}. Restore them, {_OTHER_FOLDER}")
    return changed


def check_model(record: RunRecord, model: Model) -> None:
    """Refuse a model with other weights than the run began with."""
    if model.revision != record.values["base"]["revision"]:
        raise RunError(f"The weights of {model.name} differ from those this run began with. Restore them.")


def check_tasks(record: RunRecord, rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse other tasks than the run began with, wherever they come from."""
    digest = stable_id(rows)
    if record.values.setdefault("tasks_digest", digest) != digest:
        raise RunError(
            f"The tasks differ from those this run began with. Restore the file or the function, {_OTHER_FOLDER}"
        )


def is_finished(trainer: Any, checkpoint: Path) -> bool:
    """Load a checkpoint of the last step; transformers would train one step beyond it."""
    saved = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    wanted = trainer.args.max_steps
    if saved.global_step < (wanted if wanted > 0 else saved.max_steps):
        return False
    trainer.state = saved
    trainer._load_from_checkpoint(str(checkpoint))
    return True


def _is_here(name: str) -> bool:
    # Files may have moved; their contents are compared by digest.
    return "@" not in name and Path(name).exists()


def _may_change(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in MAY_CHANGE)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(values))


def _show(value: Any) -> str:
    return "its default" if value is None else str(value)
