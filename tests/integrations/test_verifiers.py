"""The contract with verifiers: a real rollout through its own harness and tool server, on loopback."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits
from tests.integrations.scripted_policy import serving

vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed (docs/other_trainers.md)")

from composer_hub.environments import load_object, tools_of  # noqa: E402
from composer_hub.integrations import verifiers as ours  # noqa: E402
from composer_hub.integrations.chat import chat_of, failed_turns  # noqa: E402

WORLD = '''
from composer_hub.integrations.verifiers import EnvironmentTaskset

__all__ = ["EnvironmentTaskset"]


class Desk:
    """An environment that needs no library."""

    def reset(self, a: int = 0, b: int = 0) -> None:
        self.wanted, self.solved = (a, b), False

    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        if a > 90:
            raise OverflowError("too large for this desk")
        self.solved = (a, b) == self.wanted
        return a + b

    async def get_reward(self) -> float:
        return float(self.solved)

    def _secret(self) -> str:
        return ""


class Talkative(Desk):
    def reset(self, a: int = 0, b: int = 0) -> str:
        return "Welcome!"


def rows(count: int = 3) -> list[dict]:
    return [{"prompt": [{"role": "user", "content": f"{a}+2"}], "a": a, "b": 2} for a in range(4, 4 + count)]


nothing = [{"prompt": "", "a": 1}]
'''


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the user's own, where verifiers finds the taskset; its tool servers look for it too."""
    (tmp_path / "desk_world.py").write_text(WORLD)
    monkeypatch.syspath_prepend(str(tmp_path))
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(root)]))
    monkeypatch.delitem(sys.modules, "desk_world", raising=False)
    return tmp_path


def environment(**taskset: Any) -> Any:
    from verifiers.v1.utils.loaders import load_environment

    chosen = {"id": "desk_world", "rows": "desk_world:rows", "task": {"environment": "desk_world:Desk"}, **taskset}
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    return load_environment(vf.SingleAgentEnvConfig.model_validate({"taskset": chosen, "agent": agent}))


async def episode_of(env: Any, url: str) -> Any:
    from verifiers.v1.env import RunSlot

    client = vf.EvalClientConfig(base_url=url, api_key_var="NO_SUCH_KEY")
    context = vf.ModelContext(client=client, model="scripted", sampling=vf.SamplingConfig())
    async with env.serving():
        return await env.run_slot(RunSlot(next(iter(env.taskset))), context)


@pytest.mark.skipif(shutil.which("uv") is None, reason="verifiers starts its harness with uv")
def test_a_rollout_calls_the_environments_tools_and_gets_its_reward(world: Path) -> None:
    with serving() as url:
        episode = asyncio.run(episode_of(environment(), url))
    assert episode.ok, [trace.errors for trace in episode.traces]
    (trace,) = episode.traces
    assert {name: reward.score for name, reward in trace.rewards.items()} == {"environment_reward": 1.0}
    # The tool that is not there, and the words where numbers belong.
    assert trace.metrics == {"error_turns": 2.0}
    said = chat_of([node.message for node in trace.nodes])
    assert [m["content"] for m in said if m["role"] == "tool"][-1] == "6"
    failed = failed_turns(said)
    assert [(turn.index, site.kind) for turn in failed for site in turn.error_sites] == [
        (0, "tool_not_found"),
        (1, "schema_validation"),
    ]


def test_each_row_is_a_task_and_a_function_gets_the_number_of_rows(world: Path) -> None:
    tasks = list(environment(max_tasks=2).taskset)
    assert [task.data.row for task in tasks] == [{"a": 4, "b": 2}, {"a": 5, "b": 2}]
    assert tasks[0].data.prompt[0].content == "4+2"


def test_only_public_methods_are_tools(world: Path) -> None:
    desk = load_object("desk_world:Desk", "environment")()
    assert list(tools_of(desk)) == ["add"]


def test_a_call_that_raises_answers_like_trls_tool_loop(world: Path) -> None:
    server = ours.EnvironmentToolset(ours.EnvironmentToolsetConfig(environment="desk_world:Desk"))
    asyncio.run(server.setup_task(ours.EnvironmentTaskData(row={"a": 1, "b": 2})))
    add = server._answering(server.environment.add)
    assert asyncio.run(add(a=91, b=0)) == "{'error': 'too large for this desk'}"
    assert server.state.reward == 0.0
    assert asyncio.run(add(a=1, b=2)) == "3"
    assert server.state.reward == 1.0


def test_an_episode_without_calls_is_scored_after_its_reset(world: Path) -> None:
    task = next(iter(environment().taskset))

    class Untouched:
        state = ours.EnvironmentState()

    assert asyncio.run(task.environment_reward(Untouched())) == 0.0


@pytest.mark.parametrize(("changes", "words"), [
    ({"rows": "desk_world:nothing"}, "row 0 has no prompt"),
    ({"rows": "desk_world"}, "package.module:name"),
    ({"task": {"environment": "desk_world:Chair"}}, "cannot be imported"),
    ({"task": {"environment": "no_such_world:Desk"}}, "cannot be imported"),
], ids=["no prompt", "no name", "no class", "no module"])  # fmt: skip
def test_unusable_options_are_refused_before_any_rollout(world: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(exits.UsageError, match=words):
        list(environment(**changes).taskset)


def test_an_environment_whose_reset_returns_text_is_refused(world: Path) -> None:
    talkative = load_object("desk_world:Talkative", "environment")()
    with pytest.raises(exits.UsageError, match="row's prompt"):
        asyncio.run(ours.reset(talkative, {"a": 1, "b": 2}))
