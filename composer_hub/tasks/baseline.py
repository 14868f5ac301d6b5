"""The baseline of an unchanged package: the tests that pass in every order, and the lines that each runs.

Three runs: unchanged, under coverage with other hashes, and under coverage in reversed order. A test that
does not end the same way in all three is set aside. Test files that hang or kill the run are found by running
each file alone.
"""

from __future__ import annotations

import fnmatch
import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from composer_hub.output import plural
from composer_hub.records import stable_share
from composer_hub.tasks.bench import Bench, Job, Report
from composer_hub.tasks.language import PackageRefused, file_of

MAX_SUITE_SECONDS = 300.0
FILE_SECONDS = 60.0
TEST_SECONDS = 10.0


@dataclass(frozen=True)
class Baseline:
    """The tests of an unchanged package."""

    passing: frozenset[str]  # in every run
    flaky: frozenset[str]
    slow: frozenset[str]  # left out, so that a suite takes no longer than it may
    num_other: int  # failed or skipped
    set_aside: Mapping[str, str]  # test file -> why it is not run
    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, frozenset[str]]]  # path -> line -> tests that run it
    at_import: Mapping[str, frozenset[int]]  # path -> lines that run when a module is imported
    spawners: frozenset[str]  # tests that start processes
    unseen: frozenset[str]  # those of them whose processes' lines are not known
    suite_s: float  # CPU time of one plain run

    @functools.cached_property
    def by_file(self) -> Mapping[str, Set[str]]:
        """Return the passing tests of each file that has some."""
        found: dict[str, set[str]] = defaultdict(set)
        for id in self.passing:
            found[file_of(id)].add(id)
        return dict(found)

    def tests_of(self, path: str, first: int, last: int) -> frozenset[str]:
        """Return the passing tests that run any of some lines, and those that may without being seen."""
        lines = self.lines.get(path, {})
        sets = {lines[line] for line in range(first, last + 1) if line in lines}
        return frozenset().union(*sets) & self.passing if sets else frozenset()

    def runs_at_import(self, path: str, first: int, last: int) -> bool:
        """Return whether a line runs before any test."""
        return any(first <= line <= last for line in self.at_import.get(path, ()))


def measure(bench: Bench, suite_seconds: float = 10.0, without: Sequence[str] = ()) -> Baseline:
    """Run the tests of a package without edits; `PackageRefused` if too few of them pass.

    Of a suite that uses more processor time than `suite_seconds`, the fastest tests are used. Test files and ids that
    a pattern of `without` matches are left out.
    """
    package = bench.package
    set_aside = {path: "left out" for path in package.tests if _is_named(path, without)}
    files = tuple(path for path in package.tests if path not in set_aside)
    if not files:
        raise PackageRefused("no_tests", f"--without leaves out every test file of {package.name}. Name fewer.")
    first, ended = _plain_run(bench, files)
    if refusal := next(_refusals(bench, first), None):
        raise PackageRefused(*refusal)
    set_aside |= ended
    left = set(files) - ended.keys()
    set_aside |= {path: "cannot be imported" for path in first.values["broken_files"] if path in left}
    files = tuple(path for path in files if path not in set_aside)
    hanging = {id for id, seconds in first.seconds.items() if seconds >= TEST_SECONDS}
    hanging |= {id for id, status in first.statuses.items() if status == "late" or _is_named(id, without)}
    slow = _slow(first.values["costs"], suite_seconds) | {*first.values["left_out"], *hanging}
    bench.without = slow
    covered = {"coverage": package.sources}
    hashes = Job("hashes", files, seconds=2 * MAX_SUITE_SECONDS, test_seconds=TEST_SECONDS * 3, options=covered, seed=1)
    jobs = [hashes, replace(hashes, name="order", options={**covered, "reverse": True}, seed=0)]
    others = bench.run(jobs)
    if not all(report.ran for report in others):
        raise PackageRefused("tests_hang", f"The tests of {package.name} end once and hang under coverage.")
    plain = {id: status for id, status in first.statuses.items() if id not in slow}
    statuses = [plain, *(report.statuses for report in others)]
    every = set().union(*statuses)
    stable = {id for id in every if len({one.get(id) for one in statuses}) == 1}
    passing = frozenset(id for id in stable if plain[id] == "passed")
    if not passing:
        raise PackageRefused("all_flaky", f"No test of {package.name} ends the same way in three runs.")
    bench.warm = tuple(others[0].values["warm"])
    lines, at_import = _lines(others)
    spawners, unseen = (
        passing & set().union(*(report.values[name] for report in others)) for name in ("spawners", "unseen")
    )
    return Baseline(
        passing=passing,
        flaky=frozenset(every - stable),
        slow=slow,
        num_other=len(stable) - len(passing),
        set_aside=set_aside,
        seconds={id: seconds for id, seconds in first.seconds.items() if id not in slow},
        lines=lines,
        at_import=at_import,
        spawners=spawners,
        unseen=unseen,
        suite_s=first.cpu_s,
    )


def _is_named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, one) for one in patterns)


