"""The options that state prices and accept terms, for every command that pays models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from composer_hub.cli.grouped import stacked


def price_options(whom: str, who: str) -> Callable[..., Any]:
    """Return the options that state the price and accept the terms of models by name."""
    return stacked(
        click.option("--price", multiple=True, metavar="NAME=IN/OUT[/CACHED[/WRITE]]",
                     help=f"Price of {whom} in dollars per million tokens."),
        click.option("--accept-terms", multiple=True, metavar="NAME",
                     help=f"{who} on whose answers you may train."),
    )  # fmt: skip
