"""`composer_run.json`: what a run is made of, what it was launched with, and how far each launch came."""

from __future__ import annotations

import json
import platform
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from composer_hub import __version__
from composer_hub.hub.publish import Parent

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

    @property
    def run_id(self) -> str:
        return self.values["run_id"]

    @property
    def seconds(self) -> float:
        return sum(launch["seconds"] for launch in self.values["launches"])


def new_record(
    base: Parent, parents: Sequence[Parent], pins: Mapping[str, str], options: Mapping[str, Any], output: Path
) -> Record:
    """Return the record of a run that begins."""
    values = {
        "run_id": _shared_id(),
        "composer_hub": __version__,
        "base": vars(base),
        "parents": [vars(parent) for parent in parents],
        "pins": dict(pins),
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
