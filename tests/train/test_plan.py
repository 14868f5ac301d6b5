"""The memory estimate of `train --plan`, and the accelerate config of each preset. Nothing here imports torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from composer_hub import exits
from composer_hub.train import memory
from composer_hub.train.memory import KNOWN, ModelShape, Setup
from composer_hub.train.plan import plan
from composer_hub.train.presets import find_config, folder, options_of, presets, with_launch_file

SIZED = [name for name, path in presets().items() if "model_name_or_path" in yaml.safe_load(path.read_text())]
LAUNCHED = sorted(path.stem for path in (folder() / "launch").glob("*.yaml"))
# docs/results/training_cost.md: GiB that torch counted at the peak of a step, without generation.
MEASURED = {
    ("Qwen/Qwen3-0.6B", "grpo"): 12.5,
    ("Qwen/Qwen3-0.6B", "hint"): 14.7,
    ("Qwen/Qwen3-0.6B", "replay"): 14.2,
    ("Qwen/Qwen3-0.6B", "hint replay"): 16.4,
    ("Qwen/Qwen3-0.6B", "lora"): 5.7,
    ("Qwen/Qwen3-0.6B", "lora hint replay"): 6.3,
    ("Qwen/Qwen3-1.7B", "grpo"): 32.4,
    ("Qwen/Qwen3-1.7B", "hint"): 38.8,
    ("Qwen/Qwen3-1.7B", "hint live"): 32.7,
    ("Qwen/Qwen3-1.7B", "replay"): 37.6,
    ("Qwen/Qwen3-1.7B", "hint replay"): 44.0,
    ("Qwen/Qwen3-1.7B", "lora"): 12.8,
}
STEP = Setup(
    per_device_train_batch_size=2, gradient_accumulation_steps=4, max_completion_length=6968, pair_batch_size=1,
    max_pair_tokens=4200, use_vllm=True, vllm_mode="server",
)  # fmt: skip
PARTS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "hint": {"alpha_sdpo": 0.5},
    "live": {"teacher": "live"},
    "replay": {"beta_replay": 0.2},
    "lora": {"use_peft": True, "lora_r": 32},
}


@pytest.mark.parametrize(("model", "kind"), MEASURED)
def test_the_estimate_is_within_a_tenth_of_what_a_gpu_needed(model: str, kind: str) -> None:
    options = {name: value for part in kind.split() for name, value in PARTS[part].items()}
    parts = memory.estimate(KNOWN[model], replace(STEP, **options))
    found = memory.total([part for part in parts if part.name != "context"])  # torch counts its own memory only
    assert found == pytest.approx(MEASURED[model, kind], rel=0.1)


@pytest.mark.parametrize("name", SIZED)
def test_a_preset_fits_the_gpu_that_its_first_line_names(name: str) -> None:
    assert plan(find_config(name), []).fits


def test_eight_times_the_model_does_not_fit_and_every_change_helps() -> None:
    path = find_config("zero2")
    planned = plan(path, ["--model_name_or_path", "Qwen/Qwen3-32B", "--beta_replay", "0.1"])
    assert not planned.fits
    sums = [planned.total, *(after for _, after in planned.changes)]
    assert sums == sorted(sums, reverse=True)
    assert sums[-1] <= memory.FITS * planned.gpu_gib
    changed = {name for change, _ in planned.changes for name in change}
    assert {"sharding", "pair_batch_size"} <= changed


def test_a_model_that_fits_nowhere_is_said_to_need_more_gpus() -> None:
    planned = plan(find_config("lora-1gpu"), ["--model_name_or_path=Qwen/Qwen3-32B"], gpu_gib=8.0)
    assert "more or larger GPUs" in planned.verdict()[-1]


def test_a_live_teacher_and_a_shared_reference_cost_nothing_more() -> None:
    shape, hint = KNOWN["Qwen/Qwen3-0.6B"], replace(STEP, alpha_sdpo=0.1)
    parts = {name: memory.total(memory.estimate(shape, setup)) for name, setup in {
        "fixed": hint, "live": replace(hint, teacher="live"), "shared": replace(hint, beta=0.04),
    }.items()}  # fmt: skip
    assert parts["live"] < parts["fixed"] == parts["shared"]


def test_the_shape_of_a_folder_is_that_of_its_config(tmp_path: Path) -> None:
    config = {
        "num_hidden_layers": 28, "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "tie_word_embeddings": True,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert ModelShape.of(config) == KNOWN["Qwen/Qwen3-0.6B"]
    assert ModelShape.of(config).weights == pytest.approx(0.596e9, rel=0.01)
    assert plan(find_config("zero2"), ["--model_name_or_path", str(tmp_path)]).fits
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(exits.UsageError, match="has no num_attention_heads"):
        plan(find_config("zero2"), ["--model_name_or_path", str(tmp_path)])


def test_experts_are_weights_that_a_token_does_not_visit() -> None:
    dense = {
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "vocab_size": 9,
    }
    sparse = ModelShape.of(dense | {"num_experts": 8, "moe_intermediate_size": 16, "num_experts_per_tok": 2})
    assert sparse.weights > 5 * (ModelShape.of(dense).weights - 2 * 9 * 8)
    assert sparse.inner == 32


def test_a_config_without_a_model_is_answered_with_the_option() -> None:
    with pytest.raises(exits.UsageError, match="Add --model_name_or_path"):
        plan(find_config("dapo"), [])


@pytest.mark.parametrize("words", [["--pair_batch_size"], ["--pair_batch_size=-1"], ["--use_peft", "perhaps"]])
def test_a_value_of_another_kind_is_refused(words: list[str]) -> None:
    with pytest.raises(exits.UsageError, match=words[0].lstrip("-").partition("=")[0]):
        plan(find_config("zero2"), words)


def test_options_are_read_as_the_trainer_reads_them() -> None:
    words = ["--beta_replay", "0.1", "--use_vllm", "true", "--teacher=live", "--save_steps", "5", "--bf16"]
    assert options_of(words) == {"beta_replay": 0.1, "use_vllm": True, "teacher": "live", "save_steps": 5, "bf16": True}


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_launch_file_has_only_what_accelerate_knows(name: str) -> None:
    accelerate = pytest.importorskip("accelerate.commands.config.config_args")
    path = folder() / "launch" / f"{name}.yaml"
    loaded = accelerate.load_config_from_file(str(path))
    assert loaded.num_processes == yaml.safe_load(path.read_text())["num_processes"]


def test_a_preset_brings_its_launch_file_unless_another_is_named(tmp_path: Path) -> None:
    own = str(folder() / "launch" / "zero2.yaml")
    path = find_config("zero2")
    assert with_launch_file(path, ["--num_processes", "4"]) == ["--config_file", own, "--num_processes", "4"]
    assert with_launch_file(path, ["--config_file", "x.yaml"]) == ["--config_file", "x.yaml"]
    assert with_launch_file(tmp_path / "mine.yaml", []) == []
    assert with_launch_file(tmp_path / "mine.yaml", ["--config_file", "zero2"]) == ["--config_file", own]
    assert plan(path, [], accelerate=["--num_processes", "4"]).setup.num_processes == 4
