"""The tables of a published pair set: `default` (pairs), `votes`, `report` and `executed`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from composer_hub.harnesses import FAMILIES
from composer_hub.hub import Table, Version
from composer_hub.pairs.preview import preview, tool_names
from composer_hub.pairs.report import Metric
from composer_hub.records import Execution, Pair, Vote, features_of, to_row

_INDEX_COLUMNS = """
trace_id index num_steps level num_agree num_votes teachers families chosen_teacher source_model source_family
error_kind after_error resolved cost_usd repository judged
"""
FAMILY_BITS = tuple(name for name, _ in FAMILIES)
_UNKNOWN_FAMILY = 62  # the highest bit of a signed 64-bit integer that leaves its sign alone


def pairs_table(pairs: Iterable[Pair], splits: Mapping[str, str]) -> Table:
    """Return the `default` config of pairs with the split of their traces."""
    return pair_rows_table([to_row(pair) | {"split": splits[pair.trace_id]} for pair in pairs])


def pair_rows_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return the `default` config: rows of pairs with their split, and an index light enough to browse by."""
    from datasets import Value

    text = Value("string")
    return Table(
        "default",
        rows,
        features_of(Pair),
        "pair_id",
        ("trace_id", "index"),
        split=None,
        index_name="pairs",
        index_columns=tuple(_INDEX_COLUMNS.split()),
        index_derived={
            "family_mask": (Value("int64"), lambda row: family_mask(row["families"])),
            "chosen_tool": (text, lambda row: tool_names(row["chosen"])),
            "rejected_tool": (text, lambda row: tool_names(row["rejected"])),
            "chosen_preview": (text, lambda row: preview(row["chosen"])),
            "rejected_preview": (text, lambda row: preview(row["rejected"])),
        },
    )


def votes_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return the `votes` config."""
    return Table("votes", rows, features_of(Vote), "vote_id", ("trace_id", "index", "teacher"))


def report_table(metrics: Sequence[Metric]) -> Table:
    """Return the `report` config: one number per row."""
    from datasets import Value

    # A float column gives every number back as a float: a count written as an int would then be another row.
    rows = [
        {key: float(value) if isinstance(value, int) and key != "n" else value for key, value in to_row(metric).items()}
        | {"id": f"{metric.metric} {metric.scope}".strip()}
        for metric in metrics
    ]
    features = features_of(Metric)
    features["id"] = Value("string")
    return Table("report", rows, features, "id")


def copied_tables(source: Version, metrics: Sequence[Metric]) -> list[Table]:
    """Return the `votes` and `executed` tables of a version, if it has them, and the report."""
    makers = {"votes": votes_table, "executed": executed_table}
    copies = [make(source.rows(name)) for name, make in makers.items() if name in source.manifest["tables"]]
    return [*copies, report_table(metrics)] if metrics else copies


def executed_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return the `executed` config: what the tests say about pairs."""
    return Table("executed", rows, features_of(Execution), "pair_id", ("trace_id", "step_id"))


def splits_of(source: Version) -> dict[str, str]:
    """Return trace -> the split that holds its pairs."""
    return {row["trace_id"]: name for name in source.splits("default") for row in source.rows("default", name)}


def metrics_of(source: Version) -> list[Metric]:
    """Return the report of a version; empty if it has none."""
    return list(source.records(Metric, "report")) if "report" in source.manifest["tables"] else []


def family_mask(families: Iterable[str]) -> int:
    """Return one bit per family, in the order of `FAMILY_BITS`; an unknown family sets the highest bit."""
    mask = 0
    for family in families:
        mask |= 1 << (FAMILY_BITS.index(family) if family in FAMILY_BITS else _UNKNOWN_FAMILY)
    return mask
