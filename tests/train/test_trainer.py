"""The trainer by identities: with both weights zero it is GRPO; how a batch is cut does not change a step."""

from __future__ import annotations

import math
from array import array
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from trl import GRPOTrainer  # noqa: E402

from composer_hub.environments.desk import Desk, tasks  # noqa: E402
from composer_hub.records import Hint  # noqa: E402
from composer_hub.train.batch import HintSite, teacher_rows  # noqa: E402
from composer_hub.train.checks import check_options  # noqa: E402
from composer_hub.train.finite import NotFinite  # noqa: E402
from composer_hub.train.hint_term import TraceLoader  # noqa: E402
from composer_hub.train.losses import divergence_from_hidden  # noqa: E402
from composer_hub.train.sharded import sharding_of  # noqa: E402
from composer_hub.train.teacher import HintTeacher  # noqa: E402
from composer_hub.train.terms import TermModel  # noqa: E402
from composer_hub.train.trainer import TrainerError  # noqa: E402
from composer_hub.train.uplift import SiteUplift, site_uplifts  # noqa: E402
from tests.quick import quick  # noqa: E402
from tests.train.runs import steps_of, written_attempts  # noqa: E402

SHAPES = ((1, 8), (2, 4), (4, 2))


def numbers(rows: list[dict[str, float]], *names: str) -> list[tuple[float, ...]]:
    return [tuple(float(row[name]) for name in names) for row in rows]


@pytest.mark.parametrize("options", [{}, {"hint_aim": "fork"}], ids=str)
def test_with_both_weights_zero_it_is_grpo_to_the_last_bit(trained: Any, options: dict[str, Any]) -> None:
    plain, ours = trained(GRPOTrainer, sampled=True), trained(sampled=True, **options)
    names = ("loss", "grad_norm", "reward")
    assert numbers(plain.rows, *names) == numbers(ours.rows, *names)
    for one, other in zip(plain.weights, ours.weights, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("aim", quick(1, ["all", "fork"]))
def test_cutting_a_batch_into_more_pieces_does_not_change_a_step(make_trainer: Any, aim: str) -> None:
    names = ("loss", "grad_norm", "channel/hint/loss", "channel/replay/loss")
    found = []
    for pieces, size in SHAPES:
        trainer = make_trainer(
            alpha_sdpo=0.5,
            hint_aim=aim,
            max_hint_sites=3,
            beta_replay=0.5,
            max_steps=1,
            gradient_accumulation_steps=pieces,
            per_device_train_batch_size=size,
            pair_batch=8 // pieces,
        )
        found.append(numbers(steps_of(trainer), *names)[0])
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert found[2] == pytest.approx(found[0], rel=1e-4)


@pytest.fixture
def generated(make_trainer: Any) -> Any:
    """Return a trainer with the hint channel, and one generation batch of it."""
    trainer = make_trainer(alpha_sdpo=0.5, max_hint_sites=3, logging_steps=100)
    return trainer, batch_of(trainer)


def batch_of(trainer: Any) -> Any:
    torch.manual_seed(11)
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    trainer.model.train()
    return trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))


def test_a_single_hint_token_weighs_in_its_step_as_many_would(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5, per_device_train_batch_size=4, steps_per_generation=2)
    batch = batch_of(trainer)
    first = batch["hint_mask"].flatten().nonzero()[0]
    batch["hint_mask"] = (
        torch.zeros_like(batch["hint_mask"]).flatten().index_fill(0, first, True).view_as(batch["hint_mask"])
    )
    batch["num_hint_items"] = batch["hint_mask"].sum()
    trainer._compute_loss(trainer.model, batch)
    found = {name: trainer._metrics["train"][f"channel/hint/{name}"][-1] for name in ("loss", "divergence")}
    # A step is half of the generation batch, so half a token is its share.
    assert found["loss"] == pytest.approx(2 * found["divergence"]) != 0


def test_hints_cover_only_tokens_that_the_model_sampled(generated: Any) -> None:
    _, batch = generated
    hinted = batch["hint_mask"].any(1)
    assert hinted.any()
    assert not (hinted & ~(batch["completion_mask"].bool() & batch["tool_mask"].bool())).any()
    assert batch["num_hint_items"] == batch["hint_mask"].sum()


