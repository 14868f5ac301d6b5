"""`composer-hub train`: `accelerate launch` of the installed trainer, with a preset or a config file."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from composer_hub import exits, extras
from composer_hub.cli.main import format_option
from composer_hub.output import Output
from composer_hub.train.presets import find_config, options_of, presets, summary, with_launch_file

NEEDED = ("torch", "trl", "transformers", "accelerate", "peft")


@click.command(
    short_help="Train with a preset or a config file.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--list", "only_list", is_flag=True, help="List the presets.")
@click.option("--show", is_flag=True, help="Print the config and train nothing.")
@click.option("--plan", is_flag=True, help="Estimate the memory per GPU and train nothing.")
@click.option("--gpu-gb", type=float, help="Memory of a GPU for --plan (the size that the preset names, or 80).")
@click.option("--accelerate", default="", metavar="OPTIONS", help="Options of accelerate launch.")
@click.option("--preset", help="The same as the argument.")
@click.argument("config", required=False, metavar="PRESET|FILE")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@format_option
def train(
    only_list: bool,
    show: bool,
    plan: bool,
    gpu_gb: float | None,
    accelerate: str,
    preset: str | None,
    config: str | None,
    options: Sequence[str],
    out: Output,
) -> None:
    """Train with a preset or a config file: composer-hub train tiny --max_steps 4.

    Everything after the preset goes to the trainer, and overrides the file; `composer-hub train tiny --help` lists it.
    """
    if only_list:
        out.table([{"preset": name, "about": summary(path)} for name, path in presets().items()], id_key="preset")
        return
    if preset is not None:
        config, options = preset, (*((config,) if config else ()), *options)
    if config is None:
        raise exits.UsageError(f"Name a preset ({', '.join(presets())}) or a config file.")
    if config.startswith("-"):
        context = click.get_current_context()
        known = [name for option in context.command.params for name in option.opts]
        raise click.NoSuchOption(config, possibilities=known, ctx=context)
    path = find_config(config)
    if show:
        click.echo(path.read_text(encoding="utf-8"), nl=False)
        return
    if plan or "--plan" in options:
        show_plan(path, [word for word in options if word != "--plan"], accelerate, gpu_gb, out)
        return
    extras.need("Training", "train", *NEEDED)
    from composer_hub.train.checks import check_words
    from composer_hub.train.plan import launch_of

    words, given = ["--config", str(path), *options], with_launch_file(path, shlex.split(accelerate))
    check_words(words, launch_of(path, shlex.split(accelerate)).get("num_processes"))
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--quiet", *given]
    raise SystemExit(launched([*launcher, "-m", "composer_hub.train", *words]))


def show_plan(path: Path, options: Sequence[str], accelerate: str, gpu_gb: float | None, out: Output) -> None:
    """Print the memory per GPU and what to change if it does not fit; exit with 4 then."""
    from composer_hub.train.plan import plan

    # After the preset all options go to the trainer, but these mean the same there.
    given = options_of(options)
    gpu_gb, accelerate = given.get("gpu_gb", gpu_gb), given.get("accelerate", accelerate)
    out = Output(given["format"]) if "format" in given else out
    planned = plan(path, options, accelerate=shlex.split(accelerate), gpu_gib=gpu_gb)
    out.table(planned.rows(), id_key="part")
    for line in planned.verdict():
        out.text(line)
    if not planned.fits:
        raise SystemExit(exits.REFUSED)


def launched(command: Sequence[str]) -> int:
    """Run a launcher and its processes to their end; return the exit code of training."""
    with tempfile.TemporaryDirectory(prefix="composer-train-") as folder:
        codes, ranks = Path(folder) / "codes", Path(folder) / "ranks"
        # Otherwise accelerate prints the defaults that it launches with.
        quiet = {"ACCELERATE_LOG_LEVEL": "ERROR"} | os.environ
        noting = {exits.CODES_FILE: str(codes), exits.RANKS_FILE: str(ranks)}
        # Its own group, so that a terminal's Ctrl-C does not reach it.
        process = subprocess.Popen(command, start_new_session=True, env=quiet | noting)
        early: list[int] = []

        def pass_on(number: int, _: Any) -> None:
            # To training alone: a launcher prints a traceback, and training needs its helpers to finish the step.
            number = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
            found = [int(line) for line in ranks.read_text().split()] if ranks.is_file() else []
            for rank in found:
                with suppress(ProcessLookupError):
                    os.kill(rank, number)
            if not found:
                early.append(number)
                _send(process.pid, signal.SIGTERM)

        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:  # as under nohup
                signal.signal(getattr(signal, name), pass_on)
        code = process.wait()
        while _send(process.pid, 0):
            time.sleep(0.1)
        return 128 + early[0] if early else exits.own_code(codes, code if code >= 0 else 128 - code)


def _send(group: int, number: int) -> bool:
    """Send a signal to a group of processes; return False if none is left."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)
        return True
    return False
