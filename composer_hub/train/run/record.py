"""`composer_run.json`: what a run is made of, what it was launched with, and how far each launch came."""

from __future__ import annotations

import contextlib
import json
import platform
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
from transformers import TrainerCallback

from composer_hub import __version__, exits
from composer_hub.hub import Parent

RECORD = "composer_run.json"
_LIBRARIES = ("torch", "transformers", "trl", "accelerate", "peft")


@dataclass
class Record:
    """`composer_run.json`: what a run was, kept up while it goes on."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, output: Path) -> Record | None:
        path = output / RECORD
        return cls(path, json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f".{RECORD}")
        fresh.write_text(json.dumps(self.values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(self.path)

    def to_publish(self) -> str:
        """Return it without what only this machine may know: paths, and sentences that hold some."""
        hidden = {"asked", "said", "error"}
        lists = {
            name: [{key: item[key] for key in item if key not in hidden} for item in self.values.get(name, ())]
            for name in ("launches", "pushes")
        }
        values = {name: value for name, value in self.values.items() if name not in hidden} | lists
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"

    @property
    def run_id(self) -> str:
        return self.values["run_id"]

    @property
    def seconds(self) -> float:
        return sum(launch.get("seconds", 0) for launch in self.values["launches"])


class Launch(TrainerCallback):
    """One launch of a run: how far it came, how long it took and how it ended, kept up at each save."""

    def __init__(self, record: Record, from_step: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.record, self.clock, self.begun = record, clock, clock()
        self.facts: dict[str, Any] = {
            "from_step": from_step,
            "to_step": from_step,
            "seconds": 0.0,
            "num_processes": PartialState().num_processes,
        }

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.came_to(state.global_step)

    def came_to(self, step: int) -> None:
        """Write how far it came, on the first process."""
        self.facts |= {"to_step": step, "seconds": round(self.clock() - self.begun, 1)}
        if PartialState().is_main_process:
            self.record.write()

    def done(self, step: int) -> None:
        """Training has ended as it should; what is left is to publish."""
        self.facts |= {"exit_code": exits.DONE, "said": ""}
        self.came_to(step)

    @contextlib.contextmanager
    def told(self, step: Callable[[], int]) -> Iterator[None]:
        """Remember in the record how this launch ended: a launcher keeps the exit code to itself."""
        self.record.values["launches"].append(self.facts)
        self.facts |= {"exit_code": None, "said": "killed, or still going on"}
        self.came_to(step())
        try:
            yield
        except KeyboardInterrupt:
            self.facts |= {"exit_code": exits.INTERRUPTED, "said": "interrupted"}
            raise
        except BaseException as error:
            self.facts |= {"exit_code": getattr(error, "exit_code", exits.FAILURE), "said": str(error)}
            raise
        finally:
            # Where the disk is full, whoever filled it says so.
            with contextlib.suppress(OSError):
                self.came_to(step())


def new_record(
    base: Parent,
    parents: Sequence[Parent],
    pins: Mapping[str, str],
    options: Mapping[str, Any],
    asked: Mapping[str, Any],
    output: Path,
) -> Record:
    """Return the record of a run that begins."""
    values = {
        "run_id": _shared_id(),
        "composer_hub": __version__,
        "base": vars(base),
        "parents": [vars(parent) for parent in parents],
        "pins": dict(pins),
        "asked": dict(asked),
        "options": dict(options),
        "libraries": versions(),
        "hardware": hardware(),
        "launches": [],
    }
    return Record(output / RECORD, values)


def _shared_id() -> str:
    return gather_object([uuid.uuid4().hex[:12]])[0]


def versions() -> dict[str, str]:
    """Return the libraries that training depends on."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def hardware() -> str:
    """Return what this run trains on, in words."""
    state = PartialState()
    if torch.cuda.is_available() and state.device.type == "cuda":
        return f"{state.num_processes} x {torch.cuda.get_device_name()}"
    return f"{state.num_processes} x {state.device.type} ({platform.machine()}, {torch.get_num_threads()} threads)"
