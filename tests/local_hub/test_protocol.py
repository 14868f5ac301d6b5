"""The protocol itself, request by request, against a real server process."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from huggingface_hub.utils import httpx
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.local_hub.calls import ApiError
from composer_hub.local_hub.files import parse_range
from composer_hub.local_hub.server import ServerProcess
from tests.quick import cases

from .requests import announce, auth, commit, create, file, lfs_file, upload


@pytest.fixture
def repo(http: Any, hub_repo: Callable[[str], str]) -> str:
    name = hub_repo("proto")
    assert create(http, name).status_code == 200
    return name


# ---------------------------------------------------------------------------------------------------- who may what


@pytest.mark.parametrize(("who", "visibility", "status"), [
    ("me", "private", 200), ("reader", "private", 200), ("eve", "private", 404), ("", "private", 401),
    ("eve", "public", 200), ("", "public", 200),
])  # fmt: skip
def test_a_private_repository_exists_only_for_its_members(
    http: Any, hub_repo: Callable[[str], str], who: str, visibility: str, status: int
) -> None:
    name = hub_repo("seen")
    create(http, name, visibility=visibility)
    for path in (f"/api/models/{name}", f"/{name}/resolve/main/.gitattributes", f"/api/models/{name}/tree/main"):
        answer = http.get(path, headers=auth(who))
        assert answer.status_code == status
        assert status == 200 or answer.headers["x-error-code"] == "RepoNotFound"
    names = [item["id"] for item in http.get("/api/models?author=me", headers=auth(who)).json()]
    assert (name in names) is (status == 200)


@pytest.mark.parametrize(
    ("who", "status"), [("me", 200), ("ada", 403), ("bob", 403), ("eve", 403), ("reader", 403), ("", 401)]
)
def test_only_who_has_the_right_writes(http: Any, hub_repo: Any, who: str, status: int) -> None:
    name = hub_repo("written", "team") if who in ("ada", "bob") else hub_repo("written")
    create(http, name, visibility="public")
    answers = [
        commit(http, name, [file("a.txt")], who),
        http.post(f"/api/models/{name}/tag/main", json={"tag": "v1"}, headers=auth(who)),
        http.post(f"/api/models/{name}/branch/b", json={}, headers=auth(who)),
        http.put(f"/api/models/{name}/settings", json={"gated": "auto"}, headers=auth(who)),
        http.post(f"/api/models/{name}/super-squash/main", json={}, headers=auth(who)),
        http.get(f"/api/models/{name}/auth-check/write", headers=auth(who)),
        http.get(f"/api/models/{name}/xet-write-token/main", headers=auth(who)),
        http.get(f"/api/models/{name}/lfs-files", headers=auth(who)),
    ]
    assert [answer.status_code for answer in answers] == [status] * len(answers)


def test_a_contributor_writes_only_to_created_repositories(http: Any, hub_repo: Any) -> None:
    name = hub_repo("own", "team")
    assert create(http, name, "bob").status_code == 200
    assert commit(http, name, [file("a")], "bob").status_code == 200
    assert create(http, hub_repo("own", "team"), "ada").status_code == 403


def test_an_organization_may_be_private_by_default(http: Any, hub_repo: Any) -> None:
    assert create(http, hub_repo("x", "vault")).json()["private"] is True
    assert create(http, hub_repo("x", "vault"), visibility="public").json()["private"] is False
    assert create(http, hub_repo("x", "team")).json()["private"] is False


def test_a_gated_repository_shows_its_card_but_not_its_files(http: Any, repo: str) -> None:
    http.put(f"/api/models/{repo}/settings", json={"gated": "manual"}, headers=auth("me"))
    assert http.get(f"/api/models/{repo}", headers=auth("eve")).json()["gated"] == "manual"
    for who, status in (("me", 200), ("eve", 403), ("", 401)):
        answer = http.get(f"/{repo}/resolve/main/.gitattributes", headers=auth(who))
        assert answer.status_code == status
        assert status == 200 or answer.headers["x-error-code"] == "GatedRepo"


def test_an_unknown_token_is_refused_without_being_repeated(http: Any) -> None:
    answer = http.get("/api/whoami-v2", headers={"Authorization": "Bearer hf_stolen"})
    assert answer.status_code == 401
    assert answer.headers["x-error-message"] == "Invalid credentials in Authorization header"
    assert "hf_stolen" not in answer.text


def test_large_files_of_a_private_repository_are_not_had_by_knowing_their_hash(http: Any, hub_repo: Any) -> None:
    data = b"secret weights" * 10
    mine, theirs = hub_repo("mine"), hub_repo("theirs", "eve")
    create(http, mine, visibility="private")
    create(http, theirs, "eve")
    assert upload(http, mine, data).status_code == 200
    line = lfs_file("m.bin", data)
    assert commit(http, mine, [line]).status_code == 200
    assert "actions" in announce(http, theirs, data, "eve")
    assert commit(http, theirs, [line], "eve").status_code == 400


# ---------------------------------------------------------------------------------------------------- commits


def test_one_of_eight_racers_wins_and_seven_get_412(http: Any, repo: str, hub_server: ServerProcess) -> None:
    parent = http.get(f"/api/models/{repo}", headers=auth("me")).json()["sha"]
    start, codes = threading.Barrier(8), []

    def race(number: int) -> None:
        with httpx.Client(base_url=hub_server.endpoint, trust_env=False) as own:
            start.wait()
            codes.append(commit(own, repo, [file(f"f{number}")], parentCommit=parent).status_code)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200, *[412] * 7]
    assert len(http.get(f"/api/models/{repo}/commits/main", headers=auth("me")).json()) == 2


@pytest.mark.parametrize(("lines", "status", "code"), [
    ([file("../etc/passwd")], 422, "InvalidPath"),
    ([file("/etc/passwd")], 422, "InvalidPath"),
    ([file(".git/config")], 422, "InvalidPath"),
    ([file("a"), file("a/b")], 422, "InvalidPath"),
    ([("deletedFile", {"path": "none"})], 404, "EntryNotFound"),
    ([("deletedFolder", {"path": "none"})], 404, "EntryNotFound"),
    ([("lfsFile", {"path": "m.bin", "oid": "ab" * 32, "size": 3})], 400, "LfsObjectMissing"),
    ([("file", {"path": "a", "encoding": "base64", "content": "%%%"})], 400, "BadRequest"),
    ([("file", {"path": 3, "content": ""})], 400, "BadRequest"),
    ([("rename", {"path": "a"})], 400, "BadRequest"),
], ids=lambda value: value if isinstance(value, str) else None)  # fmt: skip
def test_a_bad_operation_is_named_and_its_commit_is_dropped(
    http: Any, repo: str, lines: list, status: int, code: str
) -> None:
    before = http.get(f"/api/models/{repo}", headers=auth("me")).json()["sha"]
    answer = commit(http, repo, [file("good.txt"), *lines])
    assert (answer.status_code, answer.headers["x-error-code"]) == (status, code)
    assert answer.json()["error"]
    assert http.get(f"/api/models/{repo}", headers=auth("me")).json()["sha"] == before


@pytest.mark.parametrize("body", [b"", b"\n", b"nonsense", b"[1]", b'{"key":"header"}', b'{"key":"header","value":3}'])
def test_a_commit_that_is_none_is_a_400(http: Any, repo: str, body: bytes) -> None:
    answer = http.post(f"/api/models/{repo}/commit/main", content=body, headers=auth("me"))
    assert answer.status_code == 400


def test_a_branch_that_is_not_there_is_a_404(http: Any, repo: str) -> None:
    answer = commit(http, repo, [file("a")], rev="nowhere")
    assert (answer.status_code, answer.headers["x-error-code"]) == (404, "RevisionNotFound")


def test_a_json_body_that_is_too_long_is_a_413(http: Any) -> None:
    answer = http.post("/api/validate-yaml", content=b'"' + b"x" * (17 << 20) + b'"', headers=auth("me"))
    assert answer.status_code == 413


def test_a_commit_line_without_an_end_is_cut(http: Any, repo: str) -> None:
    parts = [b'{"key":"file","value":{"path":"a","content":"', *[b"x" * (1 << 20)] * 65]
    answer = http.post(f"/api/models/{repo}/commit/main", content=iter(parts), headers=auth("me"))
    assert answer.status_code == 413


def test_a_packed_body_is_not_unpacked(http: Any) -> None:
    packed = gzip.compress(b'{"name": "packed", "x": "' + bytes(20 << 20) + b'"}')
    headers = auth("me") | {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    assert http.post("/api/repos/create", content=packed, headers=headers).status_code == 400


def test_heads_that_never_end_hold_up_nobody(http: Any, hub_server: ServerProcess) -> None:
    host, _, port = hub_server.endpoint.removeprefix("http://").partition(":")
    with contextlib.ExitStack() as links:
        for _ in range(100):
            links.enter_context(socket.create_connection((host, int(port)))).sendall(b"GET /api/models HTTP/1.1\r\nHo")
        assert http.get("/api/whoami-v2", headers=auth("me")).status_code == 200


def test_a_page_of_another_origin_may_not_read_the_answers(http: Any) -> None:
    for method in ("GET", "OPTIONS"):
        headers = auth("me") | {"Origin": "https://example.org", "Access-Control-Request-Method": "GET"}
        answer = http.request(method, "/api/whoami-v2", headers=headers)
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


# ---------------------------------------------------------------------------------------------------- files and refs


def test_a_missing_file_names_the_commit_so_that_clients_may_remember(http: Any, repo: str) -> None:
    sha = http.get(f"/api/models/{repo}", headers=auth("me")).json()["sha"]
    answer = http.head(f"/{repo}/resolve/main/none.txt", headers=auth("me"))
    assert (answer.status_code, answer.headers["x-error-code"]) == (404, "EntryNotFound")
    assert answer.headers["x-repo-commit"] == sha
    answer = http.head(f"/{repo}/resolve/none/none.txt", headers=auth("me"))
    assert (answer.status_code, answer.headers["x-error-code"]) == (404, "RevisionNotFound")


@pytest.mark.parametrize("size", [0, 5, 70_000])
def test_a_file_comes_back_whole_and_in_ranges(http: Any, repo: str, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    commit(http, repo, [file("d/ü n.bin", data)])
    path = f"/{repo}/resolve/main/{quote('d/ü n.bin', safe='')}"
    whole = http.get(path, headers=auth("me"))
    assert (whole.status_code, whole.content) == (200, data)
    assert whole.headers["content-length"] == http.head(path, headers=auth("me")).headers["content-length"] == str(size)
    if size:
        part = http.get(path, headers={**auth("me"), "Range": "bytes=1-3"})
        assert (part.status_code, part.content) == (206, data[1:4])
        assert part.headers["content-range"] == f"bytes 1-3/{size}"
        assert http.get(path, headers={**auth("me"), "Range": "bytes=-2"}).content == data[-2:]
    assert http.get(path, headers={**auth("me"), "Range": f"bytes={size}-"}).status_code == 416


@cases(200)
@given(size=st.integers(0, 50), first=st.none() | st.integers(0, 60), last=st.none() | st.integers(0, 60))
def test_a_range_gives_exactly_the_bytes_it_names(size: int, first: int | None, last: int | None) -> None:
    data = bytes(range(size))
    header = f"bytes={'' if first is None else first}-{'' if last is None else last}"
    if first is None:
        expected = data if last is None else data[max(size - last, 0) :] if last else b""
    else:
        expected = data[first : size if last is None else last + 1]
    is_ignored = (first is None and last is None) or (first is not None and last is not None and last < first)
    if not expected and not is_ignored:
        with pytest.raises(ApiError) as error:
            parse_range(header, size)
        assert error.value.status == 416
        return
    span = parse_range(header, size)
    assert (span is None) is is_ignored
    assert span is None or data[span[0] : span[1]] == expected


@cases(100)
@given(header=st.text(max_size=30))
def test_a_range_that_is_none_never_fails_with_another_error(header: str) -> None:
    with contextlib.suppress(ApiError):
        parse_range(header, 10)


def test_a_tree_is_paged_without_loss(http: Any, repo: str) -> None:
    commit(http, repo, [file(f"d{i % 3}/f{i:04}") for i in range(1200)])
    seen, url, num_pages = [], f"/api/models/{repo}/tree/main?recursive=true", 0
    while url:
        page = http.get(url, headers=auth("me"))
        seen += [item["path"] for item in page.json()]
        url, num_pages = page.links.get("next", {}).get("url"), num_pages + 1
    assert num_pages == 2
    assert len(seen) == len(set(seen)) == 1200 + 3 + 1


def test_a_history_is_paged_without_loss(http: Any, repo: str) -> None:
    for number in range(5):
        commit(http, repo, [file("a", b"%d" % number)])
    seen, url = [], f"/api/models/{repo}/commits/main?limit=2"
    while url:
        page = http.get(url, headers=auth("me"))
        seen += [item["id"] for item in page.json()]
        url = page.links.get("next", {}).get("url")
    assert len(seen) == len(set(seen)) == 6


@pytest.mark.parametrize("name", ["refs/heads/x", "a..b", "a b", "-a", "a/", "a//b", "a.lock", "x" * 300, "ä~"])
def test_a_reference_name_that_git_cannot_hold_is_refused(http: Any, repo: str, name: str) -> None:
    answer = http.post(f"/api/models/{repo}/tag/main", json={"tag": name}, headers=auth("me"))
    assert answer.status_code == 400


def test_a_missing_revision_is_named_before_a_bad_tag(http: Any, repo: str) -> None:
    answer = http.post(f"/api/models/{repo}/tag/nowhere", json={"tag": "a b"}, headers=auth("me"))
    assert answer.headers["X-Error-Code"] == "RevisionNotFound"


def test_names_that_differ_only_in_case_are_one_repository(http: Any, repo: str) -> None:
    shouted = f"ME/{repo.partition('/')[2].upper()}"
    assert http.get(f"/api/models/{shouted}", headers=auth("me")).json()["id"] == repo
    assert commit(http, shouted, [file("a")]).status_code == 200
    assert create(http, f"me/{shouted.partition('/')[2]}").status_code == 409
    renamed = f"me/{shouted.partition('/')[2]}"
    body = {"fromRepo": repo, "toRepo": renamed, "type": "model"}
    assert http.post("/api/repos/move", json=body, headers=auth("me")).status_code == 200
    assert http.get(f"/api/models/{repo}", headers=auth("me")).json()["id"] == renamed


def test_a_bucket_list_of_an_unknown_namespace_is_a_404(http: Any) -> None:
    assert http.get("/api/buckets/me", headers=auth("me")).status_code == 200
    assert http.get("/api/buckets/scratch", headers=auth("me")).status_code == 404


@pytest.mark.parametrize(("sent", "kept"), [("custom-id", True), ("a\tb", False), ("x" * 201, False)])
def test_a_request_keeps_the_id_that_its_client_gave_it(http: Any, sent: str, kept: bool) -> None:
    for header in ("X-Request-Id", "X-Amzn-Trace-Id"):
        answered = http.get("/api/whoami-v2", headers=auth("me") | {header: sent}).headers["X-Request-Id"]
        assert (answered == sent) is kept
        assert answered


def test_a_tag_is_never_moved(http: Any, repo: str) -> None:
    url = f"/api/models/{repo}/tag/main"
    assert http.post(url, json={"tag": "v1"}, headers=auth("me")).status_code == 200
    commit(http, repo, [file("a")])
    again = http.post(url, json={"tag": "v1"}, headers=auth("me"))
    assert (again.status_code, again.json()["error"]) == (409, "Reference refs/tags/v1 already exists")


def test_a_moved_repository_is_led_to_for_readers(http: Any, repo: str) -> None:
    new = repo + "-new"
    body = {"fromRepo": repo, "toRepo": new, "type": "model"}
    assert http.post("/api/repos/move", json=body, headers=auth("me")).status_code == 200
    answer = http.get(f"/{repo}/resolve/main/.gitattributes", headers=auth("me"))
    assert (answer.status_code, answer.headers["location"]) == (307, f"/{new}/resolve/main/.gitattributes")
    assert http.get(f"/api/models/{repo}", headers=auth("me"), follow_redirects=True).json()["id"] == new


def test_a_write_under_an_old_name_is_redirected_with_its_body(http: Any, hub_server: ServerProcess, repo: str) -> None:
    new = repo + "-new"
    http.post("/api/repos/move", json={"fromRepo": repo, "toRepo": new, "type": "model"}, headers=auth("me"))
    assert commit(http, repo, [file("a")]).status_code == 307
    with httpx.Client(base_url=hub_server.endpoint, trust_env=False, follow_redirects=True) as following:
        assert commit(following, repo, [file("a")]).status_code == 200
    assert http.get(f"/{new}/resolve/main/a", headers=auth("me")).content == b"hello"
    gone = http.request("DELETE", "/api/repos/delete", json={"name": repo.partition("/")[2]}, headers=auth("me"))
    assert gone.status_code == 404


def test_gated_repositories_are_listed_apart(http: Any, repo: str) -> None:
    http.put(f"/api/models/{repo}/settings", json={"gated": "auto"}, headers=auth("me"))
    shown = [
        repo in [item["id"] for item in http.get(f"/api/models?author=me{word}", headers=auth("me")).json()]
        for word in ("", "&gated=true", "&gated=false")
    ]
    assert shown == [True, True, False]


def test_a_name_that_is_taken_answers_with_its_url(http: Any, repo: str) -> None:
    answer = create(http, repo)
    assert answer.status_code == 409
    assert answer.json()["url"].endswith(f"/{repo}")


@pytest.mark.parametrize("name", ["a--b", "a..b", ".a", "a.git", "a/b", "x" * 97, "ä", ""])
def test_a_repository_name_that_the_hub_refuses_is_refused(http: Any, name: str) -> None:
    assert create(http, f"me/{name}").status_code == 400


def test_metadata_that_cannot_be_read_is_refused_before_the_commit(http: Any) -> None:
    answer = http.post("/api/validate-yaml", json={"content": "---\na: [\n---\n", "repoType": "model"})
    assert answer.status_code == 400
    assert answer.json()["errors"]
    fine = http.post("/api/validate-yaml", json={"content": "---\nlicense: mit\n---\n", "repoType": "dataset"})
    assert (fine.status_code, fine.json()) == (200, {"errors": [], "warnings": []})


# ---------------------------------------------------------------------------------------------------- the edges


def test_lists_are_sorted_as_requested_and_refuse_unknown_orders(http: Any, hub_repo: Callable[[str], str]) -> None:
    word = hub_repo("sorted").partition("-")[2]
    names = [f"sorted-{word}-{letter}" for letter in "abc"]
    for name in names:
        assert http.post("/api/repos/create", json={"name": name}, headers=auth("me")).status_code == 200
    commit(http, f"me/{names[0]}", [file("README.md", b"---\npipeline_tag: text-generation\n---\n")])

    def listed(**query: str) -> list[str]:
        answer = http.get("/api/models", params={"author": "me", "search": word, **query}, headers=auth("me"))
        assert answer.status_code == 200, answer.text
        return [item["id"].rpartition("-")[2] for item in answer.json()]

    assert listed(sort="createdAt") == ["c", "b", "a"]
    assert listed(sort="createdAt", direction="1") == ["a", "b", "c"]
    assert listed(sort="lastModified") == ["a", "c", "b"]
    assert listed(pipeline_tag="text-generation") == ["a"]
    assert listed(pipeline_tag="nope") == []
    assert http.get("/api/models?inference=warm", headers=auth("me")).status_code == 501
    assert http.get("/api/models?sort=beauty", headers=auth("me")).status_code == 400


@pytest.mark.parametrize("path", [
    "/api/models/gpt2", "/api/models/gpt2/revision/main", "/api/datasets/squad/tree/main", "/api/buckets/scratch/tree",
    "/gpt2/resolve/main/config.json", "/datasets/squad/resolve/main/data/train.parquet",
])  # fmt: skip
def test_a_name_without_a_namespace_is_a_repository_that_does_not_exist(http: Any, path: str) -> None:
    answer = http.get(path, headers=auth("me"))
    assert (answer.status_code, answer.headers["X-Error-Code"]) == (404, "RepoNotFound")


@pytest.mark.parametrize(("method", "path"), [
    ("GET", "/api/collections"),
    ("GET", "/me/x.git/info/refs"),
    ("PATCH", "/api/models"),
    ("GET", "/%2e%2e/%2e%2e/etc/passwd"),
])  # fmt: skip
def test_a_missing_feature_is_named(http: Any, method: str, path: str) -> None:
    answer = http.request(method, path, headers=auth("me"))
    assert answer.status_code == 501
    assert answer.json()["missing"].startswith(method)


@pytest.mark.parametrize(("method", "rest"), [("POST", "/like"), ("GET", "/nothing/of/this"), ("PATCH", "")])
def test_a_missing_feature_of_a_repository_is_named_only_to_its_readers(
    http: Any, hub_repo: Callable[[str], str], method: str, rest: str
) -> None:
    name = hub_repo("hidden")
    assert http.request(method, f"/api/models/{name}{rest}", headers=auth("me")).status_code == 404
    create(http, name, visibility="private")
    statuses = [
        http.request(method, f"/api/models/{name}{rest}", headers=auth(who)).status_code for who in ("me", "eve", "")
    ]
    assert statuses == [501, 404, 401]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.:80"])
def test_a_foreign_host_is_refused(http: Any, host: str) -> None:
    assert http.get("/api/whoami-v2", headers={**auth("me"), "Host": host}).status_code in (400, 403)


@cases(60)
@given(
    segments=st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=7), method=st.sampled_from(["GET", "POST"])
)
def test_no_path_ends_in_an_internal_error(http: Any, segments: list[str], method: str) -> None:
    path = "/" + "/".join(quote(part.encode("utf-8", "replace"), safe="") for part in segments)
    for prefix in ("", "/api/models", "/datasets", "/_lfs", "/_cas"):
        assert http.request(method, prefix + path, headers=auth("me")).status_code not in (500, 502)


HALF = "x\\ud800"


@pytest.mark.parametrize(("method", "path", "body"), [
    ("POST", "/api/models/{}/commit/main", f'{{"key":"header","value":{{"summary":"{HALF}"}}}}'),
    ("POST", "/api/models/{}/super-squash/main", f'{{"message":"{HALF}"}}'),
    ("DELETE", "/api/repos/delete", f'{{"name":"{HALF}"}}'),
    ("POST", "/api/repos/create", f'{{"name":"{HALF}"}}'),
    ("POST", "/api/repos/create", '{"name":"a","organization":["a"]}'),
    ("POST", "/api/repos/create", '{"name":"a","private":"yes"}'),
    ("POST", "/api/repos/create", '{"name":"a","visibility":["private"]}'),
    ("DELETE", "/api/repos/delete", '{"name":"a","organization":["a"]}'),
    ("POST", "/api/models/{}/branch/b", '{"startingPoint":["a"]}'),
    ("POST", "/api/models/{}/tag/main", '{"tag":"v","message":["a"]}'),
    ("POST", "/api/models/{}/super-squash/main", '{"message":["a"]}'),
    ("PUT", "/api/models/{}/settings", '{"private":["x"]}'),
    ("PUT", "/api/models/{}/settings", '{"visibility":["x"]}'),
    ("POST", "/api/models/{}/preupload/main", '{"files":[{"path":["a"],"size":1}]}'),
    ("POST", "/api/models/{}/commit/main", '{"key":"header","value":{"summary":"s","parentCommit":["a"]}}'),
])  # fmt: skip
def test_texts_that_are_none_and_fields_of_another_type_are_a_400(
    http: Any, repo: str, method: str, path: str, body: str
) -> None:
    answer = http.request(method, path.format(repo), content=body, headers=auth("me"))
    assert answer.status_code == 400
    assert answer.json()["error"]


@pytest.mark.parametrize("header", ["bytes={}-", "bytes=-{}", "bytes=0-{}"])
def test_a_range_of_thousands_of_digits_is_ignored(http: Any, repo: str, header: str) -> None:
    answer = http.get(
        f"/{repo}/resolve/main/.gitattributes", headers={**auth("me"), "Range": header.format("9" * 5000)}
    )
    assert answer.status_code == 200


@pytest.mark.parametrize("method_path", ["POST /api/repos/move", "DELETE /api/repos/delete", "POST /api/repos/create"])
def test_a_bucket_among_repositories_is_not_offered(http: Any, method_path: str) -> None:
    method, _, path = method_path.partition(" ")
    body = {"type": "bucket", "fromRepo": "me/a", "toRepo": "me/b", "name": "a"}
    answer = http.request(method, path, json=body, headers=auth("me"))
    assert (answer.status_code, answer.json()["missing"]) == (501, "repositories of type bucket")


@pytest.mark.parametrize("path", ["/_lfs/1.{}.3.9999999999.abc", "/_lfs/x", "/_lfs/ä"])
def test_an_upload_address_that_was_not_given_out_is_refused(http: Any, path: str) -> None:
    assert http.put(quote(path.format("ab" * 32)), content=b"abc").status_code == 403


def test_an_upload_with_other_bytes_than_announced_is_refused(http: Any, repo: str) -> None:
    answer = announce(http, repo, b"abc", oid="ab" * 32)
    href = answer["actions"]["upload"]["href"]
    assert http.put(href, content=b"abc").status_code == 400
    assert http.put(href, content=b"abcd").status_code == 400
    assert http.put(href, content=iter([b"ab", b"cd"])).status_code == 413
    assert http.post(answer["actions"]["verify"]["href"], json={}, headers=auth("me")).status_code == 404


def test_a_tag_or_a_branch_that_poses_as_a_commit_is_refused_with_a_reason(http: Any, repo: str) -> None:
    oid = http.get(f"/api/models/{repo}", headers=auth("me")).json()["sha"]
    for name in (oid, oid[:7], "ab" * 32, "HEAD"):
        answers = [
            http.post(f"/api/models/{repo}/tag/main", json={"tag": name}, headers=auth("me")),
            http.post(f"/api/models/{repo}/branch/{name}", json={}, headers=auth("me")),
        ]
        assert [(answer.status_code, bool(answer.json()["error"])) for answer in answers] == [(400, True)] * 2


def test_an_upload_names_the_file_that_clients_could_not_download(http: Any, repo: str) -> None:
    answer = commit(http, repo, [file("a:b.txt")])
    assert (answer.status_code, answer.headers["X-Error-Code"]) == (422, "InvalidPath")
    assert "a:b.txt" in answer.json()["error"]
