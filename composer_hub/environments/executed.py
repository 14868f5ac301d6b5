"""Execute the actions of pairs: pairs, their traces and tasks in, the tests' verdict on either action out.

The state before a step is the one that the rollout recorded, and it is trusted only if the rollout ends with its
recorded reward. Only edits are ordered, and only if one side passes all that the other passes, and more. With
an oracle, calls that no test makes must agree. Without one, an action that changes the tests or their
settings is a hack, because passing tests then prove nothing.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from composer_hub.environments import trees
from composer_hub.environments.coding import CodingEnvironment, CodingOptions, call_id, coding_factory
from composer_hub.environments.guard import Broken
from composer_hub.environments.sandbox import Sandbox, SandboxError, open_sandbox
from composer_hub.environments.shelf import TaskShelf
from composer_hub.environments.verifier import submission, verify
from composer_hub.environments.world import tools_of
from composer_hub.records import Execution, Message, Pair, SourceEdit, Step, Task, ToolCall, Trace

VERDICTS: Mapping[str, str] = {
    "chosen": "the teachers' action passes more",
    "rejected": "the student's action passes more",
    "equal": "both pass the same",
    "tie": "an action changes no file that counts",
    "incomparable": "each side passes something that the other does not, or only visible tests differ",
    "hack": "the action that passes more tampers, or touches the tests or what grades them",
    "no_trace": "the trace is not in the set",
    "no_task": "the trace has no task in the set",
    "no_reward": "the trace does not record its reward",
    "reward_differs": "the trace ends with another reward than it recorded",
    "no_states": "the trace does not record the states before its steps",
    "not_executable": "an action calls a tool that the environment does not have",
    "failed": "the sandbox failed",
}
_SETTINGS = frozenset({"conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml"})
Changes = tuple[SourceEdit, ...]


class _NotExecuted(Exception):
    """A reason of `VERDICTS` for which the pairs of a trace are left alone."""

    def __init__(self, verdict: str, why: str = "") -> None:
        super().__init__(why)
        self.verdict, self.why = verdict, why


@dataclass(frozen=True)
class _History:
    """The states of a rollout, as changes to the task's start."""

    before: Mapping[str, Changes]  # by step
    end: Changes


@dataclass(frozen=True)
class _Side:
    """One executed action."""

    files: trees.Files  # that are judged
    changes: Changes
    passed: frozenset[str]
    hidden: frozenset[int]
    num_hidden: int
    reward: float
    evidence: tuple[str, ...]


def execute_pairs(
    pairs: Iterable[Pair],
    traces: Iterable[Trace],
    shelf: TaskShelf,
    *,
    options: CodingOptions | None = None,
    workers: int = 2,
    on_pair: Callable[[int], None] = lambda number: None,
) -> list[Execution]:
    """Return the tests' verdict on each pair, in order; pairs without a task are not executed."""
    given = list(pairs)
    by_trace: dict[str, list[Pair]] = defaultdict(list)
    for pair in given:
        by_trace[pair.trace_id].append(pair)
    executor = _Executor(shelf, options or CodingOptions())
    done: dict[str, Execution] = {}
    with ThreadPoolExecutor(max(1, workers)) as pool:
        jobs = [pool.submit(executor.trace, one, by_trace[one.trace_id]) for one in traces if one.trace_id in by_trace]
        for job in jobs:
            results = job.result()
            done |= {one.pair_id: one for one in results}
            on_pair(len(results))
    return [done.get(pair.pair_id) or _left(pair, "no_trace") for pair in given]


def _left(pair: Pair, verdict: str, why: str = "", task_id: str = "") -> Execution:
    evidence = (why,) if why else ()
    return Execution(pair.pair_id, pair.trace_id, pair.step_id, verdict, task_id, evidence=evidence)


