"""The checkpoints, rollouts and final model of a run, published as versions with their lineage.

During training a copy of a checkpoint and of the rollouts so far is published on another thread. Training never waits
for the Hub and never fails because of it: a failed push is reported and recorded, its files stay on this machine, and
the next push publishes newer ones. `hub_strategy` of transformers has no tags, no rollouts and no other destination
than the Hub.
"""

from __future__ import annotations

import os
import shutil
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from composer_hub.hub import Destination, HubError, Parent, Published, check_target, publish_model
from composer_hub.train.checkpoints import COMPLETE, link_or_copy, model_files, step_of
from composer_hub.train.run.export import publish_rollouts
from composer_hub.train.run.options import PublishingOptions

_PUBLIC_ADVICE = (
    "add --public true if everyone may have the results of this run, name another repository, or make it private first."
)


@dataclass(frozen=True)
class RunPublisher:
    """Publishes the results of one run, with their lineage, to the repositories that its options name."""

    where: Destination
    options: PublishingOptions
    run_id: str
    base: Parent
    parents: tuple[Parent, ...] = ()

    def check_repositories(self, output: Path) -> None:
        """Refuse before training what would be refused after it; a Hub that is down may be back by then."""
        options = self.options
        targets = (
            (options.repo, "model", "model"),
            (options.checkpoints_repo, "model", "model"),
            (options.rollouts_repo, "traces", "dataset"),
        )
        try:
            for repo, kind, repo_type in targets:
                if repo:
                    check_target(
                        self.where, repo, kind, public=options.public, repo_type=repo_type, advice=_PUBLIC_ADVICE
                    )
            for repo, _, repo_type in targets:
                if repo:
                    self.where.prepare(repo, private=not options.public, repo_type=repo_type)
        except HubError as error:
            warnings.warn(f"{error} Training begins; its results stay in {output}.", stacklevel=2)

    def publish_final(self, final: Path, num_steps: int, *, is_adapter: bool) -> None:
        """Publish the finished model, if the run has a repository for it, and print how to load it."""
        options = self.options
        if not options.repo:
            return
        published = self._model(options.repo, final, f"run-{self.run_id}", f"{num_steps} steps")
        print(f"{published.repo} {published.tag} {published.revision} at {published.address}")
        if options.to in ("local", "hub"):
            inside = ", in `composer-hub run -- python`" if options.to == "local" else ""
            reader = "AutoPeftModelForCausalLM" if is_adapter else "AutoModelForCausalLM"
            print(f'Load it with {reader}.from_pretrained("{published.repo}", revision="{published.tag}"){inside}.')
            print(f"Show its lineage: composer-hub lineage {published.repo}@{published.tag} --from {options.to}")

    def publish_checkpoint(self, copy: Path, step: int) -> dict[str, str]:
        """Publish the copy of a checkpoint and the rollouts so far, and return their revisions."""
        revisions = {}
        if (rollouts := self.publish_rollouts(copy / "rollouts")) is not None:
            revisions["rollouts"] = rollouts.revision
        if repo := self.options.checkpoints_repo:
            tag = f"run-{self.run_id}-step-{step}"
            revisions["checkpoint"] = self._model(repo, copy / "model", tag, f"step {step}").revision
        return revisions

    def publish_rollouts(self, folder: Path) -> Published | None:
        """Publish the rollouts in a folder as the next version of the run's dataset, if it has one."""
        if not self.options.rollouts_repo:
            return None
        return publish_rollouts(
            self.where,
            self.options.rollouts_repo,
            folder,
            run_id=self.run_id,
            license=self.options.license,
            parents=(self.base, *self.parents),
            public=self.options.public,
        )

    def _model(self, repo: str, folder: Path, tag: str, progress: str) -> Published:
        title = f"Run {self.run_id}: {progress} from {self.base.repo}"
        return publish_model(self.where, repo, model_files(folder), tag=tag, title=title, public=self.options.public)


LAST_PUSH_WAIT_S = 120.0

Publish = Callable[[Path, int], Mapping[str, Any]]  # (a copy, its step) -> the revisions to record


class Pusher(TrainerCallback):
    """Publishes at every n-th save and at the end of training."""

    def __init__(self, publish: Publish, output: Path, *, every: int, note: Callable[[dict[str, Any]], None]) -> None:
        self.publish, self.output, self.every, self.note = publish, output, every, note
        self.num_saves = 0
        self.waiting: Path | None = None  # the newest checkpoint that is not published yet
        self._thread: threading.Thread | None = None
        self._outcome: dict[str, Any] | None = None

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        self.num_saves += 1
        if self.num_saves % self.every == 0 or control.should_training_stop:
            self.waiting = self.output / f"checkpoint-{state.global_step}"
        self._collect()
        self._start()

    def close(self, *, wait_s: float = LAST_PUSH_WAIT_S) -> None:
        """Wait for the push under way and for the next one, each up to the limit."""
        for _ in range(2):
            if self._thread is not None:
                self._thread.join(wait_s)
                if self._thread.is_alive():
                    warnings.warn("A push is still under way and was abandoned.", stacklevel=2)
                    return
            self._collect()
            self._start()

    def _start(self) -> None:
        if self.waiting is None or self._thread is not None:
            return
        checkpoint, self.waiting = self.waiting, None
        try:
            copy = _copy(self.output, checkpoint)
        except OSError as error:
            # The checkpoint was rotated away, or the disk is full. The next push will do.
            self._report({"step": step_of(checkpoint), "error": str(error)})
            return
        self._thread = threading.Thread(target=self._push, args=(copy, step_of(checkpoint)), daemon=True)
        self._thread.start()

    def _push(self, copy: Path, step: int) -> None:
        try:
            self._outcome = {"step": step, **self.publish(copy, step)}
        except Exception as error:  # noqa: BLE001 - no failure of a push may end training
            self._outcome = {"step": step, "error": str(error)}
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def _collect(self) -> None:
        if self._thread is None or self._thread.is_alive():
            return
        self._thread.join()
        self._thread, outcome = None, self._outcome
        if outcome is not None:
            self._report(outcome)

    def _report(self, outcome: dict[str, Any]) -> None:
        self.note(outcome)
        if "error" in outcome:
            warnings.warn(
                f"Step {outcome['step']} was not published: {outcome['error']} Training continues.", stacklevel=2
            )


def _copy(output: Path, checkpoint: Path) -> Path:
    """Copy the files to publish, because training keeps writing rollouts and removes old checkpoints."""
    if not (checkpoint / COMPLETE).is_file():
        raise FileNotFoundError(f"{checkpoint.name} is gone.")
    copy = output / ".push"
    shutil.rmtree(copy, ignore_errors=True)
    (copy / "model").mkdir(parents=True)
    for name, path in model_files(checkpoint).items():
        link_or_copy(path, copy / "model" / name)
    shutil.copy2(output / "README.md", copy / "model" / "README.md")
    (copy / "rollouts").mkdir()
    newest = {path.name.split("-")[0]: path for path in sorted((output / "rollouts").glob("rank*.jsonl"))}
    for path in (output / "rollouts").glob("rank*.jsonl"):
        # A rank appends to its newest file only.
        put = _copy_lines if path in newest.values() else link_or_copy
        put(path, copy / "rollouts" / path.name)
    return copy


def _copy_lines(source: Path, target: Path) -> None:
    """Copy complete lines only, because another rank may be writing one."""
    shutil.copy2(source, target)
    with target.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end and (file.seek(end - 1), file.read(1))[1] != b"\n":
            end -= 1
        file.truncate(end)
