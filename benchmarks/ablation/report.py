"""The figures of the ablation from its recorded runs: `python scripts/ablate.py report` prints the tables."""

from __future__ import annotations

import json
import statistics
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from datasets import Features, List, Value

from composer_hub import hub

RECORDED = Path(__file__).with_name("runs.jsonl")
# Quantiles of Student's t for a two-sided 95 % interval, by degrees of freedom.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
ROUNDS = {"first": range(10, 18), "second": range(40, 48), "third": range(50, 58)}  # seeds
MIN_SEEDS = {"first": 5, "second": 8, "third": 6}  # of a comparison
NAMES = {
    "grpo": "GRPO", "hint": "+ hint", "control": "+ control hint", "replay": "+ replay", "all": "all three",
    "hint_live": "+ hint, live teacher", "contrast": "+ contrastive hint", "sft_retries": "+ SFT on retries",
    "sft_agreed": "+ SFT on agreed turns", "grpo_time": "GRPO, 1.3 times the steps",
    "hint_fork": "+ hint at fork", "sft_hinted": "+ SFT after the hint",
    "grpo_told": "GRPO, prompted", "replay_failures": "+ replay of failed turns",
    "own_pairs": "+ own pairs", "hint_kl": "+ hint, KL", "control_kl": "+ control hint, KL",
    "fork_kl": "+ hint at fork, KL",
}  # fmt: skip
COMPARED = (
    ("all", "grpo"), ("hint", "grpo"), ("hint", "control"), ("replay", "grpo"), ("hint", "sft_retries"),
    ("hint", "sft_hinted"), ("hint", "grpo_told"), ("hint", "hint_live"), ("hint_fork", "hint"), ("contrast", "hint"),
    ("all", "grpo_time"), ("replay", "sft_agreed"), ("replay_failures", "grpo"), ("own_pairs", "grpo"),
    ("own_pairs", "hint"), ("own_pairs", "sft_retries"),
    ("hint_kl", "hint"), ("hint_kl", "control_kl"), ("hint_kl", "grpo_time"), ("fork_kl", "hint_kl"),
    ("hint", "grpo_time"),
)  # fmt: skip
COLORS = {"grpo": "#7f7f7f", "control": "#cc79a7", "hint": "#d55e00", "replay": "#009e73", "all": None}
Run = Mapping[str, Any]
Runs = Mapping[tuple[str, str], Mapping[int, Run]]  # (regime, arm) -> seed -> run


def read(seeds: Container[int], path: Path = RECORDED) -> Runs:
    """Read the recorded runs of a round, by regime, arm and seed."""
    runs: dict[tuple[str, str], dict[int, Run]] = {}
    for run in _lines(path):
        if run["seed"] in seeds:
            runs.setdefault((run["regime"], run["arm"]), {})[run["seed"]] = run
    return {
        key: dict(sorted(runs[key].items())) for key in sorted(runs, key=lambda one: (one[0], [*NAMES].index(one[1])))
    }


def _lines(path: Path = RECORDED) -> Iterator[Run]:
    return map(json.loads, path.read_text().splitlines())


def recorded(run: Run) -> str:
    """Return a run as a line of the record: its curve, its probes and the ends of its log."""
    kept = {name: run[name] for name in ("regime", "arm", "seed", "num_pairs", "options", "budget")}
    kept |= {"curve": [[step, round(value, 4)] for step, value in run["curve"]], "seconds": round(run["seconds"])}
    for name, wanted in (("preflight", "/hint"), ("forgetting", "/known")):
        kept[name] = {key: round(value, 3) for key, value in run[name].items() if key.endswith(wanted)}
    for name, rows in (("first", run["log"][:5]), ("last", run["log"][-5:])):
        keys = ("frac_reward_zero_std", "tools/failure_frequency", "channel/hint/sites_per_rollout")
        kept[name] = {key: round(statistics.mean(row.get(key, 0.0) for row in rows), 3) for key in keys}
    return json.dumps(kept, separators=(",", ":"))


def record(runs: Iterable[Run], path: Path = RECORDED) -> None:
    """Add runs to the record; a run of the same regime, arm and seed is replaced."""
    lines = {_key(json.loads(line)): line for line in path.read_text().splitlines()}
    lines |= {_key(run): recorded(run) for run in runs}
    path.write_text("".join(f"{lines[key]}\n" for key in sorted(lines)))


def _key(run: Run) -> tuple[str, str, int]:
    return run["regime"], run["arm"], run["seed"]


def final(run: Run) -> float:
    return float(run["curve"][-1][1])


def area(run: Run) -> float:
    return statistics.mean(value for _, value in run["curve"])


