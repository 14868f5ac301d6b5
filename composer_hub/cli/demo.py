"""`composer-hub demo`: the whole line on the embedded Hub, on three bundled sessions, without an account."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click

from composer_hub import exits

if TYPE_CHECKING:
    from composer_hub.local_hub.server import ServerProcess

TRACES, PAIRS, MODEL, ROLLOUTS = "me/demo-traces", "me/demo-pairs", "me/demo-model", "me/demo-rollouts"
CHECKPOINTS = "me/demo-checkpoints"
_WIDTH = 80
QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
SNIPPET = f"""
from datasets import load_dataset

pairs = load_dataset("{PAIRS}", revision="v1.0.0")
for split, rows in pairs.items():
    print(f"{{split}}: {{rows.num_rows}} pairs, {{len(rows.column_names)}} columns: prompt, chosen, rejected ...")
pair = next(pair for split in pairs.values() for pair in split)
for side in ("rejected", "chosen"):
    call = pair[side][0]["tool_calls"][0]["function"]
    print(f"{{side + ':':<10}}", call["name"], call["arguments"])
"""
TRAINED = f"""
import textwrap

from huggingface_hub import HfApi, ModelCard
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("{MODEL}")
print(type(model).__name__, f"{{model.num_parameters():,}} parameters from {MODEL}")
print(textwrap.fill("Its card: " + ModelCard.load("{MODEL}").text.strip().splitlines()[2], 80))
print("Checkpoints:", *(tag.name for tag in HfApi().list_repo_refs("{CHECKPOINTS}").tags))
"""
# All three channels. The tiny world has a vocabulary of its own, so the prompts of real sessions become many tokens.
TRAINING = {
    "model_name_or_path": "small", "environment": "desk", "num_tasks": 16, "max_steps": 12,
    "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 64,
    "max_tool_calling_iterations": 2, "learning_rate": 3e-4, "alpha_sdpo": 0.5, "beta_replay": 0.1,
    "replay_nll_weight": 1.0, "replay_loss": "ipo", "replay_strength": 1.0, "preflight": True,
    "pairs": f"{PAIRS}@v1.0.0", "train_split": "all", "pair_batch_size": 1, "max_pair_tokens": 1024,
    "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "logging_steps": 1, "save_steps": 6,
    "report_to": "none", "disable_tqdm": True, "repo": MODEL, "rollouts_repo": ROLLOUTS,
    "checkpoints_repo": CHECKPOINTS, "push_every": 1, "license": "apache-2.0",
}  # fmt: skip
# A model this small is slowed down by threads; the rest is what its libraries say on each start.
CALM = {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "PYTHONWARNINGS": "ignore::FutureWarning"}


@click.command(short_help="Run every stage on the embedded Hub.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the Hub's store in this folder.")
@click.option("--open", "open_space", is_flag=True, help="Open the Space on the result, until interrupted.")
def demo(keep: Path | None, open_space: bool) -> None:
    """Run the whole line on the embedded Hub: sessions, traces, replay, pairs, loaded back."""
    from composer_hub.local_hub.server import start_server

    with _folder(keep) as folder, start_server(folder / "hub") as server:
        line = Line(folder, server)
        click.echo(f"An embedded Hub serves {server.endpoint}. Everything below is an ordinary command.")
        line.traces()
        line.replay()
        line.load()
        trained = line.train()
        rest = ", a trained model" if trained else ""
        click.echo(f"\nThe line is whole: sessions, traces, votes, pairs, loaded back by tag{rest}.")
        click.echo("With your own sessions: composer-hub ingest ~/.claude/projects --repo me/traces --dry-run")
        words = ["space", "open", f"{PAIRS}@v1.0.0", *(["--with", f"{ROLLOUTS}@main"] if trained else [])]
        if open_space:
            line.open(words)
        elif keep:
            home = f"COMPOSER_HUB_HOME={shlex.quote(str(server.root))}"
            click.echo(f"Look around: {home} composer-hub run -- hf repos list")
            click.echo(f"See the pairs in the Space:\n  {home} \\\n    composer-hub {shlex.join(words)}")
        else:
            click.echo("Nothing of it is kept: `composer-hub demo --open` opens the Space on it at the end,")
            click.echo("`composer-hub demo --keep FOLDER` keeps it to look around.")


@dataclass
class Line:
    """The demo's steps; each is a command in a process of its own, as a user would run it."""

    folder: Path
    server: ServerProcess

    @property
    def env(self) -> dict[str, str]:
        """Where the commands of the demo find its Hub and keep what they remember."""
        mine = {"COMPOSER_HUB_HOME": str(self.server.root), "COMPOSER_HUB_STATE": str(self.folder / "state")}
        return self.server.env | QUIET | mine

    def traces(self) -> None:
        sessions = str(resources.files("composer_hub") / "demo_sessions")
        self._say("Read three bundled Claude Code sessions; publish redacted, hinted traces.")
        self._command("ingest", sessions, "--repo", TRACES, "--report")
        self._say("The same again: nothing changed, so nothing is published (exit code 5).")
        self._command("ingest", sessions, "--repo", TRACES, expected=exits.NOTHING_TO_DO)

    def replay(self) -> None:
        """Ask scripted teachers that know what worked later in the sessions; most are right, some err together."""
        from composer_hub.hub import embedded_hub, load_traces
        from composer_hub.replay.fake import SCRIPTED, TeacherServer, oracle_of, serving

        _, traces = load_traces(embedded_hub(self.server), f"{TRACES}@v1.0.0")
        with serving(TeacherServer(oracle=oracle_of(traces))) as url:
            teachers = ",".join(f"{url}#{policy.name}" for policy in SCRIPTED)
            common = (f"{TRACES}@v1.0.0", "--teachers", teachers, "--max-usd", "1")
            self._say("Plan a replay: what every step would cost with three teachers, under a hard cap of $1.")
            self._command("replay", "plan", *common)
            self._say("Replay: ask the teachers, cheapest first, the dear one only to break ties.")
            self._command("replay", "run", *common, "--run", str(self.folder / "replay"))
        self._say("Turn their agreement against the student into preference pairs; publish them.")
        self._command("pairs", "build", f"{TRACES}@v1.0.0", "--run", str(self.folder / "replay"), "--repo", PAIRS)

    def load(self) -> None:
        self._say("Load the pairs with stock datasets, by tag.")
        self._run([sys.executable, "-c", SNIPPET])

    def train(self) -> bool:
        """Train a tiny model on the pairs and in the tiny world, publish it, load it back; needs the extra [train]."""
        if any(importlib.util.find_spec(name) is None for name in ("torch", "trl", "peft")):
            self._say('Training is left out: its libraries are not installed (pip install "composer-hub[train]").')
            return False
        self._say(
            "Train a tiny model on a CPU on three channels: the environment's reward,\n"
            "   hints at turns that went wrong, and the pairs. (The first time also makes the\n"
            "   model, in about 15 s.) A table of what the hints do, then the steps."
        )
        words = [word for name, value in TRAINING.items() for word in (f"--{name}", str(value))]
        words += ["--output_dir", str(self.folder / "run")]
        click.echo(shown("python", "-m", "composer_hub.train", *words))
        self._run([sys.executable, "-m", "composer_hub.train", *words], env=CALM)
        self._say("Load the model back with stock transformers, and walk from it to the sessions.")
        self._run([sys.executable, "-c", TRAINED], env=CALM)
        self._command("lineage", MODEL)
        return True

    def open(self, words: Sequence[str]) -> None:
        """Serve the Space on the demo's datasets, until interrupted."""
        self._say("Open the Space on these pairs: every vote and every hint, and verdicts by keyboard.")
        with suppress(KeyboardInterrupt):
            self._command(*words)

    def _say(self, text: str) -> None:
        click.echo(f"\n── {text}")

    def _command(self, *words: str, expected: int = exits.DONE) -> None:
        click.echo(shown("composer-hub", *words))
        self._run([sys.executable, "-m", "composer_hub", *words], expected)

    def _run(self, command: list[str], expected: int = exits.DONE, env: Mapping[str, str] | None = None) -> None:
        code = subprocess.run(command, env=self.env | dict(env or {})).returncode
        if code != expected:
            raise exits.ComposerError(f"The demo stopped: that command left with {code} instead of {expected}.")


def shown(*words: str) -> str:
    """Return a command as one types it, an option a line where it is long."""
    whole = f"$ {shlex.join(words)}"
    if len(whole) <= _WIDTH:
        return whole
    lines: list[str] = []
    line = "$"
    for unit in _units(words):
        if len(line) + len(unit) + 3 > _WIDTH:
            lines, line = [*lines, f"{line} \\"], "   "
        line += f" {unit}"
    return "\n".join([*lines, line])


def _units(words: Sequence[str]) -> Iterator[str]:
    """Yield words, an option with its value."""
    unit: list[str] = []
    for word in words:
        if unit and (word.startswith("--") or not unit[0].startswith("--")):
            yield shlex.join(unit)
            unit = []
        unit.append(word)
    yield shlex.join(unit)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        if keep.exists() and any(keep.iterdir()):
            raise exits.UsageError(f"{keep} is not empty: a demo begins with nothing. Name a new folder for --keep.")
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="composer-demo-") as scratch:
        yield Path(scratch)
