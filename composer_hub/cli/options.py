"""Options shared by several commands, and the output of every publishing command."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from huggingface_hub import get_token

from composer_hub import exits
from composer_hub.cli.grouped import grouped, stacked
from composer_hub.cli.publishing import show_plan, show_published
from composer_hub.hub import (
    Card,
    Destination,
    Draft,
    Lineage,
    Published,
    PublishOptions,
    Table,
    Version,
    check_target,
    destination,
    dry_run,
    load,
    newest,
    publish,
    update,
)
from composer_hub.options import option
from composer_hub.output import Output

PLACE = "local|hub|FOLDER"
TO_HELP = "Destination: local (the embedded Hub), hub, or a folder."


to_option = click.option("--to", default="local", metavar=PLACE, help=TO_HELP)


def renamed(old: str, advice: str) -> Callable[..., Any]:
    """Refuse the old spelling of an option with a sentence."""

    def refuse(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise exits.UsageError(advice)

    return click.option(old, hidden=True, expose_value=False, callback=refuse)


from_option = stacked(
    click.option("--from", "origin", default="local", metavar=PLACE,
                 help="Place to read versions from: local (the embedded Hub), hub, or a folder."),
    renamed("--to", "This command publishes nothing. Write --from for the place to read from."),
)  # fmt: skip
"""Give a command `--from`, passed as `origin`."""
ref_argument = click.argument("ref", metavar="REPO@REV")
sandbox_option = click.option("--sandbox", default="auto", help="auto, bubblewrap, landlock or weak.")


@dataclass(frozen=True)
class Publication:
    """The publishing options of a command line."""

    to: str = option("local", TO_HELP, metavar=PLACE)
    repo: str = option("", "Dataset repository to publish to.", metavar="OWNER/NAME")
    version: str | None = option(None, "Version number instead of the next free one.", metavar="vX.Y.Z")
    bump: str | None = option(None, "Smallest step of the version.", choices=("major", "minor", "patch"))
    public: bool = option(False, "Let everyone read it; repositories are private otherwise.")
    dry_run: bool = option(False, "Print the plan and write nothing.")
    shard_mb: int = option(250, "Largest data file, in MB.", min=1)
    kind: str = ""  # of what it publishes

    @functools.cached_property
    def destination(self) -> Destination:
        """Return the destination; the embedded Hub starts at the first call."""
        where = destination(self.to)
        if self.to == "hub" and get_token() is None:
            raise exits.Refused(
                f"There is no token for {where.address}: log in with `hf auth login` or set HF_TOKEN, or publish to "
                "the embedded Hub with --to local. Nothing was read or sent."
            )
        return where

    @property
    def makes_public(self) -> bool:
        """True if rows become public now."""
        return self.public and not self.dry_run

    def check(self) -> None:
        """Refuse a repository of another kind before the work begins."""
        check_target(self.destination, self.repo, self.kind, public=self.public)

    def options(self, title: str = "") -> PublishOptions:
        """Return the options for `hub.publish`."""
        return PublishOptions(self.version, self.bump, self.public, title, self.shard_mb * 1_000_000)

    def carry_out(
        self,
        out: Output,
        tables: Sequence[Table],
        card: Card,
        lineage: Lineage,
        *,
        title: str = "",
        report: Mapping[str, Any] | None = None,
    ) -> Published | None:
        """Publish and print the new version, or the plan with --dry-run; JSON also contains `report`."""
        if self.dry_run:
            plan = dry_run(self.destination, self.repo, tables, card, lineage=lineage, options=self.options(title))
            show_plan(out, plan, self.destination.address, report)
            return None
        published = publish(self.destination, self.repo, tables, card, lineage=lineage, options=self.options(title))
        show_published(out, published, self.to, report)
        return published

    def carry_out_next(self, out: Output, ref: str, make: Callable[[Version], Draft]) -> None:
        """Publish and print the version that follows `ref`; rows always come from the newest version of the repository.

        A version of another repository is taken as it is.
        """
        source = load(self.destination, ref)
        head = newest(self.destination, self.repo) if source.repo == self.repo else None
        if head is None or self.dry_run:
            draft = make(head or source)
            self.carry_out(out, draft.tables, draft.card, draft.lineage, title=draft.title)
            return
        published = update(self.destination, self.repo, lambda before: make(before or source), options=self.options())
        show_published(out, published, self.to)


def publish_options(kind: str, *, repo_required: bool = True) -> Callable[..., Any]:
    """Give a command the publishing options as one `publication`; refuse a repository that cannot take its kind."""

    def make(**given: Any) -> Publication:
        publication = Publication(**given, kind=kind)
        if publication.repo:
            publication.check()
        return publication

    changes = {"required": True} if repo_required else {}
    return grouped("publication", Publication, make=make, repo=changes)
