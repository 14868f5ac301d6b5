"""The options that `replay` and `teachers` share; each decorator passes one typed value to its command."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from composer_hub import exits
from composer_hub.cli.grouped import grouped, stacked
from composer_hub.cli.options import from_option, renamed
from composer_hub.cli.paths import FILE
from composer_hub.cli.prices import price_options
from composer_hub.hub import destination, load
from composer_hub.options import parsed_seconds
from composer_hub.pairs.policy import Policy
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.sources import PublishedTraces, TraceFile, TraceSource
from composer_hub.replay.teachers import Teacher, appointed, find_teachers

Command = Callable[..., Any]


def find_traces(traces: str | None, origin: str, traces_file: Path | None) -> TraceSource:
    """Return a collection of traces that can be read more than once."""
    if traces_file:
        return TraceFile(traces_file)
    if not traces:
        raise exits.UsageError("Name the traces: a dataset (me/traces@v1.0.0) or --traces-file FILE.")
    return PublishedTraces(load(destination(origin), traces), origin)


source_options = grouped(
    "traces",
    find_traces,
    click.argument("traces", required=False, metavar="[REPO@REV]"),
    from_option,
    click.option("--traces-file", type=FILE, help="JSONL rows of traces instead of REPO@REV."),
)
"""Give a command the options that name traces, and pass them as `traces`."""


def teacher_options(*, planning: bool = False) -> Callable[[Command], Command]:
    """Pass `teachers`, with prices and terms from their endpoints; for `planning`, as far as these can be read."""

    def panel(
        teachers: str,
        teachers_file: Path | None,
        price: tuple[str, ...],
        accept_terms: tuple[str, ...],
        max_tokens: int | None,
        judge: str,
    ) -> list[Teacher]:
        if judge and click.get_current_context().params.get("no_judge"):
            raise exits.UsageError("--judge names a judge and --no-judge asks none: leave one out.")
        return find_teachers(
            teachers, file=teachers_file, given_prices=price, accepted=accept_terms,
            max_tokens=max_tokens, planning=planning, judge=judge,
        )  # fmt: skip

    return grouped(
        "teachers",
        panel,
        click.option("--teachers", default="", metavar="A,B,…",
                     help="hf:org/model:provider, openrouter:vendor/model, URL#model."),
        click.option("--teachers-file", type=FILE, help="Teachers in YAML, TOML or JSON."),
        click.option("--judge", default="", metavar="ADDRESS",
                     help="Teacher that is asked about would-be pairs (the cheapest one)."),
        price_options("a teacher", "Teacher"),
        click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens of one answer, with its thinking."),
    )  # fmt: skip


def replay_options(command: Command) -> Command:
    """Pass `options`, a `ReplayOptions`, and the panel of `teachers` without their judge."""

    @functools.wraps(command)
    def wrapped(
        *args: Any, options: ReplayOptions, policy: Policy, teachers: list[Teacher], no_judge: bool, **kwargs: Any
    ) -> Any:
        first = None if no_judge or not policy.exclude_same_family else next(iter(kwargs["traces"]), None)
        panel, cheapest = appointed(teachers, first.family if first else "")
        options = dataclasses.replace(options, agreement=policy, judge=None if no_judge else cheapest)
        return command(*args, teachers=panel, options=options, **kwargs)

    return stacked(
        grouped("options", ReplayOptions, order={"default": "auto"}),
        renamed("--policy", "--policy is now --order: the order in which teachers are asked."),
        grouped("policy", Policy),
        click.option("--no-judge", is_flag=True, help="Ask no judge whether two actions have the same effect."),
        click.option(
            "--patience",
            "patience_s",
            default="10m",
            metavar="10m",
            callback=lambda ctx, param, value: parsed_seconds(value, "--patience"),
            help="Time to wait for a server that cannot be reached.",
        ),
    )(wrapped)
