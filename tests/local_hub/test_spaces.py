"""Secrets, variables, hardware and stages of Spaces on the embedded Hub, as the stock client sees them."""

from __future__ import annotations

import uuid

import pytest
from huggingface_hub import HfApi, Volume
from huggingface_hub.errors import BadRequestError, HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.utils import get_session

from composer_hub.local_hub.server import ServerProcess

from .requests import auth, files_holding

SECRET = "sk-THE-VALUE-that-must-stay-secret"


@pytest.fixture
def space(ada: HfApi) -> str:
    name = f"ada/{uuid.uuid4().hex}"
    ada.create_repo(name, repo_type="space", space_sdk="gradio", private=False)
    return name


def test_a_secret_comes_back_by_name_and_description_and_never_by_value(ada: HfApi, space: str) -> None:
    ada.add_space_secret(space, "API_KEY", SECRET, description="for the teacher")
    ada.add_space_secret(space, "OTHER", SECRET)
    secrets = ada.get_space_secrets(space)
    assert {key: secret.description for key, secret in secrets.items()} == {"API_KEY": "for the teacher", "OTHER": None}
    assert secrets["API_KEY"].updated_at is not None
    ada.delete_space_secret(space, "OTHER")
    assert list(ada.get_space_secrets(space)) == ["API_KEY"]
    for path in ("secrets", "runtime", "", "variables"):
        url = f"{ada.endpoint}/api/spaces/{space}/{path}".rstrip("/")
        answer = get_session().get(url, headers=auth("ada"))
        assert answer.status_code == 200
        assert SECRET not in answer.text


def test_no_file_of_the_store_holds_a_secrets_value(server: ServerProcess, ada: HfApi, space: str) -> None:
    ada.add_space_secret(space, "API_KEY", SECRET)
    ada.create_repo(f"{space}x", repo_type="space", space_sdk="gradio", space_secrets=[{"key": "K", "value": SECRET}])
    assert list(ada.get_space_secrets(f"{space}x")) == ["K"]
    assert files_holding(server.root, b"API_KEY")
    assert files_holding(server.root, SECRET.encode()) == []


def test_a_space_has_the_settings_of_its_creation(ada: HfApi, space: str) -> None:
    name = f"{space}-made"
    ada.create_repo(
        name, repo_type="space", space_sdk="gradio", space_hardware="t4-small", space_sleep_time=600,
        space_variables=[{"key": "MODEL", "value": "ada/m", "description": "shown"}],
    )  # fmt: skip
    assert ada.get_space_variables(name)["MODEL"].value == "ada/m"
    runtime = ada.get_space_runtime(name)
    assert (runtime.requested_hardware, runtime.sleep_time) == ("t4-small", 600)


def test_variables_are_set_changed_and_deleted(ada: HfApi, space: str) -> None:
    ada.add_space_variable(space, "MODEL", "ada/one")
    changed = ada.add_space_variable(space, "MODEL", "ada/two", description="which model")
    assert changed["MODEL"].value == "ada/two"
    assert changed["MODEL"].description == "which model"
    assert ada.delete_space_variable(space, "MODEL") == {}
    assert ada.get_space_variables(space) == {}


def test_a_name_is_either_a_secret_or_a_variable(ada: HfApi, space: str) -> None:
    ada.add_space_secret(space, "NAME", SECRET)
    with pytest.raises(HfHubHTTPError, match="409"):
        ada.add_space_variable(space, "NAME", "public")
    assert ada.get_space_variables(space) == {}


def test_only_those_who_write_to_a_space_see_or_change_its_settings(ada: HfApi, bob: HfApi, space: str) -> None:
    ada.add_space_secret(space, "API_KEY", SECRET)
    ada.add_space_variable(space, "MODEL", "ada/one")
    for forbidden in (
        lambda: bob.add_space_secret(space, "API_KEY", "stolen"),
        lambda: bob.get_space_secrets(space),
        lambda: bob.get_space_variables(space),
        lambda: bob.delete_space_variable(space, "MODEL"),
        lambda: bob.pause_space(space),
        lambda: bob.request_space_hardware(space, "t4-small"),  # type: ignore[arg-type]
    ):
        with pytest.raises(HfHubHTTPError, match="403"):
            forbidden()
    assert bob.get_space_runtime(space).stage == "NO_APP_FILE"
    ada.update_repo_settings(space, private=True, repo_type="space")
    with pytest.raises(RepositoryNotFoundError):
        bob.get_space_runtime(space)


