"""`composer-hub hub`: serve the embedded Hub, look at it, or stop it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from composer_hub import exits
from composer_hub.cli.browse import open_page
from composer_hub.cli.grouped import options_of
from composer_hub.cli.main import format_option
from composer_hub.cli.paths import FILE
from composer_hub.cli.upkeep import check, data_option, gc
from composer_hub.local_hub import accounts, server
from composer_hub.local_hub.env import default_root, env_changes, shell_lines
from composer_hub.local_hub.server import TOKEN, ServerError, find_running, stop_running
from composer_hub.output import Output

DEFAULT_USER = "me"


@click.group(short_help="Serve the embedded Hub.")
def hub() -> None:
    """Serve the embedded Hub, print its environment, check or clean its folder, or stop it."""


hub.add_command(check)
hub.add_command(gc)
hub.add_command(open_page)


@hub.command(short_help="Serve the protocol of the Hub.")
@data_option
@options_of(server.Settings)
@click.option("--user", "users", multiple=True, metavar="NAME:TOKEN", help="A user; repeatable (default: `me`).")
@click.option(
    "--org", "orgs", multiple=True, metavar="NAME", help="Organization that all users administer; repeatable."
)
@click.option(
    "--users-file",
    type=FILE,
    help="YAML or JSON file with users, organizations and roles, instead of --user and --org.",
)
@format_option
def serve(
    data: Path | None, users: Sequence[str], orgs: Sequence[str], users_file: Path | None, out: Output, **settings: Any
) -> None:
    """Serve the Hub's protocol until interrupted. Clients need only HF_ENDPOINT and HF_TOKEN."""
    root = _root(data)
    chosen = server.Settings(root, **settings)
    if users_file and (users or orgs):
        raise exits.UsageError("--users-file excludes --user and --org.")
    if users_file:
        known_accounts = accounts.read_accounts(users_file)
    else:
        known_accounts = accounts.accounts_from_words(users or [f"{DEFAULT_USER}:{server.own_token(root)}"], orgs)
    if chosen.host not in ("127.0.0.1", "localhost", "::1"):
        out.note(f"Listening on {chosen.host}: anyone who can reach this port and has a token may read and write.")

    def announce(running: server.RunningHub) -> None:
        shown = {"endpoint": running.endpoint, "pid": running.pid, "data": str(root), "xet": running.with_xet}
        out.record(shown, id_key="endpoint")
        out.note(f'In another shell: eval "$(composer-hub hub env --data {root})". Ctrl-C stops.')

    server.serve(chosen, known_accounts, announce)


@hub.command(short_help="Print the variables of the running Hub.")
@data_option
@click.option("--keep-home", is_flag=True, help="Share HF_HOME and its caches with the real Hub.")
@format_option
def env(data: Path | None, keep_home: bool, out: Output) -> None:
    """Print shell lines that point clients to the running Hub: eval "$(composer-hub hub env)"."""
    running = _running(data)
    home = None if keep_home else running.root / "home"
    changes = env_changes(os.environ, running.endpoint, home=home, with_xet=running.with_xet)
    changes |= {"COMPOSER_HUB_HOME": str(running.root)}  # so that --to local means this Hub in the same shell
    if out.mode == "json":
        out.record(changes | {"HF_TOKEN_PATH": str(running.root / TOKEN)}, id_key="HF_ENDPOINT")
    else:
        print("\n".join(shell_lines(changes, running.root / TOKEN)))


@hub.command(short_help="Print the address of the running Hub.")
@data_option
@format_option
def status(data: Path | None, out: Output) -> None:
    """Print the address of the running Hub of a folder; exit with 1 if none runs."""
    running = _running(data)
    shown = {"endpoint": running.endpoint, "pid": running.pid, "data": str(running.root), "xet": running.with_xet}
    out.record(shown, id_key="endpoint")


@hub.command(short_help="Stop the running Hub.")
@data_option
@format_option
def stop(data: Path | None, out: Output) -> None:
    """Stop the Hub of a folder; its data stays."""
    root = _root(data)
    if not stop_running(root):
        raise exits.NothingToDo(f"No embedded Hub serves {root}.")
    out.note(f"Stopped the embedded Hub of {root}.")


def _root(data: Path | None) -> Path:
    return (data or default_root()).absolute()


def _running(data: Path | None) -> Any:
    root = _root(data)
    running = find_running(root)
    if running is None:
        raise ServerError(f"No embedded Hub serves {root}. Start one with `composer-hub hub serve --data {root}`.")
    return running
