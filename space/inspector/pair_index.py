"""The list of pairs: the published index in, filtered pages, counts and comparisons out.

The index is queried as a Parquet file until its copy in memory is ready, so the first page waits for nothing. Every
value of a visitor is a bound parameter; names of columns come from this module alone.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from inspector.address import whole
from inspector.library import PAGE, Dataset, SpaceLibrary

MAX_QUERY_CHARS = 200
COPY_AFTER_S = 3.0
# Column of the list -> its expression over the index, and the value for an older index without that column.
_COLUMNS = {
    "id": ("id", "''"),
    "split": ("split", "''"),
    "trace_id": ("trace_id", "''"),
    "step": ('"index"::int', "0"),
    "num_steps": ("num_steps::int", "0"),
    "num_agree": ("num_agree::int", "0"),
    "num_votes": ("num_votes::int", "0"),
    "dispute": ("(num_votes - num_agree) * 100 // greatest(num_votes, 1)", "0"),
    "teachers": ("array_to_string(teachers, '|')", "''"),
    "families": ("array_to_string(families, '|')", "''"),
    "scripted": ("array_to_string(families, '|') like '%scripted%'", "false"),
    "same_family": ("list_contains(families, source_family)", "false"),
    "chosen_teacher": ("chosen_teacher", "''"),
    "model": ("source_model", "''"),
    "error_kind": ("error_kind", "''"),
    "after_error": ("after_error", "false"),
    "resolved": ("resolved", "null::bool"),
    "cost_usd": ("cost_usd::double", "0::double"),
    "repository": ("repository", "''"),
    "judged": ("judged", "false"),
    "chosen_tool": ("chosen_tool", "''"),
    "rejected_tool": ("rejected_tool", "''"),
    "chosen_preview": ("chosen_preview", "''"),
    "rejected_preview": ("rejected_preview", "''"),
    # The first pair of its kind in a session is worth more than the next ones, which are like it.
    "repeat": (
        'row_number() over (partition by trace_id, error_kind, chosen_tool, rejected_tool order by "index")',
        "1",
    ),
    "review": ("'new'", "'new'"),
    "reviewers": ("''", "''"),
}
_SOURCES = {  # the columns of the index in an expression, unless it is the one of the same name
    "step": "index",
    "dispute": "num_agree num_votes",
    "scripted": "families",
    "same_family": "families source_family",
    "model": "source_model",
    "repeat": "trace_id error_kind chosen_tool rejected_tool index",
    "review": "id",
    "reviewers": "id",
}
_WORTH = ("-dispute", "repeat", "-cost_usd", "trace_id", "step", "id")
# Pairs of this share are for every reviewer, so that their agreement can be measured; others leave the queue with the
# first verdict. The value is the reader's name between bars.
SHARED = 5
_DONE = f"(reviewers <> '' and (hash(id) % {SHARED} <> 0 or contains(reviewers, ?)))"

Clause = tuple[str, list[Any]]


def sources_of(name: str) -> set[str]:
    """Return the columns of the index that a column of the list is made of."""
    return set(_SOURCES.get(name, name).split())


def _equals(column: str) -> Callable[[str], Clause]:
    return lambda value: (f"{column} = ?", ["" if value == "none" else value])


def _member(column: str) -> Callable[[str], Clause]:
    # contains() takes the value literally; LIKE would read _ and % as wildcards.
    return lambda value: (f"contains('|' || {column} || '|', ?)", [f"|{value}|"])


def _flag(expression: str) -> Callable[[str], Clause]:
    return lambda value: (expression if value == "yes" else f"not ({expression})", [])


def _amount(comparison: str) -> Callable[[str], Clause]:
    return lambda value: (f"cost_usd {comparison} ?", [float(value)])


def _review(value: str) -> Clause:
    return ("review <> 'new'", []) if value == "reviewed" else ("review = ?", [value])


def _search(value: str) -> Clause:
    text = value.lower()
    texts = [f"contains(lower({column}), ?)" for column in ("chosen_preview", "rejected_preview", "repository")]
    return "(" + " or ".join([*texts, "trace_id = ?", "id = ?"]) + ")", [text, text, text, value, value]


# Name in the URL -> the clause for a value. The order is that of the filter bar.
FILTERS: Mapping[str, Callable[[str], Clause]] = {
    "q": _search,
    "review": _review,
    "agree": _flag("num_agree = num_votes"),
    "error_kind": _equals("error_kind"),
    "after_error": _flag("after_error"),
    "judged": _flag("judged"),
    "teacher": _member("teachers"),
    "family": _member("families"),
    "same_family": _flag("same_family"),
    "scripted": _flag("scripted"),
    "model": _equals("model"),
    "repository": _equals("repository"),
    "tool": lambda value: ("(chosen_tool = ? or rejected_tool = ?)", [value, value]),
    "split": _equals("split"),
    "min_cost": _amount(">="),
    "max_cost": _amount("<="),
}
FACETS = ("review", "error_kind", "teachers", "families", "model", "repository", "chosen_tool", "split")
MAX_CHOICES = 200


class BadFilter(ValueError):
    """A filter whose value cannot be used."""


@dataclass(frozen=True)
class Query:
    """The filters of the list by name, and its page."""

    filters: Mapping[str, str] = field(default_factory=dict)
    page: int = 0
    reader: str = ""  # whose queue it is

    @classmethod
    def of(cls, parameters: Mapping[str, str], reader: str = "") -> Query:
        """Read the query string; what is not a filter is left to others."""
        filters = {name: parameters[name] for name in FILTERS if parameters.get(name)}
        for name, value in filters.items():
            if len(value) > MAX_QUERY_CHARS:
                raise BadFilter(f"The filter {name} is longer than {MAX_QUERY_CHARS} characters.")
            if name.endswith("_cost"):
                _checked_amount(name, value)
        return cls(filters, whole(parameters.get("page")), reader)

    @property
    def mark(self) -> str:
        """Return the reader's name as it is in the column of reviewers."""
        return f"|{self.reader}|"

    def where(self) -> Clause:
        """Return the condition and its values."""
        clauses = [FILTERS[name](value) for name, value in self.filters.items()]
        return " and ".join(sql for sql, _ in clauses) or "true", [value for _, values in clauses for value in values]


