"""The store of chunks: what it takes in, and what it refuses."""

from __future__ import annotations

import contextlib
import io
import itertools
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from huggingface_hub.utils import httpx
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.local_hub.server import ServerProcess
from composer_hub.local_hub.xorbs import Malformed, chunks, merged, parse_shard
from tests.quick import cases

HEADER, END = bytes(48), b"\xff" * 32 + bytes(16)


def shard(num_terms: int, terms: list[tuple[bytes, int, int, int]], flags: int = 0, sha256: bytes = b"") -> bytes:
    records = [bytes(32) + struct.pack("<IIQ", flags, num_terms, 0)]
    records += [xorb + struct.pack("<4I", 0, length, first, stop) for xorb, length, first, stop in terms]
    return HEADER + b"".join(records) + (sha256.ljust(48, b"\0") if sha256 else b"") + END


def xorb(*sizes: int) -> bytes:
    return xorb_of(*map(bytes, sizes))


def xorb_of(*plain: bytes) -> bytes:
    """Pack chunks without compression."""
    return b"".join(
        b"\0" + len(chunk).to_bytes(3, "little") + b"\0" + len(chunk).to_bytes(3, "little") + chunk for chunk in plain
    )


@pytest.fixture
def cas(hub_server: ServerProcess, hub_repo: Callable[[str], str]) -> Iterator[Any]:
    """A client with a write token of a new repository."""
    auth, name = {"Authorization": f"Bearer {hub_server.token}"}, hub_repo("xet")
    with httpx.Client(base_url=hub_server.endpoint, trust_env=False, headers=auth) as http:
        http.post("/api/repos/create", json={"name": name.partition("/")[2]}).raise_for_status()
        grant = http.get(f"/api/models/{name}/xet-write-token/main").json()
    with httpx.Client(base_url=grant["casUrl"], trust_env=False) as http:
        http.headers["Authorization"] = f"Bearer {grant['accessToken']}"
        yield http


def test_a_shard_that_names_an_unknown_xorb_is_refused(cas: Any) -> None:
    answer = cas.post("/v1/shards", content=shard(1, [(b"\x01" * 32, 10, 0, 1)]))
    assert answer.status_code == 400
    assert "not here" in answer.json()["error"]


@pytest.mark.parametrize("term", [(5, 0, 1), (10, 0, 3), (10, 1, 1), (30, 0, 9), (11, 0, 1)])
def test_a_shard_whose_chunks_are_not_in_the_xorb_is_refused(cas: Any, term: tuple[int, int, int]) -> None:
    assert cas.post(f"/v1/xorbs/default/{'01' * 32}", content=xorb(10, 20)).status_code == 200
    assert cas.post("/v1/shards", content=shard(1, [(b"\x01" * 32, *term)])).status_code == 400
    assert cas.post("/v1/shards", content=shard(1, [(b"\x01" * 32, 30, 0, 2)])).status_code == 200


@pytest.mark.parametrize("body", [b"", b"\0\0\0", xorb(10)[:-1], b"\0\xff\xff\xff\0\0\0\0", b"XETBLOB"])
def test_a_xorb_that_does_not_add_up_is_refused(cas: Any, body: bytes) -> None:
    assert cas.post(f"/v1/xorbs/default/{'02' * 32}", content=body).status_code == 400


def test_a_xorb_that_was_sent_before_says_so(cas: Any) -> None:
    answers = [cas.post(f"/v1/xorbs/default/{'03' * 32}", content=xorb(7)).json() for _ in range(2)]
    assert [answer["was_inserted"] for answer in answers] == [True, False]


def test_without_a_token_of_this_store_nothing_goes_in_or_out(cas: Any) -> None:
    for token in ("x", "repo-1.w.9999999999.abc", cas.headers["Authorization"].partition(" ")[2][:-1] + "~"):
        headers = {"Authorization": f"Bearer {token}"}
        assert cas.post(f"/v1/xorbs/default/{'04' * 32}", content=xorb(7), headers=headers).status_code == 401
        assert cas.get(f"/v1/reconstructions/{'04' * 32}", headers=headers).status_code == 401


def test_a_file_of_another_repository_cannot_be_read_by_its_hash(cas: Any) -> None:
    assert cas.get(f"/v1/reconstructions/{'00' * 32}").status_code == 404


@cases(200)
@given(body=st.binary(max_size=300))
def test_no_bytes_make_the_shard_reader_fail_otherwise_than_as_malformed(body: bytes) -> None:
    with contextlib.suppress(Malformed):
        list(parse_shard(body))


@cases(200)
@given(body=st.binary(max_size=300))
def test_no_bytes_make_the_xorb_reader_fail_otherwise_than_as_malformed(body: bytes) -> None:
    try:
        found = list(chunks(io.BytesIO(body), len(body)))
    except Malformed:
        return
    assert all(offset <= len(body) for offset, _ in found)


@cases(100)
@given(spans=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)).map(lambda pair: (pair[0], sum(pair)))))
def test_merged_spans_cover_the_same_chunks_and_do_not_touch(spans: list[tuple[int, int]]) -> None:

    def cover(items: list[tuple[int, int]]) -> set[int]:
        return {chunk for first, stop in items for chunk in range(first, stop)}

    joined = merged(spans)
    assert cover(joined) == cover(spans)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(joined))
