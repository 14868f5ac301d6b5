"""The guidelines of a review: a card's section or a file in, harmless markup out."""

from __future__ import annotations

import re

import pytest
from inspector import guidelines

from tests.hidden import HIDDEN, hidden_in
from tests.space.hostile import PAYLOADS

TAGS = set("div p h1 ul li code pre a table thead tbody tr th td em strong".split())
CARD = """---
license: other
---
# Pairs

## Review guidelines

Prefer the **smaller** change.

### Examples

- one

## License

other
"""


def test_the_section_of_a_card_ends_at_the_next_heading_of_its_level() -> None:
    assert guidelines.of_card(CARD) == "Prefer the **smaller** change.\n\n### Examples\n\n- one"
    assert guidelines.of_card(CARD.replace("Review guidelines", "GUIDELINES")).startswith("Prefer")
    assert guidelines.of_card("# Pairs\n\nguidelines are elsewhere") == ""
    assert guidelines.of_card("") == ""


@pytest.mark.parametrize("payload", [*PAYLOADS, HIDDEN, "[x](javascript:alert(1))", "![x](https://evil.example/x)"])
def test_guidelines_of_anyone_are_text(payload: str) -> None:
    for shape in ("%s", "# %s", "- %s", "`%s`", "[a](%s)", "| a |\n|---|\n| %s |"):
        markup = guidelines.rendered(shape.replace("%s", payload))
        assert set(re.findall(r"<(\w+)", markup)) <= TAGS
        assert not re.search(r"<[^>]*\son\w+\s*=", markup)
        assert all(link.startswith(("http://", "https://")) for link in re.findall(r'href="([^"]*)', markup))
        assert hidden_in(markup) == []


def test_a_space_without_guidelines_has_its_own_for_each_way_of_reading() -> None:
    assert "You do not see who proposed it" in guidelines.DEFAULT[False]
    assert "Swap" in guidelines.DEFAULT[True]
    assert len(guidelines.rendered("x" * 10_000_000)) < 2 * guidelines.MAX_CHARS
