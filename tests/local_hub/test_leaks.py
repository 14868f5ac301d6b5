"""Nobody gets a file by an id, a hash or a claim: the ways around the rights, each tried against a real server."""

from __future__ import annotations

import hashlib
import importlib.util
import struct
from collections.abc import Callable
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.utils import httpx

from composer_hub.local_hub.server import ServerProcess

from .requests import announce, auth, commit, create, lfs_file
from .test_xet import END, HEADER, xorb

needs_xet = pytest.mark.skipif(importlib.util.find_spec("hf_xet") is None, reason="needs hf_xet")


def chunk_store(http: Any, name: str, who: str) -> Any:
    """Return a client of the store of chunks with who's write token for a repository."""
    grant = http.get(f"/api/models/{name}/xet-write-token/main", headers=auth(who)).json()
    headers = {"Authorization": f"Bearer {grant['accessToken']}"}
    return httpx.Client(base_url=grant["casUrl"], trust_env=False, headers=headers)


def claim(name: bytes, sha256: str, xorb_name: bytes, length: int) -> bytes:
    """Write a shard of one file: its hash and sha256 as claimed, made of the first chunk of a xorb."""
    words = struct.unpack(">4Q", bytes.fromhex(sha256))
    file = name + struct.pack("<IIQ", 0x40000000, 1, 0)
    term = xorb_name + struct.pack("<4I", 0, length, 0, 1)
    return HEADER + file + term + struct.pack("<4Q", *words).ljust(48, b"\0") + END


@needs_xet
def test_a_new_repository_inherits_nothing_of_a_deleted_one(
    http: Any, hub_server: ServerProcess, hub_repo: Callable[[str, str], str]
) -> None:
    mine, theirs, data = hub_repo("mine", "me"), hub_repo("last", "eve"), b"secret weights" * 20_000
    me = HfApi(endpoint=hub_server.endpoint, token=hub_server.token)
    me.create_repo(mine, private=True)
    me.upload_file(path_or_fileobj=data, path_in_repo="l.bin", repo_id=mine)
    me.delete_repo(mine)
    create(http, theirs, "eve")
    assert commit(http, theirs, [lfs_file("got.bin", data)], "eve").status_code == 400


def test_an_upload_address_ends_with_its_repository(http: Any, hub_repo: Callable[[str, str], str]) -> None:
    mine, next_one, data = hub_repo("gone", "me"), hub_repo("next", "me"), b"late"
    create(http, mine)
    answer = announce(http, mine, data)
    name = mine.partition("/")[2]
    http.request("DELETE", "/api/repos/delete", json={"name": name}, headers=auth("me")).raise_for_status()
    create(http, next_one)
    assert http.put(answer["actions"]["upload"]["href"], content=data).status_code == 404
    assert commit(http, next_one, [lfs_file("got.bin", data)]).status_code == 400


@needs_xet
def test_a_claim_to_have_a_file_of_this_sha256_must_be_kept(
    http: Any, hub_server: ServerProcess, hub_repo: Callable[[str, str], str]
) -> None:
    mine, theirs, data = hub_repo("mine", "me"), hub_repo("claim", "eve"), b"private" * 50_000
    me = HfApi(endpoint=hub_server.endpoint, token=hub_server.token)
    me.create_repo(mine, private=True)
    me.upload_file(path_or_fileobj=data, path_in_repo="l.bin", repo_id=mine)
    create(http, theirs, "eve")
    with chunk_store(http, theirs, "eve") as cas:
        assert cas.post(f"/v1/xorbs/default/{'0e' * 32}", content=xorb(9)).status_code == 200
        shard = claim(b"\x0e" * 32, hashlib.sha256(data).hexdigest(), b"\x0e" * 32, 9)
        assert cas.post("/v1/shards", content=shard).status_code == 200
    assert commit(http, theirs, [lfs_file("got.bin", data)], "eve").status_code == 400
    tree = http.get(f"/api/models/{theirs}/tree/main", headers=auth("eve")).json()
    assert [item["path"] for item in tree] == [".gitattributes"]


@needs_xet
def test_chunks_that_are_there_are_not_replaced_and_a_claimed_hash_gives_only_the_own_chunks(
    http: Any, hub_repo: Callable[[str, str], str]
) -> None:
    names = hub_repo("a", "me"), hub_repo("b", "eve")
    create(http, names[0], visibility="private")
    create(http, names[1], "eve")
    with chunk_store(http, names[0], "me") as mine, chunk_store(http, names[1], "eve") as theirs:
        for cas, own, size in ((mine, "1e", 11), (theirs, "2e", 22)):
            assert cas.post(f"/v1/xorbs/default/{own * 32}", content=xorb(size)).status_code == 200
            shard = claim(b"\x3e" * 32, "ab" * 32, bytes.fromhex(own * 32), size)
            assert cas.post("/v1/shards", content=shard).status_code == 200
        assert theirs.post(f"/v1/xorbs/default/{'1e' * 32}", content=xorb(33)).json()["was_inserted"] is False
        for cas, size in ((mine, 11), (theirs, 22)):
            terms = cas.get(f"/v1/reconstructions/{'3e' * 32}").json()["terms"]
            assert [term["unpacked_length"] for term in terms] == [size]


@pytest.mark.parametrize(("who", "status"), [("me", 200), ("eve", 403), ("", 401)])
def test_the_gate_also_protects_the_tokens_for_reading_chunks(
    http: Any, hub_repo: Callable[[str, str], str], who: str, status: int
) -> None:
    name = hub_repo("gated", "me")
    create(http, name)
    http.put(f"/api/models/{name}/settings", json={"gated": "manual"}, headers=auth("me"))
    assert http.get(f"/api/models/{name}/xet-read-token/main", headers=auth(who)).status_code == status