def test_a_teacher_row_ends_with_the_tokens_that_the_student_wrote(generated: Any) -> None:
    _, batch = generated
    rows = teacher_rows(batch)
    written = batch["completion_ids"][rows.student[:, 0], rows.student[:, 1]]
    assert torch.equal(rows.ids[:, 1:][rows.teacher], written)
    assert rows.attention[:, -1].all()


def test_at_the_fork_the_term_is_that_of_the_tokens_up_to_the_first_that_the_hint_halves(
    generated: Any, make_trainer: Any
) -> None:
    trainer, batch = generated
    rows = teacher_rows(batch)
    with torch.no_grad():
        hidden = trainer.bare_model.model(
            input_ids=torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1),
            attention_mask=torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1),
        )
        hidden = hidden.last_hidden_state[:, batch["prompt_ids"].size(1) - 1 : -1]
    model = TermModel(trainer.bare_model, trainer.teacher)
    whole, _ = trainer.terms.terms[0].values(model, batch, hidden)
    student = hidden[rows.student[:, 0], rows.student[:, 1]]
    taught, head = trainer.teacher.read(rows.ids, rows.attention)
    taught = taught[:, :-1][rows.teacher]
    # To the last bit: every token of the failed turns counts by default.
    expected, _ = divergence_from_hidden(student, model.head, taught, head, beta=0.5)
    assert torch.equal(whole, expected)

    sampled = rows.ids[:, 1:][rows.teacher].tolist()
    logps = [model.head.logits(one).float().log_softmax(-1) for one in (student, taught)]
    lowered = [float(logps[0][at, token] - logps[1][at, token]) for at, token in enumerate(sampled)]
    kept, start = [], 0
    for length in rows.teacher.sum(1).tolist():
        own = lowered[start : start + length]
        halved = [place for place, nats in enumerate(own) if nats >= math.log(2)] or [own.index(max(own))]
        kept += range(start + max(0, halved[0] - 3), start + halved[0] + 1)
        start += length
    aimed = make_trainer(alpha_sdpo=0.5, max_hint_sites=3, hint_aim="fork").terms.terms[0]
    values, _ = aimed.values(model, batch, hidden)
    assert 0 < len(kept) < len(sampled)
    assert values.tolist() == pytest.approx(whole[kept].tolist(), rel=1e-5, abs=1e-7)
    assert aimed.count(batch) == sum(min(4, length) for length in rows.teacher.sum(1).tolist())


@pytest.mark.parametrize(
    ("action", "corrected", "around"),
    [
        ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 9, 9, 9], [3, 4, 5, 6]),
        ([1, 2, 3], [1, 8], [1, 2]),
        ([1, 2, 3], [8, 2, 3], [1]),
        ([1, 2], [1, 2, 3], None),  # only longer: the failed tokens are right
        ([1, 2], [], None),  # unknown
    ],
)
def test_a_recorded_site_ends_where_its_action_parts_from_the_corrected_one(
    action: list[int], corrected: list[int], around: list[int] | None
) -> None:
    hint = Hint("Use x.", "own", "own", 1)
    prefix, inserted = array("i", [50, 51, 52]), array("i", [60, 61])
    site = HintSite(hint, prefix, 2, inserted, array("i", action), array("i", corrected))
    aimed = site.at_fork()
    if around is None:
        assert aimed is None
    else:
        assert aimed is not None
        assert aimed.action_ids.tolist() == around
        stop = corrected.index(next(b for a, b in zip(action, corrected, strict=False) if a != b)) + 1
        assert (aimed.prefix_ids + aimed.action_ids).tolist() == prefix.tolist() + action[:stop]
        assert aimed.teacher_ids.tolist() == [50, 51, 60, 61, *action[:stop]]


