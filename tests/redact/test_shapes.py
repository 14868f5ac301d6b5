"""Passwords that only their shape gives away, and the words of code, URLs and versions that stay."""

from __future__ import annotations

import pytest

from composer_hub.redact.shapes import is_made_like_a_password
from composer_hub.redact.text import redact_text

MADE = ("Parcel~6790yaoHu", "9Trabant!kQ2x", "U9CEf*Tundra5293", "c7Lm-9Rz!vGq2_tYwUx4", "Granit#Sten4x")
LEFT = (
    "10*time.Second", "originX+7*opts", "foo@1.2.3b", "README.md#L12-L40", "Uint8Array**", "w&&n2X", "%2FHome%2Fa1B",
    "HEAD@6a3f515ced18", "$HOME1x", "Color#2B6A4D", "C#Sharp8", "Precision@10", "n1!==Xy2", "IsAdmin!x",
)  # fmt: skip


@pytest.mark.parametrize("word", MADE)
def test_a_word_that_is_made_like_a_password_goes_wherever_it_is(word: str) -> None:
    assert is_made_like_a_password(word)
    assert word not in redact_text(f'client.open("x", "{word}")', lambda *_: "[SECRET_1]")


@pytest.mark.parametrize("word", LEFT)
def test_words_of_code_stay(word: str) -> None:
    assert not is_made_like_a_password(word)
