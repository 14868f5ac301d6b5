"""Buckets of the embedded Hub: stock hf_xet, huggingface_hub, datasets and the `hf` command against a real server."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, HfFileSystem, Volume
from huggingface_hub.errors import BucketNotFoundError, HfHubHTTPError
from huggingface_hub.utils import get_session

from composer_hub.local_hub.server import ServerProcess, start_server

pytest.importorskip("hf_xet")
USERS = ("--user", "ada:hf_test_ada", "--user", "bob:hf_test_bob", "--allow-local-jobs")


@pytest.fixture
def bucket(ada: HfApi) -> str:
    name = f"ada/{uuid.uuid4().hex}"
    ada.create_bucket(name, private=True)
    return name


def get(api: HfApi, bucket: str, path: str, **headers: str) -> tuple[int, bytes]:
    url = f"{api.endpoint}/buckets/{bucket}/resolve/{path}"
    answer = get_session().get(url, headers={"Authorization": f"Bearer {api.token}"} | headers)
    return answer.status_code, answer.content


def paths(api: HfApi, bucket: str, prefix: str | None = None, *, recursive: bool = True) -> list[str]:
    return [item.path for item in api.list_bucket_tree(bucket, prefix, recursive=recursive)]


def test_a_bucket_is_created_described_listed_and_deleted(ada: HfApi, bob: HfApi, bucket: str) -> None:
    info = ada.bucket_info(bucket)
    assert (info.id, info.private, info.size, info.total_files) == (bucket, True, 0, 0)
    with pytest.raises(HfHubHTTPError, match="409"):
        ada.create_bucket(bucket)
    assert ada.create_bucket(bucket, exist_ok=True).bucket_id == bucket
    assert ada.create_bucket(f"me-{bucket[4:]}").bucket_id == f"ada/me-{bucket[4:]}"
    assert bucket in [found.id for found in ada.list_buckets()]
    assert [found.id for found in ada.list_buckets("ada", search=bucket[8:])] == [f"ada/me-{bucket[4:]}", bucket][::-1]
    assert bucket not in [found.id for found in bob.list_buckets("ada")]
    ada.delete_bucket(bucket)
    ada.delete_bucket(bucket, missing_ok=True)
    with pytest.raises(BucketNotFoundError):
        ada.bucket_info(bucket)


def test_files_go_up_and_come_down_unchanged(ada: HfApi, bucket: str, tmp_path: Path) -> None:
    big = os.urandom(3_000_000)
    (tmp_path / "big.bin").write_bytes(big)
    files = {"a.txt": b"hello", "deep/er/ä ö.txt": "ünï".encode(), "empty": b"", "deep/big.bin": big}
    add = [(tmp_path / "big.bin" if path.endswith("bin") else data, path) for path, data in files.items()]
    ada.batch_bucket_files(bucket, add=add)  # type: ignore[arg-type]
    assert paths(ada, bucket) == sorted(files)
    ada.download_bucket_files(bucket, [(path, tmp_path / "down" / path) for path in files])
    assert {path: (tmp_path / "down" / path).read_bytes() for path in files} == files
    assert {path: get(ada, bucket, path)[1] for path in files} == files
    info = ada.bucket_info(bucket)
    assert (info.total_files, info.size) == (4, sum(map(len, files.values())))


def test_a_plain_get_answers_ranges(ada: HfApi, bucket: str) -> None:
    data = bytes(range(256)) * 2000
    ada.batch_bucket_files(bucket, add=[(data, "data.bin")])
    assert get(ada, bucket, "data.bin", Range="bytes=1000-1999") == (206, data[1000:2000])
    assert get(ada, bucket, "data.bin", Range="bytes=-10") == (206, data[-10:])
    assert get(ada, bucket, "data.bin", Range="bytes=511990-") == (206, data[511990:])
    assert get(ada, bucket, "data.bin", Range=f"bytes={len(data)}-")[0] == 416
    assert get(ada, bucket, "missing.bin")[0] == 404


def test_ranges_of_a_file_longer_than_any_buffer_are_exact(ada: HfApi, bucket: str) -> None:
    block = os.urandom(1 << 20)
    data = b"".join(block[i * 997 :] + block[: i * 997] for i in range(21))
    ada.batch_bucket_files(bucket, add=[(data, "long.bin")])
    assert get(ada, bucket, "long.bin") == (200, data)
    for start, stop in ((0, 1), (8 << 20, (8 << 20) + 1), (8_388_000, 16_777_999), (123_456, 20_123_456)):
        assert get(ada, bucket, "long.bin", Range=f"bytes={start}-{stop - 1}") == (206, data[start:stop])


def test_a_batch_copies_and_deletes_in_the_same_step(ada: HfApi, bucket: str) -> None:
    ada.batch_bucket_files(bucket, add=[(b"one", "a"), (b"two", "b")])
    (a,) = ada.get_bucket_paths_info(bucket, ["a", "missing"])
    ada.batch_bucket_files(bucket, copy=[("bucket", bucket, a.xet_hash, "copies/a")], delete=["b", "never-there"])
    assert paths(ada, bucket) == ["a", "copies/a"]
    assert get(ada, bucket, "copies/a") == (200, b"one")
    ada.copy_files(f"hf://buckets/{bucket}/copies/", f"hf://buckets/{bucket}/more/")
    assert paths(ada, bucket) == ["a", "copies/a", "more/a"]


def test_failed_operations_of_a_batch_are_listed_and_the_rest_is_done(ada: HfApi, bob: HfApi, bucket: str) -> None:
    ada.batch_bucket_files(bucket, add=[(b"one", "a")])
    (a,) = ada.get_bucket_paths_info(bucket, ["a"])
    copy = [
        ("bucket", bucket, a.xet_hash, "good"),
        ("bucket", bucket, a.xet_hash, "../bad"),
        ("bucket", bucket, a.xet_hash, "a/below"),
        ("bucket", bucket, "0" * 64, "unknown"),
    ]
    with pytest.raises(HfHubHTTPError) as refused:
        ada.batch_bucket_files(bucket, copy=copy)
    assert {failure["path"] for failure in refused.value.failures} == {"../bad", "a/below", "unknown"}  # type: ignore[attr-defined]
    assert paths(ada, bucket) == ["a", "good"]
    bob.create_bucket("bob/thief", exist_ok=True)
    with pytest.raises(HfHubHTTPError, match="may not read it"):
        bob.batch_bucket_files("bob/thief", copy=[("bucket", bucket, a.xet_hash, "stolen")])


def test_folders_are_listed_one_level_at_a_time_and_in_pages(ada: HfApi, bucket: str) -> None:
    names = [f"many/f{number:04d}" for number in range(1500)]
    ada.batch_bucket_files(bucket, add=[(b"x", name) for name in [*names, "many-not", "top", "a/b/c"]])
    assert paths(ada, bucket, recursive=False) == ["a", "many-not", "many", "top"]
    assert paths(ada, bucket, "many", recursive=False) == names
    assert len(list(ada.list_bucket_tree(bucket))) == len(names) + 3, "a client that does not choose gets every file"
    assert paths(ada, bucket, "many") == names
    assert len(paths(ada, bucket)) == 1503
    assert paths(ada, bucket, "a/b/c") == ["a/b/c"]
    assert paths(ada, bucket, "nothing") == []


def test_syncing_sends_only_changes(ada: HfApi, bucket: str, tmp_path: Path) -> None:
    local = tmp_path / "local"
    (local / "sub").mkdir(parents=True)
    (local / "a.txt").write_text("a")
    (local / "sub" / "b.txt").write_text("b")
    uri = f"hf://buckets/{bucket}/synced"
    assert ada.sync_bucket(str(local), uri, quiet=True).summary()["uploads"] == 2
    assert ada.sync_bucket(str(local), uri, quiet=True).summary()["uploads"] == 0
    (local / "a.txt").write_text("changed")
    (local / "sub" / "b.txt").unlink()
    summary = ada.sync_bucket(str(local), uri, delete=True, quiet=True).summary()
    assert (summary["uploads"], summary["deletes"]) == (1, 1)
    back = tmp_path / "back"
    ada.sync_bucket(uri, str(back), quiet=True)
    assert [path.read_text() for path in back.rglob("*.txt")] == ["changed"]


def test_others_cannot_read_a_private_bucket_or_write_a_public_one(
    server: ServerProcess, ada: HfApi, bob: HfApi, bucket: str
) -> None:
    ada.batch_bucket_files(bucket, add=[(b"private", "a")])
    nobody = HfApi(endpoint=server.endpoint, token=False)
    for forbidden in (
        lambda: bob.bucket_info(bucket),
        lambda: paths(bob, bucket),
        lambda: list(bob.get_bucket_paths_info(bucket, ["a"])),
        lambda: bob.delete_bucket(bucket),
        lambda: bob.batch_bucket_files(bucket, delete=["a"]),
        lambda: nobody.bucket_info(bucket),
    ):
        with pytest.raises(BucketNotFoundError):
            forbidden()
    assert get(bob, bucket, "a")[0] == 404
    assert get_session().get(f"{bob.endpoint}/api/buckets/{bucket}/xet-read-token").status_code == 401
    ada.update_bucket_settings(bucket, private=False)
    assert get(bob, bucket, "a") == (200, b"private")
    for forbidden in (
        lambda: bob.delete_bucket(bucket),
        lambda: bob.batch_bucket_files(bucket, delete=["a"]),
        lambda: bob.batch_bucket_files(bucket, add=[(b"new", "b")]),
        lambda: bob.update_bucket_settings(bucket, private=True),
        lambda: bob.create_bucket("ada/not-mine"),
    ):
        with pytest.raises((HfHubHTTPError, ConnectionError)):
            forbidden()
    assert paths(ada, bucket) == ["a"]


@pytest.mark.parametrize(
    ("body", "status"),
    [({"visibility": "publik"}, 400), ({"private": "no"}, 400), ({"private": None}, 400), ({}, 200)],
)
def test_a_private_bucket_stays_so_unless_it_is_made_public(
    ada: HfApi, bucket: str, body: dict[str, Any], status: int
) -> None:
    ada.update_bucket_settings(bucket, private=True)
    url, token = f"{ada.endpoint}/api/buckets/{bucket}/settings", {"authorization": f"Bearer {ada.token}"}
    assert get_session().put(url, json=body, headers=token).status_code == status
    assert ada.bucket_info(bucket).private


def test_batches_sent_at_once_all_last(ada: HfApi, bucket: str) -> None:
    def send(number: int) -> None:
        ada.batch_bucket_files(bucket, add=[(b"same", f"{number}/{i}") for i in range(5)])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(send, range(12)))
    assert ada.bucket_info(bucket).total_files == 60


def test_after_kill_9_a_batch_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    root = tmp_path / "hub"
    with start_server(root, USERS) as server:
        ada = HfApi(endpoint=server.endpoint, token="hf_test_ada")
        ada.create_bucket("ada/b")
        ada.batch_bucket_files("ada/b", add=[(b"x", "seed")])
        (seed,) = ada.get_bucket_paths_info("ada/b", ["seed"])
        with ThreadPoolExecutor(4) as pool:
            sent = [pool.submit(copy_many, ada, seed.xet_hash, number) for number in range(40)]
            sent[5].result()
            server.kill()
        done = {number for number, future in enumerate(sent) if future.exception() is None}
    with start_server(root, USERS) as server:
        found = paths(HfApi(endpoint=server.endpoint, token="hf_test_ada"), "ada/b")
        sizes = {number: sum(path.startswith(f"{number:02d}/") for path in found) for number in range(40)}
    assert set(sizes.values()) <= {0, 50}
    assert done <= {number for number, size in sizes.items() if size == 50}


def copy_many(api: HfApi, xet_hash: str, number: int) -> None:
    lines = b"\n".join(
        b'{"type":"copyFile","path":"%02d/%d","xetHash":"%s","mtime":0,"sourceRepoType":"bucket","sourceRepoId":"ada/b"}'
        % (number, i, xet_hash.encode())
        for i in range(50)
    )
    headers = {"Authorization": f"Bearer {api.token}", "Content-Type": "application/x-ndjson"}
    answer = get_session().post(f"{api.endpoint}/api/buckets/ada/b/batch", content=lines, headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(("body", "status"), [
    pytest.param(b"{", 400, id="no JSON"),
    pytest.param(b"[]", 400, id="no object"),
    pytest.param(b'{"type":"addFile","path":"a","xetHash":"zz","mtime":0}', 422, id="no hash"),
    pytest.param(b'{"type":"addFile","path":"a","xetHash":"%s","mtime":0}' % (b"0" * 64), 422, id="unknown hash"),
    pytest.param(b'{"type":"addFile","path":"a","xetHash":"%s","mtime":-1}' % (b"0" * 64), 422, id="bad time"),
    pytest.param(b'{"type":"rename","path":"a"}', 422, id="unknown type"),
    pytest.param(b"", 200, id="nothing to do"),
])  # fmt: skip
def test_bad_batches_change_nothing(ada: HfApi, bucket: str, body: bytes, status: int) -> None:
    headers = {"Authorization": "Bearer hf_test_ada", "Content-Type": "application/x-ndjson"}
    answer = get_session().post(f"{ada.endpoint}/api/buckets/{bucket}/batch", content=body, headers=headers)
    assert answer.status_code == status
    assert paths(ada, bucket) == []


def test_the_file_system_reads_writes_and_removes_bucket_files(server: ServerProcess, bucket: str) -> None:
    fs = HfFileSystem(endpoint=server.endpoint, token="hf_test_ada", skip_instance_cache=True)
    root = f"hf://buckets/{bucket}"
    with fs.open(f"{root}/dir/a.txt", "w") as file:
        file.write("written")
    assert fs.cat(f"{root}/dir/a.txt") == b"written"
    with fs.open(f"{root}/dir/a.txt", "rb") as file:
        file.seek(3)
        assert file.read(2) == b"tt"
    fs.cp(f"{root}/dir/a.txt", f"{root}/dir/b.txt")
    assert sorted(name.rpartition("/")[2] for name in fs.glob(f"{root}/**/*.txt")) == ["a.txt", "b.txt"]
    fs.rm(f"{root}/dir/a.txt")
    assert [name.rpartition("/")[2] for name in fs.find(root, refresh=True)] == ["b.txt"]


def in_process(server: ServerProcess, code: str, *args: str) -> str:
    """Run Python in a process whose environment points to the server, and return what it printed."""
    env = os.environ | server.env | {"HF_TOKEN": "hf_test_ada"}
    done = subprocess.run([sys.executable, "-c", code, *args], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_datasets_pushes_to_and_loads_from_a_bucket(server: ServerProcess, bucket: str) -> None:
    code = (
        "import sys; from datasets import Dataset, load_dataset\n"
        "name = f'buckets/{sys.argv[1]}/words'\n"
        "Dataset.from_dict({'word': ['a', 'b'], 'n': [1, 2]}).push_to_hub(name)\n"
        "print(load_dataset(name, split='train')[:])"
    )
    assert in_process(server, code, bucket).strip().endswith("{'word': ['a', 'b'], 'n': [1, 2]}")


def test_the_hf_command_lists_copies_and_syncs_buckets(hf: Any, bucket: str, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        done = hf("buckets", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "a.txt").write_text("from hf")
    run("cp", str(tmp_path / "a.txt"), f"hf://buckets/{bucket}/x/a.txt")
    assert "a.txt" in run("ls", f"hf://buckets/{bucket}/x")
    run("cp", f"hf://buckets/{bucket}/x/a.txt", str(tmp_path / "b.txt"))
    assert (tmp_path / "b.txt").read_text() == "from hf"


def test_a_job_reads_and_writes_a_mounted_bucket(ada: HfApi, bucket: str) -> None:
    ada.batch_bucket_files(bucket, add=[(b"input", "in/a.txt"), (b"old", "in/old.txt"), (b"other", "out-of-sight")])
    volume = Volume(type="bucket", source=bucket, mount_path="/data", path="in")
    script = "cat /data/a.txt; ls /data; rm /data/old.txt; mkdir /data/deep; echo made > /data/deep/new.txt; exit 3"
    job = ada.run_job(image="x", command=["sh", "-c", script], volumes=[volume], namespace="ada")
    ended = ada.wait_for_job(job.id, namespace="ada", timeout=600, poll_interval=0.05)
    assert (ended.status.stage, ended.status.message) == ("ERROR", "exit code 3")
    assert list(ada.fetch_job_logs(job_id=job.id, namespace="ada")) == ["inputa.txt", "old.txt"]
    assert paths(ada, bucket) == ["in/a.txt", "in/deep/new.txt", "out-of-sight"]
    assert get(ada, bucket, "in/deep/new.txt") == (200, b"made\n")


def test_a_read_only_mount_sends_nothing_back(ada: HfApi, bucket: str) -> None:
    ada.batch_bucket_files(bucket, add=[(b"input", "a.txt")])
    volume = Volume(type="bucket", source=bucket, mount_path="/data", read_only=True)
    job = ada.run_job(image="x", command=["sh", "-c", "echo b > /data/b"], volumes=[volume], namespace="ada")
    ada.wait_for_job(job.id, namespace="ada", timeout=600, poll_interval=0.05)
    assert paths(ada, bucket) == ["a.txt"]


@pytest.mark.filterwarnings("ignore:'HfApi.run_uv_job' is experimental")
def test_a_local_script_runs_as_a_uv_job(server: ServerProcess, ada: HfApi, tmp_path: Path) -> None:
    script = tmp_path / "my script.py"
    script.write_text("import sys, pathlib\nprint('args', pathlib.Path(sys.argv[1]).read_text())\n")
    (tmp_path / "config.yaml").write_text("a: 1")
    job = ada.run_uv_job(str(script), script_args=[str(tmp_path / "config.yaml")], namespace="ada")
    ended = ada.wait_for_job(job.id, namespace="ada", timeout=600, poll_interval=0.1)
    log = list(ada.fetch_job_logs(job_id=job.id, namespace="ada"))
    if "'uv' is not on this machine" in (ended.status.message or ""):
        pytest.skip("uv is not installed")
    assert ended.status.stage == "COMPLETED", log
    assert log[-1] == "args a: 1"
    command = [
        sys.executable, "-m", "huggingface_hub.cli.hf", "jobs", "uv", "run", str(script), str(tmp_path / "config.yaml"),
    ]  # fmt: skip
    env = os.environ | server.env | {"HF_TOKEN": "hf_test_ada"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "args a: 1" in done.stdout


def test_without_xet_buckets_say_so(tmp_path: Path) -> None:
    with start_server(tmp_path / "hub", (*USERS, "--no-xet")) as server:
        ada = HfApi(endpoint=server.endpoint, token="hf_test_ada")
        with pytest.raises(HfHubHTTPError, match="501"):
            ada.create_bucket("ada/b")
