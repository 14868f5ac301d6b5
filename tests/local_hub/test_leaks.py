"""Nobody gets a file by an id, a hash or a claim: the ways around the rights, each tried against a real server."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.utils import httpx

from composer_hub.local_hub.server import ServerProcess

from .requests import announce, auth, commit, create, lfs_file
from .test_xet import END, HEADER, xorb, xorb_of

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


def send(cas: Any, name: str, data: bytes, *, sha256: str = "", file: bytes = b"\x3e" * 32) -> Any:
    """Send one chunk as a xorb of this name and a file that is made of it; return the answer to the xorb."""
    answer = cas.post(f"/v1/xorbs/default/{name * 32}", content=xorb_of(data))
    shard = claim(file, sha256 or hashlib.sha256(data).hexdigest(), bytes.fromhex(name * 32), len(data))
    assert cas.post("/v1/shards", content=shard).status_code == 200
    return answer.json()


def read(http: Any, name: str, path: str, who: str = "me") -> bytes:
    return http.get(f"/{name}/resolve/main/{path}", headers=auth(who)).raise_for_status().content


@needs_xet
def test_the_name_of_anothers_chunks_gives_nothing_and_junk_under_it_does_not_block_their_owner(
    http: Any, hub_repo: Callable[[str, str], str]
) -> None:
    mine, theirs, data = hub_repo("a", "me"), hub_repo("b", "eve"), b"private"
    create(http, mine, visibility="private")
    create(http, theirs, "eve")
    with chunk_store(http, mine, "me") as cas, chunk_store(http, theirs, "eve") as eves:
        assert send(eves, "1e", b"junk under a name")["was_inserted"]
        assert send(cas, "1e", data)["was_inserted"]
        assert send(cas, "2e", data)["was_inserted"]
        stolen = claim(b"\x4e" * 32, hashlib.sha256(data).hexdigest(), b"\x2e" * 32, len(data))
        assert eves.post("/v1/shards", content=stolen).status_code == 400
        path = cas.get(f"/v1/reconstructions/{'3e' * 32}").json()["fetch_info"]["2e" * 32][0]["url"]
        assert eves.get(f"/v1/reconstructions/{'4e' * 32}").status_code == 404
        assert cas.get(path[:-1] + ("0" if path[-1] != "0" else "1")).status_code == 403
        wrong_place = str(eves.base_url)
        assert cas.get(f"{wrong_place}v1/reconstructions/{'3e' * 32}").status_code == 401
    assert commit(http, mine, [lfs_file("a.bin", data)]).status_code == 200
    assert commit(http, theirs, [lfs_file("a.bin", data)], "eve").status_code == 400
    assert read(http, mine, "a.bin") == data


@needs_xet
def test_who_proposes_a_pull_request_cannot_replace_or_block_chunks_of_the_repository(
    http: Any, hub_repo: Callable[[str, str], str]
) -> None:
    name, data, other = hub_repo("public", "me"), b"the owner's", b"proposed"
    create(http, name)

    def chunk_store_of(who: str, query: str = "") -> Any:
        grant = http.get(f"/api/models/{name}/xet-write-token/main{query}", headers=auth(who)).json()
        return httpx.Client(
            base_url=grant["casUrl"], trust_env=False, headers={"Authorization": f"Bearer {grant['accessToken']}"}
        )

    with chunk_store_of("me") as mine, chunk_store_of("eve", "?create_pr=1") as eves:
        assert send(mine, "5e", data)["was_inserted"]
        assert send(eves, "5e", other)["was_inserted"]
        send(eves, "6e", b"junk for another sha256", sha256=hashlib.sha256(data).hexdigest(), file=b"\x4e" * 32)
    assert commit(http, name, [lfs_file("a.bin", data)]).status_code == 200
    body = "\n".join(
        json.dumps({"key": key, "value": value})
        for key, value in [("header", {"summary": "mine"}), lfs_file("b.bin", other)]
    )
    proposed = http.post(f"/api/models/{name}/commit/main?create_pr=1", content=body, headers=auth("eve"))
    assert proposed.status_code == 200
    # Both claim the hash 3e…, which cannot be true; each file keeps its own bytes.
    assert read(http, name, "a.bin") == data
    number = proposed.json()["pullRequestUrl"].rpartition("/")[2]
    assert http.get(f"/{name}/resolve/refs%2Fpr%2F{number}/b.bin").content == other


@pytest.mark.parametrize(("who", "status"), [("me", 200), ("eve", 403), ("", 401)])
def test_the_gate_also_protects_the_tokens_for_reading_chunks(
    http: Any, hub_repo: Callable[[str, str], str], who: str, status: int
) -> None:
    name = hub_repo("gated", "me")
    create(http, name)
    http.put(f"/api/models/{name}/settings", json={"gated": "manual"}, headers=auth("me"))
    assert http.get(f"/api/models/{name}/xet-read-token/main", headers=auth(who)).status_code == status
