"""Who publishes, as this machine gives it away."""

from __future__ import annotations

import subprocess
from pathlib import Path

from composer_hub.redact import NO_ONE, this_publisher


def test_the_user_the_home_folder_and_the_settings_of_git_are_found(tmp_path: Path) -> None:
    home = tmp_path / "kim.tanaka"
    home.mkdir()
    config = home / ".gitconfig"
    subprocess.run(["git", "config", "--file", config, "user.name", "Kim Tanaka"], check=True)
    subprocess.run(["git", "config", "--file", config, "user.email", "kim@tanaka.name"], check=True)
    variables = {"USER": "ktanaka", "GIT_CONFIG_GLOBAL": str(config), "GIT_AUTHOR_EMAIL": "kt@work.name"}
    publisher = this_publisher(variables, home)
    assert publisher.users == ("kim.tanaka", "ktanaka")
    assert "Kim Tanaka" in publisher.names
    assert {"kim@tanaka.name", "kt@work.name"} <= set(publisher.emails)


def test_names_that_machines_share_are_no_ones(tmp_path: Path) -> None:
    publisher = this_publisher({"USER": "root", "LOGNAME": "runner"}, tmp_path / "ubuntu")
    assert publisher.users == NO_ONE.users
