"""A verifiers taskset around an environment whose public methods are tools, with `reset` and `get_reward`.

In: the import path of the environment's class, and task rows (a `prompt`, and the arguments of `reset`). Out: tasks
whose tools run in a server process of verifiers, one per rollout, and whose reward is the last `get_reward`. verifiers
finds a taskset by the name of a module, so a module of yours exports it:

    from composer_hub.integrations.verifiers import EnvironmentTaskset

    __all__ = ["EnvironmentTaskset"]

This module imports verifiers; nothing else of the package imports this module.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import verifiers.v1 as vf

from composer_hub import exits
from composer_hub.environments import load_object, tools_of
from composer_hub.integrations.chat import chat_of, failed_turns

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer


class WorldError(exits.UsageError):
    """An environment or tasks that cannot be used."""


# --------------------------------------------------------------------------------------------------------- environment


async def reset(environment: Any, row: Mapping[str, Any]) -> None:
    """Start an episode, which must not add to the prompt: verifiers has fixed it by then."""
    if await _awaited(environment.reset(**row)):
        raise WorldError(
            f"{type(environment).__name__}.reset() returned text, but a task's prompt is fixed before its episode "
            "starts. Put that text into the row's prompt."
        )


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


# --------------------------------------------------------------------------------------------------------------- tools


class EnvironmentState(vf.State):
    """The state that the tool server sends to the host."""

    reward: float | None = None  # None until the first tool call


class EnvironmentToolsetConfig(vf.ToolsetConfig):
    """The settings of the tool server, which a task makes from its own."""

    environment: str = ""
    """Import path of the environment's class."""


class EnvironmentTaskData(vf.TaskData):
    """A task as verifiers stores it: the fields of `TaskData`, and the row that the environment gets."""

    row: dict[str, Any] = {}  # noqa: RUF012 - a pydantic field, copied for each task
    """Arguments of `reset`."""


class EnvironmentToolset(vf.Toolset[EnvironmentToolsetConfig, EnvironmentState]):
    """The environment of one rollout, in its own process."""

    TOOL_PREFIX = None  # tools keep the names that the model is trained with

    async def setup_task(self, task: EnvironmentTaskData) -> None:
        self.environment = load_object(self.config.environment, "environment")()
        await reset(self.environment, task.row)

    def register(self, mcp: MCPServer) -> None:
        for name, method in tools_of(self.environment).items():
            mcp.add_tool(self._with_state(self._answering(method)), name=name, description=inspect.getdoc(method))

    def _answering(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Answer like TRL's tool loop: the result as text, or the error of a call that raised."""

        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> str:
            try:
                result = await _awaited(method(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - the model reads whatever a tool raises
                result = {"error": str(error)}
            # The process ends with the rollout, so the reward is read after each call.
            self.state.reward = float(await _awaited(self.environment.get_reward()))
            return str(result)

        signature = inspect.signature(method, eval_str=True).replace(return_annotation=str)
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call


# --------------------------------------------------------------------------------------------------------------- tasks


class EnvironmentTaskConfig(vf.TaskConfig):
    """The settings that all tasks of a run share."""

    environment: str = ""
    """Import path of the environment's class, e.g. `my_package.world:Desk`."""


class EnvironmentTask(vf.Task[EnvironmentTaskData, EnvironmentState, EnvironmentTaskConfig]):
    """One row: its prompt, its tools, its reward."""

    @classmethod
    def toolsets(cls, config: EnvironmentTaskConfig) -> list[vf.Toolset]:
        return [EnvironmentToolset(EnvironmentToolsetConfig(environment=config.environment))]

    @vf.reward
    async def environment_reward(self, trace: vf.Trace) -> float:
        """Return the reward after the last call, or right after `reset` if there was none."""
        if trace.state.reward is not None:
            return trace.state.reward
        environment = load_object(self.config.environment, "environment")()
        await reset(environment, self.data.row)
        return float(await _awaited(environment.get_reward()))

    @vf.metric
    async def error_turns(self, trace: vf.Trace) -> float:
        """Count the turns that went wrong, by the rules that hints are written by."""
        return float(sum(len(failed_turns(chat_of(branch.messages))) for branch in trace.branches))


class EnvironmentTasksetConfig(vf.TasksetConfig):
    """The settings of a run: the environment, and the rows that become its tasks."""

    task: EnvironmentTaskConfig = EnvironmentTaskConfig()
    rows: str = ""
    """Import path of the task rows, or of a function that returns them."""
    max_tasks: int | None = None
    """Maximum number of rows, and the first argument of a function that makes them."""


class EnvironmentTaskset(vf.Taskset[EnvironmentTask, EnvironmentTasksetConfig]):
    """Tasks from the rows that `GRPOTrainer` takes."""

    def load(self) -> Iterable[EnvironmentTask]:
        load_object(self.config.task.environment, "environment")  # fail before any rollout
        for row in rows_of(load_object(self.config.rows, "source of rows"), self.config.max_tasks):
            prompt = row["prompt"]
            data = EnvironmentTaskData(
                prompt=prompt if isinstance(prompt, str) else [dict(message) for message in prompt],
                row={name: value for name, value in row.items() if name not in ("prompt", "environment")},
            )
            yield EnvironmentTask(data, self.config.task)


def rows_of(source: Any, max_tasks: int | None) -> Iterator[Mapping[str, Any]]:
    """Yield task rows from a sequence or from a function."""
    rows = source if not callable(source) else source() if max_tasks is None else source(max_tasks)
    for number, row in enumerate(rows):
        if number == max_tasks:
            return
        if not row.get("prompt"):
            raise WorldError(f"Task row {number} has no prompt. Give each row a `prompt`.")
        yield row


if __name__ == "__main__":
    # verifiers starts a tool server as `python -m` of the module that has its class.
    EnvironmentToolset.run()
