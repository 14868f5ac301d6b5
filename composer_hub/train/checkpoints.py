"""Complete checkpoints: `COMPLETE.json` is written last, so a folder without it is incomplete and is never resumed."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from composer_hub import exits
from composer_hub.named_files import sync, write_whole

COMPLETE = "COMPLETE.json"
_MODEL = (".safetensors", ".json", ".txt", ".model", ".jinja", ".md", ".png", ".yaml")
# Only a resumed run needs these.
_STATE = (COMPLETE, "trainer_state.json", "composer_state.json", "composer_teacher.safetensors")
_NAME = re.compile(r"checkpoint-(\d+)")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# safetensors and torch do not raise OSError when a disk is full.
_SAYS_FULL = re.compile(rf"os error ({'|'.join(map(str, _FULL))})\b|PytorchStreamWriter failed|inline_container")


class SaveError(exits.ComposerError, OSError):
    """A file that could not be written."""


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Report a full disk in one sentence, whichever library notices it."""
    try:
        yield
    except exits.ComposerError:
        raise
    except (OSError, RuntimeError, SafetensorError) as error:
        if not _is_disk_full(error):
            raise
        raise SaveError(
            f"The disk is full or its quota is used up, so {what} is not whole. Every complete checkpoint is: free "
            "some space and run the same command with --resume true."
        ) from error


def _is_disk_full(error: Exception) -> bool:
    return getattr(error, "errno", None) in _FULL or bool(_SAYS_FULL.search(str(error)))


def mark_complete(folder: Path, facts: dict[str, Any]) -> None:
    """Record that a checkpoint is completely on disk, once all of its files are."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                sync(file.fileno())
    write_whole(folder / COMPLETE, json.dumps(facts, indent=2, sort_keys=True).encode())


def step_of(checkpoint: Path | None) -> int:
    """Return the step of a checkpoint; 0 for None."""
    match = _NAME.fullmatch(checkpoint.name) if checkpoint else None
    return int(match[1]) if match else 0


def last_complete(output: Path) -> Path | None:
    """Return the newest complete checkpoint of a run."""
    found = [path for path in output.glob("checkpoint-*") if (path / COMPLETE).is_file() and step_of(path)]
    return max(found, key=step_of, default=None)


def torn(output: Path) -> list[Path]:
    """Return the checkpoints that were being written when a run ended."""
    return sorted(path for path in output.glob("checkpoint-*") if path.is_dir() and not (path / COMPLETE).is_file())


def remove_torn(output: Path) -> list[Path]:
    """Remove incomplete checkpoints, which count against `save_total_limit` and may hold the missing disk space."""
    folders = torn(output)
    for folder in folders:
        shutil.rmtree(folder)
    return folders


def model_files(folder: Path) -> dict[str, Path]:
    """Return the files of a model's folder to publish, by their path in the repository; none of them can run code."""
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in _MODEL and path.name not in _STATE)
    return {path.relative_to(folder).as_posix(): path for path in files}


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Link a file to a second place, or copy it if the disk has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
