"""The rows that travel between stages: one frozen dataclass per row, one column per field.

In: nothing but the standard library. Out: `Trace`, `Message`, `Step`, `ErrorSite`, `Hint`, `Vote`, `Pair`, `Task`,
`Execution`, their `datasets.Features` (`features_of`), one function each way between rows and records (`to_row`,
`from_row`), ids made from content (`stable_id`), and `states`, the lazy view of a trace that replay and training read.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import re
import types
import typing
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

if TYPE_CHECKING:
    from datasets import Features

SCHEMA_VERSION = 1
"""Grows when a column is removed or changes its meaning, not for a new column with a default."""

MARKER = "[Earlier messages are left out here.]"
"""Text in the place of messages that a shortened prompt leaves out."""

JsonObject = Annotated[dict[str, Any], "json"]
"""A field whose values have no common type, stored exactly in a JSON column."""


# --------------------------------------------------------------------------------------------------------- messages


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call; `arguments` is the parsed object, or the raw text if it does not parse."""

    name: str
    arguments: Any
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. On the Hub it is one JSON value in the shape that chat templates take."""

    role: str  # system, user, assistant or tool
    content: str = ""  # text of the message
    tool_calls: tuple[ToolCall, ...] = ()  # of an assistant message
    tool_call_id: str = ""  # of the call that a tool message answers
    name: str = ""  # of the tool, on a tool message
    reasoning_content: str = ""  # plain text only; never an empty think block

    def to_chat(self, *, reasoning: bool = True) -> dict[str, Any]:
        """Return the message as chat templates and `DPOTrainer` take it, without empty keys."""
        chat: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            chat["tool_calls"] = [
                {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        for key in ("tool_call_id", "name"):
            if value := getattr(self, key):
                chat[key] = value
        if reasoning and self.reasoning_content:
            chat["reasoning_content"] = self.reasoning_content
        return chat

    @classmethod
    def from_chat(cls, chat: Mapping[str, Any]) -> Message:
        """Read a chat message back; keys with the value None count as absent."""
        calls = tuple(
            ToolCall(
                name=call["function"]["name"],
                arguments=call["function"].get("arguments"),
                call_id=call.get("id") or "",
            )
            for call in chat.get("tool_calls") or ()
        )
        return cls(
            role=chat["role"],
            content=chat.get("content") or "",
            tool_calls=calls,
            tool_call_id=chat.get("tool_call_id") or "",
            name=chat.get("name") or "",
            reasoning_content=chat.get("reasoning_content") or "",
        )


# A block between tags is the harness's, as in "<system-reminder>…</system-reminder>Fix it."; "a <b and c> d" has none.
_BLOCKS = re.compile(r"<([a-zA-Z][\w-]*)\b[^<>]*>.*?</\1>", re.DOTALL)
_MAX_SEARCHED = 10_000  # characters of a message; the search takes their square at worst


def own_words(text: str) -> str:
    """Return the user's own words in a message, without the blocks of its harness."""
    text = text.strip()
    if len(text) > _MAX_SEARCHED and (tag := re.match(r"<([\w-]+)", text)) and text.endswith(f"</{tag[1]}>"):
        return ""  # no person types that much between two blocks
    return _BLOCKS.sub("", text[:_MAX_SEARCHED]).strip()


