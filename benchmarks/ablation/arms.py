"""One run of one arm: the product's trainer in the world of `world`, from a warm start to a curve of pass@1."""

from __future__ import annotations

import contextlib
import io
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import set_seed
from trl import GRPOTrainer

from benchmarks.ablation.contrast import ContrastTerm, ContrastTrainer
from benchmarks.ablation.model import NUM_STEPS, answer_text, call_text, model_of
from benchmarks.ablation.world import (
    BELIEFS,
    KEYS,
    NOUNS,
    REGIMES,
    VALUES,
    VERBS,
    Api,
    Regime,
    StaleApi,
    Task,
    answer_is_right,
    hint_of,
    key_hint,
    method_hint,
)
from composer_hub.train import ComposerConfig
from composer_hub.train.batch import HintSite
from composer_hub.train.evals import EvalPlan, Evals, measured
from composer_hub.train.hinting import hinter_of
from composer_hub.train.isolation import isolated
from composer_hub.train.pair_loader import PairLoader, TokenPair
from composer_hub.train.rollouts import Rollout
from composer_hub.train.run.own_pairs import make_pairs
from composer_hub.train.run.trainer import RunTrainer
from composer_hub.train.teacher import HintTeacher
from composer_hub.train.uplift import action_logps

TEACHERS = (0.90, 0.75, 0.60)  # how often each scripted teacher is right; otherwise it mostly remembers the old call


