"""The uplift of hints, with made-up scores and in the tiny world."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.train.teacher import HintTeacher  # noqa: E402
from composer_hub.train.uplift import (  # noqa: E402
    SiteUplift,
    action_logps,
    as_text,
    means_by_writer,
    measure,
    refused,
    table,
)
from tests.train.test_rollouts import END, RIGHT, WRONG, hinter, rollout  # noqa: E402


def test_a_good_hint_lowers_the_failed_action_and_raises_the_corrected_one() -> None:
    sites = hinter().sites(rollout(*WRONG, *RIGHT, END))
    (site,) = sites
    logps = {
        (tuple(site.prefix_ids), tuple(site.action_ids)): -1.0,
        (tuple(site.hinted_ids), tuple(site.action_ids)): -4.0,
        (tuple(site.prefix_ids), tuple(site.corrected_ids)): -2.0,
        (tuple(site.hinted_ids), tuple(site.corrected_ids)): -0.5,
    }
    (found,) = measure(sites, lambda rows: [logps[tuple(before), tuple(action)] for before, action in rows])
    assert (found.lowered, found.raised, found.value) == (3.0, 1.5, 1.5)


def test_a_hint_that_makes_everything_less_likely_does_not_lift() -> None:
    assert SiteUplift("control", "k", lowered=18.0, raised=-6.0).value < 0
    assert SiteUplift("quoted", "k", lowered=18.0).value > 0


def test_a_margin_counts_both_actions_and_has_to_beat_a_control() -> None:
    rising = SiteUplift("a", "k", lowered=-40.0, raised=55.0, control=1.0)
    assert (rising.margin, SiteUplift("a", "k", lowered=2.0).margin) == (15.0, None)
    copying = SiteUplift("b", "k", lowered=-50.0, raised=40.0)
    confusing = SiteUplift("c", "k", lowered=18.0, raised=-6.0, control=14.0)
    (good,), (bad,), (blind,) = (table([one] * 4) for one in (rising, copying, confusing))
    assert (good.margin, good.half_interval, good.control) == (15.0, 0.0, 1.0)
    assert refused([good, bad, blind]) == {("b", "k"), ("c", "k")}
    assert refused([good, bad, blind], max_loss=11.0) == frozenset()
    assert "+15.00" in as_text([good])
    spread = table([SiteUplift("a", "k", 0.0, value) for value in (1.0, 3.0)])[0]
    assert spread.half_interval == pytest.approx(1.96)


def test_the_table_has_one_line_a_writer_and_kind_and_refuses_those_that_fail_often_enough() -> None:
    good, bad, few = (
        (SiteUplift("a", "k", 2.0, 1.0),) * 5,
        (SiteUplift("b", "k", -1.0),) * 4,
        (SiteUplift("c", "k", -1.0),),
    )
    lines = table([*bad, *good, *few])
    assert [(line.writer, line.num_sites, line.share_lifting) for line in lines] == [
        ("a", 5, 1.0),
        ("b", 4, 0.0),
        ("c", 1, 0.0),
    ]
    assert refused(lines) == {("b", "k")}
    assert as_text(lines).count("\n") == 3
    assert table([]) == []


def test_log_probs_of_actions_are_the_models_own_and_do_not_depend_on_padding(world: Any) -> None:
    model, _ = world
    reader = HintTeacher("live", model)
    rows = [((5, 6, 7), (8, 9)), ((5,), (6, 7, 8, 9, 10))]
    found = action_logps(reader, rows)
    for (before, action), value in zip(rows, found, strict=True):
        ids = torch.tensor([[*before, *action]])
        logps = model(input_ids=ids).logits.log_softmax(-1)[0, len(before) - 1 : -1]
        assert value == pytest.approx(logps.gather(1, torch.tensor(action)[:, None]).sum().item(), rel=1e-4)
    assert action_logps(reader, rows, rows_a_batch=1) == pytest.approx(found, rel=1e-4)
    assert action_logps(reader, []) == []


def test_means_are_by_writer_whatever_the_kind() -> None:
    given = [SiteUplift("b", "k", 1.0), SiteUplift("a", "k", 1.0, 3.0), SiteUplift("b", "l", 3.0, 2.0)]
    assert list(means_by_writer(given).items()) == [("a", 1.0), ("b", 1.5)]
