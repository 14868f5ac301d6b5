"""Harbor tasks: a folder or a dataset of tasks in, a `World` out.

Each task is a folder with `task.toml`, `instruction.md`, `environment/` and `tests/`, as Harbor and Repo2RLEnv write
it. With the environment `bubblewrap` the trees are played here, without Harbor and Docker, and all protections of a
tree are kept: the network mode, the agent's user, a separate verifier that gets nothing but the declared artifacts,
and limits. A Dockerfile that needs a container, and a tree without tests, are refused with a reason. All other
environments go through TRL's adapter, which needs Harbor, Python 3.12 and mostly Docker, and which ignores what
protects a task: such tasks are refused there.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
import tempfile
import tomllib
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from composer_hub import exits, extras
from composer_hub.environments.guard import Broken
from composer_hub.environments.machine import Machine
from composer_hub.environments.process import CommandInterrupted, shortened
from composer_hub.environments.trees import TreeError
from composer_hub.environments.world import EnvironmentFactory, World, load_object

if TYPE_CHECKING:
    from composer_hub.hub import Destination

BUBBLEWRAP = "bubblewrap"
_REWARDS = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
_CALL_SECONDS, _OUTPUT_CHARS = 60.0, 8000


def check(rest: str, environment: str = "docker") -> None:
    """Refuse a name without tasks, and a missing package."""
    if not rest:
        raise exits.UsageError("harbor: does not name tasks. Write harbor:folder or harbor:owner/name@revision.")
    if environment == BUBBLEWRAP:
        return
    if sys.version_info < (3, 12):
        raise exits.UsageError(f"harbor:{rest} needs Python 3.12 or newer; this is {sys.version[:4]}.")
    extras.need(f"harbor:{rest}", "harbor", "harbor")


def world_of(rest: str, where: Destination, *, agent: str = "bash", environment: str = "docker") -> World:
    """Return the tasks with their sandboxes, and the verifier as the reward."""
    folder, pin = Path(rest).expanduser(), f"harbor:{rest}"
    if not folder.is_dir():
        folder, pin = _fetched(rest, where)
    if not _roots(folder):
        raise exits.UsageError(f"harbor:{rest} holds no tasks: folders with a task.toml, in it or in its tasks/.")
    if environment == BUBBLEWRAP:
        return World(f"harbor:{rest}", HarborEnvironment, rows=[_row(one) for one in _roots(folder)], pin=pin)
    _refuse_protected(_roots(folder))
    from trl.experimental.harbor import AGENTS, HarborSpec

    if agent not in AGENTS and ":" not in agent:
        raise exits.UsageError(f"There is no Harbor agent {agent!r}. Name {', '.join(AGENTS)}, or pkg.module:Class.")
    tools: Any = AGENTS[agent] if agent in AGENTS else load_object(agent, "Harbor agent")
    try:
        spec = HarborSpec(str(folder), agent=tools, environment_type=environment)
    except TypeError as error:
        raise exits.UsageError(f"{agent} is not a Harbor agent: {error}.") from error
    rows = [_without_unused(row) for row in spec.train_dataset]
    factory = cast("EnvironmentFactory", spec.environment_factory)
    return World(f"harbor:{rest}", factory, (spec.reward_funcs,), rows, pin=pin)


def _refuse_protected(folders: list[Path]) -> None:
    """Refuse tasks whose verifier, network mode or user TRL's adapter would ignore."""
    for folder in folders:
        config = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
        parts = {name: config.get(name) or {} for name in ("verifier", "environment", "agent")}
        ignored = [
            *(["its separate verifier"] if parts["verifier"].get("environment_mode") == "separate" else []),
            *(["its network mode"] if parts["environment"].get("network_mode", "public") != "public" else []),
            *(["its user"] if parts["agent"].get("user") else []),
        ]
        if ignored:
            raise exits.Refused(
                f"{folder.name} would lose {' and '.join(ignored)} in TRL's adapter. Add --harbor_environment "
                f"{BUBBLEWRAP}, which keeps them."
            )


def _roots(folder: Path) -> list[Path]:
    root = folder / "tasks" if (folder / "tasks").is_dir() else folder
    return sorted(path.parent for path in root.glob("*/task.toml"))


