"""`composer-hub train` finds a config, hands everything else to the trainer, and returns the trainer's exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from composer_hub import exits
from composer_hub.train.presets import find_config, presets, with_config_files
from composer_hub.train.run.checks import _PACKAGES, missing_packages
from composer_hub.train.run.first_look import known_options, mistakes
from tests.cli.conftest import ROOT, Command


def test_the_list_names_every_preset_of_the_checkout(in_process: Command) -> None:
    listed = in_process("train", "--list", "--format", "json").stdout
    assert {row["preset"] for row in yaml.safe_load(listed)} == {path.stem for path in ROOT.glob("configs/*.yaml")}


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_shown_as_it_is(name: str, in_process: Command) -> None:
    assert in_process("train", "--show", name).stdout == (ROOT / "configs" / f"{name}.yaml").read_text()


@pytest.mark.parametrize("words", [[], ["nope"], ["nope.yaml", "--max_steps", "1"], ["/"]])
def test_a_config_that_is_not_there_is_answered_with_the_presets(words: list[str], in_process: Command) -> None:
    run = in_process("train", *words)
    assert run.returncode == exits.USAGE
    assert all(name in run.stderr for name in presets())
    assert len(run.stderr.splitlines()) == 1


def test_a_file_comes_before_a_preset_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_config("tiny") == find_config("configs/tiny.yaml") == presets()["tiny"]
    Path("tiny").write_text("max_steps: 1\n")
    assert find_config("tiny") == Path("tiny")


def test_config_options_lead_to_files_wherever_they_stand() -> None:
    tiny = str(presets()["tiny"])
    assert with_config_files(["--a", "--config", "tiny", "--b"]) == ["--a", "--config", tiny, "--b"]
    assert with_config_files(["--config=tiny", "x"]) == [f"--config={tiny}", "x"]
    with pytest.raises(exits.UsageError, match="no config file ''"):
        with_config_files(["--a", "--config"])


def test_a_plan_is_printed_and_ends_with_refused_if_it_does_not_fit(in_process: Command) -> None:
    run = in_process("train", "--preset", "full-8gpu-fsdp2", "--plan")
    assert run.returncode == 0, run.stderr
    assert all(word in run.stdout for word in ("weights", "optimizer", "teacher", "activations", "head", "It fits"))
    run = in_process("train", "lora-1gpu", "--plan", "--model_name_or_path", "Qwen/Qwen3-32B")
    assert run.returncode == exits.REFUSED
    assert "load_in_4bit" in run.stdout
    assert "more or larger" in in_process("train", "lora-1gpu", "--plan", "--gpu-gb", "8").stdout
    rows = json.loads(in_process("train", "zero2", "--plan", "--format", "json").stdout)
    assert rows[-1]["part"] == "sum"


def test_a_plain_installation_lists_presets_and_names_what_training_needs(tmp_path: Path) -> None:
    blocked = "import sys; sys.modules.update(dict.fromkeys(('torch', 'trl', 'transformers', 'safetensors', 'peft')))"
    main = "from composer_hub.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", f"{blocked}; {main}", "train", "--list", "--format", "quiet"]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert run.stdout.split() == list(presets()), run.stderr


def test_every_mistake_of_a_command_line_is_named_before_torch_is_imported(tmp_path: Path) -> None:
    words = (
        "--max_steps many --colour blue --bf16 perhaps --beta_replay 1 --tasks none.jsonl --environment nowhere "
        "--save_total_limit 1 --rewards nowhere.at_all:score"
    )
    line = "import sys; sys.modules['torch'] = None; from composer_hub.train.run.first_look import check_words as look"
    run = subprocess.run(
        [sys.executable, "-c", f"{line}; look(sys.argv[1:])", "--config", "tiny", *words.split()],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    for sentence in (
        "8 options cannot work", "There is no option --colour", "max_steps is a whole number, not 'many'",
        "bf16 is true or false, not 'perhaps'", "beta_replay is set without pairs", "no file of tasks none.jsonl",
        "no environment 'nowhere'", "Keep 2 or more", "nowhere.at_all:score",
    ):  # fmt: skip
        assert sentence in run.stderr


@pytest.mark.parametrize("option", sorted(_PACKAGES))
def test_a_package_that_an_option_needs_and_that_is_missing_is_one_sentence(option: str) -> None:
    values = dict.fromkeys(_PACKAGES) | {"optim": "adamw_8bit", "report_to": ["none", "wandb"], option: True}
    found = list(missing_packages(values, is_installed=lambda name: False))
    assert len(found) == 3
    assert found[0].startswith(f"{option} needs {_PACKAGES[option]}, which is not installed: pip install ")
    assert "optim needs bitsandbytes" in found[1]
    assert "report_to wandb needs wandb" in found[2]
    assert not list(missing_packages(values, is_installed=lambda name: True))


def test_the_options_read_from_source_are_those_of_the_classes() -> None:
    options_module = pytest.importorskip("composer_hub.train.run.options")
    assert set(known_options()) == options_module.option_names()


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("--max_steps 3", 3),
        ("--max-steps=3", 3),
        ("--max_steps 3.5", "whole number"),
        ("--max_steps inf", "whole number"),
        ("--alpha_sdpo nan", "alpha_sdpo is a number, not 'nan'"),
        ("--learning_rate -1", "learning_rate is 0 or more, not -1"),
        ("--hint_divergence 7", "hint_divergence is between 0 and 1, not 7"),
        ("--no_bf16", "fine"),
        ("--rewards a:b c:d --max_steps 3", 3),
    ],
)
def test_words_are_read_as_argparse_reads_them(words: str, value: object) -> None:
    common = ["--model_name_or_path", "small", "--environment", "desk", "--use_cpu"]
    found = " ".join(mistakes([*common, *words.split()]))
    if isinstance(value, str):
        assert value in found or (value == "fine" and not found)
    else:
        assert "max_steps" not in found


# As `accelerate launch`: it waits for training, a signal ends it with a traceback, and so does a code of training.
LAUNCHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
TRAINING = """
import os, signal, sys, time
from composer_hub import exits
def end(number, _):
    time.sleep(0.5)
    os.write(1, b"saved\\n")  # print() must not be entered twice, and the signal may come inside of it
    sys.exit(exits.INTERRUPTED if number == signal.SIGINT else exits.STOPPED)
