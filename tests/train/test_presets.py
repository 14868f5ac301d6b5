"""Every preset parses, passes the checks of a run, and has the defaults that its plan assumes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("torch")
pytest.importorskip("trl")

from trl import TrlParser

from composer_hub.train.checks import all_values, problems, read_words
from composer_hub.train.memory import Setup
from composer_hub.train.presets import folder, presets, with_config_files
from composer_hub.train.run.options import parse_options

PARTS = ("sources", "evals", "publishing", "launch", "config", "model")
ON_CPU = ["--use_cpu", "true", "--bf16", "false"]
FOR_GPUS = [
    "lora-1gpu", "qlora-24gb", "full-8gpu-fsdp2", "zero2", "vllm-colocate", "vllm-server", "long-context-32k", "coding",
]  # fmt: skip


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_read_without_an_option_that_is_not_there(name: str, tmp_path: Path) -> None:
    values = yaml.safe_load(presets()[name].read_text())
    words = ["--config", name, "--output_dir", str(tmp_path / "run"), *ON_CPU]
    if "model_name_or_path" not in values:
        words += ["--model_name_or_path", "small"]
    if values.get("beta_replay") and not values.get("own_pairs"):
        words += ["--pairs", "me/pairs@v1.0.0"]
    if values.get("hint_source", "rollouts") != "rollouts":
        words += ["--traces", "me/traces@v1.0.0"]
    is_offline = name in ("offline", "preference")
    if not is_offline and "environment" not in values:
        words += ["--environment", "desk"]
    if values.get("environment") == "coding":
        words += ["--tasks", "me/tasks@v1.0.0"]
    options = parse_options(words)
    assert [found for found in problems(all_values(read_words(words)[0])) if "not installed" not in found] == []
    parser = TrlParser([type(getattr(options, part)) for part in PARTS])
    for part, parsed in zip(PARTS, parser.parse_args_and_config(with_config_files(words)), strict=True):
        ours = getattr(options, part)
        for field in dataclasses.fields(parsed):
            assert getattr(ours, field.name) == getattr(parsed, field.name), field.name


@pytest.mark.parametrize("name", FOR_GPUS)
def test_a_preset_for_machines_has_its_launch_file(name: str) -> None:
    assert name in presets()
    assert (folder() / "launch" / f"{name}.yaml").is_file()


def test_the_plan_has_the_trainers_own_defaults() -> None:
    options = parse_options(["--output_dir", "run", *ON_CPU])
    known: dict[str, Any] = {**vars(options.config), **vars(options.model), **vars(options.sources)}
    for field in dataclasses.fields(Setup):
        if field.name in known and field.name not in ("bf16", "steps_per_generation"):
            assert field.default == known[field.name], field.name


@pytest.mark.parametrize("name", presets())
def test_a_preset_has_the_weight_that_was_shown_and_says_if_its_learning_rate_was_not(name: str) -> None:
    text = presets()[name].read_text()
    values = yaml.safe_load(text)
    if not values.get("alpha_sdpo") and not values.get("beta_replay"):
        return
    assert values.get("alpha_sdpo", 0.5) == 0.5
    comment = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    assert "No run has shown" in comment or "first_run.md shows" in comment
