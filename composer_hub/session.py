"""A session as a reader returns it: the trace, and side data that is used once and then dropped."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from composer_hub.records import Trace


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
        """An empty flag is false, so that readers can leave it out."""
        return self != _NOTHING


_NOTHING = ResultFlag()


@dataclass(frozen=True, slots=True)
class Session:
    """One trace with its side data, which is never published.

    `flags` maps an index of `trace.messages` to the harness's facts about that tool result, or about an action that the
    provider cut off. `keys` has one string per step, the same in every copy of the step ("" = none). `is_prepared`
    marks a trace that was published before: it keeps its error sites and hints. `secrets` are the values (with labels)
    that redaction found here and that other sessions may repeat; `samples` show replaced values to a person.
    """

    trace: Trace
    flags: dict[int, ResultFlag] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    is_prepared: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    samples: tuple[Any, ...] = field(default=(), repr=False)

    def with_trace(self, trace: Trace) -> Session:
        """Return the session with another version of the same trace (same messages, same steps)."""
        return dataclasses.replace(self, trace=trace)

    def without_steps(self, dropped: Callable[[str], bool]) -> Session:
        """Drop the steps whose key matches; their messages stay, since later prompts show them."""
        kept = [(step, key) for step, key in zip(self.trace.steps, self.keys, strict=True) if not dropped(key)]
        if len(kept) == len(self.trace.steps):
            return self
        steps = tuple(dataclasses.replace(step, index=index) for index, (step, _) in enumerate(kept))
        counts = {**self.trace.counts, "num_steps": len(steps)}
        trace = dataclasses.replace(self.trace, steps=steps, counts=counts)
        return dataclasses.replace(self, trace=trace, keys=tuple(key for _, key in kept))
