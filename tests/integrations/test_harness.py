"""Captured rollouts of a harness become traces whose hint sites have the sampled ids.

The calls are those of a scripted harness. With openenv, they go through its capture proxy and TRL's reconciliation;
without it, a part of the tests asks the same engine directly.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import multiprocessing
import os
import pickle
import queue
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.integrations.harness import NOT_TRAINABLE, captured_traces, conversations, recorded  # noqa: E402
from composer_hub.records import Trace  # noqa: E402
from composer_hub.train.run.export import RunFacts, Scored, read_rollouts  # noqa: E402
from composer_hub.train.tokens import tokenizer_digest  # noqa: E402
from composer_hub.train.trace_sites import Student, TraceEncoder  # noqa: E402
from tests.integrations import scripted_harness  # noqa: E402
from tests.integrations.engine import completion, serving  # noqa: E402

HARNESS = Path(scripted_harness.__file__)
QUESTION = "What is 2+5?"


def facts_of(world: Any) -> RunFacts:
    return RunFacts("run", "me/student", "0" * 40, tokenizer=tokenizer_digest(world[1]), family="qwen")


def turns_of(world: Any, *options: str, keeps: bool = True) -> list[Any]:
    """Return what a proxy would capture between the scripted harness and the engine."""
    turns: list[Any] = []

    def ask(url: str, key: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        request = copy.deepcopy({"model": "student", "messages": messages, "tools": [scripted_harness.ADD]})
        answer = completion(world, request, keeps=keeps)
        choice, prompt = answer["choices"][0], answer["prompt_token_ids"]
        ids, logps = choice["token_ids"], [one["logprob"] for one in choice["logprobs"]["content"]]
        mask = [0] * len(prompt) + [1] * len(ids)
        turns.append(
            SimpleNamespace(
                prompt_token_ids=prompt, completion_token_ids=ids, per_token_logps=logps, loss_mask=mask,
                request=request, response={"choices": [choice]},
            )
        )  # fmt: skip
        return choice["message"]

    names = dict(vars(scripted_harness)) | {"asked": ask, "__name__": "harness"}
    exec(compile(HARNESS.read_text(), str(HARNESS), "exec"), names)
    names["asked"] = ask
    names["main"]("", "", QUESTION, *options)
    return turns


def traces_of(world: Any, turns: list[Any], **options: Any) -> list[Trace]:
    scored = Scored((), 0, 0, {"harness_reward": 1.0}, None)
    return list(captured_traces(turns, world[1].decode, facts_of(world), scored, **options))


def encoder_of(world: Any) -> TraceEncoder:
    return TraceEncoder.of(copy.deepcopy(world[1]), Student("me/student", "qwen"), max_tokens=1024)


def test_a_captured_rollout_is_one_trace_with_its_calls_results_and_reward(world: Any) -> None:
    (trace,) = traces_of(world, turns_of(world))
    assert [message.role for message in trace.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [len(step.results) for step in trace.steps] == [1, 1, 0]
    assert trace.messages[trace.steps[1].results[0]].name == "add"
    assert trace.messages[-1].content == "7"
    assert trace.tools == (scripted_harness.ADD,)
    assert trace.provenance["rewards"] == {"harness_reward": 1.0}


def test_the_hint_site_of_a_captured_turn_has_the_ids_that_were_sampled(world: Any) -> None:
    turns = turns_of(world)
    (trace,) = traces_of(world, turns)
    assert [site.rule for step in trace.steps for site in step.error_sites] == ["rollout.tool_not_found"]
    found = encoder_of(world).encode([trace])
    (site,) = found.sites
    assert site.is_exact
    assert list(site.prefix_ids) == turns[0].prompt_token_ids
    assert list(site.action_ids) == turns[0].completion_token_ids
    assert list(site.corrected_ids) == turns[1].completion_token_ids
    assert "`add`" in world[1].decode(site.hinted_ids)


def test_log_probs_stand_at_their_tokens(world: Any) -> None:
    turns = turns_of(world)
    (trace,) = traces_of(world, turns)
    logps, ids = trace.provenance["logps"], trace.provenance["completion_ids"]
    assert len(logps) == len(ids)
    for (start, stop), turn in zip(trace.provenance["turns"], turns, strict=True):
        assert ids[start:stop] == turn.completion_token_ids
        assert logps[start:stop] == turn.per_token_logps
    assert sum(one is None for one in logps) == trace.provenance["tool_mask"].count(0)


def test_a_history_that_the_harness_rewrote_begins_another_trace(world: Any) -> None:
    turns = turns_of(world, "--compact")
    first, second = traces_of(world, turns)
    assert (len(first.steps), len(second.steps)) == (2, 1)
    assert first.trace_id != second.trace_id
    assert second.provenance["prompt_ids"] == turns[2].prompt_token_ids
    (site,) = encoder_of(world).encode([first, second]).sites
    assert list(site.action_ids) == turns[0].completion_token_ids


def test_a_turn_that_the_capture_excludes_gets_no_hint_site(world: Any) -> None:
    turns = turns_of(world)
    turns[0].loss_mask[-1] = 0
    (trace,) = traces_of(world, turns)
    assert trace.steps[0].prefix_reason == NOT_TRAINABLE
    found = encoder_of(world).encode([trace])
    assert not found.sites
    assert found.dropped == {"no_sampled_tokens": 1}


def test_a_template_that_rewrites_earlier_turns_loses_no_error(world: Any) -> None:
    turns = turns_of(world, keeps=False)
    traces = traces_of(world, turns)
    assert [len(trace.steps) for trace in traces] == [1, 1, 1]
    (site,) = encoder_of(world).encode(traces).sites
    assert list(site.prefix_ids) == turns[0].prompt_token_ids
    assert list(site.action_ids) == turns[0].completion_token_ids


def test_tokens_that_do_not_continue_are_not_joined(world: Any) -> None:
    turns = turns_of(world)
    turns[2].prompt_token_ids[3] += 1
    assert [len(one.rollout.spans) for one in conversations(turns, world[1].decode)] == [2, 1]


def test_an_answer_that_the_harness_invented_ends_a_conversation(world: Any) -> None:
    turns = turns_of(world)
    turns[2].request["messages"].append({"role": "assistant", "content": "I wrote this myself."})
    assert [len(one.rollout.spans) for one in conversations(turns, world[1].decode)] == [2, 1]


def test_results_belong_to_their_calls_whatever_their_order(world: Any) -> None:
    turns = turns_of(world)[:2]
    call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    turns[0].response["choices"][0]["message"]["tool_calls"] = [call | {"id": "one"}, call | {"id": "two"}]
    turns[1].request["messages"][-1:] = [
        {"role": "tool", "tool_call_id": name, "content": name} for name in ("two", "one")
    ]
    (trace,) = traces_of(world, turns)
    calls = trace.messages[1].tool_calls
    assert {trace.messages[place].tool_call_id: trace.messages[place].content for place in (2, 3)} == {
        calls[0].call_id: "one",
        calls[1].call_id: "two",
    }


BARE = SimpleNamespace(
    prompt_token_ids=[1], completion_token_ids=[2], per_token_logps=[0.0], loss_mask=[0, 1], request={}, response={}
)


@pytest.mark.parametrize("turns", [[], [BARE]])
def test_a_capture_without_messages_makes_no_site(world: Any, turns: list[Any]) -> None:
    traces = traces_of(world, turns)
    assert len(traces) == len(turns)
    assert not encoder_of(world).encode(traces).sites


# ---------------------------------------------------------------------------------------------- OpenEnv and TRL, real


@dataclasses.dataclass
class Sessions:
    """OpenEnv sessions that start the scripted harness behind a capture server."""

    server: Any
    options: tuple[str, ...]
    reward: float | None
    sampling: Any = None

    def __call__(self, sampling: Any = None) -> Sessions:
        return dataclasses.replace(self, sampling=sampling)

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> ScriptedSession:
        return ScriptedSession(self, episode_id or "")


@dataclasses.dataclass
class ScriptedSession:
    how: Sessions
    name: str

    def __post_init__(self) -> None:
        registry = self.how.server.registry
        self.capture = registry.create(self.name, purpose="train", capture_level="tokens", sampling=self.how.sampling)

    def wait_for_completion(self, timeout_s: float = 60) -> int:
        address = f"http://127.0.0.1:{self.how.server.port}"
        command = [sys.executable, str(HARNESS), address, self.name, QUESTION, *self.how.options]
        return subprocess.run(command, check=True, timeout=timeout_s).returncode

    def fetch_training_trace(self) -> Any:
        from openenv.core.harness.capture import to_training_trace
        from openenv.core.harness.capture.export import export_session

        return to_training_trace(self.capture.graph, export_session(self.capture))

    def verify(self, transcript: Any, final_state: Any = None) -> Any:
        return SimpleNamespace(env_reward=self.how.reward)

    def close(self) -> None:
        self.how.server.registry.delete(self.name)


@pytest.fixture(scope="module")
def proxy(world: Any) -> Iterator[Any]:
    """Run OpenEnv's capture server before the tiny engine."""
    capture = pytest.importorskip("openenv.core.harness.capture", reason="openenv is not installed")
    with serving(world) as engine, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        server = capture.CaptureServer(llm_url=engine, model="student", port=port)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def loop_of(world: Any, proxy: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that makes TRL's rollout loop with recorded sessions."""
    from trl.experimental.async_grpo.openenv_harness import _HarnessRolloutLoop

    with contextlib.ExitStack() as closing:

        def make(*options: str, reward: float | None = 1.0) -> Any:
            tokenizer = copy.deepcopy(world[1])
            factory = recorded(Sessions(proxy, options, reward), tmp_path, facts_of(world), tokenizer.decode)
            shared = {"heartbeat_value": multiprocessing.Value("d"), "failed_event": multiprocessing.Event()}
            queues = ("rollout_buffer", "exception_info_queue", "metrics_queue")
            loop = _HarnessRolloutLoop(
                model_name="student", dataset=[], reward_funcs=[], processing_class=tokenizer, eos_token_ids=[],
                model_version_value=multiprocessing.Value("i"), harness_session_factory=factory,
                max_inflight_tasks=2, **shared, **{name: queue.Queue() for name in queues},
            )  # fmt: skip
            closing.callback(loop._loop.close)
            closing.callback(loop._session_pool.shutdown)
            closing.callback(loop._tool_pool.shutdown)
            return loop

        yield make


@pytest.mark.parametrize("options", [(), ("--compact",)])
def test_what_trl_learns_from_is_what_the_traces_hold(
    world: Any, loop_of: Callable[..., Any], tmp_path: Path, options: tuple[str, ...]
) -> None:
    loop = loop_of(*options)
    (_, _, sequences, num_calls, num_failures, reward), _ = loop._run_session([{"role": "user", "content": "x"}], 3)
    assert (num_calls, num_failures, reward) == (2, 1 - len(options), 1.0)
    traces = list(read_rollouts(tmp_path))
    assert len(traces) == len(sequences) == 1 + len(options)
    held = [
        (one["prompt_ids"] + one["completion_ids"], [0] * len(one["prompt_ids"]) + one["tool_mask"])
        for one in (trace.provenance for trace in traces)
    ]
    assert sorted(held) == sorted((list(one.input_ids), list(one.completion_mask)) for one in sequences)
    assert {trace.provenance["policy_step"] for trace in traces} == {3}
    assert {trace.provenance["rewards"]["harness_reward"] for trace in traces} == {1.0}


def test_traces_of_a_real_capture_feed_the_hint_channel_token_exactly(
    world: Any, loop_of: Callable[..., Any], tmp_path: Path
) -> None:
    loop = loop_of()
    (_, _, (sequence,), *_), _ = loop._run_session([{"role": "user", "content": "x"}], 0)
    found = encoder_of(world).encode(read_rollouts(tmp_path))
    (site,) = found.sites
    assert site.is_exact
    assert not found.dropped
    ids = [*site.prefix_ids, *site.action_ids]
    assert ids == list(sequence.input_ids)[: len(ids)]
    assert list(sequence.completion_mask).index(1) == len(site.prefix_ids)


def test_sessions_of_a_group_get_traces_of_their_own(loop_of: Callable[..., Any], tmp_path: Path) -> None:
    loop = loop_of(reward=None)
    list(loop._session_pool.map(lambda _: loop._run_session([{"role": "user", "content": "x"}], 0), range(4)))
    traces = list(read_rollouts(tmp_path))
    assert len({trace.trace_id for trace in traces}) == 4
    assert {trace.provenance["rewards"]["harness_reward"] for trace in traces} == {None}


def test_a_recorded_factory_can_be_sent_to_the_process_of_the_worker(world: Any, tmp_path: Path) -> None:
    factory = recorded(json.dumps, tmp_path, facts_of(world), world[1].decode)
    assert pickle.loads(pickle.dumps(factory)).folder == tmp_path
    assert not os.listdir(tmp_path)
