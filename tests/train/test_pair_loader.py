"""The stream of pairs: every pair once an epoch, the same after an interruption, apart on each rank."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from composer_hub.train.pair_loader import PairLoader, TokenPair  # noqa: E402
from composer_hub.train.stream import StreamError  # noqa: E402
from tests.quick import cases  # noqa: E402

stable = cases(40)


def pairs(count: int) -> list[TokenPair]:
    return [TokenPair((1,) * (number % 3), (number + 10,), (number + 10, 5), -1.0, -2.0) for number in range(count)]


def loader(count: int = 7, size: int = 1, **options: Any) -> PairLoader:
    return PairLoader(pairs(count), size, **options)


def taken(stream: PairLoader, batches: int) -> list[int]:
    """Return the first token of each chosen answer."""
    found = []
    for _ in range(batches):
        found += [pair.chosen_ids[0] - 10 for pair in stream.take()]
    return found


@stable
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 3))
def test_the_ranks_together_see_every_pair_once_an_epoch(count: int, ranks: int, seed: int) -> None:
    each = [taken(loader(count, rank=rank, num_ranks=ranks, seed=seed), count) for rank in range(ranks)]
    together = [pair for step in zip(*each, strict=True) for pair in step]
    for epoch in range(ranks):
        assert sorted(together[epoch * count : (epoch + 1) * count]) == list(range(count))


@stable
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 9), st.integers(1, 9))
def test_a_resumed_stream_equals_the_uninterrupted_one(count: int, size: int, before: int, after: int) -> None:
    whole = taken(loader(count, size), before + after)
    first = loader(count, size)
    taken(first, before)
    second = loader(count, size)
    second.restore(first.state())
    assert whole[before * size :] == taken(second, after)


def test_each_epoch_has_a_different_order() -> None:
    stream = loader(30)
    assert taken(stream, 30) != taken(stream, 30)
    assert taken(loader(30, seed=1), 30) != taken(loader(30, seed=2), 30)


def test_no_pairs_is_refused() -> None:
    with pytest.raises(StreamError, match="beta_replay"):
        loader(0)


def test_a_checkpoint_of_other_pairs_is_refused() -> None:
    with pytest.raises(StreamError, match="same pairs revision"):
        loader(7).restore(loader(8).state())


def test_with_another_number_of_ranks_the_stream_continues_after_the_rows_it_has_seen() -> None:
    first = [loader(100, rank=rank, num_ranks=2) for rank in range(2)]
    seen = taken(first[0], 5) + taken(first[1], 5)
    alone = loader(100)
    alone.restore(first[0].state())
    assert not set(seen) & set(taken(alone, 90))
