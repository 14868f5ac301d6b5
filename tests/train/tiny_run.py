"""A whole run in the tiny world, and the words that start it: what the tests of runs have in common."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from composer_hub.cli.pairs import pairs
from composer_hub.hub import Card, FolderDestination, publish
from composer_hub.pairs.tables import pairs_table
from tests.train.test_tokens import desk_pair

# Two updates a generation batch and a checkpoint between them: the hardest place to resume from.
TINY = shlex.split(
    "--environment desk --num_tasks 8 --max_steps 4 --per_device_train_batch_size 4 --num_generations 4 "
    "--steps_per_generation 4 --max_completion_length 40 --max_tool_calling_iterations 1 --learning_rate 1e-3 "
    "--alpha_sdpo 0.5 --beta_replay 0.5 --pairs me/pairs@main "
    "--train_split all --use_cpu true --bf16 false --gradient_checkpointing false --logging_steps 1 --save_steps 2 "
    "--report_to none --disable_tqdm true --seed 3 --repo me/model --rollouts_repo me/rollouts "
    "--license apache-2.0"
)


def fill_shelf(world: Any, root: Path) -> None:
    """Make a folder destination with pairs, their reference log-probs, and one finished run in `runs/whole`."""
    from composer_hub.train.run.main import run
    from composer_hub.train.run.options import parse_options

    where = FolderDestination(root / "hub")
    card = Card("pairs", "pairs", license="mit", holes={"policy": "", "report": ""})
    rows = [desk_pair(a, b) for a in range(3) for b in range(2)]
    publish(where, "me/pairs", [pairs_table(rows, {pair.trace_id: "train" for pair in rows})], card)
    words = ["precompute-ref", "me/pairs@v1.0.0", "--model", world[0].name_or_path, "--to", str(root / "hub")]
    done = CliRunner().invoke(pairs, [*words, "--repo", "me/pairs", "--device", "cpu"], catch_exceptions=False)
    assert done.exit_code == 0
    run(parse_options(arguments(world, root, "whole")))


def arguments(world: Any, root: Path, name: str, *more: str) -> list[str]:
    place = ["--model_name_or_path", world[0].name_or_path, "--to", str(root / "hub")]
    return [*TINY, *place, "--output_dir", str(root / "runs" / name), *more]


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")
