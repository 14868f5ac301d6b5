"""The options that `replay` and `teachers` share; each decorator passes one typed value to its command."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from composer_hub import exits
from composer_hub.cli.durations import seconds_of
from composer_hub.cli.options import from_option, renamed
from composer_hub.cli.paths import FILE
from composer_hub.cli.policy import policy_options

if TYPE_CHECKING:
    from composer_hub.replay import Teacher, TraceSource

Command = Callable[..., Any]


def with_options(command: Command, *options: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def price_options(whom: str, who: str) -> tuple[Command, Command]:
    """Return the options that state the price and accept the terms of models by name."""
    return (
        click.option("--price", multiple=True, metavar="NAME=IN/OUT[/CACHED[/WRITE]]",
                     help=f"Price of {whom} in dollars per million tokens."),
        click.option("--accept-terms", multiple=True, metavar="NAME",
                     help=f"{who} on whose answers you may train."),
    )  # fmt: skip


def source_options(command: Command) -> Command:
    """Pass `traces`, a collection of traces that can be read more than once."""

    @functools.wraps(command)
    def wrapped(*args: Any, traces: str | None, origin: str, traces_file: Path | None, **kwargs: Any) -> Any:
        return command(*args, traces=find_traces(traces, origin, traces_file), **kwargs)

    return with_options(
        wrapped,
        click.argument("traces", required=False, metavar="[REPO@REV]"),
        from_option,
        click.option("--traces-file", type=FILE, help="JSONL rows of traces instead of REPO@REV."),
    )


def find_traces(ref: str | None, origin: str, file: Path | None) -> TraceSource:
    from composer_hub.hub import destination, load
    from composer_hub.replay import PublishedTraces, TraceFile

    if file:
        return TraceFile(file)
    if not ref:
        raise exits.UsageError("Name the traces: a dataset (me/traces@v1.0.0) or --traces-file FILE.")
    return PublishedTraces(load(destination(origin), ref), origin)


def teacher_options(command: Command | None = None, *, planning: bool = False) -> Command:
    """Pass `teachers`, with prices and terms from their endpoints; for `planning`, as far as these can be read."""
    if command is None:
        return functools.partial(teacher_options, planning=planning)

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        teachers: str,
        teachers_file: Path | None,
        price: tuple[str, ...],
        accept_terms: tuple[str, ...],
        max_tokens: int | None,
        judge: str,
        **kwargs: Any,
    ) -> Any:
        from composer_hub.replay import find_teachers

        if judge and click.get_current_context().params.get("no_judge"):
            raise exits.UsageError("--judge names a judge and --no-judge asks none: leave one out.")
        panel = find_teachers(
            teachers, file=teachers_file, given_prices=price, accepted=accept_terms,
            max_tokens=max_tokens, planning=planning, judge=judge,
        )  # fmt: skip
        return command(*args, teachers=panel, **kwargs)

    return with_options(
        wrapped,
        click.option("--teachers", default="", metavar="A,B,…",
                     help="hf:org/model:provider, openrouter:vendor/model, URL#model."),
        click.option("--teachers-file", type=FILE, help="Teachers in YAML, TOML or JSON."),
        click.option("--judge", default="", metavar="ADDRESS",
                     help="Teacher that is asked about would-be pairs (the cheapest one)."),
        *price_options("a teacher", "Teacher"),
        click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens of one answer, with its thinking."),
    )  # fmt: skip


def replay_options(command: Command) -> Command:
    """Pass `options`, a `ReplayOptions`, and the panel of `teachers` without their judge."""

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        order: str,
        policy_changes: dict[str, Any],
        audit: float,
        repeat: float,
        patience: str,
        max_usd_per_pair: float | None,
        teachers: list[Teacher],
        no_judge: bool,
        i_own_this_endpoint: bool = False,
        **kwargs: Any,
    ) -> Any:
        from composer_hub.pairs.policy import Policy
        from composer_hub.replay import ReplayOptions, appointed

        policy = Policy(**policy_changes)
        waiting = seconds_of(patience, "--patience")
        first = None if no_judge or not policy.exclude_same_family else next(iter(kwargs["traces"]), None)
        panel, cheapest = appointed(teachers, first.family if first else "")
        judge = None if no_judge else cheapest
        options = ReplayOptions(order, policy, audit, repeat, i_own_this_endpoint, waiting, max_usd_per_pair, judge)
        return command(*args, teachers=panel, options=options, **kwargs)

    return with_options(
        wrapped,
        click.option("--order", type=click.Choice(["auto", "cascade", "sequential", "all"]), default="auto",
                     show_default=True, help="Order of asking (auto: while a pair is worth it)."),
        click.option("--max-usd-per-pair", type=click.FloatRange(0, min_open=True),
                     help="Price at which auto leaves a pair (5 times the median so far)."),
        renamed("--policy", "--policy is now --order: the order in which teachers are asked."),
        policy_options,
        click.option("--audit", type=click.FloatRange(0, 1), default=0.03, show_default=True,
                     help="Share of steps asked in full although the order would stop."),
        click.option("--repeat", type=click.FloatRange(0, 1), default=0.02, show_default=True,
                     help="Share of steps on which the first teacher is asked twice."),
        click.option("--no-judge", is_flag=True, help="Ask no judge whether two actions have the same effect."),
        click.option("--patience", default="10m", show_default=True, metavar="10m",
                     help="Time to wait for a server that cannot be reached."),
    )  # fmt: skip
