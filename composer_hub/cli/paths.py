"""Types of options that name a file or folder; a path that would hang is refused before a command begins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from composer_hub.named_files import refuse_odd


class _Readable(click.Path):
    """An existing path that is not a pipe, socket or device."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        refuse_odd(path)
        return path


FILE = _Readable(exists=True, dir_okay=False, path_type=Path)
FOLDER = _Readable(exists=True, file_okay=False, path_type=Path)
FILE_OR_FOLDER = _Readable(exists=True, path_type=Path)
NEW_FOLDER = click.Path(file_okay=False, path_type=Path)
"""A folder that may be missing."""
