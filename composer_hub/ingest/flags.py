"""What a harness itself said about one result: typed fields only, never a guess from the text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResultFlag:
    """The typed facts that a session file records beside a tool result, or beside an action the provider cut off.

    `status` is one word: completed, failed, interrupted, cancelled, denied, timeout, truncated, refused, provider_error
    or "". `detail` is the harness's own word for it, e.g. the kind of denial.
    """

    is_error: bool | None = None
    exit_code: int | None = None
    status: str = ""
    detail: str = ""

    def __bool__(self) -> bool:
        """A flag that says nothing is false, so readers can leave it out."""
        return self != _NOTHING


_NOTHING = ResultFlag()
