"""Runs that end before their last step, and the same command with `--resume`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub import exits  # noqa: E402
from composer_hub.hints.writers import SiteContext  # noqa: E402
from composer_hub.records import Hint  # noqa: E402
from composer_hub.train.checkpoints import COMPLETE, SaveError, last_complete, step_of, torn  # noqa: E402
from composer_hub.train.failure import TrainerError  # noqa: E402
from composer_hub.train.finite import FiniteGuard, NotFinite  # noqa: E402
from composer_hub.train.run.main import main, run  # noqa: E402
from composer_hub.train.run.options import parse_options  # noqa: E402
from composer_hub.train.run.preflight import preflight, unfit_writers  # noqa: E402
from composer_hub.train.run.record import RunRecord, held  # noqa: E402
from composer_hub.train.uplift import WriterUplift  # noqa: E402
from tests.train.test_trainer import batch_of  # noqa: E402
from tests.train.tiny_run import arguments, weights  # noqa: E402
from tests.train.unfit import Container  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_plots")


def record_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "composer_run.json").read_text())


def same_weights(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    return all(torch.equal(first[name], second[name]) for name in first)


def half_done(shelf: Path, name: str) -> Path:
    """Return a copy of the whole run as if it had been killed while it wrote its second checkpoint."""
    folder = shelf / "runs" / name
    shutil.copytree(shelf / "runs" / "whole", folder)
    shutil.rmtree(folder / "final")
    (folder / "checkpoint-4" / COMPLETE).unlink()
    return folder


def ringing(at: int, *numbers: int) -> Callable[[], float]:
    """Return a clock whose n-th reading sends signals."""
    readings = iter(range(1, 10_000))

    def clock() -> float:
        if next(readings) == at:
            for number in numbers or (signal.SIGTERM,):
                os.kill(os.getpid(), number)
        return 0.0

    return clock


CONTAINER = "--environment tests.train.unfit:Container --tasks composer_hub.environments.desk:tasks".split()


@pytest.mark.slow
def test_a_run_that_preflight_and_sigterm_have_interrupted_ends_with_the_same_weights(
    shelf: Path, world: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shelf / "runs" / "taken_away"
    words = arguments(world, shelf, folder.name, *CONTAINER, "--preflight", "true", "--max_minutes", "9")
    words += ["--preflight_retries", "1", "--repo", "me/taken_away"]
    assert run(parse_options([*words, "--preflight_only", "true"])) == folder
    assert Container.num_running == 0
    table = capsys.readouterr().out
    assert "margin" in table
    assert not list(folder.glob("checkpoint-*")) + list(folder.glob("rollouts/*"))

    with pytest.raises(exits.Stopped, match=r"SIGTERM ended the run at step 1 of 4"):
        run(parse_options(words), clock=ringing(4))
    assert last_complete(folder) == folder / "checkpoint-1"
    (launch,) = record_of(folder)["launches"]
    assert (launch["to_step"], launch["exit_code"]) == (1, exits.STOPPED)
    measured = record_of(folder)["preflight"]
    final = run(parse_options([*words, "--resume", "true"]))
    assert same_weights(final, shelf / "runs" / "whole" / "final")
    assert record_of(folder)["preflight"] == measured
    assert "Before training" in (final / "README.md").read_text()
    assert [launch["exit_code"] for launch in record_of(folder)["launches"]] == [exits.STOPPED, exits.DONE]


@pytest.mark.parametrize(
    ("option", "message", "step"),
    [
        ("--max_minutes 0", "0 minutes have passed, which ended the run at step 1 of 4", 1),
        ("--rewards tests.train.unfit:too_few", "1 rewards for 16 completions", 0),
    ],
    ids=["time limit", "failing reward"],
)
def test_a_run_that_ends_early_releases_its_environments(
    shelf: Path, world: Any, option: str, message: str, step: int
) -> None:
    folder = shelf / "runs" / f"released_{step}"
    with pytest.raises(exits.ComposerError, match=message) as caught:
        run(parse_options(arguments(world, shelf, folder.name, *CONTAINER, *option.split())))
    # The error holds the frames of the run, so nothing was released by garbage collection.
    assert caught.value.__traceback__
    assert Container.num_running == 0
    assert step_of(last_complete(folder)) == step


def test_a_second_run_in_the_same_folder_is_refused(shelf: Path, world: Any) -> None:
    options = parse_options(arguments(world, shelf, "busy"))
    with held(options.output, is_main=True), pytest.raises(TrainerError, match="Another run trains in"):
        run(options)
    with held(options.output, is_main=True):
        pass  # it was given back


def test_an_output_folder_that_cannot_be_made_is_one_sentence(shelf: Path, world: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = parse_options(arguments(world, shelf, "nowhere", "--output_dir", str(tmp_path / "file" / "run")))
    with pytest.raises(TrainerError, match="cannot be written"):
        run(options)


@pytest.mark.parametrize(
    ("number", "kind", "name"),
    [(signal.SIGTERM, exits.Stopped, "SIGTERM"), (signal.SIGINT, exits.Interrupted, "Ctrl-C")],
    ids=["SIGTERM", "Ctrl-C"],
)
def test_a_signal_before_training_ends_the_run_at_once(
    shelf: Path, world: Any, number: int, kind: Any, name: str
) -> None:
    folder = shelf / "runs" / f"too_early_{number}"
    with pytest.raises(kind, match=f"{name} arrived outside training"):
        run(parse_options(arguments(world, shelf, folder.name, "--max_minutes", "9")), clock=ringing(2, number))
    assert not list(folder.glob("checkpoint-*"))


@pytest.mark.slow
def test_ctrl_c_in_training_saves_the_step_and_a_second_one_does_not_wait_for_it(shelf: Path, world: Any) -> None:
    folder = shelf / "runs" / "ctrl_c"
    words = arguments(world, shelf, folder.name, "--max_minutes", "9", "--repo", "me/ctrl-c")
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(exits.Interrupted, match="Ctrl-C ended the run at step 1 of 4; the checkpoint is complete"):
        run(parse_options(words), clock=ringing(4, signal.SIGINT))
    assert last_complete(folder) == folder / "checkpoint-1"
    assert record_of(folder)["launches"][-1]["exit_code"] == exits.INTERRUPTED
    with pytest.raises(KeyboardInterrupt):
        run(parse_options([*words, "--resume", "true"]), clock=ringing(4, signal.SIGINT, signal.SIGINT))
    assert last_complete(folder) == folder / "checkpoint-1"
    assert signal.getsignal(signal.SIGINT) is handler
    assert same_weights(run(parse_options([*words, "--resume", "true"])), shelf / "runs" / "whole" / "final")
    codes = [launch["exit_code"] for launch in record_of(folder)["launches"]]
    assert codes == [exits.INTERRUPTED, exits.INTERRUPTED, exits.DONE]


def test_a_run_that_a_watch_dog_ended_is_unfinished_and_can_be_resumed(
    shelf: Path, world: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shelf / "runs" / "barked"
    band = {"grad_norm": {"low": 2e3, "high": 3e3, "relative": "", "action": "stop"}}
    words = arguments(world, shelf, folder.name, "--bands", json.dumps(band), "--repo", "me/barked")
    with pytest.warns(UserWarning, match="the run stops"):
        assert main(words) == exits.REFUSED
    message = capsys.readouterr().err
    assert "grad_norm is" in message
    assert "checkpoint-2" in message  # the best one
    assert last_complete(folder) == folder / "checkpoint-3"
    assert (folder / "checkpoint-2" / COMPLETE).is_file()
    assert not (folder / "final").exists()
    assert record_of(folder)["launches"][-1]["exit_code"] == exits.REFUSED

    final = run(parse_options([*words, "--bands", "false", "--resume", "true"]))
    assert same_weights(final, shelf / "runs" / "whole" / "final")
    card = (final / "README.md").read_text()
    assert "best checkpoint was `checkpoint-2`" in card
    assert "a watchdog barked at step 3: grad_norm" in card
    assert record_of(folder)["launches"][-1]["changed"]["bands"] == [json.dumps(band), "false"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--learning_rate 1e20", "Step 1 was not saved or published: the weights are not finite"),
        ("--learning_rate 1e3", "Step 1 was not saved or published: the norm of the weights has grown"),
    ],
)
def test_a_run_whose_numbers_blow_up_is_refused_before_it_saves_or_publishes(
    shelf: Path, world: Any, capsys: pytest.CaptureFixture[str], more: str, message: str
) -> None:
    folder = shelf / "runs" / f"blown_{len(message)}"
    words = arguments(world, shelf, folder.name, "--save_steps", "1", "--repo", "me/blown", *more.split())
    assert main(words) == exits.REFUSED
    assert message in capsys.readouterr().err
    assert last_complete(folder) is None
    assert not (folder / "final").exists()
    assert not list((shelf / "hub").glob("**/blown/**/*.safetensors"))
    assert record_of(folder)["launches"][-1]["exit_code"] == exits.REFUSED


@pytest.mark.parametrize(("loss", "norm"), [(float("nan"), 1.0), (float("inf"), None), (1.0, float("nan"))])
def test_a_loss_or_gradient_that_is_not_finite_ends_the_run_unless_a_scaler_skips_the_step(
    loss: float, norm: float | None
) -> None:
    for is_scaled in (False, True):
        guard = FiniteGuard(torch.nn.Linear(1, 1), is_scaled=is_scaled)
        for micro_batch in (1.0, loss, 1.0):
            guard.note_loss(torch.tensor(micro_batch))
        with (
            contextlib.nullcontext() if is_scaled else pytest.raises(NotFinite, match=r"^Step 7 was not saved .*: the ")
        ):
            guard.check_gradient(norm, 7, 1e-3)
        guard.check_gradient(1.0, 8, 1e-3)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--learning_rate 2e-3", "learning_rate was 0.001, now 0.002"),
        ("--alpha_sdpo 0", "alpha_sdpo was 0.5, now its default"),
        ("--pairs you/pairs@main", "pairs was me/pairs@"),
        ("--eval_tasks composer_hub.environments.desk:tasks", "eval_tasks was its default"),
        ("--num_tasks 9", "num_tasks was 8, now 9"),
        ("--teacher live --beta_replay 0.2", "beta_replay was 0.5, now 0.2; teacher was its default, now live"),
    ],
)
def test_a_run_is_not_resumed_with_other_mathematics_or_data(shelf: Path, world: Any, more: str, message: str) -> None:
    with pytest.raises(TrainerError, match=message) as caught:
        run(parse_options(arguments(world, shelf, "whole", "--resume", "true", *more.split())))
    assert "another output_dir" in str(caught.value)


def test_length_and_logging_may_change_and_are_recorded(shelf: Path, world: Any) -> None:
    folder = shelf / "runs" / "longer"
    shutil.copytree(shelf / "runs" / "whole", folder)
    pinned = record_of(folder)["pins"]["pairs"]
    more = ["--max_steps", "5", "--logging_steps", "2", "--pairs", pinned, "--repo", "me/longer"]
    run(parse_options(arguments(world, shelf, folder.name, "--resume", "true", *more)))
    launch = record_of(folder)["launches"][-1]
    assert launch["changed"] == {"logging_steps": [1, 2], "max_steps": [4, 5]}
    assert (launch["from_step"], launch["to_step"]) == (4, 5)


@contextmanager
def files_up_to(num_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_reported_in_one_sentence_and_the_last_checkpoint_survives(shelf: Path, world: Any) -> None:
    folder = half_done(shelf, "full")
    words = arguments(world, shelf, folder.name, "--resume", "true")
    for num_bytes in (600_000, 2_000_000):  # at the weights, and at the optimizer
        with files_up_to(num_bytes), pytest.raises(SaveError, match=r"The disk is full .* checkpoint-4 is not whole"):
            run(parse_options(words))
        assert torn(folder) == [folder / "checkpoint-4"]
        assert last_complete(folder) == folder / "checkpoint-2"
        assert record_of(folder)["launches"][-1]["exit_code"] == exits.FAILURE
    assert same_weights(run(parse_options(words)), shelf / "runs" / "whole" / "final")
    assert not torn(folder)


def test_writers_that_seldom_help_are_refused_on_every_later_launch(make_trainer: Any, tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "composer_run.json", {})
    for launch in ("first", "resumed"):
        trainer = make_trainer(alpha_sdpo=0.5)
        trainer.hinter = dataclasses.replace(trainer.hinter, writers=(misleading,))
        if launch == "first":
            assert batch_of(trainer)["num_hint_items"] > 0
        preflight(trainer, record, num_batches=2)
        assert {writer for writer, _ in trainer.hinter.refused} == {"misleading"}
        assert batch_of(trainer)["num_hint_items"] == 0


def misleading(context: SiteContext) -> Hint:
    return Hint("Reminder: `plus` is right.", "misleading", "always", 1, context.site.kind, context.site.call_id)


def test_control_hints_are_never_refused() -> None:
    lines = [WriterUplift("control", "tool_not_found", 9, 5.0, -5.0, 0.0)]
    assert unfit_writers(lines, [], are_controls=True) == frozenset()
    assert unfit_writers(lines, [], are_controls=False) == {("control", "tool_not_found")}


@pytest.mark.slow
def test_a_run_that_was_killed_ends_with_the_same_weights(shelf: Path, world: Any) -> None:
    folder = shelf / "runs" / "shot"
    command = [sys.executable, "-m", "composer_hub.train", *arguments(world, shelf, folder.name, "--save_steps", "1")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # Once the first checkpoint's folder exists, it is being written or the second step has begun.
    while process.poll() is None and not (folder / "checkpoint-1").is_dir():
        time.sleep(0.002)
    process.kill()
    assert process.wait(600) == -signal.SIGKILL
    assert not (folder / "final").exists()
    assert record_of(folder)["launches"][-1]["exit_code"] is None
    final = run(parse_options(arguments(world, shelf, folder.name, "--resume", "true")))
    assert same_weights(final, shelf / "runs" / "whole" / "final")


def test_a_resumed_adapter_has_the_same_weights_and_names_its_base(shelf: Path, world: Any) -> None:
    from safetensors.torch import load_file

    lora = ["--use_peft", "true", "--lora_r", "4", "--lora_target_modules", "q_proj", "v_proj", "--beta_replay", "0"]
    words = arguments(world, shelf, "adapter", *lora, "--max_steps", "2", "--repo", "me/adapter")
    whole = run(parse_options([*words, "--output_dir", str(shelf / "runs" / "adapter_whole")]))
    with pytest.raises(exits.Stopped):
        run(parse_options([*words, "--max_minutes", "0"]))
    final = run(parse_options([*words, "--resume", "true"]))
    expected, got = (load_file(folder / "adapter_model.safetensors") for folder in (whole, final))
    assert all(torch.equal(expected[name], got[name]) for name in expected)
    config = json.loads((final / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == Path(world[0].name_or_path).name
    card = (final / "README.md").read_text()
    assert "library_name: peft" in card
    assert str(shelf) not in card + (final / "adapter_config.json").read_text()


def test_hints_that_do_not_fit_are_reported_before_and_after_training(
    shelf: Path, world: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--preflight", "true", "--max_teacher_tokens", "20", "--max_steps", "1", "--repo", "me/narrow"]
    with pytest.warns(UserWarning, match=r"No hint was placed: .* longer than max_teacher_tokens 20\."):
        final = run(parse_options(arguments(world, shelf, "narrow", *more)))
    assert "Try a larger --max_teacher_tokens" in capsys.readouterr().out
    assert "no hint was placed, though the hint channel was on" in (final / "README.md").read_text()
