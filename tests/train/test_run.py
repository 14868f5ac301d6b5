"""A run from revisions to a published model; one that ended early goes on as if it had not."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from click.testing import CliRunner  # noqa: E402

from composer_hub import exits  # noqa: E402
from composer_hub.commands.pairs import pairs, pairs_table  # noqa: E402
from composer_hub.hub.cards import Card  # noqa: E402
from composer_hub.hub.destinations import FolderDestination  # noqa: E402
from composer_hub.hub.load import load_traces, open_version  # noqa: E402
from composer_hub.hub.publish import publish  # noqa: E402
from composer_hub.records import states  # noqa: E402
from composer_hub.train.checkpoints import last_complete  # noqa: E402
from composer_hub.train.run import main, run  # noqa: E402
from composer_hub.train.run_options import (  # noqa: E402
    RunError,
    option_names,
    parse,
    pinned,
)
from tests.train.test_tokens import desk_pair  # noqa: E402

CONFIGS = sorted(Path("configs").glob("*.yaml"))
# Two updates a generation batch and a checkpoint between them: the hardest place to go on from.
TINY = shlex.split(
    "--environment desk --num_tasks 8 --max_steps 4 --per_device_train_batch_size 4 --num_generations 4 "
    "--steps_per_generation 4 --max_completion_length 40 --max_tool_calling_iterations 1 --learning_rate 1e-3 "
    "--alpha_sdpo 0.5 --teacher ema --teacher_ema_rate 0.1 --beta_replay 0.5 --pairs me/pairs@main --pairs_split all "
    "--use_cpu true --bf16 false --gradient_checkpointing false --logging_steps 1 --save_steps 2 --report_to none "
    "--disable_tqdm true --seed 3 --repo me/model --rollouts_repo me/rollouts --license apache-2.0"
)


@pytest.fixture(scope="module")
def shelf(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder destination with pairs, their reference log-probs, and one finished run in `runs/whole`."""
    root = tmp_path_factory.mktemp("shelf")
    where = FolderDestination(root / "hub")
    card = Card("pairs", "pairs", license="mit", holes={"policy": "", "report": ""})
    rows = [desk_pair(a, b) for a in range(3) for b in range(2)]
    publish(where, "me/pairs", [pairs_table(rows, {pair.trace_id: "train" for pair in rows})], card)
    words = ["precompute-ref", "me/pairs@v1.0.0", "--model", world[0].name_or_path, "--to", str(root / "hub")]
    done = CliRunner().invoke(pairs, [*words, "--repo", "me/pairs", "--device", "cpu"], catch_exceptions=False)
    assert done.exit_code == 0
    run(parse(arguments(world, root, "whole")))
    return root


def arguments(world: Any, root: Path, name: str, *more: str) -> list[str]:
    place = ["--model_name_or_path", world[0].name_or_path, "--to", str(root / "hub")]
    return [*TINY, *place, "--output_dir", str(root / "runs" / name), *more]


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_a_run_that_was_killed_ends_with_the_weights_of_one_that_was_not(shelf: Path, world: Any) -> None:
    whole, killed = shelf / "runs" / "whole", shelf / "runs" / "killed"
    shutil.copytree(whole, killed)
    shutil.rmtree(killed / "final")
    (killed / "checkpoint-4" / "COMPLETE.json").unlink()  # was being written when the end came
    assert last_complete(killed) == killed / "checkpoint-2"
    final = run(parse(arguments(world, shelf, "killed", "--resume", "true")))
    expected, got = weights(whole / "final"), weights(final)
    assert all(torch.equal(expected[name], got[name]) for name in expected)


