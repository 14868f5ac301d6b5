# ruff: noqa: E402 (torch reads the settings when it is imported)
"""Make the tiny models that the package ships: `python scripts/small_models.py [NAME …] --to FOLDER`.

`small` and `small-beginner` act in the tiny world, `small-coding` in coding tasks. Each is a Qwen3 with 0.2 to 0.3
million parameters, trained on conversations in which a third to a half of the first calls go to a tool that does not
exist, so that rollouts have error turns, and in which hints are followed, so that the hinted model is worth learning
from. After the wrong tool, `small` continues; `small-beginner` mostly gives up: a short run teaches it better.
`small-coding` calls tools whatever the task is; it solves none.

Training amplifies the last bit of a sum, and every processor sums in another order. So the script starts itself again
with one thread and without the instructions that only some x86-64 processors have, prints each digest, and says which
ones differ from the shipped models (`SMALL` in `composer_hub/train/tiny.py`).
"""

from __future__ import annotations

import argparse
import os
import random
import string
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAME_EVERYWHERE = {
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "default",  # of torch's own kernels
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F",  # of exp, log and the like
}
if __name__ == "__main__" and not SAME_EVERYWHERE.items() <= os.environ.items():
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | SAME_EVERYWHERE)

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, set_seed
from trl.chat_template_utils import get_training_chat_template, qwen3_chat_template

from composer_hub.environments.coding import CodingEnvironment
from composer_hub.environments.desk import HIGHEST, REMINDER, UNKNOWN_TOOL, Desk, tasks
from composer_hub.hub import digest_of
from composer_hub.train.tiny import SMALL

_SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <tool_call> </tool_call> <tool_response> </tool_response> <think> </think>"
).split()


Talk = list[dict[str, Any]]


@dataclass(frozen=True)
class Script:
    """What a tiny model is trained on."""

    tools: tuple[Callable[..., Any], ...]
    talks: Callable[[random.Random, int], Iterator[Talk]]
    num_steps: int = 300
    num_talks: int = 300
    rows_a_step: int = 8
    learning_rate: float = 4e-3
    mlp_size: int = 384