def test_a_truncated_rollout_that_does_not_count_has_no_hint(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5, max_completion_length=45, mask_truncated_completions=True)
    batch = batch_of(trainer)
    left_out = batch["completion_mask"].sum(1) == 0
    found = [trainer.hinter.sites(rollout) for rollout in trainer.last_rollouts]
    assert any(sites for sites, is_out in zip(found, left_out, strict=True) if is_out)
    assert not any(sites for sites, is_out in zip(trainer.last_sites, left_out, strict=True) if is_out)
    assert not batch["hint_mask"][left_out].any()
    assert not batch["teacher_lengths"][left_out].any()
    assert not left_out.all()


class Unscored(Desk):
    """A desk that gives no reward of its own."""

    def get_reward(self) -> None:  # type: ignore[override]
        return None


def test_a_rollout_without_a_score_is_never_the_better_sibling(make_trainer: Any) -> None:
    def some(completions: list[Any], **_: Any) -> list[float | None]:
        return [None if number % 4 == 1 else -1.0 - number % 4 for number in range(len(completions))]

    trainer = make_trainer(alpha_sdpo=0.5, rewards=some, environment=Unscored)
    batch_of(trainer)
    first = trainer.last_rollouts[0]
    assert trainer.siblings()[:4] == [None, first, first, first]


def test_the_length_of_rollouts_that_do_not_count_is_logged(make_trainer: Any) -> None:
    trainer = make_trainer(max_completion_length=8, mask_truncated_completions=True)
    batch_of(trainer)
    assert trainer._metrics["train"]["channel/policy/length"] == trainer._metrics["train"]["completions/mean_length"]
    assert trainer._metrics["train"]["rollout/cut_off"][-1] > 0


def test_a_hint_reads_as_a_user_message_right_before_its_turn(generated: Any) -> None:
    trainer, _ = generated
    for site in (site for sites in trainer.last_sites for site in sites):
        text = trainer._tokenizer.decode(site.teacher_ids)
        action = trainer._tokenizer.decode(site.action_ids)
        said = f"<|im_start|>user\n{site.hint.text}<|im_end|>\n<|im_start|>assistant\n"
        assert text.endswith(said + action)
        assert '"add"' not in action
        assert site.hint.kind == "tool_not_found"
        assert text.replace(said, "<|im_start|>assistant\n") == trainer._tokenizer.decode(
            site.prefix_ids + site.action_ids
        )


def test_a_batch_without_sites_gives_zero_and_the_plain_gradient(make_trainer: Any, trained: Any) -> None:
    silent = make_trainer(alpha_sdpo=0.5, hinter=NoHints())
    names = ("loss", "grad_norm")
    assert numbers(steps_of(silent), *names) == numbers(trained().rows, *names)


class NoHints:
    def sites(self, rollout: Any, *, sibling: Any = None, left_out: Any = None) -> list[Any]:
        return []


def lora() -> Any:
    peft = pytest.importorskip("peft")
    return peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1, task_type="CAUSAL_LM")


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
def test_channels_that_weigh_next_to_nothing_change_no_bit_of_a_run_with_dropout(
    make_trainer: Any, world: Any, checkpointed: bool
) -> None:
    def run(kind: Any = None, **options: Any) -> Any:
        trainer = make_trainer(kind, peft_config=lora(), gradient_checkpointing=checkpointed, **options)
        return numbers(steps_of(trainer), "loss", "grad_norm", "reward"), trained_values(trainer)

    # A weight of 1e-30 is lost beside any other gradient, but its channel is computed.
    sites = [site for task in tasks(4) for site in written_sites(make_trainer(alpha_sdpo=0.5), task)]
    traces = TraceLoader(sites, 2)
    plain, ours = run(GRPOTrainer), run(alpha_sdpo=1e-30, beta_replay=1e-30, hint_source="both", traces=traces)
    assert plain[0] == ours[0]
    for one, other in zip(plain[1], ours[1], strict=True):
        assert torch.equal(one, other)


def trained_values(trainer: Any) -> list[Any]:
    return [value.detach() for value in trainer.model.parameters() if value.requires_grad]


def written_sites(trainer: Any, task: dict[str, Any]) -> list[Any]:
    wrong, right = written_attempts(trainer._tokenizer, task["a"], task["b"])
    return trainer.hinter.sites(wrong, sibling=right)


