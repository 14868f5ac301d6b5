"""Refuse options that cannot work, before anything is downloaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from composer_hub.environments import check_environment, rewards_of
from composer_hub.hub import check_repo
from composer_hub.train.config import ComposerConfig
from composer_hub.train.run.options import (
    EvalOptions,
    LaunchOptions,
    PublishingOptions,
    RunError,
    SourceOptions,
    TrainingOptions,
)
from composer_hub.train.trace_sites import OTHER_FAMILIES
from composer_hub.train.watchdogs import bands_of

# Options that would silently do nothing without rollouts.
_NEED_ROLLOUTS = (
    "tasks", "eval_tasks", "rollouts_repo", "beta", "use_vllm",
)  # fmt: skip


def check_options(options: TrainingOptions) -> None:
    """Refuse options that cannot work, alone or together."""
    sources, evals, publishing, config = options.sources, options.evals, options.publishing, options.config
    if options.output.is_file():
        raise RunError(f"{options.output} is a file. Name a folder for output_dir.")
    _check_publishing(publishing, config)
    _check_saving(config)
    _check_channels(sources, config)
    if sources.is_offline:
        _check_offline(config, vars(sources) | vars(evals) | vars(publishing) | vars(config))
    _check_preflight(options.launch, config)
    _check_evals(evals, config)
    if sources.env_timeout_s < 0:
        raise RunError("env_timeout_s is 0 (no limit) or more.")
    # An import that fails is reported before a model is fetched.
    check_environment(sources.environment, sources.harbor_environment)
    if (evals.eval_tasks or "").startswith("harbor:"):
        check_environment(evals.eval_tasks, sources.harbor_environment)
    rewards_of(sources.rewards)
    bands_of(options.launch.bands)


def keep_metrics_private(config: ComposerConfig, *, public: bool) -> None:
    """Keep trackio from making a public Space of a run's metrics, which is its default."""
    if config.trackio_static_space_id is None:
        config.trackio_static_space_id = False
    # TRACKIO_SPACE_ID in the environment also makes a Space.
    if config.hub_private_repo is None and not public:
        config.hub_private_repo = True


def _check_publishing(publishing: PublishingOptions, config: ComposerConfig) -> None:
    for repo in (publishing.repo, publishing.rollouts_repo, publishing.checkpoints_repo):
        if repo:
            check_repo(repo)
    if config.push_to_hub:
        raise RunError("push_to_hub makes many commits without a tag. Set it to false and name --repo instead.")
    if publishing.push_every and not (publishing.checkpoints_repo or publishing.rollouts_repo):
        raise RunError("push_every needs a repository. Name --checkpoints_repo or --rollouts_repo, or both.")
    if publishing.checkpoints_repo and not publishing.push_every:
        raise RunError("checkpoints_repo is published to during the run. Set --push_every to the saves between two.")
    if publishing.checkpoints_repo and publishing.checkpoints_repo == publishing.repo:
        raise RunError("checkpoints_repo and repo are the same. Name another repository for checkpoints.")


def _check_saving(config: ComposerConfig) -> None:
    if config.save_total_limit == 1:
        raise RunError("With save_total_limit 1 no checkpoint is complete while one is written. Keep 2 or more.")
    if config.save_only_model:
        raise RunError("save_only_model writes checkpoints that cannot be resumed. Set it to false.")
    if config.enable_jit_checkpoint:
        raise RunError("SIGTERM already saves a checkpoint. Set enable_jit_checkpoint to false.")


def _check_channels(sources: SourceOptions, config: ComposerConfig) -> None:
    if config.beta_replay and not sources.pairs:
        raise RunError("beta_replay is set without pairs. Name --pairs owner/name@revision, or set it to 0.")
    if sources.other_families not in OTHER_FAMILIES:
        raise RunError(f"other_families is one of {', '.join(OTHER_FAMILIES)}, not {sources.other_families!r}.")
    if config.alpha_sdpo and sources.traces and config.hint_source == "rollouts":
        raise RunError("hint_source rollouts does not read traces. Set --hint_source to traces or both.")
    if config.alpha_sdpo and not sources.traces and config.hint_source != "rollouts":
        raise RunError(
            f"hint_source {config.hint_source} needs traces. Name --traces owner/name@revision, or set it to rollouts."
        )


def _check_offline(config: ComposerConfig, values: Mapping[str, Any]) -> None:
    if not config.alpha_sdpo and not config.beta_replay:
        raise RunError(
            "There is nothing to learn from. Name an --environment or --rewards for rollouts, --traces with alpha_sdpo "
            "for hints, or --pairs with beta_replay."
        )
    if config.alpha_sdpo and config.hint_source != "traces":
        raise RunError(
            f"hint_source {config.hint_source} needs rollouts, but neither an --environment nor --rewards are named. "
            "Name one, set --hint_source to traces and name --traces, or set alpha_sdpo to 0."
        )
    if idle := [name for name in _NEED_ROLLOUTS if values[name]]:
        raise RunError(
            f"Without an --environment or --rewards nothing is generated, so {', '.join(idle)} would do nothing. "
            "Leave it out."
        )


def _check_preflight(launch: LaunchOptions, config: ComposerConfig) -> None:
    if (launch.preflight or launch.preflight_only) and not config.alpha_sdpo:
        raise RunError("preflight measures hints, but alpha_sdpo is 0. Set it, or leave preflight out.")


def _check_evals(evals: EvalOptions, config: ComposerConfig) -> None:
    if evals.eval_tasks and min(evals.num_eval_tasks, evals.num_eval_samples) < 1:
        raise RunError("pass@1 needs attempts. Set num_eval_tasks and num_eval_samples to 1 or more.")
    if evals.eval_every < 0:
        raise RunError("eval_every is 0 (only before and after) or more.")
    if config.eval_strategy != "no":
        raise RunError("eval_strategy has no dataset in a run. Name --eval_tasks, with --eval_every for its rhythm.")


def check_batches(rows: Sequence[Mapping[str, Any]], config: ComposerConfig) -> None:
    """Refuse fewer tasks than one generation batch takes: the trainer would wait for it forever."""
    num_prompts = (config.generation_batch_size or 1) // (config.num_generations or 1)
    if len(rows) < num_prompts:
        raise RunError(
            f"One generation batch takes {num_prompts:,} tasks, but there are only {len(rows):,}. Give more tasks, or "
            "lower per_device_train_batch_size or steps_per_generation."
        )
