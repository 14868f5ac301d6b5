"""Coding tasks as an OpenEnv server: one session per episode, the tools of `CodingEnvironment` as MCP tools.

In: a shelf of tasks. Out: an ASGI application, or a server on loopback. Its client is the environment
`openenv:http://127.0.0.1:PORT`. A tool never raises, because an exception costs a hundred milliseconds here: errors are
texts. The reward is asked for when files have changed. An episode is done when it is solved or its time is used up.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from typing import Any

from fastmcp import FastMCP
from openenv.core.env_server import MCPEnvironment, create_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State

from composer_hub.environments.coding import CodingEnvironment, CodingOptions, coding_factory
from composer_hub.environments.shelf import TaskShelf, prompt_of
from composer_hub.environments.world import tools_of
from composer_hub.records import SourceEdit

HOST = "127.0.0.1"


class Started(Observation):
    """The first observation of an episode."""

    prompt: str = ""


class CodingServerEnvironment(MCPEnvironment):
    """One coding episode after another; `reset(task_id=…)` names a task, else the next one of the shelf is played."""

    SUPPORTS_CONCURRENT_SESSIONS = True  # without it, a server accepts one session

    def __init__(self, coding: CodingEnvironment, shelf: TaskShelf, next_task: Callable[[], str]) -> None:
        self._coding, self._shelf, self._next_task = coding, shelf, next_task
        self._reward: float | None = 0.0  # None: not known
        self._is_over, self._state = True, State()
        self._judged: tuple[SourceEdit, ...] = ()  # the changes that the reward is of
        self._one_call = threading.Lock()
        mcp = FastMCP("coding")
        for tool in tools_of(coding).values():
            mcp.tool(self._as_text(tool))
        super().__init__(mcp)

    @property
    def supports_code_mode(self) -> bool:
        """Refuse code of the agent in this process."""
        return False

    def execute_code(self, code: str) -> Observation:
        return Observation(done=False, reward=None, metadata={"error": "Code is run with the tool `run`."})

    def reset(self, seed: int | None = None, episode_id: str | None = None, task_id: str = "", **_: Any) -> Observation:
        task = self._shelf.task(task_id or self._next_task())
        self._coding.reset(task_id=task.task_id)
        self._reward, self._is_over, self._judged = 0.0, False, ()
        self._state = State(episode_id=episode_id, step_count=0)
        return Started(done=False, reward=0.0, prompt=prompt_of(task), metadata={"task_id": task.task_id})

    def step(self, action: Any, timeout_s: float | None = None, **options: Any) -> Observation:
        return self._rewarded(action, super().step(action, timeout_s=timeout_s, **options))

    async def step_async(self, action: Any, timeout_s: float | None = None, **options: Any) -> Observation:
        return self._rewarded(action, await super().step_async(action, timeout_s=timeout_s, **options))

    def _rewarded(self, action: Any, seen: Observation) -> Observation:
        """Set reward and done, which the base class leaves unset."""
        self._state.step_count += isinstance(action, CallToolAction)
        return seen.model_copy(update={"reward": self._reward, "done": self._is_over})

    def _step_impl(self, action: Any, timeout_s: float | None = None, **_: Any) -> Observation:
        raise ValueError(f"Call a tool instead of {type(action).__name__}.")

    @property
    def state(self) -> State:
        return self._state

    def _as_text(self, tool: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(tool)
        def call(**arguments: Any) -> str:
            if self._is_over:
                return "Error: The episode is over. Reset the environment."
            with self._one_call:
                try:
                    return tool(**arguments)
                except Exception as error:  # noqa: BLE001 - the model reads whatever a tool raises
                    return f"Error: {error}"
                finally:
                    self._judge()

        return call

    def _judge(self) -> None:
        calls = self._coding._calls
        changes = calls[-1].changes if calls else ()
        try:
            if changes != self._judged or self._reward is None:
                self._reward = self._coding.get_reward()
                self._judged = changes
        except Exception:  # noqa: BLE001 - not known, so the next call asks again
            self._reward = None
        self._is_over = self._reward == 1.0 or self._coding._left <= 0 or bool(self._coding._spoiled)


def app_of(shelf: TaskShelf, options: CodingOptions | None = None, *, max_sessions: int = 16) -> Any:
    """Return the application that serves the tasks of a shelf."""
    make = coding_factory(shelf, options)
    tasks = itertools.cycle(sorted(shelf.tasks))
    lock = threading.Lock()

    def next_task() -> str:
        with lock:
            return next(tasks)

    return create_app(
        lambda: CodingServerEnvironment(make(), shelf, next_task),
        CallToolAction,
        CallToolObservation,
        env_name="coding",
        max_concurrent_envs=max_sessions,
        reset_observation_cls=Started,
    )


def serve(
    shelf: TaskShelf,
    port: int = 0,  # 0: a free one
    *,
    options: CodingOptions | None = None,
    max_sessions: int = 16,
    on_start: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the tasks on loopback until interrupted; anyone who can connect can run commands here."""
    import uvicorn

    config = uvicorn.Config(app_of(shelf, options, max_sessions=max_sessions), host=HOST, port=port,
                            log_level="warning")  # fmt: skip
    config.load()
    socket = config.bind_socket()
    socket.listen(64)
    on_start(f"http://{HOST}:{socket.getsockname()[1]}")
    uvicorn.Server(config).run(sockets=[socket])
