"""The pairs: rows of the index and one whole pair in, the list, the filter bar and the detail out.

A blind reader sees two actions, A and B, in an order that is fixed per reader and pair; nothing names the
student or the teachers, their votes, or other reviewers' verdicts until that reader has decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inspector.address import address, only
from inspector.characters import spelled_out
from inspector.diff import action_diff, short_action, text_of
from inspector.elements import Html, h, join
from inspector.heavy import Context
from inspector.library import PAGE
from inspector.markup import badge, block, number, pretty, usd, words
from inspector.messages import MAX_MESSAGES, folded, message_view, requests
from inspector.pair_index import Page, PairChange
from inspector.parts import Place, card, choice, cleared, facts, item, line, listing, pager, table, verdict_bar, where
from inspector.verdicts import REASONS, chosen_first
from inspector.vocabulary import blame_words, kind_words, writer_words

Row = Mapping[str, Any]
WINDOW = 4  # messages before the step that are shown at first
REVIEWS = {
    "accepted": ("✓ accepted", "ok"),
    "rejected": ("✗ rejected", "bad"),
    "edited": ("✎ edited", "info"),
    "swapped": ("⇄ swapped", "info"),
    "disputed": ("⚡ reviewers disagree", "warn"),
}
LEVELS = {
    "L0": "the same text",
    "L1": "the same calls, whatever the order of their arguments",
    "L2": "the same effect, as far as that is certain",
    "L3": "the same tools on the same files or programs",
    "L4": "the same tools",
}
_SCRIPTED = ("scripted, no model", "warn", "These answers, prices and times are made up: no model was asked.")


@dataclass(frozen=True)
class PairReader:
    """A reader of pairs, and how much they may see."""

    name: str = ""
    blind: bool = False

    def swaps(self, pair_id: str) -> bool:
        """Return whether this reader sees the chosen action first."""
        return self.blind and chosen_first(self.name, pair_id)


# ---------------------------------------------------------------------------------------------------------------- list


def pair_list(page: Page, place: Place, reader: PairReader, current: str = "") -> Html:
    """Return a page of the list."""
    if not page.rows:
        return listing("No pairs", [], empty=cleared("No pair passes these filters.", place))
    first = page.number * PAGE
    count = f"{first + 1:,} to {first + len(page.rows):,} of {page.total:,} pairs"
    rows = [_list_row(row, place, reader, current) for row in page.rows]
    return listing(count, rows, pager(page.number, page.total, PAGE, place, "pair"), data_total=page.total)


def _list_row(row: Row, place: Place, reader: PairReader, current: str) -> Html:
    agreeing = f"{row['num_agree']}/{row['num_votes']}"
    named = [
        badge(agreeing, _agreement_kind(row), "teachers that agree, of those that voted"),
        badge(kind_words(row["error_kind"]), "bad", "error at this step") if row["error_kind"] else None,
        badge("same family", "warn") if row["same_family"] else None,
        badge(*REVIEWS[row["review"]]) if row["review"] in REVIEWS else None,
    ]
    labels = [
        None if reader.blind else named,
        badge("after error", "warn") if row["after_error"] else None,
        badge("scripted", *_SCRIPTED[1:]) if row["scripted"] else None,
        h("span", cls="draft", data_draft=row["id"]),
    ]
    sides = ["rejected", "chosen"][:: -1 if reader.swaps(row["id"]) else 1]
    previews = without_shared_beginning(*(row[f"{side}_preview"] or "" for side in sides))
    lines = [
        line([h("b", row[f"{side}_tool"]), " ", preview], kind)
        for side, preview, kind in zip(sides, previews, ("left", "right"), strict=True)
        if row[f"{side}_tool"]
    ]
    model = "" if reader.blind else row["model"]
    origin = f"{row['repository'] or model or row['trace_id'][:8]} · step {row['step'] + 1}/{row['num_steps']}"
    return item(place, "pair", row["id"], labels, lines, where(origin), current=current)


def without_shared_beginning(one: str, other: str, *, least: int = 24) -> tuple[str, str]:
    """Return two previews from shortly before they part, so that a narrow row shows what differs."""
    shorter = min(len(one), len(other))
    same = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    if same < least or one == other:
        return one, other
    cut = max(one.rfind(mark, 0, same - 6) for mark in " /") + 1
    return (f"{one[:14]}…{one[cut:]}", f"{other[:14]}…{other[cut:]}") if cut > 20 else (one, other)


def _agreement_kind(row: Row) -> str:
    return "ok" if row["num_agree"] == row["num_votes"] else "warn"


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
    ("judged", "Judged to differ in effect", "yes", "no"),
    ("same_family", "Student's own family voted", "yes", "no"),
    ("scripted", "Scripted teachers", "only", "hide"),
)


def filter_bar(facets: Mapping[str, Sequence[tuple[str, int]]], place: Place, reader: PairReader) -> Html:
    """Return the controls of the filter panel; each one's name is its parameter in the URL."""
    facets = dict(facets)
    new = dict(facets.get("review", ())).get("new", 0)
    if reader.blind:  # How others decided stays hidden.
        decided = sum(count for _, count in facets.get("review", ())) - new
        facets["review"] = [(name, count) for name, count in (("new", new), ("reviewed", decided)) if count]
    fields = [_flag(name, label, {"yes": yes, "no": no}, place.get(name, "")) for name, label, yes, no in _FLAGS]
    for name, label, facet in _CHOICES:
        say = kind_words if name == "error_kind" else _shown
        fields.append(choice(name, label, facets.get(facet, ()), place.get(name, ""), say))
    for name, label in (("min_cost", "Cost from $"), ("max_cost", "Cost up to $")):
        box = h("input", name=name, type="number", min="0", step="any", value=place.get(name), inputmode="decimal")
        fields.append(h("label", h("span", label), box))
    return h("div", fields, cls="fields")


