"""Stock trainers take what is published: `DPOTrainer` pairs that its `max_length` fits, `SFTTrainer` exported rows."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits
from composer_hub.exports import sft
from composer_hub.hub import RowWriter
from composer_hub.pairs.consensus import build_pairs
from composer_hub.pairs.rows import PairOptions
from composer_hub.records import MARKER, Pair, Trace, Vote, features_of, to_row

pytest.importorskip("trl")

# ChatML with tools: the prompt is rendered the same with and without the answer behind it.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
Tools: {{ tools | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {
{%- for key, value in call.function.arguments.items() %}"{{ key }}": {{ value | tojson }}, {% endfor %}}}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture(scope="module")
def dataset(make_trace: Callable[..., Trace], make_vote: Callable[..., Vote], tmp_path_factory: Any) -> Any:
    """Return pairs with short prompts and a window of a long one, read back from the Parquet file that is published."""
    from datasets import Dataset

    student = ("Bash", {"command": "ls", "timeout": 5})
    trace = make_trace(student, student, student, results=["ok", "long " * 400])
    answers = [
        ("Read", {"file_path": "/repo/a.py", "limit": 20}),
        ("Grep", {"pattern": "x", "-i": True}),
        ("Edit", {"file_path": "a.py", "old_string": "a", "new_string": "b"}),
    ]
    votes = [make_vote(trace, at, name, answer) for at, answer in enumerate(answers) for name in ("a-x", "b-x")]
    pairs, drops = build_pairs(trace, votes, options=PairOptions(max_tokens=500))
    assert (len(pairs), dict(drops)) == (3, {})
    assert [bool(pair.num_left_out or pair.num_shortened) for pair in pairs] == [False, False, True]
    path = str(tmp_path_factory.mktemp("pairs") / "train.parquet")
    Dataset.from_list([to_row(pair) for pair in pairs], features=features_of(Pair)).to_parquet(path)
    return Dataset.from_parquet(path, cache_dir=str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Return a tokenizer of bytes with a chat template that shows tools."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    specials = ["<|im_start|>", "<|im_end|>", "<|pad|>"]
    vocabulary = {token: at for at, token in enumerate([*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    model = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=model, eos_token="<|im_end|>", pad_token="<|pad|>", additional_special_tokens=["<|im_start|>"]
    )
    made.chat_template = TEMPLATE
    return made


@pytest.fixture
def trainer_with(dataset: Any, tokenizer: Any, tmp_path: Path) -> Callable[..., Any]:
    """Return a function from DPO options to a trainer with a tiny model, on the CPU."""

    def make(**options: Any) -> Any:
        from transformers import Qwen3Config, Qwen3ForCausalLM
        from trl import DPOConfig, DPOTrainer

        model = Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=1,
                head_dim=8,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
            )
        )
        config = DPOConfig(
            output_dir=str(tmp_path),
            max_steps=5,
            per_device_train_batch_size=1,
            learning_rate=1e-3,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            **options,
        )
        # The trainer loads the model a second time, as the reference.
        model.save_pretrained(tmp_path / "model")
        return DPOTrainer(str(tmp_path / "model"), args=config, train_dataset=dataset, processing_class=tokenizer)

    return make


def test_a_stock_trainer_takes_every_published_pair_and_learns(
    trainer_with: Callable[..., Any], tokenizer: Any
) -> None:
    trainer = trainer_with(max_length=None)
    assert len(trainer.train_dataset) == 3
    rows = list(trainer.train_dataset)
    assert "Read" in tokenizer.decode(rows[0]["chosen_ids"])
    assert "Bash" in tokenizer.decode(rows[0]["rejected_ids"])
    assert "Let me think" not in tokenizer.decode(rows[2]["prompt_ids"])
    # The part that both sides share is prompt, so that the loss is on the choice alone.
    assert tokenizer.decode(rows[0]["prompt_ids"]).endswith("<|im_start|>assistant\n")
    before = [weights.detach().clone() for weights in trainer.model.parameters()]
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 5
    assert all(0 < loss < 2 for loss in losses)
    assert any(not old.equal(new) for old, new in zip(before, trainer.model.parameters(), strict=True))


def test_the_default_max_length_silently_drops_long_prompts(trainer_with: Callable[..., Any]) -> None:
    trainer = trainer_with()
    assert trainer.args.max_length == 1024
    assert len(trainer.train_dataset) < 3


@pytest.fixture(scope="module")
def sft_rows(make_trace: Callable[..., Trace], tokenizer: Any) -> list[dict[str, Any]]:
    """Return the rows of a trace whose second and third steps were the model's mistakes."""
    wrong = [("Bash", {"command": f"mke {number}"}) for number in range(2)]
    trace = make_trace(("Bash", {"command": "ls"}), *wrong, ("Bash", {"command": "make"}), errors=[1, 2])
    return [row for compress in (False, True) for row in sft.sft_rows(trace, tokenizer, compress=compress)]


def learned_text(row: dict[str, Any], tokenizer: Any) -> str:
    pairs = zip(row["input_ids"], row["assistant_masks"], strict=True)
    return str(tokenizer.decode([token for token, learned in pairs if learned]))