@dataclass(frozen=True)
class Arm:
    """What one arm adds to GRPO."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)  # of ComposerConfig
    control: bool = False  # hints name random words
    contrast: bool = False  # the hint counts by what a control does not do
    retries: bool = False  # pairs are hinted retries of the model's own, not what teachers agree on
    after_hint: bool = False  # these retries are learned after the hint that they were written with
    own_pairs: bool = False  # pairs are those that a run makes: retries that are not errors
    failures: bool = False  # pairs of turns that failed only
    told: bool = False  # training prompts name every method and argument of the task; held-out ones do not
    extra_steps: float = 1.0  # times the steps of the other arms


# Only -log p(chosen) of the replay channel is left, so that a pair is a row of supervised fine-tuning.
SFT = {"beta_replay": 0.2, "replay_strength": 1e-6, "replay_nll_weight": 1.0}

HINT = {"alpha_sdpo": 0.5, "teacher": "fixed"}
KL = HINT | {"hint_divergence": 0.0}

ARMS = {
    arm.name: arm
    for arm in (
        Arm("grpo"),
        Arm("hint", HINT),
        Arm("hint_live", HINT | {"teacher": "live"}),
        Arm("control", HINT, control=True),
        Arm("replay", {"beta_replay": 0.2}),
        Arm("all", HINT | {"beta_replay": 0.2}),
        # The second round.
        Arm("contrast", {"alpha_sdpo": 2.0, "teacher": "fixed"}, contrast=True),
        Arm("sft_retries", SFT, retries=True),
        Arm("sft_agreed", SFT),
        Arm("grpo_time", extra_steps=1.3),
        Arm("hint_fork", HINT | {"hint_aim": "fork"}),
        Arm("sft_hinted", SFT, retries=True, after_hint=True),
        Arm("grpo_told", told=True),
        Arm("replay_failures", {"beta_replay": 0.2}, failures=True),
        Arm("own_pairs", SFT, retries=True, own_pairs=True),
        # The third round.
        Arm("hint_kl", KL),
        Arm("control_kl", KL, control=True),
        Arm("fork_kl", KL | {"hint_aim": "fork"}),
    )
}


@dataclass(frozen=True)
class Budget:
    """The size of a run; every arm of a comparison has the same."""

    num_steps: int = 40
    rollouts_a_step: int = 64
    group_size: int = 8
    learning_rate: float = 3e-4
    num_held_out: int = 256
    eval_every: int = 10
    bank: int = 256  # rollouts that teachers replay; they are charged to the arms that use them
    pairs_a_step: int = 32


QUICK = Budget(num_steps=3, rollouts_a_step=8, group_size=4, num_held_out=4, eval_every=5, bank=8, pairs_a_step=4)


@dataclass(frozen=True)
class Result:
    """The curve and the counts of one run."""

    arm: str
    regime: str
    seed: int
    curve: list[tuple[int, float]]
    log: list[dict[str, float]]
    preflight: dict[str, float]
    forgetting: dict[str, float]
    num_pairs: int
    seconds: float
    budget: dict[str, Any]
    options: dict[str, Any]

    @property
    def final(self) -> float:
        return self.curve[-1][1]


def run(
    arm: Arm,
    regime_name: str,
    seed: int,
    cache: Path,
    budget: Budget = Budget(),
    device: str = "cpu",
    *,
    warm_steps: int = NUM_STEPS,
    **options: Any,
) -> Result:
    """Train one arm and measure it."""
    begun = time.perf_counter()
    api, regime = Api(seed), REGIMES[regime_name]
    model, tokenizer = model_of(seed, cache, num_steps=warm_steps)
    tasks = api.tasks(regime, random.Random(f"tasks-{regime_name}-{seed}"))
    held_out = list(dict.fromkeys(islice(tasks, 4 * budget.num_held_out)))[: budget.num_held_out]
    training = [task for task in islice(tasks, 12_000) if task not in set(held_out)]
    settings = arm.options | options
    num_steps = round(budget.num_steps * arm.extra_steps)
    pairs: list[TokenPair] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        make = _Maker(api, regime, tokenizer, budget, Path(folder), seed, device)
        if settings.get("beta_replay"):
            bank = make.trainer(model, training, {"max_steps": 1})
            bank.hinter = _with_writer(bank, hint_of(api))
            rng, tried = random.Random(f"teachers-{seed}"), training[-budget.bank :]
            if arm.own_pairs:
                rows = [task.row(-1) for task in tried]
                pairs, _ = make_pairs(bank, len(rows), rows=rows, batch_size=budget.pairs_a_step)
            else:
                pairs = replayed(bank, api, tried, tokenizer, _bank_of(arm), rng, budget)
            num_steps -= round((1 + arm.retries / 2) * budget.bank / budget.rollouts_a_step)
            settings |= {} if pairs else {"beta_replay": 0.0}
            del bank
        loader = PairLoader(pairs, budget.pairs_a_step, padding=0, seed=seed) if pairs else None
        kind = ContrastTrainer if arm.contrast else RunTrainer
        settings |= {"max_steps": num_steps}
        trainer = make.trainer(model, training, settings, kind=kind, told=arm.told, pairs=loader)
        writer = hint_of(api, control=random.Random(f"control-{seed}") if arm.control else None)
        trainer.hinter = _with_writer(trainer, writer)
        for term in trainer.terms:
            if isinstance(term, ContrastTerm):
                term.rng = random.Random(f"control-{seed}")
        evals = Evals(
            [task.row(-1) for task in held_out], EvalPlan(1, budget.eval_every, max_rollouts=budget.num_held_out)
        )
        evals.trainer = trainer
        trainer.add_callback(evals)
        before = probes(trainer, api, tokenizer)
        set_seed(seed)
        trainer.train()
        after = probes(trainer, api, tokenizer)
    steps = [row for row in trainer.state.log_history if "grad_norm" in row]
    curve = [(step, rate.value) for step, rate in measured(trainer.state.log_history)]
    return Result(arm.name, regime_name, seed, curve, [_short(row) for row in steps], before, after, len(pairs),
                  time.perf_counter() - begun, asdict(budget), settings)  # fmt: skip


_KEPT = ("step", "reward", "frac_reward_zero_std", "grad_norm", "channel/hint/divergence", "channel/hint/uplift",
         "channel/hint/sites_per_rollout", "channel/replay/accuracy", "channel/policy/length", "entropy", "loss",
         "tools/failure_frequency")  # fmt: skip


def _short(row: dict[str, float]) -> dict[str, float]:
    return {name: row[name] for name in _KEPT if name in row}


@dataclass(frozen=True)
class _Maker:
    api: Api
    regime: Regime
    tokenizer: Any
    budget: Budget
    folder: Path
    seed: int
    device: str

    def trainer(
        self,
        model: Any,
        tasks: Sequence[Task],
        options: dict[str, Any],
        kind: type[RunTrainer] = RunTrainer,
        told: bool = False,
        **extra: Any,
    ) -> RunTrainer:
        turns = max(self.regime.lengths) + self.regime.num_spare + 1
        args = ComposerConfig(
            **{
                "output_dir": str(self.folder / "run"), "use_cpu": self.device == "cpu", "bf16": False,
                "report_to": "none", "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True,
                "per_device_train_batch_size": self.budget.rollouts_a_step, "gradient_accumulation_steps": 1,
                "num_generations": self.budget.group_size, "max_completion_length": 26 * turns,
                "max_tool_calling_iterations": turns, "learning_rate": self.budget.learning_rate,
                "lr_scheduler_type": "constant", "adam_beta2": 0.99, "max_grad_norm": 1.0, "beta": 0.0,
                "loss_type": "dapo", "scale_rewards": "none", "seed": self.seed, "measure_every": 0,
                "gradient_checkpointing": False, "log_completions": False,
            }
            | options
        )  # fmt: skip
        return kind(
            model=model,
            args=args,
            train_dataset=Dataset.from_list(
                [task.row(number, self.api.reminders(task) if told else ()) for number, task in enumerate(tasks)]
            ),
            processing_class=self.tokenizer,
            reward_funcs=answer_is_right,
            environment_factory=lambda: StaleApi(self.api, self.regime),
            **extra,
        )


def _with_writer(trainer: RunTrainer, writer: Any) -> Any:
    return replace(hinter_of(trainer), writers=(writer,))


# ------------------------------------------------------------------------------------------------------ replayed pairs


Row = tuple[list[int], list[int], list[int]]  # prompt, chosen, rejected
Played = Sequence[tuple[Task, Rollout]]
Bank = Callable[[RunTrainer, Api, Played, Any, random.Random], Iterator[Row]]


def replayed(
    trainer: RunTrainer, api: Api, tasks: Sequence[Task], tokenizer: Any, bank: Bank, rng: random.Random, budget: Budget
) -> list[TokenPair]:
    """Let the model act once on each task, and return the bank's pairs of what is better and what it did."""
    found: list[Row] = []
    with isolated(trainer, 1):
        set_seed(7_000 + trainer.args.seed)
        for start in range(0, len(tasks), budget.rollouts_a_step):
            part = tasks[start : start + budget.rollouts_a_step]
            GRPOTrainer._generate_and_score_completions(trainer, [task.row(-1) for task in part])
            found += bank(trainer, api, list(zip(part, trainer.last_rollouts, strict=True)), tokenizer, rng)
    student = HintTeacher("live", trainer.bare_model)
    references = [
        action_logps(student, [(prompt, side[number]) for prompt, *side in found], rows_a_batch=64)
        for number in range(2)
    ]
    return [
        TokenPair(tuple(prompt), tuple(chosen), tuple(rejected), *logps)
        for (prompt, chosen, rejected), logps in zip(found, zip(*references, strict=True), strict=True)
    ]


