"""Scripted teachers answer by rule, for the demo and for tests without a network.

In: the chat and tools of a request, and optionally an oracle made from traces. Out: an action, always the same for the
same prompt and teacher. A teacher is right as often as its `accuracy`. When it errs, it sometimes errs like the others,
as real models do.

The oracle knows the right action. At a step with an error it is the call that later worked, at any other step the
student's own calls. Without an oracle, a teacher looks at the prompt alone: after an error it lists the folder that the
failing call was about, otherwise it takes the next plain step.

Asked as a judge, each of them answers as the labels of the server do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from composer_hub.money import TokenPrice
from composer_hub.pairs.prompts import paired
from composer_hub.pairs.same_effect import PROMPT
from composer_hub.records import ToolCall, Trace, canonical_json, stable_share
from composer_hub.replay.prices import per_million
from composer_hub.replay.prompts import Prompts

Action = Sequence[Mapping[str, Any]] | str
"""The calls of a message, each {"name": …, "arguments": {…}}, or plain text."""


@dataclass(frozen=True, slots=True)
class ScriptedTeacher:
    """One scripted teacher."""

    name: str
    family: str
    accuracy: float
    price: TokenPrice
    shared_errors: float = 0.5  # share of its errors that it has in common with the other teachers
    latency_s: float = 0.0
    context_length: int = 1_000_000
    cache_ttl_s: float = 300.0
    answer_tokens: int = 0  # that it bills per answer, as a model that thinks does (0: those of its text)


SCRIPTED = (
    ScriptedTeacher("small", "scripted-a", 0.75, per_million("0.15", "0.50", "0.03", stamp="embedded")),
    ScriptedTeacher("medium", "scripted-b", 0.85, per_million("1.40", "4.40", "0.26", stamp="embedded")),
    ScriptedTeacher("large", "scripted-c", 0.95, per_million("5", "25", "0.50", "6.25", stamp="embedded")),
)

Oracle = Mapping[str, Action]
"""Digest of a chat -> the right action."""


def oracle_of(traces: Iterable[Trace]) -> dict[str, Action]:
    """Return the right action of every step of some traces."""
    known: dict[str, Action] = {}
    for trace in traces:
        prompts = Prompts(trace)
        for place, step in enumerate(trace.steps):
            known[digest_of(paired(prompts.of(step).chat))] = _right_action(trace, place)
    return known


def _right_action(trace: Trace, place: int) -> Action:
    step = trace.steps[place]
    action = trace.messages[step.action]
    if not action.tool_calls:
        return action.content
    failed = {site.call_id for site in step.error_sites if site.blame == "model"}
    calls = []
    for number, call in enumerate(action.tool_calls):
        # An error of the whole message counts against its first call.
        wrong = call.call_id in failed or (number == 0 and "" in failed)
        right = next(_later_calls(trace, place, call.name), call) if wrong else call
        calls.append({"name": call.name, "arguments": right.arguments})
    return calls


def _later_calls(trace: Trace, place: int, name: str) -> Iterator[ToolCall]:
    """Yield the later calls of a tool that worked."""
    for step in trace.steps[place + 1 :]:
        if not step.error_sites:
            yield from (call for call in trace.messages[step.action].tool_calls if call.name == name)


def digest_of(chat: Sequence[Mapping[str, Any]]) -> str:
    """Return the digest of a chat without its cache marks and call ids."""
    plain = [[m.get("role"), _text(m.get("content")), [c["function"] for c in m.get("tool_calls") or ()]] for m in chat]
    return hashlib.sha256(canonical_json(plain).encode("utf-8", "replace")).hexdigest()


Labels = Mapping[frozenset[str], str]
"""The two actions of a would-be pair, as `same_effect.sides` shows them -> what a judge must say."""

_SIDE = re.compile(r"<<<action [12] (\w+)\n(.*?)\naction [12] \1>>>", re.DOTALL)


def rule(chat: Sequence[Mapping[str, Any]], labels: Labels) -> str:
    """Return the answer to a judge's question, "" if the chat is none; without a label, other texts differ."""
    text = _text(chat[-1].get("content")) if chat else ""
    if len(chat) != 1 or not text.startswith(PROMPT):
        return ""
    sides = frozenset(side for _, side in _SIDE.findall(text))
    same = labels.get(sides, "yes" if len(sides) == 1 else "no")
    return canonical_json({"same": same, "why": "A script says so."})


def act(
    teacher: ScriptedTeacher,
    chat: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    oracle: Oracle,
    draw: int = 0,
    labels: Labels = MappingProxyType({}),
) -> Action:
    """Return the next action of a teacher; another `draw` is another sample for the same prompt."""
    if answer := rule(chat, labels):
        return answer
    digest = digest_of(chat)
    right = oracle.get(digest) or _sensible(chat, tools)
    if _chance(teacher.name, digest, "right", draw) < teacher.accuracy:
        return right
    shared = _chance(teacher.name, digest, "shared", 0) < teacher.shared_errors
    return _wrong(right, "common" if shared else f"{teacher.name}-{draw}")


def _sensible(chat: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Action:
    last = _text(chat[-1].get("content")) if chat else ""
    calls = [call["function"] for message in chat for call in message.get("tool_calls") or ()]
    shell = next(
        (t["function"]["name"] for t in tools if re.search("bash|shell|exec", t["function"]["name"], re.IGNORECASE)), ""
    )
    if re.search(r"(?m)^\S*(Error|error|Exception)\b|No such file|not found", last) and shell:
        paths = re.findall(r"[\w./-]+\.\w+", canonical_json(calls[-1]) if calls else last)
        folder = paths[0].rpartition("/")[0] if paths else ""
        return [{"name": shell, "arguments": {"command": f"ls {folder or '.'}"}}]
    if shell:
        return [{"name": shell, "arguments": {"command": "git status"}}]
    if tools:
        return [{"name": tools[0]["function"]["name"], "arguments": {}}]
    return "There is nothing left to do."


def _wrong(right: Action, variant: str) -> Action:
    if isinstance(right, str):
        return f"{right} ({variant})"
    first, *others = right
    arguments = dict(first["arguments"]) if isinstance(first["arguments"], Mapping) else {}
    texts = [key for key, value in sorted(arguments.items()) if isinstance(value, str)]
    key = texts[0] if texts else "note"
    arguments[key] = f"{arguments.get(key, '')} --{variant}".strip()
    return [{"name": first["name"], "arguments": arguments}, *others]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content)
    return content or ""


def _chance(*parts: Any) -> float:
    return stable_share(repr(parts))
