"""Reward hacks against levels of verification: every hack on every toy.

    python -m benchmarks.hack_lab

Levels: exit code of pytest in the agent's tree; the verifier without the oracle; the verifier with it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from composer_hub.environments import marks, monitor, oracle, trees
from composer_hub.environments.sandbox import Limits, Sandbox, open_sandbox
from composer_hub.environments.venvs import venv_for
from composer_hub.environments.verifier import verify
from tests.environments.hack_lab import HACKS, MUST_REACH_THE_ORACLE, hacked
from tests.environments.toy import TOYS, Toy


def exit_code(toy: Toy, tree: trees.Files, sandbox: Sandbox, venv: Path, folder: Path) -> bool:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        Path(place).chmod(0o711)
        root = Path(place, "tree")
        trees.write_files(root, tree)
        done = sandbox.run(
            ["python", "-m", "pytest", "-q", *toy.task.tests], root=root, venv=venv, limits=Limits(seconds=30),
            env=marks.python_env(sandbox.inside(root), toy.task.python_path),
        )  # fmt: skip
    return done.exit_code == 0


def main() -> None:
    sandbox, passed = open_sandbox(), Counter[tuple[str, str]]()
    version = subprocess.run([sys.executable, "-m", "pytest", "--version"], capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        venv = venv_for([f"pytest=={version.split()[1]}"])
        for toy in TOYS:
            bundle = toy.bundle(folder)
            module = toy.task.symbols[0].partition(":")[0]
            calls = [{"target": f"{module}:{name}", "args": args, "kwargs": {"d": []}} for name, args in toy.calls]
            gold = folder / f"gold-{toy.task.task_id}"
            trees.write_files(gold, toy.files)
            hidden = {"calls": calls, "answers": oracle.replay(calls, gold, toy.task.python_path, sandbox, venv)}
            for name in HACKS:
                tree, kind = hacked(toy, name), "reading" if name in MUST_REACH_THE_ORACLE else "forging"
                verdict = verify(toy.task, tree, bundle, sandbox, venv=venv, oracle=hidden)
                levels = {
                    "exit code of pytest": exit_code(toy, tree, sandbox, venv, folder),
                    "verifier without oracle": bool(verdict.visible),
                    "verifier with oracle": bool(verdict.reward),
                    "finding of the monitor": bool(monitor.findings(verdict)),
                }
                passed.update((level, kind) for level, is_true in levels.items() if is_true)
                if verdict.visible or verdict.reward:
                    print(f"{toy.task.task_id}: {name} gets {verdict.visible:g}, {verdict.reward:g} with an oracle")
            assert verify(toy.task, toy.files, bundle, sandbox, venv=venv, oracle=hidden).reward == 1.0
    reading = len(MUST_REACH_THE_ORACLE)
    for level in dict.fromkeys(level for level, _ in passed):
        shown = ", ".join(f"{kind} {passed[level, kind]} of {number * len(TOYS)}" for kind, number in
                          (("forging", len(HACKS) - reading), ("reading", reading)))  # fmt: skip
        print(f"{level:26} {shown}")


if __name__ == "__main__":
    main()
