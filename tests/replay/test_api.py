"""The Python API of replay does what the commands do."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from pathlib import Path

import pytest

from composer_hub import exits, replay
from composer_hub.replay import fake
from tests.replay.sample import trace_of


def test_every_public_name_of_the_fake_teachers_is_exported() -> None:
    public = {name for name, value in vars(fake).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert sorted(fake.__all__) == sorted(public)


def test_a_name_is_loaded_from_the_module_that_defines_it_and_no_other_name_is_there() -> None:
    for name, home in replay._HOMES.items():
        value = getattr(replay, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__ == f"composer_hub.replay.{home}"
    with pytest.raises(AttributeError, match=r"composer_hub\.replay.*'nothing'"):
        replay.nothing  # noqa: B018  # looking is the test


def test_a_run_from_python_continues_after_its_cap_and_ends_with_the_votes_of_its_plan(tmp_path: Path) -> None:
    traces, server, notes = [trace_of(6)], fake.TeacherServer(), list[str]()
    options = replay.ReplayOptions(order="all", audit=0, repeat=0)
    with fake.serving(server) as url:
        teachers = replay.find_teachers([f"{url}#small", f"{url}#large"], max_tokens=300)
        plan = replay.plan(traces, teachers, options)
        first = replay.run(traces, teachers, tmp_path, options, max_usd=0.02, on_note=notes.append)
        last = replay.run(traces, teachers, tmp_path, options, max_usd=1, change_cap=True)
    assert isinstance(first.stopped, exits.Stopped)
    assert notes  # the cap does not cover the plan
    assert last.stopped is None
    assert last.num_votes == plan.num_expected == 12
    assert last.budget.settled == server.billed
    rows, budget = replay.status(tmp_path)
    assert ([row["settled"] for row in rows], budget) == ([6, 6], last.budget)


def test_a_run_works_under_a_running_event_loop_as_in_a_notebook(tmp_path: Path) -> None:
    async def cell() -> replay.ReplaySummary:
        return replay.run([trace_of(3)], teachers, tmp_path, options, max_usd=1)

    options = replay.ReplayOptions(order="all", audit=0, repeat=0)
    with fake.serving(fake.TeacherServer()) as url:
        teachers = replay.find_teachers([f"{url}#small"], max_tokens=300)
        result = asyncio.run(cell())
    assert (result.stopped, result.num_votes) == (None, 3)


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(exits.UsageError, match="cascade"):
        dataclasses.replace(replay.ReplayOptions(), order="random")
