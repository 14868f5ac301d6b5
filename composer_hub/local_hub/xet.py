"""The part of the Xet protocol that stock hf_xet needs to upload, and to read back what it uploaded.

Clients send xorbs (packed chunks) and shards (which chunks make which file). Both are checked for their bounds, xorbs
lie on disk as they came, and a commit that names a file turns it into a plain blob: hf_xet itself is the decoder, and
the sha256 is checked. Downloads of repositories are plain HTTP. The address holds the store's id, because hf_xet
remembers by address which chunks it need not send again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from starlette.responses import Response

from composer_hub.local_hub.calls import ApiError, Call, Hub, Route
from composer_hub.local_hub.files import parse_range, send_content
from composer_hub.local_hub.repos import check_gate
from composer_hub.local_hub.store import Repo, Store

SCHEMA = """
create table if not exists xorbs(hash text primary key, offsets text not null, lengths text not null) without rowid;
-- The terms belong to whoever sent them: nothing here can check that a file has the hash that its sender gives it.
create table if not exists xet_held(
    scope text, hash text, sha256 text not null, size integer not null, terms text not null,
    primary key(scope, hash)) without rowid;
create index if not exists xet_by_sha256 on xet_held(scope, sha256);
create trigger if not exists xet_goes_with_repo after delete on repos begin
    delete from xet_held where scope = 'repo-' || old.id;
end;
create trigger if not exists xet_goes_with_lfs after delete on lfs begin
    delete from xet_held where scope = 'repo-' || old.repo and sha256 = old.sha256;
end;
"""
XORB_LIMIT = 96 << 20
SHARD_LIMIT = 64 << 20
_VALID_SECONDS = 3600
_HASH = re.compile(r"[0-9a-f]{64}")
_RECORD = 48
_END = b"\xff" * 32
_HAS_VERIFICATION, _HAS_METADATA = 0x80000000, 0x40000000
_MIN_CHUNK_HEADER = 8
Term = tuple[str, int, int, int]
"""(xorb, unpacked length, first chunk, chunk after the last)"""


class Malformed(ApiError):
    """A xorb or a shard that does not hold what its own numbers say."""

    def __init__(self, message: str) -> None:
        super().__init__(400, message, "BadRequest")


# ---------------------------------------------------------------------------------------------------- tokens


async def grant_write(call: Call) -> Response:
    """Return an upload token to a caller who may write or open a pull request."""
    call.need_user(write=True)
    as_proposal = "create_pr" in call.query or call.args["rev"].startswith("refs/pr/")
    return grant(call, scope_of(call.repo(write=not as_proposal)), write=True)


async def grant_read(call: Call) -> Response:
    repo = call.repo()
    check_gate(call, repo)
    return grant(call, scope_of(repo), write=False)


def grant(call: Call, scope: str, *, write: bool) -> Response:
    """Answer the address of the chunk store, with a token for one scope (a repository or a bucket)."""
    if not call.hub.with_xet:
        raise ApiError(404, "Xet is off on this Hub. Set HF_HUB_DISABLE_XET=1; `composer-hub run` does so.")
    until = int(time.time()) + _VALID_SECONDS
    token, url = _token(call.store, scope, write, until), call.url(f"/_cas/{call.store.id}")
    headers = {"X-Xet-Cas-Url": url, "X-Xet-Access-Token": token, "X-Xet-Token-Expiration": str(until)}
    return call.json({"casUrl": url, "accessToken": token, "exp": until}, headers=headers)


def scope_of(repo: Repo) -> str:
    """Return the scope of a repository's uploads; the hash of a file gives no access from another scope."""
    return f"repo-{repo.id}"


# ---------------------------------------------------------------------------------------------------- uploads