def strings_in(value: Any) -> Iterator[str]:
    """Yield every text in the values of an argument, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from strings_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from strings_in(item)


# ----------------------------------------------------------------------------------------------- error sites and hints


@dataclass(frozen=True, slots=True)
class ErrorSite:
    """A place in a step where something went wrong, and whose fault it was."""

    kind: str  # such as edit_no_match; docs/reference/errors.md lists them
    blame: str  # model, env, user, harness, provider or outcome; unknown, if nothing proves it
    source: str  # of the evidence: flag, anchor, exit, text or critic
    confidence: float  # 0 to 1
    rule: str  # of the error finder, so that a wrong one can be found
    tool: str = ""  # name of the tool that was called
    call_id: str = ""  # of the failed call
    message: str = ""  # the words of the environment, redacted and short


@dataclass(frozen=True, slots=True)
class Hint:
    """A short text that, shown before the step, would have helped at its error site."""

    text: str  # what the model reads before the step
    writer: str  # such as hindsight; docs/errors_and_hints.md lists them. A user's own writer has its function's name
    rule: str  # which correction, offer or prompt wrote it
    version: int  # of the writer
    kind: str = ""  # of the error site it answers
    call_id: str = ""  # of the failed call


# ----------------------------------------------------------------------------------------------------------- traces


@dataclass(frozen=True, slots=True)
class Step:
    """One API message of the assistant, with the prompt before it and the results after it."""

    step_id: str  # made from the trace and the harness's id of the message
    index: int  # position among the steps of its trace
    action: int  # index of the assistant message in `Trace.messages`
    prompt: tuple[tuple[int, int], ...]  # half-open ranges of `Trace.messages`, in reading order
    results: tuple[int, ...] = ()  # indices of the tool messages that answer the action's calls
    model: str = ""  # that answered
    family: str = ""  # anthropic, openai, …: teachers of the same family do not vote on this step
    reasoning_status: str = "absent"  # plain, summary, encrypted or absent
    prefix_exact: bool = True  # the prompt is what the model read, message by message
    prefix_reason: str = ""  # why the prompt is not exactly what the model read
    on_main_branch: bool = True  # False on a rewound or forked branch
    error_sites: tuple[ErrorSite, ...] = ()  # the errors of this step
    hints: tuple[Hint, ...] = ()  # texts that would have helped

    @property
    def failed_by_provider(self) -> bool:
        """Return whether the provider lost the model's words; nothing is learned from such a step."""
        return any(site.blame == "provider" for site in self.error_sites)


@dataclass(frozen=True, slots=True)
class Trace:
    """One agent session: every distinct message once, and the steps as references into them."""

    trace_id: str  # made from the harness and its session id
    source: str  # the harness: claude_code, codex, …
    session_id: str  # of the harness
    messages: tuple[Message, ...]  # each message of the session once
    steps: tuple[Step, ...]  # messages of the model, with what each of them read
    tools: tuple[JsonObject, ...] = ()  # schemas of the tools
    tools_source: str = "seen"  # of schemas: recorded, known (shipped for the harness) or seen (made from the calls)
    system_prompt_source: str = "recorded"  # recorded or synthetic
    cwd: str = ""  # folder in which the session began
    repository: str = ""  # owner/name, if the harness recorded it
    model: str = ""  # of most steps
    family: str = ""  # of that model: anthropic, openai, …
    resolved: bool | None = None  # whether the task was solved, if the harness recorded it
    parent_trace_id: str = ""  # of a subagent's trace
    spawn_call_id: str = ""  # of the call that started the subagent
    license: str = ""  # of the session's text
    provenance: JsonObject = field(default_factory=dict)  # file digest, harness version
    redaction: str = ""  # digest of the rule set that went over this trace; empty = never redacted
    counts: JsonObject = field(default_factory=dict)  # of steps, errors by kind and blame, and replaced values


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step in the `steps` config, readable without the trace; it omits the prompt."""

    step_id: str  # made from the trace and the harness's id of the message
    trace_id: str  # of the trace that holds the step
    index: int  # position among the steps of its trace
    student_action: str  # text of the model's message
    tool_calls: tuple[JsonObject, ...]  # of the model's message
    results: tuple[str, ...]  # texts that the calls gave
    model: str  # that answered
    family: str  # of that model: anthropic, openai, …
    reasoning_status: str  # plain, summary, encrypted or absent
    prefix_exact: bool  # the prompt is what the model read, message by message
    prefix_reason: str  # why it is not
    on_main_branch: bool  # False on a rewound or forked branch
    num_prompt_messages: int  # messages before the action
    num_prompt_chars: int  # characters of these messages
    error_sites: tuple[ErrorSite, ...]  # the errors of this step
    hints: tuple[Hint, ...]  # texts that would have helped
    source: str  # the harness: claude_code, codex, …
    license: str  # of the session's text


@dataclass(frozen=True, slots=True)
class TraceState:
    """A step's prompt and the student's action, made from a trace on request."""

    state_id: str
    messages: tuple[Message, ...]
    student_action: str
    action: Message
    step: Step


# ------------------------------------------------------------------------------------------------- votes, pairs, tasks


@dataclass(frozen=True, slots=True)
class Vote:
    """One teacher's answer at one step, kept even if it does not count."""

    vote_id: str  # made from the question and the teacher
    trace_id: str  # of the question
    step_id: str  # of the question
    index: int  # position of the step in its trace
    teacher: str  # name in the teachers file or on the command line
    family: str  # of the teacher's model
    status: str  # voted, or why it abstained: length, refusal, …; judged: the answer of the judge to the action
    answer: JsonObject  # the assistant message as it came
    normal_form: str  # the compared text; "" if the teacher abstained; of a judge, the id of the action it is about
    usage: JsonObject = field(default_factory=dict)  # tokens, as the endpoint counted them
    cost_usd: float = 0.0  # the cost of this answer
    cost_source: str = ""  # usage, estimated or price
    cached_tokens: int = 0  # of the prompt, served from the provider's cache
    latency_s: float = 0.0  # seconds until the answer was complete
    provider: str = ""  # that served the answer
    served_model: str = ""  # name in the answer
    request_id: str = ""  # of the provider
    price_stamp: str = ""  # which price list the cost was computed with
    attempt: int = 0  # 1 and more: the same question asked again, for the self-agreement floor
    excluded: str = ""  # why the vote does not count, e.g. same_family
    inclusion: float = 1.0  # probability of the question: below 1 if only the audit asked it


