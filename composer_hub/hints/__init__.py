"""Error sites in, hints out.

`write_hints` gives every error site that is the model's fault a short text that would have helped. Writers are
functions `SiteContext -> Hint | None`.
"""

from composer_hub.errors.context import SiteContext
from composer_hub.hints.critic import Critic, criticized
from composer_hub.hints.judge import Judge
from composer_hub.hints.writers import (
    DEFAULT_WRITERS,
    LIVE_WRITERS,
    HintWriter,
    control_hint,
    hint_coverage,
    write_hint,
    write_hints,
    writers_named,
)

__all__ = [
    "DEFAULT_WRITERS",
    "LIVE_WRITERS",
    "Critic",
    "HintWriter",
    "Judge",
    "SiteContext",
    "control_hint",
    "criticized",
    "hint_coverage",
    "write_hint",
    "write_hints",
    "writers_named",
]
