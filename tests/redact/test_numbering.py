"""Numbers of placeholders: the same in every run, over processes, and after a crash."""

from __future__ import annotations

import json
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from composer_hub.records import Message, Trace
from composer_hub.redact import Numbering, RedactionError, Redactor


def a_trace(text: str) -> Trace:
    return Trace("t1", "claude_code", "s1", (Message("user", text),), ())


def numbered(path: Path, text: str) -> str:
    numbering = Numbering.open(path)
    return numbering.number(Redactor(numbering.salt).trace(a_trace(text))).messages[0].content


def test_placeholders_count_from_one_for_each_label() -> None:
    numbering = Numbering()
    redactor = Redactor(numbering.salt)
    text = "a@acme.io b@acme.io a@acme.io +14155552671"
    assert numbering.text(redactor.text(text)) == "[EMAIL_1] [EMAIL_2] [EMAIL_1] [PHONE_1]"


def test_the_next_run_gives_known_values_their_numbers_and_new_ones_the_next(tmp_path: Path) -> None:
    path = tmp_path / "maps" / "redaction.jsonl"
    assert numbered(path, "a@acme.io b@acme.io") == "[EMAIL_1] [EMAIL_2]"
    assert numbered(path, "c@acme.io b@acme.io") == "[EMAIL_3] [EMAIL_2]"


def test_the_map_is_for_its_owner_only_and_holds_no_value(tmp_path: Path) -> None:
    path = tmp_path / "redaction.jsonl"
    numbered(path, "jane.doe@acme.io DB_PASSWORD=k7#Tq-w2Zx_p")
    assert path.stat().st_mode & 0o777 == 0o600
    assert not re.search("jane|acme|k7#", path.read_text())


def test_numbering_a_numbered_trace_changes_nothing() -> None:
    numbering = Numbering()
    once = numbering.number(Redactor(numbering.salt).trace(a_trace("a@acme.io /home/janedoe/x")))
    assert numbering.number(Redactor(numbering.salt).trace(once)) == once


def number_many(path: Path, worker: int) -> list[str]:
    return [numbered(path, f"user{i}.w{worker if i % 2 else 0}@acme.io") for i in range(12)]


def test_two_runs_at_once_never_give_one_number_to_two_values(tmp_path: Path) -> None:
    path = tmp_path / "redaction.jsonl"
    with ProcessPoolExecutor(3) as pool:
        answers = list(pool.map(number_many, [path] * 3, [1, 2, 3]))
    shared = {tuple(answer[0::2]) for answer in answers}
    own = [number for answer in answers for number in answer[1::2]]
    assert len(shared) == 1
    assert len(set(own) | set(*shared)) == len(own) + 6
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert sorted(number for _, number in lines) == list(range(1, len(lines) + 1))


def test_a_line_that_a_crash_cut_off_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "redaction.jsonl"
    numbered(path, "a@acme.io")
    with path.open("a") as file:
        file.write('["EMAIL_0123')
    assert numbered(path, "b@acme.io a@acme.io") == "[EMAIL_2] [EMAIL_1]"
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize("head", ["", "{}\n", "not json\n", '{"format": "other", "salt": "00"}\n'])
def test_another_file_is_not_taken_for_a_map(tmp_path: Path, head: str) -> None:
    path = tmp_path / "redaction.jsonl"
    path.write_text(head)
    with pytest.raises(RedactionError, match="not a redaction map"):
        Numbering.open(path)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "redaction.jsonl"
    numbered(path, "a@acme.io")
    path.write_text(path.read_text() + "[1]\n")
    with pytest.raises(RedactionError, match=r"redaction.jsonl:3 is damaged"):
        Numbering.open(path)