@dataclass(frozen=True, slots=True)
class Pair:
    """A preference of one action over another, ready for `DPOTrainer`."""

    pair_id: str  # made from the step and both answers
    trace_id: str  # of the step
    step_id: str  # at which the student did something else
    index: int  # position of the step in its trace
    num_steps: int  # of that trace
    prompt: tuple[Message, ...]  # the prompt of both answers, maybe as a window
    chosen: tuple[Message, ...]  # the better answer
    rejected: tuple[Message, ...]  # the worse one: the student's own action, unless a reviewer swapped the two
    tools: tuple[JsonObject, ...]  # schemas of the tools that the prompt offers
    level: str = ""  # at which the teachers agree on `chosen`
    num_agree: int = 0  # teachers that agree
    num_votes: int = 0  # votes that count
    teachers: tuple[str, ...] = ()  # that agree
    excluded_teachers: tuple[str, ...] = ()  # whose votes do not count
    families: tuple[str, ...] = ()  # of the teachers that agree
    chosen_teacher: str = ""  # whose words `chosen` has
    source_model: str = ""  # the student: the model of the session
    source_family: str = ""  # of the student
    error_kind: str = ""  # of the step's error site, the model's own first
    after_error: bool = False  # the step before this one went wrong
    resolved: bool | None = None  # whether the task was solved, if the harness recorded it
    chosen_text: str = ""  # `chosen` as one text, for reading and search
    rejected_text: str = ""  # `rejected` as one text
    cost_usd: float = 0.0  # of all votes on this step
    license: str = ""  # of the session's text
    repository: str = ""  # owner/name, if the harness recorded it
    num_left_out: int = 0  # messages that the window of the prompt leaves out
    num_tokens: int = 0  # of prompt, tools and the longer answer, estimated
    num_shortened: int = 0  # messages of the window whose middle is missing
    supported: bool = True  # the prompt shows what `chosen` replaces, the files that it names, and names from earlier
    student_did_later: bool = False  # it takes the chosen action within the next steps, and did nothing wrong here
    bookkeeping: bool = False  # a side only keeps lists: to-dos, tools, titles
    judged: bool = False  # a judge was asked in both orders and found that the effects differ
    judge_answer: str = ""  # no; "" if there is none. Not `judged`, it was asked in one order only
    judge_reason: str = ""  # the judge's sentence
    kind: str = "teachers"  # of the proof: teachers, own_repair (the student's later call worked) or verdict (a review)