def test_the_stage_follows_files_pause_restart_and_hardware(ada: HfApi, space: str) -> None:
    assert ada.get_space_runtime(space).stage == "NO_APP_FILE"
    ada.upload_file(path_or_fileobj=b"print()\n", path_in_repo="app.py", repo_id=space, repo_type="space")
    runtime = ada.wait_for_space(space, timeout=10)
    assert (runtime.stage, runtime.hardware) == ("RUNNING", "cpu-basic")
    assert runtime.raw["simulated"] is True
    assert ada.pause_space(space).stage == "PAUSED"
    assert ada.get_space_runtime(space).hardware is None
    assert ada.restart_space(space, factory_reboot=True).stage == "RUNNING"
    ada.pause_space(space)
    upgraded = ada.request_space_hardware(space, "a10g-small", sleep_time=3600)  # type: ignore[arg-type]
    assert (upgraded.stage, upgraded.requested_hardware, upgraded.sleep_time) == ("RUNNING", "a10g-small", 3600)
    assert ada.set_space_sleep_time(space, -1).sleep_time == -1
    assert ada.space_info(space).runtime is not None


def test_volumes_are_kept_and_removed(ada: HfApi, space: str) -> None:
    ada.set_space_volumes(space, [Volume(type="dataset", source="ada/data", mount_path="/data")])
    volumes = ada.get_space_runtime(space).volumes
    assert volumes is not None
    assert (volumes[0].source, volumes[0].mount_path) == ("ada/data", "/data")
    ada.delete_space_volumes(space)
    assert ada.get_space_runtime(space).volumes is None


def test_the_logs_say_that_no_app_is_run(ada: HfApi, bob: HfApi, space: str) -> None:
    (line,) = ada.fetch_space_logs(space)
    assert "does not run Spaces" in line
    (line,) = ada.fetch_space_logs(space, build=True, follow=True)
    with pytest.raises(HfHubHTTPError, match="403"):
        list(bob.fetch_space_logs(space))


def test_the_one_hardware_is_free(ada: HfApi) -> None:
    (hardware,) = ada.list_spaces_hardware()
    assert (hardware.name, hardware.unit_cost_usd) == ("cpu-basic", 0.0)


@pytest.mark.parametrize(("key", "value"), [
    pytest.param("1ST", "x", id="digit first"),
    pytest.param("A B", "x", id="blank in name"),
    pytest.param("", "x", id="empty name"),
    pytest.param("A", "x" * 70_000, id="huge value"),
])  # fmt: skip
def test_names_and_values_no_environment_can_hold_are_refused(ada: HfApi, space: str, key: str, value: str) -> None:
    with pytest.raises(BadRequestError):
        ada.add_space_secret(space, key, value)
    assert ada.get_space_secrets(space) == {}


@pytest.mark.parametrize(
    "settings",
    [{"secrets": 5}, {"secrets": [5]}, {"variables": [{"key": "A"}]}, {"sleepTimeSeconds": "x"}, {"volumes": {}}],
    ids=str,
)
def test_a_space_is_not_created_with_settings_that_make_no_sense(ada: HfApi, settings: dict[str, object]) -> None:
    body = {"name": uuid.uuid4().hex, "type": "space", "sdk": "gradio", **settings}
    headers = auth("ada")
    answer = get_session().post(f"{ada.endpoint}/api/repos/create", json=body, headers=headers)
    assert answer.status_code == 400 or not any(settings.values())
    assert answer.status_code == 400 or ada.get_space_secrets(f"ada/{body['name']}") == {}


def test_settings_changed_at_once_all_last(ada: HfApi, space: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ada.add_space_variable(space, f"V{number}", str(number)), range(24)))
    assert len(ada.get_space_variables(space)) == 24
