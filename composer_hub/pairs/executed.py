"""Verdicts of the tests: executions of pairs in, the next version of the pair set out.

The verdicts are the config `executed`. The pairs stay as they are unless verdicts are applied: then the
student's action is preferred if the tests prefer it, and pairs whose edits pass the same tests are removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from composer_hub.hub import Draft, Lineage, Parent, Version
from composer_hub.output import plural
from composer_hub.pairs.dataset import next_card
from composer_hub.pairs.report import of_other_pairs
from composer_hub.pairs.report_card import report_markdown
from composer_hub.pairs.tables import copied_tables, executed_table, metrics_of, pairs_table, splits_of
from composer_hub.pairs.verdicts import PairVerdict, apply_verdicts
from composer_hub.records import Execution, Pair, to_row

REVIEWER = "tests"
_REVIEWS: Mapping[str, str] = {"rejected": "swap", "equal": "reject", "hack": "reject"}


def executed_numbers(executions: Sequence[Execution]) -> dict[str, Any]:
    """Return how many pairs the tests decided, and how often they overrule the teachers."""
    counts = Counter(one.verdict for one in executions)
    agree, overrule = counts["chosen"], counts["rejected"]
    return {
        "pairs": len(executions),
        "verdicts": dict(counts.most_common()),
        "decided": agree + overrule,
        "overruled": overrule,
        "overruled_share": round(overrule / (agree + overrule), 4) if agree + overrule else None,
    }


def executed_text(numbers: Mapping[str, Any]) -> str:
    """Describe the numbers in a sentence."""
    others = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in numbers["verdicts"].items()
                       if name not in ("chosen", "rejected"))  # fmt: skip
    share = f" ({numbers['overruled_share']:.0%})" if numbers["decided"] else ""
    return (
        f"The tests decided {numbers['decided']:,} of {plural(numbers['pairs'], 'pair')} and overruled the teachers in "
        f"{numbers['overruled']:,}{share}. Not decided: {others or 'none'}."
    )


def executed_draft(
    source: Version, executions: Sequence[Execution], tasks: Version, *, apply: bool = False
) -> tuple[Draft, Counter[str]]:
    """Return the next version of a pair set with the verdicts, and what applying them changed."""
    pairs = list(source.records(Pair, "default"))
    kept, changed = pairs, Counter[str]()
    if apply:
        verdicts = [PairVerdict(one.pair_id, _REVIEWS[one.verdict], REVIEWER) for one in executions
                    if one.verdict in _REVIEWS]  # fmt: skip
        kept, changed = apply_verdicts(pairs, verdicts)
    numbers, metrics = executed_numbers(executions), of_other_pairs(metrics_of(source), kept)
    text = executed_text(numbers)
    card = next_card(
        source,
        "preference pairs with executed verdicts",
        tag="executed",
        counts={"pairs": len(kept), "pairs decided by tests": numbers["decided"]},
        policy=f"The pairs of {source.repo} {source.name}, executed on the tasks of {tasks.repo} {tasks.tag}. {text} "
        + ("Pairs were swapped or removed accordingly." if apply else "The pairs are unchanged; see `executed`."),
        report=f"Numbers of {source.name}:\n\n{report_markdown(metrics, drops=False)}" if metrics else "",
    )
    lineage = Lineage(
        parents=(
            Parent("executed", source.repo, source.revision, tag=source.tag),
            Parent("tasks", tasks.repo, tasks.revision, tag=tasks.tag),
            # A folder keeps no earlier version, from which the traces could be found.
            *(Parent(**one) for one in source.manifest.get("parents", ()) if one["role"] == "traces"),
        ),
        config={"apply": apply},
        sources={"verdicts": numbers["verdicts"]},
    )
    tables = [
        pairs_table(kept, splits_of(source)),
        *(table for table in copied_tables(source, metrics) if table.config != "executed"),
        executed_table([to_row(one) for one in executions]),
    ]
    return Draft(tables, card, lineage, f"Execute the pairs of {source.name}"), changed
