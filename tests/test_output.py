"""What commands print, in each format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from composer_hub.output import FORMATS, Output, Progress, Range, size
from tests.hidden import HIDDEN, NO_HALVES, hidden_in

ROWS: list[dict[str, Any]] = [
    {"name": "a", "count": 1234, "share": 0.5, "note": None},
    {"name": "bcd", "count": 5, "share": 0.25, "note": "x"},
]


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_json_is_one_value_with_the_rows_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    Output("json").table(ROWS, id_key="name")
    assert json.loads(printed(capsys)) == ROWS


def test_quiet_prints_ids_only(capsys: pytest.CaptureFixture[str]) -> None:
    Output("quiet").table(ROWS, id_key="name")
    Output("quiet").record(ROWS[1], id_key="count")
    assert printed(capsys).split() == ["a", "bcd", "5"]


def test_agent_separates_cells_by_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    Output("agent").table(ROWS, id_key="name")
    lines = [line.split("\t") for line in printed(capsys).splitlines()]
    assert lines[0] == ["name", "count", "share", "note"]
    assert lines[1] == ["a", "1234", "0.5", "-"]


def test_a_range_is_two_rounded_numbers_to_people_and_a_list_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"order": "all", "usd_range": Range(0.04716, 0.1043)}]
    Output("human").table(rows, id_key="order")
    assert "0.0472 to 0.104" in capsys.readouterr().out
    Output("json").table(rows, id_key="order")
    assert json.loads(capsys.readouterr().out)[0]["usd_range"] == [0.04716, 0.1043]


def test_human_tables_align_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    Output("human").table(ROWS, id_key="name")
    head, rule, first, second = printed(capsys).splitlines()
    assert head.startswith("NAME  COUNT")
    assert set(rule) == {"-", " "}
    assert first.index("1234") + 4 == second.index("5") + 1


WORDY: list[dict[str, Any]] = [
    {"name": "tables", "num_files": 12, "finding": "many words " * 12, "advice": ""},
    {"name": "doctor", "num_files": 3, "finding": "ok", "advice": "look into hf://datasets/owner/name-of-it " * 3},
]


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_a_human_table_is_no_wider_than_the_terminal_and_loses_no_word(
    columns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    Output("human", columns).table(WORDY, id_key="name")
    text = printed(capsys)
    assert max(map(len, text.splitlines())) <= columns
    assert text.startswith("NAME ")
    told = " ".join(str(value) for row in WORDY for value in row.values()).split()
    assert sorted(text.replace("-", " ").split()) == sorted(
        f"NAME NUM FILES FINDING ADVICE {' '.join(told)}".replace("-", " ").split()
    )


def test_a_table_of_words_too_long_for_its_columns_becomes_a_list_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    Output("human", 40).table(WORDY, id_key="name")
    first, second = printed(capsys).strip("\n").split("\n\n")
    assert first.splitlines()[:2] == ["NAME       tables", "NUM FILES  12"]
    assert max(map(len, first.splitlines())) <= 40
    assert second.count("  hf://datasets/owner/name-of-it\n") == 2, "no word is cut, also where it is too long"


def test_a_table_that_fits_is_not_touched_and_machines_get_whole_cells(capsys: pytest.CaptureFixture[str]) -> None:
    Output("human", 400).table(WORDY, id_key="name")
    assert len(printed(capsys).splitlines()) == 4
    Output("agent", 20).table(WORDY, id_key="name")
    assert len(printed(capsys).splitlines()) == 3


@pytest.mark.parametrize("format", ["json", "quiet"])
def test_machines_hear_no_notes_and_no_free_text(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(format)
    out.note("beside the result")
    out.text("free text")
    assert printed(capsys) == ""


def test_the_numbers_of_a_note_are_in_the_next_record_of_json_once(capsys: pytest.CaptureFixture[str]) -> None:
    for format in ("human", "quiet"):
        Output(format).note("two are left out", left_out=2)
    assert "left_out" not in "".join(capsys.readouterr())
    out = Output("json")
    out.note("two are left out", left_out=2)
    for _ in range(2):
        out.record({"name": "a"}, id_key="name")
    first, second = printed(capsys).split("}\n{")
    assert (json.loads(first + "}"), json.loads("{" + second)) == ({"name": "a", "left_out": 2}, {"name": "a"})


def test_a_table_with_facts_is_an_object_in_json_and_the_same_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    Output("json").table(ROWS, id_key="name", cap=3)
    assert json.loads(printed(capsys)) == {"rows": ROWS, "cap": 3}
    Output("quiet").table(ROWS, id_key="name", cap=3)
    assert printed(capsys).split() == ["a", "bcd"]


def test_notes_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    Output("human").note("beside the result")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "beside the result\n")


def test_an_empty_table_says_so_to_people_and_is_an_empty_list_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    Output("human").table([], id_key="name", empty="Nothing yet.")
    Output("json").table([], id_key="name")
    assert printed(capsys) == "Nothing yet.\n[]\n"


def test_progress_is_silent_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with Output("human").progress("working", 3) as bar:
        bar.advance(5)
    assert bar.done == 5
    assert printed(capsys) == ""


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (640, "640 B"), (999, "999 B"), (12_345, "12.3 kB"), (999_949, "999.9 kB"), (999_999, "1.0 MB"),
        (4_500_000, "4.5 MB"), (2e13, "20.0 TB"),
    ],
)  # fmt: skip
def test_sizes_read_as_people_write_them(count: float, text: str) -> None:
    assert size(count) == text


def test_a_record_is_no_wider_than_the_terminal_and_keeps_a_name_with_its_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kinds = {f"kind_of_error_{number}": number for number in range(12)}
    Output("human", 60).record({"id": "a", "errors by kind": kinds}, id_key="id")
    first, *lines = printed(capsys).splitlines()
    assert first == "id              a"
    assert max(map(len, lines)) <= 60
    assert lines[1].startswith(" " * 16 + "kind_of_error_")
    assert ", ".join(f"{name} {number}" for name, number in kinds.items()) == " ".join(line[16:] for line in lines)


@pytest.mark.parametrize("mode", FORMATS)
def test_no_hidden_character_reaches_the_terminal(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, text = Output(mode), f"a{HIDDEN}b"
    row = {"id": text, "list": [text, {text: text}]}
    out.record(row, id_key="id")
    out.table([row, row], id_key="id")
    out.table([], id_key="id", empty=text)
    for say in (out.text, out.note, out.warn):
        say(f"{text}\n\t{text}")
    captured = capsys.readouterr()
    assert hidden_in(captured.out + captured.err) == []
    assert "U+202E" in captured.out or "\\u202e" in captured.out


def test_the_line_of_progress_shows_a_name_and_moves_the_cursor_itself_only(capsys: pytest.CaptureFixture[str]) -> None:
    bar, shown = Progress("reading", None, shown=True), ""
    while not shown:
        bar.advance(1, file=HIDDEN)
        shown = capsys.readouterr().err
    assert hidden_in(shown.removeprefix("\r\x1b[2K")) == []


def test_json_holds_the_very_values(capsys: pytest.CaptureFixture[str]) -> None:
    Output("json").record({"id": NO_HALVES, NO_HALVES: [NO_HALVES]}, id_key="id")
    assert json.loads(printed(capsys)) == {"id": NO_HALVES, NO_HALVES: [NO_HALVES]}


@pytest.mark.parametrize("mode", ["human", "agent"])
def test_a_value_adds_no_line_and_no_cell(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": "a\nid\t9", "note": "b\n\nc"}]
    Output(mode).table(rows, id_key="id")
    lines = printed(capsys).splitlines()
    assert len(lines) == (3 if mode == "human" else 2)
    assert lines[-1].count("\t") == (0 if mode == "human" else 1)
    Output(mode).record(rows[0], id_key="id")
    assert len(printed(capsys).splitlines()) == 2
