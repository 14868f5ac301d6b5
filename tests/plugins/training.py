"""The tiny world, shared by all tests of the trainer."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

for name, value in {"TRL_EXPERIMENTAL_SILENCE": "1", "OMP_NUM_THREADS": "1"}.items():
    os.environ.setdefault(name, value)


@pytest.fixture(scope="session")
def world() -> Iterator[Any]:
    """Yield `(model, tokenizer)`; take a copy of the model before training it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("trl")
    from composer_hub.train.tiny import small_model

    torch.set_num_threads(1)
    model, tokenizer = small_model()
    yield model, tokenizer
    for (name, value), start in zip(model.named_parameters(), small_model()[0].parameters(), strict=True):
        assert torch.equal(value, start), f"a test changed {name} of the model that all tests share"


@pytest.fixture(scope="session")
def shelf(world: Any, once: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder destination with pairs, their reference log-probs, and one finished run in `runs/whole`."""
    from tests.train.tiny_run import fill_shelf

    def fill() -> Path:
        root = tmp_path_factory.mktemp("filled")
        with without_plots():
            fill_shelf(world, root)
        return root

    copy = tmp_path_factory.mktemp("shelf")
    return shutil.copytree(once("shelf", fill), copy, symlinks=True, dirs_exist_ok=True)


@pytest.fixture(scope="session")
def trained(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a function that trains with some options once per session: the logged steps and the final weights."""
    from tests.train.runs import steps_of, trainer_of

    runs: dict[str, Any] = {}

    def train(kind: Any = None, **options: Any) -> Any:
        key = repr((kind, sorted(options.items(), key=str)))
        if key not in runs:
            trainer = trainer_of(world, tmp_path_factory.mktemp("trained"), kind, **options)
            rows = steps_of(trainer)
            runs[key] = SimpleNamespace(rows=rows, weights=[value.detach() for value in trainer.model.parameters()])
        return runs[key]

    return train


@pytest.fixture
def make_trainer(world: Any, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that makes a trainer of the tiny world; keywords are options of the config."""
    from tests.train.runs import trainer_of

    def make(kind: Any = None, **options: Any) -> Any:
        return trainer_of(world, tmp_path, kind, **options)

    return make


@contextmanager
def without_plots() -> Iterator[None]:
    """Be a machine without matplotlib: the pictures of a short run cost more than its steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        yield


@pytest.fixture
def no_plots() -> Iterator[None]:
    """Write no pictures on the cards of runs."""
    with without_plots():
        yield
