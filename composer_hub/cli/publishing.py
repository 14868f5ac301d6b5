"""The output of every command that publishes: the plan, or the new version and how to load it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from composer_hub.hub import Published, PublishPlan
from composer_hub.output import Output, size


def show_plan(out: Output, plan: PublishPlan, address: str, report: Mapping[str, Any] | None = None) -> None:
    """Print a plan."""
    facts = plan.describe(address)
    if out.mode in ("json", "quiet"):
        out.record(facts | {"card": plan.card} | _json_only(out, report), id_key="tag")
        return
    files = facts.pop("files")
    facts["num_bytes"] = size(facts["num_bytes"])
    out.record(facts, id_key="tag")
    out.text("")
    out.table([{"file": file["path"], "size": size(file["num_bytes"])} for file in files], id_key="file")
    out.text("\n" + plan.card)
    out.note("Nothing was written. Leave --dry-run out to publish.")


def show_published(
    out: Output, published: Published, to: str = "local", report: Mapping[str, Any] | None = None
) -> None:
    """Print the new version and how to load it."""
    out.record(
        {
            "repo": published.repo,
            "version": published.tag,
            "revision": published.revision,
            "address": published.address,
            "rows": {config: counts["total"] for config, counts in published.rows.items()},
            **_json_only(out, report),
        },
        id_key="revision",
    )
    if published.note:
        out.note(published.note)
    out.note(_how_to_load(published, to))


def _json_only(out: Output, report: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"report": report} if report is not None and out.mode == "json" else {}


def _how_to_load(published: Published, to: str) -> str:
    if to not in ("local", "hub"):
        return f'Load it with load_dataset("{published.address}/{published.repo}").'
    loads = f'load_dataset("{published.repo}", revision="{published.tag}")'
    return f"Load it with {loads}" + (", in `composer-hub run -- python`." if to == "local" else ".")
