"""The model card of a federation: how to load the adapter, the rounds as a table, and the held-out scores as a plot."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from composer_hub.output import size
from composer_hub.train.apart.federation import Federation
from composer_hub.train.apart.status import Status, read_status
from composer_hub.train.run.plots import picture


def federation_card(federation: Federation, fresh: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return README.md and the plots as they are with some fresh files."""
    return card_files(read_status(federation.where, federation.repo, fresh))


def card_files(status: Status) -> dict[str, bytes]:
    """Return README.md and its plots by path."""
    scores, files = status.scores(), {}
    pictures = ""
    with tempfile.TemporaryDirectory() as folder:
        lines = {
            name: [(number, pick(values)) for number, values in sorted(scores.items())]
            for name, pick in (("highest", max), ("lowest", min), ("mean of the workers", statistics.fmean))
        }
        plot = None
        if len(scores) > 1:
            plot = picture("scores", "pass@1 on held-out tasks", lines, Path(folder), unit="round")
        if plot is not None:
            files = {f"plots/{path.name}": path.read_bytes() for path in plot.files}
            pictures = (
                '<picture><source media="(prefers-color-scheme: dark)" srcset="plots/scores-dark.png">'
                f'<img src="plots/scores-light.png" alt="{plot.alt}"></picture>'
            )
    return files | {"README.md": _text(status, pictures).encode()}


def _text(status: Status, pictures: str) -> str:
    head = {
        "library_name": "peft",
        "tags": ["composer-hub", "federation", "diloco", "lora"],
    }
    rules = status.rules
    table = [
        "| round | workers that count | refused | missing | sent | pass@1 after it |",
        "|---:|---|---|---|---:|---:|",
        *(
            f"| {row['round']} | {', '.join(row['workers']) or '-'} | {'; '.join(row['refused']) or '-'} | "
            f"{', '.join(row['missing']) or '-'} | {size(row['bytes'])} | "
            f"{'-' if row['score_after'] is None else format(row['score_after'], '.3f')} |"
            for row in status.rows()
        ),
    ]
    progress = "finished" if status.is_finished else f"{len(status.closed)} of {rules['num_rounds']} rounds are closed"
    paragraphs = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        f"# {status.repo.rpartition('/')[2]}",
        f"An adapter that {len(status.workers)} workers train together ({', '.join(status.workers)}): {progress}. "
        f"Each trains {rules['num_steps']} steps a round on its own data, sends the change of its adapter "
        f"({size(status.num_bytes)} so far), and takes the outer step (rate {rules['outer_lr']:g}, Nesterov momentum "
        f"{rules['outer_momentum']:g}) that all others take. Sessions, tasks and rollouts stay with the workers.",
        "```python\nfrom peft import AutoPeftModelForCausalLM\n\n"
        f'model = AutoPeftModelForCausalLM.from_pretrained("{status.repo}")\n```',
        "\n".join(table),
        pictures,
        "pass@1 is the mean of what the workers measured, each on its own held-out tasks. "
        f"`composer-hub federation status {status.repo}` prints this table.",
    ]
    return "\n\n".join(filter(None, paragraphs)) + "\n"
