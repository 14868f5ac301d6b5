"""Run huggingface_hub's own tests, unchanged, with the embedded Hub and without any server, and print the difference.

A test *exercises the server* if it fails when every request is refused. The suite comes from the package index.

    python -m tests.conformance [--only xet|lfs] [--keep .conformance] [-n 2] [-k WORDS]
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from composer_hub.local_hub.server import start_server

HERE = Path(__file__).parent
TEST_SECONDS = 60
MODES = ("xet", "lfs")
LEAST = {"xet": 455, "lfs": 280}
"""With fewer passes among the tests that exercise the server, a whole run fails. A few of them depend on time."""
NOT_OURS = "not test_fix_hf_endpoint_in_url"
"""Wants the address of the suite's own Hub in place of ours, and sends no request."""
ELSEWHERE = re.compile(r"this run has no internet|No such file.*fixtures|not found on disk .*fixtures")
"""Failures for want of the internet, or of a file that the source distribution leaves out."""
# Files whose tests ask a server; the tests of the others pass or fail alike without one.
ASKS = re.compile(r"ENDPOINT_STAGING|repo_factory|new_repo_id|\bapi: HfApi")


@dataclass(frozen=True)
class Result:
    """The tests of one run by outcome."""

    passed: frozenset[str]
    failed: frozenset[str]
    elsewhere: frozenset[str]  # failed, and no server could change that


def unpacked(folder: Path) -> Path:
    """Return the suite of the installed huggingface_hub with our conftest, downloaded once."""
    version = metadata.version("huggingface_hub")
    root = folder / f"huggingface_hub-{version}"
    if not (root / "pyproject.toml").is_file():
        words = ["download", "--quiet", "--no-binary", ":all:", "--no-deps", f"huggingface_hub=={version}"]
        subprocess.run([sys.executable, "-m", "pip", *words, "--dest", str(folder)], check=True)
        with tarfile.open(next(folder.glob(f"huggingface_hub-{version}.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
    (root / "tests" / "__init__.py").touch()
    shutil.copy(HERE / "suite_conftest.py", root / "tests" / "conftest.py")
    return root


def plugins(folder: Path) -> Path:
    """Install what the suite needs into a folder of its own, once."""
    target = folder / "plugins"
    if not target.is_dir():
        words = ["install", "--quiet", "--no-deps", "--target", str(target), "-r", str(HERE / "requirements.txt")]
        subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    return target


def users_file(suite: Path, folder: Path) -> Path:
    """Write the accounts that the suite expects."""
    names = runpy.run_path(str(suite / "tests" / "testing_constants.py"))
    path = folder / "users.yaml"
    path.touch(mode=0o600)
    path.write_text(f"""
users:
  - {{name: {names["USER"]}, fullname: {names["FULL_NAME"]}, token: {names["TOKEN"]}, email: dummy@example.org,
      orgs: {{valid_org_hub: admin, valid_org: admin}}}}
  - {{name: {names["OTHER_USER"]}, token: {names["OTHER_TOKEN"]}}}
  - {{name: {names["ENTERPRISE_USER"]}, token: {names["ENTERPRISE_TOKEN"]}, orgs: {{{names["ENTERPRISE_ORG"]}: admin}}}}
orgs:
  - {{name: valid_org_hub, fullname: Dummy Hub Org}}
  - {{name: valid_org}}
  - {{name: {names["ENTERPRISE_ORG"]}, private_by_default: true}}
""")
    return path


def run_suite(suite: Path, extra: Path, endpoint: str, words: Sequence[str], mode: str) -> Result:
    """Run the files that ask a server and return their outcomes; a skipped test has none."""
    files = [str(path) for path in sorted(suite.glob("tests/test_*.py")) if ASKS.search(path.read_text())]
    report = suite / f"{mode}.xml"
    report.unlink(missing_ok=True)
    base = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    env = base | {
        "COMPOSER_CONFORMANCE_ENDPOINT": endpoint,
        "HF_ENDPOINT": endpoint or "http://127.0.0.1:9",
        "HF_HUB_DISABLE_XET": "1" if mode == "lfs" else "0",
        "PYTHONPATH": os.pathsep.join([str(extra), base.get("PYTHONPATH", "")]),
    }
    options = [
        "-o", "addopts=-Werror::FutureWarning --strict-markers", "-o", "env=HF_TOKEN=", "-m", "not production",
        "--timeout", str(TEST_SECONDS), "--tb=short", "--quiet", "--junitxml", str(report), "-o", "junit_family=xunit1",
    ]  # fmt: skip
    with open(suite / f"{mode}.log", "w") as log:
        command = [sys.executable, "-m", "pytest", *options, *words, *files]
        subprocess.run(command, cwd=suite, env=env, stdout=log, stderr=log)
    if not report.is_file():
        raise SystemExit(f"The suite did not run; see {suite}/*.log.")
    return read_report(report)


def read_report(path: Path) -> Result:
    """Read a JUnit file; a test that fails in its teardown has failed."""
    passed, failed, elsewhere = set(), set(), set()
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        problems = [child for child in case if child.tag in ("failure", "error")]
        if any(ELSEWHERE.search("".join(problem.itertext())) for problem in problems):
            elsewhere.add(name)
        elif problems:
            failed.add(name)
        elif case.find("skipped") is None:
            passed.add(name)
    return Result(frozenset(passed - failed - elsewhere), frozenset(failed - elsewhere), frozenset(elsewhere))


def main() -> int:
    """Print the figures and the tests that did not pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODES, help="upload by Xet, or by LFS alone; both by default")
    parser.add_argument("--keep", type=Path, default=Path(".conformance"), help="folder of the suite and its logs")
    parser.add_argument("--again", action="store_true", help="take the results without a server from the last run")
    parser.add_argument("-n", default="2", help="processes")
    parser.add_argument("-k", default=NOT_OURS, help="expression that selects tests")
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    folder = options.keep.resolve()
    suite, extra = unpacked(folder), plugins(folder)
    words = ["-n", options.n, "-k", options.k]
    served = {}
    for mode in [options.only] if options.only else MODES:
        with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
            accounts = users_file(suite, Path(scratch))
            serve = ["--users-file", str(accounts), "--allow-local-jobs", *([] if mode == "xet" else ["--no-xet"])]
            with start_server(Path(scratch) / "hub", serve) as server:
                served[mode] = run_suite(suite, extra, server.endpoint, words, mode)
    kept = suite / "none.xml"
    alone = read_report(kept) if options.again and kept.is_file() else run_suite(suite, extra, "", words, "none")
    print(f"huggingface_hub {metadata.version('huggingface_hub')}: {len(alone.passed)} tests pass without a server")
    has_failed = False
    for mode, ours in served.items():
        asking = (ours.passed | ours.failed) - alone.passed
        print(f"\n{mode}: of {len(asking)} tests that exercise the server {len(asking & ours.passed)} pass", end="; ")
        print(f"{len(ours.elsewhere)} more need the internet or a file that the source distribution lacks")
        for name in sorted(asking & ours.failed):
            print(f"  {name}")
        if options.k == NOT_OURS and len(asking & ours.passed) < LEAST[mode]:
            print(f"{mode}: fewer than {LEAST[mode]} pass")
            has_failed = True
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
