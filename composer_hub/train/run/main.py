"""One training run: revisions in, a checkpoint, a card and the rollouts out. `scripts/train.py` calls `main`.

`run_inputs` resolves what is read, `run_record` remembers it, `run_resume` holds a run that goes on to it,
`run_preflight` looks at the hints, `run_trainer` trains until it is done or `run_stops` ends it, `run_push` publishes
meanwhile and `run_finish` at the end.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import PartialState
from huggingface_hub.utils import disable_progress_bars
from transformers import TrainerCallback
from transformers.utils import logging as transformers_logging
from transformers.utils.chat_template_utils import DocstringParsingException, TypeHintParsingException
from trl import get_peft_config
from trl.trainer.utils import get_quantization_config

from composer_hub import exits
from composer_hub.environments.guard import release
from composer_hub.environments.open import check_environment, rewards_of, shown_name
from composer_hub.hub import Destination, check_repo, destination
from composer_hub.train.checkpoints import remove_torn, step_of, writing
from composer_hub.train.evals import Evals, num_also_in
from composer_hub.train.models import load_model, load_tokenizer
from composer_hub.train.offline import OfflineTrainer
from composer_hub.train.run.card import model_card
from composer_hub.train.run.export import RolloutFile, RunFacts
from composer_hub.train.run.finish import check_targets, facts_of, finish, publish_so_far
from composer_hub.train.run.inputs import Inputs, as_dataset, eval_rows, load_pairs, resolve, task_rows
from composer_hub.train.run.offline import check_sources, is_offline, load_sites
from composer_hub.train.run.options import RunError, Told, parse, shown
from composer_hub.train.run.preflight import preflight
from composer_hub.train.run.push import LAST_PUSH_WAIT_S, Pusher
from composer_hub.train.run.record import Launch, Record, new_record
from composer_hub.train.run.resume import asked_of, changes, check_tasks, is_finished, where_it_stands
from composer_hub.train.run.stops import EarlyEnd, raise_if_early
from composer_hub.train.run.trainer import RunTrainer
from composer_hub.train.tokens import tokenizer_digest
from composer_hub.train.trace_sites import Student
from composer_hub.train.watchdogs import Watchdogs, bands_of, best_of

_SHORT_WAIT_S = 10.0  # for a push or an environment, when the machine is taken away


def main(argv: Sequence[str] | None = None) -> int:
    """Train as the command line says and return the exit code of the conventions."""
    quieten()
    try:
        run(parse(argv))
    except exits.ComposerError as error:
        print(f"train: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("train: interrupted. The same command with --resume true goes on.", file=sys.stderr)
        return exits.INTERRUPTED
    return exits.DONE


def quieten() -> None:
    """Silence what the libraries say at each start and nobody can act on, and bars where nobody looks."""
    # transformers renames its own options and warns of the old names, whoever used them.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    if not sys.stderr.isatty():
        disable_progress_bars()
        transformers_logging.disable_progress_bar()


def run(told: Told, *, where: Destination | None = None, clock: Callable[[], float] = time.monotonic) -> Path:
    """Carry out one run and return the folder of its final model."""
    early = EarlyEnd(told.run.max_minutes, clock=clock)
    with early.listening(), writing(str(told.config.output_dir)):
        return _run(told, where, early, clock)


def _run(told: Told, where: Destination | None, early: EarlyEnd, clock: Callable[[], float]) -> Path:
    state = PartialState()
    output = Path(str(told.config.output_dir))
    check(told)
    record, checkpoint = where_it_stands(told, output)
    changed = changes(told, record) if record else {}
    where = where or destination(told.run.to)
    with state.main_process_first():
        inputs = resolve(told, where, record)
    if record is None:
        options = shown(told.given, inputs.pins())
        record = new_record(inputs.base(), inputs.parents(), inputs.pins(), options, asked_of(told), output)
    launch = Launch(record, step_of(checkpoint), clock=clock)
    if changed:
        launch.facts["changed"] = changed
        record.values["options"].update({name: now for name, (_, now) in changed.items()})
    if state.is_main_process:
        for folder in remove_torn(output):
            print(f"train: {folder} is torn and was removed.", file=sys.stderr)
        record.write()
        check_targets(told, where)
    parts = build(told, inputs, record, where, (early, launch))
    trainer = parts.trainer
    if trainer.evals is not None:
        trainer.evals.is_ending = lambda: bool(early.asked(trainer.state))
    is_done = checkpoint is not None and is_finished(trainer, checkpoint)
    try:
        if not is_done:
            preflight(told, trainer, record)
        if told.run.preflight_only:
            return output
        with launch.told(lambda: trainer.state.global_step):
            parts.train(record, early, checkpoint, is_done=is_done)
            launch.done(trainer.state.global_step)
            final = output / "final"
            trainer.save_model(str(final))
            if state.is_main_process:
                finish(told, inputs, record, trainer, final, where)
            state.wait_for_everyone()
        return final
    finally:
        # However it ends: a container outlives the process that started it.
        parts.release(wait_s=_SHORT_WAIT_S)


@dataclass
class Parts:
    """What a run is built of."""

    trainer: RunTrainer
    dogs: Watchdogs | None
    pusher: Pusher | None

    def train(self, record: Record, early: EarlyEnd, checkpoint: Path | None, *, is_done: bool) -> None:
        """Train to the last step, or raise what ended it before, and finish what goes on beside training."""
        if not is_done:
            self.trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        if self.pusher is not None:
            self.pusher.close(wait_s=_SHORT_WAIT_S if early.has_signal else LAST_PUSH_WAIT_S)
        self.remember(record)
        raise_if_early(self.trainer, early, self.dogs)
        if self.trainer.evals is not None:
            self.trainer.evals.measure()  # does nothing where the last step was measured already
        self.release()

    def release(self, *, wait_s: float = 60.0) -> None:
        """Let environments tidy up."""
        release((one for pool in self.trainer.environment_pools() for one in pool), timeout_s=wait_s)

    def remember(self, record: Record) -> None:
        """Put the best checkpoint and the alarms into the record."""
        if self.dogs is not None:
            record.values["best"] = best_of(self.trainer.args.output_dir)
            record.values["alarms"] = [str(alarm) for alarm in self.dogs.alarms]


def check(told: Told) -> None:
    """Refuse what cannot work before anything is downloaded."""
    run, config = told.run, told.config
    if Path(str(config.output_dir)).is_file():
        raise RunError(f"{config.output_dir} is a file: name a folder for output_dir.")
    for repo in (run.repo, run.rollouts_repo, run.checkpoints_repo):
        if repo:
            check_repo(repo)
    if config.push_to_hub:
        raise RunError("push_to_hub makes many commits without a tag: name --repo instead, and set it to false.")
    if config.save_total_limit == 1:
        raise RunError("save_total_limit 1 leaves no whole checkpoint while one is written: keep 2 or more.")
    if config.save_only_model:
        raise RunError("save_only_model leaves checkpoints that no run can go on from: set it to false.")
    if config.enable_jit_checkpoint:
        raise RunError("SIGTERM saves a checkpoint already, and says so: set enable_jit_checkpoint to false.")
    check_sources(told)
    if (run.preflight or run.preflight_only) and not config.alpha_sdpo:
        raise RunError("preflight looks at hints, and alpha_sdpo is 0: set it, or leave preflight out.")
    if run.push_every and not (run.checkpoints_repo or run.rollouts_repo):
        raise RunError("push_every has nowhere to publish to: name --checkpoints_repo or --rollouts_repo, or both.")
    if run.checkpoints_repo and not run.push_every:
        raise RunError("checkpoints_repo is published to during the run: say how often with --push_every.")
    if run.checkpoints_repo and run.checkpoints_repo == run.repo:
        raise RunError("checkpoints_repo is the repo of the finished model: give checkpoints one of their own.")
    if run.eval_tasks and min(run.num_eval_tasks, run.num_eval_samples) < 1:
        raise RunError("num_eval_tasks and num_eval_samples are 1 or more: without attempts there is no pass@1.")
    if run.env_timeout_s < 0 or run.eval_every < 0:
        raise RunError("env_timeout_s and eval_every are 0 (for none) or more.")
    if config.eval_strategy != "no":
        raise RunError("eval_strategy has no dataset in a run: name --eval_tasks, and --eval_every for more often.")
    # Names that cannot be imported are told before a model is fetched.
    check_environment(run.environment)
    if (run.eval_tasks or "").startswith("harbor:"):
        check_environment(run.eval_tasks)
    rewards_of(run.rewards)
    bands_of(run.bands)
    keep_metrics_private(told)


def keep_metrics_private(told: Told) -> None:
    """Keep trackio from publishing by accident: it makes a public Space of a run's metrics unless told otherwise."""
    config = told.config
    if config.trackio_static_space_id is None:
        config.trackio_static_space_id = False
    # TRACKIO_SPACE_ID in the environment makes a Space too.
    if config.hub_private_repo is None and not told.run.public:
        config.hub_private_repo = True


