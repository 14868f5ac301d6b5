"""Terms of a user's own: the two examples, and what the trainer promises to any term."""

from __future__ import annotations

import ast
import copy
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub import train  # noqa: E402
from composer_hub.hub import Parent  # noqa: E402
from composer_hub.train.failure import TrainerError  # noqa: E402
from composer_hub.train.run.card import ModelFacts, model_card  # noqa: E402
from composer_hub.train.run.offline import OfflineTrainer  # noqa: E402
from tests.train.runs import EXAMPLES, config_of, example, own_terms, steps_of  # noqa: E402
from tests.train.test_trainer import SHAPES, batch_of, numbers  # noqa: E402


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_a_file_of_thirty_lines_with_public_names_only(path: Path) -> None:
    tree = ast.parse(path.read_text())
    modules = {
        node.module: [name.name for name in node.names] for node in tree.body if isinstance(node, ast.ImportFrom)
    }
    assert len(path.read_text().splitlines()) <= 30
    assert set(modules) == {"composer_hub.train"}
    assert set(modules["composer_hub.train"]) <= set(train.__all__)
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not [name for name in attributes if name.startswith("_") and not name.startswith("__")]


def test_cutting_a_batch_into_more_pieces_does_not_change_a_step_of_own_terms(make_trainer: Any, world: Any) -> None:
    names = ("loss", "grad_norm", "channel/effort/loss", "channel/ratings/loss")
    found = []
    for pieces, size in SHAPES:
        trainer = make_trainer(
            terms=own_terms(world[1], batch_size=8 // pieces),
            max_steps=1,
            gradient_accumulation_steps=pieces,
            per_device_train_batch_size=size,
        )
        found.append(numbers(steps_of(trainer), *names)[0])
    assert min(found[0]) != 0
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert found[2] == pytest.approx(found[0], rel=1e-4)


def test_own_terms_that_weigh_nothing_change_no_bit(make_trainer: Any, trained: Any, world: Any) -> None:
    names = ("loss", "grad_norm", "reward")
    idle = make_trainer(terms=own_terms(world[1], weight=0.0))
    assert numbers(steps_of(idle), *names) == numbers(trained().rows, *names)
    assert len(idle.terms) == 0


def test_the_effort_term_is_the_mean_probability_of_the_tokens_of_wasted_calls(make_trainer: Any) -> None:
    trainer = make_trainer(terms=[example("effort").Effort(0.3)])
    batch = batch_of(trainer)
    mask = batch["effort_mask"]
    # Of four scripted rollouts, the second gives up after a call that fails. The first corrects its own.
    assert mask.any(1).tolist() == [False, True, False, False] * 2
    assert batch["num_effort_items"] == mask.sum() > 0
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    with torch.no_grad():
        logits = trainer.model(input_ids=ids, attention_mask=attention).logits[:, -1 - mask.size(1) : -1]
    wanted = logits.softmax(-1).gather(-1, batch["completion_ids"][..., None])[..., 0][mask].mean()
    loss = trainer._compute_loss(trainer.model, batch)
    metrics = trainer._metrics["train"]
    assert metrics["channel/effort/loss"][-1] == pytest.approx(wanted.item(), rel=1e-4)
    assert metrics["channel/effort/probability"][-1] == pytest.approx(wanted.item(), rel=1e-4)
    assert loss.item() - metrics["channel/policy/loss"][-1] == pytest.approx(0.3 * wanted.item(), rel=1e-3)


def test_the_ratings_term_is_the_cross_entropy_to_each_generation_by_its_share(world: Any, tmp_path: Path) -> None:
    model, tokenizer = world
    (term,) = own_terms(tokenizer, batch_size=2, names=("ratings",))
    wanted = 0.0
    for row in term.loader.rows[:2]:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": row["instruction"]}], add_generation_prompt=True, return_dict=False
        )
        for text, share in zip(row["generations"], torch.tensor(row["ratings"]).softmax(0), strict=True):
            answer = tokenizer(text + tokenizer.eos_token)["input_ids"]
            with torch.no_grad():
                logps = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0].log_softmax(-1)
            tokens = logps[-1 - len(answer) : -1].gather(-1, torch.tensor(answer)[:, None])
            wanted -= (share * tokens.mean()).item() / 2
    term.loader.rows = term.loader.rows[:2]
    args = config_of(tmp_path, max_steps=1, learning_rate=0.0)
    trainer = OfflineTrainer(model=copy.deepcopy(model), args=args, processing_class=tokenizer, terms=[term])
    (row,) = steps_of(trainer)
    assert row["channel/ratings/loss"] == pytest.approx(wanted, rel=1e-4)
    assert row["loss"] == pytest.approx(0.2 * wanted, rel=1e-3)


