"""Publishing during training: a copy of a checkpoint and of the rollouts so far, published on another thread.

Training never waits for the Hub and never fails because of it. A failed push is reported and recorded, its files stay
on this machine, and the next push publishes newer ones.
"""

from __future__ import annotations

import os
import shutil
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from composer_hub.train.checkpoints import COMPLETE, link_or_copy, model_files, step_of

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
        except Exception as error:  # no failure of a push may end training
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
