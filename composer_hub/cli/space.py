"""`composer-hub space`: look at published pairs, hints, runs and tasks here, or put the same app on the Hub."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence

import click

from composer_hub import exits
from composer_hub.cli.grouped import grouped
from composer_hub.cli.main import format_option
from composer_hub.cli.options import ref_argument
from composer_hub.cli.paths import FILE
from composer_hub.hub import HubDestination, check_repo, destination
from composer_hub.hub.spaces import ReviewSettings, app_files, check_needed, existing, serving, write_space
from composer_hub.output import Output

_WITH_HELP = "One more dataset to show: rollouts, traces or tasks; repeatable."


@click.group(short_help="Inspect and review datasets in a Space.")
def space() -> None:
    """Inspect and review published datasets in a Space."""


hub_option = click.option("--to", type=click.Choice(["local", "hub"]), default="local", help="Hub: embedded or real.")
"""Give a command `--to` without folders: an app reads datasets over the Hub's protocol."""
review_options = grouped("review", ReviewSettings, guidelines={"type": FILE})
"""Give a command the options of a review."""


@space.command("open", short_help="Open datasets in a local Space.")
@ref_argument
@click.option("--with", "others", multiple=True, metavar="REPO@REV", help=_WITH_HELP)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; 0 takes a free one.")
@click.option("--no-browser", is_flag=True, help="Print the URL and open nothing.")
@review_options
@hub_option
@format_option
def open_space(
    ref: str, others: Sequence[str], port: int, no_browser: bool, review: ReviewSettings, to: str, out: Output
) -> None:
    """Serve the Space on this machine and open it, until interrupted."""
    check_needed()
    names = existing(_destination(to), [ref, *others])
    with serving(names, to, port, review) as (url, process):
        out.record({"url": url, "datasets": names}, id_key="url")
        sys.stdout.flush()  # a script that reads the address must get it while the server runs
        out.note("Ctrl-C stops.")
        if not no_browser:
            webbrowser.open(url)
        code = process.wait()
    if code:
        raise exits.ComposerError(f"The Space ended with exit code {code}; its messages are above.")


@space.command(short_help="Deploy the Space to the Hub.")
@ref_argument
@click.option("--with", "others", multiple=True, metavar="REPO@REV", help=_WITH_HELP)
@click.option("--space", "name", metavar="OWNER/NAME", help="Space to write. Default: the dataset's name + -space.")
@click.option("--org", metavar="NAME", help="Organization whose members alone may sign in.")
@click.option("--public", is_flag=True, help="Let everyone open the Space; private otherwise.")
@click.option("--dry-run", is_flag=True, help="Print the files and write nothing.")
@review_options
@hub_option
@format_option
def deploy(
    ref: str,
    others: Sequence[str],
    name: str | None,
    org: str | None,
    public: bool,
    dry_run: bool,
    review: ReviewSettings,
    to: str,
    out: Output,
) -> None:
    """Write the Space to the Hub in one commit, with the datasets at pinned revisions."""
    where = _destination(to)
    pinned = existing(where, [ref, *others], pin=True)
    name = name or f"{pinned[0].split('@')[0]}-space"
    check_repo(name)
    files = app_files(pinned, org, review)
    if dry_run:
        out.table([{"file": path, "bytes": len(content)} for path, content in files.items()], id_key="file")
        out.note(f"Would write {len(files)} files to the Space {name} for {', '.join(pinned)}.")
        return
    revision = write_space(where, name, files, public=public, message=f"Show {', '.join(pinned)}")
    url = f"{where.api.endpoint}/spaces/{name}"
    out.record({"space": name, "revision": revision, "url": url, "datasets": pinned}, id_key="space")


def _destination(to: str) -> HubDestination:
    where = destination(to)
    assert isinstance(where, HubDestination)  # --to has no folders here
    return where
