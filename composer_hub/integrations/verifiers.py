"""A verifiers taskset around an environment as TRL takes it: public methods are tools, `reset`, `get_reward`.

In: the import path of the environment's class, and task rows (`prompt`, and what `reset` wants). Out: tasks whose tools
run in a server process of verifiers, one a rollout, and whose reward is what `get_reward` says at the end. verifiers
finds a taskset by the name of a module, so a module of your own exports it:

    from composer_hub.train.other.verifiers import EnvironmentTaskset

    __all__ = ["EnvironmentTaskset"]

This module imports verifiers; nothing else of the package imports this module.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import verifiers.v1 as vf

from composer_hub import exits
from composer_hub.integrations.chat import chat_of, errors_of

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

NOT_TOOLS = ("reset", "get_reward")


class WorldError(exits.UsageError):
    """An environment or tasks that cannot be used as named."""


# --------------------------------------------------------------------------------------------------------- environment


def imported(path: str, what: str) -> Any:
    """Return the object at `package.module:name`."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise WorldError(f"{what} is {path!r}: name it as package.module:name.")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise WorldError(f"{what} {path!r} cannot be imported ({error}): name it as package.module:name.") from error


async def reset(environment: Any, row: Mapping[str, Any]) -> None:
    """Start an episode; the prompt stands already, so a text that `reset` returns has no place."""
    said = await _awaited(environment.reset(**row))
    if said:
        raise WorldError(
            f"{type(environment).__name__}.reset() returned text, but a task's prompt is fixed before its episode "
            "starts: put that text into the row's prompt."
        )


def tools_of(environment: Any) -> dict[str, Callable[..., Any]]:
    """Return the methods that are tools, by the rule that TRL has."""
    members = inspect.getmembers(environment, inspect.ismethod)
    return {name: method for name, method in members if not name.startswith("_") and name not in NOT_TOOLS}


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


# --------------------------------------------------------------------------------------------------------------- tools


class EnvironmentState(vf.State):
    """What the tool server tells the host."""

    reward: float | None = None  # None: no tool was called yet


class EnvironmentToolsetConfig(vf.ToolsetConfig):
    environment: str = ""
    """Import path of the environment's class."""


class EnvironmentTaskData(vf.TaskData):
    row: dict[str, Any] = {}  # noqa: RUF012 - a pydantic field, copied for each task
    """What `reset` takes."""


class EnvironmentToolset(vf.Toolset[EnvironmentToolsetConfig, EnvironmentState]):
    """The environment of one rollout, in a process of its own."""

    TOOL_PREFIX = None  # the tools have the names that the model is trained with

    async def setup_task(self, task: EnvironmentTaskData) -> None:
        self.environment = imported(self.config.environment, "The environment")()
        await reset(self.environment, task.row)

    def register(self, mcp: MCPServer) -> None:
        for name, method in tools_of(self.environment).items():
            mcp.add_tool(self._with_state(self._told(method)), name=name, description=inspect.getdoc(method))

    def _told(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Answer as TRL's tool loop does: the result as text, or the error of a call that raised."""

        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> str:
            try:
                result = await _awaited(method(*args, **kwargs))
            except Exception as error:
                result = {"error": str(error)}
            # The process ends with the rollout, so the score so far is told after each call.
            self.state.reward = float(await _awaited(self.environment.get_reward()))
            return str(result)

        signature = inspect.signature(method, eval_str=True).replace(return_annotation=str)
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call


# --------------------------------------------------------------------------------------------------------------- tasks


class EnvironmentTaskConfig(vf.TaskConfig):
    environment: str = ""
    """Import path of the environment's class, e.g. `my_package.world:Desk`."""


class EnvironmentTask(vf.Task[EnvironmentTaskData, EnvironmentState, EnvironmentTaskConfig]):
    """One row: its prompt, its tools, its reward."""

    @classmethod
    def toolsets(cls, config: EnvironmentTaskConfig) -> list[vf.Toolset]:
        return [EnvironmentToolset(EnvironmentToolsetConfig(environment=config.environment))]

    @vf.reward
    async def environment_reward(self, trace: vf.Trace) -> float:
        """Return what `get_reward` said after the last call; without any call, what it says right after `reset`."""
        if trace.state.reward is not None:
            return trace.state.reward
        environment = imported(self.config.environment, "The environment")()
        await reset(environment, self.data.row)
        return float(await _awaited(environment.get_reward()))

    @vf.metric
    async def error_turns(self, trace: vf.Trace) -> float:
        """Return how many turns went wrong, by the rules that hints are written by."""
        found = [errors_of(chat_of(branch.messages)) for branch in trace.branches]
        return float(sum(len({error.turn.number for error in errors}) for errors in found))


class EnvironmentTasksetConfig(vf.TasksetConfig):
    task: EnvironmentTaskConfig = EnvironmentTaskConfig()
    rows: str = ""
    """Import path of the task rows, or of a function that returns them."""
    max_tasks: int | None = None
    """How many rows to ask a function for, as its first argument, and the most that are taken."""


class EnvironmentTaskset(vf.Taskset[EnvironmentTask, EnvironmentTasksetConfig]):
    """Tasks from rows as `GRPOTrainer` takes them."""

    def load(self) -> Iterable[EnvironmentTask]:
        imported(self.config.task.environment, "The environment")  # a wrong name shows before any rollout
        for row in rows_of(imported(self.config.rows, "rows"), self.config.max_tasks):
            prompt = row["prompt"]
            data = EnvironmentTaskData(
                prompt=prompt if isinstance(prompt, str) else [dict(message) for message in prompt],
                row={name: value for name, value in row.items() if name not in ("prompt", "environment")},
            )
            yield EnvironmentTask(data, self.config.task)


def rows_of(source: Any, max_tasks: int | None) -> Iterator[Mapping[str, Any]]:
    """Yield task rows from a sequence, or from a function that makes some."""
    rows = source if not callable(source) else source() if max_tasks is None else source(max_tasks)
    for number, row in enumerate(rows):
        if number == max_tasks:
            return
        if not row.get("prompt"):
            raise WorldError(f"Task row {number} has no prompt: give each row a `prompt`.")
        yield row


if __name__ == "__main__":
    # verifiers starts a tool server as `python -m` of the module that has its class.
    EnvironmentToolset.run()
