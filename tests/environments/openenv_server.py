"""A tiny OpenEnv server on loopback: `python openenv_server.py gym|mcp|add` prints the port it listens on."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from pydantic import Field


class Sum(Action):
    """Add two numbers."""

    a: int = Field(description="First.")
    b: int = Field(default=0, description="Second.")


class Answer(Observation):
    said: str = ""


class SumEnvironment(Environment):
    """Wants one sum; the first action ends the episode."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: Any = None, episode_id: Any = None, a: int = 0, b: int = 0, **_: Any) -> Answer:
        self.wanted = a + b
        return Answer(said=f" Use the tool for {a}+{b}.")

    def step(self, action: Any, timeout_s: Any = None, **_: Any) -> Answer:
        if action.a == 66:
            os._exit(1)
        if action.a == 77:
            time.sleep(60)
        right = action.a + action.b == self.wanted
        return Answer(said=str(action.a + action.b), reward=float(right), done=True)

    @property
    def state(self) -> State:
        return State()


def mcp_environment(*, may_fail: bool) -> Any:
    from fastmcp import FastMCP
    from openenv.core.env_server.mcp_environment import MCPEnvironment
    from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation

    class Tools(MCPEnvironment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            server = FastMCP("sums")

            @server.tool
            def add(a: int, b: int) -> int:
                """Add two numbers.

                Args:
                    a: First.
                    b: Second.
                """
                self.got = a + b
                return a + b

            def fail(why: str) -> str:
                """Fail."""
                raise ValueError(why)

            if may_fail:
                server.tool(fail)
            super().__init__(server)

        def reset(self, seed: Any = None, episode_id: Any = None, a: int = 0, b: int = 0, **_: Any) -> Observation:
            self.wanted, self.got = a + b, None
            return Observation()

        def step(self, action: Any, timeout_s: Any = None, **options: Any) -> Observation:
            seen = super().step(action, timeout_s=timeout_s, **options)
            seen.reward = float(self.got == self.wanted)
            return seen

        async def step_async(self, action: Any, timeout_s: Any = None, **options: Any) -> Observation:
            seen = await super().step_async(action, timeout_s=timeout_s, **options)
            seen.reward = float(getattr(self, "got", None) == getattr(self, "wanted", ""))
            return seen

        def _step_impl(self, action: Any, timeout_s: Any = None, **_: Any) -> Observation:
            raise TypeError("there are only tools here")

        @property
        def state(self) -> State:
            return State()

    return create_app(Tools, CallToolAction, CallToolObservation, env_name="sums", max_concurrent_envs=16)


def main(kind: str) -> None:
    if kind == "gym":
        app = create_app(SumEnvironment, Sum, Answer, max_concurrent_envs=16)
    else:
        app = mcp_environment(may_fail=kind == "mcp")  # without it, its tools are those the tiny model knows
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    config.load()
    socket = config.bind_socket()
    socket.listen(64)
    print(socket.getsockname()[1], flush=True)
    server.run(sockets=[socket])


if __name__ == "__main__":
    main(sys.argv[1])
