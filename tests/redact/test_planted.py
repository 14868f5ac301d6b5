"""The planted sets draw the same values for the same seed, and hold what they claim to plant."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.redaction.plants import NAMES, planted_set, plants, score


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_draws_the_same_values_again_and_another_seed_draws_other_secrets(name: str) -> None:
    assert plants(name, 1) == plants(name, 1)
    changed = [first.value != other.value for first, other in zip(plants(name, 1), plants(name, 2), strict=True)]
    secret = [plant.kind.klass == "secret" and "«" in plant.kind.value for plant in plants(name, 1)]
    assert all(new for new, counts in zip(changed, secret, strict=True) if counts)


@pytest.mark.parametrize("name", NAMES)
def test_each_hole_is_filled_and_each_text_holds_its_value(name: str) -> None:
    planted = plants(name, 3)
    assert not [plant for plant in planted if set("«»§¦\f") & set(plant.value + plant.text)]
    shown = [plant for plant in planted if "\n" not in plant.value and "wrapped" not in plant.kind.name]
    assert not [plant for plant in shown if plant.value.replace("\\", "") not in plant.text.replace("\\", "")]


@pytest.mark.parametrize("name", NAMES)
def test_text_that_was_not_redacted_counts_as_all_leaks_and_all_look_alikes_kept(name: str) -> None:
    planted = [plant for plant in plants(name, 7) if "wrapped" not in plant.kind.name]
    result = score(planted, [plant.text for plant in planted])
    assert (result.rate("secret"), result.rate("pii"), result.rate("keep")) == (0.0, 0.0, 1.0)


def test_a_wrapped_token_is_broken_by_the_line_end() -> None:
    wrapped = [plant for plant in plants("third", 5) if "wrapped" in plant.kind.name]
    assert wrapped
    assert not any(plant.value in plant.text for plant in wrapped)
    assert all(plant.value in plant.text.replace("\n", "") for plant in wrapped)


def test_kinds_have_unique_names_and_the_sets_keep_their_size() -> None:
    sizes = {}
    for name in NAMES:
        kinds, _ = planted_set(name)
        assert Counter(kind.name for kind in kinds).most_common(1)[0][1] == 1
        sizes[name] = Counter(kind.klass for kind in kinds)
    assert sum(map(Counter.total, sizes.values())) == 1389
    assert sizes["fourth"]["secret"] >= 150
    assert sizes["fourth"]["pii"] >= 40
    assert sizes["fourth"]["keep"] >= 100
