"""From resolved inputs to a trainer with everything that accompanies it, ready to train."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils.chat_template_utils import DocstringParsingException, TypeHintParsingException
from trl import get_peft_config
from trl.trainer.utils import get_quantization_config

from composer_hub import exits
from composer_hub.environments import release, shown_name
from composer_hub.hub import parse_ref
from composer_hub.train.apart.card import federation_card
from composer_hub.train.apart.federation import Federation, Rules
from composer_hub.train.apart.local_sgd import LocalSGD
from composer_hub.train.apart.rounds import Rounds
from composer_hub.train.bands import bands_of
from composer_hub.train.checks import load_function
from composer_hub.train.config import ComposerConfig
from composer_hub.train.evals import Evals, HeldOutTasks, num_also_in
from composer_hub.train.failure import TrainerError
from composer_hub.train.hinting import own_writer, token_limit
from composer_hub.train.models import load_model, load_tokenizer
from composer_hub.train.muon import use_muon
from composer_hub.train.run.card import ModelFacts, license_of, model_card
from composer_hub.train.run.export import RolloutFile, RunFacts
from composer_hub.train.run.finish import (
    example_of,
    next_steps,
    publish_results,
    reproduce_command,
    warn_without_hints,
    with_progress,
    write_results,
)
from composer_hub.train.run.inputs import OWN, Inputs, as_dataset, check_batches, eval_rows, task_rows
from composer_hub.train.run.offline import OfflineTrainer
from composer_hub.train.run.options import EvalOptions, PublishingOptions, TrainingOptions, settings_of
from composer_hub.train.run.publisher import LAST_PUSH_WAIT_S, Pusher, RunPublisher
from composer_hub.train.run.record import LaunchRecorder, RunRecord, check_tasks
from composer_hub.train.run.recorded import Taken, load_pairs, load_sites
from composer_hub.train.run.stops import EarlyEnd, raise_if_early
from composer_hub.train.run.trainer import RunTrainer
from composer_hub.train.tokens import tokenizer_digest
from composer_hub.train.trace_sites import Student
from composer_hub.train.watchdogs import Watchdogs

_SHORT_WAIT_S = 10.0  # for a push or an environment, when the machine is taken away


@dataclass(frozen=True)
class PreparedRun:
    """A trainer, its callbacks, and the facts that its results are published with."""

    trainer: RunTrainer
    record: RunRecord
    publisher: RunPublisher
    facts: ModelFacts  # as known before training
    held_out: HeldOutTasks | None
    watchdogs: Watchdogs | None
    pusher: Pusher | None

    def attach(self, early: EarlyEnd, launch: LaunchRecorder) -> None:
        """Add all callbacks in the order in which they must see a step."""
        trainer, evals = self.trainer, self.trainer.evals
        if evals is not None:
            evals.is_ending = lambda: bool(early.reason_to_end(trainer.state))
        if isinstance(trainer.apart, Rounds):
            trainer.apart.is_ending = lambda: bool(early.signal)
        # A measurement belongs to the step that is saved, so it comes before anything that may end the run.
        for callback in (evals, early, launch, self.watchdogs, self.pusher):
            if callback is not None:
                trainer.add_callback(callback)

    def card(self) -> str:
        """Return the card of an unfinished model."""
        self._record_watchdogs()
        state = self.trainer.state
        return model_card(with_progress(self.facts, self.record, state, self.held_out, is_finished=False))

    def end(self, early: EarlyEnd) -> None:
        """Finish pushes, raise the reason if training ended early, and measure the last step."""
        if self.pusher is not None:
            self.pusher.close(wait_s=_SHORT_WAIT_S if early.signal else LAST_PUSH_WAIT_S)
        self._record_watchdogs()
        raise_if_early(self.trainer, early, self.watchdogs)
        if self.trainer.evals is not None:
            self.trainer.evals.measure()  # nothing, if the last step was measured already
        if isinstance(self.trainer.apart, Rounds):
            self.trainer.apart.finish()
        self.release(wait_s=60.0)

    def write_and_publish(self, final: Path) -> None:
        """Write the results beside the final weights and publish all of it."""
        trainer, state = self.trainer, self.trainer.state
        if trainer.args.alpha_sdpo:
            warn_without_hints(state.log_history, trainer.args.max_teacher_tokens)
        if trainer.example_hint is not None:
            self.record.values["example_hint"] = trainer.example_hint
        if trainer.shown is not None:
            self.record.values["example"] = example_of(trainer, trainer.shown)
        write_results(final, self.facts, self.record, state, self.held_out)
        if self.held_out is not None:
            print(self.held_out.sentence(state.log_history))
        publish_results(final, self.publisher, self.record, state.global_step, is_adapter=self.facts.is_adapter)
        for line in next_steps(final, self.facts, self.publisher, self.record.values["options"]):
            print(line)

    def release(self, *, wait_s: float = _SHORT_WAIT_S) -> None:
        """Let environments clean up."""
        release((one for pool in self.trainer.environment_pools() for one in pool), timeout_s=wait_s)

    def _record_watchdogs(self) -> None:
        if self.watchdogs is not None:
            self.record.values["alarms"] = [str(alarm) for alarm in self.watchdogs.alarms]


def prepare(
    options: TrainingOptions,
    inputs: Inputs,
    record: RunRecord,
    settings: Mapping[str, Any],
    publisher: RunPublisher,
) -> PreparedRun:
    """Make the trainer of a run and everything that accompanies it."""
    sources, config, launch, publishing = options.sources, options.config, options.launch, options.publishing
    rows = [] if sources.is_offline else task_rows(inputs, sources, seed=config.seed)
    check_tasks(record, rows)
    if not sources.is_offline:
        check_batches(rows, config)
    held_out = held_out_tasks(inputs, options.evals, rows, config)
    record.add_oracles(inputs.world.oracles)
    record.values["num_eval_tasks_trained_on"] = held_out.num_trained_on if held_out else 0
    trainer = make_trainer(options, inputs, record, rows)
    if config.optimizer == "muon":
        use_muon(trainer)
    if config.sync_every:
        trainer.apart = LocalSGD(trainer, every=config.sync_every, lr=config.outer_lr, momentum=config.outer_momentum)
    if publishing.federation:
        trainer.apart = rounds_of(publishing, config, trainer, publisher, record.run_id)
    if trainer.apart is not None:
        trainer.add_callback(trainer.apart)
    if held_out is not None:
        trainer.evals = Evals(held_out.rows, held_out.plan)
        trainer.evals.trainer = trainer
    facts = ModelFacts(
        repo=publishing.repo or options.output.name,
        run_id=record.run_id,
        license=publishing.license,
        base=publisher.base,
        output=_shown(options.output),
        checkpoints_repo=publishing.checkpoints_repo or "",
        parents=publisher.parents,
        weights={"policy": float(not sources.is_offline), "hint": config.alpha_sdpo, "replay": 0.0}
        | {term.name: term.weight for term in trainer.terms if term.name != "hint_traces"},
        teacher=config.teacher,
        options=settings,
        environment=shown_name(sources.environment or ""),
        rewards=tuple(trainer.reward_func_names),
        oracles=inputs.world.oracles,
        dropped=record.values["pairs_left_out"],
        hinted_steps=record.values["hinted_steps"],
        dropped_steps=record.values["hinted_steps_left_out"],
        hardware=record.values["hardware"],
        usd_per_hour=launch.usd_per_hour,
        is_adapter=options.model.use_peft,
        versions=record.values["libraries"],
        reproduce=reproduce_command(publishing.repo, record.run_id, _shown(options.output)),
        tools=trainer.hinter.tools,
        base_license=license_of(inputs.model.folder),
    )
    bands = bands_of(launch.bands)
    dogs = Watchdogs(bands, turn_down=trainer.terms.turn_down) if bands else None
    pusher = None
    if publishing.push_every:
        pusher = Pusher(publisher.publish_checkpoint, options.output, every=publishing.push_every, note=record.add_push)
    prepared = PreparedRun(trainer, record, publisher, facts, held_out, dogs, pusher)
    trainer.card = prepared.card
    return prepared


def rounds_of(
    options: PublishingOptions, config: ComposerConfig, trainer: RunTrainer, publisher: RunPublisher, run: str
) -> Rounds:
    """Return the callback that makes this run a worker of a federation."""
    rules = Rules(
        publisher.base.revision, options.workers, options.rounds, config.max_steps // options.rounds,
        config.outer_lr, config.outer_momentum,
    )  # fmt: skip
    federation = Federation(
        publisher.where, str(options.federation), str(options.worker), run,
        patience_s=60 * options.round_minutes, note=lambda text: print(text, file=sys.stderr), card=federation_card,
    )  # fmt: skip
    adapter = trainer.model.peft_config["default"].to_dict() | {
        "base_model_name_or_path": publisher.base.repo,
        "revision": publisher.base.revision if "/" in publisher.base.repo else None,
    }
    config_file = json.dumps(adapter, indent=2, sort_keys=True, default=sorted).encode()
    return Rounds(trainer, federation, rules, files={"adapter_config.json": config_file})


def _shown(folder: Path) -> str:
    """Return a folder as a line of code names it: from the folder of the run, if it is there."""
    folder = folder.absolute()
    return str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)


def held_out_tasks(
    inputs: Inputs, options: EvalOptions, rows: Sequence[Mapping[str, Any]], config: ComposerConfig
) -> HeldOutTasks | None:
    """Return the held-out tasks that the options name, and how many of them are also training tasks."""
    plan = options.plan(config.success_reward)
    if plan is None:
        return None
    held_out = eval_rows(inputs, options)
    name = inputs.eval_world.pin if inputs.eval_world else str(options.eval_tasks)
    # Coding tasks come with the environment, which names their commit.
    brought = parse_ref(inputs.world.pin.partition(":")[2]) if name == OWN else None
    return HeldOutTasks(
        settings_of({"eval_tasks": name}, {})["eval_tasks"],
        held_out,
        plan,
        config.temperature,
        inputs.eval_tasks or brought,
        options.eval_split,
        num_also_in(held_out, rows),
    )


def make_trainer(options: TrainingOptions, inputs: Inputs, record: RunRecord, rows: list[dict[str, Any]]) -> RunTrainer:
    """Load model and recorded data, and return the trainer of the channels that are on."""
    sources, config, model = options.sources, options.config, options.model
    config.model_init_kwargs = None
    network = load_model(
        inputs.model.folder,
        dtype=model.dtype,
        attn_implementation=model.attn_implementation,
        quantization_config=get_quantization_config(model),
    )
    tokenizer = load_tokenizer(inputs.model.folder)
    student = Student.of(inputs.model, network.config)
    config.max_teacher_tokens = token_limit(config.max_teacher_tokens, network.config)
    common: dict[str, Any] = {
        "model": network,
        "args": config,
        "processing_class": tokenizer,
        "peft_config": get_peft_config(model),
        "base": inputs.model,
    }
    pairs, sites, folder = Taken(), Taken(), options.output
    if inputs.pairs is not None:
        common["pairs"], pairs = load_pairs(
            inputs.pairs, inputs.model, network, tokenizer, sources, folder, seed=config.seed
        )
    if inputs.traces is not None:
        common["traces"], sites = load_sites(inputs.traces, student, tokenizer, sources, config, folder)
    record.add_recorded(pairs, sites)
    common["terms"] = [load_function(name, "term")(tokenizer) for name in sources.terms or ()]
    try:
        if sources.is_offline:
            return OfflineTrainer(**common)
        facts = RunFacts(
            record.run_id, student.name, inputs.model.revision,
            license=options.publishing.license, tokenizer=tokenizer_digest(tokenizer), family=student.family,
        )  # fmt: skip
        rollouts = RolloutFile(options.output / "rollouts", facts, environment=shown_name(sources.environment or ""))
        trainer = RunTrainer(
            **common,
            train_dataset=as_dataset(rows),
            reward_funcs=list(inputs.world.rewards) or None,
            environment_factory=inputs.world.factory,
            rollouts=rollouts,
            own_pairs=sources.own_pairs,
        )
        own = tuple(own_writer(name, load_function(name, "hint writer")) for name in sources.hint_writers or ())
        trainer.hinter = dataclasses.replace(trainer.hinter, writers=(*own, *trainer.hinter.writers))
        if sources.error_finder:
            trainer.error_finder = load_function(sources.error_finder, "error finder")
        return trainer
    except exits.ComposerError:
        raise
    except (ValueError, TypeError, OSError, DocstringParsingException, TypeHintParsingException) as error:
        raise TrainerError(f"Model, environment and options do not fit together: {error}") from error
