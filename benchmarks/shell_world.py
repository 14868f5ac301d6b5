"""A shell whose programs have changed since the model learned them: real argparse, real messages.

    python -m benchmarks.shell_world warm MODEL WARM     # a short SFT on demonstrations
    python -m benchmarks.shell_world run WARM
    python -m benchmarks.shell_world read WARM           # no training: what the model does with the hint in its prompt
    python -m benchmarks.shell_world report

A dozen programs print a code for a file, which cannot be guessed. Each has an old interface, which the model is taught;
in the world of a seed, one word of it is another for half of them. Hints come from the product's writers, which read
what the programs print. docs/results/real_model.md has the plan and the results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.ablation import numbers
from benchmarks.ablation.report import interval, sign_flip
from composer_hub.environments.process import Limits
from composer_hub.environments.sandbox import Sandbox, open_sandbox

RECORDED = Path(__file__).with_suffix(".jsonl")
FILES = tuple("notes draft todo ledger report agenda minutes budget roster recipe".split())
LIMITS = Limits(seconds=10.0)
MAX_CHARS = 1500  # of a result
MODULES = tuple("q_proj k_proj v_proj o_proj gate_proj up_proj down_proj".split())
LAYERS = list(range(15, 30))  # that have an adapter: the upper half
MAX_TOKENS = 210  # of a rollout: two calls, their results and an answer


@dataclass(frozen=True)
class Interface:
    """How a program is called: its subcommand, the option of its file ("" if it stands alone), and one of a number."""

    command: str
    file: str
    number: str

    def call(self, program: str, file: str, number: int) -> str:
        """Return the command line."""
        words = [program, self.command, self.file, file, self.number, str(number)]
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Program:
    name: str
    purpose: str  # as a task says it
    old: Interface

    def source(self, interface: Interface) -> str:
        """Return the program's text."""
        file = f'"{interface.file}", dest="file", required=True' if interface.file else '"file"'
        number = (
            f'"{interface.number}", dest="number", type=int, required=True'
            if interface.number
            else '"number", type=int'
        )
        return f'''#!/usr/bin/env python3
import argparse, hashlib, pathlib
parser = argparse.ArgumentParser(prog="{self.name}")
commands = parser.add_subparsers(dest="command", required=True)
one = commands.add_parser("{interface.command}", help="{self.purpose.format(file="FILE", number="NUMBER")}")
one.add_argument({file})
one.add_argument({number})
args = parser.parse_args()
path = pathlib.Path(args.file)
if not path.is_file():
    parser.exit(1, f"{self.name}: {{args.file}}: No such file or directory\\n")
print(hashlib.sha256(f"{self.name} {{args.number}} {{path.read_text()}}".encode()).hexdigest()[:8])
'''

    def code(self, text: str, number: int) -> str:
        """Return what the program prints."""
        return hashlib.sha256(f"{self.name} {number} {text}".encode()).hexdigest()[:8]


def _program(name: str, purpose: str, old: str) -> Program:
    return Program(name, purpose, Interface(*(word if word != "-" else "" for word in old.split())))


# Subcommand, option of the file, option of the number; "-" is an argument without an option.
PROGRAMS = (
    _program("tally", "count the words of {file} in blocks of {number}", "count --file --block"),
    _program("stamp", "stamp {file} with mark {number}", "add --file --mark"),
    _program("fold", "fold {file} at column {number}", "lines --input --width"),
    _program("seal", "seal {file} at level {number}", "file - --level"),
    _program("probe", "probe {file} to depth {number}", "scan --target --depth"),
    _program("grade", "grade {file} on scale {number}", "run --file --scale"),
    _program("shelve", "shelve {file} in slot {number}", "put --file --slot"),
    _program("index", "index {file} from line {number}", "build --source --start"),
    _program("weigh", "weigh {file} in units of {number}", "file --name --unit"),
    _program("trace", "trace {file} for {number} steps", "follow --log --steps"),
    _program("merge", "merge {file} into {number} parts", "split --file --parts"),
    _program("audit", "audit {file} under rule {number}", "check - --rule"),
)
# Words of the new interfaces of a seed, and of those in demonstrations; no word is in both.
NEW = {
    "command": tuple("render apply emit show compute perform start print".split()),
    "file": tuple("--path --document --item --text --src".split()),
    "number": tuple("--value --size --limit --amount".split()),
}
SEEN = {
    "command": tuple("go do make open write read send use call find mark move pick push load save".split()),
    "file": tuple("--in --from --page --name-of --origin --input-file --entry --object --thing --doc".split()),
    "number": tuple("--num --by --at --count --total --times --max --rate --degree --factor".split()),
}
NUM_CHANGED = 6
World = Mapping[int, Interface]  # of each program, by its place


