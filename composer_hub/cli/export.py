"""`composer-hub export`: a version in another project's format."""

from __future__ import annotations

from pathlib import Path

import click

from composer_hub.cli.main import format_option
from composer_hub.cli.options import from_option
from composer_hub.exports import FORMATS
from composer_hub.exports import export as write
from composer_hub.exports.write import source_config
from composer_hub.hub import destination, load
from composer_hub.output import Output


@click.command(short_help="Write a version in another format.")
@click.argument("ref", metavar="REPO@REV")
@click.option(
    "--as",
    "format_",
    required=True,
    type=click.Choice(FORMATS),
    help="HF's STS lines, Harbor's ATIF or verl's Parquet.",
)
@click.option("--out", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="Output folder.")
@from_option
@format_option
def export(ref: str, format_: str, folder: Path, origin: str, out: Output) -> None:
    """Write a version in another format.

    Each trace becomes one file: `<trace id>.jsonl` (sts) or `<trace id>.json` (atif). For verl, each step with a hint,
    or each pair, becomes a row of `<split>.parquet`.
    """
    version = load(destination(origin), ref)
    with out.progress("writing", version.num_rows(source_config(version, format_))) as bar:
        counts = write(version, format_, folder, on_record=bar.advance)
    out.record({"folder": str(folder), **counts, "format": format_, "revision": version.revision}, id_key="folder")
