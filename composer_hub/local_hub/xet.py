"""The part of the Xet protocol that stock hf_xet needs to upload and to download.

Clients send xorbs (packed chunks) and shards (which chunks make which file). Both are checked for their bounds, and the
chunks stay as they came. A commit that names a file unpacks it once to check its sha256. The address names the store
and the holder or the area (see `chunkstore.py`): hf_xet remembers by address which chunks it need not send again.
"""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from composer_hub.local_hub.accounts import User
from composer_hub.local_hub.blobs import WrongContent
from composer_hub.local_hub.calls import ApiError, Call, Route
from composer_hub.local_hub.chunkstore import XetFile
from composer_hub.local_hub.files import parse_range, send_content
from composer_hub.local_hub.repos import check_gate
from composer_hub.local_hub.store import Repo, Store
from composer_hub.local_hub.xettokens import ChunkAddress, area_of, grant, read_address, scope_of
from composer_hub.local_hub.xorbs import Malformed, Pack, merged, parse_shard

XORB_LIMIT = 96 << 20
SHARD_LIMIT = 64 << 20
_HASH = re.compile(r"[0-9a-f]{64}")


async def grant_write(call: Call) -> Response:
    """Return an upload token to a caller who may write or open a pull request."""
    call.need_user(write=True)
    as_proposal = "create_pr" in call.query or call.args["rev"].startswith("refs/pr/")
    return await grant(call, call.repo(write=not as_proposal).scope, write=True)


async def grant_read(call: Call) -> Response:
    """Return a download token to a caller who may read the files, which a gate can restrict."""
    repo = call.repo()
    check_gate(call, repo)
    return await grant(call, repo.scope, write=False)


# ---------------------------------------------------------------------------------------------------- uploads


async def take_xorb(call: Call) -> Response:
    """Stream a xorb to disk and keep it if its chunks fill it exactly."""
    area = scope_of(call, write=True)
    name = call.args["hash"]
    if not _HASH.fullmatch(name):
        raise Malformed("A xorb is named by 64 hexadecimal digits.")
    with call.store.blobs.writer() as writer:
        await call.stream_to(writer, XORB_LIMIT)
        is_new = await call.write(call.store.chunks.add_xorb, area, name, writer)
    return call.json({"was_inserted": is_new})


async def take_shard(call: Call) -> Response:
    """Note the files of a shard; every chunk they name must already be here."""
    area = scope_of(call, write=True)
    body = await call.body(SHARD_LIMIT, from_anyone=True)
    await call.write(lambda: call.store.chunks.add_files(area, list(parse_shard(body))))
    return call.json({"result": 1})


def adopt(store: Store, repo: Repo, user: User, sha256: str) -> None:
    """Give a repository a file that a user sent to it as chunks; slow, so not in the event loop.

    A shard may claim any sha256: only the bytes prove that the sender has them.
    """
    file = store.chunks.find_content(area_of(repo.scope, user.name), sha256)
    if file is None:
        return
    try:
        found = store.chunks.digest(file)
    except (Malformed, FileNotFoundError) as error:
        message = f"The chunks of {sha256} cannot be put together ({error}). Upload the file again, or use LFS."
        raise ApiError(400, message, "LfsObjectMissing") from error
    if found != sha256:
        raise WrongContent(
            f"The chunks make {file.size} bytes with sha256 {found}, but sha256 {sha256} was announced. "
            "Upload the file again; if it is still being written, wait until it is complete."
        )
    store.add_chunked(repo, file)


# ---------------------------------------------------------------------------------------------------- downloads


async def show_reconstruction(call: Call) -> Response:
    """Return the chunks of a file, or of a range of it, and where to get them."""
    scope = scope_of(call, write=False)
    file = call.store.chunks.find(scope, call.args["hash"])
    if file is None:
        raise ApiError(404, "No such file in this store.")
    start, stop = parse_range(call.request.headers.get("range", ""), file.size) or (0, file.size)
    return call.json(await call.in_thread(_reconstruction, call, file, start, stop))


def _reconstruction(call: Call, file: XetFile, start: int, stop: int) -> dict[str, Any]:
    """Cut each term to the chunks that the range touches: hf_xet unpacks a term, of up to 64 MiB, as one piece."""
    store = call.store
    packs: dict[int, Pack] = {}
    terms, position, skip = [], 0, None
    wanted: dict[int, list[tuple[int, int]]] = {}
    for place, length, first, last in file.terms:
        if position + length > start and position < stop:
            pack = packs[place] = packs.get(place) or store.chunks.pack(store.read(), file.packs[place][1])
            before, low, high = pack.trimmed(first, last, start - position, stop - position)
            skip = start - position - before if skip is None else skip
            size = sum(pack.lengths[low:high])
            span = {"start": low, "end": high}
            terms.append({"hash": file.packs[place][0], "unpacked_length": size, "range": span})
            wanted.setdefault(place, []).append((low, high))
        position += length
    places: dict[str, list[dict[str, Any]]] = {}
    for place, spans in wanted.items():
        xorb, blob = file.packs[place]
        for low, high in merged(spans):
            address = ChunkAddress(file.scope, file.hash, blob, packs[place].offsets[low], packs[place].offsets[high])
            places.setdefault(xorb, []).append(
                {
                    "range": {"start": low, "end": high},
                    "url": call.url(address.path(store)),
                    "url_range": {"start": address.start, "end": address.stop - 1},
                }
            )
    return {"offset_into_first_range": skip or 0, "terms": terms, "fetch_info": places}


async def send_chunks(call: Call) -> Response:
    """Send packed chunks; the address is signed, as the protocol sends no token with it.

    The rest of the pack may be of files that the holder of the address must not read.
    """
    address = read_address(call.store, call.args["signed"])
    path = call.store.blobs.path(address.blob)
    return await send_content(call, path, None, {}, within=(address.start, address.stop))


async def not_offered(call: Call) -> Response:
    """Answer 404 for the optional rest of the protocol: clients then go the way that is offered."""
    raise ApiError(404, "Not offered by this store.")


ROUTES = (
    Route("GET", "/api/{kinds}/{ns}/{name}/xet-write-token/{rev}", grant_write),
    Route("GET", "/api/{kinds}/{ns}/{name}/xet-read-token/{rev}", grant_read),
    Route("POST", "/_cas/{store}/{scope}/v1/xorbs/default/{hash}", take_xorb, own_auth=True),
    Route("POST", "/_cas/{store}/{scope}/v1/shards", take_shard, own_auth=True),
    Route("GET", "/_cas/{store}/{scope}/v1/reconstructions/{hash}", show_reconstruction, own_auth=True),
    Route("GET", "/_cas/{store}/chunks/{signed}", send_chunks, own_auth=True),
    Route("GET", "/_cas/{path...}", not_offered, own_auth=True),
    Route("POST", "/_cas/{path...}", not_offered, own_auth=True),
)