def main():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    os.write(1, b"started\\n")
    time.sleep(600)
sys.exit(exits.noted(main))
"""
WAITING = "import sys; from composer_hub.cli.train import launched; sys.exit(launched(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, exits.STOPPED), (signal.SIGHUP, exits.STOPPED), (signal.SIGINT, exits.INTERRUPTED)],
    ids=["SIGTERM", "a closed terminal", "Ctrl-C"],
)
def test_a_signal_reaches_training_and_not_its_launcher_and_its_own_code_comes_back(number: int, code: int) -> None:
    command = [sys.executable, "-c", WAITING, sys.executable, "-c", LAUNCHER, TRAINING]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
        rest, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert (rest, errors) == ("saved\n", "")
    assert process.returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_before_training_begins_ends_its_launcher_without_a_traceback(number: int) -> None:
    slow = "import os, time; os.write(1, b'started\\n'); time.sleep(600)"  # as accelerate, which imports torch first
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, sys.executable, "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
        assert process.communicate(timeout=600) == ("", "")
    finally:
        process.kill()
    assert process.returncode == 128 + number


def test_ctrl_c_while_training_imports_its_libraries_prints_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    files = {exits.CODES_FILE: str(tmp_path / "codes"), exits.RANKS_FILE: str(tmp_path / "ranks")}
    process = subprocess.Popen(
        [sys.executable, "-m", "composer_hub.train", "--config", "tiny", "--output_dir", str(tmp_path / "run")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)} | files,
    )  # fmt: skip
    try:
        # Its handlers are set before its id is written.
        while not (tmp_path / "ranks").is_file() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert errors == "train: ended before anything was begun.\n"
    assert process.returncode == exits.DONE  # for its launcher
    assert (tmp_path / "codes").read_text() == f"{exits.INTERRUPTED}\n"
