"""Check the options of this room before torch is imported: option values in, sentences on problems out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from composer_hub import exits
from composer_hub.hub.refs import check_repo

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,38}")
NAME_WORDS = "{!r} is not a worker's name. Use up to 39 lower-case letters, digits and hyphens."


def problems(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each option that cannot work."""
    if values["optimizer"] == "muon" and values["use_peft"]:
        yield (
            "Muon orthogonalizes the step of a whole matrix, but LoRA trains its two factors. Set use_peft to false, "
            "or optimizer to optim."
        )
    if values["outer_momentum"] == 1:
        yield "outer_momentum is below 1."
    if values["federation"]:
        yield from _federation(values)
    elif values["worker"]:
        yield "worker is a name in a federation. Name --federation owner/name, or leave it out."


def _federation(values: Mapping[str, Any]) -> Iterator[str]:
    try:
        check_repo(values["federation"])
    except exits.ComposerError as error:
        yield str(error)
    if not values["worker"]:
        yield "A federation knows its workers by name. Name this one with --worker."
    elif not NAME.fullmatch(values["worker"]):
        yield NAME_WORDS.format(values["worker"])
    if not values["use_peft"]:
        yield "A federation trains an adapter. Add --use_peft true."
    if values["sync_every"]:
        yield "sync_every is for the ranks of one job, and a federation has rounds. Set one of the two."
    if values["to"] not in ("local", "hub"):
        yield "The workers of a federation meet at a Hub, not in a folder. Set --to local or hub."
    if values["federation"] in (values["repo"], values["checkpoints_repo"]):
        yield "federation is the repository of another kind of model. Name one that nothing else publishes to."
    if values["max_steps"] < 1 or (values["rounds"] > 0 and values["max_steps"] % values["rounds"]):
        yield f"max_steps is {values['max_steps']}, which {values['rounds']} rounds cannot share. Set a multiple."
