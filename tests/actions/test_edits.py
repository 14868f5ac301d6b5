"""Edits and patches leave the text that the tools themselves would leave."""

from __future__ import annotations

import pytest

from composer_hub.actions.edits import Replacement, inserted, parse_patch, patched, replaced

TEXT = "one\ntwo\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("edits", "after"),
    [
        ([Replacement("one", "1")], "1\ntwo\ntwo\nthree\n"),
        ([Replacement("one", "1"), Replacement("1", "uno")], "uno\ntwo\ntwo\nthree\n"),
        ([Replacement("two", "2", replace_all=True)], "one\n2\n2\nthree\n"),
        ([Replacement("two", "2")], None),
        ([Replacement("four", "4")], None),
        ([Replacement("", "4")], None),
        ([Replacement("one", "one")], None),
        ([Replacement("one", "1"), Replacement("one", "2")], None),
        ([Replacement("one\ntwo", "")], "\ntwo\nthree\n"),
    ],
)
def test_replacements_apply_in_order_or_not_at_all(edits: list[Replacement], after: str | None) -> None:
    assert replaced(TEXT, edits) == after


def test_a_text_that_overlaps_itself_is_not_unique() -> None:
    assert replaced("aaa", [Replacement("aa", "b")]) is None


@pytest.mark.parametrize(
    ("line", "after"), [(0, "x\na\nb\n"), (1, "a\nx\nb\n"), (2, "a\nb\nx\n"), (3, None), (-1, None)]
)
def test_an_insert_goes_behind_its_line(line: int, after: str | None) -> None:
    assert inserted("a\nb\n", line, "x") == after


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        (("@@", "-one", "+1"), "1\ntwo\ntwo\nthree\n"),
        (("@@", " two", "-three", "+3"), "one\ntwo\ntwo\n3\n"),
        (("@@", "-two", "+2"), "one\n2\ntwo\nthree\n"),
        (("@@", "-two", "+2", "@@", "-two", "+2"), "one\n2\n2\nthree\n"),
        (("@@ one", " two", "+more"), "one\ntwo\nmore\ntwo\nthree\n"),
        (("@@", "-three", "*** End of File"), "one\ntwo\ntwo\n"),
        (("@@", "-two", "*** End of File"), None),
        (("@@ nowhere", "-two"), None),
        (("@@", "-three", "+3", "@@", "-one", "+1"), None),
        (("@@", "-ONE", "+1"), None),
    ],
)
def test_a_patch_applies_letter_by_letter_and_in_order(lines: tuple[str, ...], after: str | None) -> None:
    changes = parse_patch(patch("*** Update File: a", *lines))
    assert changes is not None
    assert patched(TEXT, changes[0].hunks) == after


def test_a_patch_may_touch_many_files() -> None:
    changes = parse_patch(
        patch("*** Add File: a", "+x", "+", "*** Delete File: b", "*** Update File: c", "*** Move to: d", "@@", "-y")
    )
    assert changes is not None
    assert [(one.act, one.path, one.content, one.moved_to) for one in changes] == [
        ("add", "a", "x\n\n", ""),
        ("delete", "b", "", ""),
        ("update", "c", "", "d"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*** Begin Patch\n*** End Patch",
        patch("@@", "-x"),
        patch("*** Add File: a", "x"),
        patch("*** Delete File: a", "-x"),
        patch("*** Update File: a", "@@", "*x"),
        patch("*** Update File: "),
        patch("*** Add File: a", "+x").removesuffix("*** End Patch"),
    ],
)
def test_a_patch_with_a_line_that_is_not_understood_is_none(text: str) -> None:
    assert parse_patch(text) is None
