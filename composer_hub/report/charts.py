"""Charts as inline SVG, without inline styles, so that the page can forbid them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from composer_hub.errors.vocabulary import BLAMES
from composer_hub.local_hub.elements import esc
from composer_hub.report.numbers import MIN_RATE, CallGroup


def bar(share: float, kind: str, label: str) -> str:
    """Return a horizontal bar that fills a share of its cell."""
    width = max(0.6, 100 * min(share, 1.0)) if share > 0 else 0
    return (
        f'<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{esc(label)}">'
        '<rect class="calm" width="100" height="8" rx="1"/>'
        f'<rect class="{kind}" width="{width:.2f}" height="8" rx="1"/></svg>'
    )


def stack(counts: Mapping[str, float], label: str) -> str:
    """Return one bar in the colors of the blames."""
    total = sum(counts.values()) or 1
    parts, left = [], 0.0
    for blame in BLAMES:
        width = 100 * counts.get(blame, 0) / total
        if width:
            parts.append(f'<rect class="{blame}" x="{left:.2f}" width="{max(width - 0.25, 0.2):.2f}" height="14"/>')
        left += width
    return (
        f'<svg class="stack" viewBox="0 0 100 14" preserveAspectRatio="none" role="img" aria-label="{esc(label)}">'
        f"{''.join(parts)}</svg>"
    )


def weeks(groups: Sequence[CallGroup], names: Mapping[str, str]) -> str:
    """Return columns of failures per 100 calls, by blame; a week with few calls shows only how many it had."""
    width, height, floor = 560, 184, 132
    step = width / max(len(groups), 1)
    column = min(step * 0.62, 46)
    peak = max((_rate(group, sum(group.failures.values())) for group in groups), default=0) or 1
    parts = [f'<line class="axis" x1="0" x2="{width}" y1="{floor}" y2="{floor}"/>']
    every = -(-len(groups) // 8)  # a phone has room for eight dates
    for number, group in enumerate(groups):
        left = number * step + (step - column) / 2
        middle, top = left + column / 2, float(floor)
        title = f"{names[group.name]}: {group.num_calls:,} calls, {group.failures['model']:,} failed by the model"
        parts.append(f"<g><title>{esc(title)}</title>")
        if group.num_calls >= MIN_RATE:
            for blame in BLAMES:
                tall = 118 * _rate(group, group.failures[blame]) / peak
                top -= tall
                if tall > 0:
                    parts.append(
                        f'<rect class="{blame}" x="{left:.1f}" y="{top:.1f}" width="{column:.1f}" height="{tall:.1f}"/>'
                    )
            rate = f"{_rate(group, group.failures['model']):.1f}"
            parts.append(f'<text class="own" x="{middle:.1f}" y="{floor + 42}" text-anchor="middle">{rate}</text>')
        else:
            parts.append(
                f'<rect class="calm" x="{left:.1f}" y="{floor - 4}" width="{column:.1f}" height="4"/>'
                f'<text x="{middle:.1f}" y="{floor - 10}" text-anchor="middle">few</text>'
            )
        if number % every == 0:
            label = esc(names[group.name])
            middle = min(max(middle, 28), width - 28)  # a date is wider than its column
            parts.append(f'<text x="{middle:.1f}" y="{floor + 20}" text-anchor="middle">{label}</text>')
        parts.append("</g>")
    return (
        f'<svg class="week" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Failures per 100 calls by week">{"".join(parts)}</svg>'
    )


def _rate(group: CallGroup, count: int) -> float:
    return 100 * count / group.num_calls if group.num_calls >= MIN_RATE else 0.0
