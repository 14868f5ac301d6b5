"""The YAML head of a README as the Hub reads it: text in, metadata, tags and complaints out. Nothing here raises."""

from __future__ import annotations

import math
import re
from typing import Any

_HEAD = re.compile(r"\s*---[ \t]*\r?\n(.*?)\r?\n?---[ \t]*(?:\r?\n|$)", re.DOTALL)
_MAX_VALUES, _MAX_DEPTH = 100_000, 50
_TAG_KEYS = (("license", "license"), ("language", "language"), ("task_categories", "task_categories"))
_MORE_TAG_KEYS = (("size_categories", "size_categories"), ("datasets", "dataset"), ("base_model", "base_model"))


def card_of(readme: bytes) -> dict[str, Any]:
    """Return the metadata of a README, or an empty one if it is missing or unreadable."""
    metadata, _ = _parse(readme.decode("utf-8", "replace"))
    return _as_json(metadata, [_MAX_VALUES]) if isinstance(metadata, dict) else {}


def tags_of(card: dict[str, Any]) -> list[str]:
    """Return the tags that the Hub's lists filter by."""
    tags = [str(tag) for tag in _listed(card.get("tags"))]
    for key, prefix in (*_TAG_KEYS, *_MORE_TAG_KEYS):
        tags += [f"{prefix}:{value}" for value in _listed(card.get(key))]
    tags += [str(card[key]) for key in ("library_name", "pipeline_tag") if isinstance(card.get(key), str)]
    return list(dict.fromkeys([*tags, "region:us"]))


def card_errors(readme: str, kind: str) -> tuple[list[str], list[str]]:
    """Return errors and warnings about the metadata of a README."""
    metadata, problem = _parse(readme)
    if problem:
        return [problem], []
    if not metadata:
        return [], ["empty or missing yaml metadata in repo card"]
    if not isinstance(metadata, dict):
        return ["the metadata must be an object"], []
    errors = [
        f'"{key}" must be a text or a list of texts' for key in ("license", "language") if _is_odd(metadata.get(key))
    ]
    if kind == "model" and not isinstance(metadata.get("model-index", []), list):
        errors.append('"model-index" must be an array')
    if kind == "dataset" and not isinstance(metadata.get("configs", []), list):
        errors.append('"configs" must be an array')
    return errors, []


def _parse(readme: str) -> tuple[Any, str]:
    import yaml

    found = _HEAD.match(readme)
    if not found:
        return None, ""
    try:
        return yaml.load(found.group(1), getattr(yaml, "CSafeLoader", yaml.SafeLoader)), ""
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return None, f"Invalid YAML: {error}"


def _as_json(value: Any, left: list[int], depth: int = 0) -> Any:
    """Return only what JSON can say, dates as texts; `left` counts down, as aliases can make little text endless."""
    left[0] -= 1
    if left[0] < 0 or depth > _MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {str(key): _as_json(item, left, depth + 1) for key, item in value.items() if left[0] > 0}
    if isinstance(value, list):
        return [_as_json(item, left, depth + 1) for item in value if left[0] > 0]
    is_plain = isinstance(value, (str, int)) or value is None or (isinstance(value, float) and math.isfinite(value))
    return value if is_plain else str(value)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_odd(value: Any) -> bool:
    return not all(isinstance(item, (str, bool)) for item in _listed(value))