def build(
    told: Told, inputs: Inputs, record: Record, where: Destination, callbacks: Sequence[TrainerCallback] = ()
) -> Parts:
    """Return the trainer of a run, ready to train, and what watches it."""
    rows, held_out = ([], []) if is_offline(told) else (task_rows(told, inputs), eval_rows(told, inputs))
    check_tasks(record, rows)
    if not is_offline(told):
        check_batches(told, rows)
    plan = told.run.evals()
    evals = Evals(held_out, plan) if plan else None
    record.values["num_eval_tasks_trained_on"] = num_also_in(held_out, rows)
    told.config.model_init_kwargs = None
    network = load_model(
        inputs.model.folder,
        dtype=told.model.dtype,
        attn_implementation=told.model.attn_implementation,
        quantization_config=get_quantization_config(told.model),
    )
    window = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    # No hinted prompt may be longer than what the model can read.
    told.config.max_teacher_tokens = min(told.config.max_teacher_tokens, window or told.config.max_teacher_tokens)
    tokenizer = load_tokenizer(inputs.model.folder)
    pairs, encoded = load_pairs(told, inputs, network, tokenizer)
    record.values["pairs_left_out"] = dict(encoded.dropped)
    say_left_out("pairs", len(encoded.pairs), encoded.dropped)
    traces, sites = load_sites(told, inputs, network, tokenizer)
    record.values["hinted_steps"] = {"sites": len(sites.sites), "as_sampled": sites.num_exact}
    record.values["hinted_steps_left_out"] = dict(sites.dropped)
    say_left_out("hinted steps", len(sites.sites), sites.dropped)
    common: dict[str, Any] = {
        "model": network,
        "args": told.config,
        "processing_class": tokenizer,
        "peft_config": get_peft_config(told.model),
        "pairs": pairs,
        "traces": traces,
        "base": inputs.model,
    }
    try:
        trainer = OfflineTrainer(**common) if is_offline(told) else live_trainer(told, inputs, record, rows, common)
    except exits.ComposerError:
        raise
    except (ValueError, TypeError, OSError, DocstringParsingException, TypeHintParsingException) as error:
        raise RunError(f"Model, environment and options do not go together: {error}") from error
    dogs = Watchdogs(bands_of(told.run.bands), turn_down=trainer.turn_down) if told.run.watchdogs else None
    parts = Parts(trainer, dogs, pusher_of(told, inputs, record, where))
    if evals is not None:
        evals.trainer, trainer.evals = trainer, evals
    # What measures a run comes before what ends it: a measurement that broke off belongs to the step that is saved.
    for callback in (evals, *callbacks, dogs, parts.pusher):
        if callback is not None:
            trainer.add_callback(callback)

    def card(trainer: RunTrainer) -> str:
        parts.remember(record)
        return model_card(facts_of(told, inputs, record, trainer, is_finished=False))

    trainer.card = card
    return parts


