"""The options that change the policy by which votes become pairs, for `replay` and `pairs build` alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from composer_hub.actions.forms import LEVELS

_OPTIONS = (
    click.option("--min-agree", type=click.IntRange(min=2), help="Teachers that must agree (2)."),
    click.option("--agree-level", type=click.Choice(LEVELS), help="Level at which they must agree (L2)."),
    click.option("--veto-level", type=click.Choice(LEVELS), help="Level at which the student must differ (L3)."),
    click.option("--same-family/--no-same-family", default=None, help="Count teachers of the student's family (no)."),
    click.option("--max-prompt-chars", type=click.IntRange(min=1), help="Leave out steps with longer prompts."),
)


def policy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a policy and pass it those that were used, as the fields `policy_changes`."""

    @functools.wraps(command)
    def wrapped(*args: Any, same_family: bool | None, **kwargs: Any) -> Any:
        changes = {name: kwargs.pop(name) for name in ("min_agree", "agree_level", "veto_level", "max_prompt_chars")}
        changes["exclude_same_family"] = None if same_family is None else not same_family
        used = {name: value for name, value in changes.items() if value is not None}
        return command(*args, policy_changes=used, **kwargs)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
