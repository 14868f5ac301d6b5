"""The report, the Space and the docs use the same words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from composer_hub.errors import vocabulary
from composer_hub.errors.vocabulary import BLAMES, EVIDENCE, KINDS, WRITERS, blame_words, kind_words, writer_words
from composer_hub.hints import writers as hints
from composer_hub.hub import spaces

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors_and_hints.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8")
ROWS = {
    cells[1].split("`")[1]: [cell.strip() for cell in cells[2:]]
    for cells in (line.split("|") for line in PAGE.splitlines() if line.startswith("| `"))
}
OTHERS = ("judge", "reviewer")  # a model, a person
INTERNAL = ("sibling", "control")  # of training and of ablations


def test_every_kind_has_an_example_of_its_evidence() -> None:
    assert all(EVIDENCE[kind] for kind in KINDS)


@pytest.mark.parametrize("blame", BLAMES)
def test_the_reference_has_each_blame_with_its_words(blame: str) -> None:
    assert f"`{blame}`: {blame_words(blame)}" in REFERENCE


def test_the_docs_name_every_writer_in_its_words() -> None:
    documented = {writer: cells[0] for writer, cells in ROWS.items()}
    assert documented == {writer: writer_words(writer) for writer in (*hints.WRITERS, *OTHERS)}


def test_every_writer_of_hints_has_words() -> None:
    assert {*WRITERS} == {*hints.WRITERS, *OTHERS, *INTERNAL}


def test_no_two_kinds_have_the_same_words() -> None:
    words = [kind_words(kind) for kind in KINDS]
    assert len(set(words)) == len(words)


def test_every_kind_is_somebody_s_fault() -> None:
    assert set(KINDS.values()) == set(BLAMES)


def test_the_words_of_a_kind_from_elsewhere_are_its_name() -> None:
    assert kind_words("some_other_kind") == "some other kind"
    assert (blame_words("moon"), writer_words("me"), writer_words("")) == ("moon", "me", "no hint")


def test_a_deployed_space_has_the_package_s_own_words() -> None:
    content = spaces.app_files(["me/pairs@v1.0.0"])["inspector/vocabulary.py"]
    assert content == Path(str(vocabulary.__file__)).read_bytes()
    assert not re.search(rb"(?m)^(?:from|import) composer_hub", content)
