"""A Space beside its files: secrets, variables, hardware, sleep time, volumes and a stage. No app is run.

A secret's value is never needed, so it is not kept: only its name, its description and the time of its last change are.
The stage follows the requests (pause, restart) and the files; `simulated` in the runtime says that nothing is behind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response

from composer_hub.local_hub.calls import ApiError, Call, Route, text_field
from composer_hub.local_hub.store import Repo

DEFAULT_HARDWARE = "cpu-basic"
MAX_VALUE = 65_536
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_FLAVOR = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_NOT_RUN = "The embedded Hub does not run Spaces. Start the app yourself (for Gradio: python app.py)."

Settings = dict[str, Any]


def kept_settings(asked: Mapping[str, Any], now: str) -> Settings:
    """Return what to keep of the settings in a request that creates a Space: no value of a secret is among them."""
    kept: Settings = {key: text_field(asked, key) for key in ("sdk", "hardware") if asked.get(key) is not None}
    if asked.get("sleepTimeSeconds") is not None:
        kept["sleep_time"] = _seconds(asked["sleepTimeSeconds"])
    if asked.get("volumes") is not None:
        kept["volumes"] = _objects(asked, "volumes")
    for name in ("secrets", "variables"):
        entries = [_entry(item, now, with_value=name == "variables") for item in _objects(asked, name)]
        kept[name] = {entry["key"]: entry for entry in entries}
    return kept


def _objects(body: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    items = body.get(key) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ApiError(400, f"The field {key!r} must be a list of objects.", "BadRequest")
    return items


def _entry(item: Mapping[str, Any], now: str, *, with_value: bool) -> dict[str, Any]:
    """Check a secret or variable as it comes in a request, and return what is kept of it."""
    key, value, description = text_field(item, "key"), text_field(item, "value"), item.get("description")
    if not _KEY.fullmatch(key):
        raise ApiError(400, f"{key[:80]!r} cannot name a variable: use letters, digits and '_'.", "BadRequest")
    if len(value) > MAX_VALUE or not isinstance(description, (str, type(None))):
        raise ApiError(400, f"The value of {key} is too long, or its description is not a text.", "BadRequest")
    return {"key": key, "description": description, "updatedAt": now} | ({"value": value} if with_value else {})


def runtime(repo: Repo, *, has_app: bool = True) -> dict[str, Any]:
    """Return the runtime of a Space as clients read it."""
    settings = repo.settings
    stage = settings.get("stage") or ("RUNNING" if has_app else "NO_APP_FILE")
    hardware = settings.get("hardware") or DEFAULT_HARDWARE
    return {
        "stage": stage,
        "hardware": {"current": None if stage == "PAUSED" else hardware, "requested": hardware},
        "gcTimeout": settings.get("sleep_time"),
        "storage": None,
        "volumes": settings.get("volumes"),
        "devMode": False,
        "replicas": {"current": 0, "requested": 1},
        "simulated": True,
    }


def details(repo: Repo) -> dict[str, Any]:
    """Return what a Space adds to its repository's info."""
    return {"runtime": runtime(repo)} if repo.kind == "space" else {}


def _has_app(call: Call, repo: Repo) -> bool:
    """Say whether main holds something that a Space could start."""
    tree = call.store.tree(repo, call.store.resolve(repo, "main"))
    return any(path in tree for path in ("app.py", "index.html", "Dockerfile", "streamlit_app.py"))


def _space(call: Call, *, write: bool = False) -> Repo:
    return call.repo(kind="space", write=write)


async def _change(call: Call, change: Callable[[Settings], None]) -> Repo:
    """Change a Space's settings in one transaction, so that two changes at once both last."""
    repo = _space(call, write=True)

    def apply() -> Repo:
        with call.store.write():
            settings = dict(call.store.repo_by_id(repo.id).settings)
            change(settings)
            return call.store.update_repo(repo, settings=settings)

    return await call.write(apply)


def _runtime_answer(call: Call, repo: Repo) -> Response:
    return call.json(runtime(repo, has_app=_has_app(call, repo)))


# ---------------------------------------------------------------------------------------------------------- requests


async def list_secrets(call: Call) -> Response:
    """Answer names, never values; only those who write to the Space may see even the names."""
    return call.json(_space(call, write=True).settings.get("secrets") or {})


async def list_variables(call: Call) -> Response:
    return call.json(_space(call, write=True).settings.get("variables") or {})


async def put_secret(call: Call) -> Response:
    return await _put(call, "secrets")


async def put_variable(call: Call) -> Response:
    return await _put(call, "variables")


async def delete_secret(call: Call) -> Response:
    return await _delete(call, "secrets")


async def delete_variable(call: Call) -> Response:
    return await _delete(call, "variables")


