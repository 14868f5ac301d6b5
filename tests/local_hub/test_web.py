"""The pages for people: every link that a client prints opens, hostile content is inert, and private stays private."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.utils import httpx

from composer_hub.local_hub.preview import LATER, NOT_PARQUET, ROWS, TOO_MUCH, first_rows, read_preview
from composer_hub.local_hub.server import ServerProcess
from composer_hub.local_hub.webpage import markdown
from tests.hidden import FEW, hidden_in

from .requests import auth, create

EVIL = "<script>alert(1)</script>"
UNSEEN = EVIL + FEW.replace("\x85", "").replace("\u2028", "")  # a title is one line
CARD = f"""---
license: mit
tags: ["{EVIL}"]
configs: [{{config_name: other}}, {{config_name: first, default: true}}]
---
# Title {EVIL}{FEW}

<img src=x onerror=alert(2)> [js](javascript:alert(3)) [notes](notes.txt) ![plot](plot.png) [up](//evil.example/x)
"""


class Elements(HTMLParser):
    """Collects the elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def values(self, tag: str, name: str) -> list[str]:
        return [attrs.get(name) or "" for kind, attrs in self.found if kind == tag]


def parquet(rows: int = 30) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": [EVIL + FEW] * rows, "tool": [{"n": number} for number in range(rows)]}), file)
    return file.getvalue()


@pytest.fixture(scope="session")
def signed_in(hub_server: ServerProcess) -> Any:
    """A browser that `hub open` signed in."""
    with httpx.Client(base_url=hub_server.endpoint, trust_env=False, follow_redirects=True, timeout=600) as browser:
        link = browser.post("/api/login-link", json={"next": "/me"}, headers=auth("me")).json()["url"]
        assert browser.get(link).url.path == "/me"
        yield browser


@pytest.fixture(scope="session")
def links(hub_server: ServerProcess) -> list[str]:
    """Every link that the stock client prints for a hostile private dataset, a bucket and a job."""
    api, name = HfApi(endpoint=hub_server.endpoint, token="hf_test_me"), "me/pages"
    url = api.create_repo(name, repo_type="dataset", private=True)
    files = {
        "README.md": CARD.encode(),
        "notes.txt": f"{EVIL}{FEW}".encode(),
        f"{EVIL}&'.txt": b"text",
        "data/first/train.parquet": parquet(),
        "data/other/train.parquet": b"PAR1 is not Parquet",
        "plot.png": b"\x89PNG",
        "page.html": EVIL.encode(),
        "docs/guide.md": b"[back](../notes.txt)",
    }
    adds = [CommitOperationAdd(path, data) for path, data in files.items()]
    commit = api.create_commit(name, adds, repo_type="dataset", commit_message=UNSEEN, commit_description=UNSEEN)
    more = [CommitOperationAdd("notes.txt", b"changed")]
    pull = api.create_commit(name, more, repo_type="dataset", commit_message="change", create_pr=True)
    talk = api.create_discussion(name, UNSEEN, repo_type="dataset", description=f"{UNSEEN} [js](javascript:alert(1))")
    bucket = api.create_bucket("me/pages", private=True).url
    api.batch_bucket_files("me/pages", add=[(b"x", f"{EVIL}.txt")])
    job = api.run_job(image="python:3.12", command=["echo", EVIL])
    return [str(url), commit.commit_url, str(pull.pr_url), talk.url, bucket, job.url]


def test_every_link_that_a_client_prints_opens_and_so_does_every_link_behind_it(
    signed_in: Any, links: list[str], hub_server: ServerProcess
) -> None:
    todo, seen = [*links, f"{hub_server.endpoint}/"], set()
    while todo:
        address = todo.pop()
        path = urlsplit(address).path
        if path in seen or address.endswith("../notes.txt"):
            continue
        seen.add(path)
        answer = signed_in.get(address)
        assert answer.status_code == 200, (address, answer.text[:300])
        if "text/html" not in answer.headers["content-type"]:
            continue
        assert hidden_in(answer.text) == []
        page = Elements(answer.text)
        assert not {"script", "iframe", "object", "base"} & {tag for tag, _ in page.found}
        assert not [name for _, attrs in page.found for name in attrs if name.startswith("on")]
        for href in page.values("a", "href"):
            assert not href.lower().startswith("javascript")
            if href.startswith("/") and not href.startswith("//") and "pages" in href:
                todo.append(hub_server.endpoint + href)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "unsafe" not in policy
    assert len(seen) > 15


def test_a_card_shows_its_tags_its_files_and_the_rows_of_its_default_config(signed_in: Any, links: list[str]) -> None:
    text = signed_in.get(links[0]).text
    assert "license:mit" in text
    assert "data/first/train.parquet" in text
    assert f"{ROWS} of 30 rows" in text
    page = Elements(text)
    assert "/datasets/me/pages/blob/main/notes.txt" in page.values("a", "href")
    assert page.values("img", "src") == ["/datasets/me/pages/resolve/main/plot.png"]


def test_a_private_page_asks_a_stranger_for_a_token_and_tells_nothing(http: Any, links: list[str]) -> None:
    for link in links:
        answer = http.get(urlsplit(link).path)
        assert answer.status_code == 401, link
        assert Elements(answer.text).values("form", "action") == ["/login"]
        assert "alert" not in answer.text
    assert "me/pages" not in http.get("/").text
    eve = http.get(urlsplit(links[0]).path, headers=auth("eve"))
    assert (eve.status_code, eve.headers["X-Error-Code"]) == (404, "RepoNotFound")


def test_a_token_in_the_form_signs_in_and_a_wrong_one_does_not(hub_server: ServerProcess, links: list[str]) -> None:
    with httpx.Client(base_url=hub_server.endpoint, trust_env=False, timeout=600) as browser:
        wrong = browser.post("/login", data={"token": "hf_wrong", "next": "/me"})
        assert (wrong.status_code, len(browser.cookies)) == (401, 0)
        right = browser.post("/login", data={"token": "hf_test_me", "next": "/datasets/me/pages"})
        assert (right.status_code, right.headers["location"]) == (303, "/datasets/me/pages")
        cookie = right.headers["set-cookie"]
        assert "hf_test_me" not in cookie
        assert "httponly" in cookie.lower()
        assert "samesite=strict" in cookie.lower()
        assert browser.get("/datasets/me/pages").status_code == 200


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/\\evil.example", "evil", "/\r\nX: y"])
def test_signing_in_never_leads_to_another_server(http: Any, target: str) -> None:
    link = http.post("/api/login-link", json={"next": target}, headers=auth("me")).json()["url"]
    assert http.get(link).headers["location"] == "/"
    http.cookies.clear()


def test_a_sign_in_link_works_once(http: Any) -> None:
    link = http.post("/api/login-link", json={}, headers=auth("me")).json()["url"]
    assert [http.get(link).status_code for _ in range(2)] == [303, 401]
    http.cookies.clear()
    assert http.post("/api/login-link", json={}).status_code == 401


def test_a_signed_in_browser_changes_nothing_and_does_not_use_the_api(signed_in: Any) -> None:
    assert signed_in.get("/api/whoami-v2").status_code == 401
    assert signed_in.post("/api/repos/create", json={"name": "x"}).status_code == 401
    assert signed_in.post("/api/login-link", json={}).status_code == 401


@pytest.mark.parametrize("path", [
    "/nobody", "/nobody/x", "/datasets/me/nothing", "/me/nothing/tree/main", "/datasets/me/pages/tree/nowhere",
    "/datasets/me/pages/blob/main/nothing", "/datasets/me/pages/commit/0000000", "/datasets/me/pages/discussions/99",
    "/datasets/me/pages/discussions/x", "/datasets/squad", "/buckets/me/nothing", "/jobs/me/nothing",
])  # fmt: skip
def test_a_page_that_is_not_there_says_so(signed_in: Any, links: list[str], path: str) -> None:
    answer = signed_in.get(path)
    assert answer.status_code == 404
    assert "text/html" in answer.headers["content-type"]


def test_a_gated_dataset_shows_its_card_and_no_rows_to_others(
    http: Any, hub_server: ServerProcess, hub_repo: Callable[[str], str]
) -> None:
    name = hub_repo("gated")
    create(http, name, type="dataset")
    api = HfApi(endpoint=hub_server.endpoint, token="hf_test_me")
    adds = [CommitOperationAdd("README.md", b"# Secret rows"), CommitOperationAdd("a.parquet", parquet())]
    commit = api.create_commit(name, adds, repo_type="dataset", commit_message="rows")
    http.put(f"/api/datasets/{name}/settings", json={"gated": "auto"}, headers=auth("me"))
    shown = http.get(f"/datasets/{name}", headers=auth("eve")).text
    assert "Secret rows" in shown
    assert "First rows" not in shown
    assert http.get(f"/datasets/{name}/blob/main/a.parquet", headers=auth("eve")).status_code == 403
    assert "+# Secret" not in http.get(urlsplit(commit.commit_url).path, headers=auth("eve")).text


@pytest.mark.parametrize("text", [
    "[x](java\nscript:alert(1))", "<svg onload=alert(1)>", "[x](data:text/html,<script>)", "![x](vbscript:x)",
    "[x]:\n<", "[" * 5000, "> " * 3000, "---\na: b",
    "http://[", "[x](http://[)", "\u0000", "| a |\n|---|\n" + "| b |\n" * 50,
])  # fmt: skip
def test_hostile_markdown_is_rendered_inert(text: str) -> None:
    page = Elements(markdown(text, "/files", "/images"))
    assert not {"script", "svg", "iframe"} & {tag for tag, _ in page.found}
    addresses = page.values("a", "href") + page.values("img", "src")
    assert not [address for address in addresses if re.match(r"\s*(javascript|vbscript|data):", address, re.IGNORECASE)]


@pytest.mark.parametrize("data", [b"", b"PAR1" + parquet()[200:]])
def test_what_is_not_parquet_is_named_so(data: bytes) -> None:
    assert read_preview(data, len(data)) == NOT_PARQUET


@pytest.mark.parametrize("column", [["x" * 100_000_000] * 3, [[[1] * 3_000_000]] * 3])
def test_a_small_parquet_file_that_unpacks_to_much_is_left_alone(column: list[Any]) -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"a": column}), file, compression="zstd")
    assert len(file.getvalue()) < 10_000
    assert read_preview(file.getvalue(), 10_000) == TOO_MUCH