@dataclass(frozen=True, slots=True)
class SourceEdit:
    """The new content of one file of a tree; without a text, the file is deleted."""

    path: str  # relative to the root of the tree, with /
    text: str | None  # the whole file; null removes it


@dataclass(frozen=True, slots=True)
class Task:
    """A verifiable task made from a tested package."""

    task_id: str  # made from the content of the task
    kind: str  # stub, cluster, branch, removal, feature, bug, write_tests or commit
    package: str  # name of the package
    version: str  # of the package
    bundle_digest: str  # sha256 of the bundle: the package's original tree as a tar.gz that is the same everywhere
    license: str  # of the package
    copyleft: bool  # whether the license asks for the same license
    statement: str  # what the agent reads
    statements: tuple[str, ...]  # by help level: failures, plus the contract, plus source of failing tests
    help_level: int  # of `statement`
    edits: tuple[SourceEdit, ...]  # the original tree with these is the tree that the agent gets
    solution: tuple[SourceEdit, ...]  # the agent's tree with these is a tree that passes
    editable: tuple[str, ...]  # globs of the files that travel from the agent's tree to the verifier
    tests: tuple[str, ...]  # test files, restored from the bundle before a verification
    fail_to_pass: tuple[str, ...]  # ids of tests: of pytest, or `file::title > title`
    pass_to_pass: tuple[str, ...]  # ids of tests, maybe a selection
    python_path: tuple[str, ...] = (".",)  # folders of the tree that imports start from
    symbols: tuple[str, ...] = ()  # the code that was deleted or changed: package.module:qualname
    difficulty: float = 0.0  # 0 to 1, estimated
    split: str = "train"  # train or test
    seed: int = 0  # of the generator
    generator_version: str = ""  # of the generator
    validation: JsonObject = field(default_factory=dict)  # runs and their CPU time, gates, re-checks
    leaks: JsonObject = field(default_factory=dict)  # copies of the solution that were found, and what was done
    has_oracle: bool = False  # a hidden oracle decides beside the tests
    hidden: tuple[SourceEdit, ...] = ()  # test files that only the verifier has
    commit: str = ""  # that the task was made from
    date: str = ""  # of the commit, YYYY-MM-DD
    num_files: int = 0  # of the solution
    num_lines: int = 0  # of code that is deleted or changed
    language: str = "python"  # or javascript, which TypeScript counts as


@dataclass(frozen=True, slots=True)
class Execution:
    """The tests' verdict on the two actions of a pair, executed in the state before its step."""

    pair_id: str  # of the executed pair
    trace_id: str  # of the rollout
    step_id: str  # of the pair
    verdict: str  # the better one (chosen, rejected), or why neither is: equal, tie, incomparable, no_task, …
    task_id: str = ""  # whose tests decided
    num_tests: int = 0  # tests that ran
    chosen_passed: int = 0  # tests passed after `chosen`
    rejected_passed: int = 0  # tests passed after `rejected`
    num_hidden: int = 0  # calls of the task's oracle
    chosen_hidden: int = 0  # answered right
    rejected_hidden: int = 0  # answered right
    chosen_reward: float = 0.0  # 0 to 1
    rejected_reward: float = 0.0  # 0 to 1
    chosen_tree: str = ""  # digest of the files that are judged
    rejected_tree: str = ""  # the same for `rejected`
    evidence: tuple[str, ...] = ()  # signs of hacks in the action that passed more, or why nothing was executed


# -------------------------------------------------------------------------------------------------------------- ids


def canonical_json(value: Any) -> str:
    """Return the canonical JSON text of a value: sorted keys, no spaces, no escapes of Unicode."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_as_json)


def stable_id(*parts: Any) -> str:
    """Return the id of some content: the same parts give the same 24 hex digits on every machine."""
    text = canonical_json(parts)
    # Lone surrogates occur in real logs and have no UTF-8 form.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def stable_share(text: str) -> float:
    """Hash a text to a number in [0, 1), the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big") / 2**64


