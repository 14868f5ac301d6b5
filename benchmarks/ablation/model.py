"""The model of the ablation: a Qwen3 of 0.65 million parameters that was trained when the API was another.

In: a seed and a cache folder. Out: the model and its tokenizer. Demonstrations follow the model's beliefs, not today's
API. In 40 % of them hints name random methods and arguments and are followed, so that following a hint is a skill and
says nothing about this API.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl.chat_template_utils import qwen3_chat_template

from benchmarks.ablation.world import (
    DID_YOU_MEAN,
    ERROR,
    KEYS,
    NOUNS,
    REGIMES,
    TAKES,
    VALUES,
    VERBS,
    Api,
    StaleApi,
    arguments,
    key_error,
    key_hint,
    method_error,
    method_hint,
)
from composer_hub.train.uplift import right_padded

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
THINK = "<think>\n\n</think>\n\n"
NUM_STEPS = 850
ROWS_A_STEP = 32
BAD_ANSWERS = 0.2  # of the demonstrations, so that an untrained answer is not always right

Talk = list[tuple[str, bool]]  # pieces of text, and whether the model learns them


def call_text(call: dict[str, str]) -> str:
    """Return a turn that makes a call, as the template writes it."""
    body = ", ".join(f'"{name}": "{value}"' for name, value in call.items())
    return f'{THINK}<tool_call>\n{{"name": "call", "arguments": {{{body}}}}}\n</tool_call><|im_end|>'


def answer_text(value: int) -> str:
    return f"{THINK}{VALUES[value]}<|im_end|>"


def tool_text(result: str) -> str:
    """Return what the template puts between a call and the next turn."""
    return f"\n<|im_start|>user\n<tool_response>\n{result}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"


def error_text(message: str) -> str:
    return tool_text(str({"error": message}))


@functools.cache
def prompt_texts() -> tuple[str, str]:
    """Return the rendered prompt before and after the task."""
    environment = StaleApi(Api(0), REGIMES["dense"])
    probe = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"x": 0}, "x")))
    text = probe.apply_chat_template(
        [{"role": "user", "content": "TASK"}], tools=[environment.call], chat_template=qwen3_chat_template,
        tokenize=False, add_generation_prompt=True,
    )  # fmt: skip
    before, _, after = str(text).partition("TASK")
    return before, after


def tokenizer_of() -> PreTrainedTokenizerFast:
    """Return a tokenizer in which every word of the world, and every constant text around them, is one token."""
    system = prompt_texts()[0].split("<|im_start|>")[1].split("<|im_end|>")[0]
    call = call_text({"method": "@", "key": "@", "value": "@"}).removesuffix("<|im_end|>").split("@")
    constant = [
        system, THINK, *call, "user\n", "assistant\n", "<tool_response>\n", "\n</tool_response>",
        *error_text("@").split("<tool_response>\n")[1].split("\n</tool_response>")[0].split("@"),
        ERROR, "no method ", "no value ", "no calls left", " does not take ", DID_YOU_MEAN, TAKES, "ok ",
    ]  # fmt: skip
    characters = [chr(code) for code in (10, *range(32, 127))]
    words = [*dict.fromkeys([*SPECIAL, "<unk>", *constant, *VERBS, *NOUNS, *KEYS, *VALUES, *characters])]
    raw = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    pieces = "|".join(_escaped(word) for word in sorted([*constant, *VERBS, *NOUNS, *KEYS, *VALUES], key=len)[::-1])
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(f"{pieces}|[\\s\\S]"), behavior="isolated")
    raw.decoder = decoders.Fuse()
    raw.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>", unk_token="<unk>",
        padding_side="left", chat_template=qwen3_chat_template, clean_up_tokenization_spaces=False,
    )  # fmt: skip


def _escaped(text: str) -> str:
    return "".join(one if one.isalnum() or one in " \n_:<>/\"'," else f"\\{one}" for one in text)


def new_model(seed: int, vocabulary: int) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary, hidden_size=128, intermediate_size=384, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=4, head_dim=32, max_position_embeddings=512, tie_word_embeddings=True,
            pad_token_id=0, eos_token_id=2, bos_token_id=None, attention_dropout=0.0,
        )
    )  # fmt: skip


def demonstration(api: Api, rng: random.Random) -> Talk:
    """Write an episode by someone who acts on old beliefs in a world where these are true."""
    task = next(api.tasks(REGIMES["sparse" if rng.random() < 0.4 else "dense"], rng))
    before, after = prompt_texts()
    talk: Talk = [(before + task.text + after, False)]
    value, mode = task.value, rng.random()
    for noun in task.operations:
        verb, key = _draw(rng, api.verb_belief(noun)), _draw(rng, api.key_belief(noun))
        if mode < 0.4 and rng.random() < 0.6:
            verb, key = _hinted(api, rng, talk, noun, verb, key, value)
        elif mode > 0.75 and rng.random() < 0.5:
            verb, key = _recovered(api, rng, talk, noun, verb, key, value)
        talk.append((call_text(arguments(noun, verb, key, value)), True))
        value = api.results[noun][value]
        talk.append((tool_text(f"ok {VALUES[value]}"), False))
    talk.append((answer_text(task.value if rng.random() < BAD_ANSWERS else value), True))
    return talk


def _hinted(api: Api, rng: random.Random, talk: Talk, noun: int, verb: int, key: int, value: int) -> tuple[int, int]:
    other = rng.randrange(len(VERBS))
    if rng.random() < 0.55:
        if rng.random() < 0.3 and verb != other:
            talk.append((call_text(arguments(noun, verb, key, value)), False))
            talk.append((error_text(method_error(arguments(noun, verb, key, value)["method"])), False))
        told, text = (other, key), method_hint(noun, other)
    else:
        told = other, rng.randrange(len(KEYS))
        text = key_hint(noun, *told)
    # The hint is a user message before the turn.
    end = "<|im_start|>assistant\n"
    before, learned = talk[-1]
    talk[-1] = (f"{before.removesuffix(end)}<|im_start|>user\n{text}<|im_end|>\n{end}", learned)
    return told if rng.random() > 0.04 else (_draw(rng, api.verb_belief(noun)), told[1])


def _recovered(api: Api, rng: random.Random, talk: Talk, noun: int, verb: int, key: int, value: int) -> tuple[int, int]:
    call = arguments(noun, verb, key, value)
    talk.append((call_text(call), False))
    if rng.random() < 0.6:
        talk.append((error_text(method_error(call["method"])), False))
        return _draw(rng, api.verb_belief(noun), but=verb), key
    talk.append((error_text(key_error(call["method"], call["key"])), False))
    return verb, _draw(rng, api.key_belief(noun), but=key)


def _draw(rng: random.Random, chances: list[float], but: int | None = None) -> int:
    weights = [0.0 if number == but else chance for number, chance in enumerate(chances)]
    return rng.choices(range(len(chances)), weights)[0]


def warm_started(seed: int, num_steps: int = NUM_STEPS) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """Train the model of a seed."""
    api, rng, tokenizer = Api(seed), random.Random(f"warm-{seed}"), tokenizer_of()
    model = new_model(seed, len(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
    batches = _batches(api, rng, tokenizer)
    for step in range(num_steps):
        rate = min(1.0, (step + 1) / 50) * (0.05 + 0.475 * (1 + math.cos(math.pi * step / num_steps)))
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * rate
        ids, labels = next(batches)
        model(input_ids=ids, labels=labels, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval(), tokenizer


def _batches(api: Api, rng: random.Random, tokenizer: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield batches of demonstrations of about the same length, because padding would cost half the time."""
    while True:
        rows = sorted((encoded(tokenizer, demonstration(api, rng)) for _ in range(16 * ROWS_A_STEP)), key=_length)
        parts = [rows[start : start + ROWS_A_STEP] for start in range(0, len(rows), ROWS_A_STEP)]
        rng.shuffle(parts)
        for part in parts:
            ids, _, _ = right_padded([(row, ()) for row, _ in part])
            learned, _, _ = right_padded([(mask, ()) for _, mask in part])
            yield ids, ids.masked_fill(learned == 0, -100)


def _length(row: tuple[list[int], list[int]]) -> int:
    return len(row[0])


def encoded(tokenizer: Any, talk: Talk) -> tuple[list[int], list[int]]:
    """Return the tokens of a talk, and 1 for those that are learned."""
    ids: list[int] = []
    mask: list[int] = []
    for text, learned in talk:
        piece = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += piece
        mask += [int(learned)] * len(piece)
    return ids, mask


def model_of(seed: int, cache: Path, num_steps: int = NUM_STEPS) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """Return the model of a seed from the cache, or train and keep it."""
    home = cache / f"warm-{seed}-{num_steps}"
    if not (home / "config.json").exists():
        model, tokenizer = warm_started(seed, num_steps)
        tokenizer.save_pretrained(home)
        model.save_pretrained(home)
    return Qwen3ForCausalLM.from_pretrained(home), tokenizer_of()
