"""`composer-hub space`: look at published pairs, hints, runs and tasks here, or put the same app on the Hub."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.output import Output

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from composer_hub.hub import HubDestination

NEEDED = ("gradio", "duckdb", "rapidfuzz")
START_SECONDS = 60.0
_WITH_HELP = "One more dataset to show: rollouts, traces or tasks; repeatable."


@click.group(short_help="Inspect and review datasets in a Space.")
def space() -> None:
    """Inspect and review published datasets in a Space."""


def hub_option(command: Any) -> Any:
    """Give a command `--to` without folders: an app reads datasets over the Hub's protocol."""
    choice = click.Choice(["local", "hub"])
    return click.option("--to", type=choice, default="local", show_default=True, help="Hub: embedded or real.")(command)


@space.command("open", short_help="Open datasets in a local Space.")
@click.argument("ref", metavar="REPO@REV")
@click.option("--with", "others", multiple=True, metavar="REPO@REV", help=_WITH_HELP)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port; 0 takes a free one.")
@click.option("--no-browser", is_flag=True, help="Print the URL and open nothing.")
@hub_option
@format_option
def open_space(ref: str, others: Sequence[str], port: int, no_browser: bool, to: str, out: Output) -> None:
    """Serve the Space on this machine and open it, until interrupted."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise exits.UsageError(f'The Space needs {", ".join(missing)}: pip install "composer-hub[space]".')
    names = _existing(to, [ref, *others])
    port = port or _free_port()
    url = f"http://127.0.0.1:{port}/"
    env = _env(to) | {
        "SPACE_DATASETS": " ".join(names),
        "GRADIO_SERVER_NAME": "127.0.0.1",
        "GRADIO_SERVER_PORT": str(port),
    }
    process = subprocess.Popen([sys.executable, str(app_folder() / "app.py")], env=env, stdout=subprocess.DEVNULL)
    try:
        _wait(process, url)
        out.record({"url": url, "datasets": names}, id_key="url")
        out.note("Ctrl-C stops.")
        if not no_browser:
            webbrowser.open(url)
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if code:
        raise exits.ComposerError(f"The Space ended with exit code {code}; its messages are above.")


@space.command(short_help="Deploy the Space to the Hub.")
@click.argument("ref", metavar="REPO@REV")
@click.option("--with", "others", multiple=True, metavar="REPO@REV", help=_WITH_HELP)
@click.option("--space", "name", metavar="OWNER/NAME", help="Space to write. Default: the dataset's name + -space.")
@click.option("--org", metavar="NAME", help="Organization whose members alone may sign in.")
@click.option("--public", is_flag=True, help="Let everyone open the Space; private otherwise.")
@click.option("--dry-run", is_flag=True, help="Print the files and write nothing.")
@hub_option
@format_option
def deploy(
    ref: str,
    others: Sequence[str],
    name: str | None,
    org: str | None,
    public: bool,
    dry_run: bool,
    to: str,
    out: Output,
) -> None:
    """Write the Space to the Hub in one commit, with the datasets at pinned revisions."""
    from huggingface_hub import CommitOperationAdd
    from huggingface_hub.errors import HfHubHTTPError

    from composer_hub.hub import check_repo

    pinned = _existing(to, [ref, *others], pin=True)
    name = name or f"{pinned[0].split('@')[0]}-space"
    check_repo(name)
    files = app_files(pinned, org)
    if dry_run:
        out.table([{"file": path, "bytes": len(content)} for path, content in files.items()], id_key="file")
        out.note(f"Would write {len(files)} files to the Space {name} for {', '.join(pinned)}.")
        return
    api = _destination(to).api
    try:
        api.create_repo(name, repo_type="space", space_sdk="gradio", private=not public, exist_ok=True)
        if not public and not api.repo_info(name, repo_type="space").private:
            raise exits.Refused(f"The Space {name} is public. Make it private first, or add --public.")
        commit = api.create_commit(
            name,
            [CommitOperationAdd(path, content) for path, content in files.items()],
            commit_message=f"Show {', '.join(pinned)}"[:72],
            repo_type="space",
        )
    except HfHubHTTPError as error:
        raise _explained(name, error) from error
    out.record({"space": name, "revision": commit.oid, "url": _address(api, name), "datasets": pinned}, id_key="space")


# --------------------------------------------------------------------------------------------------------------- files


def app_folder() -> Path:
    """Return the folder of the app: in the installed package, else in the checkout."""
    packaged = Path(str(resources.files("composer_hub") / "space_app"))
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "space"


def app_files(pinned: Sequence[str], org: str | None = None) -> Mapping[str, bytes]:
    """Return what a deployed Space consists of: path -> content."""
    root = app_folder()
    paths = [path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    files["space.json"] = json.dumps({"datasets": list(pinned)}, indent=2).encode() + b"\n"
    readme = files["README.md"].decode()
    head = "datasets:\n" + "".join(f"  - {one.split('@')[0]}\n" for one in pinned)
    if org:
        head += f"hf_oauth_authorized_org: {org}\n"
    files["README.md"] = re.sub(r"\A---\n", f"---\n{head}", readme).encode()
    return files


# ------------------------------------------------------------------------------------------------------------ the Hub


def _destination(to: str) -> HubDestination:
    from composer_hub.hub import HubDestination, destination

    where = destination(to)
    assert isinstance(where, HubDestination)  # --to has no folders here
    return where


def _existing(to: str, refs: Sequence[str], *, pin: bool = False) -> list[str]:
    """Check that every dataset is there and was published by composer_hub; `pin` replaces tags by commits."""
    from composer_hub.hub import load

    versions = [load(_destination(to), ref if "@" in ref else f"{ref}@main") for ref in refs]
    return [f"{one.repo}@{one.revision if pin or not one.tag else one.tag}" for one in versions]


def _env(to: str) -> dict[str, str]:
    if to == "hub":
        return dict(os.environ)
    from composer_hub.local_hub.env import client_env
    from composer_hub.local_hub.server import embedded

    running = embedded()
    return client_env(
        os.environ, running.endpoint, running.token, home=running.root / "home", with_xet=running.with_xet
    )


def _address(api: HfApi, name: str) -> str:
    return f"{api.endpoint}/spaces/{name}"


def _explained(name: str, error: Any) -> Exception:
    from composer_hub.hub.destinations import sentence, status_of

    if status_of(error) == 402:
        return exits.Refused(
            f"{name}: {sentence(error)} The account's plan or credit does not cover this Space. Use the free hardware "
            "(cpu-basic), make room in the account's private storage, or deploy with --public."
        )
    return exits.ComposerError(f"{name} could not be written: {sentence(error)}")


# -------------------------------------------------------------------------------------------------------------- server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    """Wait until the app answers."""
    from huggingface_hub.utils import httpx

    until = time.monotonic() + START_SECONDS
    with httpx.Client(trust_env=False, timeout=2) as client:
        while time.monotonic() < until:
            if process.poll() is not None:
                raise exits.ComposerError(f"The Space ended at its start with exit code {process.returncode}.")
            with contextlib.suppress(httpx.HTTPError):
                if client.get(f"{url}healthz").status_code == 200:
                    return
            time.sleep(0.1)
    raise exits.ComposerError(f"The Space did not answer at {url} within {START_SECONDS:.0f} s.")