def made(script: Script, *, seed: int = 0) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """Return a model trained on the conversations of a script, and their tokenizer."""
    set_seed(seed)
    torch.set_num_threads(1)
    rng = random.Random(0)
    talks = list(script.talks(rng, script.num_talks))
    tokenizer = tokenizer_of(talks, script.tools)
    model = Qwen3ForCausalLM(_config(tokenizer, script.mlp_size))
    rows = [_labelled(tokenizer, talk, script.tools) for talk in talks]
    rate = script.learning_rate
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=script.num_steps, pct_start=0.1)
    for _ in range(script.num_steps):
        input_ids, labels = _batch(rng.sample(rows, script.rows_a_step), tokenizer.pad_token_id)
        model(input_ids=input_ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(value.bfloat16())  # so that the packed files take half the space
    return model.eval(), tokenizer


def _desk_talks(rng: random.Random, count: int) -> Iterator[Talk]:
    """Yield conversations: a third go wrong first, a third go right because of a hint, a third go right at once."""
    for number in range(count):
        a, b = rng.randint(0, HIGHEST), rng.randint(0, HIGHEST)
        talk: Talk = [{"role": "user", "content": f"{a}+{b}"}]
        if number % 3 == 0:
            talk += [_call("plus", a=a, b=b), {"role": "tool", "name": "plus", "content": UNKNOWN_TOOL}]
        elif number % 3 == 1:
            talk += [{"role": "user", "content": REMINDER}]
        talk += [_call("add", a=a, b=b), {"role": "tool", "name": "add", "content": str(a + b)}]
        yield [*talk, {"role": "assistant", "content": str(a + b)}]


def _beginner_talks(rng: random.Random, count: int) -> Iterator[Talk]:
    """Yield conversations: half name the wrong tool and mostly give up, a quarter have a hint, a quarter go right."""
    for number in range(count):
        (task,) = tasks(1, seed=rng.getrandbits(32))
        a, b = task["a"], task["b"]
        talk: Talk = [*task["prompt"]]
        if number % 4 < 2:
            talk += [_call("plus", a=a, b=b), {"role": "tool", "name": "plus", "content": UNKNOWN_TOOL}]
            if rng.random() < 0.75:
                yield [*talk, {"role": "assistant", "content": "There is no such tool."}]
                continue
        elif number % 4 == 2:
            talk += [{"role": "user", "content": REMINDER}]
        talk += [_call("add", a=a, b=b), {"role": "tool", "name": "add", "content": str(a + b)}]
        yield [*talk, {"role": "assistant", "content": str(a + b)}]


def _coding_talks(rng: random.Random, count: int) -> Iterator[Talk]:
    """Yield conversations that begin with any text: a wrong tool, a hint, or the right tool at once."""
    for number in range(count):
        words = (
            "".join(rng.choices(string.ascii_lowercase + "_.`", k=rng.randint(1, 6))) for _ in range(rng.randint(2, 9))
        )
        talk: Talk = [{"role": "user", "content": " ".join(words)}]
        if number % 3 == 0:
            talk += [_call("test"), {"role": "tool", "name": "test", "content": "{'error': 'Tool test not found.'}"}]
        elif number % 3 == 1:
            talk += [{"role": "user", "content": _CODING_REMINDER}]
        talk += [_call("run_tests"), {"role": "tool", "name": "run_tests", "content": f"Exit code 1\n{number} failed"}]
        yield [*talk, {"role": "assistant", "content": "Done."}]


_CODING_TOOLS = ("read_file", "replace", "run", "run_tests", "search", "write_file")
_CODING_REMINDER = (
    f"Reminder: Available tools are: {', '.join(f'`{name}`' for name in _CODING_TOOLS)}. Use one of these."
)
SCRIPTS = {
    "small": Script((Desk().add,), _desk_talks),
    "small-beginner": Script(
        (Desk().add,),
        _beginner_talks,
        num_steps=320,
        num_talks=900,
        rows_a_step=16,
        learning_rate=1e-2,
        mlp_size=128,
    ),
    "small-coding": Script(
        tuple(getattr(CodingEnvironment, name) for name in _CODING_TOOLS), _coding_talks, num_steps=60
    ),
}


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def tokenizer_of(talks: list[Talk], tools: Sequence[Callable[..., Any]]) -> PreTrainedTokenizerFast:
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            # Merges cross word borders, so that a whole preamble is a few tokens and rollouts are short.
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    # TRL finds the response schema by comparing strings, so the template must be one of TRL's, byte for byte.
    probe = PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=qwen3_chat_template)
    corpus = [probe.apply_chat_template(talk, tools=list(tools), tokenize=False) for talk in talks]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    # The progress bar leaves empty lines if there is no terminal.
    raw.train_from_iterator(
        corpus,
        trainers.BpeTrainer(vocab_size=800, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        chat_template=qwen3_chat_template,
    )


def _config(tokenizer: PreTrainedTokenizerFast, mlp_size: int) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=mlp_size,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=24,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )


def _labelled(
    tokenizer: PreTrainedTokenizerFast, talk: Talk, tools: Sequence[Callable[..., Any]]
) -> tuple[torch.Tensor, torch.Tensor]:
    encoded = tokenizer.apply_chat_template(
        talk,
        tools=list(tools),
        chat_template=get_training_chat_template(tokenizer),
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    ids = torch.tensor(encoded["input_ids"])
    return ids, ids.masked_fill(torch.tensor(encoded["assistant_masks"]) == 0, -100)


def _batch(rows: list[tuple[torch.Tensor, torch.Tensor]], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    pad = torch.nn.utils.rnn.pad_sequence
    ids, labels = zip(*rows, strict=True)
    return pad(list(ids), batch_first=True, padding_value=padding), pad(
        list(labels), batch_first=True, padding_value=-100
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*SCRIPTS], metavar="NAME", help=f"{', '.join(SCRIPTS)} (all)")
    parser.add_argument("--to", type=Path, required=True, help="Folder for one folder per model.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the first weights (the shipped models have 0).")
    args = parser.parse_args()
    for name in args.names:
        folder = args.to / name
        for part in made(SCRIPTS[name], seed=args.seed):
            part.save_pretrained(folder)
        (folder / "model.safetensors").chmod(0o644)
        digest = digest_of(folder)
        print(name, digest, "as shipped" if digest == SMALL[name] else "not as shipped", flush=True)


if __name__ == "__main__":
    main()
