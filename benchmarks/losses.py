"""What the hint loss costs: the divergence on selected rows against the formula on all logits.

    python -m benchmarks.losses divergence [--time 1024] [--vocab 152000] [--hidden 64]

Each way runs in a process of its own, so that its peak memory is its own; what the process held before is taken off.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

WAYS = ("kernel", "chunked", "formula")
ERROR_SHARE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["divergence", "way"], nargs="?", default="divergence")
    parser.add_argument("rest", nargs="*")
    for name, value in {"batch": 2, "time": 1024, "vocab": 152_000, "hidden": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    if args.what == "way":
        print(json.dumps(run_way(args.rest[0], args)))
    else:
        compare_ways(args)


def compare_ways(args: argparse.Namespace) -> None:
    sizes = [f"--{name}={getattr(args, name)}" for name in ("batch", "time", "vocab", "hidden")]
    found = {}
    # Otherwise the C library keeps what was freed, and how much of it changes from run to run.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    for way in WAYS:
        command = [sys.executable, "-m", "benchmarks.losses", "way", way, *sizes]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
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
        values, _ = divergence_from_hidden(student[rows], head, teacher[rows], head, kernel=way == "kernel")
    values.mean().backward()
    cpu = time.process_time() - start
    return {"peak_mb": _peak_mb() - held, "cpu_s": cpu, "value": values.mean().item()}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
