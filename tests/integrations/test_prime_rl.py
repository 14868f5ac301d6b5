"""The contract with prime-rl: its own loss, configs and algorithm, on CPU, with the functions that its config names."""

from __future__ import annotations

import asyncio
import importlib
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from composer_hub.integrations import prime_rl as ours  # noqa: E402
from composer_hub.integrations.channels import sampled_divergence  # noqa: E402

CONFIG = Path(__file__).parents[2] / "configs" / "other" / "prime_rl.toml"
ALPHA = 0.4


def toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


@dataclass
class Inputs:
    """A sample as prime-rl hands it to a loss function."""

    trainer_logprobs: Any
    inference_logprobs: Any
    ref_logprobs: Any
    advantages: Any
    loss_mask: Any
    loss_weights: Any = None


def sample(seed: int = 0, reference: bool = True, **changes: Any) -> Inputs:
    values = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    given = {
        "trainer_logprobs": -values[0].abs().requires_grad_(),
        "inference_logprobs": -values[0].abs() + 0.05 * values[1],
        "ref_logprobs": torch.where(torch.arange(8) > 3, -values[2].abs(), 0.0) if reference else None,
        "advantages": values[3],
        "loss_mask": torch.arange(8) % 4 != 0,
    }
    return Inputs(**given | changes)


def test_hint_tokens_are_those_with_a_reference() -> None:
    inputs = sample()
    values, mask = ours.hint_of(inputs)
    assert mask.tolist() == [False, False, False, False, False, True, True, True]
    expected = sampled_divergence(inputs.trainer_logprobs, inputs.ref_logprobs)
    torch.testing.assert_close(values[mask], expected[mask])
    assert not values[~mask].any()


@pytest.mark.parametrize("reference", [True, False], ids=["nothing read", "no reference at all"])
def test_a_sample_without_hints_gives_zero_and_a_gradient(reference: bool) -> None:
    inputs = sample(ref_logprobs=torch.zeros(8, dtype=torch.float64) if reference else None)
    values, mask = ours.hint_of(inputs)
    assert not mask.any()
    assert values.sum() == 0
    assert values.requires_grad


def test_the_weights_of_a_sample_also_apply_to_hints() -> None:
    plain, _ = ours.hint_of(sample())
    weighed, _ = ours.hint_of(sample(loss_weights=torch.full((8,), 0.5, dtype=torch.float64)))
    torch.testing.assert_close(weighed, 0.5 * plain)


def test_the_function_that_the_config_names_exists() -> None:
    loss = toml(CONFIG)["trainer"]["loss"]
    module, _, name = loss["import_path"].rpartition(".")
    assert getattr(importlib.import_module(module), name) is ours.composer_loss
    assert loss["type"] == "custom"


# ------------------------------------------------------------------------------- only where prime-rl can be imported


@pytest.fixture(scope="module")
def prime() -> Any:
    reason = "prime-rl cannot be imported (docs/other_trainers.md)"
    pytest.importorskip("prime_rl.configs.trainer", reason=reason)
    return pytest.importorskip("prime_rl.trainer.rl.loss", reason=reason)


def loss_of(prime: Any, samples: list[Inputs], alpha: float) -> tuple[Any, dict[str, Any]]:
    """Run prime-rl's own loss of a packed batch, with the function that its config names."""
    from prime_rl.configs.trainer import CustomLossConfig

    config = CustomLossConfig(import_path="composer_hub.integrations.prime_rl.composer_loss", kwargs={"alpha": alpha})
    columns = {name: [getattr(one, name) for one in samples] for name in list(vars(samples[0]))[:5]}
    # A batch with one reference has them all, with 0.0 where none was read.
    refs = [
        torch.zeros_like(t) if r is None else r
        for t, r in zip(columns["trainer_logprobs"], columns["ref_logprobs"], strict=True)
    ]
    return prime.compute_loss(
        **columns | {"ref_logprobs": refs}, rl_weights=None, ce_weights=None, ref_kl_weights=None,
        rl_loss_fn=prime.setup_rl_loss_fn(config), rl_scale=10, ce_scale=1, ref_kl_scale=1,
    )  # fmt: skip


