"""The judge, asked through a real server and paid through a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from composer_hub import exits
from composer_hub.cli.models import Models, model_options
from composer_hub.errors.context import SiteContext
from composer_hub.records import ErrorSite
from composer_hub.replay import judge_of
from composer_hub.replay.fake import TeacherServer, serving
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.providers import TeacherError


def context(kind: str = "verbose_style") -> SiteContext:
    return SiteContext(ErrorSite(kind, "model", "text", 0.5, "test", message="Far too long an explanation."))


def test_a_judge_without_a_cap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(exits.UsageError, match="--judge-max-usd"):
        judge_of("http://127.0.0.1:9/v1#small", None, tmp_path)


def test_an_answer_is_asked_for_once_and_costs_the_servers_bill(tmp_path: Path) -> None:
    teachers = TeacherServer()
    with serving(teachers) as url:
        asked = [judge_of(f"{url}#small", 1.0, tmp_path).answer("Which?", None, str.strip) for _ in range(2)]
    assert asked[0] == asked[1] != ""
    assert sum(bill.requests for bill in teachers.bills.values()) == 1
    with Ledger(tmp_path / "judge.sqlite") as ledger:
        money = ledger.budget()
    assert (money.settled, money.reserved, money.ambiguous) == (teachers.billed, 0, 0)


def test_a_cap_that_is_too_small_prevents_the_request(tmp_path: Path) -> None:
    teachers = TeacherServer()
    with serving(teachers) as url:
        judge = judge_of(f"{url}#large", 0.000001, tmp_path)
        assert judge(context()) is None
    assert judge.problems["budget reached"] == 1
    assert teachers.billed == 0


def opened(folder: Path, *words: str) -> dict[str, Any]:
    """Return the models that a command line names, through the real options."""
    found = dict[str, Any]()

    @click.command()
    @model_options
    def command(models: Models) -> None:
        found.update(models.open(folder, print))

    caps = [f"--{who}-max-usd=1" for who in ("judge", "critic") if any(word.startswith(f"--{who}") for word in words)]
    command.main([*words, *caps], standalone_mode=False)
    return found


def test_an_endpoint_without_prices_is_asked_at_the_price_that_is_given(tmp_path: Path) -> None:
    with serving(TeacherServer()) as url:
        both = ["--judge", f"{url}#mine", "--critic", f"{url}#mine"]
        for missing in ("judge", "critic"):
            rest = [f"--price={name}=0/0" for name in ("judge", "critic") if name != missing]
            with pytest.raises(TeacherError, match=rf"price is unknown.*--price {missing}=in/out"):
                opened(tmp_path, *both, *rest)
        found = opened(tmp_path, *both, "--price", "judge=0/0", "--price", "critic=1/2")
    assert (found["judge"].model, found["critic"].model) == ("mine", "mine")


def test_terms_that_forbid_training_are_accepted_by_name(tmp_path: Path) -> None:
    with serving(TeacherServer()) as url:
        words = ["--judge", f"{url}#gpt-9", "--price", "judge=0/0"]
        with pytest.raises(exits.Refused, match="--accept-terms judge"):
            opened(tmp_path, *words)
        assert opened(tmp_path, *words, "--accept-terms", "judge")["judge"].model == "gpt-9"


@pytest.mark.parametrize(
    "words",
    [["--price", "mine=0/0"], ["--accept-terms", "critic"], ["--price", "critic=0/0"], ["--critic-max-usd", "3"]],
)
def test_a_price_or_terms_of_a_model_that_is_not_asked_are_refused(words: list[str], tmp_path: Path) -> None:
    for judge in ([], ["--judge", "http://127.0.0.1:9/v1#mine"]):
        with pytest.raises(exits.UsageError, match="Name judge or critic, and give it"):
            opened(tmp_path, *judge, *words)


def test_a_price_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(exits.UsageError, match="--price 0/0: write it as name=in/out"):
        opened(tmp_path, "--judge", "http://127.0.0.1:9/v1#mine", "--price", "0/0")
    with pytest.raises(exits.UsageError, match="--price 0/0: write it as name=in/out"):
        opened(tmp_path, *(f"--{who}=http://127.0.0.1:9/v1#mine" for who in ("judge", "critic")), "--price", "0/0")
