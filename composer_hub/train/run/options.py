"""What a run is told: the options beside TRL's own, read from the command line and a YAML file, and objects by name."""

from __future__ import annotations

import dataclasses
import difflib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from trl import ModelConfig, TrlParser

from composer_hub import exits
from composer_hub.environments.open import WorldOptions, shown_name
from composer_hub.train.evals import EvalPlan
from composer_hub.train.trainer import ComposerConfig


class RunError(exits.ComposerError, ValueError):
    """A run that cannot start as asked."""


@dataclass
class RunOptions:
    """Where a run's inputs come from and where its results go."""

    environment: str | None = field(
        default=None,
        metadata={
            "help": "desk (the tiny world), pkg.module:Class with tools as public methods, openenv:URL, openenv:image, "
            "harbor:folder or harbor:owner/name@revision."
        },
    )
    env_timeout_s: float = field(
        default=300.0,
        metadata={"help": "A call of an environment that takes longer loses its episode; 0: wait for ever."},
    )
    openenv_reward: str = field(
        default="last", metadata={"help": "An OpenEnv episode's reward: the last one a step gave, or their sum."}
    )
    harbor_agent: str = field(
        default="bash", metadata={"help": "Tools in a Harbor task: bash, or pkg.module:Class (a HarborEnv)."}
    )
    harbor_environment: str = field(
        default="docker", metadata={"help": "Where Harbor runs its tasks: docker, podman, modal, …"}
    )
    tasks: str | None = field(
        default=None,
        metadata={"help": "Task rows: owner/name@revision, a .jsonl file, or pkg.module:function(count, seed=…)."},
    )
    num_tasks: int = field(default=256, metadata={"help": "How many tasks a task function is asked for."})
    tasks_split: str = field(default="train", metadata={"help": "The split of a task dataset to train on, or all."})
    eval_tasks: str | None = field(
        default=None, metadata={"help": "Held-out tasks, named like tasks: pass@1 is measured on them."}
    )
    eval_split: str = field(default="test", metadata={"help": "The split of a dataset of held-out tasks, or all."})
    num_eval_tasks: int = field(default=64, metadata={"help": "At most so many held-out tasks."})
    num_eval_samples: int = field(default=4, metadata={"help": "Attempts at each held-out task."})
    eval_every: int = field(
        default=0, metadata={"help": "Measure after every n-th step, too; always before the first and after the last."}
    )
    eval_seed: int = field(default=1001, metadata={"help": "Seed of the attempts, and of a function of tasks."})
    pass_reward: float = field(default=1.0, metadata={"help": "An attempt passes with this reward or more."})
    rewards: list[str] | None = field(default=None, metadata={"help": "Reward functions, each pkg.module:function."})
    traces: str | None = field(
        default=None, metadata={"help": "The student's own traces, for hints without rollouts: repo@revision."}
    )
    trace_batch_size: int = field(default=2, metadata={"help": "Hinted steps of traces a micro-batch."})
    other_families: str = field(
        default="refuse", metadata={"help": "Traces of another model than the student: refuse, leave_out or take."}
    )
    pairs: str | None = field(default=None, metadata={"help": "Preference pairs of the replay channel: repo@revision."})
    pairs_split: str = field(default="train", metadata={"help": "The split of the pairs to train on, or all."})
    pair_batch_size: int = field(default=2, metadata={"help": "Pairs a micro-batch."})
    max_pair_tokens: int = field(default=4096, metadata={"help": "Longer pairs are left out, and counted."})
    to: str = field(
        default="local", metadata={"help": "Where versions live: local (the embedded Hub), hub, or a folder."}
    )
    repo: str | None = field(default=None, metadata={"help": "Publish the model to this repository at the end."})
    rollouts_repo: str | None = field(
        default=None, metadata={"help": "Publish every rollout to this dataset repository at the end."}
    )
    checkpoints_repo: str | None = field(
        default=None, metadata={"help": "Publish checkpoints to this model repository during the run, each with a tag."}
    )
    push_every: int = field(
        default=0,
        metadata={"help": "Publish at every n-th save what the two repositories above name; 0 only at the end."},
    )
    public: bool = field(default=False, metadata={"help": "Everyone may read what is published."})
    license: str = field(default="other", metadata={"help": "Licence of the model and its rollouts."})
    resume: bool = field(default=False, metadata={"help": "Go on from the last complete checkpoint in output_dir."})
    max_minutes: float | None = field(
        default=None, metadata={"help": "Save and leave with exit code 3 after this many minutes."}
    )
    watchdogs: bool = field(
        default=True,
        metadata={"help": "Watch metrics: outside its band one warns, weakens a channel or ends the run."},
    )
    bands: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Metric -> what differs from its usual band, or false for none."}
    )
    preflight: bool = field(
        default=False,
        metadata={"help": "Before training, measure what hints do, and refuse the writers that do not lift."},
    )
    preflight_only: bool = field(default=False, metadata={"help": "Print that table and leave."})
    preflight_batches: int = field(default=1, metadata={"help": "Generation batches to measure before training."})
    usd_per_hour: float | None = field(default=None, metadata={"help": "Price of the machine, for the card."})
    keep_rollouts: bool = field(default=True, metadata={"help": "Write every rollout to output_dir/rollouts."})

    def world(self) -> WorldOptions:
        """Return how environments are reached."""
        limit = self.env_timeout_s or None
        return WorldOptions(limit, self.harbor_agent, self.harbor_environment, self.openenv_reward)

    def evals(self) -> EvalPlan | None:
        """Return what is measured on held-out tasks, and when."""
        if not self.eval_tasks:
            return None
        return EvalPlan(self.num_eval_samples, self.eval_every, self.eval_seed, self.pass_reward)


