"""`RunTrainer`: `ComposerTrainer` with resumable checkpoints, exported rollouts and the run's own card."""

from __future__ import annotations

import json
import math
import secrets
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from composer_hub.environments import EnvironmentFailed, EpisodeCounts, count_episodes, notes_of
from composer_hub.hub import Model
from composer_hub.redact import Redactor
from composer_hub.train.checkpoints import mark_complete, writing
from composer_hub.train.evals import Evals
from composer_hub.train.retries import Retry, reach_states
from composer_hub.train.run.export import RolloutFile
from composer_hub.train.trainer import ComposerTrainer

if TYPE_CHECKING:
    from composer_hub.train.apart.local_sgd import LocalSGD
    from composer_hub.train.apart.rounds import Rounds

_PRINTED = {
    "loss": "loss",
    "reward": "reward",
    "entropy": "entropy",
    "channel/hint/divergence": "hint",
    "channel/hint/sites_per_rollout": "sites per rollout",
    "channel/hint_traces/divergence": "recorded hints",
    "channel/replay/loss": "replay",
    "eval/pass_at_1": "pass@1",
}


def line_of(state: Any, logs: Any) -> str:
    """Return the main metrics of a log as one line; empty if none of them was logged."""
    shown = [f"{label} {logs[name]:.3g}" for name, label in _PRINTED.items() if (logs or {}).get(name) is not None]
    return f"step {state.global_step:,} of {state.max_steps:,}: {', '.join(shown)}" if shown else ""


class PrintLine(TrainerCallback):
    """Prints one line per log; `trainer_state.json` and the targets of `report_to` have all metrics."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        line = line_of(state, logs)
        if line and state.is_world_process_zero:
            print(line, flush=True)


class LineAboveBar(ProgressCallback):
    """Shows the progress bar with the same line above it."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        line = line_of(state, logs)
        if line and self.training_bar is not None:
            self.training_bar.write(line)


class BestCheckpoint(TrainerCallback):
    """Tells transformers which checkpoint to keep whatever `save_total_limit` is: that with the best mean reward.

    `load_best_model_at_end` would need an eval loss. Measured are the rollouts since the save before it.
    """

    def __init__(self) -> None:
        self.rewards: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if isinstance((logs or {}).get("reward"), (int, float)):
            self.rewards.append(float(logs["reward"]))

    def on_saving(self, state: Any) -> None:
        """Record in the saved state that the step about to be saved is the best one, if it is."""
        score = statistics.fmean(self.rewards) if self.rewards else math.nan
        if score > (-math.inf if state.best_metric is None else state.best_metric):
            state.best_metric, state.best_global_step = score, state.global_step
        self.rewards = []


