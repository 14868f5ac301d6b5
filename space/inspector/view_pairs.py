"""The pairs: rows of the index and one whole pair in, the list, the filter bar and the detail out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inspector.address import address
from inspector.characters import spelled_out
from inspector.diff import action_diff, short_action
from inspector.heavy import Context
from inspector.markup import Html, badge, block, h, number, pretty, usd, words
from inspector.messages import conversation, message_view
from inspector.pair_index import PAGE, Change, Page

Row = Mapping[str, Any]
Place = Mapping[str, str]
WINDOW = 4  # messages before the step that are shown at first
REVIEWS = {
    "accepted": ("✓ accepted", "ok"),
    "rejected": ("✗ rejected", "bad"),
    "edited": ("✎ edited", "info"),
    "swapped": ("⇄ swapped", "info"),
    "disputed": ("⚡ reviewers disagree", "warn"),
}
KEYS = {"accept": "a", "reject": "r", "edit": "e", "swap": "s", "skip": "x", "undo": "u"}


# ---------------------------------------------------------------------------------------------------------------- list


def pair_list(page: Page, place: Place, current: str = "") -> Html:
    """Return a page of the list."""
    first = page.number * PAGE
    count = f"{first + 1:,} to {first + len(page.rows):,} of {page.total:,} pairs" if page.rows else "No pairs"
    if not page.rows:
        empty = h(
            "div",
            h("p", "No pair passes these filters."),
            h("a", "Clear the filters", href=address(_without_filters(place)), data_go=True, cls="button"),
            cls="empty",
        )
        return h("div", h("p", count, cls="count", role="status"), empty)
    rows = h("ol", [_list_row(row, place, current) for row in page.rows], cls="rows", start=first + 1)
    return h("div", h("p", count, cls="count", role="status"), rows, _pager(page, place), data_total=page.total)


def _list_row(row: Row, place: Place, current: str) -> Html:
    labels = [
        badge(
            f"{row['num_agree']}/{row['num_votes']}", _agreement_kind(row), "teachers that agree, of those that voted"
        ),
        badge(words(row["error_kind"]), "bad", "error at this step") if row["error_kind"] else None,
        badge("after error", "warn") if row["after_error"] else None,
        badge("same family", "warn") if row["same_family"] else None,
        badge(*REVIEWS[row["review"]]) if row["review"] in REVIEWS else None,
        h("span", cls="draft", data_draft=row["id"]),
    ]
    lines = [
        h("span", h("b", row[f"{side}_tool"]), " ", row[f"{side}_preview"] or "", cls=f"line {kind}")
        for side, kind in (("rejected", "del"), ("chosen", "ins"))
        if row[f"{side}_tool"]
    ]
    where = f"{row['repository'] or row['model'] or row['trace_id'][:8]} · step {row['step'] + 1}/{row['num_steps']}"
    link = h(
        "a",
        h("span", labels, cls="labels"),
        lines,
        h("span", where, cls="quiet small"),
        href=address(place, pair=row["id"]),
        data_item=row["id"],
        aria_current="true" if row["id"] == current else None,
    )
    return h("li", link)


def _agreement_kind(row: Row) -> str:
    return "ok" if row["num_agree"] == row["num_votes"] else "warn"


def _pager(page: Page, place: Place) -> Html | None:
    if page.num_pages == 1:
        return None
    here = page.number

    def step(label: str, to: int, rel: str) -> Html:
        if not 0 <= to < page.num_pages:
            return h("span", label, cls="button off", aria_hidden="true")
        return h("a", label, href=address(place, page=to or None, pair=None), data_go=True, rel=rel, cls="button")

    middle = h("span", f"page {here + 1:,} of {page.num_pages:,}", cls="quiet")
    return h(
        "nav",
        step("← Previous", here - 1, "prev"),
        middle,
        step("Next →", here + 1, "next"),
        cls="pager",
        aria_label="Pages",
    )


def _without_filters(place: Place) -> dict[str, str]:
    return {name: place[name] for name in ("dataset", "revision", "base", "view") if name in place}


# ------------------------------------------------------------------------------------------------------------- filters

_CHOICES = (
    ("review", "Review", "review"),
    ("error_kind", "Error kind", "error_kind"),
    ("teacher", "Teacher", "teachers"),
    ("family", "Teacher family", "families"),
    ("model", "Student model", "model"),
    ("repository", "Repository", "repository"),
    ("tool", "Tool", "chosen_tool"),
    ("split", "Split", "split"),
)
_FLAGS = (
    ("agree", "Agreement", "unanimous", "disputed"),
    ("after_error", "After an error", "yes", "no"),
    ("same_family", "Student's own family voted", "yes", "no"),
    ("scripted", "Scripted teachers", "only", "hide"),
)
REVIEW_WORDS = {"new": "unreviewed"}


def filter_bar(facets: Mapping[str, Sequence[tuple[str, int]]], place: Place) -> Html:
    """Return the controls of the filter panel; each one's name is its parameter in the URL."""
    fields = [_flag(name, label, yes, no, place.get(name, "")) for name, label, yes, no in _FLAGS]
    fields += [_choice(name, label, facets.get(facet, ()), place.get(name, "")) for name, label, facet in _CHOICES]
    fields += [_amount("min_cost", "Cost from $", place), _amount("max_cost", "Cost up to $", place)]
    return h("div", fields, cls="fields")


