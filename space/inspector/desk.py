"""From a query string and a visitor's token to what the page shows: opens datasets, asks them, calls the views."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx

from inspector import (
    guidelines,
    heavy,
    verdicts,
    view_hints,
    view_overview,
    view_pairs,
    view_runs,
    view_sessions,
    view_tasks,
)
from inspector.address import address, only, whole
from inspector.characters import visible
from inspector.elements import Html, h
from inspector.library import Dataset, NotShown, SpaceLibrary
from inspector.markup import parsed, pretty
from inspector.messages import conversation
from inspector.page import ITEMS, VIEWS, message
from inspector.pair_index import BadFilter, PairIndex, Query, compare
from inspector.view_pairs import PairReader

REVIEW_SIZE = 60
CHUNK = 200_000  # characters of one answer of text on demand
_VIEW_OF = {"pairs": "pairs", "traces": "hints", "rollouts": "runs", "tasks": "tasks"}
_KINDS = {
    "pairs": ("pairs",),
    "hints": ("traces", "rollouts"),
    "sessions": ("traces", "rollouts"),
    "runs": ("rollouts",),
    "tasks": ("tasks",),
}
_MAX_VALUE = 300


@dataclass(frozen=True)
class Shown:
    """The parts of a page; a part that was not requested is None."""

    place: dict[str, str]
    list_: Html | None
    detail: Html | None


class ReviewDesk:
    """One Space: its datasets and their reviews. `open_labels` names student and teachers before a reader decides."""

    def __init__(
        self, library: SpaceLibrary, *, open_labels: bool = False, review_size: int = REVIEW_SIZE, guidelines: str = ""
    ) -> None:
        self.library = library
        self.open_labels = open_labels
        self.review_size = review_size
        self._guidelines = guidelines
        self.reviews = verdicts.Reviews(library.api)

    def reader(self, token: str | None) -> PairReader:
        """Return who looks at pairs; without a token all see the same order."""
        return PairReader(self.reviews.name_of(token), not self.open_labels)

    # ------------------------------------------------------------------------------------------------------- places

    def place(self, parameters: Mapping[str, str], token: str | None) -> tuple[dict[str, str], Dataset]:
        """Complete a query string: dataset, revision and view are always named, and nothing is overlong."""
        given = {name: value for name, value in parameters.items() if value and name.isidentifier()}
        if any(len(value) > _MAX_VALUE for value in given.values()):
            raise BadFilter(f"A parameter is longer than {_MAX_VALUE} characters.")
        name = self.library.shown(given.get("dataset", ""), given.get("revision", ""))
        dataset = self.library.open(name.repo, name.revision, token)
        view = given.get("view", "")
        if view not in dict(VIEWS):
            view = _VIEW_OF.get(dataset.kind, "overview")
        return {**given, "dataset": name.repo, "revision": name.revision, "view": view}, dataset

    def views(self, dataset: Dataset, token: str | None) -> list[str]:
        """Return the views that have something to show."""
        found = [view for view in _KINDS if self._source(dataset, view, token) is not None]
        return [*found, "overview"]

    def _source(self, dataset: Dataset, view: str, token: str | None) -> Dataset | None:
        if dataset.kind in _KINDS[view]:
            return dataset
        linked = (self.library.linked(dataset, kind, token) for kind in _KINDS[view])
        return next((one for one in linked if one is not None), None)

    def guidelines(self, dataset: Dataset, token: str | None) -> Html:
        """Return the guidelines for reviewers: of this Space, else of the dataset's card, else our own."""
        of_card = dataset.once("guidelines", lambda: guidelines.of_card(self.library.card(dataset, token)))
        return guidelines.rendered(self._guidelines or of_card or guidelines.DEFAULT[self.open_labels])

    # -------------------------------------------------------------------------------------------------------- views

    def show(
        self, parameters: Mapping[str, str], token: str | None, want: tuple[str, ...] = ("list", "detail")
    ) -> Shown:
        """Return the list and the detail of a place."""
        place, dataset = self.place(parameters, token)
        view = place["view"]
        if view == "overview":
            return Shown(place, None, self._overview(place, dataset, token) if "detail" in want else None)
        source = self._source(dataset, view, token)
        if source is None:
            text = f"Neither {place['dataset']} nor its lineage holds anything for this view that you can read."
            return Shown(place, Html(), message("Nothing to show", text))
        shown = getattr(self, f"_{view}")(place, source, token, want)
        return Shown(place, shown[0], self._signed(shown[1], source))

    def preload(self, token: str | None) -> None:
        """Open the first dataset, so that its index is here when the first visitor comes."""
        with suppress(NotShown, HfHubHTTPError, httpx.HTTPError, OSError):
            self.show({}, token, ("list",))

    def part(self, parameters: Mapping[str, str], token: str | None, want: tuple[str, ...]) -> dict[str, Any]:
        """Return the parts that a page asks for when it moves."""
        shown = self.show(parameters, token, want)
        return {"list": shown.list_, "detail": shown.detail}

    def _signed(self, detail: Html | None, source: Dataset) -> Html | None:
        """Name the dataset that verdicts on this detail belong to."""
        if detail is None:
            return None
        return h("div", detail, data_repo=source.name.repo, data_revision=source.revision)

    def index(self, dataset: Dataset, token: str | None) -> PairIndex:
        """Return the list of a pair set, marked with its reviews."""
        index = dataset.once("pairs", lambda: PairIndex(self.library, dataset))
        rows = self.reviews.of(dataset.name.repo, token).rows
        marks = verdicts.states(rows)
        if dataset.tables.get("marks", {}) != marks:
            dataset.tables["marks"] = marks
            index.mark(marks)
        return index

    def _pairs(
        self, place: dict[str, str], dataset: Dataset, token: str | None, want: tuple[str, ...]
    ) -> tuple[Html | None, Html | None]:
        index = self.index(dataset, token)
        reader = self.reader(token)
        query = Query.of(place, reader.name)
        current = place.get("pair", "")
        list_ = detail = None
        if "list" in want:
            if current:  # A pair that was reviewed since the link was made is on another page now.
                query = replace(query, page=index.page_of(current, query) or query.page)
            page = index.page(query)
            if not current and page.rows:
                current = page.rows[0]["id"]
            list_ = view_pairs.pair_list(page, place, reader, current)
        if "detail" in want:
            detail = self._pair(place, dataset, index, token, current)
        return list_, detail

    def _pair(self, place: dict[str, str], dataset: Dataset, index: PairIndex, token: str | None, id: str) -> Html:
        if not id:
            return message("No pair", "No pair passes these filters.")
        light = index.row(id)
        pair = heavy.pair(self.library, dataset, light) if light else None
        if light is None or pair is None:
            return message("No such pair", f"{place['dataset']} {place['revision']} has no pair {id}.")
        votes = heavy.votes(self.library, dataset, pair["trace_id"], pair["index"])
        context, hints_place = None, None
        traces = self.library.linked(dataset, "traces", token)
        if traces is not None:
            context = heavy.context(self.library, traces, pair["trace_id"], pair["index"])
            if context is not None and context.error_sites:
                hints_place = {**only(place), "view": "hints", "hint": f"{pair['step_id']}:1"}
        reader = self.reader(token)
        rows = [row for row in self.reviews.of(dataset.name.repo, token).rows if row["pair_id"] == id]
        decided = place.get("decided") == "yes" or any(row["reviewer"] == reader.name for row in rows)
        return view_pairs.pair_detail(
            pair, light, votes, context, place, reader, decided=decided, verdicts=rows, hints_place=hints_place
        )

    def _hints(
        self, place: dict[str, str], traces: Dataset, token: str | None, want: tuple[str, ...]
    ) -> tuple[Html | None, Html | None]:
        table = view_hints.site_table(self.library, traces)
        id = place.get("hint", "")
        list_ = detail = None
        if "list" in want:
            list_ = view_hints.hint_list(*view_hints.sites(table, place), place, id)
        if "detail" in want:
            site = table.row(id) if id else None
            if id and site is None:
                detail = message("No such site", f"{traces.name} has no error site {id}.")
            elif site is None:
                detail = view_hints.hint_summary(view_hints.site_counts(table))
            else:
                trace = heavy.trace(self.library, traces, site["trace_id"])
                rows = self.reviews.of(traces.name.repo, token).rows
                verdicts = [row for row in rows if row["site_id"] == id]
                detail = view_hints.hint_detail(site, trace, place, verdicts)
        return list_, detail

    def _sessions(
        self, place: dict[str, str], traces: Dataset, token: str | None, want: tuple[str, ...]
    ) -> tuple[Html | None, Html | None]:
        table = view_sessions.session_table(self.library, traces)
        rows, total, at = view_sessions.sessions(table, place)
        id = place.get("session") or (rows[0]["id"] if rows else "")
        detail = None
        if "detail" in want:
            session = table.row(id)
            detail = message("No such session", f"{traces.name} has no session {id}.")
            if session is not None:
                detail = view_sessions.session_detail(self._story(place, session, traces, token), place)
        return view_sessions.session_list(rows, total, at, place, id) if "list" in want else None, detail

    def _story(
        self, place: dict[str, str], session: dict[str, Any], traces: Dataset, token: str | None
    ) -> view_sessions.Story:
        id, first = session["id"], view_sessions.Story.first_of(place)
        stop = first + view_sessions.WINDOW
        pairs = self._source(self.place(place, token)[1], "pairs", token)
        return view_sessions.Story(
            session,
            *view_sessions.turns_and_marks(self.library, traces, id),
            heavy.steps(self.library, traces, [id], first, stop),
            self.index(pairs, token).of_trace(id) if pairs else {},
            heavy.vote_counts(self.library, pairs, id, first, stop) if pairs else {},
            first,
        )

    def _runs(
        self, place: dict[str, str], dataset: Dataset, token: str | None, want: tuple[str, ...]
    ) -> tuple[Html | None, Html | None]:
        rows = view_runs.rollouts(self.library, dataset)
        first = next((row for row in rows if row["num_hints"]), rows[0] if rows else None)
        id = place.get("rollout") or (first["trace_id"] if first else "")
        detail = None
        if "detail" in want:
            trace = heavy.trace(self.library, dataset, id) if id else None
            detail = message("No such rollout", f"{dataset.name} has no rollout {id}.")
            if trace is not None:
                beside = view_runs.beside(rows, id)
                by_trace: dict[str, list[Any]] = {row["trace_id"]: [] for row in beside}
                for step in heavy.steps(self.library, dataset, list(by_trace), stop=view_runs.MAX_TURNS):
                    by_trace[step["trace_id"]].append(step)
                detail = view_runs.run_detail(trace, [(row, by_trace[row["trace_id"]]) for row in beside], place)
        return view_runs.run_list(rows, place, id) if "list" in want else None, detail

    def _tasks(
        self, place: dict[str, str], dataset: Dataset, token: str | None, want: tuple[str, ...]
    ) -> tuple[Html | None, Html | None]:
        rows = dataset.once("tasks", lambda: heavy.tasks(self.library, dataset))
        tried: dict[str, list[Any]] = {}
        runs = self._source(self.place(place, token)[1], "runs", token)
        for one in view_runs.rollouts(self.library, runs) if runs else ():
            tried.setdefault(str(one["episode"].get("task_id")), []).append(one)
        id = place.get("task") or (rows[0]["task_id"] if rows else "")
        row = next((row for row in rows if row["task_id"] == id), None)
        detail = message("No such task", f"{dataset.name} has no task {id}.")
        if row is not None:
            detail = view_tasks.task_detail(row, place, tried.get(id, ()))
        return view_tasks.task_list(rows, place, id, tried), detail

    def _overview(self, place: dict[str, str], dataset: Dataset, token: str | None) -> Html:
        if dataset.kind != "pairs":
            return view_overview.overview(str(dataset.name), dataset.manifest, [], None, None, [])
        index = self.index(dataset, token)
        standing = self.reviews.of(dataset.name.repo, token)
        agreed = view_overview.review_card(standing)
        changes = None
        if place.get("base"):
            old = self.library.open(dataset.name.repo, place["base"], token)
            changes = view_pairs.change_list(*compare(self.library, old, dataset), place)
        report = heavy.report(self.library, dataset)
        kinds = index.facets()["error_kind"]
        return view_overview.overview(
            f"{place['dataset']} {dataset.version}", dataset.manifest, report, agreed, changes, kinds
        )

    # ------------------------------------------------------------------------------------------------------ on demand

    def filters(self, parameters: Mapping[str, str], token: str | None) -> Html:
        """Return the controls of the filter panel."""
        place, dataset = self.place(parameters, token)
        source = self._source(dataset, place["view"], token) if place["view"] in ITEMS else None
        if place["view"] == "pairs" and source is not None:
            return view_pairs.filter_bar(self.index(source, token).facets(), place, self.reader(token))
        if place["view"] == "hints" and source is not None:
            return view_hints.hint_filters(view_hints.site_counts(view_hints.site_table(self.library, source)), place)
        return Html()

    def text(self, parameters: Mapping[str, str], token: str | None) -> dict[str, Any]:
        """Return a piece of a long text, or the messages before the window."""
        place, dataset = self.place(parameters, token)
        part, offset = place.get("part", "prompt"), whole(place.get("offset"))
        if place.get("session"):
            source = self._source(dataset, "sessions", token) or dataset
            step = whole(place.get("step"))
            return {"html": conversation(heavy.step_messages(self.library, source, place["session"], step))}
        if place.get("hint"):
            source = self._source(dataset, "hints", token) or dataset
            messages = self._hint_prompt(source, place["hint"])
            values = {"prompt": messages}
        else:
            source = self._source(dataset, "pairs", token) or dataset
            light = self.index(source, token).row(place.get("pair", ""))
            pair = heavy.pair(self.library, source, light) if light else None
            if pair is None:
                raise NotShown("There is no such pair.")
            messages = pair["prompt"]
            values = {name: pair[name] for name in ("prompt", "chosen", "rejected", "tools")}
        if part == "prompt" and "at" not in place:
            until = min(len(messages), whole(place.get("until")) or max(0, len(messages) - view_pairs.WINDOW))
            kept = address(only(place, "view", "pair", "hint"), "text", part="prompt")
            return {"html": view_pairs.earlier_messages(messages, offset, until, kept)}
        value = values.get(part, [])
        if part == "prompt":
            at = whole(place.get("at"))
            content = messages[at].get("content") if at < len(messages) and isinstance(messages[at], dict) else ""
            value = content or ""
        text = pretty(parsed(value))
        piece = text[offset : offset + CHUNK]
        return {"text": visible(piece), "next": offset + len(piece) if offset + len(piece) < len(text) else None}

    def _hint_prompt(self, traces: Dataset, id: str) -> list[Any]:
        site = view_hints.site_table(self.library, traces).row(id)
        trace = heavy.trace(self.library, traces, site["trace_id"]) if site else None
        step = next((one for one in (trace or {}).get("steps") or [] if site and one["index"] == site["step"]), None)
        if trace is None or step is None:
            raise NotShown("There is no such error site.")
        return [trace["messages"][at] for start, stop in step["prompt"] for at in range(start, stop)]

    def submit(self, body: Any, token: str) -> dict[str, Any]:
        """Open a pull request with the verdicts in a request's body."""
        if not isinstance(body, dict) or not isinstance(body.get("dataset"), str):
            raise verdicts.BadVerdict("Name the dataset that the verdicts are on.")
        repo, revision = body["dataset"], str(body.get("revision") or "main")[:100]
        self.library.check_access(repo, token)
        if all(dataset.name.repo != repo for dataset in self.library.opened()):
            raise NotShown(f"{repo} is not shown by this Space.")
        result = verdicts.submit(self.library.api, repo, revision, body.get("verdicts"), token)
        self.reviews.forget(repo)
        return result

    # ------------------------------------------------------------------------------------------------------------ API

    def search(self, parameters: Mapping[str, str], token: str | None) -> dict[str, Any]:
        """Return a page of light rows."""
        place, dataset = self.place({**parameters, "view": "pairs"}, token)
        source = self._source(dataset, "pairs", token)
        if source is None:
            raise NotShown(f"{place['dataset']} is not a set of pairs.")
        page = self.index(source, token).page(Query.of(place))
        return {"dataset": str(source.name), "total": page.total, "page": page.number, "pairs": page.rows}

    def pair(self, parameters: Mapping[str, str], token: str | None) -> dict[str, Any]:
        """Return one pair with its votes."""
        place, dataset = self.place({**parameters, "view": "pairs"}, token)
        source = self._source(dataset, "pairs", token)
        light = self.index(source, token).row(place.get("pair", "")) if source else None
        pair = heavy.pair(self.library, source, light) if source and light else None
        if pair is None or source is None:
            raise NotShown(f"{place['dataset']} has no pair {place.get('pair', '')}.")
        window = pair.pop("prompt")[-view_pairs.WINDOW :]
        votes = heavy.votes(self.library, source, pair["trace_id"], pair["index"])
        return {**pair, "last_messages": window, "votes": votes}

    def stats(self, parameters: Mapping[str, str], token: str | None) -> dict[str, Any]:
        """Return the report, the counts of each filter and the reviewers' agreement."""
        place, dataset = self.place(parameters, token)
        facts: dict[str, Any] = {
            "dataset": place["dataset"],
            "revision": dataset.revision,
            "kind": dataset.kind,
            "counts": dataset.manifest.get("counts", {}),
        }
        if dataset.kind == "pairs":
            standing = self.reviews.of(dataset.name.repo, token)
            facts |= {
                "report": heavy.report(self.library, dataset),
                "agreement": verdicts.agreement(standing.rows),
                "open_pull_requests": standing.pending,
                "refused_verdict_files": [str(file) for file in standing.refused],
                "facets": self.index(dataset, token).facets(),
            }
        return facts