def test_the_published_model_loads_and_says_where_it_comes_from(shelf: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = shelf / "hub" / "me" / "model"
    AutoModelForCausalLM.from_pretrained(folder)
    card = (folder / "README.md").read_text()
    source = open_version(FolderDestination(shelf / "hub"), "me/pairs@main")
    assert "license: apache-2.0" in card
    assert source.revision in card
    assert str(shelf) not in card
    assert str(shelf) not in (folder / "train.yaml").read_text()
    record = json.loads((folder / "composer_run.json").read_text())
    assert (folder / ".version").read_text().strip() == f"run-{record['run_id']}"
    assert not list(folder.glob("*.bin"))


def test_a_finished_run_resumed_only_publishes_what_is_missing(shelf: Path, world: Any) -> None:
    where = FolderDestination(shelf / "hub")
    before = where.resolve("me/model", "main", "model")
    (shelf / "hub" / "me" / "model" / ".version").unlink()  # the run ended between commit and tag
    run(parse(arguments(world, shelf, "whole", "--resume", "true")))
    assert where.resolve("me/model", "main", "model") == before
    assert where.tags("me/model", "model")


def test_every_rollout_comes_back_as_a_trace_with_its_tokens(shelf: Path) -> None:
    _, stream = load_traces(FolderDestination(shelf / "hub"), "me/rollouts@main")
    traces = list(stream)
    assert len(traces) == 16  # one batch of four steps of four rollouts
    for trace in traces:
        known = trace.provenance
        assert len(known["tool_mask"]) == len(known["completion_ids"])
        assert set(known["rewards"]) == {"Desk"}
        assert [state.step.index for state in states(trace)] == list(range(len(trace.steps)))
    assert any(step.error_sites and step.hints for trace in traces for step in trace.steps)


def test_a_time_budget_saves_and_leaves_with_exit_code_three(shelf: Path, world: Any) -> None:
    words = arguments(world, shelf, "short", "--max_minutes", "0")
    assert main(words) == exits.STOPPED
    assert last_complete(shelf / "runs" / "short") == shelf / "runs" / "short" / "checkpoint-1"


def test_a_folder_with_a_run_is_not_trained_over(shelf: Path, world: Any) -> None:
    with pytest.raises(RunError, match="--resume"):
        run(parse(arguments(world, shelf, "whole")))


def test_a_run_from_another_model_refuses_the_published_log_probs(shelf: Path, world: Any) -> None:
    other = shelf / "other"
    shutil.copytree(world[0].name_or_path, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"note": "another model"}))
    words = arguments(world, shelf, "foreign", "--model_name_or_path", str(other))
    assert main(words) == exits.REFUSED


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_preset_is_read_and_knows_only_options_there_are(path: Path) -> None:
    import yaml

    assert set(yaml.safe_load(path.read_text())) <= option_names()
    told = parse(["--config", str(path), "--bf16", "false", "--use_cpu", "true"])
    assert told.given["output_dir"] == told.config.output_dir
    assert yaml.safe_load(pinned(told.given, {"pairs": "a/b@sha"}))["pairs"] == "a/b@sha"


def test_presets_are_there() -> None:
    assert {path.stem for path in CONFIGS} == {"dr_grpo", "dapo", "grpo", "tiny"}


def test_only_what_was_given_counts_as_given() -> None:
    told = parse(["--use_cpu", "true", "--learning_rate", "2e-4", "--bf16", "false"])
    assert told.given == {"use_cpu": True, "learning_rate": 2e-4, "bf16": False}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--environment desk --push_to_hub true", "--repo"),
        ("--environment desk --save_total_limit 1", "save_total_limit"),
        ("--alpha_sdpo 0", "reward"),
        ("--environment desk --beta_replay 1", "--pairs"),
        ("--environment nowhere", "no environment"),
        ("--environment nowhere:Class", "cannot be imported"),
        ("--config nowhere.yaml", "no config file"),
    ],
)
def test_what_cannot_work_is_said_in_one_sentence(
    words: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, world: Any
) -> None:
    common = ["--use_cpu", "true", "--bf16", "false", "--output_dir", str(tmp_path / "run"), "--to", str(tmp_path)]
    code = main([*common, "--model_name_or_path", world[0].name_or_path, *words.split()])
    said = capsys.readouterr().err
    assert code in (exits.FAILURE, exits.USAGE)
    assert says in said
