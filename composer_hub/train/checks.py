"""Find every mistake in the options of a run before torch is imported, and report all of them at once.

In: the words of a command line, or the values of options. Out: one sentence per mistake. The options of TRL and
transformers are read from the source of their classes, because importing those takes seconds. Ours are read
in the same way: an annotation defines the kind of a value and its choices.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_hub import exits, extras
from composer_hub.environments import check_environment, load_object, rewards_of
from composer_hub.hub.refs import check_repo
from composer_hub.train.apart import problems as apart
from composer_hub.train.bands import bands_of
from composer_hub.train.failure import TrainerError
from composer_hub.train.presets import read_config, with_config_files

if TYPE_CHECKING:
    from torch import nn

    from composer_hub.train.config import ComposerConfig  # imports TRL, which other trainers do not have


# ------------------------------------------------------------------------------------------- options, as declared

_SOURCES = (  # package, file, classes; a later class overrides an earlier one, as a subclass does
    ("transformers", "trainer_utils.py", ()),
    ("transformers", "training_args.py", ("TrainingArguments",)),
    ("trl", "trainer/base_config.py", ("_BaseConfig",)),
    ("trl", "trainer/grpo_config.py", ("GRPOConfig",)),
    ("trl", "trainer/model_config.py", ("ModelConfig",)),
    ("composer_hub", "train/config.py", ("ComposerConfig",)),
    ("composer_hub", "train/run/options.py", ("SourceOptions", "EvalOptions", "PublishingOptions", "LaunchOptions")),
)
_RANGES = {
    "alpha_sdpo beta_replay replay_nll_weight own_pairs learning_rate warmup_steps": (0, math.inf),
    "measure_every env_timeout_s eval_every preflight_retries sync_every outer_lr round_minutes": (0, math.inf),
    "max_minutes usd_per_hour push_every": (0, math.inf),
    "hint_divergence max_left_out outer_momentum": (0, 1),
    "replay_strength temperature logging_steps save_steps": (1e-6, math.inf),
    "max_hint_sites per_device_train_batch_size gradient_accumulation_steps num_iterations": (1, math.inf),
    "num_eval_tasks num_eval_samples pair_batch_size trace_batch_size max_completion_length": (1, math.inf),
    "max_pair_tokens num_tasks workers rounds": (1, math.inf),
    "num_generations save_total_limit": (2, math.inf),
}
_KINDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "text": "a text"}
_MOST_LISTED = 12  # choices; of more, only the nearest one is named
_BOOLEANS = dict.fromkeys("yes true t y 1".split(), True) | dict.fromkeys("no false f n 0".split(), False)


@dataclass(frozen=True, slots=True)
class Option:
    """An option as its class declares it."""

    kind: str  # bool, int, float or text
    default: Any
    takes_list: bool = False
    choices: tuple[str, ...] = ()

    @classmethod
    def of(cls, line: ast.AnnAssign, enums: Mapping[str, tuple[str, ...]]) -> Option:
        words = {node.id for node in ast.walk(line.annotation) if isinstance(node, ast.Name)}
        kinds = [kind for kind in ("float", "int", "bool") if kind in words]
        is_text = words & {"str", "dict", "Literal", "Any"}
        named = {}
        if isinstance(line.value, ast.Call):
            named = {keyword.arg: keyword.value for keyword in line.value.keywords}
        choices: Any = _literal(named.get("metadata"), "choices") or ()
        for node in _alternatives(line.annotation):
            if isinstance(node, ast.Name) and node.id in enums:
                choices = enums[node.id]
            elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal" and "str" not in words:
                choices = ast.literal_eval(node.slice)
        default: Any = line.value
        if isinstance(default, ast.Call):
            default = named.get("default") or (default.args[0] if default.args else None)
        kind = kinds[0] if kinds and not is_text else "text"
        takes_list = "list" in words and not any(ast.unparse(node) == "str" for node in _alternatives(line.annotation))
        return cls(kind, _literal(default), takes_list, tuple(map(str, choices)))

    def read(self, value: Any) -> Any:
        """Return a value of a command line or a file as this option's kind, or raise ValueError."""
        if isinstance(value, list):
            return [self.read(one) for one in value]
        if value == "":
            raise ValueError(value)
        if value is None or self.kind == "text":
            return value
        if self.kind == "bool":
            if not isinstance(value, bool) and str(value).lower() not in _BOOLEANS:
                raise ValueError(value)
            return value if isinstance(value, bool) else _BOOLEANS[str(value).lower()]
        number = math.nan if isinstance(value, bool) else float(value)
        if not math.isfinite(number) or (self.kind == "int" and number != int(number)):
            raise ValueError(value)
        return value if isinstance(value, (int, float)) else int(value) if self.kind == "int" else number


