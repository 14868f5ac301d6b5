"""Sessions as stories: the user's words, then each step where something happened, with the quiet ones folded.

The list comes from the index of the trace set, a page of the story from `steps`. The messages of a trace are never
read: those of one long session can be hundreds of megabytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inspector.address import address, whole
from inspector.diff import calls_of, short_action
from inspector.elements import Html, h
from inspector.library import PAGE, Dataset, ListTable, SpaceLibrary
from inspector.markup import badge, block, parsed
from inspector.parts import card, cleared, counted, error_badge, facts, item, line, listing, pager, where
from inspector.view_hints import hint_quote, site_badges
from inspector.vocabulary import BLAMES, writer_words

Row = Mapping[str, Any]
Place = Mapping[str, str]
WINDOW = 200  # steps of a page of the story
MAX_MARKS = 300  # places that are listed
SHOWN_MARKS = 8
MIN_FOLDED = 4  # fewer quiet steps in a row are shown
_WIDTH = 1_000
# An index that an earlier version published lacks some of the columns, and each part has its own index.
_INDEX = """
    (select null::varchar as source, null::varchar as model, null::varchar as repository, null::varchar as task,
            null::bigint as num_steps, null::bigint as num_errors, null::bigint as num_hints,
            null::varchar as turns, null::varchar as marks where false
     union all by name from read_parquet(?, union_by_name = true))
"""
_TABLE = f"""
    select id, coalesce(source, '') as source, coalesce(model, '') as model, coalesce(repository, '') as repository,
           coalesce(task, '') as task, num_steps, num_errors, num_hints
    from {_INDEX}
"""
_ORDER = "num_errors desc nulls last, num_steps desc nulls last, id"


def session_table(library: SpaceLibrary, dataset: Dataset) -> ListTable:
    """Return the sessions of a trace set."""
    return ListTable.of(library, dataset, "sessions", _TABLE, dataset.indexes("traces"), _ORDER)


def sessions(table: ListTable, place: Place) -> tuple[list[dict[str, Any]], int, int]:
    """Return a page of the sessions that have the words, those with most errors first, their number, and its number."""
    text = place.get("session_q", "").lower()
    found = " or ".join(f"contains(lower({column}), ?)" for column in ("task", "repository", "model", "source"))
    return table.page(whole(place.get("page")), f"(id = ? or {found})", [text] * 5)


def turns_and_marks(library: SpaceLibrary, dataset: Dataset, id: str) -> tuple[list[Any], list[Any]]:
    """Return the user's words with the steps that follow, and the steps with errors or hints."""
    found = library.query(f"select turns, marks from {_INDEX} where id = ?", [dataset.indexes("traces"), id])
    turns, marks = (parsed(one) or [] for one in found[0]) if found else ([], [])
    return turns, marks


@dataclass(frozen=True)
class Story:
    """The contents of a page of a session."""

    session: Row
    turns: Sequence[tuple[int, str]]  # of the whole session: the step that follows, and the user's words
    marks: Sequence[tuple[int, list[tuple[str, str]], list[str]]]  # step, kinds and blames of errors, writers of hints
    steps: Sequence[Row]  # of this page
    pairs: Mapping[int, Sequence[Row]]  # of the whole session, by step
    votes: Mapping[int, tuple[int, int]]  # by step of this page: answers that count, and all
    first: int

    @property
    def num_steps(self) -> int:
        """Count the steps of the session; an older index does not know them, so there may be more."""
        return self.session["num_steps"] or self.first + len(self.steps) + (len(self.steps) == WINDOW)

    @classmethod
    def first_of(cls, place: Place) -> int:
        """Return the first step of the page that an address names."""
        return whole(place.get("at")) // WINDOW * WINDOW


def session_list(rows: Sequence[Row], total: int, at: int, place: Place, current: str) -> Html:
    """Return a page of sessions."""
    own = {name: value for name, value in place.items() if name != "at"}
    empty = cleared("No session has these words.", place)
    items = [_item(row, own, current) for row in rows]
    return listing(counted(total, "session"), items, pager(at, total, PAGE, own, "session"), empty)


def _item(row: Row, place: Place, current: str) -> Html:
    labels = [
        badge(row["source"]),
        badge(counted(row["num_errors"], "error"), "bad", BLAMES["model"]) if row["num_errors"] else None,
        badge(counted(row["num_hints"], "hint"), "info") if row["num_hints"] else None,
    ]
    steps = "" if row["num_steps"] is None else f" · {counted(row['num_steps'], 'step')}"
    about = where(f"{row['repository'] or row['model'] or row['id'][:8]}{steps}")
    return item(place, "session", row["id"], labels, line(row["task"][:200] or row["id"]), about, current=current)


