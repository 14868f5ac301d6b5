"""The notations of values that are not secrets: paths, routes, code, versions, ids, digests.

Out: `KINDS`, rows that `judge.what_is` tries. A name, a header or a sentence announces that something is
private. The value itself shows whether it is something else, so that is decided once, for every finder.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Kind(NamedTuple):
    """A notation that shows what a value is."""

    name: str
    pattern: re.Pattern[str]  # of the whole value
    is_worded: bool = False  # only if nothing in the value is random


def _kind(name: str, written: str, *, is_worded: bool = False) -> Kind:
    return Kind(name, re.compile(written, re.VERBOSE), is_worded)


KINDS = (
    _kind(
        "digest",
        r"""
          (?:SHA256|SHA512|MD5|sha\d{3}|h1)[:-].*         # sha256-4f9d…, h1:…
        | [A-Za-z][\w.]*(?:-[\w.]+)+-[0-9a-f]{32,64}      # Linux-node-4f9d…: the key of a cache
        | (?:[0-9A-Fa-f]{2}:){7,}[0-9A-Fa-f]{2}           # 4f:9d:…: a fingerprint
        """,
    ),
    _kind(
        "public key",
        r"""
          age1[a-z0-9]{58} | ssh-(?:rsa|ed25519)\b.* | AAAA[BCE][0-9]?N?z.*
        | 0x[0-9a-fA-F]{40} | 0x[0-9a-fA-F]{1,16}         # an account of a chain, a number
        """,
    ),
    _kind(
        "id",
        r"""
          (?i:[a-z]{2,12}[_-][0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})
        | [A-Z]{2,10}-\d{1,6}                             # ABC-123: an issue
        | [A-Z]{1,6}_(?:kw|kg|lA|lQ)[A-Z][\w-]{8,}        # DC_kwDONvxy6M4: a node of a code host
        """,
    ),
    _kind(
        "quantity",
        r"""
          [~<>]?\d[\d.,]*(?:[kKMGT]?i?[Bb]?|[mnµμu]?s?|min|h|%|px|x|/\w{1,6})
        | \d{1,5}\ [A-Za-z]{2,}                           # 12 files
        | \d{4}-\d\d-\d\d(?:[T ].*)?                      # a date
        | \#[0-9a-fA-F]{3,8};?                            # a color
        | (?:\x1b|\\e|\\033|\\x1b|\\u001b)?\[\d[\d;]*m.*  # the code of a color in a terminal
        """,
    ),
    _kind(
        "version",
        r"""
          [\^~<>=]{1,2}\d.* | v?\d+(?:\.\d+)+@[0-9a-f]{7,40}             # ^1.7.0-rc.5, v2.2.1@29824e6
        | v?\d+(?:\.\d+)+(?:-[a-z][\w.]*)?\** | v?\d+\.\d+\.\d+(?:[-+][\w.+-]*)? | HTTP/\d.*
        | [a-z][\w.]*-v?\d+\.\d+(?:\.\d+)* | [A-Za-z][A-Za-z_-]*[-_/.:]v\d{1,2}
        """,
    ),
    _kind(
        "address",
        r"""
          [\w.-]{2,40}@[\w-]+(?:\.[\w-]+)+ | (?:[a-z0-9-]+\.){1,5}(?:com|org|net|io|dev|app|ai) | ip=[\d.]+
        """,
    ),
    _kind(
        "path",
        r"""
          (?:[\w.-]+/)+[\w.-]+\.[a-z][a-z0-9]{1,4} | (?:[\w.-]+/)+\.\w{2,12} | (?:[a-z][\w.-]*/){3,}[\w.-]*
        | [\w-]+\.(?:png|jpe?g|svg|pdf|js|css|html|md|py|json|ya?ml|pem|pub|crt)
        | [a-z][\w-]*\.(?:sh|[jt]sx?|go|rs|rb|java|kt|sql|toml|txt|log|ini|cfg|conf|xml|csv|zip|gz)
        | [A-Za-z]:[/\\].* | \d{2,5}/[\w/-]* | [A-Z]?[a-z]+(?:/[A-Z]?[a-z]+)+
        """,
    ),
    _kind(
        "path of a project",
        r"""
          (?:\.{0,2}/)?(?:[\w.@$*~()\[\]-]+/)+[\w.@$*~()\[\]-]*\.[a-z][a-z0-9]{1,4}   # src/routes/invite.$token.tsx
        | ~/[\w./-]+ | node_modules/.* | (?:[\w.@-]+/)+\*{1,2}(?:/.*)?               # better-auth@*/dist
        """,
        is_worded=True,
    ),
    _kind(
        "route",
        r"""
          (?:(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS)\s+)?          # POST /v1/auth
          (?:/:?[a-z][a-z0-9_-]{1,30} | /\{\w+\} | /\*)+ /? (?:\?.*)?  # /change-email, /users/:id
        """,
        is_worded=True,
    ),
    _kind(
        "flag",
        r"""
          -{1,2}[A-Za-z][a-zA-Z-]*
        | (?:(?:Ctrl|Control|Shift|Alt|Cmd|Command|Meta|Option|Super|Win)\+)+\w{1,10}
        """,
    ),
    _kind(
        "assignment",
        r"[A-Z][A-Z0-9_]{2,}=.* | \w+=.*_\w+ | [aOs]:\d+:.*",  # the last is serialized PHP
    ),
    _kind(
        "attribute",  # of an element: minLength={8, eyebrow=, data-test={…
        r"[A-Za-z][A-Za-z_:-]*=(?:\{.*)?",
        is_worded=True,
    ),
    _kind(
        "type",
        r"""
          \[[\w.\"-]+\] | (?:Uint|Int|Float|Big)\w*Array[,;]? | \(\w{1,12} | (?:a11y|i18n|l10n)\w+
        | [A-Z][A-Za-z]*<[\w,<>\[\]|]*>?[;,)]*                           # Fn<Options>;
        """,
    ),
    _kind(
        "expression",
        r"""
          !{1,2}(?=\w*[A-Z.?])[a-z]+(?:[A-Z][a-z]+)*(?:\??\.[a-z]\w*)*\(?\)?[;,)]*  # !hasActiveMapping, !user.isActive)
        | [)}\]]{1,4}[.,;][a-z]*\(?                                      # }).optional(
        | [{(\[]{1,2}\s*[a-z][A-Za-z]*[,})\]]* | \.{3}[a-z]\w*                   # {error, ...rest
        """,
        is_worded=True,
    ),
    _kind(
        "markup",
        r"[A-Za-z]+\*{1,2} | [A-Za-z]+\]\(.* | .*</[A-Za-z][\w:-]*>?",  # Hashing**, Reset](#link), today</date
        is_worded=True,
    ),
    _kind(
        "pattern",
        r"""  # 605|and, from_pkcs1_pem|fn, but not aB3|xY9. No text is read in two ways, so time stays linear.
          (?: [\^(?:]{0,4} (?:[A-Za-z_][a-z_]+(?:\d{1,2}[a-z_]*)? | \d+ | \.\* | \\[bwds] | \u2026) [)$*+?]{0,3}\| )+
          [\^(]{0,2} \w* [)$*+?]{0,3}
        """,
        is_worded=True,
    ),
    _kind(
        "algorithm",  # pbkdf2-sha256, aes_256_gcm
        r"""(?i:(?:(?:
            pbkdf2 | sha\d? | aes | hmac | rsa | dsa | ecdsa | eddsa | ed25519 | x25519 | argon2\w{0,2} | bcrypt
          | scrypt | [hrpe]s\d{3} | gcm | cbc | ctr | base\d\d | utf | md5 | blake\w{1,2} | chacha20 | poly1305 | oaep
          | pkcs\d? | with | encoded | oauth\d? | tls | p | secp\w{5} | \d{1,4}
          )[-_/\ ]?){1,7})""",
    ),
)
"""Notations of ordinary values, whatever name they have. Each is tried on the whole value."""
