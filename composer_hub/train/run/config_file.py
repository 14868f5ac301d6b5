"""A run's config file as values, and the words for options that it or the command line has wrong. Imports no torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from composer_hub import exits
from composer_hub.named_files import text_of


class RunError(exits.ComposerError, ValueError):
    """A run that cannot start as asked."""


def read_config(path: Path) -> Mapping[Any, Any]:
    """Return the options of a config file."""
    try:
        values = yaml.safe_load(text_of(path))
    except yaml.YAMLError as error:
        raise exits.UsageError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(values, dict):
        raise exits.UsageError(f"{path} holds no options. Write one per line, like max_steps: 20.")
    return values


def nearest(name: str, options: Iterable[str]) -> str:
    """Return the end of a sentence that names the most similar option."""
    near = difflib.get_close_matches(name.lstrip("-"), options, 1)
    return f"; did you mean {near[0]}? --help lists all" if near else "; --help lists all"
