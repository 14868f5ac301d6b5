"""Prices, ends and refusals of jobs, as the Hub and less friendly servers report them."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_hub import JobInfo

from composer_hub import exits
from composer_hub.hub import HubError, HubRefused
from composer_hub.jobs import Launcher, RunSpec, duration
from composer_hub.jobs.launching import follow, submit
from composer_hub.jobs.plan import find_price
from composer_hub.jobs.runs import CANCELED, DONE, FAILED, OUT_OF_TIME, billed_seconds, end_of
from composer_hub.money import MachinePrice
from tests.jobs.answers import answering, job_answer

A100 = {
    "name": "a100-large", "prettyName": "Nvidia A100 - large", "cpu": "12 vCPU", "ram": "142 GB",
    "accelerator": {"type": "gpu", "model": "A100", "quantity": "1", "vram": "80 GB", "manufacturer": "Nvidia"},
    "unitCostMicroUSD": 41667, "unitCostUSD": 0.041667, "unitLabel": "minute",
}  # fmt: skip
HARDWARE, JOBS = "GET /api/jobs/hardware", "GET /api/jobs/me"
LOGS, JOB, START = "GET /api/jobs/me/j1/logs", "GET /api/jobs/me/j1", "POST /api/jobs/me"
SPEC = RunSpec("r", "me", [["me/r", "model"]], ["true"], "local", cap=0, timeout_s=60, image="python:3.12")
BUSY = (503, {"error": "busy"})


# ------------------------------------------------------------------------------------------------------------- prices


def test_the_price_comes_from_the_hardware_list_which_is_asked_again_if_busy() -> None:
    with answering({HARDWARE: [BUSY, (200, [A100])]}) as (where, requests):
        assert find_price(where, "a100-large") == MachinePrice(41_667_000, 60)
        assert requests == [HARDWARE, HARDWARE]
        with pytest.raises(exits.UsageError, match=r"a100-large \(\$2\.50/h\)"):
            find_price(where, "h999")


@pytest.mark.parametrize("amount", [0, 1, 41_666_999, 83_334_000, 125_000_000, 125_001_000, 10**12])
def test_a_job_never_costs_more_than_the_amount_that_set_its_time_limit(amount: int) -> None:
    price = MachinePrice(41_667_000, 60)
    timeout_s = price.timeout_for(amount)
    assert timeout_s is not None
    # Billed rounded down, and ended up to a minute after the limit.
    assert timeout_s == 0 or price.cost(timeout_s + 59 + 1) <= price.worst_case(timeout_s) <= amount


@pytest.mark.parametrize("answer", [
    pytest.param((200, [{"name": "a100-large"}]), id="without prices"),
    pytest.param((200, [A100 | {"unitLabel": "fortnight"}]), id="unknown unit"),
    pytest.param((501, {"error": "not offered"}), id="not offered"),
    pytest.param(BUSY, id="always busy"),
])  # fmt: skip
def test_without_a_hardware_list_the_price_must_be_given(answer: tuple[int, Any]) -> None:
    with answering({HARDWARE: [answer]}) as (where, _):
        with pytest.raises(HubError, match="--usd-per-hour"):
            find_price(where, "a100-large")
        assert find_price(where, "a100-large", 6.0).usd_per_hour == 6.0


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("45m", 2700), ("1.5h", 5400), ("2d", 172800)])
def test_durations_are_read(text: str, seconds: int) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5m", "6 h", "soon", "1w", "²", "5²s"])
def test_other_texts_are_refused_as_durations(text: str) -> None:
    with pytest.raises(exits.UsageError, match="time limit"):
        duration(text)


# ----------------------------------------------------------------------------------------------------------- one job


@pytest.mark.parametrize(("status", "kind", "words"), [
    (401, HubRefused, "hf auth login"),
    (402, HubRefused, "credit"),
    (403, HubRefused, "Use a token"),
    (412, HubError, "same command again"),
    (501, HubError, "not today"),
])  # fmt: skip
def test_a_refused_job_is_sent_once_and_its_reason_is_shown(status: int, kind: type[Exception], words: str) -> None:
    with answering({START: [(status, {"error": "not today"})], JOBS: [(200, [])]}) as (where, requests):
        with pytest.raises(kind, match=words):
            submit(Launcher(where, "me"), SPEC, 1, 60, {})
        assert requests.count(START) == 1


def test_a_job_is_sent_again_only_after_the_hub_does_not_list_it() -> None:
    sent = job_answer(labels={"composer-run": "r", "composer-job": "1"})
    with answering({START: [BUSY, (200, sent)], JOBS: [(200, [])]}) as (where, requests):
        assert submit(Launcher(where, "me"), SPEC, 1, 60, {}) == "j1"
        assert requests == [JOBS, START, JOBS, START]
    with answering({START: [BUSY], JOBS: [(200, []), (200, [sent])]}) as (where, requests):
        assert submit(Launcher(where, "me"), SPEC, 1, 60, {}) == "j1"
        assert requests == [JOBS, START, JOBS]
    with answering({START: [BUSY], JOBS: [(200, []), (403, {"error": "no"})]}) as (where, requests):
        with pytest.raises(HubRefused):
            submit(Launcher(where, "me"), SPEC, 1, 60, {})
        assert requests.count(START) == 1


def test_a_log_that_cannot_be_read_does_not_end_the_wait_for_the_job() -> None:
    script = {LOGS: [(403, {"error": "no"})], JOB: [(200, job_answer())] * 2 + [(200, job_answer("COMPLETED"))]}
    lines: list[str] = []
    with answering(script) as (where, requests):
        follow(Launcher(where, "me", show=lines.append, poll_s=0.01), "j1")
        assert requests == [LOGS, JOB, JOB, JOB]
    assert len(lines) == 1


@pytest.mark.parametrize(("stage", "message", "own_code", "running", "how", "code"), [
    pytest.param("COMPLETED", "", None, 30, DONE, 0, id="completed"),
    pytest.param("ERROR", "exit code 3", 3, 30, OUT_OF_TIME, 3, id="stopped by its time budget"),
    pytest.param("ERROR", "exit code 3", None, 30, FAILED, None, id="without a code of its own"),
    pytest.param("ERROR", "timeout", None, 100, OUT_OF_TIME, None, id="killed by the time limit"),
    pytest.param("ERROR", "timeout", 143, 100, OUT_OF_TIME, 143, id="terminated by the time limit"),
    pytest.param("ERROR", "timeout", 0, 100, DONE, 0, id="ended by the time limit after its work was kept"),
    pytest.param("CANCELED", "", 0, 30, DONE, 0, id="canceled after its work was kept"),
    pytest.param("ERROR", "exit code 137", None, 100, OUT_OF_TIME, None, id="killed at the time limit"),
    pytest.param("ERROR", "exit code 137", None, 30, FAILED, None, id="killed earlier, as for memory"),
    pytest.param("ERROR", "exit code 1", 1, 100, FAILED, 1, id="failed close to the time limit"),
    pytest.param("ERROR", "exit code 1", 4, 30, FAILED, 4, id="refused"),
    pytest.param("ERROR", "no such image", None, None, FAILED, None, id="never ran"),
    pytest.param("CANCELED", "", None, 30, CANCELED, None, id="canceled"),
])  # fmt: skip
def test_the_end_of_a_job_follows_from_stage_message_code_and_time(
    stage: str, message: str, own_code: int | None, running: int | None, how: str, code: int | None
) -> None:
    info = JobInfo(**job_answer(stage, message, durations={"runningSecs": running}))
    assert end_of(info, 100, own_code) == (how, code)
    assert billed_seconds(info, 100) == (0 if running is None else running + 1)


def test_without_durations_a_started_job_counts_with_its_time_limit() -> None:
    assert billed_seconds(JobInfo(**job_answer("ERROR", startedAt="2026-01-01T00:00:00.000Z")), 3600) == 3600
    assert billed_seconds(JobInfo(**job_answer("ERROR")), 3600) == 0
