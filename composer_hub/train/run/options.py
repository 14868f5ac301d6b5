"""The options of a run beside TRL's own: read from the command line and a YAML file, and shown on its card."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trl import ModelConfig, TrlParser

from composer_hub import exits
from composer_hub.environments import WorldOptions, shown_name
from composer_hub.options import option
from composer_hub.train.checks import known_options, read_words, refuse
from composer_hub.train.config import ComposerConfig
from composer_hub.train.evals import EvalPlan


@dataclass(frozen=True)
class SourceOptions:
    """The environment, tasks, rewards and recorded data that a run learns from."""

    environment: str | None = option(
        None,
        "desk (the tiny world), coding (with --tasks) or coding:owner/name@revision, pkg.module:Class with tools as "
        "public methods, openenv:URL, openenv:image, harbor:folder or harbor:owner/name@revision.",
    )
    env_timeout_s: float = option(300.0, "Seconds per environment call before its episode is lost (0: no limit).")
    openenv_reward: Literal["last", "sum"] = option(
        "last", "Reward of an OpenEnv episode: its last one, or the sum of all."
    )
    harbor_agent: str = option("bash", "Tools in a Harbor task: bash, or pkg.module:Class (a HarborEnv).")
    harbor_environment: str = option("docker", "Sandbox of Harbor tasks: bubblewrap (no Docker), docker, podman, …")
    sandbox: Literal["auto", "bubblewrap", "landlock", "weak"] = option("auto", "Sandbox of coding tasks.")
    tasks: str | None = option(
        None, "Task rows: owner/name@revision, a .jsonl file, or pkg.module:function(count, seed=…)."
    )
    num_tasks: int = option(256, "Number of tasks requested from a task function.")
    allow_unverified: bool = option(False, "Also play coding tasks without a hidden oracle, which hacks can solve.")
    train_split: str = option("train", "Split of the task and pair datasets to train on, or all.")
    rewards: list[str] | None = option(None, "Reward functions, each pkg.module:function.")
    hint_writers: list[str] | None = option(
        None, "Hint writers to ask before the built-in ones, each pkg.module:function(site_context)."
    )
    terms: list[str] | None = option(
        None, "Terms to add to the loss, each pkg.module:function(tokenizer) that returns a Term."
    )
    error_finder: str | None = option(
        None, "Function that returns why a call failed, or None: pkg.module:function(tool, arguments, result)."
    )
    traces: str | None = option(None, "The student's own traces, for hints without rollouts: repo@revision.")
    trace_batch_size: int = option(2, "Hinted steps of traces per micro-batch.")
    other_families: Literal["refuse", "leave_out", "take"] = option(
        "refuse", "What to do with traces of another model than the student."
    )
    pairs: str | None = option(None, "Preference pairs of the replay channel: repo@revision.")
    own_pairs: int = option(
        0,
        "Rollouts of the starting model whose first failed turn is tried again with its hint; those that work "
        "become pairs of the replay channel (0: none).",
    )
    pair_batch_size: int = option(2, "Pairs per micro-batch.")
    max_pair_tokens: int = option(4096, "Longest pair to train on, in tokens; longer prompts are cut to a window.")
    max_left_out: float = option(0.5, "Largest share of the pairs that may be left out.")

    def __post_init__(self) -> None:
        if self.environment == "coding" and self.tasks:
            object.__setattr__(self, "environment", f"coding:{self.tasks}")
            object.__setattr__(self, "tasks", None)

    @property
    def is_offline(self) -> bool:
        """True if nothing is generated: neither an environment nor rewards are named."""
        return not self.environment and not self.rewards

    def world_options(self) -> WorldOptions:
        """Return how environments are reached."""
        limit = self.env_timeout_s or None
        return WorldOptions(
            limit, self.harbor_agent, self.harbor_environment, self.openenv_reward, self.sandbox, self.train_split,
            self.allow_unverified,
        )  # fmt: skip


@dataclass(frozen=True)
class EvalOptions:
    """The held-out tasks that pass@1 is measured on."""

    eval_tasks: str | None = option(
        None, "Held-out tasks for pass@1, named like tasks; coding: another split of the environment's own."
    )
    eval_split: str = option("test", "Split of a dataset of held-out tasks, or all.")
    num_eval_tasks: int = option(64, "Maximum number of held-out tasks.")
    num_eval_samples: int = option(4, "Attempts per held-out task.")
    eval_every: int = option(0, "Steps between measurements (0: only before the first step and after the last).")

    def plan(self, pass_reward: float) -> EvalPlan | None:
        """Return the plan of measurements on held-out tasks, None without such tasks."""
        return EvalPlan(self.num_eval_samples, self.eval_every, pass_reward) if self.eval_tasks else None


@dataclass(frozen=True)
class PublishingOptions:
    """The destination of versions, and the repositories that a run publishes to."""

    to: str = option("local", "Destination of versions: local (the embedded Hub), hub, or a folder.")
    repo: str | None = option(None, "Model repository for the finished model.")
    rollouts_repo: str | None = option(None, "Dataset repository for every rollout.")
    checkpoints_repo: str | None = option(None, "Model repository for checkpoints during the run, each with a tag.")
    push_every: int = option(0, "Saves between two publications during the run (0: only at the end).")
    public: bool = option(False, "Let everyone read what is published.")
    license: str = option("other", "License of the model and its rollouts.")
    federation: str | None = option(None, "Model repository where the workers of a federation meet.")
    worker: str | None = option(None, "Name of this worker in the federation.")
    workers: int = option(2, "Workers that a round of the federation waits for.")
    rounds: int = option(10, "Rounds of the federation; max_steps is shared out among them.")
    round_minutes: float = option(60.0, "Minutes to wait for the others before closing a round without them.")


@dataclass(frozen=True)
class LaunchOptions:
    """How one launch of a run behaves: when it stops, what it checks first and what it keeps."""

    resume: bool = option(False, "Continue from the last complete checkpoint in output_dir.")
    max_minutes: float | None = option(
        None, "Minutes after which to save and leave with exit code 3 (0: after one step)."
    )
    bands: dict[str, Any] | str | None = option(
        None, "Changes to the watchdogs' bands by metric, as JSON (false: no watchdogs)."
    )
    preflight: bool = option(False, "Measure hints before training and refuse the writers that do not help.")
    preflight_retries: int = option(4, "Retries of each failed turn and arm in the preflight (0: none).")
    preflight_max_loss: float = option(0.0, "Keep writers whose margin is negative by fewer nats than this.")
    preflight_only: bool = option(False, "Print the table of --preflight and leave.")
    usd_per_hour: float | None = option(None, "Price of the machine in USD per hour, for the card.")


_KINDS = (SourceOptions, EvalOptions, PublishingOptions, LaunchOptions, ComposerConfig, ModelConfig)


@dataclass(frozen=True)
class TrainingOptions:
    """The parsed options by subject, and those that differ from their defaults as they were given."""

    sources: SourceOptions
    evals: EvalOptions
    publishing: PublishingOptions
    launch: LaunchOptions
    config: ComposerConfig
    model: ModelConfig
    given: dict[str, Any]

    @property
    def output(self) -> Path:
        """The folder that a run lives in."""
        return Path(str(self.config.output_dir))


def parse_options(words: Sequence[str]) -> TrainingOptions:
    """Read a command line and the file that `--config` names; the command line wins."""
    if "--help" in words or "-h" in words:
        TrlParser(list(_KINDS)).parse_args(["--help"])  # type: ignore[arg-type]
    given, misread = read_words(words)
    refuse(misread)
    try:
        sources, evals, publishing, launch, config, model = (_made(kind, given) for kind in _KINDS)
    except ValueError as error:
        raise exits.UsageError(f"The options do not fit together: {error}") from error
    changed = {name: _plain(value) for name, value in given.items() if value != known_options()[name].default}
    return TrainingOptions(sources, evals, publishing, launch, config, model, changed)


def _made(kind: Any, given: Mapping[str, Any]) -> Any:
    return kind(**{field.name: given[field.name] for field in dataclasses.fields(kind) if field.name in given})


# These set the places of a run and how it is launched; they do not define it.
_OF_THE_LAUNCH = (
    "to", "repo", "rollouts_repo", "checkpoints_repo", "push_every", "public", "resume", "max_minutes", "usd_per_hour",
    "output_dir", "local_rank", "run_name", "preflight_only",
)  # fmt: skip


def settings_of(given: Mapping[str, Any], pins: Mapping[str, str]) -> dict[str, Any]:
    """Return the options that define a run: every input at its commit, and no path of this machine."""
    values = {name: value for name, value in given.items() if name not in _OF_THE_LAUNCH} | dict(pins)
    values = {name: Path(value).name if _is_path(value) else value for name, value in values.items()}
    named = {name: shown_name(values[name]) for name in ("environment", "eval_tasks") if values.get(name)}
    return values | named


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and (value.startswith(("/", "~", "./", "../")) or value.endswith(".jsonl"))


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int, float, bool, type(None))) and type(value).__module__ == "builtins":
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return str(getattr(value, "value", value))


def keep_metrics_private(config: ComposerConfig, *, public: bool) -> None:
    """Keep trackio from making a public Space of a run's metrics, which is its default."""
    if config.trackio_static_space_id is None:
        config.trackio_static_space_id = False
    # TRACKIO_SPACE_ID in the environment also makes a Space.
    if config.hub_private_repo is None and not public:
        config.hub_private_repo = True