def advice(baseline: Baseline) -> str:
    """Return advice that would make a package's tasks cheaper, or ""."""
    always = sorted(baseline.unseen)
    cost, total = (sum(baseline.seconds.get(id, 0) for id in ids) for ids in (always, baseline.passing))
    hanging = [path for path, reason in baseline.set_aside.items() if reason in ("hangs", "late")]
    found = []
    if cost > total / 4:
        found.append(
            f"{plural(len(always), 'test')} start processes that cannot be watched, so they run for every candidate "
            f"({cost / total:.0%} of the suite's time): --without '{always[0].split('::')[0]}::*' leaves them out."
        )
    if hanging:
        found.append(f"{hanging[0]} does not end within {FILE_SECONDS:g} s: --without '{hanging[0]}' saves the wait.")
    return " ".join(found)


def _slow(costs: Mapping[str, float], most: float) -> frozenset[str]:
    """Return the slowest tests, without which the others cost no more than `most`."""
    # Costs differ from run to run, so tests of about the same cost have a fixed order.
    total, slow = sum(costs.values()), set[str]()
    for id in sorted(costs, key=lambda id: (-round(math.log2(costs[id] + 1e-4)), stable_share(id))):
        if total <= most:
            break
        total -= costs[id]
        slow.add(id)
    return frozenset(slow)


def _lines(
    reports: Iterable[Report],
) -> tuple[dict[str, dict[int, frozenset[str]]], dict[str, frozenset[int]]]:
    """Merge the contexts of several runs; a shared fixture counts for every test that uses it."""
    found: dict[str, dict[int, frozenset[str]]] = defaultdict(dict)
    at_import: dict[str, set[int]] = defaultdict(set)
    for report in reports:
        values = report.values
        expanded = []
        for name in values["contexts"]:
            fixture = values["fixtures"].get(name[1:], ()) if name.startswith("@") else None
            expanded.append(frozenset(fixture if fixture is not None else [name] if name else []))
        empty = {number for number, name in enumerate(values["contexts"]) if not name}
        sets = [frozenset().union(*(expanded[one] for one in members)) for members in values["sets"]]
        imports = [bool(empty & set(members)) for members in values["sets"]]
        for path, lines in values["lines"].items():
            for line, number in lines.items():
                before = found[path].get(int(line), frozenset())
                found[path][int(line)] = sets[number] if sets[number] >= before else before | sets[number]
                if imports[number]:
                    at_import[path].add(int(line))
        for test, files in values["child_lines"].items():
            for path, numbers in files.items():
                of_file = found[path]
                for number in numbers:
                    of_file[number] = of_file.get(number, frozenset()) | {test}
    return dict(found), {path: frozenset(lines) for path, lines in at_import.items()}


def _plain_run(bench: Bench, files: Sequence[str]) -> tuple[Report, dict[str, str]]:
    """Run test files without edits, and return why some were left out: they hang, or end every run."""
    package, options = bench.package, {"compile": True, "budget": 0.8 * MAX_SUITE_SECONDS}
    plain = Job("plain", tuple(files), seconds=MAX_SUITE_SECONDS, test_seconds=TEST_SECONDS, options=options)
    (first,) = bench.run([plain])
    if first.ran:
        return first, {}
    alone = [replace(plain, name=f"file{n}", files=(path,), seconds=FILE_SECONDS) for n, path in enumerate(files)]
    reports = zip(files, bench.run(alone), strict=True)
    ended = {path: report.problem for path, report in reports if not report.ran}
    left = tuple(path for path in files if path not in ended)
    if not left:
        reasons = {"hangs": "tests_hang", "late": "tests_hang", "killed": "tests_kill"}
        raise PackageRefused(
            reasons.get(first.problem, "tests_do_not_run"),
            f"No test file of {package.name} can be run: {first.detail[:300] or first.problem}. If some "
            f"wait for something or use over {FILE_SECONDS:g} s of processor time, leave those out: --without "
            f"'{package.tests[0]}'.",
        )
    (first,) = bench.run([replace(plain, files=left)])
    return first, ended


def _refusals(bench: Bench, report: Report) -> Iterator[tuple[str, str]]:
    """Yield the reasons, each with a sentence, why a plain run does not show what the tests of a package require."""
    package = bench.package
    if not report.passed():
        if any(next(package.folder.rglob(pattern), None) for pattern in _COMPILED):
            sentence = f"No test of {package.name} passes, and it has code to compile. Only pure Python is run."
            yield "needs_compilation", sentence
        example = report.values["example"] or report.detail[-300:] or "None was found."
        sentence = (
            f"No test of {package.name} passes without network in a fresh environment. {example} "
            "If dependencies are missing, name them with --with."
        )
        yield "no_test_passes", sentence
    denied = report.values["denied"]
    if denied and bench.sandbox == "auto" and bench.isolation == "landlock":
        sentence = (
            f"{plural(len(denied), 'test')} of {package.name}, {denied[0]} among them, lacked a permission that "
            "bubblewrap gives and landlock does not (sockets, shared memory, files in /tmp), so other tasks would be "
            "made. Install bubblewrap, or accept these tasks with --sandbox landlock."
        )
        yield "sandbox", sentence


_COMPILED = ("*.pyx", "*.c", "*.cpp", "*.rs", "CMakeLists.txt", "*.f90")
