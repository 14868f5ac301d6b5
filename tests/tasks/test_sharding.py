"""Tasks over shards are those of one process; a source that changed after the plan is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_hub import shards, tasks
from composer_hub.tasks.sharding import check_source, source_input
from tests.tasks import toy

OPTIONS = tasks.TaskOptions(kinds=("stub",), max_per_kind=1, recheck_every=0, with_oracle=False, workers=1)


def test_shards_give_the_tasks_of_one_process(venv: Path, tmp_path: Path) -> None:
    folder = toy.write(tmp_path / "toy")
    sources = [str(tmp_path / "nothing-here"), str(folder)]
    one = tasks.make(sources, OPTIONS)
    names: list[str] = []
    sharding = shards.Sharding(tmp_path, shards.here, 8)
    many = tasks.make(sources, OPTIONS, lambda report: names.append(report.source), sharding=sharding)
    assert names == sources
    assert (many.tasks, many.bundles) == (one.tasks, one.bundles)
    assert many.numbers() == one.numbers()
    assert len(one.tasks) == 1
    assert len(many.plans.held[0][0].plan.shards) == 2


def test_a_source_that_changed_after_the_plan_is_named(tmp_path: Path) -> None:
    folder = toy.write(tmp_path / "toy")
    one = source_input(str(folder))
    check_source(one)
    (folder / "tinytext" / "words.py").write_text("changed = True\n")
    with pytest.raises(shards.ShardError, match="toy is not what it was when the plan was made"):
        check_source(one)
    name = source_input("wcwidth")
    check_source(name)
    assert name.about["anywhere"]
