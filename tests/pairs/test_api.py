"""The public names of the rooms, and a pair set made, published and read back without the command line."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_hub import actions, exports, hub, pairs
from composer_hub.pairs.rows import ASIDE
from composer_hub.records import Pair

LS = ("Bash", {"command": "ls"})
READ = ("Read", {"file_path": "/repo/a.py"})


@pytest.mark.parametrize("room", [actions, exports, pairs], ids=lambda room: room.__name__)
def test_the_public_names_of_a_room_are_those_of_its_all(room: types.ModuleType) -> None:
    public = [name for name, value in vars(room).items() if name[0] != "_" and not isinstance(value, types.ModuleType)]
    assert sorted(room.__all__) == sorted(public)


def test_a_pair_set_is_made_and_published_from_python(
    make_trace: Callable[..., Any], make_vote: Callable[..., Any], tmp_path: Path
) -> None:
    traces = [make_trace(LS, READ, name=name) for name in ("one", "two")]
    votes = [make_vote(trace, 0, teacher, READ) for trace in traces for teacher in ("a-x", "b-x")]
    votes.append(make_vote(make_trace(LS, name="elsewhere"), 0, "a-x", READ))
    made = pairs.make(iter(traces), votes, pairs.PairOptions(pairs.Policy(min_agree=2), with_prose=True, keep=ASIDE))
    assert [pair.chosen_teacher for pair in made.pairs] == ["a-x", "a-x"]
    assert (made.num_traces, made.num_votes, made.votes.unused) == (2, 4, {"elsewhere"})
    version = pairs.draft(made, "Small")
    where = hub.FolderDestination(tmp_path)
    hub.publish(where, "me/pairs", version.tables, version.card, lineage=version.lineage)
    published = hub.load(where, "me/pairs")
    assert {pair.pair_id for pair in published.records(Pair, "default")} == {pair.pair_id for pair in made.pairs}
    assert published.num_rows("votes") == 4
    reviewed, counts = pairs.reviewed_draft(published, [pairs.Verdict(next(iter(made.pairs)).pair_id, "reject", "ann")])
    assert counts == {"reject": 1}
    assert len(list(reviewed.tables[0].rows)) == 1
