"""Files of chunks in a store: what goes in comes out, whatever the packing, the range and the age of the folder."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from composer_hub.local_hub.chunkstore import Chunks, XetFile
from composer_hub.local_hub.store import Store
from composer_hub.local_hub.trees import lfs_entry
from composer_hub.local_hub.xorbs import Malformed

from .test_xet import xorb_of

Span = tuple[int, int, int]
AREA, FILE = "repo-1-6d65", "ab" * 32


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "hub")
    yield store
    store.close()


def chunk(data: bytes, scheme: int) -> bytes:
    """Pack one chunk as hf_xet does: as it is, by LZ4, or by LZ4 after grouping the bytes of numbers."""
    grouped = b"".join(data[place::4] for place in range(4)) if scheme == 2 else data
    packed = pyarrow.compress(grouped, codec="lz4", asbytes=True) if scheme else data
    return b"\0" + len(packed).to_bytes(3, "little") + bytes([scheme]) + len(data).to_bytes(3, "little") + packed


def add(
    chunks: Chunks, packed: bytes, terms: list[tuple[int, int, int]], sha256: str = "", name: str = "cd"
) -> XetFile:
    """Send a xorb, and a file that is made of terms (length, first, stop) of it."""
    with chunks.blobs.writer() as writer:
        writer.write(packed)
        chunks.add_xorb(AREA, name * 32, writer)
    chunks.add_files(AREA, [(FILE, sha256, [(name * 32, *term) for term in terms])])
    file = chunks.find(AREA, FILE)
    assert file is not None
    return file


def test_every_range_of_every_packing_comes_out_as_it_went_in(store: Store) -> None:
    dice = random.Random(5)
    plain = [dice.randbytes(n) if n % 2 else b"word " * (n // 5) + b"x" * (n % 5) for n in (1, 2, 3, 7, 400, 63, 1001)]
    packed = b"".join(chunk(data, number % 3) for number, data in enumerate(plain))
    sizes = [len(data) for data in plain]
    spans = [(0, 7), (2, 3), (2, 3), (4, 6)]
    file = add(store.chunks, packed, [(sum(sizes[a:b]), a, b) for a, b in spans])
    data = b"".join(b"".join(plain[a:b]) for a, b in spans)
    assert (file.size, store.chunks.digest(file)) == (len(data), hashlib.sha256(data).hexdigest())
    edges = [0, 1, 2, *itertools.accumulate(sizes), len(data) - 1, len(data)]
    for start, stop in itertools.combinations(sorted({edge for edge in edges if edge <= len(data)}), 2):
        assert b"".join(store.chunks.read(file, start, stop)) == data[start:stop]


def test_a_sparse_file_is_one_chunk_named_many_times(store: Store) -> None:
    zeros = bytes(1 << 17)
    file = add(store.chunks, chunk(zeros, 1), [(len(zeros), 0, 1)] * 400)
    assert sum(map(len, store.chunks.read(file))) == 400 << 17
    assert b"".join(store.chunks.read(file, 131_000, 270_000)) == bytes(139_000)


@pytest.mark.parametrize("packed", [
    pytest.param(chunk(b"abcd" * 100, 1)[:5] + b"\xff\x01\0" + chunk(b"abcd" * 100, 1)[8:], id="longer than it is"),
    pytest.param(chunk(b"abcd" * 100, 1)[:5] + b"\x01\0\0" + chunk(b"abcd" * 100, 1)[8:], id="shorter than it is"),
    pytest.param(b"\0\x04\0\0\1\x08\0\0junk", id="no LZ4"),
    pytest.param(b"\0\x04\0\0\7\x04\0\0junk", id="unknown scheme"),
    pytest.param(b"\0\x04\0\0\0\x05\0\0junk", id="plain and short"),
])  # fmt: skip
def test_a_chunk_that_is_not_what_its_header_says_is_refused(store: Store, packed: bytes) -> None:
    file = add(store.chunks, packed, [(int.from_bytes(packed[5:8], "little"), 0, 1)])
    with pytest.raises(Malformed):
        store.chunks.digest(file)


def test_the_same_bytes_under_any_name_in_any_area_are_on_disk_once(store: Store) -> None:
    packed = xorb_of(b"same" * 1000)
    for name in ("cd", "ef"):
        add(store.chunks, packed, [(4000, 0, 1)], name=name)
    with store.blobs.writer() as writer:
        writer.write(packed)
        assert store.chunks.add_xorb("repo-2-6576", "cd" * 32, writer)
    assert list(store.blobs.all()) == [hashlib.sha256(packed).hexdigest()]


def test_a_deleted_repository_takes_its_chunks_along_and_no_others(store: Store) -> None:
    repos = [store.create_repo("model", f"me/{number}", author="me") for number in range(11)]
    file = add(store.chunks, xorb_of(b"data"), [(4, 0, 1)], hashlib.sha256(b"data").hexdigest())
    for repo in repos:
        store.add_chunked(repo, file)
    store.delete_repo(repos[0])
    assert [repo.id for repo in repos] == list(range(1, 12))
    assert store.chunks.find(repos[0].scope, FILE) is store.chunks.find(AREA, FILE) is None
    entry = lfs_entry(file.sha256, 4)
    assert [store.has_content(repo, entry) for repo in repos] == [False] + [True] * 10


def test_damaged_or_missing_chunks_are_an_error_in_words(
    http: Any, hub_server: Any, hub_repo: Any, tmp_path: Path
) -> None:
    from .requests import auth, commit, create, lfs_file
    from .test_leaks import chunk_store, claim

    name, data = hub_repo("chunks"), b"compressible " * 1000
    packed = chunk(data, 1)
    create(http, name)
    with chunk_store(http, name, "me") as cas:
        cas.post(f"/v1/xorbs/default/{'7e' * 32}", content=packed).raise_for_status()
        shard = claim(b"\x7e" * 32, hashlib.sha256(data).hexdigest(), b"\x7e" * 32, len(data))
        cas.post("/v1/shards", content=shard).raise_for_status()
    assert commit(http, name, [lfs_file("f.bin", data)]).status_code == 200
    url = f"/{name}/resolve/main/f.bin"
    whole = http.get(url)
    assert whole.content == data
    blob = hashlib.sha256(packed).hexdigest()
    path = hub_server.root / "blobs" / blob[:2] / blob
    path.write_bytes(packed[:20] + b"\xff" * 30 + packed[50:])
    assert (http.get(url).status_code, "damaged" in http.get(url).text) == (500, True)
    path.unlink()
    assert (http.get(url).status_code, "missing" in http.get(url).text) == (500, True)
    planned = http.post(
        f"/api/models/{name}/preupload/main", json={"files": [{"path": "f.bin", "size": 1}]}, headers=auth("me")
    ).json()
    assert "oid" not in planned["files"][0], "a client would leave the file out"
    with chunk_store(http, name, "me") as cas:
        assert cas.post(f"/v1/xorbs/default/{'7e' * 32}", content=packed).json()["was_inserted"]
    assert http.get(url).content == data
