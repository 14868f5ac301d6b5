"""Commands of JavaScript's test runners, and their results: a manifest and test files in, statuses by test id out.

Standard library only: the same code works in the sandbox's bench, in the verifier, and in the grader of a Harbor tree.
A test id is `file::title > title`; characters that a reader would not see are written as escapes.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

REPORTER = Path(__file__).with_name("node_reporter.mjs")
RUNNERS = ("vitest", "jest", "node")
OTHERS = ("mocha", "ava", "tap", "jasmine", "karma", "playwright", "cypress", "uvu", "qunit", "bun")
VARIABLES = {
    "NODE_ENV": "test", "CI": "1", "NO_COLOR": "1", "TZ": "UTC",
    "OPENSSL_CONF": "/dev/null",  # node does not start if it may not read the system's
    "NODE_OPTIONS": "--disable-wasm-trap-handler",  # it reserves 10 GB of addresses, more than the sandbox allows
}  # fmt: skip
TYPED = (".ts", ".mts", ".cts", ".tsx")
TIMED_OUT = re.compile(r"timed out after|Test timed out in|Exceeded timeout of")
# Options of node that a test script may use: modules to load first, and conditions of imports.
_FLAGS = re.compile(r"(?:--(?:import|require|loader|experimental-loader|conditions)[= ]|-[rC] )[^\s;&|]+")


def runner_of(manifest: Mapping[str, Any]) -> str:
    """Return the program that runs a package's tests: one of `RUNNERS`, of `OTHERS`, or nothing."""
    scripts = _scripts(manifest)
    tools = {name for key in ("dependencies", "devDependencies") for name in manifest.get(key) or ()}
    for named in ((one for one in (*RUNNERS[:2], *OTHERS) if re.search(rf"\b{one}\b", scripts)),
                  ("node" for _ in [0] if re.search(r"\b(node|tsx)\b[^\n;&|]*\btest", scripts)),
                  (one for one in (*RUNNERS[:2], *OTHERS) if one in tools or f"@{one}/test" in tools)):  # fmt: skip
        if found := next(named, ""):
            return found
    return "" if scripts and "no test specified" not in scripts and "node" not in scripts else "node"


def _scripts(manifest: Mapping[str, Any]) -> str:
    scripts = manifest.get("scripts")
    named = scripts if isinstance(scripts, dict) else {}
    return "\n".join(str(text) for name, text in named.items() if name.startswith(("test", "unit")))


def command(
    manifest: Mapping[str, Any],
    files: Sequence[str],
    *,
    version: str,
    seconds: float,
    report: str,
    reporter: str = "",
    modules: str = "node_modules",
) -> list[str]:
    """Return the command that runs some test files, one after another, and writes what its runner reports.

    Without a place for the report, it is printed for a reader.
    """
    runner, limit = runner_of(manifest), str(int(1000 * seconds))
    if runner == "vitest":
        options = [f"--outputFile={report}", "--reporter=json"] if report else ["--reporter=verbose"]
        options += [f"--testTimeout={limit}", "--coverage.enabled=false"]
        options += ["--no-file-parallelism", "--pool=forks", "--typecheck.enabled=false", "--retry=0", "--bail=0"]
        return ["node", f"{modules}/vitest/vitest.mjs", "run", *options, *files]
    if runner == "jest":
        options = ["--json", f"--outputFile={report}"] if report else []
        options += [f"--testTimeout={limit}", "--coverage=false", "--ci", "--bail=0", "--maxWorkers=2"]
        options += ["--cacheDirectory=/tmp/jest", "--watchman=false", "--forceExit"]
        flags = ["--experimental-vm-modules"] if "vm-modules" in _scripts(manifest) else []
        return ["node", *flags, f"{modules}/jest/bin/jest.js", *options, "--runTestsByPath", *files]
    flags = [part for one in _FLAGS.findall(_scripts(manifest)) for part in re.split(r"[ ]", one, maxsplit=1)]
    if "tsx" in _scripts(manifest) and not any("tsx" in one for one in flags):
        flags += ["--import", "tsx"]
    if strips_with_flag(version) and any(one.endswith(TYPED) for one in files) and "tsx" not in flags:
        flags.append("--experimental-strip-types")
    # Without --test-force-exit, which ends processes before all that they report is written.
    flags += ["--test", "--test-concurrency=1", f"--test-timeout={limit}"]
    flags += [f"--test-reporter={reporter}", f"--test-reporter-destination={report}"] if report else []
    return ["node", *flags, *files]


