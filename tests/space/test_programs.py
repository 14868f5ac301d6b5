"""Programs that ask the Space: what a dataset holds reaches them as text, never as a structure of Gradio.

Gradio takes a dictionary with a `path` for a file: its client downloads it, from any address and with the caller's
token, and its server copies it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from huggingface_hub.utils import httpx

from composer_hub import hub
from composer_hub.local_hub.server import ServerProcess
from composer_hub.records import ToolCall
from tests.quick import quick
from tests.space import hostile
from tests.space.conftest import ROOT, publish_pairs, publish_traces, serving

REPO, TRACES = "team/files", "team/files-traces"
META = {"_type": "gradio.FileData"}
CALLER = "hf_" + "caller" * 6


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """Listen on loopback as a stranger's server; yield its address and the requests that came."""
    requests: list[str] = []

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(f"{self.path} {dict(self.headers)}")
            self.send_response(200)
            self.end_headers()

        do_POST = do_HEAD = do_GET

        def log_message(self, *arguments: Any) -> None:
            """Keep the output of the tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", requests
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="session")
def stranger() -> Iterator[tuple[str, list[str]]]:
    with listening() as found:
        yield found


@pytest.fixture(scope="session")
def shapes(stranger: tuple[str, list[str]]) -> list[dict[str, Any]]:
    """Everything that some version of Gradio takes for a file, an update or a stream."""
    url = f"{stranger[0]}file.png"
    own = str(ROOT / "README.md")
    return [
        {"path": "src/main.py"},
        {"path": "x", "is_stream": True, "url": url},
        {"path": "x", "is_stream": True, "url": url, "meta": META},
        {"path": url, "url": url, "meta": META, "orig_name": "a.svg", "mime_type": "image/svg+xml"},
        {"path": "/etc/hostname", "meta": META},
        {"path": own, "meta": META},
        {"path": own, "meta": "text"},
        {"name": own, "is_file": True, "data": None},
        {"__type__": "update", "value": {"path": own, "meta": META}},
    ]


@pytest.fixture(scope="session")
def ids(where: hub.HubDestination, shapes: list[dict[str, Any]]) -> list[str]:
    """Publish one pair per shape, which holds it wherever a dataset may have a structure; return the pairs' ids."""
    traces = [hostile.trace(2_000 + number) for number in range(len(shapes))]
    commit = publish_traces(where, TRACES, traces, {"of": shapes})
    pairs, votes = [], []
    for number, (trace, shape) in enumerate(zip(traces, shapes, strict=True)):
        pair, cast = hostile.pairs_of(trace, 2_000 + number)
        call = hostile.acting(ToolCall("Read", shape, "a"), ToolCall("Read", {"in": [{"a": shape}]}, "b"))
        prompt = (*pair.prompt[:-1], call)
        schema = {"type": "function", "function": {"name": "Read", "parameters": shape, **shape}}
        pairs.append(replace(pair, chosen=(call,), rejected=(call,), prompt=prompt, tools=(schema, shape)))
        votes += [replace(vote, answer={**shape, "tool_calls": [shape]}) for vote in cast]
    publish_pairs(where, REPO, pairs, votes, hub.Parent("traces", TRACES, commit))
    head = where.resolve(REPO, "main")
    assert head is not None
    local = where.fetch(REPO, head, hub.MANIFEST)
    assert local is not None
    manifest = json.loads(local.read_text())
    manifest["counts"] |= {f"shape {number}": shape for number, shape in enumerate(shapes)}
    changed = hub.Add.of(hub.MANIFEST, json.dumps(manifest).encode())
    where.commit(REPO, [changed], title="Counts", body="", parent=head)
    return [pair.pair_id for pair in pairs]


