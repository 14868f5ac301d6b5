"""`OfflineTrainer`: the channels that need no rollouts, which are hints on published traces and preference pairs.

loss = alpha * hint + beta * replay. Nothing is generated or rewarded; checkpoints, teachers, adapters,
metrics and the card are those of `RunTrainer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from datasets import Dataset
from torch import Tensor
from torch.utils.data import DataLoader, SequentialSampler

from composer_hub.train.failure import TrainerError
from composer_hub.train.hint_term import TraceLoader
from composer_hub.train.pair_loader import PairLoader
from composer_hub.train.run.trainer import RunTrainer
from composer_hub.train.stream import Stream
from composer_hub.train.terms import Term, TermModel


class OfflineTrainer(RunTrainer):
    """Trains on recorded data; an epoch ends when every row of every active channel has been seen."""

    def __init__(
        self,
        *args: Any,
        terms: Sequence[Term] = (),
        pairs: PairLoader | None = None,
        traces: TraceLoader | None = None,
        **kwargs: Any,
    ) -> None:
        given = (pairs, traces, *(term.loader for term in terms))
        loaders: list[Stream[Any]] = [loader for loader in given if loader is not None]
        if not loaders:
            raise TrainerError("There is nothing to learn from: pass traces=, pairs= or terms= with a loader.")
        num_batches = max(loader.batches_an_epoch * loader.num_ranks for loader in loaders)
        # The loaders provide the data; a row here only counts one micro-batch of one rank.
        turns = Dataset.from_dict({"prompt": [""] * num_batches})
        super().__init__(
            *args, terms=terms, pairs=pairs, traces=traces, train_dataset=turns, reward_funcs=_never_asked, **kwargs
        )
        self.reward_func_names = []
        if not self.terms:
            raise TrainerError("Nothing would be learned: set alpha_sdpo with hint_source traces, or beta_replay.")
        if live := [term.name for term in self.terms if term.loader is None]:
            raise TrainerError(f"The term {live[0]} learns from rollouts, and an offline run has none. Leave it out.")

    def get_train_dataloader(self) -> DataLoader[Any]:
        return self._get_dataloader(
            dataset=cast("Any", self.train_dataset),
            description="Training",
            batch_size=1,
            sampler_fn=lambda rows: SequentialSampler(cast("Any", rows)),
            is_training=True,
        )

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        return generation_batch

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        # Exactly one forward goes through the wrapper, because DDP averages gradients once per wrapped forward.
        terms_model = TermModel(self.bare_model, self.teacher, reader=self._reader(), first=model)
        return self._with_terms({}, {}, terms_model, inputs, None)


def _never_asked(**_: Any) -> list[float]:
    """Satisfy TRL, which requires a reward function; nothing is generated, so it is never called."""
    raise AssertionError("an offline run scores nothing")
