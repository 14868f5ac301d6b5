"""pass@1 on held-out tasks, before, during and after a run: task rows in, a rate with its interval out.

The trainer makes these rollouts itself, in evaluation mode and with separate environments. Random state, metrics and
all other state are restored, so a measured run ends with the same weights as an unmeasured one. Every measurement uses
the same seed, so two of them differ only by what the model has learned. TRL's `eval_dataset` has none of this: it adds
a loss, draws from the random state of training, and knows no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml
from transformers import Trainer, TrainerCallback, set_seed
from trl import GRPOTrainer

from composer_hub.hub.loading import Version
from composer_hub.hub.refs import RepoRef
from composer_hub.pairs.stats import wilson
from composer_hub.records import canonical_json
from composer_hub.train.isolation import isolated
from composer_hub.train.siblings import total_rewards

_KEY = "eval/pass_at_1"
EVAL_SEED = 1001  # of all attempts, so that two measurements can be compared


@dataclass(frozen=True)
class EvalPlan:
    """The frequency, size and threshold of the measurements."""

    num_samples: int = 4
    every: int = 0
    pass_reward: float = 1.0
    max_rollouts: int = 0  # made at once per rank; 0: as many as training makes


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
        """Return the rate as a line of the log."""
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


def _effective(rates: Sequence[float], value: float, num_attempts: int) -> float:
    """Return the effective number of independent attempts, because attempts at one task are correlated."""
    if len(rates) == 1:
        return num_attempts
    spread = math.fsum((rate - value) ** 2 for rate in rates) / (len(rates) * (len(rates) - 1))
    worth = value * (1 - value) / spread if spread else (num_attempts if 0 < value < 1 else len(rates))
    return min(float(num_attempts), max(float(len(rates)), worth))


def num_also_in(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> int:
    """Count the rows that are also among others, word for word."""
    known = {canonical_json(dict(row)) for row in others}
    return sum(canonical_json(dict(row)) in known for row in rows)


def measured(history: Sequence[Mapping[str, Any]]) -> list[tuple[int, PassRate]]:
    """Return the steps of a log at which pass@1 was measured, with the rates."""
    return [(line["step"], PassRate.of(line)) for line in history if _KEY in line]


@dataclass(frozen=True)
class HeldOutTasks:
    """The tasks of a measurement and the conditions under which attempts at them are made."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    plan: EvalPlan
    temperature: float
    version: Version | RepoRef | None = None  # None if composer_hub did not publish them
    split: str = ""
    num_trained_on: int = 0

    def card_rows(self, history: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Return the first and the last pass@1 of a log, and how they were measured."""
        rates = measured(history)
        if not rates:
            return {}
        last = rates[-1][1]
        conditions = self._conditions(last)
        if self.num_trained_on:
            conditions += f"; **{self.num_trained_on:,} of these tasks are also training tasks**"
        if last.num_lost:
            conditions += f"; in {last.num_lost:,} attempts the environment was lost, which counts as not passed"
        # The plot shows the others.
        shown = {f"pass@1 after {step:,} steps": str(rate) for step, rate in dict([rates[0], rates[-1]]).items()}
        return shown | {"measured on": f"{self._source()}: {conditions}"}

    def sentence(self, history: Sequence[Mapping[str, Any]]) -> str:
        """Return the first and the last pass@1 of a log in one line."""
        rates = measured(history)
        if not rates:
            return ""
        (first, before), (last, after) = rates[0], rates[-1]
        return (
            f"pass@1 on {after.num_tasks:,} held-out tasks: {before} after {first:,} steps, {after} after {last:,} "
            "(95 % intervals)."
        )

    def eval_results(self, history: Sequence[Mapping[str, Any]]) -> str:
        """Return the Hub's `.eval_results` of the final model; empty unless the tasks are a dataset version."""
        rates = measured(history)
        if not rates or self.version is None:
            return ""
        rate = rates[-1][1]
        entry = EvalResultEntry(
            dataset_id=self.version.repo,
            task_id=self.split,
            dataset_revision=self.version.revision,
            value=round(rate.value, 6),
            notes=f"pass@1, 95 % interval {rate.low:.3f} to {rate.high:.3f}: {self._conditions(rate)}.",
        )
        return yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, width=1000)

    def _source(self) -> str:
        if self.version is None:
            return f"`{self.name}` (not a version that composer_hub published)"
        return f"`{self.version.repo}` at `{self.version.revision}`, split {self.split}"

    def _conditions(self, rate: PassRate) -> str:
        plan = self.plan
        return (
            f"{rate.num_tasks:,} tasks, {plan.num_samples} attempts each at temperature {self.temperature:g}, "
            f"seed {EVAL_SEED}; a reward of {plan.pass_reward:g} or more passes; 95 % Wilson interval over tasks"
        )


