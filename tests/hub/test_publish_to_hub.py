"""Publishing to a real server process: faults, races, rights, and what stock clients then load."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits
from composer_hub.hub import (
    HubDestination,
    HubError,
    HubRefused,
    NothingToPublish,
    Published,
    PublishOptions,
    diff,
    dry_run,
    lineage,
    load,
    load_traces,
    publish,
)
from composer_hub.local_hub.server import ServerProcess, start_server
from tests.factories import make_trace
from tests.hub.clients import hub_at
from tests.hub.test_publish import CARD, A, B, C, tables
from tests.quick import quick

Name = Callable[[str], str]


@pytest.fixture
def hub(hub_server: ServerProcess) -> HubDestination:
    return hub_at(hub_server)


def put(where: HubDestination, repo: str, traces: list[Any], **options: Any) -> Published:
    return publish(where, repo, tables(traces), CARD, options=PublishOptions(**options))


def test_a_version_is_one_commit_and_one_tag(hub: HubDestination, hub_repo: Name) -> None:
    repo = hub_repo("traces")
    first, second = put(hub, repo, [A]), put(hub, repo, [A, B])
    commits = hub.api.list_repo_commits(repo, repo_type="dataset")
    assert [commit.commit_id for commit in commits[:2]] == [second.revision, first.revision]
    assert len(commits) == 3  # and the one that made the repository
    assert hub.tags(repo) == {"v1.0.0": first.revision, "v1.0.1": second.revision}


def test_a_repository_is_private_unless_asked_otherwise(hub: HubDestination, hub_repo: Name) -> None:
    private, public = hub_repo("private"), hub_repo("public")
    put(hub, private, [A])
    put(hub, public, [A], public=True)
    assert hub.is_private(private) is True
    assert hub.is_private(public) is False


def test_a_public_repository_is_refused_before_a_byte_goes_up(hub: HubDestination, hub_repo: Name) -> None:
    repo = hub_repo("traces")
    hub.api.create_repo(repo, repo_type="dataset", private=False)
    with pytest.raises(HubRefused, match="is public") as raised:
        put(hub, repo, [A])
    assert raised.value.exit_code == exits.REFUSED
    assert hub.api.list_repo_files(repo, repo_type="dataset") == [".gitattributes"]
    with pytest.raises(HubRefused, match="is public"):
        dry_run(hub, repo, tables([A]), CARD)


def test_publishing_needs_write_access(hub_server: ServerProcess, hub_repo: Name) -> None:
    with pytest.raises(HubRefused) as raised:
        put(hub_at(hub_server, "hf_test_eve"), hub_repo("traces"), [A])
    assert raised.value.exit_code == exits.REFUSED
    with pytest.raises(HubRefused, match="token is not valid"):
        put(hub_at(hub_server, "hf_wrong"), hub_repo("traces"), [A])


def test_a_dry_run_makes_no_repository(hub: HubDestination, hub_repo: Name) -> None:
    repo = hub_repo("traces")
    assert dry_run(hub, repo, tables([A]), CARD).create
    assert not hub.api.repo_exists(repo, repo_type="dataset")


def test_the_same_rows_again_make_no_commit(hub: HubDestination, hub_repo: Name) -> None:
    repo = hub_repo("traces")
    published = put(hub, repo, [A])
    with pytest.raises(NothingToPublish):
        put(hub, repo, [A])
    assert hub.resolve(repo, "main") == published.revision


def test_a_missing_tag_is_made_by_publishing_again(hub: HubDestination, hub_repo: Name) -> None:
    repo = hub_repo("traces")
    before = put(hub, repo, [A])
    hub.api.delete_tag(repo, tag="v1.0.0", repo_type="dataset")
    with pytest.raises(NothingToPublish, match="Its tag was missing"):
        put(hub, repo, [A])
    assert hub.tags(repo) == {"v1.0.0": before.revision}


def test_files_that_others_put_beside_the_data_stay(hub: HubDestination, hub_repo: Name) -> None:
    repo = hub_repo("traces")
    put(hub, repo, [A])
    hub.api.upload_file(path_or_fileobj=b"mine", path_in_repo="notes.txt", repo_id=repo, repo_type="dataset")
    put(hub, repo, [A, B])
    assert "notes.txt" in hub.api.list_repo_files(repo, repo_type="dataset")


@pytest.mark.parametrize("fault", quick(2, ["412:2", "lose:1", "409:2", "429:2", "503:2", "drop:2"]))
def test_a_version_gets_through_every_fault_exactly_once(tmp_path: Path, fault: str) -> None:
    with start_server(tmp_path, ["--user", "me:hf_me", "--inject", fault]) as server:
        hub = hub_at(server, "hf_me")
        published = put(hub, "me/traces", [A, B])
        assert hub.tags("me/traces") == {"v1.0.0": published.revision}
        assert len(hub.api.list_repo_commits("me/traces", repo_type="dataset")) == 2
        _, traces = load_traces(hub, "me/traces@v1.0.0")
        assert {trace.trace_id for trace in traces} == {A.trace_id, B.trace_id}


def test_a_hub_that_stays_busy_ends_in_a_sentence_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with start_server(tmp_path, ["--user", "me:hf_me", "--inject", "503:1000"]) as server:
        hub = hub_at(server, "hf_me", max_tries=3)
        with pytest.raises(HubError, match="failed 3 times"):
            put(hub, "me/traces", [A])


def test_retry_after_is_obeyed(tmp_path: Path) -> None:
    waits: list[float] = []
    with start_server(tmp_path, ["--user", "me:hf_me", "--inject", "429:1"]) as server:
        put(hub_at(server, "hf_me", sleep=waits.append), "me/traces", [A])
    assert waits
    assert waits[0] >= 1.0


def test_publishers_at_once_each_get_a_version_of_their_own(hub_server: ServerProcess, hub_repo: Name) -> None:
    repo = hub_repo("traces")
    put(hub_at(hub_server), repo, [A])
    done: list[Published] = []
    failed: list[BaseException] = []

    def publisher(number: int) -> None:
        try:
            done.append(put(hub_at(hub_server), repo, [A, make_trace(100 + number)]))
        except BaseException as error:  # noqa: BLE001 - the test raises it
            failed.append(error)

    threads = [threading.Thread(target=publisher, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len({published.tag for published in done}) == 4
    assert len({published.revision for published in done}) == 4
    for published in done:
        assert hub_at(hub_server).tags(repo)[published.tag] == published.revision


def test_diff_and_lineage_work_on_tags(hub: HubDestination, hub_repo: Name) -> None:
    repo = hub_repo("traces")
    put(hub, repo, [A, B])
    put(hub, repo, [dataclasses.replace(A, cwd="/x"), C])
    found = diff(hub, f"{repo}@v1.0.0", f"{repo}@v1.1.0")
    rows = {row.config: row for row in found.rows}
    assert (rows["traces"].added, rows["traces"].removed, rows["traces"].changed) == (
        (C.trace_id,),
        (B.trace_id,),
        (A.trace_id,),
    )
    assert [link.tag for link in lineage(hub, f"{repo}@v1.0.0")] == ["v1.0.0"]


def test_a_tag_is_resolved_once_to_its_commit(hub: HubDestination, hub_repo: Name) -> None:
    repo = hub_repo("traces")
    published = put(hub, repo, [A])
    version = load(hub, f"{repo}@v1.0.0")
    put(hub, repo, [B])
    assert version.revision == published.revision
    assert [row["trace_id"] for row in version.rows("traces")] == [A.trace_id]


def test_the_snippet_of_the_card_runs(
    hub: HubDestination, hub_repo: Name, client_env: dict[str, str], tmp_path: Path
) -> None:
    repo = hub_repo("traces")
    published = put(hub, repo, [A, B])
    card = hub.fetch(repo, published.revision, "README.md")
    assert card is not None
    (snippet,) = re.findall(r"```python\n(.*?)```", card.read_text(), re.DOTALL)
    env = client_env | {"HF_HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, env=env, timeout=600)
    assert run.returncode == 0, run.stderr
    assert "4 steps, 0 with a mistake of the model" in run.stdout
