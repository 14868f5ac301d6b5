"""A trainer as one worker of a federation: it ends with the shared bits, however it was interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from huggingface_hub import HfApi  # noqa: E402
from peft import LoraConfig, PeftModel  # noqa: E402
from transformers import TrainerCallback, set_seed  # noqa: E402

from composer_hub.hub import HubDestination  # noqa: E402
from composer_hub.local_hub.server import ServerProcess  # noqa: E402
from composer_hub.train.apart.deltas import read_values, values_digest  # noqa: E402
from composer_hub.train.apart.federation import Federation, Rules  # noqa: E402
from composer_hub.train.apart.rounds import Rounds  # noqa: E402
from composer_hub.train.apart.status import read_status  # noqa: E402
from composer_hub.train.failure import TrainerError  # noqa: E402
from composer_hub.train.run.trainer import RunTrainer  # noqa: E402
from tests.train.runs import trainer_of  # noqa: E402

RULES = Rules("base", num_workers=2, num_rounds=2, num_steps=2)


class Place:
    """A Hub on which workers train for real, each alone: nobody waits for the others."""

    def __init__(self, server: ServerProcess, world: Any, folder: Path) -> None:
        api = HfApi(endpoint=server.endpoint, token="hf_test_me")
        self.where, self.world, self.folder = HubDestination("local", api, cache=folder / "cache"), world, folder

    def worker(self, repo: str, name: str) -> Any:
        set_seed(3 + len(name))  # adapters begin with random matrices
        adapter = LoraConfig(r=4, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM")
        trainer = trainer_of(
            self.world, self.folder / repo / name, RunTrainer, alpha_sdpo=0.5, max_steps=4, measure_every=0,
            peft_config=adapter, save_strategy="steps", save_steps=3,
        )  # fmt: skip
        meeting = Federation(self.where, repo, name, f"run-{name}", patience_s=0.0, note=lambda _: None)
        trainer.apart = Rounds(trainer, meeting, RULES, files={"adapter_config.json": b"{}"})
        trainer.add_callback(trainer.apart)
        set_seed(3)
        return trainer

    def values(self, repo: str) -> str:
        """Return the digest of the adapter in the repository."""
        head = self.where.resolve(repo, "main", "model")
        return values_digest(read_values(self.where.fetch(repo, head, "adapter_model.safetensors", "model"))[0])


class StopAt(TrainerCallback):
    """Ends training after a step, as a signal does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            control.should_save = control.should_training_stop = True


@pytest.fixture
def place(hub_server: ServerProcess, world: Any, tmp_path: Path) -> Place:
    return Place(hub_server, world, tmp_path)


def test_a_worker_ends_with_the_adapter_of_the_repository_and_peft_knows_its_names(
    place: Place, hub_repo: Callable[[str], str]
) -> None:
    repo = hub_repo("rounds")
    ada = place.worker(repo, "ada")
    ada.train()
    ada.apart.finish()
    assert values_digest(ada.apart._values()) == place.values(repo)
    status = read_status(place.where, repo)
    assert [row["workers"] for row in status.rows()] == [["ada"], ["ada"]]
    assert status.results["ada"]["digest"] == place.values(repo)
    folder = place.folder / "saved"
    ada.save_model(str(folder))
    assert values_digest(read_values(folder / "adapter_model.safetensors")[0]) == place.values(repo)
    assert isinstance(ada.model, PeftModel)
    # One that comes after the end takes what there is.
    bob = place.worker(repo, "bob")
    assert values_digest(bob.apart._values()) != place.values(repo)
    bob.train()
    assert values_digest(bob.apart._values()) == place.values(repo)
    assert len(read_status(place.where, repo).closed) == 2


@pytest.mark.slow
def test_a_worker_that_continues_in_the_middle_of_a_round_sends_what_it_would_have_sent(
    place: Place, hub_repo: Callable[[str], str]
) -> None:
    whole, broken = hub_repo("rounds"), hub_repo("rounds")
    place.worker(whole, "ada").train()
    first = place.worker(broken, "ada")
    first.add_callback(StopAt(3))
    first.train()
    assert len(read_status(place.where, broken).closed) == 1
    second = place.worker(broken, "ada")
    second.train(resume_from_checkpoint=str(place.folder / broken / "ada" / "run" / "checkpoint-3"))
    assert place.values(broken) == place.values(whole)
    assert values_digest(second.apart._values()) == place.values(whole)


def test_a_model_without_an_adapter_is_refused(world: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="--use_peft true"):
        Rounds(trainer_of(world, tmp_path, RunTrainer), None, RULES)
