"""The options that change the policy by which votes become pairs, for `replay` and `pairs build` alike."""

from __future__ import annotations

from typing import Any

import click

from composer_hub.actions.forms import LEVELS
from composer_hub.cli.grouped import grouped


def _changes(
    min_agree: int | None,
    agree_level: str | None,
    veto_level: str | None,
    same_family: bool | None,
    max_prompt_chars: int | None,
) -> dict[str, Any]:
    """Return the fields of a policy that were given."""
    changes = {
        "min_agree": min_agree,
        "agree_level": agree_level,
        "veto_level": veto_level,
        "exclude_same_family": None if same_family is None else not same_family,
        "max_prompt_chars": max_prompt_chars,
    }
    return {name: value for name, value in changes.items() if value is not None}


policy_options = grouped(
    "policy_changes",
    _changes,
    click.option("--min-agree", type=click.IntRange(min=2), help="Teachers that must agree (2)."),
    click.option("--agree-level", type=click.Choice(LEVELS), help="Level at which they must agree (L2)."),
    click.option("--veto-level", type=click.Choice(LEVELS), help="Level at which the student must differ (L3)."),
    click.option("--same-family/--no-same-family", default=None, help="Count teachers of the student's family (no)."),
    click.option("--max-prompt-chars", type=click.IntRange(min=1), help="Leave out steps with longer prompts."),
)
"""Give a command the options of a policy, and pass those that were used as the fields `policy_changes`."""
