"""The one error of training, in a separate file because loss terms need nothing else of the checks."""

from __future__ import annotations

from composer_hub import exits


class TrainerError(exits.ComposerError, ValueError):
    """A run that cannot be done with these options."""
