"""A trace as arrays: every atom of a plain reading is there, at its place, with the hash of its letters."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from composer_hub.redact.atoms import BODY, CHUNK, START, Atoms, atoms_of

PLAIN = re.compile(r"[^ \t\r\n\"'`<>()\[\]{},;|=:&@/\\\0\x02\x03\u00a0\u2028\u2029]+")


def one(text: str, about: str = "") -> Atoms:
    (atoms,) = atoms_of([(about, text)])
    return atoms


def words(atoms: Atoms) -> list[str]:
    return [atoms.word(row) for row in range(len(atoms)) if not atoms.is_about[row]]


@given(st.text(max_size=200))
@settings(deadline=None)
def test_atoms_are_what_a_regular_expression_finds(text: str) -> None:
    assert words(one(text)) == PLAIN.findall(text.replace(START, " ").replace(BODY, " "))


@pytest.mark.parametrize(
    "text", ["", "\n\n", "=" * 500, "x" * 10_000, "\ud800", "👩‍👩‍👧 ok", "İstanbul", f"a{START}b{BODY}c", "\0a\0"]
)
def test_odd_texts_do_no_harm(text: str) -> None:
    atoms = one(text, about="cat file")
    assert [atoms.word(row) for row in np.flatnonzero(atoms.is_about)] == ["cat", "file"]
    assert set(atoms.text.tolist()) <= {0}


def test_the_hash_is_of_the_letters_and_of_nothing_else() -> None:
    atoms = one("Token = token; apiKey api_key KEY")
    rows = {atoms.word(row): row for row in range(len(atoms))}
    assert atoms.low[rows["Token"]] == atoms.low[rows["token"]]
    assert atoms.tail[rows["apiKey"]] == atoms.low[rows["KEY"]] == atoms.tail[rows["api_key"]]
    assert atoms.head[rows["apiKey"]] == atoms.head[rows["api_key"]]
    assert atoms.low[rows["apiKey"]] != atoms.low[rows["api_key"]]
    assert [word for word, row in rows.items() if atoms.is_key[row]] == ["Token"]


def test_chunks_change_no_atom() -> None:
    texts = [("cat", f"value {number} = x{number * 7919:x}\n" * 40) for number in range(120)]
    many = list(atoms_of(texts))
    assert len(many) > 1
    assert sum(map(len, many)) == sum(len(one(text, about)) for about, text in texts)
    assert all(len(atoms.buffer) < 2 * CHUNK for atoms in many)
    last = one(texts[-1][1], texts[-1][0])
    np.testing.assert_array_equal(many[-1].low[-len(last) :], last.low)
    np.testing.assert_array_equal(many[-1].left[-len(last) + 1 :], last.left[1:])  # the first follows another text
