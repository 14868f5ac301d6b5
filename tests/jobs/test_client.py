"""One job: its price, its start, its log and its end, as the Hub and less friendly servers tell them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, JobInfo

from composer_hub import exits
from composer_hub.hub import HubDestination, HubError, HubRefused, Patience
from composer_hub.jobs import client as jobs
from composer_hub.jobs.client import CANCELED, DONE, FAILED, OUT_OF_TIME, Order, Price
from composer_hub.local_hub.server import ServerProcess, start_server
from tests.jobs.answers import answering, job_answer, log_events

A100 = {
    "name": "a100-large",
    "prettyName": "Nvidia A100 - large",
    "cpu": "12 vCPU",
    "ram": "142 GB",
    "accelerator": {"type": "gpu", "model": "A100", "quantity": "1", "vram": "80 GB", "manufacturer": "Nvidia"},
    "unitCostMicroUSD": 41667,
    "unitCostUSD": 0.041667,
    "unitLabel": "minute",
}
HARDWARE = "GET /api/jobs/hardware"
LOGS, JOB, START = "GET /api/jobs/me/j1/logs", "GET /api/jobs/me/j1", "POST /api/jobs/me"


def order(**change: Any) -> Order:
    usual: dict[str, Any] = {
        "run": "r", "number": 1, "image": "python:3.12", "command": ["true"], "flavor": "local", "timeout_s": 60,
        "bucket": "me/composer-run-r", "env": {}, "secrets": {},
    }  # fmt: skip
    return Order(**usual | change)


# ------------------------------------------------------------------------------------------------------------- prices


def test_a_price_is_read_from_the_list_and_told_an_hour() -> None:
    with answering({HARDWARE: [(200, [A100])]}) as (where, _):
        price = jobs.price_of(where, "a100-large")
    assert price.usd_per_hour == pytest.approx(2.50002)
    assert price.machine == "Nvidia A100 - large, 12 vCPU, 142 GB, 1 x A100 80 GB"


@pytest.mark.parametrize("seconds", [1, 59, 60, 61, 3600])
def test_a_minute_that_was_begun_is_paid(seconds: int) -> None:
    assert Price("a", "a", 41667).of(seconds) == -(-seconds // 60) * 41667


@pytest.mark.parametrize("money", [0, 1, 41666, 83334, 125000, 125001, 10**9])
def test_a_job_never_costs_more_than_the_money_that_set_its_time_limit(money: int) -> None:
    price = Price("a", "a", 41667)
    timeout_s = price.timeout_for(money)
    assert timeout_s is not None
    # Told rounded down, and ended within a minute after the limit.
    assert timeout_s == 0 or price.of(timeout_s + 59 + 1) <= price.at_most(timeout_s) <= money


def test_an_unknown_flavor_is_answered_with_those_there_are() -> None:
    with (
        answering({HARDWARE: [(200, [A100])]}) as (where, _),
        pytest.raises(exits.UsageError, match=r"a100-large \(\$2\.50/h\)"),
    ):
        jobs.price_of(where, "h999")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((200, []), id="empty"),
        pytest.param((200, [{"name": "a100-large"}]), id="without prices"),
        pytest.param((200, [A100 | {"unitLabel": "fortnight"}]), id="unit nobody knows"),
        pytest.param((404, {"error": "no such page"}), id="not there"),
        pytest.param((501, {"error": "not offered"}), id="not offered"),
        pytest.param((503, {"error": "busy"}), id="always busy"),
    ],
)
def test_without_a_hardware_list_the_price_must_be_given(answer: tuple[int, Any]) -> None:
    with answering({HARDWARE: [answer]}) as (where, _):
        with pytest.raises(HubError, match="--usd-per-hour"):
            jobs.price_of(where, "a100-large")
        assert jobs.price_of(where, "a100-large", 6.0).of(3600) == 6 * jobs.MICRO


def test_a_busy_list_is_asked_for_again() -> None:
    with answering({HARDWARE: [(503, {"error": "busy"}), (200, [A100])]}) as (where, seen):
        assert jobs.price_of(where, "a100-large").micro_usd == 41667
    assert seen == [HARDWARE, HARDWARE]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("45m", 2700), ("1.5h", 5400), ("2d", 172800)], ids=lambda value: str(value)
)
def test_durations_are_read(text: str, seconds: int) -> None:
    assert jobs.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5m", "6 h", "soon", "1w"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(exits.UsageError, match="time limit"):
        jobs.duration(text)


# -------------------------------------------------------------------------------------------------------------- start


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, HubRefused, "hf auth login"),
        (402, HubRefused, "credit"),
        (403, HubRefused, "--namespace"),
        (412, HubError, "same command again"),
        (501, HubError, "not today"),
    ],
)
def test_a_job_that_is_refused_is_sent_once_and_the_reason_is_told(
    status: int, kind: type[Exception], words: str
) -> None:
    with answering({START: [(status, {"error": "not today"})]}) as (where, seen):
        with pytest.raises(kind, match=words):
            jobs.submit(where, "me", order())
        assert seen == [START]


def test_a_busy_hub_is_asked_whether_it_took_the_job_before_it_is_sent_again() -> None:
    busy = (503, {"error": "busy"})
    with answering({START: [busy, (200, job_answer())], "GET /api/jobs/me": [(200, [])]}) as (where, seen):
        assert jobs.submit(where, "me", order()) == "j1"
    assert seen == [START, "GET /api/jobs/me", START]


def test_where_nobody_can_say_whether_a_job_was_started_it_is_not_sent_again() -> None:
    script = {START: [(503, {"error": "busy"})], "GET /api/jobs/me": [(403, {"error": "no"})]}
    with answering(script) as (where, seen):
        with pytest.raises(jobs.Unsure, match="cannot be said now"):
            jobs.submit(where, "me", order())
        assert seen.count(START) == 1


@pytest.fixture
def losing(tmp_path: Path) -> Iterator[ServerProcess]:
    """A Hub with a bucket that does the first write and loses its answer."""
    options = ["--user", "me:hf_test_me", "--allow-local-jobs"]
    with start_server(tmp_path / "hub", options) as server:
        HfApi(endpoint=server.endpoint, token="hf_test_me").create_bucket("me/composer-run-r", private=True)
    with start_server(tmp_path / "hub", [*options, "--inject", "lose"]) as server:
        yield server


def test_a_job_whose_answer_got_lost_is_found_and_not_started_twice(losing: ServerProcess) -> None:
    api = HfApi(endpoint=losing.endpoint, token="hf_test_me")
    where = HubDestination("local", api, Patience(sleep=lambda seconds: None))
    job_id = jobs.submit(where, "me", order())
    assert [job.id for job in api.list_jobs(namespace="me")] == [job_id]


# ---------------------------------------------------------------------------------------------------------------- log


def test_a_log_that_breaks_is_read_on_without_repeating_a_line() -> None:
    script = {
        LOGS: [(200, log_events("one", "two")), (503, {"error": "busy"}), (200, log_events("one", "two", "three"))],
        JOB: [(200, job_answer())] * 3 + [(200, job_answer("COMPLETED"))],
    }
    lines: list[str] = []
    with answering(script) as (where, seen):
        job = jobs.follow(where, "me", "j1", lines.append, poll_s=0)
    assert lines == ["one", "two", "three"]
    assert seen.count(LOGS) == 3
    assert job is not None
    assert jobs.is_over(job)


def test_a_log_that_cannot_be_read_does_not_let_go_of_the_job() -> None:
    script = {LOGS: [(403, {"error": "no"})], JOB: [(200, job_answer())] * 2 + [(200, job_answer("COMPLETED"))]}
    lines: list[str] = []
    with answering(script) as (where, seen):
        job = jobs.follow(where, "me", "j1", lines.append, poll_s=0)
    assert job is not None
    assert jobs.is_over(job)
    assert len(lines) == 1
    assert seen.count(LOGS) == 1


def test_a_job_that_is_unknown_is_named() -> None:
    with answering({}) as (where, _):
        assert jobs.follow(where, "me", "j1", print, poll_s=0) is None
        assert jobs.inspect(where, "me", "j1") is None
        with pytest.raises(jobs.JobError, match="no job j1"):
            jobs.log_lines(where, "me", "j1", None)
        with pytest.raises(jobs.JobError, match="gone already"):
            jobs.cancel(where, "me", "j1")


# ---------------------------------------------------------------------------------------------------------------- end


@pytest.mark.parametrize(
    ("stage", "message", "own_code", "running", "how", "code"),
    [
        pytest.param("COMPLETED", "", None, 30, DONE, 0, id="completed"),
        pytest.param("ERROR", "exit code 3", None, 30, OUT_OF_TIME, 3, id="stopped by its own budget"),
        pytest.param(
            "ERROR", "Job failed with exit code: 3. Reason: Error", None, 30, OUT_OF_TIME, 3, id="other words"
        ),
        pytest.param("ERROR", "", 3, 30, OUT_OF_TIME, 3, id="only the job itself says so"),
        pytest.param("ERROR", "timeout", None, 100, OUT_OF_TIME, None, id="killed by the time limit"),
        pytest.param("ERROR", "timeout", 143, 100, OUT_OF_TIME, 143, id="ended by the time limit"),
        pytest.param("ERROR", "exit code 137", None, 100, OUT_OF_TIME, 137, id="killed when time was over"),
        pytest.param("ERROR", "exit code 137", None, 30, FAILED, 137, id="killed earlier, as for memory"),
        pytest.param("ERROR", "exit code 1", None, 100, FAILED, 1, id="failed when time was nearly over"),
        pytest.param("ERROR", "exit code 1", 4, 30, FAILED, 4, id="refused"),
        pytest.param("ERROR", "no such image", None, None, FAILED, None, id="never ran"),
        pytest.param("CANCELED", "", None, 30, CANCELED, None, id="canceled"),
    ],
)
def test_how_a_job_ended_is_told_from_stage_words_code_and_time(
    stage: str, message: str, own_code: int | None, running: int | None, how: str, code: int | None
) -> None:
    info = JobInfo(**job_answer(stage, message, durations={"runningSecs": running}))
    end = jobs.ended(info, 100, own_code)
    assert (end.how, end.exit_code, end.seconds) == (how, code, 0 if running is None else running + 1)


def test_a_job_that_nobody_knows_any_more_counts_with_its_whole_time_limit() -> None:
    assert jobs.ended(None, 3600).seconds == 3600


def test_where_no_durations_are_told_the_dates_are_used() -> None:
    dates = {"startedAt": "2026-01-01T00:00:00.000Z", "finishedAt": "2026-01-01T00:01:30.500Z"}
    assert jobs.seconds_of(JobInfo(**job_answer("ERROR", **dates)), 3600) == 91
    assert jobs.seconds_of(JobInfo(**job_answer("RUNNING", startedAt=dates["startedAt"])), 3600) == 3600
    assert jobs.seconds_of(JobInfo(**job_answer("ERROR")), 3600) == 0
