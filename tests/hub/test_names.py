"""A name that means nothing is refused with the names that there are, and a Hub that is away with its address."""

from __future__ import annotations

import ast
import inspect
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

import composer_hub
from composer_hub.environments.harbor import world_of
from composer_hub.hub import (
    Add,
    Destination,
    FolderDestination,
    HubDestination,
    HubError,
    Patience,
    check_target,
    commit_of,
    diff,
    fetch_model,
    lineage,
    load,
    newest,
    parse_ref,
    publish,
)
from composer_hub.hub.refs import newest_first
from composer_hub.hub.spaces import existing
from composer_hub.ingest.downloads import download
from composer_hub.local_hub.server import ServerProcess
from tests.factories import make_trace
from tests.hub.clients import hub_at
from tests.hub.test_publish import CARD, A, B, tables
from tests.quick import quick

Name = Callable[[str], str]
PACKAGE = Path(composer_hub.__file__).parent

READERS: dict[str, Callable[[Any, str], Any]] = {
    "load": load,
    "diff": lambda where, name: diff(where, name, name),
    "lineage": lambda where, name: list(lineage(where, name)),
    "model": fetch_model,
    "ingest": lambda where, name: download(where, f"hf://datasets/{name}"),
    "harbor": lambda where, name: world_of(name, where),
    "space": lambda where, name: existing(where, [name]),
}


@pytest.fixture
def hub(hub_server: ServerProcess) -> HubDestination:
    return hub_at(hub_server)


def versions_of(hub: HubDestination, repo: str, repo_type: str) -> None:
    hub.api.create_repo(repo, repo_type=repo_type)
    for tag in ("v1.9.0", "v1.10.0", "before"):
        hub.api.create_tag(repo, tag=tag, repo_type=repo_type)


@pytest.mark.parametrize("reader", READERS)
def test_a_wrong_tag_is_refused_with_the_tags_that_there_are(reader: str, hub: HubDestination, hub_repo: Name) -> None:
    repo, repo_type = hub_repo(reader), "model" if reader == "model" else "dataset"
    versions_of(hub, repo, repo_type)
    with pytest.raises(composer_hub.exits.ComposerError) as caught:
        READERS[reader](hub, f"{repo}@v1.1.0")
    assert f"There is no {repo}@v1.1.0 at {hub.address}. Its tags are v1.10.0, v1.9.0, before." in str(caught.value)


@pytest.mark.parametrize("reader", READERS)
def test_a_wrong_name_is_refused_with_the_place(reader: str, hub: HubDestination, hub_repo: Name) -> None:
    repo, repo_type = hub_repo(reader), "model" if reader == "model" else "dataset"
    with pytest.raises(composer_hub.exits.ComposerError) as caught:
        READERS[reader](hub, f"{repo}@v1.1.0")
    assert f"There is no {repo}@v1.1.0 at {hub.address}. No {repo_type} has this name:" in str(caught.value)


@pytest.mark.parametrize("reader", sorted(READERS.keys() - {"lineage"}))  # which reads both
def test_a_name_of_another_type_is_refused_with_its_type(reader: str, hub: HubDestination, hub_repo: Name) -> None:
    repo, other = hub_repo(reader), "dataset" if reader == "model" else "model"
    versions_of(hub, repo, other)
    with pytest.raises(composer_hub.exits.ComposerError, match=f"is a {other} there, and this needs a "):
        READERS[reader](hub, f"{repo}@v1.9.0")


def test_lineage_names_the_tags_of_models_too(hub: HubDestination, hub_repo: Name) -> None:
    repo = hub_repo("model")
    versions_of(hub, repo, "model")
    with pytest.raises(composer_hub.exits.ComposerError, match=r"Its tags are v1\.10\.0"):
        list(lineage(hub, f"{repo}@v2.0.0"))


def test_many_tags_are_cut_and_none_are_said(tmp_path: Path, hub: HubDestination, hub_repo: Name) -> None:
    folder = FolderDestination(tmp_path)
    publish(folder, "me/traces", tables([A]), CARD)
    with pytest.raises(composer_hub.exits.ComposerError, match=r"Its tags are v1\.0\.0\."):
        commit_of(folder, parse_ref("me/traces@v3.0.0"))
    repo = hub_repo("many")
    hub.api.create_repo(repo, repo_type="dataset")
    with pytest.raises(composer_hub.exits.ComposerError, match="It has no tags"):
        commit_of(hub, parse_ref(f"{repo}@v1.0.0"))
    for number in range(14):
        hub.api.create_tag(repo, tag=f"v1.{number}.0", repo_type="dataset")
    with pytest.raises(composer_hub.exits.ComposerError, match=r"v1\.13\.0, .*v1\.2\.0 and 2 more\."):
        commit_of(hub, parse_ref(f"{repo}@v2.0.0"))


