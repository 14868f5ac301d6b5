"""What a run says about itself, under stable names: means over all ranks.

In: numbers as each rank found them. Out: entries of the trainer's metrics, the same on every rank.
"""

from __future__ import annotations

from typing import Any

import torch


def note_means(accelerator: Any, metrics: dict[str, list[float]], values: dict[str, Any]) -> None:
    """Log the mean of each metric over all ranks; every rank must come here with the same names.

    A name without a number on any rank is left out.
    """
    device = accelerator.device
    flat = [torch.as_tensor(value, device=device, dtype=torch.float64) for value in values.values()]
    local = torch.stack([torch.stack([v.sum(), torch.tensor(float(v.numel()), device=device)]) for v in flat])
    totals = accelerator.reduce(local, reduction="sum").tolist()
    for name, (total, count) in zip(values, totals, strict=True):
        if count:
            metrics[name].append(total / count)
