"""`composer-hub export`: a version in another project's format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.output import Output

if TYPE_CHECKING:
    from composer_hub.hub import Version


@click.command()
@click.argument("ref", metavar="REPO@REV")
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Choice(["sts", "atif", "verl"]),
    help="HF's STS lines, Harbor's ATIF, or verl's Parquet.",
)
@click.option("--from", "source", default="local", show_default=True, metavar="local|hub|FOLDER", help="Where REPO is.")
@click.option(
    "--out", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to write to."
)
@format_option
def export(ref: str, target: str, source: str, folder: Path, out: Output) -> None:
    """Write a version in another format.

    Traces become a file each: `<trace id>.jsonl` (sts) or `<trace id>.json` (atif). For verl, traces become a row for
    each step with a hint and pairs a row each, in a file a split: `<split>.parquet`.
    """
    from composer_hub.hub import destination, load

    version = load(destination(source), ref)
    try:
        count = _write_verl(version, folder, out) if target == "verl" else _write_traces(version, target, folder, out)
    except OSError as error:
        raise exits.ComposerError(
            f"{folder} cannot be written ({error.strerror}): choose another folder for --out."
        ) from error
    out.record({"folder": str(folder), **count, "format": target, "revision": version.revision}, id_key="folder")


def _write_traces(version: Version, target: str, folder: Path, out: Output) -> dict[str, int]:
    from composer_hub.ingest.export import to_atif, to_sts
    from composer_hub.records import Trace

    traces = version.records(Trace, "traces")
    total, count = version.num_rows("traces"), 0
    folder.mkdir(parents=True, exist_ok=True)
    with out.progress("writing", total) as bar:
        for trace in traces:
            if target == "sts":
                text = "".join(f"{line}\n" for line in to_sts(trace))
                (folder / f"{trace.trace_id}.jsonl").write_text(text, encoding="utf-8")
            else:
                document = orjson.dumps(to_atif(trace), option=orjson.OPT_INDENT_2)
                (folder / f"{trace.trace_id}.json").write_bytes(document)
            count += 1
            bar.advance()
    return {"files": count}


def _write_verl(version: Version, folder: Path, out: Output) -> dict[str, int]:
    from composer_hub.hub import RowWriter
    from composer_hub.integrations.verl_parquet import features

    config = next((name for name in ("default", "traces") if name in version.manifest["tables"]), None)
    if config is None:
        raise exits.UsageError(
            f"{version.repo}@{version.revision} has neither pairs nor traces: name a version that has."
        )
    written: dict[str, int] = {}
    with out.progress("writing", version.num_rows(config)) as bar:
        for split in version.splits(config):
            folder.mkdir(parents=True, exist_ok=True)
            # Under its own name only when it is whole, so that no reader takes half a file for one.
            part, count = folder / f".{split}.parquet", 0
            with RowWriter(part, features()) as writer:
                for row in _verl_rows(version, config, split, bar.advance):
                    writer.add(row | {"extra_info": row["extra_info"] | {"index": count}})
                    count += 1
            if count:
                part.rename(folder / f"{split}.parquet")
                written[split] = count
            else:
                part.unlink()
    if not written:
        what = "pair" if config == "default" else "step with a hint"
        raise exits.NothingToDo(f"{version.repo}@{version.revision} has no {what}, so there is nothing to write.")
    return {"files": len(written), "rows": sum(written.values())}


def _verl_rows(version: Version, config: str, split: str, advance: Any) -> Iterator[dict[str, Any]]:
    from composer_hub.integrations.verl_parquet import pair_row, site_rows
    from composer_hub.records import Pair, Trace

    if config == "default":
        for pair in version.records(Pair, config, split):
            yield pair_row(pair, split)
            advance()
    else:
        for trace in version.records(Trace, config, split):
            yield from site_rows(trace, split)
            advance()
