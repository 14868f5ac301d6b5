"""Plots of a run's metrics: log lines in, PNG files in a light and a dark theme with alt texts out.

Needs matplotlib, of the extra [report]; without it a card has tables only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THEMES: Mapping[str, Mapping[str, str]] = {
    "light": {"ink": "#1f2328", "paper": "#ffffff", "grid": "#d0d7de", "first": "#0072b2"},
    "dark": {"ink": "#e6edf3", "paper": "#0d1117", "grid": "#30363d", "first": "#56b4e9"},
}
_COLORS = ("#d55e00", "#009e73", "#cc79a7")  # after a theme's first; distinguishable for color-blind readers
_PLOTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "reward": ("Reward of the rollouts", {"reward": "mean reward"}),
    "pass_at_1": (
        "pass@1 on held-out tasks",
        {"eval/pass_at_1": "pass@1", "eval/pass_at_1_low": "95 % low", "eval/pass_at_1_high": "95 % high"},
    ),
    "channels": (
        "The terms of the loss",
        {
            "loss": "total loss",
            "channel/hint/divergence": "hint divergence",
            "channel/hint_traces/divergence": "hint divergence on traces",
            "channel/replay/loss": "replay loss",
        },
    ),
    "entropy": ("Entropy of the policy", {"entropy": "entropy, nats"}),
    "kl": ("Distance to the reference", {"kl": "KL, nats"}),
    "gradient": ("Norm of the gradient", {"grad_norm": "gradient norm"}),
}

Lines = Mapping[str, Sequence[tuple[int, float]]]  # label -> (step, value)


@dataclass(frozen=True, slots=True)
class RunPlot:
    """One picture in both themes: `<name>-light.png` and `<name>-dark.png`."""

    name: str
    files: tuple[Path, ...]
    alt: str


def draw(history: Sequence[Mapping[str, Any]], folder: Path) -> list[RunPlot]:
    """Write every plot that the log has values for; none without matplotlib."""
    plots = []
    for name, (title, wanted) in _PLOTS.items():
        lines = {label: points for key, label in wanted.items() if len(points := series(history, key)) > 1}
        if lines and (plot := picture(name, title, lines, folder)) is not None:
            plots.append(plot)
    return plots


def picture(name: str, title: str, lines: Lines, folder: Path, *, unit: str = "step") -> RunPlot | None:
    """Write one plot of up to four lines; None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for theme, colors in THEMES.items():
        figure = Figure(figsize=(7, 3.6), dpi=120, facecolor=colors["paper"], layout="constrained")
        _paint(figure.add_subplot(facecolor=colors["paper"]), title, lines, colors, unit)
        path = folder / f"{name}-{theme}.png"
        # Without the library's version, the same values give the same bytes.
        figure.savefig(path, metadata={"Software": None})
        files.append(path)
    return RunPlot(name, tuple(files), _alt(title, lines, unit))


def series(history: Sequence[Mapping[str, Any]], key: str) -> list[tuple[int, float]]:
    """Return (step, value) of one metric."""
    return [(line["step"], float(line[key])) for line in history if isinstance(line.get(key), (int, float))]


def _paint(axes: Any, title: str, lines: Lines, colors: Mapping[str, str], unit: str) -> None:
    for (label, points), color in zip(lines.items(), (colors["first"], *_COLORS), strict=False):
        axes.plot([step for step, _ in points], [value for _, value in points], color=color, label=label)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_title(title, color=colors["ink"])
    axes.set_xlabel(unit, color=colors["ink"])
    axes.tick_params(colors=colors["ink"])
    axes.grid(color=colors["grid"])
    for side in axes.spines.values():
        side.set_color(colors["grid"])
    axes.legend(facecolor=colors["paper"], edgecolor=colors["grid"], labelcolor=colors["ink"], fontsize=8)


def _alt(title: str, lines: Lines, unit: str) -> str:
    ranges = "; ".join(
        f"{label} from {points[0][1]:.3g} at {unit} {points[0][0]} to {points[-1][1]:.3g} at {unit} {points[-1][0]}"
        for label, points in lines.items()
    )
    return f"{title}: {ranges}."
