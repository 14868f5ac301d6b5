"""Texts of results, made short and plain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from composer_hub.errors.excerpts import excerpt
from tests.errors.sessions import FILE, sites
from tests.quick import cases

STABLE = cases(100)


def test_a_message_holds_the_environments_words_without_the_harness_s_wrapping() -> None:
    (site,) = sites(
        ("Edit", FILE, "OBSERVATION:\r\n<tool_use_error>File has not been read yet.\r\nRead it.</tool_use_error>", None)
    )
    assert site.message == "File has not been read yet.\nRead it."


@STABLE
@given(st.text(alphabet="ab \n<>/error_us", max_size=3000), st.integers(60, 600))
def test_an_excerpt_is_cut_between_lines_and_never_inside_a_word(text: str, max_chars: int) -> None:
    cut = excerpt(text, max_chars)
    assert len(cut) <= max_chars
    lines = excerpt(text, 10**6).split("\n")
    if len(lines[0]) <= max_chars // 2:
        assert all(line in lines or line == "[…]" for line in cut.split("\n"))
    else:
        head = cut.split("\n")[0].removesuffix("…")
        assert lines[0].startswith(head)
        assert " " not in lines[0][: max_chars - 1] or lines[0][len(head) : len(head) + 1] in ("", " ")
