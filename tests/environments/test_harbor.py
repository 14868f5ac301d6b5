"""Harbor trees without Docker: what is read, what is refused, and that a tree's protections hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.environments import WorldOptions, check_environment, dockerfile, open_world
from composer_hub.environments.dockerfile import UnsupportedDockerfile
from composer_hub.environments.harbor import HarborEnvironment, HarborTaskError, read_task, score, world_of
from composer_hub.environments.machine import Machine
from composer_hub.environments.sandbox import open_sandbox
from composer_hub.environments.world import tools_of
from composer_hub.hub import FolderDestination
from composer_hub.tasks.harbor import registry_of

PYTHON = "{}.{}".format(*sys.version_info)
TASK = """\
schema_version = "1.4"
artifacts = [{ source = "/workspace/core.py" }]
[task]
name = "me/add"
[environment]
network_mode = "no-network"
workdir = "/workspace"
memory_mb = 1024
cpus = 1
[agent]
user = "agent"
[verifier]
environment_mode = "separate"
user = "root"
timeout_sec = 60
"""
IMAGE = f"""\
FROM python:{PYTHON}-slim
ENV GREETING="hello you"
WORKDIR /workspace
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
RUN useradd -m agent
ADD core.tar.gz .
RUN chown -R agent:agent /workspace
"""
JUDGE = f"FROM python:{PYTHON}-slim\nWORKDIR /workspace\nCOPY test.sh check.py /tests/\n"
CHECK = """\
import json, sys
sys.path.insert(0, "/workspace")
from core import add
try:
    is_right = add(2, 3) == 5
except NotImplementedError:
    is_right = False
json.dump({"reward": float(is_right)}, open("/logs/verifier/reward.json", "w"))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "add"
    for path, text in {
        "task.toml": TASK, "instruction.md": "Restore add.", "environment/Dockerfile": IMAGE,
        "environment/core.py": "def add(a, b):\n    raise NotImplementedError\n", "tests/Dockerfile": JUDGE,
        "tests/test.sh": "#!/bin/sh\nexec python -I /tests/check.py\n", "tests/check.py": CHECK,
        "solution/solve.sh": "cp /solution/core.py /workspace/core.py\n",
        "solution/core.py": "def add(a, b):\n    return a + b\n",
    }.items():  # fmt: skip
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    with tarfile.open(folder / "environment/core.tar.gz", "w:gz") as packed:
        packed.add(folder / "environment/core.py", "core.py")
    return folder


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("machines need root")
    try:
        open_sandbox("bubblewrap")
    except exits.Refused as error:
        pytest.skip(str(error))
    return tmp_path_factory.mktemp("cache") / "composer-hub" / "layers"


