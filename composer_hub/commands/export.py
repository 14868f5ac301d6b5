"""`composer-hub export`: traces of a version in another project's format."""

from __future__ import annotations

from pathlib import Path

import click
import orjson

from composer_hub import exits
from composer_hub.cli import format_option
from composer_hub.output import Output


@click.command()
@click.argument("ref", metavar="REPO@REV")
@click.option(
    "--to", "target", required=True, type=click.Choice(["sts", "atif"]), help="HF's STS lines, or Harbor's ATIF."
)
@click.option("--from", "source", default="local", show_default=True, metavar="local|hub|FOLDER", help="Where REPO is.")
@click.option(
    "--out", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to write to."
)
@format_option
def export(ref: str, target: str, source: str, folder: Path, out: Output) -> None:
    """Write each trace as a file: `<trace id>.jsonl` (sts) or `<trace id>.json` (atif)."""
    from composer_hub.hub.destinations import destination
    from composer_hub.hub.load import load_traces
    from composer_hub.ingest.export import to_atif, to_sts

    version, traces = load_traces(destination(source), ref)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        count = 0
        with out.progress("writing", version.num_rows("traces")) as bar:
            for trace in traces:
                if target == "sts":
                    (folder / f"{trace.trace_id}.jsonl").write_text(
                        "".join(f"{line}\n" for line in to_sts(trace)), encoding="utf-8"
                    )
                else:
                    (folder / f"{trace.trace_id}.json").write_bytes(
                        orjson.dumps(to_atif(trace), option=orjson.OPT_INDENT_2)
                    )
                count += 1
                bar.advance()
    except OSError as error:
        raise exits.ComposerError(
            f"{folder} cannot be written ({error.strerror}): choose another folder for --out."
        ) from error
    out.record({"folder": str(folder), "files": count, "format": target, "revision": version.revision}, id_key="folder")
