"""The results of a finished run: card, plots, record and lineage beside the final weights, all of it published."""

from __future__ import annotations

import dataclasses
import json
import secrets
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from transformers import TrainerState

from composer_hub import __version__, exits
from composer_hub.pairs.card import words_of
from composer_hub.records import stable_id
from composer_hub.redact import Redactor
from composer_hub.train.evals import HeldOutTasks
from composer_hub.train.rollouts import message_of
from composer_hub.train.run.card import NO_HINTS, ModelFacts, has_hints, model_card
from composer_hub.train.run.plots import RunPlot, draw
from composer_hub.train.run.publisher import RunPublisher
from composer_hub.train.run.record import RECORD, RunRecord

if TYPE_CHECKING:
    from composer_hub.train.run.trainer import RunTrainer


def with_progress(
    facts: ModelFacts,
    record: RunRecord,
    state: TrainerState,
    held_out: HeldOutTasks | None,
    *,
    is_finished: bool,
    plots: Sequence[RunPlot] = (),
) -> ModelFacts:
    """Return the facts that were known before training with those that it has added so far."""
    history = state.log_history
    return dataclasses.replace(
        facts,
        history=history,
        plots=plots,
        evals=held_out.card_rows(history) if held_out else {},
        seconds=record.seconds,
        is_finished=is_finished,
        num_steps=state.global_step,
        best=(f"checkpoint-{state.best_global_step}", state.best_metric) if state.best_global_step else None,
        alarms=tuple(record.values.get("alarms", ())),
        preflight=tuple(record.values.get("preflight", ())),
        retries=tuple(record.values.get("preflight_retries", ())),
        own_pairs=record.values.get("own_pairs", {}),
        example_hint=record.values.get("example_hint"),
        example=record.values.get("example"),
    )


def example_of(trainer: RunTrainer, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rollout for the card, redacted, and the model's answer to its prompt if this process has its weights."""
    redact = Redactor(secrets.token_bytes(16)).text
    prompt, talk = (
        [{"role": message.role, "content": redact(words_of(message))} for message in map(message_of, shown[part])]
        for part in ("prompt", "messages")
    )
    example = {**shown, "prompt": prompt, "messages": talk, "answer": ""}
    if not trainer.sharding:
        network, tokenizer = trainer.bare_model.eval(), trainer._tokenizer
        inputs = tokenizer.apply_chat_template(
            prompt, tools=trainer.hinter.tools, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        ).to(network.device)
        with torch.no_grad():
            output = network.generate(**inputs, max_new_tokens=256, do_sample=False)
        example["answer"] = tokenizer.decode(output[0][inputs["input_ids"].shape[1] :])
    return example


def write_results(
    final: Path, facts: ModelFacts, record: RunRecord, state: TrainerState, held_out: HeldOutTasks | None
) -> None:
    """Write card, plots, config and lineage beside the final weights."""
    plots = draw(state.log_history, final / "plots")
    facts = with_progress(facts, record, state, held_out, is_finished=True, plots=plots)
    (final / "README.md").write_text(model_card(facts), encoding="utf-8")
    (final / "train.yaml").write_text(config_file(facts.options), encoding="utf-8")
    (final / "composer_manifest.json").write_text(_manifest(facts, record), encoding="utf-8")
    if held_out is not None and (results := held_out.eval_results(state.log_history)):
        (final / ".eval_results").mkdir(exist_ok=True)
        (final / ".eval_results" / "pass_at_1.yaml").write_text(results, encoding="utf-8")


def publish_results(
    final: Path, publisher: RunPublisher, record: RunRecord, num_steps: int, *, is_adapter: bool
) -> None:
    """Publish rollouts and model; if one of the two fails, the other is still published."""
    errors: list[exits.ComposerError] = []
    try:
        rollouts = publisher.publish_rollouts(final.parent / "rollouts")
        if rollouts is not None:
            record.values["rollouts"] = {"repo": rollouts.repo, "revision": rollouts.revision, "tag": rollouts.tag}
            record.write()
    except exits.ComposerError as error:
        errors.append(error)
    (final / RECORD).write_text(record.to_publish(), encoding="utf-8")
    print(f"The trained model is in {final}; its card is {final / 'README.md'}.")
    try:
        publisher.publish_final(final, num_steps, is_adapter=is_adapter)
    except exits.ComposerError as error:
        errors.append(error)
    if errors:
        worst = max(errors, key=lambda error: error.exit_code)
        raise type(worst)(
            f"{' '.join(map(str, errors))} The trained model is in {final}. Publish it with the same command and "
            "--resume true."
        ) from worst


def next_steps(final: Path, facts: ModelFacts, publisher: RunPublisher, settings: Mapping[str, Any]) -> list[str]:
    """Return the commands for a finished model: serve it, use it in a harness, evaluate it on the run's own tasks."""
    name = final.parent.name
    published = publisher.options.repo
    model = f"{published}@run-{publisher.run_id}" if published else str(final)
    serve = f"transformers serve --force-model {final}"
    vllm = f"vllm serve {final} --served-model-name {name} --enable-auto-tool-choice --tool-call-parser hermes"
    if facts.is_adapter:
        vllm = f"vllm serve {facts.base.repo} --enable-lora --lora-modules {name}={final}"
    to = f" --to {publisher.options.to}" if published else ""
    world = settings.get("environment") or "ENVIRONMENT"
    tasks = settings.get("eval_tasks") or "OWNER/NAME@REVISION"
    return [
        "What to do next:",
        f"  serve it      {vllm}",
        f"                {serve}   # without a GPU",
        "  use it        point your harness to http://127.0.0.1:8000/v1 (docs/after_training.md has a line for each)",
        f"  evaluate it   composer-hub eval {model} --environment {world} --tasks {tasks}{to}",
    ]


def warn_without_hints(history: Sequence[Mapping[str, Any]], max_tokens: int) -> None:
    """Warn if the hint channel was on and no hint was learned from."""
    if not has_hints(history):
        warnings.warn(
            f"{NO_HINTS} max_teacher_tokens {max_tokens:,}. Use --preflight_only to measure hints.", stacklevel=2
        )


def config_file(settings: Mapping[str, Any]) -> str:
    """Return a config file that starts the same run again."""
    return yaml.safe_dump(dict(settings), sort_keys=True, allow_unicode=True)


def reproduce_command(repo: str | None, run_id: str, output: str) -> str:
    """Return the shell line that starts the same run again."""
    if not repo:
        return f"composer-hub train {output}/final/train.yaml --output_dir {output}-again"
    return f"hf download {repo} train.yaml --revision run-{run_id} --local-dir . && composer-hub train train.yaml"


def _manifest(facts: ModelFacts, record: RunRecord) -> str:
    """Return the file that `composer-hub lineage` reads to walk from a model to its data."""
    values = {
        "composer_hub": __version__,
        "kind": "model",
        "repo": facts.repo if "/" in facts.repo else "",
        "version": f"run-{record.run_id}",
        "parents": [vars(parent) for parent in (facts.base, *facts.parents)],
        "config": dict(facts.options),
        "config_digest": stable_id(dict(facts.options)),
        "libraries": record.values["libraries"],
    }
    return json.dumps(values, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
