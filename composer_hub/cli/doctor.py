"""`composer-hub doctor`: check token, endpoint, versions, extras and disk, without printing a secret."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from composer_hub import __version__, exits, extras
from composer_hub.cli.main import format_option
from composer_hub.cli.training_checks import Check, is_installed, training_checks
from composer_hub.output import Output, size

_LIBRARIES = ("huggingface_hub", "datasets", "hf-xet", "pyarrow", "click", "orjson")
_MIN_FREE = 5_000_000_000


@click.command(short_help="Check token, endpoint, extras and disk.")
@click.option("--offline", is_flag=True, help="Do not contact the endpoint.")
@click.option("--train", is_flag=True, help="Also check the machine for training: GPUs, memory, bf16, vLLM.")
@format_option
def doctor(offline: bool, train: bool, out: Output) -> None:
    """Check token, endpoint, versions, extras and disk."""
    checks = [*_here(), *([] if offline else _there()), *(training_checks() if train else [])]
    out.table([vars(check) for check in checks], id_key="name")
    broken = [check.name for check in checks if check.state == "broken"]
    if broken:
        raise exits.ComposerError(f"{', '.join(broken)}: see the advice above.")


def _here() -> Iterator[Check]:
    yield Check("composer_hub", "ok", f"{__version__} on Python {sys.version.split()[0]}")
    yield Check("libraries", "ok", ", ".join(f"{name} {metadata.version(name)}" for name in _LIBRARIES))
    for extra, names in _extras().items():
        missing = [name for name in names if not is_installed(name)]
        finding = f"without {', '.join(missing)}" if missing else "installed" if names else "not for this Python"
        advice = extras.install(extra) if missing else ""
        yield Check(f"extra [{extra}]", "warning" if missing else "ok", finding, advice)
    yield from _disk()
    yield from (_sandbox(), *_environment())


def _extras() -> dict[str, list[str]]:
    """Return the packages of each extra on this Python, as the installed metadata lists them."""
    from packaging.requirements import Requirement

    requirements = [Requirement(text) for text in metadata.requires("composer-hub") or ()]
    names = metadata.metadata("composer-hub").get_all("Provides-Extra") or ()
    return {
        extra: [one.name for one in requirements if one.marker and one.marker.evaluate({"extra": extra})]
        for extra in names
        if extra != "dev"
    }


def _disk() -> Iterator[Check]:
    from huggingface_hub.constants import HF_HOME

    for name, folder in (("disk of HF_HOME", Path(HF_HOME)), ("disk here", Path.cwd())):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(there).free
        low = free < _MIN_FREE
        advice = "Free some space: datasets and checkpoints need a few GB." if low else ""
        yield Check(name, "warning" if low else "ok", f"{size(free)} free at {there}", advice)


def _sandbox() -> Check:
    from composer_hub.environments.sandbox import described

    try:
        isolation, finding = described()
    except exits.ComposerError as error:
        return Check("sandbox", "warning", "none", str(error))
    return Check("sandbox", "ok", finding, "" if isolation == "bubblewrap" else "Install bubblewrap: it isolates more.")


def _environment() -> Iterator[Check]:
    for name, advice in (
        ("HF_HUB_OFFLINE", "Unset it: it blocks all publishing and loading, also with the embedded Hub."),
        ("HUGGINGFACE_CO_STAGING", "Unset it: it overrides HF_ENDPOINT."),
    ):
        if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
            yield Check(name, "broken", f"is set to {os.environ[name]!r}", advice)
    proxies = [
        name
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        if os.environ.get(name) or os.environ.get(name.lower())
    ]
    if proxies:
        finding = f"{', '.join(proxies)} set; composer-hub commands bypass it for 127.0.0.1"
        yield Check("proxy", "ok", finding)


def _there() -> Iterator[Check]:
    from huggingface_hub import HfApi

    api = HfApi()
    yield _checked("endpoint", lambda: _endpoint(api.endpoint))
    yield _checked("token", lambda: _token(api))


def _endpoint(address: str) -> Check:
    from huggingface_hub.utils import get_session

    get_session().get(f"{address}/api/models?limit=1", timeout=10).raise_for_status().json()
    return Check("endpoint", "ok", f"{address} answers")


def _token(api: Any) -> Check:
    from huggingface_hub import get_token

    if get_token() is None:
        return Check(
            "token",
            "warning",
            "none",
            "Log in with `hf auth login` to publish with --to hub; --to local needs no token.",
        )
    me = api.whoami()
    role = (me.get("auth") or {}).get("accessToken", {})
    scopes = [
        scope for entry in role.get("fineGrained", {}).get("scoped", ()) for scope in entry.get("permissions", ())
    ]
    finding = f"of {me['name']}, role {role.get('role', 'unknown')}" + (
        f", scopes {', '.join(sorted(set(scopes)))}" if scopes else ""
    )
    can_write = role.get("role") in ("write", "admin") or any("write" in scope for scope in scopes)
    advice = "" if can_write else f"It cannot write. Create a write token at {api.endpoint}/settings/tokens to publish."
    return Check("token", "ok" if can_write else "warning", finding, advice)


def _checked(name: str, check: Callable[[], Check]) -> Check:
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import httpx

    try:
        return check()
    except (HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status == 401:
            return Check(name, "broken", "not valid at this endpoint", "Log in again with `hf auth login`.")
        return Check(
            name, "warning", f"cannot be checked ({type(error).__name__})", "Check the network and HF_ENDPOINT."
        )
