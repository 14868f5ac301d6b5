"""One training run: revisions in, a checkpoint, a card and the rollouts out. `scripts/train.py` calls `main`.

Every input is resolved to a commit once, before anything is loaded, and `composer_run.json` remembers it; a resumed run
takes the commits from there, whatever the tags mean by then.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import TrainerState
from trl import get_peft_config
from trl.trainer.utils import get_quantization_config

from composer_hub import __version__, exits
from composer_hub.hub.destinations import Destination, destination
from composer_hub.hub.load import Version, open_version
from composer_hub.hub.models import Model, digest_of, fetch_model, publish_model
from composer_hub.hub.publish import Parent, Published
from composer_hub.records import Pair, stable_id
from composer_hub.train.card import ModelFacts, model_card
from composer_hub.train.checkpoints import last_complete
from composer_hub.train.export import RolloutFile, RunFacts, publish_rollouts
from composer_hub.train.models import load_model, load_tokenizer
from composer_hub.train.pair_loader import PairLoader
from composer_hub.train.plots import Plot, draw
from composer_hub.train.run_options import (
    ENVIRONMENTS,
    Told,
    environment_of,
    load_object,
    parse,
    pinned,
    rewards_of,
    shown,
)
from composer_hub.train.run_trainer import RunTrainer, TimeBudget
from composer_hub.train.tokens import Encoded, Fingerprint, PairEncoder, RefLogps, ref_rows, with_reference

RECORD = "composer_run.json"
_PUBLISHED = (".safetensors", ".json", ".txt", ".model", ".jinja", ".md", ".png", ".yaml")
_LIBRARIES = ("torch", "transformers", "trl", "accelerate", "peft")


class RunError(exits.ComposerError, ValueError):
    """A run that cannot start as asked."""


@dataclass
class Inputs:
    """What a run reads, each at one commit."""

    model: Model
    pairs: Version | None = None
    tasks: Version | None = None

    def parents(self) -> tuple[Parent, ...]:
        """Return the data a run was made from."""
        versions = {"pairs": self.pairs, "tasks": self.tasks}
        return tuple(Parent(role, one.repo, one.revision, tag=one.tag) for role, one in versions.items() if one)

    def base(self) -> Parent:
        """Return the model a run starts from."""
        kind = "model" if self.model.is_published else "folder"
        return Parent("base model", self.model.name, self.model.revision, kind, self.model.tag)

    def pins(self) -> dict[str, str]:
        """Return the options that name these inputs, at their commits."""
        pins = {name: f"{one.repo}@{one.revision}" for name in ("pairs", "tasks") if (one := getattr(self, name))}
        model = self.model
        return pins | {"model_name_or_path": f"{model.name}@{model.revision}" if model.is_published else model.name}


@dataclass
class Record:
    """`composer_run.json`: what a run was, kept up while it goes on."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, output: Path) -> Record | None:
        path = output / RECORD
        return cls(path, json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f".{RECORD}")
        fresh.write_text(json.dumps(self.values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(self.path)

    @property
    def run_id(self) -> str:
        return self.values["run_id"]

    @property
    def seconds(self) -> float:
        return sum(launch["seconds"] for launch in self.values["launches"])


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
        record = _new_record(told, inputs, output)
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
    # Names that cannot be imported are told before a model is fetched.
    environment_of(run.environment)
    rewards_of(run.rewards)
    if hasattr(config, "trackio_static_space_id") and config.trackio_static_space_id is None:
        # Otherwise trackio publishes the run's metrics as a Space at its end.
        config.trackio_static_space_id = False


# -------------------------------------------------------------------------------------------------------------- inputs


def resolve(told: Told, where: Destination, record: Record | None) -> Inputs:
    """Turn every name into a commit, once; a resumed run takes the commits it began with."""
    pins = record.values["pins"] if record else {}
    pin = pins.get("model_name_or_path", "")
    name = pin if "@" in pin else _model_name(told)
    model = _small() if name == "small" else fetch_model(where, name)
    inputs = Inputs(model)
    if record and model.revision != record.values["base"]["revision"]:
        raise RunError(f"{name} is not the model this run began with (its weights differ): put that one back.")
    if told.run.pairs and told.config.beta_replay:
        inputs.pairs = open_version(where, pins.get("pairs", told.run.pairs))
    if told.run.tasks and ":" not in told.run.tasks and not told.run.tasks.endswith(".jsonl"):
        inputs.tasks = open_version(where, pins.get("tasks", told.run.tasks))
    return inputs


def _model_name(told: Told) -> str:
    name, revision = told.model.model_name_or_path, told.model.model_revision
    if not name:
        raise RunError("There is no model: name --model_name_or_path owner/name@revision, a folder, or small.")
    is_pinned = "@" in name or not revision or revision == "main" or Path(name).is_dir()
    return name if is_pinned else f"{name}@{revision}"


def _small() -> Model:
    """Return the tiny world's own model, made on this machine the first time."""
    from composer_hub.train.world import small_model

    cache = Path(os.environ.get("COMPOSER_TEST_CACHE") or Path.home() / ".cache" / "composer_hub" / "small")
    with PartialState().local_main_process_first():
        folder = Path(str(small_model(cache)[0].name_or_path))
    return Model("small", digest_of(folder), folder)


def task_rows(told: Told, tasks: Version | None) -> list[dict[str, Any]]:
    """Return the tasks: rows of a version, of a file, or of a function."""
    name = told.run.tasks
    if tasks is not None:
        rows = list(tasks.rows(next(iter(tasks.manifest["tables"]))))
    elif name and name.endswith(".jsonl"):
        rows = [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines() if line.strip()]
    else:
        name = name or ENVIRONMENTS.get(told.run.environment or "", ("", ""))[1]
        if not name:
            raise RunError(
                "There are no tasks: name --tasks owner/name@revision, a .jsonl file or pkg.module:function."
            )
        rows = load_object(name, "task function")(told.run.num_tasks, seed=told.config.seed)
    if not rows or "prompt" not in rows[0]:
        raise RunError(
            f"The tasks {name} need rows with a column prompt (a list of messages); there are {len(rows)} rows."
        )
    return rows


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
    pairs, encoded = _pairs(told, inputs, network, tokenizer)
    record.values["pairs_left_out"] = dict(encoded.dropped)
    run = RunFacts(record.run_id, inputs.model.name, inputs.model.revision, license=told.run.license)
    output = Path(str(told.config.output_dir))
    rollouts = RolloutFile(output / "rollouts", run, environment=told.run.environment or "")
    budget = TimeBudget(told.run.max_minutes, clock=clock) if told.run.max_minutes is not None else None
    trainer = RunTrainer(
        model=network,
        args=told.config,
        train_dataset=Dataset.from_list(task_rows(told, inputs.tasks)),
        processing_class=tokenizer,
        reward_funcs=rewards_of(told.run.rewards) or None,
        environment_factory=environment_of(told.run.environment),
        peft_config=get_peft_config(told.model),
        pairs=pairs,
        rollouts=rollouts if told.run.keep_rollouts or told.run.rollouts_repo else None,
        card=lambda trainer: model_card(facts_of(told, inputs, record, trainer, is_finished=False)),
        callbacks=[budget] if budget else None,
    )
    if budget is not None:
        budget.trainer = trainer
    return trainer, budget


def _pairs(told: Told, inputs: Inputs, network: Any, tokenizer: Any) -> tuple[PairLoader | None, Encoded]:
    if inputs.pairs is None:
        return None, Encoded()
    split = None if told.run.pairs_split == "all" else told.run.pairs_split
    encoder = PairEncoder.of(tokenizer, max_tokens=told.run.max_pair_tokens)
    encoded = encoder.encode(inputs.pairs.records(Pair, "default", split))
    if not encoded.pairs:
        raise RunError(
            f"No pair of {inputs.pairs.repo} (split {told.run.pairs_split}) can be trained on: "
            f"{dict(encoded.dropped) or 'the split is empty'}. Try --pairs_split all, or a larger --max_pair_tokens."
        )
    expected = encoder.fingerprint(inputs.model.name, inputs.model.revision)
    if "ref" in inputs.pairs.manifest["tables"]:
        rows = list(inputs.pairs.records(RefLogps, "ref"))
    else:
        rows = _reference(network, encoded, expected, told.run.pair_batch_size)
    state = PartialState()
    loader = PairLoader(
        with_reference(encoded, rows, expected),
        told.run.pair_batch_size,
        tokenizer.pad_token_id,
        seed=told.config.seed,
        rank=state.process_index,
        num_ranks=state.num_processes,
    )
    return loader, encoded


def _reference(network: Any, encoded: Encoded, expected: Fingerprint, batch_size: int) -> list[RefLogps]:
    """Compute reference log-probs where none are published; each rank does its share."""
    state = PartialState()
    mine = dict(list(encoded.pairs.items())[state.process_index :: state.num_processes])
    network.to(state.device)
    return gather_object(ref_rows(network, Encoded(mine), expected, batch_size=batch_size))


# ---------------------------------------------------------------------------------------------------- record and card


def _new_record(told: Told, inputs: Inputs, output: Path) -> Record:
    values = {
        "run_id": _shared_id(),
        "composer_hub": __version__,
        "base": vars(inputs.base()),
        "parents": [vars(parent) for parent in inputs.parents()],
        "pins": inputs.pins(),
        "options": shown(told.given, inputs.pins()),
        "libraries": versions(),
        "hardware": hardware(),
        "launches": [],
    }
    return Record(output / RECORD, values)


def _shared_id() -> str:
    return gather_object([uuid.uuid4().hex[:12]])[0]


def facts_of(
    told: Told, inputs: Inputs, record: Record, trainer: RunTrainer, *, is_finished: bool, plots: Sequence[Plot] = ()
) -> ModelFacts:
    """Return what the card says of a run as it stands."""
    config = told.config
    return ModelFacts(
        repo=told.run.repo or Path(str(config.output_dir)).name,
        run_id=record.run_id,
        license=told.run.license,
        base=inputs.base(),
        parents=inputs.parents(),
        weights={"policy": 1.0, "hint": config.alpha_sdpo, "replay": config.beta_replay},
        teacher=config.teacher,
        options=shown(told.given, inputs.pins()),
        environment=told.run.environment or "",
        rewards=tuple(trainer.reward_func_names),
        dropped=record.values.get("pairs_left_out", {}),
        history=trainer.state.log_history,
        plots=plots,
        hardware=record.values["hardware"],
        seconds=record.seconds,
        usd_per_hour=told.run.usd_per_hour,
        is_adapter=told.model.use_peft,
        is_finished=is_finished,
        num_steps=trainer.state.global_step,
        versions=record.values["libraries"],
        reproduce=_reproduce(told, record),
    )


def _reproduce(told: Told, record: Record) -> str:
    fetch = (
        f"hf download {told.run.repo} train.yaml --revision run-{record.run_id} --local-dir . && "
        if told.run.repo
        else ""
    )
    return f"{fetch}accelerate launch scripts/train.py --config train.yaml"


def finish(told: Told, inputs: Inputs, record: Record, trainer: RunTrainer, final: Path, where: Destination) -> None:
    """Write card, plots and record beside the final weights, and publish all of it."""
    plots = draw(trainer.state.log_history, final / "plots")
    facts = facts_of(told, inputs, record, trainer, is_finished=True, plots=plots)
    (final / "README.md").write_text(model_card(facts), encoding="utf-8")
    (final / "train.yaml").write_text(pinned(told.given, inputs.pins()), encoding="utf-8")
    rollouts = _publish_rollouts(told, inputs, record, where)
    if rollouts is not None:
        record.values["rollouts"] = {"repo": rollouts.repo, "revision": rollouts.revision, "tag": rollouts.tag}
        record.write()
    (final / RECORD).write_bytes(record.path.read_bytes())
    (final / "composer_manifest.json").write_text(_manifest(told, inputs, record), encoding="utf-8")
    if told.run.repo:
        published = publish_model(
            where,
            told.run.repo,
            {
                path.relative_to(final).as_posix(): path
                for path in sorted(final.rglob("*"))
                if path.suffix in _PUBLISHED
            },
            tag=f"run-{record.run_id}",
            title=f"Run {record.run_id}: {trainer.state.global_step} steps from {inputs.model.name}",
            public=told.run.public,
        )
        print(f"{published.repo} {published.tag} {published.revision} at {published.address}")


def _publish_rollouts(told: Told, inputs: Inputs, record: Record, where: Destination) -> Published | None:
    if not told.run.rollouts_repo:
        return None
    parents = (inputs.base(), *inputs.parents())
    return publish_rollouts(
        where,
        told.run.rollouts_repo,
        Path(str(told.config.output_dir)) / "rollouts",
        run_id=record.run_id,
        license=told.run.license,
        parents=parents,
        public=told.run.public,
    )


def _manifest(told: Told, inputs: Inputs, record: Record) -> str:
    """Return what `composer-hub lineage` reads to walk from a model to its data."""
    values: Mapping[str, Any] = {
        "composer_hub": __version__,
        "kind": "model",
        "repo": told.run.repo or "",
        "version": f"run-{record.run_id}",
        "parents": [vars(parent) for parent in (inputs.base(), *inputs.parents())],
        "config": shown(told.given, inputs.pins()),
        "config_digest": stable_id(shown(told.given, inputs.pins())),
        "libraries": record.values["libraries"],
    }
    return json.dumps(values, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def versions() -> dict[str, str]:
    """Return the libraries that training depends on."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def hardware() -> str:
    """Return what this run trains on, in words."""
    state = PartialState()
    if torch.cuda.is_available() and state.device.type == "cuda":
        return f"{state.num_processes} x {torch.cuda.get_device_name()}"
    return f"{state.num_processes} x {state.device.type} ({platform.machine()}, {torch.get_num_threads()} threads)"
