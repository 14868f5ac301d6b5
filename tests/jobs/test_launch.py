"""A run of several jobs on the embedded Hub's real runner; what a job carries out is a program that saves steps."""

from __future__ import annotations

import json
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from composer_hub import exits
from composer_hub.hub import HubDestination, HubError, HubRefused, Patience
from composer_hub.jobs import client as jobs
from composer_hub.jobs.launch import Site, launch, resume, site_of
from composer_hub.jobs.plan import Wish, make_plan
from composer_hub.jobs.runs import Attempt, JobRun
from composer_hub.jobs.wheels import own_wheel
from composer_hub.local_hub.server import ServerProcess, start_server

SECRET = "sk-THE-VALUE-nobody-may-read-back"
# Knows the step it is at from what earlier jobs kept, as training does.
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
USUAL: dict[str, Any] = {"given": {"HF_TOKEN": "hf_test_me"}, "timeout_s": 60, "max_usd": 100.0}
UP_TO_THREE = "save(done + 1); sys.exit(0 if done == 2 else 3)"


@pytest.fixture(scope="module", autouse=True)
def wheel(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Build the package once; `test_wheels.py` and the commands' tests let each launch do it."""
    pytest.importorskip("hatchling", reason="the wheel is built with hatchling")
    USUAL["package"] = str(own_wheel(tmp_path_factory.mktemp("wheel")))


@pytest.fixture
def where(hub_server: ServerProcess) -> HubDestination:
    return hub_at(hub_server)


def hub_at(server: ServerProcess, token: str = "hf_test_me") -> HubDestination:
    return HubDestination("local", HfApi(endpoint=server.endpoint, token=token), Patience(sleep=lambda seconds: None))


@pytest.fixture
def site_for(where: HubDestination, tmp_path: Path) -> Callable[[str], Site]:
    """Return a site whose jobs carry out a trainer with this end."""

    def make(body: str) -> Site:
        script = tmp_path / f"trainer-{uuid.uuid4().hex[:6]}.py"
        script.write_text(TRAINER + body)
        return Site(where, "me", program=lambda record: [sys.executable, str(script)], poll_s=0.05)

    return make


def wish(**change: Any) -> Wish:
    words = ["--repo", f"me/run-{uuid.uuid4().hex[:8]}", "--model_name_or_path", "small"]
    return Wish(**USUAL | {"words": words} | change)


def name_of(asked: Wish) -> str:
    return asked.words[1].split("/")[1]


def jobs_of(where: HubDestination, run: str) -> list[Any]:
    return list(where.api.list_jobs(labels={"composer-run": run}, namespace="me"))


def start(site: Site, asked: Wish) -> tuple[BaseException | None, JobRun]:
    """Launch a run to its end and return what ended it, and its record."""
    try:
        launch(site, asked)
    except exits.ComposerError as error:
        return error, site.store.need(name_of(asked))
    return None, site.store.need(name_of(asked))


# --------------------------------------------------------------------------------------------------------- going on


def test_jobs_follow_each_other_from_the_last_checkpoint_until_the_run_is_done(
    site_for: Callable[[str], Site], where: HubDestination
) -> None:
    lines: list[str] = []
    asked = wish()
    site = replace(site_for(UP_TO_THREE), show=lines.append)
    error, run = start(site, asked)
    assert error is None
    assert [(job.how, job.exit_code, job.step) for job in run.jobs] == [
        ("out of time", 3, 1),
        ("out of time", 3, 2),
        ("done", 0, 3),
    ]
    assert [line for line in lines if line.startswith("saved")] == ["saved 1", "saved 2", "saved 3"]
    started = sorted(jobs_of(where, run.run), key=lambda job: job.labels["composer-job"])
    assert [job.id for job in started] == [job.job_id for job in run.jobs]
    assert started[0].labels == {"composer-run": run.run, "composer-job": "1", "name": f"{run.run}-1"}
    assert all(word in started[0].command for word in ("--resume", "--to", "hub"))
    with pytest.raises(exits.NothingToDo, match="is done"):
        launch(site, asked)


def test_a_job_that_the_time_limit_kills_is_followed_by_one_that_goes_on(site_for: Callable[[str], Site]) -> None:
    body = "save(done + 1)\nif done == 0: time.sleep(300)\n"
    error, run = start(site_for(body), wish(timeout_s=8))
    assert error is None
    assert [(job.how, job.step) for job in run.jobs] == [("out of time", 1), ("done", 2)]


def test_a_job_that_fails_is_not_repeated_until_a_person_says_so(site_for: Callable[[str], Site]) -> None:
    asked = wish()
    error, run = start(site_for("save(done + 1); sys.exit(1 if done == 0 else 0)"), asked)
    assert isinstance(error, jobs.JobError)
    assert f"jobs resume {run.run}" in str(error)
    assert [job.how for job in run.jobs] == ["failed"]
    done = resume(site_for(UP_TO_THREE), run.run, lambda names: dict.fromkeys(names, "hf_test_me"))
    assert [job.step for job in done.jobs] == [1, 2, 3]


@pytest.mark.parametrize(("code", "kind"), [(2, exits.UsageError), (4, exits.Refused), (7, jobs.JobError)])
def test_the_exit_code_of_the_job_is_that_of_the_launch(
    site_for: Callable[[str], Site], code: int, kind: type[exits.ComposerError]
) -> None:
    error, run = start(site_for(f"sys.exit({code})"), wish())
    assert type(error) is kind
    assert run.jobs[0].exit_code == code


def test_a_job_that_dies_at_its_start_is_told_and_not_repeated(site_for: Callable[[str], Site]) -> None:
    lines: list[str] = []
    site = replace(site_for(""), program=lambda record: ["no-such-program-here"], show=lines.append)
    error, run = start(site, wish())
    assert isinstance(error, jobs.JobError)
    assert [job.exit_code for job in run.jobs] == [127]
    assert "no-such-program-here cannot be run" in lines[-1]


def test_a_job_that_used_its_time_without_a_checkpoint_is_not_repeated(site_for: Callable[[str], Site]) -> None:
    error, run = start(site_for("sys.exit(3)"), wish())
    assert isinstance(error, jobs.JobError)
    assert "--save_steps" in str(error)
    assert len(run.jobs) == 1


def test_a_run_ends_with_its_number_of_jobs(site_for: Callable[[str], Site]) -> None:
    error, run = start(site_for("save(done + 1); sys.exit(3)"), wish(max_jobs=2))
    assert isinstance(error, exits.Stopped)
    assert [job.step for job in run.jobs] == [1, 2]


def test_a_run_never_spends_more_than_its_cap_and_goes_on_when_it_is_raised(site_for: Callable[[str], Site]) -> None:
    # A minute costs 60 cents, and a job of a minute may use two: what the first leaves does not pay for another one.
    error, run = start(site_for(UP_TO_THREE), wish(usd_per_hour=36.0, hours=0.01, max_usd=1.5))
    assert isinstance(error, exits.Stopped)
    assert (run.spent, len(run.jobs)) == (600_000, 1)
    again = {"given": lambda names: dict.fromkeys(names, "hf_test_me")}
    with pytest.raises(exits.Stopped, match="--max-usd"):
        resume(site_for(UP_TO_THREE), run.run, **again)
    done = resume(site_for(UP_TO_THREE), run.run, max_usd=3.0, **again)
    assert (done.spent, done.state) == (1_800_000, "done")


def test_a_price_that_changed_counts_for_the_jobs_to_come(stopped: tuple[Site, str]) -> None:
    site, run = stopped
    site.store.change(run, lambda there: replace(there, micro_usd=41667) if there else None, "dearer days")
    done = goes_on(site, run)
    assert (done.micro_usd, done.state) == (0, "done")


def test_the_last_job_gets_only_the_time_that_the_money_pays_for(site_for: Callable[[str], Site]) -> None:
    # Twenty minutes are wished for a job, and a minute costs a dollar.
    asked = wish(usd_per_hour=60.0, timeout_s=1200, hours=0.1, max_usd=12.0)
    _, run = start(site_for("save(done + 1); sys.exit(3)"), asked)
    assert [job.timeout_s for job in run.jobs] == [660, 600]
    assert run.spent == 2_000_000


# ----------------------------------------------------------------------------------------------------- twice at once


def test_two_launches_at_once_of_a_run_start_one_job(site_for: Callable[[str], Site], where: HubDestination) -> None:
    asked, ends = wish(), []
    site = site_for("time.sleep(1); save(1)")
    threads = [threading.Thread(target=lambda: ends.append(start(site, asked))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(jobs_of(where, name_of(asked))) == 1
    assert [run.state for _, run in ends] == ["done"] * 3


def test_a_job_that_was_left_alone_is_followed_when_the_run_is_resumed(site_for: Callable[[str], Site]) -> None:
    asked, lines = wish(), []
    site = replace(site_for(UP_TO_THREE), show=lines.append)
    left = launch(site, asked, detach=True)
    assert (left.state, lines) == ("running", [])
    done = resume(site, left.run, lambda names: dict.fromkeys(names, "hf_test_me"))
    assert [job.how for job in done.jobs] == ["out of time", "out of time", "done"]
    assert "saved 1" in lines


def claimed(site: Site, run: str, *, seconds_ago: int) -> None:
    """Leave the record as a launcher leaves it that is killed while it submits a job."""
    moment = (datetime.now(timezone.utc) - timedelta(seconds=seconds_ago)).isoformat(timespec="seconds")

    def claim(record: JobRun | None) -> JobRun:
        assert record is not None
        return replace(record, attempts=[*record.attempts, Attempt(len(record.attempts) + 1, moment, 60)])

    site.store.change(run, claim, "claim a job")


@pytest.fixture
def stopped(site_for: Callable[[str], Site]) -> tuple[Site, str]:
    """Return a run that stopped after one of its jobs, at step 1."""
    site, asked = site_for(UP_TO_THREE), wish(max_jobs=1)
    start(site, asked)
    return site, name_of(asked)


def goes_on(site: Site, run: str) -> JobRun:
    return resume(site, run, lambda names: dict.fromkeys(names, "hf_test_me"), max_jobs=9)


def test_the_job_of_a_launcher_that_was_killed_is_adopted(stopped: tuple[Site, str], where: HubDestination) -> None:
    site, run = stopped
    claimed(site, run, seconds_ago=0)
    order = jobs.Order(run, 2, "x", ["sleep", "0.2"], "local", 60, f"me/composer-run-{run}", {}, {})
    job_id = jobs.submit(where, "me", order)
    done = goes_on(site, run)
    assert done.jobs[1].job_id == job_id
    assert (len(jobs_of(where, run)), done.state) == (2, "done")


def test_a_claim_that_became_no_job_is_given_up_and_costs_nothing(
    stopped: tuple[Site, str], where: HubDestination
) -> None:
    site, run = stopped
    claimed(site, run, seconds_ago=3600)
    done = goes_on(site, run)
    assert [one.how for one in done.attempts] == ["out of time", "not submitted", "out of time", "done"]
    assert len(jobs_of(where, run)) == 3


def test_what_a_person_is_told_to_type_finds_the_run(site_for: Callable[[str], Site], where: HubDestination) -> None:
    elsewhere = site_of(replace(where, name="hub"), "me")
    error, run = start(replace(site_for("sys.exit(1)"), reach=elsewhere.reach), wish())
    assert f"composer-hub jobs resume {run.run} --to hub --namespace me" in str(error)


def test_a_bucket_of_a_run_whose_record_is_gone_is_not_gone_on_from(stopped: tuple[Site, str]) -> None:
    site, run = stopped
    site.where.api.delete_file(f"{run}.json", site.store.repo, repo_type="dataset")
    with pytest.raises(exits.UsageError, match="hf buckets delete"):
        launch(site, wish(run=run))


def test_a_run_of_that_name_that_was_told_otherwise_is_left_alone(stopped: tuple[Site, str]) -> None:
    site, run = stopped
    words = ["--repo", f"me/{run}", "--model_name_or_path", "small", "--learning_rate", "1"]
    with pytest.raises(exits.UsageError, match="told otherwise"):
        launch(site, wish(words=words, run=run))


# ------------------------------------------------------------------------------------------------ before it starts


@pytest.mark.parametrize("max_usd", [None, 9.99], ids=["no cap", "a cap below the plan"])
def test_without_enough_money_nothing_is_made_at_the_hub(
    site_for: Callable[[str], Site], where: HubDestination, max_usd: float | None
) -> None:
    asked = wish(usd_per_hour=10.0, timeout_s=3600, max_usd=max_usd)
    with pytest.raises(exits.UsageError if max_usd is None else exits.Refused, match="--max-usd"):
        launch(site_for(""), asked)
    assert where.is_private(f"me/{name_of(asked)}", "model") is None
    assert f"me/composer-run-{name_of(asked)}" not in [bucket.id for bucket in where.api.list_buckets("me")]


def test_a_plan_counts_hours_jobs_and_dollars_and_makes_nothing(where: HubDestination) -> None:
    asked = wish(usd_per_hour=2.5, timeout_s=6 * 3600, hours=20.0)
    told = make_plan(where, "me", asked).describe(asked)
    assert (told["jobs"], round(told["total_usd"], 2), told["teacher_usd"]) == (4, 50.0, 0.0)
    assert where.is_private(f"me/{name_of(asked)}", "model") is None


@pytest.mark.parametrize(
    ("words", "match"),
    [
        pytest.param([], "--repo", id="nothing is published"),
        pytest.param(["--repo", "me/x", "--output_dir", "/tmp/x"], "--output_dir is set by the job", id="own output"),
        pytest.param(["--repo", "me/x", "--resume=true"], "--resume is set by the job", id="own resume"),
        pytest.param(["--repo", "me/x", "--config", "no.yaml"], "no config file", id="no such config"),
        pytest.param(["--repo", "me/x", "--model_name_or_path", "."], "publish it first", id="model in a folder"),
        pytest.param(["--repo", "me/x", "--model_name_or_path", "me/none@v1"], "no model me/none@v1", id="no model"),
        pytest.param(["--repo", "me/x", "--tasks", "me/none"], "no set of tasks me/none", id="no tasks"),
        pytest.param(["--repo", "me/x", "--eval_tasks", "me/none"], "no set of tasks me/none", id="no held-out tasks"),
        pytest.param(
            ["--repo", "me/x", "--traces", "me/none", "--alpha_sdpo", "0.5"], "no set of traces me/none", id="no traces"
        ),
        pytest.param(["--repo", "x"], "no owner", id="target without owner"),
    ],
)
def test_a_command_that_would_fail_in_the_job_is_refused_here(
    where: HubDestination, words: list[str], match: str
) -> None:
    with pytest.raises(exits.UsageError, match=match):
        make_plan(where, "me", wish(words=words))


def test_a_token_that_may_not_write_the_target_is_found_before_any_hour_is_paid(
    site_for: Callable[[str], Site], where: HubDestination
) -> None:
    asked = wish(given={"HF_TOKEN": "hf_test_reader"})
    where.api.create_repo(f"me/{name_of(asked)}", private=True)
    with pytest.raises(HubRefused):
        launch(site_for(""), asked)
    assert jobs_of(where, name_of(asked)) == []


def test_a_token_that_has_lost_its_right_is_found_when_the_run_goes_on(stopped: tuple[Site, str]) -> None:
    site, run = stopped
    with pytest.raises(HubRefused):
        resume(site, run, lambda names: dict.fromkeys(names, "hf_test_reader"), max_jobs=9)
    assert len(site.store.need(run).jobs) == 1


def test_a_public_target_is_refused_unless_the_run_is_public(
    site_for: Callable[[str], Site], where: HubDestination
) -> None:
    asked = wish()
    where.api.create_repo(f"me/{name_of(asked)}", private=False)
    with pytest.raises(HubRefused, match="--public true"):
        launch(site_for(""), asked)
    make_plan(where, "me", replace(asked, words=[*asked.words, "--public", "true"]))


def test_everything_that_a_run_publishes_is_looked_at_before_it_is_paid(where: HubDestination) -> None:
    asked = wish()
    others = ("rollouts_repo", f"{name_of(asked)}-rollouts"), ("checkpoints_repo", f"{name_of(asked)}-checkpoints")
    words = [word for option, name in others for word in (f"--{option}", f"me/{name}")]
    told = make_plan(where, "me", replace(asked, words=[*asked.words, *words])).describe(asked)
    assert told["publishes"] == [f"me/{name_of(asked)}", *(f"me/{name}" for _, name in others)]
    where.api.create_repo(f"me/{others[1][1]}", private=False)
    with pytest.raises(HubRefused, match=f"{others[1][1]} is public"):
        make_plan(where, "me", replace(asked, words=[*asked.words, *words]))


@pytest.mark.parametrize("what", ["records", "bucket"])
def test_neither_record_nor_checkpoints_go_where_everyone_reads(
    site_for: Callable[[str], Site], where: HubDestination, what: str
) -> None:
    asked = wish()
    site = replace(site_for(""), namespace="vault")
    if what == "records":
        where.api.create_repo(site.store.repo, repo_type="dataset", private=False, exist_ok=True)
        where.api.update_repo_settings(site.store.repo, repo_type="dataset", private=False)
    else:
        where.api.create_bucket(f"vault/composer-run-{name_of(asked)}", private=False)
    with pytest.raises(HubRefused, match="public"):
        launch(site, asked)
    if what == "records":
        where.api.delete_repo(site.store.repo, repo_type="dataset")


def test_files_and_code_travel_and_the_job_finds_them(site_for: Callable[[str], Site], tmp_path: Path) -> None:
    (tmp_path / "mine" / "my_world").mkdir(parents=True)
    (tmp_path / "mine" / "my_world" / "__init__.py").write_text("RULES = 'mine'")
    (tmp_path / "mine" / "my_world" / ".secret").write_text("stays here")
    asked = wish()
    config, tasks = tmp_path / "mine.yaml", tmp_path / "tasks.jsonl"
    tasks.write_text('{"prompt": "hi"}\n')
    config.write_text(f"learning_rate: 0.25\ntasks: {tasks}\n")
    body = (
        "import my_world; print(my_world.RULES, Path(my_world.__file__).parent.joinpath('.secret').exists())\n"
        "print(open(words[words.index('--config') + 1]).read().split()[1])\n"
        "print(open(words[words.index('--tasks') + 1]).read().strip())"
    )
    lines: list[str] = []
    site = replace(site_for(body), show=lines.append)
    error, _ = start(
        site, replace(asked, words=[*asked.words, "--config", str(config)], code=[tmp_path / "mine" / "my_world"])
    )
    assert error is None, lines
    assert lines[:3] == ["mine False", "0.25", '{"prompt": "hi"}']


# ------------------------------------------------------------------------------------------------------------ secrets


def test_a_secret_reaches_the_job_and_stands_nowhere_else(
    site_for: Callable[[str], Site], where: HubDestination, tmp_path: Path
) -> None:
    asked = wish(given={"HF_TOKEN": "hf_test_me", "API_KEY": SECRET})
    lines: list[str] = []
    site = replace(site_for("print(len(os.environ['API_KEY']), os.environ['API_KEY'])"), show=lines.append)
    error, run = start(site, asked)
    assert error is None
    assert f"{len(SECRET)} ***" in lines
    assert run.secrets == ["API_KEY", "HF_TOKEN"]
    assert SECRET not in run.to_json().decode()
    assert SECRET not in json.dumps(vars(jobs_of(where, run.run)[0]), default=str)
    for path in jobs.names_in(where, run.bucket, ""):
        assert SECRET.encode() not in (jobs.read_small(where, run.bucket, path, tmp_path) or b"")


@pytest.mark.parametrize("place", ["words", "env"])
def test_the_value_of_a_secret_on_the_command_line_is_refused(where: HubDestination, place: str) -> None:
    asked = wish(given={"HF_TOKEN": "hf_test_me", "API_KEY": SECRET})
    told = [*asked.words, f"--x={SECRET}"] if place == "words" else {"KEY": SECRET}
    with pytest.raises(exits.Refused, match="--secret API_KEY"):
        make_plan(where, "me", replace(asked, **{place: told}))
    assert SECRET not in repr(asked)


def test_a_token_that_is_no_named_secret_is_refused_on_the_command_line(where: HubDestination) -> None:
    asked = wish()
    with pytest.raises(exits.Refused, match="looks like a token"):
        make_plan(where, "me", replace(asked, words=[*asked.words, "--hub_token", "hf_" + "a1B2" * 9]))


# ------------------------------------------------------------------------------------------------- Hubs that cannot


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A Hub that runs no jobs and has no buckets."""
    with start_server(tmp_path_factory.mktemp("plain"), ["--user", "me:hf_test_me", "--no-xet"]) as server:
        yield server


def test_a_hub_without_buckets_says_so(plain_server: ServerProcess) -> None:
    with pytest.raises(HubError, match="without --no-xet"):
        launch(Site(hub_at(plain_server), "me"), wish())


def test_a_hub_that_runs_no_jobs_says_how_to_allow_them(tmp_path: Path) -> None:
    with start_server(tmp_path / "hub", ["--user", "me:hf_test_me"]) as server:
        site, asked = Site(hub_at(server), "me"), wish()
        with pytest.raises(HubRefused, match="--allow-local-jobs"):
            launch(site, asked)
        assert site.store.need(name_of(asked)).jobs == []
