"""Dataset cards: a template from `dataset_cards/` with its holes filled, below YAML for the Hub and `load_dataset`."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from composer_hub import exits
from composer_hub.hub.tables import Built

_SIZES = [(10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M")]


class CardError(exits.ComposerError, ValueError):
    """A template that is missing or has a hole without a value."""


@dataclass(frozen=True)
class Card:
    """The publisher's part of a dataset card; the rest is counted from the rows."""

    template: str  # traces, pairs or tasks: a file of dataset_cards/
    pretty_name: str
    license: str = "other"
    tags: tuple[str, ...] = ()
    languages: tuple[str, ...] = ("en",)
    task_categories: tuple[str, ...] = ("text-generation",)
    source_datasets: tuple[str, ...] = ()
    counts: Mapping[str, Any] = field(default_factory=dict)  # name -> number of kept things
    dropped: Mapping[str, Any] = field(default_factory=dict)  # reason -> number
    holes: Mapping[str, str] = field(default_factory=dict)  # further named holes of the template
    pictures: Mapping[str, bytes] = field(default_factory=dict)  # path below plots/ -> a file that the card shows
    trees: Mapping[str, bytes | None] = field(default_factory=dict)  # tasks/… and registry.json; None: stays as it is
    sessions: Mapping[str, Path] = field(default_factory=dict)  # path below sessions/ -> a file for the Hub's viewer


def render(
    card: Card,
    built: Sequence[Built],
    *,
    repo: str,
    version: str,
    parents: Sequence[Mapping[str, str]],
) -> str:
    """Return the whole README.md of a version."""
    facts = {
        "pretty_name": card.pretty_name,
        "repo": repo,
        "version": version,
        "contents": _contents(built),
        "columns": _columns(built),
        "counts": _counted(card.counts, "what", "number"),
        "dropped": _counted(card.dropped, "reason", "dropped") or "Nothing was dropped.",
        "provenance": _provenance(parents),
        "license": card.license,
        "example": "",
        "plots": "",
        "trees": "",
        **card.holes,
    }
    try:
        body = string.Template(card_template(card.template)).substitute(facts)
    except KeyError as error:
        raise CardError(f"The template dataset_cards/{card.template}.md has a hole {error} without a value.") from error
    head = yaml.safe_dump(_metadata(card, built), sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{head}---\n\n{body.strip()}\n"


def card_template(name: str) -> str:
    """Return a card template from the installed package, else from the checkout."""
    packaged = resources.files("composer_hub") / "dataset_cards" / f"{name}.md"
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    checkout = Path(__file__).parents[2] / "dataset_cards" / f"{name}.md"
    if not checkout.is_file():
        raise CardError(f"There is no card template {name!r}: add dataset_cards/{name}.md.")
    return checkout.read_text(encoding="utf-8")


def _metadata(card: Card, built: Sequence[Built]) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "pretty_name": card.pretty_name,
        "license": card.license,
        "language": list(card.languages),
        "annotations_creators": ["machine-generated"],
        "task_categories": list(card.task_categories),
        # Of the default config: a set of 100 pairs is not larger for its votes.
        "size_categories": [_size_category(built[0].num_rows if built else 0)],
        "source_datasets": list(card.source_datasets),
        "tags": list(dict.fromkeys(["composer-hub", *card.tags])),
        "configs": [_config(one, default=number == 0) for number, one in enumerate(built)],
        "dataset_info": [_info(one) for one in built],
    }
    return {key: value for key, value in metadata.items() if value not in ([], "", None)}


def _config(built: Built, *, default: bool) -> dict[str, Any]:
    # Files are listed, so that load_dataset never reads the index or raw sessions beside the data.
    files = [{"split": split.name, "path": list(split.files)} for split in built.splits]
    return {"config_name": built.config, **({"default": True} if default else {}), "data_files": files}


def _info(built: Built) -> dict[str, Any]:
    return {
        "config_name": built.config,
        "features": built.features._to_yaml_list(),
        "splits": [
            {"name": split.name, "num_bytes": split.num_bytes, "num_examples": split.num_rows} for split in built.splits
        ],
        "download_size": built.download_bytes,
        "dataset_size": sum(split.num_bytes for split in built.splits),
    }


def _size_category(num_rows: int) -> str:
    return next((name for limit, name in _SIZES if num_rows < limit), "n>10M")


def _contents(built: Sequence[Built]) -> str:
    rows = [f"| `{one.config}` | `{split.name}` | {split.num_rows:,} |" for one in built for split in one.splits]
    return "\n".join(["| config | split | rows |", "|---|---|---:|", *rows])


def _columns(built: Sequence[Built]) -> str:
    return "\n".join(f"- `{one.config}`: " + ", ".join(f"`{name}`" for name in one.features) for one in built)


def _counted(counts: Mapping[str, Any], key: str, value: str) -> str:
    if not counts:
        return ""
    rows = [f"| {name.replace('_', ' ')} | {_number(number)} |" for name, number in counts.items()]
    return "\n".join([f"| {key} | {value} |", "|---|---:|", *rows])


def _number(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_number(item)}" for key, item in value.items()) or "-"
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def _provenance(parents: Sequence[Mapping[str, str]]) -> str:
    if not parents:
        return "Made from files on the publisher's machine; `composer_manifest.json` holds their digests."
    return "\n".join(
        f"- {parent['role']}: {parent.get('type', 'dataset')} `{parent['repo']}` at `{parent['revision']}`"
        + (f" ({parent['tag']})" if parent.get("tag") else "")
        for parent in parents
    )
