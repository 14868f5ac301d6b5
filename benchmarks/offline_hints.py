"""Does a real model learn from recorded hints? One answer per arm, on owners it never saw, read without hints.

    python -m benchmarks.offline_hints sites SESSIONS OUT      # SESSIONS/OWNER/…; OUT is one line of JSON per site
    python -m benchmarks.offline_hints run OUT MODEL --seeds 1-5 [--size small]
    python -m benchmarks.offline_hints report

In: error sites whose hint comes from the product's writers and whose working action is known, and ordinary steps. Each
arm trains an adapter through `OfflineTrainer` on some owners; the rest are measured. `run` does what `RECORDED` lacks,
arm by arm within a seed, and adds a line per run. docs/results/real_model.md names the plan.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
import time
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.ablation import numbers
from benchmarks.ablation.report import interval, sign_flip
from benchmarks.hint_margin import SYSTEM, as_turns, sites_of, spelled
from composer_hub.errors.find import find_errors
from composer_hub.hints.writers import DEFAULT_WRITERS, WRITERS
from composer_hub.ingest.reading import Reading, ReadOptions
from composer_hub.records import Hint
from composer_hub.train import ComposerConfig, Stream, Term
from composer_hub.train.batch import HintSite, first_difference
from composer_hub.train.hint_term import TraceLoader
from composer_hub.train.hinting import Hinter
from composer_hub.train.losses import token_logps
from composer_hub.train.run.offline import OfflineTrainer
from composer_hub.train.teacher import HintTeacher
from composer_hub.train.terms import Notes, TermModel
from composer_hub.train.uplift import right_padded

RECORDED = Path(__file__).with_name("offline_hints.jsonl")
NUM_HELD_OUT = 12  # owners
ORDINARY = 3  # steps per owner that are kept


@dataclass(frozen=True)
class Size:
    """How much is read and learned; runs of two sizes are never compared."""

    context: int  # tokens before the action
    action: int  # tokens of it
    train_sites: int  # per owner
    held_out_sites: int
    ordinary: int
    epochs: int


SIZES = {"small": Size(64, 32, 3, 2, 1, 2), "large": Size(1400, 200, 20, 8, 8, 2)}


@dataclass(frozen=True)
class Arm:
    """What is learned at the sites of the training owners."""

    name: str
    options: Mapping[str, Any]  # of ComposerConfig
    control: bool = False  # hints of another owner's site
    sft: bool = False  # the working action instead


HINTS = {"alpha_sdpo": 1.0, "hint_source": "traces"}  # JSD, the default
KL = HINTS | {"hint_divergence": 0.0}
ARMS = {
    arm.name: arm
    for arm in (
        Arm("all_kl", KL),
        Arm("all_control_kl", KL, control=True),
        Arm("all", HINTS),
        Arm("sft", {}, sft=True),
        Arm("fork_kl", KL | {"hint_aim": "fork"}),
    )
}
BARS = (("all_kl", "none"), ("all_kl", "all_control_kl"), ("all_kl", "all"))  # the rest is reported, not judged
DIFFERENCES = (*BARS, ("all", "none"), ("all_control_kl", "none"), ("fork_kl", "all_kl"), ("sft", "none"))


# ----------------------------------------------------------------------------------------------------------- the data


def write_sites(sessions: Path, out: Path) -> None:
    """Write a line per site, and per ordinary step, of each owner's sessions."""
    names = [name for name, writer in WRITERS.items() if writer in DEFAULT_WRITERS]
    with out.open("w", encoding="utf-8") as lines:
        for owner in sorted(path.name for path in sessions.iterdir()):
            for path in sorted((sessions / owner).iterdir()):
                common = {"owner": owner, "session": path.stem}
                for site in sites_of([str(path)], names):
                    lines.write(json.dumps({**common, **asdict(site)}) + "\n")
                for context, action in _ordinary(path):
                    lines.write(json.dumps({**common, "context": context, "ordinary": action}) + "\n")


def _ordinary(path: Path) -> Iterator[tuple[Any, str]]:
    """Yield a few steps with calls that worked, drawn from the session."""
    for session in Reading([str(path)], ReadOptions()):
        trace = find_errors(session)
        steps = [step for step in trace.steps if trace.messages[step.action].tool_calls and not step.error_sites]
        for step in random.Random(path.stem).sample(steps, min(ORDINARY, len(steps))):
            yield as_turns(trace, step), spelled(trace.messages[step.action].tool_calls[0])


