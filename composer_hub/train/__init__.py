"""Pairs, traces and environments in, a checkpoint and a card out. The only stage that imports torch.

The names below load torch and TRL when they are first used, not when this package is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from composer_hub.train.answers import answer_tensors
    from composer_hub.train.config import ComposerConfig
    from composer_hub.train.losses import hint_loss
    from composer_hub.train.run.offline import OfflineTrainer
    from composer_hub.train.stream import Stream
    from composer_hub.train.terms import Term
    from composer_hub.train.trainer import ComposerTrainer

__all__ = ["ComposerConfig", "ComposerTrainer", "OfflineTrainer", "Stream", "Term", "answer_tensors", "hint_loss"]
_HOMES = {
    "ComposerConfig": "config",
    "ComposerTrainer": "trainer",
    "OfflineTrainer": "run.offline",
    "Stream": "stream",
    "Term": "terms",
    "answer_tensors": "answers",
    "hint_loss": "losses",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
