"""The data that workers of a federation exchange: an adapter, a worker's delta, and the common outer step.

Everything is float32 and numpy: each operation rounds as IEEE 754 requires, so the same files give the same
bits on every processor. A delta is start minus end, in a safetensors file whose metadata name the digest of
its start.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

Values = dict[str, np.ndarray]
MAX_NORM = 10.0  # times the median norm of the other deltas


class RefusedDelta(Exception):
    """A delta that does not count, with the reason."""


@dataclass(frozen=True)
class Delta:
    """One worker's contribution to a round."""

    worker: str
    values: Values
    facts: Mapping[str, str]  # the metadata of its file
    norm: float


def values_digest(values: Values) -> str:
    """Return the digest of names, shapes and bits."""
    found = hashlib.sha256()
    for name in sorted(values):
        found.update(f"{name} {values[name].shape}\n".encode())
        found.update(np.ascontiguousarray(values[name], dtype="<f4").tobytes())
    return found.hexdigest()


def to_bytes(values: Values, facts: Mapping[str, str] | None = None) -> bytes:
    """Return values as a safetensors file."""
    whole = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in values.items()}
    return save(whole, metadata=dict(facts or {"format": "pt"}))


def read_values(path: Path) -> tuple[Values, dict[str, str]]:
    """Return the values of a safetensors file and its metadata."""
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def read_delta(path: Path, worker: str, start: Values) -> Delta:
    """Return a worker's delta from `start`; raise `RefusedDelta` if it is no such thing."""
    try:
        values, facts = read_values(path)
    except (SafetensorError, ValueError, TypeError, OSError) as error:
        raise RefusedDelta("its file is no safetensors file") from error
    if facts.get("start") != values_digest(start):
        raise RefusedDelta(f"it starts from {str(facts.get('start'))[:12]}, not from {values_digest(start)[:12]}")
    if {name: value.shape for name, value in values.items()} != {name: value.shape for name, value in start.items()}:
        raise RefusedDelta("its tensors have other names or shapes")
    if any(value.dtype != np.float32 for value in values.values()):
        raise RefusedDelta("its tensors are not float32")
    if not all(np.isfinite(value).all() for value in values.values()):
        raise RefusedDelta("it holds NaN or infinity")
    norm = float(np.sqrt(sum(float(np.square(value, dtype=np.float64).sum()) for value in values.values())))
    return Delta(worker, values, facts, norm)


def without_outliers(deltas: Sequence[Delta]) -> tuple[list[Delta], dict[str, str]]:
    """Return the deltas whose norm is not far beyond the others', and the reasons against the rest by worker."""
    kept, refused = [], {}
    for delta in deltas:
        others = [other.norm for other in deltas if other is not delta]
        usual = statistics.median(others) if others else delta.norm
        if delta.norm > MAX_NORM * usual:
            refused[delta.worker] = f"its norm is {delta.norm:.3g}, that of the others {usual:.3g}"
        else:
            kept.append(delta)
    return kept, refused


def outer_step(start: Values, velocity: Values, deltas: Sequence[Values], *, lr: float, momentum: float) -> Values:
    """Return the values after Nesterov's step on the mean delta; `velocity` is changed in place."""
    if not deltas:
        return start
    rate, share, count = np.float32(lr), np.float32(momentum), np.float32(len(deltas))
    after = {}
    for name, value in start.items():
        total = deltas[0][name]
        for delta in deltas[1:]:  # in their order: a sum in another order has other bits
            total = total + delta[name]
        mean = total / count
        velocity[name] = share * velocity.get(name, np.zeros_like(mean)) + mean
        after[name] = value - rate * (mean + share * velocity[name])
    return after