def _bank_of(arm: Arm) -> Bank:
    if arm.retries:
        return partial(hinted_retries, after_hint=arm.after_hint)
    return partial(agreed_turns, failures=arm.failures)


def agreed_turns(
    trainer: RunTrainer, api: Api, played: Played, tokenizer: Any, rng: random.Random, *, failures: bool = False
) -> Iterator[Row]:
    """Yield turns on which two teachers agree and the model did something else, or only those of them that failed."""
    for task, rollout in played:
        failed = {step.index for step in rollout.trace.steps if step.error_sites}
        for turn in _on_the_way(api, task, rollout, tokenizer):
            if failures and turn.number not in failed:
                continue
            votes = [_vote(api, task, turn.place, turn.value, turn.right, accuracy, rng) for accuracy in TEACHERS]
            agreed = next((vote for vote in votes if votes.count(vote) >= 2), None)
            if agreed is not None and agreed != turn.own:
                start, stop = rollout.spans[turn.number]
                before = [*rollout.prompt_ids, *rollout.completion_ids[:start]]
                chosen = tokenizer(agreed, add_special_tokens=False)["input_ids"]
                yield before, chosen, list(rollout.completion_ids[start:stop])


def hinted_retries(
    trainer: RunTrainer, api: Api, played: Played, tokenizer: Any, rng: random.Random, *, after_hint: bool = False
) -> Iterator[Row]:
    """Yield failed turns that the model got right when it tried once more and read a hint; the hint stays or goes."""
    failed: list[tuple[HintSite, str]] = []
    for task, rollout in played:
        right = {turn.number: turn.right for turn in _on_the_way(api, task, rollout, tokenizer)}
        failed += [(site, right[site.step]) for site in trainer.hinter.sites(rollout) if site.step in right]
    longest = max((len(site.hinted_ids) for site, _ in failed), default=0)
    if not failed:
        return
    padding = tokenizer.pad_token_id
    ids = torch.full((len(failed), longest), padding)
    for row, (site, _) in zip(ids, failed, strict=True):
        row[longest - len(site.hinted_ids) :] = torch.tensor(site.hinted_ids)
    device = next(trainer.bare_model.parameters()).device
    with torch.no_grad():
        tried = trainer.bare_model.generate(  # type: ignore[operator]
            input_ids=ids.to(device), attention_mask=(ids != padding).long().to(device), do_sample=True, top_k=0,
            max_new_tokens=40, eos_token_id=trainer.eos_token_ids, pad_token_id=padding,
        )  # fmt: skip
    for (site, right_call), tokens in zip(failed, tried[:, longest:].tolist(), strict=True):
        chosen = tokenizer(right_call, add_special_tokens=False)["input_ids"]
        if tokens[: len(chosen)] == chosen:
            yield list(site.hinted_ids if after_hint else site.prefix_ids), chosen, list(site.action_ids)


