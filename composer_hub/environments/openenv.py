"""OpenEnv servers as environments: a URL or a container image in, a factory of sessions with the server's tools out.

TRL 1.16 has an OpenEnv adapter only for its asynchronous trainer. This one makes the class that `GRPOTrainer` needs
from the server's description: one method per tool of an MCP environment, or one method `act` with the fields of the
action. The `openenv` package is imported when a session is made.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union
from urllib.parse import urlsplit

from composer_hub import exits, extras
from composer_hub.environments.guard import Broken, EnvironmentFailed
from composer_hub.environments.world import NOT_TOOLS

TOKEN = "OPENENV_TOKEN"
"""The environment variable with a bearer token for the server."""

_REWARDS = ("last", "sum")
_TYPES: Mapping[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict}
_SECTIONS = re.compile(r"^\s*(?:Args|Arguments|Parameters|Returns|Raises|Yields|Examples?)\s*:\s*$", re.MULTILINE)
_DAY_S = 86_400.0


def check(rest: str) -> None:
    """Refuse a name without a server, a password in it, and a missing package."""
    if not rest:
        raise exits.UsageError("openenv: does not name a server. Write openenv:http://host:port or openenv:image.")
    if _is_url(rest) and urlsplit(rest).password:
        raise exits.UsageError(f"Names of environments are published. Put the token into {TOKEN}, not into the URL.")
    extras.need(f"openenv:{rest}", "openenv", "openenv")


def factory_of(rest: str, *, reward: str = "last", timeout_s: float | None = None) -> Callable[[], Any]:
    """Return a factory of sessions; the first one asks its server for the tools."""
    if reward not in _REWARDS:
        raise exits.UsageError(f"openenv_reward is {' or '.join(_REWARDS)}, not {reward!r}.")
    kinds: list[type[OpenEnvSession]] = []

    def make() -> OpenEnvSession:
        client = _connect(rest, timeout_s)
        if not kinds:
            kinds.append(session_kind(tools_of(client)))
        return kinds[0](client, reward)

    return make


def _is_url(rest: str) -> bool:
    return rest.startswith(("http://", "https://", "ws://", "wss://"))


def _connect(rest: str, timeout_s: float | None) -> Any:
    from openenv.core import GenericEnvClient

    if not _is_url(rest):
        return GenericEnvClient.from_docker_image(rest).sync()
    # Sessions are guarded like every environment; the client's own limit of a minute would be a second one.
    client = GenericEnvClient(
        base_url=rest,
        message_timeout_s=timeout_s or _DAY_S,
        headers=_headers() or None,
    ).sync()
    try:
        return client.connect()
    except Exception as error:
        raise EnvironmentFailed(
            f"No OpenEnv server answers at {rest} ({type(error).__name__}: {error}). Is it running?"
        ) from error


def _headers() -> dict[str, str]:
    token = os.environ.get(TOKEN)
    return {"Authorization": f"Bearer {token}"} if token else {}


class OpenEnvSession:
    """One connection for one episode after another; subclasses have the server's tools as methods."""

    def __init__(self, client: Any, reward: str) -> None:
        self._client, self._reward = client, reward
        self._rewards: list[float] = []
        self._done = False
        # Ends the session on the server or the container that was started for it, also at exit.
        weakref.finalize(self, client.close)

    def reset(self, **row: Any) -> str | None:
        """Begin an episode; the server picks the columns of the task that it knows."""
        self._rewards, self._done = [], False
        data = {name: value for name, value in row.items() if name != "prompt"}
        return _text(self._note(_asked(lambda: self._client.reset(**data))))

    def get_reward(self) -> float:
        # An episode without actions or rewards has earned nothing.
        return sum(self._rewards if self._reward == "sum" else self._rewards[-1:])

    def _step(self, action: dict[str, Any]) -> Any:
        if self._done:
            raise RuntimeError("The episode is over: the environment takes no more actions.")
        return self._note(_asked(lambda: self._client.step(action)))

    def _note(self, result: Any) -> dict[str, Any]:
        if result.reward is not None:
            self._rewards.append(float(result.reward))
        self._done = bool(result.done)
        return dict(result.observation or {})

    def _act(self, **action: Any) -> str:
        return _text(self._step(action)) or "Done."

    def _call(self, tool: str, **arguments: Any) -> str:
        seen = self._step({"type": "call_tool", "tool_name": tool, "arguments": arguments})
        if seen.get("error"):
            raise RuntimeError(str(seen["error"].get("message") or seen["error"]))
        result = seen.get("result")
        if isinstance(result, dict) and "data" in result:  # as FastMCP wraps it
            if result.get("is_error"):
                raise RuntimeError(str(result.get("data") or result.get("content")))
            result = result["data"]
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _asked(ask: Callable[[], Any]) -> Any:
    """Call the server; a broken connection makes the environment unusable, an error in its answer does not."""
    from websockets.exceptions import WebSocketException

    try:
        return ask()
    except (OSError, WebSocketException) as error:  # ConnectionError and TimeoutError are among them
        raise Broken(f"the server does not answer ({type(error).__name__}: {error})") from error


