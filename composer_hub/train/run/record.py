"""`composer_run.json`: the inputs and options of a run, the progress of each of its launches, and how it is resumed.

Nothing that changes the mathematics or the data may differ from the options that the run began with. Other changes are
recorded with the launch.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import platform
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerState

from composer_hub import __version__, exits
from composer_hub.hub import Model
from composer_hub.named_files import write_whole
from composer_hub.records import stable_id
from composer_hub.train.checkpoints import last_complete, torn
from composer_hub.train.failure import TrainerError
from composer_hub.train.run.card import oracles_text
from composer_hub.train.run.inputs import Inputs
from composer_hub.train.run.options import settings_of
from composer_hub.train.run.recorded import Taken
from composer_hub.train.tokens import reasons_text

RECORD = "composer_run.json"
_LIBRARIES = ("torch", "transformers", "trl", "accelerate", "peft")
# Only this machine may know these: paths, and sentences that may hold paths.
_PRIVATE = {"names", "message", "error", "asked", "said"}  # the last two are older names of the first two


@dataclass
class RunRecord:
    """`composer_run.json`, which is written again whenever something happens to the run."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, output: Path) -> RunRecord | None:
        path = output / RECORD
        return cls(path, json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, (json.dumps(self.values, indent=2, ensure_ascii=False) + "\n").encode())

    def to_publish(self) -> str:
        """Return the record without what only this machine may know."""
        lists = {
            name: [{key: item[key] for key in item if key not in _PRIVATE} for item in self.values.get(name, ())]
            for name in ("launches", "pushes")
        }
        values = {name: value for name, value in self.values.items() if name not in _PRIVATE} | lists
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"

    @property
    def run_id(self) -> str:
        return self.values["run_id"]

    @property
    def seconds(self) -> float:
        return sum(launch.get("seconds", 0) for launch in self.values["launches"])

    def at_commits(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return the names of inputs at the commits that the run began with, whatever their tags mean now."""
        pins = self.values["pins"]
        # A model in a folder is pinned by its digest; its pin is only its name.
        return {
            option: pins[option] if option in pins and (option != "model_name_or_path" or "@" in pins[option]) else name
            for option, name in names.items()
        }

    def add_recorded(self, pairs: Taken, sites: Taken) -> None:
        """Note how many pairs and hinted steps are learned from, and print why others are left out."""
        self.values["pairs_left_out"] = dict(pairs.dropped)
        self.values["hinted_steps"] = {"sites": sites.num_rows, "as_sampled": sites.num_exact}
        self.values["hinted_steps_left_out"] = dict(sites.dropped)
        _print_dropped("pairs", pairs.num_rows, pairs.dropped)
        _print_dropped("hinted steps", sites.num_rows, sites.dropped)

    def add_oracles(self, oracles: tuple[int, int, int] | None) -> None:
        """Note and print how many tasks have a hidden oracle."""
        self.values["oracles"] = oracles
        if oracles is not None and PartialState().is_main_process:
            print(oracles_text(oracles), file=sys.stderr)

    def add_push(self, outcome: Mapping[str, Any]) -> None:
        self.values.setdefault("pushes", []).append(dict(outcome))
        self.write()


class LaunchRecorder(TrainerCallback):
    """Keeps one launch in the record: how far it came, how long it took and how it ended."""

    def __init__(
        self,
        record: RunRecord,
        from_step: int,
        changed: Mapping[str, tuple[Any, Any]] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.record, self.clock, self.begun = record, clock, clock()
        self.facts: dict[str, Any] = {
            "from_step": from_step,
            "to_step": from_step,
            "seconds": 0.0,
            "num_processes": PartialState().num_processes,
        }
        if changed:
            self.facts["changed"] = dict(changed)
            record.values["options"].update({name: new for name, (_, new) in changed.items()})

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.reached(state.global_step)

    def reached(self, step: int) -> None:
        """Write the step that the launch has reached; only the first process writes."""
        self.facts |= {"to_step": step, "seconds": round(self.clock() - self.begun, 1)}
        if PartialState().is_main_process:
            self.record.write()

    def finished(self, step: int) -> None:
        """Note that training has ended normally; publishing is still to come."""
        self.facts |= {"exit_code": exits.DONE, "message": ""}
        self.reached(step)

    @contextlib.contextmanager
    def recording(self, step: Callable[[], int]) -> Iterator[None]:
        """Note how this launch ends, because `accelerate launch` does not pass the exit code on."""
        self.record.values["launches"].append(self.facts)
        self.facts |= {"exit_code": None, "message": "killed, or still running"}
        self.reached(step())
        try:
            yield
        except KeyboardInterrupt:
            self.facts |= {"exit_code": exits.INTERRUPTED, "message": "interrupted"}
            raise
        except BaseException as error:
            self.facts |= {"exit_code": getattr(error, "exit_code", exits.FAILURE), "message": str(error)}
            raise
        finally:
            # A full disk is reported by the error that is under way.
            with contextlib.suppress(OSError):
                self.reached(step())


def _print_dropped(noun: str, num_taken: int, dropped: Mapping[str, int]) -> None:
    # A run on few rows looks like one on many.
    if dropped and PartialState().is_main_process:
        print(f"Learning from {num_taken:,} {noun}; left out: {reasons_text(dropped)}.", file=sys.stderr)


def new_record(output: Path, inputs: Inputs, names: Mapping[str, str], settings: Mapping[str, Any]) -> RunRecord:
    """Return the record of a run that begins."""
    values = {
        "run_id": gather_object([uuid.uuid4().hex[:12]])[0],  # the same on all ranks
        "composer_hub": __version__,
        "base": vars(inputs.base()),
        "parents": [vars(parent) for parent in inputs.parents()],
        "pins": inputs.pins(),
        "names": dict(names),
        "options": dict(settings),
        "libraries": versions(),
        "hardware": hardware(),
        "launches": [],
    }
    return RunRecord(output / RECORD, values)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that training depends on."""
    installed = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return installed


def hardware() -> str:
    """Describe the devices of this run."""
    state = PartialState()
    if torch.cuda.is_available() and state.device.type == "cuda":
        return f"{state.num_processes} x {torch.cuda.get_device_name()}"
    return f"{state.num_processes} x {state.device.type} ({platform.machine()}, {torch.get_num_threads()} threads)"


# ---------------------------------------------------------------------------------------------------------- resuming

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
        raise TrainerError(
            f"{output} already holds a run ({evidence}). Add --resume true, or choose another output_dir."
        )
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
        raise TrainerError(f"{output} cannot be written ({error.strerror}). Name another output_dir.") from error
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainerError(f"Another run trains in {output}. Wait until it has ended, {_OTHER_FOLDER}") from None
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
        raise TrainerError(
            f"{record.path.parent} holds a run with other options: {listed}. Restore them, {_OTHER_FOLDER}"
        )
    return changed


def check_model(record: RunRecord, model: Model) -> None:
    """Refuse a model with other weights than the run began with."""
    if model.revision != record.values["base"]["revision"]:
        raise TrainerError(f"The weights of {model.name} differ from those this run began with. Restore them.")


def check_tasks(record: RunRecord, rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse other tasks than the run began with, wherever they come from."""
    digest = stable_id(rows)
    if record.values.setdefault("tasks_digest", digest) != digest:
        raise TrainerError(
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