async def _put(call: Call, name: str) -> Response:
    _space(call, write=True)
    entry = _entry(await call.json_body(), call.store.now(), with_value=name == "variables")
    other = "variables" if name == "secrets" else "secrets"

    def put(settings: Settings) -> None:
        if entry["key"] in (settings.get(other) or {}):
            raise ApiError(409, f"{entry['key']} already exists among the {other}. Delete it there first.")
        settings[name] = {**(settings.get(name) or {}), entry["key"]: entry}

    return call.json((await _change(call, put)).settings[name])


async def _delete(call: Call, name: str) -> Response:
    _space(call, write=True)
    key = text_field(await call.json_body(), "key")

    def delete(settings: Settings) -> None:
        if key not in (settings.get(name) or {}):
            raise ApiError(404, f"This Space has no {key[:80]!r} among its {name}.")
        settings[name] = {other: entry for other, entry in settings[name].items() if other != key}

    return call.json((await _change(call, delete)).settings[name])


async def show_runtime(call: Call) -> Response:
    return _runtime_answer(call, _space(call))


async def set_hardware(call: Call) -> Response:
    """Note the hardware that is asked for; asking for it also starts a paused Space."""
    _space(call, write=True)
    body = await call.json_body()
    flavor, sleep = text_field(body, "flavor"), body.get("sleepTimeSeconds")
    if not _FLAVOR.fullmatch(flavor):
        raise ApiError(400, f"{flavor[:80]!r} is not the name of a hardware, such as cpu-basic.", "BadRequest")

    def change(settings: Settings) -> None:
        settings.pop("stage", None)
        settings["hardware"] = flavor
        if sleep is not None:
            settings["sleep_time"] = _seconds(sleep)

    return _runtime_answer(call, await _change(call, change))


async def set_sleep_time(call: Call) -> Response:
    _space(call, write=True)
    seconds = _seconds((await call.json_body()).get("seconds"))
    return _runtime_answer(call, await _change(call, lambda settings: settings.update(sleep_time=seconds)))


def _seconds(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < -1:
        raise ApiError(400, "A sleep time is a whole number of seconds, or -1 for never.", "BadRequest")
    return value


async def pause(call: Call) -> Response:
    return _runtime_answer(call, await _change(call, lambda settings: settings.update(stage="PAUSED")))


async def restart(call: Call) -> Response:
    def change(settings: Settings) -> None:
        settings.pop("stage", None)

    return _runtime_answer(call, await _change(call, change))


async def set_volumes(call: Call) -> Response:
    _space(call, write=True)
    volumes = _objects(await call.json_body(), "volumes")
    return _runtime_answer(call, await _change(call, lambda settings: settings.update(volumes=volumes)))


async def delete_volumes(call: Call) -> Response:
    return _runtime_answer(call, await _change(call, lambda settings: settings.update(volumes=None)))


async def list_hardware(call: Call) -> Response:
    """Answer the one hardware there is: none is rented here."""
    shown = {"name": DEFAULT_HARDWARE, "prettyName": "Embedded Hub (nothing is run)", "cpu": "-", "ram": "-"}
    return call.json([shown | {"accelerator": None, "unitCostMicroUSD": 0, "unitCostUSD": 0.0, "unitLabel": "minute"}])


async def logs(call: Call) -> Response:
    """Answer a log stream of one line, which explains why there are no more."""
    _space(call, write=True)
    if call.args["log"] not in ("run", "build"):
        raise ApiError(404, f"A Space has the logs run and build, not {call.args['log'][:40]!r}.")
    line = json.dumps({"data": _NOT_RUN, "timestamp": call.store.now()})
    return Response(f"data: {line}\n\n", media_type="text/event-stream")


_SPACE = "/api/spaces/{ns}/{name}"

ROUTES = (
    Route("GET", "/api/spaces/hardware", list_hardware),
    Route("GET", f"{_SPACE}/secrets", list_secrets),
    Route("POST", f"{_SPACE}/secrets", put_secret),
    Route("DELETE", f"{_SPACE}/secrets", delete_secret),
    Route("GET", f"{_SPACE}/variables", list_variables),
    Route("POST", f"{_SPACE}/variables", put_variable),
    Route("DELETE", f"{_SPACE}/variables", delete_variable),
    Route("GET", f"{_SPACE}/runtime", show_runtime),
    Route("POST", f"{_SPACE}/hardware", set_hardware),
    Route("POST", f"{_SPACE}/sleeptime", set_sleep_time),
    Route("POST", f"{_SPACE}/pause", pause),
    Route("POST", f"{_SPACE}/restart", restart),
    Route("PUT", f"{_SPACE}/volumes", set_volumes),
    Route("DELETE", f"{_SPACE}/volumes", delete_volumes),
    Route("GET", f"{_SPACE}/logs/{{log}}", logs),
)
