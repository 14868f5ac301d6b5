"""The flywheel on a real embedded Hub: a run's rollouts are replayed into pairs, and both train without a world."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub import exits
from composer_hub.cli import main as command
from composer_hub.hub.destinations import Destination, embedded_hub
from composer_hub.hub.load import load_traces, open_version
from composer_hub.hub.local.server import start_server
from composer_hub.records import Pair, Trace
from composer_hub.replay.embedded import Teachers, serving
from composer_hub.replay.prompts import Prompts, paired
from composer_hub.replay.scripted import DEFAULT_POLICIES, Action, digest_of, oracle_of
from composer_hub.train.run import main as train

ROOT = Path(__file__).parents[2]
COMMON = shlex.split(
    "--to local --use_cpu true --bf16 false --gradient_checkpointing false --report_to none --disable_tqdm true "
    "--logging_steps 1 --learning_rate 1e-3 --seed 3 --license apache-2.0"
)
LIVE = shlex.split(
    "--environment desk --num_tasks 8 --max_steps 2 --per_device_train_batch_size 8 --num_generations 4 "
    "--max_completion_length 64 --max_tool_calling_iterations 2 --alpha_sdpo 0.5 --rollouts_repo me/rollouts "
    "--repo me/student"
)


@pytest.fixture(scope="module")
def hub(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Destination]]:
    """An embedded Hub that holds a student and the rollouts it was trained on."""
    root = tmp_path_factory.mktemp("flywheel")
    with start_server(root / "hub") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMPOSER_HUB_HOME", str(server.root))
        patch.setenv("COMPOSER_HUB_STATE", str(root / "state"))
        patch.delenv("HF_HUB_OFFLINE", raising=False)
        where = ["--model_name_or_path", world[0].name_or_path, "--output_dir", str(root / "live")]
        assert train([*COMMON, *LIVE, *where]) == exits.DONE
        yield root, embedded_hub(server)


def call(*words: Any) -> int:
    """Run a command in this process and return its exit code."""
    try:
        command([str(word) for word in words])
    except SystemExit as error:
        return int(error.code or 0)
    return exits.DONE


def wise(traces: list[Trace]) -> dict[str, Action]:
    """Return what should have been done: where the student called a tool that does not exist, the one that does."""
    known = oracle_of(traces)
    for trace in traces:
        prompts = Prompts(trace)
        for step in trace.steps:
            if any(site.kind == "tool_not_found" for site in step.error_sites):
                (call,) = trace.messages[step.action].tool_calls
                known[digest_of(paired(prompts.of(step).chat))] = {"name": "add", "arguments": call.arguments}
    return known


def test_rollouts_are_replayed_into_pairs_that_a_student_is_trained_on(
    hub: tuple[Path, Destination], capsys: pytest.CaptureFixture[str]
) -> None:
    root, where = hub
    traces = list(load_traces(where, "me/rollouts@v1.0.0")[1])
    wrong = {
        step.step_id
        for trace in traces
        for step in trace.steps
        if any(site.kind == "tool_not_found" for site in step.error_sites)
    }
    assert {step.family for trace in traces for step in trace.steps} == {"qwen"}  # so that teachers of it do not vote
    policies = [dataclasses.replace(policy, accuracy=1.0) for policy in DEFAULT_POLICIES]
    with serving(Teachers(policies, oracle=wise(traces))) as url:
        teachers = ",".join(f"{url}#{policy.name}" for policy in policies)
        common = ["me/rollouts@v1.0.0", "--to", "local", "--teachers", teachers, "--max-usd", 1, "--format", "json"]
        assert call("replay", "plan", *common) == exits.DONE
        planned = json.loads(capsys.readouterr().out)
        calling = [step for trace in traces for step in trace.steps if trace.messages[step.action].tool_calls]
        assert planned[0]["steps"] == len(calling)  # where the student only talked there is no pair to be had
        refused = call("replay", "run", *common, "--run", root / "refused")
        assert (refused, "never redacted" in capsys.readouterr().err) == (exits.REFUSED, True)
        assert call("replay", "run", *common, "--run", root / "replay", "--i-own-this-endpoint") == exits.DONE
    built = ["me/rollouts@v1.0.0", "--run", root / "replay", "--repo", "me/pairs", "--to", "local"]
    assert call("pairs", "build", *built) == exits.DONE
    version = open_version(where, "me/pairs@v1.0.0")
    found = list(version.records(Pair, "default"))
    # Steps with the same prompt and the same wrong call train the same thing, and are kept once.
    assert found
    assert {pair.step_id for pair in found} <= wrong
    assert {(pair.rejected[0].tool_calls[0].name, pair.chosen[0].tool_calls[0].name) for pair in found} == {
        ("plus", "add")
    }
    assert version.manifest["parents"][0]["repo"] == "me/rollouts"

    out = root / "preference"
    words = (
        "--model_name_or_path me/student@main --max_steps 3 --beta_replay 1.0 --pairs me/pairs@v1.0.0 --pairs_split all"
    )
    assert train([*COMMON, *words.split(), "--output_dir", str(out), "--repo", "me/preferred"]) == exits.DONE
    history = json.loads((out / "checkpoint-3" / "trainer_state.json").read_text())["log_history"]
    margins = [row["channel/replay/margin"] for row in history if "channel/replay/margin" in row]
    assert margins[0] == pytest.approx(0.0, abs=1e-4)  # the reference is the student itself
    assert margins[-1] > 0.1
    assert "| pairs | dataset | `me/pairs` | v1.0.0 |" in (out / "final" / "README.md").read_text()
    capsys.readouterr()
    assert call("lineage", "me/preferred", "--format", "json") == exits.DONE
    links = {(link["depth"], link["step"], link["type"], link["repo"]) for link in json.loads(capsys.readouterr().out)}
    assert links >= {
        (0, "this", "model", "me/preferred"),
        (1, "base model", "model", "me/student"),
        (1, "pairs", "dataset", "me/pairs"),
        (2, "traces", "dataset", "me/rollouts"),
    }


def test_the_program_distils_hints_from_rollouts_published_on_the_hub(hub: tuple[Path, Destination]) -> None:
    root, where = hub
    words = (
        "--config configs/offline.yaml --model_name_or_path me/student@main --traces me/rollouts@v1.0.0 --max_steps 4"
    )
    done = subprocess.run(
        [sys.executable, "-m", "composer_hub.train", *words.split(), *COMMON, "--output_dir", str(root / "offline"),
         "--repo", "me/distilled"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == exits.DONE, done.stderr[-3000:]
    record = json.loads((root / "offline" / "composer_run.json").read_text())
    steps = record["hinted_steps"]
    # The student's tokenizer went through the Hub and is still the one that the rollouts were sampled with.
    assert steps["sites"] == steps["as_sampled"] > 0
    assert record["pins"]["traces"].startswith("me/rollouts@")
    assert where.resolve("me/distilled", "main", "model")
