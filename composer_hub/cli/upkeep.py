"""`composer-hub hub check` and `hub gc`: the folder of the embedded Hub, while it is served or not."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from composer_hub.cli.main import format_option
from composer_hub.cli.paths import NEW_FOLDER
from composer_hub.local_hub import checking, cleaning
from composer_hub.local_hub.env import default_root
from composer_hub.local_hub.server import ServerError
from composer_hub.output import Output, size

if TYPE_CHECKING:
    from composer_hub.local_hub.store import Store


data_option = click.option(
    "--data",
    type=NEW_FOLDER,
    help="Folder of the Hub (default: COMPOSER_HUB_HOME, else ~/.cache/composer_hub/hub).",
)


@click.command(short_help="Verify that every named object is there.")
@data_option
@click.option("--repair", is_flag=True, help="Move damaged objects to `damaged/`, so that uploads bring them again.")
@format_option
def check(data: Path | None, repair: bool, out: Output) -> None:
    """Hash every object of the Hub's folder, and look for everything that its repositories and buckets name.

    Exits with 1 if something is missing or damaged. The server may be running.
    """
    with _opened(data) as store:
        found = checking.check_folder(store, set_aside=repair)
        if not found.problems and not found.damaged:
            counts = ("num_repos", "num_buckets", "num_commits", "num_objects", "num_bytes")
            out.record({"data": str(store.root)} | {name: getattr(found, name) for name in counts}, id_key="data")
            return
        out.table([{"where": one.where, "what": one.what} for one in found.problems], id_key="where")
        advice = (
            "Upload these files again."
            if repair
            else "`composer-hub hub check --repair` sets damaged objects aside; then upload these files again."
        )
        raise ServerError(
            f"{store.root}: {len(found.problems)} files or commits are not whole, {len(found.damaged)} objects are "
            f"damaged. {advice}"
        )


@click.command(short_help="Remove what nothing names.")
@data_option
@click.option("--dry-run", is_flag=True, help="Print what would be removed.")
@click.option(
    "--min-age",
    type=click.FloatRange(min=0),
    default=120.0,
    metavar="MINUTES",
    help="Keep younger uploads that nothing names yet (0 only if nothing is being uploaded).",
)
@format_option
def gc(data: Path | None, dry_run: bool, min_age: float, out: Output) -> None:
    """Free the space of deleted repositories and files, and of commits that no branch, tag or pull request leads to.

    The server may be running.
    """
    with _opened(data) as store:
        freed = cleaning.clean(store, min_age=60 * min_age, dry_run=dry_run)
        out.record({"data": str(store.root), **vars(freed)}, id_key="data")
        verb = "would free" if dry_run else "freed"
        recent = f" {freed.num_recent_uploads} recent uploads are kept." if freed.num_recent_uploads else ""
        out.note(f"{verb.capitalize()} {size(freed.num_bytes)}.{recent}")


@contextlib.contextmanager
def _opened(data: Path | None) -> Iterator[Store]:
    from composer_hub.local_hub.app import open_store

    root = (data or default_root()).absolute()
    if not (root / "hub.sqlite").is_file():
        raise ServerError(f"{root} is not the folder of an embedded Hub. Name one with --data.")
    try:
        with contextlib.closing(open_store(root, is_shared=True)) as store:
            yield store
    except sqlite3.DatabaseError as error:
        raise ServerError(f"{root / 'hub.sqlite'} cannot be read ({error}). Restore it from a copy.") from error
