"""The log-probs that a reference model gives to published pairs, as a next version of their set.

Training on that version needs no reference model in memory.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from composer_hub import exits
from composer_hub.hub import Draft, Lineage, Model, Parent, Table, Version
from composer_hub.output import plural
from composer_hub.pairs.dataset import next_card
from composer_hub.pairs.report_card import report_markdown
from composer_hub.pairs.spool import Spool
from composer_hub.pairs.tables import copied_tables, metrics_of, pair_rows_table
from composer_hub.pairs.windows import MAX_TOKENS
from composer_hub.records import Pair, features_of, from_row, to_row
from composer_hub.train.models import load_model, load_tokenizer, pick_device
from composer_hub.train.tokens import PairEncoder, RefLogps, reasons_text, ref_rows

CONFIG = "ref"
PAIRS_AT_ONCE = 256  # whose tokens are in memory


def reference_draft(
    source: Version,
    reference: Model,
    *,
    max_tokens: int = MAX_TOKENS,
    batch_size: int = 4,
    device: str = "auto",
    on_pair: Callable[[], None] = lambda: None,
) -> tuple[Draft, Counter[str]]:
    """Return the version of a pair set that also holds reference log-probs, and the pairs left out by reason."""
    encoder = PairEncoder.of(load_tokenizer(reference.folder), max_tokens=max_tokens)
    fingerprint = encoder.fingerprint(reference.name, reference.revision)
    rows, found, dropped = Spool[dict[str, Any]](), Spool[dict[str, Any]](), Counter[str]()
    network = None
    published = ({**row, "split": name} for name in source.splits("default") for row in source.rows("default", name))
    while part := list(itertools.islice(published, PAIRS_AT_ONCE)):
        encoded = encoder.encode(_noted(part, rows, on_pair))
        dropped += encoded.dropped
        if encoded.pairs:
            network = network or load_model(reference.folder).to(pick_device(device))
            for row in ref_rows(network, encoded, fingerprint, batch_size=batch_size):
                found.append(to_row(row))
    if not found:
        raise exits.NothingToDo(
            f"None of the {plural(len(rows), 'pair')} of {source.repo} can be encoded: {reasons_text(dropped)}. "
            "Long ones may fit with a larger --max-tokens."
        )
    parents = [Parent("pairs", source.repo, source.revision, tag=source.tag)]
    if reference.is_published:
        parents.append(Parent("reference model", reference.name, reference.revision, "model", reference.tag))
    metrics = metrics_of(source)
    card = next_card(
        source,
        "preference pairs with reference log-probs",
        tag="reference-logps",
        counts={"reference log-probs": len(found)},
        dropped={f"no log-probs: {reason}": count for reason, count in dropped.items()},
        policy=(
            f"The pairs of {source.repo} {source.tag} with the log-probs that `{reference.name}` gives to both sides: "
            f"config `{CONFIG}`, of the whole answer at temperature 1, with the conditions under which they hold "
            "(`fingerprint`)."
        ),
        report=report_markdown(metrics, drops=False) if metrics else "",
    )
    logps = Table(CONFIG, found, features_of(RefLogps), "pair_id")
    tables = [pair_rows_table(rows), *copied_tables(source, metrics), logps]
    lineage = Lineage(parents=tuple(parents), config=to_row(fingerprint))
    title = f"Reference log-probs of {reference.name} for {source.tag or source.revision}"
    return Draft(tables, card, lineage, title), dropped


def _noted(rows: Iterable[dict[str, Any]], spool: Spool[dict[str, Any]], on_pair: Callable[[], None]) -> Iterator[Pair]:
    for row in rows:
        spool.append(row)
        yield from_row(Pair, row)
        on_pair()
