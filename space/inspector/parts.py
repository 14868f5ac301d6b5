"""The parts that every view is made of: cards, facts, tables, lists with pages, and the bar of a decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from inspector.address import address
from inspector.elements import Html, h
from inspector.markup import badge, short, words
from inspector.vocabulary import blame_words, kind_words

Row = Mapping[str, Any]
Place = Mapping[str, str]


def card(title: Any, *children: Any, cls: str = "") -> Html:
    """Return a section with a heading."""
    return h("section", h("h2", title) if title else None, *children, cls=f"card {cls}".strip())


def facts(pairs: Iterable[tuple[str, Any]]) -> Html:
    """Return names and values in a line; a value of None or "" is left out."""
    shown = [h("div", h("dt", name), h("dd", short(value))) for name, value in pairs if value not in (None, "")]
    return h("dl", shown, cls="facts")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 session, 2,000 sessions."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def error_badge(kind: str, blame: str) -> Html:
    """Return a label for an error, in red if it was the agent's own fault."""
    return badge(kind_words(kind), "bad" if blame == "model" else "warn", blame_words(blame))


def tile(value: str, label: str, note: str = "") -> Html:
    """Return one large number with its name."""
    return h("div", h("b", value), h("span", label), h("small", note) if note else None, cls="tile")


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Collection[str] = ()) -> Html:
    """Return a table that scrolls in its own box; the first cell of a row names the row."""
    kinds = ["num" if name in numbers else None for name in columns]
    head = h("tr", [h("th", name, scope="col", cls=kind) for name, kind in zip(columns, kinds, strict=True)])
    lines = [
        h(
            "tr",
            h("th", short(row[0]), scope="row"),
            [h("td", short(cell), cls=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)],
        )
        for row in rows
    ]
    shown = h("table", h("caption", caption, cls="sr"), h("thead", head), h("tbody", lines))
    return h("div", shown, cls="scroll", tabindex="0", role="region", aria_label=caption)


def item(place: Place, parameter: str, id: str, labels: Any, *lines: Any, current: str) -> Html:
    """Return one entry of a list: labels, then lines, as a link to its detail."""
    link = h(
        "a",
        h("span", labels, cls="labels"),
        *lines,
        href=address(place, **{parameter: id}),
        data_item=id,
        aria_current="true" if id == current else None,
    )
    return h("li", link)


def line(text: Any, kind: str = "") -> Html:
    """Return one line of an entry, cut to the width of the list."""
    return h("span", short(text), cls=f"line {kind}".strip())


def where(text: Any) -> Html:
    """Return the last line of an entry: its origin."""
    return h("span", short(text), cls="quiet small")


def listing(
    count: str, items: Sequence[Any], pager: Html | None = None, empty: Html | None = None, **data: Any
) -> Html:
    """Return a list with the number of its entries above it and its pages below it."""
    shown = h("ol", items, cls="rows") if items else empty
    return h("div", h("p", count, cls="count", role="status"), shown, pager, **data)


def cleared(text: str, place: Place, keep: Collection[str] = ("dataset", "revision", "base", "view")) -> Html:
    """Return the place of a list that its filters have emptied, with a way out."""
    kept = {name: value for name, value in place.items() if name in keep}
    link = h("a", "Clear the filters", href=address(kept), data_go=True, cls="button")
    return h("div", h("p", text), link, cls="empty")


def pager(number: int, total: int, size: int, place: Place, parameter: str) -> Html | None:
    """Return the links to the pages before and after, if there is more than one page."""
    last = max(0, (total - 1) // size)
    if not last:
        return None

    def step(label: str, to: int, rel: str) -> Html:
        if not 0 <= to <= last:
            return h("span", label, cls="button off", aria_hidden="true")
        changes = {"page": to or None, parameter: None}
        return h("a", label, href=address(place, **changes), data_go=True, rel=rel, cls="button")

    middle = h("span", f"page {number + 1:,} of {last + 1:,}", cls="quiet")
    both = step("← Previous", number - 1, "prev"), middle, step("Next →", number + 1, "next")
    return h("nav", both, cls="pager", aria_label="Pages")


def verdict_bar(
    choices: Sequence[tuple[str, str, str, str]], noun: str, verdicts: Sequence[Row], *more: Html | None
) -> Html:
    """Return the buttons of a decision (name, label, key, title); others' verdicts are hidden until one decides."""
    buttons = [
        h("button", label, " ", h("kbd", key), type="button", data_verdict=name, title=title, cls=name)
        for name, label, key, title in choices
    ]
    items = [
        h("li", h("b", row["reviewer"]), " ", words(row["verdict"]), f": {row['note']}" if row.get("note") else "")
        for row in verdicts
    ]
    others = h("div", h("p", "Other verdicts"), h("ul", items), cls="others", hidden=True, data_others=True)
    label = f"Note on this {noun}"
    note = h("input", type="text", maxlength="500", placeholder="Note (n)", aria_label=label, data_note=True)
    unfold = h("button", "⋯", type="button", data_unfold=True, aria_expanded="false", aria_label="Note and more")
    group = h("div", buttons, unfold, cls="buttons", role="group", aria_label="Verdict")
    decided = h("span", cls="decided", role="status", data_decided=True)
    rest = h("div", more, note, cls="more-verdict")
    return h("div", group, decided, rest, others if items else None, cls="verdict")


def choice(
    name: str, label: str, values: Sequence[tuple[str, int]], chosen: str, say: Callable[[str], str] = words
) -> Html:
    """Return a filter: the values that there are with their counts; its name is its parameter in the address."""
    listed = [(value or "none", f"{say(value) or 'none'} ({count:,})") for value, count in values if len(value) <= 300]
    if chosen and chosen not in dict(listed):
        listed.append((chosen, chosen))
    options = [h("option", text, value=value, selected=value == chosen) for value, text in [("", "any"), *listed]]
    return h("label", h("span", label), h("select", options, name=name))
