"""The demo runs completely and prints its main results."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from composer_hub import exits
from tests.cli.conftest import ROOT, Command

# None in sys.modules makes a library look like one that is not installed.
WITHOUT_TRAINING = "import sys; sys.modules['trl'] = None\n"


def test_the_demo_runs_from_sessions_to_pairs_and_needs_an_empty_folder(composer_hub: Command, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_TRAINING)
    kept = tmp_path / "kept"
    run = composer_hub("demo", "--keep", kept, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert run.returncode == exits.DONE, run.stderr
    for line in ("steps 31, traces 3", "exit code 5", "rejected:", "chosen:", "is left out", "The line is whole"):
        assert line in " ".join(run.stdout.split())
    again = composer_hub("demo", "--keep", kept)
    assert again.returncode == exits.USAGE
    assert "is not empty" in again.stderr


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_demo_trains_a_model_and_loads_it_back(composer_hub: Command) -> None:
    run = composer_hub("demo", timeout_s=1000)
    assert run.returncode == exits.DONE, run.stderr
    lines = ["steps 31, traces 3", "rejected:", "chosen:", "The line is whole"]
    if all(importlib.util.find_spec(name) for name in ("torch", "trl", "peft")):
        lines += ["sites failed worked margin control", "step 12 of 12: loss", "parameters from me/demo-model"]
        lines += [
            "policy, hint, replay", "-step-12", "me/demo-model run-", "pairs me/demo-pairs v1.0.0", "a trained model",
        ]  # fmt: skip
    said = " ".join(run.stdout.split())
    for line in lines:
        assert line in said
