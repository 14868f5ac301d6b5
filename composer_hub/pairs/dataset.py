"""Versions of a pair set: a new one from made pairs, the next one from reviewers' verdicts.

Out: a `Draft`, ready for `hub.publish` or `hub.update`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from composer_hub import exits
from composer_hub.hub import Card, Draft, Lineage, Parent, ReviewFile, Version, verdicts
from composer_hub.output import plural
from composer_hub.pairs.card import example, judge_text, materials, notes
from composer_hub.pairs.plots import pictures_of
from composer_hub.pairs.purchase import Purchase
from composer_hub.pairs.report import of_other_pairs, report_rows
from composer_hub.pairs.report_card import code, report_markdown
from composer_hub.pairs.tables import (
    FAMILY_BITS,
    copied_tables,
    metrics_of,
    pair_rows_table,
    pairs_table,
    report_table,
    splits_of,
    votes_table,
)
from composer_hub.pairs.verdicts import PairVerdict, apply_verdicts, read_verdicts
from composer_hub.records import MARKER, Pair

if TYPE_CHECKING:
    from composer_hub.pairs.build import PairSet

OWN_REPAIRS = (
    "No teacher was asked. A call of the student failed by its own fault, and a later call of its own proves what was "
    "right: the environment names what is wrong, the later call lacks it and is otherwise alike, and nothing in "
    "between made the failed call right."
)
TAGS = ("preference", "dpo", "trl", "agents", "tool-use", "teacher-replay")


def draft(
    made: PairSet,
    name: str,
    *,
    source: Version | None = None,
    license: str = "other",
    purchase: Purchase | None = None,
    on_note: Callable[[str], None] = lambda note: None,
) -> Draft:
    """Return the first version of a pair set.

    `source` is the version of the traces, `purchase` the money of the run. Without it, the report adds up the money
    that the votes name, which misses calls that were billed and repeated.
    """
    poll = made.votes.poll
    metrics = report_rows(made.pairs.outlines, made.summaries, drops=made.drops, poll=poll, purchase=purchase)
    for note in notes(metrics, made.drops, poll):
        on_note(note)
    if made.num_too_long:
        on_note(
            f"Longer than {made.options.max_tokens:,} tokens even as a window: {made.num_too_long:,} of "
            f"{plural(len(made.pairs), 'pair')}. A trainer with that limit leaves them out; build with a larger "
            "--max-tokens to train on them."
        )
    pictures, shown = pictures_of(metrics)
    card = Card(
        "pairs",
        pretty_name=f"{name}: preference pairs from {'teacher replay' if made.policy else 'own repairs'}",
        license=license,
        tags=TAGS if made.policy else tuple(tag for tag in TAGS if tag != "teacher-replay"),
        counts={"traces": made.num_traces, "teacher answers": made.num_votes, "pairs": len(made.pairs)},
        dropped=dict(made.drops.most_common()),
        source_datasets=(source.repo,) if source else (),
        holes={
            "example": example(made.pairs.outlines, made.pairs),
            "plots": shown,
            "policy": materials(
                made.policy,
                poll,
                purchase,
                sorted(made.teachers),
                window_text(made),
                judge_text(made.num_judged, len(made.pairs), made.drops, poll),
            )
            if made.policy
            else f"{OWN_REPAIRS} {window_text(made)}",
            "report": report_markdown(metrics, drops=False),  # The card has a separate section for them.
        },
        pictures=pictures,
    )
    lineage = Lineage(
        parents=(Parent("traces", source.repo, source.revision, tag=source.tag),) if source else (),
        config=made.options.facts()
        | (dataclasses.asdict(made.policy) if made.policy else {"from": "own-repairs"})
        | {"order": poll.order if poll else ""},
        sources={
            "teachers": sorted(made.teachers),
            "price_stamps": sorted(made.price_stamps),
            "family_bits": list(FAMILY_BITS),
        },
    )
    tables = [pair_rows_table(made.pairs.rows), votes_table(made.votes.rows()), report_table(metrics)]
    return Draft(tables, card, lineage, f"Pairs from {source.repo} {source.tag}" if source else "Pairs")


def merged_verdicts(source: Version) -> tuple[list[PairVerdict], list[ReviewFile]]:
    """Return the verdicts on pairs that were merged into the dataset of a version, and the files that were refused."""
    return verdicts.merged_verdicts(source, read_verdicts)


def reviewed_draft(
    source: Version, verdicts: Iterable[PairVerdict], refused: Sequence[ReviewFile] = ()
) -> tuple[Draft, Counter[str]]:
    """Return the next version of a pair set after review, and the number of verdicts by outcome."""
    kept, counts = apply_verdicts(source.records(Pair, "default"), verdicts)
    outcomes = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items()) or "none"
    if not kept:
        raise exits.NothingToDo(f"No pair of {source.repo} {source.name} is left after review ({outcomes}).")
    policy = f"The pairs of {source.repo} {source.name} with their reviewers' verdicts ({outcomes})."
    if refused:
        policy += f" Not counted: {plural(len(refused), 'file')} of `verdicts/` without a proven author."
    metrics = of_other_pairs(metrics_of(source), kept)
    card = next_card(
        source,
        "reviewed preference pairs",
        tag="reviewed",
        counts={"pairs": len(kept)},
        policy=policy,
        report=f"Votes, agreement and money are those of {source.name}, before review:\n\n"
        f"{report_markdown(metrics, drops=False)}"
        if metrics
        else "",
    )
    lineage = Lineage(
        parents=(Parent("reviewed", source.repo, source.revision, tag=source.tag),),
        sources={"verdicts": dict(counts)},
    )
    tables = [pairs_table(kept, splits_of(source)), *copied_tables(source, metrics)]
    return Draft(tables, card, lineage, f"Apply verdicts to {source.name}"), counts


def next_card(
    source: Version,
    title: str,
    *,
    tag: str,
    counts: dict[str, int],
    policy: str,
    report: str,
    dropped: dict[str, int] | None = None,
) -> Card:
    """Return the card of a version that was made from another one: its card, with what changed."""
    return Card(
        "pairs",
        pretty_name=f"{source.repo.split('/')[1]}: {title}",
        license=source.license(),
        tags=(*TAGS, tag),
        counts={**source.manifest["counts"], **counts},
        dropped={**source.manifest["dropped"], **(dropped or {})},
        holes={"policy": policy, "report": report},
    )


def window_text(made: PairSet) -> str:
    """Describe for the card how prompts were cut."""
    limit = made.options.max_tokens
    if not limit:
        return "Prompts are whole: their lengths are below."
    longer = f" Longer even so: {plural(made.num_too_long, 'pair')}." if made.num_too_long else ""
    tokenizer = made.options.facts()["tokenizer"]
    counted = f"counted by the tokenizer {code(tokenizer)}" if tokenizer else (
        "estimated as bytes / 2.5 and 8 for each message"
    )  # fmt: skip
    return (
        f"Prompts are windows: with tools and the longer answer, at most {limit:,} tokens, {counted}. A window keeps "
        "the system messages, the first and the latest message of the user, what the two actions depend on, and the "
        f"last messages in whole groups of calls and results. `{MARKER}` stands where messages are missing, and "
        "`num_left_out` counts them; `num_shortened` counts those that lost their middle. "
        f"Cut: {made.num_cut:,} of {plural(len(made.pairs), 'pair')}.{longer}"
    )
