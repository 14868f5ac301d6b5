"""Workers that meet only in a repository: who counts, who is refused, and that all have the same bits."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from huggingface_hub import HfApi

pytest.importorskip("safetensors")

from composer_hub.cli.federation import federation as federation_group
from composer_hub.hub import Add, HubDestination
from composer_hub.local_hub.server import ServerProcess
from composer_hub.train.apart.card import card_files, federation_card
from composer_hub.train.apart.deltas import Values, outer_step, to_bytes, values_digest
from composer_hub.train.apart.federation import Federation, FederationError, State
from composer_hub.train.apart.status import NoFederation, read_status
from tests.train.federation_worker import START, rules_of, trained

ROOT = Path(__file__).parents[2]
NEVER = 1e9


class Meeting:
    """A repository, and workers that join it."""

    def __init__(
        self, server: ServerProcess, repo: str, cache: Path, num_workers: int = 2, num_rounds: int = 2
    ) -> None:
        api = HfApi(endpoint=server.endpoint, token="hf_test_me")
        self.where, self.repo = HubDestination("local", api, cache=cache), repo
        self.rules, self.notes = rules_of(num_workers, num_rounds), []

    def worker(self, name: str, *, run: str = "", patience_s: float = NEVER, **options: Any) -> Federation:
        return Federation(
            self.where, self.repo, name, run or f"run-{name}", patience_s=patience_s, note=self.notes.append,
            sleep=lambda seconds: time.sleep(min(seconds, 0.02)), **options,
        )  # fmt: skip

    def joined(self, *names: str, **options: Any) -> list[tuple[Federation, State]]:
        workers = [self.worker(name, **options) for name in names]
        return [(worker, worker.join(self.rules, START)) for worker in workers]

    def put(self, path: str, content: bytes) -> None:
        """Write a file as somebody with a token may."""
        head = self.where.resolve(self.repo, "main", "model")
        change = [Add.of(path, content)]
        self.where.commit(self.repo, change, title="by hand", body="", parent=head, repo_type="model")

    def closed(self, number: int) -> dict[str, Any]:
        return dict(read_status(self.where, self.repo).closed[number])


@pytest.fixture
def meeting(hub_server: ServerProcess, hub_repo: Callable[[str], str], tmp_path: Path) -> Meeting:
    return Meeting(hub_server, hub_repo("federation"), tmp_path / "cache")


def delivered(worker: Federation, state: State) -> None:
    assert worker.deliver(state, trained(state.values, worker.worker, state.round), {"steps": 4, "score": 0.5})


# ---------------------------------------------------------------------------------------------------- the outer step


def test_the_outer_step_is_that_of_nesterov_on_the_mean() -> None:
    import torch

    value = torch.nn.Parameter(torch.from_numpy(START["layer.0"].copy()))
    other = torch.optim.SGD([value], lr=0.7, momentum=0.9, nesterov=True)
    ours, velocity = {"layer.0": START["layer.0"]}, {}
    for seed in range(3):
        deltas = [{"layer.0": np.random.default_rng([seed, n]).normal(size=(8, 4)).astype(np.float32)} for n in (1, 2)]
        value.grad = torch.from_numpy(sum(delta["layer.0"] for delta in deltas) / 2)
        other.step()
        ours = outer_step(ours, velocity, deltas, lr=0.7, momentum=0.9)
    np.testing.assert_allclose(ours["layer.0"], value.detach().numpy(), rtol=1e-5)


def test_a_round_without_a_delta_that_counts_changes_nothing() -> None:
    velocity: Values = {}
    assert values_digest(outer_step(START, velocity, [], lr=0.7, momentum=0.9)) == values_digest(START)
    assert not velocity


# ------------------------------------------------------------------------------------------------------------ rounds


def test_all_workers_have_the_same_bits_after_each_round_and_the_repository_has_them_too(meeting: Meeting) -> None:
    (ada, a), (bob, b) = meeting.joined("ada", "bob")
    assert a.digest == b.digest == values_digest(START)
    for number in range(2):
        delivered(ada, a)
        delivered(bob, b)
        a, b = bob_first(bob, b, ada, a)
        assert a.digest == b.digest
        assert a.round == number + 1
    fresh = meeting.worker("eve")
    assert fresh.join(meeting.rules, START).digest == a.digest
    head = meeting.where.resolve(meeting.repo, "main", "model")
    assert values_digest(fresh._values(head, "adapter_model.safetensors")) == a.digest


def bob_first(bob: Federation, b: State, ada: Federation, a: State) -> tuple[State, State]:
    after = bob.wait(b)
    other = ada.wait(a)
    assert after is not None
    assert other is not None
    return other, after


def test_exactly_one_of_those_who_close_a_round_at_once_wins(meeting: Meeting) -> None:
    workers = meeting.joined("ada", "bob")
    for worker, state in workers:
        delivered(worker, state)
    ends: list[State] = []
    threads = [threading.Thread(target=lambda one=one: ends.append(one[0].wait(one[1]))) for one in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert len({end.digest for end in ends}) == 1
    titles = [commit.title for commit in meeting.where.api.list_repo_commits(meeting.repo)]
    assert sum("closed" in title for title in titles) == 1


def test_a_late_worker_is_left_out_and_may_come_back(meeting: Meeting) -> None:
    (ada, a), (bob, b) = meeting.joined("ada", "bob", patience_s=0.0)
    delivered(ada, a)
    a = ada.wait(a)
    assert not bob.deliver(b, trained(b.values, "bob", 0))
    assert "was closed before" in meeting.notes[-1]
    assert meeting.closed(0)["missing"] == ["bob"]
    b = bob.state()
    assert b.digest == a.digest
    delivered(bob, b)
    assert [one["worker"] for one in (bob.wait(b), meeting.closed(1)["deltas"])[1]] == ["bob"]


def bad(kind: str, start: Values) -> bytes:
    """Return the file of a delta that must not count."""
    values = {name: np.full_like(value, 0.1) for name, value in start.items()}
    facts = {"start": values_digest(start)}
    if kind == "NaN":
        values["layer.1"][0, 0] = np.nan
    if kind == "shape":
        values["layer.1"] = np.zeros((4, 8), np.float32)
    if kind == "names":
        values["layer.9"] = values.pop("layer.1")
    if kind == "norm":
        values = {name: value * 1e4 for name, value in values.items()}
    if kind == "start":
        facts["start"] = "0" * 64
    if kind == "size":
        values["layer.1"] = np.zeros((400, 400), np.float32)
    return b"no tensors" if kind == "file" else to_bytes(values, facts)


REASONS = {
    "NaN": "NaN or infinity",
    "shape": "other names or shapes",
    "names": "other names or shapes",
    "norm": "its norm is",
    "start": "it starts from 000000000000",
    "size": "bytes",
    "file": "no safetensors",
}


@pytest.mark.parametrize("kind", REASONS)
def test_a_delta_that_is_none_is_refused_and_named_and_the_others_count(meeting: Meeting, kind: str) -> None:
    (ada, a), (bob, b) = meeting.joined("ada", "bob")
    delivered(ada, a)
    meeting.put("rounds/0/bob.safetensors", bad(kind, b.values))
    after = ada.wait(a)
    closed = meeting.closed(0)
    assert [one["worker"] for one in closed["deltas"]] == ["ada"]
    assert REASONS[kind] in closed["refused"]["bob"]
    assert after.digest == bob.wait(b).digest
    assert "this worker's delta was refused" in meeting.notes[-1]


def test_a_file_that_is_changed_after_its_round_is_noticed(meeting: Meeting) -> None:
    (ada, a), (bob, b) = meeting.joined("ada", "bob")
    delivered(ada, a)
    delivered(bob, b)
    ada.wait(a)
    other = {name: value * np.float32(1.1) for name, value in START.items()}
    meeting.put("rounds/0/bob.safetensors", to_bytes(other, {"start": values_digest(START)}))
    with pytest.raises(FederationError, match="is not the file that was counted"):
        meeting.worker("eve").join(meeting.rules, START)


@pytest.mark.parametrize("content", [b"not JSON", b"[]", b'{"round": 0}', b'{"refused": {}, "deltas": [1], "end": ""}'])
def test_a_closing_that_somebody_wrote_by_hand_is_one_sentence(meeting: Meeting, content: bytes) -> None:
    ((ada, _),) = meeting.joined("ada")
    meeting.put("rounds/0/closed.json", content)
    with pytest.raises(FederationError, match=r"rounds/0/closed\.json"):
        ada.state()
    with pytest.raises(NoFederation, match="Restore it from the history"):
        read_status(meeting.where, meeting.repo)


# ----------------------------------------------------------------------------------------------------------- joining


def test_a_second_process_with_the_same_name_is_refused(meeting: Meeting) -> None:
    meeting.joined("ada")
    with pytest.raises(FederationError, match=r"already has a worker ada, of run run-ada\. Name another"):
        meeting.worker("ada", run="another").join(meeting.rules, START)


def test_a_copy_of_a_run_takes_its_name_and_the_older_process_ends(meeting: Meeting) -> None:
    ((ada, a),) = meeting.joined("ada")
    ((copy, state),) = meeting.joined("ada")
    with pytest.raises(FederationError, match="Another process has taken the name ada"):
        ada.deliver(a, trained(a.values, "ada", 0))
    delivered(copy, state)


def test_other_rules_other_shapes_and_other_repositories_are_refused(meeting: Meeting) -> None:
    meeting.joined("ada")
    with pytest.raises(FederationError, match="num_rounds is 2, here 9"):
        meeting.worker("bob").join(rules_of(2, 9), START)
    with pytest.raises(FederationError, match="other shapes"):
        meeting.worker("bob").join(meeting.rules, {"layer.0": START["layer.0"]})
    with pytest.raises(FederationError, match="not a worker's name"):
        meeting.worker("../ada")
    meeting.repo += "-model"
    meeting.where.prepare(meeting.repo, private=True, repo_type="model")
    meeting.put("model.safetensors", b"weights")
    with pytest.raises(FederationError, match=r"is no federation: it holds model\.safetensors"):
        meeting.worker("bob").join(meeting.rules, START)


def test_a_waiting_worker_ends_if_it_is_asked_to(meeting: Meeting) -> None:
    ((ada, a),) = meeting.joined("ada")
    delivered(ada, a)
    assert ada.wait(a, lambda: True) is None
    assert ada.has_delivered(a)


# ------------------------------------------------------------------------------------------------------------ killed


@pytest.mark.slow
def test_workers_that_are_killed_at_random_end_with_the_same_bits(
    hub_server: ServerProcess, hub_repo: Callable[[str], str], client_env: dict[str, str], tmp_path: Path
) -> None:
    digests, num_kills = killed(hub_server.env | client_env, hub_repo("killed"), tmp_path, num_kills=3, num_rounds=4)
    assert num_kills  # a worker on a busy machine may be done before its next one
    assert len(digests) == 3
    assert len(set(digests)) == 1


def killed(
    env: dict[str, str], repo: str, folder: Path, *, num_kills: int, num_rounds: int, seed: int = 5
) -> tuple[list[str], int]:
    """Run three workers, kill each so many times at random and start it again; return their digests and the kills."""
    draw, names = random.Random(seed), ("ada", "bob", "eve")
    env = os.environ | env | {"STEP_S": "0.5", "PYTHONPATH": str(ROOT), "HF_HOME": str(folder), "OMP_NUM_THREADS": "1"}

    def start(name: str) -> subprocess.Popen[str]:
        words = [str(ROOT / "tests/train/federation_worker.py"), repo, name, f"run-{name}", "3", str(num_rounds)]
        return subprocess.Popen([sys.executable, *words], env=env, stdout=subprocess.PIPE, text=True)

    running = {name: start(name) for name in names}
    kills = dict.fromkeys(names, 0)
    while min(kills.values()) < num_kills and any(process.poll() is None for process in running.values()):
        name = draw.choice([name for name in names if kills[name] < num_kills])
        time.sleep(draw.uniform(0.5, 3.0))
        if running[name].poll() is None:
            running[name].kill()
            running[name].wait()
            kills[name] += 1
            running[name] = start(name)
    ends = [running[name].communicate(timeout=600)[0].strip() for name in names]
    assert all(process.returncode == 0 for process in running.values())
    return ends, sum(kills.values())


# ------------------------------------------------------------------------------------------------------------ status


def test_status_and_card_show_rounds_workers_sizes_and_scores(meeting: Meeting, tmp_path: Path) -> None:
    (ada, a), (bob, b) = meeting.joined("ada", "bob", card=federation_card)
    delivered(ada, a)
    meeting.put("rounds/0/bob.safetensors", bad("NaN", b.values))
    a = ada.wait(a)
    delivered(ada, a)
    delivered(bob, bob.state())
    a = ada.wait(a)
    ada.finish(a, {"score": 0.75})
    status = read_status(meeting.where, meeting.repo)
    assert status.is_finished
    assert status.scores() == {0: [0.5], 1: [0.5, 0.5], 2: [0.75]}
    assert status.rows()[0]["refused"] == ["bob: it holds NaN or infinity"]
    card = card_files(status)["README.md"].decode()
    assert "| 1 | ada, bob | - | - |" in card
    assert f'from_pretrained("{meeting.repo}")' in card
    head = meeting.where.resolve(meeting.repo, "main", "model")
    assert meeting.where.fetch(meeting.repo, head, "README.md", "model").read_text() == card
    if "plots/scores-light.png" in card:
        assert meeting.where.fetch(meeting.repo, head, "plots/scores-dark.png", "model") is not None
    meeting.where.api.snapshot_download(meeting.repo, local_dir=tmp_path / "copy" / meeting.repo)
    words = ["status", meeting.repo, "--from", str(tmp_path / "copy")]
    done = CliRunner().invoke(federation_group, [*words, "--format", "agent"], catch_exceptions=False)
    assert "0.5 after 0" in done.output.replace("0.500", "0.5")
    assert "All rounds are closed." in done.output
    rows = json.loads(CliRunner().invoke(federation_group, [*words, "--format", "json"], catch_exceptions=False).output)
    assert [row["workers"] for row in rows] == [["ada"], ["ada", "bob"]]


def test_a_repository_without_a_federation_is_named(meeting: Meeting) -> None:
    with pytest.raises(NoFederation, match="is no federation"):
        read_status(meeting.where, meeting.repo)
