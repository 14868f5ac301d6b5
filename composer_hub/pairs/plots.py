"""The report as plots: rows of `report_rows` -> PNG files in a light and a dark theme, with alt texts.

Needs matplotlib (`pip install "composer-hub[report]"`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.pairs.report import Metric

THEMES: Mapping[str, Mapping[str, str]] = {
    "light": {"ink": "#1f2328", "paper": "#ffffff", "grid": "#d0d7de", "main": "#0969da"},
    "dark": {"ink": "#e6edf3", "paper": "#0d1117", "grid": "#30363d", "main": "#58a6ff"},
}
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # distinct for color-blind readers


class PlotError(exits.ComposerError, ImportError):
    """matplotlib is not installed."""


@dataclass(frozen=True, slots=True)
class Plot:
    path: Path
    alt: str


def draw(rows: Sequence[Metric], folder: Path) -> list[Plot]:
    """Write every plot that the rows have numbers for, once per theme: `votes-light.png`, `votes-dark.png`, …"""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError('Plots need matplotlib: pip install "composer-hub[report]".') from error
    folder.mkdir(parents=True, exist_ok=True)
    plots = []
    for name, paint in _PLOTS.items():
        for theme, colors in THEMES.items():
            figure = Figure(figsize=(7, 4), dpi=150, facecolor=colors["paper"], layout="constrained")
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
    counts = [(row.scope, row.value or 0) for row in rows if row.metric == "votes"]
    if not counts:
        return ""
    axes.bar([scope for scope, _ in counts], [count for _, count in counts], color=colors["main"])
    axes.set_ylabel("steps")
    axes.set_title("Teachers that agree, of those whose vote counts")
    axes.grid(axis="y", color=colors["grid"])
    return "Bar chart of votes: " + ", ".join(f"{scope} agree on {count:,.0f} steps" for scope, count in counts) + "."


def _costs(axes: Any, rows: Sequence[Metric], colors: Mapping[str, str]) -> str:
    cells = {(row.metric, row.scope): row.value for row in rows}
    teachers = [row.scope for row in rows if row.metric == "calls"]
    points = [(one, cells.get(("latency_p50_s", one)), cells.get(("usd_per_call", one))) for one in teachers]
    known = [(one, latency, usd) for one, latency, usd in points if latency is not None and usd is not None]
    if not known:
        return ""
    for number, (one, latency, usd) in enumerate(known):
        axes.scatter([latency], [usd], s=60, color=_COLORS[number % len(_COLORS)])
        axes.annotate(one, (latency, usd), xytext=(6, 4), textcoords="offset points", color=colors["ink"], fontsize=8)
    axes.set_xlabel("median latency, s")
    axes.set_ylabel("mean $ per call")
    axes.set_title("Cost and latency of a teacher's answers")
    axes.margins(0.25)
    axes.grid(color=colors["grid"])
    listed = ", ".join(f"{one} {latency:.1f} s and ${usd:.4f}" for one, latency, usd in known)
    return f"Scatter plot of median latency and mean cost of a call: {listed}."


_PLOTS: Mapping[str, Callable[[Any, Sequence[Metric], Mapping[str, str]], str]] = {
    "votes": _votes,
    "costs": _costs,
}