async def take_xorb(call: Call) -> Response:
    """Stream a xorb to disk and keep it if its chunks fill it exactly."""
    _scope(call, write=True)
    name = call.args["hash"]
    if not _HASH.fullmatch(name):
        raise Malformed("A xorb is named by 64 hexadecimal digits.")
    path = _xorb_path(call.store, name)
    with call.store.blobs.writer() as writer:
        async for part in call.request.stream():
            if writer.size + len(part) > XORB_LIMIT:
                raise ApiError(413, f"A xorb may hold at most {XORB_LIMIT} bytes.", "PayloadTooLarge")
            writer.write(part)
        offsets, lengths = await call.in_thread(_chunks_of, writer.name)
        # The first one stays: others' files are made of it, and the name of a xorb cannot be checked here.
        is_new = not _has_xorb(call.store, name)
        if is_new:
            await call.in_thread(writer.keep_at, path)
            with call.store.write() as db:
                row = (name, json.dumps(offsets), json.dumps(lengths))
                db.execute("insert or replace into xorbs values(?,?,?)", row)
    return call.json({"was_inserted": is_new})


async def take_shard(call: Call) -> Response:
    """Note the files of a shard; every chunk they name must already be here."""
    scope = _scope(call, write=True)
    body = await call.body(SHARD_LIMIT)
    with call.store.write() as db:
        for name, sha256, terms in parse_shard(body):
            for xorb, length, first, stop in terms:
                _check_term(call.store, xorb, length, first, stop)
            size = sum(length for _, length, _, _ in terms)
            row = (scope, name, sha256, size, json.dumps(terms))
            db.execute("insert or replace into xet_held values(?,?,?,?,?)", row)
    return call.json({"result": 1})


def parse_shard(body: bytes) -> Iterator[tuple[str, str, list[Term]]]:
    """Yield (hash, sha256, terms) of every file in a shard."""
    at = _RECORD
    while (record := _record(body, at))[:32] != _END:
        name, (flags, num_terms) = _hex(record), struct.unpack_from("<II", record, 32)
        at += _RECORD
        if num_terms > (len(body) - at) // _RECORD:
            raise Malformed("A file of the shard has more terms than the shard has bytes.")
        terms = []
        for i in range(num_terms):
            term = _record(body, at + i * _RECORD)
            _, length, first, stop = struct.unpack_from("<4I", term, 32)
            terms.append((_hex(term), length, first, stop))
        at += num_terms * _RECORD * (2 if flags & _HAS_VERIFICATION else 1)
        sha256 = ""
        if flags & _HAS_METADATA:
            sha256 = _hex(_record(body, at))
            at += _RECORD
        yield name, sha256, terms


def chunks(file: BinaryIO, size: int) -> Iterator[tuple[int, int]]:
    """Yield (offset after it, unpacked length) of every chunk of a xorb."""
    at = 0
    while at < size:
        file.seek(at)
        head = file.read(_MIN_CHUNK_HEADER)
        if head.startswith(b"XETBLOB"):
            return
        packed, unpacked = int.from_bytes(head[1:4], "little"), int.from_bytes(head[5:8], "little")
        at += _MIN_CHUNK_HEADER + packed
        if len(head) < _MIN_CHUNK_HEADER or at > size or not packed:
            raise Malformed("A chunk of the xorb reaches beyond its end.")
        yield at, unpacked


def _chunks_of(name: str) -> tuple[list[int], list[int]]:
    with open(name, "rb") as file:
        found = list(chunks(file, os.path.getsize(name)))
    if not found:
        raise Malformed("The xorb holds no chunk.")
    return [0, *(offset for offset, _ in found)], [length for _, length in found]


def _has_xorb(store: Store, name: str) -> bool:
    row = store.current().execute("select 1 from xorbs where hash=?", (name,)).fetchone()
    return row is not None and _xorb_path(store, name).exists()


def _check_term(store: Store, xorb: str, length: int, first: int, stop: int) -> None:
    row = store.current().execute("select lengths from xorbs where hash=?", (xorb,)).fetchone()
    if row is None or not _xorb_path(store, xorb).exists():
        raise Malformed(f"The shard names the xorb {xorb}, which is not here. Upload it first.")
    lengths = json.loads(row[0])
    if not first < stop <= len(lengths) or sum(lengths[first:stop]) != length:
        raise Malformed(f"The shard names chunks {first} to {stop} of xorb {xorb}, which are not there.")


