"""A busy Hub: readers wait for nobody, writers are asked to come back, and strangers cannot make it read anything."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import socket
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from huggingface_hub.utils import httpx

from composer_hub.local_hub.accounts import User
from composer_hub.local_hub.app import open_store
from composer_hub.local_hub.calls import Route
from composer_hub.local_hub.parts import ROUTES
from composer_hub.local_hub.threaded import HubThread, hub_thread

from .requests import announce, auth, commit, create, file
from .test_xet import END, HEADER, xorb

pytestmark = pytest.mark.skipif(importlib.util.find_spec("hf_xet") is None, reason="needs hf_xet")

WITH_BODIES = [route for route in ROUTES if route.method != "GET"]
# One body that is right for every route.
BODY: dict[str, Any] = {
    "type": "model", "name": "thing", "organization": "ada", "fromRepo": "ada/thing", "toRepo": "ada/else",
    "private": True, "repository": "ada/copy", "tag": "t", "key": "K", "value": "v", "flavor": "cpu-basic",
    "seconds": 60, "volumes": [], "target": {"type": "model", "name": "ada/thing"}, "paths": ["p"],
    "files": [{"sha256": "ab" * 32, "path": "p"}], "deletions": {"sha": ["ab" * 32]}, "title": "A title",
    "description": "Text", "comment": "Text", "content": "Text", "status": "closed", "operation": "upload",
    "objects": [{"oid": "ab" * 32, "size": 3}], "next": "/",
}  # fmt: skip
WRITES_NOTHING = {
    "show_paths", "plan_upload", "validate_yaml", "make_link", "sign_in", "not_offered",
    "verify", "run", "cancel",  # jobs are off here
}  # fmt: skip
WORDS = {"ns": "ada", "name": "thing", "kinds": "models", "rev": "main", "branch": "b", "num": "1"}
WORDS |= {"rest": "x", "id": "x", "store": "x", "scope": "x", "hash": "ab" * 32, "signed": "x", "path": "x"}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., HubThread]]:
    """Start a Hub with something of each kind, for the user ada and the stranger eve."""
    with contextlib.ExitStack() as stack:

        def start(**options: Any) -> HubThread:
            hub = stack.enter_context(hub_thread(tmp_path, **options))
            for name in ("ada", "eve"):
                hub.accounts.add(User(name, name), f"hf_test_{name}")
            with client(hub) as http:
                create(http, "ada/thing", "ada", private=True).raise_for_status()
                create(http, "ada/thing", "ada", type="space", sdk="static", private=True).raise_for_status()
                bucket = http.post("/api/buckets/ada/thing", json={"visibility": "private"}, headers=auth("ada"))
                bucket.raise_for_status()
                commit(http, "ada/thing", [file("d/a.txt")], "ada").raise_for_status()
                opened = {"title": "A title", "description": "Text", "pullRequest": True}
                http.post("/api/models/ada/thing/discussions", json=opened, headers=auth("ada")).raise_for_status()
            return hub

        yield start


def client(hub: HubThread) -> Any:
    return httpx.Client(base_url=hub.endpoint, trust_env=False, timeout=600)


@contextlib.contextmanager
def locked(hub: HubThread) -> Iterator[None]:
    """Hold the database as another process does that writes."""
    with contextlib.closing(sqlite3.connect(hub.root / "hub" / "hub.sqlite", isolation_level=None)) as other:
        other.execute("begin immediate")
        yield
        other.execute("rollback")


def path_of(route: Route) -> str:
    return re.sub(r"\{(\w+)(?:\.\.\.)?\}", lambda found: WORDS[found[1]], route.pattern)


def requests(http: Any) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Return a request (method, address, options) for each route that writes, by a name of it."""
    found = {}
    for route in WITH_BODIES:
        if route.own_auth or route.handler.__name__ in WRITES_NOTHING:
            continue
        body = json.dumps(BODY)
        if route.handler.__name__ == "commit":
            lines = [("header", {"summary": "s"}), file("a.txt")]
            body = "\n".join(json.dumps({"key": key, "value": value}) for key, value in lines)
        elif route.handler.__name__ == "apply_batch":
            body = json.dumps({"type": "deleteFile", "path": "x"})
        options = {"content": body, "headers": auth("ada") | {"Content-Type": "application/json"}}
        found[f"{route.method} {route.pattern}"] = (route.method, path_of(route), options)
    grant = http.get("/api/models/ada/thing/xet-write-token/main", headers=auth("ada")).json()
    token = {"headers": {"Authorization": f"Bearer {grant['accessToken']}"}}
    upload = announce(http, "ada/thing", b"abc", "ada")["actions"]["upload"]["href"]
    return found | {
        "receive": ("PUT", upload, {"content": b"abc"}),
        "grant_write": ("GET", "/api/models/ada/thing/xet-write-token/main", {"headers": auth("ada")}),
        "take_xorb": ("POST", f"{grant['casUrl']}/v1/xorbs/default/{'01' * 32}", token | {"content": xorb(9)}),
        "take_shard": ("POST", f"{grant['casUrl']}/v1/shards", token | {"content": HEADER + END}),
    }