@dataclass(frozen=True)
class Material:
    """The tokens of one size: sites to train on, sites and ordinary steps of the owners that are held out."""

    train: list[tuple[str, HintSite]]  # owner and site
    held_out: list[tuple[str, HintSite]]
    ordinary: list[tuple[str, tuple[array[int], array[int]]]]  # owner, prefix and action


def material_of(path: Path, tokenizer: Any, size: Size) -> Material:
    """Split the sites by owner; a site counts once, and if its actions part within what is read of them."""
    by_owner: dict[str, list[HintSite]] = defaultdict(list)
    ordinary: dict[str, list[Any]] = defaultdict(list)
    encode, known = _Encoder(tokenizer, size), set[tuple[str, ...]]()
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "ordinary" in row:
            ordinary[row["owner"]].append(row)
            continue
        same = (row["owner"], row["hint"]["text"], row["failed"], row["worked"])
        if same in known:  # sessions that continue others repeat their errors
            continue
        known.add(same)
        site = encode.hinter.place(
            Hint(**row["hint"]),
            encode.prompt(row["context"]),
            encode.action(row["failed"]),
            encode.action(row["worked"]),
        )
        if site is not None and site.at_fork() is not None:
            by_owner[row["owner"]].append(site)
    rng = random.Random("owners")
    owners = sorted(by_owner)
    held_out = set(rng.sample(owners, NUM_HELD_OUT))

    def drawn(found: Mapping[str, list[Any]], wanted: set[str], most: int) -> list[tuple[str, Any]]:
        return [
            (owner, one) for owner in sorted(wanted) for one in rng.sample(found[owner], min(most, len(found[owner])))
        ]

    return Material(
        drawn(by_owner, set(owners) - held_out, size.train_sites),
        drawn(by_owner, held_out, size.held_out_sites),
        [
            (owner, (encode.prompt(row["context"]), encode.action(row["ordinary"])))
            for owner, row in drawn(ordinary, held_out, size.ordinary)
        ],
    )


class _Encoder:
    """Turns texts into tokens of the model's own chat template."""

    def __init__(self, tokenizer: Any, size: Size) -> None:
        self.tokenizer, self.size = tokenizer, size
        self.hinter = Hinter(self._template)

    def _template(self, messages: Any, *, add_generation_prompt: bool) -> list[int]:
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=add_generation_prompt, tokenize=False)
        return self._ids(text[-16 * self.size.context :])  # contexts are long, and their ends are read

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def prompt(self, context: Sequence[Sequence[str]]) -> array[int]:
        talk = [{"role": "system", "content": SYSTEM}] + [{"role": role, "content": text} for role, text in context]
        return array("i", self._template(talk, add_generation_prompt=True)[-self.size.context :])

    def action(self, text: str) -> array[int]:
        return array("i", self._ids(text)[: self.size.action])