class _Executor:
    """Environments and sandboxes of the workers, and the sides that were judged before."""

    def __init__(self, shelf: TaskShelf, options: CodingOptions) -> None:
        self.shelf, self.options = shelf, options
        self._make, self._own = coding_factory(shelf, options), threading.local()
        self._judged: dict[tuple[str, str], _Side] = {}

    def trace(self, trace: Trace, pairs: Sequence[Pair]) -> list[Execution]:
        """Execute the pairs of one trace."""
        task_id = str(_episode(trace).get("task_id") or "")
        if task_id not in self.shelf.tasks:
            return [_left(pair, "no_task") for pair in pairs]
        task, found = self.shelf.tasks[task_id], []
        try:
            history = self._history(trace, task)
        except _NotExecuted as error:
            return [_left(pair, error.verdict, error.why, task_id) for pair in pairs]
        except (Broken, SandboxError, trees.TreeError) as error:
            return [_left(pair, "failed", str(error), task_id) for pair in pairs]
        for pair in pairs:
            try:
                found.append(self._pair(pair, task, history))
            except _NotExecuted as error:
                found.append(_left(pair, error.verdict, error.why, task_id))
            except (Broken, SandboxError, trees.TreeError) as error:
                found.append(_left(pair, "failed", str(error), task_id))
        return found

    # ------------------------------------------------------------------------------------------------------- the state

    def _history(self, trace: Trace, task: Task) -> _History:
        """Return the states of a rollout that ends as it was recorded."""
        wanted = _reward_of(trace)
        if wanted is None:
            raise _NotExecuted("no_reward")
        if (history := _recorded(trace)) is None:
            raise _NotExecuted("no_states")
        reward = self._side(task, self._files(task, history.end), history.end).reward
        if reward != wanted:
            raise _NotExecuted("reward_differs", f"{reward:g} instead of {wanted:g}")
        return history

    # ---------------------------------------------------------------------------------------------------- the two sides

    def _pair(self, pair: Pair, task: Task, history: _History) -> Execution:
        if pair.step_id not in history.before:
            raise _NotExecuted("no_trace", "the trace has no such step")
        before = history.before[pair.step_id]
        chosen, rejected = (self._executed(task, before, one) for one in (pair.chosen, pair.rejected))
        verdict = _compared(self._files(task, before), chosen, rejected, self.shelf.oracles.get(task.task_id))
        winner = {"chosen": chosen, "rejected": rejected}.get(verdict)
        evidence = winner.evidence if winner is not None else ()
        if winner is not None and task.task_id not in self.shelf.oracles:
            changed = {edit.path for edit in set(winner.changes) - set(before)}
            evidence = (*evidence, *(f"{path} was changed" for path in sorted(changed) if _decides(task, path)))
        return Execution(
            pair.pair_id,
            pair.trace_id,
            pair.step_id,
            "hack" if evidence else verdict,
            task.task_id,
            num_tests=len(task.fail_to_pass) + len(task.pass_to_pass),
            chosen_passed=len(chosen.passed),
            rejected_passed=len(rejected.passed),
            num_hidden=max(chosen.num_hidden, rejected.num_hidden),
            chosen_hidden=len(chosen.hidden),
            rejected_hidden=len(rejected.hidden),
            chosen_reward=chosen.reward,
            rejected_reward=rejected.reward,
            chosen_tree=trees.digest(chosen.files),
            rejected_tree=trees.digest(rejected.files),
            evidence=evidence,
        )

    def _executed(self, task: Task, before: Changes, action: Sequence[Message]) -> _Side:
        environment = self._environment()
        environment.reset(task_id=task.task_id)
        environment._restore(before)
        for call in (call for message in action for call in message.tool_calls):
            if call.name not in tools_of(environment):
                raise _NotExecuted("not_executable", call.name)
            _called(environment, call)
        changes = environment._calls[-1].changes if environment._calls else before
        return self._side(task, environment._submitted(), changes)

    def _files(self, task: Task, changes: Changes) -> trees.Files:
        return submission(task, trees.edited(self.shelf.start(task), changes))

    def _side(self, task: Task, files: trees.Files, changes: Changes) -> _Side:
        key = (task.task_id, trees.digest(files))
        if key not in self._judged:
            verdict = verify(
                task,
                files,
                self.shelf.bundles[task.bundle_digest],
                self._sandbox(),
                venv=self.shelf.venvs.get(task.bundle_digest),
                oracle=self.shelf.oracles.get(task.task_id),
                seconds=self.options.verify_seconds,
                always_ask=True,
            )
            passed, hidden = frozenset(verdict.passed), frozenset(verdict.hidden)
            self._judged[key] = _Side(
                files, changes, passed, hidden, verdict.num_hidden, verdict.reward, verdict.evidence
            )
        # Files that are not judged, such as settings, may differ between two trees of one digest.
        return dataclasses.replace(self._judged[key], changes=changes)

    def _environment(self) -> CodingEnvironment:
        if not hasattr(self._own, "environment"):
            self._own.environment = self._make()
        return self._own.environment

    def _sandbox(self) -> Sandbox:
        if not hasattr(self._own, "sandbox"):
            self._own.sandbox = open_sandbox(self.options.sandbox)
        return self._own.sandbox


