"""`composer-hub diff` and `composer-hub lineage`: the changes between two versions, and the origin of one."""

from __future__ import annotations

import click

from composer_hub.cli.main import format_option
from composer_hub.cli.options import from_option, ref_argument
from composer_hub.hub import destination, versions
from composer_hub.output import Output

_SHOWN = 20
_SHORT = 12


@click.command(short_help="Compare two versions of a dataset.")
@click.argument("old", metavar="REPO@REV")
@click.argument("new", metavar="REPO@REV")
@from_option
@format_option
def diff(old: str, new: str, origin: str, out: Output) -> None:
    """Compare two versions of a dataset by file and by row."""
    changes = versions.diff(destination(origin), old, new)
    if out.mode == "json":
        out.record(
            {
                "old": changes.old,
                "new": changes.new,
                "files": {
                    "added": changes.files_added,
                    "removed": changes.files_removed,
                    "changed": changes.files_changed,
                },
                "rows": {
                    row.config: {
                        "added": row.added,
                        "removed": row.removed,
                        "changed": row.changed,
                        "same": row.num_same,
                    }
                    for row in changes.rows
                },
            },
            id_key="new",
        )
        return
    out.note(f"{changes.old} -> {changes.new}")
    out.table(
        [
            {
                "config": row.config,
                "added": len(row.added),
                "removed": len(row.removed),
                "changed": len(row.changed),
                "same": row.num_same,
            }
            for row in changes.rows
        ],
        id_key="config",
    )
    for row in changes.rows:
        for sign, ids in (("+", row.added), ("-", row.removed), ("~", row.changed)):
            for id in ids[:_SHOWN]:
                out.text(f"{sign} {row.config} {id}")
            if len(ids) > _SHOWN:
                out.text(f"{sign} {row.config} ... and {len(ids) - _SHOWN:,} more (all of them with --format json)")
    for sign, paths in (("+", changes.files_added), ("-", changes.files_removed), ("~", changes.files_changed)):
        for path in paths:
            out.text(f"{sign} {path}")


@click.command(short_help="Show what a version was made from.")
@ref_argument
@from_option
@format_option
def lineage(ref: str, origin: str, out: Output) -> None:
    """Show everything that a version was made from."""
    links = list(versions.lineage(destination(origin), ref))
    rows = [link.as_row() for link in links]
    if out.mode == "json":
        rows = [
            row | {"depth": link.depth, "step": link.role, "type": link.type}
            for row, link in zip(rows, links, strict=True)
        ]
    elif out.mode == "human":
        # Twelve digits identify a commit in a narrow terminal; --format json prints all of them.
        rows = [row | {"revision": str(row["revision"])[:_SHORT]} for row in rows]
        if not any(row["note"] for row in rows):
            rows = [{key: value for key, value in row.items() if key != "note"} for row in rows]
    out.table(rows, id_key="revision")
