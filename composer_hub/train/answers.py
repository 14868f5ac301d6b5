"""Several answers to one prompt, read in one row: the prompt once, and every answer after it.

In: prompts with their answers as tokens. Out: the hidden states that predict the answers' tokens, as if each
answer were alone after its prompt. A mask hides the answers of a row from each other, and their positions
begin after the prompt. So both sides of a pair cost one prompt instead of two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from composer_hub.train.teacher import causal_lm
from composer_hub.train.uplift import Row, right_padded

MAX_TOKENS = 8_192  # of a shared row, whose mask has the square of that
Read = Callable[..., Tensor]  # (ids, attention, **inputs) -> hidden states (rows, time, width)

# Whether a network reads shared rows as it reads single ones, once that was tried.
_SHARES: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def answer_tensors(rows: Sequence[Row], *, padding: int = 0) -> dict[str, Tensor]:
    """Return prompts with their answers as `TermModel.answer_logps` reads them; equal prompts are shared."""
    shared: dict[tuple[int, ...], list[int]] = {}
    for number, (prompt, _) in enumerate(rows):
        shared.setdefault(tuple(prompt), []).append(number)
    lengths = [len(prompt) + sum(len(rows[number][1]) for number in numbers) for prompt, numbers in shared.items()]
    ids = torch.full((len(shared), max(lengths)), padding)
    part, position = torch.zeros_like(ids), torch.zeros_like(ids)  # part 1 is the prompt, 2 and more are answers
    row = torch.zeros(len(rows), dtype=torch.long)
    answer = torch.full((len(rows), max(len(tokens) for _, tokens in rows)), -1)  # places in the flat `ids`
    before = answer.clone()  # and the places that predict them
    for place, (prompt, numbers) in enumerate(shared.items()):
        row[numbers] = place
        pieces = [prompt, *(rows[number][1] for number in numbers)]
        stops = torch.tensor([0, *(len(piece) for piece in pieces)]).cumsum(0).tolist()
        for index, (piece, (start, stop)) in enumerate(zip(pieces, pairwise(stops), strict=True)):
            ids[place, start:stop] = torch.tensor(list(piece), dtype=torch.long)
            part[place, start:stop] = index + 1
            position[place, start:stop] = torch.arange(stop - start) + (len(prompt) if index else 0)
            if index and len(piece):
                places = place * ids.size(1) + torch.arange(start, stop)
                answer[numbers[index - 1], : len(piece)] = places
                before[numbers[index - 1], 1 : len(piece)] = places[:-1]
                before[numbers[index - 1], 0] = place * ids.size(1) + len(prompt) - 1 if prompt else -1
    answer[before < 0] = -1  # nothing predicts the first token of a conversation
    return {"ids": ids, "part": part, "position": position, "row": row, "answer": answer, "before": before}


def read_answers(network: nn.Module, rows: Mapping[str, Tensor], read: Read, try_read: Read) -> Tensor:
    """Return the hidden states (tokens, width) that predict the answers' tokens, in the order of the rows.

    `try_read` is `read` for a forward that nothing is learned from.
    """
    if rows["part"].max() <= 2:
        return _flat(read(rows["ids"], (rows["part"] > 0).long()), rows)
    if rows["ids"].size(1) > MAX_TOKENS or not _may_share(network):
        return _single(rows, read)
    if network not in _SHARES:
        # Proof instead of a list of architectures: the first rows are read in both ways.
        with torch.no_grad():
            ours, theirs = _shared(rows, try_read).float(), _single(rows, try_read).float()
        tolerance = 1e-3 if read_exactly(network) else 5e-2
        _SHARES[network] = bool((ours - theirs).norm() <= tolerance * theirs.norm())
    return _shared(rows, read) if _SHARES[network] else _single(rows, read)


def read_exactly(network: nn.Module) -> bool:
    """Return whether forwards are done in 32 bits."""
    device = next(network.parameters()).device.type
    return next(network.parameters()).dtype == torch.float32 and not torch.is_autocast_enabled(device)


def _may_share(network: nn.Module) -> bool:
    """Return whether attention takes any mask, and no layer looks at the last tokens only."""
    config: Any = causal_lm(network).config.get_text_config()  # type: ignore[union-attr, operator]
    kinds = getattr(config, "layer_types", None)
    looks_back = set(kinds) == {"full_attention"} if kinds else not getattr(config, "sliding_window", None)
    return looks_back and config._attn_implementation == "sdpa"


def _shared(rows: Mapping[str, Tensor], read: Read) -> Tensor:
    part = rows["part"]
    before, after = part[:, None, :], part[:, :, None]
    mask = ((before == after) | (before == 1)) & (before > 0)
    causal = torch.ones_like(mask[0]).tril()
    padding = torch.eye(part.size(1), dtype=torch.bool, device=part.device)  # a row that sees nothing would be NaN
    mask = (mask & causal) | padding
    return _flat(read(rows["ids"], mask[:, None], position_ids=rows["position"]), rows)


def _flat(hidden: Tensor, rows: Mapping[str, Tensor]) -> Tensor:
    return hidden.flatten(0, 1)[rows["before"][rows["before"] >= 0]]


def _single(rows: Mapping[str, Tensor], read: Read) -> Tensor:
    ids, flat = rows["ids"], rows["ids"].flatten()
    prompts = [ids[place][rows["part"][place] == 1].tolist() for place in rows["row"].tolist()]
    answers = [flat[places[places >= 0]].tolist() for places in rows["answer"]]
    padded = right_padded(list(zip(prompts, answers, strict=True)))
    alone, attention, answer = (tensor.to(ids.device) for tensor in padded)
    return read(alone, attention)[:, :-1][answer[:, 1:]]
