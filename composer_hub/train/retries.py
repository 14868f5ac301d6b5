"""Does the model follow a hint? Failed turns are tried again in the environment: with the hint, a control, and nothing.

In: hint sites of fresh rollouts. Out: one `WriterRetries` per writer and kind of error, with the share of rollouts that
succeed from the same states, and the writers whose hints do no better than words of the same length about other errors.

A state is reached again by a reset and the calls of the turns before. If the results differ, nothing is
compared.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import set_seed
from trl import GRPOTrainer

from composer_hub.hints.writers import control_hint
from composer_hub.records import ToolCall
from composer_hub.train.batch import HintSite
from composer_hub.train.evals import EVAL_SEED
from composer_hub.train.isolation import isolated
from composer_hub.train.rollouts import Rollout
from composer_hub.train.siblings import reached, total_rewards
from composer_hub.train.uplift import MIN_SITES, by_writer

ARMS = ("hint", "control", "none")
Z = 1.96


@dataclass(frozen=True)
class FailedTurn:
    """A turn to be tried again: its task, the calls before it with their results, and its hint site."""

    row: Mapping[str, Any]
    before: Sequence[tuple[ToolCall, str]]
    site: HintSite
    calls: Sequence[ToolCall] = ()  # of the turn itself

    @classmethod
    def of(cls, row: Mapping[str, Any], rollout: Rollout, site: HintSite) -> FailedTurn:
        own = rollout.trace.messages[rollout.trace.steps[site.step].action].tool_calls
        return cls(row, tuple(_calls(rollout, site.step)), site, own)


@dataclass(frozen=True)
class Retry:
    """One rollout from the middle: the calls to be made first, and the tokens to continue from."""

    before: Sequence[tuple[ToolCall, str]]
    prefix: Sequence[int]
    bare: Sequence[int] = ()  # the prefix without a hint

    def begins_with(self, prompt: Sequence[int]) -> bool:
        """Return whether a reset shows the prompt that the rollout began with."""
        return list(self.bare[: len(prompt)]) == list(prompt)


@dataclass(frozen=True, slots=True)
class SiteRetries:
    """The share of retries of one turn that succeed, by arm."""

    writer: str
    kind: str
    hint: float
    control: float
    none: float


@dataclass(frozen=True, slots=True)
class WriterRetries:
    """One line of the table: the mean shares, and how much better the hint does than the control."""

    writer: str
    kind: str
    num_sites: int
    hint: float
    control: float
    none: float
    gain: float  # hint minus control, over the same turns
    error: float  # its standard error

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the gain."""
        return self.gain - Z * self.error, self.gain + Z * self.error

    @property
    def loses(self) -> bool:
        """Return whether the gain is not above its own error; equal outcomes of all retries prove nothing."""
        alike = self.hint == self.control and self.hint in (0.0, 1.0)
        return self.num_sites >= MIN_SITES and not alike and self.gain <= self.error


def table(sites: Iterable[SiteRetries]) -> list[WriterRetries]:
    """Return one line per writer and kind, those with most sites first."""
    return [_line(writer, kind, group) for (writer, kind), group in by_writer(sites)]


def refused(lines: Iterable[WriterRetries]) -> frozenset[tuple[str, str]]:
    """Return the writers, by kind of error, whose hints do not beat their controls."""
    return frozenset((line.writer, line.kind) for line in lines if line.loses)


def as_text(lines: Sequence[WriterRetries]) -> str:
    """Return the table for a terminal."""
    head = f"{'writer':<14}{'kind':<22}{'turns':>6}{'hint':>7}{'control':>9}{'nothing':>9}   gain over control"
    body = [
        f"{line.writer:<14}{line.kind:<22}{line.num_sites:>6}{line.hint:>7.2f}{line.control:>9.2f}{line.none:>9.2f}   "
        f"{line.gain:+.2f} [{line.interval[0]:+.2f}, {line.interval[1]:+.2f}]"
        for line in lines
    ]
    return "\n".join([head, *body])


def measure(trainer: Any, turns: Sequence[FailedTurn], num_samples: int) -> list[SiteRetries]:
    """Try each turn again in every arm; the state of the run does not change. All ranks return all results."""
    arms = [retry for turn in turns for retry in _arms(trainer, turn)]
    rows = [turn.row for turn in turns for _ in ARMS]
    shares = iter(_shares(trainer, rows, arms, num_samples))
    found = []
    for turn in turns:
        hint, control, none = (next(shares) for _ in ARMS)
        if not any(math.isnan(share) for share in (hint, control, none)):
            found.append(SiteRetries(turn.site.hint.writer, turn.site.hint.kind, hint, control, none))
    return gather_object(found)


