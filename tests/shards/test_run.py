"""The contract of a shard: its result appears once and whole, whatever happens to its workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from composer_hub import exits, shards
from composer_hub.shards import Input, Staging

WORK = "composer_hub.ingest.sharding:read"


def frozen(root: Path, num_inputs: int = 10, num_shards: int = 3, **options: object) -> Staging:
    inputs = [Input(f"file{number}", "digest", 100 - number) for number in range(num_inputs)]
    groups = shards.balanced(inputs, num_shards)
    return shards.freeze(root, stage="ingest", work=WORK, groups=groups, options=options, head="abc")


def names(staging: Staging, inputs: Sequence[Input], result: Path) -> dict[str, int]:
    (result / "names").write_text(",".join(one.name for one in inputs))
    return {"files": len(inputs)}


def run_all(staging: Staging, work: object = names) -> str:
    for shard in staging.plan.shards:
        shards.run_shard(staging, shard.number, work)  # type: ignore[arg-type]
    return ",".join((staging.result(shard.number) / "names").read_text() for shard in staging.plan.shards)


@pytest.mark.parametrize("num_shards", [1, 2, 7, 64])
def test_shards_keep_the_order_of_their_inputs_and_lose_none(tmp_path: Path, num_shards: int) -> None:
    staging = frozen(tmp_path, 20, num_shards)
    assert len(staging.plan.shards) == min(num_shards, 20)
    assert run_all(staging) == ",".join(f"file{number}" for number in range(20))


def test_one_large_input_is_a_shard_of_its_own() -> None:
    inputs = [Input("large", num_bytes=1_000_000), *(Input(str(n), num_bytes=10) for n in range(30))]
    groups = shards.balanced(inputs, 4)
    assert [one.name for one in groups[0]] == ["large"]
    assert sum(map(len, groups)) == 31
    assert shards.balanced([], 4) == []


def test_the_same_shards_and_options_find_the_same_plan_again_and_others_do_not(tmp_path: Path) -> None:
    staging = frozen(tmp_path)
    run_all(staging)
    assert frozen(tmp_path).missing() == []
    assert frozen(tmp_path, a=1).missing() == [0, 1, 2]
    assert frozen(tmp_path, num_inputs=11).missing() == [0, 1, 2]


def test_a_plan_is_json_with_a_line_per_shard_that_only_its_owner_can_read(tmp_path: Path) -> None:
    staging = frozen(tmp_path)
    text = (staging.folder / "plan.json").read_text()
    plan = json.loads(text)
    assert plan["head"] == "abc"
    assert [shard["num_inputs"] for shard in plan["shards"]] == [3, 4, 3]
    assert sum('"number"' in line for line in text.splitlines()) == 3
    assert staging.folder.stat().st_mode & 0o077 == 0
    assert (staging.folder / "private").stat().st_mode & 0o077 == 0


def test_a_shard_that_runs_twice_keeps_its_first_result(tmp_path: Path) -> None:
    staging = frozen(tmp_path)
    first = shards.run_shard(staging, 0, names)

    def other(staging: Staging, inputs: Sequence[Input], result: Path) -> dict[str, int]:
        raise AssertionError("a finished shard ran again")

    assert shards.run_shard(staging, 0, other) == first

    def overtaken(staging: Staging, inputs: Sequence[Input], result: Path) -> dict[str, int]:
        shards.run_shard(staging, 1, names)  # another worker finishes while this one runs
        (result / "names").write_text("late")
        return {}

    shards.run_shard(staging, 1, overtaken)
    assert (staging.result(1) / "names").read_text() == "file3,file4,file5,file6"
    assert sorted(path.name for path in (staging.folder / "results").iterdir()) == ["00000", "00001"]


def test_a_shard_that_comes_late_finds_no_plan_and_leaves_nothing(tmp_path: Path) -> None:
    staging = frozen(tmp_path)

    def late(staging: Staging, inputs: Sequence[Input], result: Path) -> dict[str, int]:
        staging.remove()
        return {}

    with pytest.raises(exits.NothingToDo, match="came late"):
        shards.run_shard(staging, 0, late)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(exits.NothingToDo, match="no plan"):
        Staging.open(staging.folder)


def test_a_failed_shard_is_named_with_its_reason_and_the_command_that_runs_it(tmp_path: Path) -> None:
    staging = frozen(tmp_path)
    sharding = shards.Sharding(tmp_path, shards.here, 3)
    with pytest.raises(shards.ShardError, match=r"3 of 3 shards have no result") as caught:
        shards.carry_out(staging, sharding)  # the files of the plan do not exist
    assert "shard 0: " in str(caught.value)
    assert f"composer-hub shards run {staging.folder} 0 1 2" in str(caught.value)
    assert {row["state"] for row in shards.status(staging)} == {"failed"}
    run_all(staging)
    shards.carry_out(staging, sharding)
    assert {row["state"] for row in shards.status(staging)} == {"done"}


def test_a_damaged_result_is_dropped_and_its_shard_runs_again(tmp_path: Path) -> None:
    staging = frozen(tmp_path)
    run_all(staging)
    (staging.result(1) / "names").write_text("torn")
    (staging.result(2) / "manifest.json").write_text("{")
    ran: list[int] = []

    def again(staging: Staging, numbers: Sequence[int], watch: object) -> None:
        ran.extend(numbers)
        for number in numbers:
            shards.run_shard(staging, number, names)

    shards.carry_out(staging, shards.Sharding(tmp_path, again, 3))
    assert ran == [1, 2]
    assert (staging.result(1) / "names").read_text() == "file3,file4,file5,file6"


def test_a_plan_of_another_release_is_refused(tmp_path: Path) -> None:
    staging = frozen(tmp_path)
    path = staging.folder / "plan.json"
    path.write_text(path.read_text().replace(f'"{staging.plan.release}"', '"0.0.1"'))
    with pytest.raises(shards.ShardError, match=r"planned by composer_hub 0\.0\.1"):
        Staging.open(staging.folder)