def session_detail(story: Story, place: Place) -> Html:
    """Return a page of a session: its task, the places of its errors, and its steps in order."""
    session = story.session
    kept = {name: place[name] for name in ("dataset", "revision", "view") if name in place}
    line = facts(
        [
            ("harness", session["source"]),
            ("model", session["model"]),
            ("repository", session["repository"]),
            ("steps", f"{story.num_steps:,}"),
            ("pairs", f"{sum(map(len, story.pairs.values())):,}" if story.pairs else None),
        ]
    )
    link = h("a", session["id"], href=address(kept, session=session["id"]), cls="id")
    task = (
        block(story.turns[0][1]) if story.turns else h("p", "This set has no index of the user's words.", cls="quiet")
    )
    return h(
        "article",
        h("header", h("h1", "Session ", link), line, cls="head"),
        card("The task", task),
        _marks(story, kept),
        card(_title(story), h("ol", list(_story_items(story, kept)), cls="story"), _pages(story, kept)),
        data_session=session["id"],
        aria_label="Session",
    )


def _title(story: Story) -> str:
    last = story.first + len(story.steps)
    return f"Steps {story.first + 1:,} to {last:,} of {story.num_steps:,}" if story.steps else "No steps"


def _pages(story: Story, kept: Place) -> Html | None:
    starts = [("← Earlier steps", story.first - WINDOW), ("Later steps →", story.first + WINDOW)]
    links = [
        h("a", name, href=_at(story, kept, start), cls="button")
        for name, start in starts
        if 0 <= start < story.num_steps
    ]
    return h("nav", links, cls="pager", aria_label="Steps") if links else None


def _at(story: Story, kept: Place, step: int) -> str:
    return f"{address(kept, session=story.session['id'], at=step)}#step-{step}"


def _marks(story: Story, kept: Place) -> Html:
    """Return the places of errors, hints and pairs in the whole session: as a strip, and as links."""
    by_step: dict[int, list[Html]] = {}
    for step, errors, writers in story.marks:
        labels = [error_badge(kind, blame) for kind, blame in errors]
        by_step[step] = [*labels, *(badge(f"hint: {writer_words(writer)}", "info") for writer in writers)]
    for step, pairs in story.pairs.items():
        by_step.setdefault(step, []).extend(badge("pair", "ok") for _ in pairs)
    if not by_step:
        return card("Where it went wrong", h("p", "No error was found in this session.", cls="quiet"))
    links = [
        h("li", h("a", f"step {step + 1:,}", href=_at(story, kept, step)), marks, cls="labels")
        for step, marks in sorted(by_step.items(), key=lambda one: (one[0] < story.first, one[0]))[:MAX_MARKS]
    ]
    shown = h("ul", links[:SHOWN_MARKS], cls="plain")
    rest = links[SHOWN_MARKS:]
    more = h("details", h("summary", f"{len(rest):,} more places"), h("ul", rest, cls="plain")) if rest else None
    cut = len(by_step) - MAX_MARKS
    note = h("p", f"{cut:,} more places are marked in the steps.", cls="quiet") if cut > 0 else None
    return card("Where it went wrong", _strip(story), shown, more, note)


def _strip(story: Story) -> Html:
    """Return the session as a line with a tick for each mark."""
    places = {
        "error": [step for step, errors, _ in story.marks if any(blame == "model" for _, blame in errors)],
        "hint": [step for step, _, writers in story.marks if writers],
        "pair": list(story.pairs),
        "user": [step for step, _ in story.turns],
    }
    scale = (_WIDTH - 4) / max(1, story.num_steps)

    def rect(name: str, start: int, width: float, y: int, height: int) -> Html:
        return h("rect", cls=name, x=f"{start * scale:.1f}", y=y, width=f"{max(2.0, width):.1f}", height=height)

    ticks = [
        rect(name, step, min(scale - 1, 12), row * 9, 7)
        for row, (name, steps) in enumerate(places.items())
        # Ticks of one pixel are one tick.
        for step in {int(step * scale): step for step in steps}.values()
    ]
    here = len(story.steps)
    window = rect("window", story.first, here * scale, 0, 36) if here < story.num_steps else None
    counts = ", ".join(f"{len(steps):,} with {name}" for name, steps in places.items())
    alt = f"{story.num_steps:,} steps: {counts}. Rows from above: errors, hints, pairs, words of the user."
    drawn = h("svg", window, ticks, viewBox=f"0 0 {_WIDTH} 36", preserveAspectRatio="none", role="img", aria_label=alt)
    key = [h("span", h("span", cls=f"key {name}"), label) for name, label in _STRIP]
    return h("figure", drawn, h("figcaption", key, cls="quiet small"), cls="strip")


