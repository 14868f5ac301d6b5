"""Publishing during training: the Hub may be slow, busy or down, and training continues."""

from __future__ import annotations

import json
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from huggingface_hub import HfApi  # noqa: E402

from composer_hub.hub import Card, HubDestination, HubError, HubRefused, Patience, Table, publish  # noqa: E402
from composer_hub.local_hub.server import start_server  # noqa: E402
from composer_hub.records import Pair, features_of, to_row  # noqa: E402
from composer_hub.train.run.main import run  # noqa: E402
from composer_hub.train.run.options import parse_options  # noqa: E402
from composer_hub.train.run.publisher import Pusher  # noqa: E402
from tests.factories import make_pair  # noqa: E402
from tests.train.tiny_run import arguments  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_plots")

PUSHING = [
    "--beta_replay",
    "0",
    "--max_steps",
    "2",
    "--save_steps",
    "1",
    "--push_every",
    "1",
    "--checkpoints_repo",
    "me/model-checkpoints",
]


def hub(server: Any) -> HubDestination:
    api = HfApi(endpoint=server.endpoint, token=server.token)
    return HubDestination("hub", api, Patience(max_tries=8, sleep=lambda seconds: None), cache=server.root / "cache")


def test_checkpoints_and_rollouts_are_published_although_requests_fail(world: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    words = [*arguments(world, tmp_path, "run"), *PUSHING]
    faults = ["--user", "me:hf_me", "--inject", "503:3,412:2,lose:1,429:1"]
    with start_server(tmp_path / "server", faults) as server:
        where = hub(server)
        run(parse_options(words), where=where)
        record = json.loads((tmp_path / "runs" / "run" / "composer_run.json").read_text())
        assert [push["step"] for push in record["pushes"]][-1] == 2
        assert all("error" not in push for push in record["pushes"])
        tags = where.tags("me/model-checkpoints", "model")
        assert {f"run-{record['run_id']}-step-{push['step']}" for push in record["pushes"]} == set(tags)
        assert f"run-{record['run_id']}" in where.tags("me/model", "model")
        files = where.files("me/model-checkpoints", "main", "model")
        assert not {"composer_teacher.safetensors", "trainer_state.json", "COMPLETE.json"} & set(files)
        folder = Path(where.api.snapshot_download("me/model-checkpoints", cache_dir=tmp_path / "cache"))
        assert "The run is not finished" in (folder / "README.md").read_text()
        AutoModelForCausalLM.from_pretrained(folder)


def test_a_public_repository_is_refused_before_training(world: Any, tmp_path: Path) -> None:
    words = [*arguments(world, tmp_path, "run"), "--beta_replay", "0"]
    with start_server(tmp_path / "server", ["--user", "me:hf_me"]) as server:
        hub(server).api.create_repo("me/rollouts", repo_type="dataset", private=False)
        with pytest.raises(HubRefused, match="me/rollouts is public"):
            run(parse_options(words), where=hub(server))
    assert not list((tmp_path / "runs" / "run").glob("checkpoint-*"))


def test_the_wrong_repository_is_refused_before_training_and_nothing_is_made(world: Any, tmp_path: Path) -> None:
    words = [*arguments(world, tmp_path, "run"), "--beta_replay", "0"]
    with start_server(tmp_path / "server", ["--user", "me:hf_me"]) as server:
        where = hub(server)
        card = Card("pairs", "Pairs", holes={"policy": "", "report": ""})
        publish(where, "me/rollouts", [Table("default", [to_row(make_pair())], features_of(Pair), "pair_id")], card)
        with pytest.raises(HubRefused, match=r"me/rollouts v1\.0\.0 holds pairs.*another repository for the traces"):
            run(parse_options(words), where=where)
        assert not where.api.repo_exists("me/model")
        with pytest.raises(HubRefused, match=r"me/rollouts is a dataset at .*publishes model to a model"):
            run(parse_options([*words, "--repo", "me/rollouts"]), where=where)
    assert not list((tmp_path / "runs" / "run").glob("checkpoint-*"))


@pytest.mark.slow
def test_training_survives_a_hub_that_is_down_and_publishes_everything_later(world: Any, tmp_path: Path) -> None:
    words = [*arguments(world, tmp_path, "run"), *PUSHING]
    folder = tmp_path / "runs" / "run"
    with start_server(tmp_path / "gone", ["--user", "me:hf_me", "--inject", "503:1.0"]) as server:
        with (
            pytest.raises(HubError, match=r"The trained model is in .*final.* --resume true") as caught,
            pytest.warns(UserWarning, match="was not published"),
            pytest.warns(UserWarning, match="Training begins"),
        ):
            run(parse_options(words), where=hub(server))
        assert "Service unavailable" in str(caught.value)
    record = json.loads((folder / "composer_run.json").read_text())
    assert record["launches"][-1]["to_step"] == 2
    assert all("error" in push for push in record["pushes"])
    assert (folder / "final" / "README.md").is_file()
    with start_server(tmp_path / "back", ["--user", "me:hf_me"]) as server:
        run(parse_options([*words, "--resume", "true"]), where=hub(server))
        assert hub(server).tags("me/model", "model")
        assert hub(server).tags("me/rollouts")


def saves(pusher: Pusher, output: Path, *steps: int) -> None:
    for step in steps:
        (output / f"checkpoint-{step}").mkdir()
        (output / f"checkpoint-{step}" / "config.json").write_text(str(step))
        (output / f"checkpoint-{step}" / "COMPLETE.json").write_text("{}")
        state = SimpleNamespace(global_step=step, is_world_process_zero=True)
        pusher.on_save(None, state, SimpleNamespace(should_training_stop=False))


def test_a_slow_hub_delays_no_step_and_the_newest_checkpoint_is_published_after_it(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("card")
    released, published, noted = threading.Event(), [], []

    def publish(copy: Path, step: int) -> dict[str, Any]:
        released.wait(600)
        published.append((step, (copy / "model" / "config.json").read_text()))
        return {}

    pusher = Pusher(publish, tmp_path, every=1, note=noted.append)
    saves(pusher, tmp_path, 1, 2, 3)  # returns before anything is published
    assert published == []
    with pytest.warns(UserWarning, match="still under way"):
        pusher.close(wait_s=0)
    released.set()
    pusher.close()
    assert published == [(1, "1"), (3, "3")]
    assert noted == [{"step": 1}, {"step": 3}]
    assert not (tmp_path / ".push").exists()


def test_complete_lines_are_copied_and_a_missing_checkpoint_is_only_a_warning(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("card")
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "rank000-00000.jsonl").write_text('{"a": 1}\n{"b"')
    (tmp_path / "rollouts" / "rank001-00000.jsonl").write_text("{")
    seen: list[list[str]] = []
    noted: list[dict[str, Any]] = []
    pusher = Pusher(
        lambda copy, step: seen.append([path.read_text() for path in sorted((copy / "rollouts").iterdir())]) or {},
        tmp_path,
        every=1,
        note=noted.append,
    )
    saves(pusher, tmp_path, 1)
    pusher.close()
    assert seen == [['{"a": 1}\n', ""]]
    pusher.waiting = tmp_path / "checkpoint-0"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pusher.close()
    assert "Training continues" in str(caught[0].message)
    assert "error" in noted[-1]
