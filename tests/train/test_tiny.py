"""The tiny models of the package: whole, loaded without a network, and from the conversations of their script."""

from __future__ import annotations

import importlib.util
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from trl.chat_template_utils import get_training_chat_template

from composer_hub.train import tiny
from composer_hub.train.memory import KNOWN
from composer_hub.train.models import ModelFolderError

SCRIPT = Path(__file__).parents[2] / "scripts" / "small_models.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("small_models", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["small_models"] = module  # its records look themselves up
    spec.loader.exec_module(module)
    return module


def test_the_script_makes_every_shipped_model_and_no_other(script: Any) -> None:
    assert list(script.SCRIPTS) == list(tiny.SMALL)
    assert {path.name for path in tiny.HOME.iterdir()} == set(tiny.SMALL)


@pytest.mark.parametrize("name", tiny.SMALL)
def test_a_shipped_tokenizer_is_that_of_its_conversations(script: Any, name: str) -> None:
    one = script.SCRIPTS[name]
    made = script.tokenizer_of(list(one.talks(random.Random(0), one.num_talks)), one.tools)
    model, shipped = tiny.small_model(name)
    assert shipped.get_vocab() == made.get_vocab()
    assert shipped.chat_template == made.chat_template
    assert get_training_chat_template(shipped)  # TRL knows its own template only
    assert len(shipped) == model.config.vocab_size


@pytest.mark.parametrize("name", tiny.SMALL)
def test_a_shipped_model_has_the_shape_that_a_plan_counts_with(name: str) -> None:
    model, shape = tiny.small_model(name)[0].config, KNOWN[name]
    sizes = (model.num_hidden_layers, model.hidden_size, model.intermediate_size, model.head_dim, model.vocab_size)
    assert sizes == (shape.num_layers, shape.hidden, shape.inner, shape.head_dim, shape.vocab)


def test_a_shipped_model_loads_without_a_home_a_network_or_a_writable_package(tmp_path: Path) -> None:
    program = (
        "import socket\n"
        "def refuse(*_): raise AssertionError('a connection')\n"
        "socket.socket.connect = socket.create_connection = refuse\n"
        "from composer_hub.train.tiny import SMALL, small_model\n"
        "assert all(small_model(name)[0].num_parameters() < 400_000 for name in SMALL)\n"
    )
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program], env={"HOME": str(home), "PATH": ""}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not list(home.rglob("*.safetensors"))


def test_weights_that_were_changed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="missing"):
        tiny.small_folder("small", tmp_path)
    shutil.copytree(tiny.small_folder("small"), tmp_path / "small")
    weights = tiny.small_folder("small", tmp_path) / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ModelFolderError, match="damaged"):
        tiny.small_folder("small", tmp_path)
