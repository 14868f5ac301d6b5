"""Values as text for reading."""

from __future__ import annotations

import pytest
from inspector.markup import number, parsed


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (None, 3, "-"),
        (12345.6, 3, "12,346"),
        (999.7, 3, "1,000"),
        (0.01234, 3, "0.0123"),
        (123.4, 2, "123"),
        (99.7, 2, "100"),
        (9.96, 2, "10"),
        (-123.4, 2, "-123"),
    ],
)
def test_a_number_has_no_exponent(value: float | None, digits: int, expected: str) -> None:
    assert number(value, digits) == expected


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_text_that_is_not_json_stays_text(text: str) -> None:
    assert parsed(text) == text
