"""Run jobs as local processes: slot, mounts, supervisor, end. State goes to the `jobs` table, output to a log.

Secrets exist only in this object and in the process that needs them, never in a file or table of the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composer_hub.local_hub import mounts, supervisor
from composer_hub.local_hub.bucketstore import Bucket, apply_batch
from composer_hub.local_hub.calls import Hub
from composer_hub.local_hub.env import env_changes
from composer_hub.local_hub.mounts import Mount, Volume
from composer_hub.local_hub.xettokens import area_of

SERVER_STOPPED = "server stopped"
_PATIENCE = 600.0
"""A stage that is not written down is lost."""
MIN_MASK = 6
"""Shorter secrets are not masked in the log, because they would hide half of its words."""
# A job inherits only this of the server's environment, so that it sees no token of the person who serves.
_INHERITED = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TERM SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE"
    " HTTP_PROXY HTTPS_PROXY http_proxy https_proxy NO_PROXY no_proxy LD_LIBRARY_PATH CUDA_HOME CUDA_VISIBLE_DEVICES"
    " PIP_INDEX_URL PIP_CONFIG_FILE OMP_NUM_THREADS".split()
)
_INHERITED_PREFIXES = ("LC_", "UV_", "XDG_", "NVIDIA_")


@dataclass
class RunningJob:
    """A job that has not ended: its request, and the process that supervises it."""

    id: str
    spec: Mapping[str, Any]
    secrets: Mapping[str, str]
    volumes: Sequence[Volume]
    process: asyncio.subprocess.Process | None = None
    is_waiting: bool = True
    is_canceled: bool = False
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Runner:
    """All jobs of a server. At most `num_slots` run at once; the others wait as SCHEDULING."""

    def __init__(self, hub: Hub, *, num_slots: int | None = None) -> None:
        self.hub = hub
        self.root = hub.store.root / "jobs"
        self.running: dict[str, RunningJob] = {}
        self._slots = asyncio.Semaphore(num_slots or max(2, os.cpu_count() or 2))
        self._sweep()

    def start(self, job: RunningJob) -> None:
        """Start a job, which is already in the table as SCHEDULING."""
        self.running[job.id] = job
        self.folder(job.id).mkdir(parents=True, mode=0o700, exist_ok=True)
        job.task = asyncio.create_task(self._run(job))

    async def cancel(self, job_id: str) -> None:
        """End a job and all its processes, and return when they have ended."""
        job = self.running.get(job_id)
        await asyncio.to_thread(self._set, job_id, stage="CANCELED", is_end=True)
        if job is None or job.task is None:
            return
        job.is_canceled = True
        if job.is_waiting:
            job.task.cancel()
        _stop(job)
        await asyncio.wait([job.task], timeout=supervisor.GRACE_SECONDS + 2)

    def folder(self, job_id: str) -> Path:
        return self.root / job_id

    def log_path(self, job_id: str) -> Path:
        return self.root / job_id / "log.jsonl"

    def _sweep(self) -> None:
        """Remove the folders of jobs of an earlier server, except their logs."""
        for box in self.root.glob("*/box"):
            shutil.rmtree(box, ignore_errors=True)

    async def _run(self, job: RunningJob) -> None:
        """Take a job from SCHEDULING to its end; an error becomes its message."""
        box = self.folder(job.id) / "box"
        try:
            async with self._slots:
                job.is_waiting = False
                stage, message = await self._run_in(job, box)
        except asyncio.CancelledError:  # canceled before its turn, or the server stops
            self._set(job.id, stage="ERROR", message=SERVER_STOPPED, is_end=True)
            raise
        except Exception as error:  # noqa: BLE001 - the job must end with any error as its message
            stage, message = "ERROR", f"could not be run: {type(error).__name__}: {error}"
        finally:
            await asyncio.to_thread(shutil.rmtree, box, ignore_errors=True)
            self.running.pop(job.id, None)
        await asyncio.to_thread(self._set, job.id, stage=stage, message=message, is_end=True)

    async def _run_in(self, job: RunningJob, box: Path) -> tuple[str, str]:
        """Fill the mounts, run the command up to `attempts` times, write back to buckets; return stage and message."""
        if job.is_canceled:
            return "CANCELED", ""
        work = box / "work"
        work.mkdir(parents=True)
        filled = await asyncio.to_thread(mounts.fill, self.hub, job.volumes, box / "mounts")
        order = self._order(job, filled, work)
        program = order["command"][0]
        if shutil.which(program, path=order["env"]["PATH"]) is None:
            return "ERROR", self._refuse(job, program)
        about = _about(job.spec) + mounts.note(filled)
        stage, message = "ERROR", ""
        for _ in range(job.spec["attempts"]):
            stage, message = await self._attempt(job, order, about)
            if stage == "COMPLETED" or message == "timeout" or job.is_canceled:
                break
        problems = await asyncio.to_thread(self._write_back, job, filled)
        if problems and stage == "COMPLETED":
            return "ERROR", problems
        return stage, message

    async def _attempt(self, job: RunningJob, order: Mapping[str, Any], about: str) -> tuple[str, str]:
        """Run the command once under a supervisor; its order goes through a pipe, so that `ps` shows no secret."""
        job.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            supervisor.__file__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        assert job.process.stdin is not None
        assert job.process.stdout is not None
        job.process.stdin.write(json.dumps(order).encode() + b"\n")
        if job.is_canceled:
            _stop(job)
        ended: dict[str, Any] = {}
        group = 0
        try:
            async for line in job.process.stdout:
                fact = json.loads(line)
                if group := fact.get("started", group):
                    await asyncio.to_thread(self._set, job.id, stage="RUNNING", message=about)
                ended = fact if "ended" in fact else ended
        except asyncio.CancelledError:
            # The event loop kills its child processes at its end, so the supervisor must end the job before.
            job.process.stdin.close()
            await job.process.wait()
            raise
        await job.process.wait()
        job.process = None
        if not ended and group:
            supervisor.signal_group(group, signal.SIGKILL)
        return _outcome(ended, about)

    def _order(self, job: RunningJob, filled: Sequence[Mount], work: Path) -> dict[str, Any]:
        """Return the order for the supervisor."""
        spec = job.spec
        command = mounts.replace_paths([*spec["command"], *spec["arguments"]], filled)
        names, values = list(spec["environment"]), list(spec["environment"].values())
        asked = dict(zip(names, mounts.replace_paths(values, filled), strict=True))
        masks = {
            part for value in job.secrets.values() for part in (value, *value.splitlines()) if len(part) >= MIN_MASK
        }
        return {
            "command": command,
            "env": {**self._base_environment(work), **asked, **job.secrets, **mounts.variables(filled)}
            | {"HF_ENDPOINT": self.hub.endpoint, "JOB_ID": job.id},
            "cwd": str(work),
            "log": str(self.log_path(job.id)),
            "timeout": spec["timeoutSeconds"],
            "masks": sorted(masks),
        }

    def _base_environment(self, work: Path) -> dict[str, str]:
        """Return the environment of every job: this Hub, the programs beside this Python, and no other token."""
        inherited = {
            key: value for key, value in os.environ.items() if key in _INHERITED or key.startswith(_INHERITED_PREFIXES)
        }
        beside = str(Path(sys.executable).parent)
        home = self.hub.store.root / "home"
        changes = env_changes(inherited, self.hub.endpoint, home=home, with_xet=self.hub.with_xet)
        return (
            inherited
            | {key: value for key, value in changes.items() if value is not None}
            | {
                "PATH": os.pathsep.join([beside, inherited.get("PATH", os.defpath)]),
                "PWD": str(work),
                "CPU_CORES": str(os.cpu_count() or 1),
                "PYTHONUNBUFFERED": "1",
                "UV_NO_PROJECT": "1",
            }
        )

    def _refuse(self, job: RunningJob, program: str) -> str:
        advice = " Install it with: pip install uv" if program == "uv" else " Install it, or give another command."
        message = f"the program {program!r} is not on this machine.{advice}"
        with open(self.log_path(job.id), "ab") as file:
            supervisor.Log(file, []).feed(message.encode() + b"\n")
        return message

    def _write_back(self, job: RunningJob, filled: Sequence[Mount]) -> str:
        """Copy the changes of the job to its writable buckets; return an error message, or an empty text."""
        problems = []
        for mount in filled:
            bucket = mount.volume.source
            if not mount.volume.is_writable or not isinstance(bucket, Bucket):
                continue
            user = f"job {job.id}"  # a name that no person can have
            operations, refused = mounts.changes_to_bucket(self.hub, bucket, mount, user)
            failed = apply_batch(self.hub.store, bucket, operations, area_of(bucket.scope, user), lambda *_: "")
            problems += [f"{mount.volume.mount_path}/{name}" for name in refused]
            problems += [f"{item['path']} ({item['error']})" for item in failed]
        names = ", ".join(problems[:10]).encode("utf-8", "replace").decode()
        return f"could not write back to the bucket: {names}" if problems else ""

    def _set(self, job_id: str, *, stage: str, message: str = "", is_end: bool = False) -> None:
        """Move a job to another stage, unless it has ended."""
        moment = "finished_at" if is_end else "started_at"
        with self.hub.store.write(patience=_PATIENCE) as db:
            db.execute(
                f"update jobs set stage=?, message=?, {moment}=coalesce({moment}, ?) "
                "where id=? and stage in ('SCHEDULING', 'RUNNING')",
                (stage, message, self.hub.store.now(), job_id),
            )


def _stop(job: RunningJob) -> None:
    if job.process is not None and job.process.stdin is not None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            job.process.stdin.write(b"stop\n")


def _about(spec: Mapping[str, Any]) -> str:
    image = spec.get("dockerImage") or f"of the Space {spec.get('spaceId')}"
    return f"Runs as a local process: the image {image} and the flavor {spec['flavor']} are not used."


def _outcome(ended: Mapping[str, Any], about: str) -> tuple[str, str]:
    """Return the stage and message that an ended attempt gives its job."""
    cause, code = ended.get("cause"), ended.get("ended")
    if cause == "timeout":
        return "ERROR", "timeout"
    if cause == "canceled":
        return "CANCELED", ""
    if cause != "exit":
        return "ERROR", "its supervisor was ended from outside"
    if code == 0:
        return "COMPLETED", about
    if isinstance(code, int) and code < 0:
        return "ERROR", f"ended by {signal.Signals(-code).name}"
    return "ERROR", str(ended.get("why") or f"exit code {code}")