def _text(observation: Mapping[str, Any]) -> str | None:
    """Return the text for the model: the only text of the observation, or all of it as JSON."""
    fields = {name: value for name, value in observation.items() if name != "metadata" and value is not None}
    if len(fields) == 1 and isinstance(value := next(iter(fields.values())), str):
        return value
    return json.dumps(fields, ensure_ascii=False) if fields else None


# --------------------------------------------------------------------------------------------------------------- tools


def tools_of(client: Any) -> list[dict[str, Any]]:
    """Return the server's tools with their input schemas; the one tool `act` if it is not an MCP environment."""
    from huggingface_hub.utils import httpx

    base = re.sub(r"^ws", "http", str(client.async_client._base_url)).rstrip("/").removesuffix("/ws")
    action = httpx.get(f"{base}/schema", headers=_headers(), timeout=30).raise_for_status().json()["action"]
    fields = {name: field for name, field in action.get("properties", {}).items() if name != "metadata"}
    if fields and "tool_name" not in fields:
        description = str(action.get("description") or "Take one action in the environment.")
        schema = action | {"properties": fields}
        return [{"name": "act", "description": description, "input_schema": schema, "is_action": True}]
    return client.step({"type": "list_tools"}).observation["tools"]


def session_kind(tools: Sequence[Mapping[str, Any]]) -> type[OpenEnvSession]:
    """Make the class whose public methods are the server's tools."""
    methods: dict[str, Any] = {}
    for tool in tools:
        name = str(tool["name"])
        if name in NOT_TOOLS or name.startswith("_"):
            raise EnvironmentFailed(f"The OpenEnv server has a tool {name!r}, a reserved name. Rename it there.")
        methods[name] = _method(name, tool)
    if not methods:
        raise EnvironmentFailed("The OpenEnv server has no tools, so a model could not act.")
    return type("OpenEnv", (OpenEnvSession,), methods)


def _method(name: str, tool: Mapping[str, Any]) -> Callable[..., str]:
    is_action = tool.get("is_action", False)

    def method(self: OpenEnvSession, **arguments: Any) -> str:
        return self._act(**arguments) if is_action else self._call(name, **arguments)

    schema = tool.get("input_schema") or {}
    definitions = schema.get("$defs", {})
    required, fields = set(schema.get("required", ())), schema.get("properties", {})
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = [
            inspect.Parameter(
                field,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field in required else says.get("default"),
                annotation=_hint(says, definitions),
            )
            for field, says in fields.items()
        ]
    except ValueError as error:
        raise EnvironmentFailed(f"The OpenEnv server's tool {name} cannot be called from Python: {error}.") from error
    method.__name__ = method.__qualname__ = name
    method.__signature__ = inspect.Signature([own, *parameters], return_annotation=str)  # type: ignore[attr-defined]
    method.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": str}
    method.__doc__ = _docstring(name, str(tool.get("description") or ""), fields)
    return method


def _docstring(name: str, description: str, fields: Mapping[str, Any]) -> str:
    """Write the docstring that transformers parses into a schema, without the server's own sections."""
    from transformers.utils.chat_template_utils import parse_google_format_docstring

    head = " ".join(_SECTIONS.split(description)[0].split()) or name
    # MCP servers made from Python functions describe the arguments in the description.
    described = parse_google_format_docstring(inspect.cleandoc(description))[1] or {} if description else {}
    lines = [
        f"    {field}: {' '.join(str(schema.get('description') or described.get(field) or field).split())}"
        for field, schema in fields.items()
    ]
    return "\n".join([head, *(["", "Args:", *lines] if lines else [])])


def _hint(says: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    """Return the type hint of a JSON schema."""
    if "$ref" in says:
        return _hint(definitions.get(str(says["$ref"]).rsplit("/", 1)[-1], {}), {})
    if says.get("enum"):
        return Literal[tuple(says["enum"])]
    kinds = says.get("anyOf") or says.get("oneOf")
    if kinds:
        return _either([_hint(kind, definitions) for kind in kinds])
    kind = says.get("type")
    if isinstance(kind, list):
        return _either([_hint({**says, "type": one}, definitions) for one in kind])
    if kind == "null":
        return type(None)
    if kind == "array":
        return list[_hint(says["items"], definitions)] if says.get("items") else list  # type: ignore[misc]
    return _TYPES.get(str(kind), Any)


def _either(hints: Sequence[Any]) -> Any:
    return Union[tuple(hints)]  # noqa: UP007 (made at run time)
