"""`composer-hub run -- CMD`: run a command against the embedded Hub."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from composer_hub import exits
from composer_hub.cli.embedded import data_option
from composer_hub.local_hub.env import client_env
from composer_hub.local_hub.server import embedded, start_server


@click.command(
    short_help="Run a command against the embedded Hub.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@data_option
@click.option("--fresh", is_flag=True, help="Use a new, empty Hub and remove it afterwards.")
@click.option("--no-xet", is_flag=True, help="Use only LFS, also in a Hub that this command starts.")
@click.option("--allow-local-jobs", is_flag=True, help="Run jobs on this machine, if this command starts the Hub.")
@click.option("--keep-home", is_flag=True, help="Share HF_HOME and its caches with the real Hub.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    data: Path | None, fresh: bool, no_xet: bool, allow_local_jobs: bool, keep_home: bool, command: Sequence[str]
) -> None:
    """Run a command against the embedded Hub and exit with its code: composer-hub run -- python train.py."""
    options = [*(["--no-xet"] if no_xet else []), *(["--allow-local-jobs"] if allow_local_jobs else [])]
    if fresh and data:
        raise exits.UsageError("--fresh and --data exclude each other.")
    if not fresh:
        raise SystemExit(_run(embedded(data and data.absolute(), options), command, no_xet, keep_home))
    with tempfile.TemporaryDirectory(prefix="composer-hub-") as folder, start_server(Path(folder), options) as server:
        code = _run(server.running, command, no_xet, keep_home)
    raise SystemExit(code)


def _run(running: Any, command: Sequence[str], no_xet: bool, keep_home: bool) -> int:
    """Run the command in the environment of the Hub, forward signals, and return its exit code as a shell does."""
    home = None if keep_home else running.root / "home"
    variables = client_env(
        os.environ, running.endpoint, running.token, home=home, with_xet=running.with_xet and not no_xet
    )
    variables["COMPOSER_HUB_HOME"] = str(running.root)  # so that --to local means this Hub
    try:
        process = subprocess.Popen(command, env=variables)
    except OSError as error:
        raise exits.UsageError(f"{command[0]!r} cannot be run ({error.strerror}). Check its name and PATH.") from error
    # Ctrl-C reaches the child directly; SIGTERM reaches only this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    return code if code >= 0 else 128 - code
