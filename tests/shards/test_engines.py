"""Ingest on real engines: datatrove's processes, a Ray cluster of two workers, a Slurm node here."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from composer_hub import exits, ingest, shards
from composer_hub.shards import engines
from tests.shards.sessions import write_sessions

ROOT = Path(__file__).parents[2]
OPTIONS = ingest.IngestOptions(workers=1, redact=False)  # one plan, and no numbers that a machine keeps


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    return write_sessions(tmp_path / "sessions", 12)


def traces_of(sessions: Path, root: Path, executor: shards.Executor | None) -> list[object]:
    sharding = shards.Sharding(root, executor, 4) if executor else None
    return list(ingest.ingest([sessions], OPTIONS, sharding=sharding).traces())


def test_datatrove_gives_the_results_of_one_process(sessions: Path, tmp_path: Path) -> None:
    pytest.importorskip("datatrove", reason="the extra `scale` is not installed")
    executor = engines.on_datatrove(2)
    assert traces_of(sessions, tmp_path / "staging", executor) == traces_of(sessions, tmp_path, None)


def test_a_failed_shard_does_not_stop_those_after_it(sessions: Path, tmp_path: Path) -> None:
    pytest.importorskip("datatrove", reason="the extra `scale` is not installed")
    left: list[int] = []

    def broken(staging: shards.Staging, numbers: list[int], watch: object) -> None:
        (staging.folder / "inputs" / "00001.json").write_text("{")
        engines.on_datatrove(1)(staging, numbers, lambda: None)
        left.extend(staging.missing())

    with pytest.raises(shards.ShardError, match="1 of 4 shards have no result"):
        traces_of(sessions, tmp_path / "staging", broken)  # type: ignore[arg-type]
    assert left == [1]


def test_an_unknown_option_of_an_engine_is_a_usage_error(sessions: Path, tmp_path: Path) -> None:
    pytest.importorskip("datatrove", reason="the extra `scale` is not installed")
    with pytest.raises(exits.UsageError, match=r"LocalPipelineExecutor of datatrove has no option colour"):
        traces_of(sessions, tmp_path / "staging", engines.on_datatrove(1, colour="red"))
    with pytest.raises(exits.UsageError, match="--engine time"):
        engines.on_slurm(partition="cpu")


def test_ray_gives_the_results_of_one_process(sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datatrove", reason="the extra `scale` is not installed")
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    try:
        found = traces_of(sessions, tmp_path / "staging", engines.on_ray(2))
    finally:
        ray.shutdown()
    assert found == traces_of(sessions, tmp_path, None)


RAY = """
def is_initialized():
    return False

def init(**options):
    {init}
"""
SLOW = "raise Exception('The current node timed out during startup. This could happen because GCS is overloaded.')"


@pytest.mark.parametrize(
    ("init", "said"),
    [
        (SLOW, "Ray did not start (Exception: The current node timed out during startup."),
        ("pass", "RayPipelineExecutor did not run ("),  # the stand-in has nothing else
    ],
)
def test_a_ray_that_fails_is_a_sentence_with_the_next_step(
    sessions: Path, tmp_path: Path, init: str, said: str
) -> None:
    pytest.importorskip("datatrove", reason="the extra `scale` is not installed")
    (tmp_path / "ray.py").write_text(RAY.format(init=init))
    words = [
        "ingest",
        sessions,
        "--executor",
        "ray",
        "--staging",
        tmp_path / "staging",
        "--to",
        tmp_path,
        "--repo",
        "me/t",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "composer_hub", *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == exits.FAILURE, run.stderr
    assert said in run.stderr
    assert "Run the same command again" in run.stderr
    assert "bug" not in run.stderr


SLURM = """ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmctldPort={first_port}
SlurmdPort={second_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=4000
PartitionName=cpu Nodes={host} Default=YES State=UP
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run munge and a Slurm controller with one node until the test ends."""
    programs = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
    if os.getuid() != 0 or not all(map(shutil.which, programs)):
        pytest.skip("Slurm's daemons need root and Debian's slurm-wlm and munge")
    folder = Path(subprocess.check_output(["mktemp", "-d", "/tmp/slurm-XXXXXX"], text=True).strip())
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    config = folder / "slurm.conf"
    names = {"host": socket.gethostname().partition(".")[0], "folder": folder, "cpus": os.cpu_count()}
    config.write_text(SLURM.format(**names, first_port=free_port(), second_port=free_port()))
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    monkeypatch.setenv("SLURM_CONF", str(config))
    munge = [f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
    munge[0] = f"--socket={folder}/munge.sock"
    daemons = []
    try:
        for command in (
            ["munged", "--foreground", "--force", f"--key-file={key}", *munge],
            ["slurmctld", "-D", "-c", "-f", str(config)],
            ["slurmd", "-D", "-f", str(config)],
        ):
            daemons.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(1)
        for _ in range(60):
            if "idle" in subprocess.run(["sinfo", "-h"], capture_output=True, text=True).stdout:
                break
            time.sleep(1)
        else:
            pytest.skip("the Slurm node did not become idle in a minute")
        yield
    finally:
        for _ in range(40):  # a step that cannot report its end would outlive the daemons
            if not subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout.strip():
                break
            time.sleep(0.5)
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def test_slurm_gives_the_results_of_one_process(
    slurm: None, sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datatrove", reason="the extra `scale` is not installed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    executor = engines.on_slurm(partition="cpu", time="00:10:00", mem_per_cpu_gb=1)
    assert traces_of(sessions, tmp_path / "staging", executor) == traces_of(sessions, tmp_path, None)
