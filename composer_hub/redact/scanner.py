"""Let a second scanner look at what is about to be published; anything it finds stops the push.

In: redacted texts, or a folder. Out: nothing found, or `LeakFound` with counts by rule and never a value. The scanner
is `kingfisher` (`pip install kingfisher-bin`), used if it is on the path; it asks nobody whether a finding is live.
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
"""What kingfisher leaves with when it found something (205: something that it verified)."""

MAX_FILE_CHARS = 8_000_000


class LeakFound(exits.Refused, ValueError):
    """The second scanner found secrets in redacted text; `findings` counts them by rule."""

    def __init__(self, findings: Counter[str]) -> None:
        self.findings = findings
        rules = ", ".join(f"{rule} {number}" for rule, number in sorted(findings.items()))
        super().__init__(
            f"kingfisher found {sum(findings.values())} possible secrets in the redacted text ({rules}). "
            f"Nothing was published. "
            "Find them with `kingfisher scan` on the local output, add the traces to the denylist or the "
            "values to an .env file, and run again."
        )


def find_kingfisher() -> str | None:
    """Return the scanner's command, or nothing where it is not installed."""
    return shutil.which("kingfisher")


def scan_with_kingfisher(
    texts: Iterable[str] | Path, command: str | None = None, timeout_s: float = 3600
) -> Counter[str]:
    """Return findings by rule; an empty count is a clean scan. Without the scanner, say so instead of passing."""
    command = command or find_kingfisher()
    if command is None:
        raise RedactionError(
            "kingfisher is not on the path. Install it with `pip install kingfisher-bin`, or publish without "
            "the second scan."
        )
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
    """Write the texts into a few files: one file a text would cost the scanner more than the text."""
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
    arguments = [
        command,
        "scan",
        str(folder),
        "--no-validate",
        "--no-update-check",
        "--format",
        "json",
        "--quiet",
        "--git-history",
        "none",
    ]
    try:
        run = subprocess.run(arguments, capture_output=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        # The error's own text may hold what the scanner had printed; only its type is repeated.
        raise RedactionError(
            f"kingfisher did not finish ({type(error).__name__}). Run `{command} --version`, then try again."
        ) from None
    if run.returncode not in (0, *FOUND_CODES):
        raise RedactionError(f"kingfisher left with code {run.returncode}. Run `kingfisher scan {folder}` to see why.")
    return _findings(run.stdout, run.returncode)


def _findings(output: bytes, code: int) -> Counter[str]:
    try:
        report = json.loads(output) if output.strip() else {"findings": []}
        rules = [finding["rule"]["id"] for finding in report["findings"]]
    except (ValueError, KeyError, TypeError):
        raise RedactionError(
            "kingfisher's report could not be read. Its version may be too new; use kingfisher 2.x."
        ) from None
    # A code that says "found" without a list must not pass as clean.
    return Counter(rules) if rules or code == 0 else Counter({"unnamed": 1})