def world(seed: int | str | None) -> World:
    """Return the interfaces in the world of a seed, or in the old world. A text is the seed of a demonstration."""
    now = {place: program.old for place, program in enumerate(PROGRAMS)}
    if seed is None:
        return now
    rng, words = random.Random(f"interfaces {seed}"), SEEN if isinstance(seed, str) else NEW
    for place in rng.sample(sorted(now), NUM_CHANGED):
        part = rng.choice([name for name in words if getattr(now[place], name)])
        now[place] = replace(now[place], **{part: rng.choice(words[part])})
    return now


def changed(seed: int | str) -> list[int]:
    """Return the programs whose interface is new in the world of a seed."""
    return [place for place, interface in world(seed).items() if interface != PROGRAMS[place].old]


def call_of(row: dict[str, Any], seed: int | str | None) -> str:
    """Return the command line that solves a task."""
    place = row["program"]
    return world(seed)[place].call(PROGRAMS[place].name, row["file"], row["number"])


class Shell:
    """The environment. One tool; the reward is 1 if the first call printed the code of the task, 1/2 for the second."""

    def __init__(self, seed: int | str | None = None, sandbox: Sandbox | None = None) -> None:
        self._seed = seed
        self._sandbox = sandbox or open_sandbox()
        self._root = Path(tempfile.mkdtemp(prefix="shell-"))
        weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)

    def reset(self, program: int = 0, file: str = "notes.txt", number: int = 1, **_: Any) -> None:
        now = world(self._seed)
        shutil.rmtree(self._root)
        (self._root / "bin").mkdir(parents=True)
        rng, texts = random.Random(f"{program} {file} {number}"), {}
        for name in FILES:
            texts[f"{name}.txt"] = " ".join(rng.choices(FILES, k=12)) + "\n"
            (self._root / f"{name}.txt").write_text(texts[f"{name}.txt"])
        for place, one in enumerate(PROGRAMS):
            path = self._root / "bin" / one.name
            path.write_text(one.source(now[place]))
            path.chmod(0o755)
        self._root.chmod(0o777)
        self._code, self._calls, self._solved = PROGRAMS[program].code(texts[file], number), 0, 0

    def run(self, command: str) -> str:
        """Run a command in the shell.

        Args:
            command: The command line.
        """
        self._calls += 1
        found = self._sandbox.run(f"export PATH=$PWD/bin:$PATH; {command}", root=self._root, limits=LIMITS)
        text = found.output.strip()[:MAX_CHARS]
        # Observed outside of the shell: no file, and no text of the model, holds the code.
        if self._code in text.split():
            self._solved = self._solved or self._calls
        if found.exit_code:
            raise ValueError(f"{text}\nexit code {found.exit_code}")
        return text or "(no output)"

    def get_reward(self) -> float:
        return 1 / self._solved if self._solved else 0.0


def tasks(count: int, programs: Sequence[int], *, seed: int = 0) -> list[dict[str, Any]]:
    """Return task rows; none is a held-out one."""
    return [row for row in _rows(f"tasks {seed}", programs, 2 * count + 50) if not _is_held_out(row)][:count]


def held_out(count: int, programs: Sequence[int], *, seed: int = 0) -> list[dict[str, Any]]:
    """Return tasks with files and numbers that `tasks` never combines, each program as often as any other."""
    rows = [row for row in _rows(f"held out {seed}", programs, 12 * count + 200) if _is_held_out(row)]
    each = [[row for row in rows if row["program"] == program] for program in programs]
    return [row for group in zip(*each, strict=False) for row in group][:count]


def _is_held_out(row: dict[str, Any]) -> bool:
    return (FILES.index(row["file"].removesuffix(".txt")) + row["number"]) % 3 == 0


