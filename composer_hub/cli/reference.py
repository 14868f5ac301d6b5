"""`composer-hub pairs precompute-ref`: the log-probs that a reference model gives to each pair, as a next version."""

from __future__ import annotations

import click

from composer_hub import extras
from composer_hub.cli.main import format_option
from composer_hub.cli.options import Publication, publish_options, ref_argument
from composer_hub.hub import Draft, PublishError, Version, fetch_model, load, newest
from composer_hub.output import Output


@click.command("precompute-ref", short_help="Add a reference model's log-probs.")
@ref_argument
@click.option(
    "--model", required=True, metavar="REPO@REV|FOLDER", help="The reference: the model that training starts from."
)
@click.option(
    "--max-tokens",
    default=4096,
    type=click.IntRange(1),
    help="Longest pair, in tokens; longer prompts are cut to a window.",
)
@click.option("--batch-size", default=4, type=click.IntRange(1), help="Pairs per forward pass.")
@click.option("--device", default="auto", help="auto, cpu, cuda, …")
@publish_options("pairs")
@format_option
def precompute_ref(
    ref: str, model: str, max_tokens: int, batch_size: int, device: str, publication: Publication, out: Output
) -> None:
    """Publish reference log-probs beside pairs, so that training needs no reference model."""
    extras.need("A reference model", "train", "torch", "transformers")
    from composer_hub.train.reference import reference_draft

    source = load(publication.destination, ref)

    def check_newest(head: Version | None) -> None:
        """Raise if this command would publish the pairs of an older version again."""
        if head is not None and head.revision != source.revision:
            name = head.tag or head.revision
            raise PublishError(
                f"{ref} is not the newest version of {source.repo}: that is {name}. Run this command on "
                f"{source.repo}@{name}, or publish to another --repo."
            )

    def next_version(head: Version) -> Draft:
        check_newest(head)
        return version

    if publication.repo == source.repo:
        check_newest(newest(publication.destination, source.repo))
    reference = fetch_model(publication.destination, model)
    with out.progress("encoding", source.num_rows("default")) as bar:
        version, dropped = reference_draft(
            source, reference, max_tokens=max_tokens, batch_size=batch_size, device=device, on_pair=bar.advance
        )
    if dropped:
        reasons = ", ".join(f"{reason.replace('_', ' ')} {n:,}" for reason, n in dropped.items())
        out.note(f"Left out: {reasons}.", left_out=dict(dropped))
    publication.carry_out_next(out, ref, next_version)
