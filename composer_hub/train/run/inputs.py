"""What a run reads: model, pairs and tasks, each resolved to one commit before anything is loaded.

In: the options, a destination and, for a run that goes on, its record, whose commits it takes whatever the tags mean by
now. Out: `Inputs`, and from them task rows and the loader of pairs.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object

from composer_hub.environments.open import World, load_object, open_world
from composer_hub.hub import Destination, Model, Parent, Version, digest_of, fetch_model, load
from composer_hub.records import Pair
from composer_hub.train.pair_loader import PairLoader
from composer_hub.train.run.options import RunError, Told
from composer_hub.train.run.record import Record
from composer_hub.train.tokens import Encoded, Fingerprint, PairEncoder, RefLogps, ref_rows, with_reference

DATA = ("pairs", "tasks", "traces")


@dataclass
class Inputs:
    """What a run reads, each at one commit."""

    model: Model
    pairs: Version | None = None
    tasks: Version | None = None
    traces: Version | None = None
    world: World = field(default_factory=World)
    eval_tasks: Version | None = None  # not a parent: nothing was learned from it
    eval_world: World | None = None  # or Harbor tasks, which the environment is reset with

    def parents(self) -> tuple[Parent, ...]:
        """Return the data a run was made from."""
        versions = ((role, getattr(self, role)) for role in DATA)
        return tuple(Parent(role, one.repo, one.revision, tag=one.tag) for role, one in versions if one)

    def base(self) -> Parent:
        """Return the model a run starts from."""
        kind = "model" if self.model.is_published else "folder"
        return Parent("base model", self.model.name, self.model.revision, kind, self.model.tag)

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
        inputs.pairs = load(where, pins.get("pairs", told.run.pairs))
    if told.run.traces and told.config.alpha_sdpo:
        inputs.traces = load(where, pins.get("traces", told.run.traces))
    if told.run.tasks and _is_version(told.run.tasks):
        inputs.tasks = load(where, pins.get("tasks", told.run.tasks))
    held_out = pins.get("eval_tasks", told.run.eval_tasks or "")
    if held_out.startswith("harbor:"):
        inputs.eval_world = open_world(held_out, where=where, options=told.run.world())
    elif held_out and _is_version(held_out):
        inputs.eval_tasks = load(where, held_out)
    name = pins.get("environment", told.run.environment)
    inputs.world = open_world(name, told.run.rewards, where=where, options=told.run.world())
    return inputs


def _is_version(name: str) -> bool:
    return ":" not in name and not name.endswith(".jsonl")


def _model_name(told: Told) -> str:
    name, revision = told.model.model_name_or_path, told.model.model_revision
    if not name:
        raise RunError("There is no model: name --model_name_or_path owner/name@revision, a folder, or small.")
    is_pinned = "@" in name or not revision or revision == "main" or Path(name).is_dir()
    return name if is_pinned else f"{name}@{revision}"


def _small() -> Model:
    """Return the tiny world's own model, made on this machine the first time."""
    from composer_hub.environments.desk import small_model

    cache = Path(os.environ.get("COMPOSER_TEST_CACHE") or Path.home() / ".cache" / "composer_hub" / "small")
    with PartialState().local_main_process_first():
        folder = Path(str(small_model(cache)[0].name_or_path))
    return Model("small", digest_of(folder), folder)


def task_rows(told: Told, inputs: Inputs) -> list[dict[str, Any]]:
    """Return the tasks: rows of a version, of a file, of a function, or those that come with the environment."""
    name, world = told.run.tasks or inputs.world.task_function, inputs.world
    if not name and world.rows is None and not world.owns_prompts:
        raise RunError("There are no tasks: name --tasks owner/name@revision, a .jsonl file or pkg.module:function.")
    if not name:
        # The environment says what to do when it is reset; each row is one of its episodes.
        return [dict(row) for row in world.rows or [{"prompt": [{"role": "user", "content": ""}]}] * told.run.num_tasks]
    return _rows(name, inputs.tasks, told.run.tasks_split, told.run.num_tasks, told.config.seed, "--tasks_split")


def eval_rows(told: Told, inputs: Inputs) -> list[dict[str, Any]]:
    """Return the held-out tasks; the same ones for every seed of the training."""
    run = told.run
    if not run.eval_tasks:
        return []
    if inputs.eval_world is not None:
        return [dict(row) for row in inputs.eval_world.rows or ()][: run.num_eval_tasks]
    rows = _rows(run.eval_tasks, inputs.eval_tasks, run.eval_split, run.num_eval_tasks, run.eval_seed, "--eval_split")
    return rows[: run.num_eval_tasks]


def _rows(name: str, version: Version | None, split: str, count: int, seed: int, option: str) -> list[dict[str, Any]]:
    if version is not None:
        table = next(iter(version.manifest["tables"]))
        rows = list(version.rows(table, None if split == "all" else split))
        if not rows:
            raise RunError(
                f"{name} has no split {split!r}, but {', '.join(version.splits(table))}: say {option}, or {option} all."
            )
    elif name.endswith(".jsonl"):
        rows = _read_lines(Path(name))
    else:
        make = load_object(name, "task function")
        try:
            rows = list(make(count, seed=seed))
        except Exception as error:
            raise RunError(
                f"The task function {name} raised {type(error).__name__}: {error}. It is called as function(count, "
                "seed=…) and returns rows."
            ) from error
    for number, row in enumerate(rows):
        prompt = row.get("prompt") if isinstance(row, dict) else None
        if not isinstance(prompt, (str, list)) or not prompt:
            raise RunError(f"Task {number} of {name} has no prompt: each row needs a text or a list of messages there.")
    if not rows:
        raise RunError(f"There are no tasks in {name}: give it rows with a column prompt.")
    return rows


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise RunError(f"There is no file of tasks {path}. Check the path, or name a version: owner/name@revision.")
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            rows += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            raise RunError(f"{path}:{number} is not JSON ({error}): write one task a line.") from error
    return rows


def as_dataset(rows: list[dict[str, Any]]) -> Any:
    """Return the tasks as the trainer takes them."""
    from datasets import Dataset
    from pyarrow import ArrowException

    try:
        return Dataset.from_list(rows)
    except (ArrowException, TypeError) as error:
        raise RunError(f"The tasks do not fit into one table: {error}. Give each column one type.") from error


def load_pairs(told: Told, inputs: Inputs, network: Any, tokenizer: Any) -> tuple[PairLoader | None, Encoded]:
    if inputs.pairs is None:
        return None, Encoded()
    split = None if told.run.pairs_split == "all" else told.run.pairs_split
    missing = _missing_columns(inputs.pairs)
    if missing:
        raise RunError(
            f"{inputs.pairs.repo} holds no preference pairs: it lacks {', '.join(missing)}. Make a set with "
            "`composer-hub pairs build`, or name another with --pairs."
        )
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
        padding=tokenizer.pad_token_id,
        seed=told.config.seed,
        rank=state.process_index,
        num_ranks=state.num_processes,
    )
    return loader, encoded


def _missing_columns(pairs: Version) -> list[str]:
    first = next(pairs.rows("default"), None) if "default" in pairs.manifest["tables"] else {}
    return [field.name for field in fields(Pair) if field.name not in first][:5] if first is not None else []


def _reference(network: Any, encoded: Encoded, expected: Fingerprint, batch_size: int) -> list[RefLogps]:
    """Compute reference log-probs where none are published; each rank does its share."""
    state = PartialState()
    mine = dict(list(encoded.pairs.items())[state.process_index :: state.num_processes])
    network.to(state.device)
    return gather_object(ref_rows(network, Encoded(mine), expected, batch_size=batch_size))