def _shown(value: str) -> str:
    return "unreviewed" if value == "new" else words(value)


def _flag(name: str, label: str, texts: Mapping[str, str], chosen: str) -> Html:
    options = [h("option", text, value=at, selected=at == chosen) for at, text in {"": "any", **texts}.items()]
    return h("label", h("span", label), h("select", options, name=name))


# -------------------------------------------------------------------------------------------------------------- detail


def pair_detail(
    pair: Row,
    light: Row,
    votes: Sequence[Row],
    context: Context | None,
    place: Place,
    reader: PairReader,
    *,
    decided: bool = False,
    verdicts: Sequence[Row] = (),
    hints_place: Place | None = None,
) -> Html:
    """Return one pair: the task, the last messages, both actions, and, unless they are hidden, the votes."""
    hidden = reader.blind and not decided
    order = ["rejected", "chosen"][:: -1 if reader.swaps(pair["pair_id"]) else 1]
    actions = [pair[side][0] for side in order]
    roles = {"rejected": "student (rejected)", "chosen": "teachers (chosen)"}
    names = [roles[side] for side in order]
    if reader.blind:
        names = ["A", "B"] if hidden else [f"{letter}: {name}" for letter, name in zip("AB", names, strict=True)]
    sections = [
        _before(pair, place, None if hidden or context is None else {**only(place), "view": "sessions"}),
        card("What differs", action_diff(*actions, (names[0], names[1])), _words_of(pair, order, names, hidden)),
    ]
    if not hidden:
        after = [block(result, limit=1500) for result in context.results] if context else []
        sections += [
            _hint_note(context, hints_place),
            card("What came back to the student", after) if after else None,
            card("Votes", vote_matrix(votes, pair)),
            _raw(pair, place),
        ]
    turned = " turned" if order[0] == "chosen" else ""
    return h(
        "article",
        _head(pair, light, place, hidden),
        _bar(reader, verdicts if not hidden else ()),
        sections,
        data_pair=pair["pair_id"],
        data_first=pretty_calls(actions[0]),
        data_second=pretty_calls(actions[1]),
        data_shuffle=reader.name if reader.blind else None,
        data_outcome=None if hidden else _outcome(pair, order, verdicts),
        aria_label="Pair",
        cls="blind" if hidden else f"open{turned}",
    )


def _outcome(pair: Row, order: Sequence[str], verdicts: Sequence[Row]) -> str:
    teachers = "AB"[order.index("chosen")]
    others = "".join(f" {row['reviewer']}: {words(row['verdict'])}." for row in verdicts[:3])
    return f"{teachers} was the teachers' action: {pair['num_agree']} of {pair['num_votes']} agreed.{others}"


def _head(pair: Row, light: Row, place: Place, hidden: bool) -> Html:
    named = [
        badge(f"{pair['num_agree']} of {pair['num_votes']} teachers agree", _agreement_kind(light)),
        badge(kind_words(pair["error_kind"]), "bad") if pair["error_kind"] else None,
        badge(*REVIEWS[light["review"]]) if light["review"] in REVIEWS else None,
        badge("solved", "ok") if pair["resolved"] else None,
        badge("not solved", "bad") if pair["resolved"] is False else None,
    ]
    student = f"{pair['source_model'] or 'unknown model'} ({pair['source_family'] or 'unknown family'})"
    values = [
        ("student", student),
        ("chosen answer by", pair["chosen_teacher"]),
        ("cost of the votes", usd(pair["cost_usd"])),
        ("judge", pair["judge_reason"]),
    ]
    link = h("a", pair["pair_id"], href=address(only(place), pair=pair["pair_id"]), cls="id", title="Link to this pair")
    labels = [
        None if hidden else named,
        badge("after an error", "warn") if pair["after_error"] else None,
        badge(*_SCRIPTED) if light["scripted"] else None,
    ]
    heading = h("div", h("h1", "Pair ", link), h("span", labels, cls="labels"), cls="title")
    return h("header", heading, None if hidden else facts(values), cls="head")


