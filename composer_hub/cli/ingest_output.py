"""What `composer-hub ingest` prints: formats, problems and numbers."""

from __future__ import annotations

from typing import Any

from composer_hub import ingest as stage
from composer_hub.harnesses import HARNESSES
from composer_hub.output import Output

_MAX_SHOWN_PROBLEMS = 10


def show_formats(out: Output) -> None:
    """Print the formats that can be read."""
    rows = [{"name": h.name, "title": h.title, "gives": h.gives, "lacks": h.lacks} for h in HARNESSES]
    out.table(rows, id_key="name")


def show_problems(out: Output, ingested: stage.Ingested) -> None:
    """Print the first problems, and how many traces lost their token ids."""
    for problem in ingested.report.problems[:_MAX_SHOWN_PROBLEMS]:
        out.note(str(problem))
    if (more := ingested.report.num_problems - _MAX_SHOWN_PROBLEMS) > 0:
        out.note(f"... and {more:,} more problems.")
    if dropped := ingested.numbers()["tokens_dropped"]:
        traces = f"{dropped:,} trace{'s' * (dropped != 1)}"
        out.note(f"Redaction changed the text of {traces}, so their token ids, which spell that text, were dropped.")


def show_numbers(out: Output, numbers: dict[str, Any]) -> None:
    """Print the numbers of a run; people see only those that are not zero."""
    if out.mode in ("json", "quiet"):
        out.record(numbers, id_key="traces")
        return
    shown = {name.replace("_", " "): value for name, value in numbers.items() if value not in (0, {}, None)}
    out.record(shown or {"traces": 0}, id_key="traces")
