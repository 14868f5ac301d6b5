"""The fourth planted set says the same thing for the same seed, and holds what it says it planted."""

from __future__ import annotations

from collections import Counter

from benchmarks.planted import score
from benchmarks.planted_fourth import FOURTH, fourth_plants


def test_the_same_seed_draws_the_same_and_another_seed_something_else() -> None:
    assert fourth_plants(FOURTH, 1) == fourth_plants(FOURTH, 1)
    secrets = [kind for kind in FOURTH if kind.klass == "secret"]
    for first, other in zip(fourth_plants(secrets, 1), fourth_plants(secrets, 2), strict=True):
        assert first.value != other.value, first.kind


def test_each_hole_is_filled_and_each_context_holds_its_value_once() -> None:
    for plant in fourth_plants(FOURTH, 3, 4):
        assert not set("«»§") & set(plant.value + plant.text), plant.kind
    assert [kind.name for kind in FOURTH if any(context.count("§") != 1 for context in kind.contexts)] == []


def test_text_that_nobody_redacted_counts_as_all_leaks_and_all_look_alikes_kept() -> None:
    planted = fourth_plants(FOURTH, 7)
    result = score(planted, [plant.text for plant in planted])
    assert (result.rate("secret"), result.rate("pii"), result.rate("keep")) == (0.0, 0.0, 1.0)


def test_each_kind_has_a_name_of_its_own_and_the_set_is_large() -> None:
    assert Counter(kind.name for kind in FOURTH).most_common(1)[0][1] == 1
    counts = Counter(kind.klass for kind in FOURTH)
    assert counts["secret"] >= 150
    assert counts["pii"] >= 40
    assert counts["keep"] >= 100
