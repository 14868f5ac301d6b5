"""Pairs over shards are the pairs of one process, byte for byte, whatever the shards and the place of the traces."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from composer_hub import exits, hub, pairs, shards
from composer_hub.hub import Patience
from composer_hub.ingest.dataset import trace_tables
from composer_hub.local_hub.server import ServerProcess
from composer_hub.pairs.rows import ASIDE
from composer_hub.records import Trace, Vote
from tests.hub.clients import hub_at

LS = ("Bash", {"command": "ls"})
NUM_TRACES = 100  # ranges have 32 rows, so four shards at most


@pytest.fixture
def voted(make_trace: Callable[..., Trace], make_vote: Callable[..., Vote]) -> tuple[list[Trace], list[Vote]]:
    """Return traces of which some are copies, and votes that agree on most of them."""
    traces, votes = [], []
    for number in range(NUM_TRACES):
        chance, read = random.Random(number % 95), ("Read", {"file_path": f"/repo/{number % 95}.py"})
        trace = make_trace(LS, LS, name=f"t{number:03d}")
        copied = make_trace(LS, LS, name=f"t{number % 95:03d}").messages
        trace = dataclasses.replace(trace, messages=copied)
        traces.append(trace)
        for step in range(2 if number % 10 else 0):
            votes += [make_vote(trace, step, name, read if chance.random() < 0.8 else LS) for name in ("a-x", "b-x")]
    return traces, votes


def published(traces: list[Trace], where: hub.Destination, repo: str) -> hub.Version:
    hub.publish(
        where,
        repo,
        trace_tables(lambda: iter(traces)),
        hub.Card("traces", "Traces", holes={"origin": "", "redaction": ""}),
    )
    return hub.load(where, repo)


def published_digest(made: pairs.PairSet, folder: Path) -> str:
    """Publish a set and return the digest of everything that was written."""
    draft = pairs.draft(made, "many")
    hub.publish(hub.FolderDestination(folder), "me/pairs", draft.tables, draft.card, lineage=draft.lineage)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


ALL = pairs.PairOptions(keep=ASIDE)


def sharding_at(root: Path, num_shards: int) -> shards.Sharding:
    root.mkdir(exist_ok=True)
    return shards.Sharding(root, shards.here, num_shards)


def test_any_number_of_shards_gives_the_pairs_of_one_process(
    tmp_path: Path, voted: tuple[list[Trace], list[Vote]]
) -> None:
    traces, votes = voted
    version = published(traces, hub.FolderDestination(tmp_path / "hub"), "me/traces")
    one = pairs.make(version, votes, ALL)
    assert one.pairs
    assert one.drops["duplicate"] > 0
    for num_shards in (1, 3, 64):
        many = pairs.make(version, votes, ALL, sharding=sharding_at(tmp_path / "staging", num_shards))
        assert len(many.plans.held[0][0].plan.shards) == min(num_shards, 4)
        assert (many.num_traces, many.drops) == (one.num_traces, one.drops) == (90, one.drops)
        assert list(many.pairs.rows) == list(one.pairs.rows)
        assert list(many.summaries) == list(one.summaries)
        many.plans.forget()
    assert published_digest(many, tmp_path / "many") == published_digest(one, tmp_path / "one")
    assert list((tmp_path / "staging").iterdir()) == []


def test_workers_read_their_rows_from_the_hub(
    tmp_path: Path, voted: tuple[list[Trace], list[Vote]], hub_server: ServerProcess, hub_repo: Callable[[str], str]
) -> None:
    traces, votes = voted
    where = hub_at(hub_server, "hf_test_me")
    where.patience = Patience()  # it goes to workers, so it is pickled
    where.cache = tmp_path / "cache"
    version = published(traces, where, hub_repo("traces"))
    many = pairs.make(version, votes, ALL, sharding=sharding_at(tmp_path / "staging", 4))
    cached = [path.name for path in where.cache.rglob("*.parquet")]
    one = pairs.make(version, votes, ALL)
    assert list(many.pairs.rows) == list(one.pairs.rows)
    assert list(many.summaries) == list(one.summaries)
    assert not cached  # only footers and row groups travelled


def test_a_version_that_was_replaced_after_the_plan_is_named(
    tmp_path: Path, voted: tuple[list[Trace], list[Vote]]
) -> None:
    traces, votes = voted
    where = hub.FolderDestination(tmp_path / "hub")
    version = published(traces, where, "me/traces")

    def later(staging: shards.Staging, numbers: object, watch: object) -> None:
        published(traces[:50], where, "me/traces")
        shards.here(staging, staging.missing(), lambda: None)

    sharding = shards.Sharding(tmp_path, later, 4)
    with pytest.raises(shards.ShardError, match="another version was published since the plan was made"):
        pairs.make(version, votes, ALL, sharding=sharding)


def test_traces_that_were_not_published_are_refused(tmp_path: Path, voted: tuple[list[Trace], list[Vote]]) -> None:
    with pytest.raises(exits.UsageError, match="need a published version"):
        pairs.make(iter(voted[0]), voted[1], sharding=sharding_at(tmp_path, 4))
