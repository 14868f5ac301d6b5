"""What a run is told: the options beside TRL's own, read from the command line and a YAML file, and objects by name."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from trl import ModelConfig, TrlParser

from composer_hub import exits
from composer_hub.train.trainer import ComposerConfig

ENVIRONMENTS = {"desk": ("composer_hub.train.world:Desk", "composer_hub.train.world:tasks")}
"""Name -> the environment and the function that makes its tasks."""


class RunError(exits.ComposerError, ValueError):
    """A run that cannot start as asked."""


class RewardError(exits.ComposerError, ValueError):
    """A reward function that does not work."""


class EnvironmentFailed(exits.ComposerError, RuntimeError):
    """An environment that does not start an episode."""


@dataclass
class RunOptions:
    """Where a run's inputs come from and where its results go."""

    environment: str | None = field(
        default=None, metadata={"help": "desk (the tiny world), or pkg.module:Class with tools as public methods."}
    )
    tasks: str | None = field(
        default=None,
        metadata={"help": "Task rows: owner/name@revision, a .jsonl file, or pkg.module:function(count, seed=…)."},
    )
    num_tasks: int = field(default=256, metadata={"help": "How many tasks a task function is asked for."})
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
        raise exits.UsageError(f"The options do not fit together: {error}") from error
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
    return {name: Path(value).name if _is_path(value) else value for name, value in values.items()}


def pinned(given: dict[str, Any], pins: dict[str, str]) -> str:
    """Return a config file that starts the same run again."""
    return yaml.safe_dump(shown(given, pins), sort_keys=True, allow_unicode=True)


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and (value.startswith(("/", "~", "./", "../")) or value.endswith(".jsonl"))


def load_object(name: str, what: str) -> Any:
    """Import `pkg.module:attribute`."""
    module, _, attribute = name.partition(":")
    if not attribute:
        raise exits.UsageError(f"{name!r} names no {what}: write it as pkg.module:name.")
    # A run's own environments and rewards often lie beside its script.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise exits.UsageError(
            f"The {what} {name} cannot be imported: {error}. Is its folder on PYTHONPATH?"
        ) from error


def environment_of(name: str | None) -> Any:
    """Return the environment class that a name means."""
    if name is None:
        return None
    if name not in ENVIRONMENTS and ":" not in name:
        raise exits.UsageError(f"There is no environment {name!r}: {', '.join(ENVIRONMENTS)}, or pkg.module:Class.")
    found = load_object(ENVIRONMENTS[name][0] if name in ENVIRONMENTS else name, "environment")
    if not callable(found):
        raise exits.UsageError(f"The environment {name} is {found!r}: name a class, or a function that returns one.")
    return checked_environment(found, name) if isinstance(found, type) else found


def checked_environment(cls: type, name: str) -> type:
    """Return the same environment, which says by name when an episode cannot be started."""

    def reset(self: Any, **row: Any) -> Any:
        try:
            return cls.reset(self, **row)  # type: ignore[attr-defined]
        except Exception as error:
            raise EnvironmentFailed(
                f"The environment {name} raised {type(error).__name__} in reset: {error}. Mend it and go on with "
                "--resume true."
            ) from error

    kept = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), kept | ({"reset": reset} if hasattr(cls, "reset") else {}))


def rewards_of(names: Sequence[str] | None) -> list[Callable[..., Any]]:
    """Return the reward functions; one that raises or gives NaN ends the run with its name."""
    return [checked_reward(load_object(name, "reward function"), name) for name in names or ()]


def checked_reward(reward: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a reward function so that what it does wrong is said, not averaged away."""
    if not callable(reward):
        raise exits.UsageError(f"The reward function {name} is {reward!r}: name a function.")

    def failed(error: Exception) -> RewardError:
        return RewardError(
            f"The reward function {name} raised {type(error).__name__}: {error}. Mend it and go on with --resume true."
        )

    def checked_values(values: Any, given: dict[str, Any]) -> list[float | None]:
        try:
            numbers = [None if value is None else float(value) for value in values]
        except (TypeError, ValueError) as error:
            raise RewardError(
                f"The reward function {name} returned {str(values)[:80]}: return a number or None for each completion."
            ) from error
        if any(number is not None and math.isnan(number) for number in numbers):
            raise RewardError(
                f"The reward function {name} returned NaN. Return None where it does not apply, a number elsewhere."
            )
        if len(numbers) != len(given.get("completions", numbers)):
            raise RewardError(
                f"The reward function {name} returned {len(numbers)} rewards for {len(given['completions'])} "
                "completions: return one for each."
            )
        return numbers

    @functools.wraps(reward)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            values = reward(*args, **kwargs)
        except Exception as error:
            raise failed(error) from error
        return checked_values(values, kwargs)

    @functools.wraps(reward)
    async def checked_later(*args: Any, **kwargs: Any) -> Any:
        try:
            values = await reward(*args, **kwargs)
        except Exception as error:
            raise failed(error) from error
        return checked_values(values, kwargs)

    # TRL looks at the function itself to see whether it must be awaited.
    return checked_later if inspect.iscoroutinefunction(reward) else checked


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