def _choice(name: str, label: str, values: Sequence[tuple[str, int]], chosen: str) -> Html:
    options = [h("option", "any", value="")]
    options += [
        h(
            "option",
            f"{REVIEW_WORDS.get(value, words(value) or 'none')} ({count:,})",
            value=value or "none",
            selected=(value or "none") == chosen,
        )
        for value, count in values
    ]
    if chosen and chosen not in {value or "none" for value, _ in values}:
        options.append(h("option", chosen, value=chosen, selected=True))
    return h("label", h("span", label), h("select", options, name=name))


def _flag(name: str, label: str, yes: str, no: str, chosen: str) -> Html:
    options = [("", "any"), ("yes", yes), ("no", no)]
    shown = [h("option", text, value=value, selected=value == chosen) for value, text in options]
    return h("label", h("span", label), h("select", shown, name=name))


def _amount(name: str, label: str, place: Place) -> Html:
    value = place.get(name) or None
    return h(
        "label",
        h("span", label),
        h("input", name=name, type="number", min="0", step="any", value=value, inputmode="decimal"),
    )


# -------------------------------------------------------------------------------------------------------------- detail


def pair_detail(
    pair: Row,
    light: Row,
    votes: Sequence[Row],
    context: Context | None,
    place: Place,
    *,
    verdicts: Sequence[Row] = (),
    hints_place: Place | None = None,
) -> Html:
    """Return one pair: both actions, who voted how, and the step in its context."""
    chosen, rejected = pair["chosen"][0], pair["rejected"][0]
    sections = [
        h("section", h("h2", "What differs"), action_diff(rejected, chosen), _words_of(pair), cls="card"),
        _hint_note(context, hints_place),
        h("section", h("h2", "Votes"), vote_matrix(votes, pair), cls="card"),
        _surroundings(pair, context, place),
        _raw(pair, place),
    ]
    return h(
        "article",
        _head(pair, light, place),
        verdict_bar(pair, verdicts),
        sections,
        data_pair=pair["pair_id"],
        data_chosen=pretty_calls(chosen),
        aria_label="Pair",
    )


def _head(pair: Row, light: Row, place: Place) -> Html:
    labels = [
        badge(f"{pair['num_agree']} of {pair['num_votes']} teachers agree", _agreement_kind(light)),
        badge(f"level {pair['level']}"),
        badge(words(pair["error_kind"]), "bad") if pair["error_kind"] else None,
        badge("after an error", "warn") if pair["after_error"] else None,
        badge("solved", "ok")
        if pair["resolved"]
        else badge("not solved", "bad")
        if pair["resolved"] is False
        else None,
        badge(*REVIEWS[light["review"]]) if light["review"] in REVIEWS else None,
    ]
    facts = [
        ("student", f"{pair['source_model'] or 'unknown model'} ({pair['source_family'] or 'unknown family'})"),
        ("chosen answer by", pair["chosen_teacher"]),
        ("step", f"{pair['index'] + 1} of {pair['num_steps']}"),
        ("repository", pair["repository"] or "-"),
        ("cost of the votes", usd(pair["cost_usd"])),
    ]
    line = h("dl", [h("div", h("dt", name), h("dd", value)) for name, value in facts], cls="facts")
    link = h(
        "a",
        pair["pair_id"],
        href=address({name: place[name] for name in ("dataset", "revision") if name in place}, pair=pair["pair_id"]),
        cls="id",
        title="Link to this pair",
    )
    return h("header", h("h1", "Pair ", link), h("p", labels, cls="labels"), line, cls="head")