def with_other_hints(sites: Sequence[tuple[str, HintSite]]) -> list[HintSite]:
    """Give each site the hint of another owner's, from half of the list further on."""
    found = []
    for place, (owner, site) in enumerate(sites):
        others = [sites[(place + len(sites) // 2 + off) % len(sites)] for off in range(len(sites))]
        other = next(one for name, one in others if name != owner)
        ends = other.inserted_ids
        found.append(replace(site, hint=replace(other.hint, writer="other"), inserted_ids=ends))
    return found


class Worked(Term):
    """Supervised fine-tuning on the action that worked."""

    name = "worked"

    def tensors(self, rows: Sequence[HintSite]) -> dict[str, Tensor]:
        padded = right_padded([(site.prefix_ids, site.corrected_ids) for site in rows])
        return dict(zip(("worked_ids", "worked_attention", "worked_mask"), padded, strict=True))

    def values(self, model: TermModel, rows: Mapping[str, Tensor], hidden: Tensor | None) -> tuple[Tensor, Notes]:
        answer = rows["worked_mask"][:, 1:]
        read = model.read(rows["worked_ids"], rows["worked_attention"])[:, :-1][answer]
        logps, entropies = token_logps(read, model.head, rows["worked_ids"][:, 1:][answer])
        return -logps, {"entropy": entropies}


# ----------------------------------------------------------------------------------------------------------- one run


def measured(network: Any, material: Material) -> dict[str, list[Any]]:
    """Return log p of each held-out action, its fork's two tokens, and of ordinary steps, per token, without hints."""
    teacher = HintTeacher("live", network)
    rows = [(owner, site.prefix_ids, action) for owner, site in material.held_out
            for action in (site.corrected_ids, site.action_ids)]  # fmt: skip
    rows += [(owner, *row) for owner, row in material.ordinary]
    logps: list[list[float]] = []
    for start in range(0, len(rows), 8):
        part = rows[start : start + 8]
        ids, attention, answer = right_padded([row[1:] for row in part])
        with torch.no_grad():
            hidden, head = teacher.read(ids, attention)
            found, _ = token_logps(hidden[:, :-1][answer[:, 1:]], head, ids[:, 1:][answer[:, 1:]])
        logps += [one.tolist() for one in found.split([len(row[2]) for row in part])]
    sites = []
    for number, (owner, site) in enumerate(material.held_out):
        worked, failed = logps[2 * number : 2 * number + 2]
        fork = first_difference(site.action_ids, site.corrected_ids)
        sites.append([owner, sum(worked), sum(failed), worked[fork], failed[fork]])
    ordinary = logps[2 * len(material.held_out) :]
    return {
        "sites": [[owner, *(round(value, 4) for value in values)] for owner, *values in sites],
        "ordinary": [
            [owner, round(statistics.mean(one), 5)] for (owner, _), one in zip(material.ordinary, ordinary, strict=True)
        ],
    }


def trained(arm: Arm, model: Path, material: Material, size: Size, seed: int, folder: Path) -> OfflineTrainer:
    """Train an adapter on the training owners."""
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(seed)
    sites = with_other_hints(material.train) if arm.control else [site for _, site in material.train]
    batch = 4
    args = ComposerConfig(
        output_dir=str(folder), use_cpu=True, bf16=False, report_to="none", save_strategy="no", disable_tqdm=True,
        seed=seed, num_train_epochs=size.epochs, per_device_train_batch_size=batch, num_generations=2,
        learning_rate=4e-4, lr_scheduler_type="constant", measure_every=0, logging_steps=1, max_grad_norm=1.0,
        gradient_checkpointing=False, **arm.options,
    )  # fmt: skip
    loader: dict[str, Any] = (
        {"terms": [Worked(1.0, loader=Stream(sites, batch, seed))]} if arm.sft
        else {"traces": TraceLoader(sites, batch, seed)}
    )  # fmt: skip
    trainer = OfflineTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), args=args,
        processing_class=AutoTokenizer.from_pretrained(model),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"), **loader,
    )  # fmt: skip
    trainer.train()
    return trainer


def run(arm: str, model: Path, material: Material, size: str, seed: int) -> dict[str, Any]:
    """Return the line of one run; the arm `none` is the model as it is."""
    from transformers import AutoModelForCausalLM

    begun, seconds = time.perf_counter(), time.process_time()
    log: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        if arm == "none":
            network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        else:
            trainer = trained(ARMS[arm], model, material, SIZES[size], seed, Path(folder))
            network = trainer.bare_model.eval()
            log = [row for row in trainer.state.log_history if "loss" in row]
        learned = time.process_time() - seconds
        found = measured(network, material)
    return {
        "size": size, "arm": arm, "seed": seed, "train_sites": len(material.train), "steps": len(log),
        "losses": [round(row["loss"], 5) for row in log], "cpu_seconds_training": round(learned),
        "seconds": round(time.perf_counter() - begun), **found,
    }  # fmt: skip


def run_all(sites: Path, model: Path, size: str, seeds: Sequence[int], recorded: Path, most: int) -> None:
    """Run what is not recorded yet: the model as it is, and then every arm of a seed before the next seed."""
    from transformers import AutoTokenizer

    torch.set_num_threads(1)
    material = material_of(sites, AutoTokenizer.from_pretrained(model), SIZES[size])
    wanted = [("none", 0), *((arm, seed) for seed in seeds for arm in ARMS)]
    for arm, seed in itertools.islice((one for one in wanted if one not in done(recorded, size)), most):
        line = json.dumps(run(arm, model, material, size, seed), separators=(",", ":"))
        with recorded.open("a", encoding="utf-8") as lines:
            lines.write(line + "\n")
        print(arm, seed, flush=True)


def done(recorded: Path, size: str) -> set[tuple[str, int]]:
    """Return arm and seed of the runs of a size that are recorded."""
    return {(row["arm"], row["seed"]) for row in read(recorded) if row["size"] == size}


def read(recorded: Path = RECORDED) -> list[dict[str, Any]]:
    """Return the recorded runs."""
    return [json.loads(line) for line in recorded.read_text().splitlines()] if recorded.exists() else []


# ------------------------------------------------------------------------------------------------------- the figures

CHANGES = ("worked", "failed", "margin", "fork margin", "ordinary, nats per token")


def changes(run: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the change of each measure by owner, as the mean over the owner's sites."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (owner, *now), (_, *before) in zip(run["sites"], plain["sites"], strict=True):
        worked, failed, fork_worked, fork_failed = (one - other for one, other in zip(now, before, strict=True))
        values = (worked, failed, worked - failed, fork_worked - fork_failed)
        for name, value in zip(CHANGES, values, strict=False):
            found[name][owner].append(value)
    for (owner, now), (_, before) in zip(run["ordinary"], plain["ordinary"], strict=True):
        found[CHANGES[-1]][owner].append(now - before)
    return {name: {owner: statistics.mean(all_) for owner, all_ in owners.items()} for name, owners in found.items()}


def tables(runs: Sequence[Mapping[str, Any]], size: str) -> Iterator[str]:
    """Yield the page's tables: changes by arm, and the registered differences with their tests."""
    runs = [run for run in runs if run["size"] == size]
    plain = next((run for run in runs if run["arm"] == "none"), None)
    if plain is None:
        return
    by_arm: dict[str, list[dict[str, dict[str, float]]]] = defaultdict(list)
    for one in runs:
        by_arm[one["arm"]].append(changes(one, plain))
    yield f"| arm | seeds | {' | '.join(CHANGES)} | worked above failed |"
    yield "|---|---|" + "---:|" * (len(CHANGES) + 1)
    for arm in ("none", *ARMS):
        if arm in by_arm:
            means = [statistics.mean(_over_seeds(by_arm[arm], name).values()) for name in CHANGES]
            ranked = [
                statistics.mean(worked > failed for _, worked, failed, *_ in one["sites"])
                for one in runs if one["arm"] == arm
            ]  # fmt: skip
            shown = " | ".join(f"{value:+.2f}" for value in means[:-1])
            yield f"| `{arm}` | {len(by_arm[arm])} | {shown} | {means[-1]:+.3f} | {statistics.mean(ranked):.0%} |"
    yield ""
    yield "| difference | in | owners above 0 | mean | 95 % | p, exact |"
    yield "|---|---|---|---:|---|---:|"
    for one, other in DIFFERENCES:
        if one not in by_arm or other not in by_arm:
            continue
        for name in ("margin", CHANGES[-1]) if other == "none" else ("margin",):
            mine, theirs = _over_seeds(by_arm[one], name), _over_seeds(by_arm[other], name)
            values = [mine[owner] - theirs[owner] for owner in sorted(mine)]
            above = sum(value > 0 for value in values)
            mean, low, high = interval(values)
            yield (
                f"| `{one}` - `{other}` | {name} | {above} of {len(values)} | **{mean:+.3f}** "
                f"| {low:+.3f} to {high:+.3f} | {sign_flip(values):.3f} |"
            )


def _over_seeds(runs: Sequence[Mapping[str, Mapping[str, float]]], name: str) -> dict[str, float]:
    return {owner: statistics.mean(run[name][owner] for run in runs) for owner in runs[0][name]}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    sites = commands.add_parser("sites", help="find the sites of sessions, a folder per owner")
    sites.add_argument("sessions", type=Path)
    sites.add_argument("out", type=Path)
    runs = commands.add_parser("run", help="train and measure what is not recorded yet")
    runs.add_argument("sites", type=Path)
    runs.add_argument("model", type=Path)
    runs.add_argument("--seeds", default="1-5", help="Seeds, as in 1-5 or 1,3 (1-5).")
    runs.add_argument("--size", choices=SIZES, default="small")
    runs.add_argument("--most", type=int, default=10_000, help="Runs before it ends (all).")
    runs.add_argument("--recorded", type=Path, default=RECORDED)
    report = commands.add_parser("report", help="print the tables of the recorded runs")
    report.add_argument("--size", choices=SIZES, default="small")
    args = parser.parse_args()
    if args.command == "sites":
        write_sites(args.sessions, args.out)
    elif args.command == "run":
        seeds = numbers(args.seeds)
        run_all(args.sites, args.model, args.size, seeds, args.recorded, args.most)
    else:
        print("\n".join(tables(read(), args.size)))


if __name__ == "__main__":
    main()
