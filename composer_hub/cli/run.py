"""`composer-hub run -- CMD`: run a command against the embedded Hub."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from composer_hub import exits
from composer_hub.cli.embedded import data_option
from composer_hub.local_hub.env import client_env
from composer_hub.local_hub.server import RunningHub, embedded, start_server

_PR_SET_PDEATHSIG = 1


@click.command(
    short_help="Run a command against the embedded Hub.",
    context_settings={"allow_interspersed_args": False},
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
        become(command, environment(embedded(data and data.absolute(), options), no_xet, keep_home))
    with tempfile.TemporaryDirectory(prefix="composer-hub-") as folder, start_server(Path(folder), options) as server:
        code = carried_out(command, environment(server.running, no_xet, keep_home))
    raise SystemExit(code)


def environment(running: RunningHub, no_xet: bool, keep_home: bool) -> dict[str, str]:
    """Return the environment in which every client uses this Hub."""
    home = None if keep_home else running.root / "home"
    variables = client_env(
        os.environ, running.endpoint, running.token, home=home, with_xet=running.with_xet and not no_xet
    )
    return variables | {"COMPOSER_HUB_HOME": str(running.root)}  # so that --to local means this Hub


def become(command: Sequence[str], variables: dict[str, str]) -> NoReturn:
    """Replace this process by the command, so that nothing comes between it and its signals."""
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and a program would inherit that
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(command[0], [*command], variables)
    except OSError as error:
        raise _not_run(command, error) from error


def carried_out(command: Sequence[str], variables: dict[str, str]) -> int:
    """Run the command, forward signals, and return its exit code as a shell does."""
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int, frame: Any) -> None:
        if not started:
            early.append(number)
        elif number != signal.SIGINT:  # Ctrl-C reaches the command directly
            started[0].send_signal(number)

    # Before the start, so that none is lost. A command inherits what is ignored, but no handler.
    for number in (signal.SIGINT, *exits.END_SIGNALS):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    try:
        started.append(subprocess.Popen(command, env=variables, preexec_fn=_end_with_parent))
    except OSError as error:
        raise _not_run(command, error) from error
    for number in early:
        forward(number, None)
    code = started[0].wait()
    return code if code >= 0 else 128 - code


def _end_with_parent() -> None:
    """Have the kernel end this process with the one that started it, which on Linux also covers `kill -9`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _not_run(command: Sequence[str], error: OSError) -> exits.UsageError:
    return exits.UsageError(f"{command[0]!r} cannot be run ({error.strerror}). Check its name and PATH.")
