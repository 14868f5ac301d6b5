"""Train stock TRL trainers on what was published: `DPOTrainer` on pairs, `SFTTrainer` on the SFT export, 5 steps each.

    composer-hub run -- python benchmarks/stock_trainers.py me/pairs@v1.0.0 me/traces@v1.0.0

The model is a tiny random Qwen3 on the CPU, with a tokenizer made from the pairs' own text, so the losses say only that
the trainers take the data and learn from it. Nothing is passed to them but the rows and their options.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from datasets import load_dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
from trl.chat_template_utils import qwen3_training_chat_template

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
NUM_STEPS = 5


def save_model(texts: list[str], folder: Path) -> None:
    """Write a tiny model and its tokenizer."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=4096, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=qwen3_training_chat_template,
    )
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)


def trained(trainer: Any, num_rows: int) -> dict[str, Any]:
    """Train; return the rows that the trainer kept and its losses."""
    kept = len(trainer.train_dataset)
    trainer.train()
    losses = [round(line["loss"], 3) for line in trainer.state.log_history if "loss" in line]
    assert len(losses) == NUM_STEPS
    return {"rows": num_rows, "rows_kept": kept, "losses": losses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", metavar="PAIRS@REV")
    parser.add_argument("traces", metavar="TRACES@REV")
    parser.add_argument("--max-tokens", type=int, default=4096)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        repo, _, revision = options.pairs.partition("@")
        pairs = load_dataset(repo, revision=revision, split="train")
        save_model([json.dumps([row["prompt"], row["chosen"], row["rejected"]]) for row in pairs], root / "model")
        model = str(root / "model")
        common: dict[str, Any] = {
            "max_steps": NUM_STEPS, "max_length": options.max_tokens, "per_device_train_batch_size": 1,
            "learning_rate": 1e-3, "use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no",
            "logging_steps": 1,
        }  # fmt: skip
        dpo = DPOTrainer(model, args=DPOConfig(str(root / "dpo"), **common), train_dataset=pairs)
        cut = sum(row["num_left_out"] > 0 for row in pairs)
        print(json.dumps({"trainer": "DPOTrainer", "windows": cut, **trained(dpo, len(pairs))}), flush=True)

        export = ["export", options.traces, "--as", "sft", "--tokenizer", model, "--max-tokens", options.max_tokens]
        subprocess.run(
            [sys.executable, "-m", "composer_hub", *map(str, export), "--out", str(root / "sft")],
            check=True,
            stdout=sys.stderr,
        )
        rows = load_dataset("parquet", data_files=str(root / "sft" / "train.parquet"), split="train")
        sft = SFTTrainer(model, args=SFTConfig(str(root / "out"), **common), train_dataset=rows)
        print(json.dumps({"trainer": "SFTTrainer", **trained(sft, len(rows))}), flush=True)


if __name__ == "__main__":
    main()
