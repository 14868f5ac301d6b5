"""`composer-hub teachers`: serve the embedded teachers, and look at what named teachers cost and allow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.cli.options import to_option
from composer_hub.cli.replay import teacher_options, teachers_from, traces_from
from composer_hub.output import Output


@click.group()
def teachers() -> None:
    """Serve the embedded teachers, or check named ones."""


@teachers.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; any free one by default.")
@click.option("--knowing", "traces", metavar="REPO@REV", help="Traces from which the teachers know what works.")
@to_option
@click.option(
    "--traces-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The same as JSONL rows."
)
@click.option(
    "--fault", "faults", multiple=True, metavar="KIND=RATE", help="Misbehave, e.g. 429=0.05 or drop_billed=0.02."
)
@click.option("--latency", type=float, default=0.0, help="Seconds every answer takes.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the faults.")
@format_option
def serve(port: int, faults: tuple[str, ...], latency: float, seed: int, out: Output, **options: Any) -> None:
    """Serve three scripted teachers on loopback, with prices, a prefix cache and a bill (GET /billing)."""
    import dataclasses

    try:
        from composer_hub.replay import fake
    except ModuleNotFoundError as error:
        raise exits.UsageError(f"The server needs {error.name}: pip install 'composer-hub[hub]'.") from None

    scripted = [dataclasses.replace(teacher, latency_s=latency) for teacher in fake.SCRIPTED]
    oracle = fake.oracle_of(traces_from(options)) if options["traces"] or options["traces_file"] else {}
    server = fake.TeacherServer(scripted, oracle=oracle, faults=_rates(faults, fake.FAULTS), seed=seed)
    listener = fake.listen(port)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    names = ",".join(f"{url}#{teacher.name}" for teacher in scripted)
    out.record({"url": url, "teachers": names}, id_key="url")
    out.note("Press Ctrl-C to stop.")
    # Whoever started the server through a pipe waits for the line above.
    sys.stdout.flush()
    fake.serve(server, listener)


@teachers.command(name="list")
@teacher_options
@format_option
def list_(out: Output, **options: Any) -> None:
    """Show the named teachers: route, family, price, context and terms."""
    rows = [
        {
            "name": teacher.name,
            "route": teacher.route.removesuffix("@"),  # no provider is named
            "family": teacher.family,
            "input": teacher.price.rates.input / 1e6,
            "cached": teacher.price.rates.cached / 1e6 if teacher.price.caches else None,
            "output": teacher.price.rates.output / 1e6,
            "context": teacher.context_length or None,
            "price_stamp": teacher.price.stamp,
            "terms": teacher.terms,
        }
        for teacher in teachers_from(options)
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
