"""A replay against a real `transformers serve` with a tiny model: the protocol, not the answers."""

from __future__ import annotations

import copy
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from composer_hub.money import NANO
from composer_hub.replay.collecting import collect
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.prices import per_million
from composer_hub.replay.teachers import fetch_models, resolve
from tests.replay.sample import compare, trace_of


@pytest.fixture(scope="module")
def tiny_model(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save the model of the tiny world, which never opens a tool call: the server answers a malformed one with 500."""
    for module in ("openai", "fastapi"):
        pytest.importorskip(module, reason=f"transformers serve needs {module}")
    folder = tmp_path_factory.mktemp("tiny-model")
    model, tokenizer = copy.deepcopy(world)
    model.generation_config.suppress_tokens = tokenizer.convert_tokens_to_ids(["<tool_call>", "</tool_call>"])
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[str]:
    """Run `transformers serve` in this process, which has imported torch already."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from transformers.cli.serve import Serve

    Path(HF_HUB_CACHE).mkdir(parents=True, exist_ok=True)  # it lists the models of the cache, and fails without one
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
    # The tiny model may answer anything within 8 tokens.
    assert {vote.status for vote in votes} <= {"length", "text_only", "empty", "voted"}
    assert {vote.cost_source for vote in votes} == {"price"}
    assert (money.ambiguous, money.reserved) == (0, 0)
    assert money.settled == sum(
        1000 * vote.usage["prompt_tokens"] + 2000 * vote.usage["completion_tokens"] for vote in votes
    )
    assert row["prompt_tokens"] > 0
