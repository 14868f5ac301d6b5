"""The judge and the critic, paid through a ledger: a priced endpoint with a separate cap."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from composer_hub import exits
from composer_hub.hints.critic import MAX_TOKENS as CRITIC_TOKENS
from composer_hub.hints.critic import Critic
from composer_hub.hints.judge import MAX_TOKENS, Answer, CachedModel, Judge
from composer_hub.money import cap_of
from composer_hub.records import stable_id
from composer_hub.replay.ledger import Busy, Ledger, Question, Stored
from composer_hub.replay.prices import parse_given
from composer_hub.replay.teachers import Teacher, fetch_models, key_of, parse_names, resolve

# Text has at most one token per byte in any tokenizer in use; the rest is room for the chat template.
_TEMPLATE_TOKENS = 200


M = TypeVar("M", bound=CachedModel)


def judge_of(address: str, max_usd: float | None, folder: Path, **given: Collection[str]) -> Judge:
    """Return the judge at an address such as `hf:org/model:provider` or `URL#model`; `given` as in `paid_model`."""
    return paid_model(Judge, "judge", address, max_usd, folder, MAX_TOKENS, **given)


def critic_of(address: str, max_usd: float | None, folder: Path, **given: Collection[str]) -> Critic:
    """Return the critic at an address; its cap and its cache are its own."""
    return paid_model(Critic, "critic", address, max_usd, folder, CRITIC_TOKENS, **given)


def paid_model(
    kind: type[M],
    name: str,
    address: str,
    max_usd: float | None,
    folder: Path,
    max_tokens: int,
    *,
    given_prices: Collection[str] = (),
    accepted: Collection[str] = (),
) -> M:
    """Return a model that is asked through its own ledger in a folder, with its own cap and cache.

    Prices and accepted terms are those of `find_teachers`, for the teacher `name`.
    """
    if max_usd is None:
        raise exits.UsageError(f"A {name} costs money. Give its cap with --{name}-max-usd.")
    spec, *others = parse_names(address)
    if others:
        raise exits.UsageError(f"--{name} takes one model.")
    given = parse_given([*given_prices], today=date.today().isoformat())
    (teacher,) = resolve([{**spec, "name": name}], list_models=fetch_models, given=given, accepted=accepted)
    folder.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(folder / f"{name}.sqlite", cap=cap_of(max_usd, f"--{name}-max-usd"), change_cap=True)
    return kind(
        teacher.model_id,
        base_url=teacher.base_url,
        token=key_of(teacher),
        cache_dir=folder / name,
        budget=paid_by(ledger, teacher, max_tokens),
        max_tokens=max_tokens,
    )


def paid_by(
    ledger: Ledger, teacher: Teacher, max_tokens: int = MAX_TOKENS
) -> Callable[[str, Callable[[], Answer]], Answer]:
    """Return a budget that reserves the worst case of each question before it is sent, and settles its cost after."""

    def ask(prompt: str, send: Callable[[], Answer]) -> Answer:
        question = Question(stable_id("judge", teacher.route, prompt), teacher.name, "", "")
        worst = teacher.price.worst_case(len(prompt.encode()) + _TEMPLATE_TOKENS, max_tokens)
        reserved = ledger.reserve(question, worst, price_stamp=teacher.price.stamp)
        if isinstance(reserved, Stored):
            return Answer(json.loads(reserved.response)["text"] if reserved.response else "")
        if isinstance(reserved, Busy):
            return Answer("")
        try:
            answer = send()
        except Exception as error:
            # It may have been billed, so the worst case stays counted.
            ledger.fail(reserved.try_id, type(error).__name__, cost=None)
            raise
        ledger.settle(
            reserved.try_id,
            json.dumps({"text": answer.text, "usage": answer.usage}).encode(),
            cost=_cost(answer.usage, teacher),
            cost_source="price",
            prompt_tokens=int(answer.usage.get("prompt_tokens") or 0),
        )
        return answer

    return ask


def _cost(usage: dict[str, Any], teacher: Teacher) -> int | None:
    if "prompt_tokens" not in usage:
        return None
    return teacher.price.cost(int(usage["prompt_tokens"]), int(usage.get("completion_tokens") or 0))
