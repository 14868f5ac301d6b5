"""What the losses cost: divergence on selected rows against the formula on all logits, and three channels against GRPO.

    python -m benchmarks.losses divergence [--time 1024] [--vocab 152000] [--hidden 64]
    python -m benchmarks.losses step CACHE_FOLDER

Each way runs in a process of its own, so that its peak memory is its own; what the process held before is taken off.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = ("kernel", "chunked", "formula")
ERROR_SHARE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["divergence", "way", "step"])
    parser.add_argument("rest", nargs="*")
    for name, value in {"batch": 2, "time": 1024, "vocab": 152_000, "hidden": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    if args.what == "way":
        print(json.dumps(run_way(args.rest[0], args)))
    elif args.what == "step":
        compare_steps(Path(args.rest[0]))
    else:
        compare_ways(args)


def compare_ways(args: argparse.Namespace) -> None:
    sizes = [f"--{name}={getattr(args, name)}" for name in ("batch", "time", "vocab", "hidden")]
    found = {}
    for way in WAYS:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.losses", "way", way, *sizes], capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"{way} ended with {done.returncode}, perhaps for want of memory: {done.stderr[-300:]}")
        found[way] = json.loads(done.stdout.splitlines()[-1])
    full = found["formula"]
    for way, row in found.items():
        print(
            f"{way:<8} peak {row['peak_mb']:8.0f} MB (1/{full['peak_mb'] / row['peak_mb']:.1f})   "
            f"CPU {row['cpu_s']:6.2f} s (1/{full['cpu_s'] / row['cpu_s']:.1f})   mean {row['value']:.6f}"
        )


def run_way(way: str, args: argparse.Namespace) -> dict[str, float]:
    import torch

    from composer_hub.train.losses import Head, divergence_from_hidden, divergence_from_logits

    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape = (args.batch * args.time, args.hidden)
    student, teacher = torch.randn(shape, requires_grad=True), torch.randn(shape)
    weight = (torch.randn(args.vocab, args.hidden) * args.hidden**-0.5).requires_grad_()
    rows = torch.rand(shape[0]).argsort()[: int(shape[0] * ERROR_SHARE)].sort().values
    small = Head(weight.detach()[:50])  # what is imported or built once is not part of the price
    divergence_from_hidden(student.detach()[:2], small, teacher[:2], small, kernel=way == "kernel")
    held, start = _peak_mb(), time.process_time()
    if way == "formula":
        logits_s, logits_t = student @ weight.T, teacher @ weight.detach().T
        values = divergence_from_logits(logits_s, logits_t)[rows]
    else:
        head = Head(weight)
        values = divergence_from_hidden(student[rows], head, teacher[rows], head, kernel=way == "kernel")
    values.mean().backward()
    cpu = time.process_time() - start
    return {"peak_mb": _peak_mb() - held, "cpu_s": cpu, "value": values.mean().item()}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compare_steps(cache: Path, *, num_steps: int = 6) -> None:
    """Print the CPU time of a step by channels; kinds take turns, so that a busy machine is busy for all of them."""
    import torch

    from composer_hub.train.world import small_model

    torch.set_num_threads(1)
    world = small_model(cache)
    kinds = {
        "grpo": {},
        "hint": {"alpha_sdpo": 0.5},
        "replay": {"beta_replay": 0.2},
        "all": {"alpha_sdpo": 0.5, "beta_replay": 0.2},
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(3):
        for name, options in kinds.items():
            found[name].append(_cpu_of_steps(copy.deepcopy(world), options, num_steps))
    plain = statistics.median(found["grpo"])
    for name, seconds in found.items():
        value = statistics.median(seconds)
        print(f"{name:<8} {value * 1000:7.0f} ms CPU a step, {value / plain:.2f} x GRPO (runs: {seconds})")


def _cpu_of_steps(world: tuple[object, object], options: dict[str, float], num_steps: int) -> float:
    from tests.train.runs import trainer_of

    with tempfile.TemporaryDirectory() as folder:
        # One pair a rollout: 8 rollouts a step, 8 pairs.
        trainer = trainer_of(world, Path(folder), max_steps=num_steps, pair_batch=8, logging_steps=100, **options)
        start = time.process_time()
        trainer.train()
        return (time.process_time() - start) / num_steps


if __name__ == "__main__":
    main()