@functools.cache
def known_options() -> Mapping[str, Option]:
    """Return every option of a run, read from the source of its class."""
    found: dict[str, Option] = {}
    enums: dict[str, tuple[str, ...]] = {}
    for package, file, names in _SOURCES:
        extras.need("Training", "train", package)
        spec = importlib.util.find_spec(package)
        assert spec is not None
        path = Path(next(iter(spec.submodule_search_locations or ()))) / file
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef):
                continue
            if "ExplicitEnum" in [ast.unparse(base) for base in node.bases]:
                values = (_literal(line.value) for line in node.body if isinstance(line, ast.Assign))
                enums[node.name] = tuple(value for value in values if isinstance(value, str))
            for line in node.body if node.name in names else ():
                if isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line.annotation):
                    found[ast.unparse(line.target)] = Option.of(line, enums)
    return found


def _alternatives(annotation: ast.expr) -> Iterator[ast.expr]:
    """Yield the types of a union."""
    if isinstance(annotation, ast.BinOp):
        yield from _alternatives(annotation.left)
        yield from _alternatives(annotation.right)
    else:
        yield annotation


def _literal(value: ast.expr | None, key: str | None = None) -> Any:
    """Return an expression, or one value of a mapping, if it is a literal; anything else counts as not set."""
    if key is not None:
        pairs = zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ()
        value = next((one for name, one in pairs if name is not None and ast.unparse(name) == repr(key)), None)
    try:
        return None if value is None else ast.literal_eval(value)
    except ValueError:
        return None


# -------------------------------------------------------------------------------------------------- command lines


def check_words(words: Sequence[str], num_processes: int | None = None) -> None:
    """Refuse a command line with all its mistakes in one message."""
    if "--help" not in words and "-h" not in words:
        given, misread = read_words(words)
        refuse([*misread, *problems(all_values(given), num_processes)])


def check_spelling(words: Sequence[str]) -> None:
    """Refuse names and values that no machine accepts, without checks that depend on the machine."""
    given, misread = read_words(words)
    refuse([*misread, *wrong_values(given)])


def all_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all options: those that are given, and the defaults that their classes declare."""
    values = {name: option.default for name, option in known_options().items()} | dict(given)
    # A config names the kind of the environment; its tasks come from the command line.
    if values["environment"] == "coding" and values["tasks"]:
        values |= {"environment": f"coding:{values['tasks']}", "tasks": None}
    return values


def refuse(mistakes: Iterable[str]) -> None:
    """Raise all mistakes as one error, if there are any."""
    if found := list(dict.fromkeys(mistakes)):
        one = "" if len(found) == 1 else f"{len(found)} options cannot work:\n- "
        raise exits.UsageError(one + "\n- ".join(found))


def read_words(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the options that a command line and its config file give, and a sentence for each that cannot be read."""
    options, given, misread = known_options(), {}, []
    words = with_config_files(words)  # the command line wins
    for place, name, value in (*_of_file(words), *_of_words(words, options)):
        option = options.get(name.removeprefix("--"))
        if option is None:
            misread.append(f"{place or ''}{'there' if place else 'There'} is no option {name}{nearest(name, options)}.")
            continue
        try:
            given[name] = option.read(value)
        except (ValueError, TypeError):
            misread.append(f"{place}{name} is {_KINDS[option.kind]}, not {value!r}.")
    return given, misread


