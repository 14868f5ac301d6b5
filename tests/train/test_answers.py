"""Answers that share a row with their prompt are read as if each stood alone, or they are read alone."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.train.answers import answer_tensors, read_answers  # noqa: E402

ROWS = [([5, 6, 7], [8, 9]), ([4], [3, 2, 1]), ([5, 6, 7], [10]), ([5, 6, 7], [8, 11, 12, 13]), ([4], [])]


class Reader:
    """Reads rows with a network and remembers their shapes."""

    def __init__(self, network: Any, *, ignores_masks: bool = False) -> None:
        self.network, self.ignores_masks = network, ignores_masks
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, ids: Any, attention: Any, **inputs: Any) -> Any:
        self.shapes.append(tuple(ids.shape))
        if self.ignores_masks:
            attention, inputs = torch.ones_like(ids), {}
        return self.network.model(input_ids=ids, attention_mask=attention, use_cache=False, **inputs).last_hidden_state


def alone(network: Any, rows: Sequence[Any] = ROWS) -> Any:
    found = []
    for prompt, answer in rows:
        hidden = network.model(input_ids=torch.tensor([[*prompt, *answer]])).last_hidden_state[0]
        found.append(hidden[len(prompt) - 1 : len(prompt) - 1 + len(answer)])
    return torch.cat(found)


@pytest.fixture
def network(world: Any) -> Any:
    return copy.deepcopy(world[0]).eval()


def test_answers_of_one_prompt_share_a_row_and_are_read_as_if_alone(network: Any) -> None:
    read, tried = Reader(network), Reader(network)
    found = read_answers(network, answer_tensors(ROWS), read, tried)
    torch.testing.assert_close(found, alone(network), rtol=1e-4, atol=1e-4)
    assert read.shapes == [(2, 10)]
    assert len(tried.shapes) == 2  # both ways, and only once
    read_answers(network, answer_tensors(ROWS), read, tried)
    assert len(tried.shapes) == 2


def test_the_gradient_through_a_shared_row_is_that_of_single_rows(network: Any) -> None:
    def gradients(hidden: Any) -> list[Any]:
        network.zero_grad()
        hidden.pow(2).sum().backward()
        return [value.grad.clone() for value in network.model.parameters()]

    shared = gradients(read_answers(network, answer_tensors(ROWS), Reader(network), Reader(network)))
    for ours, theirs in zip(shared, gradients(alone(network)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_the_places_are_those_of_the_answers() -> None:
    rows = answer_tensors(ROWS, padding=99)
    found = [rows["ids"].flatten()[places[places >= 0]].tolist() for places in rows["answer"]]
    assert found == [answer for _, answer in ROWS]
    assert rows["ids"][1].tolist()[4:] == [99] * 6


def test_a_model_that_does_not_take_the_mask_reads_each_answer_alone(network: Any) -> None:
    deaf = Reader(network, ignores_masks=True)
    read = Reader(network)
    found = read_answers(network, answer_tensors(ROWS), read, deaf)
    assert read.shapes == [(5, 7)]
    torch.testing.assert_close(found, alone(network), rtol=1e-4, atol=1e-4)


OTHERS: list[dict[str, Any]] = [
    {"layer_types": ["full_attention", "sliding_attention"]},
    {"layer_types": None, "sliding_window": 4},
    {"_attn_implementation": "eager"},
]


@pytest.mark.parametrize("change", OTHERS, ids=str)
def test_a_model_with_other_attention_is_not_even_tried(network: Any, change: dict[str, Any]) -> None:
    for name, value in change.items():
        setattr(network.config, name, value)
    shapes = []

    def read(ids: Any, attention: Any) -> Any:
        shapes.append(tuple(ids.shape))
        return torch.zeros(*ids.shape, 1)

    read_answers(network, answer_tensors(ROWS), read, lambda *_, **__: pytest.fail("it was tried"))
    assert shapes == [(5, 7)]


def test_different_prompts_are_plain_rows(network: Any) -> None:
    rows = [([5, 6], [7]), ([5], [8, 9]), ([], [3, 4])]
    read = Reader(network)
    found = read_answers(network, answer_tensors(rows), read, Reader(network))
    torch.testing.assert_close(found[:3], alone(network, rows[:2]), rtol=1e-4, atol=1e-4)
    assert len(found) == 4  # nothing predicts the first token of a conversation
    assert read.shapes == [(3, 3)]
