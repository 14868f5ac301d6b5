"""Whether a teacher's terms allow training on its answers.

In: a model id and its entry in the endpoint's list. Out: `Terms`, and `Refused` for a teacher whose terms forbid it or
are unknown, unless the user accepted them with `--accept-terms`.

The table was compared with the published licenses and terms on the date below. Terms change, so every run records the
reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from composer_hub import exits

TABLE_DATE = "2026-11-15"

# Part of the model's name -> license. The first match counts.
OPEN_WEIGHTS: tuple[tuple[str, str], ...] = (
    ("gpt-oss", "Apache-2.0"),
    ("deepseek", "MIT"),
    ("glm-", "MIT"),
    ("kimi-", "modified MIT"),
    ("qwen", "Apache-2.0"),
    ("smollm", "Apache-2.0"),
    ("olmo", "Apache-2.0"),
)

FORBIDDING_FAMILIES: Mapping[str, str] = {
    "anthropic": "Anthropic's terms forbid training competing models on its outputs",
    "openai": "OpenAI's terms forbid training competing models on its outputs",
    "google": "Google's terms restrict training on Gemini outputs",
    "xai": "xAI's terms forbid training competing models on its outputs",
}


@dataclass(frozen=True, slots=True)
class Terms:
    """Whether answers may be trained on (None: unknown), and the source of that."""

    trainable: bool | None
    reason: str


def terms_of(model: str, family: str, entry: Mapping[str, Any], *, own_endpoint: bool) -> Terms:
    """Return the terms by the endpoint's flag, else by the license table, else by the family."""
    flag = entry.get("is_trainable_text")
    if isinstance(flag, bool):
        return Terms(flag, f"is_trainable_text = {str(flag).lower()} in the endpoint's list")
    name = model.rsplit("/", 1)[-1].lower()
    for part, license in OPEN_WEIGHTS:
        if part in name:
            return Terms(True, f"{license} weights (table of {TABLE_DATE})")
    if family in FORBIDDING_FAMILIES:
        return Terms(False, f"{FORBIDDING_FAMILIES[family]} (table of {TABLE_DATE})")
    if own_endpoint:
        return Terms(True, "served on this machine")
    return Terms(None, "its license and terms are unknown")


def check(name: str, terms: Terms, accepted: Collection[str]) -> None:
    """Refuse a teacher that may not be trained on, unless its terms were accepted by name."""
    if terms.trainable or name in accepted:
        return
    raise exits.Refused(
        f"Teacher {name}: {terms.reason}. If you hold other rights, give --accept-terms {name}; otherwise leave it out."
    )
