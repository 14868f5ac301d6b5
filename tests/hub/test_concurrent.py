"""Publications at once equal the same publications in sequence: no row is lost, whatever the order of their steps."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Features, Value

from composer_hub import ingest, pairs
from composer_hub.hub import (
    Card,
    Draft,
    FolderDestination,
    NothingToPublish,
    PublishError,
    PublishOptions,
    Table,
    Version,
    embedded_hub,
    load,
    publish,
    update,
)
from composer_hub.local_hub.server import ServerProcess, start_server
from composer_hub.pairs import Verdict
from composer_hub.pairs.tables import pairs_table
from composer_hub.records import Pair, Trace
from tests.cli.conftest import ROOT
from tests.factories import make_pair
from tests.hub.clients import hub_at
from tests.quick import quick

CARD = Card("traces", "Notes", license="mit", holes={"origin": "", "redaction": ""})
FEATURES = Features({"id": Value("string"), "author": Value("string")})
REPO = "me/notes"


class Turns:
    """Grant one step at a time to one of several threads, in an order that a seed decides."""

    def __init__(self, seed: int, num_threads: int) -> None:
        self._dice, self._busy = random.Random(seed), num_threads
        self._waiting: list[threading.Event] = []
        self._lock = threading.Lock()

    def wait(self) -> None:
        turn = threading.Event()
        with self._lock:
            self._waiting.append(turn)
            self._give_way()
        assert turn.wait(600), "no thread gave way"

    def leave(self) -> None:
        with self._lock:
            self._give_way()

    def _give_way(self) -> None:
        self._busy -= 1
        if self._busy == 0 and self._waiting:
            self._busy = 1
            self._waiting.pop(self._dice.randrange(len(self._waiting))).set()


class Interleaved:
    """A destination whose every operation waits for its turn, and whose publications do not exclude each other."""

    def __init__(self, inner: Any, turns: Turns) -> None:
        self._inner, self._turns = inner, turns

    def exclusive(self, repo: str) -> AbstractContextManager[Any]:
        return nullcontext()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def operation(*args: Any, **kwargs: Any) -> Any:
            self._turns.wait()
            return value(*args, **kwargs)

        return operation


def rows_of(version: Version | None) -> list[dict[str, Any]]:
    return list(version.rows("notes")) if version else []


def add_row(where: Any, author: str, repo: str = REPO) -> None:
    """Publish the rows of the newest version and one more, as an ingest run does."""

    def make(before: Version | None) -> Draft:
        rows = [*rows_of(before), {"id": f"note of {author}", "author": author}]
        return Draft([Table("notes", rows, FEATURES, "id")], CARD)

    update(where, repo, make)


def at_once(work: Callable[[str], object], names: Sequence[str], turns: Turns | None = None) -> None:
    """Run `work` for all names in threads, and raise what any of them raised."""

    def one(name: str) -> None:
        try:
            work(name)
        finally:
            if turns is not None:
                turns.leave()

    with ThreadPoolExecutor(len(names)) as pool:
        for result in [pool.submit(one, name) for name in names]:
            result.result()


def test_interleaved_publications_lose_no_row(tmp_path: Path, num_interleavings: int) -> None:
    for seed in range(num_interleavings):
        folder = FolderDestination(tmp_path / str(seed))
        names = [f"p{number}" for number in range(2 + seed % 2)]
        turns = Turns(seed, len(names))
        at_once(partial(add_row, Interleaved(folder, turns)), names, turns)
        assert {row["author"] for row in rows_of(load(folder, REPO))} == set(names), f"seed {seed}"


@pytest.mark.parametrize("seed", quick(1, range(4)))
def test_interleaved_publications_on_the_hub_lose_no_row(seed: int, hub_server: ServerProcess, hub_repo: Any) -> None:
    hub, repo, names = embedded_hub(hub_server), hub_repo("interleaved"), ["ada", "bob", "eve"]
    turns = Turns(seed, len(names))
    at_once(partial(add_row, Interleaved(hub, turns), repo=repo), names, turns)
    assert {row["author"] for row in rows_of(load(hub, repo))} == set(names)
    versions = [load(hub, f"{repo}@{tag}") for tag in sorted(hub.tags(repo))]
    held = [{row["author"] for row in rows_of(version)} for version in versions]
    assert [len(authors) for authors in held] == [1, 2, 3], "each version adds one row and removes none"


def published_by(where: Any, repo: str, num: int, turns: Turns | None = None, versions: str = "update") -> list[bool]:
    """Publish the same rows several times at once; return who published something."""
    tables = [Table("notes", [{"id": "1", "author": "ada"}], FEATURES, "id")]
    outcomes: list[bool] = []

    def one(name: str) -> None:
        try:
            if versions == "update":
                update(where, repo, lambda before: None if rows_of(before) else Draft(tables, CARD))
            else:
                publish(where, repo, tables, CARD)
        except NothingToPublish:
            outcomes.append(False)
        else:
            outcomes.append(True)

    at_once(one, [f"p{number}" for number in range(num)], turns)
    return outcomes


@pytest.mark.parametrize("versions", ["publish", "update"])
def test_of_equal_publications_at_once_one_publishes_and_the_others_have_nothing_to_do(
    tmp_path: Path, num_interleavings: int, versions: str
) -> None:
    for seed in range(num_interleavings):
        folder, num = FolderDestination(tmp_path / str(seed)), 2 + seed % 3
        turns = Turns(seed, num)
        done = published_by(Interleaved(folder, turns), REPO, num, turns, versions)
        assert (sum(done), len(done)) == (1, num), f"seed {seed}"
        assert folder.tags(REPO) == {"v1.0.0": folder.resolve(REPO, "main")}


@pytest.mark.parametrize("seed", quick(1, range(4)))
def test_of_equal_publications_at_once_on_the_hub_one_publishes(
    seed: int, hub_server: ServerProcess, hub_repo: Any
) -> None:
    hub, repo, turns = embedded_hub(hub_server), hub_repo("equal"), Turns(seed, 4)
    assert sum(published_by(Interleaved(hub, turns), repo, 4, turns)) == 1
    assert hub.tags(repo) == {"v1.0.0": hub.resolve(repo, "main")}


@pytest.mark.parametrize("fault", quick(1, ["lose:1", "drop:1", "503:1,lose:1"]))
def test_who_does_not_hear_that_its_commit_was_made_has_published(fault: str, tmp_path: Path) -> None:
    with start_server(tmp_path, ["--user", "me:hf_me"]) as server:
        hub_at(server, "hf_me").prepare(REPO, private=True)
    with start_server(tmp_path, ["--user", "me:hf_me", "--inject", fault]) as server:
        hub = hub_at(server, "hf_me")
        assert published_by(hub, REPO, 1) == [True]
        assert hub.tags(REPO) == {"v1.0.0": hub.resolve(REPO, "main")}


@pytest.mark.parametrize("fault", quick(1, ["412:2,409:1", "drop:2,lose:1", "503:0.2,429:0.1"]))
def test_publications_at_once_get_through_faults(fault: str, tmp_path: Path) -> None:
    with start_server(tmp_path, ["--user", "me:hf_me", "--inject", fault]) as server:
        hub = hub_at(server, "hf_me")
        at_once(lambda name: add_row(hub, name), ["ada", "bob", "eve"])
        assert {row["author"] for row in rows_of(load(hub, REPO))} == {"ada", "bob", "eve"}


def test_a_folder_takes_one_publication_at_a_time(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(8)]
    at_once(lambda name: add_row(FolderDestination(tmp_path), name), names)
    folder = FolderDestination(tmp_path)
    assert {row["author"] for row in rows_of(load(folder, REPO))} == set(names)
    assert folder.tags(REPO) == {"v1.0.7": folder.resolve(REPO, "main")}
    assert not list(tmp_path.rglob(".notes.new-*"))


@pytest.fixture
def one_each(tmp_path: Path) -> list[Path]:
    """The bundled sessions, each in a folder of its own."""
    paths = sorted((ROOT / "composer_hub" / "demo" / "sessions").rglob("*.jsonl"))
    for path in paths:
        (tmp_path / path.stem).mkdir()
        (tmp_path / path.stem / path.name).write_bytes(path.read_bytes())
    return [tmp_path / path.stem for path in paths]


@pytest.fixture(params=["local", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "folder":
        yield FolderDestination(tmp_path / "datasets")
    else:
        yield embedded_hub(request.getfixturevalue("hub_server"))


def test_ingest_runs_at_once_keep_the_traces_of_each_other(
    place: Any, one_each: list[Path], hub_repo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSER_HUB_STATE", str(tmp_path / "state"))
    repo = hub_repo("traces")
    runs = {
        str(path): ingest.ingest([path], ingest.IngestOptions(workers=1), destination=place, repo=repo)
        for path in one_each
    }
    assert all(run.numbers()["traces"] == 1 for run in runs.values()), "each run was based on the empty repository"
    at_once(lambda path: runs[path].publish(PublishOptions()), list(runs))
    assert load(place, repo).num_rows("traces") == len(one_each)
    again = ingest.ingest(one_each, ingest.IngestOptions(workers=1), destination=place, repo=repo)
    with pytest.raises(NothingToPublish):
        again.publish(PublishOptions())


def test_of_equal_ingest_runs_at_once_one_publishes(
    place: Any, one_each: list[Path], hub_repo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSER_HUB_STATE", str(tmp_path / "state"))
    repo = hub_repo("traces")
    runs = {
        str(number): ingest.ingest(one_each, ingest.IngestOptions(workers=1), destination=place, repo=repo)
        for number in range(4)
    }
    done: list[str] = []

    def one(name: str) -> None:
        with suppress(NothingToPublish):
            done.append(runs[name].publish(PublishOptions()).tag)

    at_once(one, list(runs))
    assert done == ["v1.0.0"]
    assert list(place.tags(repo)) == ["v1.0.0"]


def test_files_that_were_not_read_again_stay_when_another_run_starts_afresh(
    place: Any, one_each: list[Path], hub_repo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSER_HUB_STATE", str(tmp_path / "state"))
    repo = hub_repo("traces")
    first, second, third = one_each
    run = partial(ingest.ingest, destination=place, repo=repo)
    run([first], ingest.IngestOptions(workers=1)).publish(PublishOptions())
    skipped = load(place, repo).ids("traces")
    mine = run([first, second], ingest.IngestOptions(workers=1))
    assert mine.report.counts["unchanged"] == 1, "the first file was skipped"
    monkeypatch.setenv("COMPOSER_HUB_STATE", str(tmp_path / "other"))
    run([third], ingest.IngestOptions(workers=1, fresh=True)).publish(PublishOptions())
    assert load(place, repo).ids("traces").isdisjoint(skipped)
    monkeypatch.setenv("COMPOSER_HUB_STATE", str(tmp_path / "state"))
    if isinstance(place, FolderDestination):  # it keeps no earlier version to take them from
        with pytest.raises(PublishError, match=r"lacks 1 traces of files .* Run the command again"):
            mine.publish(PublishOptions())
        mine = run([first, second], ingest.IngestOptions(workers=1))
    mine.publish(PublishOptions())
    assert load(place, repo).num_rows("traces") == 3
    assert mine.numbers()["traces"] == 3
    assert len({trace.trace_id for trace in load(place, repo).records(Trace, "traces")}) == 3


def test_reviewers_in_turn_do_not_undo_each_other(tmp_path: Path) -> None:
    folder = FolderDestination(tmp_path)
    first = [make_pair(number) for number in range(4)]
    made = pairs_table(first, {pair.trace_id: "train" for pair in first})
    publish(folder, "me/pairs", [made], Card("pairs", "Pairs", license="mit", holes={"policy": "", "report": ""}))

    def review(pair: Pair) -> None:
        verdict = Verdict(pair.pair_id, "reject", "ada")
        update(folder, "me/pairs", lambda head: pairs.reviewed_draft(head, [verdict])[0])  # type: ignore[arg-type]

    review(first[0])
    review(first[1])
    left = {pair.pair_id for pair in load(folder, "me/pairs").records(Pair, "default")}
    assert left == {pair.pair_id for pair in first[2:]}


def test_a_private_repository_stays_private_and_the_message_names_the_way(
    hub_server: ServerProcess, hub_repo: Any
) -> None:
    hub, repo = hub_at(hub_server), hub_repo("notes")
    table = Table("notes", [{"id": "1", "author": "ada"}], FEATURES, "id")
    publish(hub, repo, [table], CARD)
    with pytest.raises(NothingToPublish, match=r"stays private.*hf repos settings"):
        publish(hub, repo, [table], CARD, options=PublishOptions(public=True))
    more = Table("notes", [{"id": "2", "author": "bob"}], FEATURES, "id")
    assert "stays private" in publish(hub, repo, [more], CARD, options=PublishOptions(public=True)).note
    assert hub.is_private(repo)
