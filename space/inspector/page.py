"""The page around the views: header, tabs, search, panes and dialogs, with the first view already in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inspector.address import address
from inspector.markup import Html, h

VIEWS = (("pairs", "Pairs"), ("hints", "Hints"), ("runs", "Runs"), ("tasks", "Tasks"), ("overview", "Overview"))
ITEMS = {"pairs": "pair", "hints": "hint", "runs": "rollout", "tasks": "task"}
SEARCHES = {"pairs": ("q", "Search actions, repositories, ids"), "hints": ("hint_q", "Search messages and hints")}
_KEYS = (
    ("j / k", "next / previous"),
    ("a", "accept the pair (or: good hint)"),
    ("r", "reject the pair"),
    ("e", "edit the chosen action"),
    ("s", "swap: the student was right"),
    ("h / b", "bad hint / wrong blame"),
    ("x", "skip"),
    ("u", "undo the last decision"),
    ("t", "teacher's or student's prompt"),
    ("n", "write a note"),
    ("f", "filters"),
    ("/", "search"),
    ("?", "this help"),
)


def page(
    place: Mapping[str, str],
    *,
    list_: Html | None,
    detail: Html | None,
    datasets: Sequence[str],
    versions: Sequence[str],
    views: Sequence[str],
    user: str,
    sign_in: bool,
    stamp: str,
    hub: str,
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
        h("link", rel="stylesheet", href=f"static/space.css?{stamp}"),
        h("link", rel="icon", href=f"static/icon.svg?{stamp}", type="image/svg+xml"),
        h("script", Html(), src=f"static/space.js?{stamp}", defer=True),
    )
    body = h(
        "body",
        h("a", "Skip to the detail", href="#detail", cls="jump"),
        _header(place, datasets, versions, views, user, sign_in, hub),
        h("div", cls="status", id="status", role="alert", hidden=True),
        h(
            "main",
            _left(place, list_) if list_ is not None else None,
            h("div", detail, id="detail", tabindex="-1"),
            cls="panes" if list_ is not None else "panes single",
        ),
        _help(),
        _editor(),
        _submission(),
        data_view=view,
        data_parameter=ITEMS.get(view),
        data_dataset=place["dataset"],
        data_revision=place["revision"],
    )
    return f"<!doctype html>\n{h('html', head, body, lang='en')}"


def _header(
    place: Mapping[str, str],
    datasets: Sequence[str],
    versions: Sequence[str],
    views: Sequence[str],
    user: str,
    sign_in: bool,
    hub: str,
) -> Html:
    kept = {name: place[name] for name in ("dataset", "revision", "base") if place.get(name)}
    tabs = [
        h(
            "a",
            title,
            href=address(kept, view=name),
            aria_current="page" if name == place["view"] else None,
            data_tab=True,
        )
        for name, title in VIEWS
        if name in views
    ]
    repo, revision = place["dataset"], place["revision"]
    picker = (
        _select("dataset", "Dataset", datasets, repo)
        if len(datasets) > 1
        else h(
            "a",
            repo,
            href=f"{hub}/datasets/{repo}/tree/{revision}",
            target="_blank",
            rel="noopener",
            cls="repo",
            title="Open on the Hub",
        )
    )
    who = h("span", user, cls="who", title="Verdicts are submitted under this name") if user else None
    login = h("a", "Sign in", href="login/huggingface", target="_blank", cls="button") if sign_in and not user else None
    return h(
        "header",
        h(
            "div",
            h("button", "←", type="button", id="back", title="Back to the list", aria_label="Back to the list"),
            h("span", "composer", h("b", "hub"), cls="brand"),
            picker,
            _select("revision", "Version", versions, revision),
            _select("base", "Compare with", ["", *versions], place.get("base", ""), "no comparison"),
            cls="which",
        ),
        h("nav", tabs, cls="tabs", aria_label="Views"),
        h(
            "div",
            who,
            login,
            h(
                "button",
                "Submit",
                " ",
                h("span", "0", data_count=True),
                " verdicts",
                type="button",
                id="submit",
                disabled=True,
                cls="primary",
            ),
            h("button", "◐", type="button", id="theme", title="Light or dark", aria_label="Light or dark"),
            h("button", "?", type="button", id="help-button", title="Keys", aria_label="Keyboard help"),
            cls="tools",
        ),
        cls="bar",
    )


def _select(name: str, label: str, values: Sequence[str], chosen: str, empty: str = "") -> Html:
    known = list(values) if chosen in values or not chosen else [chosen, *values]
    options = [h("option", value or empty, value=value, selected=value == chosen) for value in known]
    return h("label", h("span", label, cls="sr"), h("select", options, name=name, data_place=True, title=label))


def _left(place: Mapping[str, str], list_: Html) -> Html:
    name, hint = SEARCHES.get(place["view"], ("", ""))
    search = panel = None
    if name:
        search = h(
            "input",
            type="search",
            name=name,
            id="search",
            placeholder=f"{hint}  ( / )",
            aria_label=hint,
            value=place.get(name),
            maxlength="200",
            autocomplete="off",
            spellcheck="false",
        )
        panel = h(
            "details",
            h("summary", "Filters ", h("span", cls="active", data_active=True)),
            h("div", id="filters"),
            id="panel",
        )
    form = h("form", search, panel, id="form", role="search") if name else None
    return h("section", form, h("div", list_, id="list"), cls="side", aria_label="List")


def _dialog(id: str, title: str, *children: object) -> Html:
    close = h("button", "Close", type="button", data_close=True)
    return h(
        "dialog",
        h("h2", title, id=f"{id}-title"),
        *children,
        h("p", close, cls="end"),
        id=id,
        aria_labelledby=f"{id}-title",
    )


def _help() -> Html:
    keys = h(
        "dl",
        [
            h(
                "div",
                h("dt", [h("kbd", one) for one in keys.split(" / ")]) if keys != "/" else h("dt", h("kbd", "/")),
                h("dd", text),
            )
            for keys, text in _KEYS
        ],
        cls="keys",
    )
    switch = h("label", h("input", type="checkbox", id="keys-on", checked=True), " Keyboard shortcuts are on")
    about = h(
        "p",
        "Drafts stay in this browser until you submit them. A submission is one pull request on the dataset.",
        cls="quiet",
    )
    return _dialog("help", "Keys", keys, switch, about)


def _editor() -> Html:
    box = h("textarea", Html(), id="edited", rows="16", spellcheck="false", aria_label="Calls as JSON")
    text = h(
        "p", "The action that should be preferred: a JSON list of calls, each with a name and arguments.", cls="quiet"
    )
    save = h("button", "Save the edit", type="button", id="save-edit", cls="primary")
    return _dialog(
        "editor", "Edit the chosen action", text, box, h("p", id="edit-error", cls="wrong", role="alert"), save
    )


def _submission() -> Html:
    send = h("button", "Open the pull request", type="button", id="send", cls="primary")
    return _dialog("submission", "Submit verdicts", h("div", id="drafts"), h("p", id="sent", role="status"), send)


def message(title: str, text: str) -> Html:
    """Return a detail that is a message."""
    return h("article", h("div", h("h1", title), h("p", text), cls="empty"), aria_label=title)
