"""The contract with verl: its own loss function, on CPU, with the modes that `register` adds."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from composer_hub import exits  # noqa: E402
from composer_hub.exports.verl import features, pair_row, site_rows  # noqa: E402
from composer_hub.hub import RowWriter  # noqa: E402
from composer_hub.integrations import verl as ours  # noqa: E402
from composer_hub.integrations.channels import hint_tokens  # noqa: E402
from composer_hub.records import ErrorSite, Hint, action_text, prompt_of  # noqa: E402
from composer_hub.train.losses import Preference, divergence_from_logits, preference_loss  # noqa: E402
from tests.factories import make_pair, make_trace  # noqa: E402

ROOT = Path(__file__).parents[2]
VOCAB, PROMPT, RESPONSE, ROWS = 13, 3, 4, 4
PROMPT_LENGTHS, RESPONSE_LENGTHS = [2, 3, 1, 3], [4, 2, 3, 4]
HINTS = [[0, 1, 1], [], [0, 0, 0, 0], None]
PAIRS = {"pair_id": ["", "p", "p", ""], "pair_is_chosen": [False, True, False, False]}
REFS = [0.0, -3.0, -4.5, 0.0]
ALPHA, BETA = 0.3, 0.7


def test_the_module_imports_without_verl() -> None:
    assert ours.TOPK != ours.SAMPLED


def test_the_arguments_name_a_mode_that_register_adds() -> None:
    given = dict(line.split("=", 1) for line in (ROOT / "configs" / "other" / "verl.args").read_text().splitlines())
    assert given["distillation.distillation_loss.loss_mode"] == ours.TOPK
    assert given["distillation.distillation_loss.use_policy_gradient"] == "false"


def test_a_hinted_turn_is_put_at_its_place() -> None:
    asked = []

    async def teacher(ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        # As verl's servers answer: entry p speaks of token p + 1, the last one of nothing.
        asked.append(ids)
        following = torch.tensor([*ids[1:], 0])[:, None]
        return following, -following.float()

    turns = [ours.HintedTurn(prefix_ids=[5, 90, 91, 6], start=2, stop=4)]
    told = asyncio.run(ours.hinted_teacher(teacher, [5, 6], [7, 8, 9, 10, 11], turns, k=1))
    assert asked == [[5, 90, 91, 6, 9, 10]]
    assert told.hint_mask == [0, 0, 1, 1, 0]
    assert told.ids[:, 0].tolist() == [0, 0, 0, 9, 10, 0, 0]
    assert told.logprobs[:, 0].tolist() == [0, 0, 0, -9, -10, 0, 0]


@pytest.mark.parametrize(("start", "stop"), [(2, 2), (-1, 2), (3, 9)], ids=["empty", "before", "beyond"])
def test_a_turn_outside_the_response_is_refused(start: int, stop: int) -> None:
    with pytest.raises(exits.UsageError, match="hinted turn spans"):
        asyncio.run(ours.hinted_teacher(None, [1], [2, 3], [ours.HintedTurn([1], start, stop)], k=1))  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------- only where verl is installed


@pytest.fixture(scope="module")
def verl() -> Any:
    verl = pytest.importorskip("verl", reason="verl is not installed (docs/other_trainers.md)")
    from verl.trainer.distillation.losses import DISTILLATION_LOSS_REGISTRY

    if ours.TOPK not in DISTILLATION_LOSS_REGISTRY:  # once a process; test_verl_rollouts.py has the same weights
        ours.register(alpha=ALPHA, beta=BETA)
    return verl


def made(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Batch:
    """One micro-batch as verl's trainer makes it, from padded rollouts to nested tensors, and a student's logits."""

    def __init__(self, *, sampled: bool = False, **columns: Any) -> None:
        import numpy as np
        from verl import DataProto
        from verl.utils import tensordict_utils as tu
        from verl.workers.utils.padding import left_right_2_no_padding

        self.attention = torch.tensor(
            [
                [0] * (PROMPT - p) + [1] * p + [1] * r + [0] * (RESPONSE - r)
                for p, r in zip(PROMPT_LENGTHS, RESPONSE_LENGTHS, strict=True)
            ]
        )
        ids = torch.randint(1, VOCAB, self.attention.shape, generator=torch.Generator().manual_seed(0)) * self.attention
        self.mask = self.attention[:, PROMPT:].clone()
        self.mask[0, 1] = 0  # a tool's answer
        self.teacher = made(*ids.shape, VOCAB, seed=1).log_softmax(-1)
        self.following = torch.cat([ids[:, 1:], ids[:, :1]], 1)[..., None]
        told, told_ids = self.teacher.sort(-1, descending=True)
        if sampled:
            told, told_ids = self.teacher.gather(-1, self.following), self.following
        tensors = {
            "prompts": ids[:, :PROMPT], "responses": ids[:, PROMPT:], "response_mask": self.mask, "input_ids": ids,
            "attention_mask": self.attention, "position_ids": (self.attention.cumsum(-1) - 1).clamp(min=0),
            "old_log_probs": made(ROWS, RESPONSE, seed=2) - 2.5, "advantages": made(ROWS, RESPONSE, seed=3),
            "teacher_logprobs": told, "teacher_ids": told_ids,
        }  # fmt: skip
        tensors |= {name: value for name, value in columns.items() if isinstance(value, torch.Tensor)}
        data = DataProto.from_dict(tensors)
        for name, value in columns.items():
            if not isinstance(value, torch.Tensor):
                data.non_tensor_batch[name] = np.empty(ROWS, dtype=object)
                data.non_tensor_batch[name][:] = value
        self.data = left_right_2_no_padding(data.to_tensordict())
        tu.assign_non_tensor(
            self.data, dp_size=1, batch_num_tokens=int(self.mask.sum()), global_batch_size=ROWS,
            max_response_len=RESPONSE,
        )  # fmt: skip
        self.ids = ids
        self.logits = made(*ids.shape, VOCAB, seed=4).requires_grad_()

    def output(self) -> dict[str, torch.Tensor]:
        """Return what verl's engine hands on: log-probs of the next token, without padding."""
        logps = self.logits.log_softmax(-1).gather(-1, self.following)[..., 0]
        return {"log_probs": torch.nested.as_nested_tensor(self._flat(logps), layout=torch.jagged)}

    def responses(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values that speak of the response's tokens: one place before them."""
        rows = []
        for row, length in zip(values, RESPONSE_LENGTHS, strict=True):
            part = row[PROMPT - 1 : PROMPT - 1 + length]
            rows.append(torch.cat([part, part.new_zeros(RESPONSE - length, *part.shape[1:])]))
        return torch.stack(rows)

    def _flat(self, values: torch.Tensor) -> list[torch.Tensor]:
        return [row[mask.bool()] for row, mask in zip(values, self.attention, strict=True)]


def configs(mode: str, **options: Any) -> tuple[Any, Any]:
    from verl.workers.config import ActorConfig, DistillationConfig, DistillationLossConfig

    actor = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=ROWS)
    chosen = {"use_policy_gradient": False, "loss_max_clamp": None, "log_prob_min_clamp": None, **options}
    return actor, DistillationConfig(distillation_loss=DistillationLossConfig(loss_mode=mode, topk=VOCAB, **chosen))