def _rows(seed: str, programs: Sequence[int], count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [_row(rng.choice(programs), f"{rng.choice(FILES)}.txt", rng.randint(2, 40)) for _ in range(count)]


def _row(program: int, file: str, number: int) -> dict[str, Any]:
    purpose = PROGRAMS[program].purpose.format(file=file, number=number)
    text = f"Use the program {PROGRAMS[program].name} to {purpose}. Answer with the code that it prints."
    return {"prompt": [{"role": "user", "content": text}], "program": program, "file": file, "number": number}


# ------------------------------------------------------------------------------------------------------ the warm start


def demonstrations(count: int, seed: int) -> Iterator[list[dict[str, Any]]]:
    """Yield episodes; in every second one the old call fails, and the next follows the error."""
    sandbox = open_sandbox()
    for number, row in enumerate(tasks(count, range(len(PROGRAMS)), seed=1000 + seed)):
        now = f"demonstration {seed} {number}" if number % 2 else None
        row |= {"program": changed(now)[number % NUM_CHANGED]} if now else {}
        row = _row(row["program"], row["file"], row["number"])
        talk = episode(Shell(now, sandbox), row, (call_of(row, None), call_of(row, now)))
        yield [*row["prompt"], *talk, {"role": "assistant", "content": talk[-1]["content"]}]


def acted(command: str) -> dict[str, Any]:
    """Return the message of a call."""
    call = {"type": "function", "function": {"name": "run", "arguments": {"command": command}}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def episode(shell: Shell, row: dict[str, Any], commands: Sequence[str]) -> list[dict[str, Any]]:
    """Run commands, each once, and return the calls with their results as TRL's tool loop shows them."""
    shell.reset(**row)
    talk = []
    for command in dict.fromkeys(commands):
        try:
            result = shell.run(command)
        except ValueError as error:
            result = str({"error": str(error)})
        talk += [acted(command), {"role": "tool", "name": "run", "content": result}]
    return talk


def with_template(tokenizer: Any) -> Any:
    """Give a tokenizer TRL's template of Qwen3 with its calls, but with one short line per tool."""
    from trl.chat_template_utils import add_response_schema, get_training_chat_template, qwen3_chat_template

    tokenizer.chat_template = qwen3_chat_template
    tokenizer = add_response_schema(tokenizer)
    head, _, rest = get_training_chat_template(tokenizer).partition('{{- "# Tools')
    tail = rest.partition("{%- else %}")[2]
    line = "{%- for tool in tools %}{%- set function = tool.function %}"
    line += "{{- function.name + '(' + function.parameters.properties | join(', ') + ')' }}"
    tokenizer.chat_template = (
        f"{head}{{{{- '# Tools\\n' }}}}{line}{{%- endfor %}}{{{{- '<|im_end|>\\n' }}}}{{%- else %}}{tail}"
    )
    return tokenizer


def encoded(talk: Sequence[dict[str, Any]], tokenizer: Any, tool: Any) -> tuple[list[int], list[int]]:
    """Return the tokens of an episode, and 1 for those that the assistant wrote."""
    ids: list[int] = []
    mask: list[int] = []
    for stop, message in enumerate(talk):
        if message["role"] != "assistant":
            continue
        for part, own in ((talk[:stop], 0), (talk[: stop + 1], 1)):
            text = tokenizer.apply_chat_template(
                list(part), tools=[tool], add_generation_prompt=not own, tokenize=False
            )
            ids = tokenizer(str(text).removesuffix("\n"), add_special_tokens=False)["input_ids"]
            mask += [own] * (len(ids) - len(mask))
    return ids, mask


def warm(model: Path, out: Path, *, count: int = 320, seed: int = 1, rate: float = 2e-4, batch: int = 8) -> None:
    """Fine-tune a model on demonstrations."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from composer_hub.train.uplift import right_padded

    torch.manual_seed(seed)
    tokenizer = with_template(AutoTokenizer.from_pretrained(model))
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tool = Shell().run
    rows = sorted((encoded(talk, tokenizer, tool) for talk in demonstrations(count, seed)), key=lambda row: len(row[0]))
    batches = [rows[start : start + batch] for start in range(0, len(rows), batch)]
    random.Random(seed).shuffle(batches)
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate)
    for number, part in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (number + 1) / 5, (len(batches) - number) / len(batches) * 2)
        ids, attention, _ = right_padded([(row, ()) for row, _ in part])
        learned, _, _ = right_padded([(mask, ()) for _, mask in part])
        wanted = learned[:, 1:] == 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = network.model(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state
            logits = network.lm_head(hidden[:, :-1][wanted])
        loss = torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][wanted])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(json.dumps({"step": number + 1, "of": len(batches), "loss": round(loss.item(), 3)}), flush=True)
    network.save_pretrained(out)
    tokenizer.save_pretrained(out)


# ---------------------------------------------------------------------------------------------------------------- runs


@dataclass(frozen=True)
class Size:
    """What a run may cost; every arm of a comparison has the same."""

    group_size: int = 6  # rollouts of one task; a generation has one task for each changed program
    num_updates: int = 6  # that learn from the rollouts, once each
    learning_rate: float = 1.5e-3
    bank: int = 36  # rollouts that are tried again; they are more than the other arms have
    num_held_out: int = 30  # tasks of changed programs
    num_unchanged: int = 30  # tasks of the other programs


HINT = {"alpha_sdpo": 0.5, "teacher": "fixed"}
KL = HINT | {"hint_divergence": 0.0}
ARMS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "hint": HINT,
    "control": HINT | {"control_hints": True},
    "hint_kl": KL,
    "control_kl": KL | {"control_hints": True},
    "own_pairs": {"beta_replay": 0.2, "replay_strength": 1e-6, "replay_nll_weight": 1.0},
}

READ = ("nothing", "hint", "control")
COMPARED = (
    ("hint_kl", "grpo"), ("hint_kl", "control_kl"), ("hint_kl", "hint"), ("control_kl", "grpo"), ("hint", "grpo"),
    ("hint", "control"),
)  # fmt: skip


def run(model: Path, arm: str, seed: int, size: Size = Size()) -> dict[str, Any]:
    """Train one arm in the world of a seed, and measure it on programs that changed there and on the others."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

    from composer_hub.train import ComposerConfig
    from composer_hub.train.pair_loader import PairLoader
    from composer_hub.train.replay_term import ReplayTerm
    from composer_hub.train.run.own_pairs import make_pairs
    from composer_hub.train.run.trainer import RunTrainer

    hints: Counter[str] = Counter()

    class Counting(RunTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            hints.update(site.hint.writer for row in self.last_sites for site in row)
            return output

    torch.set_num_threads(1)
    start, programs, is_banked = time.process_time(), changed(seed), arm == "own_pairs"
    tokenizer = with_template(AutoTokenizer.from_pretrained(model, padding_side="left"))
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    num_rollouts = size.group_size * len(programs)
    rows = tasks(600, programs, seed=seed)
    # A generation has one task of each program, in the order of the data.
    each = [[row for row in rows if row["program"] == program] for program in programs]
    rows = [row for group in zip(*each, strict=False) for row in group]
    set_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Counting(
            model=network,
            args=ComposerConfig(
                output_dir=folder, use_cpu=True, bf16=True, report_to="none", save_strategy="no", disable_tqdm=True,
                logging_steps=1, log_completions=False, measure_every=0, seed=seed, shuffle_dataset=False,
                max_steps=size.num_updates,
                per_device_train_batch_size=num_rollouts // size.num_updates, steps_per_generation=size.num_updates,
                num_generations=size.group_size, max_completion_length=MAX_TOKENS, max_tool_calling_iterations=2,
                gradient_checkpointing=False, learning_rate=size.learning_rate, lr_scheduler_type="constant",
                adam_beta2=0.99, beta=0.0, scale_rewards="none", cache_implementation="static", **ARMS[arm],
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            environment_factory=lambda: Shell(seed),
            own_pairs=size.bank if is_banked else 0,
            peft_config=LoraConfig(
                r=16, lora_alpha=32, target_modules=[*MODULES], layers_to_transform=LAYERS, task_type="CAUSAL_LM"
            ),
        )  # fmt: skip
        counts: dict[str, int] = {}
        if is_banked:
            pairs, counts = make_pairs(trainer, size.bank, batch_size=8)
            if pairs:
                loader = PairLoader(pairs, 8, padding=tokenizer.pad_token_id, seed=seed)
                trainer.terms.add(ReplayTerm(trainer.args, loader))
        trainer.train()
    log = [row for row in trainer.state.log_history if "grad_norm" in row]
    return {
        "arm": arm, "seed": seed, **first_calls(trainer, seed, size),
        "reward": round(log[0]["reward"], 3), "hints": dict(hints), "pairs": counts,
        "num_rollouts": num_rollouts,
        "cpu_s": round(time.process_time() - start), "size": asdict(size),
    }  # fmt: skip


def first_calls(trainer: Any, seed: int, size: Size) -> dict[str, float]:
    """Return how well held-out tasks are begun, of changed programs ("new") and of the others ("unchanged").

    The share is that of tasks whose right call is what the model writes greedily: each of its tokens is the likeliest.
    The margin is its log-probability minus that of the call in the old interface, the mean over the changed programs.
    """
    others = [place for place in range(len(PROGRAMS)) if place not in changed(seed)]
    model = trainer.bare_model, trainer.processing_class
    new = begun(*model, held_out(size.num_held_out, changed(seed), seed=seed), seed)
    kept, _ = _read_calls(*model, held_out(size.num_unchanged, others, seed=seed), seed)
    return new | {"unchanged": statistics.mean(kept)}


def begun(network: Any, tokenizer: Any, rows: Sequence[dict[str, Any]], seed: int) -> dict[str, float]:
    """Return the share and the margin of tasks of changed programs."""
    right, logps = _read_calls(network, tokenizer, rows, seed)
    _, old = _read_calls(network, tokenizer, rows, None)
    margin = statistics.mean(one - other for one, other in zip(logps, old, strict=True))
    return {"new": statistics.mean(right), "margin": round(margin, 3)}


def _read_calls(
    network: Any, tokenizer: Any, tasks: Sequence[dict[str, Any]], seed: int | None
) -> tuple[list[bool], list[float]]:
    """Return for each task whether the call of a world is written greedily, and its log-probability."""
    import torch

    from composer_hub.train.teacher import causal_lm, keeping_hidden
    from composer_hub.train.uplift import right_padded

    tool = Shell().run
    rows = [encoded([*row["prompt"], acted(call_of(row, seed))], tokenizer, tool) for row in tasks]
    network.eval()
    right: list[bool] = []
    logps: list[float] = []
    for start in range(0, len(rows), 10):
        ids, attention, _ = right_padded([(row, ()) for row, _ in rows[start : start + 10]])
        own, _, _ = right_padded([(mask, ()) for _, mask in rows[start : start + 10]])
        wanted = own[:, 1:] == 1
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), keeping_hidden(network) as kept:
            network(input_ids=ids, attention_mask=attention, use_cache=False, logits_to_keep=1)
            logits = causal_lm(network).lm_head(kept[-1][:, :-1][wanted]).float()
        targets, each = ids[:, 1:][wanted], wanted.sum(dim=1).tolist()
        chosen = logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]
        right += [bool(part.all()) for part in (logits.argmax(-1) == targets).split(each)]
        logps += [part.sum().item() for part in chosen.split(each)]
    network.train()
    return right, logps


def hinted(row: dict[str, Any], seed: int, *, control: bool) -> dict[str, Any]:
    """Return a task with the hint that a rollout gets whose second call worked, or with a control."""
    from composer_hub.actions import actions_of
    from composer_hub.errors.context import context_of
    from composer_hub.hints.writers import LIVE_WRITERS, control_hint, write_hint
    from composer_hub.train.rollouts import Rollout

    messages = episode(Shell(seed), row, (call_of(row, None), call_of(row, seed)))
    trace = Rollout([0], [0] * 4, [1, 0, 1, 0], messages).read
    hint = write_hint(context_of(trace, 0, trace.steps[0].error_sites[0], actions_of(trace)), LIVE_WRITERS)
    if hint is None:
        return row
    text = control_hint(hint, random.Random(hint.text)).text if control else hint.text
    return row | {"prompt": [*row["prompt"], {"role": "user", "content": text}]}


def read_hints(model: Path, seeds: Sequence[int], size: Size, to: Path) -> None:
    """Record how the starting model begins the held-out tasks without a hint, with one, and with a control."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = with_template(AutoTokenizer.from_pretrained(model))
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    for seed in seeds:
        new = held_out(size.num_held_out, changed(seed), seed=seed)
        for name in READ:
            rows = new if name == "nothing" else [hinted(row, seed, control=name == "control") for row in new]
            line = {"reads": name, "seed": seed} | begun(network, tokenizer, rows, seed)
            with to.open("a") as file:
                file.write(json.dumps(line) + "\n")


def run_missing(model: Path, arms: Sequence[str], seeds: Sequence[int], size: Size, workers: int, to: Path) -> None:
    """Run what is not recorded yet, all arms of a seed before the next seed."""
    recorded = {(run["seed"], run["arm"]) for run in _runs(to)}
    os.environ |= {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}  # of the workers, which begin with them
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        jobs = [(seed, arm) for seed in seeds for arm in arms if (seed, arm) not in recorded]
        for done in as_completed([pool.submit(run, model, arm, seed, size) for seed, arm in jobs]):
            line = json.dumps(done.result())
            print(line, flush=True)
            with to.open("a") as file:
                file.write(line + "\n")


def _runs(path: Path, kind: str = "arm") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if kind in line]


def report(path: Path = RECORDED) -> Iterator[str]:
    """Yield the tables of the recorded runs."""
    runs: dict[str, dict[int, dict[str, Any]]] = {arm: {} for arm in ARMS}
    for run in _runs(path):
        runs[run["arm"]][run["seed"]] = run
    yield "| arm | seeds | margin, by seed | mean | changed | others | reward | hints per rollout | CPU min |"
    yield "|---|---|---|---:|---:|---:|---:|---|---:|"
    for arm, by_seed in runs.items():
        if not (several := [by_seed[seed] for seed in sorted(by_seed)]):
            continue
        written: Counter[str] = Counter()
        for run in several:
            written.update(run["hints"])
        rollouts = sum(run["num_rollouts"] for run in several)
        cells = [
            f"`{arm}`",
            " ".join(map(str, sorted(by_seed))),
            " ".join(f"{run['margin']:+.1f}" for run in several),
            f"**{statistics.mean(run['margin'] for run in several):+.2f}**",
            f"{statistics.mean(run['new'] for run in several):.2f}",
            f"{statistics.mean(run['unchanged'] for run in several):.2f}",
            f"{statistics.mean(run['reward'] for run in several):.2f}",
            ", ".join(f"{writer} {count / rollouts:.2f}" for writer, count in sorted(written.items())),
            f"{statistics.mean(run['cpu_s'] for run in several) / 60:.1f}",
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "| difference | in | seeds | mean | 95 % | p, exact |"
    yield "|---|---|---:|---:|---|---:|"
    for arm, other in COMPARED:
        seeds = sorted(runs[arm].keys() & runs[other].keys())
        for name, measure in (("margin", "margin"), ("new", "changed"), ("unchanged", "others")):
            values = [runs[arm][seed][name] - runs[other][seed][name] for seed in seeds]
            if len(values) > 1:
                mean, low, high = interval(values)
                yield (
                    f"| `{arm}` - `{other}` | {measure} | {len(values)} | **{mean:+.3f}** "
                    f"| {low:+.3f} to {high:+.3f} | {sign_flip(values):.3f} |"
                )
    yield ""
    yield "| reads | seeds | margin, by seed | mean | right first call |"
    yield "|---|---|---|---:|---:|"
    read = _runs(path, "reads")
    for name in READ:
        several = sorted((one for one in read if one["reads"] == name), key=lambda one: one["seed"])
        if several:
            seeds = " ".join(str(one["seed"]) for one in several)
            margins = " ".join(f"{one['margin']:+.1f}" for one in several)
            margin, share = (statistics.mean(one[key] for one in several) for key in ("margin", "new"))
            yield f"| {name} | {seeds} | {margins} | **{margin:+.2f}** | {share:.2f} |"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("warm", help="fine-tune a model on demonstrations")
    one.add_argument("model", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("--count", type=int, default=320)
    for name, text in (("run", "run what is not recorded yet"), ("read", "measure the starting model with hints")):
        one = commands.add_parser(name, help=text)
        one.add_argument("model", type=Path)
        one.add_argument("--seeds", default="11-16")
        one.add_argument("--size", type=json.loads, default={}, help="JSON of what differs from the registered size")
        one.add_argument("--to", type=Path, default=RECORDED)
        if name == "run":
            one.add_argument("--arms", default=",".join(ARMS))
            one.add_argument("--workers", type=int, default=2)
    commands.add_parser("report", help="print the tables of the recorded runs")
    args = parser.parse_args()
    if args.command == "warm":
        warm(args.model, args.out, count=args.count)
        return
    if args.command == "report":
        print("\n".join(report()))
        return
    seeds = numbers(args.seeds)
    if args.command == "run":
        run_missing(args.model, args.arms.split(","), seeds, Size(**args.size), args.workers, args.to)
    else:
        read_hints(args.model, seeds, Size(**args.size), args.to)


if __name__ == "__main__":
    main()
