"""Words that this server signed, in addresses and tokens of requests that bring no login.

A word is a list of values, the time it ends, and a signature. It is valid for one purpose only.
"""

from __future__ import annotations

import hashlib
import hmac

from composer_hub.local_hub.database import Database


def signed(db: Database, purpose: str, *values: object, seconds: int) -> str:
    """Return a word that `read_signed` turns back into these values, none of which has a dot."""
    plain = ".".join(map(str, (*values, int(db.clock()) + seconds)))
    return f"{plain}.{_signature(db, purpose, plain)}"


def read_signed(db: Database, purpose: str, word: str) -> list[str]:
    """Return the values of a word; an empty list if it is not ours, for another purpose, or too old."""
    plain, _, signature = word.rpartition(".")
    if not hmac.compare_digest(signature.encode(), _signature(db, purpose, plain).encode()):
        return []
    *values, until = plain.split(".")
    return values if int(until) >= db.clock() else []


def _signature(db: Database, purpose: str, plain: str) -> str:
    return hmac.new(db.secret.encode(), f"{purpose}/{plain}".encode(), hashlib.sha256).hexdigest()[:32]
