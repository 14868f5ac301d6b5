#!/usr/bin/env python3
"""Write the tutorials of docs/start/ as notebooks: one cell per block of code, behind a cell that sets up Colab.

    python scripts/notebooks.py            writes docs/start/*.ipynb
    python scripts/notebooks.py --check    exit 1 and the names of stale notebooks

A tutorial is written once, as a page. Blocks with a language (```bash, ```python) run; indented blocks are only shown.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "start"
REPOSITORY = "https://github.com/composer-hub/composer-hub"
COLAB = "https://colab.research.google.com/github/composer-hub/composer-hub/blob/main/docs/start"
SETUP = f"""\
import os

if os.path.isdir("../../composer_hub"):  # opened in a checkout, which has `make demo` behind it
    %cd ../..
if not os.path.isdir("composer_hub"):  # on Colab
    !git clone -q --depth 1 {REPOSITORY} checkout
    %cd checkout
    %pip install -q ".[train,space]"
"""
_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def notebook(page: Path) -> dict[str, Any]:
    """Return the notebook of a tutorial."""
    badge = f"[Open in Colab]({COLAB}/{page.stem}.ipynb)"
    cells = [_cell("markdown", badge), _cell("code", SETUP), *_cells(page.read_text())]
    for number, cell in enumerate(cells):
        cell["id"] = f"{page.stem}-{number}"
    return {
        "cells": cells,
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cells(text: str) -> Iterator[dict[str, Any]]:
    start = 0
    for block in _BLOCK.finditer(text):
        if words := text[start : block.start()].strip():
            yield _cell("markdown", words)
        language, code = block.groups()
        yield _cell("code", f"%%bash\n{code}" if language == "bash" else code)
        start = block.end()
    if words := text[start:].strip():
        yield _cell("markdown", words)


def _cell(kind: str, text: str) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell_type": kind,
        "id": "",
        "metadata": {},
        "source": text.strip().splitlines(keepends=True),
    }
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def notebooks() -> dict[Path, str]:
    """Return the text of every notebook by its path."""
    pages = sorted(FOLDER.glob("*.md"))
    return {
        page.with_suffix(".ipynb"): json.dumps(notebook(page), indent=1, ensure_ascii=False) + "\n" for page in pages
    }


def main() -> None:
    """Write the notebooks, or name those that are stale."""
    made = notebooks()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        print(
            "\n".join(f"{path.name} is stale: run python scripts/notebooks.py" for path in stale)
            or "The notebooks are current."
        )
        sys.exit(bool(stale))
    for path in stale:
        path.write_text(made[path])
    print(f"{len(stale)} of {len(made)} notebooks changed.")


if __name__ == "__main__":
    main()
