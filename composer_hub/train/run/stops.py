"""What ends a run before its last step: time, a signal, a watch-dog. Each leaves a complete checkpoint.

Time and SIGTERM (which clusters send some seconds before they take the machine away) leave with exit code 3, and the
same command goes on. A watch-dog leaves with 4, so that nothing that starts runs again on a 3 trains a run on that has
collapsed.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather
from transformers import TrainerCallback

from composer_hub import exits
from composer_hub.train.watchdogs import Watchdogs, best_of

_TIME, _SIGNAL = 1, 2


class Terminated(BaseException):
    """SIGTERM came while nothing was being trained. No `Exception`: whatever runs then may take those for its own."""

    exit_code = exits.STOPPED


class EarlyEnd(TrainerCallback):
    """Ends training with a checkpoint when the time is over or SIGTERM came; all ranks at the same step."""

    def __init__(self, max_minutes: float | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_minutes, self.clock = max_minutes, clock
        self.start = clock()
        self.is_training = self.has_signal = False
        self.reason = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear SIGTERM while this lasts; only the main thread of a process can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, self._hear)
        try:
            yield
        except Terminated as ended:
            raise exits.Stopped(str(ended)) from ended
        finally:
            signal.signal(signal.SIGTERM, before)

    def _hear(self, number: int, frame: Any) -> None:
        self.has_signal = True
        if not self.is_training:
            raise Terminated("SIGTERM came while nothing was being trained. The same command with --resume goes on.")

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.is_training = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.is_training = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.reason = self.asked(state)
        if self.reason:
            control.should_save = control.should_training_stop = True

    def asked(self, state: Any) -> int:
        """Return why to end now, or 0; every rank must come here, for all of them must hear the same."""
        is_over = self.max_minutes is not None and self.clock() - self.start >= self.max_minutes * 60
        # Clocks differ and signals come one by one. Time does not end a run that has made its last step.
        reason = _SIGNAL if self.has_signal else _TIME if is_over and state.global_step < state.max_steps else 0
        return int(gather(torch.tensor([reason], device=PartialState().device)).max().item())


def raise_if_early(trainer: Any, early: EarlyEnd, dogs: Watchdogs | None) -> None:
    """Say why a run ended before it was done, if it did."""
    step, wanted = trainer.state.global_step, trainer.state.max_steps
    where = f"at step {step:,} of {wanted:,}; the checkpoint is complete"
    goes_on = "The same command with --resume goes on."
    if early.reason == _SIGNAL:
        raise exits.Stopped(f"SIGTERM ended the run {where}. {goes_on}")
    if step >= wanted:
        return
    if early.reason == _TIME:
        raise exits.Stopped(f"{early.max_minutes:g} minutes are over {where}. {goes_on}")
    if dogs is not None and dogs.stopped_by is not None:
        best = best_of(trainer.args.output_dir)
        kept = f" The best checkpoint is {trainer.args.output_dir}/best ({best['checkpoint']})." if best else ""
        raise exits.Refused(
            f"A watch-dog ended the run {where}. {dogs.stopped_by}{kept} Look at the rollouts; then the same command "
            "with --resume goes on, with other --bands, or --bands false to stop watching."
        )
