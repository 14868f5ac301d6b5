"""Pairs that a run makes before its first step: failed turns that worked when tried again with a hint.

In: rollouts of the starting model. Each failed turn that gets a hint is tried once more from the same state of
its environment, with the hint in the prompt. Out: pairs for the replay channel, without the hint: the new turn
over the failed one, if execution shows that it worked: it made calls, and none of them failed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson
from accelerate.utils import broadcast_object_list, gather_object

from composer_hub.errors.context import next_success
from composer_hub.train.hinting import check_places
from composer_hub.train.pair_loader import PairLoader, TokenPair
from composer_hub.train.replay_term import ReplayTerm
from composer_hub.train.retries import FailedTurn, Retry, played
from composer_hub.train.rollouts import Rollout
from composer_hub.train.run.card import own_pairs_text
from composer_hub.train.run.record import RunRecord
from composer_hub.train.run.trainer import RunTrainer
from composer_hub.train.tokens import reference_logps

FILE = "own_pairs.jsonl"


def learn_from_retries(trainer: RunTrainer, record: RunRecord, folder: Path, *, batch_size: int) -> None:
    """Add the replay channel with the run's own pairs: those in its folder, or new ones."""
    path, is_main = folder / FILE, trainer.accelerator.is_main_process
    kept = [read_pairs(path) if is_main and path.is_file() else None]
    pairs = broadcast_object_list(kept)[0]
    if pairs is None:
        pairs, counts = make_pairs(trainer, trainer.own_pairs, batch_size=batch_size)
        record.values["own_pairs"] = counts
        if is_main:
            record.write()
            write_pairs(path, pairs)
            print(own_pairs_text(counts), flush=True)
    if pairs:
        padding, seed = trainer._tokenizer.pad_token_id, trainer.args.seed
        loader = PairLoader(pairs, batch_size, padding=padding, seed=seed)
        trainer.terms.add(ReplayTerm(trainer.args, loader))


def make_pairs(
    trainer: RunTrainer,
    num_rollouts: int,
    *,
    batch_size: int = 2,  # pairs whose reference is computed at once
    rows: Sequence[Mapping[str, Any]] = (),  # tasks to play; none: some of the training tasks
) -> tuple[list[TokenPair], dict[str, int]]:
    """Return the pairs of all ranks, and how many rollouts, failed turns with a hint, and pairs there are."""
    trainer.check_weights_are_ready("own_pairs", "train without shards")
    check_places(trainer.hinter)
    rank, num_ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes
    mine = (rows or _some_tasks(trainer, num_rollouts))[rank::num_ranks]
    turns = list(_failed_turns(trainer, mine))
    found = list(_worked(trainer, turns))
    values = reference_logps(trainer._bare, found, batch_size=batch_size) if found else []
    found = [
        replace(pair, ref_chosen=chosen, ref_rejected=rejected)
        for pair, (chosen, rejected) in zip(found, values, strict=True)
    ]
    pairs, num_turns = gather_object(found), sum(gather_object([len(turns)]))
    return pairs, {"rollouts": len(rows) or num_rollouts, "failed_turns": num_turns, "pairs": len(pairs)}


def write_pairs(path: Path, pairs: Sequence[TokenPair]) -> None:
    """Write pairs for a resumed run, all or none of them."""
    fresh = path.with_suffix(".tmp")
    fresh.write_bytes(b"".join(orjson.dumps(asdict(pair)) + b"\n" for pair in pairs))
    fresh.replace(path)


def read_pairs(path: Path) -> list[TokenPair]:
    """Read the pairs that an earlier launch of the run has made."""
    return [TokenPair(**orjson.loads(line)) for line in path.read_bytes().splitlines()]


def _some_tasks(trainer: RunTrainer, count: int) -> list[Mapping[str, Any]]:
    tasks, draw = trainer.train_dataset, random.Random(trainer.args.seed)
    places = range(len(tasks))
    return [tasks[place] for place in (draw.sample if count <= len(tasks) else draw.choices)(places, k=count)]


def _failed_turns(trainer: RunTrainer, rows: Sequence[Mapping[str, Any]]) -> Iterator[FailedTurn]:
    left = iter(rows)
    for size in played(trainer, rows, 1):
        for row, rollout in zip([next(left) for _ in range(size)], trainer._rollouts[:size], strict=True):
            for site in trainer.hinter.sites(rollout):
                yield FailedTurn.of(row, rollout, site)


def _worked(trainer: RunTrainer, turns: Sequence[FailedTurn]) -> Iterator[TokenPair]:
    """Try each turn once more with its hint, for one round of tools, and yield what worked over what failed."""
    retries = [Retry(turn.before, list(turn.site.hinted_ids)) for turn in turns]
    left, limit = iter(turns), trainer.max_tool_calling_iterations
    trainer.max_tool_calling_iterations = 1
    try:
        for size in played(trainer, [turn.row for turn in turns], 1, retries):
            part = [next(left) for _ in range(size)]
            for turn, rollout, is_reached in zip(part, trainer._rollouts, trainer.retries_reached, strict=False):
                better, failed = _tokens_that_worked(rollout), list(turn.site.action_ids)
                if is_reached and better and better != failed:
                    yield TokenPair(list(turn.site.prefix_ids), better, failed, 0.0, 0.0)
    finally:
        trainer.max_tool_calling_iterations = limit


def _tokens_that_worked(rollout: Rollout) -> list[int]:
    first = next_success(rollout.trace, rollout.trace.steps[:1])
    return list(rollout.tokens(first)[1]) if first is not None and first.prefix_exact else []
