"""Verdict and vote files as they come: whatever a line holds, the sentence names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.cli.pairs import VoteFile, read_verdicts, report_table
from composer_hub.pairs.report import Metric


@pytest.mark.parametrize("line", [b"no json", b"[1]", b"\xff\xfe", b"{}", b'{"pair_id": "a", "verdict": "maybe"}'])
def test_a_line_that_is_no_verdict_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(b"\n" + line)
    with pytest.raises(exits.UsageError, match=r"verdicts.jsonl:2 is not a verdict"):
        list(read_verdicts(path))


@pytest.mark.parametrize("line", [b'{"trace_id": "a', b"[]", b"3", b'{"trace_id": "a"}'])
def test_a_line_that_is_no_vote_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "votes.jsonl"
    path.write_bytes(line)
    with pytest.raises(exits.ComposerError, match=r"votes.jsonl:1 is not a vote"):
        VoteFile(path)


def test_a_count_in_the_report_is_the_same_row_after_it_was_read_back() -> None:
    (row,) = report_table([Metric("pairs", "", 26, None, None, 26)]).rows
    assert isinstance(row["value"], float)
