"""From a plain list of messages to a `Session`: for formats without branches, where all that came before was read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from composer_hub.ingest.families import family_of
from composer_hub.ingest.flags import ResultFlag
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.session import Session, TraceFacts, finish_session, system_message
from composer_hub.records import Message, Step, stable_id


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a chat-like format, and what is known about it."""

    message: Message
    flag: ResultFlag | None = None
    model: str = ""
    reasoning_status: str = ""  # "" = plain where there is reasoning text, else absent
    is_target: bool = True
    key: str = ""  # the API message's id, where the format has one
    inexact: str = ""  # why prompts from here down are not exactly what the model read


def linear_session(said: Iterable[Said], facts: TraceFacts, report: FileReport) -> Session | None:
    """Build the session of a format without branches: every assistant message is a step that read all before it."""
    items = list(said)
    has_system = bool(items) and items[0].message.role == "system"
    if not has_system and items:
        items.insert(0, Said(system_message(facts)))
    pool = tuple(item.message for item in items)
    steps: list[Step] = []
    keys: list[str] = []
    reasons: tuple[str, ...] = ()
    trace_id = facts.trace_id()
    for at, item in enumerate(items):
        if item.inexact and item.inexact not in reasons:
            reasons = (*reasons, item.inexact)
        if item.message.role != "assistant" or not item.is_target:
            continue
        status = item.reasoning_status or ("plain" if item.message.reasoning_content else "absent")
        steps.append(
            Step(
                step_id=stable_id("step", trace_id, item.key or at),
                index=len(steps),
                action=at,
                prompt=((0, at),) if at else (),
                results=_answers(pool, at),
                model=item.model,
                family=family_of(item.model),
                reasoning_status=status,
                prefix_exact=not reasons,
                prefix_reason="; ".join(reasons),
            )
        )
        keys.append(f"{facts.source}:{item.key}" if item.key else "")
    flags = {at: item.flag for at, item in enumerate(items) if item.flag}
    source = "recorded" if has_system or facts.system_prompt else "synthetic"
    return finish_session(facts, pool, steps, keys, flags, source, report)


def _answers(pool: Sequence[Message], action: int) -> tuple[int, ...]:
    """Return the tool messages between an action and the next assistant message that answer the action's calls."""
    ids = {call.call_id for call in pool[action].tool_calls}
    found = []
    for at in range(action + 1, len(pool)):
        if pool[at].role == "assistant":
            break
        if pool[at].role == "tool" and (not pool[at].tool_call_id or pool[at].tool_call_id in ids):
            found.append(at)
    return tuple(found)