class RunTrainer(ComposerTrainer):
    """The trainer of a run, which may end at any moment."""

    def __init__(
        self,
        *args: Any,
        base: Model | None = None,
        rollouts: RolloutFile | None = None,
        own_pairs: int = 0,
        **kwargs: Any,
    ) -> None:
        self.own_pairs = own_pairs
        super().__init__(*args, **kwargs)
        # transformers prints every metric, a page per log; a progress bar only makes sense on a terminal.
        self.pop_callback(PrinterCallback)
        self.pop_callback(ProgressCallback)
        self.add_callback(PrintLine() if self.args.disable_tqdm or not sys.stderr.isatty() else LineAboveBar())
        self.best = BestCheckpoint()
        self.add_callback(self.best)
        self.base, self.rollouts = base, rollouts
        self.card: Callable[[], str] | None = None
        self.example_hint: dict[str, str] | None = None
        self.shown: dict[str, Any] | None = None  # the newest rollout, as TRL has it
        self.evals: Evals | None = None
        self.apart: LocalSGD | Rounds | None = None  # whose state belongs to a checkpoint
        self.retries: Sequence[Retry] = ()  # that the next batch begins with, instead of at its prompts
        self.retries_reached: list[bool] = []
        # One column per reward function, in the order of TRL's names.
        self.rewards_by_function: torch.Tensor | None = None
        self._prompts: list[Any] = []  # as shown to the model, with the text of the environment's reset

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # Tied weights are saved once, so their second name is not really missing.
        tied = set(getattr(self.bare_model, "all_tied_weights_keys", None) or ())
        load_result.missing_keys[:] = [key for key in load_result.missing_keys if key not in tied]
        super()._issue_warnings_after_load(load_result)

    # -------------------------------------------------------------------------------------------------- rollouts

    def _tokenize_prompts(self, prompts: Any) -> Any:
        tokenized = super()._tokenize_prompts(prompts)
        if not self.retries:
            return tokenized
        retries, self.retries = self.retries, ()
        self.made_before = [[(call.name, result) for call, result in retry.before] for retry in retries]
        # A reset that shows another task than before leads to another state, even if no call was made since.
        shown = zip(reach_states(self, retries), retries, tokenized[0], strict=False)
        self.retries_reached = [done and retry.begins_with(prompt) for done, retry, prompt in shown]
        return [retry.prefix for retry in retries] + tokenized[0][len(retries) :], *tokenized[1:]

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self.rewards_by_function = rewards
        if isinstance(completions[0], list):
            self.shown = {"prompt": self._prompts[0], "messages": completions[0], "rewards": self.own_rewards()[0]}
            self.shown["step"] = self.state.global_step
        return rewards

    def _generate(self, prompts: list[Any]) -> Any:
        self._prompts = list(prompts)
        return super()._generate(prompts)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        if self.rollouts is not None and self.bare_model.training:
            shown = [dict(row) | {"prompt": prompt} for row, prompt in zip(inputs, self._prompts, strict=True)]
            self.rollouts.add(self, shown, output)
        self._keep_example()
        self._note_environments()
        return output

    def _keep_example(self) -> None:
        """Keep the first hint that is learned from, redacted, for the card."""
        if self.example_hint is None and (site := next((site for row in self.last_sites for site in row), None)):
            hint = site.hint
            text = Redactor(secrets.token_bytes(16)).text(hint.text)
            self.example_hint = {"text": text, "writer": hint.writer, "kind": hint.kind}

    def check_environments(self) -> EpisodeCounts | None:
        """Count the lost episodes of this batch over all ranks, and end the run if all of them were lost."""
        mine = count_episodes(self.environments)
        if mine is None:
            return None
        counts = torch.tensor([[mine.num_episodes, mine.num_timeouts, mine.num_lost]], device=self.accelerator.device)
        total = EpisodeCounts(*self.accelerator.gather(counts).sum(dim=0).tolist())
        if total.num_lost == total.num_episodes:
            raise EnvironmentFailed(
                f"All {total.num_lost} episodes of this batch were lost, so nothing can be learned. {mine.reason} Fix "
                "the environment and continue with --resume true."
            )
        return total

    def _note_environments(self) -> None:
        total = self.check_environments()
        if total is None:
            return
        metrics = self.metrics
        metrics["rollout/env_timeouts"].append(float(total.num_timeouts))
        metrics["rollout/env_lost"].append(float(total.num_lost))
        notes = notes_of(self.environments)
        # A rank whose episodes were all lost has no notes, and every rank must name the same metrics.
        names = sorted({name for one in gather_object([list(notes)]) for name in one})
        if names:
            self.note_means({name: notes.get(name, []) for name in names})

    def environment_pools(self) -> list[list[Any]]:
        """Return the environments that this process has made."""
        return list(getattr(self, "_environment_pool", {}).values())

    def own_rewards(self) -> list[dict[str, float | None]]:
        """Return this rank's rewards by function, one row per rollout."""
        assert self.rewards_by_function is not None
        rows = self._own_part(self.rewards_by_function).tolist()
        # TRL writes NaN if a function does not apply; JSON has only null.
        return [
            {name: None if value != value else value for name, value in zip(self.reward_func_names, row, strict=True)}
            for row in rows
        ]

    # ----------------------------------------------------------------------------------------------- checkpoints

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model; an adapter names the model it belongs to instead of a folder of this machine."""
        super().save_model(output_dir, _internal_call)
        path = Path(output_dir or str(self.args.output_dir)) / "adapter_config.json"
        if self.base is not None and self.args.should_save and path.is_file():
            revision = self.base.revision if self.base.is_published else None
            config = json.loads(path.read_text()) | {"base_model_name_or_path": self.base.name, "revision": revision}
            path.write_text(json.dumps(config, indent=2, sort_keys=True))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.args.should_save and folder.exists():
            # A push may hold hard links to its files, so none may be overwritten in place.
            shutil.rmtree(folder)
        self.accelerator.wait_for_everyone()
        self.best.on_saving(self.state)
        with writing(folder.name):
            super()._save_checkpoint(model, trial)
            torch.save(self._generated(), folder / self._generated_name())
            if self.apart is not None:
                self.apart.save(folder)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            mark_complete(folder, {"step": self.state.global_step, "num_processes": self.accelerator.num_processes})

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.apart is not None:
            self.apart.load(Path(checkpoint))
        path = Path(checkpoint or "") / self._generated_name()
        if checkpoint is not None and path.is_file():
            # Processes that share a CPU call it "cpu:0", to which torch cannot restore.
            device = self.accelerator.device if self.accelerator.device.type != "cpu" else "cpu"
            kept = torch.load(path, map_location=device, weights_only=True)
            self._step, self._buffered_inputs = kept["step"], kept["buffered"]

    def _generated(self) -> dict[str, Any]:
        """Return the rollouts that are not used up, because a checkpoint may fall between two updates of one batch."""
        every = self.args.steps_per_generation * self.num_iterations
        is_used_up = self._step % every == 0
        return {"step": self._step, "buffered": None if is_used_up else self._buffered_inputs}

    def _generated_name(self) -> str:
        return f"composer_generated_{self.accelerator.process_index}.pt"

    # ------------------------------------------------------------------------------------------------------ card

    def create_model_card(self, model_name: Any = None, dataset_name: Any = None, tags: Any = None) -> None:  # type: ignore[override]
        """Write the run's card; TRL's own has no data, rewards or license."""
        if self.card is None:
            super().create_model_card(model_name, dataset_name, tags)
        elif self.is_world_process_zero():
            folder = Path(str(self.args.output_dir))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "README.md").write_text(self.card(), encoding="utf-8")
