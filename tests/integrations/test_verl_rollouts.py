"""The contract with verl's rollouts: its own worker and tool loop, on CPU, with clients passed in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("verl.experimental.agent_loop.agent_loop", reason="verl is not installed (docs/other_trainers.md)")

from composer_hub.integrations import verl as ours  # noqa: E402
from composer_hub.integrations import verl_rollouts as rollouts  # noqa: E402

ARGS = Path(__file__).parents[2] / "configs" / "other" / "verl.args"
TOP_K = 5
TOOLS = '''
from verl.tools.function_tool import function_tool


@function_tool
def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: First.
        b: Second.
    """
    if a > 90:
        raise OverflowError("too large")
    return str(a + b)
'''
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def call(name: str, a: int, b: int) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"a": {a}, "b": {b}}}}}\n</tool_call>'


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a folder with a random model of a few thousand parameters, the model, and its tokenizer of bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("student")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({token: number for number, token in enumerate(alphabet)}, []))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    raw.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "eos_token_id": tokenizer.eos_token_id}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **shape, **heads)).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, model, tokenizer


@pytest.fixture(scope="module")
def config(student: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return verl's config with the overrides that the documentation names."""
    from hydra import compose, initialize_config_module
    from verl.trainer.distillation.losses import DISTILLATION_LOSS_REGISTRY

    if ours.TOPK not in DISTILLATION_LOSS_REGISTRY:
        ours.register(alpha=0.3, beta=0.7)
    tools = tmp_path_factory.mktemp("tools") / "desk_tools.py"
    tools.write_text(TOOLS)
    rollout = "actor_rollout_ref.rollout"
    own = [
        f"actor_rollout_ref.model.path={student[0]}", f"{rollout}.name=vllm", f"{rollout}.prompt_length=64",
        f"{rollout}.response_length=512", f"{rollout}.multi_turn.function_tool_path={tools}",
        f"distillation.distillation_loss.topk={TOP_K}",
    ]  # fmt: skip
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=[*ARGS.read_text().split(), *own])


class Policy:
    """A rollout server with scripted answers."""

    def __init__(self, tokenizer: Any, said: list[str]) -> None:
        self.tokenizer, self.said = tokenizer, iter(said)

    async def generate(self, **_: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        ids = self.tokenizer(next(self.said) + "<|im_end|>", add_special_tokens=False)["input_ids"]
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids))


class Teacher:
    """The teacher server, with the model itself: an entry speaks of the token that follows."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.asked: list[list[int]] = []

    async def generate(self, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        self.asked.append(prompt_ids)
        told = self.likeliest(prompt_ids, sampling_params["prompt_logprobs"])
        extra = {"prompt_ids": told.indices.tolist(), "prompt_logprobs": told.values.tolist()}
        return TokenOutput(token_ids=[], extra_fields=extra)

    def likeliest(self, ids: list[int], k: int) -> Any:
        with torch.no_grad():
            return self.model(torch.tensor([ids])).logits[0].log_softmax(-1).topk(k)


def rolled(
    config: Any, student: Any, said: list[str], *, asked: str = "3+4", **changes: Any
) -> tuple[Any, Any, Teacher]:
    """Run one rollout through verl's worker; return the worker, its output, and the teacher."""
    _, model, tokenizer = student
    teacher = Teacher(model)
    worker = rollouts.HintedWorkerV0(config, Policy(tokenizer, said), {"default": teacher})
    trajectory = {"validate": False, "step": 0, "sample_index": 0, "rollout_n": 0, **changes}
    sample = {"raw_prompt": [{"role": "user", "content": asked}], "data_source": "desk", "index": 0}

    async def run() -> Any:
        return await worker._run_agent_loop({}, trajectory, agent_name=rollouts.AGENT, trace=False, **sample)

    output = asyncio.run(run())
    return worker, output, teacher


def test_the_teacher_is_asked_only_about_the_error_turn_with_its_hint(config: Any, student: Any) -> None:
    _, output, teacher = rolled(config, student, [call("plus", 3, 4), call("add", 3, 4), "7"])
    tokenizer, (asked,) = student[2], teacher.asked
    text, failed = tokenizer.decode(asked), call("plus", 3, 4) + "<|im_end|>"
    assert text.endswith(f"Use one of these.<|im_end|>\n<|im_start|>assistant\n{failed}")
    mask = output.extra_fields["hint_mask"]
    hinted = [token for token, is_hinted in zip(output.response_ids[0].tolist(), mask, strict=False) if is_hinted]
    assert tokenizer.decode(hinted) == failed
    told, here, n = teacher.likeliest(asked, TOP_K), config.actor_rollout_ref.rollout.prompt_length - 1, len(hinted)
    torch.testing.assert_close(output.teacher_logprobs[0, here : here + n], told.values[-n - 1 : -1])
    assert output.teacher_ids[0, here : here + n].tolist() == told.indices[-n - 1 : -1].tolist()
    assert not output.teacher_logprobs[0, here + n :].any()


@pytest.mark.parametrize(("said", "kinds"), [
    ([call("add", 3, 4), "7"], []),
    ([call("add", 95, 4), call("add", 3, 4), "7"], ["runtime_exception"]),
    ([call("plus", 3, 4)] * 2 + ["7"], ["tool_not_found", "tool_not_found"]),
], ids=["nothing went wrong", "the tool raised", "twice the same"])  # fmt: skip
def test_error_messages_of_verl_are_recognized(config: Any, student: Any, said: list[str], kinds: list[str]) -> None:
    from composer_hub.integrations.chat import failed_turns

    seen = []

    class Listening(rollouts.HintedWorkerV0):
        async def _compute_teacher_logprobs(self, output: Any, *args: Any, **kwargs: Any) -> None:
            seen.extend(output.extra_fields[rollouts.MESSAGES])
            await super()._compute_teacher_logprobs(output, *args, **kwargs)

    _, model, tokenizer = student
    worker = Listening(config, Policy(tokenizer, said), {"default": Teacher(model)})
    trajectory = {"validate": False, "step": 0, "sample_index": 0, "rollout_n": 0}
    sample = {"raw_prompt": [{"role": "user", "content": "3+4"}], "data_source": "desk", "index": 0}
    asyncio.run(worker._run_agent_loop({}, trajectory, agent_name=rollouts.AGENT, trace=False, **sample))
    assert [site.kind for turn in failed_turns(rollouts.chat_of(seen[1:])) for site in turn.error_sites] == kinds


def test_a_rollout_without_errors_has_no_hint_tokens_and_no_request(config: Any, student: Any) -> None:
    worker, output, teacher = rolled(config, student, [call("add", 3, 4), "7"])
    assert not teacher.asked
    assert not any(output.extra_fields["hint_mask"])
    assert worker._postprocess([output]).batch["teacher_logprobs"].shape[-1] == TOP_K


def test_a_validation_rollout_makes_no_request(config: Any, student: Any) -> None:
    worker, output, teacher = rolled(config, student, [call("plus", 3, 4), "7"], validate=True)
    batch = worker._postprocess([output])
    assert not teacher.asked
    assert not {"teacher_logprobs", rollouts.MESSAGES, rollouts.TOOLS} & {*batch.batch.keys(), *batch.non_tensor_batch}


PAIRS = {"pair_id": "", "pair_is_chosen": False, "pair_ref_logp": 0.0}


def padded(worker: Any, outputs: list[Any]) -> Any:
    """Return a micro-batch as verl's older loop makes it."""
    import numpy as np
    from verl.workers.utils.padding import left_right_2_no_padding

    batch = worker._postprocess(outputs)
    shape = batch.batch["responses"].shape
    batch.batch.update({"old_log_probs": torch.full(shape, -1.0), "advantages": torch.zeros(shape)})
    batch.non_tensor_batch |= {name: np.array([value] * len(outputs), dtype=object) for name, value in PAIRS.items()}
    return left_right_2_no_padding(batch.to_tensordict())


def queued(worker: Any, outputs: list[Any]) -> Any:
    """Return a micro-batch as verl's newer loop makes it: no padding, and added columns inside `extra_fields`."""
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    return list_of_dict_to_tensordict([field_of(output) for output in outputs])


def field_of(output: Any) -> dict[str, Any]:
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    real = output.attention_mask[0].bool()
    prompt, response = real.split([output.prompt_ids.shape[1], output.response_ids.shape[1]])
    told = {"teacher_ids": output.teacher_ids[0][real], "teacher_logprobs": output.teacher_logprobs[0][real]}
    field = AgentLoopOutput(
        prompt_ids=output.prompt_ids[0][prompt].tolist(),
        response_ids=output.response_ids[0][response].tolist(),
        response_mask=output.response_mask[0][response].tolist(),
        metrics=AgentLoopMetrics(),
        extra_fields=output.extra_fields | PAIRS | told,
    ).as_dict()
    num_tokens = len(field["responses"])
    field |= {"input_ids": torch.cat([field["prompts"], field["responses"]])}
    return field | {"old_log_probs": torch.full((num_tokens,), -1.0), "advantages": torch.zeros(num_tokens)}


@pytest.mark.parametrize("loop", [padded, queued])
def test_the_loss_reads_the_columns_of_a_rollout(config: Any, student: Any, loop: Any) -> None:
    from verl.trainer.distillation import distillation_ppo_loss
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import ActorConfig

    worker, failed, _ = rolled(config, student, [call("plus", 3, 4), call("add", 3, 4), "7"])
    _, smooth, _ = rolled(config, student, [call("add", 3, 4), "7"], asked="What is 3+4?")
    data, model = loop(worker, [failed, smooth]), student[1]
    num_tokens = int(failed.response_mask.sum() + smooth.response_mask.sum())
    counts = {"batch_num_tokens": num_tokens, "global_batch_size": 2}
    tu.assign_non_tensor(data, dp_size=1, **counts)
    rows = data["input_ids"].unbind()
    logits = torch.cat([model(row[None]).logits for row in rows], dim=1)
    distillation = omega_conf_to_dataclass(config.distillation)
    actor = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
    told = distillation_ppo_loss(actor, distillation, None, data, student_logits=logits)
    logps = logits[0].log_softmax(-1).gather(-1, torch.cat(rows).roll(-1)[:, None])[:, 0]
    nested = torch.nested.nested_tensor_from_jagged(logps, offsets=data["input_ids"].offsets())
    output_of_model = {"log_probs": nested, **{name: value[0] for name, value in told.items()}}
    loss, metrics = distillation_ppo_loss(actor, distillation, output_of_model, data)
    loss.backward()
    # The teacher is the student with a hint, so it thinks otherwise of the turn, and that is the whole loss.
    num_hinted = sum(failed.extra_fields["hint_mask"])
    assert metrics["channel/hint/tokens"] == num_hinted > 0
    hint = metrics["channel/hint/divergence"] * num_hinted / num_tokens
    assert loss.item() == pytest.approx(0.3 * hint, rel=1e-4)
    assert sum(p.grad.abs().sum() for p in model.parameters() if p.grad is not None) > 0
    model.zero_grad()


@pytest.mark.parametrize(
    ("manager", "worker"),
    [(rollouts.HintedManager, rollouts.HintedWorker), (rollouts.HintedManagerV0, rollouts.HintedWorkerV0)],
    ids=["newer", "older"],
)  # fmt: skip
def test_both_loops_of_verl_get_hinted_workers(config: Any, manager: Any, worker: Any) -> None:
    assert manager(config, None).agent_loop_workers_class.__ray_actor_class__ is worker
    assert worker._compute_teacher_logprobs is rollouts.HintsForWorker._compute_teacher_logprobs


def test_the_manager_and_the_agent_that_the_config_names_exist(config: Any) -> None:
    from verl.utils.import_utils import load_class_from_fqn

    agent = config.actor_rollout_ref.rollout.agent
    assert load_class_from_fqn(agent.agent_loop_manager_class, "AgentLoopManager") is rollouts.HintedManager
    assert agent.default_agent_loop == rollouts.AGENT
    assert config.trainer.use_v1
