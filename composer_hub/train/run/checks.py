"""Refuse options that cannot work, before anything is downloaded. Imports no torch.

In: the values of all options by name. Out: one sentence per mistake, so that all are reported at once.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_hub import exits
from composer_hub.environments import check_environment, load_object, rewards_of
from composer_hub.hub import check_repo
from composer_hub.train.apart import problems as apart
from composer_hub.train.bands import bands_of
from composer_hub.train.ranges import out_of_range
from composer_hub.train.run.config_file import RunError

if TYPE_CHECKING:
    from composer_hub.train.config import ComposerConfig
    from composer_hub.train.run.options import TrainingOptions

OTHER_FAMILIES = ("refuse", "leave_out", "take")
# Options that would silently do nothing without rollouts.
_NEED_ROLLOUTS = ("tasks", "eval_tasks", "rollouts_repo", "beta", "use_vllm")
_PACKAGES = {
    "use_vllm": "vllm",
    "load_in_4bit": "bitsandbytes",
    "load_in_8bit": "bitsandbytes",
    "use_liger_kernel": "liger_kernel",
    "use_peft": "peft",
    "deepspeed": "deepspeed",
}
_TRACKERS = ("wandb", "trackio", "mlflow", "tensorboard", "comet_ml", "swanlab")


def check_options(options: TrainingOptions) -> None:
    """Refuse options that cannot work, alone or together."""
    if found := list(problems(options.values)):
        raise RunError("\n".join(found))


def problems(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each option that cannot work, alone or with the others."""
    output = Path(str(values["output_dir"]))
    if output.is_file():
        yield f"{output} is a file. Name a folder for output_dir."
    yield from out_of_range(values)
    yield from _publishing(values)
    yield from _saving(values)
    yield from _channels(values)
    if not values["environment"] and not values["rewards"]:
        yield from _offline(values)
    yield from _evals(values)
    yield from apart.problems(values)
    if values["env_timeout_s"] < 0:
        yield "env_timeout_s is 0 (no limit) or more."
    for option in ("tasks", "eval_tasks"):
        if str(name := values[option] or "").endswith(".jsonl") and not Path(name).is_file():
            yield f"There is no file of tasks {name}. Check the path, or name a version: owner/name@revision."
    # An import that fails is reported before a model is fetched.
    yield from _refusal(check_environment, values["environment"], values["harbor_environment"])
    if (values["eval_tasks"] or "").startswith("harbor:"):
        yield from _refusal(check_environment, values["eval_tasks"], values["harbor_environment"])
    yield from _refusal(rewards_of, values["rewards"])
    for writer in values["hint_writers"] or ():
        yield from _refusal(load_function, writer, "hint writer")
    if values["error_finder"]:
        yield from _refusal(load_function, values["error_finder"], "error finder")
    yield from _refusal(bands_of, values["bands"])


def load_function(name: str, noun: str) -> Callable[..., Any]:
    """Import a function of the user's."""
    function = load_object(name, noun)
    if not callable(function):
        raise RunError(f"The {noun} {name} is {function!r}. Name a function.")
    return function


def _refusal(check: Callable[..., Any], *values: Any) -> Iterator[str]:
    try:
        check(*values)
    except exits.ComposerError as error:
        yield str(error)


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def missing_packages(values: Mapping[str, Any], is_installed: Callable[[str], bool] = _is_installed) -> Iterator[str]:
    """Yield a sentence for each package that an option needs and that is not installed."""
    needed = {option: package for option, package in _PACKAGES.items() if values[option]}
    if "bnb" in str(values["optim"]) or "8bit" in str(values["optim"]):
        needed["optim"] = "bitsandbytes"
    trackers = values["report_to"] or ()
    named = [trackers] if isinstance(trackers, str) else list(trackers)
    missing = {option: package for option, package in needed.items() if not is_installed(package)}
    for option, package in missing.items():
        install = f"pip install {package.replace('_', '-')}"
        yield f"{option} needs {package}, which is not installed: {install}, or leave {option} out."
    for tracker in named:
        if tracker in _TRACKERS and not is_installed(tracker):
            install = f"pip install {tracker.replace('_', '-')}"
            yield f"report_to {tracker} needs {tracker}, which is not installed: {install}, or set report_to to none."


def keep_metrics_private(config: ComposerConfig, *, public: bool) -> None:
    """Keep trackio from making a public Space of a run's metrics, which is its default."""
    if config.trackio_static_space_id is None:
        config.trackio_static_space_id = False
    # TRACKIO_SPACE_ID in the environment also makes a Space.
    if config.hub_private_repo is None and not public:
        config.hub_private_repo = True


