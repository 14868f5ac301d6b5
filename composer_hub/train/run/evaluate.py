"""Evaluate a model on tasks: pass@1 with its interval through the environment, written to its card and `.eval_results`.

In: a model (a version or a folder), an environment and tasks. Out: the rate; in the model's folder, or as a commit of
its repository, the Hub's evaluation results and a line of the card.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.environments import EnvironmentFailed, shown_name
from composer_hub.hub import Destination, Published, destination, publish_model
from composer_hub.hub.models import digest_of
from composer_hub.named_files import write_whole
from composer_hub.records import stable_id
from composer_hub.train.evals import EVAL_SEED, PassRate, attempts, never, pass_rate
from composer_hub.train.run.inputs import Inputs, eval_rows, input_names, resolve
from composer_hub.train.run.options import TrainingOptions, settings_of
from composer_hub.train.run.prepare import held_out_tasks, make_trainer
from composer_hub.train.run.record import new_record

HEADING = "## Evaluations"


@dataclass(frozen=True)
class Evaluation:
    """A measured rate, as a table row of the card and as the Hub's results (empty without a dataset version)."""

    rate: PassRate
    source: str
    results: str


def evaluate(options: TrainingOptions, where: Destination | None = None) -> tuple[Evaluation, Inputs]:
    """Measure pass@1 of a model; nothing is trained."""
    options.config.alpha_sdpo = options.config.beta_replay = 0.0
    # A set for evaluation may have no split to train on.
    options = replace(options, sources=replace(options.sources, train_split="all"))
    where = where or destination(options.publishing.to)
    names = input_names(options.sources, options.evals, options.config, options.model)
    inputs = resolve(names, where, options.sources)
    rows = eval_rows(inputs, options.evals)
    held_out = held_out_tasks(inputs, options.evals, (), options.config)
    assert held_out is not None
    record = new_record(options.output, inputs, names, settings_of(options.given, inputs.pins()))
    trainer = make_trainer(options, inputs, record, rows)
    trainer.model.eval()
    rewards = attempts(trainer, rows, held_out.plan, EVAL_SEED, never)
    assert rewards is not None
    rate = pass_rate(rewards, held_out.plan.pass_reward)
    line = {"step": 0, **rate.logs()}
    if rate.num_lost == rate.num_attempts:
        raise EnvironmentFailed(
            f"All {rate.num_lost:,} attempts in {options.sources.environment} were lost, so nothing was measured. The "
            "warnings above say why: fix the environment and run the same command again."
        )
    world = shown_name(options.sources.environment or "")
    source = f"{held_out.card_rows([line])['measured on']}; in the environment `{world}`"
    return Evaluation(rate, source, held_out.eval_results([line])), inputs


def with_evaluation(card: str, evaluation: Evaluation) -> str:
    """Return a card whose section of evaluations begins with this one; the same measurement again replaces its line."""
    row = f"| pass@1 | {evaluation.rate} |\n| measured on | {evaluation.source} |\n"
    before, heading, after = card.partition(f"{HEADING}\n")
    if not heading:
        return f"{card.rstrip()}\n\n{HEADING}\n\n| evaluation | value |\n|---|---|\n{row}"
    old = re.compile(rf"\| pass@1 \| [^\n]*\n\| measured on \| {re.escape(evaluation.source)} \|\n")
    after = old.sub("", after)
    table = re.match(r"\s*\| evaluation \| value \|\n\|[-|]+\|\n", after)
    if table:
        return f"{before}{heading}{table[0]}{row}{after[table.end() :]}"
    return f"{before}{heading}\n| evaluation | value |\n|---|---|\n{row}\n{after.lstrip()}"


def files_of(evaluation: Evaluation, inputs: Inputs, card: Path | None) -> dict[str, bytes]:
    """Return the files of the model that change, and its card among them."""
    old = card.read_text(encoding="utf-8") if card and card.is_file() else f"# {inputs.model.name}\n"
    files = {"README.md": with_evaluation(old, evaluation).encode()}
    if evaluation.results:
        task = re.sub(r"\W+", "_", evaluation.source.split("`")[1]).strip("_")
        files[f".eval_results/{task}.yaml"] = evaluation.results.encode()
    return files


def save(evaluation: Evaluation, inputs: Inputs, where: Destination, *, public: bool = False) -> Path | Published:
    """Write the results into the model's folder, or publish them as one commit and tag of its repository."""
    model = inputs.model
    if not model.is_published:
        for name, content in files_of(evaluation, inputs, model.folder / "README.md").items():
            path = model.folder / name
            path.parent.mkdir(exist_ok=True)
            write_whole(path, content)
        return model.folder
    head = where.resolve(model.name, "main", "model") or model.revision
    if _weights(where, model.name, head) != _weights(where, model.name, model.revision):
        raise exits.Refused(
            f"The newest version of {model.name} has other weights than {model.tag or model.revision}, so its card "
            f"does not get this rate. Evaluate {model.name}, or publish the older model to another repository."
        )
    # The newest card has the evaluations that were made since the revision that was measured.
    files = files_of(evaluation, inputs, where.fetch(model.name, head, "README.md", "model"))
    tag = f"eval-{stable_id(digest_of(model.folder), evaluation.source, str(evaluation.rate))[:12]}"
    return publish_model(where, model.name, dict(files), tag=tag, title=f"pass@1 {evaluation.rate}", public=public)


def _weights(where: Destination, repo: str, revision: str) -> dict[str, Any]:
    files = where.files(repo, revision, "model")
    return {path: entry for path, entry in files.items() if path.endswith(".safetensors")}