def test_a_checkpoint_keeps_where_a_term_was_and_what_it_weighed(make_trainer: Any, world: Any, tmp_path: Path) -> None:
    def make(**options: Any) -> Any:
        return make_trainer(terms=own_terms(world[1]), save_strategy="steps", save_steps=1, **options)

    whole = make(max_steps=2)
    whole.terms.turn_down("effort")
    expected = numbers(steps_of(whole), "loss", "grad_norm", "channel/effort/weight", "channel/ratings/loss")
    again = make(max_steps=2)
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
    rows = [row for row in again.state.log_history if "grad_norm" in row]
    found = numbers(rows, "loss", "grad_norm", "channel/effort/weight", "channel/ratings/loss")
    assert found[-1] == pytest.approx(expected[-1], rel=1e-5)
    assert found[-1][2] == 0.1
    assert json.loads((tmp_path / "run" / "checkpoint-2" / "composer_state.json").read_text()) == again.terms.state()


def test_terms_work_in_a_run_without_tools(make_trainer: Any) -> None:
    class Brief(train.Term):
        name = "brief"

        def tensors(self, rollouts: Any) -> dict[str, Any]:
            assert [turn["role"] for rollout in rollouts for turn in rollout.messages] == ["assistant"] * len(rollouts)
            assert len(rollouts.rewards) == len(rollouts.rows) == len(rollouts)
            return {"brief_mask": rollouts.mask(rollout.spans for rollout in rollouts)}

        def values(self, model: Any, rows: Any, hidden: Any) -> Any:
            return -model.logps(rows["brief_mask"]), {}

    trainer = make_trainer(terms=[Brief(0.1)], environment=None, sampled=True)
    batch = batch_of(trainer)
    assert torch.equal(batch["brief_mask"], batch["completion_mask"].bool())
    trainer._compute_loss(trainer.model, batch).backward()
    assert trainer._metrics["train"]["channel/brief/loss"][-1] > 0


class Named(train.Term):
    """A term that makes one tensor."""

    def __init__(self, name: str, weight: float = 0.1, makes: str = "x_mask") -> None:
        self.name, self.makes = name, makes
        super().__init__(weight)

    def tensors(self, rollouts: Any) -> dict[str, Any]:
        return {self.makes: rollouts.mask([] for _ in rollouts)}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: [Named("")], "has '' and 0.1"),
        (lambda: [Named("a/b")], "has 'a/b'"),
        (lambda: [Named("x", -1.0)], "weight of 0 or more"),
        (lambda: [Named("x", float("nan"))], "weight of 0 or more"),
        (lambda: [Named("x"), Named("x")], "Two terms of this run are called x"),
        (lambda: [Named("policy")], "Two terms of this run are called policy"),
        (lambda: [Named("hint")], "Two terms of this run are called hint"),
    ],
    ids=["no name", "a path", "a negative weight", "a weight that is no number", "doubled", "policy", "built in"],
)
def test_a_term_that_cannot_be_told_from_others_is_refused(make_trainer: Any, make: Any, says: str) -> None:
    with pytest.raises(TrainerError, match=says):
        make_trainer(alpha_sdpo=0.5, terms=make())


def test_a_tensor_that_the_batch_has_is_refused(make_trainer: Any) -> None:
    with pytest.raises(TrainerError, match="makes 'advantages', which the batch has"):
        batch_of(make_trainer(terms=[Named("x", makes="advantages")]))


def test_a_checkpoint_of_other_terms_is_refused(make_trainer: Any, world: Any) -> None:
    trainer = make_trainer(terms=own_terms(world[1]))
    with pytest.raises(TrainerError, match="no state of the term ratings"):
        trainer.terms.restore({"effort": {"scale": 1.0, "loader": None}})


def test_an_offline_run_refuses_a_term_on_rollouts(world: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="effort learns from rollouts"):
        OfflineTrainer(
            model=copy.deepcopy(world[0]),
            args=config_of(tmp_path),
            processing_class=world[1],
            terms=own_terms(world[1]),
        )


def test_a_card_has_the_weight_and_the_course_of_an_own_term() -> None:
    facts = ModelFacts(
        repo="me/model",
        run_id="r",
        license="mit",
        base=Parent("base model", "me/base", "sha", "model"),
        weights={"policy": 1.0, "effort": 0.1},
        history=[{"step": step, "channel/effort/loss": loss} for step, loss in enumerate((0.5, 0.25), 1)],
    )
    text = model_card(facts)
    assert "| effort | 0.1 |" in text
    assert "| effort loss | 0.5 | 0.25 |" in text


@pytest.mark.parametrize("rewards", [(0.5, 0.1, 0.4, 0.9, 0.8, 0.45), (0.1, 0.9, 0.9, 0.2, 0.3, 0.2), (0.3,)])
def test_a_card_says_that_the_reward_fell_where_its_table_does(rewards: Sequence[float]) -> None:
    history = [{"step": step, "reward": reward} for step, reward in enumerate(rewards, 1)]
    text = model_card(ModelFacts("m", "r", "mit", Parent("base model", "me/base", "sha", "model"), history=history))
    begin, end = map(float, re.search(r"mean reward \| ([\d.]+) \| ([\d.]+)", text).groups())  # type: ignore[union-attr]
    assert ("the mean reward ended lower" in text) == (end < begin)
