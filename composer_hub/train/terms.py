"""Added terms of the loss: their interface, their inputs, and how all of them become one sum.

In: the rollouts of a generation batch or rows of a term's own, and the hidden states of the policy's forward. Out: one
value per token or row, with its gradient, and numbers for the log under the same names on every rank. A term never
reduces its values: their sum is divided by the term's count over the whole step and all ranks, so that cutting a batch
differently does not change a step.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from composer_hub.train.answers import read_answers
from composer_hub.train.failure import TrainerError
from composer_hub.train.losses import Head, token_logps
from composer_hub.train.rollouts import Rollout
from composer_hub.train.stream import Stream
from composer_hub.train.teacher import HintTeacher, head_of, keeping_hidden, without_dropout
from composer_hub.train.uplift import row_sums

Notes = dict[str, Any]


@dataclass(frozen=True)
class Rollouts:
    """The rollouts of this rank's generation batch, in the order of its rows."""

    rollouts: Sequence[Rollout]
    rows: Sequence[Mapping[str, Any]]  # of the dataset
    rewards: Sequence[float]
    completion_mask: Tensor  # (rollouts, time); all 0 for a truncated rollout that does not count
    padding: int  # a token id

    def __iter__(self) -> Iterator[Rollout]:
        return iter(self.rollouts)

    def __len__(self) -> int:
        return len(self.rollouts)

    def mask(self, spans: Iterable[Iterable[tuple[int, int]]]) -> Tensor:  # (rollouts, time) bool
        """Return the tokens in some spans of each completion, without rollouts that do not count."""
        mask = torch.zeros_like(self.completion_mask, dtype=torch.bool)
        for row, found in zip(mask, spans, strict=True):
            for span in found:
                row[slice(*span)] = True
        return mask & self.completion_mask.bool()


class TermModel:
    """The student as the terms of one micro-batch read it."""

    def __init__(
        self,
        network: nn.Module,
        teacher: HintTeacher,
        *,
        reader: nn.Module | None = None,  # module of further forwards, if not the network itself
        first: nn.Module | None = None,  # module of the first of them
        hidden: Tensor | None = None,  # (rows, completion, width): predict the tokens of the completions
        completion_ids: Tensor | None = None,  # (rows, completion)
    ) -> None:
        self.network, self.teacher = network, teacher
        self._reader, self._first = network if reader is None else reader, first
        self._hidden, self._completion_ids = hidden, completion_ids

    @property
    def head(self) -> Head:
        """The output layer, with which hidden states become logits."""
        return head_of(self.network)

    def logps(self, mask: Tensor) -> Tensor:  # (rows, completion) bool -> (tokens,)
        """Return log p at temperature 1 of the sampled tokens under a mask, with their gradient."""
        if self._hidden is None or self._completion_ids is None:
            raise TrainerError("There are no sampled tokens here: this term has a loader. Use `read` instead.")
        return token_logps(self._hidden[mask], self.head, self._completion_ids[mask])[0]

    def read(self, ids: Tensor, attention: Tensor, **inputs: Tensor) -> Tensor:  # (rows, time) twice
        """Return the hidden states (rows, time, width) of other rows, with their gradient and without dropout."""
        first, self._first = self._first, None
        return self._read(self._reader if first is None else first, ids, attention, **inputs)

    def _read(self, reader: nn.Module, ids: Tensor, attention: Tensor, **inputs: Tensor) -> Tensor:
        # As a reference was read; and a term that weighs nothing must not take random numbers from the policy.
        with without_dropout(self.network), keeping_hidden(self.network) as kept:
            reader(input_ids=ids, attention_mask=attention, use_cache=False, logits_to_keep=1, **inputs)
        return kept[-1]

    def answer_logps(self, rows: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:  # (rows,), (rows,), (tokens,)
        """Return log p and length of each answer of `answer_tensors`, and the entropies of all their tokens."""
        answer = rows["answer"] >= 0
        hidden = read_answers(self.network, rows, self.read, partial(self._read, self._reader))
        logps, entropies = token_logps(hidden, self.head, rows["ids"].flatten()[rows["answer"][answer]])
        return row_sums(logps, answer), answer.sum(1).clamp(min=1), entropies


class Term:
    """An added term: subclass it, and pass it as `ComposerTrainer(terms=[…])`.

    It learns from the rollouts of each batch or, with a `loader`, from its own rows.
    """

    name = ""  # of its metrics, `channel/<name>/…`

    def __init__(self, weight: float, *, loader: Stream[Any] | None = None) -> None:
        if not (self.name.isidentifier() and 0 <= weight < math.inf):
            raise TrainerError(
                f"A term has a name and a weight of 0 or more; {type(self).__name__} has {self.name!r} and {weight}."
            )
        self.weight, self.loader = weight, loader
        self.scale = 1.0  # a factor that watchdogs lower

    def tensors(self, rollouts: Any) -> dict[str, Tensor]:
        """Return the tensors that `values` needs of some `Rollouts` or rows of the loader.

        Tensors of rollouts have a row for each, because TRL shuffles, splits and buffers them with the batch.
        """
        raise NotImplementedError

    def count(self, rows: Mapping[str, Tensor]) -> Tensor:
        """Return how many values these rows have: by default as many as tokens in `<name>_mask`."""
        return rows[f"{self.name}_mask"].sum()

    def values(self, model: TermModel, rows: Mapping[str, Tensor], hidden: Tensor | None) -> tuple[Tensor, Notes]:
        """Return the values of a micro-batch, and numbers for the log under the same names on every rank.

        `hidden` (rows, completion, width) predicts the tokens of `rows["completion_ids"]`; None with a loader.
        """
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"scale": self.scale, "loader": self.loader.state() if self.loader else None}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.scale = state["scale"]
        if self.loader is not None and state["loader"] is not None:
            self.loader.restore(state["loader"])


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The rows of a term's loader for one micro-batch, and the divisor of their sum."""

    rows: dict[str, Tensor]
    divisor: Tensor


