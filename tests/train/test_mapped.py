"""Tokens in a mapped file are the tokens that were written, and a stream over them is the stream over a list."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

pytest.importorskip("torch")

from composer_hub.records import Hint
from composer_hub.train.batch import HintSite
from composer_hub.train.mapped import (
    PAIRS,
    SITES,
    MappedRows,
    pair_row,
    read_pair,
    read_site,
    site_row,
    write,
)
from composer_hub.train.pair_loader import PairLoader, TokenPair


def ids(*numbers: int) -> array[int]:
    return array("i", numbers)


def pairs(count: int) -> list[TokenPair]:
    """Return pairs of uneven length, some with an empty prompt."""
    return [
        TokenPair(ids(*range(number % 5)), ids(number, 2**31 - 1), ids(7, number), -0.1 * number, -2.0 - number)
        for number in range(count)
    ]


def mapped(path: Path, rows: list[TokenPair]) -> MappedRows[TokenPair]:
    assert write(path, PAIRS, (pair_row(f"p{number}", pair) for number, pair in enumerate(rows))) == len(rows)
    logps = [value for pair in rows for value in (pair.ref_chosen, pair.ref_rejected)]
    return MappedRows.open(path, read_pair(logps))


def test_pairs_come_back_as_they_were_written_after_the_name_of_the_file_is_gone(tmp_path: Path) -> None:
    rows = pairs(200)
    read = mapped(tmp_path / "tokens", rows)
    (tmp_path / "tokens").unlink()
    assert list(read) == rows
    assert read[3:5] == rows[3:5]
    assert type(read[0].chosen_ids) is array


def test_a_stream_over_a_mapped_file_is_the_stream_over_a_list(tmp_path: Path) -> None:
    rows = pairs(30)
    options = {"seed": 4, "rank": 1, "num_ranks": 3}
    one, other = PairLoader(rows, 4, **options), PairLoader(mapped(tmp_path / "tokens", rows), 4, **options)
    for _ in range(12):  # more than an epoch
        assert one.take() == other.take()


def test_hint_sites_come_back_as_they_were_written(tmp_path: Path) -> None:
    hint = Hint("unknown_tool", "template", "1", "Tools are `a` and `b`. \u00e9", call_id="c1")
    sites = [
        HintSite(hint, ids(1, 2, 3), 2, ids(9, 9), ids(4), ids(), step=5, is_exact=False),
        HintSite(hint, ids(), 0, ids(1), ids(2, 3), ids(8, 7)),
    ]
    write(tmp_path / "tokens", SITES, map(site_row, sites))
    assert list(MappedRows.open(tmp_path / "tokens", read_site)) == sites


def test_a_file_without_rows_has_no_rows(tmp_path: Path) -> None:
    assert len(mapped(tmp_path / "tokens", [])) == 0
