"""The report as pictures: rows of `quality.report_rows` -> PNG files in a light and a dark theme, with alt texts.

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
    "light": {"ink": "#1f2328", "paper": "#ffffff", "grid": "#d0d7de", "main": "#0969da", "map": "Blues"},
    "dark": {"ink": "#e6edf3", "paper": "#0d1117", "grid": "#30363d", "main": "#58a6ff", "map": "cividis"},
}
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart by colour-blind readers too
_MAX_TOOLS = 10


class PlotError(exits.ComposerError, ImportError):
    """The drawing library is not there."""


@dataclass(frozen=True, slots=True)
class Plot:
    path: Path
    alt: str


def draw(rows: Sequence[Metric], folder: Path) -> list[Plot]:
    """Write every plot the rows have numbers for, once a theme: `votes-light.png`, `votes-dark.png`, …"""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError('Plots need matplotlib: pip install "composer-hub[report]".') from error
    folder.mkdir(parents=True, exist_ok=True)
    plots = []
    for name, paint in _PLOTS.items():
        for theme, colours in THEMES.items():
            figure = Figure(figsize=(7, 4), dpi=150, facecolor=colours["paper"], layout="constrained")
            axes = figure.add_subplot(facecolor=colours["paper"])
            _dress(axes, colours)
            if alt := paint(axes, rows, colours):
                path = folder / f"{name}-{theme}.png"
                figure.savefig(path)
                plots.append(Plot(path, alt))
    return plots


def _dress(axes: Any, colours: Mapping[str, str]) -> None:
    axes.tick_params(colors=colours["ink"])
    for side in axes.spines.values():
        side.set_color(colours["grid"])
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(colours["ink"])
    axes.set_axisbelow(True)


def _votes(axes: Any, rows: Sequence[Metric], colours: Mapping[str, str]) -> str:
    found = [(row.scope, row.value or 0) for row in rows if row.metric == "votes"]
    if not found:
        return ""
    axes.bar([scope for scope, _ in found], [count for _, count in found], color=colours["main"])
    axes.set_ylabel("steps")
    axes.set_title("Teachers that agree, of those whose vote counts")
    axes.grid(axis="y", color=colours["grid"])
    return "Bar chart of votes: " + ", ".join(f"{scope} agree on {count:,.0f} steps" for scope, count in found) + "."


def _agreement(axes: Any, rows: Sequence[Metric], colours: Mapping[str, str]) -> str:
    by_pair: dict[str, dict[str, Metric]] = {}
    for row in rows:
        if row.metric == "agreement" and row.value is not None:
            level, _, who = row.scope.partition(" ")
            by_pair.setdefault(who, {})[level] = row
    for number, (who, levels) in enumerate(by_pair.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [at + 0.08 * (number - (len(by_pair) - 1) / 2) for at in range(len(levels))]
        values = [row.value or 0 for row in levels.values()]
        axes.plot(places, values, "o-", color=colour, label=who)
        for at, row in zip(places, levels.values(), strict=True):
            if row.low is not None:
                axes.plot([at, at], [row.low, row.high], color=colour, linewidth=1)
        axes.set_xticks(range(len(levels)), list(levels))
    if not by_pair:
        return ""
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share of steps")
    axes.set_title("Agreement of two teachers, by level")
    axes.grid(axis="y", color=colours["grid"])
    axes.legend(facecolor=colours["paper"], edgecolor=colours["grid"], labelcolor=colours["ink"], fontsize=8)
    said = (
        f"{who} {', '.join(f'{row.value:.0%} at {level}' for level, row in levels.items())}"
        for who, levels in by_pair.items()
    )
    return "Line chart of agreement by level: " + "; ".join(said) + "."


def _tool_flips(axes: Any, rows: Sequence[Metric], colours: Mapping[str, str]) -> str:
    counts: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.metric == "tool_flip":
            student, _, teacher = row.scope.partition(" → ")
            counts[student, teacher] = row.value or 0
    if not counts:
        return ""
    students = list(dict.fromkeys(student for student, _ in counts))[:_MAX_TOOLS]
    teachers = list(dict.fromkeys(teacher for _, teacher in counts))[:_MAX_TOOLS]
    table = [[counts.get((student, teacher), 0) for teacher in teachers] for student in students]
    axes.imshow(table, cmap=colours["map"], aspect="auto")
    axes.set_xticks(range(len(teachers)), teachers, rotation=30, ha="right")
    axes.set_yticks(range(len(students)), students)
    axes.set_xlabel("teachers")
    axes.set_ylabel("student")
    axes.set_title("Tool of the student, and tool the teachers took instead")
    most = max(counts.values())
    for y, line in enumerate(table):
        for x, count in enumerate(line):
            dark = (count > most / 2) == (colours["map"] == "Blues")
            axes.text(x, y, f"{count:,.0f}", ha="center", va="center", color="white" if dark else "black", fontsize=8)
    told = ", ".join(f"{student} to {teacher} {count:,.0f}" for (student, teacher), count in list(counts.items())[:8])
    return f"Matrix of tools, student against teachers; most often: {told}."


def _costs(axes: Any, rows: Sequence[Metric], colours: Mapping[str, str]) -> str:
    cells = {(row.metric, row.scope): row.value for row in rows}
    teachers = [row.scope for row in rows if row.metric == "calls"]
    points = [(one, cells.get(("latency_p50_s", one)), cells.get(("usd_per_call", one))) for one in teachers]
    known = [(one, latency, usd) for one, latency, usd in points if latency is not None and usd is not None]
    if not known:
        return ""
    for number, (one, latency, usd) in enumerate(known):
        axes.scatter([latency], [usd], s=60, color=_COLOURS[number % len(_COLOURS)])
        axes.annotate(one, (latency, usd), xytext=(6, 4), textcoords="offset points", color=colours["ink"], fontsize=8)
    axes.set_xlabel("median latency, s")
    axes.set_ylabel("mean $ per call")
    axes.set_title("What a teacher's answer costs")
    axes.margins(0.25)
    axes.grid(color=colours["grid"])
    told = ", ".join(f"{one} {latency:.1f} s and ${usd:.4f}" for one, latency, usd in known)
    return f"Scatter plot of median latency and mean cost of a call: {told}."


_PLOTS: Mapping[str, Callable[[Any, Sequence[Metric], Mapping[str, str]], str]] = {
    "votes": _votes,
    "agreement": _agreement,
    "tools": _tool_flips,
    "costs": _costs,
}