class AddedTerms:
    """The terms of a run that weigh something, in the order in which they are added."""

    def __init__(self, terms: Iterable[Term], accelerator: Any) -> None:
        self.terms: list[Term] = []
        self.accelerator = accelerator
        self._drawn: dict[str, deque[_Drawn]] = {}
        for term in terms:
            self.add(term)

    def add(self, term: Term) -> None:
        """Add a term, if it weighs something."""
        if not term.weight:
            return
        if term.name in self._drawn or term.name == "policy":
            raise TrainerError(f"Two terms of this run are called {term.name}. Give each another name.")
        self.terms.append(term)
        self._drawn[term.name] = deque()
        loader = term.loader
        if loader is not None and loader.num_ranks == 1:
            loader.rank, loader.num_ranks = self.accelerator.process_index, self.accelerator.num_processes

    def __iter__(self) -> Iterator[Term]:
        return iter(self.terms)

    def __len__(self) -> int:
        return len(self.terms)

    def of_rollouts(self, rollouts: Callable[[], Rollouts], batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the tensors of a generation batch, and each term's count over all ranks."""
        live = [term for term in self.terms if term.loader is None]
        if not live:
            return {}
        found, made = dict[str, Tensor](), rollouts()
        for term in live:
            tensors = term.tensors(made)
            if taken := sorted(tensors.keys() & (batch.keys() | found.keys())):
                raise TrainerError(f"The term {term.name} makes {taken[0]!r}, which the batch has. Rename it.")
            found |= tensors
        counts = self._over_ranks([term.count(found) for term in live])
        # 0-dim tensors pass through shuffling and splitting unchanged.
        return found | {_num_items(term): count for term, count in zip(live, counts, strict=True)}

    def parts(
        self, model: TermModel, rows: Mapping[str, Any], hidden: Tensor | None, *, share: float, num_pieces: int
    ) -> tuple[dict[str, Tensor], Notes]:
        """Return the weighted part of each term in a micro-batch, and its notes.

        `share` is the optimizer step's part of the generation batch. A step has `num_pieces` micro-batches; with 0 it
        is an evaluation, in which loaders rest.
        """
        parts, notes = dict[str, Tensor](), Notes()
        for term in self.terms:
            if term.loader is None:
                mine, divisor = rows, rows[_num_items(term)].clamp(min=1.0) / self.accelerator.num_processes * share
                values, found = term.values(model, mine, hidden)
            elif num_pieces:
                drawn = self._next(term, num_pieces)
                divisor = drawn.divisor
                values, found = term.values(model, drawn.rows, None)
            else:
                continue
            part, weight = values.sum() / divisor, term.weight * term.scale
            # Its mean over micro-batches and ranks is the step's.
            numbers = found | {"loss": part.detach() * max(num_pieces, 1), "weight": [weight]}
            notes |= {f"channel/{term.name}/{name}": value for name, value in numbers.items()}
            parts[term.name] = weight * part
        return parts, notes

    def turn_down(self, name: str) -> None:
        """Halve the weight of a term for the rest of the run."""
        for term in self.terms:
            term.scale /= 2 if term.name == name else 1

    def state(self) -> dict[str, Any]:
        """Return the state of all terms for a checkpoint."""
        return {term.name: term.state() for term in self.terms}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint of the same terms."""
        names = [term.name for term in self.terms]
        if missing := [name for name in names if name not in state]:
            raise TrainerError(
                f"The checkpoint has no state of the term {missing[0]}: it was made with other terms. Resume with the "
                "same ones, or start a new run."
            )
        for term in self.terms:
            term.restore(state[term.name])

    def _next(self, term: Term, num_pieces: int) -> _Drawn:
        """Return the next rows of a loader; all of a step are drawn at its first micro-batch, to be counted."""
        waiting = self._drawn[term.name]
        if not waiting:
            assert term.loader is not None
            pieces = [term.tensors(term.loader.take()) for _ in range(num_pieces)]
            (total,) = self._over_ranks([torch.stack([term.count(piece).cpu() for piece in pieces]).sum()])
            # Gradients are averaged over ranks. The clamp is for steps without anything that counts.
            divisor = total.clamp(min=1.0) / self.accelerator.num_processes
            waiting.extend(_Drawn(piece, divisor) for piece in pieces)
        drawn = waiting.popleft()
        return _Drawn({name: value.to(self.accelerator.device) for name, value in drawn.rows.items()}, drawn.divisor)

    def _over_ranks(self, counts: Sequence[Tensor]) -> Sequence[Tensor]:
        local = torch.stack([count.to(self.accelerator.device, torch.float32) for count in counts])
        return self.accelerator.reduce(local, reduction="sum").unbind()


def _num_items(term: Term) -> str:
    return f"num_{term.name}_items"
