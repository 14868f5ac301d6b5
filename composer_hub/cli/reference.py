"""`composer-hub pairs precompute-ref`: what the reference model thinks of each pair, as a next version of the set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.cli.options import Publication, publish_options
from composer_hub.output import Output, Progress
from composer_hub.records import Pair, features_of, to_row

if TYPE_CHECKING:
    from composer_hub.hub import Card, Table, Version

CONFIG = "ref"


@click.command("precompute-ref")
@click.argument("ref", metavar="REPO@REV")
@click.option("--model", required=True, metavar="REPO@REV|FOLDER", help="The reference: the model training starts at.")
@click.option("--max-tokens", default=4096, show_default=True, help="Longer pairs are left out, and counted.")
@click.option("--batch-size", default=4, show_default=True, help="Pairs a forward.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, …")
@publish_options
@format_option
def precompute_ref(
    ref: str, model: str, max_tokens: int, batch_size: int, device: str, publication: Publication, out: Output
) -> None:
    """Publish reference log-probs beside pairs, so that training needs no reference model."""
    from composer_hub.cli.pairs import copied, pairs_table, splits_of
    from composer_hub.hub import Lineage, Parent, fetch_model, load

    _need_training()
    from composer_hub.train.models import load_model, load_tokenizer, pick_device
    from composer_hub.train.tokens import PairEncoder, ref_rows

    source = load(publication.destination, ref)
    pairs = list(source.records(Pair, "default"))
    reference = fetch_model(publication.destination, model)
    tokenizer = load_tokenizer(reference.folder)
    encoder = PairEncoder.of(tokenizer, max_tokens=max_tokens)
    with out.progress("encoding", len(pairs)) as bar:
        encoded = encoder.encode(_counted(pairs, bar))
    left_out = ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in encoded.dropped.items())
    if not encoded.pairs:
        raise exits.NothingToDo(
            f"None of the {len(pairs):,} pairs of {ref} can be encoded: {left_out}. Long ones may with a larger "
            "--max-tokens."
        )
    if left_out:
        out.note(f"Left out: {left_out}.")
    network = load_model(reference.folder).to(pick_device(device))
    fingerprint = encoder.fingerprint(reference.name, reference.revision)
    rows = ref_rows(network, encoded, fingerprint, batch_size=batch_size)
    splits = splits_of(source)
    tables = [pairs_table(pairs, splits), *copied(source, ("votes", "report")), ref_table(rows)]
    parents = [Parent("pairs", source.repo, source.revision, tag=source.tag)]
    if reference.is_published:
        parents.append(Parent("reference model", reference.name, reference.revision, "model", reference.tag))
    publication.carry_out(
        out,
        tables,
        _card(source, len(rows), dict(encoded.dropped), reference.name),
        Lineage(parents=tuple(parents), config=to_row(fingerprint)),
        title=f"Reference log-probs of {reference.name} for {source.tag or source.revision}",
    )


def _counted(pairs: Iterable[Pair], bar: Progress) -> Iterator[Pair]:
    for pair in pairs:
        yield pair
        bar.advance()


def ref_table(rows: Sequence[Any]) -> Table:
    """Return the `ref` config."""
    from composer_hub.hub import Table
    from composer_hub.train.tokens import RefLogps

    return Table(CONFIG, [to_row(row) for row in rows], features_of(RefLogps), "pair_id")


def _card(source: Version, num_rows: int, dropped: dict[str, int], model: str) -> Card:
    from composer_hub.cli.pairs import license_of
    from composer_hub.hub import Card
    from composer_hub.pairs.report import Metric
    from composer_hub.pairs.report_card import report_markdown

    has_report = "report" in source.manifest["tables"]
    report = report_markdown(list(source.records(Metric, "report"))) if has_report else ""
    return Card(
        "pairs",
        pretty_name=f"{source.repo.split('/')[1]}: preference pairs with reference log-probs",
        license=license_of(source),
        tags=("preference", "dpo", "agents", "tool-use", "teacher-replay", "reference-logps"),
        counts={**source.manifest["counts"], "reference log-probs": num_rows},
        dropped={**source.manifest["dropped"], **{f"no log-probs: {reason}": n for reason, n in dropped.items()}},
        holes={
            "policy": (
                f"The pairs of {source.repo} {source.tag} with what `{model}` thinks of both sides: config `{CONFIG}`, "
                "log-probs of the whole answer at temperature 1, and the conditions they hold under (`fingerprint`)."
            ),
            "report": report,
        },
    )


def _need_training() -> None:
    try:
        import trl  # noqa: F401
    except ImportError as error:
        raise exits.UsageError('This needs the training libraries: pip install "composer-hub[train]".') from error
