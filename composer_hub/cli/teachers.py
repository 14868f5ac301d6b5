"""`composer-hub teachers`: serve the embedded teachers, and show the prices and terms of others."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import click

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.cli.options import from_option
from composer_hub.cli.paths import FILE
from composer_hub.cli.replay_options import find_traces, teacher_options
from composer_hub.output import Output
from composer_hub.replay.teachers import Teacher, unlisted_notes


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
@click.option("--seed", type=int, default=0, help="Seed of the faults.")
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

    def announce() -> None:
        out.record({"url": url, "teachers": names}, id_key="url")
        out.note("Press Ctrl-C to stop.")
        # A program that started the server through a pipe waits for the line above.
        sys.stdout.flush()

    fake.serve(server, listener, announce)


@teachers.command(name="list", short_help="Show price, context and terms.")
@teacher_options(planning=True)
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
    for note in unlisted_notes(teachers):
        out.warn(note)


TEACHERS_FILE = """\
# Teachers of `composer-hub replay --teachers-file`. Three give most pairs; two of three must agree.
# A pair needs teachers of other families than the student's: `composer-hub teachers list` shows family, price, terms.
teachers:
  - at: hf:deepseek-ai/DeepSeek-V4-Pro:novita   # org/model:provider, paid with HF_TOKEN
  - at: hf:zai-org/GLM-5.3:novita
    max_tokens: 4096                            # of one answer, with its thinking; bounds what a call may cost
  - at: openrouter:moonshotai/kimi-k2.7-code    # paid with OPENROUTER_API_KEY
#  - at: http://127.0.0.1:8000/v1#qwen3-coder   # vLLM, llama.cpp, `transformers serve`
#    name: local                                # in reports; default: the model's name
#    price: 0/0                                 # dollars per million tokens, in/out[/cached[/write]]
#    family: qwen                               # default: by the model's name
#    key_env: MY_KEY                            # environment variable with its key
#    params: {temperature: 0.7}                 # sent with each request
#    max_concurrency: 16
"""


@teachers.command(short_help="Write a commented teachers file.")
@click.option(
    "--out",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("teachers.yaml"),
    help="File to write.",
)
@format_option
def init(path: Path, out: Output) -> None:
    """Write a teachers file with comments, to be edited. An existing file stays as it is."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEACHERS_FILE)
    except FileExistsError:
        raise exits.UsageError(f"{path} exists already. Edit it, or give another --out.") from None
    except OSError as error:
        raise exits.UsageError(f"{path} cannot be written ({error.strerror}). Give another --out.") from None
    out.record({"file": str(path)}, id_key="file")
    out.note(f"Next: edit it, then composer-hub teachers list --teachers-file {path}")


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
