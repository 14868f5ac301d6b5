"""Yield, exactness and cost of task making on packages that pip downloads, against two full runs per candidate.

python -m benchmarks.tasks inflection toolz --candidates 20 --full 8
python -m benchmarks.tasks toolz funcy cachetools --make 60 --workers 2    # whole sets, as the command makes them
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from composer_hub.environments.venvs import venv_for
from composer_hub.tasks.baseline import measure
from composer_hub.tasks.bench import Bench
from composer_hub.tasks.deletion import PackageModel
from composer_hub.tasks.gates import check, recheck
from composer_hub.tasks.language import PackageRefused
from composer_hub.tasks.make import make
from composer_hub.tasks.options import TaskOptions
from composer_hub.tasks.packages import GENERATORS
from composer_hub.tasks.sets import PackageReport
from composer_hub.tasks.sources import open_package

VALID = ("", "unfocused")  # right, if maybe not wanted because it breaks many tests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--candidates", type=int, default=20, help="of a kind and package")
    parser.add_argument("--full", type=int, default=8, help="tasks of a kind and package that are run in full")
    parser.add_argument("--kinds", default=",".join(GENERATORS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--make", type=int, help="make task sets with so many tasks of a kind and package, and stop")
    options = parser.parse_args()
    if options.make:
        whole_sets(options)
        return
    totals: dict[str, Counter[str]] = {kind: Counter() for kind in GENERATORS}
    results = []
    for name in options.packages:
        with tempfile.TemporaryDirectory(prefix="composer-benchmark-") as folder:
            Path(folder).chmod(0o755)
            try:
                result = one_package(name, Path(folder), options, totals)
            except PackageRefused as error:
                result = {"package": name, "refused": error.reason, "sentence": str(error)}
        print(json.dumps(result), flush=True)
        results.append(result)
    print(table(totals))
    if options.json:
        options.json.write_text(json.dumps({"packages": results, "kinds": totals}, indent=1))


def whole_sets(options: argparse.Namespace) -> None:
    """Print what the whole command costs, package by package and in all."""
    begun, own = time.monotonic(), time.process_time()

    def show(report: PackageReport) -> None:
        print(json.dumps({
            "package": report.package, "version": report.version, "refused": report.refused, "tests": report.num_tests,
            "tasks": sum(report.kept.values()), "cpu_s": report.cpu_s, "baseline_cpu_s": report.baseline_cpu_s,
            "wall_s": report.wall_s, "kept": dict(report.kept), "rechecked": dict(report.rechecked),
        }), flush=True)  # fmt: skip

    made = make(
        options.packages,
        TaskOptions(max_per_kind=options.make, workers=options.workers, seed=options.seed),
        on_package=show,
    )
    cpu = sum(report.cpu_s for report in made.reports) + time.process_time() - own
    wall = time.monotonic() - begun
    print(json.dumps({"tasks": len(made.tasks), "with_oracle": len(made.oracles), "cpu_s": round(cpu),
                      "cpu_s_per_task": round(cpu / max(1, len(made.tasks)), 2), "wall_s": round(wall)}))  # fmt: skip


def one_package(
    name: str, folder: Path, options: argparse.Namespace, totals: dict[str, Counter[str]]
) -> dict[str, Any]:
    """Measure one package and add its counts to the totals."""
    package = open_package(name, folder / "package")
    metadata = package.metadata
    venv = venv_for(["pytest", "coverage", *metadata.requirements, *metadata.test_requirements])
    bench = Bench(package, venv, folder / "bench", options.workers)
    baseline = measure(bench)
    model = PackageModel(package, baseline)
    result: dict[str, Any] = {
        "package": name, "version": metadata.version, "tests": len(baseline.passing), "flaky": len(baseline.flaky),
        "slow": len(baseline.slow), "files_set_aside": dict(Counter(baseline.set_aside.values())),
        "suite_cpu_s": baseline.suite_s, "baseline_cpu_s": round(bench.cpu_s, 1), "kinds": {},
    }  # fmt: skip
    batch = bench.batch
    for kind, generator in GENERATORS.items():
        if kind not in options.kinds.split(","):
            continue
        counts: Counter[str] = Counter()
        candidates = list(generator(model, random.Random(options.seed)))
        before, begun = bench.cpu_s, time.monotonic()
        checked = check(bench, model, candidates[: options.candidates], TaskOptions().max_failing)
        counts["cpu_ms"], counts["wall_ms"] = (
            round(1000 * (bench.cpu_s - before)),
            round(1000 * (time.monotonic() - begun)),
        )
        valid = [one for one in checked if one.reason in VALID]
        counts.update(candidates=len(candidates), run=len(checked), valid=len(valid))
        counts["kept"] = sum(not one.reason for one in valid)
        counts.update(f"no:{one.reason}" for one in checked if one.reason not in VALID)
        before = bench.cpu_s
        bench.batch = 1  # a process for each full run, as without a warm parent
        # The tests of an edit that breaks too many of them were not all run.
        again = recheck(bench, model, [one for one in valid if not one.reason][: options.full])
        bench.batch = batch
        counts["full_cpu_ms"], counts["full"] = round(1000 * (bench.cpu_s - before)), len(again)
        counts.update(one.recheck for one in again)
        result["kinds"][kind] = dict(counts)
        totals[kind].update(counts)
    return result


def table(totals: dict[str, Counter[str]]) -> str:
    """Return the totals as a Markdown table."""
    head = "| kind | candidates | run | kept | valid | exact of full runs | CPU-s per valid | two full runs |"
    lines = [head, "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for kind, one in totals.items():
        if not one["run"]:
            continue
        share = one["kept"] / max(one["run"], 1)
        cost, full = one["cpu_ms"] / 1000 / max(one["valid"], 1), one["full_cpu_ms"] / 1000 / max(one["full"], 1)
        lines.append(
            f"| {kind} | {one['candidates']} | {one['run']} | {one['kept']} ({share:.0%}) | {one['valid']} "
            f"| {one['exact']} of {one['full']} | {cost:.2f} | {full:.2f} ({full / max(cost, 0.001):.1f}x) |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
