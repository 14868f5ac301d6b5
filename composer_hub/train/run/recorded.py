"""Recorded data to learn from: pairs with reference log-probs, and hinted steps of the student's traces.

The first rank of each machine streams the published rows, and writes their tokens to a file in the output folder. All
ranks of the machine map the file, and its name is removed, so that nothing is left behind if the run is killed.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from accelerate import PartialState
from accelerate.utils import gather_object

from composer_hub import exits
from composer_hub.hub import Model, Version
from composer_hub.records import Pair, Trace
from composer_hub.train.batch import HintSite
from composer_hub.train.checkpoints import writing
from composer_hub.train.config import ComposerConfig
from composer_hub.train.failure import TrainerError
from composer_hub.train.hint_term import TraceLoader
from composer_hub.train.mapped import PAIRS, SITES, MappedRows, pair_row, read_pair, read_site, site_row, write
from composer_hub.train.pair_loader import PairLoader, TokenPair
from composer_hub.train.tokens import PairEncoder, RefLogps, reasons_text, reference_logps, reference_of
from composer_hub.train.trace_sites import Student, TraceEncoder

if TYPE_CHECKING:
    from composer_hub.train.run.options import SourceOptions


@dataclass
class Taken:
    """How many recorded rows are learned from, and the reasons why others are left out."""

    num_rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    num_exact: int = 0  # hinted steps with the tokens that were sampled


def load_pairs(
    version: Version, model: Model, network: Any, tokenizer: Any, options: SourceOptions, folder: Path, *, seed: int
) -> tuple[PairLoader, Taken]:
    """Return the loader of this rank's pairs, and the counts; their tokens are in a file without a name in `folder`."""
    encoder = PairEncoder.of(tokenizer, max_tokens=options.max_pair_tokens)
    expected = encoder.fingerprint(model.name, model.revision)
    values = array("d")
    read = read_pair(values)

    def encode(path: Path) -> tuple[Taken, array[float]]:
        taken = _write_pairs(path, version, encoder, options)
        if "ref" not in version.manifest["tables"]:
            return taken, array("d")
        ids = MappedRows.open(path, read).table.data.column("pair_id")
        return taken, reference_of(ids, version.records(RefLogps, "ref"), expected)

    with _on_each_machine(folder, encode) as (path, (taken, known)):
        rows = MappedRows.open(path, read)
    values.frombytes(bytes(16 * len(rows)))
    values[:] = known or _reference(network, rows, options.pair_batch_size)
    state = PartialState()
    loader = PairLoader(
        rows,
        options.pair_batch_size,
        padding=tokenizer.pad_token_id,
        seed=seed,
        rank=state.process_index,
        num_ranks=state.num_processes,
    )
    return loader, taken


def _write_pairs(path: Path, version: Version, encoder: PairEncoder, options: SourceOptions) -> Taken:
    if missing := _missing_columns(version):
        raise TrainerError(
            f"{version.repo} holds no preference pairs: it lacks {', '.join(missing)}. Make a set with "
            "`composer-hub pairs build`, or name another with --pairs."
        )
    split = None if options.train_split == "all" else options.train_split
    taken = Taken()
    pairs = encoder.each(version.records(Pair, "default", split), taken.dropped)
    taken.num_rows = write(path, PAIRS, (pair_row(*pair) for pair in pairs))
    if not taken.num_rows:
        raise TrainerError(
            f"No pair of {version.repo} (split {options.train_split}) can be trained on: "
            f"{reasons_text(taken.dropped) or 'the split is empty'}. Try --train_split all, or a larger "
            "--max_pair_tokens."
        )
    total = taken.num_rows + taken.dropped.total()
    if (share := taken.dropped.total() / total) > options.max_left_out:
        raise TrainerError(
            f"{taken.dropped.total():,} of the {total:,} pairs of {version.repo} ({share:.0%}) "
            f"would be left out: {reasons_text(taken.dropped)}. Raise --max_pair_tokens "
            f"({options.max_pair_tokens:,}), or accept it with --max_left_out {share + 0.005:.2f}."
        )
    return taken


def _missing_columns(pairs: Version) -> list[str]:
    first = next(pairs.rows("default"), None) if "default" in pairs.manifest["tables"] else {}
    if first is None:
        return []
    # Columns with a default are newer than some published sets.
    return [field.name for field in fields(Pair) if field.default is MISSING and field.name not in first][:5]


def _reference(network: Any, rows: MappedRows[TokenPair], batch_size: int) -> array[float]:
    """Compute unpublished reference log-probs; each rank does its share, a few batches at a time."""
    state = PartialState()
    network.to(state.device)
    mine, found = range(state.process_index, len(rows), state.num_processes), array("d")
    for first in range(0, len(mine), 16 * batch_size):
        part = [rows[place] for place in mine[first : first + 16 * batch_size]]
        for both in reference_logps(network, part, batch_size=batch_size):
            found.extend(both)
    values = array("d", bytes(16 * len(rows)))
    for rank, theirs in enumerate(gather_object([found])):
        values[2 * rank :: 2 * state.num_processes] = theirs[::2]
        values[2 * rank + 1 :: 2 * state.num_processes] = theirs[1::2]
    return values


def load_sites(
    version: Version, student: Student, tokenizer: Any, options: SourceOptions, config: ComposerConfig, folder: Path
) -> tuple[TraceLoader, Taken]:
    """Return the loader of this rank's hinted steps, and the counts; `folder` is as in `load_pairs`."""
    encoder = TraceEncoder.of(
        tokenizer,
        student,
        max_tokens=config.max_teacher_tokens,
        template_kwargs=cast("dict[str, Any] | None", config.chat_template_kwargs),
        other_families=options.other_families,
        control=config.control_hints,
    )

    def encode(path: Path) -> Taken:
        taken = Taken()

        def sites() -> Iterator[HintSite]:
            for site in encoder.each(version.records(Trace, "traces"), taken.dropped):
                taken.num_exact += site.is_exact
                yield site

        taken.num_rows = write(path, SITES, map(site_row, sites()))
        if not taken.num_rows:
            raise TrainerError(
                f"No step of {version.repo} can be learned from: "
                f"{dict(taken.dropped) or 'none is an error of the model'}. `composer-hub ingest` writes hints, and so "
                "does a training run into the rollouts it publishes."
            )
        return taken

    with _on_each_machine(folder, encode) as (path, taken):
        rows = MappedRows.open(path, read_site)
    state = PartialState()
    loader = TraceLoader(
        rows,
        options.trace_batch_size,
        seed=config.seed,
        rank=state.process_index,
        num_ranks=state.num_processes,
    )
    return loader, taken


@contextlib.contextmanager
def _on_each_machine(folder: Path, make: Callable[[Path], Any]) -> Iterator[tuple[Path, Any]]:
    """Let the first rank of each machine write a file, and give its path and the result to all ranks there.

    The file is gone afterwards, so it must be mapped inside. An error is raised on all ranks.
    """
    state, path = PartialState(), None
    outcome: tuple[Path, Any] | Exception | None = None
    if state.is_local_main_process:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".tokens-", dir=folder)
            os.close(handle)
            path = Path(name)
            with writing("the file of the recorded tokens"):
                outcome = (path, make(path))
        except (exits.ComposerError, OSError) as error:
            outcome = error
    try:
        outcomes = gather_object([outcome])
        for other in outcomes:
            if isinstance(other, Exception):
                raise other
        yield outcomes[state.process_index - state.local_process_index]
        state.wait_for_everyone()
    finally:
        if path is not None:
            path.unlink(missing_ok=True)
