"""What a run leaves: card, plots, record and lineage beside the final weights, and all of it published."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from composer_hub import __version__, exits
from composer_hub.environments.open import shown_name
from composer_hub.hub import Destination, HubError, Published, check_visibility, publish_model
from composer_hub.records import stable_id
from composer_hub.train.checkpoints import model_files
from composer_hub.train.evals import measured
from composer_hub.train.run.card import ModelFacts, has_hints, model_card
from composer_hub.train.run.export import publish_rollouts
from composer_hub.train.run.inputs import Inputs
from composer_hub.train.run.offline import is_offline
from composer_hub.train.run.options import Told, pinned, shown
from composer_hub.train.run.plots import Plot, draw
from composer_hub.train.run.record import RECORD, Record
from composer_hub.train.run.trainer import RunTrainer

NO_HINTS = (
    "No hint was placed: no turn went wrong, no writer knew a hint, all were refused, or the hinted prompts are longer "
    "than"
)


_PUBLIC_ADVICE = (
    "say --public true if everyone may have what this run makes, name another repository, or make it private first."
)


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
        weights={"policy": float(not is_offline(told)), "hint": config.alpha_sdpo, "replay": config.beta_replay},
        teacher=config.teacher,
        options=shown(told.given, inputs.pins()),
        environment=shown_name(told.run.environment or ""),
        rewards=tuple(trainer.reward_func_names),
        dropped=record.values.get("pairs_left_out", {}),
        hinted_steps=record.values.get("hinted_steps", {}),
        dropped_steps=record.values.get("hinted_steps_left_out", {}),
        history=trainer.state.log_history,
        plots=plots,
        evals=_evals(told, inputs, record, trainer),
        hardware=record.values["hardware"],
        seconds=record.seconds,
        usd_per_hour=told.run.usd_per_hour,
        is_adapter=told.model.use_peft,
        is_finished=is_finished,
        num_steps=trainer.state.global_step,
        versions=record.values["libraries"],
        reproduce=_reproduce(told, record),
        best=record.values.get("best"),
        alarms=tuple(record.values.get("alarms", ())),
        preflight=tuple(record.values.get("preflight", ())),
    )


def _evals(told: Told, inputs: Inputs, record: Record, trainer: RunTrainer) -> dict[str, str]:
    """Return what was measured on held-out tasks, before and after."""
    found = measured(trainer.state.log_history)
    if not found:
        return {}
    # Only the first and the last: the plot has the others.
    rates = {f"pass@1 after {step:,} steps": str(rate) for step, rate in dict([found[0], found[-1]]).items()}
    again = record.values.get("num_eval_tasks_trained_on", 0)
    lost = found[-1][1].num_lost
    how = _how_measured(told, trainer)
    if again:
        how += f"; **{again:,} of these tasks stand among the training tasks, too**"
    if lost:
        how += f"; in {lost:,} attempts the environment was lost, which counts as not passed"
    return rates | {"measured on": f"{_eval_tasks(told, inputs)}: {how}"}


def _eval_tasks(told: Told, inputs: Inputs) -> str:
    version = inputs.eval_tasks
    if version is None:
        name = inputs.eval_world.pin if inputs.eval_world else str(told.run.eval_tasks)
        return f"`{shown({'eval_tasks': name}, {})['eval_tasks']}` (not a version that composer_hub published)"
    return f"`{version.repo}` at `{version.revision}`, split {told.run.eval_split}"


def _how_measured(told: Told, trainer: RunTrainer) -> str:
    rate = measured(trainer.state.log_history)[-1][1]
    run = told.run
    return (
        f"{rate.num_tasks:,} tasks, {run.num_eval_samples} attempts each at temperature {told.config.temperature:g}, "
        f"seed {run.eval_seed}; a reward of {run.pass_reward:g} or more passes; 95 % Wilson interval over tasks"
    )


def _eval_results(told: Told, inputs: Inputs, trainer: RunTrainer) -> str:
    """Return the Hub's `.eval_results` of the final model; empty where the tasks are no dataset at a commit."""
    found, version = measured(trainer.state.log_history), inputs.eval_tasks
    if not found or version is None:
        return ""
    _, rate = found[-1]
    entry = EvalResultEntry(
        dataset_id=version.repo,
        task_id=told.run.eval_split,
        dataset_revision=version.revision,
        value=round(rate.value, 6),
        notes=f"pass@1, 95 % interval {rate.low:.3f} to {rate.high:.3f}: {_how_measured(told, trainer)}.",
    )
    return yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, width=1000)


def _reproduce(told: Told, record: Record) -> str:
    fetch = (
        f"hf download {told.run.repo} train.yaml --revision run-{record.run_id} --local-dir . && "
        if told.run.repo
        else ""
    )
    return f"{fetch}accelerate launch scripts/train.py --config train.yaml"


