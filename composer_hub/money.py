"""Money: amounts, prices and budgets for everything that is paid, be it a teacher's tokens or a machine's time.

An amount is an integer number of nano-dollars. Floats appear only when an amount is read or printed. Costs are always
rounded up. A token's price is kept in pico-dollars ($1 per million tokens = 1,000,000 pico), so that $0.0036 per
million tokens is exact.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

from composer_hub import exits

NANO = 10**9  # per dollar
PICO_PER_NANO = 1000
_CENT = NANO // 100
_MAX_AMOUNT = 2**62  # SQLite keeps 64-bit integers


# ------------------------------------------------------------------------------------------------------------ amounts


def from_usd(dollars: Any) -> int | None:
    """Convert dollars to nano-dollars, rounded up; None for anything that is not an amount (absent, negative, NaN)."""
    if dollars is None or isinstance(dollars, bool):
        return None
    try:
        amount = Decimal(str(dollars)) * NANO  # NaN cannot be compared, and 1e999999 is too large
        return int(amount.to_integral_value(ROUND_CEILING)) if 0 <= amount <= _MAX_AMOUNT else None
    except (ArithmeticError, ValueError):
        return None


def to_usd(nano: int) -> float:
    """Convert nano-dollars to dollars, for output only."""
    return nano / NANO


def show_usd(nano: int) -> str:
    """Format an amount: whole cents and large sums with two digits ($12.50), small ones with four ($0.0123)."""
    dollars = to_usd(nano)
    if nano > 0 and not round(dollars, 4):
        return "<$0.0001"  # spent, although little
    return f"${dollars:,.2f}" if round(dollars, 4) >= 10 or nano % _CENT == 0 else f"${dollars:.4f}"


def cap_of(max_usd: Any, option: str = "--max-usd") -> int:
    """Read the value of a cap option as nano-dollars."""
    cap = from_usd(max_usd)
    if cap is None:
        raise exits.UsageError(
            f"{option} {max_usd} is not an amount of dollars. Write it as {option} 5 or {option} 0.25."
        )
    return cap


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of a cap is used, in nano-dollars."""

    cap: int
    settled: int  # paid, with a known cost
    reserved: int = 0  # the worst case of what is in flight
    ambiguous: int = 0  # the worst case of what was lost in flight, and may have been billed

    @property
    def committed(self) -> int:
        return self.settled + self.reserved + self.ambiguous

    @property
    def left(self) -> int:
        return self.cap - self.committed

    def as_row(self) -> dict[str, float]:
        names = ("settled", "reserved", "ambiguous", "cap", "left")
        return {f"{name}_usd": to_usd(max(getattr(self, name), 0)) for name in names}

    def __str__(self) -> str:
        return (
            f"{show_usd(self.settled)} spent, {show_usd(self.reserved)} in flight, {show_usd(self.ambiguous)} "
            f"ambiguous, of {show_usd(self.cap)}"
        )


# ------------------------------------------------------------------------------------------------- prices of a teacher


@dataclass(frozen=True, slots=True)
class TokenRates:
    """Pico-dollars per token. `cached` and `write` equal `input` if the route lists no separate price."""

    input: int
    output: int
    cached: int
    write: int
    request: int = 0  # pico-dollars per call, whatever its size

    @property
    def worst_input(self) -> int:
        return max(self.input, self.write, self.cached)


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """The rates of one route, by prompt size, and their source."""

    rates: TokenRates
    tiers: tuple[tuple[int, TokenRates], ...] = ()  # (from this many prompt tokens, rates), ascending
    stamp: str = ""  # source, day and digest
    caches: bool = False  # the route lists a price for cached tokens

    def rates_up_to(self, prompt_tokens: int) -> list[TokenRates]:
        """Return the rates of every tier that begins at or below this prompt size; the last one is the prompt's."""
        return [self.rates, *(rates for start, rates in self.tiers if prompt_tokens >= start)]

    def worst_case(self, prompt_tokens: int, output_tokens: int) -> int:
        """Return an upper bound of a call's cost: nothing cached, all written, the highest price tier."""
        return max(
            _nano(prompt_tokens * rates.worst_input + output_tokens * rates.output + rates.request)
            for rates in self.rates_up_to(prompt_tokens)
        )

    def cost(self, prompt_tokens: int, output_tokens: int, *, cached: int = 0, written: int = 0) -> int:
        """Return the cost of counted tokens; cached and written tokens are part of the prompt's."""
        rates = self.rates_up_to(prompt_tokens)[-1]
        cached = min(cached, prompt_tokens)
        written = min(written, prompt_tokens - cached)
        plain = prompt_tokens - cached - written
        pico = plain * rates.input + cached * rates.cached + written * rates.write + output_tokens * rates.output
        return _nano(pico + rates.request)

    def typical(self, output_tokens: float = 400) -> int:
        """Return the cost of a typical agent step (mostly cached); teachers are sorted by it."""
        return self.cost(20_000, round(output_tokens), cached=19_000 if self.caches else 0)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


FREE = TokenPrice(TokenRates(0, 0, 0, 0), stamp="free")


def _nano(pico: int) -> int:
    return -(-pico // PICO_PER_NANO)


# ------------------------------------------------------------------------------------------------- prices of a machine


@dataclass(frozen=True, slots=True)
class MachinePrice:
    """Nano-dollars per unit of time; a unit that has begun is paid in full."""

    unit_cost: int
    unit_s: int = 60

    @classmethod
    def hourly(cls, usd_per_hour: float) -> MachinePrice:
        """Return the price of a machine that is billed per minute."""
        return cls(math.ceil(cap_of(usd_per_hour, "--usd-per-hour") / 60))

    @property
    def usd_per_hour(self) -> float:
        return to_usd(self.unit_cost * 3600) / self.unit_s

    def cost(self, seconds: float) -> int:
        """Return the cost of this many seconds."""
        return math.ceil(seconds / self.unit_s) * self.unit_cost

    def worst_case(self, timeout_s: int) -> int:
        """Return an upper bound of a job's cost: it may end a moment after its time limit, when a new unit begins."""
        return self.cost(timeout_s + self.unit_s)

    def timeout_for(self, amount: int) -> int | None:
        """Return the longest time limit whose worst case fits an amount; None if time is free."""
        return max(0, amount // self.unit_cost - 1) * self.unit_s if self.unit_cost else None
