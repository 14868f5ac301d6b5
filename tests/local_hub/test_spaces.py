"""Spaces on the embedded Hub, whose apps are not run."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError


@pytest.fixture
def space(ada: HfApi) -> str:
    name = f"ada/{uuid.uuid4().hex}"
    ada.create_repo(name, repo_type="space", space_sdk="gradio", private=False)
    return name


def test_a_space_seems_to_run_when_it_has_an_app(ada: HfApi, space: str) -> None:
    assert ada.get_space_runtime(space).stage == "NO_APP_FILE"
    ada.upload_file(path_or_fileobj=b"print()\n", path_in_repo="app.py", repo_id=space, repo_type="space")
    runtime = ada.wait_for_space(space, timeout=10)
    assert (runtime.stage, runtime.hardware, runtime.raw["simulated"]) == ("RUNNING", "cpu-basic", True)
    shown = ada.space_info(space)
    assert (shown.sdk, shown.runtime is not None and shown.runtime.stage) == ("gradio", "RUNNING")


def test_only_those_who_read_a_space_see_its_runtime(ada: HfApi, bob: HfApi, space: str) -> None:
    assert bob.get_space_runtime(space).stage == "NO_APP_FILE"
    ada.update_repo_settings(space, private=True, repo_type="space")
    with pytest.raises(RepositoryNotFoundError):
        bob.get_space_runtime(space)


@pytest.mark.parametrize("settings", [
    {"space_secrets": [{"key": "K", "value": "v"}]},
    {"space_variables": [{"key": "K", "value": "v"}]},
    {"space_hardware": "t4-small"},
], ids=str)  # fmt: skip
def test_settings_of_an_app_that_is_never_run_are_refused(ada: HfApi, space: str, settings: dict[str, Any]) -> None:
    with pytest.raises(HfHubHTTPError, match="runs no Spaces"):
        ada.create_repo(f"{space}-set", repo_type="space", space_sdk="gradio", **settings)
    assert not ada.repo_exists(f"{space}-set", repo_type="space")
    with pytest.raises(HfHubHTTPError, match="501"):
        ada.add_space_secret(space, "K", "v")
