"""The report of a pair set as tiles, plots and tables, the reviewers' agreement, and what changed since a version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inspector.markup import Html, h, number, words
from inspector.verdicts import Standing, agreement, states

Row = Mapping[str, Any]
_TILES = (
    ("pairs", "pairs"),
    ("pairs_per_trace", "pairs per trace"),
    ("krippendorff_alpha", "Krippendorff's alpha"),
    ("after_error", "share after an error"),
    ("length_auc", "AUC of length alone"),
    ("usd_per_pair", "$ per pair"),
)
_PLOTS = (
    ("votes", "Teachers that agree, of those whose vote counts", "steps"),
    ("steps_without_pair", "Steps without a pair, by reason", "steps"),
    ("tool_flip", "Tools that the teachers took instead", "pairs"),
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
    tiles = [_tile(label, headlines[name]) for name, label in _TILES if name in headlines]
    counts = manifest.get("counts") or {}
    if not tiles:
        tiles = [
            h("div", h("b", number(value)), h("span", words(name)), cls="tile")
            for name, value in counts.items()
            if isinstance(value, (int, float))
        ]
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
    named = [(words(kind) if kind else "no error", count) for kind, count in kinds]
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


def _tile(label: str, row: Row) -> Html:
    around = (
        f"95 %: {number(row['low'])} to {number(row['high'])}"
        if row["low"] is not None and row["high"] is not None
        else None
    )
    return h("div", h("b", number(row["value"])), h("span", label), h("small", around) if around else None, cls="tile")


def _lineage(manifest: Row) -> Html:
    parents = manifest.get("parents") or []
    shown = [
        h(
            "li",
            f"{parent.get('role', 'parent')}: ",
            h("b", parent.get("repo", "?")),
            f" {parent.get('tag') or parent.get('revision', '')[:10]}",
        )
        for parent in parents
        if isinstance(parent, Mapping)
    ]
    made = f"Published by composer_hub {manifest.get('composer_hub', '')}"
    return h("div", h("p", made, cls="quiet"), h("ul", shown, cls="plain") if shown else None)


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


def _teachers(report: Sequence[Row]) -> Html | None:
    cells = {(row["scope"], row["metric"]): row["value"] for row in report}
    teachers = [row["scope"] for row in report if row["metric"] == "calls"]
    columns = (
        ("calls", "calls"),
        ("latency_p50_s", "p50 s"),
        ("latency_p95_s", "p95 s"),
        ("usd_per_call", "mean $ per call"),
        ("usd", "total $"),
        ("cached_share", "cached"),
    )
    if not teachers:
        return None
    lines = [
        h(
            "tr",
            h("th", name, scope="row"),
            [h("td", number(cells.get((name, column))), cls="num") for column, _ in columns],
        )
        for name in teachers
    ]
    head = h("tr", h("th", "teacher", scope="col"), [h("th", title, scope="col", cls="num") for _, title in columns])
    return _table_card("Teachers", head, lines)


def _all_numbers(report: Sequence[Row]) -> Html | None:
    if not report:
        return None
    lines = [
        h(
            "tr",
            h("th", words(row["metric"]), scope="row"),
            h("td", row["scope"] or ""),
            h("td", number(row["value"]), cls="num"),
            h("td", f"{number(row['low'])} to {number(row['high'])}" if row["low"] is not None else "", cls="num"),
            h("td", number(row["n"]), cls="num"),
        )
        for row in sorted(report, key=lambda row: (row["metric"], -(row["value"] or 0)))
    ]
    names = ("metric", "of", "value", "95 %", "n")
    head = h("tr", [h("th", name, scope="col") for name in names])
    return h("details", h("summary", f"All {len(lines)} numbers of the report"), _table_card("", head, lines))


def _table_card(title: str, head: Html, lines: Sequence[Html]) -> Html:
    table = h("table", h("caption", title or "Report", cls="sr"), h("thead", head), h("tbody", lines))
    heading = h("h2", title) if title else None
    return h(
        "section",
        heading,
        h("div", table, cls="scroll", tabindex="0", role="region", aria_label=title or "Report"),
        cls="card",
    )


def review_card(standing: Standing) -> Html:
    """Return what reviewers have done: how many pairs, how far two reviewers agree, and which files do not count."""
    figures, reviewed = agreement(standing.rows), len(states(standing.rows))
    tiles = [
        h("div", h("b", f"{reviewed:,}"), h("span", "pairs reviewed"), cls="tile"),
        h("div", h("b", f"{standing.pending:,}"), h("span", "open pull requests with verdicts"), cls="tile"),
    ]
    if figures.get("n"):
        tiles.append(
            h(
                "div",
                h("b", f"{figures['agreement']:.0%}"),
                h("span", f"agreement of {figures['reviewers']} reviewers"),
                h("small", f"on {figures['n']:,} pairs that two or more reviewed, {figures['blind']:,} of them blind"),
                cls="tile",
            )
        )
        if figures.get("alpha") is not None:
            chance = "agreement beyond chance: 1 is full, 0 is chance"
            alpha = (h("b", f"{figures['alpha']:.2f}"), h("span", "Krippendorff's alpha"), h("small", chance))
            tiles.append(h("div", alpha, cls="tile"))
    refused = [h("li", str(file)) for file in standing.refused[:_MAX_REFUSED]]
    if len(standing.refused) > _MAX_REFUSED:
        refused.append(h("li", f"{len(standing.refused) - _MAX_REFUSED:,} more"))
    note = h("div", h("p", "These files of verdicts count for nobody:"), h("ul", refused)) if refused else None
    return h("section", h("h2", "Review"), h("div", tiles, cls="tiles"), note, cls="card review")
