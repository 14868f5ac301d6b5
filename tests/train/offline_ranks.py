"""Offline steps on uneven rows, as one rank of several or alone: run by `two_ranks.py` and by `test_ranks.py`."""

from __future__ import annotations

import copy
import dataclasses
import os
from pathlib import Path
from typing import Any

import torch

from composer_hub.train.batch import HintSite
from composer_hub.train.hint_term import TraceLoader
from composer_hub.train.run.offline import OfflineTrainer
from tests.train.runs import config_of, pairs_of
from tests.train.test_trace_sites import encoder_of, trace_of


def trained(world: Any, folder: Path, *, batch: int, silent: int | None = None) -> tuple[Any, dict[str, float]]:
    """Train a step and return the sum of the weights on each rank and what was logged."""
    rank, num_ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    where = {"rank": rank, "num_ranks": num_ranks}
    options: dict[str, Any] = {"alpha_sdpo": 0.5, "hint_source": "traces", "beta_replay": 0.2}
    if num_ranks > 1:
        options["ddp_backend"] = "gloo"
    trainer = OfflineTrainer(
        model=copy.deepcopy(world[0]),
        args=config_of(folder, max_steps=1, **options),
        processing_class=world[1],
        traces=TraceLoader(sites(world, idle=rank == silent), batch, **where),
        pairs=pairs_of(world[1], batch_size=batch, **where),
    )
    trainer.hinter = dataclasses.replace(trainer.hinter, refused=frozenset({("idle", "tool_not_found")}))
    trainer.train()
    total = torch.stack([value.double().abs().sum() for value in trainer.model.parameters()]).sum()
    return trainer.accelerator.gather(total[None]), next(row for row in trainer.state.log_history if "grad_norm" in row)


def sites(world: Any, *, idle: bool) -> list[HintSite]:
    """Return five sites of uneven length; those that are idle have a hint of a refused writer."""
    (site,) = encoder_of(world).encode([trace_of()]).sites
    rows = [dataclasses.replace(site, action_ids=site.action_ids[: 4 + 2 * number]) for number in range(5)]
    refused = dataclasses.replace(site.hint, writer="idle")
    return [dataclasses.replace(row, hint=refused) for row in rows] if idle else rows
