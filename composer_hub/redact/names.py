"""Which names promise a secret, and how much.

In: a name, or the surroundings of a stem in a text. Out: the stem and its strength (`password`, `token` or `key`), or
nothing: an id, a count, a page token or a public key promises nothing.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from composer_hub.redact.data import words
from composer_hub.redact.needles import trie


class Stem(NamedTuple):
    """A part of a name that promises a secret."""

    word: str
    strength: str  # a value under `password` needs less proof than one under `key`
    trigger: str  # the word without which a text cannot contain the stem
    opens: bool  # the part may begin before the stem: `dbpassword`
    continues: bool  # the part may continue after the stem: `passwords`


def _stem(written: str, strength: str) -> Stem:
    word = written.strip("*")
    plain = word.replace("-", "_")
    trigger = "pass" if "pass" in plain else re.split(r"[ =:.)\"']", plain)[0]
    return Stem(word, strength, trigger, written[0] == "*", written[-1] == "*")


STEMS = tuple(
    _stem(written, strength) for strength in ("password", "token", "key") for written in words(f"names of {strength}s")
)
NAME_TRIGGERS = tuple({stem.trigger for stem in STEMS})
_ANY_STEM = re.compile(trie(stem.word for stem in STEMS))

_PASSWORD_NOUNS = frozenset(words("nouns for secrets")) - frozenset(words("nouns for tokens"))
_MAY_PROMISE = re.compile(trie({*NAME_TRIGGERS, *(noun[:4] for noun in words("nouns for secrets"))}))
_SECRET_KEY = re.compile(
    r"(?:api|access|auth|private|account|encryption|signing|master|license|service|client|storage"
    r"|shared|admin|deploy|app|consumer|session|subscription|functions|license|webhook|hmac|jwt|bot|"
    r"crypt\w*|secret|rpc)[_\- ]?\Z"
)

# Endings that cancel the promise of the stem before them.
_HARMLESS = re.compile(
    r"(?i)[_\-.]?(?:s?[_\-.]?(?:id|ids|name|names|count|counts|type|types|url|uri|path|file|filename"
    r"|field|length|len|size|limit|limits|expir\w*|ttl|ref|label|mgr|"
    r"regex|pattern|policy|hint|reset|manager|store|provider|service|version|versions|arn|format"
    r"|prefix|suffix|env|var|placeholder|title|text|"
    r"usage|budget|price|cost|rate|kind|status|state|method|endpoint|header|class|error|message|help"
    r"|description|required|min|max|"
    r"algorithm|alg|hashing|hashed|hasher|encrypt\w*|rotation|mount|mounts|sha|sha256|sha1|md5|hash|digest|checksum|fingerprint|at|by"
    r"|accessor|scan\w*|detect\w*|index|idx|pos|offset))(?![a-z])"
    r"|(?i:iz|is)[a-z]+|s_|_used"
)
_PUBLIC_KEY = re.compile(
    r"(?i)(?<![a-z])(?:public|primary|foreign|cache|sort|partition|idempotency|dedup\w*|publishable"
    r"|hot|short|arrow|row|col\w*|group|map|"
    r"dict|json|object|index|unique|translation|i18n|query|state|storage|config|bucket|routing|shard"
    r"|lookup|composite|react|message|event|"
    r"page|next|previous|start|pad|eos|bos|unk|mask|sep|cls|special|stop|max|num|min|total|prompt"
    r"|completion|input|output|cached|reasoning|"
    r"tokens?_per|known|authorized|item|field|column|metric|label|tag"
    r"|site|file|s3|doc\w*|node|path|asset|media|image|upload|issue|project|continuation|resume|sync|cursor|cancel\w*|syntax"
    r"|lex\w*|parse\w*|chunk|block|tree|hash|range|rsa|dsa|gpg|pgp|pub|recv|verify\w*|verification|redis)[_\-. ]?\Z"
    r"|public[_\-. ]?\Z"
)
_PUBLIC_TOKEN = re.compile(
    r"(?i)(?<![a-z])(?:public|publishable|idempotency|dedup\w*|max|num|min|total|prompt|completion|input|output|cached"
    r"|reasoning|tokens?_per|next|page|previous|continuation|resume|sync|cursor|cancel\w*|pad|eos|bos|unk|mask|sep|cls"
    r"|special|stop|start|syntax|lex\w*|parse\w*|chunk|known|sequence|lock|change|upload|scroll|clientrequest|client_request"
    r"|claim|public_?key|forward|backward|marker|skip|delta|pagination)[_\-. ]?\Z"
)
_ONE_PASSWORD = re.compile(r"(?<![A-Za-z0-9])1\Z")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@functools.lru_cache(maxsize=8192)
def promise_of(name: str) -> tuple[str, str]:
    """Return how much a name promises (`password`, `token`, `key`, or nothing) and the stem that promises it."""
    closed = name + "="
    lowered = closed.lower()
    for stem in STEMS if _ANY_STEM.search(lowered) else ():
        at = lowered.find(stem.word)
        if at >= 0 and is_whole(closed, at, stem):
            after = closed[at + len(stem.word) :]
            if not is_harmless(closed[:at], after.removesuffix("="), stem.strength):
                return strength_at(stem.strength, lowered, at), stem.word
    return "", ""


_PART = re.compile(r"[A-Za-z][\w.:-]{1,60}")
_NOUNS = re.compile(rf"(?<![^\W\d_]){trie(words('nouns for secrets'))}")


def promise_in(text: str) -> tuple[str, str]:
    """Return how much a phrase, a command or a path promises, and the stem or noun that promises it."""
    if not _MAY_PROMISE.search(text.lower()):
        return "", ""
    for part in _PART.findall(text):
        strength, stem = promise_of(part.strip(".:-"))
        if strength and part != "pwd" and strength != "key":
            return strength, stem
    for noun in _NOUNS.finditer(text.lower()):
        if noun[0] != "pwd" and not is_harmless(
            text[max(0, noun.start() - 24) : noun.start()], text[noun.end() : noun.end() + 24], "token"
        ):
            return "password" if noun[0] in _PASSWORD_NOUNS else "token", noun[0]
    return "", ""


def is_whole(text: str, at: int, stem: Stem) -> bool:
    """Return whether the stem is whole parts of a name, unlike `_pat` in `_path` and `key` in `keyboard`."""
    after = at + len(stem.word)
    if (
        not stem.continues
        and "\u3040" <= text[after - 1] <= "\ud7af"
        and "\u4e00" <= text[after : after + 1] <= "\u9fff"
    ):
        return text[after] in "是为為"
    return (stem.continues or not _same_part(text[after - 1 : after], text[after : after + 2])) and (
        stem.opens or not _same_part(text[at - 1 : at], text[at : at + 1])
    )


def _same_part(last: str, following: str) -> bool:
    """Return whether a part of a name continues from one letter to the next, not counting a plural s."""
    if not last.isalpha() or not following[:1].isalpha():
        return False
    if following[0] in "sS" and not following[1:].isalpha():
        return False
    return following[0].islower() or last.isupper()


def strength_at(strength: str, lowered: str, at: int) -> str:
    """Return how much the name promises; an `api_key` promises more than a `key`."""
    return "token" if strength == "key" and _SECRET_KEY.search(lowered[max(0, at - 12) : at]) else strength


def is_harmless(before: str, after: str, strength: str) -> bool:
    """Return whether the text around a stem cancels its promise."""
    return takes_back(after) or is_public(before, strength)


def takes_back(after: str) -> bool:
    """Return whether the text after a stem cancels its promise: an id, a count, a policy."""
    return bool(_HARMLESS.match(after))


def is_public(before: str, strength: str) -> bool:
    """Return whether the text before a stem makes it a public key, or a token of a page, parser or model."""
    public = {"key": _PUBLIC_KEY, "token": _PUBLIC_TOKEN}.get(strength)
    if strength == "password" and _ONE_PASSWORD.search(before):
        return True
    return bool(public and public.search(_CAMEL.sub("_", before[-24:])))
