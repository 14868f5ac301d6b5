"""The real Hub, with the token of the user who runs `pytest -m live`; each test removes what it made."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from datasets import load_dataset
from huggingface_hub import HfApi, get_token

from composer_hub import jobs
from composer_hub.hub import HubDestination, NothingToPublish, diff, dry_run, lineage, load_traces
from composer_hub.jobs.launching import follow, submit
from composer_hub.jobs.plan import find_price
from composer_hub.jobs.runs import end_of, list_files, prepare_bucket
from tests.hub.test_publish import CARD, A, B, tables
from tests.hub.test_publish_to_hub import put

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(get_token() is None, reason="the live tests need a token: log in with `hf auth login`"),
]


@pytest.fixture(scope="module")
def hub() -> HubDestination:
    return HubDestination("hub", HfApi())


@pytest.fixture
def repo(hub: HubDestination) -> Iterator[str]:
    name = f"{hub.api.whoami()['name']}/composer-hub-test-{uuid.uuid4().hex[:8]}"
    yield name
    hub.api.delete_repo(name, repo_type="dataset", missing_ok=True)


def test_a_version_is_one_private_commit_with_its_tag(hub: HubDestination, repo: str) -> None:
    published = put(hub, repo, [A])
    assert hub.is_private(repo) is True
    assert hub.tags(repo) == {"v1.0.0": published.revision}
    assert hub.api.list_repo_commits(repo, repo_type="dataset")[0].commit_id == published.revision


def test_the_same_rows_are_nothing_to_publish_and_more_rows_are_a_patch(hub: HubDestination, repo: str) -> None:
    put(hub, repo, [A])
    with pytest.raises(NothingToPublish):
        put(hub, repo, [A])
    assert put(hub, repo, [A, B]).tag == "v1.0.1"
    assert diff(hub, f"{repo}@v1.0.0", f"{repo}@v1.0.1").rows[0].added


def test_a_version_loads_by_tag(hub: HubDestination, repo: str) -> None:
    put(hub, repo, [A, B])
    assert len(load_dataset(repo, "steps", revision="v1.0.0", split="train")) == 4
    _, traces = load_traces(hub, f"{repo}@v1.0.0")
    assert {trace.trace_id for trace in traces} == {A.trace_id, B.trace_id}


def test_a_dry_run_makes_nothing(hub: HubDestination, repo: str) -> None:
    assert dry_run(hub, repo, tables([A]), CARD).create
    assert not hub.api.repo_exists(repo, repo_type="dataset")


def test_a_missing_tag_is_healed(hub: HubDestination, repo: str) -> None:
    put(hub, repo, [A])
    hub.api.delete_tag(repo, tag="v1.0.0", repo_type="dataset")
    with pytest.raises(NothingToPublish, match="Its tag was missing"):
        put(hub, repo, [A])
    assert [link.tag for link in lineage(hub, f"{repo}@v1.0.0")] == ["v1.0.0"]


def test_the_hardware_list_has_prices(hub: HubDestination) -> None:
    assert find_price(hub, "a100-large").usd_per_hour > find_price(hub, "cpu-basic").usd_per_hour > 0


def test_a_job_reads_its_bucket_and_its_exit_code_comes_back(hub: HubDestination) -> None:
    # Costs less than a tenth of a cent and needs an account that may run jobs.
    namespace, run = hub.api.whoami()["name"], f"test-{uuid.uuid4().hex[:8]}"
    spec = jobs.RunSpec(run, namespace, [], [], "cpu-basic", cap=0, timeout_s=300, max_jobs=1, image="python:3.12")
    prepare_bucket(hub, spec.bucket)
    try:
        lines: list[str] = []
        program = ["sh", "-c", "echo hello; ls /composer; exit 3"]
        launcher = jobs.Launcher(hub, namespace, lambda spec: program, show=lines.append)
        job_id = submit(launcher, spec, 1, 300, {})
        follow(launcher, job_id)
        assert end_of(hub.api.inspect_job(job_id=job_id, namespace=namespace), 300)[0] == "failed"
        assert list_files(hub, spec.bucket) == {}
    finally:
        hub.api.delete_bucket(spec.bucket)