def _checked_amount(name: str, value: str) -> None:
    try:
        amount = float(value)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < 1e9:
        raise BadFilter(f"{name} is an amount in dollars such as 0.01, not {value[:40]!r}.")


@dataclass(frozen=True)
class Page:
    """A page of the list."""

    rows: list[dict[str, Any]]
    total: int
    number: int

    @property
    def num_pages(self) -> int:
        return max(1, -(-self.total // PAGE))


@dataclass(frozen=True)
class Relation:
    """A relation to query: its name in DuckDB, the column that identifies a row, and its sort keys."""

    name: str
    key: str
    order: tuple[str, ...]


class PairIndex:
    """The index of one revision, ready for queries."""

    _names = itertools.count()

    def __init__(self, library: SpaceLibrary, dataset: Dataset, *, in_background: bool = True) -> None:
        self.library = library
        self.path = dataset.index_path("default")
        name = f"pairs_{next(self._names)}"
        self.first = self.relation = Relation(name, "id", (_DONE, *_WORTH))
        there = {row[0] for row in library.query("describe select * from read_parquet(?)", [self.path])}

        def select(lacking: set[str]) -> str:
            columns = (
                f"{expression if sources_of(name) <= there and name not in lacking else missing} as {name}"
                for name, (expression, missing) in _COLUMNS.items()
            )
            return f"select {', '.join(columns)} from read_parquet('{quoted}')"

        quoted = self.path.replace("'", "''")
        self._select = select(set())
        # Over a million pairs the column takes seconds, so the first pages do without it.
        library.query(f"create view {name} as {select({'repeat'})}")
        self._lock = threading.Lock()
        self._reviews: dict[str, tuple[str, str]] = {}
        self._facets: dict[str, list[tuple[str, int]]] | None = None
        self.ready = threading.Event()
        self._waiting = in_background
        if not in_background:
            self._copy()

    def _copy(self) -> None:
        """Bring the index into memory; until then the view answers."""
        name = f"{self.relation.name}_copy"
        # Sorted here, its row numbers are the order of the list.
        self.library.query(f"create table {name} as {self._select} order by {', '.join(_WORTH)}")
        with self._lock:
            self.relation = Relation(name, "rowid", (_DONE, "rowid"))
            self._mark()
            self.ready.set()

    def drop(self) -> None:
        """Free the memory."""
        if not self._waiting:
            self.ready.wait(60)
        self.library.query(f"drop {'table' if self.ready.is_set() else 'view'} if exists {self.relation.name}")

    def page(self, query: Query) -> Page:
        """Return a page of a reader's queue: what is not reviewed first, then what is worth most."""
        try:
            return self._page(query)
        finally:
            with self._lock:
                start, self._waiting = self._waiting, False
            if start:  # The copy needs the processors, so it lets the first visitor's page go first.
                timer = threading.Timer(COPY_AFTER_S, self._copy)
                timer.daemon = True
                timer.start()

    def _page(self, query: Query) -> Page:
        at = self.relation  # once: the copy may take the file's place between two queries
        total, keys = self._keys(at, query, query.page)
        number = query.page if keys else max(0, (total - 1) // PAGE)
        if total and not keys:
            total, keys = self._keys(at, query, number)
        if not keys:
            return Page([], total, number)
        rows = self.library.rows(
            f"select {at.key} as found, * from {at.name} where {at.key} in ({', '.join('?' * len(keys))})", keys
        )
        places = {key: number for number, key in enumerate(keys)}
        return Page(sorted(rows, key=lambda row: places[row.pop("found")]), total, number)

    def _keys(self, at: Relation, query: Query, page: int) -> tuple[int, list[Any]]:
        """Return how many pairs pass the filters, and the keys of those on a page, in one scan."""
        where, values = query.where()
        order = ", ".join(f"{key} as o{number}" for number, key in enumerate(at.order))
        names = ", ".join(f"o{number}" for number in range(len(at.order)))
        found = self.library.query(
            f"with hits as materialized (select {at.key} as found, {order} from {at.name} where {where}),"
            f" page as (select found from hits order by {names} limit {PAGE} offset ?)"
            " select (select count(*) from hits), found from (select 1) left join page on true",
            [query.mark, *values, page * PAGE],
        )
        return found[0][0], [key for _, key in found if key is not None]

    def row(self, pair_id: str) -> dict[str, Any] | None:
        """Return a pair's row of the list."""
        rows = self.library.rows(f"select * from {self.relation.name} where id = ?", [pair_id])
        return rows[0] if rows else None

    def of_trace(self, trace_id: str) -> dict[int, list[dict[str, Any]]]:
        """Return the pairs of a trace, by step."""
        found: dict[int, list[dict[str, Any]]] = {}
        columns = "id, step, num_agree, num_votes"
        for row in self.library.rows(f"select {columns} from {self.relation.name} where trace_id = ?", [trace_id]):
            found.setdefault(row["step"], []).append(row)
        return found

    def page_of(self, pair_id: str, query: Query) -> int | None:
        """Return the page on which a pair is, or None if the filters hide it."""
        at = self.relation
        where, values = query.where()
        keys = ", ".join(at.order)
        found = self.library.query(
            f"select {keys} from {at.name} where id = ? and {where}", [query.mark, pair_id, *values]
        )
        if not found:
            return None
        marks = ", ".join("?" * len(at.order))
        before = self.library.query(
            f"select count(*) from {at.name} where {where} and row({keys}) < row({marks})",
            [*values, query.mark, *found[0]],
        )
        return before[0][0] // PAGE

    def facets(self) -> dict[str, list[tuple[str, int]]]:
        """Return the values of each filter with their counts, the most frequent first."""
        if self._facets is None:
            self._facets = {column: self._values(column) for column in FACETS}
        return self._facets

    def _values(self, column: str) -> list[tuple[str, int]]:
        counted = self.library.query(f"select {column}, count(*) from {self.relation.name} group by all")
        if column not in ("teachers", "families"):
            return _most(counted)
        apart: dict[str, int] = {}
        for combination, count in counted:
            for one in filter(None, combination.split("|")):
                apart[one] = apart.get(one, 0) + count
        return _most(apart.items())

    def mark(self, reviews: Mapping[str, tuple[str, str]]) -> None:
        """Set what reviewers decided: id -> accepted, rejected, edited, swapped or disputed, and by whom."""
        with self._lock:
            self._reviews = dict(reviews)
            if self.ready.is_set():
                self._mark()

    def _mark(self) -> None:
        cursor = self.library.db.cursor()
        cursor.execute(f"update {self.relation.name} set review = 'new', reviewers = '' where review <> 'new'")
        if self._reviews:
            states, reviewers = zip(*self._reviews.values(), strict=True)
            cursor.execute(
                f"update {self.relation.name} set review = r.state, reviewers = r.reviewers"
                " from (select unnest(?) as id, unnest(?) as state, unnest(?) as reviewers) r"
                f" where {self.relation.name}.id = r.id",
                [list(self._reviews), list(states), list(reviewers)],
            )
        self._facets = None


def _most(counted: Iterable[tuple[Any, int]]) -> list[tuple[str, int]]:
    rows = sorted(((str(value or ""), count) for value, count in counted), key=lambda row: (-row[1], row[0]))
    return rows[:MAX_CHOICES]


@dataclass(frozen=True)
class PairChange:
    """How a step's pair differs between two versions."""

    kind: str  # added, removed or changed
    before: str  # pair id, "" if added
    after: str  # pair id, "" if removed
    trace_id: str
    step: int


def compare(
    library: SpaceLibrary, old: Dataset, new: Dataset, *, limit: int = 500
) -> tuple[dict[str, int], list[PairChange]]:
    """Compare two versions by their indexes alone; pairs are matched by step."""
    joined = """
        with a as (select id, digest, trace_id, "index" as step from read_parquet(?)),
             b as (select id, digest, trace_id, "index" as step from read_parquet(?))
        select case when a.id is null then 'added' when b.id is null then 'removed' else 'changed' end as kind,
               coalesce(a.id, '') as before, coalesce(b.id, '') as after,
               coalesce(a.trace_id, b.trace_id) as trace_id, coalesce(a.step, b.step)::int as step
        from a full join b on a.trace_id = b.trace_id and a.step = b.step
        where a.digest is distinct from b.digest
    """
    paths = [old.index_path("default"), new.index_path("default")]
    counts = {"added": 0, "removed": 0, "changed": 0}
    counts |= dict(library.query(f"select kind, count(*) from ({joined}) group by all", paths))
    rows = library.rows(f"select * from ({joined}) order by kind, trace_id, step limit {limit}", paths)
    return counts, [PairChange(**row) for row in rows]