def loss_of(batch: Batch, mode: str, **options: Any) -> tuple[torch.Tensor, dict[str, Any]]:
    """Run verl's own loss as its engines do: first as the logits processor, then for the loss."""
    from verl.trainer.distillation import distillation_ppo_loss

    actor, distillation = configs(mode, **options)
    output = batch.output()
    if mode == ours.TOPK:
        flat = torch.cat(batch._flat(batch.logits))[None]
        told = distillation_ppo_loss(actor, distillation, None, batch.data, student_logits=flat)
        output |= {name: value[0] for name, value in told.items()}
    return distillation_ppo_loss(actor, distillation, output, batch.data)


def policy_of(batch: Batch) -> torch.Tensor:
    from verl.workers.utils.losses import ppo_loss

    actor, _ = configs("k3")
    return ppo_loss(actor, batch.output(), batch.data)[0]


def hint_mask(batch: Batch) -> torch.Tensor:
    rows = [[*(row or []), *[0] * RESPONSE][:RESPONSE] for row in HINTS]
    return torch.tensor(rows).bool() & batch.mask.bool()


def test_the_topk_mode_is_the_policy_loss_plus_both_channels(verl: Any) -> None:
    batch = Batch(hint_mask=HINTS, **PAIRS, pair_ref_logp=REFS)
    loss, metrics = loss_of(batch, ours.TOPK)
    loss.backward()
    theirs, batch.logits.grad = batch.logits.grad, None
    num_tokens, mask = batch.mask.sum(), hint_mask(batch)
    hints = divergence_from_logits(batch.responses(batch.logits), batch.responses(batch.teacher), beta=0.0)
    # Row 0's second response token is a tool's answer, so one hint token of two is left.
    hint = hints[mask].sum() / num_tokens
    following = batch.ids[:, PROMPT:]
    logps = batch.responses(batch.logits.log_softmax(-1)).gather(-1, following[..., None])[..., 0]
    sums, lengths = (logps * batch.mask).sum(-1), batch.mask.sum(-1)
    refs = torch.tensor(REFS)
    terms = preference_loss(sums[[1]], sums[[2]], refs[[1]], refs[[2]], lengths[[1]], Preference())
    replay = terms.losses.sum() * (lengths[1] + lengths[2]) / num_tokens
    expected = policy_of(batch) + ALPHA * hint + BETA * replay
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(theirs, batch.logits.grad, rtol=1e-4, atol=1e-6)
    assert mask.sum() == 1
    assert metrics["channel/hint/tokens"] == 1.0
    assert (metrics["channel/replay/pairs"], metrics["channel/replay/alone"]) == (1.0, 0.0)


