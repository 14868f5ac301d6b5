"""Tell a random string from a word, an identifier or a placeholder.

In: one string. Out: a number or a yes/no. The letter-pair table was counted over identifiers and English prose
(Python's own library): each digit is the surprise, in bits, of a letter after another; words average about 2.5,
random letters about 5.
"""

from __future__ import annotations

import functools
import itertools
import re

_SURPRISE = (
    "73337648496232949232556658254525773472663683352788482745267249335616934247896925441467276456358435467869"
    "36335457697342645123755369355532671983662693443777593656165339635345923437797716651676296446259453588859"
    "45344449897331248433759695265415774646652596272749793544154627645444752445596926541568296366259644468949"
    "14651678296446228645478769363224263955653586224479795433755858533143924435469827552674396266248243477949"
    "66657578599256765445057988264416582955452593335579494736256329545533663136685926451573297556358234476848"
    "43453559399332639232889799154605672996554596558868682644256329555325823577668945351476398446528651777548"
    "4545354647733341842365576526660676298557358665679855"
)
_PAIRS = {
    first + second: int(_SURPRISE[26 * i + j])
    for i, first in enumerate("abcdefghijklmnopqrstuvwxyz")
    for j, second in enumerate("abcdefghijklmnopqrstuvwxyz")
}
MIN_SURPRISE = 3.6
"""Bits a letter pair from which letters no longer read as words: few long identifiers are above, most random ones."""

_DUMMY = re.compile(
    r"(?i:example|placeholder|dummy|redacted|masked|changeme|change[_-]me|replace[_-]?(?:me|with|this)|insert[_-])"
    r"|(?i:(?<![a-z])(?:your|my|sample|fake|not[_-]?a|todo|some|the|test|dev|local|default|super)[_-]?"
    r"(?:real|secret|token|pass|key|api|auth|client|access|fake|todo)|(?<![a-z])(?:fake|todo|foobar|your)(?![a-z]))"
    r"|\.\.\.|\u2026|\*\*\*|xxxxx|XXXXX|<[a-z]|\$\{|\{\{|%\(|%s(?![A-Za-z0-9])|\$\(|#\{"
    r"|0123456789|123456789|abcdefgh|deadbeef|qwertyui|aaaaaa|0000000"
)
EXAMPLES = (
    *("4eC39HqLyjWDarjtT1zdp7dc", "TYooMQauvdEDq54NiTphI7jx", "wJalrXUtnFEMI"),
    *("eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9l", "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"),
)
"""Keys and tokens that vendors print in their own documentation."""
_RUNS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@functools.lru_cache(maxsize=8192)
def is_dummy(value: str) -> bool:
    """Tell whether the value is what documentation writes where a secret would stand."""
    return len(set(value)) < min(8 if len(value) >= 24 else 6, (len(value) + 1) // 2) or bool(
        _DUMMY.search(value) or any(example in value for example in EXAMPLES)
    )


def is_hex(value: str) -> bool:
    return bool(_HEX.fullmatch(value))


def is_uuid(value: str) -> bool:
    return bool(_UUID.fullmatch(value))


def surprise(text: str) -> float:
    """Return the mean bits a letter pair, over the pairs of neighbouring letters."""
    lowered = text.lower()
    found = [_PAIRS[pair] for i in range(len(lowered) - 1) if (pair := lowered[i : i + 2]) in _PAIRS]
    return sum(found) / len(found) if found else 0.0


def switches(text: str) -> float:
    """Return the share of neighbours that change between lower case, upper case and digit, separators aside."""
    classes = [1 if c.islower() else 2 if c.isupper() else 3 for c in text if c.isalnum()]
    if len(classes) < 2:
        return 0.0
    return sum(a != b for a, b in itertools.pairwise(classes)) / (len(classes) - 1)


def num_classes(text: str) -> int:
    """Count which of lower case, upper case, digit and other characters occur."""
    return (
        any(c.islower() for c in text)
        + any(c.isupper() for c in text)
        + any(c.isdigit() for c in text)
        + any(not c.isalnum() for c in text)
    )


def is_worded(value: str) -> bool:
    """Tell whether at least half of the letters stand in words of four letters or more, as in `TokenType2`."""
    runs = [run for run in _RUNS.findall(value) if len(run) >= 4 and surprise(run) < 3.8]
    return sum(map(len, runs)) >= 0.5 * sum(c.isalpha() for c in value)


@functools.lru_cache(maxsize=8192)
def looks_random(value: str) -> bool:
    """Tell whether a value of 12 characters or more was made by a machine rather than a person."""
    if len(value) < 12 or is_dummy(value):
        return False
    value = value[:256]
    if is_hex(value):
        return len(set(value)) >= 8 and any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return surprise(value) >= MIN_SURPRISE or (switches(value) >= 0.38 and any(c.isdigit() for c in value))
