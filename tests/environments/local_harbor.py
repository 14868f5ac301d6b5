"""A Harbor environment for tests that is a folder of this machine: it isolates nothing and needs no container."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.task.task import Task
from harbor.models.trial.paths import TrialPaths
from trl.experimental.harbor import HarborBashEnv

_PLACES = ("/logs/", "/tests", "/workdir", "/home/user")


class FolderEnvironment(BaseEnvironment):
    """Runs commands with the sandbox's paths moved into a temporary folder."""

    @staticmethod
    def type() -> str:
        return "folder"

    def _validate_definition(self) -> None:
        assert self.environment_dir.is_dir()

    async def start(self, force_build: bool) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="folder-harbor-"))

    async def stop(self, delete: bool) -> None:
        shutil.rmtree(self.root)

    def _moved(self, text: str) -> str:
        for place in _PLACES:
            text = text.replace(place, f"{self.root}{place}")
        return text

    async def exec(
        self, command: str, cwd: Any = None, env: Any = None, timeout_sec: Any = None, user: Any = None, **_: Any
    ) -> ExecResult:
        done = subprocess.run(
            ["bash", "-c", self._moved(command)], capture_output=True, text=True, timeout=timeout_sec, env=env
        )
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.returncode)

    async def upload_file(self, source_path: Any, target_path: str) -> None:
        target = Path(self._moved(target_path))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self._moved(Path(source_path).read_text()))

    async def upload_dir(self, source_dir: Any, target_dir: str) -> None:
        for path in Path(source_dir).rglob("*"):
            if path.is_file():
                await self.upload_file(path, f"{target_dir}/{path.relative_to(source_dir)}")

    async def download_file(self, source_path: str, target_path: Any) -> None:
        shutil.copy2(self._moved(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Any) -> None:
        shutil.copytree(self._moved(source_dir), target_dir, dirs_exist_ok=True)


class FolderAgent(HarborBashEnv):
    """TRL's bash agent and Harbor's own verifier in a `FolderEnvironment`."""

    async def _start(self, task_dir: str) -> str:
        await self._stop()
        self._task = Task(task_dir=Path(task_dir))
        self._paths = TrialPaths(trial_dir=Path(tempfile.mkdtemp(prefix="folder-harbor-trial-")))
        self._env = FolderEnvironment(
            environment_dir=self._task.paths.environment_dir, environment_name=self._task.short_name,
            session_id=uuid.uuid4().hex, trial_paths=self._paths, task_env_config=self._task.config.environment,
        )  # fmt: skip
        await self._env.start(force_build=False)
        await self._env.exec("mkdir -p /workdir /home/user/input")
        return self._task.instruction
