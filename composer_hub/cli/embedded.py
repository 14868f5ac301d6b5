"""`composer-hub hub …` and `composer-hub run -- CMD`: the embedded Hub from the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.output import Output

DEFAULT_USER = "me"


def data_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder of the Hub. Default: COMPOSER_HUB_HOME, else ~/.cache/composer_hub/hub.",
    )(command)


@click.group()
def hub() -> None:
    """Serve the embedded Hub, or print its environment."""


@hub.command()
@data_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port; 0 takes a free one.")
@click.option("--user", "users", multiple=True, metavar="NAME:TOKEN", help="A user; repeatable. Default: one, `me`.")
@click.option("--org", "orgs", multiple=True, metavar="NAME", help="An organisation all --user administer; repeatable.")
@click.option(
    "--users-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML or JSON with users, organisations and roles; instead of --user and --org.",
)
@click.option("--no-xet", is_flag=True, help="Offer LFS only, no Xet.")
@click.option("--allow-local-jobs", is_flag=True, help="Let Jobs run as commands of this machine, with your rights.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="One more Host that is served; repeatable.")
@click.option("--inject", default="", metavar="FAULTS", help="Faults for tests: 412,409:2,429,503:0.1,drop,lose.")
@click.option("--seed", default=0, show_default=True, help="Seed of the faults given as shares.")
@format_option
def serve(
    data: Path | None,
    host: str,
    port: int,
    users: Sequence[str],
    orgs: Sequence[str],
    users_file: Path | None,
    no_xet: bool,
    allow_local_jobs: bool,
    hosts: Sequence[str],
    inject: str,
    seed: int,
    out: Output,
) -> None:
    """Serve the Hub's protocol until interrupted; stock clients need only HF_ENDPOINT and HF_TOKEN."""
    from composer_hub.local_hub import accounts, server
    from composer_hub.local_hub.env import default_root

    root = (data or default_root()).absolute()
    if users_file and (users or orgs):
        raise exits.UsageError("--users-file says who there is; leave --user and --org out.")
    if users_file:
        everybody = accounts.read_accounts(users_file)
    else:
        everybody = accounts.accounts_from_words(users or [f"{DEFAULT_USER}:{server.own_token(root)}"], orgs)
    if host not in ("127.0.0.1", "localhost", "::1"):
        out.note(f"Listening on {host}: whoever reaches this port and has a token may read and write.")

    def announce(running: server.RunningHub) -> None:
        shown = {"endpoint": running.endpoint, "pid": running.pid, "data": str(root), "xet": running.with_xet}
        out.record(shown, id_key="endpoint")
        out.note(f'In another shell: eval "$(composer-hub hub env --data {root})". Ctrl-C stops.')

    settings = server.Settings(
        root,
        host,
        port,
        with_xet=not no_xet,
        allow_local_jobs=allow_local_jobs,
        allowed_hosts=tuple(hosts),
        inject=inject,
        seed=seed,
    )
    server.serve(settings, everybody, announce)


@hub.command()
@data_option
@click.option("--keep-home", is_flag=True, help="Keep HF_HOME and its caches, shared with the real Hub.")
@format_option
def env(data: Path | None, keep_home: bool, out: Output) -> None:
    """Print shell lines that point stock clients to the running Hub: eval "$(composer-hub hub env)"."""
    from composer_hub.local_hub.env import env_changes, shell_lines
    from composer_hub.local_hub.server import TOKEN

    running = _running(data)
    home = None if keep_home else running.root / "home"
    changes = env_changes(os.environ, running.endpoint, home=home, with_xet=running.with_xet)
    if out.mode == "json":
        out.record(changes | {"HF_TOKEN_PATH": str(running.root / TOKEN)}, id_key="HF_ENDPOINT")
    else:
        print("\n".join(shell_lines(changes, running.root / TOKEN)))


@hub.command()
@data_option
@format_option
def status(data: Path | None, out: Output) -> None:
    """Say whether the Hub of a folder runs, and where; exit 1 if it does not."""
    running = _running(data)
    shown = {"endpoint": running.endpoint, "pid": running.pid, "data": str(running.root), "xet": running.with_xet}
    out.record(shown, id_key="endpoint")


@hub.command()
@data_option
@format_option
def stop(data: Path | None, out: Output) -> None:
    """Stop the Hub of a folder; what it holds stays."""
    from composer_hub.local_hub.server import stop_running

    root = _root(data)
    if not stop_running(root):
        raise exits.NothingToDo(f"No embedded Hub serves {root}.")
    out.note(f"Stopped the embedded Hub of {root}.")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@data_option
@click.option("--fresh", is_flag=True, help="Use an empty Hub of its own, removed afterwards.")
@click.option("--no-xet", is_flag=True, help="Use LFS only: also for a Hub started for this command.")
@click.option("--allow-local-jobs", is_flag=True, help="With a Hub started for this command: let Jobs run here.")
@click.option("--keep-home", is_flag=True, help="Keep HF_HOME and its caches, shared with the real Hub.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    data: Path | None, fresh: bool, no_xet: bool, allow_local_jobs: bool, keep_home: bool, command: Sequence[str]
) -> None:
    """Run a command against the embedded Hub: composer-hub run -- python train.py. Leaves with its exit code."""
    from composer_hub.local_hub.server import embedded, start_server

    options = [*(["--no-xet"] if no_xet else []), *(["--allow-local-jobs"] if allow_local_jobs else [])]
    if fresh and data:
        raise exits.UsageError("--fresh makes a folder of its own; leave --data out.")
    if not fresh:
        raise SystemExit(_run(embedded(data and data.absolute(), options), command, no_xet, keep_home))
    with tempfile.TemporaryDirectory(prefix="composer-hub-") as folder, start_server(Path(folder), options) as server:
        code = _run(server.running, command, no_xet, keep_home)
    raise SystemExit(code)


def _run(running: Any, command: Sequence[str], no_xet: bool, keep_home: bool) -> int:
    """Run the command in the Hub's environment, pass signals on, and return what a shell would see."""
    from composer_hub.local_hub.env import client_env

    home = None if keep_home else running.root / "home"
    variables = client_env(
        os.environ, running.endpoint, running.token, home=home, with_xet=running.with_xet and not no_xet
    )
    try:
        process = subprocess.Popen(command, env=variables)
    except OSError as error:
        raise exits.UsageError(f"{command[0]!r} cannot be run ({error.strerror}). Check its name and PATH.") from error
    # Ctrl-C reaches the child by itself; SIGTERM comes to us alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    return code if code >= 0 else 128 - code


def _root(data: Path | None) -> Path:
    from composer_hub.local_hub.env import default_root

    return (data or default_root()).absolute()


def _running(data: Path | None) -> Any:
    from composer_hub.local_hub.server import ServerError, find_running

    root = _root(data)
    running = find_running(root)
    if running is None:
        raise ServerError(f"No embedded Hub serves {root}. Start one with `composer-hub hub serve --data {root}`.")
    return running
