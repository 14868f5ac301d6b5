"""The report of a pair set as tiles, plots and tables, the reviewers' agreement, and what changed since a version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inspector.elements import Html, h
from inspector.markup import number, words
from inspector.parts import card, table, tile
from inspector.verdicts import Standing, agreement, states
from inspector.vocabulary import kind_words

Row = Mapping[str, Any]
_TILES = (
    ("pairs", "pairs", ""),
    ("pairs_per_trace", "pairs per trace", ""),
    ("fleiss_kappa", "Fleiss' kappa", "teachers that use the same tools, beyond chance: 1 is full, 0 is chance"),
    ("after_error", "share after an error", ""),
    ("length_auc", "AUC of length alone", "0.5: the length of an action does not tell which one was chosen"),
    ("usd_per_pair", "$ per pair", ""),
)
_PLOTS = (
    ("votes", "Teachers that agree, of those whose vote counts", "steps"),
    ("steps_without_pair", "Steps without a pair, by reason", "steps"),
)
_MAX_BARS = 12
_MAX_REFUSED = 20
_BAR, _GAP, _LABEL, _WIDTH = 18, 6, 230, 640


def overview(
    title: str,
    manifest: Row,
    report: Sequence[Row],
    agreement: Html | None,
    changes: Html | None,
    kinds: Sequence[tuple[str, int]],
) -> Html:
    """Return the whole page."""
    headlines = {row["metric"]: row for row in reversed(report) if " " not in (row["scope"] or "")}
    tiles = [_tile(label, meaning, headlines[name]) for name, label, meaning in _TILES if name in headlines]
    counts = manifest.get("counts") or {}
    if not tiles:
        tiles = [tile(number(value), words(name)) for name, value in counts.items() if isinstance(value, (int, float))]
    plots = [
        plot
        for name, heading, unit in _PLOTS
        if (
            plot := _plot(
                heading,
                unit,
                [(row["scope"], row["value"]) for row in report if row["metric"] == name and row["value"] is not None],
            )
        )
    ]
    named = [(kind_words(kind) if kind else "no error", count) for kind, count in kinds]
    if named:
        plots.insert(0, _plot("Pairs by error kind", "pairs", named))
    return h(
        "article",
        h("header", h("h1", title), _lineage(manifest), cls="head"),
        h("div", tiles, cls="tiles"),
        changes,
        agreement,
        h("div", plots, cls="plots") if plots else None,
        _teachers(report),
        _all_numbers(report),
        aria_label="Overview",
    )


def _tile(label: str, meaning: str, row: Row) -> Html:
    known = row["low"] is not None and row["high"] is not None
    spread = f"95 %: {number(row['low'])} to {number(row['high'])}" if known else ""
    return tile(number(row["value"]), label, " · ".join(filter(None, (meaning, spread))))


def _lineage(manifest: Row) -> Html:
    parents = manifest.get("parents") or []
    shown = [
        h("li", f"{one.get('role', 'parent')}: ", h("b", one.get("repo", "?")), f" {_version(one)}")
        for one in parents
        if isinstance(one, Mapping)
    ]
    made = f"Published by composer_hub {manifest.get('composer_hub', '')}"
    return h("div", h("p", made, cls="quiet"), h("ul", shown, cls="plain") if shown else None)


def _version(parent: Row) -> str:
    return str(parent.get("tag") or parent.get("revision", "")[:10])


def _plot(title: str, unit: str, values: Sequence[tuple[str, float]]) -> Html | None:
    """Return a bar chart, the largest bar first, with its numbers as text."""
    bars = sorted(values, key=lambda one: -one[1])
    if not bars:
        return None
    rest = len(bars) - _MAX_BARS
    bars = bars[:_MAX_BARS]
    top = max(value for _, value in bars) or 1
    drawn = []
    for at, (name, value) in enumerate(bars):
        y = at * (_BAR + _GAP)
        width = max(1.0, value / top * (_WIDTH - _LABEL - 70))
        drawn += [
            h("text", _cut(words(name)), x=_LABEL - 8, y=y + 14, text_anchor="end"),
            h("rect", x=_LABEL, y=y, width=f"{width:.1f}", height=_BAR, rx=3),
            h("text", number(value), x=f"{_LABEL + width + 6:.1f}", y=y + 14, cls="value"),
        ]
    height = len(bars) * (_BAR + _GAP)
    alt = f"{title}, in {unit}: " + ", ".join(f"{name} {number(value)}" for name, value in bars)
    chart = h("svg", drawn, viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=alt)
    more = h("p", f"{rest} smaller ones are not drawn.", cls="quiet") if rest > 0 else None
    return h("figure", h("figcaption", title), chart, more, cls="card")


def _cut(text: str, limit: int = 34) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


_TEACHER_COLUMNS = {
    "calls": "calls",
    "p50 s": "latency_p50_s",
    "p95 s": "latency_p95_s",
    "mean $ per call": "usd_per_call",
    "total $": "usd",
    "cached": "cached_share",
}


def _teachers(report: Sequence[Row]) -> Html | None:
    cells = {(row["scope"], row["metric"]): row["value"] for row in report}
    teachers = [row["scope"] for row in report if row["metric"] == "calls"]
    rows = [(name, *(number(cells.get((name, column))) for column in _TEACHER_COLUMNS.values())) for name in teachers]
    shown = table("Teachers", ("teacher", *_TEACHER_COLUMNS), rows, _TEACHER_COLUMNS)
    return card("Teachers", shown) if rows else None


def _all_numbers(report: Sequence[Row]) -> Html | None:
    rows = [
        (
            words(row["metric"]),
            row["scope"] or "",
            number(row["value"]),
            f"{number(row['low'])} to {number(row['high'])}" if row["low"] is not None else "",
            number(row["n"]),
        )
        for row in sorted(report, key=lambda row: (row["metric"], -(row["value"] or 0)))
    ]
    shown = table("Report", ("metric", "of", "value", "95 %", "n"), rows, {"value", "95 %", "n"})
    return h("details", h("summary", f"All {len(rows)} numbers of the report"), card("", shown)) if rows else None


def review_card(standing: Standing) -> Html:
    """Return the reviewers' work: the number of pairs, how far two reviewers agree, and refused files."""
    figures, reviewed = agreement(standing.rows), len(states(standing.rows))
    tiles = [
        tile(f"{reviewed:,}", "pairs reviewed"),
        tile(f"{standing.pending:,}", "open pull requests with verdicts"),
    ]
    if figures.get("n"):
        note = f"on {figures['n']:,} pairs that two or more reviewed, {figures['blind']:,} of them blind"
        tiles.append(tile(f"{figures['agreement']:.0%}", f"agreement of {figures['reviewers']} reviewers", note))
        if figures.get("alpha") is not None:
            chance = "agreement beyond chance: 1 is full, 0 is chance"
            tiles.append(tile(f"{figures['alpha']:.2f}", "Krippendorff's alpha", chance))
    refused = [h("li", str(file)) for file in standing.refused[:_MAX_REFUSED]]
    if len(standing.refused) > _MAX_REFUSED:
        refused.append(h("li", f"{len(standing.refused) - _MAX_REFUSED:,} more"))
    note = h("div", h("p", "These files of verdicts count for nobody:"), h("ul", refused)) if refused else None
    return card("Review", h("div", tiles, cls="tiles"), note, cls="review")
