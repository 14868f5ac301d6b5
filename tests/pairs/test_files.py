"""Verdict and vote files as they come: an error names the line, whatever it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.pairs import Metric, Policy, Poll, RecordedVotes, read_verdicts
from composer_hub.pairs.tables import report_table


@pytest.mark.parametrize("line", [b"no json", b"[1]", b"\xff\xfe", b"{}", b'{"pair_id": "a", "verdict": "maybe"}'])
def test_a_line_that_is_not_a_verdict_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(b"\n" + line)
    with pytest.raises(exits.UsageError, match=r"verdicts.jsonl:2 is not a verdict"):
        list(read_verdicts(path))


@pytest.mark.parametrize("line", [b'{"trace_id": "a', b"[]", b"3", b'{"trace_id": "a"}'])
def test_a_line_that_is_not_a_vote_is_named(tmp_path: Path, line: bytes) -> None:
    Poll("all", ("a", "b"), Policy()).write(tmp_path)
    (tmp_path / "votes.jsonl").write_bytes(line)
    with pytest.raises(exits.ComposerError, match=r"votes.jsonl:1 is not a vote"):
        RecordedVotes(tmp_path)


def test_a_count_in_the_report_stays_the_same_row_after_it_was_read_back() -> None:
    (row,) = report_table([Metric("pairs", "", 26, None, None, 26)]).rows
    assert isinstance(row["value"], float)