def _decides(task: Task, path: str) -> bool:
    """Return whether a file is a test or a setting of the test runner."""
    return path in task.tests or path.rsplit("/", 1)[-1] in _SETTINGS


def _compared(before: trees.Files, chosen: _Side, rejected: _Side, oracle: Mapping[str, Any] | None) -> str:
    """Return which side is better, or why the two cannot be ordered."""
    if dict(before) in (dict(chosen.files), dict(rejected.files)):
        return "tie"
    if (chosen.passed, chosen.hidden) == (rejected.passed, rejected.hidden):
        return "equal"
    # A table of the visible answers also answers the recorded calls, which come first. So the others decide.
    num_calls = len((oracle or {}).get("calls", ()))
    unseen = frozenset(range(num_calls - (oracle or {}).get("num_unseen", num_calls), chosen.num_hidden))
    for name, one, other in (("chosen", chosen, rejected), ("rejected", rejected, chosen)):
        is_more = one.hidden & unseen > other.hidden & unseen if oracle else one.passed > other.passed
        if is_more and one.passed >= other.passed and one.hidden >= other.hidden:
            return name
    return "incomparable"


# -------------------------------------------------------------------------------------------------------- transcripts


def _episode(trace: Trace) -> Mapping[str, Any]:
    return trace.provenance.get("episode") or {}


def _reward_of(trace: Trace) -> float | None:
    reward = _episode(trace).get("reward")
    if reward is None and trace.resolved is not None:
        reward = float(trace.resolved)
    return None if reward is None else float(reward)


def _calls(trace: Trace, step: Step) -> Iterator[tuple[ToolCall, str]]:
    """Yield the calls of a step with their recorded results; a call without one was not executed."""
    results = [trace.messages[place] for place in step.results]
    named = {one.tool_call_id: one for one in results if one.tool_call_id}
    for number, call in enumerate(trace.messages[step.action].tool_calls):
        result = named.get(call.call_id) or (results[number] if number < len(results) else None)
        if result is not None:
            yield call, result.content


def _recorded(trace: Trace) -> _History | None:
    """Return the states that the environment recorded, if its calls are found in the transcript."""
    episode = _episode(trace)
    if "states" not in episode or "calls" not in episode:
        return None
    states = [
        (int(state["call"]), tuple(SourceEdit(edit["path"], edit["text"]) for edit in state["changes"]))
        for state in episode["states"]
    ]
    calls, before, done = episode["calls"], dict[str, Changes](), 0

    def after(number: int) -> Changes:
        return next((changes for call, changes in reversed(states) if call < number), ())

    for step in trace.steps:
        before[step.step_id] = after(done)
        for call, result in _calls(trace, step):
            # Unknown tools and wrong arguments are answered by the trainer and never reach the environment.
            if done < len(calls) and calls[done] == call_id(call.name, result):
                done += 1
    return _History(before, after(done)) if done == len(calls) else None


def _called(environment: CodingEnvironment, call: ToolCall) -> str | None:
    """Return the result of a call, or None if the environment does not take it."""
    tool = tools_of(environment).get(call.name)
    if tool is None or not isinstance(call.arguments, dict):
        return None
    try:
        return str(tool(**call.arguments))
    except (TypeError, ValueError, AttributeError):  # the trainer answers these itself
        return None