def _publishing(values: Mapping[str, Any]) -> Iterator[str]:
    for option in ("repo", "rollouts_repo", "checkpoints_repo"):
        if values[option]:
            yield from _refusal(check_repo, values[option])
    if values["push_to_hub"]:
        yield "push_to_hub makes many commits without a tag. Set it to false and name --repo instead."
    if values["push_every"] and not (values["checkpoints_repo"] or values["rollouts_repo"]):
        yield "push_every needs a repository. Name --checkpoints_repo or --rollouts_repo, or both."
    if values["checkpoints_repo"] and not values["push_every"]:
        yield "checkpoints_repo is published to during the run. Set --push_every to the saves between two."
    if values["checkpoints_repo"] and values["checkpoints_repo"] == values["repo"]:
        yield "checkpoints_repo and repo are the same. Name another repository for checkpoints."


def _saving(values: Mapping[str, Any]) -> Iterator[str]:
    if values["save_total_limit"] == 1:
        yield "With save_total_limit 1 no checkpoint is complete while one is written. Keep 2 or more."
    if values["save_only_model"]:
        yield "save_only_model writes checkpoints that cannot be resumed. Set it to false."
    if values["enable_jit_checkpoint"]:
        yield "SIGTERM already saves a checkpoint. Set enable_jit_checkpoint to false."


def _channels(values: Mapping[str, Any]) -> Iterator[str]:
    has_hints, source = values["alpha_sdpo"], values["hint_source"]
    if values["beta_replay"] and not values["pairs"]:
        yield "beta_replay is set without pairs. Name --pairs owner/name@revision, or set it to 0."
    if values["other_families"] not in OTHER_FAMILIES:
        yield f"other_families is one of {', '.join(OTHER_FAMILIES)}, not {values['other_families']!r}."
    if has_hints and values["traces"] and source == "rollouts":
        yield "hint_source rollouts does not read traces. Set --hint_source to traces or both."
    if has_hints and not values["traces"] and source != "rollouts":
        yield f"hint_source {source} needs traces. Name --traces owner/name@revision, or set it to rollouts."
    if (values["preflight"] or values["preflight_only"]) and not has_hints:
        yield "preflight measures hints, but alpha_sdpo is 0. Set it, or leave preflight out."
    if values["preflight_retries"] < 0:
        yield f"preflight_retries is {values['preflight_retries']}. Give a number of retries, or 0 for none."


def _offline(values: Mapping[str, Any]) -> Iterator[str]:
    if not values["alpha_sdpo"] and not values["beta_replay"]:
        yield (
            "There is nothing to learn from. Name an --environment or --rewards for rollouts, --traces with alpha_sdpo "
            "for hints, or --pairs with beta_replay."
        )
    if values["alpha_sdpo"] and values["hint_source"] != "traces":
        yield (
            f"hint_source {values['hint_source']} needs rollouts, but neither an --environment nor --rewards are "
            "named. Name one, set --hint_source to traces and name --traces, or set alpha_sdpo to 0."
        )
    if idle := [name for name in _NEED_ROLLOUTS if values[name]]:
        yield (
            f"Without an --environment or --rewards nothing is generated, so {', '.join(idle)} would do nothing. "
            "Leave it out."
        )


def _evals(values: Mapping[str, Any]) -> Iterator[str]:
    if values["eval_tasks"] and min(values["num_eval_tasks"], values["num_eval_samples"]) < 1:
        yield "pass@1 needs attempts. Set num_eval_tasks and num_eval_samples to 1 or more."
    if values["eval_every"] < 0:
        yield "eval_every is 0 (only before and after) or more."
    if str(getattr(values["eval_strategy"], "value", values["eval_strategy"])) != "no":
        yield "eval_strategy has no dataset in a run. Name --eval_tasks, with --eval_every for its rhythm."


def check_batches(rows: Sequence[Mapping[str, Any]], config: ComposerConfig) -> None:
    """Refuse fewer tasks than one generation batch takes: the trainer would wait for it forever."""
    num_prompts = (config.generation_batch_size or 1) // (config.num_generations or 1)
    if len(rows) < num_prompts:
        raise RunError(
            f"One generation batch takes {num_prompts:,} tasks, but there are only {len(rows):,}. Give more tasks, or "
            "lower per_device_train_batch_size or steps_per_generation."
        )
