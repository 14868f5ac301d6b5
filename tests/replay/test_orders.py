"""An order asks what its codes require, and a forecast learns from codes whichever order asked for them."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path

import pytest

from composer_hub.pairs.policy import Policy
from composer_hub.replay.experience import Experience, Habits, learn, ranked
from composer_hub.replay.orders import Model, canonical, chances, draws, has_pair, interval, is_late, num_next
from composer_hub.replay.prices import per_million
from composer_hub.replay.teachers import Teacher

POLICY = Policy()


@pytest.mark.parametrize(("order", "codes", "num"), [
    ("all", (), 3), ("sequential", (), 2), ("cascade", (), 1),
    ("sequential", (1, 1), 0), ("sequential", (1, 2), 1), ("sequential", (-1, 1), 1), ("sequential", (0, 0), 0),
    ("cascade", (-1,), 0), ("cascade", (1,), 1), ("cascade", (1, -2), 0), ("cascade", (1, 2), 1),
    ("cascade", (1, 1), 0),
])  # fmt: skip
def test_the_next_teachers_follow_from_the_codes_so_far(order: str, codes: tuple[int, ...], num: int) -> None:
    assert num_next(order, codes, 3 - len(codes), POLICY) == num


def test_late_in_a_trace_the_cascade_asks_as_many_as_must_agree_and_breaks_no_ties() -> None:
    assert num_next("cascade", (1,), 2, POLICY, late=True) == 1
    assert num_next("cascade", (1, 2), 1, POLICY, late=True) == 0
    assert num_next("sequential", (1, 2), 1, POLICY, late=True) == 1
    assert [is_late(index, 12) for index in range(12)] == [False] * 8 + [True] * 4
    assert not any(is_late(index, 6) for index in range(6))


def test_codes_of_equal_steps_are_equal() -> None:
    assert canonical((7, 0, 9, 7, -3)) == canonical((2, 0, 1, 2, -1)) == (1, 0, 2, 1, -1)


@pytest.mark.parametrize("num_teachers", [1, 2, 3])
def test_chances_add_up_to_one_with_and_without_observations(num_teachers: int) -> None:
    for seen in ({}, {(1,): 3.0, (1, 1): 5.0, (-1, 2): 2.0}):
        assert sum(chances(num_teachers, seen, Model()).of.values()) == pytest.approx(1)


@pytest.mark.parametrize("asked", ["all", "sequential", "cascade"])
def test_the_forecast_of_every_order_is_learned_from_the_codes_of_any(asked: str) -> None:
    rng, world = random.Random(5), Model(0.45, 0.9, 0.2)
    lines, weights = zip(*world.lines(3).items(), strict=True)
    steps = rng.choices(lines, weights, k=4000)
    seen: Counter[tuple[int, ...]] = Counter()
    for line in steps:
        at = 0
        # One step in twenty is asked in full, as by the audit.
        while num := num_next(asked, line[:at], 3 - at, POLICY) or (rng.random() < 0.05 and 3 - at):
            at += num
        seen[canonical(line[:at])] += 1
    learned = chances(3, seen, Model())
    for order in ("all", "sequential", "cascade"):
        found = learned.expect(order, POLICY)
        truth = chances(3, Counter(map(canonical, steps)), world).expect(order, POLICY)
        # A node that only the audit reaches is known from few steps.
        assert found.pair == pytest.approx(truth.pair, abs=0.05)
        assert found.asked == pytest.approx(truth.asked, abs=0.05)


def test_an_expectation_equals_playing_every_line() -> None:
    known = chances(3, {}, Model())
    expected = known.expect("sequential", POLICY)
    by_hand = sum(chance for codes, chance in known.of.items() if has_pair(codes, POLICY))
    assert expected.pair == pytest.approx(by_hand)  # sequential finds what all find
    assert expected.asked[:2] == pytest.approx((1, 1))


def test_a_range_shrinks_with_what_is_known() -> None:
    def width(seen: dict[tuple[int, ...], float]) -> float:
        low, high = interval([one.expect("all", POLICY).pair for one in draws(3, seen)])
        return high - low

    assert width({(1, 1, 1): 300.0, (-1, -1, -1): 700.0}) < width({(1, 1, 1): 3.0, (-1, -1, -1): 7.0}) < width({})


def test_teachers_are_ranked_by_what_their_answers_really_cost(tmp_path: Path) -> None:
    brief = Teacher("brief", "brief", "http://127.0.0.1/v1", price=per_million("1", "12", "0.1"))
    wordy = Teacher("wordy", "wordy", "http://127.0.0.1/v1", price=per_million("1", "4", "0.1"))
    assert [one.name for one in ranked([brief, wordy], Experience())] == ["wordy", "brief"]
    learned = Experience({"brief": Habits(10, 1_000), "wordy": Habits(10, 13_000)})
    assert [one.name for one in ranked([brief, wordy], learned)] == ["brief", "wordy"]
    assert learn([tmp_path]).habits == {}


def test_experience_survives_its_file_and_serves_another_order_of_teachers() -> None:
    lines = Counter({(("a", "b"), codes): 4 for codes in itertools.product((1, -1), repeat=2)})
    kept = Experience({"a": Habits(1, 2, 3, 4, 5, 6)}, Counter(lines), Counter(lines))
    assert Experience.of_json(kept.as_json()) == kept
    assert kept.seen(["b", "a"]) == dict.fromkeys(itertools.product((1, -1), repeat=2), 4.0)
    assert kept.seen(["a", "b"]) == kept.seen(["b", "a"])
    assert kept.seen(["a", "c"]) == {}