def verdict_bar(pair: Row, verdicts: Sequence[Row]) -> Html:
    """Return the buttons of a decision; other reviewers' verdicts are shown once the reader has decided."""
    titles = {
        "accept": "The teachers' action is better: keep the pair",
        "reject": "Neither is clearly better: take the pair out",
        "edit": "Write the action that should be preferred",
        "swap": "The student's action is better: turn the pair around",
        "skip": "Decide nothing and move on",
        "undo": "Take the last decision back",
    }
    buttons = [
        h(
            "button",
            name.capitalize(),
            " ",
            h("kbd", key),
            type="button",
            data_verdict=name,
            title=titles[name],
            cls=name,
        )
        for name, key in KEYS.items()
    ]
    said = [
        h("li", h("b", row["reviewer"]), " ", words(row["verdict"]), f": {row['note']}" if row.get("note") else "")
        for row in verdicts
    ]
    others = (
        h("div", h("p", "Other verdicts"), h("ul", said), cls="others", hidden=True, data_others=True) if said else None
    )
    note = h(
        "input",
        type="text",
        maxlength="500",
        placeholder="Note (optional)",
        aria_label="Note on this pair",
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


def pretty_calls(message: Row) -> str:
    """Return an action's calls as the JSON that the edit box starts with."""
    calls = message.get("tool_calls") or []
    plain = [
        {"name": call.get("function", {}).get("name"), "arguments": call.get("function", {}).get("arguments")}
        for call in calls
    ]
    text = spelled_out(pretty(plain))  # a reviewer may publish it, so no character gets another name
    return text if len(text) <= 60_000 else ""


def _words_of(pair: Row) -> Html | None:
    texts = [("student", pair.get("rejected_text")), ("teacher", pair.get("chosen_text"))]
    shown = [h("div", h("h4", f"Words beside the call: {who}"), block(text, limit=800)) for who, text in texts if text]
    return h("div", shown, cls="two") if shown else None


def _hint_note(context: Context | None, place: Place | None) -> Html | None:
    if context is None or not (context.error_sites or context.hints):
        return None
    sites = [
        h(
            "li",
            badge(words(site["kind"]), "bad"),
            " ",
            h("span", f"blame: {site['blame']}"),
            " ",
            h("span", site["message"] or "", cls="quiet"),
        )
        for site in context.error_sites
    ]
    hints = [
        h("blockquote", hint["text"], h("footer", f"hint by {hint['writer']}"), cls="hint") for hint in context.hints
    ]
    link = h("a", "Open in Hints", href=address(place), data_go=True) if place else None
    return h("section", h("h2", "Error at this step"), h("ul", sites, cls="plain"), hints, link, cls="card")


def vote_matrix(votes: Sequence[Row], pair: Row) -> Html:
    """Return one row per answer: who, whether they agree with the chosen action, and at what price."""
    if not votes:
        return h("p", "The votes are not published with this set.", cls="quiet")
    names = ("teacher", "family", "vote", "action", "cost", "latency")
    numbers = ("cost", "latency")
    head = h("tr", [h("th", name, scope="col", cls="num" if name in numbers else None) for name in names])
    table = h(
        "table",
        h("caption", "Answers of the teachers", cls="sr"),
        h("thead", head),
        h("tbody", [_vote_row(vote, pair) for vote in votes]),
    )
    return h("div", table, cls="scroll", tabindex="0", role="region", aria_label="Votes")


def _vote_row(vote: Row, pair: Row) -> Html:
    own = vote["family"] and vote["family"] == pair["source_family"]
    family = [vote["family"] or "-", " ", badge("same family", "warn", "of the student's own family") if own else None]
    again = h("span", f" again, answer {vote['attempt'] + 1}", cls="quiet") if vote["attempt"] else None
    answer = vote["answer"] if isinstance(vote["answer"], dict) else {"content": pretty(vote["answer"])}
    action = h("details", h("summary", short_action(answer, 110)), message_view({"role": "assistant", **answer}))
    return h(
        "tr",
        h("th", vote["teacher"], again, scope="row"),
        h("td", family),
        h("td", _vote_word(vote, pair)),
        h("td", action),
        h("td", usd(vote["cost_usd"]), cls="num"),
        h("td", f"{number(vote['latency_s'], 2)} s" if vote["latency_s"] is not None else "-", cls="num"),
    )


def _vote_word(vote: Row, pair: Row) -> Html:
    if vote["excluded"]:
        return h("span", f"◌ excluded: {words(vote['excluded'])}", cls="quiet")
    if vote["status"] != "voted":
        return h("span", f"- abstained: {words(vote['status'])}", cls="quiet")
    if vote["attempt"]:
        return h("span", "○ repeat", cls="quiet")
    agrees = vote["teacher"] in (pair["teachers"] or [])
    chosen = " (chosen)" if vote["teacher"] == pair["chosen_teacher"] else ""
    return h("span", f"✓ agrees{chosen}", cls="good") if agrees else h("span", "✗ differs", cls="wrong")


def _surroundings(pair: Row, context: Context | None, place: Place) -> Html:
    prompt = pair["prompt"]
    first = max(0, len(prompt) - WINDOW)
    more = address(_only(place), "text", pair=pair["pair_id"], part="prompt")
    whole = h("button", f"Show the first {first} messages", type="button", data_earlier=more) if first else None
    window = (
        f"The last {len(prompt) - first} of {len(prompt)} messages that the student had read."
        if first
        else f"All {len(prompt)} messages that the student had read."
    )
    after = None
    if context is not None and context.results:
        after = [h("h3", "What came back to the student"), [block(result, limit=1500) for result in context.results]]
    return h(
        "section",
        h("h2", "The step in its context"),
        h("p", window, " ", whole, cls="quiet"),
        h("div", cls="earlier"),
        conversation(prompt[first:], first, more),
        h("p", "▸ here the student acted", cls="marker"),
        after,
        cls="card",
    )


def _raw(pair: Row, place: Place) -> Html:
    parts = [
        h(
            "button",
            f"{name} as JSON",
            type="button",
            cls="more",
            data_more=address(_only(place), "text", pair=pair["pair_id"], part=name),
            data_at="0",
        )
        for name in ("chosen", "rejected", "tools")
    ]
    return h(
        "section", h("h2", "Raw"), [h("div", h("pre", cls="text", hidden=True), part) for part in parts], cls="card raw"
    )


def _only(place: Place) -> dict[str, str]:
    return {name: place[name] for name in ("dataset", "revision") if name in place}


# ------------------------------------------------------------------------------------------------------------- compare


def change_list(counts: Mapping[str, int], changes: Sequence[Change], place: Place) -> Html:
    """Return what differs between two versions, with a link to each pair at its side."""
    base = place.get("base", "")
    summary = h("p", ", ".join(f"{count:,} {kind}" for kind, count in counts.items()), f" since {base}.", cls="count")
    if not changes:
        return h("section", h("h2", f"Compared with {base}"), h("p", "No pair differs."), cls="card changes-card")
    items = [_change(change, place) for change in changes]
    cut = sum(counts.values()) - len(changes)
    rest = h("p", f"{cut:,} more are not listed.", cls="quiet") if cut > 0 else None
    return h(
        "section",
        h("h2", f"Compared with {base}"),
        summary,
        h("ul", items, cls="plain changes"),
        rest,
        cls="card changes-card",
    )


def _change(change: Change, place: Place) -> Html:
    kinds = {"added": ("+ added", "ok"), "removed": ("- removed", "bad"), "changed": ("~ changed", "warn")}
    own = {"dataset": place.get("dataset", ""), "view": "pairs"}
    links = []
    if change.before:
        links.append(h("a", "before", href=address(own, revision=place.get("base"), pair=change.before)))
    if change.after:
        links.append(h("a", "after", href=address(own, revision=place.get("revision"), pair=change.after)))
    spaced = [item for link in links for item in (" ", link)]
    return h("li", badge(*kinds[change.kind]), f" step {change.step + 1} of trace {change.trace_id[:8]}", spaced)