_STRIP = (("error", "the agent's own errors"), ("hint", "hints"), ("pair", "pairs"), ("user", "the user's words"))


def _story_items(story: Story, kept: Place) -> Iterator[Html]:
    """Yield the steps in order: the user's words, steps with marks, and quiet steps in folds."""
    said: dict[int, list[str]] = {}
    for step, text in story.turns[1:]:
        said.setdefault(step, []).append(text)
    quiet: list[Row] = []
    for step in story.steps:
        words, marked = (
            said.get(step["index"], []),
            step["error_sites"] or step["hints"] or step["index"] in story.pairs,
        )
        if words or marked:
            yield from _folded(story, quiet, kept)
            quiet = []
        for text in words:
            yield h("li", h("div", h("header", h("b", "user")), block(text), cls="message user"))
        if marked:
            yield _marked(story, step, kept)
        else:
            quiet.append(step)
    yield from _folded(story, quiet, kept)


def _folded(story: Story, steps: Sequence[Row], kept: Place) -> Iterator[Html]:
    lines = [_quiet(story, step, kept) for step in steps]
    if len(lines) < MIN_FOLDED:
        yield from lines
        return
    tools = Counter(call.tool for step in steps for call in calls_of(step["action"]))
    named = ", ".join(f"{tool} {num:,}" for tool, num in tools.most_common(6)) or "words"
    first, last = (steps[at]["index"] + 1 for at in (0, -1))
    summary = h("summary", f"Steps {first:,} to {last:,}: {named}")
    yield h("li", h("details", summary, h("ol", lines, cls="story")))


def _quiet(story: Story, step: Row, kept: Place) -> Html:
    shown = h("b", f"{step['index'] + 1:,}"), h("span", short_action(step["action"], 200), cls="action")
    return h("li", shown, _votes(story, step), _more(story, step, kept), id=_name(step), cls="quiet-step")


def _name(step: Row) -> str:
    return f"step-{step['index']}"


def _votes(story: Story, step: Row) -> Html | None:
    voted, asked = story.votes.get(step["index"], (0, 0))
    return badge(f"{voted} of {asked} votes count", "", "answers of teachers at this step") if asked else None


def _more(story: Story, step: Row, kept: Place) -> list[Html]:
    text = address(kept, "text", session=story.session["id"], step=step["index"])
    label = f"Show step {step['index'] + 1:,} in full"
    return [h("button", "Show", type="button", data_earlier=text, aria_label=label), h("div", cls="earlier")]


def _marked(story: Story, step: Row, kept: Place) -> Html:
    """Return a step where something happened: its action, the error, the hint, and its pair."""
    number = step["index"]
    sites = [
        h(
            "div",
            h("p", site_badges(site), h("a", "Open the site", href=_site(step, place, kept)), cls="labels"),
            block(site["message"] or "", limit=600) if site["message"] else None,
        )
        for place, site in enumerate(step["error_sites"], 1)
    ]
    pairs = [
        h(
            "p",
            badge("pair", "ok"),
            " ",
            h(
                "a",
                f"{pair['num_agree']} of {pair['num_votes']} teachers agree on another action",
                href=_pair(pair, kept),
            ),
        )
        for pair in story.pairs.get(number, ())
    ]
    aside = None if step["on_main_branch"] else badge("on a branch that was left", "warn")
    head = h("h3", f"Step {number + 1:,} ", aside, _votes(story, step))
    action = block(short_action(step["action"], 400), limit=400)
    hints = [hint_quote(hint) for hint in step["hints"]]
    kind = "marked wrong-step" if step["error_sites"] else "marked"
    return h("li", head, action, sites, hints, pairs, _more(story, step, kept), id=_name(step), cls=kind)


def _site(step: Row, place: int, kept: Place) -> str:
    return address(kept, view="hints", hint=f"{step['step_id']}:{place}")


def _pair(pair: Row, kept: Place) -> str:
    return address(kept, view="pairs", pair=pair["id"])
