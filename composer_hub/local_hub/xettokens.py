"""Who may reach which chunks: addresses and signed tokens of the chunk store.

A token names a holder, for reading, or a user's area of it, for uploads. An address names the same, and the generation
of an area. The addresses of packs of chunks carry a signature, because clients send no token with them.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import Any

from starlette.responses import Response

from composer_hub.local_hub.calls import ApiError, Call, Hub
from composer_hub.local_hub.store import Store

_VALID_SECONDS = 3600


async def grant(call: Call, holder: str, *, write: bool) -> Response:
    """Answer the address of the chunk store, with a token for a holder or for the caller's area of it."""
    if not call.hub.with_xet:
        raise ApiError(404, "Xet is off on this Hub. Set HF_HUB_DISABLE_XET=1; `composer-hub run` does so.")
    user = call.need_user(write=True).name if write else ""
    path, token, until = await call.in_thread(_granted, call.store, holder, user)
    url = call.url(path)
    headers = {"X-Xet-Cas-Url": url, "X-Xet-Access-Token": token, "X-Xet-Token-Expiration": str(until)}
    return call.json({"casUrl": url, "accessToken": token, "exp": until}, headers=headers)


def area_of(holder: str, user: str) -> str:
    """Return where a user's uploads to a holder go; what one user sends is not known to another."""
    return f"{holder}-{user.encode().hex()}"


def access(hub: Hub, holder: str, user: str) -> dict[str, Any]:
    """Return what hf_xet needs to upload to this store in the name of a user."""
    path, token, until = _granted(hub.store, holder, user)
    return {"endpoint": hub.endpoint + path, "token": token, "token_expiry_unix_secs": until}


def _granted(store: Store, holder: str, user: str) -> tuple[str, str, int]:
    """Return the path, a token and its expiry: for reading what is held, or for a user's uploads."""
    until = int(time.time()) + _VALID_SECONDS
    if not user:
        return _cas_path(store, holder), _token(store, holder, "r", until), until
    area = area_of(holder, user)
    return _cas_path(store, f"{area}.{store.chunks.open_area(area)}"), _token(store, area, "w", until), until


def _cas_path(store: Store, place: str) -> str:
    return f"/_cas/{store.id}/{place}"


def _token(store: Store, scope: str, right: str, until: int) -> str:
    plain = f"{scope}.{right}.{until}"
    return f"{plain}.{_sign(store, plain)}"


def scope_of(call: Call, *, write: bool) -> str:
    """Return the holder or the area of the token that came along, or refuse."""
    token = call.request.headers.get("authorization", "").partition(" ")[2]
    plain, _, signature = token.rpartition(".")
    if not plain or not hmac.compare_digest(signature.encode(), _sign(call.store, plain).encode()):
        raise ApiError(401, "This token is not one of this store.")
    scope, right, until = plain.split(".")
    is_here = call.args["store"] == call.store.id and call.args["scope"].partition(".")[0] == scope
    if int(until) < time.time() or (write and right != "w") or not is_here:
        raise ApiError(401, "This token has expired or does not allow this.")
    return scope


def _sign(store: Store, text: str) -> str:
    return hmac.new(store.secret.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]


def blob_url(store: Store, blob: str) -> str:
    until = str(int(time.time()) + _VALID_SECONDS)
    return f"{_cas_path(store, 'packs')}/{blob}/{until}-{_blob_signature(store, blob, until)}"


def is_signed(store: Store, blob: str, signed: str) -> bool:
    """Say whether this server signed the address of a blob, and its time is not over."""
    until, _, signature = signed.partition("-")
    is_ours = hmac.compare_digest(signature.encode(), _blob_signature(store, blob, until).encode())
    return is_ours and int(until) >= time.time()


def _blob_signature(store: Store, blob: str, until: str) -> str:
    return _sign(store, f"pack/{blob}/{until}")
