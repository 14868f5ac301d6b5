"""Runs of several jobs on the real runner of the embedded Hub; the training program only saves steps."""

from __future__ import annotations

import json
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits
from composer_hub.hub import HubDestination, HubError, HubRefused
from composer_hub.jobs import JobError, JobOptions, JobRun, Launcher, launch, launcher_for, make_plan, resume
from composer_hub.jobs.launching import follow, submit
from composer_hub.jobs.runs import claim_job, list_files, read_files
from composer_hub.local_hub.server import ServerProcess, start_server
from composer_hub.money import MachinePrice, from_usd
from tests.hub.clients import hub_at
from tests.quick import quick

SECRET = "sk-THE-VALUE-that-must-stay-secret"
# Knows its step from the files of earlier jobs, as training does.
TRAINER = """
import os, sys, time
from pathlib import Path

words = sys.argv[1:]
out = Path(words[words.index("--output_dir") + 1])
done = max([int(p.parent.name.split("-")[1]) for p in out.glob("checkpoint-*/COMPLETE.json")], default=0)

def save(step):
    folder = out / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "weights").write_text(str(step))
    (folder / "COMPLETE.json").write_text("{}")
    print("saved", step, flush=True)

"""
UP_TO_THREE = "save(done + 1); sys.exit(0 if done == 2 else 3)"
ALWAYS_STOPPED = "save(done + 1); sys.exit(3)"
Launchers = Callable[..., Launcher]


@pytest.fixture
def where(hub_server: ServerProcess) -> HubDestination:
    return hub_at(hub_server, "hf_test_me")


@pytest.fixture
def launcher_of(where: HubDestination, tmp_path: Path) -> Launchers:
    """Return launchers whose jobs run a training program with this end."""

    def make(body: str, **change: Any) -> Launcher:
        script = tmp_path / f"trainer-{uuid.uuid4().hex[:6]}.py"
        script.write_text(TRAINER + body)
        return replace(Launcher(where, "me", lambda spec: [sys.executable, str(script)], poll_s=0.05), **change)

    return make


def request(**change: Any) -> JobOptions:
    words = ["--repo", f"me/run-{uuid.uuid4().hex[:8]}", "--model_name_or_path", "small"]
    options: dict[str, Any] = {"train": words, "secrets": {"HF_TOKEN": "hf_test_me"}, "timeout": "60", "max_usd": 100.0}
    return JobOptions(**options | change)


def name_of(options: JobOptions) -> str:
    return options.train[1].split("/")[1]


def jobs_of(where: HubDestination, run: str) -> list[Any]:
    return list(where.api.list_jobs(labels={"composer-run": run}, namespace="me"))


def start(launcher: Launcher, options: JobOptions) -> tuple[BaseException | None, JobRun]:
    """Launch a run; return the error that ended it, and the run."""
    try:
        return None, launch(launcher, options)
    except exits.ComposerError as error:
        return error, launcher.read(name_of(options))


def again(launcher: Launcher, run: str, **limits: Any) -> JobRun:
    return resume(launcher, run, lambda names: dict.fromkeys(names, "hf_test_me"), **limits)


# -------------------------------------------------------------------------------------------------------- continuing


def test_jobs_follow_each_other_from_the_last_checkpoint_until_the_run_is_done(
    launcher_of: Launchers, where: HubDestination
) -> None:
    lines: list[str] = []
    options = request()
    launcher = launcher_of(UP_TO_THREE, show=lines.append)
    error, run = start(launcher, options)
    assert error is None
    ends = [(job.state, job.exit_code, job.step) for job in run.jobs]
    assert ends == [("out of time", 3, 1), ("out of time", 3, 2), ("done", 0, 3)]
    assert [line for line in lines if line.startswith("saved")] == ["saved 1", "saved 2", "saved 3"]
    started = sorted(jobs_of(where, run.spec.run), key=lambda job: job.labels["composer-job"])
    assert [job.id for job in started] == [job.job_id for job in run.jobs]
    name = f"{run.spec.run}-1"
    assert started[0].labels == {"composer-run": run.spec.run, "composer-job": "1", "name": name}
    assert all(word in started[0].command for word in ("--resume", "--to", "hub"))
    with pytest.raises(exits.NothingToDo, match="is done"):
        launch(launcher, options)


