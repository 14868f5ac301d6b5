"""A worker whose training is a formula, run by `test_federation.py` in processes of its own, which it kills.

Usage: federation_worker.py REPO NAME RUN NUM_WORKERS NUM_ROUNDS. Prints the digest of the end.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np
from huggingface_hub import HfApi

from composer_hub.hub import HubDestination
from composer_hub.train.apart.deltas import Values
from composer_hub.train.apart.federation import Federation, Rules

START: Values = {f"layer.{number}": np.ones((8, 4), np.float32) / (number + 3) for number in range(3)}


def trained(values: Values, worker: str, number: int) -> Values:
    """Return what a worker makes of the values in a round: the same each time it is asked."""
    draw = np.random.default_rng([number, *worker.encode()])
    return {name: value - draw.normal(0.1, 0.05, value.shape).astype(np.float32) for name, value in values.items()}


def rules_of(num_workers: int, num_rounds: int) -> Rules:
    return Rules("base", num_workers, num_rounds, 4)


def main() -> None:
    repo, name, run, num_workers, num_rounds = sys.argv[1:]
    where = HubDestination("local", HfApi(endpoint=os.environ["HF_ENDPOINT"], token=os.environ["HF_TOKEN"]))
    worker = Federation(where, repo, name, run, note=lambda text: print(text, file=sys.stderr))
    state = worker.join(rules_of(int(num_workers), int(num_rounds)), START)
    while state.round < int(num_rounds):
        if not worker.has_delivered(state):
            time.sleep(float(os.environ.get("STEP_S", "0")))
            worker.deliver(state, trained(state.values, name, state.round), {"steps": 4})
        after = worker.wait(state)
        assert after is not None
        state = after
    print(state.digest, flush=True)


if __name__ == "__main__":
    main()
