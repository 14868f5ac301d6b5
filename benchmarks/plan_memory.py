"""What a step needs beside what the plan says: peak memory of small models on a CPU, one process per case.

    python -m benchmarks.plan_memory [--sizes 13m 45m] [--rollouts 4] [--vocabulary 4000]

Memory is the process's peak minus what it held before the model was made. Rollouts are scripted as in `gpu_step`, so
that nothing is generated; weights, gradients, optimizer and activations are float32.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

SIZES = {
    "13m": {"hidden_size": 256, "num_hidden_layers": 8, "intermediate_size": 768, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 64},
    "45m": {"hidden_size": 512, "num_hidden_layers": 10, "intermediate_size": 1536, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 64},
    "110m": {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 2304, "num_attention_heads": 12,
             "num_key_value_heads": 4, "head_dim": 64},
}  # fmt: skip
KINDS = ("weights 0", "hint", "all three", "all three, LoRA")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--rollouts", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=4_000)
    parser.add_argument("--words", type=int, default=60, help="of each turn and each result")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(case(*args.one, args.rollouts, args.vocabulary, args.words)))
        return
    print("| model | kind | measured | plan | of it weights, gradients, optimizer | ratio |\n|---|---|---|---|---|---|")
    for size in args.sizes:
        for kind in args.kinds:
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.plan_memory", "--one", size, kind]
            sizes = [f"--{name}={getattr(args, name)}" for name in ("rollouts", "vocabulary", "words")]
            done = subprocess.run([*command, *sizes], capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr[-2000:])
            row = json.loads(done.stdout.splitlines()[-1])
            print(
                f"| {row['weights'] / 1e6:.0f} M | {kind} | {row['measured']:.2f} GiB | {row['plan']:.2f} GiB | "
                f"{row['fixed']:.2f} GiB | {row['plan'] / row['measured']:.2f} |",
                flush=True,
            )


def case(size: str, kind: str, rollouts: int, vocabulary: int, words: int) -> dict[str, float]:
    """Run two steps and return their peak in GiB beside the plan."""
    import torch

    from benchmarks import gpu_step
    from composer_hub.train.memory import ModelShape, Setup, estimate, total

    torch.set_num_threads(1)
    gpu_step.MODELS[size] = SIZES[size]
    plain = gpu_step.Size("tiny", 2, 6, 20, 1, 3, "cpu", 512)
    with tempfile.TemporaryDirectory() as folder:
        gpu_step.measure(kind, plain, Path(folder))  # what is imported or built once is not part of a step
    held = _peak()
    sized = gpu_step.Size(size, rollouts, 6, words, rollouts // 2, 3, "cpu", vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        gpu_step.measure(kind, sized, Path(folder))
    _, options = gpu_step.KINDS[kind]
    is_lora = bool(options.get("lora"))
    tokenizer = gpu_step.tokenizer_of()
    result = len(tokenizer("order " * sized.words)["input_ids"])
    turns = [len(tokenizer(gpu_step.scripted_turn(sized, number))["input_ids"]) for number in range(sized.turns)]
    rollout = result + sum(turns) + (sized.turns - 1) * result  # the prompt is as long as a result
    options = {name: options[name] for name in ("alpha_sdpo", "beta_replay", "teacher") if name in options}
    setup = Setup(
        bf16=False, use_peft=is_lora, lora_r=32, per_device_train_batch_size=2, use_vllm=True, vllm_mode="server",
        gradient_accumulation_steps=rollouts // 2, max_completion_length=rollout - result,
        pair_batch_size=1, max_pair_tokens=sized.turns * result + turns[0], **options,
    )  # fmt: skip
    shape = ModelShape.of(SIZES[size] | {"vocab_size": vocabulary, "tie_word_embeddings": True})
    parts = estimate(shape, setup, on_gpu=False)
    fixed = sum(part.gib for part in parts if part.name in ("weights", "gradients", "optimizer", "teacher"))
    return {"measured": _peak() - held, "plan": total(parts), "fixed": fixed, "weights": shape.weights}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
