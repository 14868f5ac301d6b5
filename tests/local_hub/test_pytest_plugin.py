"""The pytest plugin in another project: its fixture, its environment, and nothing at all where it is not used."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]


def is_installed() -> bool:
    return any(one.name == "composer_hub" for one in entry_points(group="pytest11"))


def outcome(folder: Path, tests: str, ini: str = "") -> str:
    """Run the tests of another project with the plugin and return what pytest prints."""
    (folder / "test_other.py").write_text(tests)
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    # An installed package is found by its entry point; a second registration of one plugin is an error.
    named = [] if is_installed() else ["-p", "composer_hub.local_hub.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", *named, str(folder)]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTEST_"))}
    run = subprocess.run(
        command, cwd=folder, env=env | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=600
    )
    return run.stdout + run.stderr


def test_a_project_that_does_not_use_the_plugin_imports_nothing_for_it(tmp_path: Path) -> None:
    tests = """
import sys

def test_nothing_was_imported():
    heavy = {"starlette", "uvicorn", "sqlite3", "composer_hub.local_hub.app", "composer_hub.local_hub.server"}
    assert not heavy & sys.modules.keys()
"""
    assert "1 passed" in outcome(tmp_path, tests)


def test_every_test_has_a_user_a_namespace_and_faults_of_its_own(tmp_path: Path) -> None:
    tests = """
import subprocess, sys
import pytest
from huggingface_hub.errors import HfHubHTTPError

seen = []

@pytest.mark.parametrize("number", range(2))
def test_a_namespace_is_new(embedded_hub, number):
    api = embedded_hub.api()
    api.create_repo(embedded_hub.repo("data"), repo_type="dataset", private=True)
    where = {"repo_id": embedded_hub.repo("data"), "repo_type": "dataset"}
    api.upload_file(path_or_fileobj=b"x" * 100_000, path_in_repo="x.bin", **where)
    assert api.whoami()["name"] == embedded_hub.namespace
    assert [one.id for one in api.list_datasets(author=embedded_hub.namespace)] == [embedded_hub.repo("data")]
    assert len(list(api.list_datasets())) == 1, "private repositories of other tests are not seen"
    seen.append(embedded_hub.namespace)

def test_faults_end_with_their_block(embedded_hub):
    api, repo = embedded_hub.api(), embedded_hub.repo("data")
    api.create_repo(repo)
    with embedded_hub.faults("412"):
        with pytest.raises(HfHubHTTPError, match="412"):
            api.upload_file(path_or_fileobj=b"1", path_in_repo="a", repo_id=repo)
    with embedded_hub.faults("412:9"):
        pass
    with pytest.raises(Exception, match="is not a fault"), embedded_hub.faults("500"):
        pass
    api.upload_file(path_or_fileobj=b"1", path_in_repo="a", repo_id=repo)

def test_another_user_has_the_rights_of_an_organization(embedded_hub):
    team = embedded_hub.namespace + "-team"
    ada, bob = (embedded_hub.add_user({team: role}) for role in ("admin", "read"))
    ada.api().create_repo(f"{team}/shared", private=True)
    assert bob.api().model_info(f"{team}/shared").private
    with pytest.raises(HfHubHTTPError):
        bob.api().upload_file(path_or_fileobj=b"1", path_in_repo="a", repo_id=f"{team}/shared")

def test_a_child_process_uses_it(embedded_hub):
    code = "import huggingface_hub; print(huggingface_hub.whoami()['name'])"
    run = subprocess.run([sys.executable, "-c", code], env=embedded_hub.env, capture_output=True, text=True)
    assert run.stdout.strip() == embedded_hub.namespace, run.stderr

def test_the_namespaces_differed():
    assert len(set(seen)) == 2
"""
    printed = outcome(tmp_path, tests)
    assert "6 passed" in printed, printed


def test_with_the_option_code_that_makes_its_own_clients_meets_the_hub(tmp_path: Path) -> None:
    tests = """
import os
import huggingface_hub
from huggingface_hub import constants

def test_the_defaults_lead_to_the_hub(embedded_hub):
    assert constants.ENDPOINT == embedded_hub.endpoint
    url = huggingface_hub.create_repo("mine")
    assert url.repo_id == embedded_hub.repo("mine")

def test_without_the_fixture_nobody_is_signed_in():
    assert "HF_TOKEN" not in os.environ
    assert huggingface_hub.get_token() is None
"""
    printed = outcome(tmp_path, tests, "embedded_hub = true")
    assert "2 passed" in printed, printed


def test_an_import_that_came_too_early_is_named(tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text("import huggingface_hub.constants")
    printed = outcome(tmp_path, "def test(): pass", "embedded_hub = true\naddopts = -p early")
    assert "huggingface_hub is imported before the tests" in printed
