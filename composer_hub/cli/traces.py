"""`composer-hub traces`: make the version of a trace set that follows from its review."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from composer_hub.cli.main import format_option
from composer_hub.cli.options import Publication, publish_options, ref_argument
from composer_hub.cli.pair_versions import need_verdicts, show_counts, verdicts_in
from composer_hub.cli.paths import FILE
from composer_hub.hub import Draft, Version
from composer_hub.ingest.verdicts import merged_verdicts, read_verdicts, reviewed_draft
from composer_hub.output import Output


@click.group(short_help="Apply reviews of hints to traces.")
def traces() -> None:
    """Apply reviewers' verdicts on hints to a trace set."""


@traces.command("apply-verdicts", short_help="Apply reviewers' verdicts to hints.")
@ref_argument
@click.option(
    "--verdicts",
    "path",
    type=FILE,
    help="JSONL: site_id, verdict, reviewer, note, edited_hint, blame, taken as it is. Default: the verdicts merged "
    "into the dataset, by their authors on the Hub.",
)
@publish_options("traces")
@format_option
def apply_verdicts(ref: str, path: Path | None, publication: Publication, out: Output) -> None:
    """Publish the next version of a trace set, with the verdicts on its hints applied.

    Bad hints leave, edited ones are replaced, and a site with the wrong blame gets the right one.
    """
    given = verdicts_in(path, read_verdicts)

    def reviewed(source: Version) -> Draft:
        verdicts, refused = merged_verdicts(source) if given is None else (given, [])
        need_verdicts(out, ref, source, verdicts, refused)
        draft, counts = reviewed_draft(source, verdicts, Path(folder), refused, public=publication.public)
        show_counts(out, source, counts)
        return draft

    with tempfile.TemporaryDirectory() as folder:
        publication.carry_out_next(out, ref, reviewed)
