"""The report as plots: rows of `report_rows` -> PNG files in a light and a dark theme, with alt texts.

Needs matplotlib, of the extra [report].
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub import exits, extras
from composer_hub.pairs.report import Metric

THEMES: Mapping[str, Mapping[str, str]] = {
    "light": {"ink": "#1f2328", "paper": "#ffffff", "grid": "#d0d7de", "main": "#0969da"},
    "dark": {"ink": "#e6edf3", "paper": "#0d1117", "grid": "#30363d", "main": "#58a6ff"},
}
_COLORS = ("#0072b2", "#d55e00", "#009e73")  # distinct for color-blind readers


class PlotError(exits.ComposerError, ImportError):
    """matplotlib is not installed."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture that was drawn, and the text for readers who do not see it."""

    path: Path
    alt: str


def pictures_of(rows: Sequence[Metric]) -> tuple[dict[str, bytes], str]:
    """Return the light plots by file name and the Markdown that shows them; both empty without matplotlib."""
    with tempfile.TemporaryDirectory(prefix="composer-plots-") as folder:
        try:
            plots = draw(rows, Path(folder), themes=("light",))
        except PlotError:
            return {}, ""
        pictures = {plot.path.name: plot.path.read_bytes() for plot in plots}
    return pictures, "\n\n".join(f"![{plot.alt}](plots/{plot.path.name})" for plot in plots)


def draw(rows: Sequence[Metric], folder: Path, *, themes: Collection[str] = tuple(THEMES)) -> list[Plot]:
    """Write every plot that the rows have numbers for, once per theme: `votes-light.png`, `votes-dark.png`, …"""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError(f"Plots need matplotlib: {extras.install('report')}") from error
    folder.mkdir(parents=True, exist_ok=True)
    plots = []
    for name, paint in _PLOTS.items():
        for theme in themes:
            colors = THEMES[theme]
            figure = Figure(figsize=(7, 3), dpi=150, facecolor=colors["paper"], layout="constrained")
            axes = figure.add_subplot(facecolor=colors["paper"])
            _style(axes, colors)
            if alt := paint(axes, rows, colors):
                path = folder / f"{name}-{theme}.png"
                figure.savefig(path)
                plots.append(Plot(path, alt))
    return plots


def _style(axes: Any, colors: Mapping[str, str]) -> None:
    axes.tick_params(colors=colors["ink"])
    for side in axes.spines.values():
        side.set_color(colors["grid"])
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(colors["ink"])
    axes.set_axisbelow(True)


def _votes(axes: Any, rows: Sequence[Metric], colors: Mapping[str, str]) -> str:
    counts = [(row.scope, row.value or 0) for row in rows if row.metric == "votes" and not row.scope.startswith("0")]
    if not counts:
        return ""
    axes.bar([scope for scope, _ in counts], [count for _, count in counts], color=colors["main"])
    axes.set_ylabel("steps")
    axes.set_title("Teachers that agree, of those whose vote counts")
    axes.grid(axis="y", color=colors["grid"])
    return "Bar chart of votes: " + ", ".join(f"{scope} agree on {count:,.0f} steps" for scope, count in counts) + "."


def _agreement(axes: Any, rows: Sequence[Metric], colors: Mapping[str, str]) -> str:
    kinds = {"agreement": "{}", "self_agreement": "{} with itself", "recall": "recall of pairs"}
    bars = [
        (kinds[row.metric].format(_short(row.scope.removeprefix("L2 "))), row, _COLORS[list(kinds).index(row.metric)])
        for row in rows
        if row.metric in kinds and row.value is not None and (row.metric != "self_agreement" or "L2 " in row.scope)
    ][::-1]
    if not bars:
        return ""
    for place, (_, row, color) in enumerate(bars):
        share = row.value or 0.0
        axes.barh([place], [share], color=color)
        if row.low is not None and row.high is not None:
            # An interval from drawing traces may end inside the value by rounding.
            around = [[max(share - row.low, 0.0)], [max(row.high - share, 0.0)]]
            axes.errorbar([share], [place], xerr=around, color=colors["ink"], capsize=3)
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars])
    axes.set_xlim(0, 1)
    axes.set_title("Agreement at L2, and recall, with 95 % intervals")
    axes.grid(axis="x", color=colors["grid"])
    return "Bar chart of agreement at L2: " + ", ".join(f"{name} {row.value:.2f}" for name, row, _ in bars[::-1]) + "."


def _costs(axes: Any, rows: Sequence[Metric], colors: Mapping[str, str]) -> str:
    bars = [
        (row.scope, row.value) for row in rows if row.metric == "usd_per_pair" and row.scope and row.value is not None
    ]
    if not bars:
        return ""
    names = [_short(name) for name, _ in bars]
    drawn = axes.barh(names[::-1], [usd for _, usd in bars][::-1], color=colors["main"])
    axes.bar_label(drawn, fmt="$%.4f", color=colors["ink"], padding=3, fontsize=8)
    axes.set_xlabel("$ for this teacher per pair of the set")
    axes.set_title("Cost per pair by teacher")
    axes.margins(x=0.2)
    axes.grid(axis="x", color=colors["grid"])
    return "Bar chart of the cost per pair: " + ", ".join(f"{name} ${usd:.4f}" for name, usd in bars) + "."


def _short(name: str) -> str:
    return name if len(name) <= 44 else f"{name[:43]}…"


_PLOTS: Mapping[str, Callable[[Any, Sequence[Metric], Mapping[str, str]], str]] = {
    "votes": _votes,
    "agreement": _agreement,
    "costs": _costs,
}
