"""Run JavaScript tests over edited trees: a file of jobs in, one report per job out.

Test files run in processes of node, one after another. Which tests run a line is known by file: sources then hold
reports at the start of each block, and each test file runs alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from composer_jobs import limit_process, load, reason, run_all, used, write_edits

MAX_REASONS = 50  # tests whose failures are reported
MIN_SECONDS = 10.0  # of a test, on the clock


class NodeTests:
    """The tests of one job's tree, as node's runners run them."""

    def __init__(self, job, setting):
        self.job, self.setting = job, setting
        self.tests = load(setting["tools"]["node_tests"])
        self.manifest = json.loads(Path(setting["tree"], "package.json").read_text())

    def run(self, files, **env):
        """Return the results of some files, and what was printed if there are none."""
        tree = self.setting["tree"]
        with tempfile.TemporaryDirectory(dir=self.setting["out"]) as folder:
            report = Path(folder, "report")
            seconds = max(MIN_SECONDS, self.job["test_seconds"] * self.setting["patience"])
            command = self.tests.command(
                self.manifest, files, report=str(report), reporter=self.setting["tools"]["reporter"],
                seconds=seconds, version=self.setting["version"], modules="../node_modules",
            )  # fmt: skip
            done = subprocess.run(command, cwd=tree, env={**os.environ, **env}, check=False, capture_output=True)
            try:
                text = report.read_text(errors="replace")
            except OSError:
                return {}, (done.stderr or done.stdout).decode(errors="replace")[:300]  # the reason is above its trace
        return self.tests.results(text, tree), ""

    def by_file(self, files):
        """Run each test file alone over sources that report their blocks; return results, and lines by test file."""
        blocks = self.setting["blocks"]
        write_edits(Path(self.setting["tree"]), blocks["edits"], int(time.time()))
        found, fixtures, sets = {}, {}, {}
        for path in files:
            with tempfile.TemporaryDirectory(dir=self.setting["out"]) as folder:
                hits = Path(folder, "hits")
                own, _ = self.run([path], COMPOSER_HITS=str(hits))
                found |= own
                fixtures[path] = list(own)
                for line in set(hits.read_text().split()) if hits.exists() else ():
                    sets.setdefault(int(line), []).append(path)
        contexts, members, lines = ["", *(f"@{path}" for path in files)], [], {}
        for number, (path, places) in enumerate(blocks["lines"]):
            if number in sets:
                members.append([files.index(one) + 1 for one in sets[number]])
                lines.setdefault(path, {}).update({str(place): len(members) - 1 for place in places})
        return found, {"contexts": contexts, "sets": members, "lines": lines, "fixtures": fixtures}

    def variants(self, failing):
        """Return which trivial answers pass the wanted tests in the files of failing ones."""
        own = sorted({id.split("::")[0] for id in failing})
        wanted = [id for id in self.job["ids"] or () if id.split("::")[0] in own]
        passing = {}
        for name in self.job.get("variants", ()):
            found, _ = self.run(own, COMPOSER_VARIANT=name)
            passing[name] = all(found.get(id, {}).get("status") == "passed" for id in wanted)
        return passing


def run_tests(job, setting):
    """Run the test files of one job and return its report."""
    session = NodeTests(job, setting)
    limit_process(job["seconds"])
    files = list(reversed(job["files"])) if job.get("reverse") else list(job["files"])
    values = {"broken_files": [], "left_out": [], "denied": [], "late": [], "hangs": False, "warm": [], "variants": {},
              "spawners": [], "unseen": [], "child_lines": {}}  # fmt: skip
    if job.get("coverage"):
        found, lines = session.by_file(files)
        values |= lines
    else:
        found, example = session.run(files) if files else ({}, "")
        print(example, flush=True)
        values["example"] = example
    # An edit that makes a test hang does not become a task; a package may have such a test.
    is_late = any(session.tests.TIMED_OUT.search(one["why"]) for one in found.values())
    # A runner's limit of time does not end a loop that never waits; that of the process does.
    values["hangs"] = "max_hanging" in job and (is_late or used() >= job["seconds"])
    for id in [id for id in found if id.endswith("::")]:  # a file that cannot be loaded
        values["broken_files"].append(id[:-2])
        values["example"] = f"{id[:-2]} does not load: {found.pop(id)['why']}"
    wanted, without = set(job["ids"] or ()), set(setting["without"])
    found = {id: one for id, one in found.items() if id not in without and (job["ids"] is None or id in wanted)}
    failing = [id for id, one in found.items() if one["status"] == "failed"]
    failing += [id for id in wanted if id not in found]
    if failing and not values.get("example"):
        values["example"] = f"{failing[0]} fails: {found.get(failing[0], {}).get('why', '')}"
    if 0 < len(failing) <= job.get("max_failing", 0):
        values["variants"] = session.variants(failing)
    return {**values, **ends(found, failing, setting["tree"])}


def ends(found, failing, tree):
    """Return the results of tests as a report has them, with the messages of some that fail."""
    seconds = {id: round(one["ms"] / 1000, 4) for id, one in found.items()}
    return {
        "statuses": {id: one["status"] for id, one in found.items()},
        "seconds": seconds,
        "costs": seconds,
        "reasons": {
            id: reason(found[id]["why"].split("\n    at ")[0], tree) for id in failing[:MAX_REASONS] if id in found
        },
    }


def main():
    """Run every job with the environment that node's tests need."""
    setting = json.loads(Path(sys.argv[1]).read_text())
    os.environ |= load(setting["tools"]["node_tests"]).VARIABLES
    run_all(setting, run_tests)


if __name__ == "__main__":
    main()