def _fetched(rest: str, where: Destination) -> tuple[Path, str]:
    """Fetch a task tree at one commit; TRL itself would take the newest."""
    from composer_hub.hub import LoadError, commit_of, parse_ref

    ref = parse_ref(rest)
    try:
        revision = commit_of(where, ref)
    except LoadError as error:
        raise exits.UsageError(f"{error} There is no folder of that name either.") from error
    folder = None
    for path in where.files(ref.repo, revision):
        if path.startswith("tasks/") and (local := where.fetch(ref.repo, revision, path)) is not None:
            folder = local.parents[path.count("/")]
    if folder is None:
        raise exits.UsageError(f"{ref} has no folder tasks/, so it is not a dataset of Harbor tasks.")
    return folder, f"harbor:{ref.repo}@{revision}"


def _without_unused(row: dict[str, Any]) -> dict[str, Any]:
    """Drop the columns that this suite does not use: TRL fills them with None, which has no type."""
    return {name: value for name, value in row.items() if value is not None}


# --------------------------------------------------------------------------------------------------------------- trees


class HarborTaskError(exits.UsageError):
    """A tree that cannot be played here."""


@dataclass(frozen=True)
class HarborTask:
    """The settings that a tree declares."""

    folder: Path
    name: str
    instruction: str
    artifacts: tuple[str, ...]
    agent_user: str
    verifier_user: str
    is_separate: bool
    network: bool  # of the agent
    verifier_network: bool
    workdir: str
    seconds: float
    verifier_seconds: float
    memory_mb: int
    cpus: int

    @property
    def verifier_context(self) -> Path:
        own = self.folder / "tests"
        return own if self.is_separate and (own / "Dockerfile").is_file() else self.folder / "environment"


