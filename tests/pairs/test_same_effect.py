"""The answers of a judge: read generously, counted strictly."""

from __future__ import annotations

import pytest

from composer_hub.pairs.same_effect import MAX_ACTION_CHARS, Ruling, answer_in, medoid, ruling, sides, subject_of
from composer_hub.records import Message, ToolCall

NO, YES, UNSURE = ("no", "Other files."), ("yes", "One file."), ("unsure", "Perhaps.")
ORDER = ("order", "Both files are read.")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"same": "no", "why": "Other files."}', NO),
        ('Sure.\n```json\n{"same": "No", "why": "Other\\n files."}\n```', NO),
        ('<think>{"same": "yes"}</think> {"same": "no", "why": "Other files."}', NO),
        ('{"same": "no", "why": "It runs {x}."}', ("no", "It runs {x}.")),
        ('{"same": "no"}', ("no", "")),
        ('{"same": "no", "why": "\\ud800 and \\ud83d\\ude00"}', ("no", "\ufffd and 😀")),
        ('{"same": "maybe", "why": "?"}', ("unsure", "")),
        ('{"same": true}', ("unsure", "")),
        ("no", ("unsure", "")),
        ('["no"]', ("unsure", "")),
        ("", ("unsure", "")),
    ],
)
def test_what_is_no_clear_answer_counts_as_unsure(text: str, answer: tuple[str, str]) -> None:
    assert answer_in(text) == answer


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({}, Ruling()),
        ({0: NO}, Ruling(*NO)),
        ({0: NO, 1: NO}, Ruling(*NO, both_orders=True)),
        ({0: NO, 1: YES}, Ruling(*YES)),
        ({0: UNSURE}, Ruling(*UNSURE)),
        ({0: NO, 1: UNSURE}, Ruling(*UNSURE)),
        ({0: NO, 1: ORDER}, Ruling(*ORDER)),
    ],
)
def test_two_orders_make_one_ruling(answers: dict[int, tuple[str, str]], expected: Ruling) -> None:
    assert ruling(answers) == expected
    assert ruling(answers).forbids == (expected.same in ("yes", "order", "unsure"))


def action(**arguments: object) -> Message:
    return Message("assistant", "", (ToolCall("Write", dict(arguments)),))


def test_long_actions_show_what_differs() -> None:
    body = "x = 1\n" * 3000
    one, other = sides(action(content=f"{body}a{body}"), action(content=f"{body}b{body}"))
    assert max(len(one), len(other)) < MAX_ACTION_CHARS
    assert one != other
    assert "characters that both have" in one


def test_an_action_has_one_subject_however_its_arguments_came() -> None:
    parsed = Message("assistant", "words", (ToolCall("Bash", {"command": "ls", "x": 1}, "id"),))
    assert subject_of(parsed) == subject_of(Message("assistant", "", (ToolCall("Bash", '{"x": 1, "command":"ls"}'),)))


def test_the_medoid_is_closest_to_the_others_and_between_equals_has_the_lowest_rank() -> None:
    short, long, odd = action(a="read the file"), action(a="read the file now"), action(b="something else")
    assert medoid([odd, long, short], [0, 1, 2]) in (1, 2)
    assert medoid([long, short], [2, 1]) == 1