def test_the_sampled_mode_adds_its_estimate(verl: Any) -> None:
    batch = Batch(sampled=True, hint_mask=HINTS, pair_id=[""] * ROWS, pair_is_chosen=[False] * ROWS, pair_ref_logp=REFS)
    loss, metrics = loss_of(batch, ours.SAMPLED)
    logps, teacher = (
        batch.responses(values.log_softmax(-1).gather(-1, batch.following)[..., 0])
        for values in (batch.logits, batch.teacher)
    )
    hint = hint_tokens(logps, teacher, hint_mask(batch)).sum()
    torch.testing.assert_close(loss, policy_of(batch) + ALPHA * hint / batch.mask.sum(), rtol=1e-5, atol=1e-6)
    assert metrics["channel/hint/divergence"] == pytest.approx(hint.item(), rel=1e-4)
    assert hint > 0


@pytest.mark.parametrize("sampled", [False, True], ids=["topk", "sampled"])
def test_without_hints_and_pairs_the_loss_is_the_policy_loss_bit_for_bit(verl: Any, sampled: bool) -> None:
    empty = {"pair_id": [-1] * ROWS, "pair_is_chosen": [0] * ROWS, "pair_ref_logp": REFS}
    batch = Batch(sampled=sampled, hint_mask=torch.zeros(ROWS, RESPONSE), **empty)
    loss, metrics = loss_of(batch, ours.SAMPLED if sampled else ours.TOPK)
    assert torch.equal(loss, policy_of(batch))
    assert "channel/hint/divergence" not in metrics
    loss.backward()


@pytest.mark.parametrize("missing", ["hint_mask", "pair_id"])
def test_a_missing_column_is_named(verl: Any, missing: str) -> None:
    columns = {"hint_mask": HINTS, **PAIRS, "pair_ref_logp": REFS}
    del columns[missing]
    with pytest.raises(exits.UsageError, match=missing):
        loss_of(Batch(**columns), ours.TOPK)


def test_channels_as_a_reward_are_refused(verl: Any) -> None:
    with pytest.raises(exits.UsageError, match="use_policy_gradient"):
        loss_of(Batch(hint_mask=HINTS, **PAIRS, pair_ref_logp=REFS), ours.TOPK, use_policy_gradient=True)


def test_verl_refuses_a_second_registration(verl: Any) -> None:
    with pytest.raises(ValueError, match="already registered"):
        ours.register()


def test_a_module_that_verl_loads_itself_registers_the_losses(verl: Any, tmp_path: Path) -> None:
    (tmp_path / "my_losses.py").write_text("from composer_hub.integrations import verl\nverl.register(alpha=0.1)\n")
    code = "import verl; from verl.trainer.distillation.losses import DISTILLATION_LOSS_REGISTRY as r; print(*r)"
    env = os.environ | {"VERL_USE_EXTERNAL_MODULES": "my_losses", "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert {ours.TOPK, ours.SAMPLED} <= set(run.stdout.split())


def tokenizer_that_asks_for_keys() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({token: number for number, token in enumerate(alphabet)}, []))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    # As Llama's template does: a key that is there but None would not be rendered like one that is not there.
    template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if 'tool_calls' in m %}"
        "{{ m.tool_calls | length }}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    return PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=template)


def test_verls_own_dataset_reads_the_exported_rows(verl: Any, tmp_path: Path) -> None:
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    site = ErrorSite("tool_not_found", "model", "flag", 0.9, "r", "Bash", "c1", "no such tool")
    hint = Hint("Reminder: Available tools are: `Read`.", "template", "r", 1, "tool_not_found", "c1")
    trace = make_trace(num_steps=3)
    steps = (*trace.steps[:1], dataclasses.replace(trace.steps[1], error_sites=(site,), hints=(hint,)), trace.steps[2])
    trace = dataclasses.replace(trace, steps=steps)
    with RowWriter(tmp_path / "train.parquet", features()) as writer:
        for number, row in enumerate([*site_rows(trace, "train"), pair_row(make_pair(), "train")]):
            writer.add(row | {"extra_info": row["extra_info"] | {"index": number}})
    tokenizer = tokenizer_that_asks_for_keys()
    options = {"max_prompt_length": 300, "filter_overlong_prompts_workers": 1, "cache_dir": str(tmp_path / "cache")}
    read = RLHFDataset(str(tmp_path / "train.parquet"), tokenizer, OmegaConf.create(options))
    batch = collate_fn([read[number] for number in range(len(read))])
    assert list(batch["index"]) == [0, 1]
    assert list(batch["data_source"]) == ["composer_hub/claude_code", "composer_hub/pairs"]
    assert batch["extra_info"][0]["hint"] == hint.text
    assert batch["reward_model"][1]["ground_truth"] == action_text(make_pair().chosen[0])
    rendered = tokenizer.apply_chat_template(batch["raw_prompt"][0], tokenize=False, add_generation_prompt=True)
    said = [message.to_chat() for message in prompt_of(trace, steps[1])]
    assert rendered == tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    assert '1{"command": "cat file0.py"}' in rendered
