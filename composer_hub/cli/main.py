"""The command line: `composer-hub …`, `hf composer …`. A command is imported when it runs, so that `--help` is fast."""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
from typing import Any

import click

from composer_hub import __version__, exits
from composer_hub.cli import signals
from composer_hub.cli.uniform import uniform
from composer_hub.local_hub.characters import visible
from composer_hub.local_hub.errors import LocalHubError
from composer_hub.output import FORMATS, Output

_ADDRESS = re.compile(r"https?://(?:[^\s/@]*@)?(?:[^\s/@:\[]+|\[[^\s\]]+\])(?::\d{1,5})?(?:/\S*)?")
# name -> (module and attribute, short help). The short help is here, so that --help imports no command.
COMMANDS = {
    "demo": ("composer_hub.cli.demo:demo", "Run every stage on the embedded Hub."),
    "ingest": ("composer_hub.cli.ingest:ingest", "Turn session files into a trace dataset."),
    "shards": ("composer_hub.cli.shards:shards", "Look at shards and run them again."),
    "report": ("composer_hub.cli.report:report", "See where your agents lose turns."),
    "traces": ("composer_hub.cli.traces:traces", "Apply reviews of hints to traces."),
    "export": ("composer_hub.cli.export:export", "Write a version in another format."),
    "replay": ("composer_hub.cli.replay:replay", "Ask teachers for the steps of traces."),
    "pairs": ("composer_hub.cli.pairs:pairs", "Build and review preference pairs."),
    "tasks": ("composer_hub.cli.tasks:tasks", "Make coding tasks from tested packages."),
    "space": ("composer_hub.cli.space:space", "Inspect and review datasets in a Space."),
    "teachers": ("composer_hub.cli.teachers:teachers", "Serve or list teachers."),
    "train": ("composer_hub.cli.train:train", "Train with a preset or a config file."),
    "federation": ("composer_hub.cli.federation:federation", "Look at a federation of workers."),
    "eval": ("composer_hub.cli.evaluate:evaluate", "Measure pass@1 of a model on tasks."),
    "jobs": ("composer_hub.cli.jobs:jobs", "Train on the Hub's machines under a cap."),
    "hub": ("composer_hub.cli.embedded:hub", "Serve the embedded Hub."),
    "run": ("composer_hub.cli.run:run", "Run a command against the embedded Hub."),
    "diff": ("composer_hub.cli.versions:diff", "Compare two versions of a dataset."),
    "lineage": ("composer_hub.cli.versions:lineage", "Show what a version was made from."),
    "doctor": ("composer_hub.cli.doctor:doctor", "Check token, endpoint, extras and disk."),
}


class LazyGroup(click.Group):
    """A group with the names and short help of its commands; it imports a command when it is called."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, attribute = self.lazy[cmd_name][0].split(":")
        return uniform(getattr(importlib.import_module(module), attribute))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # click would suggest only commands that are imported
            raise click.NoSuchCommand(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lazy[name][1]) for name in self.lazy])


@click.group(
    cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="composer-hub")
def root() -> None:
    """Turn agent session logs into a better agent, with the Hugging Face Hub as the only store."""
    address = os.environ.get("HF_ENDPOINT", "")
    if address and not _ADDRESS.fullmatch(address):  # importing huggingface_hub would fail
        raise exits.UsageError(f"HF_ENDPOINT is {address!r}, which is not an address. Correct it or unset it.")


format_option = click.option(
    "--format",
    "out",
    type=click.Choice(FORMATS),
    default="auto",
    callback=lambda ctx, param, value: _output(value),
    help="Format of the results on stdout.",
)
"""Give a command `--format` and pass it an `Output` as `out`."""


def _output(format: str) -> Output:
    out = Output(format)
    if out.mode != "human" or not sys.stderr.isatty():
        # The progress bars of the client libraries are only for terminals.
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    return out


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with a code of `composer_hub.exits`, or of the signal that ended it."""
    with signals.heeded():
        _run(argv)


def _run(argv: list[str] | None) -> None:
    try:
        root.main(args=argv, prog_name="composer-hub", standalone_mode=False)
    except (exits.ComposerError, LocalHubError) as error:
        _say(f"composer-hub: {error}\n")
        sys.exit(error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        # click writes the words of the command line as they are, and a shell may have filled in a file name.
        with io.StringIO() as text:
            error.show(text)
            _say(text.getvalue())
        sys.exit(exits.USAGE if isinstance(error, click.UsageError) else exits.FAILURE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("composer-hub: interrupted.", err=True)
        sys.exit(exits.INTERRUPTED)
    except BrokenPipeError:
        # The reader (head) has closed the pipe, which would also fail Python's flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(exits.DONE)
    except OSError as error:
        from composer_hub.cli.failures import sentence_of

        _say(f"composer-hub: {sentence_of(error)}\n")
        sys.exit(exits.FAILURE)
    except Exception as error:
        if os.environ.get("HF_DEBUG"):
            raise
        from composer_hub.cli.failures import unexpected

        _say(f"composer-hub: {unexpected(error)}\n")
        sys.exit(exits.FAILURE)


def _say(text: str) -> None:
    click.echo(visible(text), err=True, nl=False)