@dataclass(frozen=True)
class Told:
    """The parsed options, and those that differ from their defaults as they were given."""

    run: RunOptions
    config: ComposerConfig
    model: ModelConfig
    given: dict[str, Any]


def parse(argv: Sequence[str] | None = None) -> Told:
    """Read the command line and the file that `--config` names; what stands on the line wins."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = TrlParser([RunOptions, ComposerConfig, ModelConfig])  # type: ignore[list-item]
    # Parsed like the words, so that a default that is written otherwise than it is parsed does not count as given.
    defaults = vars(parser.parse_known_args([])[0])
    check_config(words)
    try:
        run, config, model = parser.parse_args_and_config(list(words))
    except ValueError as error:
        unknown = re.findall(r"'(--[^']+)'", str(error)) if "not used by" in str(error) else []
        if unknown:
            raise exits.UsageError(f"There is no option {unknown[0]}{_nearest(unknown[0].lstrip('-'))}.") from error
        on_cpu = " On a CPU add --use_cpu true --bf16 false." if "use_cpu" in str(error) else ""
        raise exits.UsageError(f"The options do not fit together: {error}{on_cpu}") from error
    if "--config" in words:
        at = words.index("--config")
        del words[at : at + 2]
    values = vars(parser.parse_known_args(words)[0])
    given = {name: _plain(value) for name, value in values.items() if value != defaults.get(name)}
    return Told(run, config, model, given)


def check_config(words: Sequence[str]) -> None:
    """Say what is wrong with the file that `--config` names, before it is read as options."""
    if "--config" not in words:
        return
    path = Path((*words, "")[words.index("--config") + 1])
    if not path.is_file():
        raise exits.UsageError(f"There is no config file {path}. See configs/ for presets.")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise exits.UsageError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(values, dict):
        raise exits.UsageError(f"{path} holds no options: write one a line, like max_steps: 20.")
    for name in values:
        if name not in option_names() | {"env"}:
            raise exits.UsageError(f"{path}: there is no option {name!r}{_nearest(str(name))}.")


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, option_names(), 1)
    return f"; did you mean {near[0]}? --help lists all" if near else "; --help lists all"


# Where a run lives and how it is launched: not what it is.
_OF_THE_LAUNCH = (
    "to", "repo", "rollouts_repo", "checkpoints_repo", "push_every", "public", "resume", "max_minutes", "usd_per_hour",
    "output_dir", "local_rank", "run_name", "preflight_only",
)  # fmt: skip


def shown(given: dict[str, Any], pins: dict[str, str]) -> dict[str, Any]:
    """Return the options that make a run what it is, every input at its commit and no path of this machine."""
    values = {name: value for name, value in given.items() if name not in _OF_THE_LAUNCH} | pins
    values = {name: Path(value).name if _is_path(value) else value for name, value in values.items()}
    named = {name: shown_name(values[name]) for name in ("environment", "eval_tasks") if values.get(name)}
    return values | named


def pinned(given: dict[str, Any], pins: dict[str, str]) -> str:
    """Return a config file that starts the same run again."""
    return yaml.safe_dump(shown(given, pins), sort_keys=True, allow_unicode=True)


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


def option_names() -> set[str]:
    """Return the names a config file may hold."""
    return {f.name for cls in (RunOptions, ComposerConfig, ModelConfig) for f in dataclasses.fields(cls)}