def _bar(reader: PairReader, verdicts: Sequence[Row]) -> Html:
    """Return the buttons of a decision, with the reasons for which neither action is better."""
    sides = [
        ("accept", "Accept", "a", "The teachers' action is better: keep the pair"),
        ("swap", "Swap", "s", "The student's action is better: turn the pair around"),
    ]
    if reader.blind:
        sides = [
            ("first", "A is better", "a", "Prefer the action A"),
            ("second", "B is better", "b", "Prefer the action B"),
        ]
    buttons = [
        *sides,
        ("reject", "Neither", "r", "Neither is clearly better: take the pair out"),
        ("edit", "Edit", "e", "Write the action that should be preferred"),
        ("skip", "Skip", "x", "Decide nothing and move on"),
        ("undo", "Undo", "u", "Take the last decision back"),
    ]
    reasons = [
        h("button", label, " ", h("kbd", at), type="button", data_verdict="reject", data_reason=value)
        for at, (value, label) in enumerate(REASONS.items(), 1)
    ]
    why = h(
        "div", h("span", "Neither:", cls="quiet"), reasons, cls="reasons", role="group", aria_label="Neither, because"
    )
    return verdict_bar(buttons, "pair", verdicts, why)


def pretty_calls(message: Row) -> str:
    """Return an action's calls as the JSON that the edit box starts with."""
    calls = message.get("tool_calls") or []
    functions = [call.get("function", {}) for call in calls]
    plain = [{"name": function.get("name"), "arguments": function.get("arguments")} for function in functions]
    text = spelled_out(pretty(plain))  # a reviewer may publish it, so no character gets another name
    return text if len(text) <= 60_000 else ""


def _words_of(pair: Row, order: Sequence[str], names: Sequence[str], hidden: bool) -> Html | None:
    texts = [(name, pair.get(f"{side}_text")) for side, name in zip(order, names, strict=True)]
    if hidden and not all(text for _, text in texts):
        return None  # Only the student may have words.
    shown = [
        h("div", h("h4", f"Words beside the call: {name}"), block(text, limit=800)) for name, text in texts if text
    ]
    return h("div", shown, cls="two") if shown else None


def _before(pair: Row, place: Place, sessions: Place | None) -> Html:
    """Return the task, the step's place in the session, and the last messages; the earlier ones unfold."""
    prompt, step = pair["prompt"], pair["index"] + 1
    whole = address(only(place), "text", pair=pair["pair_id"], part="prompt")
    asked = requests(prompt)
    titles = {asked[-1]: "Last request", asked[0]: "Task"} if asked else {}  # One message may be both.
    tasks = [
        h("div", h("h2", title), block(text_of(prompt[at]), limit=1500, more=f"{whole}&at={at}"), cls="request")
        for at, title in sorted(titles.items())
    ]
    in_session = address(sessions or {}, session=pair["trace_id"], at=pair["index"]) + f"#step-{pair['index']}"
    progress = h(
        "p",
        h("progress", value=step, max=max(step, pair["num_steps"]), aria_label="Place in the session"),
        f" Step {step} of {pair['num_steps']}",
        f" · {pair['repository']}" if pair["repository"] else "",
        [" · ", h("a", "the whole session", href=in_session)] if sessions else None,
        cls="where quiet",
    )
    first = max(0, len(prompt) - WINDOW)
    newest = len(prompt) - 1 if len(prompt) - 1 not in titles else -1
    last = [folded(prompt[at], at=at, more=whole, unfolded=at == newest) for at in range(first, len(prompt))]
    label = f"Show all {len(prompt)} messages"
    rest = h("button", label, " ", h("kbd", "c"), type="button", data_context=label, aria_expanded="false")
    earlier = h(
        "div", cls="earlier conversation", data_messages=f"{whole}&until={first}" if first else None, hidden=True
    )
    return h("section", tasks, progress, earlier, h("div", last, cls="recent"), rest, cls="card before")


