"""The languages whose packages give tasks; the first that claims a tree has it."""

from __future__ import annotations

from composer_hub.tasks.javascript import JavaScript
from composer_hub.tasks.language import Language
from composer_hub.tasks.python import Python

PYTHON = Python()
LANGUAGES: tuple[Language, ...] = (JavaScript(), PYTHON)
