"""Amounts are exact integers, formatted for people, and a worst case is an upper bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub import exits
from composer_hub.money import NANO, MachinePrice, cap_of, from_usd, show_usd
from tests.quick import cases


@pytest.mark.parametrize("value", [None, True, "x", float("nan"), float("inf"), -1, 1e40, "1e999999"])
def test_a_value_that_is_not_an_amount_reads_as_none_and_cannot_be_a_cap(value: object) -> None:
    assert from_usd(value) is None
    with pytest.raises(exits.UsageError, match="--max-usd"):
        cap_of(value)


def test_dollars_are_rounded_up_to_the_next_nano_dollar() -> None:
    assert (from_usd(1e-10), from_usd("0.25"), from_usd(0)) == (1, 250_000_000, 0)


def test_amounts_show_cents_and_small_fractions_four_digits() -> None:
    assert [show_usd(round(usd * NANO)) for usd in (0, 0.5, 0.0123, 1234.5678, 9.99996, 1.23e-7)] == [
        "$0.00",
        "$0.50",
        "$0.0123",
        "$1,234.57",
        "$10.00",
        "<$0.0001",
    ]


def test_a_machine_is_paid_in_full_units_of_time() -> None:
    price = MachinePrice.hourly(2.5)
    assert price.usd_per_hour == pytest.approx(2.5)
    assert price.cost(1) == price.cost(60) == price.unit_cost
    assert price.cost(61) == 2 * price.unit_cost
    assert MachinePrice(0).timeout_for(NANO) is None


@cases(100)
@given(unit_cost=st.integers(1, NANO), unit_s=st.sampled_from((1, 60, 3600)), amount=st.integers(0, 1000 * NANO))
def test_the_worst_case_of_an_affordable_time_limit_fits_the_amount(unit_cost: int, unit_s: int, amount: int) -> None:
    price = MachinePrice(unit_cost, unit_s)
    timeout_s = price.timeout_for(amount)
    assert timeout_s is not None
    assert timeout_s == 0 or price.worst_case(timeout_s) <= amount