def reach_states(trainer: Any, retries: Sequence[Retry]) -> list[bool]:
    """Make the calls before each retry in its environment, and return where all results are the recorded ones."""
    return [
        all(_result(trainer, place, call) == result for call, result in retry.before)
        for place, retry in enumerate(retries)
    ]


def _calls(rollout: Rollout, step: int) -> Iterator[tuple[ToolCall, str]]:
    messages = rollout.trace.messages
    for earlier in rollout.trace.steps[:step]:
        calls = {call.call_id: call for call in messages[earlier.action].tool_calls}
        for place in earlier.results:
            # A result without its call cannot be had again, so the state is not reached.
            yield calls.get(messages[place].tool_call_id, ToolCall("", {})), messages[place].content


def _arms(trainer: Any, turn: FailedTurn) -> Iterator[Retry]:
    site, hinter = turn.site, trainer.hinter
    control = control_hint(site.hint, random.Random(site.hint.text))
    for prefix in (site.hinted_ids, hinter.hinted(list(site.prefix_ids), control.text), site.prefix_ids):
        yield Retry(turn.before, list(prefix), site.prefix_ids)


def _result(trainer: Any, place: int, call: ToolCall) -> str:
    """Call a tool as TRL's loop does, and return the text of its result."""
    tools = trainer._sync_tool_dicts[place] | trainer._async_tool_dicts[place]
    try:
        if call.name not in tools:
            raise ValueError(f"Tool {call.name} not found.")
        result = tools[call.name](**call.arguments)
        if inspect.isawaitable(result):
            result = asyncio.run_coroutine_threadsafe(_awaited(result), trainer.async_loop).result()
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is what the model reads
        result = {"error": str(error)}
    return str(result)


async def _awaited(result: Any) -> Any:
    return await result


def played(
    trainer: Any,
    rows: Sequence[Mapping[str, Any]],
    num_samples: int,
    retries: Sequence[Retry] = (),
    *,
    seed: int = EVAL_SEED,
) -> Iterator[slice]:
    """Play each task some times without changing the run, from its retry if there are retries.

    Yields the places of the tasks of each batch, whose rollouts the trainer has until the next one. Every rank
    must call this.
    """
    usual = trainer.args.per_device_train_batch_size * trainer.args.steps_per_generation
    at_once = max(1, usual // num_samples)
    # Scoring gathers over ranks, so all make equally many batches; a rank without tasks plays any of them.
    num_batches = -(-max(gather_object([len(rows)])) // at_once)
    spare = next(iter(rows), trainer.train_dataset[0])
    with isolated(trainer, num_samples):
        set_seed(seed + trainer.accelerator.process_index)
        for first in range(0, num_batches * at_once, at_once):
            part = slice(first, first + at_once)
            batch = [*rows[part], *[spare] * (at_once - len(rows[part]))]
            trainer.retries = [retry for retry in retries[part] for _ in range(num_samples)]
            with torch.no_grad():
                # TRL's own method: hints, exports and alarms are for training only.
                GRPOTrainer._generate_and_score_completions(
                    trainer, [dict(row) for row in batch for _ in range(num_samples)]
                )
            trainer.check_environments()
            yield part


def _shares(trainer: Any, rows: Sequence[Mapping[str, Any]], retries: Sequence[Retry], num_samples: int) -> list[float]:
    """Return the share of each retry's samples that succeed; NaN if its state was not reached."""
    shares = []
    for part in played(trainer, rows, num_samples, retries):
        rewards = total_rewards(trainer.rewards_by_function, trainer.reward_weights, unscored=math.nan)
        mine = rewards.view(trainer.accelerator.num_processes, -1, num_samples)
        scores = mine[trainer.accelerator.process_index].tolist()
        are_reached = trainer.retries_reached
        for number, samples in enumerate(scores[: len(rows[part])]):
            same = all(are_reached[number * num_samples : (number + 1) * num_samples])
            successes = sum(reached(one, trainer.args.success_reward) for one in samples)
            shares.append(successes / num_samples if same else math.nan)
    return shares


def _line(writer: str, kind: str, group: Sequence[SiteRetries]) -> WriterRetries:
    means = {arm: math.fsum(getattr(site, arm) for site in group) / len(group) for arm in ARMS}
    gains = [site.hint - site.control for site in group]
    gain = math.fsum(gains) / len(gains)
    spread = math.fsum((one - gain) ** 2 for one in gains) / (len(gains) - 1) if len(gains) > 1 else 0.0
    return WriterRetries(writer, kind, len(group), **means, gain=gain, error=math.sqrt(spread / len(gains)))
