"""Live rollouts as traces, so that they take the same path to errors and hints as recorded sessions.

In: the output of TRL's tool loop (token ids, tool mask, messages). Out: a `Rollout` whose `trace` has the
error sites that `errors.find` sees in it. The tool loop is a harness like any other: its exceptions, tool
markup that did not parse and results that it dropped become typed flags. Their rules begin with `rollout.`.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from composer_hub.actions.arguments import parsed_arguments
from composer_hub.actions.tools import family_of_tool
from composer_hub.environments.guard import is_lost, loss_in
from composer_hub.errors.excerpts import excerpt
from composer_hub.errors.find import find_errors
from composer_hub.errors.rules import canonical_kind
from composer_hub.errors.vocabulary import KINDS
from composer_hub.records import ErrorSite, Message, Step, ToolCall, Trace, canonical_json, clean
from composer_hub.session import ResultFlag, Session
from composer_hub.train.failure import TrainerError

SOURCE = "composer_rollout"
# The beginnings of a call in the templates of Qwen and GLM, Qwen3-Coder, Mistral, Kimi, gpt-oss, DeepSeek and
# Llama 3.x. Some Llama models write the call as bare JSON.
_MARKUP = re.compile(
    r"<tool_call>|<function=|\[TOOL_CALLS\]|<\|tool_call|<\|channel\|>commentary to=|to=functions\.\w|<\|call\|>"
    r"|<\uff5ctool\u2581call|<\uff5cDSML\uff5c|<\|python_tag\|>"
    r'|^\s*\{\s*(?:"type":\s*"function",\s*)?"name":\s*"[\w.-]+",\s*"(?:parameters|arguments)"'
)
_WRONG_ARGUMENTS = ("positional argument", "unexpected keyword argument", "validation error")


@dataclass(frozen=True)
class Rollout:
    """One rollout as the tool loop left it."""

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    tool_mask: Sequence[int]  # 1 on tokens that the model sampled
    messages: Sequence[Mapping[str, Any]]  # of the completion: assistant and tool messages
    rounds_used_up: bool = False  # the loop ended because no further round of tools was allowed
    cut_off: bool = False  # the last turn ran out of tokens
    texts: Mapping[int, str] | None = None  # turn -> its text with markup; None: the content of its message
    reasons: Mapping[int, str] = field(default_factory=dict)  # message -> the environment's reason why its call failed
    source: str = SOURCE  # the harness, if it was not TRL's tool loop

    @classmethod
    def of(
        cls,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        tool_mask: Sequence[int],
        messages: Sequence[Mapping[str, Any]],
        decode: Callable[[Sequence[int]], str],
        *,
        rounds_used_up: bool = False,
        cut_off: bool = False,
        error_finders: Sequence[ErrorFinder] = (),
        source: str = SOURCE,
    ) -> Rollout:
        """Make a rollout; `decode` turns the tokens of turns without calls into text."""
        rollout = cls(prompt_ids, completion_ids, tool_mask, messages, rounds_used_up, cut_off, source=source)
        if error_finders:
            rollout = replace(rollout, reasons=dict(_reasons(messages, error_finders)))
        texts = {
            turn: decode(completion_ids[slice(*span)])
            for turn, (message, span) in enumerate(zip(rollout._turns(), rollout.spans, strict=False))
            if not message.get("tool_calls")
        }
        return replace(rollout, texts=texts)

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """The spans of `completion_ids` that the model sampled: the n-th belongs to the n-th assistant message."""
        mask = [0, *self.tool_mask, 0]
        edges = [place for place in range(len(mask) - 1) if mask[place] != mask[place + 1]]
        return list(zip(edges[::2], edges[1::2], strict=True))

    @cached_property
    def trace(self) -> Trace:
        """The completion as a trace: one step per turn, with its error sites. Identity and prompt are not set."""
        messages = tuple(_messages(self.messages))
        trace = Trace("", self.source, "", messages, tuple(self._steps(messages)), tools_source="recorded")
        session = Session(_as_read(trace), self._flags(trace))
        return _with_own_sites(self, replace(trace, steps=find_errors(session, text_rules=True).steps))

    @cached_property
    def read(self) -> Trace:
        """The trace with the output of failed commands in place of what wraps it, which rules and writers read."""
        return _as_read(self.trace)

    def tokens(self, step: Step) -> tuple[Sequence[int], Sequence[int]]:
        """Return the tokens before a step whose prefix is exact, and its own."""
        start, stop = self.spans[step.index]
        return [*self.prompt_ids, *self.completion_ids[:start]], self.completion_ids[start:stop]

    @property
    def num_dropped_calls(self) -> int:
        """Count the calls of the last turn if they were executed but their results did not fit."""
        steps = self.trace.steps
        if not steps or all(site.rule != "rollout.dropped_result" for site in steps[-1].error_sites):
            return 0
        return len(self.trace.messages[steps[-1].action].tool_calls)

    def _turns(self) -> Iterator[Mapping[str, Any]]:
        return (message for message in self.messages if message["role"] == "assistant")

    def _steps(self, messages: Sequence[Message]) -> Iterator[Step]:
        actions = [place for place, message in enumerate(messages) if message.role == "assistant"]
        for index, (action, stop) in enumerate(itertools.pairwise([*actions, len(messages)])):
            known = index < len(self.spans)
            yield Step(
                step_id="",
                index=index,
                action=action,
                prompt=((0, action),),
                results=tuple(place for place in range(action + 1, stop) if messages[place].role == "tool"),
                prefix_exact=known,
                prefix_reason="" if known else "the turn has no sampled tokens",
            )

    def _flags(self, trace: Trace) -> dict[int, ResultFlag]:
        flags = {}
        for place, message in enumerate(trace.messages):
            if (text := _raised(message)) is not None:
                # A tool that raises what a command printed is read like one that returns it.
                flags[place] = _shown(text, message.name) or ResultFlag(
                    is_error=True, status=_kind_of(text, message.name)
                )
            elif place in self.reasons:
                reason = canonical_kind(self.reasons[place])
                # Words of the environment are about what the model did, unless they name another kind.
                flags[place] = ResultFlag(is_error=True, status=reason if reason in KINDS else "runtime_exception")
            elif message.role == "tool" and (flag := failure_in(message)) is not None:
                flags[place] = flag
        # TRL takes such a turn for plain text: it sends no tool message, counts no failure and ends the rollout.
        malformed = (step.action for step in trace.steps if self._markup(trace, step))
        return flags | dict.fromkeys(malformed, ResultFlag(status="json_decode"))

    def _markup(self, trace: Trace, step: Step) -> str:
        """Return the text of a turn whose tool markup did not parse, or nothing."""
        if trace.messages[step.action].tool_calls or (self.cut_off and step.index == len(trace.steps) - 1):
            return ""  # a call that ran out of tokens was not written wrongly
        texts = self.texts
        text = trace.messages[step.action].content if texts is None else texts.get(step.index, "")
        return text if _MARKUP.search(text) else ""


ErrorFinder = Callable[[str, Any, str], "str | None"]
"""(tool, arguments, result) -> why the call failed: a kind of `errors.KINDS`, or any words; None if it worked."""


def error_finders(environment: Any, own: ErrorFinder | None = None) -> tuple[ErrorFinder, ...]:
    """Return how failed calls are recognized beside the built-in rules: by a function, and by the environment."""
    found = [own] if own else []
    if hasattr(type(environment), "_failed") and not is_lost(environment):  # the name that guarded environments give it
        found.append(lambda tool, arguments, result: None if is_lost(environment) else environment._failed(result))
    return tuple(found)


def _reason_of(finder: ErrorFinder, tool: str, arguments: Any, result: str) -> str | None:
    try:
        return finder(tool, arguments, result)
    except Exception as error:
        raise TrainerError(
            f"The error finder or the environment's `failed` raised {type(error).__name__}: {error}, at a result "
            f"of {tool}. Fix it and continue with --resume true."
        ) from error


def _reasons(messages: Sequence[Mapping[str, Any]], finders: Sequence[ErrorFinder]) -> Iterator[tuple[int, str]]:
    """Yield the results that mean a failed call, with the first reason that a finder gives."""
    calls: dict[str, ToolCall] = {}
    for place, message in enumerate(_messages(messages)):
        calls |= {call.call_id: call for call in message.tool_calls}
        if message.role == "tool":
            call = calls.get(message.tool_call_id)
            arguments = call.arguments if call else {}
            found = (_reason_of(finder, message.name, arguments, message.content) for finder in finders)
            if reason := next(filter(None, found), None):
                yield place, str(reason)


_CODE_KEYS = ("exit_code", "exitcode", "exitCode", "return_code", "returncode", "returnCode")
_CODE_LINE = re.compile(
    r"^\W{0,3}(?:(?:command|process) )?(?:exit(?:ed)?(?: with)?(?: (?:code|status))?|return[ _]?code)"
    r"\W{0,3}(\d{1,3})\W{0,3}$",
    re.IGNORECASE,
)
_CODE_WORD = re.compile(r"^[(\[](?:exit(?:ed)?(?: (?:code|status))?|return code)[: ]{1,2}(\d{1,3})[)\]]", re.IGNORECASE)
_FAILED_TEST = re.compile(r"(?:^|\n)(?:FAILED|ERROR) [\w./-]+(?:::[^\n]*)?(?: - [^\n]*)?(?=\n|$)")


def failure_in(message: Message) -> ResultFlag | None:
    """Return the flag of a failed call that a user's tool shows: exit code, failed tests, no effect."""
    text, code = message.content.strip(), _code_of(_object_in(message.content))
    if code:
        return ResultFlag(exit_code=code)
    if text.startswith("No replacement was performed"):
        return ResultFlag(is_error=True, status="edit_no_match")
    lines = text.splitlines()
    for line in dict.fromkeys([*lines[:1], *lines[-1:]]):
        if (match := _CODE_LINE.match(line[:80]) or _CODE_WORD.match(line[:80])) and int(match[1]):
            return ResultFlag(exit_code=int(match[1]))
    if _FAILED_TEST.search(text[-4000:]) and family_of_tool(message.name, {}) not in ("read", "search", "edit"):
        return ResultFlag(is_error=True, status="test_failure")
    return None


