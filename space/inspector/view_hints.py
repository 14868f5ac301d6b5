"""Error sites and their hints: a trace set in, the list by kind, blame and writer, and one site in its prompt out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from inspector.address import address, whole
from inspector.elements import Html, h
from inspector.library import PAGE, Dataset, ListTable, SpaceLibrary
from inspector.markup import badge, block, short
from inspector.messages import conversation, message_view
from inspector.parts import (
    card,
    choice,
    cleared,
    counted,
    error_badge,
    item,
    line,
    listing,
    pager,
    table,
    tile,
    verdict_bar,
    where,
)
from inspector.verdicts import MAX_HINT
from inspector.vocabulary import BLAMES, blame_words, kind_words, writer_words

Row = Mapping[str, Any]
Place = Mapping[str, str]
WINDOW = 4
FILTERS = {"kind": kind_words, "blame": blame_words, "writer": writer_words}
"""Name in the URL, which is a column of the list -> the words for a value."""
_VERDICTS = (
    ("good_hint", "Good hint", "a", "Kind, blame and hint are right"),
    ("bad_hint", "Bad hint", "h", "The hint would not have helped: take it out"),
    ("edit_hint", "Edit hint", "e", "Write the hint that would have helped"),
    ("wrong_blame", "Wrong blame", "b", "The model was not at fault: take the hint out, and name who was"),
    ("skip", "Skip", "x", "Decide nothing and move on"),
    ("undo", "Undo", "u", "Take the last decision back"),
)
_TABLE = """
    select step_id || ':' || number as id, step_id, trace_id, step, model, site.kind as kind, site.blame as blame,
           site.rule as rule, site.tool as tool, site.call_id as call_id, coalesce(site.message, '') as message,
           coalesce(hint.writer, 'no hint') as writer, coalesce(hint.text, '') as text
    from (
        select *, list_filter(hints, lambda one: one.call_id = site.call_id and one.kind = site.kind)[1] as hint
        from (
            select step_id, trace_id, "index"::int as step, model, hints,
                   unnest(error_sites) as site, generate_subscripts(error_sites, 1) as number
            from read_parquet(?) where len(error_sites) > 0
        )
    )
"""


_ORDER = "(blame <> 'model'), (writer = 'no hint'), trace_id, step, id"


def site_table(library: SpaceLibrary, dataset: Dataset) -> ListTable:
    """Return every error site of a trace set."""
    return ListTable.of(library, dataset, "sites", _TABLE, dataset.files("steps"), _ORDER)


def sites(table: ListTable, place: Place) -> tuple[list[dict[str, Any]], int, int]:
    """Return a page of the sites that the filters in the URL let pass, their number, and the page's number."""
    named = [name for name in FILTERS if place.get(name)]
    clauses, values = [f"{name} = ?" for name in named], [place[name] for name in named]
    if place.get("hint_q"):
        clauses.append("(contains(lower(message), ?) or contains(lower(text), ?))")
        values += [place["hint_q"].lower()] * 2
    return table.page(whole(place.get("page")), " and ".join(clauses) or "true", values)


def site_counts(table: ListTable) -> list[tuple[str, str, str, int]]:
    """Return how many sites there are by kind, blame and writer."""
    return table.library.query(  # type: ignore[return-value]
        f"select kind, blame, writer, count(*) as num from {table.name} group by all order by num desc, kind, writer"
    )


def site_badges(site: Row) -> list[Html]:
    """Return labels for the error of a site and for the blame."""
    return [error_badge(site["kind"], site["blame"]), badge(blame_words(site["blame"]))]


def hint_list(rows: Sequence[Row], total: int, at: int, place: Place, current: str) -> Html:
    """Return a page of error sites."""
    items = [_item(row, place, current) for row in rows]
    empty = cleared("No error site passes these filters.", place)
    return listing(counted(total, "error site"), items, pager(at, total, PAGE, place, "hint"), empty)


def _item(row: Row, place: Place, current: str) -> Html:
    labels = [
        *site_badges(row),
        badge(writer_words(row["writer"]), "info" if row["text"] else "", "who wrote the hint"),
        h("span", cls="draft", data_draft=row["id"]),
    ]
    lines = [
        line([h("b", short(row["tool"]) or "text"), " ", row["message"][:140]]),
        line(row["text"][:140], "ins") if row["text"] else None,
        where(f"{row['model']} · step {row['step'] + 1}"),
    ]
    return item(place, "hint", row["id"], labels, lines, current=current)


