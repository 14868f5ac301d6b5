"""Verdict and vote files as they come: an error names the line, whatever it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits
from composer_hub.pairs import Metric, Policy, Poll, RecordedVotes, read_verdicts
from composer_hub.pairs.tables import report_table
from composer_hub.pairs.votes import VOTES_FILE, num_votes, save_votes
from composer_hub.records import Vote


@pytest.mark.parametrize("line", [b"no json", b"[1]", b"\xff\xfe", b"{}", b'{"pair_id": "a", "verdict": "maybe"}'])
def test_a_line_that_is_not_a_verdict_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(b"\n" + line)
    with pytest.raises(exits.UsageError, match=r"verdicts.jsonl:2 is not a verdict"):
        list(read_verdicts(path))


def test_a_folder_without_votes_is_named_with_the_way_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(exits.ComposerError, match=r"ledger.sqlite is missing: run .composer-hub replay run"):
        RecordedVotes(tmp_path)
    Poll("all", ("a", "b"), Policy()).write(tmp_path)
    for content, problem in ((b"", "no such table"), (b"no database, but as long as one " * 9, "not a database")):
        (tmp_path / VOTES_FILE).write_bytes(content)
        with pytest.raises(exits.ComposerError, match=rf"ledger.sqlite holds no votes .*{problem}.*paid for twice"):
            RecordedVotes(tmp_path)


def test_votes_outlive_a_run_that_breaks_off_and_one_that_asks_less(
    tmp_path: Path, make_trace: Callable[..., Any], make_vote: Callable[..., Vote]
) -> None:
    call = ("Bash", {"command": "ls"})
    traces = [make_trace(call, name=name) for name in ("one", "two")]
    votes = [make_vote(trace, 0, teacher, call) for trace in traces for teacher in ("a-x", "b-x")]
    Poll("all", ("a-x", "b-x"), Policy()).write(tmp_path)

    def broken() -> Iterator[Vote]:
        yield from votes
        raise exits.Stopped("the cap")

    with pytest.raises(exits.Stopped):
        save_votes(tmp_path / VOTES_FILE, broken())
    # The next run leaves a teacher out, and its cap ends before it asks the other one about the second trace.
    save_votes(tmp_path / VOTES_FILE, [replace(votes[2], status="cap", answer={})])
    recorded = RecordedVotes(tmp_path)
    assert [sorted(recorded.of(trace.trace_id), key=votes.index) for trace in traces] == [votes[:2], votes[2:]]
    assert len(list(recorded.rows())) == num_votes(tmp_path / VOTES_FILE) == 4
    save_votes(tmp_path / VOTES_FILE, [replace(votes[0], cost_usd=9.0)])
    assert {vote.cost_usd for vote in recorded.of("one")} == {9.0, votes[1].cost_usd}


def test_writers_that_save_votes_at_once_lose_none(
    tmp_path: Path, make_trace: Callable[..., Any], make_vote: Callable[..., Vote]
) -> None:
    call = ("Bash", {"command": "ls"})
    traces = [make_trace(call, name=f"t{number}") for number in range(12)]
    rows = [[make_vote(trace, 0, teacher, call) for trace in traces] for teacher in ("a-x", "b-x", "c-x")]
    with ThreadPoolExecutor(3) as pool:  # each with its own connection, as processes have
        list(pool.map(save_votes, [tmp_path / VOTES_FILE] * 3, rows))
    assert num_votes(tmp_path / VOTES_FILE) == 36


def test_a_count_in_the_report_stays_the_same_row_after_it_was_read_back() -> None:
    (row,) = report_table([Metric("pairs", "", 26, None, None, 26)]).rows
    assert isinstance(row["value"], float)