@pytest.mark.slow
def test_a_job_killed_by_its_time_limit_is_followed_by_one_that_continues(launcher_of: Launchers) -> None:
    error, run = start(launcher_of("save(done + 1)\nif done == 0: time.sleep(600)\n"), request(timeout="60"))
    assert error is None
    assert [(job.state, job.step) for job in run.jobs] == [("out of time", 1), ("done", 2)]


def test_a_failed_job_is_repeated_only_on_request(launcher_of: Launchers) -> None:
    error, run = start(launcher_of("save(done + 1); sys.exit(1 if done == 0 else 0)"), request())
    assert isinstance(error, JobError)
    assert f"jobs resume {run.spec.run}" in str(error)
    assert [job.state for job in run.jobs] == ["failed"]
    assert [job.step for job in again(launcher_of(UP_TO_THREE), run.spec.run).jobs] == [1, 2, 3]


@pytest.mark.parametrize("code", quick(1, [1, 2, 4]))
def test_a_failed_job_ends_the_launch_with_its_code_in_the_message(launcher_of: Launchers, code: int) -> None:
    error, run = start(launcher_of(f"sys.exit({code})"), request())
    assert f"exit code {code}" in str(error)
    assert run.jobs[0].exit_code == code


def test_a_job_without_a_new_checkpoint_is_not_repeated(launcher_of: Launchers) -> None:
    error, run = start(launcher_of("sys.exit(3)"), request())
    assert isinstance(error, JobError)
    assert "--save_steps" in str(error)
    assert len(run.jobs) == 1


def test_a_run_never_spends_more_than_its_cap_and_continues_if_it_is_raised(launcher_of: Launchers) -> None:
    # A minute costs 60 cents, and a job of a minute may use two: the first leaves too little for another one.
    error, run = start(launcher_of(UP_TO_THREE), request(usd_per_hour=36.0, max_usd=1.5))
    assert isinstance(error, exits.Stopped)
    assert (run.budget.settled, run.budget.committed, len(run.jobs)) == (from_usd(0.6), from_usd(0.6), 1)
    with pytest.raises(exits.Stopped, match="--max-usd"):
        again(launcher_of(UP_TO_THREE), run.spec.run)
    done = again(launcher_of(UP_TO_THREE), run.spec.run, max_usd=3.0)
    assert (done.budget.committed, done.state) == (from_usd(1.8), "done")


def test_the_last_job_gets_only_the_time_that_the_money_pays_for(launcher_of: Launchers) -> None:
    # A job may run for twenty minutes, and a minute costs a dollar.
    options = request(usd_per_hour=60.0, timeout="20m", max_usd=12.0)
    _, run = start(launcher_of(ALWAYS_STOPPED), options)
    assert [job.timeout_s for job in run.jobs] == [660, 600]
    assert run.budget.committed == from_usd(2)


# ----------------------------------------------------------------------------------------------------- twice at once


