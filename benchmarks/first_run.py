"""The first run of a newcomer: `configs/tiny.yaml` over several seeds, pass@1 on held-out tasks before and after.

    python -m benchmarks.first_run --seeds 21 22 23 24 25
    python -m benchmarks.first_run --seeds 1 -- --learning_rate 2e-3
    python scripts/small_models.py small-beginner --to starts/1 --seed 1   # and so on
    python -m benchmarks.first_run --seeds 21 --starts starts/*/small-beginner
    ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 python -m benchmarks.first_run

Every seed with every start is one whole run of the program in this process. CPU-seconds are of this process, and one
thread is used, so they depend little on the load of the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.ablation.report import interval

os.environ.setdefault("OMP_NUM_THREADS", "1")


def one_run(seed: int, folder: Path, more: list[str]) -> dict[str, Any]:
    """Train with one seed and return what was measured."""
    import torch

    from composer_hub.hub import digest_of
    from composer_hub.train.evals import measured
    from composer_hub.train.run.main import quieten, run
    from composer_hub.train.run.options import parse_options

    quieten()
    begun = time.process_time()
    words = ["--config", "tiny", "--seed", str(seed), "--output_dir", str(folder), "--to", str(folder.parent), *more]
    with contextlib.redirect_stdout(io.StringIO()):
        run(parse_options(words))
    state = json.loads((max(folder.glob("checkpoint-*"), key=_step) / "trainer_state.json").read_text())
    rates = [rate for _, rate in measured(state["log_history"])]
    rewards = [line["reward"] for line in state["log_history"] if "reward" in line]
    first, last = rates[0], rates[-1]
    return {
        "seed": seed,
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "weights": digest_of(folder / "final")[:19],
        "rates": (first.value, last.value),
        "before": str(first),
        "after": str(last),
        "gain": round(last.value - first.value, 3),
        "intervals apart": last.low > first.high,
        "rewards": [round(reward, 2) for reward in rewards],
        "cpu_s": round(time.process_time() - begun, 1),
    }


def _step(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[21, 22, 23, 24, 25])
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    parser.add_argument("--starts", nargs="+", default=["small-beginner"], help="Starting models; one run for each.")
    args = parser.parse_args(words[:cut])
    rows = []
    for seed, start in itertools.product(args.seeds, args.starts):
        with tempfile.TemporaryDirectory() as folder:
            more = ["--model_name_or_path", start, *words[cut + 1 :]]
            rows.append({"start": start, **one_run(seed, Path(folder) / "run", more)})
        print(json.dumps(rows[-1]), flush=True)
    before, after = zip(*(row["rates"] for row in rows), strict=True)
    gains = [last - first for first, last in zip(before, after, strict=True)]
    for name, values in (("before", before), ("after", after), ("gain", gains)) if len(rows) > 1 else ():
        mean, low, high = interval(values)
        print(f"{name} {mean:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
