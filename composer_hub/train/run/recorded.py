"""Recorded data to learn from: pairs with reference log-probs, and hinted steps of the student's traces."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, cast

from accelerate import PartialState
from accelerate.utils import gather_object

from composer_hub.hub import Model, Version
from composer_hub.records import Pair, Trace
from composer_hub.train.config import ComposerConfig
from composer_hub.train.pair_loader import PairLoader
from composer_hub.train.run.config_file import RunError
from composer_hub.train.run.options import SourceOptions
from composer_hub.train.tokens import (
    Encoded,
    Fingerprint,
    PairEncoder,
    RefLogps,
    reasons_text,
    ref_rows,
    with_reference,
)
from composer_hub.train.trace_hints import TraceLoader
from composer_hub.train.trace_sites import Student, TraceEncoder, TraceSites


def load_pairs(
    version: Version, model: Model, network: Any, tokenizer: Any, options: SourceOptions, *, seed: int
) -> tuple[PairLoader, Encoded]:
    """Return the loader of this rank's pairs, and the encoded pairs with the counts of those left out."""
    if missing := _missing_columns(version):
        raise RunError(
            f"{version.repo} holds no preference pairs: it lacks {', '.join(missing)}. Make a set with "
            "`composer-hub pairs build`, or name another with --pairs."
        )
    split = None if options.train_split == "all" else options.train_split
    encoder = PairEncoder.of(tokenizer, max_tokens=options.max_pair_tokens)
    encoded = encoder.encode(version.records(Pair, "default", split))
    if not encoded.pairs:
        raise RunError(
            f"No pair of {version.repo} (split {options.train_split}) can be trained on: "
            f"{reasons_text(encoded.dropped) or 'the split is empty'}. Try --train_split all, or a larger "
            "--max_pair_tokens."
        )
    if encoded.share_left_out > options.max_left_out:
        total = len(encoded.pairs) + encoded.dropped.total()
        raise RunError(
            f"{encoded.dropped.total():,} of the {total:,} pairs of {version.repo} ({encoded.share_left_out:.0%}) "
            f"would be left out: {reasons_text(encoded.dropped)}. Raise --max_pair_tokens "
            f"({options.max_pair_tokens:,}), or accept it with --max_left_out {encoded.share_left_out + 0.005:.2f}."
        )
    expected = encoder.fingerprint(model.name, model.revision)
    if "ref" in version.manifest["tables"]:
        rows = list(version.records(RefLogps, "ref"))
    else:
        rows = _reference(network, encoded, expected, options.pair_batch_size)
    loader = PairLoader(
        with_reference(encoded, rows, expected),
        options.pair_batch_size,
        padding=tokenizer.pad_token_id,
        seed=seed,
        rank=PartialState().process_index,
        num_ranks=PartialState().num_processes,
    )
    return loader, encoded


def _missing_columns(pairs: Version) -> list[str]:
    first = next(pairs.rows("default"), None) if "default" in pairs.manifest["tables"] else {}
    if first is None:
        return []
    # Columns with a default are newer than some published sets.
    return [field.name for field in fields(Pair) if field.default is MISSING and field.name not in first][:5]


def _reference(network: Any, encoded: Encoded, expected: Fingerprint, batch_size: int) -> list[RefLogps]:
    """Compute unpublished reference log-probs; each rank does its share."""
    state = PartialState()
    mine = dict(list(encoded.pairs.items())[state.process_index :: state.num_processes])
    network.to(state.device)
    return gather_object(ref_rows(network, Encoded(mine), expected, batch_size=batch_size))


def load_sites(
    version: Version, student: Student, tokenizer: Any, options: SourceOptions, config: ComposerConfig
) -> tuple[TraceLoader, TraceSites]:
    """Return the loader of this rank's hinted steps, and all of them with the counts of those left out."""
    encoder = TraceEncoder.of(
        tokenizer,
        student,
        max_tokens=config.max_teacher_tokens,
        template_kwargs=cast("dict[str, Any] | None", config.chat_template_kwargs),
        other_families=options.other_families,
        control=config.control_hints,
    )
    found = encoder.encode(version.records(Trace, "traces"))
    if not found.sites:
        raise RunError(
            f"No step of {version.repo} can be learned from: "
            f"{dict(found.dropped) or 'none is an error of the model'}. `composer-hub ingest` writes hints, and so "
            "does a training run into the rollouts it publishes."
        )
    state = PartialState()
    loader = TraceLoader(
        found.sites,
        options.trace_batch_size,
        seed=config.seed,
        rank=state.process_index,
        num_ranks=state.num_processes,
    )
    return loader, found