def test_the_hint_is_added_to_prime_rls_loss_over_its_token_count(prime: Any) -> None:
    samples = [sample(0), sample(1, reference=False), sample(2)]
    loss, metrics = loss_of(prime, samples, ALPHA)
    plain, _ = loss_of(prime, samples, 0.0)
    hints = sum(ours.hint_of(one)[0].sum() for one in samples)
    torch.testing.assert_close(loss, plain + ALPHA * hints / 10, rtol=1e-9, atol=1e-12)
    assert metrics["channel/hint/tokens"].tolist() == [3, 0, 3]


def test_alpha_0_is_prime_rls_default_loss_bit_for_bit(prime: Any) -> None:
    from prime_rl.configs.trainer import DefaultLossConfig

    inputs = sample()
    ours_, theirs = ours.composer_loss(inputs, alpha=0.0), prime.default_loss_fn(inputs, DefaultLossConfig())
    assert torch.equal(ours_.loss, theirs.loss)
    ours_.loss.backward()


def test_a_sample_has_the_fields_that_the_loss_reads(prime: Any) -> None:
    assert list(prime.LossInputs.__dataclass_fields__) == list(Inputs.__dataclass_fields__)


def test_prime_rl_accepts_the_config(prime: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rl = pytest.importorskip("prime_rl.configs.rl")
    exported = 'from composer_hub.integrations.verifiers import EnvironmentTaskset\n__all__ = ["EnvironmentTaskset"]\n'
    (tmp_path / "desk_world.py").write_text(exported)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "desk_world", raising=False)
    config = rl.RLConfig.model_validate(toml(CONFIG))
    assert config.trainer.loss.kwargs["alpha"] == 0.1
    assert config.orchestrator.train.filter_zero_advantages is False
    assert config.orchestrator.train.source[0].env.taskset.task.environment == "desk_world:Desk"


class LivePolicy:
    """What prime-rl's inference pool is to an algorithm: a model's name, and its log-probs of any tokens."""

    def __init__(self, model: Any, name: str) -> None:
        self.model, self.model_name = model, name
        self.asked: list[list[int]] = []

    async def score(self, token_ids: list[int]) -> list[float]:
        self.asked.append(token_ids)
        with torch.no_grad():
            logps = self.model(torch.tensor([token_ids])).logits[0].log_softmax(-1)
        return [0.0, *logps[:-1].gather(-1, torch.tensor(token_ids[1:])[:, None])[:, 0].tolist()]


def trace_of(tokenizer: Any) -> Any:
    """Return a trace of verifiers that errs once: every node holds the tokens that its message adds."""
    import verifiers.v1 as vf
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.trace import AgentInfo, TraceTask

    def call(name: str, number: int) -> dict[str, Any]:
        return {"id": f"c{number}", "name": name, "arguments": '{"a": 3, "b": 4}'}

    messages = [
        ({"role": "user", "content": "3+4"}, "<|im_start|>user\n3+4<|im_end|>\n", ""),
        (
            {"role": "assistant", "tool_calls": [call("plus", 0)]}, "<|im_start|>assistant\n",
            '<tool_call>\n{"name": "plus", "arguments": {"a": 3, "b": 4}}\n</tool_call><|im_end|>',
        ),
        (
            {"role": "tool", "tool_call_id": "c0", "content": "error: unknown tool 'plus'"},
            "\n<|im_start|>user\n<tool_response>\nerror: unknown tool 'plus'\n</tool_response><|im_end|>\n", "",
        ),
        (
            {"role": "assistant", "tool_calls": [call("add", 1)]}, "<|im_start|>assistant\n",
            '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": 4}}\n</tool_call><|im_end|>',
        ),
    ]  # fmt: skip
    nodes = []
    for number, (message, given, sampled) in enumerate(messages):
        prompt, said = (
            tokenizer(text, add_special_tokens=False)["input_ids"] if text else [] for text in (given, sampled)
        )
        nodes.append(MessageNode(
            parent=number - 1 if number else None, message=message, sampled=bool(said), token_ids=[*prompt, *said],
            mask=[False] * len(prompt) + [True] * len(said), logprobs=[-1.0] * len(said),
            tools=[] if number else [vf.Tool(name="add", description="Add.", parameters={"type": "object"})],
        ))  # fmt: skip
    task = TraceTask(type="Task", data=vf.TaskData(prompt="3+4"))
    return vf.Trace(task=task, nodes=nodes, agent=AgentInfo(config=vf.AgentConfig()), ok=True)


