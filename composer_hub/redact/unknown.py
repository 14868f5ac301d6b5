"""Tokens of vendors without a rule: a short prefix that someone chose, and random characters behind it.

In: a text and a separator in it. Out: the span of the token. Ids look alike, but are shorter, and their prefix says
what they are ids of.
"""

from __future__ import annotations

import re

from composer_hub.redact.entropy import is_hex, is_worded, looks_random, num_classes, switches

_TAIL = re.compile(r"(?P<rest>[A-Za-z0-9]{24,200})(?![A-Za-z0-9/+=]|\.[a-z][a-z0-9]{1,4}\b)")
_MIN_REST = 28
"""Random characters from which an unknown prefix is a token's; those of ids are shorter, as a rule."""
_PREFIX = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z][A-Za-z0-9]{1,11}(?:[_-][A-Za-z0-9]{1,10}){0,3}\Z")
_NAMED_PREFIX = re.compile(
    r"(?:[a-z]+\d{0,2}|[A-Z][a-z]+\d{0,2}|[A-Z]+\d{0,2}|v\d|[a-z]\d[a-z])(?:[_-](?:[a-z]+\d{0,2}|[A-Z]+\d{0,2}|[A-Z]?[a-z0-9]+))*"
)
"""A prefix that someone chose: what stands before a dash of URL-safe base64 changes its case at random."""
_TELLS = re.compile(
    r"(?i)(?:\A|[_-])(?:live|test|prod|sandbox|sec|secret|s?key|pat|tok|token|priv|auth|api|cred|svc|bot|sk|rk|at|rt"
    r"|(?:api|auth|access|secret)(?:key|token|tok))(?=[_-]|\Z)"
)
_IDS = frozenset(
    [
        "toolu",
        "prj",
        "team",
        "usr",
        "hook",
        "deployment",
        "env",
        "project",
        "store",
        "log",
        "host",
        "version",
        "release",
        "pod",
        "conn",
        "cmp",
        "cursor",
        "etag",
        "key_id",
        "ver",
        "rel",
        "bld",
        "inst",
        "evaluation",
        "dataset",
        "channel",
        "pk",
        "pub",
        "public",
        "nonce",
        "workspace",
        "wrk",
        "msg",
        "req",
        "call",
        "chatcmpl",
        "fc",
        "rs",
        "resp",
        "run",
        "thread",
        "asst",
        "file",
        "cus",
        "evt",
        "pi",
        "in",
        "sub",
        "prod",
        "price",
        "acct",
        "user",
        "org",
        "proj",
        "session",
        "sess",
        "task",
        "item",
        "batch",
        "step",
        "conv",
        "trace",
        "span",
        "node",
        "srvtoolu",
        "cmpl",
        "gen",
        "wf",
        "job",
        "txn",
        "ord",
        "inv",
        "ses",
        "prt",
        "part",
        "agent",
        "chunk",
        "index",
        "assets",
        "main",
        "vendor",
        "bundle",
        "sha",
        "sha1",
        "sha256",
        "sha384",
        "sha512",
        "md5",
        "blake2",
        "blake3",
        "base64",
        "b64",
        "cas",
        "layer",
        "image",
        "commit",
        "rev",
        "hash",
        "digest",
        "checkpoint",
        "ws",
        "ct",
        "ci",
        "rsp",
        "reasoning",
        "mcp",
        "computer",
        "web",
        "exec",
        "cell",
        "turn",
        "event",
        "request",
        "response",
        "message",
        "tool",
        "id",
        "uuid",
        "doc",
        "page",
        "db",
        "vol",
        "snap",
        "eni",
        "subnet",
        "vpc",
        "sg",
        "ami",
        "igw",
        "rtb",
        "lambda",
        "build",
        "dpl",
    ]
)
"""What the prefix of an id says, first or last: ids stay."""


_NODE_IDS = ("kwDO", "kgDO", "lADO", "lAHO", "kwHO", "lQDO")
"""How the ids of a code host's API begin."""
_SPLIT_TAIL = re.compile(r"(?P<rest>[A-Za-z0-9_-]{40,200}(?:\.[A-Za-z0-9_-]{16,200})*)(?![A-Za-z0-9/+=.])", re.ASCII)
"""What URL-safe base64 leaves behind a prefix: dashes and underscores among the random characters."""


def prefixed_token(text: str, at: int) -> tuple[int, int] | None:
    """Return the span of a short prefix and random characters that meet at this separator: a vendor without a rule."""
    tail = _TAIL.match(text, at + 1)
    if not tail:
        tail = _SPLIT_TAIL.match(text, at + 1)
        if not tail or not _all_random(tail["rest"]):
            return None
    begin = max(0, at - 46)
    prefix = _PREFIX.search(text[begin:at])
    return (begin + prefix.start(), tail.end()) if prefix and _is_token(prefix[0], tail["rest"]) else None


def _all_random(rest: str) -> bool:
    """Tell whether upper case, lower case and digits change about as often as chance changes them."""
    return num_classes(rest.replace("_", "").replace("-", "").replace(".", "")) == 3 and switches(rest) >= 0.45


def _is_token(prefix: str, rest: str) -> bool:
    """Tell a vendor's token from an id, a file name or an identifier."""
    parts = prefix.replace("-", "_").lower().split("_")
    if not _NAMED_PREFIX.fullmatch(prefix):
        return False
    if (
        parts[0] in _IDS
        or parts[-1] in _IDS
        or rest.startswith(_NODE_IDS)
        or is_worded(rest)
        or rest.isdigit()
        or rest.isalpha()
        or not looks_random(rest)
    ):
        return False
    if len(rest) < _MIN_REST and not _TELLS.search(prefix):
        return False
    mixed = any(c.islower() for c in rest) and any(c.isupper() for c in rest)
    return mixed or bool(_TELLS.search(prefix)) or (len(rest) >= 32 and not is_hex(rest))
