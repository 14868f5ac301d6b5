"""Environments that are kept: made whole or not at all, and their programs run inside a sandbox."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.environments.sandbox import SandboxError, open_sandbox
from composer_hub.environments.venvs import VenvError, kept_environment, venv_for


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_programs_of_an_environment_start_by_their_name(kind: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        try:
            done = open_sandbox(kind).run("pytest --version", root=Path(root), venv=venv_for(["pytest", "coverage"]))
        except (exits.Refused, SandboxError, VenvError) as error:
            pytest.skip(str(error))
    assert (done.exit_code, "pytest" in done.output) == (0, True), done.output


def test_what_a_failed_or_killed_installation_left_is_made_again(tmp_path: Path) -> None:
    made: list[Path] = []

    def install(place: Path) -> None:
        made.append(place)
        assert not list(place.iterdir())
        (place / "half").touch()
        if len(made) == 1:
            raise VenvError("no network")

    with pytest.raises(VenvError):
        kept_environment(b"it", tmp_path, install)
    assert not made[0].exists()
    made[0].mkdir()
    (made[0] / "left by a kill").touch()
    assert kept_environment(b"it", tmp_path, install) == kept_environment(b"it", tmp_path, install) == made[0]
    assert len(made) == 2


def test_an_environment_can_be_read_by_every_user_and_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o077)
    try:
        place = kept_environment(b"it", Path("kept"), lambda fresh: (fresh / "file").touch())
    finally:
        os.umask(before)
    assert place == tmp_path / "kept" / place.name
    assert (place / "file").stat().st_mode & 0o777 == 0o644