def say_left_out(what: str, num_taken: int, dropped: Mapping[str, int]) -> None:
    """Say how many rows are learned from where some are not, and why: a run on few pairs looks like one on many."""
    if dropped and PartialState().is_main_process:
        reasons = ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in dropped.items())
        print(f"{num_taken:,} {what} are learned from; left out: {reasons}.", file=sys.stderr)


def check_batches(told: Told, rows: list[dict[str, Any]]) -> None:
    """Refuse fewer tasks than one generation batch takes: the trainer would wait for it for ever."""
    num_prompts = (told.config.generation_batch_size or 1) // (told.config.num_generations or 1)
    if len(rows) < num_prompts:
        raise RunError(
            f"There are {len(rows):,} tasks, but one generation batch takes {num_prompts:,}: give more tasks, or lower "
            "per_device_train_batch_size or steps_per_generation."
        )


def live_trainer(
    told: Told, inputs: Inputs, record: Record, rows: list[dict[str, Any]], common: dict[str, Any]
) -> RunTrainer:
    """Return the trainer of a run with rollouts."""
    student = Student.of(inputs.model, common["model"].config)
    facts = RunFacts(
        record.run_id, student.name, inputs.model.revision,
        license=told.run.license, tokenizer=tokenizer_digest(common["processing_class"]), family=student.family,
    )  # fmt: skip
    folder = Path(str(told.config.output_dir)) / "rollouts"
    rollouts = RolloutFile(folder, facts, environment=shown_name(told.run.environment or ""))
    return RunTrainer(
        **common,
        train_dataset=as_dataset(rows),
        reward_funcs=list(inputs.world.rewards) or None,
        environment_factory=inputs.world.factory,
        rollouts=rollouts if told.run.keep_rollouts or told.run.rollouts_repo else None,
    )


def pusher_of(told: Told, inputs: Inputs, record: Record, where: Destination) -> Pusher | None:
    """Return what publishes during the run, if anything is to be."""
    if not told.run.push_every:
        return None

    def note(outcome: dict[str, Any]) -> None:
        record.values.setdefault("pushes", []).append(outcome)
        record.write()

    return Pusher(
        lambda copy, step: publish_so_far(told, inputs, record, where, copy, step),
        Path(str(told.config.output_dir)),
        every=told.run.push_every,
        note=note,
    )