def _of_file(words: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    if "--config" in words:
        path = Path(words[words.index("--config") + 1])
        for name, value in read_config(path).items():
            yield f"{path}: ", str(name), value


def _of_words(words: Sequence[str], options: Mapping[str, Option]) -> Iterator[tuple[str, str, Any]]:
    """Yield the options of a command line as argparse reads them: --name value, --name=value, --no_name."""
    starts = [number for number, word in enumerate(words) if word.startswith("--")]
    strays = list(words[: starts[0] if starts else None])
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        shown, has_value, value = words[start][2:].partition("=")
        name, given = shown.replace("-", "_"), [value] * bool(has_value) + list(words[start + 1 : end])
        option, bare = options.get(name), options.get(name.removeprefix("no_"))
        if option is not None and option.takes_list:
            yield "", name, given
            continue
        strays += given[1:]
        if option is None and bare is not None and bare.kind == "bool":
            yield "", name.removeprefix("no_"), False
        elif option is None and name != "config":
            yield "", f"--{shown}", None
        elif option is not None:
            yield "", name, given[0] if given else option.kind == "bool" or ""
    yield from (("", stray, None) for stray in strays)


def nearest(name: str, options: Iterable[str]) -> str:
    """Return the end of a sentence that names the most similar option."""
    near = difflib.get_close_matches(name.lstrip("-"), options, 1)
    return f"; did you mean {near[0]}? --help lists all" if near else "; --help lists all"


# ------------------------------------------------------------------------------------------- values that do not fit

_PACKAGES = {
    "use_vllm": "vllm",
    "load_in_4bit": "bitsandbytes",
    "load_in_8bit": "bitsandbytes",
    "use_liger_kernel": "liger_kernel",
    "use_peft": "peft",
    "deepspeed": "deepspeed",
}
_TRACKERS = ("wandb", "trackio", "mlflow", "tensorboard", "comet_ml", "swanlab")
_NOT_IN_A_RUN = {  # options of transformers that a run does otherwise
    "push_to_hub": "push_to_hub makes many commits without a tag. Set it to false and name --repo instead.",
    "save_only_model": "save_only_model writes checkpoints that cannot be resumed. Set it to false.",
    "enable_jit_checkpoint": "SIGTERM already saves a checkpoint. Set enable_jit_checkpoint to false.",
    "load_best_model_at_end": "load_best_model_at_end needs an eval loss. Set it to false; the best one is kept.",
    "auto_find_batch_size": "auto_find_batch_size would break groups of rollouts. Set it to false and lower "
    "per_device_train_batch_size.",
}
# Options that would silently do nothing without rollouts.
_NEED_ROLLOUTS = ("tasks", "eval_tasks", "rollouts_repo", "beta", "use_vllm")


def wrong_values(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each value that is none of its option's choices, or too small or too large."""
    for name, option in known_options().items():
        value = getattr(values.get(name), "value", values.get(name))  # of an enumeration
        if not option.choices or value is None or str(value) in option.choices:
            continue
        if len(option.choices) <= _MOST_LISTED:
            yield f"{name} is one of {', '.join(option.choices)}, not {value!r}."
        else:
            others = (other for other, one in known_options().items() if str(value) in one.choices)
            meant = next((f"; did you mean --{other} {value}?" for other in others), "")
            meant = meant or f"{nearest(str(value), option.choices)}."
            yield f"{name} {value!r} is none of its {len(option.choices)} choices{meant}"
    for names, (low, high) in _RANGES.items():
        for name in names.split():
            value = values.get(name)
            if isinstance(value, (int, float)) and not low <= value <= high:
                allowed = f"{low:g} or more" if high == math.inf else f"between {low:g} and {high:g}"
                allowed = "more than 0" if low == 1e-6 else allowed
                yield f"{name} is {allowed}, not {value:g}."


def problems(values: Mapping[str, Any], num_processes: int | None = None) -> Iterator[str]:
    """Yield a sentence for each option that cannot work, alone or with the others."""
    if not values["model_name_or_path"]:
        yield "There is no model. Name --model_name_or_path owner/name@revision, a folder, or small."
    if (output := Path(str(values["output_dir"]))).is_file():
        yield f"{output} is a file. Name a folder for output_dir."
    yield from wrong_values(values)
    yield from _machine(values)
    yield from (sentence for name, sentence in _NOT_IN_A_RUN.items() if values[name])
    yield from _publishing(values)
    yield from _channels(values)
    yield from _batches(values, num_processes)
    if not values["environment"] and not values["rewards"]:
        yield from _offline(values)
    for name in ("eval_strategy", "lr_scheduler_type"):
        value = str(getattr(values[name], "value", values[name]))
        if name == "eval_strategy" and value != "no":
            yield "eval_strategy has no dataset in a run. Name --eval_tasks, with --eval_every for its rhythm."
        if value in ("reduce_lr_on_plateau", "greedy"):
            yield f"{name} {value} follows an eval loss, which a run does not have. Choose another."
    for option in ("tasks", "eval_tasks"):
        if str(name := values[option] or "").endswith(".jsonl") and not Path(name).is_file():
            yield f"There is no file of tasks {name}. Check the path, or name a version: owner/name@revision."
    yield from _named_objects(values)
    yield from apart.problems(values)
    yield from (
        f"{name} is {value}, which is not JSON."
        for name, value in values.items()
        if name != "bands" and isinstance(value, str) and value.startswith("{") and not _is_json(value)
    )
    yield from missing_packages(values)


def _named_objects(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each import that fails, before a model is fetched."""
    yield from _refusal(check_environment, values["environment"], values["harbor_environment"])
    if (values["eval_tasks"] or "").startswith("harbor:"):
        yield from _refusal(check_environment, values["eval_tasks"], values["harbor_environment"])
    yield from _refusal(rewards_of, values["rewards"])
    for term in values["terms"] or ():
        yield from _refusal(load_function, term, "term")
    for writer in values["hint_writers"] or ():
        yield from _refusal(load_function, writer, "hint writer")
    if values["error_finder"]:
        yield from _refusal(load_function, values["error_finder"], "error finder")
    yield from _refusal(bands_of, values["bands"])


def load_function(name: str, noun: str) -> Callable[..., Any]:
    """Import a function of the user's."""
    function = load_object(name, noun)
    if not callable(function):
        raise TrainerError(f"The {noun} {name} is {function!r}. Name a function.")
    return function


def _refusal(check: Callable[..., Any], *values: Any) -> Iterator[str]:
    try:
        check(*values)
    except exits.ComposerError as error:
        yield str(error)


def _is_json(text: str) -> bool:
    try:
        return bool(json.loads(text)) or True
    except ValueError:
        return False


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def missing_packages(values: Mapping[str, Any], is_installed: Callable[[str], bool] = _is_installed) -> Iterator[str]:
    """Yield a sentence for each package that an option needs and that is not installed."""
    needed = {option: package for option, package in _PACKAGES.items() if values[option]}
    if "bnb" in str(values["optim"]) or "8bit" in str(values["optim"]):
        needed["optim"] = "bitsandbytes"
    trackers = values["report_to"] or ()
    for tracker in [trackers] if isinstance(trackers, str) else trackers:
        if tracker in _TRACKERS:
            needed[f"report_to {tracker}"] = tracker
    for option, package in needed.items():
        if not is_installed(package):
            install = f"pip install {package.replace('_', '-')}"
            yield f"{option} needs {package}, which is not installed: {install}, or leave {option} out."


def _machine(values: Mapping[str, Any]) -> Iterator[str]:
    if not values["use_cpu"] and values["bf16"] is not False and not values["fp16"] and has_no_gpu():
        yield "No GPU was found, and bf16 needs one. On a CPU add --use_cpu true --bf16 false."
    if values["fp16"] and values["bf16"]:
        yield "fp16 and bf16 are both true. Choose one."


def has_no_gpu() -> bool:
    """Return whether this machine surely has no accelerator; if in doubt, torch decides."""
    if metadata.version("torch").endswith("+cpu"):
        return True
    files = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dri", "/dev/dxg", "/dev/davinci0")
    return sys.platform == "linux" and not any(map(os.path.exists, files))


def _batches(values: Mapping[str, Any], num_processes: int | None) -> Iterator[str]:
    if values["generation_batch_size"] and values["steps_per_generation"]:
        yield "generation_batch_size and steps_per_generation say the same. Set one of them."
        return
    # A launcher sets the number of processes; on a machine with GPUs accelerate decides.
    known = num_processes or int(os.environ.get("WORLD_SIZE", 0)) or (1 if has_no_gpu() else 0)
    size, group = values["per_device_train_batch_size"], values["num_generations"] or 1
    steps = values["steps_per_generation"] or values["gradient_accumulation_steps"]
    total = values["generation_batch_size"] or size * known * steps
    if total % group:
        yield (
            f"A generation batch of {total:,} rollouts is not a multiple of num_generations ({group:,}). Change "
            "per_device_train_batch_size, steps_per_generation or num_generations."
        )


def _publishing(values: Mapping[str, Any]) -> Iterator[str]:
    for option in ("repo", "rollouts_repo", "checkpoints_repo"):
        if values[option]:
            yield from _refusal(check_repo, values[option])
    if values["push_every"] and not (values["checkpoints_repo"] or values["rollouts_repo"]):
        yield "push_every needs a repository. Name --checkpoints_repo or --rollouts_repo, or both."
    if values["checkpoints_repo"] and not values["push_every"]:
        yield "checkpoints_repo is published to during the run. Set --push_every to the saves between two."
    if values["checkpoints_repo"] and values["checkpoints_repo"] == values["repo"]:
        yield "checkpoints_repo and repo are the same. Name another repository for checkpoints."


def _channels(values: Mapping[str, Any]) -> Iterator[str]:
    has_hints, source = values["alpha_sdpo"], values["hint_source"]
    if values["beta_replay"] and not (values["pairs"] or values["own_pairs"]):
        yield "beta_replay is set without pairs. Name --pairs owner/name@revision, or set it to 0."
    if values["own_pairs"]:
        yield from _own_pairs(values)
    if has_hints and values["traces"] and source == "rollouts":
        yield "hint_source rollouts does not read traces. Set --hint_source to traces or both."
    if has_hints and not values["traces"] and source in ("traces", "both"):
        yield f"hint_source {source} needs traces. Name --traces owner/name@revision, or set it to rollouts."
    if (values["preflight"] or values["preflight_only"]) and not has_hints:
        yield "preflight measures hints, but alpha_sdpo is 0. Set it, or leave preflight out."


def _own_pairs(values: Mapping[str, Any]) -> Iterator[str]:
    if values["pairs"]:
        yield "own_pairs and pairs are both set. Choose one of them."
    if not values["beta_replay"]:
        yield "own_pairs makes pairs, but beta_replay is 0. Set it, or leave own_pairs out."
    if not values["environment"]:
        yield "own_pairs plays tasks in an environment. Name one with --environment, or leave own_pairs out."


def _offline(values: Mapping[str, Any]) -> Iterator[str]:
    if not (values["alpha_sdpo"] or values["beta_replay"] or values["terms"]):
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


# ----------------------------------------------------------------------- a trainer's arguments, its model and shards


def check_options(
    args: ComposerConfig,
    *,
    has_pairs: bool,
    own_pairs: int = 0,
    has_tools: bool,
    has_traces: bool,
    has_terms: bool,
    sharding: str,
) -> None:
    """Refuse options that do not fit together or do not fit the other arguments."""
    if found := list(wrong_values(vars(args))):
        raise TrainerError(" ".join(found))
    if own_pairs and not has_tools:
        raise TrainerError("own_pairs is set but the environment has no tools to fail with. Leave own_pairs out.")
    if args.beta_replay and not (has_pairs or own_pairs):
        raise TrainerError("beta_replay is set but there are no pairs: pass pairs=, or set beta_replay to 0.")
    if args.alpha_sdpo and args.hint_source != "rollouts" and not has_traces:
        raise TrainerError(
            f"hint_source is {args.hint_source} but there are no traces: pass traces=, or set it to rollouts."
        )
    if args.alpha_sdpo and args.hint_source != "traces" and not has_tools:
        raise TrainerError(
            "alpha_sdpo is set but nothing can go wrong: pass tools= or environment_factory=, or set it to 0."
        )
    if has_terms and sharding:
        _check_sharding(args, sharding)


def _check_sharding(args: ComposerConfig, sharding: str) -> None:
    from composer_hub.train.sharded import SUPPORTED, ZERO3

    if sharding not in SUPPORTED:
        raise TrainerError(
            f"The added terms read weights outside the wrapped forward, which {sharding} does not allow. Use FSDP "
            "version 2, ZeRO or DDP, or set the weights of the terms to 0."
        )
    checkpointing: Any = args.gradient_checkpointing_kwargs or {}
    if args.gradient_checkpointing and checkpointing.get("use_reentrant"):
        raise TrainerError(
            f"Reentrant checkpointing does not work with the added terms and {sharding}. Set "
            'gradient_checkpointing_kwargs to {"use_reentrant": false}; TRL makes it reentrant for LoRA with ZeRO '
            "stage 3, so use FSDP2 there, or set gradient_checkpointing to false."
        )
    if sharding == ZERO3 and args.measure_every:
        raise TrainerError(
            "Uplift and gradient shares cannot be measured with ZeRO stage 3. Set measure_every to 0, or use FSDP2."
        )


def check_shards(network: nn.Module, *, is_fsdp: bool, num_processes: int) -> None:
    """Refuse a run with FSDP2 whose parameters are whole; accelerate silently ignores FSDP on a CPU."""
    from composer_hub.train.sharded import has_shards

    asked = is_fsdp or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if asked and num_processes > 1 and not has_shards(network):
        raise TrainerError(
            "FSDP is on, but the parameters are not sharded: accelerate ignores FSDP on a CPU. Use GPUs, or launch "
            "with --multi_gpu."
        )


def check_head(network: nn.Module, ids: Sequence[int]) -> None:
    """Refuse a model whose logits are not its output layer times the backbone's hidden states."""
    import torch

    from composer_hub.train.teacher import head_of, keeping_hidden, without_dropout

    row = torch.tensor([ids], device=next(network.parameters()).device)
    with torch.no_grad(), without_dropout(network), keeping_hidden(network) as kept:
        logits = network(input_ids=row, use_cache=False).logits
        ours = head_of(network).logits(kept[-1])
    if not torch.allclose(logits.float(), ours.float(), rtol=1e-2, atol=1e-2):
        raise TrainerError(
            f"The logits of {type(network).__name__} are not its output layer times the hidden states, so the "
            "added terms would learn from other numbers. Set their weights to 0 for this model."
        )