def hint_filters(counts: Sequence[tuple[str, str, str, int]], place: Place) -> Html:
    """Return the controls of the filter panel."""
    fields = []
    for at, (name, say) in enumerate(FILTERS.items()):
        counted: Counter[str] = Counter()
        for row in counts:
            counted[row[at]] += row[3]  # type: ignore[literal-required]
        fields.append(choice(name, name.capitalize(), counted.most_common(), place.get(name, ""), say))
    return h("div", fields, cls="fields")


def hint_summary(counts: Sequence[tuple[str, str, str, int]]) -> Html:
    """Return coverage and a table of sites by kind."""
    model = [row for row in counts if row[1] == "model"]
    total, hinted = sum(row[3] for row in model), sum(row[3] for row in model if row[2] != "no hint")
    share = f"{hinted / total:.0%}" if total else "-"
    rows = [
        (kind_words(kind), blame_words(blame), writer_words(writer), f"{num:,}") for kind, blame, writer, num in counts
    ]
    tiles = [
        tile(f"{sum(row[3] for row in counts):,}", "error sites"),
        tile(f"{total:,}", BLAMES["model"]),
        tile(f"{hinted:,} ({share})", "of these with a hint"),
    ]
    shown = table("Error sites by kind, blame and writer", ("error", "blame", "hint by", "sites"), rows, {"sites"})
    return h(
        "article",
        h("header", h("h1", "Hints"), cls="head"),
        h("div", tiles, cls="tiles"),
        card("", shown),
        aria_label="Hint counts",
    )


def hint_detail(site: Row, trace: Row | None, place: Place, verdicts: Sequence[Row] = ()) -> Html:
    """Return one site: the prompt with and without the hint, what the model did, and what came back."""
    kept = {name: place[name] for name in ("dataset", "revision", "view") if name in place}
    session = address(kept, view="sessions", session=site["trace_id"], at=site["step"])
    labels = [*site_badges(site), badge(f"rule: {site['rule']}"), badge(writer_words(site["writer"]), "info")]
    link = h("a", site["id"], href=address(kept, hint=site["id"]), cls="id")
    origin = [f"{short(site['model'])}, ", h("a", f"step {site['step'] + 1} of its session", href=session)]
    bar = verdict_bar(_VERDICTS, "hint", verdicts, _blame_choice(site))
    step = next((one for one in (trace or {}).get("steps") or [] if one["index"] == site["step"]), None)
    if trace is None or step is None:
        parts = [h("p", "The trace of this site is not published.", cls="card"), card("Hint", _hint(site))]
    else:
        parts = _in_place(site, trace, step, kept)
    return h(
        "article",
        h(
            "header",
            h("h1", "Error site ", link),
            h("p", labels, cls="labels"),
            h("p", origin, cls="quiet"),
            cls="head",
        ),
        bar,
        parts,
        data_hint=site["id"],
        data_step=site["step_id"],
        data_trace=site["trace_id"],
        data_text=site["text"][:MAX_HINT],
        aria_label="Error site",
    )


def _blame_choice(site: Row) -> Html:
    options = [("", "whose fault?"), *((name, meaning) for name, meaning in BLAMES.items() if name != site["blame"])]
    shown = [h("option", meaning, value=name) for name, meaning in options]
    return h("select", shown, aria_label="Who was at fault, if the blame is wrong", data_blame=True)


def _in_place(site: Row, trace: Row, step: Row, kept: Place) -> list[Html]:
    messages = trace["messages"]
    prompt = [messages[at] for start, stop in step["prompt"] for at in range(start, min(stop, len(messages)))]
    first = max(0, len(prompt) - WINDOW)
    more = address(kept, "text", hint=site["id"], part="prompt")
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
    marker = h("p", "▸ hint inserted here, as a user message before the answer", cls="marker")
    inserted = h("div", marker, _hint(site), cls="inserted") if site["text"] else None
    shown = [
        h("p", window, " ", whole, cls="quiet"),
        h("div", cls="earlier"),
        conversation(prompt[first:], first, more),
    ]
    came = conversation(results) if results else h("p", "Nothing.", cls="quiet")
    ended = h("p", "The session ends here.", cls="quiet")
    return [
        card("The prompt", toggle, shown, inserted, cls="prompt"),
        card("What the model did", message_view(messages[step["action"]]), h("h3", "What came back"), came),
        card("What it did next", message_view(messages[after["action"]]) if after else ended),
    ]


def _hint(site: Row) -> Html:
    return hint_quote(site) if site["text"] else h("p", "No writer had a hint for this site.", cls="quiet")


def hint_quote(hint: Row) -> Html:
    """Return a hint with the name of its writer."""
    return h("blockquote", block(hint["text"]), h("footer", f"hint by: {writer_words(hint['writer'])}"), cls="hint")
