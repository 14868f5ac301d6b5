"""Jobs of the embedded Hub: local processes, as the stock client and the `hf` command see them."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, JobInfo, JobStage, Volume
from huggingface_hub.errors import HfHubHTTPError, JobNotFoundError
from huggingface_hub.utils import get_session

from composer_hub.local_hub.jobs import _last_lines
from composer_hub.local_hub.server import ServerProcess, start_server
from composer_hub.local_hub.supervisor import MAX_LINE, Log
from tests.quick import quick

from .requests import auth, files_holding

SECRET = "sk-THE-VALUE-that-must-stay-secret"
USERS = ("--user", "ada:hf_test_ada", "--user", "bob:hf_test_bob")
ALLOWED = (*USERS, "--allow-local-jobs")


def run(api: HfApi, *command: str, **options: object) -> JobInfo:
    return api.run_job(image="python:3.12", command=list(command), namespace="ada", **options)  # type: ignore[arg-type]


def end_of(api: HfApi, job: JobInfo) -> JobInfo:
    return api.wait_for_job(job.id, namespace="ada", timeout=600, poll_interval=0.05)


def logs_of(api: HfApi, job: JobInfo, **options: object) -> list[str]:
    return list(api.fetch_job_logs(job_id=job.id, namespace="ada", **options))  # type: ignore[arg-type]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(marker: str) -> bool:
    """Say whether a process with this word in its command line runs."""
    return subprocess.run(["pgrep", "-f", marker], capture_output=True).returncode == 0


def test_a_job_runs_its_command_and_its_log_comes_back_in_order(ada: HfApi) -> None:
    job = run(ada, "python", "-c", "for i in range(3): print('line', i)", name="counting", flavor="a10g-small")
    assert job.status.stage in ("SCHEDULING", "RUNNING", "COMPLETED")
    assert job.labels == {"name": "counting"}
    assert logs_of(ada, job, follow=True) == ["line 0", "line 1", "line 2"]
    done = end_of(ada, job)
    assert done.status.stage == JobStage.COMPLETED
    assert done.owner.name == "ada"
    assert done.docker_image == "python:3.12"
    assert done.flavor == "local"
    assert done.status.message is not None
    assert "image python:3.12 and the flavor a10g-small are not used" in done.status.message
    assert done.started_at is not None
    assert done.finished_at is not None
    assert done.durations is not None
    assert logs_of(ada, job) == ["line 0", "line 1", "line 2"]
    assert logs_of(ada, job, tail=1) == ["line 2"]


def test_following_a_running_job_shows_lines_as_they_come(ada: HfApi, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = (
        f"import os, time\nprint('before')\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)\nprint('after')"
    )
    job = run(ada, "python", "-c", code)
    lines = iter(ada.fetch_job_logs(job_id=job.id, namespace="ada", follow=True))
    assert next(lines) == "before"
    assert ada.inspect_job(job_id=job.id, namespace="ada").status.stage == "RUNNING"
    gate.touch()
    assert list(lines) == ["after"]


def test_a_replayed_log_has_the_same_events_so_a_client_finds_its_place_again(
    server: ServerProcess, ada: HfApi
) -> None:
    job = run(ada, "sh", "-c", "for i in 1 2 2 2 3; do echo $i; done")
    end_of(ada, job)
    url = f"{server.endpoint}/api/jobs/ada/{job.id}/logs"
    headers = auth("ada")
    whole = get_session().get(url, headers=headers).text
    assert whole == get_session().get(url, headers=headers).text
    events = [line for line in whole.splitlines() if line.startswith("data: {")]
    assert len(set(events)) == len(events) == 6
    assert get_session().get(url, headers=headers, params={"tail": 2}).text.split("\n\n")[:-1] == events[-2:]
    assert get_session().get(url, headers=headers, params={"tail": "x"}).status_code == 400


def test_a_failing_job_ends_as_an_error_with_its_exit_code(ada: HfApi) -> None:
    job = run(ada, "sh", "-c", "echo oops >&2; exit 3")
    done = end_of(ada, job)
    assert (done.status.stage, done.status.message) == ("ERROR", "exit code 3")
    assert logs_of(ada, job) == ["oops"]


def test_attempts_repeat_a_failing_job(ada: HfApi, tmp_path: Path) -> None:
    job = run(ada, "sh", "-c", f"echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 2", attempts=5)
    assert end_of(ada, job).status.stage == "COMPLETED"
    assert job.retry == 4
    assert (tmp_path / "tries").read_text() == "x\nx\n"


def test_a_missing_program_is_named_in_the_status_and_in_the_log(ada: HfApi) -> None:
    job = run(ada, "no-such-program-here", "--help")
    done = end_of(ada, job)
    assert done.status.stage == "ERROR"
    assert "'no-such-program-here' is not on this machine" in (done.status.message or "")
    assert "is not on this machine" in logs_of(ada, job)[0]


def test_environment_and_secrets_reach_the_process(server: ServerProcess, ada: HfApi) -> None:
    code = (
        "import os, hashlib; e = os.environ; print(e['MODE'], e['SEED'], e['HF_ENDPOINT'], e['JOB_ID']);"
        "print(hashlib.sha256(e['API_KEY'].encode()).hexdigest()); print(sorted(k for k in e if 'TOKEN' in k))"
    )
    job = run(ada, "python", "-c", code, env={"MODE": "fast", "SEED": 7}, secrets={"API_KEY": SECRET})
    first, digest, tokens = logs_of(ada, job, follow=True)
    assert first == f"fast 7 {server.endpoint} {job.id}"
    assert digest == hashlib.sha256(SECRET.encode()).hexdigest()
    assert tokens == "[]"


@pytest.mark.parametrize("before", [MAX_LINE - 4, MAX_LINE - len(SECRET), MAX_LINE, 3 * MAX_LINE + 7])
def test_a_secret_in_a_line_that_is_cut_is_masked_as_well(before: int) -> None:
    file = io.BytesIO()
    log = Log(file, [SECRET, "short-one"])
    output = b"x" * before + SECRET.encode() + b"y" * 100 + b"\nnext\n"
    for at in range(0, len(output), 1013):
        log.feed(output[at : at + 1013])
    log.close()
    lines = [json.loads(line)["data"] for line in file.getvalue().splitlines()]
    assert "".join(lines) == "x" * before + "***" + "y" * 100 + "next"


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_the_last_lines_leave_out_one_that_is_not_complete(count: int, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\nb\n{half")
    assert _last_lines(path, count) == ([b"a", b"b"][2 - min(count, 2) :], 4)
    path.write_bytes(b"a\nb\n")
    assert _last_lines(path, count) == ([b"a", b"b"][2 - min(count, 2) :], 4)


def test_a_secret_is_in_no_answer_no_log_and_no_file(server: ServerProcess, ada: HfApi) -> None:
    job = run(ada, "sh", "-c", 'echo "key=$API_KEY"; echo "$API_KEY" > kept; sleep 0.3', secrets={"API_KEY": SECRET})
    done = end_of(ada, job)
    assert logs_of(ada, job) == ["key=***"]
    assert list(done.secrets or {}) == ["API_KEY"]
    url = f"{server.endpoint}/api/jobs/ada/{job.id}"
    assert SECRET not in get_session().get(url, headers=auth("ada")).text
    assert files_holding(server.root, job.id.encode())
    assert files_holding(server.root, SECRET.encode()) == []


def test_a_job_talks_to_this_hub_with_the_token_it_was_given(ada: HfApi) -> None:
    code = "from huggingface_hub import HfApi; print(HfApi().whoami()['name'])"
    job = run(ada, "python", "-c", code, secrets={"HF_TOKEN": "hf_test_ada"})
    assert logs_of(ada, job, follow=True) == ["ada"]


def test_a_job_without_a_token_has_none_as_on_the_hub(ada: HfApi) -> None:
    code = "from huggingface_hub import get_token; print(get_token())"
    assert logs_of(ada, run(ada, "python", "-c", code), follow=True) == ["None"]


def test_a_timeout_ends_the_job_and_all_it_started(ada: HfApi) -> None:
    marker = "composer-timeout-marker"
    script = f"trap '' TERM; (exec -a {marker} sleep 300) & echo started; wait; wait; sleep 300"
    job = run(ada, "bash", "-c", script, timeout="1s")
    done = end_of(ada, job)
    assert (done.status.stage, done.status.message) == ("ERROR", "timeout")
    assert logs_of(ada, job) == ["started"]
    assert not is_alive(marker)


def test_canceling_also_ends_processes_that_left_their_group(ada: HfApi) -> None:
    marker = "composer-cancel-marker"
    script = f"(exec -a {marker}-1 setsid sleep 300) & (exec -a {marker}-2 sleep 300) & echo started; wait"
    job = run(ada, "bash", "-c", script)
    assert next(iter(ada.fetch_job_logs(job_id=job.id, namespace="ada", follow=True))) == "started"
    ada.cancel_job(job_id=job.id, namespace="ada")
    assert not is_alive(marker)
    assert end_of(ada, job).status.stage == "CANCELED"
    ada.cancel_job(job_id=job.id, namespace="ada")
    assert end_of(ada, job).status.stage == "CANCELED"


def test_background_processes_end_with_their_job(ada: HfApi) -> None:
    marker = "composer-daemon-marker"
    job = run(ada, "bash", "-c", f"(exec -a {marker} setsid sleep 300) & echo main is over")
    assert end_of(ada, job).status.stage == "COMPLETED"
    assert not is_alive(marker)


def test_jobs_are_listed_by_stage_and_label(ada: HfApi) -> None:
    good = run(ada, "true", labels={"run": "r1", "kind": "good"})
    bad = run(ada, "false", labels={"run": "r1"})
    end_of(ada, good)
    end_of(ada, bad)

    def ids(**filters: object) -> list[str]:
        return [job.id for job in ada.list_jobs(namespace="ada", **filters)]  # type: ignore[arg-type]

    assert ids(labels={"run": "r1"}) == [bad.id, good.id]
    assert ids(labels={"run": "r1", "kind": "good"}) == [good.id]
    assert ids(labels={"run": "r1"}, status="error") == [bad.id]
    assert ids(labels={"run": "r1"}, status=["ERROR", "COMPLETED"]) == [bad.id, good.id]
    assert ids(labels={"run": "r2"}) == []


def test_a_long_list_of_jobs_is_paged(server: ServerProcess, ada: HfApi) -> None:
    jobs = [run(ada, "no-such-program-here", labels={"batch": "many"}) for _ in range(103)]
    assert [job.id for job in ada.list_jobs(namespace="ada", labels={"batch": "many"})] == [
        job.id for job in reversed(jobs)
    ]


def test_others_neither_see_nor_end_nor_start_jobs_of_a_namespace(
    ada: HfApi, bob: HfApi, server: ServerProcess
) -> None:
    job = run(ada, "true")
    for forbidden in (
        lambda: run(bob, "true"),
        lambda: list(bob.list_jobs(namespace="ada")),
        lambda: bob.inspect_job(job_id=job.id, namespace="ada"),
        lambda: logs_of(bob, job),
        lambda: bob.cancel_job(job_id=job.id, namespace="ada"),
    ):
        with pytest.raises(HfHubHTTPError, match="403"):
            forbidden()
    with pytest.raises(JobNotFoundError):
        bob.inspect_job(job_id=job.id, namespace="bob")
    with pytest.raises(HfHubHTTPError, match="401"):
        run(HfApi(endpoint=server.endpoint, token=False), "true")


def test_the_hardware_is_this_machine_and_free(ada: HfApi) -> None:
    (hardware,) = ada.list_jobs_hardware()
    assert (hardware.name, hardware.unit_cost_micro_usd) == ("local", 0)


@pytest.mark.parametrize(("change", "status"), [
    pytest.param({"command": []}, 400, id="no command"),
    pytest.param({"command": "echo hi"}, 400, id="command as text"),
    pytest.param({"command": ["a\0b"]}, 400, id="NUL in command"),
    pytest.param({"command": ["a\ud800"]}, 400, id="half a surrogate pair in command"),
    pytest.param({"environment": {"A=B": "c"}}, 400, id="name with equals sign"),
    pytest.param({"environment": ["A"]}, 400, id="environment as list"),
    pytest.param({"timeoutSeconds": 0}, 400, id="no time"),
    pytest.param({"timeoutSeconds": "1h"}, 400, id="timeout as text"),
    pytest.param({"labels": {"a b": "c"}}, 400, id="blank in label"),
    pytest.param({"volumes": [{"type": "dataset", "source": "a/b", "mountPath": "../x"}]}, 400, id="relative mount"),
    pytest.param({"volumes": [{"type": "dataset", "source": "no/such", "mountPath": "/x"}]}, 404, id="no such source"),
    pytest.param({"expose": {"ports": [80]}}, 501, id="exposed port"),
    pytest.param({"ssh": {"enabled": True}}, 501, id="ssh"),
])  # fmt: skip
def test_jobs_that_cannot_be_are_refused_with_a_sentence(
    server: ServerProcess, change: dict[str, object], status: int
) -> None:
    spec = {"command": ["true"], "arguments": [], "environment": {}, "flavor": "cpu-basic", "dockerImage": "x"} | change
    url = f"{server.endpoint}/api/jobs/ada"
    headers = auth("ada") | {"Content-Type": "application/json"}
    answer = get_session().post(url, content=json.dumps(spec).encode(), headers=headers)
    assert answer.status_code == status
    assert len(answer.json()["error"]) > 20


def test_without_the_option_no_job_is_run(tmp_path: Path) -> None:
    with start_server(tmp_path / "hub", USERS) as server:
        ada = HfApi(endpoint=server.endpoint, token="hf_test_ada")
        with pytest.raises(HfHubHTTPError, match="--allow-local-jobs"):
            run(ada, "touch", str(tmp_path / "made"))
        assert list(ada.list_jobs(namespace="ada")) == []
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("way", quick(1, ["stop", "kill"]))
def test_no_job_outlives_its_server_and_the_next_one_says_so(tmp_path: Path, way: str) -> None:
    marker = f"composer-{way}-marker"
    with start_server(tmp_path / "hub", ALLOWED) as server:
        ada = HfApi(endpoint=server.endpoint, token="hf_test_ada")
        job = run(ada, "bash", "-c", f"(exec -a {marker} setsid sleep 300) & echo started; wait", secrets={"K": SECRET})
        until(lambda: ada.inspect_job(job_id=job.id, namespace="ada").status.stage == "RUNNING")
        until(lambda: is_alive(marker) and logs_of(ada, job) == ["started"])
        getattr(server, way)()
    until(lambda: not is_alive(marker))
    with start_server(tmp_path / "hub", ALLOWED) as server:
        ada = HfApi(endpoint=server.endpoint, token="hf_test_ada")
        ended = ada.inspect_job(job_id=job.id, namespace="ada")
        assert (ended.status.stage, ended.status.message) == ("ERROR", "server stopped")
        assert logs_of(ada, job, follow=True) == ["started"]


def test_a_repository_is_mounted_at_a_revision_and_paths_are_replaced(ada: HfApi) -> None:
    ada.create_repo("ada/mounted", repo_type="dataset", exist_ok=True)
    first = ada.upload_file(
        path_or_fileobj=b"first", path_in_repo="in/a.txt", repo_id="ada/mounted", repo_type="dataset"
    )
    ada.upload_file(path_or_fileobj=b"second", path_in_repo="in/a.txt", repo_id="ada/mounted", repo_type="dataset")
    volumes = [
        Volume(type="dataset", source="ada/mounted", mount_path="/data"),
        Volume(type="dataset", source="ada/mounted", mount_path="/data/old", revision=first.oid, path="in"),
    ]
    script = (
        'cat /data/in/a.txt; echo; cat "$OLD/a.txt"; echo; cat $COMPOSER_JOB_MOUNT_DATA_OLD/a.txt; echo; echo /dataset'
    )
    job = run(ada, "sh", "-c", script, volumes=volumes, env={"OLD": "/data/old"})
    done = end_of(ada, job)
    assert logs_of(ada, job) == ["second", "first", "first", "/dataset"]
    assert "/data is $COMPOSER_JOB_MOUNT_DATA" in (done.status.message or "")


def test_anothers_private_or_gated_repository_cannot_be_mounted(ada: HfApi, bob: HfApi) -> None:
    ada.create_repo("ada/hidden", repo_type="dataset", private=True, exist_ok=True)
    ada.create_repo("ada/gated", repo_type="dataset", private=False, exist_ok=True)
    ada.update_repo_settings("ada/gated", gated="auto", repo_type="dataset")
    for name, status in (("ada/hidden", "404"), ("ada/gated", "403")):
        volume = Volume(type="dataset", source=name, mount_path="/data")
        with pytest.raises(HfHubHTTPError, match=status):
            bob.run_job(image="x", command=["true"], namespace="bob", volumes=[volume])


def test_the_hf_command_runs_a_job_lists_it_and_shows_its_log(hf: Any) -> None:
    done = hf("jobs", "run", "--name", "from-hf", "python:3.12", "echo", "hello from hf")
    assert done.returncode == 0, done.stderr
    assert "hello from hf" in done.stdout
    listed = hf("jobs", "ps", "-a")
    assert "from-hf" in listed.stdout
    failed = hf("jobs", "run", "python:3.12", "sh", "-c", "exit 4")
    assert failed.returncode == 1
    assert "exit code 4" in failed.stderr
