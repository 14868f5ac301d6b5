"""The overview reads metrics that a report has."""

from __future__ import annotations

from inspector.view_overview import _PLOTS, _TEACHER_COLUMNS, _TILES

from composer_hub.pairs.report import AnswerSummary, BallotSummary, report_rows


def test_every_tile_plot_and_column_shows_a_metric_of_the_report() -> None:
    answer = AnswerSummary("a-x", 0, "voted", True, 1.0, ("x",) * 5, 0.1, 1.0, 10, 0)
    produced = {row.metric for row in report_rows([], [BallotSummary("one", (answer,))], drops={"no_consensus": 1})}
    shown = {*(name for name, *_ in (*_TILES, *_PLOTS)), *_TEACHER_COLUMNS.values()}
    assert shown <= produced
