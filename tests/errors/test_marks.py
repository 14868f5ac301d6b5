"""Words that are looked for before a pattern is: no text that the pattern meets lacks all of them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub import harnesses
from composer_hub.errors import exits
from composer_hub.errors.rules import ANCHORS, ErrorRule, lines_with
from tests.quick import cases

MARKED = [rule for rule in (*exits.REPORTS, *ANCHORS) if rule.marks]
SHELLS = [harness.shell for harness in harnesses.HARNESSES]
STABLE = cases(25, database=None)


@pytest.mark.parametrize("rule", MARKED, ids=lambda rule: rule.rule_id)
@STABLE
@given(st.data())
def test_a_rule_meets_every_text_that_its_pattern_meets(rule: ErrorRule, data: st.DataObject) -> None:
    assert rule.meets(data.draw(st.from_regex(rule.pattern)))


@STABLE
@given(st.from_regex(exits.COMPLAINT))
def test_every_complaint_has_a_mark(text: str) -> None:
    assert any(mark in text for mark in exits.COMPLAINT_MARKS)


@pytest.mark.parametrize("pattern", sorted({pattern for shell in SHELLS for pattern in shell.last}))
@STABLE
@given(st.data())
def test_every_exit_code_at_the_end_of_a_result_has_a_mark(pattern: str, data: st.DataObject) -> None:
    assert harnesses.LAST_MARK in data.draw(st.from_regex(pattern))


@pytest.mark.parametrize("pattern", sorted({shell.footer for shell in SHELLS if shell.footer}))
@STABLE
@given(st.data())
def test_every_footer_of_a_result_has_a_mark(pattern: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(pattern))
    assert any(mark in text for mark in harnesses.FOOTER_MARKS)


@STABLE
@given(st.lists(st.sampled_from("ab\n"), max_size=30).map("".join), st.sampled_from(["a", "b", "ab", "ba"]))
def test_the_lines_with_a_mark_are_those_that_hold_it(text: str, mark: str) -> None:
    assert lines_with([mark], text) == [line for line in text.split("\n") if mark in line]
    assert re.sub("[^ab]", "", "".join(lines_with("ab", text))) == text.replace("\n", "")
