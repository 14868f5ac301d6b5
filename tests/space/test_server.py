"""The server's answers to programs, to strangers and to clients that ask too much."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from huggingface_hub.utils import httpx
from inspector.guard import BURST, RequestGuard

from composer_hub.local_hub.server import ServerProcess
from tests.quick import quick
from tests.space.conftest import NUM_PAIRS, SPACE, Published, serving


@pytest.fixture
def client(space: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=space, trust_env=False, timeout=600) as found:
        yield found


DEFERRED = {"records.py": {"datasets"}}  # imported in functions that the Space does not call


def imported(path: Path, nodes: Iterable[ast.AST]) -> set[str]:
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            assert (path.parent / f"{node.module}.py").exists()
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def test_the_space_imports_no_stage_and_nothing_heavy() -> None:
    allowed = {"gradio", "fastapi", "starlette", "duckdb", "rapidfuzz", "huggingface_hub", "fsspec", "inspector"}
    allowed |= {"markdown_it", *sys.stdlib_module_names}
    for path in SPACE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        assert imported(path, tree.body) <= allowed, path
        assert imported(path, ast.walk(tree)) <= allowed | DEFERRED.get(path.name, set()), path


def test_programs_search_read_and_count_pairs(space: str, published: Published) -> None:
    # A separate process: the client of Gradio keeps threads.
    code = (
        "import json, sys\nfrom gradio_client import Client\nclient = Client(sys.argv[1], verbose=False)\n"
        "ask = lambda name, **given: json.loads(client.predict(api_name=name, **given))\n"
        "found = ask('/search_pairs', query='pytest')\n"
        "pair = ask('/get_pair', pair_id=found['pairs'][0]['id'])\n"
        "print(json.dumps([found['total'], pair, ask('/get_pair', pair_id='none'), ask('/stats')]))"
    )
    run = subprocess.run([sys.executable, "-c", code, space], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    total, pair, none, stats = json.loads(run.stdout)
    assert total == NUM_PAIRS - 1
    assert len(pair["votes"]) == 4
    assert len(pair["last_messages"]) == 4
    assert "has no pair none" in none["error"]
    assert stats["facets"]["families"][0] == ["scripted-a", NUM_PAIRS - 1]


def test_the_functions_are_tools_for_mcp_clients(client: httpx.Client) -> None:
    tools = {tool["name"]: tool for tool in client.get("gradio_api/mcp/schema").json()}
    assert set(tools) == {"search_pairs", "get_pair", "stats"}
    assert "unreviewed and most disputed first" in tools["search_pairs"]["description"]
    assert tools["get_pair"]["inputSchema"]["properties"]["pair_id"]["description"] == "Id of the pair."


HIDDEN = ("gradio_api/upload", "gradio_api/file=/etc/passwd", "monitoring", "docs", "openapi.json")


@pytest.mark.parametrize("path", [*HIDDEN, "static/..%2fapp.py", "static/app.py"])
def test_what_the_page_does_not_need_is_not_there(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_answers_forbid_foreign_scripts_and_are_not_kept(client: httpx.Client) -> None:
    answer = client.get("")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert "hf_test" not in answer.text


def test_a_foreign_host_name_is_refused(client: httpx.Client) -> None:
    assert client.get("", headers={"host": "evil.example"}).status_code == 403


def test_long_addresses_large_bodies_and_long_filters_are_refused(client: httpx.Client) -> None:
    assert client.get(f"part?q={'x' * 9_000}").status_code == 414
    assert client.get(f"part?q={'x' * 250}").status_code == 400
    same = {"sec-fetch-site": "same-origin", "content-type": "application/json"}
    assert client.post("verdicts", content=b"x" * 5_000_000, headers=same).status_code == 413
    assert client.post("verdicts", content=b"{broken", headers=same).status_code == 422
    assert client.post("verdicts", json={"dataset": 3}, headers=same).status_code == 400


def test_a_client_that_asks_too_fast_waits_and_others_do_not() -> None:
    guard = RequestGuard(None)
    assert [guard._has_budget("a") for _ in range(int(BURST) + 5)].count(True) <= BURST + 1
    assert not guard._has_budget("a")
    assert guard._has_budget("b")


def test_only_datasets_on_the_list_open(client: httpx.Client) -> None:
    answer = client.get("part?dataset=team/other")
    assert answer.status_code == 404
    assert "not on the list" in answer.json()["error"]
    assert "no revision v9" in client.get("part?revision=v9").json()["error"]


@pytest.mark.parametrize(("token", "code"), quick(1, [("hf_test_eve", 404), (None, 401)]))
def test_a_private_set_is_hidden_from_those_who_cannot_read_it(
    hub_server: ServerProcess, published: Published, tmp_path: Path, token: str | None, code: int
) -> None:
    with serving(hub_server, published.all, token, tmp_path) as address:
        page = httpx.get(address, trust_env=False)
        assert page.status_code == 404
        assert "private and you cannot read it" in page.text
        body = {"dataset": published.pairs, "verdicts": [{"id": "x", "verdict": "accept"}]}
        same = {"sec-fetch-site": "same-origin"}
        assert httpx.post(f"{address}verdicts", json=body, headers=same, trust_env=False).status_code == code


@pytest.mark.slow
def test_on_the_hub_a_visitor_reads_and_submits_with_the_token_of_their_own_sign_in(
    hub_server: ServerProcess, published: Published, tmp_path: Path
) -> None:
    secret = "a-secret"
    variables = {
        "SPACE_ID": "team/space", "SYSTEM": "spaces", "OAUTH_CLIENT_ID": "id", "OAUTH_CLIENT_SECRET": secret,
        "OAUTH_SCOPES": "openid profile write-discussions", "OPENID_PROVIDER_URL": hub_server.endpoint,
        "GRADIO_SERVER_NAME": "127.0.0.1",
    }  # fmt: skip
    # The token of the Space itself opens nothing.
    with serving(hub_server, published.all, "hf_test_me", tmp_path, **variables) as address:
        stranger = httpx.get(address, trust_env=False)
        assert stranger.status_code == 404
        assert "Sign in" in stranger.text
        cookie = session_cookie(secret, {"access_token": "hf_test_ada", "userinfo": {"preferred_username": "ada"}})
        signed_in = httpx.get(address, cookies={"session": cookie}, trust_env=False)
        assert signed_in.status_code == 200
        assert ">ada<" in signed_in.text
        assert "hf_test_ada" not in signed_in.text
        foreign = httpx.get(address, cookies={"session": cookie[:-1]}, trust_env=False)
        assert foreign.status_code == 404
        body = {"dataset": published.pairs, "verdicts": [{"id": "from-the-hub", "verdict": "accept"}]}
        same = {"sec-fetch-site": "same-origin"}
        answer = httpx.post(f"{address}verdicts", json=body, headers=same, cookies={"session": cookie}, trust_env=False)
        assert answer.json()["reviewer"] == "ada"
        assert httpx.post(f"{address}verdicts", json=body, headers=same, trust_env=False).status_code == 401


def session_cookie(secret: str, info: dict[str, object]) -> str:
    """Return the cookie that a sign-in with Hugging Face leaves in the browser."""
    from itsdangerous import TimestampSigner

    key = hashlib.sha256(f"{secret}-v4".encode()).hexdigest()
    return TimestampSigner(key).sign(base64.b64encode(json.dumps({"oauth_info": info}).encode())).decode()
