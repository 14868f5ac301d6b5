"""The server as a process: start, share, stop, crash, and the environment of its clients."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import httpx

from composer_hub.local_hub.env import EnvironmentRefused, client_env, default_root, env_changes, shell_lines
from composer_hub.local_hub.server import ServerError, embedded, find_running, start_server, stop_running
from composer_hub.local_hub.store import Store
from tests.quick import quick

from .requests import announce, auth, commit, file, lfs_file, upload

QUICK = ["--user", "me:hf_test_me", "--no-xet"]
AUTH = auth("me")


def hub_command(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "composer_hub", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | env, check=False)


# ---------------------------------------------------------------------------------------------------- start and stop


def test_a_folder_is_served_by_one_process_and_is_free_again_after_its_end_or_its_kill(tmp_path: Path) -> None:
    killed = start_server(tmp_path, QUICK)
    killed.kill()
    assert (tmp_path / "server.json").exists()
    assert find_running(tmp_path) is None
    with start_server(tmp_path, QUICK) as server:
        assert find_running(tmp_path) == server.running != killed.running
        with pytest.raises(ServerError, match="already served"):
            start_server(tmp_path, QUICK)
    assert server.process.returncode == 0
    assert find_running(tmp_path) is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_does_not_break_into_the_event_loop(tmp_path: Path, number: int) -> None:
    with start_server(tmp_path, QUICK) as server:
        os.kill(server.process.pid, number)
        assert server.process.wait(600) == 0
    assert "Traceback" not in (tmp_path / "server.log").read_text()


def test_two_callers_at_once_share_one_embedded_hub(tmp_path: Path) -> None:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(embedded(tmp_path, QUICK))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({running.pid for running in found}) == 1
    assert stop_running(tmp_path)
    assert not stop_running(tmp_path)


def test_the_token_is_created_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    with start_server(tmp_path, ["--no-xet"]) as server:
        token = (tmp_path / "token").read_text()
        assert token.startswith("hf_")
        assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
        assert server.token == token
    with start_server(tmp_path, ["--no-xet"]) as server:
        assert server.token == token
        assert token not in (tmp_path / "server.log").read_text()
        assert token not in (tmp_path / "server.json").read_text()


@pytest.mark.parametrize("options", [
    ["--user", "me"], ["--inject", "418"], ["--inject", "503:x"], ["--users-file", "/nowhere"],
    ["--host", "203.0.113.1"],
], ids=lambda options: options[0] + " " + options[1])  # fmt: skip
def test_a_server_that_cannot_start_says_why(tmp_path: Path, options: list[str]) -> None:
    with pytest.raises(ServerError, match=r"did not start: (composer-hub|Error): "):
        start_server(tmp_path, options)


# ---------------------------------------------------------------------------------------------------- the commands


def test_a_command_runs_against_the_hub_and_gives_its_exit_code() -> None:
    code = "import os, sys; print(os.environ['HF_ENDPOINT'], os.environ['HF_TOKEN'][:3]); sys.exit(7)"
    done = hub_command(
        "run", "--fresh", "--no-xet", "--", sys.executable, "-c", code, HF_HUB_OFFLINE="1", HF_TOKEN="hf_real"
    )
    assert done.returncode == 7
    assert done.stdout.startswith("http://127.0.0.1:")
    assert hub_command("run", "--fresh", "--no-xet", "--", "no-such-command").returncode == 2


def test_the_environment_status_and_stop_commands_tell_the_truth(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path)]
    assert hub_command("hub", "status", *data).returncode == 1
    with start_server(tmp_path, QUICK) as server:
        status = hub_command("hub", "status", *data, "--format", "json")
        assert json.loads(status.stdout)["endpoint"] == server.endpoint
        lines = hub_command("hub", "env", *data).stdout
        assert server.token not in lines
        shell = subprocess.run(
            ["sh", "-c", lines + '\nprintf "%s %s" "$HF_TOKEN" "$COMPOSER_HUB_HOME"'],
            capture_output=True,
            text=True,
            check=True,
        )
        assert shell.stdout == f"{server.token} {tmp_path}"
        assert hub_command("hub", "stop", *data).returncode == 0
        server.process.wait(600)
    assert hub_command("hub", "stop", *data).returncode == 5


def test_clients_are_kept_from_everything_that_would_lead_them_elsewhere(tmp_path: Path) -> None:
    base = {
        "PATH": "/bin", "HF_TOKEN": "hf_real", "HUGGING_FACE_HUB_TOKEN": "hf_real", "HF_HUB_OFFLINE": "1",
        "HTTP_PROXY": "http://proxy", "NO_PROXY": "intra.example", "HF_HUB_CACHE": "/real/cache",
    }  # fmt: skip
    env = client_env(base, "http://127.0.0.1:1", "hf_local", home=tmp_path, with_xet=False)
    assert "hf_real" not in env.values()
    assert not {"HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGING_FACE_HUB_TOKEN"} & env.keys()
    assert env["NO_PROXY"] == env["no_proxy"] == "intra.example,127.0.0.1,localhost,::1"
    assert (env["HF_TOKEN"], env["HF_HOME"], env["HF_HUB_DISABLE_XET"]) == ("hf_local", str(tmp_path), "1")
    assert env["PATH"] == "/bin"


def test_the_staging_switch_is_refused() -> None:
    with pytest.raises(EnvironmentRefused, match="Unset it"):
        env_changes({"HUGGINGFACE_CO_STAGING": "1"}, "http://127.0.0.1:1")


def test_shell_lines_survive_odd_values(tmp_path: Path) -> None:
    odd = tmp_path / "a b'c"
    odd.write_text("hf_x")
    lines = shell_lines({"HF_HOME": "a'; echo $(id) \"", "GONE": None}, odd)
    script = "\n".join(lines) + '\nprintf "%s|%s|%s" "$HF_HOME" "$HF_TOKEN" "${GONE-unset}"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env={"GONE": "x"})
    assert done.stdout == "a'; echo $(id) \"|hf_x|unset"


def test_the_default_folder_can_be_named() -> None:
    assert default_root({"COMPOSER_HUB_HOME": "/x/y"}) == Path("/x/y")
    assert default_root({"XDG_CACHE_HOME": "/c"}) == Path("/c/composer_hub/hub")


# ---------------------------------------------------------------------------------------------------- faults


def test_injected_faults_come_in_order_and_then_stop_and_a_lost_answer_leaves_the_work_done(tmp_path: Path) -> None:
    with (
        start_server(tmp_path, [*QUICK, "--inject", "412,409,429,503,drop,lose"]) as server,
        httpx.Client(base_url=server.endpoint, trust_env=False) as http,
    ):
        # A repository is created through the faults that also meet other writes: 429, 503, drop, and lose, after
        # which it is there: the 409 of the fifth try is that of a name that is taken.
        made: list[Any] = []
        for _ in range(5):
            try:
                made.append(http.post("/api/repos/create", json={"name": "a"}, headers=AUTH).status_code)
            except (httpx.RemoteProtocolError, httpx.ReadError):  # closed, or reset if the body was not read yet
                made.append("broken")
        assert made == [429, 503, "broken", "broken", 409]
        codes = [commit(http, "me/a", [file("f", b"1")]) for _ in range(3)]
        assert [answer.status_code for answer in codes] == [412, 409, 200]
        assert http.get("/api/models/me/a", headers=AUTH).status_code == 200


def test_a_full_disk_and_a_missing_blob_are_answered_in_words(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, limits[1]))  # the server inherits it; it acts like a full disk
    try:
        server = start_server(tmp_path, [*QUICK, "--no-xet"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with server, httpx.Client(base_url=server.endpoint, trust_env=False) as http:
        assert http.post("/api/repos/create", json={"name": "a"}, headers=AUTH).status_code == 200
        assert upload(http, "me/a", os.urandom(8 << 20)).status_code == 507
        data = os.urandom(1 << 20)
        assert upload(http, "me/a", data).status_code == 200
        assert commit(http, "me/a", [lfs_file("small.bin", data)]).status_code == 200
        (blob,) = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
        blob.unlink()
        answer = http.get("/me/a/resolve/main/small.bin", headers=AUTH)
        assert (answer.status_code, "are missing" in answer.json()["error"]) == (500, True)
    assert "Traceback" not in (tmp_path / "server.log").read_text()


def test_too_many_requests_say_when_to_come_back(tmp_path: Path) -> None:
    with (
        start_server(tmp_path, [*QUICK, "--inject", "429:1.0"]) as server,
        httpx.Client(base_url=server.endpoint, trust_env=False) as http,
    ):
        for _ in range(3):
            answer = http.post("/api/repos/create", json={"name": "a"}, headers=AUTH)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


# ---------------------------------------------------------------------------------------------------- crashes


def write_until_killed(server: Any, seed: int, kept: dict[str, str]) -> None:
    """Upload and commit until the server is killed; note in `kept` every file whose commit was confirmed."""
    dice = random.Random(seed)
    timer = threading.Timer(dice.uniform(0.0, 0.03), server.kill)
    with httpx.Client(base_url=server.endpoint, trust_env=False, timeout=600) as http:
        for number in range(10_000):
            if number == seed % 3:
                timer.start()
            small = dice.randbytes(dice.randrange(1, 200_000))
            large = dice.randbytes(1 << 20)
            if "actions" in announce(http, "me/a", large):
                pieces = (large[i : i + 50_000] for i in range(0, len(large), 50_000))
                upload(http, "me/a", large, pieces).raise_for_status()
            files = file(f"small-{seed}-{number}", small), lfs_file(f"large-{seed}-{number}.bin", large)
            commit(http, "me/a", [*files]).raise_for_status()
            for (_, value), data in zip(files, (small, large), strict=True):
                kept[value["path"]] = hashlib.sha256(data).hexdigest()


@pytest.mark.slow
def test_kills_lose_nothing_that_was_confirmed(tmp_path: Path) -> None:
    kept: dict[str, str] = {}
    with start_server(tmp_path, QUICK) as server, httpx.Client(base_url=server.endpoint, trust_env=False) as http:
        http.post("/api/repos/create", json={"name": "a"}, headers=AUTH).raise_for_status()
    for seed in range(8):
        server = start_server(tmp_path, QUICK)
        with pytest.raises(httpx.TransportError):
            write_until_killed(server, seed, kept)
        server.process.wait()
    assert kept
    store = Store(tmp_path)
    repo = store.find_repo("model", "me/a")
    assert repo is not None
    assert store.read().execute("pragma integrity_check").fetchone() == ("ok",)
    tree = store.tree(repo, store.resolve(repo, "main"))
    assert kept.keys() <= tree.keys()
    for path, entry in tree.items():
        data = store.read_bytes(repo, store.resolve(repo, "main"), path)
        assert data is not None
        assert len(data) == entry.size
        assert kept.get(path, hashlib.sha256(data).hexdigest()) == hashlib.sha256(data).hexdigest()
    assert list(store.blobs.unfinished.iterdir()) == []
    store.close()


def test_an_upload_that_breaks_off_is_not_visible_and_can_be_repeated(tmp_path: Path) -> None:
    data = bytes(3 << 20)

    def broken() -> Any:
        yield data[: 1 << 20]
        while not list((tmp_path / "tmp").iterdir()):
            time.sleep(0.02)
        raise ConnectionAbortedError

    with start_server(tmp_path, QUICK) as server, httpx.Client(base_url=server.endpoint, trust_env=False) as http:
        http.post("/api/repos/create", json={"name": "a"}, headers=AUTH)
        with pytest.raises(ConnectionAbortedError):
            upload(http, "me/a", data, broken())
        until = time.monotonic() + 90
        while list((tmp_path / "tmp").iterdir()) and time.monotonic() < until:
            time.sleep(0.02)
        assert list((tmp_path / "tmp").iterdir()) == []
        assert upload(http, "me/a", data).status_code == 200
        assert "actions" not in announce(http, "me/a", data)


@pytest.mark.parametrize("length", quick(1, ["Content-Length: 3145728", "Transfer-Encoding: chunked"]))
def test_a_server_that_stops_during_an_upload_says_so_and_leaves_nothing(tmp_path: Path, length: str) -> None:
    with start_server(tmp_path, QUICK) as server:
        with httpx.Client(base_url=server.endpoint, trust_env=False) as http:
            http.post("/api/repos/create", json={"name": "a"}, headers=AUTH)
            address = httpx.URL(announce(http, "me/a", bytes(3 << 20))["actions"]["upload"]["href"])
        with socket.create_connection((address.host, address.port), timeout=600) as client:
            target = address.raw_path.decode()
            client.sendall(f"PUT {target} HTTP/1.1\r\nHost: {address.netloc.decode()}\r\n{length}\r\n\r\n".encode())
            client.sendall(b"100000\r\n" + bytes(1 << 20))
            while not any(path.stat().st_size for path in (tmp_path / "tmp").iterdir()):
                time.sleep(0.02)
            server.stop()
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 503 ")
    assert "Traceback" not in (tmp_path / "server.log").read_text()
    assert list((tmp_path / "tmp").iterdir()) == []
