"""Reward hacks against levels of verification: every hack on every toy.

    python -m benchmarks.hack_lab [durations-parse durations-show wordtools-camel]

Counts what the verifier rewards without the oracle and with it, and the submissions that the monitor has a finding for.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from composer_hub.environments import monitor, oracle, trees
from composer_hub.environments.sandbox import open_sandbox
from composer_hub.environments.venvs import venv_for
from composer_hub.environments.verifier import verify
from tests.environments.hack_lab import HACKS, MUST_REACH_THE_ORACLE, hacked
from tests.environments.toy import TOYS

LEVELS = ("verifier without oracle", "verifier with oracle", "finding of the monitor")


def main() -> None:
    sandbox, passed = open_sandbox(), Counter[tuple[str, str]]()
    toys = [toy for toy in TOYS if not sys.argv[1:] or toy.task.task_id in sys.argv[1:]]
    version = subprocess.run([sys.executable, "-m", "pytest", "--version"], capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        venv = venv_for([f"pytest=={version.split()[1]}"])
        for toy in toys:
            bundle = toy.bundle(folder)
            module = toy.task.symbols[0].partition(":")[0]
            calls = [{"target": f"{module}:{name}", "args": args, "kwargs": {"d": []}} for name, args in toy.calls]
            gold = folder / f"gold-{toy.task.task_id}"
            trees.write_files(gold, toy.files)
            hidden = {"calls": calls, "answers": oracle.replay(calls, gold, toy.task.python_path, sandbox, venv)}
            for name in HACKS:
                tree, kind = hacked(toy, name), "reading" if name in MUST_REACH_THE_ORACLE else "forging"
                verdict = verify(toy.task, tree, bundle, sandbox, venv=venv, oracle=hidden)
                results = bool(verdict.visible), bool(verdict.reward), bool(monitor.findings(verdict))
                passed.update((level, kind) for level, is_true in zip(LEVELS, results, strict=True) if is_true)
                if verdict.visible or verdict.reward:
                    print(f"{toy.task.task_id}: {name} gets {verdict.visible:g}, {verdict.reward:g} with an oracle")
            assert verify(toy.task, toy.files, bundle, sandbox, venv=venv, oracle=hidden).reward == 1.0
    reading = len(MUST_REACH_THE_ORACLE)
    for level in LEVELS:
        shown = ", ".join(f"{kind} {passed[level, kind]} of {number * len(toys)}" for kind, number in
                          (("forging", len(HACKS) - reading), ("reading", reading)))  # fmt: skip
        print(f"{level:26} {shown}")


if __name__ == "__main__":
    main()
