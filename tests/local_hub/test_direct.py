"""Long bodies are read from the socket by a thread: nothing of a broken one stays, and errors reach the client."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import httpx

from composer_hub.local_hub.direct import BLOCK
from composer_hub.local_hub.server import ServerProcess, start_server

from .requests import announce, commit, create, lfs_file, upload

SIZE = 3 * BLOCK + 17


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose unfinished uploads are those of this file."""
    with start_server(tmp_path_factory.mktemp("own"), ["--user", "me:hf_test_me", "--no-xet"]) as server:
        yield server


@pytest.fixture
def http(own: ServerProcess) -> Iterator[Any]:
    with httpx.Client(base_url=own.endpoint, trust_env=False, timeout=600) as client:
        create(client, "me/a")
        yield client


def begin(server: ServerProcess, http: Any, data: bytes, num_sent: int, *heads: str) -> socket.socket:
    """Send the head of an upload and the beginning of its body."""
    host, _, port = server.endpoint.removeprefix("http://").partition(":")
    path = announce(http, "me/a", data)["actions"]["upload"]["href"].removeprefix(server.endpoint)
    link = socket.create_connection((host, int(port)), timeout=600)
    lines = [f"PUT {path} HTTP/1.1", f"Host: {host}:{port}", f"Content-Length: {len(data)}", *heads]
    link.sendall("\r\n".join([*lines, "", ""]).encode() + data[:num_sent])
    return link


def unfinished(server: ServerProcess) -> list[Path]:
    return list((server.root / "tmp").iterdir())


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("is_long", [True, False])
def test_an_upload_comes_back_as_it_went_and_only_a_long_one_ends_its_connection(http: Any, is_long: bool) -> None:
    data = os.urandom(SIZE if is_long else BLOCK - 1)
    answer = upload(http, "me/a", data)
    assert (answer.status_code, answer.headers.get("connection")) == (200, "close" if is_long else None)
    assert commit(http, "me/a", [lfs_file("f.bin", data)]).status_code == 200
    assert http.get("/me/a/resolve/main/f.bin").content == data


def test_a_long_body_without_a_length_is_taken_as_well(http: Any) -> None:
    data = os.urandom(SIZE)
    parts = (data[start : start + 50_000] for start in range(0, SIZE, 50_000))
    assert upload(http, "me/a", data, parts).status_code == 200
    assert "actions" not in announce(http, "me/a", data)


def test_a_client_that_asks_before_it_sends_is_answered(own: ServerProcess, http: Any) -> None:
    data = os.urandom(SIZE)
    with begin(own, http, data, 0, "Expect: 100-continue") as link:
        assert link.recv(100).startswith(b"HTTP/1.1 100 ")
        link.sendall(data)
        assert link.recv(100).startswith(b"HTTP/1.1 200 ")


def test_other_bytes_than_announced_are_refused_in_words_and_not_kept(own: ServerProcess, http: Any) -> None:
    data = os.urandom(SIZE)
    href = announce(http, "me/a", data)["actions"]["upload"]["href"]
    answer = http.put(href, content=bytes(SIZE))
    assert (answer.status_code, hashlib.sha256(data).hexdigest() in answer.json()["error"]) == (400, True)
    assert http.put(href, content=data + b"more").status_code == 400
    assert "actions" in announce(http, "me/a", data)
    assert until(lambda: not unfinished(own))


@pytest.mark.parametrize("num_sent", [0, 10, BLOCK, SIZE - 1])
@pytest.mark.parametrize("is_reset", [True, False])
def test_nothing_stays_of_a_client_that_leaves(own: ServerProcess, http: Any, num_sent: int, is_reset: bool) -> None:
    data = os.urandom(SIZE)
    link = begin(own, http, data, num_sent)
    if num_sent:
        assert until(lambda: bool(unfinished(own)))
    if is_reset:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()
    assert until(lambda: not unfinished(own))
    assert "actions" in announce(http, "me/a", data)
    assert upload(http, "me/a", data).status_code == 200


def test_the_same_file_may_come_from_several_clients_at_once(http: Any) -> None:
    data = os.urandom(SIZE)
    href = announce(http, "me/a", data)["actions"]["upload"]["href"]
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(http.put(href, content=data).status_code)) for _ in "1234"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [200] * 4
    assert commit(http, "me/a", [lfs_file("g.bin", data)]).status_code == 200
    assert http.get("/me/a/resolve/main/g.bin").content == data


def test_clients_that_pause_hold_up_nobody_and_may_go_on(own: ServerProcess, http: Any) -> None:
    data = os.urandom(SIZE)
    links = [begin(own, http, data, 100) for _ in range(24)]  # more than there are threads
    assert until(lambda: len(unfinished(own)) == len(links))
    other = os.urandom(SIZE)
    assert upload(http, "me/a", other).status_code == 200
    for link in links:
        link.sendall(data[100:])
    assert [link.recv(12) for link in links] == [b"HTTP/1.1 200"] * len(links)
    for link in links:
        link.close()


def test_a_head_without_an_end_is_refused(own: ServerProcess) -> None:
    host, _, port = own.endpoint.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=600) as link:
        link.sendall(b"GET / HTTP/1.1\r\nx: ")
        with pytest.raises(ConnectionError):
            link.sendall(bytes(64 << 20).replace(b"\0", b"y"))
