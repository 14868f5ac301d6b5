"""Step time and peak memory of each channel on one GPU, with random weights and scripted rollouts.

    python -m benchmarks.gpu_step --model 0.6b [--rollouts 8] [--turns 6] [--words 500] [--pairs 4] [--device cuda]

Every rollout has the same tokens in every kind of run: a call that fails, some calls that work, and an answer. Nothing
is sampled, so a step is what training adds to generation. Stock GRPO and TRL's own SDPO trainer run beside the
channels; SDPO reads the same number of tokens as one long turn, because it has no tools.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from benchmarks.ablation.model import tokenizer_of
from composer_hub.train import ComposerConfig, ComposerTrainer
from composer_hub.train.pair_loader import PairLoader, TokenPair

MODELS = {
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 16},
    "0.6b": {"hidden_size": 1024, "num_hidden_layers": 28, "intermediate_size": 3072, "num_attention_heads": 16,
             "num_key_value_heads": 8, "head_dim": 128},
    "1.7b": {"hidden_size": 2048, "num_hidden_layers": 28, "intermediate_size": 6144, "num_attention_heads": 16,
             "num_key_value_heads": 8, "head_dim": 128},
}  # fmt: skip
HINT = {"alpha_sdpo": 0.5, "teacher": "fixed"}
REPLAY = {"beta_replay": 0.2}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "TRL GRPO": ("grpo", {}),
    "weights 0": ("composer", {}),
    "hint": ("composer", HINT),
    "hint, live teacher": ("composer", HINT | {"teacher": "live"}),
    "replay": ("composer", REPLAY),
    "all three": ("composer", HINT | REPLAY),
    "TRL GRPO, LoRA": ("grpo", {"lora": True}),
    "all three, LoRA": ("composer", HINT | REPLAY | {"lora": True}),
    "TRL SDPO, sampled tokens": (
        "sdpo",
        {"distillation_mode": "sampled_token", "distillation_alpha": 1.0, "teacher_model_kind": "live"},
    ),
    "TRL SDPO, full logits": (
        "sdpo",
        {"distillation_mode": "full_logits", "distillation_alpha": 0.5, "teacher_model_kind": "live"},
    ),
}


@dataclass(frozen=True)
class Size:
    model: str
    rollouts: int
    turns: int
    words: int  # of each turn and of each result
    pairs: int
    steps: int
    device: str
    vocabulary: int


@dataclass(frozen=True)
class Cost:
    kind: str
    seconds: float  # median of the steps after the first two
    peak_gb: float
    tokens: float
    sites: float
    error: str = ""


class Terminal:
    """An environment whose first call fails."""

    words = 10

    def reset(self, **_: Any) -> None:
        self.num_calls = 0

    def call(self, method: str, key: str, value: str) -> str:
        """Call a method.

        Args:
            method: Its name.
            key: The name of its argument.
            value: The argument.
        """
        self.num_calls += 1
        if self.num_calls == 1:
            raise ValueError("validation error: no method order.get " + "order " * self.words)
        return "ok " + "order " * self.words


def scripted_turn(size: Size, number: int) -> str:
    """Return the n-th turn of a rollout."""
    words = "order " * size.words
    if number + 1 >= size.turns:
        return f"<think>\n\n</think>\n\n{words}done<|im_end|>"
    call = '{"name": "call", "arguments": {"method": "order.pull", "key": "id", "value": "v7"}}'
    return f"<think>\n\n</think>\n\n{words}<tool_call>\n{call}\n</tool_call><|im_end|>"


def alternating(completions: list[Any], **_: Any) -> list[float]:
    return [float(number % 2) for number in range(len(completions))]


def measure(kind: str, size: Size, folder: Path) -> Cost:
    base, options = KINDS[kind]
    options = dict(options)
    tokenizer = tokenizer_of()
    begun = tokenizer("<|im_start|>assistant\n")["input_ids"]

    class Scripted:
        def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
            numbers = [_count(ids, begun) - 1 for ids in prompt_ids]
            return [tokenizer(scripted_turn(size, number))["input_ids"] for number in numbers], None

        def _generate_transformers(self, prompt_ids: Any) -> Any:
            text = "".join(scripted_turn(size, size.turns) for _ in range(2 * size.turns - 1)).replace("<|im_end|>", "")
            ids = tokenizer(text + "<|im_end|>")["input_ids"]
            return prompt_ids, [ids for _ in prompt_ids]

    peft = {}
    if options.pop("lora", False):
        from peft import LoraConfig

        peft = {"peft_config": LoraConfig(r=32, target_modules="all-linear")}
    on_gpu = size.device == "cuda"
    common = {
        "output_dir": str(folder), "use_cpu": not on_gpu, "bf16": on_gpu, "gradient_checkpointing": True,
        "report_to": "none", "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True, "learning_rate": 1e-6,
        "max_steps": size.steps, "per_device_train_batch_size": 2, "gradient_accumulation_steps": size.rollouts // 2,
        "num_generations": size.rollouts, "max_completion_length": 8 * size.turns * (size.words + 60), "seed": 1,
    }  # fmt: skip
    with torch.device(size.device):
        model = Qwen3ForCausalLM(
            Qwen3Config(vocab_size=size.vocabulary, tie_word_embeddings=True, max_position_embeddings=32_768,
                        eos_token_id=tokenizer.eos_token_id, pad_token_id=0, bos_token_id=None, **MODELS[size.model])
        )  # fmt: skip
    rows = [{"prompt": [{"role": "user", "content": "order " * size.words}]}] * 64
    dataset = Dataset.from_list(rows)
    if base == "sdpo":
        from trl.experimental.sdpo import SDPOConfig, SDPOTrainer

        parent, config = (
            SDPOTrainer,
            SDPOConfig(
                max_prompt_length=8192,
                distillation_weight=0.5,
                max_reprompt_len=32_768,
                teacher_model_kind="live",
                **common,
                **options,
            ),
        )
        extra: dict[str, Any] = {}
    else:
        tools = {
            "loss_type": "dapo",
            "scale_rewards": "none",
            "beta": 0.0,
            "max_tool_calling_iterations": size.turns + 1,
        }
        Terminal.words = size.words
        extra = {"environment_factory": Terminal, **peft}
        if base == "grpo":
            parent, config = GRPOTrainer, GRPOConfig(**common, **tools)
        else:
            settings = {"measure_every": 0, "max_teacher_tokens": 32_768} | options
            parent, config = ComposerTrainer, ComposerConfig(**common, **tools, **settings)
            if options.get("beta_replay"):
                extra["pairs"] = PairLoader([_pair(tokenizer, size)] * 8, size.pairs * 2 // size.rollouts or 1)
    trainer = type("ScriptedTrainer", (Scripted, parent), {})(
        model=model, args=config, train_dataset=dataset, processing_class=tokenizer, reward_funcs=alternating, **extra
    )
    times: list[float] = []
    trainer.add_callback(_clock(times, on_gpu))
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    peak = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else 0.0
    steps = [row for row in trainer.state.log_history if "grad_norm" in row]
    seconds = statistics.median(times[2:])
    sites = steps[-1].get("channel/hint/sites_per_rollout", 0.0)
    tokens = steps[-1].get("completions/mean_length", 0.0)
    return Cost(kind, seconds, peak, tokens, sites)


def _count(ids: list[int], begun: list[int]) -> int:
    return sum(ids[place : place + len(begun)] == begun for place in range(len(ids)))


def _pair(tokenizer: Any, size: Size) -> TokenPair:
    prompt = tokenizer("order " * (size.words * size.turns))["input_ids"]
    chosen, rejected = (tokenizer(scripted_turn(size, number))["input_ids"] for number in (0, size.turns))
    return TokenPair(tuple(prompt), tuple(chosen), tuple(rejected), -100.0, -100.0)


def _clock(times: list[float], on_gpu: bool) -> Any:
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        begun = 0.0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if on_gpu:
                torch.cuda.synchronize()
            self.begun = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if on_gpu:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - self.begun)

    return Clock()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="0.6b")
    for name, default in (
        ("rollouts", 8),
        ("turns", 6),
        ("words", 300),
        ("pairs", 4),
        ("steps", 6),
        ("vocabulary", 151_936),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    args = parser.parse_args()
    kinds = args.kinds
    size = Size(**{name: value for name, value in vars(args).items() if name != "kinds"})
    if size.device == "cuda":
        print(torch.cuda.get_device_name(), torch.__version__, json.dumps(vars(args)))
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            try:
                cost = measure(kind, size, Path(folder))
            except Exception as error:  # noqa: BLE001 - a size that fails is a row too
                cost = Cost(kind, 0.0, 0.0, 0.0, 0.0, f"{type(error).__name__}: {str(error)[:300]}")
        print(json.dumps(vars(cost)), flush=True)
        gc.collect()
        if size.device == "cuda":
            torch.cuda.empty_cache()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
