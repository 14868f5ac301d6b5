"""The page around the views: header, tabs, search, panes and dialogs, with the first view already in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inspector.address import address
from inspector.elements import Html, h
from inspector.pair_index import FILTERS
from inspector.view_hints import FILTERS as HINT_FILTERS

VIEWS = (
    ("pairs", "Pairs"),
    ("hints", "Hints"),
    ("sessions", "Sessions"),
    ("runs", "Runs"),
    ("tasks", "Tasks"),
    ("overview", "Overview"),
)
ITEMS = {"pairs": "pair", "hints": "hint", "sessions": "session", "runs": "rollout", "tasks": "task"}
SEARCHES = {
    "pairs": ("q", "Search actions, repositories, ids"),
    "hints": ("hint_q", "Search messages and hints"),
    "sessions": ("session_q", "Search tasks, repositories, models"),
}
_FILTERS = {"pairs": FILTERS, "hints": HINT_FILTERS}
_STATIC = Path(__file__).parents[1] / "static"


@dataclass(frozen=True)
class Frame:
    """The parts that all views of a page share: the reader, the review and the server."""

    user: str
    sign_in: bool
    stamp: str
    hub: str
    blind: bool = True
    review_size: int = 60
    guidelines: Html | None = None


def page(
    place: Mapping[str, str],
    frame: Frame,
    *,
    list_: Html | None,
    detail: Html | None,
    datasets: Sequence[str] = (),
    versions: Sequence[str] = (),
    views: Sequence[str] = (),
) -> str:
    """Return the whole document."""
    view = place["view"]
    title = f"{place['dataset']} {place['revision']} · {dict(VIEWS)[view]}"
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("title", title),
        h("link", rel="stylesheet", href=f"static/space.css?{frame.stamp}"),
        h("link", rel="icon", href=f"static/icon.svg?{frame.stamp}", type="image/svg+xml"),
        h("script", Html(), src=f"static/space.js?{frame.stamp}", defer=True),
    )
    left = _left(place, list_) if list_ is not None else None
    body = h(
        "body",
        h("a", "Skip to the detail", href="#detail", cls="jump"),
        _header(place, datasets, versions, views, frame),
        h("div", cls="status", id="status", role="alert", hidden=True),
        h("main", left, h("div", detail, id="detail", tabindex="-1"), cls="panes" if left else "panes single"),
        h(
            "dialog",
            h("h2", "Guidelines", id="guidelines-title"),
            frame.guidelines,
            h("p", h("button", "Close", type="button", data_close=True), cls="end"),
            id="guidelines",
            aria_labelledby="guidelines-title",
        ),
        Html((_STATIC / "dialogs.html").read_text(encoding="utf-8")),
        data_view=view,
        data_parameter=ITEMS.get(view),
        data_filters=" ".join(name for name in _FILTERS.get(view, ()) if name != SEARCHES[view][0]),
        data_dataset=place["dataset"],
        data_revision=place["revision"],
        data_review_size=frame.review_size,
        cls="blind" if frame.blind else None,
    )
    return f"<!doctype html>\n{h('html', head, body, lang='en')}"


def _header(
    place: Mapping[str, str], datasets: Sequence[str], versions: Sequence[str], views: Sequence[str], frame: Frame
) -> Html:
    kept = {name: place[name] for name in ("dataset", "revision", "base") if place.get(name)}
    tabs = [
        h(
            "a",
            title,
            href=address(kept, view=name),
            aria_current="page" if name == place["view"] else None,
        )
        for name, title in VIEWS
        if name in views
    ]
    repo, revision = place["dataset"], place["revision"]
    where = f"{frame.hub}/datasets/{repo}/tree/{revision}"
    which = h("a", repo, href=where, target="_blank", rel="noopener", cls="repo", title="Open on the Hub")
    user, count = frame.user, h("span", "0", data_count=True)
    login = h("a", "Sign in", href="login/huggingface", target="_blank", cls="button")
    return h(
        "header",
        _button("←", "back", "Back to the list"),
        h("span", "composer", h("b", "hub"), cls="brand"),
        h("nav", tabs, cls="tabs", aria_label="Views"),
        h("div", h("progress", aria_label="Progress of the review"), h("span"), id="progress", hidden=True),
        h(
            "div",
            _select("dataset", "Dataset", datasets, repo) if len(datasets) > 1 else which,
            _select("revision", "Version", versions, revision),
            _select("base", "Compare with", ["", *versions], place.get("base", ""), "no comparison"),
            h("span", user, cls="who", title="Verdicts are submitted under this name") if user else None,
            h("button", "Guidelines", type="button", id="guidelines-button"),
            _button("◐", "theme", "Light or dark"),
            _button("?", "help-button", "Keys"),
            cls="which",
            id="which",
        ),
        login if frame.sign_in and not user else None,
        h("button", "Submit ", count, h("span", " verdicts"), type="button", id="submit", disabled=True, cls="primary"),
        _button("☰", "menu", "Menu", aria_expanded="false", aria_controls="which"),
        cls="bar",
    )


def _button(sign: str, id: str, label: str, **attributes: str) -> Html:
    return h("button", sign, type="button", id=id, title=label, aria_label=label, cls="icon", **attributes)


def _select(name: str, label: str, values: Sequence[str], chosen: str, empty: str = "") -> Html:
    known = list(values) if chosen in values or not chosen else [chosen, *values]
    options = [h("option", value or empty, value=value, selected=value == chosen) for value in known]
    return h("label", h("span", label, cls="sr"), h("select", options, name=name, data_place=True, title=label))


def _left(place: Mapping[str, str], list_: Html) -> Html:
    name, hint = SEARCHES.get(place["view"], ("", ""))
    form = None
    if name:
        field = {"placeholder": f"{hint}  ( / )", "aria_label": hint, "value": place.get(name), "maxlength": "200"}
        search = h("input", type="search", name=name, id="search", autocomplete="off", spellcheck="false", **field)
        title = h("summary", "Filters ", h("span", cls="active", data_active=True))
        panel = h("details", title, h("div", id="filters"), id="panel") if place["view"] != "sessions" else None
        form = h("form", search, panel, id="form", role="search")
    title = h("h1", dict(VIEWS)[place["view"]], cls="sr")  # a phone shows the list alone
    last = h("p", id="last", role="status")
    return h("section", title, form, last, h("div", list_, id="list"), cls="side", aria_label="List")


def message(title: str, text: str) -> Html:
    """Return a detail that is a message."""
    return h("article", h("div", h("h1", title), h("p", text), cls="empty"), aria_label=title)
