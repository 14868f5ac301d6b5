"""`Rounds`: a trainer as one worker of a federation. It sends its adapter's delta and number of steps.

In: a trainer of an adapter and a `Federation`. Out: after every n-th step the worker's delta is sent and the adapter is
the one that all workers have. The optimizer's state stays on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch import Tensor
from transformers import TrainerCallback

from composer_hub import exits
from composer_hub.train.apart.deltas import Values
from composer_hub.train.apart.federation import Federation, Rules, State
from composer_hub.train.evals import measured
from composer_hub.train.failure import TrainerError

_STATE = "composer_rounds.json"


class Rounds(TrainerCallback):
    """Begins each round with the shared adapter, and ends training after the last one."""

    def __init__(
        self, trainer: Any, federation: Federation, rules: Rules, *, files: Mapping[str, bytes] | None = None
    ) -> None:
        _check(trainer)
        self.trainer, self.federation, self.rules, self.files = trainer, federation, rules, files
        self.is_ending: Callable[[], bool] = lambda: False  # asked while this worker waits for others
        self.state: State | None = None
        self.done = 0  # steps of the open round
        self._begun = 0  # the step at which it began
        self._saved: dict[str, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        found = self._alone(lambda: self.federation.join(self.rules, self._values(), self.files))
        if self._saved.get("start") == found.digest:
            # A checkpoint of the open round: its weights are on their way.
            self.state, self.done, self._begun = found, self._saved["done"], self._saved["begun"]
        else:
            self._adopt(found)
        is_delivered = found.round < self.rules.num_rounds and self._alone(lambda: self.federation.has_delivered(found))
        if is_delivered:  # by this worker before it was ended
            self._meet(control)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        assert self.state is not None
        if self.state.round >= self.rules.num_rounds:
            self._put(self.state)  # a resumed run takes a step before it can end
            control.should_training_stop = True
            return
        self.done += 1
        if self.done >= self.rules.num_steps:
            start, end, facts = self.state, self._values(), self._facts()
            self._alone(lambda: self.federation.deliver(start, end, facts))
            self._meet(control)

    def _meet(self, control: Any) -> None:
        start = self.state
        assert start is not None
        after = self._alone(lambda: self.federation.wait(start, self.is_ending))
        if after is not None:
            self._adopt(after)
        control.should_training_stop = after is None or after.round >= self.rules.num_rounds

    def finish(self) -> None:
        """Leave this worker's last measurement with the federation."""
        state = self.state
        if state is not None and state.round >= self.rules.num_rounds:
            self._alone(lambda: self.federation.finish(state, self._score()))

    def _facts(self) -> dict[str, Any]:
        return {"steps": self.done} | self._score()

    def _score(self) -> dict[str, float]:
        """Return pass@1 on this worker's own held-out tasks, if it was measured when the open round began."""
        rates = dict(measured(self.trainer.state.log_history))
        return {"score": round(rates[self._begun].value, 6)} if self._begun in rates else {}

    # ------------------------------------------------------------------------------------------------------- weights

    def _weights(self) -> dict[str, Tensor]:
        # As PEFT names them in a file, so that the shared one loads anywhere.
        named = self.trainer.accelerator.unwrap_model(self.trainer.model).named_parameters()
        return {name.replace(".default.", "."): value.detach() for name, value in named if value.requires_grad}

    def _values(self) -> Values:
        return {name: value.float().cpu().numpy().copy() for name, value in self._weights().items()}

    def _put(self, state: State) -> None:
        for name, value in self._weights().items():
            value.copy_(torch.from_numpy(state.values[name]))

    def _adopt(self, state: State) -> None:
        self._put(state)
        self.state, self.done, self._begun = state, 0, self.trainer.state.global_step
        if self.trainer.accelerator.is_main_process:
            what = f"Round {state.round} of {self.rules.num_rounds} begins with"
            what = what if state.round < self.rules.num_rounds else "All rounds are closed; the result is"
            self.federation.note(f"{what} adapter {state.digest[:12]}.")

    def _alone(self, call: Callable[[], Any]) -> Any:
        """Run a call on the first rank of this worker, and return its result or raise its refusal on all of them."""
        if self.trainer.accelerator.num_processes == 1:
            return call()
        found: list[Any] = [None, None]
        if self.trainer.accelerator.is_main_process:
            try:
                found[0] = call()
            except exits.ComposerError as error:
                found[1] = error
        broadcast_object_list(found)
        if found[1] is not None:
            raise found[1]
        return found[0]

    # ---------------------------------------------------------------------------------------------------- checkpoints

    def save(self, folder: Path) -> None:
        """Write beside a checkpoint how far the open round is."""
        if self.state is not None and self.trainer.args.should_save:
            known = {"start": self.state.digest, "done": self.done, "begun": self._begun}
            (folder / _STATE).write_text(json.dumps(known))

    def load(self, folder: Path) -> None:
        """Read it again; a round that others have closed meanwhile starts over."""
        path = folder / _STATE
        self._saved = json.loads(path.read_text()) if path.is_file() else {}


def _check(trainer: Any) -> None:
    if trainer.sharding or trainer.is_deepspeed_enabled:
        raise TrainerError("A worker of a federation needs whole weights, but here they are sharded. Launch with DDP.")
    if not getattr(trainer.model, "peft_config", None):
        raise TrainerError("A federation trains an adapter. Add --use_peft true.")
