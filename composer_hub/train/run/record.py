"""`composer_run.json`: the inputs and options of a run, and the progress of each of its launches."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import TrainerCallback

from composer_hub import __version__, exits
from composer_hub.train.run.card_use import oracles_text
from composer_hub.train.run.inputs import Inputs
from composer_hub.train.run.recorded import Taken
from composer_hub.train.tokens import reasons_text
from composer_hub.train.watchdogs import Watchdogs, best_of

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
        fresh = self.path.with_name(f".{RECORD}")
        fresh.write_text(json.dumps(self.values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(self.path)

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

    def add_oracles(self, oracles: tuple[int, int] | None) -> None:
        """Note and print how many tasks have a hidden oracle."""
        self.values["oracles"] = oracles
        if oracles is not None and PartialState().is_main_process:
            print(oracles_text(oracles), file=sys.stderr)

    def add_push(self, outcome: Mapping[str, Any]) -> None:
        self.values.setdefault("pushes", []).append(dict(outcome))
        self.write()

    def add_watchdogs(self, dogs: Watchdogs, output: Path) -> None:
        """Note the best checkpoint and the alarms so far."""
        self.values["best"] = best_of(output)
        self.values["alarms"] = [str(alarm) for alarm in dogs.alarms]


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
