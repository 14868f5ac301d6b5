"""Every command that publishes refuses a repository of another kind before it works."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from composer_hub import exits
from composer_hub.cli.main import COMMANDS
from composer_hub.hub import Card, FolderDestination, Table, publish
from composer_hub.records import Pair, features_of, to_row
from tests.cli.conftest import Command
from tests.factories import make_pair, make_trace
from tests.hub.test_publish import CARD, tables


def commands_in(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name, one in command.commands.items():
            yield from commands_in(one, (*words, name))
    else:
        yield words, command


def all_commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, (place, _) in COMMANDS.items():
        module, attribute = place.split(":")
        yield from commands_in(getattr(importlib.import_module(module), attribute), (name,))


PUBLISHING = {words: one for words, one in all_commands() if any(param.name == "shard_mb" for param in one.params)}


@pytest.mark.parametrize("words", PUBLISHING, ids=" ".join)
def test_a_command_refuses_a_repository_of_another_kind_before_it_works(
    words: tuple[str, ...], in_process: Command, tmp_path: Path
) -> None:
    where = FolderDestination(tmp_path / "hub")
    publish(where, "me/traces", tables([make_trace(0)]), CARD)
    card = Card("pairs", "Pairs", holes={"policy": "", "report": ""})
    publish(where, "me/pairs", [Table("default", [to_row(make_pair())], features_of(Pair), "pair_id")], card)
    given: list[object] = []
    for param in PUBLISHING[words].params:
        if param.required and param.name != "repo":
            value = tmp_path if isinstance(param.type, click.Path) else "me/nothing@v9.9.9"
            given += [*param.opts[:1], value] if isinstance(param, click.Option) else [value]
    taken = []
    for repo, more in itertools.product(("me/traces", "me/pairs"), ([], ["--dry-run"])):
        run = in_process(*words, *given, "--repo", repo, "--to", tmp_path / "hub", *more)
        if f"{repo} v1.0.0 holds {repo[3:]}, and a repository holds one kind" in run.stderr:
            assert run.returncode == exits.REFUSED
            assert "me/nothing" not in run.stderr  # the work would have begun with the other names
        else:
            taken.append(repo)
    assert len(set(taken)) <= 1, taken  # its own kind
    assert len(taken) != 1  # with and without --dry-run alike
