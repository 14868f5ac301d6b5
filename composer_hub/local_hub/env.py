"""The environment in which stock clients meet the embedded Hub and nothing else: variables in, variables out.

`HF_ENDPOINT` is read when the client libraries are imported, so it must be in the environment of a new process.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from composer_hub.local_hub.errors import LocalHubUsageError

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Offline switches also forbid loopback. Others would send another token, none, or to another place.
DROPPED = (
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "HF_DATASETS_OFFLINE",
    "HUGGING_FACE_HUB_TOKEN",
    "HUGGINGFACE_HUB_TOKEN",
    "HF_TOKEN_PATH",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN",
)
# A cache is keyed by the name of a repository: shared with the real Hub, `me/x` of the one would answer for the other.
CACHES = (
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HUGGINGFACE_ASSETS_CACHE",
    "HF_ASSETS_CACHE",
    "HF_XET_CACHE",
    "HF_DATASETS_CACHE",
    "HF_MODULES_CACHE",
    "TRANSFORMERS_CACHE",
)


class EnvironmentRefused(LocalHubUsageError):
    """The environment holds a setting under which clients would not reach the embedded Hub."""


def client_env(
    base: Mapping[str, str], endpoint: str, token: str, *, home: Path | None = None, with_xet: bool = True
) -> dict[str, str]:
    """Return `base` changed so that stock clients talk to the embedded Hub; with `home`, their caches are its own."""
    changes = env_changes(base, endpoint, home=home, with_xet=with_xet) | {"HF_TOKEN": token}
    kept = {key: value for key, value in base.items() if key not in changes}
    return kept | {key: value for key, value in changes.items() if value is not None}


def env_changes(
    base: Mapping[str, str], endpoint: str, *, home: Path | None = None, with_xet: bool = True
) -> dict[str, str | None]:
    """Return the variables to set (or with None, to unset), all but the token."""
    if base.get("HUGGINGFACE_CO_STAGING", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise EnvironmentRefused(
            "HUGGINGFACE_CO_STAGING is set: clients would ignore HF_ENDPOINT and talk to the staging Hub. Unset it."
        )
    changes: dict[str, str | None] = {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_TELEMETRY": "1"}
    changes |= {key: without_proxy(base) for key in ("NO_PROXY", "no_proxy")}
    changes |= {key: None for key in DROPPED if key in base}
    changes["HF_HUB_DISABLE_XET"] = None if with_xet else "1"
    if home is not None:
        changes |= {key: None for key in CACHES if key in base}
        changes["HF_HOME"] = str(home)
    return {key: value for key, value in changes.items() if value is not None or key in base}


def without_proxy(base: Mapping[str, str]) -> str:
    """Return NO_PROXY with the loopback names, unless a wildcard covers them."""
    named = f"{base.get('NO_PROXY', '')},{base.get('no_proxy', '')}"
    hosts = dict.fromkeys(host.strip() for host in named.split(",") if host.strip())
    return "*" if "*" in hosts else ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])


def shell_lines(changes: Mapping[str, str | None], token_file: Path) -> list[str]:
    """Return the changes for `eval "$(…)"`; the token stays in its file and is never printed."""
    lines = [
        f"unset {key}" if value is None else f"export {key}={shlex.quote(value)}" for key, value in changes.items()
    ]
    return [*lines, f'export HF_TOKEN="$(cat {shlex.quote(str(token_file))})"']


def default_root(base: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this user's own embedded Hub."""
    if named := base.get("COMPOSER_HUB_HOME"):
        return Path(named).expanduser()
    cache = base.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "composer_hub" / "hub"
