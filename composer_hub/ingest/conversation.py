"""Build a session from messages in the order in which the model read them.

In: the messages of one model's conversation, with `forget` at each compaction. Out: a `Session` with every message
once. Each assistant message is a step, and the view at that moment is its prompt. Harnesses with a tree of messages use
`tree.py` instead.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from composer_hub.harnesses import family_of
from composer_hub.ingest.assemble import TraceFacts, finish_session, system_message
from composer_hub.ingest.foreign import IMAGE
from composer_hub.ingest.report import NAMELESS, FileReport
from composer_hub.records import Message, Ranges, Step, ToolCall, canonical_json, ranges, stable_id
from composer_hub.session import NO_USAGE, ResultFlag, Session, Usage

MISSING = "missing_result"
_THINK_BLOCK = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)


@dataclass(slots=True)
class StepDraft:
    """A step under construction."""

    action: int
    prompt: Ranges
    model: str
    reasoning: str
    reason: str
    main: bool
    key: str
    usage: Usage = NO_USAGE
    results: list[int] = field(default_factory=list)


class Conversation:
    """The messages so far, the part of them in the model's view, and a draft of each step."""

    def __init__(self, report: FileReport, *, interning: bool = False) -> None:
        self._report, self._interning = report, interning
        self.messages: list[Message] = []
        self.flags: dict[int, ResultFlag] = {}
        self.drafts: list[StepDraft] = []
        self.orphans = 0
        self._view: Ranges = ()
        self._callers: dict[str, StepDraft] = {}
        self._waiting: dict[str, int] = {}  # call without a result so far -> the message that makes it
        self._known: dict[str, int] = {}
        self._keys: set[str] = set()
        self._reason = ""

    @property
    def view(self) -> list[int]:
        """The messages the model would read next, by index."""
        return [index for start, stop in self._view for index in range(start, stop)]

    def say(self, message: Message) -> int:
        """Add a message that is not a step: system, user, or a line copied from elsewhere."""
        index = self._append(message)
        self._view = ranges([index], self._view)
        return index

    def act(
        self,
        message: Message,
        *,
        model: str = "",
        reasoning: str = "",
        reason: str = "",
        main: bool = True,
        prompt: Sequence[int] | None = None,
        key: str = "",
        usage: Usage = NO_USAGE,
    ) -> StepDraft:
        """Begin a step: the model read its view (or `prompt`) and wrote this message.

        `key` is the provider's id of the message, if there is one; copies in other files have the same key.
        """
        self.note(self._report.take_unread())
        index = len(self.messages)
        message = _with_ids(self._named_calls(message), index)
        read = self._view if prompt is None else ranges(prompt)
        self.say(message)
        status = "plain" if self.messages[index].reasoning_content else "absent"
        missing = MISSING if prompt is None and self._misses_result(read) else ""
        reasons = [*self._reason.split("; "), *reason.split("; "), missing]
        reason = "; ".join(dict.fromkeys(filter(None, reasons)))
        draft = StepDraft(index, read, model, reasoning or status, reason, main, self._once(key), usage)
        self.drafts.append(draft)
        self._ask(message, draft)
        return draft

    def extend(self, draft: StepDraft, calls: Sequence[ToolCall]) -> None:
        """Add calls to a step whose first ones were answered before the rest was written down."""
        message = self.messages[draft.action]
        self.messages[draft.action] = dataclasses.replace(message, tool_calls=(*message.tool_calls, *calls))
        self._ask(dataclasses.replace(message, tool_calls=tuple(calls)), draft)

    def recall(self, message: Message) -> int:
        """Add an assistant message that is not a step: copied from elsewhere, or written by the harness.

        Its calls may be answered, so that results keep their call.
        """
        index = len(self.messages)
        message = _with_ids(message, index)
        self._ask(message, StepDraft(index, (), "", "", "", True, ""))
        return self.say(message)

    def answer(self, message: Message, flag: ResultFlag | None = None) -> int | None:
        """Attach a tool's result to its call; a result without a call is dropped and counted."""
        message = message if message.tool_call_id else self._adopted(message)
        draft = self._callers.get(message.tool_call_id)
        if draft is None:
            self.orphans += 1
            self.note("orphan_result")
            return None
        return self._result(draft, self._named(draft, message), flag)

    def observe(self, message: Message, flag: ResultFlag | None = None) -> int:
        """Attach an observation of a text protocol to the last step; before any step it is a plain message."""
        return self._result(self.drafts[-1], message, flag) if self.drafts else self.say(message)

    def forget(self, keep: Iterable[int]) -> None:
        """Keep only these messages in view, in this order."""
        self._view = ranges(keep)

    def note(self, reason: str) -> None:
        """Record why later prompts are not exact."""
        if reason and reason not in self._reason.split("; "):
            self._reason = "; ".join(filter(None, [self._reason, reason]))

    def intern(self, message: Message) -> int:
        """Return the index of the first equal message, or of a new one; the view does not change."""
        index = self._known.get(_key(_without_think_block(message)))
        return self._append(message) if index is None else index

    def answer_to(self, draft: StepDraft, message: Message, flag: ResultFlag | None = None) -> int:
        """Attach a result to a step regardless of its call id; the view does not change."""
        index = self._append(message)
        draft.results.append(index)
        if flag:
            self.flags[index] = flag
        return index

    def _append(self, message: Message) -> int:
        message = _without_think_block(message)
        if message.role != "assistant" and IMAGE in message.content and IMAGE in message.content.split("\n"):
            self.note("image_left_out")
        self.messages.append(message)
        if self._interning:
            self._known.setdefault(_key(message), len(self.messages) - 1)
        return len(self.messages) - 1

    def _ask(self, message: Message, draft: StepDraft) -> None:
        for call in message.tool_calls:
            self._callers[call.call_id] = draft
            self._waiting[call.call_id] = draft.action

    def _misses_result(self, read: Ranges) -> bool:
        """Return whether a call in these messages lacks the result that the model read."""
        return any(start <= action < stop for action in self._waiting.values() for start, stop in read)

    def _result(self, draft: StepDraft, message: Message, flag: ResultFlag | None) -> int:
        index = self.say(message)
        for call in self.messages[draft.action].tool_calls:
            # In a text protocol one observation answers the whole message.
            if message.role != "tool" or call.call_id == message.tool_call_id:
                self._waiting.pop(call.call_id, None)
        draft.results.append(index)
        if flag:
            self.flags[index] = flag
        return index

    def _settle(self) -> None:
        """Turn a tool's answer to a call that does not exist (as in broken inputs) into a plain message."""
        called = {call.call_id for message in self.messages for call in message.tool_calls}
        for index, message in enumerate(self.messages):
            if message.role == "tool" and message.tool_call_id not in called:
                self.messages[index] = Message("user", message.content)
                self.orphans += 1
        for draft in self.drafts:
            ids = {call.call_id for call in self.messages[draft.action].tool_calls}
            draft.results = [at for at in draft.results if self.messages[at].role == "user" or self._id(at) in ids]

    def _leave_out_empty(self) -> None:
        """Drop steps without text and calls; later prompts still show their message, as the model read it."""
        filled = [
            bool(self.messages[draft.action].content or self.messages[draft.action].tool_calls) for draft in self.drafts
        ]
        self._report.add("empty_actions", filled.count(False))
        self.drafts = [draft for draft, is_filled in zip(self.drafts, filled, strict=True) if is_filled]

    def _id(self, index: int) -> str:
        return self.messages[index].tool_call_id

    def _once(self, key: str) -> str:
        """Return the key of a step, and "" for a second step under the same one."""
        known = key in self._keys
        self._keys.add(key)
        return "" if known else key

    def _named_calls(self, message: Message) -> Message:
        """Leave out calls without a name: no tool was asked for, and no template can write them."""
        calls = tuple(call for call in message.tool_calls if call.name)
        if len(calls) == len(message.tool_calls):
            return message
        self._report.unknown(NAMELESS)
        self.note(self._report.take_unread())
        return dataclasses.replace(message, tool_calls=calls)

    def _named(self, draft: StepDraft, message: Message) -> Message:
        if message.name:
            return message
        calls = self.messages[draft.action].tool_calls
        name = next(call.name for call in calls if call.call_id == message.tool_call_id)
        return dataclasses.replace(message, name=name)

    def _adopted(self, message: Message) -> Message:
        """Give a result without an id to the first unanswered call of the last step."""
        if not self.drafts:
            return message
        draft = self.drafts[-1]
        answered = {self.messages[index].tool_call_id for index in draft.results}
        calls = self.messages[draft.action].tool_calls
        free = (call.call_id for call in calls if call.call_id not in answered)
        return dataclasses.replace(message, tool_call_id=next(free, ""))

    def session(
        self,
        *,
        source: str,
        session_id: str = "",
        name: str = "",
        model: str = "",
        whole: bool = False,
        **facts: Any,
    ) -> Session | None:
        """Return the session, or None without a step.

        `session_id` is for harnesses with unique ids. A `name`, such as a task's, gets a digest of the content
        appended, since one task is solved many times. `model` is for steps that name none. `whole` means that the log
        has everything that the model read, so no system prompt is made up. `facts` are those of `TraceFacts`.
        """
        self._settle()
        self._leave_out_empty()
        self._report.take_unread()  # after the last step, nothing was lost
        if self.orphans:
            self._report.add("orphan_results", self.orphans)
        recorded = whole or any(message.role == "system" for message in self.messages)
        session_id = session_id or "-".join(filter(None, [name, stable_id(*self.messages)[:12]]))
        facts["provenance"] = {name: fact for name, fact in facts.get("provenance", {}).items() if fact}
        trace_facts = TraceFacts(source, session_id, **facts)
        if not recorded:
            self._prepend(system_message(trace_facts))
        trace_id = trace_facts.trace_id()
        steps = [self._step(trace_id, number, draft, model) for number, draft in enumerate(self.drafts)]
        keys = [f"{source}:{draft.key}" if draft.key else "" for draft in self.drafts]
        system = "recorded" if recorded else "synthetic"
        usages = [draft.usage for draft in self.drafts]
        return finish_session(trace_facts, tuple(self.messages), steps, keys, self.flags, system, usages, self._report)

    def _step(self, trace_id: str, number: int, draft: StepDraft, model: str) -> Step:
        return Step(
            step_id=stable_id("step", trace_id, draft.key or number),
            index=number,
            action=draft.action,
            prompt=draft.prompt,
            results=tuple(draft.results),
            model=draft.model or model,
            family=family_of(draft.model or model),
            reasoning_status=draft.reasoning,
            prefix_exact=not draft.reason,
            prefix_reason=draft.reason,
            on_main_branch=draft.main,
        )

    def _prepend(self, message: Message) -> None:
        """Insert a message before all others and move every reference up by one."""
        self.messages.insert(0, message)
        self.flags = {index + 1: flag for index, flag in self.flags.items()}
        for draft in self.drafts:
            draft.action += 1
            draft.results = [index + 1 for index in draft.results]
            moved = [(start + 1, stop + 1) for start, stop in draft.prompt]
            first = (0, moved[0][1]) if moved and moved[0][0] == 1 else None
            draft.prompt = (first, *moved[1:]) if first else ((0, 1), *moved)


def _without_think_block(message: Message) -> Message:
    """Move a `<think>…</think>` block at the start of the text to `reasoning_content`."""
    block = _THINK_BLOCK.match(message.content) if message.role == "assistant" else None
    if block is None:
        return message
    thinking = message.reasoning_content or block.group(1).strip()
    return dataclasses.replace(message, content=message.content[block.end() :], reasoning_content=thinking)


def _key(message: Message) -> str:
    return canonical_json(message.to_chat())


def _with_ids(message: Message, action: int) -> Message:
    """Give an id to calls without one, so that results can name them."""
    if all(call.call_id for call in message.tool_calls):
        return message
    calls = tuple(
        call if call.call_id else dataclasses.replace(call, call_id=f"call-{action}-{number}")
        for number, call in enumerate(message.tool_calls)
    )
    return dataclasses.replace(message, tool_calls=calls)
