"""The report's numbers are those that counting by hand gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_hub.money import Budget
from composer_hub.pairs.ballots import ballots
from composer_hub.pairs.card import MIN_TELLING, notes
from composer_hub.pairs.consensus import build_pairs
from composer_hub.pairs.policy import Poll, PollCounts
from composer_hub.pairs.purchase import Purchase, TeacherBill
from composer_hub.pairs.report import Metric, of_other_pairs, report_rows, summary_of
from composer_hub.pairs.report_card import report_markdown
from composer_hub.records import features_of, from_row, to_row

LS = ("Bash", {"command": "ls"})
READ = ("Read", {"file_path": "/repo/a.py"})
READ_TOO = ("Read", {"file_path": "a.py"})
READ_PART = ("Read", {"file_path": "a.py", "limit": 5})
GREP = ("Grep", {"pattern": "x"})


@pytest.fixture(scope="module")
def report(make_trace: Callable[..., Any], make_vote: Callable[..., Any]) -> list[Metric]:
    """Two traces, three teachers: the first trace gives two pairs, the second none."""
    first = make_trace(LS, LS, name="one", errors=[0], resolved=True)
    second = make_trace(LS, READ, name="two", resolved=False)
    votes = [
        make_vote(first, 0, "a-x", READ),
        make_vote(first, 0, "b-x", READ_TOO),
        make_vote(first, 0, "c-x", READ_PART),
        make_vote(first, 1, "a-x", GREP),
        make_vote(first, 1, "b-x", GREP),
        # As the cascade writes a repeat.
        make_vote(first, 1, "a-x", READ, attempt=1, excluded="repeat"),
        make_vote(second, 0, "a-x", LS),
        make_vote(second, 0, "b-x", GREP),
        make_vote(second, 1, "a-x", status="refusal", cost_usd=0.0, latency_s=0.0, usage={}, cached_tokens=0),
    ]
    pairs, drops = [], {}
    cast = []
    votes.append(make_vote(second, 0, "c-x", status="not_asked", excluded="same_family", cost_usd=0.0))
    for trace in (first, second):
        found, missed = build_pairs(trace, votes)
        pairs += found
        drops |= missed
        cast += [summary_of(ballot) for ballot in ballots(trace, votes)]
    bills = {
        "a-x": TeacherBill(7, 5, 1, 50_000_000, 500_000_000, 10_000_000, 10_000, 8_000),
        "b-x": TeacherBill(3, 3, 0, 60_000_000, 0, 0, 3_000, 2_400),
        "c-x": TeacherBill(1, 1, 0, 40_000_000, 0, 0, 1_000, 800),
    }
    purchase = Purchase(Budget(10**9, 150_000_000, 0, 500_000_000), bills, {"one": 110_000_000, "two": 40_000_000})
    counts = PollCounts(num_traces=2, num_steps=5, num_answered=4, num_audited=2, recall=0.9)
    poll = Poll("all", ("a-x", "b-x", "c-x"), counts=counts)
    return report_rows(pairs, cast, drops=drops, poll=poll, purchase=purchase)


def value(report: list[Metric], metric: str, scope: str = "") -> Any:
    (row,) = [row for row in report if (row.metric, row.scope) == (metric, scope)]
    return row.value


@pytest.mark.parametrize(
    ("metric", "scope", "expected"),
    [
        ("pairs", "", 2),
        ("pairs_per_trace", "", 1.0),
        ("answered_steps", "", 0.8),
        ("recall", "", 0.9),
        ("steps_without_pair", "no_consensus", 1),
        ("steps_without_pair", "no_vote_refusal", 1),
        ("votes", "2 of 3", 1),
        ("votes", "2 of 2", 1),
        ("votes", "1 of 2", 1),
        ("votes", "0 of 0", 1),
        # Tools: (read, read, read), (search, search), (list, search): 4 of 5 pairs agree, shares 3/7, 3/7, 1/7.
        ("fleiss_kappa", "L4", (4 / 5 - 19 / 49) / (1 - 19 / 49)),
        ("agreement", "a-x ~ b-x", 2 / 3),
        ("agreement", "a-x ~ c-x", 0.0),
        ("self_agreement", "L2 a-x", 0.0),
        ("chosen_longer", "", 0.5),
        ("length_auc", "", 0.5),
        ("after_error", "", 0.5),
        ("from_resolved", "", 1.0),
        ("usd", "", 0.15),
        ("usd_retried", "", 0.01),
        ("ambiguous_usd", "", 0.5),
        ("usd_per_pair", "", 0.075),
        ("usd_per_trace", "", 0.075),
        ("cached_share", "", 0.8),
        ("calls", "a-x", 7),
        ("latency_p50_s", "a-x", 1.5),
        ("usd_per_call", "a-x", 0.01),
        ("usd_per_pair", "b-x", 0.03),
        ("usd", "b-x", 0.06),
        ("cached_share", "c-x", 0.8),
        ("answers", "c-x: same_family", 1),
        ("answers", "a-x: refusal", 1),
        ("answers", "a-x: voted", 4),
        ("style_leak_auc", "", None),
    ],
)
def test_every_number_equals_a_count_by_hand(
    report: list[Metric], metric: str, scope: str, expected: float | None
) -> None:
    found = value(report, metric, scope)
    assert found == (None if expected is None else pytest.approx(expected))


def test_an_interval_comes_from_drawing_traces(report: list[Metric]) -> None:
    (row,) = [row for row in report if row.metric == "pairs_per_trace"]
    assert (row.low, row.high) == (0, 2)


def test_unknown_numbers_are_empty_in_a_report_without_pairs_or_votes() -> None:
    rows = report_rows([], [])
    assert {row.metric: row.value for row in rows}["pairs"] == 0
    assert {row.metric: row.value for row in rows}["usd_per_pair"] is None
    assert "| Pairs | 0 | 0 |" in report_markdown(rows)


@pytest.mark.parametrize("num_kept", [2, 1, 0])
def test_a_report_follows_a_review_in_what_it_says_of_pairs(
    report: list[Metric], make_trace: Callable[..., Any], make_vote: Callable[..., Any], num_kept: int
) -> None:
    trace = make_trace(LS, LS, name="one", errors=[0], resolved=True)
    votes = [make_vote(trace, at, name, READ) for at in (0, 1) for name in ("a-x", "b-x")]
    rows = of_other_pairs(report, build_pairs(trace, votes)[0][2 - num_kept :])
    assert value(rows, "pairs") == num_kept
    assert value(rows, "pairs_per_trace") == num_kept / 2
    assert value(rows, "usd_per_pair") == (pytest.approx(0.15 / num_kept) if num_kept else None)
    assert value(rows, "after_error") == (1 / num_kept if num_kept else None)
    about_pairs = ("pairs", "usd_per_pair", "after_error", "from_resolved", "judged", "chosen_", "length_", "style_")
    others = [row for row in report if not row.metric.startswith(about_pairs)]
    assert [row for row in rows if not row.metric.startswith(about_pairs)] == others


@pytest.mark.parametrize("num_before", [49, 0])
def test_the_pairs_of_a_reviewed_report_are_counted(
    num_before: int, make_trace: Callable[..., Any], make_vote: Callable[..., Any]
) -> None:
    votes = [make_vote(trace := make_trace(LS, name="one"), 0, name, READ) for name in ("a-x", "b-x")]
    pairs = build_pairs(trace, votes)[0] if num_before else []
    rows = of_other_pairs([Metric("pairs", value=num_before), Metric("usd_per_pair", value=0.1, n=num_before)], pairs)
    assert value(rows, "pairs") == len(pairs)
    assert [row.n for row in rows if row.metric == "usd_per_pair"] == [len(pairs)]


def test_a_set_without_a_report_gets_none_by_a_review() -> None:
    assert of_other_pairs([], []) == []


def test_a_row_survives_the_hub(report: list[Metric], tmp_path: Path) -> None:
    from datasets import Dataset

    path = str(tmp_path / "report.parquet")
    Dataset.from_list([to_row(row) for row in report], features=features_of(Metric)).to_parquet(path)
    assert [from_row(Metric, row) for row in Dataset.from_parquet(path)] == report


def test_the_card_shows_every_teacher_and_headline(report: list[Metric]) -> None:
    text = report_markdown(report)
    assert "| `a-x` | 7 | 1.5 | 2 | 2 | 0.01 | 0.05 | 0.025 | 0.8 |" in text
    assert "| `a-x` and `b-x` | 0.667" in text
    assert "| Share after an error | 0.5 | 2 |" in text
    assert "| `no_consensus` | 1 |" in text
    lines = [line for line in text.split("\n") if line.startswith("|")]
    assert all(line.endswith("|") for line in lines)


NOT_ON_THE_CARD = {"answers"}  # by teacher and reason: the config `report` has them


def test_every_metric_is_on_the_card(report: list[Metric]) -> None:
    whole = report_markdown(report)
    names = {row.metric for row in report}
    assert {name for name in names if report_markdown([row for row in report if row.metric != name]) == whole} == (
        NOT_ON_THE_CARD
    )


def test_a_name_cannot_break_the_card() -> None:
    text = report_markdown(
        [Metric("calls", "a|b`c", 1, n=1)]
        + [
            Metric(name, "a|b`c", 1.0, n=1)
            for name in (
                "latency_p50_s",
                "latency_p95_s",
                "latency_p99_s",
                "usd_per_call",
                "usd",
                "usd_per_pair",
                "cached_share",
            )
        ]
    )
    assert "| `a/b'c` | 1 |" in text


def test_every_plot_comes_in_two_themes_with_an_alt_text(report: list[Metric], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from composer_hub.pairs.plots import draw

    plots = draw(report, tmp_path / "plots")
    assert sorted(plot.path.name for plot in plots) == [
        f"{name}-{theme}.png" for name in ("agreement", "costs", "votes") for theme in ("dark", "light")
    ]
    assert all(plot.path.read_bytes().startswith(b"\x89PNG") for plot in plots)
    alts = {plot.alt for plot in plots}
    assert any("2 of 3 agree on 1 steps" in alt for alt in alts)
    assert not any("0 of 0" in alt for alt in alts)
    assert any("b-x $0.0300" in alt for alt in alts)
    assert draw([], tmp_path / "none") == []


def test_agreement_is_the_same_whether_the_order_asked_for_an_answer_or_only_the_audit(
    make_trace: Callable[..., Any], make_vote: Callable[..., Any]
) -> None:
    # The second teacher agrees with the first on 9 of 10 steps. An order that asks it only at every tenth step, where
    # they differ, and an audit of every ninth of the others must give the same number.
    trace = make_trace(*[LS] * 100)

    def agreement(asked: Callable[[int], float]) -> float:
        votes = [make_vote(trace, at, "a-x", READ) for at in range(100)]
        votes += [
            make_vote(trace, at, "b-x", GREP if at % 10 == 0 else READ, inclusion=asked(at))
            for at in range(100)
            if asked(at)
        ]
        return value(report_rows([], [summary_of(one) for one in ballots(trace, votes)]), "agreement", "a-x ~ b-x")

    assert agreement(lambda at: 1.0) == pytest.approx(0.9)
    assert agreement(lambda at: 1.0 if at % 10 == 0 else float(at % 10 == 1) / 9) == pytest.approx(0.9)


@pytest.mark.parametrize(("num_pairs", "warns"), [(MIN_TELLING - 1, False), (MIN_TELLING, True)])
def test_lengths_of_a_few_pairs_are_no_reason_for_a_warning(num_pairs: int, warns: bool) -> None:
    metrics = [Metric("pairs", value=num_pairs), Metric("length_auc", value=1.0)]
    assert any("by length alone" in note for note in notes(metrics, {}, None)) == warns
