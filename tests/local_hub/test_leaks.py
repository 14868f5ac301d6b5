"""Nobody gets a file by an id, a hash or a claim: the ways around the rights, each tried against a real server."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, HfApi, hf_hub_download
from huggingface_hub.utils import httpx

from composer_hub.local_hub.server import ServerProcess

from .requests import announce, auth, commit, create, files_holding, lfs_file
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


class Neighbors:
    """Two files of a private repository whose chunks came in one pack, and a stranger who may read one of them."""

    def __init__(self, http: Any, server: ServerProcess, name: str, folder: Path) -> None:
        self.http, self.server, self.name, self.folder = http, server, name, folder
        dice = random.Random(name)
        self.shown, self.hidden = (dice.randbytes(300_000) for _ in range(2))
        self.api = HfApi(endpoint=server.endpoint, token=server.token)
        self.api.create_repo(name, private=True)
        files = [CommitOperationAdd("shown.bin", self.shown), CommitOperationAdd("hidden.bin", self.hidden)]
        self.api.create_commit(name, files, commit_message="both")

    def as_a_file(self, where: str) -> str:
        """Give one file to a public repository or bucket, or keep it alone here; return its address."""
        target = f"{self.name}-{where}"
        if where == "here":
            items = [item for item in self.api.list_lfs_files(self.name) if item.filename == "hidden.bin"]
            self.api.permanently_delete_lfs_files(self.name, items)
            self.api.update_repo_settings(self.name, private=False)
            return f"/{self.name}/resolve/main/shown.bin"
        if where == "bucket":
            self.api.create_bucket(target)
            self.api.copy_files(f"hf://{self.name}/shown.bin", f"hf://buckets/{target}/shown.bin")
            return f"/buckets/{target}/resolve/shown.bin"
        self.api.create_repo(target)
        self.api.copy_files(f"hf://{self.name}/shown.bin", f"hf://{target}/shown.bin")
        return f"/{target}/resolve/main/shown.bin"

    def parts(self, address: str) -> list[dict[str, Any]]:
        """Ask as hf_xet does where the chunks of a file are, without a login."""
        head = self.http.head(address).raise_for_status().headers
        grant = self.http.get(head["X-Xet-Refresh-Route"]).raise_for_status().json()
        token = {"Authorization": f"Bearer {grant['accessToken']}"}
        answer = self.http.get(f"{grant['casUrl']}/v1/reconstructions/{head['X-Xet-Hash']}", headers=token)
        return list(itertools.chain.from_iterable(answer.raise_for_status().json()["fetch_info"].values()))

    def taken(self, part: dict[str, Any]) -> bytes:
        """Return everything that the address of a part gives to any request."""
        first, last = part["url_range"]["start"], part["url_range"]["end"]
        beyond = [f"0-{last}", f"{first}-{last + 1}", f"{first}-", "0-", "-1", "-999999999", f"{first}-{last},0-9", "x"]
        asked: list[dict[str, str]] = [{}, *({"Range": f"bytes={words}"} for words in [*beyond, f"{first}-{last}"])]
        asked += [{"Range": f"bytes={first}-{last}", name: '"x"'} for name in ("If-Range", "If-None-Match")]
        return b"".join(
            answer.content for headers in asked if (answer := self.http.get(part["url"], headers=headers)).is_success
        )

    def download(self, address: str) -> bytes:
        """Read the shown file with the stock client, in a process that has no cache."""
        repo, _, path = address.removeprefix("/").partition("/resolve/")
        if repo.startswith("buckets/"):
            target = self.folder / "down.bin"
            HfApi(endpoint=self.server.endpoint, token=False).download_bucket_files(
                repo.removeprefix("buckets/"), [("shown.bin", target)]
            )
            return target.read_bytes()
        path = hf_hub_download(repo, "shown.bin", endpoint=self.server.endpoint, token=False, cache_dir=self.folder)
        return Path(path).read_bytes()


@needs_xet
@pytest.mark.parametrize("where", ["repo", "bucket", "here"])
def test_the_chunks_of_a_file_lead_to_no_other_file_in_their_pack(
    http: Any, hub_server: ServerProcess, hub_repo: Callable[[str, str], str], tmp_path: Path, where: str
) -> None:
    files = Neighbors(http, hub_server, hub_repo("pack", "me"), tmp_path)
    address = files.as_a_file(where)
    parts = files.parts(address)
    assert parts
    for part in parts:
        taken = files.taken(part)
        assert files.shown[:1000] in taken or files.shown[-1000:] in taken
        assert not any(files.hidden[at : at + 64] in taken for at in range(0, len(files.hidden), 64))
    assert files.download(address) == files.shown


@needs_xet
def test_deleted_bytes_leave_the_disk_with_gc_and_their_neighbors_stay_readable(
    http: Any, hub_server: ServerProcess, hub_repo: Callable[[str, str], str], tmp_path: Path
) -> None:
    files = Neighbors(http, hub_server, hub_repo("pack", "me"), tmp_path)
    address = files.as_a_file("here")
    before = files.parts(address)
    blobs = hub_server.root / "blobs"
    assert len(files_holding(blobs, files.hidden[1000:1064])) == 1
    command = [sys.executable, "-m", "composer_hub", "hub", "gc", "--data", str(hub_server.root), "--min-age", "0"]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    assert files_holding(blobs, files.hidden[1000:1064]) == []
    # hf_xet asks for new addresses after a 403.
    assert {files.http.get(part["url"], headers={"Range": "bytes=0-9"}).status_code for part in before} == {403}
    assert files.download(address) == files.shown
    again = files.api.upload_file(path_or_fileobj=files.hidden, path_in_repo="hidden.bin", repo_id=files.name)
    assert http.get(f"/{files.name}/resolve/{again.oid}/hidden.bin").content == files.hidden
