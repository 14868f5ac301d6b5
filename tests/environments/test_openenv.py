"""OpenEnv environments: real servers on loopback, a real run on one of them. Skipped where openenv is not installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub import exits
from composer_hub.environments import EnvironmentFailed, TaskShelf, guarded, is_lost, open_sandbox, openenv, tools_of
from tests.environments.toy import TOYS

SERVER = Path(__file__).parent / "openenv_server.py"


def test_names_without_a_usable_server_are_refused() -> None:
    with pytest.raises(exits.UsageError, match="does not name a server"):
        openenv.check("")
    with pytest.raises(exits.UsageError, match="OPENENV_TOKEN"):
        openenv.check("http://me:secret@127.0.0.1:1")
    with pytest.raises(exits.UsageError, match="last or sum"):
        openenv.factory_of("http://127.0.0.1:1", reward="mean")


@pytest.mark.parametrize(("says", "hint"), [
    ({"type": "string"}, str),
    ({"type": "array", "items": {"type": "number"}}, list[float]),
    ({"type": "array"}, list),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, int | None),
    ({"type": ["integer", "string"]}, int | str),
    ({"$ref": "#/$defs/Kind"}, str),
    ({}, Any),
], ids=str)  # fmt: skip
def test_a_json_schema_becomes_a_type_hint(says: dict[str, Any], hint: Any) -> None:
    assert openenv._hint(says, {"Kind": {"type": "string"}}) == hint


def test_tools_that_cannot_become_methods_are_refused() -> None:
    for tool, says in [
        ({"name": "reset"}, "a reserved name"),
        ({"name": "ask", "input_schema": {"properties": {"from": {"type": "string"}}}}, "tool ask cannot be called"),
    ]:
        with pytest.raises(EnvironmentFailed, match=says):
            openenv.session_kind([tool])
    with pytest.raises(EnvironmentFailed, match="no tools"):
        openenv.session_kind([])


def test_docstring_sections_of_a_server_are_not_part_of_the_description() -> None:
    from transformers.utils import get_json_schema

    tool = {
        "name": "add",
        "description": "Add two\nnumbers.\n\nArgs:\n    a: First.\n\nReturns:\n    The sum.",
        "input_schema": {
            "properties": {"a": {"type": "integer", "title": "A"}, "b": {"type": "string", "enum": ["x", "y"]}},
            "required": ["a"],
        },
    }
    schema = get_json_schema(openenv.session_kind([tool]).add)["function"]  # type: ignore[attr-defined]
    assert schema["description"] == "Add two numbers."
    assert schema["parameters"]["required"] == ["a"]
    assert schema["parameters"]["properties"]["a"]["description"] == "First."
    assert schema["parameters"]["properties"]["b"]["enum"] == ["x", "y"]


# ------------------------------------------------------------------------------------------------------- with openenv


@pytest.fixture
def serve() -> Iterator[Callable[[str], tuple[str, subprocess.Popen[str]]]]:
    pytest.importorskip("openenv", reason="openenv is an optional extra: pip install 'composer-hub[openenv]'")
    started = []

    def start(kind: str) -> tuple[str, subprocess.Popen[str]]:
        server = subprocess.Popen([sys.executable, str(SERVER), kind], stdout=subprocess.PIPE, text=True)
        started.append(server)
        assert server.stdout is not None
        port = next(line for line in server.stdout if line.strip().isdigit()).strip()
        return f"http://127.0.0.1:{port}", server

    yield start
    for server in started:
        server.kill()
        server.wait()


def test_actions_and_mcp_tools_become_tools_with_rewards(serve: Any) -> None:
    one = openenv.factory_of(serve("gym")[0])()
    assert one.get_reward() == 0
    assert one.reset(prompt="x", a=2, b=3, unknown=[1]) == " Use the tool for 2+3."
    assert (one.act(a=2, b=3), one.get_reward()) == ("5", 1.0)
    with pytest.raises(RuntimeError, match="episode is over"):
        one.act(a=2, b=3)
    one.reset(a=2, b=3)
    with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
        one.act(a="two")
    other = openenv.factory_of(serve("mcp")[0], reward="sum")()
    assert other.reset(a=2, b=3) is None
    assert (other.add(a=1, b=0), other.add(a=2, b=3), other.add(a=0, b=5), other.get_reward()) == ("1", "5", "5", 2.0)
    with pytest.raises(RuntimeError, match="because"):
        other.fail(why="because")


def test_a_server_that_hangs_or_dies_loses_the_episode(serve: Any) -> None:
    address, _ = serve("gym")
    one = guarded(openenv.factory_of(address, timeout_s=30), "sums", timeout_s=3)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one.reset(a=1)
        with pytest.raises(RuntimeError, match="act gave no answer within 3 s"):
            one.act(a=77)
        assert one.get_reward() is None
        one.reset(a=1)
        with pytest.raises(RuntimeError, match="environment sums is lost: act failed: the server does not answer"):
            one.act(a=66)
        assert one.reset(a=1) is None
        assert is_lost(one)
    with pytest.raises(EnvironmentFailed, match=f"No OpenEnv server answers at {re.escape(address)}"):
        openenv.factory_of(address)()


def test_a_run_trains_on_an_openenv_server(serve: Any, world: Any, tmp_path: Path) -> None:
    from composer_hub.train.checkpoints import last_complete
    from composer_hub.train.run.main import run
    from composer_hub.train.run.options import parse_options

    words = (
        f"--environment openenv:{serve('add')[0]} --tasks composer_hub.environments.desk:tasks "
        "--num_tasks 8 --max_steps 2 "
        f"--per_device_train_batch_size 4 --num_generations 4 --max_completion_length 96 --learning_rate 1e-3 "
        f"--alpha_sdpo 0.5 --teacher live --use_cpu true --bf16 false --gradient_checkpointing false --logging_steps 1 "
        f"--report_to none --disable_tqdm true --seed 3 --model_name_or_path {world[0].name_or_path} "
        f"--eval_tasks composer_hub.environments.desk:tasks --num_eval_tasks 4 --to {tmp_path} "
        f"--output_dir {tmp_path / 'run'}"
    )
    final = run(parse_options(words.split()))
    state = json.loads((last_complete(tmp_path / "run") / "trainer_state.json").read_text())  # type: ignore[operator]
    steps = [line for line in state["log_history"] if "grad_norm" in line]
    assert [line["rollout/env_lost"] for line in steps] == [0, 0]
    assert max(line["rewards/OpenEnv/mean"] for line in steps) > 0  # calls came through, and some were right
    assert "`openenv:http://127.0.0.1:" in (final / "README.md").read_text()


def test_coding_tasks_are_served_with_reward_and_end_after_every_call(plain_venv: Path, tmp_path: Path) -> None:
    pytest.importorskip("openenv", reason="openenv is an optional extra: pip install 'composer-hub[openenv]'")
    try:
        open_sandbox()
    except exits.Refused as error:
        pytest.skip(str(error))
    from composer_hub.environments.openenv_server import HOST, serve

    tmp_path.chmod(0o755)
    tasks = {toy.task.task_id: replace(toy.task, bundle_digest=toy.task.task_id) for toy in TOYS}
    bundles = {toy.task.task_id: toy.bundle(tmp_path) for toy in TOYS}
    started: Queue[str] = Queue()
    shelf = TaskShelf(tasks, bundles, dict.fromkeys(bundles, plain_venv))
    threading.Thread(target=lambda: serve(shelf, on_start=started.put), daemon=True).start()
    url = started.get(timeout=600)
    assert HOST in url
    session = openenv.factory_of(url)()
    assert "Restore `show`" in session.reset(task_id="durations-show")
    assert sorted(tools_of(session)) == ["read_file", "replace", "run", "run_tests", "search", "write_file"]
    for call, says in [
        (lambda: session.read_file(path="../x"), "Error: Invalid path"),
        (lambda: session.run(command="echo \0"), "Error: embedded null byte"),
        (lambda: session.write_file(path="durations.py", text="x = 1\n"), "Wrote durations.py."),
    ]:
        assert call().startswith(says)
        assert (session.get_reward(), session._done) == (0.0, False)
    session.write_file(path="durations.py", text=TOYS[1].task.solution[0].text)
    assert (session.get_reward(), session._done) == (1.0, True)
    assert "Restore" in session.reset()  # the next task of the shelf
    assert (session.get_reward(), session._done) == (0, False)
