"""Which names promise a secret, and how much.

In: a name, or a word of a name and what stands around it. Out: `password`, `token` or `key`, or nothing: an id, a
count, a page's token or a public key promises none.
"""

from __future__ import annotations

import re

STEMS = (
    (
        "password",
        (
            "passw",
            "passphrase",
            "requirepass",
            "masterauth",
            "storepass",
            "keypass",
            "mnemonic",
            "seed_phrase",
            "seed phrase",
            "recovery phrase",
            "pwd",
            "_pass",
            "-pass",
            "pass=",
            "pass:",
            'pass"',
            "pass'",
            "_pw",
            "rootpw",
            "bindpw",
            "pw=",
            "pw:",
            'pw"',
            "pw'",
            "psk",
            "identified by",
            "securestring",
        ),
    ),
    (
        "token",
        (
            "secret",
            "token",
            "credential",
            "_auth",
            "-auth",
            "privkey",
            "wif:",
            "wif=",
            "wif ",
            "wif)",
            'wif"',
            "subscription-key",
            "jsessionid",
            "phpsessid",
            "asp.net_sessionid",
            "connect.sid",
            "code_verifier",
            "device_code",
            "auth_code",
            "client_assertion",
            "bearer",
            "jwt",
            "_pat",
            "_dsn",
            "signature=",
            "salt",
            "pepper",
            "webhook",
            "otp",
            "_sas",
            "hmac",
        ),
    ),
    ("key", ("key",)),
)
"""How much a word in a name promises: what stands under `password` needs less proof than what stands under `key`."""


def _trigger(stem: str) -> str:
    stem = stem.replace("-", "_")
    return "pass" if "pass" in stem else re.split(r"[ =:.)\"']", stem)[0]


_SECRET_KEY = re.compile(
    r"(?:api|access|auth|private|account|encryption|signing|master|license|service|client|storage"
    r"|shared|admin|deploy|app|consumer|session|subscription|functions|license|webhook|hmac|jwt|bot|"
    r"crypt\w*|secret|rpc)[_\- ]?\Z"
)

# What may stand between the word of the name and the end of the name, and ends the thought that it holds a secret.
_HARMLESS = re.compile(
    r"(?i)[_\-.]?(?:s?[_\-.]?(?:id|ids|name|names|count|counts|type|types|url|uri|path|file|filename"
    r"|field|length|len|size|limit|limits|expir\w*|ttl|ref|label|mgr|"
    r"regex|pattern|policy|hint|reset|manager|store|provider|service|version|versions|arn|format"
    r"|prefix|suffix|env|var|placeholder|title|text|"
    r"usage|budget|price|cost|rate|kind|status|state|method|endpoint|header|class|error|message|help"
    r"|description|required|min|max|"
    r"algorithm|alg|hashing|hashed|hasher|encrypt\w*|rotation|mount|mounts|sha|sha256|sha1|md5|hash|digest|checksum|fingerprint|at|by"
    r"|scan\w*|detect\w*|index|idx|pos|offset))(?![a-z])"
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
    r"|claim|forward|backward|marker|skip|delta|pagination)[_\-. ]?\Z"
)
NAME_TRIGGERS = {stem: _trigger(stem) for _, stems in STEMS for stem in stems}
"""The word by which a text that may hold a stem is told, for each stem."""


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def secret_name(name: str) -> str:
    """Return how much a name promises (`password`, `token`, `key`), or nothing."""
    lowered = name.lower() + "="
    for strength, stems in STEMS:
        for stem in stems:
            at = lowered.find(stem)
            if at >= 0 and not is_harmless(name[:at], name[at + len(stem) :], strength):
                return strength_of(strength, lowered, at)
    return ""


def strength_of(strength: str, lowered: str, at: int) -> str:
    """Return how much the name promises; an `api_key` says more than a `key`."""
    return "token" if strength == "key" and _SECRET_KEY.search(lowered[max(0, at - 12) : at]) else strength


def is_harmless(before: str, after: str, strength: str) -> bool:
    """Tell whether what stands around the word of a name takes its promise back."""
    public = {"key": _PUBLIC_KEY, "token": _PUBLIC_TOKEN}.get(strength)
    return bool(_HARMLESS.match(after)) or bool(public and public.search(_CAMEL.sub("_", before[-24:])))
