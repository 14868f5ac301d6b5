"""Run the arms of the ablation and keep one JSON file per run; a second call runs only what is missing.

python scripts/ablate.py run sparse/grpo/10-17 sparse/hint/10-17 --workers 2 --to runs/ablation
python scripts/ablate.py quick  # every arm for a few steps, from a model that has learned nothing
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, fields, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.ablation import numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train the arms")
    run.add_argument("jobs", nargs="*", help="REGIME/ARM/SEEDS[/option=value,...]")
    run.add_argument("--to", type=Path, default=Path("runs/ablation"))
    run.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "composer_hub" / "ablation")
    run.add_argument("--workers", type=int, default=1)
    run.add_argument("--device", default="cpu")
    warm = commands.add_parser("warm", help="train the starting models")
    warm.add_argument("seeds")
    warm.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "composer_hub" / "ablation")
    warm.add_argument("--workers", type=int, default=1)
    commands.add_parser("quick", help="run every arm for a few steps")
    report = commands.add_parser("report", help="print the tables of the recorded runs, and add a folder of runs first")
    report.add_argument("folder", nargs="?", type=Path)
    report.add_argument("--draw", type=Path, help="folder for the plots")
    publish = commands.add_parser("publish", help="publish the recorded runs as the next version of a dataset")
    publish.add_argument("repo", help="OWNER/NAME")
    publish.add_argument("--to", dest="where", default="local", help="local (the embedded Hub), hub, or a folder")
    args = parser.parse_args()
    if args.command == "report":
        show(args.folder, args.draw)
        return
    if args.command == "publish":
        give(args.repo, args.where)
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    if args.command == "quick":
        quick()
        return
    if args.command == "warm":
        tasks = [(warm_up, (seed, args.cache)) for seed in numbers(args.seeds)]
    else:
        tasks = [(train, (*job, args.to, args.cache, args.device)) for text in args.jobs for job in jobs_of(text)]
    with ProcessPoolExecutor(args.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(function, *rest) for function, rest in tasks]):
            print(future.result(), flush=True)


def show(folder: Path | None, pictures: Path | None) -> None:
    from benchmarks.ablation.report import ROUNDS, draw, read, record, tables

    if folder is not None:
        record([json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))])
    for name in ROUNDS:
        print(f"{name} round\n\n" + "\n".join(tables(name)), end="\n\n")
    if pictures is not None:
        draw(read(ROUNDS["first"]), pictures)


def give(repo: str, where: str) -> None:
    import subprocess

    from benchmarks.ablation.report import draft
    from composer_hub import exits, hub

    here = Path(__file__).parent
    made = draft(
        subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True
        ).stdout.strip()
    )
    try:
        published = hub.publish(hub.destination(where), repo, made.tables, made.card, lineage=made.lineage)
    except exits.ComposerError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"{published.repo} {published.tag} at {published.address}")


def jobs_of(text: str) -> Iterator[tuple[str, str, int, dict[str, float]]]:
    """Read `sparse/hint/0-3/alpha_sdpo=1.0`."""
    regime, arm, seeds, *rest = text.split("/")
    options = {
        name: json.loads(value) for name, _, value in (one.partition("=") for one in ",".join(rest).split(",") if one)
    }
    for seed in numbers(seeds):
        yield regime, arm, seed, options


def warm_up(seed: int, cache: Path) -> str:
    import torch

    from benchmarks.ablation.model import model_of

    torch.set_num_threads(1)
    model_of(seed, cache)
    return f"warm {seed}"


def quick() -> None:
    import tempfile

    from benchmarks.ablation.arms import ARMS, QUICK, run

    with tempfile.TemporaryDirectory() as cache:
        for arm in ARMS.values():
            result = run(arm, "dense", 0, Path(cache), QUICK, warm_steps=8)
            print(f"{arm.name:<12} {len(result.log)} steps {result.seconds:.1f} s {result.num_pairs} pairs", flush=True)


def train(regime: str, arm: str, seed: int, options: dict[str, float], to: Path, cache: Path, device: str) -> str:
    import torch

    from benchmarks.ablation.arms import ARMS, Budget, run
    from composer_hub.named_files import write_whole

    label = "".join(f",{name}={value}" for name, value in options.items())
    path = to / f"{regime}-{arm}-{seed}{label}.json"
    if not path.exists():
        torch.set_num_threads(1)
        own = {one.name: options.pop(one.name) for one in fields(Budget) if one.name in options}
        result = run(ARMS[arm], regime, seed, cache, replace(Budget(), **own), device, **options)
        to.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(asdict(result)).encode())
    kept = json.loads(path.read_text())
    curve = " ".join(f"{value:.2f}" for _, value in kept["curve"])
    probes = {name: round(value, 2) for name, value in kept["preflight"].items() if "hint" in name}
    return f"{path.stem:<40} {curve}  {kept['seconds']:.0f} s {kept['num_pairs']} pairs {probes}"


if __name__ == "__main__":
    main()
