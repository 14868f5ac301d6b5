"""The third planted set says the same thing for the same seed, and something else for another."""

from __future__ import annotations

from collections import Counter

from benchmarks.planted_third import THIRD, THIRD_TUNE, THIRD_UNSEEN, for_tuning, third_plants


def test_each_kind_draws_another_value_for_another_seed_and_fills_every_hole() -> None:
    assert third_plants(THIRD, 1) == third_plants(THIRD, 1)
    for first, other in zip(third_plants(THIRD, 1), third_plants(THIRD, 2), strict=True):
        assert first.value != other.value, first.kind
        assert not set("«»§\f") & set(first.value + first.text), first.kind


def test_each_context_holds_its_value_once() -> None:
    assert [kind.name for kind in THIRD if any(context.count("§") != 1 for context in kind.contexts)] == []


def test_each_kind_has_a_name_of_its_own_which_decides_its_half() -> None:
    assert Counter(kind.name for kind in THIRD).most_common(1)[0][1] == 1
    assert all(map(for_tuning, THIRD_TUNE))
    assert not any(map(for_tuning, THIRD_UNSEEN))
    assert len(THIRD_TUNE) + len(THIRD_UNSEEN) == len(THIRD)


def test_a_wrapped_token_is_broken_by_the_line_end() -> None:
    wrapped = [kind for kind in THIRD if "wrapped" in kind.name]
    assert wrapped
    assert not any(plant.value in plant.text for plant in third_plants(wrapped, 5))
    assert all(plant.value in plant.text.replace("\n", "") for plant in third_plants(wrapped, 5))