@pytest.mark.slow
def test_several_launches_at_once_start_one_job(launcher_of: Launchers, where: HubDestination) -> None:
    options, ends = request(), []
    launcher = launcher_of("time.sleep(1); save(1)")
    threads = [threading.Thread(target=lambda: ends.append(start(launcher, options))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert len(jobs_of(where, name_of(options))) == 1
    assert [run.state for _, run in ends] == ["done"] * 3


@pytest.mark.slow
def test_a_detached_job_is_followed_when_the_run_is_resumed(launcher_of: Launchers) -> None:
    lines: list[str] = []
    launcher = launcher_of(UP_TO_THREE, show=lines.append)
    left = launch(launcher, request(), detach=True)
    assert (left.jobs[0].is_open, lines) == (True, [])
    done = again(launcher, left.spec.run)
    assert [job.state for job in done.jobs] == ["out of time", "out of time", "done"]
    # On a busy machine the first job may have ended before it was followed.
    assert {"saved 2", "saved 3"} <= set(lines)


@pytest.fixture
def stopped(launcher_of: Launchers) -> tuple[Launcher, JobRun]:
    """Return a run that stopped at step 1 after its only job."""
    launcher = launcher_of(UP_TO_THREE)
    run = launch(launcher, request(), detach=True)
    follow(launcher, run.jobs[0].job_id)
    return launcher, launcher.read(run.spec.run)


@pytest.mark.slow
def test_the_job_of_a_killed_launcher_is_adopted(stopped: tuple[Launcher, JobRun], where: HubDestination) -> None:
    launcher, run = stopped
    assert claim_job(where, run, 60, MachinePrice(0))[0] == 2
    job_id = submit(replace(launcher, program=lambda spec: ["true"]), run.spec, 2, 60, {"HF_TOKEN": "hf_test_me"})
    done = again(launcher, run.spec.run)
    assert done.jobs[1].job_id == job_id
    assert len(jobs_of(where, run.spec.run)) == len(done.jobs) == 2


def test_a_claim_without_a_job_is_given_up_and_counts_with_its_worst_case(
    stopped: tuple[Launcher, JobRun], where: HubDestination
) -> None:
    launcher, run = stopped
    claim_job(where, run, 60, MachinePrice(10**6))
    assert launcher.read(run.spec.run).budget.reserved == 2 * 10**6
    launcher = replace(launcher, claim_s=-1)
    assert launcher.read(run.spec.run).budget.ambiguous == 2 * 10**6
    done = again(launcher, run.spec.run)
    assert [job.state for job in done.jobs] == ["out of time", "lost", "out of time", "done"]


def test_a_printed_command_finds_the_run_again(where: HubDestination) -> None:
    launcher = launcher_for(replace(where, name="hub"), "me")
    assert launcher.command("resume", "x") == "`composer-hub jobs resume x --to hub --namespace me`"


def test_a_run_with_other_settings_is_left_alone(stopped: tuple[Launcher, JobRun]) -> None:
    launcher, run = stopped
    words = ["--repo", run.spec.targets[0][0], "--model_name_or_path", "small", "--learning_rate", "1"]
    with pytest.raises(exits.UsageError, match="different settings"):
        launch(launcher, request(train=words, run=run.spec.run))


def test_a_token_that_lost_its_right_stops_the_resume(stopped: tuple[Launcher, JobRun]) -> None:
    launcher, run = stopped
    with pytest.raises(HubRefused):
        resume(launcher, run.spec.run, lambda names: dict.fromkeys(names, "hf_test_reader"))
    assert len(launcher.read(run.spec.run).jobs) == 1


# ------------------------------------------------------------------------------------------------ before it starts


@pytest.mark.parametrize("max_usd", [None, 1.5], ids=["no cap", "a cap below ten minutes"])
def test_without_enough_money_nothing_is_created(
    launcher_of: Launchers, where: HubDestination, max_usd: float | None
) -> None:
    options = request(usd_per_hour=10.0, timeout="1h", max_usd=max_usd)
    with pytest.raises(exits.UsageError if max_usd is None else exits.Refused, match="--max-usd"):
        launch(launcher_of(""), options)
    assert where.is_private(f"me/{name_of(options)}", "model") is None
    assert f"me/composer-run-{name_of(options)}" not in [bucket.id for bucket in where.api.list_buckets("me")]


def test_a_plan_counts_hours_and_dollars_and_creates_nothing(where: HubDestination) -> None:
    options = request(usd_per_hour=2.4, timeout="6h", max_usd=48.0)
    row = make_plan(where, "me", options).as_row()
    assert (row["hours_per_job"], round(row["max_hours"])) == (6, 20)
    assert where.is_private(f"me/{name_of(options)}", "model") is None


@pytest.mark.parametrize(("words", "match"), [
    pytest.param([], "--repo", id="nothing is published"),
    pytest.param(["--repo", "me/x", "--output_dir", "/tmp/x"], "--output_dir is set by the job", id="own output"),
    pytest.param(["--repo", "me/x", "--resume=true"], "--resume is set by the job", id="own resume"),
    pytest.param(["--repo", "me/x", "--config", "no.yaml"], "no config file", id="no such config"),
    pytest.param(["--repo", "me/x", "--model_name_or_path", "."], "publish it first", id="model in a folder"),
    pytest.param(["--repo", "x"], "no owner", id="target without owner"),
])  # fmt: skip
def test_a_command_that_would_fail_in_the_job_is_refused(where: HubDestination, words: list[str], match: str) -> None:
    with pytest.raises(exits.UsageError, match=match):
        make_plan(where, "me", request(train=words))


def test_a_misspelled_option_is_found_before_any_hour_is_paid(where: HubDestination) -> None:
    pytest.importorskip("trl")
    words = [*request().train, "--optim", "muon", "--learning_rat", "3"]
    with pytest.raises(exits.UsageError, match=r"(?s)2 options .* learning_rate.* --optimizer muon"):
        make_plan(where, "me", request(train=words))


def test_a_token_without_write_access_is_found_before_any_hour_is_paid(
    launcher_of: Launchers, where: HubDestination
) -> None:
    options = request(secrets={"HF_TOKEN": "hf_test_reader"})
    where.api.create_repo(f"me/{name_of(options)}", private=True)
    with pytest.raises(HubRefused):
        launch(launcher_of(""), options)
    assert jobs_of(where, name_of(options)) == []


def test_every_target_must_be_private_unless_the_run_is_public(launcher_of: Launchers, where: HubDestination) -> None:
    options = request()
    rollouts = f"me/{name_of(options)}-rollouts"
    words = [*options.train, "--rollouts_repo", rollouts]
    where.api.create_repo(rollouts, private=False, repo_type="dataset")
    with pytest.raises(HubRefused, match=r"rollouts is public.*--public true"):
        launch(launcher_of(""), replace(options, train=words))
    error, run = start(launcher_of("save(1)"), replace(options, train=[*words, "--public", "true"]))
    assert error is None
    assert run.spec.targets == [[f"me/{name_of(options)}", "model"], [rollouts, "dataset"]]


def test_checkpoints_never_go_to_a_public_bucket(launcher_of: Launchers, where: HubDestination) -> None:
    options = request()
    where.api.create_bucket(f"me/composer-run-{name_of(options)}", private=False)
    with pytest.raises(HubRefused, match="public"):
        launch(launcher_of(""), options)


def test_files_code_and_secrets_reach_the_job_and_secrets_are_nowhere_else(
    launcher_of: Launchers, where: HubDestination, tmp_path: Path
) -> None:
    (tmp_path / "mine" / "my_world").mkdir(parents=True)
    (tmp_path / "mine" / "my_world" / "__init__.py").write_text("RULES = 'mine'")
    (tmp_path / "mine" / "my_world" / ".secret").write_text("stays here")
    config, tasks = tmp_path / "mine.yaml", tmp_path / "tasks.jsonl"
    tasks.write_text('{"prompt": "hi"}\n')
    config.write_text(f"learning_rate: 0.25\ntasks: {tasks}\n")
    body = (
        "import my_world; print(my_world.RULES, Path(my_world.__file__).parent.joinpath('.secret').exists())\n"
        "print(open(words[words.index('--config') + 1]).read().split()[1])\n"
        "print(open(words[words.index('--tasks') + 1]).read().strip())\n"
        "print(len(os.environ['API_KEY']), os.environ['API_KEY'])"
    )
    lines: list[str] = []
    options = request(code=[tmp_path / "mine" / "my_world"], secrets={"HF_TOKEN": "hf_test_me", "API_KEY": SECRET})
    error, run = start(
        launcher_of(body, show=lines.append), replace(options, train=[*options.train, "--config", str(config)])
    )
    assert error is None, lines
    assert lines[:4] == ["mine False", "0.25", '{"prompt": "hi"}', f"{len(SECRET)} ***"]
    assert run.spec.secrets == ["API_KEY", "HF_TOKEN"]
    assert SECRET not in json.dumps(vars(jobs_of(where, run.spec.run)[0]), default=str)
    files = read_files(where, run.spec.bucket, list(list_files(where, run.spec.bucket)))
    assert "run.json" in files
    assert not any(SECRET.encode() in content for content in files.values())


def test_the_value_of_a_secret_on_the_command_line_is_refused(where: HubDestination) -> None:
    options = request(secrets={"HF_TOKEN": "hf_test_me", "API_KEY": SECRET})
    with pytest.raises(exits.Refused, match="--secret API_KEY"):
        make_plan(where, "me", replace(options, train=[*options.train, f"--x={SECRET}"]))
    assert SECRET not in repr(options)


def test_any_token_on_the_command_line_is_refused(where: HubDestination) -> None:
    options = request()
    with pytest.raises(exits.Refused, match="looks like a token"):
        make_plan(where, "me", replace(options, train=[*options.train, "--hub_token", "hf_" + "a1B2" * 9]))


# ------------------------------------------------------------------------------------------------ Hubs without jobs


@pytest.fixture(scope="module", params=[["--no-xet"], []], ids=["no buckets", "no jobs"])
def plain_server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("plain"), ["--user", "me:hf_test_me", *request.param]) as server:
        yield server


def test_a_hub_without_jobs_or_buckets_says_how_to_get_them(plain_server: ServerProcess) -> None:
    launcher, options = Launcher(hub_at(plain_server, "hf_test_me"), "me"), request()
    with pytest.raises((HubRefused, HubError), match=r"--allow-local-jobs|--no-xet"):
        launch(launcher, options)
    assert not list(launcher.where.api.list_jobs(namespace="me"))
