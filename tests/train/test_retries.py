"""A writer whose hints the model follows passes the retries; one that does no better than its control is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.environments.desk import UNKNOWN_TOOL  # noqa: E402
from composer_hub.records import ToolCall  # noqa: E402
from composer_hub.train import retries  # noqa: E402
from composer_hub.train.retries import Retry, SiteRetries, reach_states  # noqa: E402
from composer_hub.train.run.preflight import preflight  # noqa: E402
from composer_hub.train.run.record import RunRecord  # noqa: E402
from composer_hub.train.run.trainer import RunTrainer  # noqa: E402
from tests.train.runs import ANSWER, CALL, Scripted  # noqa: E402

WRITER = ("quoted", "tool_not_found")


class ScriptedRun(Scripted, RunTrainer):
    """Calls a tool that does not exist, and gives up after it."""

    def _written(self, text: str, place: int) -> str:
        last = text.rsplit("<|im_start|>user\n", 1)[1]
        a, b = (int(one) for one in text.split("<|im_start|>user\n")[1].split("<|im_end|>")[0].split("+"))
        if "<tool_response>" in last:
            return ANSWER % (a + b)
        return CALL % ("add" if self._knows(last, place) else "plus", a, b)

    def _knows(self, last: str, place: int) -> bool:
        raise NotImplementedError


class Follower(ScriptedRun):
    """Does what the hint says."""

    def _knows(self, last: str, place: int) -> bool:
        return "`add`" in last


class Stubborn(ScriptedRun):
    """Is right half of the time, whatever it reads."""

    def _knows(self, last: str, place: int) -> bool:
        return place % 2 == 1


def tried(make_trainer: Any, kind: Any, tmp_path: Path, **options: Any) -> tuple[Any, RunRecord]:
    trainer = make_trainer(kind, alpha_sdpo=0.5, per_device_train_batch_size=16)
    record = RunRecord(tmp_path / "composer_run.json", {})
    preflight(trainer, record, **{"num_retries": 2} | options)
    return trainer, record


def test_a_writer_that_the_model_follows_is_kept(make_trainer: Any, tmp_path: Path, capsys: Any) -> None:
    trainer, record = tried(make_trainer, Follower, tmp_path)
    (line,) = record.values["preflight_retries"]
    assert (line["writer"], line["kind"]) == WRITER
    assert line["num_sites"] >= retries.MIN_SITES
    assert (line["hint"], line["control"], line["none"]) == (1.0, 0.0, 0.0)
    assert WRITER not in retries.refused(retries.table([SiteRetries(*WRITER, 1.0, 0.0, 0.0)] * 4))
    assert "no better with them than with controls" not in capsys.readouterr().out
    assert not trainer.retries


def test_a_writer_that_the_model_does_not_follow_is_refused(make_trainer: Any, tmp_path: Path, capsys: Any) -> None:
    trainer, record = tried(make_trainer, Stubborn, tmp_path)
    (line,) = record.values["preflight_retries"]
    assert (line["hint"], line["control"], line["none"]) == (0.5, 0.5, 0.5)
    assert WRITER in trainer.hinter.refused
    assert "no better with them than with controls: quoted at tool_not_found" in capsys.readouterr().out


def test_a_later_launch_takes_the_refusal_from_the_record(make_trainer: Any, tmp_path: Path) -> None:
    _, record = tried(make_trainer, Stubborn, tmp_path)
    later = make_trainer(Follower, alpha_sdpo=0.5)
    preflight(later, record, num_retries=2)
    assert WRITER in later.hinter.refused


def test_retries_can_be_skipped_and_change_nothing_of_the_run(make_trainer: Any, tmp_path: Path) -> None:
    trainer, record = tried(make_trainer, Stubborn, tmp_path, num_retries=0)
    assert record.values["preflight_retries"] == []
    state = torch.random.get_rng_state()
    environments = trainer.environments
    preflight(trainer, RunRecord(tmp_path / "other.json", {}), num_retries=2)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert trainer.environments is environments
    assert not trainer._metrics["train"]
    assert not trainer._metrics["eval"]


@pytest.mark.parametrize(
    ("shares", "loses"),
    [
        ([(1.0, 0.0)] * 4, False),
        ([(0.5, 0.5)] * 4, True),
        ([(0.0, 0.5)] * 4, True),
        ([(0.0, 0.0)] * 8, False),  # nothing succeeds, so nothing is decided
        ([(1.0, 1.0)] * 8, False),
        ([(0.5, 0.5)] * 3, False),  # too few
        ([(0.5, 0.25), (0.25, 0.5), (0.75, 0.5), (0.25, 0.25)], True),  # a gain below its error
        ([(0.75, 0.25), (0.5, 0.5), (0.75, 0.5), (1.0, 0.25)], False),
    ],
)
def test_a_writer_must_beat_its_control_by_more_than_the_error(shares: list[tuple[float, float]], loses: bool) -> None:
    (line,) = retries.table(SiteRetries("w", "k", hint, control, 0.0) for hint, control in shares)
    assert line.loses is loses
    low, high = line.interval
    assert low <= line.gain <= high


def test_a_state_counts_as_reached_if_every_call_gives_the_recorded_result() -> None:
    made: list[int] = []

    def add(a: int) -> str:
        made.append(a)
        return str(sum(made))

    trainer = SimpleNamespace(_sync_tool_dicts=[{"add": add}] * 3, _async_tool_dicts=[{}] * 3)
    unknown = (ToolCall("plus", {"a": 1}), UNKNOWN_TOOL)
    calls = [
        Retry([(ToolCall("add", {"a": 2}), "2"), unknown], []),
        Retry([(ToolCall("add", {"a": 5}), "5")], []),  # the environment remembers the first
        Retry([], []),
    ]
    assert reach_states(trainer, calls) == [True, False, True]
