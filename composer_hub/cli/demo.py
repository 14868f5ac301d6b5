"""`composer-hub demo`: the whole line on the embedded Hub, from three bundled sessions, without an account."""

from __future__ import annotations

import re
import shlex
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click

from composer_hub import exits, extras
from composer_hub.local_hub import children

if TYPE_CHECKING:
    from composer_hub.local_hub.server import ServerProcess

TRACES, PAIRS, MODEL, ROLLOUTS = "me/demo-traces", "me/demo-pairs", "me/demo-model", "me/demo-rollouts"
FILES = resources.files("composer_hub") / "demo/files"
_BARE = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
# Threads slow down a model this small; the others silence messages that its libraries print at each start.
_CALM = {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "PYTHONWARNINGS": "ignore::FutureWarning"}


@click.command(short_help="Run every stage on the embedded Hub.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Folder to keep the Hub's store in.")
@click.option("--open", "open_space", is_flag=True, help="Open the Space on the result, until interrupted.")
def demo(keep: Path | None, open_space: bool) -> None:
    """Run the whole line on the embedded Hub: sessions, traces, replay, pairs, training, all loaded back."""
    from composer_hub.hub.spaces import check_needed
    from composer_hub.local_hub.server import start_server

    if open_space:
        check_needed()
    with _folder(keep) as folder, start_server(folder / "hub") as server:
        steps = DemoSteps(folder, server)
        click.echo(f"An embedded Hub serves {server.endpoint}. Everything below is an ordinary command.")
        steps.ingest()
        steps.replay()
        has_model = steps.train()
        rest = ", a trained model" if has_model else ""
        click.echo(f"\nThe line is whole: sessions, traces, votes, pairs, loaded back by tag{rest}.")
        click.echo("With your own sessions: composer-hub ingest ~/.claude/projects --repo me/traces --dry-run")
        words = ["space", "open", f"{PAIRS}@v1.0.0", "--open-labels"]
        words += ["--with", f"{ROLLOUTS}@main"] if has_model else []
        if open_space:
            steps.title("Open the Space on these pairs: every vote and every hint, and verdicts by keyboard.")
            with suppress(KeyboardInterrupt):
                steps.command(*words)
        elif keep:
            home = f"COMPOSER_HUB_HOME={shlex.quote(str(server.root))}"
            click.echo(f"Look around: {home} composer-hub run -- hf repos list")
            click.echo(f"See the pairs in the Space:\n  {home} \\\n    composer-hub {shlex.join(words)}")
        else:
            click.echo("The result is deleted now. `composer-hub demo --open` opens the Space on it first,")
            click.echo("and `composer-hub demo --keep FOLDER` keeps it.")


@dataclass(frozen=True)
class DemoSteps:
    """The steps of the demo; each command runs in its own process, as it does for a user."""

    folder: Path
    server: ServerProcess

    def ingest(self) -> None:
        sessions = str(resources.files("composer_hub") / "demo/sessions")
        self.title("Read three bundled Claude Code sessions; publish redacted, hinted traces.")
        self.command("ingest", sessions, "--repo", TRACES, "--report")
        self.title("The same again: nothing changed, so nothing is published (exit code 5).")
        self.command("ingest", sessions, "--repo", TRACES, expected=exits.NOTHING_TO_DO)

    def replay(self) -> None:
        """Ask scripted teachers, most of which know the calls that worked later in the sessions."""
        from composer_hub.hub import embedded_hub, load_traces
        from composer_hub.replay.fake import SCRIPTED, TeacherServer, oracle_of, serving

        _, traces = load_traces(embedded_hub(self.server), f"{TRACES}@v1.0.0")
        votes = str(self.folder / "replay")
        with serving(TeacherServer(oracle=oracle_of(traces))) as url:
            teachers = ",".join(f"{url}#{policy.name}" for policy in SCRIPTED)
            common = (f"{TRACES}@v1.0.0", "--teachers", teachers, "--max-usd", "1")
            self.title("Plan a replay: the cost of every step with three teachers, under a hard cap of $1.")
            self.command("replay", "plan", *common)
            self.title("Replay: ask the teachers, cheapest first, the expensive one only to break ties.")
            self.command("replay", "run", *common, "--order", "sequential", "--run", votes)
        self.title("Turn their agreement against the student into preference pairs; publish them.")
        self.command("pairs", "build", f"{TRACES}@v1.0.0", "--run", votes, "--repo", PAIRS)
        self.title("Load the pairs with stock datasets, by tag.")
        self._run([str(FILES / "load_pairs.txt")])

    def train(self) -> bool:
        """Train a tiny model, publish it and load it back; return False without the extra [train]."""
        if extras.missing("torch", "trl", "peft"):
            self.title("Training needs more libraries and is left out:")
            click.echo(f"   {extras.install('train')}")
            return False
        self.title(
            "Train a tiny model on a CPU on three channels: the environment's reward, hints at turns that went wrong, "
            "and the pairs. A table of what hints do, then steps."
        )
        config, output = str(FILES / "training.yaml"), str(self.folder / "run")
        words = ["-m", "composer_hub.train", "--config", config, "--output_dir", output]
        click.echo(shown("python", *words))
        self._run(words, env=_CALM)
        self.title("Load the model back with stock transformers, and walk from it to the sessions.")
        self._run([str(FILES / "load_model.txt")], env=_CALM)
        self.command("lineage", MODEL)
        return True

    def title(self, text: str) -> None:
        click.echo("\n" + textwrap.fill(f"── {text}", 80, subsequent_indent="   ", break_on_hyphens=False))

    def command(self, *words: str, expected: int = exits.DONE) -> None:
        click.echo(shown("composer-hub", *words))
        self._run(["-m", "composer_hub", *words], expected)

    def _run(self, words: Sequence[str], expected: int = exits.DONE, env: Mapping[str, str] | None = None) -> None:
        folders = {"COMPOSER_HUB_HOME": str(self.server.root), "COMPOSER_HUB_STATE": str(self.folder / "state")}
        program = children.start(words, env=self.server.env | _BARE | folders | dict(env or {}))
        with children.ending(program) as process:
            code = process.wait()
        if code != expected:
            raise exits.ComposerError(f"The demo stopped: that command exited with {code} instead of {expected}.")


def shown(*words: str) -> str:
    """Return a command as a user types it, on several lines if it is long."""
    # Hard spaces keep an option and its value on one line.
    line = re.sub(r"( --\S+) (?!--)", "\\1\xa0", f"$ {shlex.join(words)}")
    lines = textwrap.wrap(line, 78, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return " \\\n".join(lines).replace("\xa0", " ")


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="composer-demo-") as scratch:
            yield Path(scratch)
    elif keep.exists() and any(keep.iterdir()):
        raise exits.UsageError(f"{keep} is not empty. Name a new folder for --keep.")
    else:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
