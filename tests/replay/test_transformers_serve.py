"""A replay against a real `transformers serve`, with a tiny model made from a config: the protocol, not the answers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
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
    """Make a Llama of two small layers with a byte tokenizer."""
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
    """Run `transformers serve` on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "from transformers.cli.transformers import main; main()"
    command = [sys.executable, "-c", code, "serve", str(tiny_model), "--host", "127.0.0.1", "--port", str(port)]
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, "--device", "cpu"], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert process.poll() is None, "transformers serve ended by itself"
            try:
                with urllib.request.urlopen(f"{url}/health") as response:
                    json.load(response)
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        yield f"{url}/v1"
    finally:
        process.kill()
        process.wait()


def test_a_real_server_is_asked_counted_and_paid_by_its_tokens(server: str, tiny_model: Path, tmp_path: Path) -> None:
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
    # Random weights know no tool calls: every answer is words or cut short, and each is kept.
    assert {vote.status for vote in votes} <= {"length", "text_only", "empty", "voted"}
    assert {vote.cost_source for vote in votes} == {"price"}
    assert (money.ambiguous, money.reserved) == (0, 0)
    assert money.settled == sum(
        1000 * vote.usage["prompt_tokens"] + 2000 * vote.usage["completion_tokens"] for vote in votes
    )
    assert row["prompt_tokens"] > 0
