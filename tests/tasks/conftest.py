"""One task set of a toy package, made once by the real sandbox."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits, tasks
from composer_hub.environments.sandbox import open_sandbox
from composer_hub.environments.venvs import VenvError, venv_for
from tests.tasks import toy


@pytest.fixture(scope="session")
def venv() -> Path:
    """Return an environment with pytest, or skip where none can be made."""
    try:
        open_sandbox()
        return venv_for(["pytest", "coverage"])
    except (exits.Refused, VenvError) as error:
        pytest.skip(f"no tasks can be made here: {error}")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the cache of worlds that make the environment of a package themselves: pip needs seconds for each."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(params=["bubblewrap", "landlock"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return each kind of sandbox that isolates here: all of them make the same tasks."""
    try:
        open_sandbox(request.param)
    except exits.Refused as error:
        pytest.skip(str(error))
    return request.param


@pytest.fixture(scope="session")
def made(
    venv: Path, tmp_path_factory: pytest.TempPathFactory, once: Callable[[str, Callable[[], Any]], Any]
) -> tasks.TaskSet:
    """Return a few tasks of every kind, each checked by two full runs."""
    return once("tasks of the toy", lambda: _made(tmp_path_factory.mktemp("toy")))


def _made(folder: Path) -> tasks.TaskSet:
    toy.write(
        folder,
        **{
            "README.md": "A copy:\n\n" + "\n".join(toy.SPANS.splitlines()[6:22]),
            "old/spans.py": "def title(words):\n    return words\n",
            "tinytext/lines.py": toy.LINES,
            "tinytext/boxes.py": toy.BOXES,
            "tests/test_boxes.py": toy.TEST_BOXES,
        },
    )
    options = tasks.TaskOptions(max_per_kind=2, recheck_every=7, workers=1)
    made = tasks.make([str(folder), str(folder / "nothing-here")], options)
    assert made.tasks, made.reports
    return made
