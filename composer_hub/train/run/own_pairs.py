"""Pairs that a run makes before its first step: failed turns that worked when tried again with a hint.

In: rollouts of the starting model. Each failed turn that gets a hint is tried once more from the same state of
its environment, with the hint in the prompt. Out: pairs for the replay channel, without the hint: the new turn
over the failed one, if execution shows that it worked: it made calls, and none of them failed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson
from accelerate.utils import broadcast_object_list, gather_object

from composer_hub.named_files import write_whole
from composer_hub.train.failure import TrainerError
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
_ROLLOUTS, _RETRIES = 20_000, 40_000  # added to the seed of the run, so that both draw different numbers


def learn_from_retries(
    trainer: RunTrainer,
    record: RunRecord,
    folder: Path,
    *,
    batch_size: int = 2,
    max_tokens: int = 4096,
    is_resumed: bool = False,
) -> None:
    """Add the replay channel with the run's own pairs: those that an earlier launch has made, or new ones."""
    path, is_main = folder / FILE, trainer.accelerator.is_main_process
    pairs = broadcast_object_list([_kept(path, record) if is_main else None])[0]
    if pairs is None and is_resumed:
        # Other pairs would have another order, and perhaps the same number.
        raise TrainerError(f"{path} is not the file that this run has made. Bring it back, or start a new run.")
    if pairs is None:
        pairs, counts = make_pairs(trainer, trainer.own_pairs, batch_size=batch_size, max_tokens=max_tokens)
        record.values["own_pairs"] = counts
        if is_main:
            record.values["own_pairs_digest"] = write_pairs(path, pairs)
            record.write()
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
    max_tokens: int = 4096,  # of a prompt with either answer
    rows: Sequence[Mapping[str, Any]] = (),  # tasks to play; none: some of the training tasks
) -> tuple[list[TokenPair], dict[str, int]]:
    """Return the pairs of all ranks, and how many rollouts, failed turns with a hint, and pairs there are."""
    if trainer.sharding or trainer.is_deepspeed_enabled:
        raise TrainerError(
            "own_pairs generates before sharded weights are prepared. Train without FSDP and DeepSpeed, or leave "
            "own_pairs out."
        )
    check_places(trainer.hinter)
    rank, num_ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes
    mine = (rows or _some_tasks(trainer, num_rollouts))[rank::num_ranks]
    turns = list(_failed_turns(trainer, mine))
    worked = list(_worked(trainer, turns))
    found = [pair for pair in worked if _length(pair) <= max_tokens]
    values = reference_logps(trainer.bare_model, found, batch_size=batch_size) if found else []
    pairs = [
        replace(pair, ref_chosen=chosen, ref_rejected=rejected)
        for pair, (chosen, rejected) in zip(found, values, strict=True)
    ]
    failed, long = map(sum, zip(*gather_object([(len(turns), len(worked) - len(found))]), strict=True))
    pairs = gather_object(pairs)
    counts = {"rollouts": len(rows) or num_rollouts, "failed_turns": failed, "pairs": len(pairs), "too_long": long}
    return pairs, counts


def write_pairs(path: Path, pairs: Sequence[TokenPair]) -> str:
    """Write pairs for a resumed run, all or none of them, and return the digest of the file."""
    content = b"".join(orjson.dumps(asdict(pair)) + b"\n" for pair in pairs)
    write_whole(path, content)
    return hashlib.sha256(content).hexdigest()


def read_pairs(content: bytes) -> list[TokenPair]:
    """Read the pairs of a file."""
    return [TokenPair(**orjson.loads(line)) for line in content.splitlines()]


def _kept(path: Path, record: RunRecord) -> list[TokenPair] | None:
    """Return the pairs of this run, None if it has made none; the file of another run has another digest."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    is_own = hashlib.sha256(content).hexdigest() == record.values.get("own_pairs_digest")
    return read_pairs(content) if is_own else None


def _length(pair: TokenPair) -> int:
    return len(pair.prompt_ids) + max(len(pair.chosen_ids), len(pair.rejected_ids))


def _some_tasks(trainer: RunTrainer, count: int) -> list[Mapping[str, Any]]:
    """Draw tasks, each as often as any other."""
    tasks: Any = trainer.train_dataset
    draw = random.Random(trainer.args.seed)
    whole, rest = divmod(count, len(tasks))
    places = [*range(len(tasks))] * whole + draw.sample(range(len(tasks)), rest)
    return [tasks[place] for place in places]


def _failed_turns(trainer: RunTrainer, rows: Sequence[Mapping[str, Any]]) -> Iterator[FailedTurn]:
    for part in played(trainer, rows, 1, seed=_ROLLOUTS + trainer.args.seed):
        batch = rows[part]
        for row, rollout in zip(batch, trainer.last_rollouts[: len(batch)], strict=True):
            for site in trainer.hinter.sites(rollout):
                yield FailedTurn.of(row, rollout, site)


def _worked(trainer: RunTrainer, turns: Sequence[FailedTurn]) -> Iterator[TokenPair]:
    """Try each turn once more with its hint, for one round of tools, and yield what worked over what failed."""
    retries = [Retry(turn.before, list(turn.site.hinted_ids), turn.site.prefix_ids) for turn in turns]
    rows, limit = [turn.row for turn in turns], trainer.max_tool_calling_iterations
    trainer.max_tool_calling_iterations = 1
    try:
        for part in played(trainer, rows, 1, retries, seed=_RETRIES + trainer.args.seed):
            tried = zip(turns[part], trainer.last_rollouts, trainer.retries_reached, strict=False)
            for turn, rollout, is_reached in tried:
                better, failed = _better(turn, rollout), list(turn.site.action_ids)
                if is_reached and better:
                    yield TokenPair(list(turn.site.prefix_ids), better, failed, 0.0, 0.0)
    finally:
        trainer.max_tool_calling_iterations = limit


def _better(turn: FailedTurn, rollout: Rollout) -> list[int]:
    """Return the tokens of a retry with other calls that worked; a call also works if it shows that a test fails."""
    first = rollout.trace.steps[0]
    calls = rollout.trace.messages[first.action].tool_calls
    is_another = [(call.name, call.arguments) for call in calls] != [(call.name, call.arguments) for call in turn.calls]
    has_worked = calls and first.prefix_exact and all(site.blame == "outcome" for site in first.error_sites)
    return list(rollout.tokens(first)[1]) if has_worked and is_another else []
