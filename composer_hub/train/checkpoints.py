"""Complete checkpoints: `COMPLETE.json` is written last, so a folder without it is torn and is never resumed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

COMPLETE = "COMPLETE.json"
_NAME = re.compile(r"checkpoint-(\d+)")


def mark_complete(folder: Path, facts: dict[str, Any]) -> None:
    """Say that everything of a checkpoint is on disk."""
    fresh = folder / f".{COMPLETE}"
    fresh.write_text(json.dumps(facts, indent=2, sort_keys=True))
    fresh.rename(folder / COMPLETE)


def last_complete(output: Path) -> Path | None:
    """Return the newest complete checkpoint of a run."""
    found = [(int(match[1]), path) for path in output.glob("checkpoint-*") if (match := _NAME.fullmatch(path.name))]
    return next((path for _, path in sorted(found, reverse=True) if (path / COMPLETE).is_file()), None)


def torn(output: Path) -> list[Path]:
    """Return the checkpoints that were being written when a run ended."""
    return sorted(path for path in output.glob("checkpoint-*") if path.is_dir() and not (path / COMPLETE).is_file())
