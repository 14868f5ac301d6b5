"""One version is one commit and one tag: the rules, at every destination."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset

from composer_hub import exits
from composer_hub.hub import (
    Card,
    CardError,
    Change,
    Draft,
    FolderDestination,
    HubError,
    HubRefused,
    Lineage,
    LoadError,
    Moved,
    NothingToPublish,
    Parent,
    Published,
    PublishError,
    PublishOptions,
    Table,
    diff,
    dry_run,
    lineage,
    load,
    load_states,
    load_traces,
    publish,
    publish_model,
    update,
)
from composer_hub.records import Pair, StepRow, Trace, features_of, step_row, to_row
from tests.factories import make_pair, make_trace

CARD = Card(
    "traces", "Test traces", license="apache-2.0", counts={"sessions": 2}, dropped={"empty": 1},
    holes={"origin": "", "redaction": ""},
)  # fmt: skip
REPO = "me/traces"


def tables(traces: Sequence[Trace]) -> list[Table]:
    steps = [to_row(step_row(trace, step)) for trace in traces for step in trace.steps]
    return [
        Table("traces", [to_row(trace) for trace in traces], features_of(Trace), "trace_id"),
        Table("steps", steps, features_of(StepRow), "step_id", order=("trace_id", "index")),
    ]


def put(where: Any, traces: Sequence[Trace], **options: Any) -> Published:
    return publish(where, REPO, tables(traces), CARD, options=PublishOptions(**options))


@pytest.fixture
def folder(tmp_path: Path) -> FolderDestination:
    return FolderDestination(tmp_path / "hub")


A, B, C = make_trace(1), make_trace(2), make_trace(3)


def test_the_first_version_is_1_0_0(folder: FolderDestination) -> None:
    assert put(folder, [A]).tag == "v1.0.0"


def test_a_model_does_not_go_into_the_folder_of_a_dataset(folder: FolderDestination) -> None:
    first = put(folder, [A])
    with pytest.raises(HubError, match="holds a dataset"):
        publish_model(folder, REPO, {"config.json": b"{}"}, tag="run-1", title="A model")
    assert folder.tags(REPO) == {"v1.0.0": first.revision}


def test_the_same_rows_again_are_nothing_to_publish(folder: FolderDestination) -> None:
    put(folder, [A, B])
    with pytest.raises(NothingToPublish, match=r"v1\.0\.0 already holds exactly these rows") as raised:
        put(folder, [B, A])
    assert raised.value.exit_code == exits.NOTHING_TO_DO


@pytest.mark.parametrize(("then", "tag"), [
    pytest.param([A, B, C], "v1.0.1", id="rows added is a patch"),
    pytest.param([A], "v1.1.0", id="rows removed is a minor version"),
    pytest.param([A, dataclasses.replace(B, cwd="/other")], "v1.1.0", id="rows edited is a minor version"),
])  # fmt: skip
def test_the_change_of_rows_decides_the_version(folder: FolderDestination, then: list[Trace], tag: str) -> None:
    put(folder, [A, B])
    assert put(folder, then).tag == tag


def test_another_set_of_columns_is_a_major_version(folder: FolderDestination) -> None:
    put(folder, [A])
    fewer = features_of(Trace)
    del fewer["counts"]
    changed = [dataclasses.replace(tables([A])[0], features=fewer), tables([A])[1]]
    assert publish(folder, REPO, changed, CARD).tag == "v2.0.0"


def test_a_config_that_goes_away_is_a_major_version_and_its_files_go_too(folder: FolderDestination) -> None:
    put(folder, [A])
    assert publish(folder, REPO, tables([A])[:1], CARD).tag == "v2.0.0"
    assert not list((folder.root / REPO).glob("*/steps*"))


def test_a_repository_holds_one_kind_and_the_refusal_names_the_way_back(folder: FolderDestination) -> None:
    put(folder, [make_trace(0)])
    card = Card("pairs", "Pairs", holes={"policy": "", "report": ""})
    pairs = [Table("default", [to_row(make_pair())], features_of(Pair), "pair_id")]
    for attempt in (publish, dry_run):
        with pytest.raises(HubRefused, match=r'v1\.0\.0 holds traces.* another repository.* revision="v1\.0\.0"'):
            attempt(folder, "me/traces", pairs, card)
    assert load(folder, "me/traces").tag == "v1.0.0"
    publish(folder, "me/pairs", pairs, card)
    with pytest.raises(HubRefused, match=r"v1\.0\.0 holds pairs"):
        publish(folder, "me/pairs", tables([make_trace(0)]), CARD)


def test_a_larger_bump_may_be_asked_for_and_a_smaller_one_is_refused(folder: FolderDestination) -> None:
    put(folder, [A, B])
    with pytest.raises(PublishError, match="need at least a minor version"):
        put(folder, [A], bump="patch")
    assert put(folder, [A], bump="major").tag == "v2.0.0"


def test_a_version_can_be_named(folder: FolderDestination) -> None:
    assert put(folder, [A], version="v0.1.0").tag == "v0.1.0"


def test_an_existing_tag_with_other_rows_is_an_error_that_names_the_next_free_version(
    folder: FolderDestination,
) -> None:
    put(folder, [A])
    with pytest.raises(PublishError, match=r"v1\.0\.0 exists.*next free one is v1\.0\.1"):
        put(folder, [A, B], version="1.0.0")


def test_a_version_before_the_newest_is_refused(folder: FolderDestination) -> None:
    put(folder, [A], version="v2.0.0")
    with pytest.raises(PublishError, match=r"not after v2\.0\.0"):
        put(folder, [A, B], version="v1.5.0")


def test_a_crash_between_commit_and_tag_is_healed_by_publishing_again(folder: FolderDestination) -> None:
    before = put(folder, [A])
    (folder.root / REPO / ".version").unlink()
    with pytest.raises(NothingToPublish, match="Its tag was missing"):
        put(folder, [A])
    assert folder.tags(REPO) == {"v1.0.0": before.revision}


def test_a_version_without_its_tag_gets_it_before_the_next_one_is_made(folder: FolderDestination) -> None:
    put(folder, [A])
    (folder.root / REPO / ".version").unlink()
    assert put(folder, [A, B]).tag == "v1.0.1"


def test_a_head_that_moves_means_a_new_plan(folder: FolderDestination) -> None:
    @dataclasses.dataclass
    class Overtaken(FolderDestination):
        """Somebody else publishes just before the first commit."""

        overtaken: bool = False

        def exclusive(self, repo: str) -> Any:
            return contextlib.nullcontext()  # as on the Hub, which checks the head instead

        def commit(self, repo: str, changes: Sequence[Change], **options: Any) -> str:
            if not self.overtaken:
                self.overtaken = True
                put(folder, [A, B])
            return super().commit(repo, changes, **options)

    put(folder, [A])
    published = put(Overtaken(folder.root), [A, B, C])
    assert published.tag == "v1.0.2"
    assert published.rows["traces"] == {"added": 1, "removed": 0, "changed": 0, "total": 3}


def test_a_head_that_always_moves_ends_with_an_error(folder: FolderDestination) -> None:
    class Restless(FolderDestination):
        def commit(self, repo: str, changes: Sequence[Change], **options: Any) -> str:
            raise Moved

    with pytest.raises(PublishError, match="kept moving"):
        put(Restless(folder.root), [A])


def test_a_dry_run_names_files_tag_and_visibility_and_writes_nothing(folder: FolderDestination) -> None:
    plan = dry_run(folder, REPO, tables([A]), CARD)
    facts = plan.describe(folder.address)
    assert (facts["tag"], facts["visibility"], facts["create_repo"]) == ("v1.0.0", "private", True)
    assert [file["path"] for file in facts["files"]] == [
        "README.md", "composer_manifest.json", "data/steps/train-00000-of-00001.parquet",
        "data/traces/train-00000-of-00001.parquet", "index/steps.parquet", "index/traces.parquet",
    ]  # fmt: skip
    assert facts["num_bytes"] > 1_000
    assert "# Test traces" in plan.card
    assert not folder.root.exists()


def test_a_dry_run_of_the_same_rows_is_nothing_to_publish(folder: FolderDestination) -> None:
    put(folder, [A])
    with pytest.raises(NothingToPublish):
        dry_run(folder, REPO, tables([A]), CARD)


def test_nothing_written_depends_on_the_clock(tmp_path: Path) -> None:
    one, two = FolderDestination(tmp_path / "one"), FolderDestination(tmp_path / "two")
    assert put(one, [A, B]).revision == put(two, [A, B]).revision


def test_a_published_folder_loads_with_load_dataset(folder: FolderDestination, tmp_path: Path) -> None:
    put(folder, [A, B])
    loaded = load_dataset(str(folder.root / REPO), "steps", split="train", cache_dir=str(tmp_path / "cache"))
    assert len(loaded) == 4
    assert loaded[0]["tool_calls"][0]["function"]["arguments"] == {"command": "cat file0.py"}
    default = load_dataset(str(folder.root / REPO), split="train", streaming=True)
    assert next(iter(default))["trace_id"] in {A.trace_id, B.trace_id}


def test_traces_and_states_stream_back_as_records(folder: FolderDestination) -> None:
    published = put(folder, [A, B])
    version, traces = load_traces(folder, f"{REPO}@{published.tag}")
    assert (version.revision, version.tag) == (published.revision, "v1.0.0")
    assert {trace.trace_id: trace for trace in traces} == {A.trace_id: A, B.trace_id: B}
    _, states = load_states(folder, REPO)
    assert sum(1 for _ in states) == 4


def test_a_version_that_another_has_replaced_in_a_folder_is_not_read_as_if_it_were_there(
    folder: FolderDestination,
) -> None:
    put(folder, [A])
    first = load(folder, REPO)
    assert [trace.trace_id for trace in first.records(Trace, "traces")] == [A.trace_id]
    put(folder, [B])
    for read in (lambda: list(first.records(Trace, "traces")), lambda: first.ids("traces"), first.license):
        with pytest.raises(exits.ComposerError, match=r"no longer holds .* Run the same command again"):
            read()
    with pytest.raises(exits.ComposerError, match="no longer holds"):  # rows that are made of it
        publish(folder, "me/copy", [Table("traces", first.rows("traces"), features_of(Trace), "trace_id")], CARD)
    with pytest.raises(exits.ComposerError, match="no longer holds"):
        update(
            folder,
            "me/copy",
            lambda _: Draft([Table("traces", first.rows("traces"), features_of(Trace), "trace_id")], CARD),
        )


def test_a_missing_config_names_those_that_are_there(folder: FolderDestination) -> None:
    put(folder, [A])
    with pytest.raises(LoadError, match=r"it has (steps, traces|traces, steps)"):
        list(load(folder, REPO).rows("votes"))


def test_the_card_lists_kept_and_dropped_rows_and_how_to_load_them(folder: FolderDestination) -> None:
    put(folder, [A])
    card = (folder.root / REPO / "README.md").read_text()
    assert "license: apache-2.0" in card
    assert "| `steps` | `train` | 2 |" in card
    assert "| empty | 1 |" in card
    assert f'load_dataset("{REPO}", "steps", revision="v1.0.0"' in card


def test_a_hole_that_nothing_fills_is_named(folder: FolderDestination) -> None:
    with pytest.raises(CardError, match="origin"):
        publish(folder, REPO, tables([A]), dataclasses.replace(CARD, holes={}))


def test_the_manifest_names_parents_and_lineage_walks_them(folder: FolderDestination) -> None:
    source = put(folder, [A])
    parent = Parent("source", REPO, source.revision, tag=source.tag)
    elsewhere = Parent("teacher", "other/model", "abc", type="model")
    publish(folder, "me/derived", tables([A]), CARD, lineage=Lineage((parent, elsewhere), config={"k": 2}))
    links = list(lineage(folder, "me/derived"))
    assert [(link.depth, link.role, link.repo) for link in links] == [
        (0, "this", "me/derived"),
        (1, "source", REPO),
        (1, "teacher", "other/model"),
    ]
    assert links[1].revision == source.revision
    assert links[2].note.startswith("not at")


def test_diff_of_two_versions_names_rows_and_files(tmp_path: Path) -> None:
    one = FolderDestination(tmp_path)
    publish(one, "me/old", tables([A, B]), CARD)
    publish(one, "me/new", tables([dataclasses.replace(A, cwd="/x"), C]), CARD)
    found = diff(one, "me/old", "me/new")
    rows = {row.config: row for row in found.rows}
    assert rows["traces"].added == (C.trace_id,)
    assert rows["traces"].removed == (B.trace_id,)
    assert rows["traces"].changed == (A.trace_id,)
    assert rows["steps"].num_same == 2
    assert diff(one, "me/old", "me/old").is_empty


def test_shards_grow_so_that_a_version_fits_into_one_commit(folder: FolderDestination) -> None:
    many = [make_trace(i, num_steps=1) for i in range(120)]
    put(folder, many, shard_bytes=10)
    files = [path for path in (folder.root / REPO).rglob("*") if path.is_file()]
    assert 20 < len(files) <= 100
    _, traces = load_traces(folder, REPO)
    assert sum(1 for _ in traces) == 120


def test_more_splits_than_fit_into_one_commit_are_refused(folder: FolderDestination) -> None:
    rows = [to_row(make_trace(i, num_steps=1)) | {"split": f"part{i:03d}"} for i in range(101)]
    table = Table("traces", rows, features_of(Trace), "trace_id", split=None)
    with pytest.raises(PublishError, match="fewer configs or splits"):
        publish(folder, REPO, [table], CARD)


def test_a_folder_commit_that_broke_off_leaves_the_old_version_readable(folder: FolderDestination) -> None:
    put(folder, [A])
    home = folder.root / "me"
    # The moment between the two renames of a commit, after a power cut.
    (home / "traces").rename(home / ".traces.old-1")
    (home / ".traces.new-1").mkdir()
    with pytest.raises(NothingToPublish):
        put(folder, [A])
    assert sorted(path.name for path in home.iterdir() if path.suffix != ".lock") == ["traces"]


def test_the_manifest_is_json_with_digests_and_without_a_date(folder: FolderDestination) -> None:
    put(folder, [A])
    text = (folder.root / REPO / "composer_manifest.json").read_text()
    manifest = json.loads(text)
    assert manifest["tables"]["traces"]["splits"]["train"]["num_rows"] == 1
    assert "2026" not in text
