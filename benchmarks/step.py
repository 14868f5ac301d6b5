"""What a whole training step costs with one, two and three channels, against plain GRPO on the same rollouts.

    python -m benchmarks.step [--steps 4] [--rounds 3]

The learning rate is 0 and the seed the same, so every kind of run samples the very same rollouts; the benchmark ends
with an error if it does not. The first call of a tool fails in every episode, which makes one hint site a rollout, and
there is one pair a rollout. Kinds take turns, so that a busy machine is busy for all of them.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import tempfile
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS: dict[str, dict[str, float]] = {
    "grpo": {},
    "hint": {"alpha_sdpo": 0.5},
    "replay": {"beta_replay": 0.2},
    "all three": {"alpha_sdpo": 0.5, "beta_replay": 0.2},
}


@dataclass(frozen=True)
class Cost:
    """CPU seconds a step."""

    whole: float
    generation: float
    sites: float  # hint sites a rollout
    tokens: float  # tokens the run sampled: the same for all kinds, or nothing is compared

    @property
    def update(self) -> float:
        return self.whole - self.generation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    import torch

    from composer_hub.train.tiny import small_model

    torch.set_num_threads(1)
    world = small_model()
    cost_of(world, KINDS["all three"], 1)  # what is loaded or built once is not part of a step
    found: dict[str, list[Cost]] = {name: [] for name in KINDS}
    for _ in range(args.rounds):
        for name, options in KINDS.items():
            found[name].append(cost_of(world, options, args.steps))
    if len({cost.tokens for costs in found.values() for cost in costs}) > 1:
        sys.exit("The kinds sampled different rollouts, so their times cannot be compared.")
    show(found)


def show(found: dict[str, list[Cost]]) -> None:
    plain = _medians(found["grpo"])
    for name, costs in found.items():
        whole, generation, update = _medians(costs)
        print(
            f"{name:<10} {whole * 1000:7.0f} ms CPU a step ({whole / plain[0]:.2f} x GRPO): generation "
            f"{generation * 1000:.0f}, update {update * 1000:.0f} ({update / plain[2]:.2f} x); "
            f"{costs[0].sites:.2f} sites a rollout, {costs[0].tokens:.0f} tokens"
        )


def _medians(costs: list[Cost]) -> tuple[float, float, float]:
    return (
        statistics.median(cost.whole for cost in costs),
        statistics.median(cost.generation for cost in costs),
        statistics.median(cost.update for cost in costs),
    )


def cost_of(world: tuple[Any, Any], options: dict[str, float], num_steps: int) -> Cost:
    from transformers import set_seed

    from composer_hub.train.trainer import ComposerTrainer
    from tests.train.runs import trainer_of

    class Timed(ComposerTrainer):
        generation = 0.0

        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            begun = time.process_time()
            made = super()._generate(*args, **kwargs)
            self.generation += time.process_time() - begun
            return made

    with tempfile.TemporaryDirectory() as folder:
        usual = {"max_steps": num_steps, "pair_batch": 8, "learning_rate": 0.0, "measure_every": 0}
        trainer = trainer_of(
            world, Path(folder), Timed, sampled=True, environment=first_call_fails(), **usual, **options
        )
        set_seed(0)
        begun = time.process_time()
        with redirect_stdout(io.StringIO()):  # transformers prints what it logs
            trainer.train()
        whole = time.process_time() - begun
    steps = [row for row in trainer.state.log_history if "grad_norm" in row]
    return Cost(
        whole / num_steps,
        trainer.generation / num_steps,
        statistics.mean(row.get("channel/hint/sites_per_rollout", 0.0) for row in steps),
        steps[-1]["num_tokens"],
    )


def first_call_fails() -> type:
    from composer_hub.environments.desk import Desk

    class FirstCallFails(Desk):
        def reset(self, a: int = 0, b: int = 0, **row: Any) -> None:
            super().reset(a, b, **row)
            self.has_failed = False

        def add(self, a: int, b: int) -> str:
            """Add two numbers.

            Args:
                a: First.
                b: Second.
            """
            if not self.has_failed:
                self.has_failed = True
                raise TimeoutError("The desk did not answer. Call add again.")
            return super().add(a, b)

    return FirstCallFails


if __name__ == "__main__":
    main()
