"""Every character that nobody sees is named, also those of the next Unicode; words and emoji stay as they are."""

# ruff: noqa: RUF001  # letters of other scripts are what is tested

from __future__ import annotations

import json
import unicodedata

import pytest

from composer_hub.local_hub.characters import is_plain, spelled_out, visible
from composer_hub.local_hub.elements import esc
from composer_hub.local_hub.webpage import anchor, diff, markdown, page, table
from tests.hidden import HIDDEN, NO_HALVES, hidden_in

EVERY = [chr(code) for code in range(0x110000)]


def of(prop: str) -> set[str]:
    """Return the characters with a property, as the package `regex` knows it."""
    pattern = pytest.importorskip("regex").compile(rf"\p{{{prop}}}")
    return {char for char in EVERY if pattern.match(char)}


def test_the_hidden_characters_are_those_of_unicode_and_a_few_more() -> None:
    seen = {"\n", "\t"} | of("Prepended_Concatenation_Mark")  # Arabic signs that enclose a number
    invisible = [of(name) for name in ("Default_Ignorable_Code_Point", "Bidi_Control", "Cc", "Cf", "Cs", "Zl", "Zp")]
    blank = {
        char
        for char in EVERY
        if unicodedata.name(char, "") in ("BRAILLE PATTERN BLANK", "MUSICAL SYMBOL NULL NOTEHEAD")
    }
    assert set(HIDDEN) == set.union(*invisible) - seen | blank | {"\U00016fe4"}


def test_each_hidden_character_has_a_name_of_its_own_and_no_other_character_changes() -> None:
    assert visible("".join(EVERY)) == "".join(map(visible, EVERY))
    names = [visible(char) for char in HIDDEN]
    assert len(set(names)) == len(names)
    assert hidden_in("".join(names)) == []
    assert all(visible(name) == name for name in names)


def test_json_with_its_characters_spelled_out_has_the_same_values() -> None:
    values = {"all": EVERY, NO_HALVES: "".join(HIDDEN)[::-1]}  # reversed, so that no halves become a pair
    document = spelled_out(json.dumps(values, ensure_ascii=False, indent=2))
    assert hidden_in(document) == []
    assert json.loads(document) == values


WORDS = {
    "Persian": "می\u200cخواهم کتاب\u200cها",
    "Hindi": "क्\u200dष नमस्\u200cते",
    "Bengali": "র\u200d্যাব",
    "Malayalam": "അവന്\u200dറെ",
    "Sinhala": "ශ්\u200dරී ලංකා",
    "Arabic, Hebrew": "مرحبا بالعالم שָׁלוֹם",
    "Chinese, Japanese, Korean": "汉字　かな 한국어",
    "French": "Où\u202f? «\xa0ça\xa0»",
    "a family, a rainbow, a heart": "👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 ❤\ufe0f\u200d🔥 👨🏽\u200d💻",
    "a flag, a key, a sun as text": "🇩🇪 1\ufe0f\u20e3 ☀\ufe0e ⚠\ufe0f ⬛\ufe0f ↔\ufe0f ‼\ufe0f ©\ufe0f",
    "code": "if (a <= b) {\n\treturn `x`;  // naïve ½ ≤ π\n}",
}  # fmt: skip


@pytest.mark.parametrize("text", WORDS.values(), ids=WORDS)
def test_words_and_emoji_stay_as_they_are(text: str) -> None:
    assert visible(text) == text


def test_every_emoji_of_unicode_keeps_its_selector_and_its_joiner() -> None:
    emoji = sorted(char for char in of("Emoji") if not char.isascii())
    assert len(emoji) > 1_300
    for char in emoji:
        for text in (f"{char}\ufe0f", f"{char}\ufe0e", f"{char}\u200d{emoji[0]}", f"{char}\ufe0f\u200d{char}"):
            assert visible(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "pay\u200dpal", "a\ufe0f", "x +\ufe0f y", "1\ufe0f 2", "\ufe0f", "\u200d", "می\u200c\u200cخواهم", "می\u200c ",
        "b\u200cا", "☀\ufe0f\ufe0f", "☀\ufe0f\u200d", "☀\u200dx", "\u2800\ufe0f", "漢\U000e0100", "漢\ufe00",
        "🏴\U000e0067", "क\u17b4\u200dष",
    ],
)  # fmt: skip
def test_a_joiner_or_selector_that_belongs_to_no_word_or_emoji_is_named(text: str) -> None:
    assert visible(text) != text


def test_a_plain_line_has_no_hidden_character_at_all() -> None:
    assert is_plain("Use `a/b.py`, not `ä 漢.py`")
    assert not any(is_plain(f"a{char}b") for char in HIDDEN + "\n\t")
    assert not is_plain(WORDS["Persian"])


PLACES = {
    "escaped": esc(HIDDEN),
    "a link": anchor("/a", HIDDEN, rel="x"),
    "a table": table([HIDDEN], [[esc(HIDDEN)]]),
    "a diff": diff(f"+a{HIDDEN}\n-{HIDDEN}b"),
    "a card": markdown(f"# {HIDDEN}\n\n`{HIDDEN}` [{HIDDEN}](a '{NO_HALVES}') ![{HIDDEN}](b)\n\n    {HIDDEN}"),
    "a long card": markdown(HIDDEN * 100),
    "a page": bytes(page(HIDDEN, "", user=HIDDEN).body).decode(),
}  # fmt: skip


@pytest.mark.parametrize("shown", PLACES.values(), ids=PLACES)
def test_a_page_of_the_embedded_hub_shows_no_hidden_character(shown: str) -> None:
    assert hidden_in(shown) == []
    assert "⟦U+202E⟧" in shown
