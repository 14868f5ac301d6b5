"""The list of pairs: the same pages from the published file and from its copy in memory."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from inspector.library import PAGE, SpaceLibrary
from inspector.pair_index import _COLUMNS, PairIndex, Query, sources_of

from composer_hub.pairs.tables import pair_rows_table

NUM_ROWS = 230
UNREAD = {"family_mask", "level"}  # by this Space; a new column belongs in `_COLUMNS`


def test_the_published_index_has_every_column_that_the_list_reads() -> None:
    """Without one, the list silently shows the value for an older index."""
    table = pair_rows_table([])
    published = {"id", "split", *table.index_columns, *table.index_derived}
    read = {name: set(re.findall(r"\w+", expression)) & published for name, (expression, _) in _COLUMNS.items()}
    made_here = {"review", "reviewers"}
    wrong = {name: read[name] for name in read.keys() - made_here if read[name] != sources_of(name)}
    assert not wrong, f"Name the columns that these expressions read in _SOURCES of pair_index.py: {wrong}"
    unread = published.difference(*read.values())
    assert unread == UNREAD, (
        f"{sorted(unread ^ UNREAD)}: if the list or a filter needs the column, add it to _COLUMNS of pair_index.py; "
        "otherwise take it out of _INDEX_COLUMNS of pairs/tables.py, and name it in NOT_IN_THE_INDEX of "
        "tests/pairs/test_columns.py."
    )


class FakeDataset:
    """A dataset that is an index file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def index_path(self, config: str) -> str:
        return str(self.path)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("it's an index") / "pairs.parquet"
    quoted = str(path).replace("'", "''")
    duckdb.connect().execute(
        f"""copy (
            select md5(i::varchar) as id, 'train' as split, 'd' || i as digest, md5((i // 5)::varchar) as trace_id,
                   i % 5 as "index", 2 + i % 2 as num_agree, 3 as num_votes, ['a_' || i % 3, 'b'] as teachers,
                   ['x'] as families, 'x' as source_family, case when i % 4 = 0 then 'kind_1' else '' end as error_kind,
                   i / 1000 as cost_usd, 'run %_ ' || i as chosen_preview, 'Read' as chosen_tool
            from range({NUM_ROWS}) t(i) order by id
        ) to '{quoted}'"""
    )
    return path


@pytest.fixture(params=["file", "copy"])
def index(request: pytest.FixtureRequest, path: Path) -> PairIndex:
    made = PairIndex(SpaceLibrary([]), FakeDataset(path), in_background=False)
    if request.param == "file":
        made.relation = made.first
    return made


def ids(index: PairIndex, **filters: str) -> list[str]:
    pages = [index.page(Query(filters, number)) for number in range(-(-NUM_ROWS // PAGE))]
    return [row["id"] for page in pages[: pages[0].num_pages] for row in page.rows]


def test_pages_hold_every_pair_once_the_most_disputed_first(index: PairIndex) -> None:
    page = index.page(Query())
    assert page.total == NUM_ROWS
    found = ids(index)
    assert len(set(found)) == NUM_ROWS
    rows = [index.row(id) for id in found]
    assert [row["dispute"] for row in rows] == [33] * 115 + [0] * 115
    costs = [row["cost_usd"] for row in rows]
    assert costs == sorted(costs[:115], reverse=True) + sorted(costs[115:], reverse=True)


def test_a_page_past_the_end_is_the_last_one(index: PairIndex) -> None:
    page = index.page(Query({}, 99))
    assert (page.number, len(page.rows)) == (4, NUM_ROWS % PAGE)
    assert index.page(Query({"error_kind": "nothing"}, 3)).rows == []


def test_a_pair_knows_its_page_under_the_filters(index: PairIndex) -> None:
    for filters in ({}, {"error_kind": "kind_1"}):
        found = ids(index, **filters)
        assert index.page_of(found[53], Query(filters)) == 1
    assert index.page_of(found[0], Query({"error_kind": "none"})) is None


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"teacher": "a_1"}, 77),
        ({"teacher": "a_"}, 0),
        ({"teacher": "a"}, 0),
        ({"q": "%_"}, NUM_ROWS),
        ({"q": "RUN %_ 22"}, 11),
        ({"q": "_%"}, 0),
        ({"error_kind": "none"}, 172),
        ({"agree": "yes"}, 115),
        ({"same_family": "no"}, 0),
        ({"min_cost": "0.1", "max_cost": "0.199"}, 100),
        ({"tool": "Read"}, NUM_ROWS),
        ({"model": "anything"}, 0),
    ],
)
def test_filters_take_values_literally(index: PairIndex, filters: dict[str, str], count: int) -> None:
    assert index.page(Query(filters)).total == count


def test_the_first_pair_of_its_kind_in_a_session_comes_before_those_that_are_like_it(tmp_path: Path) -> None:
    path = tmp_path / "pairs.parquet"
    duckdb.connect().execute(
        f"""copy (
            select i::varchar as id, 'session' as trace_id, i as "index", 2 as num_agree, 3 as num_votes,
                   '' as error_kind, ['Read', 'Read', 'Bash', 'Read'][i + 1] as chosen_tool, 'Edit' as rejected_tool
            from range(4) t(i)
        ) to '{path}'"""
    )
    index = PairIndex(SpaceLibrary([]), FakeDataset(path), in_background=False)
    assert [row["id"] for row in index.page(Query()).rows] == ["0", "2", "1", "3"]


def test_a_reviewed_pair_leaves_the_queue_of_its_reviewer_and_a_shared_one_stays_in_the_others(path: Path) -> None:
    index = PairIndex(SpaceLibrary([]), FakeDataset(path), in_background=False)
    queue = ids(index)
    half = queue[::2]
    index.mark(dict.fromkeys(half, ("accepted", "|ada|")))
    assert index.facets()["review"] == [("accepted", 115), ("new", 115)]
    assert len(ids(index, review="reviewed")) == 115

    def queue_of(reader: str) -> list[str]:
        pages = [index.page(Query(page=number, reader=reader)) for number in range(-(-NUM_ROWS // PAGE))]
        return [row["id"] for page in pages for row in page.rows]

    assert queue_of("ada") == queue[1::2] + half
    places = [queue.index(id) for id in queue_of("me")]
    (end,) = (at for at in range(1, NUM_ROWS) if places[at] < places[at - 1])
    # A part of what ada decided on is still in my queue, in its order.
    assert 115 < end < 115 + 115 / 2
    assert set(range(1, NUM_ROWS, 2)) <= set(places[:end])
    assert index.page_of(half[0], Query(reader="ada")) == 115 // PAGE
    index.mark({})
    assert queue_of("ada") == queue