# ---------------------------------------------------------------------------------------------------- downloads


async def show_reconstruction(call: Call) -> Response:
    """Say of which chunks a file, or a range of it, is made, and where to get them."""
    scope = _scope(call, write=False)
    found = file_of(call.store, call.args["hash"], scope)
    if found is None:
        raise ApiError(404, "No such file in this store.")
    size, terms = found
    start, stop = _asked(call, size)
    parts, position, skip = [], 0, None
    wanted: dict[str, list[tuple[int, int]]] = {}
    for term in terms:
        if position + term[1] > start and position < stop:
            before, (xorb, length, first, last) = _trimmed(call.store, term, start - position, stop - position)
            skip = start - position - before if skip is None else skip
            parts.append({"hash": xorb, "unpacked_length": length, "range": {"start": first, "end": last}})
            wanted.setdefault(xorb, []).append((first, last))
        position += term[1]
    places = {xorb: [_place(call, xorb, span) for span in merged(spans)] for xorb, spans in wanted.items()}
    return call.json({"offset_into_first_range": skip or 0, "terms": parts, "fetch_info": places})


def _trimmed(store: Store, term: Term, start: int, stop: int) -> tuple[int, Term]:
    """Cut a term to the chunks that a range of its bytes touches; return how many bytes went before, and the rest.

    A term is up to a whole xorb long and hf_xet decodes it as one piece: uncut, a range of a few bytes costs 64 MiB.
    """
    xorb, length, first, last = term
    if start <= 0 and stop >= length:
        return 0, term
    row = store.read().execute("select lengths from xorbs where hash=?", (xorb,)).fetchone()
    lengths, before = json.loads(row[0]), 0
    while before + lengths[first] <= start:
        before += lengths[first]
        first += 1
    after, last = before, first
    while last < term[3] and after < stop:
        after += lengths[last]
        last += 1
    return before, (xorb, after - before, first, last)


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans that touch: hf_xet expects to find each term whole in exactly one of the places to fetch from."""
    joined: list[tuple[int, int]] = []
    for first, stop in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((first, stop))
    return joined


def _place(call: Call, xorb: str, span: tuple[int, int]) -> dict[str, Any]:
    """Return the place of the chunks of a span: bytes of the xorb, and their address."""
    row = call.store.read().execute("select offsets from xorbs where hash=?", (xorb,)).fetchone()
    offsets, (first, stop) = json.loads(row[0]), span
    return {
        "range": {"start": first, "end": stop},
        "url": call.url(_xorb_url(call.store, xorb)),
        "url_range": {"start": offsets[first], "end": offsets[stop] - 1},
    }


async def send_xorb(call: Call) -> Response:
    """Send packed chunks; the address is signed, as the protocol sends no token with it."""
    until, _, signature = call.args["signed"].partition("-")
    expected = _sign(call.store, f"xorb/{call.args['hash']}/{until}")
    if not hmac.compare_digest(signature.encode(), expected.encode()) or int(until) < time.time():
        raise ApiError(403, "This address is not valid any more.")
    path = _xorb_path(call.store, call.args["hash"])
    return send_content(call.request, path, path.stat().st_size, {})


async def not_offered(call: Call) -> Response:
    """Answer 404 for the optional rest of the protocol: clients then go the way that is offered."""
    raise ApiError(404, "Not offered by this store.")


def file_of(store: Store, name: str, scope: str) -> tuple[int, list[Term]] | None:
    """Return (size, terms) of a file by its Xet hash, if this scope was given it."""
    query = "select size, terms from xet_held where scope=? and hash=?"
    row = store.read().execute(query, (scope, name)).fetchone()
    return (row[0], [tuple(term) for term in json.loads(row[1])]) if row else None


def adopt(hub: Hub, repo: Repo, sha256: str) -> None:
    """Turn a file that came to this repository through Xet into a plain blob; slow, so not in the event loop.

    It is assembled even if another repository already has the blob: a shard may claim any sha256, and
    only the bytes prove that the sender has them.
    """
    query = "select hash, size from xet_held where scope=? and sha256=?"
    row = hub.store.read().execute(query, (scope_of(repo), sha256)).fetchone()
    if row is None:
        return
    name, size = row
    with tempfile.TemporaryDirectory(dir=hub.store.blobs.unfinished) as folder:
        path = Path(folder) / "file"
        try:
            materialise(hub, scope_of(repo), name, size, path)
        except RuntimeError as error:
            message = f"hf_xet cannot put {sha256} together from its chunks. Upload the file again, or use LFS."
            raise ApiError(400, message, "LfsObjectMissing") from error
        hub.store.blobs.adopt(path, sha256, size)
    hub.store.add_lfs(repo, sha256, size)


def materialise(hub: Hub, scope: str, name: str, size: int, target: Path) -> None:
    """Write a scope's file to a path, decoded by hf_xet; never in the event loop, which must serve it."""
    import hf_xet

    with hf_xet.XetSession().new_file_download_group(**access(hub, scope)) as group:
        group.start_download_file(hf_xet.XetFileInfo(name, size), str(target))


