"""What a teacher costs: prices from its endpoint's list, the stamped table or the command line, in nano-dollars.

In: the entries of a `/v1/models` list (OpenRouter's and the Hugging Face router's shapes), `--price` options, token
counts. Out: `Price` with a stamp that says where and when it was read, and integer costs, always rounded up.

A price is kept as pico-dollars a token ($1 per million tokens = 1,000,000 pico), so that $0.0036 per million is exact
and no float touches money.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

from composer_hub import exits

NANO = 10**9
PICO_PER_NANO = 1000

TABLE_DATE = "2026-11-15"
"""The day the table below was compared with two public price maps; prices moved threefold within half a year before."""

# Dollars per million tokens: input, cached, cache write, output. None: the route names no such price.
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


@dataclass(frozen=True, slots=True)
class Rates:
    """Pico-dollars a token. `cached` and `write` equal `input` where the route names no price of their own."""

    input: int
    output: int
    cached: int
    write: int
    request: int = 0  # pico-dollars a call, whatever its size

    @property
    def worst_input(self) -> int:
        return max(self.input, self.write, self.cached)


@dataclass(frozen=True, slots=True)
class Price:
    """The rates of one route, by prompt size, and where they come from."""

    rates: Rates
    tiers: tuple[tuple[int, Rates], ...] = ()  # (from this many prompt tokens, rates), ascending
    stamp: str = ""
    caches: bool = False  # the route names a cached price

    def rates_for(self, prompt_tokens: int) -> Rates:
        """Return the rates for a prompt of this size."""
        fitting = [rates for start, rates in self.tiers if prompt_tokens >= start]
        return fitting[-1] if fitting else self.rates

    def worst_case(self, prompt_tokens: int, output_tokens: int) -> int:
        """Return nano-dollars that a call cannot exceed: nothing cached, all written, the dearest tier it can reach."""
        rates = [self.rates, *(rates for start, rates in self.tiers if prompt_tokens >= start)]
        return max(_nano(prompt_tokens * r.worst_input + output_tokens * r.output + r.request) for r in rates)

    def cost(self, prompt_tokens: int, output_tokens: int, *, cached: int = 0, written: int = 0) -> int:
        """Return nano-dollars for counted tokens; cached and written ones are part of the prompt's."""
        rates = self.rates_for(prompt_tokens)
        cached = min(cached, prompt_tokens)
        written = min(written, prompt_tokens - cached)
        plain = prompt_tokens - cached - written
        pico = plain * rates.input + cached * rates.cached + written * rates.write + output_tokens * rates.output
        return _nano(pico + rates.request)

    @property
    def order(self) -> int:
        """Return what teachers are ordered by: a typical agent step, mostly cached, with a short answer."""
        return self.cost(20_000, 400, cached=19_000 if self.caches else 0)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


FREE = Price(Rates(0, 0, 0, 0), stamp="free")


