"""A replay against a real `transformers serve` with a tiny model: the protocol, not the answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from composer_hub.money import NANO
from composer_hub.replay.collect import collect
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.prices import per_million
from composer_hub.replay.teachers import fetch_models, resolve
from tests.replay.sample import compare, trace_of

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | string }}{% endfor %}\n"
    "{% endfor %}"
)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a Llama of two small layers with a byte tokenizer."""
    for module in ("torch", "transformers", "openai", "fastapi"):
        pytest.importorskip(module, reason=f"transformers serve needs {module}")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny-model")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({"<eos>": 0, **{char: at + 1 for at, char in enumerate(alphabet)}}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=8192, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[str]:
    """Run `transformers serve` in this process, which has imported torch already."""
    from transformers.cli.serve import Serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = Serve(str(tiny_model), host="127.0.0.1", port=port, device="cpu", non_blocking=True)
    try:
        while not running.server.started:
            assert running._thread.is_alive(), "transformers serve ended early"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        running.kill_server()


def test_the_votes_and_the_bill_of_a_real_server_are_recorded(server: str, tiny_model: Path, tmp_path: Path) -> None:
    specs = [{"at": f"{server}#{tiny_model}", "name": "tiny", "max_tokens": 8, "max_concurrency": 1}]
    teachers = resolve(
        specs, list_models=fetch_models, given={"tiny": per_million("1", "2", stamp="given")}, environ={}
    )
    with Ledger(tmp_path / "ledger.sqlite", cap=NANO) as ledger:
        options = ReplayOptions(order="all", audit=0, repeat=0)
        votes = list(collect([trace_of(3)], teachers, ledger, options, compare=compare, environ={}))
        money = ledger.budget()
        (row,) = ledger.by_teacher()
    assert len(votes) == 3
    # Random weights produce no tool calls: every answer is text or cut short.
    assert {vote.status for vote in votes} <= {"length", "text_only", "empty", "voted"}
    assert {vote.cost_source for vote in votes} == {"price"}
    assert (money.ambiguous, money.reserved) == (0, 0)
    assert money.settled == sum(
        1000 * vote.usage["prompt_tokens"] + 2000 * vote.usage["completion_tokens"] for vote in votes
    )
    assert row["prompt_tokens"] > 0
