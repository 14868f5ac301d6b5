"""What a run learns from recorded data: whether it needs an environment at all, and the loader of hinted steps.

A run without environment and rewards is offline: the hint channel reads published traces, the replay channel pairs, and
nothing is generated.
"""

from __future__ import annotations

from typing import Any, cast

from accelerate import PartialState

from composer_hub.records import Trace
from composer_hub.train.run.inputs import Inputs
from composer_hub.train.run.options import RunError, Told
from composer_hub.train.trace_hints import TraceLoader
from composer_hub.train.trace_sites import OTHER_FAMILIES, Student, TraceEncoder, TraceSites

# What would silently do nothing without rollouts.
_OF_ROLLOUTS = (
    "tasks", "eval_tasks", "rollouts_repo", "beta", "use_vllm", "hint_anchor_kl", "hint_success_weight",
    "hint_ratio_clip", "token_diagnostics",
)  # fmt: skip


def is_offline(told: Told) -> bool:
    """Tell whether nothing is generated: no environment, no rewards."""
    return not told.run.environment and not told.run.rewards


def check_sources(told: Told) -> None:
    """Refuse channels without their data, and options that mean nothing without rollouts."""
    run, config = told.run, told.config
    if config.beta_replay and not run.pairs:
        raise RunError("beta_replay is set but there are no pairs: name --pairs owner/name@revision, or set it to 0.")
    if run.other_families not in OTHER_FAMILIES:
        raise RunError(f"other_families is one of {', '.join(OTHER_FAMILIES)}, not {run.other_families!r}.")
    if config.alpha_sdpo and run.traces and config.hint_source == "rollouts":
        raise RunError("traces are named but hint_source is rollouts: say --hint_source traces, or both.")
    if config.alpha_sdpo and not run.traces and config.hint_source != "rollouts":
        raise RunError(f"hint_source is {config.hint_source}: name --traces owner/name@revision, or say rollouts.")
    if is_offline(told):
        _check_offline(told)


def _check_offline(told: Told) -> None:
    run, config = told.run, told.config
    if not config.alpha_sdpo and not config.beta_replay:
        raise RunError(
            "There is nothing to learn from: name an --environment or --rewards for rollouts, --traces with alpha_sdpo "
            "for hints, or --pairs with beta_replay."
        )
    if config.alpha_sdpo and config.hint_source != "traces":
        raise RunError(
            f"hint_source {config.hint_source} needs rollouts, but there is neither an --environment nor --rewards: "
            "name one, say --hint_source traces with --traces, or set alpha_sdpo to 0."
        )
    idle = {name: getattr(run if hasattr(run, name) else config, name) for name in _OF_ROLLOUTS}
    if named := [name for name, value in idle.items() if value]:
        raise RunError(
            f"Without an --environment or --rewards nothing is generated, so {', '.join(named)} would do nothing: "
            "leave it out."
        )


def load_sites(told: Told, inputs: Inputs, network: Any, tokenizer: Any) -> tuple[TraceLoader | None, TraceSites]:
    """Return the loader of this rank's hinted steps, and what was left out."""
    if inputs.traces is None:
        return None, TraceSites()
    config, state = told.config, PartialState()
    encoder = TraceEncoder.of(
        tokenizer,
        Student.of(inputs.model, network.config),
        max_tokens=config.max_teacher_tokens,  # no more than the model can read
        max_hint_chars=config.max_hint_chars,
        template_kwargs=cast("dict[str, Any] | None", config.chat_template_kwargs),
        other_families=told.run.other_families,
        control=config.control_hints,
    )
    found = encoder.encode(inputs.traces.records(Trace, "traces"))
    if not found.sites:
        raise RunError(
            f"No step of {inputs.traces.repo} can be learned from: "
            f"{dict(found.dropped) or 'none is an error of the model'}. Hints are written by composer-hub "
            "ingest, and by a training run into the rollouts it publishes."
        )
    loader = TraceLoader(
        found.sites,
        told.run.trace_batch_size,
        seed=config.seed,
        rank=state.process_index,
        num_ranks=state.num_processes,
    )
    return loader, found
