"""Held-out tasks of a run: their pass@1 as rows of the card and as the Hub's evaluation results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from composer_hub.hub import RepoRef, Version
from composer_hub.train.evals import EVAL_SEED, EvalPlan, PassRate, measured


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
