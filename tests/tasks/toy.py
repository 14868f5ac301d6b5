"""A small package with tests, written into a folder."""

from __future__ import annotations

from pathlib import Path

INIT = '''"""Words and durations."""

from .words import slug, title, shout
from .spans import seconds, Clock

__all__ = ["slug", "title", "shout", "seconds", "Clock"]
'''
WORDS = '''"""Words."""

import functools


def _clean(text):
    # keep letters, digits and spaces
    kept = [one for one in text if one.isalnum() or one == " "]
    return "".join(kept).strip()


def slug(text, separator="-", limit=0):
    """Return a text as it stands in an address.

    Words are joined by the separator; `limit` cuts the result.
    """
    words = _clean(text).lower().split()
    result = separator.join(words)
    if limit > 0:
        result = result[:limit].rstrip(separator)
    return result


def title(text):
    """Return a text with a capital at each word."""
    found = []
    for word in text.split():
        found.append(word[:1].upper() + word[1:])
    return " ".join(found)


@functools.lru_cache(maxsize=None)
def shout(text):
    """Return a text in capitals with as many marks as words."""
    marks = "!" * len(text.split())
    return text.upper() + marks
'''
SPANS = '''"""Durations."""


UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text):
    """Return the seconds of a text such as `1h30m`."""
    total, number = 0, ""
    for one in text:
        if one.isdigit():
            number += one
        elif one in UNITS and number:
            total += int(number) * UNITS[one]
            number = ""
        else:
            raise ValueError(text)
    if number:
        raise ValueError(text)
    return total


class Clock:
    """A clock that is moved by hand."""

    def __init__(self, now=0):
        self.now = now

    def move(self, text):
        """Move the clock and return the new time."""
        if text.startswith("-"):
            self.now -= seconds(text[1:])
        else:
            self.now += seconds(text)
        return self.now
'''
TEST_WORDS = """import subprocess
import sys

import pytest

from tinytext import shout, slug, title


CASES = [("A b", "a-b"), ("Hello, World", "hello-world"), ("x", "x"), ("a b c", "a-b-c")]


@pytest.mark.parametrize("text, wanted", CASES)
def test_slug(text, wanted):
    assert slug(text) == wanted


def test_slug_limit():
    assert slug("one two", limit=4) == "one"


def test_slug_separator():
    assert slug("one two", "_") == "one_two"


def test_title():
    assert title("some words") == "Some Words"


def test_shout():
    assert shout("hey you") == "HEY YOU!!"


def test_shout_again():
    assert shout("hey you").endswith("!!")


def test_in_a_process():
    code = "import tinytext; print(tinytext.title('a b'))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "A B\\n"
"""
TEST_SPANS = """import pytest

from tinytext import spans
from tinytext.spans import Clock


@pytest.fixture(scope="module")
def noon():
    return spans.seconds("12h")


@pytest.mark.parametrize("text, wanted", [("5s", 5), ("1m", 60), ("1h30m", 5400), ("", 0)])
def test_seconds(text, wanted):
    assert spans.seconds(text) == wanted


@pytest.mark.parametrize("text", ["5", "s", "1x"])
def test_seconds_rejects(text):
    with pytest.raises(ValueError):
        spans.seconds(text)


def test_noon(noon):
    assert noon == 43200


def test_noon_is_later(noon):
    assert noon > 1


def test_clock_moves():
    clock = Clock(10)
    assert clock.move("1m") == 70
    assert clock.move("-10s") == 60


def test_units():
    assert spans.UNITS["m"] == 60


def test_other_units():
    assert sorted(spans.UNITS) == ["h", "m", "s"]
"""
LINES = '''"""Lines."""


def wrapped(text, width):
    """Return the lines of a text, none longer than `width` if its words allow it."""
    lines = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
'''
BOXES = '''"""Boxes."""

from .lines import wrapped


def box(text, width=20):
    if width < 1:
        raise ValueError(width)
    lines = wrapped(text, width)
    size = max(map(len, lines), default=0)
    edge = "+" + "-" * size + "+"
    return [edge, *(f"|{line.ljust(size)}|" for line in lines), edge]
'''
TEST_BOXES = """import tinytext.boxes


def test_box():
    assert tinytext.boxes.box("a b") == ["+---+", "|a b|", "+---+"]


def test_narrow_box():
    assert tinytext.boxes.box("a bc", width=2) == ["+--+", "|a |", "|bc|", "+--+"]
"""
PYPROJECT = """[project]
name = "tinytext"
version = "1.2"
license = "MIT"
"""


def write(folder: Path, **files: str) -> Path:
    """Write the package, with further files or other texts of its files by path."""
    texts = {
        "pyproject.toml": PYPROJECT,
        "tinytext/__init__.py": INIT,
        "tinytext/words.py": WORDS,
        "tinytext/spans.py": SPANS,
        "tests/test_words.py": TEST_WORDS,
        "tests/test_spans.py": TEST_SPANS,
        **files,
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
