"""The ablation: its world, and the figures of its page."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from benchmarks.ablation import report
from benchmarks.ablation.world import REGIMES, TAKES, Api, StaleApi, Task, hint_of
from composer_hub import hub
from composer_hub.hints import SiteContext
from composer_hub.records import ErrorSite, ToolCall
from tests.quick import quick

PAGE = Path(__file__).parents[2] / "docs" / "results" / "ablation.md"


@pytest.mark.parametrize("round_", report.ROUNDS)
def test_the_tables_of_the_page_are_those_of_the_recorded_runs(round_: str) -> None:
    assert "\n".join(report.tables(round_)) in PAGE.read_text()


def test_the_runs_are_published_as_rows_with_their_tables_on_the_card(tmp_path: Path) -> None:
    where, made = hub.destination(str(tmp_path)), report.draft("0123abc")
    hub.publish(where, "me/runs", made.tables, made.card, lineage=made.lineage)
    version = hub.load(where, "me/runs@v1.0.0")
    rows = {row["run_id"]: row for row in version.rows("default")}
    assert len(rows) == len(report.RECORDED.read_text().splitlines())
    assert rows["sparse-hint-10"]["curve"][-1] == {"step": 40, "pass1": pytest.approx(0.65, abs=0.01)}
    card = where.fetch("me/runs", version.revision, "README.md")
    assert card is not None
    assert "\n".join(report.tables("first")) in card.read_text()


def test_only_true_names_and_arguments_work_and_the_hint_names_them() -> None:
    api = Api(3)
    environment = StaleApi(api, REGIMES["dense"])
    environment.reset(operations=[5], value=7)
    old, true = api.old_call(5, 7), api.true_call(5, 7)
    with pytest.raises(ValueError, match="no method") as raised:
        environment.call(**old)
    site = ErrorSite("schema_validation", "model", "flag", 1.0, "", message=str(raised.value))
    context = SiteContext(site, ToolCall("call", old))
    hint = hint_of(api)(context)
    control = hint_of(api, control=random.Random(0))(context)
    assert hint.text.endswith(true["method"])
    assert control.text != hint.text
    assert control.text.split()[:-1] == hint.text.split()[:-1]
    assert environment.call(**true).startswith("ok ")
    assert environment._solves(environment.call(**(true | {"value": "v7"})).removeprefix("ok ")) is False


def test_reminders_name_the_true_words_and_stand_behind_the_task_in_training_only() -> None:
    api = Api(3)
    task = Task((5, 2, 5), 7)
    told = task.row(0, api.reminders(task))["prompt"]
    assert told[:1] == task.row(-1)["prompt"]
    words = [message["content"].removeprefix(TAKES).split() for message in told[1:]]
    calls = [api.true_call(noun, 7) for noun in (5, 2)]
    assert words == [[call["method"], call["key"]] for call in calls]


@pytest.mark.parametrize(("arm", "num_steps"), quick(1, [("all", 2), ("contrast", 3), ("grpo_told", 3)]))
def test_an_arm_trains_on_the_words_of_the_world(arm: str, num_steps: int, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from benchmarks.ablation.arms import ARMS, QUICK, run
    from benchmarks.ablation.model import demonstration, tokenizer_of

    tokenizer, rng = tokenizer_of(), random.Random(0)
    text = "".join(piece for piece, _ in demonstration(Api(0), rng))
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    result = run(ARMS[arm], "dense", 0, tmp_path, QUICK, warm_steps=2)
    assert [step for step, _ in result.curve] == [0, num_steps]
    assert len(result.log) == num_steps
    assert (result.num_pairs > 0) == (arm == "all")  # this model gets nothing right, with a hint or without
    assert all(math.isfinite(row["grad_norm"]) for row in result.log)
