"""The status of a federation from its repository: rounds, workers, sizes and held-out scores.

It needs no training library.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from composer_hub import exits
from composer_hub.hub import Destination

RULES = "federation.json"
_CLOSED = re.compile(r"rounds/(\d+)/closed\.json")


class NoFederation(exits.ComposerError, LookupError):
    """A repository without a federation."""


@dataclass(frozen=True)
class Status:
    """The files of a federation at one commit."""

    repo: str
    rules: Mapping[str, Any]
    workers: Sequence[str]
    closed: Sequence[Mapping[str, Any]]
    results: Mapping[str, Mapping[str, Any]]  # by worker
    delivered: Sequence[str] = ()  # workers whose deltas of the open round are there

    @property
    def is_finished(self) -> bool:
        return len(self.closed) >= int(self.rules["num_rounds"])

    @property
    def num_bytes(self) -> int:
        return sum(int(one["bytes"]) for closed in self.closed for one in closed["deltas"])

    def scores(self) -> dict[int, list[float]]:
        """Return the workers' held-out scores of the adapter, by the number of rounds."""
        found = {
            closed["round"]: [float(one["score"]) for one in closed["deltas"] if "score" in one]
            for closed in self.closed
        }
        found[len(self.closed)] = [float(one["score"]) for one in self.results.values() if "score" in one]
        return {number: values for number, values in found.items() if values}

    def mean_scores(self) -> dict[int, float]:
        """Return the mean of the workers' scores, by the number of rounds."""
        return {number: statistics.fmean(values) for number, values in sorted(self.scores().items())}

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per closed round."""
        scores = self.mean_scores()
        return [
            {
                "round": closed["round"],
                "workers": [one["worker"] for one in closed["deltas"]],
                "refused": [f"{name}: {reason}" for name, reason in sorted(closed["refused"].items())],
                "missing": closed["missing"],
                "bytes": sum(int(one["bytes"]) for one in closed["deltas"]),
                "norm": statistics.fmean(one["norm"] for one in closed["deltas"]) if closed["deltas"] else None,
                "score_after": scores.get(closed["round"] + 1),
            }
            for closed in self.closed
        ]


def read_status(where: Destination, repo: str, fresh: Mapping[str, bytes] | None = None) -> Status:
    """Read a federation at its newest commit, with `fresh` files that are about to be added."""
    fresh = fresh or {}
    head = where.resolve(repo, "main", "model")
    files = {*fresh, *(where.files(repo, head, "model") if head else ())}
    if RULES not in files:
        raise NoFederation(
            f"{repo} at {where.address} is no federation. Check the name, or found it with --federation."
        )

    def values(path: str) -> dict[str, Any]:
        file = where.fetch(repo, str(head), path, "model") if path not in fresh else None
        try:
            found = json.loads(file.read_bytes() if file else fresh.get(path, b""))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise NoFederation(f"{repo}/{path} holds no JSON object. Restore it from the history.")
        return found

    numbers = sorted(int(match[1]) for path in files if (match := _CLOSED.fullmatch(path)))
    opened = f"rounds/{len(numbers)}/"
    status = Status(
        repo,
        values(RULES),
        [_stem(path) for path in sorted(files) if path.startswith("workers/")],
        [values(f"rounds/{number}/closed.json") for number in numbers],
        {_stem(path): values(path) for path in sorted(files) if path.startswith("results/")},
        [_stem(path) for path in sorted(files) if path.startswith(opened) and path.endswith(".safetensors")],
    )
    try:
        status.rows(), status.num_bytes, status.is_finished
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NoFederation(
            f"A closed.json or {RULES} of {repo} lacks what this version writes ({type(error).__name__}: {error}). "
            "Restore it from the history."
        ) from error
    return status


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0]