def test_a_writer_that_waits_too_long_is_asked_to_come_back(start: Callable[..., HubThread]) -> None:
    hub = start(patience=0.1)
    with client(hub) as http:
        asked = requests(http)
        with locked(hub):
            answers = {name: http.request(method, url, **options) for name, (method, url, options) in asked.items()}
        other = {
            name: (answer.status_code, answer.text[:200])
            for name, answer in answers.items()
            if answer.status_code != 503
        }
        assert other == {}
        assert {answer.headers["Retry-After"] for answer in answers.values()} == {"1"}
        assert all("send it again" in answer.json()["error"] for answer in answers.values())
        assert commit(http, "ada/thing", [file("b.txt")], "ada").status_code == 200


def test_readers_do_not_wait_for_writers(start: Callable[..., HubThread]) -> None:
    hub = start(patience=600)
    pages = [
        "/", "/ada/thing", "/ada/thing/tree/main", "/ada/thing/blob/main/d/a.txt", "/ada/thing/commits/main",
        "/api/models", "/api/models/ada/thing", "/api/models/ada/thing/tree/main?expand=1",
        "/api/models/ada/thing/refs",
        "/api/models/ada/thing/commits/main", "/ada/thing/resolve/main/d/a.txt", "/api/models/ada/thing/discussions",
        "/api/models/ada/thing/discussions/1?diff=1", "/api/models/ada/thing/xet-read-token/main",
        "/api/settings/repositories", "/api/buckets/ada/thing/tree", "/api/models/ada/thing/lfs-files",
    ]  # fmt: skip
    with client(hub) as http, ThreadPoolExecutor(150) as threads:
        asked = [*requests(http).values()]
        commits = next(one for one in asked if "/commit/" in one[1])
        with locked(hub):
            # More than there are threads for readers.
            waiting = [threads.submit(send, hub, *one) for one in [*asked, *[commits] * 60]]
            for address in [*pages, *pages]:
                answer = http.get(address, headers=auth("ada"))
                assert (answer.status_code, address) == (200, address)
            listed = http.post("/api/models/ada/thing/paths-info/main", data={"paths": "d/a.txt"}, headers=auth("ada"))
            assert listed.status_code == 200
            assert not [one for one in waiting if one.done()]
        assert all(one.result().status_code < 500 for one in waiting)


def send(hub: HubThread, method: str, url: str, options: dict[str, Any]) -> Any:
    with httpx.Client(base_url=hub.endpoint, trust_env=False, timeout=700) as http:
        return http.request(method, url, **options)


def test_a_folder_is_opened_beside_somebody_who_writes_to_it(start: Callable[..., HubThread]) -> None:
    hub = start()
    with locked(hub), contextlib.closing(open_store(hub.root / "hub", is_shared=True, patience=0)) as store:
        assert [repo.name for repo in store.repos("model")] == ["ada/thing"]


def answer_before_the_body(hub: HubThread, route: Route, who: str) -> int:
    """Announce a long body and send none of it; return the status of the answer."""
    place = urlsplit(hub.endpoint)
    token = "".join(f"{key}: {value}\r\n" for key, value in auth(who).items())
    head = f"{route.method} {path_of(route)} HTTP/1.1\r\nHost: {place.netloc}\r\n{token}"
    with socket.create_connection((place.hostname, place.port), timeout=600) as connection:
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 9999\r\n\r\n{{".encode())
        return int(connection.makefile("rb").readline().split()[1])


def test_nothing_is_read_from_somebody_without_rights(start: Callable[..., HubThread]) -> None:
    hub = start()
    # What everybody may ask: about public files, and whether a card is right.
    public = {"show_paths", "validate_yaml", "sign_in"}
    for route in WITH_BODIES:
        if route.handler.__name__ not in public or "{ns}" in route.pattern:
            status = answer_before_the_body(hub, route, "")
            assert status in (401, 403, 404, 501), (route, status)
        if "{ns}/{name}" in route.pattern or "{ns}/{id}" in route.pattern:
            status = answer_before_the_body(hub, route, "eve")
            assert status in (403, 404, 501), (route, status)