def never() -> bool:
    """Return False: the run continues."""
    return False


class Evals(TrainerCallback):
    """Measures pass@1 before the first step, after every n-th and after the last, before that step is saved.

    A run that is about to end does not wait for a measurement; the resumed run makes it.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], plan: EvalPlan) -> None:
        self.rows, self.plan = [dict(row) for row in rows], plan
        self.trainer: Any = None
        self.is_ending = never  # asked before each batch, by all ranks

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._is_due(state):
            self.measure()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._is_due(state):
            self.measure(self.is_ending)

    def _is_due(self, state: Any) -> bool:
        step = state.global_step
        return step == 0 or step >= state.max_steps or bool(self.plan.every and step % self.plan.every == 0)

    def measure(self, is_ending: Callable[[], bool] = never) -> None:
        """Measure and log the current step, unless it is measured already or the run is about to end."""
        state = self.trainer.state
        if state.global_step in dict(measured(state.log_history)):
            return
        rewards = attempts(self.trainer, self.rows, self.plan, EVAL_SEED, is_ending)
        if rewards is None:
            return
        # This log must not replace the one that is due at this step.
        is_due = self.trainer.control.should_log
        # TRL's own log would add, and then clear, the metrics that the training step has collected.
        Trainer.log(self.trainer, pass_rate(rewards, self.plan.pass_reward).logs())
        self.trainer.control.should_log = is_due


def attempts(
    trainer: Any, rows: Sequence[dict[str, Any]], plan: EvalPlan, seed: int, is_ending: Callable[[], bool]
) -> list[list[float]] | None:
    """Return the rewards of some attempts at each task, over all ranks; None if the run is about to end.

    The state of the run does not change.
    """
    rank, num_ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes
    num_samples = plan.num_samples
    # As many rollouts as training generates at once fit into memory.
    usual = trainer.args.per_device_train_batch_size * trainer.args.steps_per_generation
    tasks_a_rank = max(1, (plan.max_rollouts or usual) // num_samples)
    found: list[list[float]] = []
    with isolated(trainer, num_samples):
        set_seed(seed + rank)
        for start in range(0, len(rows), tasks_a_rank * num_ranks):
            if is_ending():
                return None
            # Every rank takes part in every batch, so short ones are padded with tasks that are not counted.
            places = [start + rank * tasks_a_rank + number for number in range(tasks_a_rank)]
            batch = [dict(rows[place % len(rows)]) for place in places for _ in range(num_samples)]
            rewards = _rewards(trainer, batch).view(-1, num_samples).tolist()
            found += rewards[: len(rows) - start]
    return found


def _rewards(trainer: Any, batch: list[dict[str, Any]]) -> torch.Tensor:
    """Return the weighted reward of one rollout per row, over all ranks; NaN if no function scored it."""
    with torch.no_grad():
        # TRL's own method: hints, exports and alarms are for training only.
        GRPOTrainer._generate_and_score_completions(trainer, batch)
    return total_rewards(trainer.rewards_by_function, trainer.reward_weights, unscored=math.nan)
