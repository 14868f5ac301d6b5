"""Harbor's own trials without Docker: an environment for `harbor run`, on a private root of bubblewrap.

    harbor run -p TASK -a oracle -e composer_hub.environments.harbor_bubblewrap:BubblewrapEnvironment

Harbor needs Python 3.12. Dockerfiles that need a container are refused before the trial starts.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

from composer_hub.environments import dockerfile
from composer_hub.environments.machine import Machine


class BubblewrapEnvironment(BaseEnvironment):
    """Runs the commands of one trial in a `Machine`."""

    _machine: Machine | None = None  # none if the Dockerfile was refused

    @staticmethod
    def type() -> str:
        return "bubblewrap"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True)

    def _validate_definition(self) -> None:
        path = self.environment_dir / "Dockerfile"
        if not path.is_file():
            raise FileNotFoundError(f"{self.environment_dir} has no Dockerfile.")
        dockerfile.check(path.read_text(encoding="utf-8"))

    async def start(self, force_build: bool) -> None:
        machine = Machine(
            self.environment_dir,
            network=not self._network_disabled,
            memory_mb=self._effective_memory_mb or 4096,
            cpus=int(self._effective_cpus or 0),
        )
        try:
            await asyncio.to_thread(machine.build)
        except BaseException:
            machine.close()
            raise
        machine.env |= self._startup_env()
        if self.task_env_config.workdir:
            machine.cwd = str(self.task_env_config.workdir)
        self._machine = machine

    async def stop(self, delete: bool) -> None:
        if self._machine is not None:
            self._machine.close()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
        **_: Any,
    ) -> ExecResult:
        chosen = self._resolve_user(user)
        with tempfile.TemporaryFile() as errors:
            done = await asyncio.to_thread(
                self._own().run,
                command,
                cwd=cwd or "",
                env=self._merge_env(env),
                user="" if chosen is None else str(chosen),
                seconds=timeout_sec,
                stderr=errors.fileno(),
            )
            errors.seek(0)
            text = errors.read(1 << 20).decode("utf-8", "replace")
        return ExecResult(stdout=done.output, stderr=text, return_code=done.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self._own().put(Path(source_path), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        self._own().put(Path(source_dir), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        self._own().take(source_path, Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        self._own().take(source_dir, Path(target_dir))

    def _own(self) -> Machine:
        if self._machine is None:
            raise FileNotFoundError(f"The machine of {self.environment_dir} did not start.")
        return self._machine
