"""`composer-hub train` finds a config, hands everything else to the trainer, and returns the trainer's exit code."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from composer_hub import exits
from composer_hub.train.checks import _PACKAGES, check_words, known_options, missing_packages
from composer_hub.train.presets import find_config, presets, with_config_files
from tests.cli.conftest import ROOT, Command
from tests.quick import quick


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
    assert with_config_files(["--config=tiny", "x"]) == ["--config", tiny, "x"]
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


WRONG = {  # one mistake each -> its sentence
    "--max_steps many": "max_steps is a whole number, not 'many'",
    "--colour blue": "There is no option --colour",
    "--learning_rat 3": "There is no option --learning_rat; did you mean learning_rate?",
    "--bf16 perhaps": "bf16 is true or false, not 'perhaps'",
    "--teacher foo": "teacher is one of fixed, live, not 'foo'",
    "--optimizer lion": "optimizer is one of optim, muon, not 'lion'",
    "--rounds 0": "rounds is 1 or more, not 0",
    "--max_minutes -1": "max_minutes is 0 or more, not -1",
    "--optim adamv_torch": "optim 'adamv_torch' is none of its 41 choices; did you mean adamw_torch?",
    "--loss_type nope": "loss_type is one of grpo, bnpo, ",
    "--lr_scheduler_type zigzag": "lr_scheduler_type is one of linear, cosine, ",
    "--save_strategy sometimes": "save_strategy is one of no, steps, epoch, best, not 'sometimes'",
    "--dtype int3": "dtype is one of auto, bfloat16, float16, float32, not 'int3'",
    "--beta_replay 1": "beta_replay is set without pairs",
    "--tasks none.jsonl": "no file of tasks none.jsonl",
    "--environment nowhere": "no environment 'nowhere'",
    "--rewards nowhere.at_all:score": "nowhere.at_all:score",
    "--save_total_limit 1": "save_total_limit is 2 or more, not 1",
    "--num_generations 7": "A generation batch of 64 rollouts is not a multiple of num_generations (7)",
    "--push_to_hub": "push_to_hub makes many commits without a tag",
    "--chat_template_kwargs {": "chat_template_kwargs is {, which is not JSON",
}


def test_every_mistake_of_a_command_line_is_named_before_torch_is_imported() -> None:
    line = "import sys; sys.modules['torch'] = None; from composer_hub.train.checks import check_words as look"
    run = subprocess.run(
        [sys.executable, "-c", f"{line}; look(sys.argv[1:], 1)", "--config", "tiny", *" ".join(WRONG).split()],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert f"{len(WRONG)} options cannot work" in run.stderr
    assert [sentence for sentence in WRONG.values() if sentence not in run.stderr] == []


@pytest.mark.parametrize("words", WRONG)
def test_a_single_mistake_is_one_sentence(words: str) -> None:
    with pytest.raises(exits.UsageError) as caught:
        check_words(["--config", "tiny", *words.split()], num_processes=1)
    assert WRONG[words] in str(caught.value)
    assert "options cannot work" not in str(caught.value)


def test_a_value_of_another_option_is_answered_with_that_option() -> None:
    with pytest.raises(exits.UsageError, match=r"none of its \d+ choices; did you mean --optimizer muon\?"):
        check_words(["--config", "tiny", "--optim", "muon"], num_processes=1)


@pytest.mark.parametrize("name", [name for name, option in known_options().items() if option.choices])
def test_every_option_with_choices_refuses_another_one(name: str) -> None:
    with pytest.raises(exits.UsageError, match=f"{name} .*(is one of|is none of its)"):
        check_words(["--config", "tiny", f"--{name}", "no such thing"])


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
    kinds = pytest.importorskip("composer_hub.train.run.options")._KINDS
    assert set(known_options()) == {field.name for kind in kinds for field in dataclasses.fields(kind)}


def test_the_choices_are_those_that_the_parser_and_trl_know() -> None:
    options = pytest.importorskip("composer_hub.train.run.options")
    trl = pytest.importorskip("trl")
    parser = trl.TrlParser(list(options._KINDS))
    parsed = {action.dest: tuple(map(str, action.choices)) for action in parser._actions if action.choices}
    known = {name: one.choices for name, one in known_options().items() if one.choices}
    assert known == {
        name: choices for name, choices in parsed.items() if name not in ("log_level", "log_level_replica")
    }
    compared = re.findall(r"self\.loss_type (?:==|in) (\[[^]]+\]|\"\w+\")", inspect.getsource(trl.GRPOTrainer))
    assert {name for one in compared for name in re.findall(r'"(\w+)"', one)} == set(parsed["loss_type"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--max_steps 3", ""),
        ("--max-steps=3", ""),
        ("--max_steps 3.5", "whole number"),
        ("--max_steps inf", "whole number"),
        ("--alpha_sdpo nan", "alpha_sdpo is a number, not 'nan'"),
        ("--learning_rate -1", "learning_rate is 0 or more, not -1"),
        ("--hint_divergence 7", "hint_divergence is between 0 and 1, not 7"),
        ("--no_bf16", ""),
        ("--max_step 3", "no option --max_step; did you mean max_steps"),
        ("--rewards a:b c:d --max_steps 3", "a:b cannot be imported"),
        ("--max_steps 3 4", "There is no option 4"),
        ("--max_steps", "max_steps is a whole number, not ''"),
        ("--repo", "repo is a text, not ''"),
    ],
)
def test_words_are_read_as_argparse_reads_them_but_never_abbreviated(words: str, sentence: str) -> None:
    line = ["--model_name_or_path", "small", "--environment", "desk", "--use_cpu", "--bf16", "false", *words.split()]
    if not sentence:
        check_words(line)
        return
    with pytest.raises(exits.UsageError, match=sentence):
        check_words(line)


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


@pytest.mark.parametrize("number", quick(1, [signal.SIGTERM, signal.SIGINT]), ids=["SIGTERM", "Ctrl-C"])
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
