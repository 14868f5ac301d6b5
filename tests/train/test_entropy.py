"""The entropy of a student at each step: its numbers, the file that replay reads, and what it is judged by."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.cli.replay import replay  # noqa: E402
from composer_hub.hub import FolderDestination, load_traces  # noqa: E402
from composer_hub.replay import read_entropy  # noqa: E402
from composer_hub.train.entropy import judged, mean_entropies, step_entropies  # noqa: E402
from composer_hub.train.trace_sites import Student, TraceEncoder  # noqa: E402


def test_the_entropy_is_that_of_the_models_own_logits(world: Any) -> None:
    model = world[0].eval()
    rows = [((5, 6, 7), (8, 9)), ((5, 6), (7, 8, 9, 10))]
    for (prefix, action), found in zip(rows, mean_entropies(model, rows), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([[*prefix, *action]])).logits[0, len(prefix) - 1 : -1]
        wanted = torch.distributions.Categorical(logits=logits.float()).entropy().mean().item()
        assert found == pytest.approx(wanted, rel=1e-4)


def test_a_perfect_order_finds_all_and_equal_values_say_nothing() -> None:
    entropy = {f"s{number}": float(number) for number in range(10)}
    best = judged(entropy, {"s9", "s8", "s7"}, "best")
    assert (best.auc, best.found_by_top_30) == (1.0, 1.0)
    worst = judged(entropy, {"s0", "s1"}, "worst")
    assert (worst.auc, worst.found_by_top_30) == (0.0, 0.0)
    assert judged(dict.fromkeys(entropy, 1.0), {"s3"}, "flat").auc == 0.5
    assert judged(entropy, set(), "none").auc is None


def test_the_command_writes_what_replay_reads_and_judges_it(shelf: Path, world: Any, tmp_path: Path) -> None:
    where = FolderDestination(shelf / "hub")
    file = tmp_path / "entropy.jsonl"
    words = ["entropy", "me/rollouts@main", "--model", world[0].name_or_path, "--from", str(where.root)]
    words += ["--out", str(file), "--device", "cpu", "--format", "json"]
    done = CliRunner().invoke(replay, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    values = read_entropy(file)
    _, traces = load_traces(where, "me/rollouts@main")
    steps = {step.step_id: step for trace in traces for step in trace.steps}
    assert values
    assert values.keys() <= steps.keys()
    assert all(math.isfinite(value) and value >= 0 for value in values.values())
    (line,) = json.loads(done.stdout)
    erred = [step for step in values if any(site.blame == "model" for site in steps[step].error_sites)]
    assert line["num_steps"] == len(erred)


def test_steps_that_do_not_fit_are_counted_and_batches_change_nothing(shelf: Path, world: Any) -> None:
    model, tokenizer = world
    student = Student("tiny", "qwen")

    def found(max_tokens: int, batch_size: int) -> tuple[list[float], Counter[str]]:
        encoder = TraceEncoder.of(tokenizer, student, max_tokens=max_tokens, other_families="take")
        left_out: Counter[str] = Counter()
        _, traces = load_traces(FolderDestination(shelf / "hub"), "me/rollouts@main")
        return [
            one.entropy for one in step_entropies(model, encoder, traces, left_out, batch_size=batch_size)
        ], left_out

    one, many = found(4096, 1)[0], found(4096, 5)[0]
    assert one == pytest.approx(many, rel=1e-4)
    short, left_out = found(8, 4)
    assert short == []
    assert left_out["longer_than_max_tokens"] > 0
