"""Sessions in, traces with error sites out: `find_errors` marks every step that went wrong with a kind of `KINDS`."""

from composer_hub.errors.find import find_errors
from composer_hub.errors.vocabulary import KINDS

__all__ = ["KINDS", "find_errors"]