def _nano(pico: int) -> int:
    return -(-pico // PICO_PER_NANO)


def usd(nano: int) -> float:
    """Return nano-dollars as dollars, for showing."""
    return nano / NANO


def nano_of(dollars: Any) -> int | None:
    """Return an amount of dollars as nano-dollars, rounded up; None where it is no amount (absent, negative, NaN)."""
    if dollars is None or isinstance(dollars, bool):
        return None
    try:
        amount = Decimal(str(dollars)) * NANO
        if not amount.is_finite() or amount < 0 or amount > 2**62:
            return None
        return int(amount.to_integral_value(ROUND_CEILING))
    except (InvalidOperation, ValueError):
        return None


def show(nano: int) -> str:
    """Return an amount as a person reads it: enough digits to see small calls, cents for large sums."""
    dollars = usd(nano)
    return f"${dollars:,.2f}" if dollars >= 10 else f"${dollars:.4f}"


# ------------------------------------------------------------------------------------------------ reading price lists


def from_entry(entry: Mapping[str, Any], *, provider: str, stamp: str) -> Price | None:
    """Return the price in an entry of a `/v1/models` list, or None where the entry names none."""
    if isinstance(entry.get("pricing"), Mapping):
        return _from_per_token(entry["pricing"], stamp)
    for offer in entry.get("providers") or ():
        if isinstance(offer, Mapping) and (not provider or offer.get("provider") == provider):
            pricing = offer.get("pricing")
            if isinstance(pricing, Mapping) and {"input", "output"} <= set(pricing):
                return per_million(
                    pricing["input"], pricing["output"], pricing.get("cached_input"), pricing.get("cache_write"), stamp
                )
            if provider:
                return None
    return None


def per_million(input: Any, output: Any, cached: Any = None, write: Any = None, stamp: str = "") -> Price:
    """Return a price from dollars per million tokens."""
    rates = _rates(input, output, cached, write, scale=10**6)
    return _stamped(Price(rates, caches=cached is not None), stamp)


def _from_per_token(pricing: Mapping[str, Any], stamp: str) -> Price | None:
    """Read OpenRouter's shape: dollars a token as strings, dearer sizes under `overrides`."""
    if pricing.get("prompt") is None or pricing.get("completion") is None:
        return None
    # Negative prices mark routers whose price depends on the model they pick.
    if any(str(pricing[key]).startswith("-") for key in ("prompt", "completion")):
        return None
    tiers = [
        (int(override["min_prompt_tokens"]), _token_rates({**pricing, **override}))
        for override in pricing.get("overrides") or ()
        if isinstance(override, Mapping) and override.get("min_prompt_tokens")
    ]
    tiers.sort(key=lambda tier: tier[0])
    caches = pricing.get("input_cache_read") is not None
    return _stamped(Price(_token_rates(pricing), tuple(tiers), caches=caches), stamp)


def _token_rates(pricing: Mapping[str, Any]) -> Rates:
    # Reasoning that is billed apart from the answer is an answer's token as well.
    outputs = [pricing[key] for key in ("completion", "internal_reasoning") if pricing.get(key) is not None]
    output = max(outputs, key=lambda value: Decimal(str(value)))
    rates = _rates(
        pricing["prompt"], output, pricing.get("input_cache_read"), pricing.get("input_cache_write"), scale=10**12
    )
    return dataclasses.replace(rates, request=_pico(pricing.get("request") or 0, 10**12))


def _rates(input: Any, output: Any, cached: Any, write: Any, *, scale: int) -> Rates:
    base = _pico(input, scale)
    return Rates(
        input=base,
        output=_pico(output, scale),
        cached=base if cached is None else _pico(cached, scale),
        write=base if write is None else _pico(write, scale),
    )


def _pico(value: Any, scale: int) -> int:
    try:
        pico = Decimal(str(value)) * scale
        if not pico.is_finite() or pico < 0:
            raise InvalidOperation
        return int(pico.to_integral_value(ROUND_CEILING))
    except InvalidOperation:
        raise PriceError(
            f"{value!r} is not a price. Give dollars per million tokens, for example --price name=1.25/10."
        ) from None


def _stamped(price: Price, source: str) -> Price:
    """Name the price by its source and its content, so that a changed price has another stamp."""
    text = json.dumps(dataclasses.asdict(dataclasses.replace(price, stamp="")), sort_keys=True)
    return dataclasses.replace(price, stamp=f"{source} {hashlib.sha256(text.encode()).hexdigest()[:8]}")


def from_table(model: str) -> Price | None:
    """Return the price that the dated table holds for a model id, or None."""
    name = model.rsplit("/", 1)[-1].split(":")[0].lower()
    if name not in TABLE:
        return None
    input, cached, write, output = TABLE[name]
    price = per_million(input, output, cached, write)
    if name in TABLE_TIERS:
        start, factor = TABLE_TIERS[name]
        dearer = Rates(*(value * factor for value in dataclasses.astuple(price.rates)))
        price = dataclasses.replace(price, tiers=((start, dearer),))
    return _stamped(price, f"table {TABLE_DATE}")


def parse_given(options: Sequence[str], *, today: str) -> dict[str, Price]:
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
