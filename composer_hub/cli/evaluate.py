"""`composer-hub eval`: pass@1 of a model on tasks, with its interval, on its card and in `.eval_results`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from composer_hub import extras
from composer_hub.cli.main import format_option
from composer_hub.cli.options import to_option
from composer_hub.cli.train import NEEDED
from composer_hub.hub import check_target, destination, parse_ref
from composer_hub.output import Output


@click.command(
    "eval",
    short_help="Measure pass@1 of a model on tasks.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True},
)
@click.argument("model", metavar="MODEL")
@click.option("--environment", default="coding", help="Environment, named as in training.")
@click.option("--tasks", required=True, help="Tasks: owner/name@revision, a .jsonl file or pkg.module:function.")
@click.option("--split", default="test", help="Split of a task dataset, or all.")
@click.option("--num-tasks", type=click.IntRange(1), default=64, help="Maximum number of tasks.")
@click.option("--attempts", type=click.IntRange(1), default=4, help="Attempts per task.")
@to_option
@click.option("--dry-run", is_flag=True, help="Print the rate and write nothing.")
@click.option("--public", is_flag=True, help="Write to a public repository.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@format_option
def evaluate(
    model: str, environment: str, tasks: str, split: str, num_tasks: int, attempts: int, to: str, dry_run: bool,
    public: bool, options: Sequence[str], out: Output,
) -> None:  # fmt: skip
    """Measure pass@1 of MODEL (owner/name@revision or a folder) on tasks, with its 95 % interval.

    The result is written into the model's folder, or as one commit and tag to its repository. Other options go to the
    trainer, such as --temperature 0.7 or --use_vllm true.
    """
    extras.need("Measuring a model", "train", *NEEDED)
    from composer_hub.train.checks import check_words, has_no_gpu

    if environment == "coding":
        environment, tasks = f"coding:{tasks}", "coding"  # the environment brings its tasks
    words = [
        "--model_name_or_path", model, "--environment", environment, "--eval_tasks", tasks, "--eval_split", split,
        "--num_eval_tasks", str(num_tasks), "--num_eval_samples", str(attempts), "--to", to, "--report_to", "none",
        *options,
    ]  # fmt: skip
    if has_no_gpu() and "--use_cpu" not in words:
        words += ["--use_cpu", "true", "--bf16", "false"]
    check_words(words)
    from composer_hub.train.run import evaluate as stage
    from composer_hub.train.run.main import quieten
    from composer_hub.train.run.options import parse_options

    quieten()
    where = destination(to)
    if not dry_run and "/" in model and not Path(model).is_dir():
        check_target(where, parse_ref(model).repo, "model", public=public, repo_type="model")
    with tempfile.TemporaryDirectory(prefix="composer-eval-") as folder:
        evaluation, inputs = stage.evaluate(parse_options([*words, "--output_dir", folder]), where)
    rate = evaluation.rate
    out.record(
        {"pass@1": round(rate.value, 4), "low": round(rate.low, 4), "high": round(rate.high, 4),
         "num_tasks": rate.num_tasks, "num_attempts": rate.num_attempts, "num_lost": rate.num_lost},
        id_key="pass@1",
    )  # fmt: skip
    if not dry_run:
        saved = stage.save(evaluation, inputs, where, public=public)
        out.note(f"Written to {getattr(saved, 'repo', saved)}{'@' + saved.tag if hasattr(saved, 'tag') else ''}.")