def _object_in(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            return json.loads(text)
    return {}


def _code_of(result: Mapping[str, Any]) -> int:
    codes = (result.get(key) for key in _CODE_KEYS)
    return next((one for one in codes if isinstance(one, int) and not isinstance(one, bool)), 0)


def _shown(raised: str, tool: str) -> ResultFlag | None:
    """Return the flag of an exception whose text shows a failure, as a returned result would."""
    return None if loss_in(raised) else failure_in(Message("tool", raised, name=tool))


_OUTPUT = ("output", "stdout", "stderr", "error", "message")


def _unpacked(message: Message) -> Message:
    """Return the result of a failed call as its words if it is JSON or was raised, because the rules read lines."""
    raised = _raised(message)
    if raised is not None:
        return _unpacked(replace(message, content=raised)) if _shown(raised, message.name) else message
    result = _object_in(message.content) if message.role == "tool" else {}
    if not _code_of(result):
        return message
    named = [result[key] for key in _OUTPUT if result.get(key)]
    parts = named or [value for value in result.values() if isinstance(value, str)]
    return replace(message, content="\n".join(str(part).strip() for part in parts))


def _as_read(trace: Trace) -> Trace:
    return replace(trace, messages=tuple(map(_unpacked, trace.messages)))


def num_rounds(messages: Sequence[Mapping[str, Any]]) -> int:
    """Count the rounds of tool calls that were answered."""
    return sum(
        message["role"] == "tool" and messages[index - 1]["role"] == "assistant"
        for index, message in enumerate(messages)
    )


# ------------------------------------------------------------------------------------------------------- messages


def message_of(chat: Mapping[str, Any]) -> Message:
    """Read a chat message of the tool loop."""
    content = chat.get("content")
    text = content if isinstance(content, str) else canonical_json(content) if content else ""
    return Message(
        role=chat["role"],
        content=clean(text),
        tool_calls=tuple(_call(call) for call in chat.get("tool_calls") or ()),
        name=str(chat.get("name") or ""),
        reasoning_content=clean(str(chat.get("reasoning_content") or chat.get("thinking") or "")),
    )


def _messages(chats: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    """Yield the messages with call ids: TRL keeps none, and answers of asynchronous tools come last."""
    numbers, waiting = itertools.count(1), list[tuple[str, ToolCall]]()  # with the id that a harness gave
    for chat in chats:
        message = message_of(chat)
        if message.role == "assistant":
            waiting = [(call.call_id, replace(call, call_id=f"call_{next(numbers)}")) for call in message.tool_calls]
            yield replace(message, tool_calls=tuple(call for _, call in waiting))
        elif message.role == "tool":
            given = chat.get("tool_call_id")
            pairs = (pair for pair in waiting if (pair[0] == given if given else pair[1].name == message.name))
            pair = next(pairs, None)
            waiting = [one for one in waiting if one is not pair]
            call = pair[1] if pair else ToolCall(message.name, {})
            yield replace(message, tool_call_id=call.call_id, name=message.name or call.name)
        else:
            yield message


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function") or call
    read = ToolCall(str(function.get("name", "")), clean(function.get("arguments") or {}), str(call.get("id") or ""))
    arguments = parsed_arguments(read)
    return read if arguments is None else replace(read, arguments=arguments)


# ---------------------------------------------------------------------------------------------- the loop's own errors


def _raised(message: Message) -> str | None:
    """Return the text of an exception that the tool loop reports, or None if the tool itself answered."""
    if message.role != "tool" or not message.content.startswith("{'error': "):
        return None
    try:
        value = ast.literal_eval(message.content)
    except (ValueError, SyntaxError):
        return None
    return str(value["error"]) if isinstance(value, dict) and set(value) == {"error"} else None


def _kind_of(raised: str, tool: str) -> str:
    if loss_in(raised) is not None:
        return "sandbox_unavailable"
    if raised == f"Tool {tool} not found.":
        return "tool_not_found"
    return "schema_validation" if any(words in raised for words in _WRONG_ARGUMENTS) else "runtime_exception"


def _with_own_sites(rollout: Rollout, trace: Trace) -> Trace:
    steps = (replace(step, error_sites=tuple(_own_sites(rollout, trace, step))) for step in trace.steps)
    return replace(trace, steps=tuple(steps))


def _own_sites(rollout: Rollout, trace: Trace, step: Step) -> Iterator[ErrorSite]:
    """Give the sites that come from the loop itself its words and rules, and read what a missing result means."""
    raised = {trace.messages[place].tool_call_id: _raised(trace.messages[place]) for place in step.results}
    reasons = {trace.messages[place].tool_call_id: rollout.reasons.get(place) for place in step.results}
    calls = trace.messages[step.action].tool_calls
    for site in step.error_sites:
        text = raised.get(site.call_id)
        if site.rule == "derived.no_result":
            is_last = step.index == len(trace.steps) - 1
            if is_last and not step.results and not rollout.rounds_used_up and site.call_id == calls[0].call_id:
                yield _dropped(site)
        elif not site.call_id and site.rule == "flag.json_decode":
            yield replace(site, rule="rollout.malformed_call", message=excerpt(rollout._markup(trace, step)))
        elif text is not None and site.rule.startswith("flag."):
            lost = loss_in(text)
            kind, blame = (lost, "env") if lost else (site.kind, site.blame)
            rule = "rollout.environment_lost" if lost else f"rollout.{kind}"
            yield replace(site, kind=kind, blame=blame, rule=rule, message=text if lost else excerpt(text))
        elif (reason := reasons.get(site.call_id)) and site.rule.startswith("flag."):
            words = "" if canonical_kind(reason) in KINDS else f"{reason}\n"
            # The environment itself reports that the call was wrong, which is all the proof that blame needs.
            blame = "model" if site.blame == "unknown" else site.blame
            yield replace(site, rule="rollout.environment_said", blame=blame, message=excerpt(words + site.message))
        else:
            yield site


def _dropped(site: ErrorSite) -> ErrorSite:
    text = f"The result of {site.tool} did not fit into the rollout and was dropped."
    return replace(site, kind="output_limit", blame="model", rule="rollout.dropped_result", message=text)
