"""`composer-hub teachers`: serve the embedded teachers, and show the prices and terms of others."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.cli.options import from_option
from composer_hub.cli.replay_options import FILE, find_traces, teacher_options
from composer_hub.output import Output

if TYPE_CHECKING:
    from composer_hub.replay import Teacher


@click.group(short_help="Serve or list teachers.")
def teachers() -> None:
    """Serve the embedded teachers, or show the prices and terms of others."""


@teachers.command(short_help="Serve the embedded teachers.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1 (0: any free one).")
@click.option("--knowing", "traces", metavar="REPO@REV", help="Traces that teach the server which actions worked.")
@from_option
@click.option("--traces-file", type=FILE, help="JSONL rows of traces instead of --knowing.")
@click.option("--fault", "faults", multiple=True, metavar="KIND=RATE", help="Fault, e.g. 429=0.05 or drop_billed=0.02.")
@click.option("--latency", type=float, default=0.0, help="Seconds per answer.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the faults.")
@format_option
def serve(
    port: int,
    traces: str | None,
    origin: str,
    traces_file: Path | None,
    faults: tuple[str, ...],
    latency: float,
    seed: int,
    out: Output,
) -> None:
    """Serve three scripted teachers on loopback, with prices, a prefix cache and a bill (GET /billing)."""
    from composer_hub.replay import fake

    scripted = [dataclasses.replace(teacher, latency_s=latency) for teacher in fake.SCRIPTED]
    oracle = fake.oracle_of(find_traces(traces, origin, traces_file)) if traces or traces_file else {}
    server = fake.TeacherServer(scripted, oracle=oracle, faults=_rates(faults, fake.FAULTS), seed=seed)
    listener = fake.listen(port)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    names = ",".join(f"{url}#{teacher.name}" for teacher in scripted)
    out.record({"url": url, "teachers": names}, id_key="url")
    out.note("Press Ctrl-C to stop.")
    # A program that started the server through a pipe waits for the line above.
    sys.stdout.flush()
    fake.serve(server, listener)


@teachers.command(name="list", short_help="Show price, context and terms.")
@teacher_options
@format_option
def list_(out: Output, teachers: list[Teacher]) -> None:
    """Show the route, family, price, context and terms of teachers."""
    rows = [
        {
            "name": teacher.name,
            "route": teacher.route.removesuffix("@"),  # without a pinned server
            "family": teacher.family,
            "input": teacher.price.rates.input / 1e6,
            "cached": teacher.price.rates.cached / 1e6 if teacher.price.caches else None,
            "output": teacher.price.rates.output / 1e6,
            "context": teacher.context_length or None,
            "price_stamp": teacher.price.stamp,
            "terms": teacher.terms,
        }
        for teacher in teachers
    ]
    out.table(rows, id_key="name")


def _rates(faults: tuple[str, ...], known: tuple[str, ...]) -> dict[str, float]:
    rates = {}
    for fault in faults:
        kind, _, rate = fault.partition("=")
        if kind not in known:
            raise exits.UsageError(f"--fault {fault}: unknown kind. Known: {', '.join(known)}.")
        try:
            rates[kind] = float(rate)
        except ValueError:
            raise exits.UsageError(f"--fault {fault}: write it as {kind}=0.05.") from None
    return rates