def num_previews(pid: int) -> int:
    """Return how many processes of a server read a Parquet file now."""
    children = [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]
    return sum(b"preview" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_few_parquet_files_are_read_at_once_and_the_other_pages_say_so(hub_server: ServerProcess) -> None:
    api, name = HfApi(endpoint=hub_server.endpoint, token=hub_server.token), "me/many"
    api.create_repo(name, repo_type="dataset")
    adds = [CommitOperationAdd(f"{rows}.parquet", parquet(rows)) for rows in range(24)]
    api.create_commit(name, adds, repo_type="dataset", commit_message="many")
    with ThreadPoolExecutor(24) as threads, httpx.Client(base_url=hub_server.endpoint, timeout=600) as http:
        pages = [threads.submit(http.get, f"/datasets/{name}/blob/main/{rows}.parquet") for rows in range(24)]
        seen = set()
        while not all(page.done() for page in pages):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                seen.add(num_previews(hub_server.running.pid))
        texts = [page.result().raise_for_status().text for page in pages]
    assert max(seen) in (1, 2)
    assert all(f"of {rows} rows" in text or LATER["problem"] in text for rows, text in enumerate(texts))
    with httpx.Client(base_url=hub_server.endpoint, timeout=600) as http:
        for rows, text in enumerate(texts):
            if LATER["problem"] in text:
                assert f"of {rows} rows" in http.get(f"/datasets/{name}/blob/main/{rows}.parquet").text


def test_a_parquet_file_without_rows_shows_its_columns() -> None:
    assert first_rows(io.BytesIO(parquet(0))) == {"columns": ["text", "tool"], "rows": [], "total": 0}