@pytest.fixture(scope="session")
def space_of_files(
    hub_server: ServerProcess, ids: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """The Space with these pairs: its address, and the folder that Gradio would copy files into."""
    folder = tmp_path_factory.mktemp("files")
    with serving(hub_server, f"{REPO}@main", "hf_test_me", folder, GRADIO_TEMP_DIR=str(folder / "gradio")) as address:
        yield address, folder / "gradio"


# Each is a process of its own: the clients keep threads and event loops. For a call it prints [endpoint, id, answer].
GRADIO = """
import json, sys
from gradio_client import Client
url, ids, token = json.loads(sys.argv[1])
client = Client(url, verbose=False, **({"token": token} if token else {}))
info = client.view_api(return_format="dict", print_info=False)
print(json.dumps([*info["named_endpoints"], *info["unnamed_endpoints"]]))
for name, about in info["named_endpoints"].items():
    for id in ids:
        named = {one["parameter_name"] for one in about["parameters"]}
        given = {"pair_id": id} if "pair_id" in named else {}
        print(json.dumps([name, id, client.predict(api_name=name, **given)]))
"""
MCP = """
import asyncio, json, sys
import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
url, ids, shapes = json.loads(sys.argv[1])

class Patient(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request):
        while (response := await super().handle_async_request(request)).status_code == 429:
            await asyncio.sleep(float(response.headers["retry-after"]))
        return response

async def main():
    http, to = httpx.AsyncClient(transport=Patient(), timeout=60, trust_env=False), f"{url}gradio_api/mcp/"
    async with streamable_http_client(to, http_client=http) as (read, write, *_), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        print(json.dumps([tool.name for tool in tools]))
        for tool in tools:
            names = tool.inputSchema["properties"]
            for id in ids:
                result = await session.call_tool(tool.name, {"pair_id": id} if "pair_id" in names else {})
                (content,) = result.content
                assert not result.isError and content.type == "text", result
                assert result.structuredContent is None, result
                print(json.dumps([f"/{tool.name}", id, content.text]))
            for name in names:
                for shape in shapes:
                    refused = await session.call_tool(tool.name, {"pair_id": ids[0], name: shape})
                    assert refused.isError, (tool.name, name, shape, refused)

asyncio.run(main())
"""


def answers(code: str, *given: Any, **variables: str) -> tuple[list[str], dict[tuple[str, str], Any]]:
    """Run a client; return the endpoints that it found, and what each of them answered."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    env |= {"NO_PROXY": "*", "no_proxy": "*", **variables}
    run = subprocess.run(
        [sys.executable, "-c", code, json.dumps(given)], env=env, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    names, *lines = map(json.loads, run.stdout.splitlines())
    return names, {(name, id): answer for name, id, answer in lines}


def check(found: dict[tuple[str, str], Any], ids: list[str], shapes: list[dict[str, Any]]) -> None:
    """Compare what the endpoints answered with what was published."""
    for name, id in found:
        assert isinstance(found[name, id], str), name
    for id, shape in zip(ids, shapes, strict=True):
        pair = json.loads(found["/get_pair", id])
        assert pair["chosen"] == pair["rejected"] == [pair["last_messages"][-1]]
        first, second = pair["chosen"][0]["tool_calls"]
        assert first["function"]["arguments"] == shape
        assert second["function"]["arguments"] == {"in": [{"a": shape}]}
        assert pair["tools"][1] == shape
        assert pair["votes"]
        assert all(vote["answer"] == {**shape, "tool_calls": [shape]} for vote in pair["votes"])
    assert {pair["id"] for pair in json.loads(found["/search_pairs", ids[0]])["pairs"]} == set(ids)
    counts = json.loads(found["/stats", ids[0]])["counts"]
    assert [counts[f"shape {number}"] for number in range(len(shapes))] == shapes


@pytest.mark.parametrize("where_the_token_is", quick(1, ["argument", "variable", "file"]))
def test_no_value_of_a_dataset_sends_the_callers_token_anywhere(
    where_the_token_is: str,
    space_of_files: tuple[str, Path],
    ids: list[str],
    shapes: list[dict[str, Any]],
    stranger: tuple[str, list[str]],
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text(CALLER)
    saved = {"argument": {}, "variable": {"HF_TOKEN": CALLER}, "file": {"HF_HOME": str(tmp_path)}}[where_the_token_is]
    argument = CALLER if where_the_token_is == "argument" else ""
    address, copies = space_of_files
    names, found = answers(GRADIO, address, ids, argument, **{"HF_HOME": str(tmp_path / "empty"), **saved})
    assert set(names) == {name for name, _ in found}, "an endpoint without a name was not asked"
    check(found, ids, shapes)
    assert not stranger[1]
    assert not [path for path in copies.rglob("*") if path.is_file()]


@pytest.mark.slow
def test_tools_of_mcp_answer_with_text_and_take_no_structures(
    space_of_files: tuple[str, Path], ids: list[str], shapes: list[dict[str, Any]], stranger: tuple[str, list[str]]
) -> None:
    address, copies = space_of_files
    names, found = answers(MCP, address, ids, shapes)
    assert {f"/{name}" for name in names} == {name for name, _ in found}
    check(found, ids, shapes)
    assert not stranger[1]
    assert not [path for path in copies.rglob("*") if path.is_file()]


def test_every_endpoint_takes_plain_values_and_returns_text(space_of_files: tuple[str, Path]) -> None:
    info = httpx.get(f"{space_of_files[0]}gradio_api/info", trust_env=False).json()
    assert not info["unnamed_endpoints"]
    for name, about in info["named_endpoints"].items():
        assert [one["python_type"]["type"] for one in about["returns"]] == ["str"], name
        assert {one["python_type"]["type"] for one in about["parameters"]} <= {"str", "int"}, name


def refusal(url: str, body: Any) -> int:
    """Return the status that a body gets, after the wait that the server asks of a fast client."""
    headers = {"content-type": "application/json"}
    for _ in range(200):
        answer = httpx.post(url, content=json.dumps(body).encode(), headers=headers, trust_env=False, timeout=600)
        if answer.status_code != 429:
            break
        time.sleep(0.3)
    return answer.status_code


@pytest.mark.parametrize("around", quick(1, [lambda it: it, lambda it: [it], lambda it: {"a": [it]}]))
def test_a_structure_as_an_argument_is_refused_whatever_way_it_comes(
    around: Callable[[Any], Any],
    space_of_files: tuple[str, Path],
    shapes: list[dict[str, Any]],
    stranger: tuple[str, list[str]],
) -> None:
    address, copies = space_of_files
    config = httpx.get(f"{address}config", trust_env=False).json()
    for function in config["dependencies"]:
        name = function["api_name"]
        for value in map(around, shapes):
            for path, body in {
                f"call/{name}": {"data": [value]},
                f"call/v2/{name}": {"query": value, "pair_id": value, "dataset": value},
                "queue/join": {"data": [value], "fn_index": function["id"], "session_hash": "s"},
                "queue/join/": {"data": [], "fn_index": function["id"], "session_hash": "s", "event_data": value},
            }.items():
                assert refusal(f"{address}gradio_api/{path}", body) == 400, (path, body)
    assert not stranger[1]
    assert not [path for path in copies.rglob("*") if path.is_file()]
