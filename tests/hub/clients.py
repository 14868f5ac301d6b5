"""The embedded Hub of the tests as a destination."""

from __future__ import annotations

from typing import Any

from huggingface_hub import HfApi

from composer_hub.hub import HubDestination, Patience
from composer_hub.local_hub.server import ServerProcess


def hub_at(server: ServerProcess, token: str = "", **patience: Any) -> HubDestination:
    """Return the server as a destination that does not sleep between tries."""
    waits = {"sleep": lambda seconds: None, "jitter": lambda: 0.0} | patience
    return HubDestination("local", HfApi(endpoint=server.endpoint, token=token or server.token), Patience(**waits))
