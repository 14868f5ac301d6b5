"""The grader of a Harbor tree: run the tests as another user, replay the oracle, and write the reward.

Expected answers stay in this process, which imports nothing of the code under test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(os.environ.get("COMPOSER_ROOT", "/"))
TESTS, WORK, LOGS = ROOT / "tests", ROOT / "workspace", ROOT / "logs" / "verifier"
PLUGIN = """
import json, os
passed = {}
def pytest_collection_modifyitems(items):
    wanted = set(json.loads(os.environ["WANTED_TESTS"]))
    items[:] = [item for item in items if item.nodeid in wanted]
def pytest_runtest_logreport(report):
    ok = report.passed and not hasattr(report, "wasxfail")
    passed[report.nodeid] = passed.get(report.nodeid, True) and ok
def pytest_sessionfinish():
    with os.fdopen(int(os.environ["REPORT_FD"]), "w") as file:
        json.dump([name for name, ok in passed.items() if ok], file)
"""


def run(command, contract, seconds, **more):
    """Run untrusted code as another user, if this user may choose one; return what it wrote to its descriptor."""
    env = {
        "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
        "HOME": "/tmp",
        "PYTHONHASHSEED": "0",
        "TZ": "UTC",
    }
    folders = [WORK if one == "." else WORK / one for one in contract["python_path"]]
    user = {"user": "grader", "group": "grader", "extra_groups": []} if os.getuid() == 0 else {}
    with tempfile.TemporaryFile() as report:
        env |= {
            "PYTHONPATH": ":".join(map(str, [*folders, WORK, *more.pop("path", [])])),
            "REPORT_FD": str(report.fileno()),
        }
        env |= more.pop("env", {})
        try:
            subprocess.run(
                [part.replace("{fd}", str(report.fileno())) for part in command],
                cwd=WORK, env=env, timeout=seconds, pass_fds=[report.fileno()], check=False, **user, **more,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return ""
        report.seek(0)
        return report.read().decode(errors="replace")


def tests_pass(contract):
    wanted = [*contract["fail_to_pass"], *contract["pass_to_pass"]]
    files = sorted({name.split("::")[0] for name in wanted})
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        Path(folder, "composer_report.py").write_text(PLUGIN)
        flags = "-p composer_report -p no:cacheprovider -q --tb=no --continue-on-collection-errors -o addopts="
        flags += " -o required_plugins= -o xfail_strict=false"
        text = run(
            [sys.executable, "-B", "-m", "pytest", *flags.split(), *files],
            contract, 150, path=[folder], env={"WANTED_TESTS": json.dumps(wanted)}, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        passed = set(json.loads(text))
    except ValueError:
        passed = set()
    return set(wanted) <= passed, len(passed)


def answers_are_right(contract):
    oracle = json.loads((TESTS / "oracle.json").read_text())
    if not oracle["calls"]:
        return True
    with tempfile.TemporaryFile() as calls:
        calls.write(json.dumps(oracle["calls"]).encode())
        calls.seek(0)
        command = [sys.executable, "-B", str(TESTS / "calls.py"), "{fd}"]
        text = run(command, contract, 60, stdin=calls, stdout=subprocess.DEVNULL)
    try:
        return [json.loads(line) for line in text.splitlines()] == oracle["answers"]
    except ValueError:
        return False


def main():
    contract = json.loads((TESTS / "contract.json").read_text())
    ok, number = tests_pass(contract)
    reward = float(ok and answers_are_right(contract))
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / "reward.json").write_text(json.dumps({"reward": reward, "tests_passed": number}))


if __name__ == "__main__":
    main()
