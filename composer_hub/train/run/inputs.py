"""The inputs of a run: model, data and environment, each resolved to one commit before anything is loaded.

In: names (a resumed run takes them from its record, at the commits it began with) and a destination. Out: `Inputs`, and
from them task rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trl import ModelConfig

from composer_hub.environments import World, load_object, open_world
from composer_hub.hub import Destination, Model, Parent, Version, fetch_model, load
from composer_hub.named_files import text_of
from composer_hub.train.config import ComposerConfig
from composer_hub.train.evals import EVAL_SEED
from composer_hub.train.failure import TrainerError
from composer_hub.train.run.options import EvalOptions, SourceOptions
from composer_hub.train.tiny import SMALL, small_folder

DATA = ("pairs", "tasks", "traces")
OWN = "coding"
"""The name of held-out tasks that are another split of the environment's own."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a run, each at one commit."""

    model: Model
    pairs: Version | None = None
    tasks: Version | None = None
    traces: Version | None = None
    world: World = field(default_factory=World)
    eval_tasks: Version | None = None  # not a parent: nothing is learned from it
    eval_world: World | None = None  # or Harbor tasks, which the environment's reset takes

    def parents(self) -> tuple[Parent, ...]:
        """Return the data that the run learns from."""
        versions = ((role, getattr(self, role)) for role in DATA)
        return tuple(Parent(role, one.repo, one.revision, tag=one.tag) for role, one in versions if one)

    def base(self) -> Parent:
        """Return the model that the run starts from."""
        model = self.model
        of_the_package = SMALL.get(model.name) == model.revision
        kind = "model" if model.is_published else "package" if of_the_package else "folder"
        return Parent("base model", model.name, model.revision, kind, model.tag)

    def pins(self) -> dict[str, str]:
        """Return the options that name these inputs, at their commits."""
        versions = ((name, getattr(self, name)) for name in (*DATA, "eval_tasks"))
        pins = {name: f"{one.repo}@{one.revision}" for name, one in versions if one}
        model = self.model
        if self.world.pin != self.world.name:
            pins["environment"] = self.world.pin
        if self.eval_world is not None:
            pins["eval_tasks"] = self.eval_world.pin
        return pins | {"model_name_or_path": f"{model.name}@{model.revision}" if model.is_published else model.name}


def input_names(
    sources: SourceOptions, evals: EvalOptions, config: ComposerConfig, model: ModelConfig
) -> dict[str, str]:
    """Return option -> name for every input that these options read."""
    names = {
        "model_name_or_path": _model_name(model),
        "environment": sources.environment,
        "tasks": sources.tasks,
        "eval_tasks": None if evals.eval_tasks == OWN else evals.eval_tasks,
        "pairs": sources.pairs if config.beta_replay else None,
        "traces": sources.traces if config.alpha_sdpo else None,
    }
    return {option: name for option, name in names.items() if name}


def resolve(names: Mapping[str, str], where: Destination, options: SourceOptions) -> Inputs:
    """Open every named input at one commit."""

    def version(option: str) -> Version | None:
        name = names.get(option, "")
        return load(where, name) if name and _is_version(name) else None

    def world(name: str | None, rewards: Sequence[str] | None = None) -> World:
        return open_world(name, rewards, where=where, options=options.world_options())

    model, held_out = names["model_name_or_path"], names.get("eval_tasks", "")
    return Inputs(
        _small(model) if model in SMALL else fetch_model(where, model),
        pairs=version("pairs"),
        tasks=version("tasks"),
        traces=version("traces"),
        world=world(names.get("environment"), options.rewards),
        eval_tasks=version("eval_tasks"),
        eval_world=world(held_out) if held_out.startswith("harbor:") else None,
    )


def _is_version(name: str) -> bool:
    return ":" not in name and not name.endswith(".jsonl")


def _model_name(model: ModelConfig) -> str:
    name, revision = model.model_name_or_path, model.model_revision
    if not name:
        raise TrainerError("There is no model. Name --model_name_or_path owner/name@revision, a folder, or small.")
    is_pinned = "@" in name or not revision or revision == "main" or Path(name).is_dir()
    return name if is_pinned else f"{name}@{revision}"


