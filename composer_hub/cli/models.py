"""The options that name models to pay for, a judge of hints and a critic of turns, and the one that reads what
redaction left, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub import exits, extras, replay
from composer_hub.cli.grouped import grouped
from composer_hub.cli.prices import price_options
from composer_hub.hub import destination
from composer_hub.options import option
from composer_hub.redact.reader import Reader


@dataclass(frozen=True)
class Models:
    """The models that --judge and --critic name, with their caps."""

    judge: str | None = option(None, "Model that writes hints at `judge` in --writers, or last.", metavar="URL#MODEL")
    judge_max_usd: float | None = option(None, "Cap on the judge's cost, over all runs into this dataset.")
    critic: str | None = option(None, "Model that finds poor turns that no tool refused.", metavar="URL#MODEL")
    critic_max_usd: float | None = option(None, "Cap on the critic's cost, over all runs into this dataset.")
    reader: str | None = option(
        None, "Model for token classification that reads after the rules.", metavar="hf:ORG/MODEL"
    )
    price: tuple[str, ...] = ()  # of these models, as `price_options` read them
    accept_terms: tuple[str, ...] = ()

    def open(self, folder: Path, say: Callable[[str], object]) -> dict[str, Any]:
        """Return the judge and the critic, with their ledgers and caches in a folder, and the reader."""
        return {**self._paid(folder), "reader": opened_reader(self.reader, say) if self.reader else None}

    def _paid(self, folder: Path) -> dict[str, Any]:
        models = {name for name, address in (("judge", self.judge), ("critic", self.critic)) if address}
        capped = {name for name in ("judge", "critic") if getattr(self, f"{name}_max_usd") is not None}
        # A price without a name is refused where prices are read.
        if unknown := {*map(_name, self.price), *self.accept_terms, *capped} - {*models, ""}:
            raise exits.UsageError(
                f"A price, a cap or terms are given for {', '.join(sorted(unknown))}, but no model. Name judge or "
                "critic, and give it: --judge URL#MODEL, --critic URL#MODEL."
            )

        def given(name: str) -> dict[str, list[str]]:
            prices = [price for price in self.price if _name(price) in ("", name)]
            return {"given_prices": prices, "accepted": [one for one in self.accept_terms if one == name]}

        judge = replay.judge_of(self.judge, self.judge_max_usd, folder, **given("judge")) if self.judge else None
        critic = replay.critic_of(self.critic, self.critic_max_usd, folder, **given("critic")) if self.critic else None
        return {"judge": judge, "critic": critic}


def _name(price: str) -> str:
    return price.rpartition("=")[0]


def opened_reader(name: str, say: Callable[[str], object]) -> Any:
    """Return the reader that --reader names: `hf:` and a model of the Hub, or a folder."""
    if not name.startswith("hf:") or name == "hf:":
        raise exits.UsageError(f"--reader {name}: write hf:ORG/MODEL, such as hf:openai/privacy-filter, or hf:FOLDER.")
    extras.need("--reader", "train", "torch", "transformers")
    from composer_hub.integrations.token_classifier import open_tagger

    return Reader(open_tagger(destination("hub"), name.removeprefix("hf:")), say)


model_options = grouped(
    "models",
    Models,
    price_options("the judge (judge=1/2) or the critic", "Judge or critic"),
)
"""Give a command the options of models, as one `models`."""