def access(hub: Hub, scope: str, *, write: bool = False) -> dict[str, Any]:
    """Return what hf_xet needs to reach this store in the name of a scope."""
    until = int(time.time()) + _VALID_SECONDS
    token = _token(hub.store, scope, write, until)
    return {"endpoint": f"{hub.endpoint}/_cas/{hub.store.id}", "token": token, "token_expiry_unix_secs": until}


# ---------------------------------------------------------------------------------------------------- details


def _token(store: Store, scope: str, write: bool, until: int) -> str:
    plain = f"{scope}.{'w' if write else 'r'}.{until}"
    return f"{plain}.{_sign(store, plain)}"


def _scope(call: Call, *, write: bool) -> str:
    """Return the scope of the token that came along, or refuse."""
    token = call.request.headers.get("authorization", "").partition(" ")[2]
    plain, _, signature = token.rpartition(".")
    if not plain or not hmac.compare_digest(signature.encode(), _sign(call.store, plain).encode()):
        raise ApiError(401, "This token is not one of this store.")
    scope, right, until = plain.split(".")
    if int(until) < time.time() or (write and right != "w") or call.args["store"] != call.store.id:
        raise ApiError(401, "This token has expired or does not allow this.")
    return scope


def _sign(store: Store, text: str) -> str:
    return hmac.new(store.secret.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]


def _xorb_path(store: Store, name: str) -> Path:
    return store.root / "xorbs" / name[:2] / name


def _xorb_url(store: Store, name: str) -> str:
    until = int(time.time()) + _VALID_SECONDS
    return f"/_cas/{store.id}/xorb/{name}/{until}-{_sign(store, f'xorb/{name}/{until}')}"


def _asked(call: Call, size: int) -> tuple[int, int]:
    return parse_range(call.request.headers.get("range", ""), size) or (0, size)


def _record(body: bytes, at: int) -> bytes:
    record = body[at : at + _RECORD]
    if len(record) < _RECORD:
        raise Malformed("The shard ends within a record.")
    return record


def _hex(record: bytes) -> str:
    """Write a hash as Xet does: four little-endian words."""
    return "".join(f"{word:016x}" for word in struct.unpack_from("<4Q", record))


ROUTES = (
    Route("GET", "/api/{kinds}/{ns}/{name}/xet-write-token/{rev}", grant_write),
    Route("GET", "/api/{kinds}/{ns}/{name}/xet-read-token/{rev}", grant_read),
    Route("POST", "/_cas/{store}/v1/xorbs/default/{hash}", take_xorb, own_auth=True),
    Route("POST", "/_cas/{store}/v1/shards", take_shard, own_auth=True),
    Route("GET", "/_cas/{store}/v1/reconstructions/{hash}", show_reconstruction, own_auth=True),
    Route("GET", "/_cas/{store}/xorb/{hash}/{signed}", send_xorb, own_auth=True),
    Route("GET", "/_cas/{path...}", not_offered, own_auth=True),
    Route("POST", "/_cas/{path...}", not_offered, own_auth=True),
)
