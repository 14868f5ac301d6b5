"""The YAML head of a README."""

from __future__ import annotations

import json

import pytest

from composer_hub.local_hub.cards import card_errors, card_of, tags_of


@pytest.mark.parametrize("readme", [
    b"", b"no head", b"---\n[\n---\n", b"---\n- a\n---\n", b"\xff\xfe", b"---\nx: &a [*a]\n---\n",
    b"---\nx: .nan\n---\n",
])  # fmt: skip
def test_any_metadata_of_a_readme_becomes_plain_json(readme: bytes) -> None:
    json.dumps(card_of(readme), allow_nan=False)


def test_aliases_cannot_make_a_small_card_endless() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)
    ]
    card = card_of(("---\n" + "\n".join(lines) + "\n---\n").encode())
    assert len(json.dumps(card)) < 2_000_000


def test_tags_come_from_the_fields_that_lists_filter_by() -> None:
    card = card_of(b"---\nlicense: mit\ntags: [a, b]\nlanguage: [en]\n---\n# Title\n")
    assert tags_of(card)[:4] == ["a", "b", "license:mit", "language:en"]


def test_a_card_without_metadata_is_a_warning_and_no_error() -> None:
    assert card_errors("# Title", "model") == ([], ["empty or missing yaml metadata in repo card"])