def test_prefilled_messages_are_not_turns_and_truncated_calls_are_not_errors(prime: Any) -> None:
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.trace import Branch, ModelCall

    given, sampled = [1, 2], [3, 4, 5]
    nodes = [
        MessageNode(message={"role": "assistant", "content": "said by the prompt"}, token_ids=given, mask=[False] * 2),
        MessageNode(
            message={"role": "assistant", "content": "<tool_call>"},
            sampled=True,
            token_ids=[*given, *sampled],
            mask=[False] * 2 + [True] * 3,
        ),
    ]
    branch = Branch(index=0, nodes=nodes, calls=[ModelCall(node=1, finish_reason="length")])
    rollout = ours.rollout_of(branch, lambda _: "<tool_call>")
    assert (rollout.prompt_ids, rollout.completion_ids, rollout.tool_mask) == ([*given, *given], sampled, [1, 1, 1])
    assert [message["content"] for message in rollout.messages] == ["<tool_call>"]
    assert not rollout.trace.steps[0].error_sites


def test_grpo_lets_the_policy_read_a_hint_at_the_error_turn(prime: Any, world: Any, tmp_path: Path) -> None:
    algos = pytest.importorskip("prime_rl.orchestrator.algo")
    import verifiers.v1 as vf
    from prime_rl.configs.algorithm import GRPOAlgoConfig

    model, tokenizer = world
    tokenizer.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    policy = LivePolicy(model, str(tmp_path))
    known = dict(algos.ALGORITHM_CLASSES)
    try:
        ours.register()
        algorithm = algos.build_algorithm(GRPOAlgoConfig(), policy)
    finally:
        algos.ALGORITHM_CLASSES.update(known)
    trace = trace_of(tokenizer)
    episode = vf.Episode(env=vf.EnvInfo(id="desk"), task=trace.task, traces=[trace])

    async def score() -> None:
        await algorithm.setup()
        await algorithm.finalize_episode(episode)

    asyncio.run(score())
    (asked,) = policy.asked
    said = tokenizer.decode(asked)
    assert "Available tools are: `add`" in said
    # The hint stands right before the turn, and the turn's tokens are the sampled ones.
    assert said.index("Available tools") < said.index('{"name": "plus"')
    _, failed, _, later = trace.nodes
    num_sampled = sum(failed.mask)
    assert asked[-num_sampled:] == failed.token_ids[-num_sampled:]
    assert failed.reference_logprobs == pytest.approx(asyncio.run(policy.score(asked))[-num_sampled:], abs=1e-5)
    assert max(failed.reference_logprobs) < 0
    assert later.reference_logprobs is None
    (branch,) = trace.branches
    inputs = sample(
        trainer_logprobs=torch.zeros(len(branch.token_ids)) - 1.0,
        ref_logprobs=torch.tensor(branch.reference_logprobs),
        loss_mask=torch.tensor(branch.sampled_mask),
    )
    assert ours.hint_of(inputs)[1].sum() == num_sampled