def test_a_model_with_dropout_is_checked_without_it(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5, peft_config=lora())
    trainer.model.train()
    state = torch.get_rng_state()
    trainer._check_head()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "options",
    [
        {
            "gradient_checkpointing": True,
            "gradient_checkpointing_kwargs": {"use_reentrant": True},
            "loss_type": "dr_grpo",
            "scale_rewards": "none",
            "beta": 0.01,
        },
        {
            "steps_per_generation": 2,
            "per_device_train_batch_size": 4,
        },
        {"num_iterations": 2, "control_hints": True},
        {"bf16": True, "mask_truncated_completions": True, "max_completion_length": 30},
        {"peft_config": lora, "gradient_checkpointing": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_three_channels_run_with(make_trainer: Any, options: dict[str, Any]) -> None:
    num_steps = 2 if {"num_iterations", "steps_per_generation"} & set(options) else 1
    channels = {"alpha_sdpo": 0.5, "beta_replay": 0.2, "measure_every": 1}
    options = {name: value() if name == "peft_config" else value for name, value in options.items()}
    rows = steps_of(make_trainer(**channels, max_steps=num_steps, **options))
    assert len(rows) == num_steps
    for row in rows:
        assert all(math.isfinite(float(row[name])) for name in ("loss", "grad_norm", "channel/replay/loss"))


def test_gradient_checkpointing_does_not_change_a_step(trained: Any) -> None:
    options = {"alpha_sdpo": 0.5, "beta_replay": 0.2, "max_steps": 1}
    found = [numbers(trained(**options, gradient_checkpointing=on).rows, "loss", "grad_norm") for on in (False, True)]
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)


def test_a_channel_that_is_turned_down_weighs_half(make_trainer: Any, trained: Any) -> None:
    trainer = make_trainer(max_steps=1, beta_replay=0.8)
    trainer.terms.turn_down("replay")
    assert numbers(steps_of(trainer), "loss") == numbers(trained(max_steps=1, beta_replay=0.4).rows, "loss")


def test_real_hints_raise_the_right_call_and_control_hints_do_not(make_trainer: Any) -> None:
    # What the shipped weights have learned, by a margin that no rounding closes.
    def measured(control: bool) -> list[SiteUplift]:
        trainer = make_trainer(alpha_sdpo=0.5, control_hints=control)
        sites = [site for task in tasks(8) for site in written_sites(trainer, task)]
        return site_uplifts(sites, trainer.teacher)

    real, control = measured(False), measured(True)
    assert len(real) == len(control) == 8
    assert {uplift.writer for uplift in control} == {"control"}
    assert all(uplift.raised is not None for uplift in real)
    assert all(uplift.value >= 0.1 for uplift in real)
    # Words that mean nothing to the model make the failed action less likely too, but never the right one likelier.
    assert all(uplift.raised < 0 for uplift in control if uplift.raised is not None)


def test_uplift_is_that_of_the_teacher_however_far_the_student_has_moved(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5)
    sites = [site for task in tasks(4) for site in written_sites(trainer, task)]
    before = trainer.uplifts(sites)
    with torch.no_grad():
        for value in trainer.model.parameters():
            value.add_(0.05 * torch.randn_like(value))
    assert trainer.uplifts(sites) == before
    moved = site_uplifts(sites, HintTeacher("live", trainer.bare_model))
    assert all(one.lowered != pytest.approx(other.lowered, abs=1e-3) for one, other in zip(before, moved, strict=True))


class Tired(Desk):
    """A desk that knows how many episodes it has seen, and scores by it."""

    seen = 0

    def reset(self, a: int = 0, b: int = 0, **_: Any) -> None:
        super().reset(a, b)
        self.seen += 1

    def get_reward(self) -> float:
        return super().get_reward() / self.seen**2


def test_looking_before_training_does_not_change_the_run(make_trainer: Any, trained: Any) -> None:
    names = ("loss", "reward", "grad_norm")
    options = {
        "environment": Tired, "alpha_sdpo": 0.5, "beta_replay": 0.5, "max_steps": 1, "num_generations_eval": 1,
        "sampled": True,
    }  # fmt: skip
    looked = make_trainer(**options)
    expected = numbers(trained(**options).rows, *names)
    from transformers import set_seed

    set_seed(3)
    looked.preflight()
    looked.train()
    assert numbers([row for row in looked.state.log_history if "grad_norm" in row], *names) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alpha_sdpo": -1.0}, "0 or more"),
        ({"hint_divergence": 1.5}, "hint_divergence is between 0 and 1, not 1.5"),
        ({"alpha_sdpo": 0.5, "environment": None}, "nothing can go wrong"),
        ({"alpha_sdpo": 0.5, "teacher": "wise"}, "fixed, live"),
    ],
    ids=[
        "a negative weight",
        "a divergence that is none",
        "hints without tools",
        "an unknown teacher",
    ],
)
def test_it_refuses(make_trainer: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_trainer(**options)


def check(trainer: Any, **given: Any) -> None:
    usual = {"has_pairs": False, "has_tools": True, "has_traces": False, "has_terms": False, "sharding": ""}
    check_options(trainer.args, **usual | given)


def test_it_refuses_replay_without_pairs_and_a_look_without_hints(make_trainer: Any) -> None:
    trainer = make_trainer()
    with pytest.raises(TrainerError, match="no hints to measure"):
        trainer.preflight()
    trainer.args.beta_replay = 0.1
    with pytest.raises(TrainerError, match="pass pairs="):
        check(trainer)


@pytest.mark.parametrize("sharding", ["FSDP version 1", "a model of sharded weights"])
def test_it_refuses_other_ways_to_shard_weights_with_a_term(make_trainer: Any, sharding: str) -> None:
    trainer = make_trainer()
    check(trainer, sharding=sharding)
    with pytest.raises(TrainerError, match=f"{sharding} does not allow"):
        check(trainer, sharding=sharding, has_terms=True)
    check(trainer, sharding="FSDP2", has_terms=True)
    trainer.args.gradient_checkpointing_kwargs = {"use_reentrant": True}
    trainer.args.gradient_checkpointing = True
    with pytest.raises(TrainerError, match="Reentrant"):
        check(trainer, sharding="FSDP2", has_terms=True)


def test_a_way_to_shard_weights_has_a_name() -> None:
    def named(**state: Any) -> str:
        return sharding_of(SimpleNamespace(state=SimpleNamespace(**state)), torch.nn.Linear(1, 1))

    assert named(deepspeed_plugin=SimpleNamespace(zero_stage=3)) == "ZeRO stage 3"
    assert named(deepspeed_plugin=SimpleNamespace(zero_stage=2)) == ""
    assert named(fsdp_plugin=SimpleNamespace(fsdp_version=2)) == "FSDP2"
    assert named(fsdp_plugin=SimpleNamespace(fsdp_version=1)) == "FSDP version 1"
    assert named() == ""


@pytest.mark.parametrize("rate", [1e3, 1e20], ids=["weights that grew", "weights that are not finite"])
def test_a_trainer_of_any_script_stops_when_its_numbers_blow_up(make_trainer: Any, rate: float) -> None:
    trainer = make_trainer(beta_replay=0.5, learning_rate=rate, max_steps=3)
    with pytest.raises(NotFinite, match="Step 1 was not saved"):
        trainer.train()


def test_a_model_with_a_scaled_head_is_refused_or_understood(make_trainer: Any) -> None:
    trainer = make_trainer()
    head = trainer.model.get_output_embeddings()
    head.register_forward_hook(lambda _module, _inputs, output: output * 3.0)
    with pytest.raises(TrainerError, match="not its output layer"):
        trainer._check_head()


def test_no_more_rows_are_measured_at_once_than_are_trained_on(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5, per_device_train_batch_size=2, steps_per_generation=4)
    batch_of(trainer)
    sites = [site for found in trainer.last_sites for site in found]
    rows: list[int] = []

    def count(_module: Any, _inputs: Any, given: dict[str, Any]) -> None:
        rows.append(len(given["input_ids"]))

    handle = trainer.bare_model.register_forward_pre_hook(count, with_kwargs=True)
    assert len(trainer.uplifts(sites)) == len(sites) > 1
    handle.remove()
    assert max(rows) == 2
