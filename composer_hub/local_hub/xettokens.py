"""Access to chunks: addresses and signed tokens of the chunk store.

A token names a holder, for reading, or a user's area of it, for uploads. An address names the same, and the generation
of an area. Clients send no token with the addresses of packed chunks, so these are signed, each for chunks of one file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from composer_hub.local_hub.calls import ApiError, Call, Hub
from composer_hub.local_hub.signing import read_signed, signed
from composer_hub.local_hub.store import Store

_VALID_SECONDS = 3600


async def grant(call: Call, holder: str, *, write: bool) -> Response:
    """Answer the address of the chunk store, with a token for a holder or for the caller's area of it."""
    if not call.hub.with_xet:
        raise ApiError(404, "Xet is off on this Hub. Set HF_HUB_DISABLE_XET=1; `composer-hub run` does so.")
    user = call.need_user(write=True).name if write else ""
    in_thread = call.write if write else call.in_thread
    path, token, until = await in_thread(_granted, call.store, holder, user)
    url = call.url(path)
    headers = {"X-Xet-Cas-Url": url, "X-Xet-Access-Token": token, "X-Xet-Token-Expiration": str(until)}
    return call.json({"casUrl": url, "accessToken": token, "exp": until}, headers=headers)


def area_of(holder: str, user: str) -> str:
    """Return the area of a user's uploads to a holder; uploads of one user are not known to another."""
    return f"{holder}-{user.encode().hex()}"


def access(hub: Hub, holder: str, user: str) -> dict[str, Any]:
    """Return the values that hf_xet needs to upload to this store in the name of a user."""
    path, token, until = _granted(hub.store, holder, user)
    return {"endpoint": hub.endpoint + path, "token": token, "token_expiry_unix_secs": until}


def _granted(store: Store, holder: str, user: str) -> tuple[str, str, int]:
    """Return the path, a token and its expiry: for reading what is held, or for a user's uploads."""
    scope = place = holder
    if user:
        scope = area_of(holder, user)
        place = f"{scope}.{store.chunks.open_area(scope)}"
    token = signed(store, "store", scope, "w" if user else "r", seconds=_VALID_SECONDS)
    return _cas_path(store, place), token, int(store.clock()) + _VALID_SECONDS


def _cas_path(store: Store, place: str) -> str:
    return f"/_cas/{store.id}/{place}"


def scope_of(call: Call, *, write: bool) -> str:
    """Return the holder or the area of the token that came along, or refuse."""
    token = call.request.headers.get("authorization", "").partition(" ")[2]
    scope, right = read_signed(call.store, "store", token) or ("", "")
    is_here = call.args["store"] == call.store.id and call.args["scope"].partition(".")[0] == scope
    if not scope or not is_here or (write and right != "w"):
        raise ApiError(401, "This token is not one of this store, has expired or does not allow this.")
    return scope


@dataclass(frozen=True, slots=True)
class ChunkAddress:
    """The bytes from `start` to `stop` of a pack, which are chunks of one file of a holder or an area."""

    scope: str
    file: str
    blob: str
    start: int
    stop: int

    def path(self, store: Store) -> str:
        values = (self.scope, self.file, self.blob, self.start, self.stop)
        return f"{_cas_path(store, 'chunks')}/{signed(store, 'chunks', *values, seconds=_VALID_SECONDS)}"


def read_address(store: Store, word: str) -> ChunkAddress:
    """Return the chunks that an address names, while its file exists and its pack was not packed again."""
    if words := read_signed(store, "chunks", word):
        scope, name, blob, start, stop = words
        file = store.chunks.find(scope, name)
        if file is not None and any(blob == one for _, one in file.packs):
            return ChunkAddress(scope, name, blob, int(start), int(stop))
    # Clients ask for the chunks of the file again after a 403.
    raise ApiError(403, "This address is not valid any more.")
