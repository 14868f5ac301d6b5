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


def run_tests(job, setting):
    """Run the test files of one job and return its report."""
    tests = load(setting["tools"]["node_tests"])
    tree, out = setting["tree"], Path(setting["out"])
    manifest = json.loads(Path(tree, "package.json").read_text())
    limit_process(job["seconds"])
    wanted, without = set(job["ids"] or ()), set(setting["without"])
    files = list(reversed(job["files"])) if job.get("reverse") else list(job["files"])

    def run(some, **env):
        """Return the results of some files, and what was printed if there are none."""
        with tempfile.TemporaryDirectory(dir=out) as folder:
            report = Path(folder, "report")
            seconds = max(MIN_SECONDS, job["test_seconds"] * setting["patience"])
            command = tests.command(manifest, some, report=str(report), reporter=setting["tools"]["reporter"],
                                    seconds=seconds, version=setting["version"], modules="../node_modules")  # fmt: skip
            done = subprocess.run(command, cwd=tree, env={**os.environ, **env}, check=False, capture_output=True)
            try:
                text = report.read_text(errors="replace")
            except OSError:
                return {}, (done.stderr or done.stdout).decode(errors="replace")[:300]  # the reason is above its trace
        return tests.results(text, tree), ""

    values = {"broken_files": [], "left_out": [], "denied": [], "late": [], "hangs": False, "warm": [], "variants": {},
              "spawners": [], "unseen": [], "child_lines": {}}  # fmt: skip
    if job.get("coverage"):
        found, lines = by_file(files, run, setting)
        values |= lines
    else:
        found, example = run(files) if files else ({}, "")
        print(example, flush=True)
        values["example"] = example
    # An edit that makes a test hang does not become a task; a package may have such a test.
    is_late = any(tests.TIMED_OUT.search(one["why"]) for one in found.values())
    # A runner's limit of time does not end a loop that never waits; that of the process does.
    values["hangs"] = "max_hanging" in job and (is_late or used() >= job["seconds"])
    for id in [id for id in found if id.endswith("::")]:  # a file that cannot be loaded
        values["broken_files"].append(id[:-2])
        values["example"] = f"{id[:-2]} does not load: {found.pop(id)['why']}"
    found = {id: one for id, one in found.items() if id not in without and (job["ids"] is None or id in wanted)}
    failing = [id for id, one in found.items() if one["status"] == "failed"]
    failing += [id for id in wanted if id not in found]
    if failing and not values.get("example"):
        values["example"] = f"{failing[0]} fails: {found[failing[0]]['why'] if failing[0] in found else ''}"
    if job.get("variants") and 0 < len(failing) <= job["max_failing"]:
        own = sorted({id.split("::")[0] for id in failing})
        for name in job["variants"]:
            again, _ = run(own, COMPOSER_VARIANT=name)
            values["variants"][name] = all(again.get(id, {}).get("status") == "passed" for id in wanted if
                                           id.split("::")[0] in own)  # fmt: skip
    messages = {id: found[id]["why"].split("\n    at ")[0] for id in failing[:MAX_REASONS] if id in found}
    values["reasons"] = {id: reason(text, tree) for id, text in messages.items()}
    seconds = {id: round(one["ms"] / 1000, 4) for id, one in found.items()}
    return {
        "statuses": {id: one["status"] for id, one in found.items()},
        "seconds": seconds,
        "costs": seconds,
        **values,
    }


def by_file(files, run, setting):
    """Run each test file alone over sources that report their blocks; return results, and lines by test file."""
    write_edits(Path(setting["tree"]), setting["blocks"]["edits"], int(time.time()))
    found, fixtures, sets = {}, {}, {}
    for path in files:
        with tempfile.TemporaryDirectory(dir=setting["out"]) as folder:
            hits = Path(folder, "hits")
            own, _ = run([path], COMPOSER_HITS=str(hits))
            found |= own
            fixtures[path] = list(own)
            for line in set(hits.read_text().split()) if hits.exists() else ():
                sets.setdefault(int(line), []).append(path)
    contexts, members, lines = ["", *(f"@{path}" for path in files)], [], {}
    for number, (path, places) in enumerate(setting["blocks"]["lines"]):
        if number in sets:
            members.append([files.index(one) + 1 for one in sets[number]])
            lines.setdefault(path, {}).update({str(place): len(members) - 1 for place in places})
    return found, {"contexts": contexts, "sets": members, "lines": lines, "fixtures": fixtures}


def main():
    setting = json.loads(Path(sys.argv[1]).read_text())
    os.environ |= load(setting["tools"]["node_tests"]).VARIABLES
    run_all(setting, run_tests)


if __name__ == "__main__":
    main()
