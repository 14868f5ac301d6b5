"""Scan redacted text with a second scanner; any finding stops the publication.

In: redacted texts, or a folder. Out: nothing, or `LeakFound` with counts by rule and never a value. The scanner is
`kingfisher` (`pip install kingfisher-bin`), run offline: it does not check whether a secret still works.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from composer_hub import exits
from composer_hub.redact.redactor import RedactionError

FOUND_CODES = (200, 205)
"""Exit codes of kingfisher if it found something (205: something that it verified)."""

MAX_FILE_CHARS = 8_000_000


class LeakFound(exits.Refused, ValueError):
    """The second scanner found secrets in redacted text; `findings` counts them by rule."""

    def __init__(self, findings: Counter[str]) -> None:
        self.findings = findings
        rules = ", ".join(f"{rule} {number}" for rule, number in sorted(findings.items()))
        super().__init__(
            f"kingfisher found {sum(findings.values())} possible secrets in the redacted text ({rules}). "
            "Nothing was published. Find them with `kingfisher scan` on the local output, add the traces to the "
            "denylist or the values to an .env file, and run again."
        )


def find_kingfisher() -> str | None:
    """Return the path of the scanner, or nothing if it is not installed."""
    return shutil.which("kingfisher")


def need_kingfisher() -> str:
    """Return the path of the scanner; raise if it is not installed."""
    if command := find_kingfisher():
        return command
    raise RedactionError(
        "kingfisher is not on the path. Install it with `pip install kingfisher-bin`, or publish without "
        "the second scan."
    )


def scan_with_kingfisher(
    texts: Iterable[str] | Path, command: str | None = None, timeout_s: float = 3600
) -> Counter[str]:
    """Return findings by rule; an empty count is a clean scan, a missing scanner an error."""
    command = command or need_kingfisher()
    if isinstance(texts, Path):
        return _scan(texts, command, timeout_s)
    with tempfile.TemporaryDirectory(prefix="composer_hub_scan_") as folder:
        _write(texts, Path(folder))
        return _scan(Path(folder), command, timeout_s)


def refuse_leaks(texts: Iterable[str] | Path, command: str | None = None) -> None:
    """Raise `LeakFound` if the second scanner finds anything."""
    if findings := scan_with_kingfisher(texts, command):
        raise LeakFound(findings)


def _write(texts: Iterable[str], folder: Path) -> None:
    """Write the texts into a few files: with one per text, opening them would take longer than scanning."""
    part, size, file = 0, 0, None
    for text in texts:
        if file is None or size > MAX_FILE_CHARS:
            if file:
                file.close()
            part, size = part + 1, 0
            file = (folder / f"part-{part:04d}.txt").open("w", encoding="utf-8", errors="replace")
        size += file.write(text + "\n\n")
    if file:
        file.close()


def _scan(folder: Path, command: str, timeout_s: float) -> Counter[str]:
    options = "--no-validate --no-update-check --format json --quiet --git-history none"
    arguments = [command, "scan", str(folder), *options.split()]
    try:
        run = subprocess.run(arguments, capture_output=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        # The text of the error may contain output of the scanner, so only its type is repeated.
        raise RedactionError(
            f"kingfisher did not finish ({type(error).__name__}). Run `{command} --version`, then try again."
        ) from None
    if run.returncode not in (0, *FOUND_CODES):
        raise RedactionError(
            f"kingfisher exited with code {run.returncode}. Run `kingfisher scan {folder}` to see why."
        )
    return _findings(run.stdout, run.returncode)


def _findings(output: bytes, code: int) -> Counter[str]:
    try:
        report = json.loads(output) if output.strip() else {"findings": []}
        rules = [finding["rule"]["id"] for finding in report["findings"]]
    except (ValueError, KeyError, TypeError):
        raise RedactionError(
            "kingfisher's report could not be read. Its version may be too new; use kingfisher 2.x."
        ) from None
    # An exit code for findings without a list of them must not pass as clean.
    return Counter(rules) if rules or code == 0 else Counter({"unnamed": 1})
