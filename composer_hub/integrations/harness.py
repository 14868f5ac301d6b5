"""Rollouts of real harnesses (OpenCode, Pi, Claude Code …) that TRL's asynchronous GRPO drives, as traces with hints.

In: the calls that OpenEnv's capture proxy recorded, each with the token ids of its prompt and of its answer. Out:
`Trace`s like those of exported rollouts, with the sampled ids, error sites and hints, for `hint_source: traces`.

    from composer_hub.integrations.harness import recorded
    worker = HarnessRolloutWorker(..., harness_session_factory=recorded(factory, "rollouts", facts))

Nothing is tokenized here. OpenEnv is not imported: its sessions come in as arguments.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from composer_hub.hints.writers import DEFAULT_WRITERS, HintWriter, write_hints
from composer_hub.records import Trace, to_row
from composer_hub.train.rollouts import SOURCE, Rollout
from composer_hub.train.run.export import RolloutFile, RunFacts, Scored, to_trace

NOT_TRAINABLE = "the capture does not allow training on this turn"


class CapturedTurn(Protocol):
    """One call of the model, as OpenEnv's `TrainingTurn` has it."""

    @property
    def prompt_token_ids(self) -> Sequence[int]: ...
    @property
    def completion_token_ids(self) -> Sequence[int]: ...
    @property
    def per_token_logps(self) -> Sequence[float]: ...
    @property
    def loss_mask(self) -> Sequence[int]: ...  # over prompt and completion
    @property
    def request(self) -> Mapping[str, Any]: ...
    @property
    def response(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class CapturedChat:
    """Captured turns of which each continues the tokens of the one before."""

    rollout: Rollout
    prompt: Sequence[Mapping[str, Any]]
    tools: tuple[dict[str, Any], ...]
    logps: Sequence[float | None]  # of the completion; None where nothing was sampled
    masked: frozenset[int]  # turns that must not be learned from


def conversations(
    turns: Iterable[CapturedTurn], decode: Callable[[Sequence[int]], str], *, source: str = SOURCE
) -> list[CapturedChat]:
    """Return the conversations of a captured rollout; a rewritten history begins another one, as in TRL."""
    chains: list[list[CapturedTurn]] = []
    after: list[Sequence[Mapping[str, Any]]] = []  # results that only the prompt of the next conversation has
    for turn in turns:
        news = _news(chains[-1][-1], turn) if chains else []
        if chains and _continues(chains[-1][-1], turn, news):
            chains[-1].append(turn)
            after[-1] = ()
        else:
            if chains:
                after[-1] = list(itertools.takewhile(lambda message: message["role"] == "tool", news))
            chains.append([turn])
            after.append(())
    return [_conversation(chain, rest, decode, source) for chain, rest in zip(chains, after, strict=True)]


def captured_traces(
    turns: Iterable[CapturedTurn],
    decode: Callable[[Sequence[int]], str],
    run: RunFacts,
    scored: Scored,
    *,
    source: str = SOURCE,
    writers: Sequence[HintWriter] = DEFAULT_WRITERS,
) -> Iterator[Trace]:
    """Yield each conversation with its error sites and hints; `scored` counts on from its place."""
    for number, talk in enumerate(conversations(turns, decode, source=source)):
        facts = replace(scored, prompt=talk.prompt, place=scored.place + number)
        facts = replace(facts, logps=talk.logps, logps_source="sampling")
        trace = to_trace(talk.rollout, facts, replace(run, tools=talk.tools))
        steps = (
            replace(step, prefix_exact=False, prefix_reason=NOT_TRAINABLE) if step.index in talk.masked else step
            for step in trace.steps
        )
        trace = write_hints(replace(trace, steps=tuple(steps)), writers)
        names = [hint.writer for step in trace.steps for hint in step.hints]
        yield replace(trace, provenance=trace.provenance | {"writers": names})


def _news(before: CapturedTurn, turn: CapturedTurn) -> list[Mapping[str, Any]]:
    """Return the messages between two calls; nothing if the second does not repeat the messages of the first."""
    known = len(_messages(before))
    if list(_messages(turn)[:known]) != list(_messages(before)):
        return []
    news = _messages(turn)[known:]
    # The harness repeats the answer, some in several messages; the captured one is what the tokens say.
    return list(itertools.dropwhile(lambda message: message["role"] == "assistant", news))


def _continues(before: CapturedTurn, turn: CapturedTurn, news: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a call has the tokens of another before its own, and one message for each span of them."""
    known = [*before.prompt_token_ids, *before.completion_token_ids]
    if len(turn.prompt_token_ids) <= len(known) or list(turn.prompt_token_ids[: len(known)]) != known:
        return False
    return bool(news) and all(message["role"] != "assistant" for message in news)


def _conversation(
    chain: Sequence[CapturedTurn],
    rest: Sequence[Mapping[str, Any]],
    decode: Callable[[Sequence[int]], str],
    source: str,
) -> CapturedChat:
    first = chain[0]
    completion: list[int] = []
    mask: list[int] = []
    logps: list[float | None] = []
    messages: list[Mapping[str, Any]] = []
    masked: set[int] = set()
    before: CapturedTurn | None = None
    for number, turn in enumerate(chain):
        if before is not None:
            between = turn.prompt_token_ids[len(before.prompt_token_ids) + len(before.completion_token_ids) :]
            completion += between
            mask += [0] * len(between)
            logps += [None] * len(between)
            messages += _news(before, turn)
        completion += turn.completion_token_ids
        mask += [1] * len(turn.completion_token_ids)
        logps += turn.per_token_logps
        messages.append({"content": "", **_choice(turn).get("message", {}), "role": "assistant"})
        if not all(turn.loss_mask[len(turn.prompt_token_ids) :]):
            masked.add(number)
        before = turn
    messages += rest
    # A harness that stopped leaves its last calls unanswered; nothing was dropped.
    rollout = Rollout.of(
        list(first.prompt_token_ids),
        completion,
        mask,
        messages,
        decode,
        rounds_used_up=True,
        cut_off=_choice(chain[-1]).get("finish_reason") == "length",
        source=source,
    )
    return CapturedChat(rollout, _messages(first), tuple(first.request.get("tools") or ()), logps, frozenset(masked))


def _messages(turn: CapturedTurn) -> Sequence[Mapping[str, Any]]:
    return turn.request.get("messages") or ()


def _choice(turn: CapturedTurn) -> Mapping[str, Any]:
    return (turn.response.get("choices") or [{}])[0]


# ---------------------------------------------------------------------------------------------------------- recording


@dataclass(frozen=True)
class Recorded:
    """A session factory whose sessions write their rollouts to a folder; TRL's worker process gets it pickled."""

    make: Callable[..., Any]  # of TRL's `harness_session_factory`: options -> OpenEnv's factory of sessions
    folder: Path
    run: RunFacts
    decode: Callable[[Sequence[int]], str]
    source: str = SOURCE
    writers: tuple[HintWriter, ...] = DEFAULT_WRITERS

    def __call__(self, **options: Any) -> RecordingFactory:
        return RecordingFactory(self.make(**options), self)


def recorded(
    make: Callable[..., Any],
    folder: str | Path,
    run: RunFacts,
    decode: Callable[[Sequence[int]], str],
    *,
    source: str = SOURCE,
    writers: Sequence[HintWriter] = DEFAULT_WRITERS,
) -> Recorded:
    """Return a factory for TRL's `HarnessRolloutWorker` that keeps every captured rollout as traces in a folder.

    `source` is the name of the harness, whose rules then find the errors. `read_rollouts` and `publish_rollouts` of
    `composer_hub.train.run.export` read the folder.
    """
    return Recorded(make, Path(folder), run, decode, source, tuple(writers))


@dataclass(eq=False)
class RecordingFactory:
    """OpenEnv's factory, with sessions that are recorded."""

    inner: Any
    how: Recorded
    _file: RolloutFile = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)  # TRL runs sessions in threads
    _places: Counter[int] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self._file = RolloutFile(self.how.folder, self.how.run)

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> RecordedSession:
        """Create a session; `seed` is the number of TRL's group."""
        return RecordedSession(self.inner.create(task, seed=seed, episode_id=episode_id), self, seed or 0)

    def write(self, session: RecordedSession) -> None:
        """Append the traces of a session that ended."""
        how, group = self.how, session.group
        with self._lock:
            scored = Scored((), group, self._places[group], {"harness_reward": session.reward}, None)
            traces = captured_traces(session.turns, how.decode, how.run, scored, source=how.source, writers=how.writers)
            rows = [to_row(trace) for trace in traces]
            self._places[group] += len(rows)
            if rows:
                self._file.write(0, rows)


@dataclass(eq=False)  # TRL keeps sessions in a set
class RecordedSession:
    """A session of OpenEnv that remembers its capture and its reward."""

    inner: Any
    factory: RecordingFactory
    group: int
    turns: Sequence[CapturedTurn] = ()
    reward: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        """Wait for the harness."""
        return self.inner.wait_for_completion(*([] if timeout_s is None else [timeout_s]))

    def fetch_training_trace(self) -> Any:
        """Return the capture, and remember it."""
        trace = self.inner.fetch_training_trace()
        self.turns = trace.turns
        return trace

    def verify(self, transcript: Any, final_state: Any = None) -> Any:
        """Return the result of the session, and remember its reward."""
        result = self.inner.verify(transcript, final_state)
        self.reward = None if result.env_reward is None else float(result.env_reward)
        return result

    def close(self) -> None:
        """Write what was captured, also if the session could not be scored, and close it."""
        turns = self.turns
        try:
            if turns:
                self.factory.write(self)
                self.turns = ()
        finally:
            self.inner.close()
