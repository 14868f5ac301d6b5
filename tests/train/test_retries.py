"""A writer whose hints the model follows passes the retries; one that does no better than its control is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.environments import EnvironmentFailed  # noqa: E402
from composer_hub.environments.desk import UNKNOWN_TOOL, Desk  # noqa: E402
from composer_hub.environments.guard import guarded  # noqa: E402
from composer_hub.records import ToolCall  # noqa: E402
from composer_hub.train import retries  # noqa: E402
from composer_hub.train.failure import TrainerError  # noqa: E402
from composer_hub.train.retries import Retry, SiteRetries, reach_states  # noqa: E402
from composer_hub.train.run.main import run  # noqa: E402
from composer_hub.train.run.options import parse_options  # noqa: E402
from composer_hub.train.run.own_pairs import FILE, learn_from_retries, make_pairs, read_pairs  # noqa: E402
from composer_hub.train.run.preflight import preflight  # noqa: E402
from composer_hub.train.run.record import RunRecord  # noqa: E402
from composer_hub.train.run.trainer import RunTrainer  # noqa: E402
from tests.train.runs import ANSWER, CALL, Scripted  # noqa: E402
from tests.train.tiny_run import TINY  # noqa: E402

WRITER = ("quoted", "tool_not_found")


class ScriptedRun(Scripted, RunTrainer):
    """Calls a tool that does not exist, and gives up after it."""

    def _written(self, text: str, place: int) -> str:
        last = text.rsplit("<|im_start|>user\n", 1)[1]
        a, b = map(int, re.findall(r"user\n(\d+)\+(\d+)", text)[0])
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


# ------------------------------------------------------------------------------------------------------ own pairs


def with_own_pairs(make_trainer: Any, kind: Any, **more: Any) -> Any:
    return make_trainer(kind, **more, beta_replay=0.2, replay_nll_weight=1.0, pairs=None, own_pairs=16, max_steps=2)


def test_what_worked_after_a_hint_is_learned_without_it(make_trainer: Any) -> None:
    trainer = with_own_pairs(make_trainer, Follower)
    pairs, counts = make_pairs(trainer, 16)
    assert counts == {"rollouts": 16, "failed_turns": 16, "pairs": 16, "too_long": 0}
    for pair in pairs:
        prompt, chosen, rejected = map(trainer._tokenizer.decode, (pair.prompt_ids, pair.chosen_ids, pair.rejected_ids))
        assert prompt.endswith("<|im_start|>assistant\n")
        assert "`add`" not in prompt
        assert '"name": "add"' in chosen
        assert chosen.endswith("<|im_end|>")
        assert '"name": "plus"' in rejected
        assert pair.ref_chosen < 0 > pair.ref_rejected
    assert trainer.max_tool_calling_iterations == 3
    assert not trainer._metrics["train"]


def test_a_retry_that_fails_again_makes_no_pair(make_trainer: Any) -> None:
    pairs, counts = make_pairs(with_own_pairs(make_trainer, Stubborn), 16)
    assert counts == {"rollouts": 16, "failed_turns": 8, "pairs": 4, "too_long": 0}
    assert len(pairs) == 4


def test_pairs_that_are_too_long_are_counted_and_left_out(make_trainer: Any) -> None:
    pairs, counts = make_pairs(with_own_pairs(make_trainer, Follower), 20, max_tokens=16)
    assert pairs == []
    assert counts == {"rollouts": 20, "failed_turns": 20, "pairs": 0, "too_long": 20}


class Hopeless(ScriptedRun):
    """Never calls the right tool."""

    def _knows(self, last: str, place: int) -> bool:
        return False


def test_a_run_without_a_retry_that_worked_is_grpo_and_says_so(make_trainer: Any, tmp_path: Path, capsys: Any) -> None:
    trainer = with_own_pairs(make_trainer, Hopeless)
    record = RunRecord(tmp_path / "composer_run.json", {})
    learn_from_retries(trainer, record, tmp_path)
    assert "none of them worked" in capsys.readouterr().out
    assert not trainer.terms
    trainer.train()


def test_a_resumed_run_learns_from_the_pairs_of_its_first_launch(make_trainer: Any, tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "composer_run.json", {})
    first = with_own_pairs(make_trainer, Follower)
    learn_from_retries(first, record, tmp_path)
    later = with_own_pairs(make_trainer, Hopeless)
    learn_from_retries(later, record, tmp_path, is_resumed=True)
    ours, theirs = (next(iter(trainer.terms)).loader.rows for trainer in (first, later))
    assert ours == theirs == read_pairs((tmp_path / FILE).read_bytes())
    later.train()
    assert later.state.log_history[0]["channel/replay/loss"] > 0


def test_the_pairs_of_another_run_are_not_taken(make_trainer: Any, tmp_path: Path) -> None:
    learn_from_retries(with_own_pairs(make_trainer, Follower), RunRecord(tmp_path / "one.json", {}), tmp_path)
    other, record = with_own_pairs(make_trainer, Hopeless), RunRecord(tmp_path / "other.json", {})
    with pytest.raises(TrainerError, match=r"own_pairs\.jsonl is not the file that this run has made"):
        learn_from_retries(other, record, tmp_path, is_resumed=True)
    learn_from_retries(other, record, tmp_path)
    assert record.values["own_pairs"]["pairs"] == 0
    assert not other.terms


class Renewed(Desk):
    """Shows another task at each reset."""

    num_resets = 0

    def reset(self, **row: Any) -> str:
        super().reset(**row)
        Renewed.num_resets += 1
        return f"Episode {self.num_resets}"


def test_a_reset_that_shows_another_task_reaches_no_state(make_trainer: Any) -> None:
    pairs, counts = make_pairs(with_own_pairs(make_trainer, Follower, environment=Renewed), 8)
    assert (counts["failed_turns"], len(pairs)) == (8, 0)


class Broken(Desk):
    """Never begins an episode."""

    def reset(self, **row: Any) -> None:
        raise OSError("no room")


def test_an_environment_that_breaks_ends_the_run_before_its_pairs(make_trainer: Any) -> None:
    broken = guarded(Broken, "desk", timeout_s=None)
    with pytest.raises(EnvironmentFailed, match="episodes of this batch were lost"):
        make_pairs(with_own_pairs(make_trainer, Follower, environment=broken), 8)


def test_a_whole_run_shows_its_own_pairs_on_its_card(world: Any, tmp_path: Path, capsys: Any) -> None:
    words = [word for word in TINY if word not in ("--pairs", "me/pairs@main")]
    words += ["--model_name_or_path", "small-beginner", "--output_dir", str(tmp_path / "run"), "--to", str(tmp_path)]
    words += "--own_pairs 16 --alpha_sdpo 0 --max_steps 1 --max_completion_length 96".split()
    final = run(parse_options(words))
    counts = json.loads((tmp_path / "run" / "composer_run.json").read_text())["own_pairs"]
    assert counts["rollouts"] == 16
    assert counts["failed_turns"] >= counts["pairs"] == len(read_pairs((tmp_path / "run" / FILE).read_bytes()))
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Own pairs: 16 rollouts"))
    assert line in (final / "README.md").read_text()
