"""One training run: revisions in, a checkpoint, a card and the rollouts out. `scripts/train.py` calls `main`.

`run_inputs` resolves what is read, `run_record` remembers it, `run_trainer` trains, `run_finish` writes and publishes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from accelerate import PartialState
from transformers import TrainerState
from trl import get_peft_config
from trl.trainer.utils import get_quantization_config

from composer_hub import exits
from composer_hub.hub.destinations import Destination, destination
from composer_hub.train.card import model_card
from composer_hub.train.checkpoints import last_complete
from composer_hub.train.environments import check_environment, rewards_of
from composer_hub.train.evals import Evals, num_also_in
from composer_hub.train.export import RolloutFile, RunFacts
from composer_hub.train.guard import release
from composer_hub.train.models import load_model, load_tokenizer
from composer_hub.train.run_finish import facts_of, finish
from composer_hub.train.run_inputs import Inputs, eval_rows, load_pairs, resolve, task_rows
from composer_hub.train.run_options import RunError, Told, parse, shown
from composer_hub.train.run_record import Record, new_record
from composer_hub.train.run_trainer import RunTrainer, TimeBudget


def main(argv: Sequence[str] | None = None) -> int:
    """Train as the command line says and return the exit code of the conventions."""
    try:
        run(parse(argv))
    except exits.ComposerError as error:
        print(f"train: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("train: interrupted. The same command with --resume goes on.", file=sys.stderr)
        return exits.INTERRUPTED
    return exits.DONE


def run(told: Told, *, where: Destination | None = None, clock: Callable[[], float] = time.monotonic) -> Path:
    """Carry out one run and return the folder of its final model."""
    state = PartialState()
    output = Path(str(told.config.output_dir))
    record, checkpoint = _where_it_stands(told, output)
    check(told)
    where = where or destination(told.run.to)
    with state.main_process_first():
        inputs = resolve(told, where, record)
    if record is None:
        record = new_record(inputs.base(), inputs.parents(), inputs.pins(), shown(told.given, inputs.pins()), output)
    if state.is_main_process:
        record.write()
    trainer, budget = build(told, inputs, record, clock)
    begun, first = clock(), trainer.state.global_step
    try:
        if checkpoint is None or not _is_finished(trainer, checkpoint):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    finally:
        steps = {"from_step": first, "to_step": trainer.state.global_step}
        record.values["launches"].append(steps | {"seconds": round(clock() - begun, 1)})
        if state.is_main_process:
            record.write()
    if budget is not None and budget.is_spent:
        raise exits.Stopped(
            f"{told.run.max_minutes:g} minutes are over at step {trainer.state.global_step:,} of "
            f"{trainer.state.max_steps:,}; the checkpoint is complete. The same command with --resume goes on."
        )
    if trainer.evals is not None:
        trainer.evals.measure()  # does nothing where the last step was measured already
    release(environment for pool in trainer.environment_pools() for environment in pool)
    final = output / "final"
    trainer.save_model(str(final))
    if state.is_main_process:
        finish(told, inputs, record, trainer, final, where)
    state.wait_for_everyone()
    return final


def _is_finished(trainer: RunTrainer, checkpoint: Path) -> bool:
    """Take a last checkpoint as it is: transformers would train on for a step after the last one."""
    saved = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    wanted = trainer.args.max_steps
    if saved.global_step < (wanted if wanted > 0 else saved.max_steps):
        return False
    trainer.state = saved
    trainer._load_from_checkpoint(str(checkpoint))
    return True


def _where_it_stands(told: Told, output: Path) -> tuple[Record | None, Path | None]:
    checkpoint, record = last_complete(output), Record.read(output)
    if not told.run.resume and checkpoint is not None:
        raise RunError(
            f"{output} already holds a run ({checkpoint.name}): say --resume true, or choose another output_dir."
        )
    if not told.run.resume:
        return None, None
    return record, checkpoint


def check(told: Told) -> None:
    """Refuse what cannot work before anything is downloaded."""
    run, config = told.run, told.config
    if config.push_to_hub:
        raise RunError("push_to_hub makes many commits without a tag: name --repo instead, and set it to false.")
    if config.save_total_limit == 1:
        raise RunError("save_total_limit 1 leaves no whole checkpoint while one is written: keep 2 or more.")
    if not run.environment and not run.rewards:
        raise RunError("Nothing gives a reward: name an --environment, or --rewards pkg.module:function.")
    if config.beta_replay and not run.pairs:
        raise RunError("beta_replay is set but there are no pairs: name --pairs owner/name@revision, or set it to 0.")
    if config.eval_strategy != "no":
        raise RunError("eval_strategy has no dataset in a run: name --eval_tasks, and --eval_every for more often.")
    # Names that cannot be imported are told before a model is fetched.
    check_environment(run.environment)
    rewards_of(run.rewards)
    if hasattr(config, "trackio_static_space_id") and config.trackio_static_space_id is None:
        # Otherwise trackio publishes the run's metrics as a Space at its end.
        config.trackio_static_space_id = False


def build(
    told: Told, inputs: Inputs, record: Record, clock: Callable[[], float] = time.monotonic
) -> tuple[RunTrainer, TimeBudget | None]:
    """Return the trainer of a run, ready to train."""
    from datasets import Dataset

    told.config.model_init_kwargs = None
    network = load_model(
        inputs.model.folder,
        dtype=told.model.dtype,
        attn_implementation=told.model.attn_implementation,
        quantization_config=get_quantization_config(told.model),
    )
    tokenizer = load_tokenizer(inputs.model.folder)
    pairs, encoded = load_pairs(told, inputs, network, tokenizer)
    record.values["pairs_left_out"] = dict(encoded.dropped)
    run = RunFacts(record.run_id, inputs.model.name, inputs.model.revision, license=told.run.license)
    output = Path(str(told.config.output_dir))
    rows, held_out = task_rows(told, inputs), eval_rows(told, inputs)
    num_prompts = told.config.generation_batch_size // told.config.num_generations
    if len(rows) < num_prompts:
        raise RunError(
            f"There are {len(rows):,} tasks, but one generation batch takes {num_prompts:,}: give more tasks, or lower "
            "per_device_train_batch_size or steps_per_generation."
        )
    plan = told.run.evals()
    evals = Evals(held_out, plan) if plan else None
    record.values["num_eval_tasks_trained_on"] = num_also_in(held_out, rows)
    rollouts = RolloutFile(output / "rollouts", run, environment=told.run.environment or "")
    budget = TimeBudget(told.run.max_minutes, clock=clock) if told.run.max_minutes is not None else None
    trainer = RunTrainer(
        model=network,
        args=told.config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        reward_funcs=list(inputs.world.rewards) or None,
        environment_factory=inputs.world.factory,
        peft_config=get_peft_config(told.model),
        pairs=pairs,
        rollouts=rollouts if told.run.keep_rollouts or told.run.rollouts_repo else None,
        card=lambda trainer: model_card(facts_of(told, inputs, record, trainer, is_finished=False)),
        callbacks=[callback for callback in (evals, budget) if callback] or None,
    )
    if evals is not None:
        evals.trainer, trainer.evals = trainer, evals
    if budget is not None:
        budget.trainer = trainer
    return trainer, budget
