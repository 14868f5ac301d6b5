"""`composer-hub export`: a version in another project's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from composer_hub import exits, extras
from composer_hub.cli.main import format_option
from composer_hub.cli.options import from_option, ref_argument
from composer_hub.cli.paths import NEW_FOLDER
from composer_hub.exports import FORMATS
from composer_hub.exports import export as write
from composer_hub.exports.write import source_config
from composer_hub.hub import destination, load
from composer_hub.output import Output


@click.command(short_help="Write a version in another format.")
@ref_argument
@click.option(
    "--as",
    "format_",
    required=True,
    type=click.Choice(FORMATS),
    help="HF's STS lines, Harbor's ATIF, Parquet for verl, or tokens for SFTTrainer.",
)
@click.option("--tokenizer", metavar="MODEL", help="Model or folder whose tokenizer and chat template sft uses.")
@click.option("--compress", is_flag=True, help="For sft: of several failed turns in a row, keep the last.")
@click.option("--max-tokens", type=click.IntRange(min=0), default=0, help="For sft: tokens of a row (0: whole traces).")
@click.option("--out", "folder", required=True, type=NEW_FOLDER, help="Output folder.")
@from_option
@format_option
def export(
    ref: str,
    format_: str,
    tokenizer: str | None,
    compress: bool,
    max_tokens: int,
    folder: Path,
    origin: str,
    out: Output,
) -> None:
    """Write a version in another format.

    Each trace becomes one file: `<trace id>.jsonl` (sts) or `<trace id>.json` (atif). For verl, each step with a hint,
    or each pair, becomes a row of `<split>.parquet`. For sft, each trace becomes a row of tokens, with a mask that
    leaves out turns that were the model's mistake.
    """
    chosen = chat_tokenizer(tokenizer)
    version = load(destination(origin), ref)
    with out.progress("writing", version.num_rows(source_config(version, format_))) as bar:
        counts = write(
            version, format_, folder,
            tokenizer=chosen, compress=compress, max_tokens=max_tokens, on_record=bar.advance,
        )  # fmt: skip
    out.record({"folder": str(folder), **counts, "format": format_, "revision": version.revision}, id_key="folder")
    if format_ == "sft":
        length = max_tokens or "the length that your model takes"
        out.note(f"SFTTrainer cuts rows at SFTConfig(max_length=1024) by default: set it to {length}.")


def chat_tokenizer(model: str | None) -> Any:
    """Load what --tokenizer names, None if it names nothing."""
    if not model:
        return None
    extras.need("--tokenizer", "train", "transformers")
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise exits.UsageError(
            f"--tokenizer {model} cannot be loaded ({reason}). Name a model or its folder."
        ) from None
    if not found.is_fast or not found.chat_template:
        raise exits.UsageError(f"--tokenizer {model} needs a fast tokenizer with a chat template.")
    return found