def _small(name: str) -> Model:
    """Return a tiny model of the package."""
    return Model(name, SMALL[name], small_folder(name))


def task_rows(inputs: Inputs, options: SourceOptions, *, seed: int) -> list[dict[str, Any]]:
    """Return the tasks of a version, a file or a function, or those of the environment."""
    name, world = options.tasks or inputs.world.task_function, inputs.world
    if not name and world.rows is None and not world.owns_prompts:
        raise TrainerError(
            "There are no tasks. Name --tasks owner/name@revision, a .jsonl file or pkg.module:function."
        )
    if not name:
        # The prompt comes from the environment's reset; each row is one of its episodes.
        return [dict(row) for row in world.rows or [{"prompt": [{"role": "user", "content": ""}]}] * options.num_tasks]
    return _rows(name, inputs.tasks, options.train_split, options.num_tasks, seed, "--train_split")


def eval_rows(inputs: Inputs, options: EvalOptions) -> list[dict[str, Any]]:
    """Return the held-out tasks; they do not depend on the seed of the training."""
    name, count = options.eval_tasks, options.num_eval_tasks
    if not name:
        return []
    if name == OWN:
        if inputs.world.held_out is None:
            raise TrainerError("--eval_tasks coding needs --environment coding:owner/name@revision.")
        rows = inputs.world.held_out(options.eval_split)
        if not rows:
            raise TrainerError(
                f"{inputs.world.name} has no split {options.eval_split!r}. Choose one with --eval_split."
            )
        return [dict(row) for row in rows[:count]]
    if inputs.eval_world is not None:
        return [dict(row) for row in inputs.eval_world.rows or ()][:count]
    return _rows(name, inputs.eval_tasks, options.eval_split, count, EVAL_SEED, "--eval_split")[:count]


def _rows(name: str, version: Version | None, split: str, count: int, seed: int, option: str) -> list[dict[str, Any]]:
    if version is not None:
        table = next(iter(version.manifest["tables"]))
        rows = list(version.rows(table, None if split == "all" else split))
        if not rows:
            raise TrainerError(
                f"{name} has no split {split!r}, only {', '.join(version.splits(table))}. Choose one with {option}, or "
                f"{option} all."
            )
    elif name.endswith(".jsonl"):
        rows = _read_lines(Path(name))
    else:
        make = load_object(name, "task function")
        try:
            rows = list(make(count, seed=seed))
        except Exception as error:
            raise TrainerError(
                f"The task function {name} raised {type(error).__name__}: {error}. It is called as function(count, "
                "seed=…) and must return rows."
            ) from error
    for number, row in enumerate(rows):
        prompt = row.get("prompt") if isinstance(row, dict) else None
        if not isinstance(prompt, (str, list)) or not prompt:
            raise TrainerError(f"Task {number} of {name} has no prompt. Give each row a text or a list of messages.")
    if not rows:
        raise TrainerError(f"{name} holds no tasks. Give it rows with a column prompt.")
    return rows


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise TrainerError(f"There is no file of tasks {path}. Check the path, or name a version: owner/name@revision.")
    rows = []
    for number, line in enumerate(text_of(path).split("\n"), start=1):
        try:
            rows += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            raise TrainerError(f"{path}:{number} is not JSON ({error}). Write one task per line.") from error
    return rows


def as_dataset(rows: list[dict[str, Any]]) -> Any:
    """Return the tasks as a table, which is what the trainer takes."""
    from datasets import Dataset
    from pyarrow import ArrowException

    try:
        return Dataset.from_list(rows)
    except (ArrowException, TypeError) as error:
        raise TrainerError(f"The tasks do not fit into one table: {error}. Give each column one type.") from error


def check_batches(rows: Sequence[Mapping[str, Any]], config: ComposerConfig) -> None:
    """Refuse fewer tasks than one generation batch takes: the trainer would wait for it forever."""
    num_prompts = (config.generation_batch_size or 1) // (config.num_generations or 1)
    if len(rows) < num_prompts:
        raise TrainerError(
            f"One generation batch takes {num_prompts:,} tasks, but there are only {len(rows):,}. Give more tasks, or "
            "lower per_device_train_batch_size or steps_per_generation."
        )
