"""`composer-hub replay entropy`: a model's uncertainty at each step of traces, and whether it finds what matters."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import click

from composer_hub import exits, extras
from composer_hub.cli.main import format_option
from composer_hub.cli.options import from_option
from composer_hub.hub import destination, fetch_model, load, load_traces
from composer_hub.output import Output, plural


@click.command(short_help="Write a model's entropy at each step.")
@click.argument("traces", metavar="REPO@REV")
@click.option("--model", required=True, metavar="REPO@REV|FOLDER", help="The student.")
@click.option("--out", "file", type=click.Path(dir_okay=False, path_type=Path), default=Path("entropy.jsonl"),
              show_default=True, help="JSONL of {step_id, entropy}, for replay --entropy.")  # fmt: skip
@click.option("--pairs", metavar="REPO@REV", help="Pairs from the same traces, to see whether high entropy finds them.")
@click.option("--max-tokens", default=4096, show_default=True, help="Longest prompt with its action, in tokens.")
@click.option("--batch-size", default=8, show_default=True, help="Steps per forward pass.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, …")
@from_option
@format_option
def entropy(
    traces: str, model: str, file: Path, pairs: str | None, max_tokens: int, batch_size: int, device: str, origin: str,
    out: Output,
) -> None:  # fmt: skip
    """Write the mean token entropy of a student at each step, and judge by known steps whether to gate by it."""
    extras.need("A student", "train", "torch", "transformers")
    from composer_hub.train.entropy import judged, step_entropies
    from composer_hub.train.models import load_model, load_tokenizer, pick_device
    from composer_hub.train.trace_sites import Student, TraceEncoder

    where = destination(origin)
    _, recorded = load_traces(where, traces)
    pair_steps = {str(row["step_id"]) for row in load(where, pairs).rows("default")} if pairs else None
    found = fetch_model(where, model)
    network = load_model(found.folder).to(pick_device(device))
    student = Student.of(found, network.config)
    encoder = TraceEncoder.of(load_tokenizer(found.folder), student, max_tokens=max_tokens, other_families="take")
    left_out: Counter[str] = Counter()
    values: dict[str, float] = {}
    erred = set()
    with file.open("w", encoding="utf-8") as lines, out.progress("reading") as bar:
        for step in step_entropies(network, encoder, recorded, left_out, batch_size=batch_size):
            lines.write(json.dumps({"step_id": step.step_id, "entropy": step.entropy}) + "\n")
            values[step.step_id] = step.entropy
            erred |= {step.step_id} if step.erred else set()
            bar.advance()
    if left_out:
        out.note("Left out: " + ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in left_out.items()) + ".")
    if not values:
        raise exits.NothingToDo(f"No step of {traces} can be read by {model}, so {file} is empty.")
    known = [judged(values, erred, "the agent erred")]
    if pair_steps is not None:
        known.append(judged(values, pair_steps, "a pair: teachers agreed against the agent"))
    out.table([dataclasses.asdict(one) for one in known], id_key="steps")
    out.text(
        f"{plural(len(values), 'step')} in {file}. replay --entropy {file} --entropy-top .3 pays only if the auc of "
        "pairs is well above .5, which is chance."
    )
