"""`composer-hub demo`: the whole line on the embedded Hub, on three bundled sessions, without an account."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import click

from composer_hub import exits
from composer_hub.cli import root

TRACES, PAIRS = "me/demo-traces", "me/demo-pairs"


@click.command()
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the Hub's store in this folder.")
def demo(keep: Path | None) -> None:
    """Run the whole line on the embedded Hub: sessions, traces, replay, pairs, loaded back."""
    with _store(keep) as store, _hub(store) as server:
        click.echo(f"An embedded Hub runs at {server.endpoint}; everything below is an ordinary command.\n")
        sessions = str(resources.files("composer_hub") / "demo_sessions")
        _say("1. Read three bundled Claude Code sessions; publish redacted, hinted traces.")
        _run("ingest", sessions, "--repo", TRACES)
        _say("2. The same again: nothing changed, so there is nothing to publish.")
        _run("ingest", sessions, "--repo", TRACES, expected=exits.NOTHING_TO_DO)
        _replay(store)
        _say("5. Load the pairs as anyone would, by tag.")
        _load(server)
        _say("6. Where do the pairs come from?")
        _run("lineage", f"{PAIRS}@v1.0.0")
    click.echo("Done: the line is whole." + (f" The Hub's store is in {keep}." if keep else ""))


def _replay(store: Path) -> None:
    from composer_hub.replay.embedded import demo_teachers, serving

    with serving(demo_teachers()) as url:
        names = ",".join(f"{url}#{name}" for name in ("small", "medium", "large"))
        common = (f"{TRACES}@v1.0.0", "--teachers", names, "--max-usd", "1")
        _say("3. Replay every step against three scripted teachers, under a hard cap of $1.")
        _run("replay", "plan", *common)
        _run("replay", "run", *common, "--run", str(store / "replay"))
    _say("4. Turn agreement against the student into preference pairs; publish them.")
    _run("pairs", "build", f"{TRACES}@v1.0.0", "--run", str(store / "replay"), "--repo", PAIRS)


def _load(server: Any) -> None:
    """Load in a process of its own: clients read HF_ENDPOINT when they are imported."""
    import subprocess
    import sys

    code = (
        "from datasets import load_dataset\n"
        f"pairs = load_dataset('{PAIRS}', revision='v1.0.0')\n"
        "print(pairs)\n"
        "row = next(iter(next(iter(pairs.values()))))\n"
        "call = lambda side: side[0]['tool_calls'][0]['function']\n"
        "print('rejected:', call(row['rejected']))\nprint('chosen:  ', call(row['chosen']))"
    )
    env = server.env | {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    click.echo()
