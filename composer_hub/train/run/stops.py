"""Early ends of a run: a time limit, SIGTERM, Ctrl-C, a watchdog. Each leaves a complete checkpoint.

A time limit and SIGTERM (which clusters send shortly before they take the machine away) exit with code 3, and the same
command resumes. Ctrl-C exits with 130 and a watchdog with 4, so that a script that restarts runs after a 3
continues neither a run that a person has ended nor a collapsed one. `enable_jit_checkpoint` of transformers
knows SIGTERM only, lets each rank stop at its own step, and exits with 0.
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
from composer_hub.train.watchdogs import Watchdogs

_TIME = 1  # beside the numbers of the signals
_ENDS: dict[int, tuple[str, type[exits.ComposerError]]] = {
    signal.SIGINT: ("Ctrl-C", exits.Interrupted),
    signal.SIGTERM: ("SIGTERM", exits.Stopped),
}
_ADVICE = "Continue with the same command and --resume true."


class Terminated(BaseException):
    """A signal outside training. Not an `Exception`, which a reward function or a library might catch."""

    def __init__(self, number: int) -> None:
        name, self.kind = _ENDS[number]
        self.exit_code = self.kind.exit_code
        super().__init__(f"{name} arrived outside training. {_ADVICE}")


class EarlyEnd(TrainerCallback):
    """Ends training with a checkpoint after a time limit or a signal, on all ranks at the same step."""

    def __init__(self, max_minutes: float | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_minutes, self.clock = max_minutes, clock
        self.start = clock()
        self.is_training = False
        self.signal = self.reason = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals in this context; only the main thread of a process can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in _ENDS}
        try:
            yield
        except Terminated as ended:
            raise ended.kind(str(ended)) from ended
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: Any) -> None:
        # Launchers of several processes repeat a signal. With one process a second Ctrl-C means: at once.
        if self.signal == number == signal.SIGINT and PartialState().num_processes == 1:
            raise KeyboardInterrupt
        self.signal = number
        if not self.is_training:
            raise Terminated(number)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.is_training = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.is_training = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.reason = self.reason_to_end(state)
        if self.reason:
            control.should_save = control.should_training_stop = True

    def reason_to_end(self, state: Any) -> int:
        """Return the reason to end now, or 0; a collective call, so that all ranks agree."""
        is_over = self.max_minutes is not None and self.clock() - self.start >= self.max_minutes * 60
        # Clocks differ between ranks, and so do signals. The time limit does not end a run after its last step.
        reason = self.signal or (_TIME if is_over and state.global_step < state.max_steps else 0)
        return int(gather(torch.tensor([reason], device=PartialState().device)).max().item())


def raise_if_early(trainer: Any, early: EarlyEnd, dogs: Watchdogs | None) -> None:
    """Raise the reason if a run ended before its last step."""
    step, wanted = trainer.state.global_step, trainer.state.max_steps
    where = f"at step {step:,} of {wanted:,}; the checkpoint is complete"
    if early.reason in _ENDS:
        name, kind = _ENDS[early.reason]
        raise kind(f"{name} ended the run {where}. {_ADVICE}")
    if step >= wanted:
        return
    if early.reason == _TIME:
        raise exits.Stopped(f"{early.max_minutes:g} minutes have passed, which ended the run {where}. {_ADVICE}")
    if dogs is not None and dogs.stopped_by is not None:
        best = trainer.state.best_model_checkpoint
        best_note = f" The best checkpoint is {best}." if best else ""
        raise exits.Refused(
            f"A watchdog ended the run {where}. {dogs.stopped_by}{best_note} Look at the rollouts. To continue "
            "anyway, run the same command with --resume true and other --bands, or with --bands false."
        )
