"""A run from revisions to a published model, and the options and inputs that are refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")


from composer_hub import exits  # noqa: E402
from composer_hub.hub import (  # noqa: E402
    FolderDestination,
    load,
    load_traces,
)
from composer_hub.records import states  # noqa: E402
from composer_hub.train.checks import known_options  # noqa: E402
from composer_hub.train.failure import TrainerError  # noqa: E402
from composer_hub.train.models import ModelFolderError, load_model, load_tokenizer  # noqa: E402
from composer_hub.train.run.finish import config_file  # noqa: E402
from composer_hub.train.run.main import main, run  # noqa: E402
from composer_hub.train.run.options import keep_metrics_private, parse_options, settings_of  # noqa: E402
from tests.train.tiny_run import arguments  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_plots")

TASKS = "--tasks composer_hub.environments.desk:tasks "
CONFIGS = sorted(Path("configs").glob("*.yaml"))


def test_the_published_model_loads_and_names_its_inputs_but_no_local_folder(shelf: Path, world: Any) -> None:
    from transformers import AutoModelForCausalLM

    folder = shelf / "hub" / "me" / "model"
    AutoModelForCausalLM.from_pretrained(folder)
    card = (folder / "README.md").read_text()
    source = load(FolderDestination(shelf / "hub"), "me/pairs@main")
    assert "license: apache-2.0" in card
    assert source.revision in card
    assert str(shelf) not in card
    for name in ("train.yaml", "composer_run.json", "composer_manifest.json"):
        assert str(shelf) not in (folder / name).read_text()
        assert str(Path(world[0].name_or_path).parent) not in (folder / name).read_text()
    record = json.loads((folder / "composer_run.json").read_text())
    assert (folder / ".version").read_text().strip() == f"run-{record['run_id']}"
    assert not list(folder.glob("*.bin"))


def test_the_script_of_a_card_asks_a_task_of_the_run_and_prints_what_the_card_shows(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shelf / "hub" / "me" / "model"
    card = (folder / "README.md").read_text()
    run_id = json.loads((folder / "composer_run.json").read_text())["run_id"]
    script = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert script is not None
    assert re.search(r'"content": "\d\+\d"', script[1])
    exec(script[1].replace(f'"me/model", revision="run-{run_id}"', repr(str(folder))), {})
    answer = capsys.readouterr().out.strip()
    assert f"it printed:\n\n```text\n{answer}\n```" in card
    rollout = r"A rollout of the model after \d steps, sampled\. Its reward: `Desk` [01]\.\n\n```text\nuser: \d\+\d\n"
    assert re.search(rollout, card)


def test_a_finished_run_resumed_only_publishes_what_is_missing(shelf: Path, world: Any) -> None:
    where = FolderDestination(shelf / "hub")
    before = where.resolve("me/model", "main", "model")
    (shelf / "hub" / "me" / "model" / ".version").unlink()  # the run ended between commit and tag
    run(parse_options(arguments(world, shelf, "whole", "--resume", "true")))
    assert where.resolve("me/model", "main", "model") == before
    assert where.tags("me/model", "model")


def test_every_rollout_is_published_as_a_trace_with_its_tokens(shelf: Path) -> None:
    _, stream = load_traces(FolderDestination(shelf / "hub"), "me/rollouts@main")
    traces = list(stream)
    assert len(traces) == 16  # one batch of four steps of four rollouts
    for trace in traces:
        known = trace.provenance
        assert len(known["tool_mask"]) == len(known["completion_ids"])
        assert set(known["rewards"]) == {"Desk"}
        assert [state.step.index for state in states(trace)] == list(range(len(trace.steps)))
    assert any(step.error_sites and step.hints for trace in traces for step in trace.steps)


def test_a_folder_that_holds_a_run_is_not_overwritten(shelf: Path, world: Any) -> None:
    with pytest.raises(TrainerError, match="--resume"):
        run(parse_options(arguments(world, shelf, "whole")))


def test_a_run_from_another_model_refuses_the_published_log_probs(shelf: Path, world: Any) -> None:
    other = shelf / "other"
    shutil.copytree(world[0].name_or_path, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"note": "another model"}))
    words = arguments(world, shelf, "foreign", "--model_name_or_path", str(other))
    assert main(words) == exits.REFUSED


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_preset_has_only_known_options_and_can_be_pinned(path: Path) -> None:
    import yaml

    assert set(yaml.safe_load(path.read_text())) <= set(known_options())
    options = parse_options(["--config", str(path), "--bf16", "false", "--use_cpu", "true"])
    assert options.given["output_dir"] == options.config.output_dir
    assert yaml.safe_load(config_file(settings_of(options.given, {"pairs": "a/b@sha"})))["pairs"] == "a/b@sha"


def test_only_options_that_differ_from_their_defaults_count_as_given() -> None:
    options = parse_options(["--use_cpu", "true", "--learning_rate", "2e-4", "--bf16", "false"])
    assert options.given == {"use_cpu": True, "learning_rate": 2e-4, "bf16": False}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--environment desk --push_to_hub true", "--repo"),
        ("--environment desk --save_total_limit 1", "save_total_limit"),
        ("--alpha_sdpo 0", "reward"),
        ("--environment desk --beta_replay 1", "--pairs"),
        ("--environment desk --own_pairs 8", "beta_replay is 0"),
        ("--environment desk --beta_replay 1 --own_pairs 8 --pairs me/pairs@v1.0.0", "both set"),
        ("--rewards tests.train.unfit:too_few --beta_replay 1 --own_pairs 8", "Name one with --environment"),
        ("--environment nowhere", "no environment"),
        ("--environment nowhere:Class", "cannot be imported"),
        ("--config nowhere.yaml", "no config file"),
        ("--environment desk --colour blue", "no option --colour"),
        ("--environment desk --learning_rates 1", "did you mean learning_rate"),
        ("--environment desk --tasks nowhere.jsonl", "no file of tasks nowhere.jsonl"),
        ("--environment desk --tasks tests.train.unfit:rows_without_prompts", "Task 0 of"),
        ("--environment desk --tasks tests.train.unfit:nothing", "raised TypeError"),
        ("--environment desk --repo model", "has no owner"),
        ("--environment desk --bands [", "is not JSON"),
        ("--environment desk --push_every 2", "--checkpoints_repo or --rollouts_repo"),
        ("--environment desk --checkpoints_repo me/steps", "--push_every"),
        ("--environment desk --preflight true", "alpha_sdpo is 0"),
        ("--environment desk --enable_jit_checkpoint true", "SIGTERM already saves a checkpoint"),
        ("--environment desk --save_only_model true", "writes checkpoints that cannot be resumed"),
        (TASKS + "--environment tests.train.unfit:NoDocs", "no docstring"),
    ],
)
def test_options_that_cannot_work_are_refused_in_one_sentence(
    words: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, world: Any
) -> None:
    common = f"--use_cpu true --bf16 false --output_dir {tmp_path}/run --to {tmp_path} --report_to none --max_steps 1"
    common += " --num_generations 4 --per_device_train_batch_size 4 --max_completion_length 8"
    code = main([*common.split(), "--model_name_or_path", world[0].name_or_path, *words.split()])
    assert code in (exits.FAILURE, exits.USAGE)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "is not YAML"),
        ("- 1", "holds no options"),
        ("on: true", "no option True"),
        ("learning_rat: 1", "did you mean learning_rate"),
    ],
)
def test_an_unusable_config_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(exits.UsageError, match=message) as caught:
        parse_options(["--config", str(tmp_path / "run.yaml")])
    assert "run.yaml" in str(caught.value)


def test_an_unusable_model_folder_is_refused(world: Any, tmp_path: Path) -> None:
    cut, mute = (tmp_path / name for name in ("cut", "mute"))
    for folder in (cut, mute):
        shutil.copytree(world[0].name_or_path, folder)
    with (cut / "model.safetensors").open("rb+") as file:
        file.truncate(5_000)
    for path in mute.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ModelFolderError, match="no causal language model"):
        load_model(cut)
    with pytest.raises(ModelFolderError, match="no tokenizer"):
        load_tokenizer(mute)


def test_a_dataset_of_other_rows_is_not_used_as_pairs(shelf: Path, world: Any) -> None:
    words = arguments(world, shelf, "no_pairs", "--pairs", "me/rollouts@main")
    with pytest.raises(TrainerError, match=r"me/rollouts holds no preference pairs: .*pairs build"):
        run(parse_options(words))


@pytest.mark.parametrize(("more", "private"), [([], True), (["--public", "true"], None)], ids=["private", "public"])
def test_metrics_stay_private_unless_the_run_is_public(more: list[str], private: bool | None) -> None:
    options = parse_options(["--use_cpu", "true", "--bf16", "false", "--environment", "desk", *more])
    keep_metrics_private(options.config, public=options.publishing.public)
    assert options.config.trackio_static_space_id is False
    assert options.config.hub_private_repo is private
