"""One training run: revisions in, a checkpoint, a card and the rollouts out. `scripts/train.py` calls `main`.

`checks` refuses options that cannot work, `record` finds an earlier launch of the run and remembers this one,
`inputs` opens what it reads, `prepare` makes the trainer, `preflight` measures the hints, `own_pairs` makes pairs
of retries, `stops` ends the run early, and `publisher` and `finish` publish and write its results.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from accelerate import PartialState
from huggingface_hub.utils import disable_progress_bars
from transformers.utils import logging as transformers_logging

from composer_hub import exits
from composer_hub.hub import Destination, destination
from composer_hub.local_hub.characters import visible
from composer_hub.train.checkpoints import remove_torn, step_of, writing
from composer_hub.train.checks import check_words
from composer_hub.train.run.inputs import input_names, resolve
from composer_hub.train.run.options import TrainingOptions, keep_metrics_private, parse_options, settings_of
from composer_hub.train.run.own_pairs import learn_from_retries
from composer_hub.train.run.preflight import preflight
from composer_hub.train.run.prepare import prepare
from composer_hub.train.run.publisher import RunPublisher
from composer_hub.train.run.record import (
    LaunchRecorder,
    RunRecord,
    changes,
    check_model,
    find_run,
    held,
    is_finished,
    new_record,
)
from composer_hub.train.run.stops import EarlyEnd


def main(argv: Sequence[str] | None = None) -> int:
    """Train with the options of a command line and return the exit code."""
    quieten()
    try:
        words = sys.argv[1:] if argv is None else argv
        check_words(words)
        run(parse_options(words))
    except exits.ComposerError as error:
        print(visible(f"train: {error}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("train: interrupted. Continue with the same command and --resume true.", file=sys.stderr)
        return exits.INTERRUPTED
    # All ranks are done here. One that exits while its group still has threads can abort.
    PartialState().destroy_process_group()
    return exits.DONE


def quieten() -> None:
    """Silence warnings that the libraries print at each start, and progress bars outside a terminal."""
    # transformers renames its own options and then warns about its own use of the old names.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    if not sys.stderr.isatty():
        disable_progress_bars()
        transformers_logging.disable_progress_bar()


def run(
    options: TrainingOptions, *, where: Destination | None = None, clock: Callable[[], float] = time.monotonic
) -> Path:
    """Carry out one run and return the folder of its final model."""
    early = EarlyEnd(options.launch.max_minutes, clock=clock)
    record, checkpoint = find_run(options.output, resume=options.launch.resume)
    with (
        early.listening(),
        writing(str(options.output)),
        held(options.output, is_main=PartialState().is_main_process),
    ):
        return _run(options, where, early, clock, record, checkpoint)


def _run(
    options: TrainingOptions,
    where: Destination | None,
    early: EarlyEnd,
    clock: Callable[[], float],
    record: RunRecord | None,
    checkpoint: Path | None,
) -> Path:
    state, output = PartialState(), options.output
    keep_metrics_private(options.config, public=options.publishing.public)
    names = input_names(options.sources, options.evals, options.config, options.model)
    changed = changes(record, options.given, names) if record else {}
    where = where or destination(options.publishing.to)
    with state.main_process_first():
        inputs = resolve(record.at_commits(names) if record else names, where, options.sources)
    settings = settings_of(options.given, inputs.pins())
    record = record or new_record(output, inputs, names, settings)
    check_model(record, inputs.model)
    launch = LaunchRecorder(record, step_of(checkpoint), changed, clock=clock)
    publisher = RunPublisher(where, options.publishing, record.run_id, inputs.base(), inputs.parents())
    if state.is_main_process:
        for folder in remove_torn(output):
            print(f"train: removed {folder}, which is incomplete.", file=sys.stderr)
        record.write()
        publisher.check_repositories(output)

    prepared = prepare(options, inputs, record, settings, publisher)
    prepared.attach(early, launch)
    trainer = prepared.trainer
    try:
        is_done = checkpoint is not None and is_finished(trainer, checkpoint)
        if (options.launch.preflight or options.launch.preflight_only) and not is_done:
            asked = options.launch
            preflight(trainer, record, num_retries=asked.preflight_retries, max_loss=asked.preflight_max_loss)
        if options.launch.preflight_only:
            return output
        with launch.recording(lambda: trainer.state.global_step):
            if not is_done:
                if trainer.own_pairs:
                    learn_from_retries(
                        trainer,
                        record,
                        output,
                        batch_size=options.sources.pair_batch_size,
                        max_tokens=options.sources.max_pair_tokens,
                        is_resumed=checkpoint is not None,
                    )
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            prepared.end(early)
            trainer.guard.check_weights(trainer.state.global_step, trainer.args.learning_rate)
            launch.finished(trainer.state.global_step)
            trainer.save_model(str(output / "final"))
            if state.is_main_process:
                prepared.write_and_publish(output / "final")
            state.wait_for_everyone()
        return output / "final"
    finally:
        # However the run ends: a container outlives the process that started it.
        prepared.release()