def paired(runs: Runs, regime: str, arm: str, other: str) -> list[float]:
    """Return the difference of the last pass@1 for every seed that both arms have."""
    first, second = runs.get((regime, arm), {}), runs.get((regime, other), {})
    return [final(first[seed]) - final(second[seed]) for seed in sorted(first.keys() & second.keys())]


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % interval."""
    mean = statistics.mean(values)
    half = T_95[len(values) - 2] * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


def sign_flip(values: Sequence[float]) -> float:
    """Return the exact two-sided p of a mean this far from 0 if every sign were a fair coin."""
    flips = product((1, -1), repeat=len(values))
    sums = [abs(sum(sign * value for sign, value in zip(signs, values, strict=True))) for signs in flips]
    return sum(one >= sums[0] - 1e-9 for one in sums) / len(sums)  # the first flips nothing


def follows(run: Run) -> float:
    """Return how probable the right word is with the hint where the model does not know it."""
    return statistics.mean(
        run["preflight"][f"{part}/{belief}/hint"] for part in ("verb", "key") for belief in ("half", "stale")
    )


def tables(round_: str) -> Iterator[str]:
    """Yield the tables of a round."""
    runs = read(ROUNDS[round_])
    yield from _head(
        "regime", "arm", "seeds", "start", "final pass@1 by seed", "mean", "area", "groups without gradient"
    )
    for (regime, arm), seeds in runs.items():
        several = list(seeds.values())
        starts, finals = [run["curve"][0][1] for run in several], [final(run) for run in several]
        dead = [statistics.mean(run[end]["frac_reward_zero_std"] for run in several) for end in ("first", "last")]
        yield _row(
            regime, NAMES[arm], f"{min(seeds)}-{max(seeds)}", _mean(starts), " ".join(map(_two, finals)),
            f"**{_mean(finals)}**", _mean(map(area, several)), " … ".join(f"{100 * share:.0f} %" for share in dead),
        )  # fmt: skip
    yield ""
    yield from _head("regime", "difference", "seeds", "mean", "95 % interval", "p, exact")
    for regime in ("dense", "sparse"):
        for arm, other in COMPARED:
            values = paired(runs, regime, arm, other)
            if len(values) < MIN_SEEDS[round_]:
                continue
            mean, low, high = interval(values)
            yield _row(
                regime, f"{NAMES[arm]} minus {NAMES[other]}", str(len(values)), f"**{mean:+.3f}**",
                f"{low:+.3f} … {high:+.3f}", f"{sign_flip(values):.3f}",
            )  # fmt: skip
    hinted, plain = (runs.get(("sparse", arm), {}) for arm in ("hint", "grpo"))
    if both := hinted.keys() & plain.keys():
        yield ""
        yield from _head("seed", "right word with the hint", "sparse: hint minus GRPO")
        for seed in sorted(both):
            gain = final(hinted[seed]) - final(plain[seed])
            yield _row(str(seed), f"{follows(hinted[seed]):.3f}", f"{gain:+.3f}")


def draft(commit: str) -> hub.Draft:
    """Return the recorded runs as a dataset, with their tables on its card."""
    columns = dict.fromkeys(("run_id", "regime", "arm"), Value("string"))
    columns["seed"] = Value("int32")
    columns["curve"] = List({"step": Value("int32"), "pass1": Value("float64")})
    columns |= dict.fromkeys(("num_pairs", "seconds"), Value("int32"))
    columns |= dict.fromkeys(("probes", "options", "budget"), Value("string"))
    parts = [f"## The {name} round\n\n" + "\n".join(tables(name)) for name in ROUNDS]
    return hub.Draft(
        [hub.Table("default", map(_published, _lines()), Features(columns), "run_id")],
        hub.Card(
            "runs", "Ablation of the three channels", tags=("grpo", "ablation"), holes={"tables": "\n\n".join(parts)}
        ),
        hub.Lineage(config={"published_from": commit}),
    )


def _published(run: Run) -> Run:
    """Return a run as a row: what differs between runs is JSON."""
    row = {name: run[name] for name in ("regime", "arm", "seed", "num_pairs", "seconds")}
    row |= {name: json.dumps(run[name], sort_keys=True) for name in ("options", "budget")}
    row["run_id"] = "{regime}-{arm}-{seed}".format(**run)
    row["curve"] = [{"step": step, "pass1": value} for step, value in run["curve"]]
    row["probes"] = json.dumps({"before": run["preflight"], "after": run["forgetting"]}, sort_keys=True)
    return row


def draw(runs: Runs, folder: Path) -> list[Path]:
    """Draw the mean curves, with every seed behind them, for a light and a dark page."""
    from matplotlib.figure import Figure

    from composer_hub.train.run.plots import THEMES

    written = []
    for theme, colors in THEMES.items():
        figure = Figure(figsize=(9, 3.6), dpi=120, facecolor=colors["paper"], layout="constrained")
        for axes, regime in zip(figure.subplots(1, 2, sharey=True), ("dense", "sparse"), strict=True):
            for arm, color in COLORS.items():
                seeds = runs.get((regime, arm), {})
                if not seeds:
                    continue
                curves = [[value for _, value in run["curve"]] for run in seeds.values()]
                steps = [step for step, _ in next(iter(seeds.values()))["curve"]]
                for curve in curves:
                    axes.plot(steps, curve, color=color or colors["first"], alpha=0.18, linewidth=1)
                means = [statistics.mean(values) for values in zip(*curves, strict=True)]
                axes.plot(
                    steps, means, color=color or colors["first"], linewidth=2.2, label=f"{NAMES[arm]} ({len(seeds)})"
                )
            axes.set_title(regime, color=colors["ink"])
            axes.set_facecolor(colors["paper"])
            axes.set_xlabel("step", color=colors["ink"])
            axes.tick_params(colors=colors["ink"])
            axes.grid(color=colors["grid"], linewidth=0.6)
            for spine in axes.spines.values():
                spine.set_color(colors["grid"])
            axes.legend(
                loc="upper left",
                facecolor=colors["paper"],
                edgecolor=colors["grid"],
                labelcolor=colors["ink"],
                fontsize=8,
            )
        figure.axes[0].set_ylabel("pass@1, 256 held-out tasks", color=colors["ink"])
        written.append(folder / f"ablation-{theme}.png")
        figure.savefig(written[-1], metadata={"Software": None})
    return written


def _head(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield "|" + "---|" * len(cells)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _mean(values: Iterable[float]) -> str:
    return _two(statistics.mean(values))


def _two(value: float) -> str:
    return f"{value:.2f}".removeprefix("0")
