"""`composer-hub train --plan`: the memory per GPU of a config file, before anything is loaded.

In: a config file, options that override it, and how it is launched. Out: the parts of `memory.estimate`, the verdict
and what to change. Neither torch nor a network is needed for a folder or a model that `memory.KNOWN` has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.train import memory
from composer_hub.train.presets import options_of, read_config, summary, with_launch_file

USUAL_GPU = 80.0


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of one GPU, and the options to change if it does not fit."""

    model: str
    gpu_gib: float
    setup: memory.Setup
    parts: list[memory.MemoryPart]
    changes: list[tuple[Mapping[str, Any], float]]

    @property
    def total(self) -> float:
        return memory.total(self.parts)

    @property
    def fits(self) -> bool:
        return self.total <= memory.FITS * self.gpu_gib

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per part, and their sum."""
        rows = [{"part": part.name, "gib": round(part.gib, 1), "why": part.why} for part in self.parts]
        processes = f"{self.setup.num_processes} process" + ("es" if self.setup.num_processes > 1 else "")
        return [*rows, {"part": "sum", "gib": round(self.total, 1), "why": f"per GPU: {self.model}, {processes}"}]

    def verdict(self) -> list[str]:
        """Return whether it fits, and otherwise what to change, in the order to try it."""
        if self.fits:
            return [f"It fits into {self.gpu_gib:g} GiB."]
        lines = [f"It does not fit into {self.gpu_gib:g} GiB. Change, one after the other:"]
        for change, after in self.changes:
            lines.append(f"  {_words(change)}  ({after:.1f} GiB)")
        last = self.changes[-1][1] if self.changes else self.total
        if last > memory.FITS * self.gpu_gib:
            lines.append("  Then use more or larger GPUs, or a smaller model.")
        return lines


def plan(
    path: Path, words: Sequence[str], *, accelerate: Sequence[str] = (), gpu_gib: float | None = None
) -> MemoryPlan:
    """Return the plan of a config file with options that override it."""
    options = {**read_config(path), **options_of(words)}
    options.setdefault("bf16", not options.get("use_cpu", False))
    setup = memory.Setup.of(options, launch_of(path, accelerate))
    model = options.get("model_name_or_path")
    if not model:
        raise exits.UsageError(f"{path.name} names no model. Add --model_name_or_path with a folder or owner/name.")
    shape = shape_of(str(model))
    if gpu_gib is None:
        named = re.search(r"(\d+) GB", summary(path))
        gpu_gib = float(named[1]) if named else USUAL_GPU
    if not isinstance(gpu_gib, (int, float)) or gpu_gib <= 0:
        raise exits.UsageError(f"gpu-gb is the memory of a GPU in GB, not {gpu_gib!r}.")
    parts = memory.estimate(shape, setup, gpu_gib=gpu_gib, on_gpu=not options.get("use_cpu"))
    return MemoryPlan(str(model), gpu_gib, setup, parts, list(memory.remedies(shape, setup, gpu_gib=gpu_gib)))


def launch_of(path: Path, accelerate: Sequence[str]) -> dict[str, Any]:
    """Return the accelerate config of a launch, with the number of processes of its command line."""
    given = options_of(with_launch_file(path, accelerate))
    launch = read_config(Path(str(given["config_file"]))) if "config_file" in given else {}
    return launch | {name: given[name] for name in ("num_processes",) if name in given}


def shape_of(model: str) -> memory.ModelShape:
    """Return the sizes of a model: a folder, a model of the presets, or one at the Hub, whose config alone is read."""
    name, _, revision = model.partition("@")
    if (config := Path(model) / "config.json").is_file():
        return _shape(json.loads(config.read_text(encoding="utf-8")), str(config))
    if name in memory.KNOWN:
        return memory.KNOWN[name]
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import httpx

    try:
        fetched = hf_hub_download(name, "config.json", revision=revision or None)
    except (HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
        raise exits.UsageError(
            f"The sizes of {model} cannot be read ({str(error).splitlines()[0]}). Name a folder with its config.json, "
            f"or one of {', '.join(memory.KNOWN)}."
        ) from error
    return _shape(json.loads(Path(fetched).read_text(encoding="utf-8")), model)


def _shape(config: Mapping[str, Any], where: str) -> memory.ModelShape:
    try:
        return memory.ModelShape.of(config)
    except KeyError as error:
        raise exits.UsageError(f"{where} has no {error.args[0]}, so the model's memory cannot be told.") from error


def _words(change: Mapping[str, Any]) -> str:
    if change.get("sharding"):
        return f'launch with {change["sharding"]}: --accelerate "--config_file …" of the preset full-8gpu-fsdp2'
    return " ".join(
        f"--{name} {str(value).lower() if isinstance(value, bool) else value}" for name, value in change.items()
    )
