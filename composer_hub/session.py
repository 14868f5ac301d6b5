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
class Usage:
    """The tokens of one model call, 0 if they are not recorded, and when it was made.

    `context` is all that was read; `read` of it came from a cache, `write` and `write_hour` went into one for five
    minutes or for an hour.
    """

    context: int = 0
    output: int = 0
    read: int = 0
    write: int = 0
    write_hour: int = 0
    is_open: bool = False  # the log may have counted only the first words of the output
    at: str = ""  # as the file writes it: ISO 8601, or milliseconds since 1970

    @property
    def input(self) -> int:
        """Return the input tokens that neither came from a cache nor went into one."""
        return max(0, self.context - self.read - self.write - self.write_hour)

    def __or__(self, other: Usage) -> Usage:
        """Join the usage of two copies or pieces of one message, which may have been counted before it was whole."""
        whole = any(one.output and not one.is_open for one in (self, other))
        return Usage(
            max(self.context, other.context),
            max(self.output, other.output),
            max(self.read, other.read),
            max(self.write, other.write),
            max(self.write_hour, other.write_hour),
            (self.is_open or other.is_open) and not whole,
            min(filter(None, (self.at, other.at)), default=""),
        )


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class Thought:
    """A message of a model that holds only thinking: it is not a step, but its tokens were read and written."""

    key: str  # the same in every copy
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Session:
    """One trace with its side data, which is never published.

    `flags` maps an index of `trace.messages` to the harness's facts about that tool result, or about an action that the
    provider cut off. `keys` has one string per step, the same in every copy of the step ("" = none), and `usages`
    the tokens of each step, or nothing. `thoughts` are messages without text or calls. `is_prepared` marks a trace
    that was published before: it keeps its error sites and hints. `secrets` are the values (with labels) that redaction
    found here and that other sessions may repeat; `samples` show replaced values to a person.
    """

    trace: Trace
    flags: dict[int, ResultFlag] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    usages: tuple[Usage, ...] = ()
    thoughts: tuple[Thought, ...] = ()
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
        usages = tuple(usage for usage, key in zip(self.usages, self.keys, strict=False) if not dropped(key))
        return dataclasses.replace(self, trace=trace, keys=tuple(key for _, key in kept), usages=usages)