def earlier_messages(messages: Sequence[Any], start: int, until: int, more: str) -> Html:
    """Return messages of a long prompt in a piece that a page can bear, with a button for the next piece."""
    stop = min(until, start + MAX_MESSAGES)
    shown = [message_view(messages[at], at=at, more=more) for at in range(start, stop)]
    rest = f"{more}&until={until}&offset={stop}"
    label = f"Show the next of {until - stop} more messages"
    return join([shown, h("button", label, type="button", data_earlier=rest) if stop < until else None])


def _hint_note(context: Context | None, place: Place | None) -> Html | None:
    if context is None or not (context.error_sites or context.hints):
        return None
    sites = [
        h(
            "li",
            badge(kind_words(site["kind"]), "bad"),
            " ",
            h("span", blame_words(site["blame"])),
            " ",
            h("span", site["message"] or "", cls="quiet"),
        )
        for site in context.error_sites
    ]
    hints = [
        h("blockquote", hint["text"], h("footer", "hint: ", writer_words(hint["writer"])), cls="hint")
        for hint in context.hints
    ]
    link = h("a", "Open in Hints", href=address(place), data_go=True) if place else None
    return card("Error at this step", h("ul", sites, cls="plain"), hints, link)


def vote_matrix(votes: Sequence[Row], pair: Row) -> Html:
    """Return one row per answer: who, whether they agree with the chosen action, and at what price."""
    level = f"Two answers agree if they are the same at level {pair['level']}"
    words = f"{level}: {LEVELS[pair['level']]}." if pair["level"] in LEVELS else f"{level}."
    note = h("p", words, cls="quiet") if pair["level"] else None
    if not votes:
        return join([note, h("p", "The votes are not published with this set.", cls="quiet")])
    names = ("teacher", "family", "vote", "action", "cost", "latency")
    return join([note, table("Votes", names, [_vote_row(vote, pair) for vote in votes], numbers=("cost", "latency"))])


def _vote_row(vote: Row, pair: Row) -> list[Any]:
    own = vote["family"] and vote["family"] == pair["source_family"]
    family = [
        vote["family"] or "-",
        [" ", badge("same family", "warn", "of the student's own family")] if own else None,
        [" ", badge("scripted", *_SCRIPTED[1:])] if (vote["family"] or "").startswith("scripted") else None,
    ]
    again = h("span", f" again, answer {vote['attempt'] + 1}", cls="quiet") if vote["attempt"] else None
    answer = vote["answer"] if isinstance(vote["answer"], dict) else {"content": pretty(vote["answer"])}
    action = h("details", h("summary", short_action(answer, 110)), message_view({"role": "assistant", **answer}))
    latency = f"{number(vote['latency_s'], 2)} s" if vote["latency_s"] is not None else "-"
    return [[vote["teacher"], again], family, _vote_word(vote, pair), action, usd(vote["cost_usd"]), latency]


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


def _raw(pair: Row, place: Place) -> Html:
    more = {
        name: address(only(place), "text", pair=pair["pair_id"], part=name) for name in ("chosen", "rejected", "tools")
    }
    buttons = [
        h("button", f"{name} as JSON", type="button", cls="more", data_more=where, data_at="0")
        for name, where in more.items()
    ]
    return card("Raw", [h("div", h("pre", cls="text", hidden=True), button) for button in buttons], cls="raw")


# ------------------------------------------------------------------------------------------------------------- compare


def change_list(counts: Mapping[str, int], changes: Sequence[PairChange], place: Place) -> Html:
    """Return the differences between two versions, each pair with a link to its version."""
    base = place.get("base", "")
    if not changes:
        return card(f"Compared with {base}", h("p", "No pair differs."), cls="changes-card")
    summary = h("p", ", ".join(f"{count:,} {kind}" for kind, count in counts.items()), f" since {base}.")
    cut = sum(counts.values()) - len(changes)
    rest = h("p", f"{cut:,} more are not listed.", cls="quiet") if cut > 0 else None
    items = h("ul", [_change(change, place) for change in changes], cls="plain changes")
    return card(f"Compared with {base}", summary, items, rest, cls="changes-card")


def _change(change: PairChange, place: Place) -> Html:
    kinds = {"added": ("+ added", "ok"), "removed": ("- removed", "bad"), "changed": ("~ changed", "warn")}
    own = {"dataset": place.get("dataset", ""), "view": "pairs"}
    links = []
    if change.before:
        links.append(h("a", "before", href=address(own, revision=place.get("base"), pair=change.before)))
    if change.after:
        links.append(h("a", "after", href=address(own, revision=place.get("revision"), pair=change.after)))
    spaced = [item for link in links for item in (" ", link)]
    return h("li", badge(*kinds[change.kind]), f" step {change.step + 1} of trace {change.trace_id[:8]}", spaced)
