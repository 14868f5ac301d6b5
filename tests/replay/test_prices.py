"""Prices are read exactly, costs are integers rounded up, and the worst case is a bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.money import TokenPrice
from composer_hub.replay.prices import TABLE, PriceError, from_entry, from_table, parse_given, per_million
from tests.quick import cases

stable = cases(200)
tokens = st.integers(0, 2_000_000)
dollars = st.decimals(0, 200, places=4)


def test_a_fraction_of_a_nano_dollar_a_token_is_exact() -> None:
    assert per_million("0.0036", "1").cost(1_000_000, 0) == 3_600_000


def test_openrouter_entries_are_read_with_cache_prices_tiers_and_reasoning() -> None:
    price = from_entry({
        "pricing": {
            "prompt": "0.000004", "completion": "0.00002", "internal_reasoning": "0.00003", "request": "0.01",
            "input_cache_read": "0.0000004", "input_cache_write": "0.000005",
            "overrides": [{"min_prompt_tokens": 272000, "prompt": "0.000008"}],
        },
    }, server="", stamp="list")  # fmt: skip
    assert price is not None
    rates = price.rates
    assert (rates.input, rates.cached, rates.write, rates.output) == (4 * 10**6, 4 * 10**5, 5 * 10**6, 30 * 10**6)
    assert price.rates_up_to(271_999)[-1].input == 4 * 10**6
    assert price.rates_up_to(272_000)[-1].input == 8 * 10**6
    assert price.cost(0, 0) == 10_000_000  # the fee of the call itself


def test_the_hf_routers_entries_are_read_for_the_pinned_provider_only() -> None:
    entry = {"providers": [{"provider": "novita", "pricing": {"input": 1.4, "output": 4.4}}, {"provider": "scaleway"}]}
    price = from_entry(entry, server="novita", stamp="list")
    assert price is not None
    assert (price.rates.input, price.rates.cached, price.caches) == (1_400_000, 1_400_000, False)
    assert from_entry(entry, server="scaleway", stamp="list") is None
    assert from_entry(entry, server="together", stamp="list") is None


@pytest.mark.parametrize(
    "entry",
    [{}, {"pricing": None}, {"pricing": {}}, {"pricing": {"prompt": "-1", "completion": "-1"}}, {"providers": [3]}],
    ids=["nothing", "null", "empty", "router", "odd"],
)
def test_an_entry_without_a_price_gives_none(entry: dict) -> None:
    assert from_entry(entry, server="", stamp="list") is None


def test_the_table_finds_models_under_any_vendor_prefix() -> None:
    price = from_table("zai-org/GLM-5.3:novita")
    assert price is not None
    assert price.rates.input == 1_400_000
    assert all(from_table(name) for name in TABLE)
    assert from_table("unknown-model") is None


@pytest.mark.parametrize("option", ["name", "name=1", "=1/2", "name=a/b", "name=-1/2", "name=nan/2", "name=1/2/3/4/5"])
def test_an_invalid_price_is_refused_with_the_right_form(option: str) -> None:
    with pytest.raises(PriceError, match="name="):
        parse_given([option], today="2026-01-01")


@stable
@given(
    input=dollars, output=dollars, cached=dollars, write=dollars, prompt=tokens, answer=tokens, share=st.floats(0, 1)
)
def test_no_split_into_cached_and_written_tokens_costs_more_than_the_worst_case(
    input: object, output: object, cached: object, write: object, prompt: int, answer: int, share: float
) -> None:
    base = per_million(input, output, cached, write)
    dearer = per_million("250", "250", "250", "250").rates
    price = TokenPrice(base.rates, ((100_000, dearer),))
    hit = int(prompt * share)
    cost = price.cost(prompt, answer, cached=hit, written=(prompt - hit) // 2)
    assert cost <= price.worst_case(prompt, answer)


@pytest.mark.parametrize("tokens", ["many", [1], float("inf")])
def test_a_list_with_a_tier_from_no_number_of_tokens_is_refused_in_words(tokens: object) -> None:
    override = {"min_prompt_tokens": tokens, "prompt": "0.000008"}
    entry = {"pricing": {"prompt": "0.000001", "completion": "0.000002", "overrides": [override]}}
    with pytest.raises(PriceError, match="is not a price or a number of tokens"):
        from_entry(entry, server="", stamp="list")


@pytest.mark.parametrize("price", [{}, "x", "nan", "inf", "1e999999", "1e5000"])
def test_a_list_with_a_price_that_is_no_number_is_refused_in_words(price: object) -> None:
    entry = {"id": "m", "pricing": {"prompt": "0.000001", "completion": price}}
    with pytest.raises(PriceError, match="is not a price"):
        from_entry(entry, server="", stamp="list")
    entry = {"id": "m", "pricing": {"prompt": "0.000001", "completion": "0.000002", "overrides": 5}}
    assert from_entry(entry, server="", stamp="list") is None