NUM_CANARIES = 9  # of a file


def canaries(manifest: Mapping[str, Any], titles: Sequence[str]) -> str:
    """Return the text of tests that must fail, for the end of a test file."""
    # One for each way in which tests fail, so that a patch that lets tests pass lets these pass as well.
    ways = ["throw new Error('must fail')"]
    if runner_of(manifest) == "node":
        ways += [
            f'process.getBuiltinModule("node:{module}").{call}'
            for module in ("assert", "assert/strict")
            for call in ("equal(1, 2)", "deepEqual([1], [2])", "ok(0)", "throws(() => 1)")
        ]
        head, start = "", 'process.getBuiltinModule("node:test").test'
    else:
        is_vitest = runner_of(manifest) == "vitest"
        start, expect = ("composerTest", "composerExpect") if is_vitest else ("test", "expect")
        head = f'import {{ test as {start}, expect as {expect} }} from "vitest";\n' if is_vitest else ""
        calls = (
            "(1).toBe(2)",
            "([1]).toEqual([2])",
            "({}).toStrictEqual([])",
            "(() => 1).toThrow()",
            "(0).toBeTruthy()",
        )
        ways += [f"{expect}{one}" for one in calls]
    lines = [f"{json.dumps(title)}, async () => {{ {way}; }}" for title, way in zip(titles, itertools.cycle(ways))]
    return "\n" + head + "\n".join(f";{start}({line});" for line in lines) + "\n"


def strips_with_flag(version: str) -> bool:
    """Return whether a node removes types only when asked: 22.6 to 22.17 and 23.0 to 23.5."""
    major, minor = numbers(version)
    return (major == 22 and 6 <= minor < 18) or (major == 23 and minor < 6)


def strips_types(version: str) -> bool:
    """Return whether a node runs TypeScript by itself, asked or not."""
    return numbers(version) >= (22, 6)


def numbers(version: str) -> tuple[int, int]:
    """Return the first two numbers of `v20.11.1`."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def results(text: str, tree: str) -> dict[str, dict[str, Any]]:
    """Return test id -> `status`, `ms` and `why` from a report; a test that ends twice has the worse status."""
    found: dict[str, dict[str, Any]] = {}
    order = ("skipped", "passed", "failed")
    for one in _reported(text):
        path = os.path.relpath(one["file"], tree) if os.path.isabs(one["file"]) else one["file"]
        id = shown(f"{path}::{' > '.join(one['titles'])}")
        before = found.get(id, one)
        worse = max(before, one, key=lambda test: order.index(test["status"]))
        found[id] = {"status": worse["status"], "ms": before["ms"] if before is one else before["ms"] + one["ms"],
                     "why": worse["why"]}  # fmt: skip
    return found


def _reported(text: str) -> Iterator[dict[str, Any]]:
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if isinstance(whole, dict) and "testResults" in whole:  # of jest and vitest
        for file in whole["testResults"]:
            for one in file["assertionResults"]:
                status = one["status"] if one["status"] in ("passed", "failed") else "skipped"
                # Older vitests name the file's own group, which has no title.
                above = filter(None, one["ancestorTitles"])
                titles, why = [*above, one["title"]], "\n".join(one.get("failureMessages") or ())
                yield {"file": file["name"], "titles": titles, "status": status, "ms": one.get("duration") or 0,
                       "why": why[:300]}  # fmt: skip
            if not file["assertionResults"] and file.get("message"):
                yield {"file": file["name"], "titles": [""], "status": "failed", "ms": 0, "why": file["message"][:300]}
        return
    for line in text.splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        # Node reports a file that fails to load as a test with the file's name.
        is_file = one["titles"] and os.path.basename(one["titles"][-1]) == os.path.basename(one["file"])
        if not is_file or one["status"] == "failed":
            yield one | {"titles": [""] if is_file else one["titles"]}


def shown(text: str) -> str:
    """Return a text with escapes for what a reader would not see."""
    return "".join(one if one.isprintable() else f"\\u{{{ord(one):x}}}" for one in text)
