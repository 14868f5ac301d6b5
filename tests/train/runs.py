"""Short runs in the tiny world for the tests of the trainer."""

from __future__ import annotations

import copy
import functools
import importlib.util
import re
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import set_seed
from trl import GRPOConfig, GRPOTrainer

from composer_hub.environments.desk import UNKNOWN_TOOL, Desk, tasks
from composer_hub.train.pair_loader import PairLoader, TokenPair
from composer_hub.train.rollouts import Rollout
from composer_hub.train.trainer import ComposerConfig, ComposerTrainer

ANSWER = "<think>\n\n</think>\n\n%d<|im_end|>"
CALL = '<think>\n\n</think>\n\n<tool_call>\n{"name": "%s", "arguments": {"a": %d, "b": %d}}\n</tool_call><|im_end|>'


class Scripted:
    """Rollouts that follow from the prompt and the place in its group, whatever the weights and the processor are.

    Of four, one corrects a wrong tool, one gives up after it, one calls the right tool, and one calls none.
    """

    def _generate_single_turn(self: Any, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        turns = (self._written(self._tokenizer.decode(ids), place) for place, ids in enumerate(prompt_ids))
        return [self._tokenizer(text)["input_ids"][: self.args.max_completion_length] for text in turns], None

    def _written(self: Any, text: str, place: int) -> str:
        a, b = map(int, re.findall(r"user\n(\d)\+(\d)", text)[-1])
        if "<tool_response>" not in text and place % 4 < 3:
            return CALL % (("plus", "sum", "add")[place % 4], a, b)
        if '"plus"' in text and "not found" in text.rpartition("<tool_response>")[2]:
            return CALL % ("add", a, b)
        return ANSWER % (a + b)


@functools.cache
def scripted(kind: type) -> type:
    """Return a trainer with scripted rollouts."""
    return type(f"Scripted{kind.__name__}", (Scripted, kind), {})


def some_tool_worked(completions: list[Any], **_: Any) -> list[float]:
    return [
        float(any(message["role"] == "tool" and "error" not in message["content"] for message in talk))
        for talk in completions
    ]


def config_of(folder: Path, kind: Any = ComposerConfig, **options: Any) -> Any:
    usual = {
        "output_dir": str(folder / "run"),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "logging_steps": 1,
        "max_steps": 2,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "num_generations": 4,
        "max_completion_length": 96,
        "max_tool_calling_iterations": 3,
        "learning_rate": 1e-3,
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": 3,
    }
    return kind(**usual | options)


def pairs_of(tokenizer: Any, *, batch_size: int = 2, **options: Any) -> PairLoader:
    pairs = []
    for task in tasks(8):
        prompt = tokenizer.apply_chat_template(
            task["prompt"], tools=[Desk().add], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        chosen, rejected = (
            tuple(tokenizer(CALL % (name, task["a"], task["b"]))["input_ids"]) for name in ("add", "plus")
        )
        pairs.append(TokenPair(tuple(prompt), chosen, rejected, -1.0, -1.0))
    return PairLoader(pairs, batch_size, padding=tokenizer.pad_token_id, **options)


EXAMPLES = Path(__file__).parents[2] / "examples" / "terms"


def example(name: str) -> Any:
    """Return the module of an example of an own term."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def own_terms(
    tokenizer: Any, *, weight: float = 0.2, batch_size: int = 4, names: tuple[str, ...] = ("effort", "ratings")
) -> list[Any]:
    """Return the terms of the examples."""
    rows = [
        {
            "instruction": f"{task['a']}+{task['b']}",
            "generations": [ANSWER.removesuffix("<|im_end|>") % (task["a"] + task["b"] + off) for off in range(3)],
            "ratings": [5.0, 3.0, 4.0],
        }
        for task in tasks(8)
    ]
    made = {
        "effort": lambda: example("effort").Effort(weight),
        "ratings": lambda: example("ratings").Ratings(weight, rows, tokenizer, batch_size=batch_size),
    }
    return [made[name]() for name in names]


def written_attempts(tokenizer: Any, a: int, b: int) -> tuple[Rollout, Rollout]:
    """Write an attempt that calls a tool that does not exist, and one that calls the right tool."""
    prompt = [{"role": "user", "content": f"{a}+{b}"}]
    before = tokenizer.apply_chat_template(
        prompt, tools=[Desk().add], add_generation_prompt=True, tokenize=True, return_dict=False
    )

    def attempt(name: str, result: str) -> Rollout:
        ids = tokenizer(CALL % (name, a, b))["input_ids"]
        call = {"function": {"name": name, "arguments": {"a": a, "b": b}}}
        messages = [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "name": name, "content": result},
        ]
        return Rollout(before, ids, [1] * len(ids), messages)

    return attempt("plus", UNKNOWN_TOOL), attempt("add", str(a + b))


def trainer_of(world: Any, folder: Path, kind: Any = None, **options: Any) -> Any:
    """Make a trainer with scripted rollouts, or with those of the model if `sampled`.

    Options that are not fields of the config go to the trainer itself.
    """
    kind = kind or ComposerTrainer
    model, tokenizer = world
    passed = ("peft_config", "hinter", "traces", "callbacks", "terms", "pairs", "rollouts", "own_pairs")
    extra = {name: options.pop(name) for name in passed if name in options}
    pair_batch, rewards = options.pop("pair_batch", 2), options.pop("rewards", some_tool_worked)
    environment = options.pop("environment", Desk)
    sampled = options.pop("sampled", issubclass(kind, Scripted))
    args = config_of(folder, GRPOConfig if kind is GRPOTrainer else ComposerConfig, **options)
    if options.get("beta_replay") and "pairs" not in extra:
        extra["pairs"] = pairs_of(tokenizer, batch_size=pair_batch)
    return (kind if sampled else scripted(kind))(
        model=copy.deepcopy(model),
        args=args,
        train_dataset=Dataset.from_list(tasks(16)),
        processing_class=copy.deepcopy(tokenizer),
        reward_funcs=rewards,
        environment_factory=environment,
        **extra,
    )


def steps_of(trainer: Any) -> list[dict[str, float]]:
    """Train, and return the logged steps; the seed is set, so earlier trainers have no influence."""
    set_seed(trainer.args.seed)
    trainer.train()
    return [row for row in trainer.state.log_history if "grad_norm" in row]