@dataclass(frozen=True)
class _Turn:
    """A turn from which the task can still be solved."""

    number: int
    value: int  # the last one
    place: int  # of the next operation
    own: str
    right: str


def _on_the_way(api: Api, task: Task, rollout: Rollout, tokenizer: Any) -> Iterator[_Turn]:
    value, place = task.value, 0
    results = [message["content"] for message in rollout.messages if message["role"] == "tool"]
    for number, (start, stop) in enumerate(rollout.spans):
        right = call_text(api.true_call(task.operations[place], value)) if place < len(task.operations) else (
            answer_text(value))  # fmt: skip
        own = tokenizer.decode(rollout.completion_ids[start:stop])
        yield _Turn(number, value, place, own, right)
        if number >= len(results):
            return
        if own == right:
            value, place = api.results[task.operations[place]][value], place + 1
        elif results[number].startswith("ok "):
            return  # a valid call of another operation cannot be taken back


def _vote(api: Api, task: Task, place: int, value: int, right: str, accuracy: float, rng: random.Random) -> str:
    if rng.random() < accuracy or place == len(task.operations):
        return right
    noun = task.operations[place]
    if rng.random() < 0.8:
        return call_text(api.old_call(noun, value))
    return call_text({"method": f"{NOUNS[noun]}.{rng.choice(VERBS)}", "key": rng.choice(KEYS), "value": VALUES[value]})


# -------------------------------------------------------------------------------------------------------------- probes


def probes(trainer: RunTrainer, api: Api, tokenizer: Any) -> dict[str, float]:
    """Return the mean probability of the true word on one-operation tasks, by belief, without and with a hint."""
    rows: list[tuple[str, list[int], list[int]]] = []
    for noun in range(len(NOUNS)):
        task = Task((noun,), noun % len(VALUES))
        prompt = tokenizer.apply_chat_template(
            task.row(-1)["prompt"], tools=trainer.tools, add_generation_prompt=True, return_dict=False
        )
        head, _, tail = call_text(api.true_call(noun, task.value)).partition(VERBS[api.verbs[noun][0]])
        verb, key = VERBS[api.verbs[noun][0]], KEYS[api.keys[noun][0]]
        middle = tail.partition(f'"{key}"')[0] + '"'
        for part, words, word, belief, text in (
            ("verb", head, verb, api.verb_class[noun], method_hint(noun, api.verbs[noun][0])),
            (
                "key",
                head + verb + middle,
                key,
                api.key_class[noun],
                key_hint(noun, api.verbs[noun][0], api.keys[noun][0]),
            ),
        ):
            target = tokenizer(word, add_special_tokens=False)["input_ids"]
            for name, before in (("", prompt), ("/hint", trainer.hinter.hinted(list(prompt), text))):
                begun = tokenizer(words, add_special_tokens=False)["input_ids"]
                rows.append((f"{part}/{belief}{name}", [*before, *begun], target))
    student = HintTeacher("live", trainer.bare_model)
    logps = action_logps(student, [(before, target) for _, before, target in rows], rows_a_batch=64)
    groups: dict[str, list[float]] = {f"{part}/{belief}{end}": [] for part in ("verb", "key") for belief in BELIEFS
                                      for end in ("", "/hint")}  # fmt: skip
    for (name, _, _), logp in zip(rows, logps, strict=True):
        groups[name].append(math.exp(logp))
    return {name: sum(values) / len(values) for name, values in groups.items()}
