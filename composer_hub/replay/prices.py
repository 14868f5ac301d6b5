"""The sources of a teacher's price: its endpoint's list, a dated table, or the command line.

In: the entries of a `/v1/models` list (in the shape of OpenRouter or of the Hugging Face router), `--price` options.
Out: a `TokenPrice` whose stamp names its source, the day it was read, and a digest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

from composer_hub import exits
from composer_hub.money import NANO, TokenPrice, TokenRates

TABLE_DATE = "2026-11-15"
"""The day the table below was compared with two public price maps. In the half year before, prices moved threefold."""

# Dollars per million tokens: input, cached, cache write, output. None: the route lists no such price.
TABLE: dict[str, tuple[str, str | None, str | None, str]] = {
    "claude-opus-4.7": ("5", "0.50", "6.25", "25"),
    "claude-opus-5.5": ("4", "0.20", "5", "20"),
    "claude-sonnet-5.5": ("2", "0.10", "2.5", "10"),
    "claude-haiku-5.5": ("0.10", "0.01", "0.125", "0.50"),
    "gpt-5": ("1.25", "0.125", None, "10"),
    "gpt-5.5": ("5", "0.50", None, "30"),
    "gpt-5.6-sol": ("4", "0.40", "5", "20"),
    "deepseek-v4-pro": ("1.32", "0.044", None, "3.96"),
    "deepseek-v4.1-flash": ("0.30", "0.006", None, "1.20"),
    "kimi-k3": ("3", "0.30", None, "15"),
    "kimi-k2.7-code": ("0.95", "0.19", None, "4"),
    "kimi-k2.6": ("0.95", "0.16", None, "4"),
    "glm-5.3": ("1.40", "0.26", None, "4.40"),
    "glm-5.3-flash": ("0.15", "0.03", None, "0.50"),
    "minimax-m3": ("0.30", "0.06", None, "1.20"),
}

# (from this many prompt tokens, factor on every price)
TABLE_TIERS: dict[str, tuple[int, int]] = {"claude-haiku-5.5": (100_000, 5), "gpt-5.6-sol": (272_000, 2)}


class PriceError(exits.UsageError):
    """A price is missing or cannot be read."""


def from_entry(entry: Mapping[str, Any], *, server: str, stamp: str) -> TokenPrice | None:
    """Return the price in an entry of a `/v1/models` list of either shape, or None if it has none."""
    return from_pricing(entry, server=server, stamp=stamp) or from_offers(entry, server=server, stamp=stamp)


def from_pricing(entry: Mapping[str, Any], *, server: str, stamp: str) -> TokenPrice | None:
    """Read `pricing` of OpenRouter: dollars per token as strings, costlier sizes under `overrides`."""
    pricing = entry.get("pricing")
    if not isinstance(pricing, Mapping) or pricing.get("prompt") is None or pricing.get("completion") is None:
        return None
    # Negative prices mark routers whose price depends on the model they pick.
    if any(str(pricing[key]).startswith("-") for key in ("prompt", "completion")):
        return None
    overrides = pricing.get("overrides") or []
    if not isinstance(overrides, list):
        return None
    tiers = [
        (_pico(override["min_prompt_tokens"], 1), _token_rates({**pricing, **override}))
        for override in overrides
        if isinstance(override, Mapping) and override.get("min_prompt_tokens")
    ]
    tiers.sort(key=lambda tier: tier[0])
    caches = pricing.get("input_cache_read") is not None
    return _stamped(TokenPrice(_token_rates(pricing), tuple(tiers), caches=caches), stamp)


def from_offers(entry: Mapping[str, Any], *, server: str, stamp: str) -> TokenPrice | None:
    """Read the price of the pinned server from `providers` as the HF router writes it: dollars per million tokens."""
    for offer in entry.get("providers") or ():
        if isinstance(offer, Mapping) and (not server or offer.get("provider") == server):
            pricing = offer.get("pricing")
            if isinstance(pricing, Mapping) and {"input", "output"} <= set(pricing):
                return per_million(
                    pricing["input"], pricing["output"], pricing.get("cached_input"), pricing.get("cache_write"), stamp
                )
            if server:
                return None
    return None


def per_million(input: Any, output: Any, cached: Any = None, write: Any = None, stamp: str = "") -> TokenPrice:
    """Return a price from dollars per million tokens."""
    rates = _rates(input, output, cached, write, scale=10**6)
    return _stamped(TokenPrice(rates, caches=cached is not None), stamp)


def _token_rates(pricing: Mapping[str, Any]) -> TokenRates:
    # Reasoning may have a separate price; its tokens count as output, so the higher price is taken.
    outputs = [pricing[key] for key in ("completion", "internal_reasoning") if pricing.get(key) is not None]
    output = max(outputs, key=lambda value: _pico(value, 10**12))
    rates = _rates(
        pricing["prompt"], output, pricing.get("input_cache_read"), pricing.get("input_cache_write"), scale=10**12
    )
    return dataclasses.replace(rates, request=_pico(pricing.get("request") or 0, 10**12))


def _rates(input: Any, output: Any, cached: Any, write: Any, *, scale: int) -> TokenRates:
    base = _pico(input, scale)
    return TokenRates(
        input=base,
        output=_pico(output, scale),
        cached=base if cached is None else _pico(cached, scale),
        write=base if write is None else _pico(write, scale),
    )


def _pico(value: Any, scale: int) -> int:
    try:
        pico = Decimal(str(value)) * scale
        if not 0 <= pico <= NANO * scale:
            raise InvalidOperation
        return int(pico.to_integral_value(ROUND_CEILING))
    except ArithmeticError:
        raise PriceError(
            f"{value!r} is not a price or a number of tokens. Give dollars per million tokens, for example "
            "--price name=1.25/10."
        ) from None


def _stamped(price: TokenPrice, source: str) -> TokenPrice:
    """Name the price by its source and its content, so that a changed price has another stamp."""
    text = json.dumps(dataclasses.asdict(dataclasses.replace(price, stamp="")), sort_keys=True)
    return dataclasses.replace(price, stamp=f"{source} {hashlib.sha256(text.encode()).hexdigest()[:8]}")


def from_table(model: str) -> TokenPrice | None:
    """Return the price that the dated table holds for a model id, or None."""
    name = model.rsplit("/", 1)[-1].split(":")[0].lower()
    if name not in TABLE:
        return None
    input, cached, write, output = TABLE[name]
    price = per_million(input, output, cached, write)
    if name in TABLE_TIERS:
        start, factor = TABLE_TIERS[name]
        dearer = TokenRates(*(value * factor for value in dataclasses.astuple(price.rates)))
        price = dataclasses.replace(price, tiers=((start, dearer),))
    return _stamped(price, f"table {TABLE_DATE}")


def parse_given(options: Sequence[str], *, today: str) -> dict[str, TokenPrice]:
    """Read `--price name=in/out[/cached[/write]]` options, in dollars per million tokens."""
    given = {}
    for option in options:
        name, _, numbers = option.rpartition("=")
        parts = numbers.split("/")
        if not name or not 2 <= len(parts) <= 4:
            raise PriceError(
                f"--price {option}: write it as name=in/out[/cached[/write]] in dollars per million tokens."
            )
        input, output, cached, write = (*parts, None, None)[:4]
        given[name] = per_million(input, output, cached, write, stamp=f"given {today}")
    return given
