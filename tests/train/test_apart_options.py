"""Options of Muon, local SGD and federations that cannot work are found before torch is imported."""

from __future__ import annotations

from typing import Any

import pytest

from composer_hub.train.apart.problems import problems

WORKING: dict[str, Any] = {
    "optimizer": "optim", "use_peft": True, "sync_every": 0, "outer_lr": 0.7, "outer_momentum": 0.9, "repo": None,
    "checkpoints_repo": None, "federation": "me/apart", "worker": "ada", "workers": 2, "rounds": 4, "max_steps": 16,
    "round_minutes": 1.0, "to": "hub",
}  # fmt: skip


def test_options_that_work_have_no_problem() -> None:
    assert list(problems(WORKING)) == []
    assert list(problems(WORKING | {"federation": None, "worker": None, "sync_every": 8, "max_steps": -1})) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimizer": "muon"}, "two factors"),
        ({"federation": None}, "Name --federation"),
        ({"federation": "apart"}, "apart"),
        ({"worker": None}, "--worker"),
        ({"worker": "../ada"}, "not a worker's name"),
        ({"use_peft": False}, "--use_peft true"),
        ({"sync_every": 2}, "one of the two"),
        ({"to": "./folder"}, "--to local or hub"),
        ({"repo": "me/apart"}, "another kind"),
        ({"max_steps": 18}, "Set a multiple"),
        ({"outer_momentum": 1.0}, "below 1"),
    ],
)
def test_each_option_that_cannot_work_is_one_sentence(change: dict[str, Any], words: str) -> None:
    (sentence,) = problems(WORKING | change)
    assert words in sentence
    assert sentence.endswith(".")
