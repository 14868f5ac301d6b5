"""Hint sites, and those of a batch as tensors: one row per rollout, to be shuffled, split and buffered as one.

In: the sites of each rollout. Out: the tensors of the batch, and from a batch the flat rows that a teacher reads.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from composer_hub.records import Hint

FORK_TOKENS = 4  # the one at which a failed action went wrong, and those before it


@dataclass(frozen=True, slots=True)
class HintSite:
    """One turn to learn at. Tokens are in arrays, because a data set may have many sites."""

    hint: Hint
    prefix_ids: array[int]  # the tokens before the turn
    cut: int  # number of them before the hint
    inserted_ids: array[int]  # the hint and the generation prompt, which follow the cut
    action_ids: array[int]  # the turn's own tokens
    corrected_ids: array[int]  # an action that works: of a live rollout a later turn, or a better sibling's
    step: int = -1  # index in its trace
    span: tuple[int, int] = (0, 0)  # of a live rollout's completion
    is_exact: bool = True  # the tokens are those that were sampled

    @property
    def hinted_ids(self) -> array[int]:
        return self.prefix_ids[: self.cut] + self.inserted_ids

    @property
    def teacher_ids(self) -> array[int]:
        return self.hinted_ids + self.action_ids

    @property
    def num_tokens(self) -> int:
        return len(self.action_ids)

    def at_fork(self) -> HintSite | None:
        """Return the site with an action that ends at the first difference from the corrected one, or None.

        The action's earlier tokens belong to both prompts then, so the rest of the action is not read at all.
        """
        fork = first_difference(self.action_ids, self.corrected_ids)
        if fork == min(len(self.action_ids), len(self.corrected_ids)):
            return None
        start = max(0, fork + 1 - FORK_TOKENS)
        before, around = self.action_ids[:start], self.action_ids[start : fork + 1]
        return replace(
            self,
            prefix_ids=self.prefix_ids + before,
            inserted_ids=self.inserted_ids + before,
            action_ids=around,
        )


@dataclass(frozen=True, slots=True)
class TeacherRows:
    """The hinted rows of a batch, padded on the left: the action's tokens are the last ones."""

    ids: Tensor  # (rows, time)
    attention: Tensor  # (rows, time)
    student: Tensor  # (tokens, 2) rollout and place in its completion, in the order of the rows
    teacher: Tensor  # (rows, time - 1) bool: the hidden state at this place predicts one of the action's tokens


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the first place at which two lists differ, or the length of the shorter one."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


def up_to_fork(
    lowered: Tensor,  # (tokens,) the nats that the hint takes from each sampled token
    places: Tensor,  # (rows, time) bool: these tokens
) -> Tensor:  # (tokens,) bool
    """Return the last tokens of each row up to the first that the hint makes half as likely.

    A row without such a token ends at the one that the hint lowers most, so that each site has a fork.
    """
    by_row = lowered.new_full(places.shape, -math.inf).masked_scatter(places, lowered)
    halved = by_row >= by_row.amax(1, keepdim=True).clamp(max=math.log(2))
    behind = halved.int().argmax(1, keepdim=True) - torch.arange(places.size(1), device=places.device)
    return ((behind >= 0) & (behind < FORK_TOKENS))[places]


def hint_tensors(
    sites: Sequence[Sequence[HintSite]],
    completion_mask: Tensor,  # (batch, time)
    *,
    padding: int,
) -> dict[str, Tensor]:
    """Return the hint channel's part of a generation batch; it is all zero without sites."""
    batch, time = completion_mask.shape
    most = max((len(found) for found in sites), default=0) or 1
    longest = max((len(site.teacher_ids) for found in sites for site in found), default=1)
    ids = torch.full((batch, most, longest), padding)
    lengths = torch.zeros(batch, most, dtype=torch.long)
    mask = torch.zeros(batch, most, time, dtype=torch.bool)
    for row, found in enumerate(sites):
        for place, site in enumerate(found):
            # A truncated rollout that does not count has no attention, so its hidden states are meaningless.
            if completion_mask[row, slice(*site.span)].all():
                ids[row, place, longest - len(site.teacher_ids) :] = torch.tensor(site.teacher_ids)
                lengths[row, place] = len(site.teacher_ids)
                mask[row, place, slice(*site.span)] = True
    tensors = {"hint_mask": mask, "teacher_ids": ids, "teacher_lengths": lengths}
    return {name: tensor.to(completion_mask.device) for name, tensor in tensors.items()}


def teacher_rows(inputs: Mapping[str, Tensor]) -> TeacherRows | None:
    """Return the rows of a batch that have a site, cut to the longest of them; None if there are none."""
    lengths = inputs["teacher_lengths"]
    used = lengths > 0  # (batch, sites)
    if not used.any():
        return None
    longest = int(lengths.max())
    ids = inputs["teacher_ids"][used][:, -longest:]
    place = torch.arange(longest, device=ids.device)[None]
    mask = inputs["hint_mask"][used]  # (rows, completion)
    rollout = used.nonzero()[:, 0]
    tokens = mask.nonzero()
    return TeacherRows(
        ids=ids,
        attention=(place >= longest - lengths[used][:, None]).long(),
        student=torch.stack([rollout[tokens[:, 0]], tokens[:, 1]], dim=1),
        teacher=place[:, 1:] >= longest - mask.sum(1, keepdim=True),
    )