def test_the_mask_of_an_sft_row_holds_the_whole_turns_that_were_no_mistake(
    sft_rows: list[dict[str, Any]], tokenizer: Any
) -> None:
    whole, short = sft_rows
    learned = learned_text(whole, tokenizer)
    assert learned.count("<|im_end|>") == 2
    assert '"command": "ls"' in learned
    assert '"command": "make"' in learned
    assert "mke" not in learned
    assert "ok" not in learned
    text = tokenizer.decode(whole["input_ids"])
    assert ("mke 0" in text, "mke 1" in text) == (True, True)
    assert learned_text(short, tokenizer) == learned
    assert "mke 0" not in tokenizer.decode(short["input_ids"])
    assert (whole["num_left_out"], short["num_left_out"]) == (2, 1)


def test_a_template_that_changes_earlier_turns_is_refused(make_trace: Callable[..., Trace], tokenizer: Any) -> None:
    changing = copy.copy(tokenizer)
    changing.chat_template = "{{ messages | length }}" + TEMPLATE
    with pytest.raises(exits.UsageError, match="renders a turn in another way"):
        list(sft.sft_rows(make_trace(("Bash", {"command": "ls"})), changing))


def test_windows_hold_each_turn_once_and_open_with_the_task(make_trace: Callable[..., Trace], tokenizer: Any) -> None:
    calls = [("Bash", {"command": f"run {number}"}) for number in range(8)]
    trace = make_trace(*calls, results=["long " * (900 if number == 4 else 60) for number in range(8)])
    whole = next(sft.sft_rows(trace, tokenizer))
    rows = list(sft.sft_rows(trace, tokenizer, max_tokens=1600))
    assert len(rows) == 3
    assert all(len(row["input_ids"]) <= 1600 for row in rows)
    learned = "".join(learned_text(row, tokenizer) for row in rows)
    # The turn with the long result fits in no window.
    assert [learned.count(f"run {number}") for number in range(8)] == [1, 1, 1, 1, 0, 1, 1, 1]
    assert all(row["messages"][:1] == whole["messages"][:1] for row in rows)
    assert [MARKER in str(row["messages"]) for row in rows] == [False, *[True] * (len(rows) - 1)]


def test_a_session_without_a_first_message_of_the_user_is_learned_from_its_second_turn(
    make_trace: Callable[..., Trace], tokenizer: Any
) -> None:
    strict = copy.copy(tokenizer)
    strict.chat_template = "{% if not messages %}{{ raise_exception('no message') }}{% endif %}" + TEMPLATE
    trace = make_trace(*(("Bash", {"command": f"run {number}"}) for number in range(4)), results=["long " * 90] * 4)
    first = min(step.action for step in trace.steps)
    steps = tuple(
        dataclasses.replace(
            step, action=step.action - first, results=tuple(at - first for at in step.results), prompt=()
        )
        for step in trace.steps
    )
    headless = dataclasses.replace(trace, messages=trace.messages[first:], steps=steps)
    (whole,) = sft.sft_rows(headless, strict)
    assert whole["messages"][0]["role"] == "assistant"
    assert [f"run {number}" in learned_text(whole, strict) for number in range(4)] == [False, True, True, True]
    windows = list(sft.sft_rows(headless, strict, max_tokens=len(whole["input_ids"]) * 2 // 3))
    assert len(windows) == 2
    assert windows[1]["messages"][0]["content"] == MARKER


def test_a_result_may_repeat_words_of_its_call(make_trace: Callable[..., Trace], tokenizer: Any) -> None:
    trace = make_trace(("Bash", {"command": "echo ok"}), ("Bash", {"command": "make"}), results=["ok", "done"])
    (row,) = sft.sft_rows(trace, tokenizer)
    assert learned_text(row, tokenizer).count("echo ok") == 1


def test_a_stock_sft_trainer_takes_the_rows_as_they_are(
    sft_rows: list[dict[str, Any]], tokenizer: Any, tmp_path: Path
) -> None:
    from datasets import load_dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl import SFTConfig, SFTTrainer

    with RowWriter(tmp_path / "train.parquet", sft.features()) as writer:
        for row in sft_rows:
            writer.add(row)
    rows = load_dataset("parquet", data_files=str(tmp_path / "train.parquet"), cache_dir=str(tmp_path))["train"]
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=4096,
    )  # fmt: skip
    args = SFTConfig(
        str(tmp_path / "out"), max_steps=5, max_length=None, per_device_train_batch_size=2, use_cpu=True, bf16=False,
        report_to="none", save_strategy="no", learning_rate=1e-2, logging_steps=1,
    )  # fmt: skip
    trainer = SFTTrainer(Qwen3ForCausalLM(config), args, train_dataset=rows, processing_class=tokenizer)
    labels = trainer.train_dataset[0]["labels"]
    assert [label != -100 for label in labels] == [bool(bit) for bit in sft_rows[0]["assistant_masks"]]
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert len(losses) == 5
    assert losses[-1] < losses[0]