def test_the_solution_earns_one_and_doing_nothing_earns_nothing(tree: Path, layers: Path) -> None:
    assert score(tree, solve=True, layers=layers)[0] == 1.0
    assert score(tree, solve=False, layers=layers)[0] == 0.0


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_harbor_itself_loads_the_registry_and_agrees(
    agent: str, reward: float, tree: Path, layers: Path, tmp_path: Path
) -> None:
    pytest.importorskip("harbor", reason="Harbor needs Python 3.12")
    (tmp_path / "tasks").mkdir()
    tree.rename(tmp_path / "tasks/add")
    (tmp_path / "registry.json").write_bytes(registry_of("me/tasks", "v1.0.0", ["add"]))
    environment = "composer_hub.environments.harbor_bubblewrap:BubblewrapEnvironment"
    command = (
        f"run --registry-path registry.json -d tasks@v1.0.0 -a {agent} -e {environment} -q -y -o jobs --job-name one"
    )
    harbor = Path(sys.executable).with_name("harbor")
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": paths, "XDG_CACHE_HOME": str(layers.parents[1])}
    done = subprocess.run([harbor, *command.split()], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (trial,) = (json.loads(path.read_text()) for path in tmp_path.glob("jobs/*/*/result.json"))
    assert trial["exception_info"] is None
    assert trial["verifier_result"]["rewards"]["reward"] == reward


def test_an_agents_machine_keeps_user_network_and_links_apart(
    tree: Path, layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(layers.parents[1]))
    one = HarborEnvironment()
    assert list(tools_of(one)) == ["run"]
    assert one.reset(task=str(tree)) is None
    assert one.run("id -un; pwd; echo $GREETING").split() == ["agent", "/workspace", "hello", "you"]
    assert "Exit code" in one.run("python -c 'import socket; socket.create_connection((\"1.1.1.1\", 53), 1)'")
    assert "Exit code" in one.run("echo x > /tests/check.py")
    assert one.run("ls /tests") == "(no output)"  # the verifier's files are in the verifier's machine alone
    assert one.get_reward() == 0.0
    one.run("rm core.py; ln -s /etc/passwd core.py")
    assert one.get_reward() == 0.0
    one.run("rm core.py; printf 'def add(a, b):\\n    return 5\\n' > core.py")
    assert one.get_reward() == 1.0


def test_a_verifier_that_crashes_gives_nothing(tree: Path, layers: Path) -> None:
    (tree / "solution" / "core.py").write_text("import os\nos._exit(0)\n")
    reward, reason = score(tree, solve=True, layers=layers)
    assert reward == 0.0
    assert "no reward" in reason


@pytest.mark.parametrize(
    ("path", "old", "new", "reason"),
    [
        ("task.toml", "no-network", "allowlist", "network mode 'allowlist'"),
        ("task.toml", "[task]", "[task", "not TOML"),
        ("environment/docker-compose.yaml", "", "services: {}", "docker-compose"),
    ],
)
def test_trees_that_need_more_are_refused(tree: Path, path: str, old: str, new: str, reason: str) -> None:
    file = tree / path
    file.write_text(file.read_text().replace(old, new) if file.exists() else new)
    with pytest.raises(HarborTaskError, match=reason):
        read_task(tree)


@pytest.mark.parametrize("missing", ["task.toml", "instruction.md", "environment/Dockerfile", "tests/test.sh"])
def test_a_tree_without_a_part_is_refused(tree: Path, missing: str) -> None:
    (tree / missing).unlink()
    with pytest.raises(HarborTaskError, match=Path(missing).name):
        read_task(tree)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FROM ubuntu:24.04", "base image ubuntu"),
        ("FROM python:3.11 AS a\nFROM a", "several stages"),
        ("RUN true", "does not begin"),
        ("FROM python:3.11\nRUN apt-get install -y postgresql", "postgresql"),
        ("FROM python:3.11\nRUN --mount=type=cache pip install x", "BuildKit"),
        ("FROM python:3.11\nRUN cat <<EOF\nx\nEOF", "documents"),
        ("FROM python:3.11\nONBUILD RUN true", "ONBUILD"),
        ("FROM python:3.11\nRUN apk add git", "apk"),
        ("", "does not begin"),
    ],
)
def test_dockerfiles_that_need_a_container_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedDockerfile, match=reason):
        dockerfile.check(text)


def test_a_dockerfile_is_read_as_docker_reads_it() -> None:
    text = (
        '# c\nFROM docker.io/library/python:3.12-slim\nENV A=1 B="two words"\nENV OLD value\n'
        'RUN a \\\n  # c\n  && b\nRUN ["c", "d e"]\n'
    )
    found = dockerfile.parse(text)
    assert [one.name for one in found] == ["FROM", "ENV", "ENV", "RUN", "RUN"]
    assert dockerfile.python_of(found[0]) == "3.12"
    assert [dockerfile.pairs_of(one) for one in found[1:3]] == [{"A": "1", "B": "two words"}, {"OLD": "value"}]
    assert [dockerfile.command_of(one) for one in found[3:]] == ["a    && b", "c 'd e'"]


def test_a_file_outside_the_context_is_not_copied(tree: Path, layers: Path) -> None:
    (tree / "environment" / "Dockerfile").write_text(f"FROM python:{PYTHON}\nCOPY ../task.toml /\n")
    machine = Machine(tree / "environment", layers=layers)
    try:
        with pytest.raises(exits.ComposerError, match="not in"):
            machine.build()
    finally:
        machine.close()


def test_a_folder_of_trees_is_a_world_without_harbor(tree: Path) -> None:
    where, options = FolderDestination(tree.parent), WorldOptions(harbor_environment="bubblewrap")
    check_environment(f"harbor:{tree.parent}", "bubblewrap")
    world = open_world(f"harbor:{tree.parent}", where=where, options=options)
    assert [row["prompt"][0]["content"] for row in world.rows or ()] == ["Restore add."]


def test_trls_adapter_does_not_get_tasks_that_it_would_weaken(tree: Path) -> None:
    with pytest.raises(exits.Refused, match="separate verifier and its network mode and its user"):
        world_of(str(tree.parent), FolderDestination(tree.parent))
