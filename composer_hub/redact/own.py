"""The publisher's own secrets, which are replaced wherever they occur and whatever they look like.

In: environment variables, or folders with `.env` files. Out: the values, for `Redactor(exact=…)`. They stay in memory:
nothing writes, counts or shows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from composer_hub.named_files import text_of
from composer_hub.redact.finders import find
from composer_hub.redact.judge import is_dummy, looks_random, num_classes
from composer_hub.redact.names import promise_of

MIN_EXACT = 8
"""Characters from which a value is replaced everywhere; shorter ones would hit ordinary words."""

_LINE = re.compile(r"^\s*(?:export\s+)?(?P<name>[A-Za-z_][\w.-]*)\s*=\s*(?P<value>.*?)\s*$")
_SKIPPED = frozenset(("node_modules", ".git", ".venv", "venv", "__pycache__", "dist", "build", "target"))
_HARMLESS_NAMES = re.compile(
    r"(?i)^(?:PATH|PWD|OLDPWD|HOME|SHELL|LANG|LC_.*|TERM.*|LS_COLORS|.*_PATH|.*_DIR|.*_HOME|.*_URL|.*_FILE|.*_SOCK|_)$"
)


def environment_secrets(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables with a secret name or a secret value."""
    return tuple(sorted({value for name, value in variables.items() if _is_secret(name, value)}))


def dotenv_secrets(folders: Iterable[Path]) -> tuple[str, ...]:
    """Return the secret values of these `.env` files, and of those in these folders and below."""
    values: set[str] = set()
    for folder in folders:
        for path in _dotenv_files(folder):
            values.update(environment_secrets(dict(_assignments(text_of(path, errors="replace")))))
    return tuple(sorted(values))


def _is_secret(name: str, value: str) -> bool:
    if len(value) < MIN_EXACT or is_dummy(value):
        return False
    if any(span.label == "SECRET" for span in find(value)):
        return True
    if _HARMLESS_NAMES.match(name) or value.startswith(("/", "./", "~")):
        return False
    strength, _ = promise_of(name)
    return bool(strength) and (
        looks_random(value) or (strength != "key" and num_classes(value) >= 2 and " " not in value)
    )


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if match := _LINE.match(line):
            value = match["value"]
            quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
            yield match["name"], value[1:-1] if quoted else value.partition(" #")[0].strip()


def _dotenv_files(folder: Path) -> Iterator[Path]:
    """Yield `.env`, `.env.local`, … in a folder and below, without links and installed packages; or the file itself."""
    if folder.is_file():
        yield folder
    stack = [folder]
    while stack:
        here = stack.pop()
        try:
            entries = sorted(here.iterdir())
        except OSError:
            continue
        for entry in entries:
            if entry.is_symlink():
                continue
            if entry.is_dir() and entry.name not in _SKIPPED:
                stack.append(entry)
            elif entry.is_file() and (entry.name == ".env" or entry.name.startswith(".env.") or entry.suffix == ".env"):
                yield entry
