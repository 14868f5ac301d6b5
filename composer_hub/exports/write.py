"""A version in, files in another project's format out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from composer_hub import exits
from composer_hub.exports import sft, verl
from composer_hub.exports.atif import to_atif
from composer_hub.exports.sft import Tokenizer
from composer_hub.exports.sts import to_sts
from composer_hub.hub import RowWriter, Version
from composer_hub.records import Pair, Trace

if TYPE_CHECKING:
    from datasets import Features

FORMATS = ("sts", "atif", "verl", "sft")


class ExportError(exits.ComposerError, OSError):
    """A folder that cannot be written."""


def export(
    version: Version,
    format: str,
    folder: Path,
    *,
    tokenizer: Tokenizer | None = None,
    compress: bool = False,
    max_tokens: int = 0,
    on_record: Callable[[], None] = lambda: None,
) -> dict[str, int]:
    """Write a version and return the number of files (and rows); `on_record` is called once per record.

    Each trace becomes `<trace id>.jsonl` (sts) or `<trace id>.json` (atif). For verl, each step of a trace that has a
    hint becomes a row, or each pair, in one file per split: `<split>.parquet`. For sft, each trace becomes a row of
    tokens; `tokenizer` is the student's, and `compress` shortens runs of failed turns, and
    `max_tokens` cuts a trace into windows, one row each.
    """
    try:
        if format == "sft":
            if tokenizer is None:
                raise exits.UsageError("--as sft needs the student's tokenizer: --tokenizer MODEL.")
            return _write_rows(
                version,
                format,
                folder,
                sft.features(),
                lambda config, split: _sft_rows(version, config, split, tokenizer, compress, max_tokens, on_record),
            )
        if format == "verl":
            return _write_verl(version, folder, on_record)
        return _write_traces(version, format, folder, on_record)
    except exits.ComposerError:
        raise
    except OSError as error:
        raise ExportError(f"{folder} cannot be written ({error.strerror}). Choose another folder for --out.") from error


def source_config(version: Version, format: str) -> str:
    """Return the config of a version that a format is made from."""
    names = ("default", "traces") if format == "verl" else ("traces",)
    config = next((name for name in names if name in version.manifest["tables"]), None)
    if config is None:
        needed = "pairs or traces" if format == "verl" else "traces"
        raise exits.UsageError(f"{version.repo}@{version.revision} has no {needed}: name a version that has some.")
    return config


def _write_traces(version: Version, format: str, folder: Path, on_record: Callable[[], None]) -> dict[str, int]:
    count = 0
    traces = version.records(Trace, source_config(version, format))
    folder.mkdir(parents=True, exist_ok=True)
    for trace in traces:
        if format == "sts":
            text = "".join(f"{line}\n" for line in to_sts(trace))
            (folder / f"{trace.trace_id}.jsonl").write_text(text, encoding="utf-8")
        else:
            document = orjson.dumps(to_atif(trace), option=orjson.OPT_INDENT_2)
            (folder / f"{trace.trace_id}.json").write_bytes(document)
        count += 1
        on_record()
    return {"files": count}


def _write_verl(version: Version, folder: Path, on_record: Callable[[], None]) -> dict[str, int]:
    def rows(config: str, split: str) -> Iterator[dict[str, Any]]:
        for number, row in enumerate(_verl_rows(version, config, split, on_record)):
            yield row | {"extra_info": row["extra_info"] | {"index": number}}

    return _write_rows(version, "verl", folder, verl.features(), rows)


def _write_rows(
    version: Version,
    format: str,
    folder: Path,
    features: Features,
    rows: Callable[[str, str], Iterator[dict[str, Any]]],
) -> dict[str, int]:
    """Write one Parquet file per split."""
    config = source_config(version, format)
    counts: dict[str, int] = {}
    for split in version.splits(config):
        folder.mkdir(parents=True, exist_ok=True)
        # The file gets its name once it is complete, so that no reader takes half a file for a whole one.
        part, count = folder / f".{split}.parquet", 0
        with RowWriter(part, features) as writer:
            for row in rows(config, split):
                writer.add(row)
                count += 1
        if count:
            part.rename(folder / f"{split}.parquet")
            counts[split] = count
        else:
            part.unlink()
    if not counts:
        missing = {"sft": "turn to learn from"}.get(format, "pair" if config == "default" else "step with a hint")
        raise exits.NothingToDo(f"{version.repo}@{version.revision} has no {missing}, so there is nothing to write.")
    return {"files": len(counts), "rows": sum(counts.values())}


def _sft_rows(
    version: Version,
    config: str,
    split: str,
    tokenizer: Tokenizer,
    compress: bool,
    max_tokens: int,
    on_record: Callable[[], None],
) -> Iterator[dict[str, Any]]:
    for trace in version.records(Trace, config, split):
        yield from sft.sft_rows(trace, tokenizer, compress=compress, max_tokens=max_tokens)
        on_record()


def _verl_rows(version: Version, config: str, split: str, on_record: Callable[[], None]) -> Iterator[dict[str, Any]]:
    if config == "default":
        for pair in version.records(Pair, config, split):
            yield verl.pair_row(pair, split)
            on_record()
    else:
        for trace in version.records(Trace, config, split):
            yield from verl.site_rows(trace, split)
            on_record()
