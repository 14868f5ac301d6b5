"""Reviewers' verdicts in the repository of a version: rows of its files out, each by the account that sent it.

The stage that made the rows knows the subject of a verdict and its consequences (`pairs/verdicts.py`,
`ingest/verdicts.py`).
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from composer_hub import exits
from composer_hub.hub.loading import Version
from composer_hub.hub.reviews import ReviewFile
from composer_hub.named_files import text_of
from composer_hub.records import clean


class VerdictError(exits.UsageError):
    """A verdict that cannot be read or followed."""


class Signed(Protocol):
    """The part that verdicts on pairs and on hints share."""

    @property
    def reviewer(self) -> str: ...
    @property
    def created_at(self) -> str: ...  # ISO 8601 in UTC; of two verdicts by a reviewer the later one counts


V = TypeVar("V", bound=Signed)


def read_verdicts(path: Path, target: str, make: Callable[[Mapping[str, Any]], V]) -> Iterator[V]:
    """Yield the verdicts of a JSONL file that are on pairs, or on hints; reviewers judge both."""
    id = {"pair": "pair_id", "hint": "site_id"}[target]
    for number, line in enumerate(text_of(path, errors="replace").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = clean(json.loads(line))
            if row.get("target", target) != target:
                continue
            verdict = make(row)
            for field in dataclasses.fields(verdict):  # type: ignore[arg-type]
                if field.type == "str" and not isinstance(getattr(verdict, field.name), str):
                    raise TypeError(f"{field.name} is not a text")
            yield verdict
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, VerdictError) as error:
            raise VerdictError(
                f"{path}:{number} is not a verdict ({error}): an object with {id}, verdict and reviewer is needed."
            ) from error


def merged_verdicts(source: Version, read: Callable[[Path], Iterable[V]]) -> tuple[list[V], list[ReviewFile]]:
    """Return the verdicts that were merged into the dataset of a version, and the files that were refused.

    They are those at the head of its main branch. The Hub's record of a file gives a verdict its reviewer and
    its date; a file that names another reviewer is refused.
    """
    where, repo = source.destination, source.repo
    head = where.resolve(repo, "main") or source.revision
    found: list[V] = []
    refused: list[ReviewFile] = []
    for file in where.reviews(repo, head):
        local = None if file.refusal else where.fetch(repo, file.revision, file.path)
        verdicts = list(read(local)) if local is not None else []
        file = file.signed(verdict.reviewer for verdict in verdicts)
        if file.refusal:
            refused.append(file)
        else:
            found += [dataclasses.replace(one, created_at=file.sent_at) for one in verdicts]  # type: ignore[type-var]
    return found, refused


def latest(verdicts: Iterable[V], target: Callable[[V], str], counts: Counter[str]) -> dict[str, list[V]]:
    """Group verdicts by their subject; a reviewer's later verdict replaces the earlier one."""
    last: dict[tuple[str, str], V] = {}
    for verdict in sorted(verdicts, key=lambda one: one.created_at):
        key = (target(verdict), verdict.reviewer)
        counts["superseded"] += key in last
        last[key] = verdict
    grouped: dict[str, list[V]] = {}
    for verdict in last.values():
        grouped.setdefault(target(verdict), []).append(verdict)
    return grouped
