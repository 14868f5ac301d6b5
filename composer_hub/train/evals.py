"""pass@1 on held-out tasks, before, during and after a run: task rows in, a rate with its interval in the log out.

The trainer's own rollouts are used, in evaluation mode and with environments of their own; random state, metrics and
everything else of the run are put back, so a run that is measured ends with the same weights as one that is not. Each
measurement draws from the same seed, so two of them differ by what was learned and by nothing else.
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from transformers import Trainer, TrainerCallback, set_seed
from trl import GRPOTrainer

from composer_hub.records import canonical_json
from composer_hub.train.guard import release

_KEY = "eval/pass_at_1"
_Z = 1.959964  # 95 %
# What a rollout leaves behind in the trainer: put back by name.
_LEFT_BEHIND = (
    "_rollouts", "_sites", "_rewards", "_rewards_by_function", "environments", "_batch_environments",
    "_sync_tool_dicts", "_async_tool_dicts", "num_generations_eval", "_prompts",
)  # fmt: skip


@dataclass(frozen=True)
class EvalPlan:
    """How often, how much and how strictly a run is measured."""

    num_samples: int = 4
    every: int = 0
    seed: int = 1001
    pass_reward: float = 1.0


@dataclass(frozen=True)
class PassRate:
    """pass@1 and its 95 % interval."""

    value: float
    low: float
    high: float
    num_tasks: int
    num_attempts: int
    num_lost: int = 0  # attempts whose environment was lost; they did not pass

    def logs(self) -> dict[str, float]:
        """Return the line of the log that holds it."""
        counts = {name: getattr(self, name) for name in ("num_tasks", "num_attempts", "num_lost")}
        return {_KEY: self.value, f"{_KEY}_low": self.low, f"{_KEY}_high": self.high} | {
            f"eval/{name}": count for name, count in counts.items()
        }

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> PassRate:
        counts = (int(line[f"eval/{name}"]) for name in ("num_tasks", "num_attempts", "num_lost"))
        return cls(line[_KEY], line[f"{_KEY}_low"], line[f"{_KEY}_high"], *counts)

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def pass_rate(rewards: Sequence[Sequence[float]], pass_reward: float = 1.0) -> PassRate:
    """Return pass@1 of attempts by task: the mean over tasks, with a Wilson interval; NaN is a lost attempt."""
    if not rewards or not all(rewards):
        raise ValueError("There are no attempts to count.")
    rates = [sum(reward >= pass_reward for reward in task) / len(task) for task in rewards]
    attempts = [reward for task in rewards for reward in task]
    value = math.fsum(rates) / len(rates)
    low, high = wilson(value, _effective(rates, value, len(attempts)))
    return PassRate(value, low, high, len(rates), len(attempts), sum(math.isnan(reward) for reward in attempts))


def wilson(rate: float, count: float, z: float = _Z) -> tuple[float, float]:
    """Return Wilson's interval of a share."""
    middle = (rate + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def _effective(rates: Sequence[float], value: float, num_attempts: int) -> float:
    """Return how many independent attempts these are worth: those at one task are alike."""
    if len(rates) == 1:
        return num_attempts
    spread = math.fsum((rate - value) ** 2 for rate in rates) / (len(rates) * (len(rates) - 1))
    worth = value * (1 - value) / spread if spread else (num_attempts if 0 < value < 1 else len(rates))
    return min(float(num_attempts), max(float(len(rates)), worth))


def num_also_in(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> int:
    """Count the rows that stand, word for word, among others."""
    known = {canonical_json(dict(row)) for row in others}
    return sum(canonical_json(dict(row)) in known for row in rows)


def measured(history: Sequence[Mapping[str, Any]]) -> list[tuple[int, PassRate]]:
    """Return the steps of a log at which pass@1 was measured, and what it was."""
    return [(line["step"], PassRate.of(line)) for line in history if _KEY in line]


class Evals(TrainerCallback):
    """Measures pass@1 before the first step, after every n-th and after the last, before that step is saved."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], plan: EvalPlan) -> None:
        self.rows, self.plan = [dict(row) for row in rows], plan
        self.trainer: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 0 or self._is_due(state):
            self.measure()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # A run that is being ended has no time to lose; it is measured when it goes on.
        if self._is_due(state) and not (control.should_training_stop and state.global_step < state.max_steps):
            self.measure()

    def _is_due(self, state: Any) -> bool:
        every = self.plan.every
        return (every > 0 and state.global_step % every == 0) or state.global_step >= state.max_steps

    def measure(self) -> PassRate:
        """Measure where the run stands, unless that was done, and log it."""
        state = self.trainer.state
        known = dict(measured(state.log_history))
        if state.global_step not in known:
            rewards = attempts(self.trainer, self.rows, self.plan.num_samples, self.plan.seed)
            known[state.global_step] = pass_rate(rewards, self.plan.pass_reward)
            # A log of ours must not stand for the one that is due at this step.
            is_due = self.trainer.control.should_log
            # TRL's own log would mix in, and empty, the metrics that the training step has collected.
            Trainer.log(self.trainer, known[state.global_step].logs())
            self.trainer.control.should_log = is_due
        return known[state.global_step]


def attempts(trainer: Any, rows: Sequence[dict[str, Any]], num_samples: int, seed: int) -> list[list[float]]:
    """Return the rewards of some attempts at each task, over all ranks; the run goes on as if nothing had been."""
    rank, num_ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes
    # As many rollouts at once as training makes: that much is known to fit.
    tasks_a_rank = max(1, trainer.args.per_device_train_batch_size * trainer.args.steps_per_generation // num_samples)
    found: list[list[float]] = []
    with _aside(trainer, num_samples), keeping_random_state():
        set_seed(seed + rank)
        for start in range(0, len(rows), tasks_a_rank * num_ranks):
            # Every rank takes part in every batch: short ones are filled up with tasks that are not counted.
            places = [start + rank * tasks_a_rank + number for number in range(tasks_a_rank)]
            batch = [dict(rows[place % len(rows)]) for place in places for _ in range(num_samples)]
            rewards = _rewards(trainer, batch).view(-1, num_samples).tolist()
            found += rewards[: len(rows) - start]
    return found


def _rewards(trainer: Any, batch: list[dict[str, Any]]) -> torch.Tensor:
    """Return the weighted rewards of one rollout a row, of all ranks; NaN where nothing scored it."""
    with torch.no_grad():
        # Of the class that knows rollouts only: hints, exports and alarms are for training.
        GRPOTrainer._generate_and_score_completions(trainer, batch)
    by_function = trainer._rewards_by_function
    rewards = (by_function * trainer.reward_weights.to(by_function.device)).nansum(dim=1)
    return rewards.masked_fill(by_function.isnan().all(dim=1), math.nan)


@contextlib.contextmanager
def _aside(trainer: Any, num_samples: int) -> Iterator[None]:
    """Let a trainer make rollouts that leave nothing behind."""
    left = {name: getattr(trainer, name) for name in _LEFT_BEHIND if hasattr(trainer, name)}
    logs, metrics, was_training = trainer._logs, trainer._metrics, trainer.model.training
    pool = getattr(trainer, "_environment_pool", None)
    trainer._logs, trainer._metrics = copy.deepcopy(logs), {mode: defaultdict(list) for mode in metrics}
    trainer.num_generations_eval = num_samples
    if pool is not None:
        # Environments may have a state of their own: each measurement begins with fresh ones.
        trainer._environment_pool = {name: [] for name in pool}
    trainer.model.eval()
    try:
        yield
    finally:
        trainer.model.train(was_training)
        trainer._logs, trainer._metrics = logs, metrics
        if pool is not None:
            release(one for used in trainer._environment_pool.values() for one in used)
            trainer._environment_pool = pool
        for name, value in left.items():
            setattr(trainer, name, value)


@contextlib.contextmanager
def keeping_random_state() -> Iterator[None]:
    """Put every random state back in the end."""
    states = random.getstate(), numpy.random.get_state()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