def test_versions_are_sorted_by_their_numbers() -> None:
    assert newest_first(["v1.2.0", "run-7", "v1.10.0", "v0.9.0"]) == ["v1.10.0", "v1.2.0", "v0.9.0", "run-7"]


OTHERS = {
    "replay/auditing.py",  # the requests of a ledger
    "shards/tables.py",  # whether a plan's commit is still there
}


def test_only_one_function_turns_a_name_into_a_commit() -> None:
    """Other rooms ask for the head; a revision that a user named goes through `commit_of`, whose refusal helps."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        name, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        if name.startswith(("hub/", "local_hub/")) or name in OTHERS or ".resolve(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) > 1
            if is_call and node.func.attr == "resolve" and getattr(node.args[1], "value", "") != "main":
                found.append(f"{name}:{node.lineno}")
    assert found == []


# ----------------------------------------------------------------------------------------------------------- the place

CALLS = [name for name, _ in inspect.getmembers(Destination, inspect.isfunction) if name[0] != "_"]
VALUES = {
    "repo": "me/x", "revision": "main", "path": "a.txt", "repo_type": "dataset", "private": True, "tag": "v1.0.0",
    "message": "m",
}  # fmt: skip


# A commit whose answer is lost ends in the next look at the head; for the others, the client itself sleeps for 23 s.
AT_ONCE = sorted(set(CALLS) - {"exclusive", "commit", "fetch", "files", "reviews"})


@pytest.mark.parametrize("call", quick(len(AT_ONCE), [*AT_ONCE, "reviews"]))
def test_a_hub_that_cannot_be_reached_is_named_by_its_address(call: str, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nothing listens
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        away = HubDestination("hub", HfApi(address, token="hf_x"), Patience(sleep=lambda seconds: None), tmp_path)
        method = getattr(away, call)
        with pytest.raises(HubError) as caught:
            method(**{name: VALUES[name] for name in inspect.signature(method).parameters})
    assert f" at {address} failed 6 times, last with:" in str(caught.value)


# ----------------------------------------------------------------------------------------------- the right repository


@pytest.mark.parametrize("place", ["hub", "folder"])
def test_a_repository_with_files_of_others_takes_no_version(
    place: str, tmp_path: Path, hub: HubDestination, hub_repo: Name
) -> None:
    where: Destination = hub if place == "hub" else FolderDestination(tmp_path)
    repo = hub_repo("foreign")
    where.prepare(repo, private=True)
    files = [Add.of(name, b"mine") for name in ("README.md", "data/train-00000-of-00001.parquet")]
    where.commit(repo, files[:1], title="card", body="", parent=where.resolve(repo, "main"))
    check_target(where, repo, "traces", public=False)
    where.commit(repo, files, title="rows", body="", parent=where.resolve(repo, "main"))
    refused = r"files that composer_hub did not publish \(data/train.*traces would replace"
    with pytest.raises(composer_hub.exits.Refused, match=refused):
        check_target(where, repo, "traces", public=False)
    with pytest.raises(composer_hub.exits.Refused, match=refused):
        publish(where, repo, tables([make_trace(0)]), CARD)
    head = where.resolve(repo, "main")
    assert head is not None
    assert "data/train-00000-of-00001.parquet" in where.files(repo, head)
    check_target(where, repo, "raw sessions", public=False)  # which are added beside them


def test_a_name_of_another_type_takes_no_version_until_its_own_type_exists(hub: HubDestination, hub_repo: Name) -> None:
    repo = hub_repo("dataset")
    publish(hub, repo, tables([A, B]), CARD)
    with pytest.raises(composer_hub.exits.Refused, match=r"is a dataset at .*publishes model to a model"):
        check_target(hub, repo, "model", public=False, repo_type="model")
    hub.api.create_repo(repo, repo_type="model", private=True)
    check_target(hub, repo, "model", public=False, repo_type="model")
    model = hub_repo("model")
    hub.api.create_repo(model, repo_type="model")
    with pytest.raises(composer_hub.exits.Refused, match=r"is a model at .*publishes pairs to a dataset"):
        check_target(hub, model, "pairs", public=False)
    assert newest(hub, repo) is not None
    assert newest(hub, model) is None