def _as_json(value: Any) -> Any:
    if (plain := _plain(value)) is value:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return plain


def clean(value: Any) -> Any:
    """Return a JSON value as every file can hold it: U+FFFD for lone surrogates, None for NaN and infinity."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_in(text: str, brackets: str) -> Any:
    """Return the clean JSON value between the outer brackets of a model's answer, None if there is none."""
    start, end = text.find(brackets[0]), text.rfind(brackets[1])
    try:
        return clean(json.loads(text[start : end + 1])) if 0 <= start < end else None
    except (ValueError, RecursionError):
        return None


# ------------------------------------------------------------------------------------------------------ row <-> record

R = TypeVar("R")


def to_row(record: Any) -> dict[str, Any]:
    """Return the record as the row that goes to the Hub."""
    names = _names_of(type(record))  # type: ignore[arg-type]  # mypy does not see that a class is hashable
    return {name: _plain(getattr(record, name)) for name in names}


@functools.cache
def _names_of(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def from_row(cls: type[R], row: Mapping[str, Any]) -> R:
    """Read a row back; unknown columns are ignored, missing ones take their default."""
    hints = _hints(cls)  # type: ignore[arg-type]  # mypy does not see that a class is hashable
    known = {name: _typed(hints[name], row[name]) for name in hints if name in row}
    return cls(**known)


def misfits(record: Any) -> list[str]:
    """Return the names of the fields of a record whose values have another type than their annotation names."""
    hints = _hints(type(record))  # type: ignore[arg-type]  # as in from_row
    return [name for name, hint in hints.items() if not _fits(hint, getattr(record, name))]


def features_of(cls: type) -> Features:
    """Return the `datasets.Features` of a record class, one column per field."""
    from datasets import Features

    return Features({name: _feature(hint) for name, hint in _hints(cls).items()})


def _plain(value: Any) -> Any:
    if isinstance(value, str | int):  # most values, and the test of a dataclass is slow
        return value
    if isinstance(value, Message):
        return value.to_chat()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_row(value)
    return value


def _typed(hint: Any, value: Any) -> Any:
    if value is None or hint == JsonObject:
        return value
    hint = _without_none(hint)
    if hint is Message:
        return Message.from_chat(value)
    if typing.get_origin(hint) is tuple:
        if isinstance(value, str | Mapping):
            raise TypeError("a list is expected")
        item = typing.get_args(hint)[0]
        return tuple(_typed(item, one) for one in value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise TypeError("an object is expected")
        return from_row(hint, value)
    return value


def _fits(hint: Any, value: Any) -> bool:
    inner = _without_none(hint)
    if value is None:
        return inner is not hint
    if typing.get_origin(inner) is tuple:
        return isinstance(value, tuple) and all(_fits(typing.get_args(inner)[0], one) for one in value)
    if dataclasses.is_dataclass(inner):
        return type(value) is inner and not misfits(value)
    if inner is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is (dict if inner == JsonObject else inner)


def _feature(hint: Any) -> Any:
    from datasets import Json, List, Value

    if hint == JsonObject or hint is Message:
        return Json()
    hint = _without_none(hint)
    if typing.get_origin(hint) is tuple:
        return List(_feature(typing.get_args(hint)[0]))
    if dataclasses.is_dataclass(hint):
        return {name: _feature(inner) for name, inner in _hints(hint).items()}  # type: ignore[arg-type]
    return Value({str: "string", int: "int64", float: "float64", bool: "bool"}[hint])


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


@functools.cache
def _hints(cls: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


# ------------------------------------------------------------------------------------------------------- lazy views


def prompt_of(trace: Trace, step: Step) -> tuple[Message, ...]:
    """Return the messages that the model had read before this step, without the thinking of earlier turns.

    Providers drop that thinking at the next question, and chat templates do the same.
    """
    messages = [message for start, stop in step.prompt for message in trace.messages[start:stop]]
    begin = turn_start(messages)
    return (*map(_without_reasoning, messages[:begin]), *messages[begin:])


def turn_start(messages: Sequence[Message]) -> int:
    """Return the index of the last question; a user message beside results of calls begins no turn."""
    start, ended = 0, True
    for index, message in enumerate(messages):
        if message.role == "assistant":
            ended = not message.tool_calls
        elif message.role == "user" and ended:
            start = index
    return start


def _without_reasoning(message: Message) -> Message:
    return dataclasses.replace(message, reasoning_content="") if message.reasoning_content else message


def states(trace: Trace, *, max_chars: int | None = None) -> Iterator[TraceState]:
    """Yield the state before each step, in order, without prompts longer than `max_chars`."""
    sizes = cumulative_chars(trace) if max_chars is not None else ()
    for step in trace.steps:
        if max_chars is not None and _chars_between(sizes, step.prompt) > max_chars:
            continue
        action = trace.messages[step.action]
        yield TraceState(step.step_id, prompt_of(trace, step), action_text(action), action, step)


def num_prompt_chars(trace: Trace, step: Step) -> int:
    """Count the characters of a step's prompt without building it."""
    return sum(message_chars(trace.messages[i]) for start, stop in step.prompt for i in range(start, stop))


def cumulative_chars(trace: Trace) -> Sequence[int]:
    """Return the characters of the messages before each message, and of all: a prompt is then a few subtractions."""
    return list(itertools.accumulate(map(message_chars, trace.messages), initial=0))


def _chars_between(sizes: Sequence[int], prompt: Ranges) -> int:
    return sum(sizes[stop] - sizes[start] for start, stop in prompt)


def message_chars(message: Message) -> int:
    """Count the characters of a message: its text and its calls."""
    calls = sum(len(call.name) + len(canonical_json(call.arguments)) for call in message.tool_calls)
    return len(message.content) + calls


def action_text(action: Message) -> str:
    """Return the student's action as one text: its words, then one line of JSON per call."""
    calls = [
        json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False) for call in action.tool_calls
    ]
    return "\n".join(part for part in (action.content, *calls) if part)


Ranges = tuple[tuple[int, int], ...]


def ranges(indices: Iterable[int], after: Ranges = ()) -> Ranges:
    """Fold indices into half-open ranges, in the order given, following the ranges `after`."""
    folded = list(after)
    for index in indices:
        if folded and folded[-1][1] == index:
            folded[-1] = (folded[-1][0], index + 1)
        else:
            folded.append((index, index + 1))
    return tuple(folded)


def from_the_end(prompt: Ranges) -> Iterator[int]:
    """Yield the indices of ranges, the last one first."""
    for start, stop in reversed(prompt):
        yield from range(stop - 1, start - 1, -1)


def step_rows(trace: Trace) -> Iterator[StepRow]:
    """Yield the rows of the `steps` config, in time linear in the trace."""
    sizes = cumulative_chars(trace)
    return (step_row(trace, step, sizes) for step in trace.steps)


def step_row(trace: Trace, step: Step, sizes: Sequence[int] = ()) -> StepRow:
    """Return the step's row of the `steps` config; `sizes` is `cumulative_chars` if several rows are made."""
    action = trace.messages[step.action]
    return StepRow(
        step_id=step.step_id,
        trace_id=trace.trace_id,
        index=step.index,
        student_action=action_text(action),
        tool_calls=tuple(action.to_chat().get("tool_calls", ())),
        results=tuple(trace.messages[i].content for i in step.results),
        model=step.model,
        family=step.family,
        reasoning_status=step.reasoning_status,
        prefix_exact=step.prefix_exact,
        prefix_reason=step.prefix_reason,
        on_main_branch=step.on_main_branch,
        num_prompt_messages=sum(stop - start for start, stop in step.prompt),
        num_prompt_chars=_chars_between(sizes, step.prompt) if sizes else num_prompt_chars(trace, step),
        error_sites=step.error_sites,
        hints=step.hints,
        source=trace.source,
        license=trace.license,
    )