def check_targets(told: Told, where: Destination) -> None:
    """Refuse before training what would be refused after it; a Hub that is only busy may be back by then."""
    run = told.run
    targets = ((run.repo, "model"), (run.checkpoints_repo, "model"), (run.rollouts_repo, "dataset"))
    for repo, kind in targets:
        if not repo:
            continue
        try:
            where.prepare(repo, private=not run.public, repo_type=kind)
            check_visibility(where, repo, public=run.public, repo_type=kind, advice=_PUBLIC_ADVICE)
        except HubError as error:
            warnings.warn(f"{error} Training begins; what it makes stays in {told.config.output_dir}.", stacklevel=2)
            return


def finish(told: Told, inputs: Inputs, record: Record, trainer: RunTrainer, final: Path, where: Destination) -> None:
    """Write card, plots and record beside the final weights, and publish all of it."""
    if told.config.alpha_sdpo and not has_hints(trainer.state.log_history):
        warnings.warn(
            f"{NO_HINTS} max_teacher_tokens {told.config.max_teacher_tokens:,}. --preflight_only shows what hints do.",
            stacklevel=2,
        )
    plots = draw(trainer.state.log_history, final / "plots")
    facts = facts_of(told, inputs, record, trainer, is_finished=True, plots=plots)
    (final / "README.md").write_text(model_card(facts), encoding="utf-8")
    (final / "train.yaml").write_text(pinned(told.given, inputs.pins()), encoding="utf-8")
    (final / "composer_manifest.json").write_text(_manifest(told, inputs, record), encoding="utf-8")
    results = _eval_results(told, inputs, trainer)
    if results:
        (final / ".eval_results").mkdir(exist_ok=True)
        (final / ".eval_results" / "pass_at_1.yaml").write_text(results, encoding="utf-8")
    failed: list[exits.ComposerError] = []
    try:
        rollouts = publish_run_rollouts(told, inputs, record, where, Path(str(told.config.output_dir)) / "rollouts")
        if rollouts is not None:
            record.values["rollouts"] = {"repo": rollouts.repo, "revision": rollouts.revision, "tag": rollouts.tag}
            record.write()
    except exits.ComposerError as error:
        failed.append(error)  # the model may still be taken
    (final / RECORD).write_text(record.to_publish(), encoding="utf-8")
    print(f"What was trained is in {final}; {final / 'README.md'} is its card.")
    try:
        _publish_final(told, inputs, record, where, final, trainer.state.global_step)
    except exits.ComposerError as error:
        failed.append(error)
    if failed:
        worst = max(failed, key=lambda error: error.exit_code)
        raise type(worst)(
            f"{' '.join(map(str, failed))} What was trained is in {final}; the same command with --resume true "
            "publishes it."
        ) from worst


def _publish_final(told: Told, inputs: Inputs, record: Record, where: Destination, final: Path, num_steps: int) -> None:
    if not told.run.repo:
        return
    published = publish_model(
        where,
        told.run.repo,
        model_files(final),
        tag=f"run-{record.run_id}",
        title=f"Run {record.run_id}: {num_steps} steps from {inputs.model.name}",
        public=told.run.public,
    )
    print(f"{published.repo} {published.tag} {published.revision} at {published.address}")
    if told.run.to in ("local", "hub"):
        inside = ", in `composer-hub run -- python`" if told.run.to == "local" else ""
        reader = "AutoPeftModelForCausalLM" if told.model.use_peft else "AutoModelForCausalLM"
        print(f'Load it with {reader}.from_pretrained("{published.repo}", revision="{published.tag}"){inside}.')
        print(f"Where it comes from: composer-hub lineage {published.repo}@{published.tag} --to {told.run.to}")


def publish_so_far(
    told: Told, inputs: Inputs, record: Record, where: Destination, copy: Path, step: int
) -> dict[str, Any]:
    """Publish a checkpoint and the rollouts so far, and return their revisions."""
    facts: dict[str, Any] = {}
    rollouts = publish_run_rollouts(told, inputs, record, where, copy / "rollouts")
    if rollouts is not None:
        facts["rollouts"] = rollouts.revision
    if told.run.checkpoints_repo:
        tag = f"run-{record.run_id}-step-{step}"
        title = f"Run {record.run_id}: step {step} from {inputs.model.name}"
        files = model_files(copy / "model")
        done = publish_model(where, told.run.checkpoints_repo, files, tag=tag, title=title, public=told.run.public)
        facts["checkpoint"] = done.revision
    return facts


def publish_run_rollouts(
    told: Told, inputs: Inputs, record: Record, where: Destination, folder: Path
) -> Published | None:
    """Publish the rollouts in a folder as the next version of the run's dataset, if it has one."""
    if not told.run.rollouts_repo:
        return None
    return publish_rollouts(
        where,
        told.run.rollouts_repo,
        folder,
        run_id=record.run_id,
        license=told.run.license,
        parents=(inputs.base(), *inputs.parents()),
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