def read_task(folder: Path) -> HarborTask:
    """Read a tree in any of the layouts that Harbor and Repo2RLEnv write."""
    try:
        config = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
        instruction = (folder / "instruction.md").read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise HarborTaskError(f"{folder} is not a task: {Path(error.filename).name} is missing.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HarborTaskError(f"{folder}/task.toml is not TOML ({error}).") from error
    for path in ("environment/Dockerfile", "tests/test.sh"):
        if not (folder / path).is_file():
            raise HarborTaskError(f"{folder} has no {path}, so nothing can score it. It may be a text-only task.")
    if (folder / "environment" / "docker-compose.yaml").is_file():
        raise HarborTaskError(f"{folder} has a docker-compose.yaml. Run this task with Docker.")
    environment, agent, verifier = (_table(config, name) for name in ("environment", "agent", "verifier"))
    own = _table(verifier, "environment") or environment
    modes = [_network(one, folder) for one in (agent if "network_mode" in agent else environment, own)]
    return HarborTask(
        folder=folder,
        name=str(_table(config, "task").get("name") or folder.name),
        instruction=instruction.strip(),
        artifacts=tuple(one["source"] if isinstance(one, dict) else str(one) for one in config.get("artifacts", ())),
        agent_user=str(agent.get("user") or ""),
        verifier_user=str(verifier.get("user") or "root"),
        is_separate=verifier.get("environment_mode") == "separate",
        network=modes[0],
        verifier_network=modes[1],
        workdir=str(environment.get("workdir") or ""),
        seconds=float(agent.get("timeout_sec") or 600.0),
        verifier_seconds=float(verifier.get("timeout_sec") or 600.0),
        memory_mb=int(environment.get("memory_mb") or 4096),
        cpus=math.ceil(float(environment.get("cpus") or 0)),
    )


def _table(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def _network(table: Mapping[str, Any], folder: Path) -> bool:
    mode = table.get("network_mode") or ("no-network" if table.get("allow_internet") is False else "public")
    if mode not in ("no-network", "public"):
        raise HarborTaskError(f"{folder} asks for the network mode {mode!r}, which needs a container. Use Docker.")
    return mode == "public"


def started(task: HarborTask, *, layers: Path | None = None) -> Machine:
    """Build and return the agent's machine."""
    machine = Machine(task.folder / "environment", network=task.network, memory_mb=task.memory_mb, cpus=task.cpus,
                      layers=layers)  # fmt: skip
    try:
        machine.build()
    except BaseException:
        machine.close()
        raise
    machine.user = task.agent_user or machine.user
    machine.cwd = task.workdir or machine.cwd
    return machine


def verify(task: HarborTask, machine: Machine) -> tuple[float, str]:
    """Return the reward that the tree's verifier gives, and what it printed; 0 if it wrote none."""
    if not task.is_separate:
        clean = "rm -rf /tests /logs/verifier && mkdir -p /tests /logs/verifier && chmod 777 /logs/verifier"
        machine.run(clean, cwd="/", user="root", network=False)
        machine.put(task.folder / "tests", "/tests")
        return _scored(task, machine)
    judge = Machine(task.verifier_context, network=task.verifier_network, memory_mb=task.memory_mb, cpus=task.cpus,
                    layers=machine.layers)  # fmt: skip
    try:
        judge.build()
        if task.verifier_context.name != "tests":
            judge.put(task.folder / "tests", "/tests")
        with tempfile.TemporaryDirectory() as folder:
            for number, source in enumerate(task.artifacts):
                copy = Path(folder, str(number))
                try:
                    machine.take(source, copy)
                except (OSError, TreeError, exits.ComposerError):
                    judge.run(f"rm -rf {shlex.quote(source)}", cwd="/", user="root", network=False)
                    continue  # the agent deleted it or put a link in its place
                judge.put(copy, source)
        return _scored(task, judge)
    finally:
        judge.close()


def _scored(task: HarborTask, machine: Machine) -> tuple[float, str]:
    for _ in range(2):  # a verifier that something else may have ended runs once more
        done = machine.run(
            "bash /tests/test.sh", user=task.verifier_user, seconds=task.verifier_seconds, network=task.verifier_network
        )
        reward = _written(machine)
        if reward is not None:
            return reward, done.output
        try:
            done.check_uninterrupted()
        except CommandInterrupted as error:
            why = error
        else:
            break
    if done.starved:
        raise Broken(f"The verifier ended without a reward: {why}")
    return 0.0, f"The verifier wrote no reward (exit code {done.exit_code}).\n{done.output[-2000:]}"


def _written(machine: Machine) -> float | None:
    for path in _REWARDS:
        try:
            text = machine.read(path).decode()
            value = json.loads(text)
        except (OSError, ValueError, TreeError):
            continue
        numbers = value if isinstance(value, dict) else {"reward": value}
        reward = numbers.get("reward", next(iter(numbers.values()), None))
        if isinstance(reward, (int, float)) and math.isfinite(reward):
            return float(reward)
    return None


def score(folder: Path, *, solve: bool, layers: Path | None = None) -> tuple[float, str]:
    """Return the reward of a tree's own solution, or of an agent that does nothing: 1 and 0 in a tree that works."""
    task = read_task(folder)
    machine = started(task, layers=layers)
    try:
        if solve:
            machine.put(folder / "solution", "/solution")
            done = machine.run("bash /solution/solve.sh", seconds=task.seconds)
            if done.exit_code != 0:
                return 0.0, f"solve.sh failed ({done.exit_code}): {done.output[-2000:]}"
        return verify(task, machine)
    finally:
        machine.close()


# ---------------------------------------------------------------------------------------------------------- in training


class HarborEnvironment:
    """Work on a Harbor task in a private machine, scored by the task's verifier."""

    def __init__(self) -> None:
        self._machine: Machine | None = None
        self._task: HarborTask | None = None
        self._left = 0.0
        self._clean: Any = weakref.finalize(self, lambda: None)

    def reset(self, task: str = "", **row: Any) -> str | None:
        self._clean()
        self._task = read_task(Path(task))
        self._machine = started(self._task)
        self._clean = weakref.finalize(self, self._machine.close)
        self._left = self._task.seconds
        return None

    def get_reward(self) -> float:
        """Return the reward of the task's verifier."""
        assert self._task is not None
        return verify(self._task, self._own())[0]

    def run(self, command: str) -> str:
        """Run a shell command.

        Args:
            command: The command, for bash.
        """
        machine = self._own()
        if self._left <= 0:
            return "Command timed out: the time of this episode is used up."
        done = machine.run(command, seconds=min(_CALL_SECONDS, self._left))
        self._left -= done.seconds
        if done.timed_out:
            return f"Command timed out after {done.seconds:.0f} s.\n{shortened(done.output, _OUTPUT_CHARS)}"
        output = shortened(done.output.strip("\n") or "(no output)", _OUTPUT_CHARS)
        return output if done.exit_code == 0 else f"Exit code {done.exit_code}\n{output}"

    def _own(self) -> Machine:
        if self._machine is None:
            raise Broken("it was never reset")
        return self._machine


def _row(folder: Path) -> dict[str, Any]:
    """Return the task row of a tree; one that cannot be played here is an error with its reason."""
    instruction = read_task(folder).instruction
    return {"prompt": [{"role": "user", "content": instruction}], "task": str(folder.resolve())}
