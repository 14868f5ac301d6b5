"""What the tests of ingest may ask for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from composer_hub.ingest.readers import HEAD_BYTES, sniff
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.session import Session

ROOT = Path(__file__).resolve().parents[2]

Read = Callable[[Path], tuple[list[Session], FileReport]]


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of real session files, which is not part of the repository."""
    places = [ROOT.parent / "shared/samples/traces", ROOT.parent.parent / "shared/samples/traces"]
    if named := os.environ.get("COMPOSER_SAMPLES"):
        places.insert(0, Path(named))
    for place in places:
        if place.is_dir():
            return place
    pytest.skip("the real session files are not here: set COMPOSER_SAMPLES to their folder")


@pytest.fixture(scope="session")
def written() -> Path:
    """The folder of sessions written for these tests."""
    return ROOT / "tests/fixtures/ingest"


@pytest.fixture(scope="session")
def read() -> Read:
    """Read a file with the reader that its content asks for."""

    def read_file(path: Path) -> tuple[list[Session], FileReport]:
        report = FileReport(str(path))
        with path.open("rb") as file:
            source = sniff(file.read(HEAD_BYTES), path)
        assert source is not None, f"{path} is in no known format"
        return list(source.read(path, report)), report

    return read_file
