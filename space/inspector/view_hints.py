"""Error sites and their hints: a trace set in, the list by kind, blame and writer, and one site in its prompt out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inspector.address import address
from inspector.library import Dataset, Library
from inspector.markup import Html, badge, block, h, words
from inspector.messages import conversation, message_view

Row = Mapping[str, Any]
Place = Mapping[str, str]
PAGE = 50
WINDOW = 4
_FILTERS = ("kind", "blame", "writer", "hint_q")
_TABLE = """
    select step_id || ':' || number as id, step_id, trace_id, step, model, site.kind as kind, site.blame as blame,
           site.rule as rule, site.tool as tool, site.call_id as call_id, coalesce(site.message, '') as message,
           coalesce(hint.writer, 'no hint') as writer, coalesce(hint.text, '') as text
    from (
        select *, list_filter(hints, lambda one: one.call_id = site.call_id and one.kind = site.kind)[1] as hint
        from (
            select step_id, trace_id, "index"::int as step, model, hints,
                   unnest(error_sites) as site, generate_subscripts(error_sites, 1) as number
            from read_parquet([{files}]) where len(error_sites) > 0
        )
    )
"""


@dataclass
class SiteTable:
    """Every error site of a trace set, in memory; built when the view is first opened."""

    library: Library
    name: str

    @classmethod
    def of(cls, library: Library, dataset: Dataset) -> SiteTable:
        """Read the sites of a dataset once."""

        def make() -> SiteTable:
            name = f'"sites_{dataset.key}"'
            files = ", ".join("'" + path.replace("'", "''") + "'" for path in dataset.files("steps"))
            library.query(f"create or replace table {name} as {_TABLE.format(files=files)}")
            return cls(library, name)

        return dataset.once("sites", make)

    def drop(self) -> None:
        """Free the memory."""
        self.library.query(f"drop table if exists {self.name}")

    def where(self, place: Place) -> tuple[str, list[str]]:
        """Return the condition of the filters in the URL."""
        clauses, values = ["true"], []
        for name in ("kind", "blame", "writer"):
            if place.get(name):
                clauses.append(f"{name} = ?")
                values.append(place[name][:200])
        if place.get("hint_q"):
            text = place["hint_q"][:200].lower()
            clauses.append("(contains(lower(message), ?) or contains(lower(text), ?))")
            values += [text, text]
        return " and ".join(clauses), values

    def page(self, place: Place) -> tuple[list[dict[str, Any]], int, int]:
        """Return a page of sites, the number of all that pass, and the page's number."""
        where, values = self.where(place)
        total = self.library.query(f"select count(*) from {self.name} where {where}", values)[0][0]
        asked = place.get("page", "")
        at = min(
            int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 9 else 0, max(0, (total - 1) // PAGE)
        )
        order = "order by (blame <> 'model'), (writer = 'no hint'), trace_id, step, id"
        rows = self.library.rows(
            f"select * from {self.name} where {where} {order} limit {PAGE} offset ?", [*values, at * PAGE]
        )
        return rows, total, at

    def row(self, id: str) -> dict[str, Any] | None:
        """Return one site."""
        rows = self.library.rows(f"select * from {self.name} where id = ?", [id])
        return rows[0] if rows else None

    def counts(self) -> list[tuple[str, str, str, int]]:
        """Return how many sites there are by kind, blame and writer."""
        return self.library.query(  # type: ignore[return-value]
            f"select kind, blame, writer, count(*) as num from {self.name} group by all order by num desc, kind, writer"
        )


def hint_list(rows: Sequence[Row], total: int, at: int, place: Place, current: str) -> Html:
    """Return a page of error sites."""
    count = h("p", f"{total:,} error sites", cls="count", role="status")
    if not rows:
        kept = {name: value for name, value in place.items() if name not in (*_FILTERS, "page", "hint")}
        clear = h("a", "Clear the filters", href=address(kept), data_go=True, cls="button")
        return h("div", count, h("div", h("p", "No error site passes these filters."), clear, cls="empty"))
    items = [_item(row, place, current) for row in rows]
    last = max(0, (total - 1) // PAGE)
    nav = None
    if last:
        links = [
            h("a", label, href=address(place, page=to or None, hint=None), data_go=True, cls="button")
            for label, to in (("← Previous", at - 1), ("Next →", at + 1))
            if 0 <= to <= last
        ]
        nav = h("nav", links, h("span", f"page {at + 1} of {last + 1}", cls="quiet"), cls="pager", aria_label="Pages")
    return h("div", count, h("ol", items, cls="rows", start=at * PAGE + 1), nav)


def _item(row: Row, place: Place, current: str) -> Html:
    labels = [
        badge(words(row["kind"]), "bad"),
        badge(f"blame: {row['blame']}", "" if row["blame"] == "model" else "warn"),
        badge(row["writer"], "info" if row["text"] else ""),
        h("span", cls="draft", data_draft=row["id"]),
    ]
    link = h(
        "a",
        h("span", labels, cls="labels"),
        h("span", h("b", row["tool"] or "text"), " ", row["message"][:140], cls="line"),
        h("span", row["text"][:140], cls="line ins") if row["text"] else None,
        h("span", f"{row['model']} · step {row['step'] + 1}", cls="quiet small"),
        href=address(place, hint=row["id"]),
        data_item=row["id"],
        aria_current="true" if row["id"] == current else None,
    )
    return h("li", link)


def hint_filters(counts: Sequence[tuple[str, str, str, int]], place: Place) -> Html:
    """Return the controls of the filter panel."""
    fields = []
    for at, name in enumerate(("kind", "blame", "writer")):
        counted: Counter[str] = Counter()
        for row in counts:
            counted[row[at]] += row[3]  # type: ignore[literal-required]
        options = [h("option", "any", value="")]
        options += [
            h("option", f"{words(value)} ({count:,})", value=value, selected=value == place.get(name))
            for value, count in counted.most_common()
        ]
        fields.append(h("label", h("span", name.capitalize()), h("select", options, name=name)))
    return h("div", fields, cls="fields")


def hint_summary(counts: Sequence[tuple[str, str, str, int]]) -> Html:
    """Return coverage and a table of sites by kind."""
    model = [row for row in counts if row[1] == "model"]
    total, hinted = sum(row[3] for row in model), sum(row[3] for row in model if row[2] != "no hint")
    share = f"{hinted / total:.0%}" if total else "-"
    lines = [
        h("tr", h("th", words(kind), scope="row"), h("td", blame), h("td", writer), h("td", f"{count:,}", cls="num"))
        for kind, blame, writer, count in counts
    ]
    head = h(
        "tr",
        [
            h("th", name, scope="col", cls="num" if name == "sites" else None)
            for name in ("kind", "blame", "hint by", "sites")
        ],
    )
    table = h(
        "table", h("caption", "Error sites by kind, blame and writer", cls="sr"), h("thead", head), h("tbody", lines)
    )
    tiles = [
        ("error sites", f"{sum(row[3] for row in counts):,}"),
        ("blamed on the model", f"{total:,}"),
        ("of these with a hint", f"{hinted:,} ({share})"),
    ]
    return h(
        "article",
        h("header", h("h1", "Hints"), cls="head"),
        h("div", [h("div", h("b", value), h("span", name), cls="tile") for name, value in tiles], cls="tiles"),
        h("section", h("div", table, cls="scroll", tabindex="0", role="region", aria_label="Counts"), cls="card"),
        aria_label="Hint counts",
    )


def hint_detail(site: Row, trace: Row | None, place: Place, verdicts: Sequence[Row] = ()) -> Html:
    """Return one site: the prompt with and without the hint, what the model did, and what came back."""
    labels = [
        badge(words(site["kind"]), "bad"),
        badge(f"blame: {site['blame']}"),
        badge(f"rule: {site['rule']}"),
        badge(f"hint by {site['writer']}" if site["text"] else "no hint", "info"),
    ]
    link = h(
        "a",
        site["id"],
        href=address({key: place[key] for key in ("dataset", "revision", "view") if key in place}, hint=site["id"]),
        cls="id",
    )
    parts: list[Any] = [
        h(
            "header",
            h("h1", "Error site ", link),
            h("p", labels, cls="labels"),
            h("p", f"{site['model']}, step {site['step'] + 1} of trace {site['trace_id']}", cls="quiet"),
            cls="head",
        ),
        _bar(verdicts),
    ]
    step = next((one for one in (trace or {}).get("steps") or [] if one["index"] == site["step"]), None)
    if trace is None or step is None:
        parts.append(h("p", "The trace of this site is not published.", cls="card"))
        parts.append(h("section", h("h2", "Hint"), _hint(site), cls="card"))
    else:
        parts += _in_place(site, trace, step, place)
    return h(
        "article",
        parts,
        data_hint=site["id"],
        data_step=site["step_id"],
        data_trace=site["trace_id"],
        aria_label="Error site",
    )


def _bar(verdicts: Sequence[Row]) -> Html:
    buttons = [
        h("button", label, " ", h("kbd", key), type="button", data_verdict=name, title=title)
        for name, label, key, title in (
            ("good_hint", "Good hint", "a", "Kind, blame and hint are right"),
            ("bad_hint", "Bad hint", "h", "The hint would not have helped"),
            ("wrong_blame", "Wrong blame", "b", "The model was not at fault, or something else was"),
            ("skip", "Skip", "x", "Decide nothing and move on"),
            ("undo", "Undo", "u", "Take the last decision back"),
        )
    ]
    said = [h("li", h("b", row["reviewer"]), " ", words(row["verdict"])) for row in verdicts]
    others = (
        h("div", h("p", "Other verdicts"), h("ul", said), cls="others", hidden=True, data_others=True) if said else None
    )
    note = h(
        "input",
        type="text",
        maxlength="500",
        placeholder="Note (optional)",
        aria_label="Note on this hint",
        data_note=True,
    )
    return h(
        "div",
        h("div", buttons, cls="buttons", role="group", aria_label="Verdict"),
        note,
        h("span", cls="decided", role="status", data_decided=True),
        others,
        cls="verdict",
    )


def _in_place(site: Row, trace: Row, step: Row, place: Place) -> list[Html]:
    messages = trace["messages"]
    prompt = [messages[at] for start, stop in step["prompt"] for at in range(start, min(stop, len(messages)))]
    first = max(0, len(prompt) - WINDOW)
    more = address(
        {name: place[name] for name in ("dataset", "revision", "view") if name in place},
        "text",
        hint=site["id"],
        part="prompt",
    )
    whole = h("button", f"Show the first {first} messages", type="button", data_earlier=more) if first else None
    window = f"The last {len(prompt) - first} of {len(prompt)} messages." if first else f"All {len(prompt)} messages."
    results = [messages[at] for at in step["results"] if at < len(messages)]
    after = next((one for one in trace["steps"] if one["index"] == step["index"] + 1), None)
    toggle = h(
        "div",
        h("button", "Teacher's prompt, with the hint", type="button", data_prompt="teacher", aria_pressed="true"),
        h("button", "Student's prompt", type="button", data_prompt="student", aria_pressed="false"),
        h("kbd", "t"),
        cls="toggle",
        role="group",
        aria_label="Prompt",
    )
    inserted = h(
        "div",
        h("p", "▸ hint inserted here, as a user message before the answer", cls="marker"),
        _hint(site),
        cls="inserted",
    )
    return [
        h(
            "section",
            h("h2", "The prompt"),
            toggle,
            h("p", window, " ", whole, cls="quiet"),
            h("div", cls="earlier"),
            conversation(prompt[first:], first, more),
            inserted if site["text"] else None,
            cls="card prompt",
        ),
        h(
            "section",
            h("h2", "What the model did"),
            message_view(messages[step["action"]]),
            h("h3", "What came back"),
            conversation(results) if results else h("p", "Nothing.", cls="quiet"),
            cls="card",
        ),
        h(
            "section",
            h("h2", "What it did next"),
            message_view(messages[after["action"]]) if after else h("p", "The session ends here.", cls="quiet"),
            cls="card",
        ),
    ]


def _hint(site: Row) -> Html:
    if not site["text"]:
        return h("p", "No writer had a hint for this site.", cls="quiet")
    return h("blockquote", block(site["text"]), h("footer", f"hint by {site['writer']}"), cls="hint")
