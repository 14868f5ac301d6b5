"""The grader of a Harbor tree: run the tests as another user, replay the oracle, and write the reward.

Expected answers stay in this process, which imports nothing of the code under test.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(os.environ.get("COMPOSER_ROOT", "/"))
TESTS, WORK, LOGS = ROOT / "tests", ROOT / "workspace", ROOT / "logs" / "verifier"


def run(command, contract, seconds, pass_fds=(), variables=(), **more):
    """Run untrusted code as another user, if this user may choose one; return what it wrote to its descriptor."""
    env = {
        "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
        "HOME": "/tmp",
        "PYTHONHASHSEED": "0",
        "TZ": "UTC",
        "PYTHONPATH": ":".join(str(WORK if one == "." else WORK / one) for one in (*contract["python_path"], ".")),
        **dict(variables),
    }
    user = {"user": "grader", "group": "grader", "extra_groups": []} if os.getuid() == 0 else {}
    with tempfile.TemporaryFile() as report:
        try:
            subprocess.run(
                [part.replace("{fd}", str(report.fileno())) for part in command],
                cwd=WORK, env=env, timeout=seconds, check=False, pass_fds=[report.fileno(), *pass_fds], **user, **more,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return ""
        report.seek(0)
        return report.read().decode(errors="replace")


def told(contract, files, wanted, mark):
    """Run test files with `grade.py`; return what they compared, and how each test ended."""
    path = [str(WORK if one == "." else WORK / one) for one in (".", *contract["python_path"])]
    flags = "-p no:cacheprovider -q --tb=no --continue-on-collection-errors -o addopts= -o required_plugins="
    arguments = [*flags.split(), "-o", "xfail_strict=false", "--rootdir", str(WORK), *files]
    order = {"mark": mark, "deep": not wanted, "wanted": wanted, "values": str(TESTS / "calls.py")}
    order |= {"path": path, "arguments": arguments}
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(order).encode())
        file.seek(0)
        command = [sys.executable, "-B", str(TESTS / "grade.py"), str(file.fileno()), "{fd}"]
        text = run(command, contract, 150, pass_fds=[file.fileno()], stdout=subprocess.DEVNULL)
    values, ends = {}, []
    for line in text.splitlines():
        with contextlib.suppress(ValueError, TypeError):
            read = json.loads(line)
            if isinstance(read, dict):
                ends.append(read["passed"])
            else:
                values.setdefault(read[0], {}).setdefault(read[1], []).append(read[2])
    return values, ends[0] if len(ends) == 1 else {}


def node_tests_pass(contract):
    """Run JavaScript tests, each file with a test that must fail."""
    spec = importlib.util.spec_from_file_location("node_tests", TESTS / "node_tests.py")
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    wanted = [*contract["fail_to_pass"], *contract["pass_to_pass"]]
    files = sorted({name.split("::")[0] for name in wanted})
    manifest = json.loads((WORK / "package.json").read_text())
    titles = [f"is {secrets.token_hex(8)}" for _ in range(tests.NUM_CANARIES)]
    for path in files:
        with (WORK / path).open("a") as file:
            file.write(tests.canaries(manifest, titles))
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        report = Path(folder, secrets.token_hex(8))
        command = tests.command(manifest, files, version=version, seconds=60, report=str(report),
                                reporter=str(TESTS / "node_reporter.mjs"), modules="../node_modules")  # fmt: skip
        run(command, contract, 150, variables=tests.VARIABLES, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = tests.results(report.read_text(errors="replace") if report.is_file() else "", str(WORK))
    passed = {name for name, one in found.items() if one["status"] == "passed"}
    canaries = [f"{path}::{title}" for path in files for title in titles]
    caught = all(found.get(one, {}).get("status") == "failed" for one in canaries)
    return caught and set(wanted) <= passed, len(passed)


def tests_pass(contract):
    """Run Python tests; return whether all of the contract passed, and the number that did."""
    wanted = [*contract["fail_to_pass"], *contract["pass_to_pass"]]
    files = sorted({name.split("::")[0] for name in wanted})
    _, ended = told(contract, files, wanted, "_composer_mark")
    passed = {name for name in wanted if ended.get(name) is True}
    return len(passed) == len(set(wanted)), len(passed)


def answers_are_right(contract):
    """Return whether the code answers the calls and arguments of the oracle as the solution does."""
    oracle = json.loads((TESTS / "oracle.json").read_text())
    return calls_are_right(contract, oracle) and values_are_right(contract, oracle)


def calls_are_right(contract, oracle):
    """Replay the calls of the oracle; output that is not JSON is a wrong answer."""
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


def values_are_right(contract, oracle):
    """Return whether tests with other arguments report the same values as for the original."""
    for path, text in oracle.get("files", {}).items():
        (WORK / path).write_text(text)
    wanted = oracle.get("values", ())
    values, _ = told(contract, sorted(oracle["files"]), [], oracle["mark"]) if wanted else ({}, {})
    spec = importlib.util.spec_from_file_location("calls", TESTS / "calls.py")
    calls = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(calls)
    return all(
        calls.same(values.get(test, {}).get(site, [])[number : number + 1], [value])
        for test, site, number, value in wanted
    )


def main():
    """Grade the submission and write the reward, 1.0 or 0.0, as the file that Harbor reads."""
    contract = json.loads((TESTS / "contract.json").read_text())
    ok, number = (node_tests_pass if contract["language"] == "javascript" else tests_pass)(contract)
    reward = float(ok and answers_are_right(contract))
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / "reward.json").write_text(json.dumps({"reward": reward, "tests_passed": number}))


if __name__ == "__main__":
    main()
