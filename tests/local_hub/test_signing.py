"""A word that the server signed is worth only what it was signed for, and not for long."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from composer_hub.local_hub.database import Database
from composer_hub.local_hub.signing import read_signed, signed


def test_a_word_has_one_purpose_and_an_end_and_belongs_to_one_folder(tmp_path: Path) -> None:
    now = [1_700_000_000.0]
    with contextlib.ExitStack() as stack:
        ours, theirs = (
            stack.enter_context(contextlib.closing(Database(tmp_path / name, clock=lambda: now[0])))
            for name in ("ours", "theirs")
        )
        word = signed(ours, "upload", 7, "ab", seconds=60)
        assert read_signed(ours, "upload", word) == ["7", "ab"]
        assert read_signed(ours, "store", word) == []
        assert read_signed(theirs, "upload", word) == []
        now[0] += 61
        assert read_signed(ours, "upload", word) == []


@pytest.mark.parametrize("place", range(5))
def test_a_word_with_one_letter_changed_is_not_ours(tmp_path: Path, place: int) -> None:
    with contextlib.closing(Database(tmp_path)) as database:
        parts = signed(database, "upload", 7, "ab", 3, seconds=60).split(".")
        parts[place] = ("0" if parts[place][0] != "0" else "1") + parts[place][1:]
        assert read_signed(database, "upload", ".".join(parts)) == []


@pytest.mark.parametrize("word", ["", ".", "..", "7.ab.99999999999.", "ä.ö", "7.ab.x." + "0" * 32])
def test_a_word_that_nobody_signed_is_not_ours(tmp_path: Path, word: str) -> None:
    with contextlib.closing(Database(tmp_path)) as database:
        assert read_signed(database, "upload", word) == []
