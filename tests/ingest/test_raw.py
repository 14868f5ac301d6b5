"""Raw sessions on their way into a dataset that others write, too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from composer_hub.hub import Add, Change, FolderDestination, HubError
from composer_hub.ingest.raw import publish_raw, raw_name

REPO = "me/raw-sessions"


class Crowded(FolderDestination):
    """A folder into which somebody else writes between our look and our commit, the first few times."""

    def __init__(self, root: Path, others: Sequence[Add]) -> None:
        super().__init__(root)
        self.others = list(others)

    def commit(self, repo: str, changes: Sequence[Change], *, parent: str | None, **about: Any) -> str:
        if self.others:
            super().commit(repo, [self.others.pop()], parent=self.resolve(repo, "main"), **about)
        return super().commit(repo, changes, parent=parent, **about)


def written(folder: Path, count: int) -> list[Path]:
    paths = [folder / f"{number}.jsonl" for number in range(count)]
    for path in paths:
        path.write_text(f"{path.name}\n")
    return paths


def test_sessions_are_added_beside_files_of_another_writer(tmp_path: Path) -> None:
    paths = written(tmp_path, 200)
    same = Add.of(raw_name(paths[0]), paths[0])
    where = Crowded(tmp_path / "hub", [Add.of("sessions/theirs.jsonl", b"theirs"), same])
    assert publish_raw(where, REPO, paths) == 199, "one of them was put there by the other writer"
    there = where.files(REPO, "main")
    assert {"README.md", "sessions/theirs.jsonl", *map(raw_name, paths)} <= set(there)
    assert publish_raw(where, REPO, paths) == 0


def test_a_dataset_that_keeps_changing_is_an_error(tmp_path: Path) -> None:
    others = [Add.of(f"{number}.txt", b"again") for number in range(20)]
    with pytest.raises(HubError, match="kept moving; 0 raw sessions were added"):
        publish_raw(Crowded(tmp_path / "hub", others), REPO, written(tmp_path, 2))
