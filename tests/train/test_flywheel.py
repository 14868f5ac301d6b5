"""The flywheel on a real embedded Hub: the rollouts of a run become pairs, and both train a model offline."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub import exits
from composer_hub.cli.main import main as command
from composer_hub.hub import Destination, embedded_hub, load, load_traces
from composer_hub.local_hub.server import start_server
from composer_hub.pairs.prompts import paired
from composer_hub.records import Pair, Trace
from composer_hub.redact import rules_digest
from composer_hub.replay.fake import SCRIPTED, Action, TeacherServer, digest_of, oracle_of, serving
from composer_hub.replay.prompts import Prompts
from composer_hub.train.run.main import main as train

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


@pytest.fixture(scope="module")
def redacted(hub: tuple[Path, Destination]) -> str:
    """The rollouts as ingest publishes them again, which may be sent to any teacher."""
    words = ["hf://datasets/me/rollouts@v1.0.0", "--repo", "me/redacted", "--to", "local", "--no-scan"]
    assert call("ingest", *words) == exits.DONE
    return "me/redacted@v1.0.0"


def wise(traces: list[Trace]) -> dict[str, Action]:
    """Return the right actions: `add` with the numbers of the task wherever the student made a call."""
    known = oracle_of(traces)
    for trace in traces:
        prompts = Prompts(trace)
        task = next(message.content for message in trace.messages if message.role == "user")
        a, b = map(int, task.split("+"))
        for step in trace.steps:
            if trace.messages[step.action].tool_calls:
                known[digest_of(paired(prompts.of(step).chat))] = [{"name": "add", "arguments": {"a": a, "b": b}}]
    return known


def test_ingest_reproduces_each_rollout_and_marks_it_as_redacted(hub: tuple[Path, Destination], redacted: str) -> None:
    _, where = hub
    source, before = load_traces(where, "me/rollouts@v1.0.0")
    version, after = load_traces(where, redacted)
    rollouts, found = ({trace.trace_id: trace for trace in traces} for traces in (before, after))
    assert found.keys() == rollouts.keys()
    for trace_id, trace in found.items():
        rollout = rollouts[trace_id]
        assert (rollout.redaction, trace.redaction) == ("", rules_digest())
        origin = {"dataset": "me/rollouts", "revision": source.revision}
        added = origin | {"file_digest": trace.provenance["file_digest"]}
        assert trace.provenance == rollout.provenance | added  # the tiny world holds nothing to take out
        same = {"provenance": rollout.provenance, "redaction": "", "counts": rollout.counts}
        assert dataclasses.replace(trace, **same) == rollout
    (parent,) = version.manifest["parents"]
    assert (parent["role"], parent["repo"], parent["revision"]) == ("source", "me/rollouts", source.revision)
    sites = [(trace, site) for trace in found.values() for step in trace.steps for site in step.error_sites]
    named = {site.call_id for _, site in sites if site.call_id}
    assert named
    for trace, site in sites:
        calls = {call.call_id: call.name for message in trace.messages for call in message.tool_calls}
        assert calls.get(site.call_id, "") == site.tool  # a call that could not be read has no id


def test_rollouts_are_replayed_into_pairs_that_a_student_is_trained_on(
    hub: tuple[Path, Destination], redacted: str, capsys: pytest.CaptureFixture[str]
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
    policies = [dataclasses.replace(policy, accuracy=1.0) for policy in SCRIPTED]
    with serving(TeacherServer(policies, oracle=wise(traces))) as url:
        teachers = ",".join(f"{url}#{policy.name}" for policy in policies)
        common = ["--from", "local", "--teachers", teachers, "--max-usd", 1, "--format", "json"]
        capsys.readouterr()
        assert call("replay", "plan", redacted, *common) == exits.DONE
        planned = json.loads(capsys.readouterr().out)
        calling = [step for trace in traces for step in trace.steps if trace.messages[step.action].tool_calls]
        assert planned["teachers"][0]["steps"] == len(calling)  # steps without a call cannot become pairs
        refused = call("replay", "run", "me/rollouts@v1.0.0", *common, "--run", root / "refused")
        errors = capsys.readouterr().err
        assert refused == exits.REFUSED, errors
        assert "never redacted" in errors
        # Without --i-own-this-endpoint, as for a teacher on another machine.
        assert call("replay", "run", redacted, *common, "--run", root / "replay") == exits.DONE
    built = [redacted, "--run", root / "replay", "--repo", "me/pairs", "--to", "local"]
    assert call("pairs", "build", *built) == exits.DONE
    version = load(where, "me/pairs@v1.0.0")
    found = list(version.records(Pair, "default"))
    # Steps with the same prompt and the same wrong call train the same thing, and are kept once.
    assert {pair.step_id for pair in found} & wrong
    assert {pair.step_id for pair in found} <= {step.step_id for step in calling}
    for pair in found:
        chosen, rejected = pair.chosen[0].tool_calls[0], pair.rejected[0].tool_calls[0]
        assert chosen.name == "add"
        assert (rejected.name, rejected.arguments) != (chosen.name, chosen.arguments)
    assert version.manifest["parents"][0]["repo"] == "me/redacted"

    out = root / "preference"
    words = (
        "--model_name_or_path me/student@main --max_steps 24 --beta_replay 1.0 --pairs me/pairs@v1.0.0"
        " --train_split all"
    )
    assert train([*COMMON, *words.split(), "--output_dir", str(out), "--repo", "me/preferred"]) == exits.DONE
    history = json.loads((out / "checkpoint-24" / "trainer_state.json").read_text())["log_history"]
    margins = [row["channel/replay/margin"] for row in history if "channel/replay/margin" in row]
    assert margins[0] == pytest.approx(0.0, abs=1e-4)  # the reference is the student itself
    assert sum(margins[-8:]) / 8 > 0.2  # a step has few pairs: one margin alone says little
    assert "| pairs | dataset | `me/pairs` | v1.0.0 |" in (out / "final" / "README.md").read_text()
    capsys.readouterr()
    assert call("lineage", "me/preferred", "--format", "json") == exits.DONE
    links = {(link["depth"], link["step"], link["type"], link["repo"]) for link in json.loads(capsys.readouterr().out)}
    assert links >= {
        (0, "this", "model", "me/preferred"),
        (1, "base model", "model", "me/student"),
        (1, "pairs", "dataset", "me/pairs"),
        (2, "traces", "dataset", "me/redacted"),
        (3, "source", "dataset", "me/rollouts"),
    }


def test_hints_are_distilled_from_rollouts_published_on_the_hub(hub: tuple[Path, Destination], redacted: str) -> None:
    root, where = hub
    words = f"--config configs/offline.yaml --model_name_or_path me/student@main --traces {redacted} --max_steps 4"
    words += f" --output_dir {root / 'offline'} --repo me/distilled"
    assert train([*words.split(), *COMMON]) == exits.DONE
    record = json.loads((root / "offline" / "composer_run.json").read_text())
    steps = record["hinted_steps"]
    # Rollouts and the student's tokenizer went through the Hub, and the tokens still equal the sampled ones.
    assert steps["sites"] == steps["as_sampled"] > 0
    assert record["pins"]["traces"].startswith("me/redacted@")
    assert where.resolve("me/distilled", "main", "model")
