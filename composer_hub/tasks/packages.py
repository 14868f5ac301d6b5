"""One source in, its rows out: candidates of its newest tree and of its history pass the same steps.

Candidates are drawn and checked, those whose solution can be read elsewhere are dropped, some are checked again by
runs of all tests, and an oracle is recorded for each.
"""

from __future__ import annotations

import functools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from composer_hub.records import Task, stable_id
from composer_hub.tasks import leaks, oracles
from composer_hub.tasks.baseline import advice, measure
from composer_hub.tasks.bench import Bench
from composer_hub.tasks.commits import replays
from composer_hub.tasks.deletion import Candidate, PackageModel, branches, bugs, clusters, stubs
from composer_hub.tasks.drivers import Drivers, rewritten
from composer_hub.tasks.gates import Checked, check, recheck
from composer_hub.tasks.language import Language, Package, PackageRefused, pack
from composer_hub.tasks.options import TaskOptions
from composer_hub.tasks.removal import features, removals
from composer_hub.tasks.rows import task_of
from composer_hub.tasks.sets import Bundle, PackageReport
from composer_hub.tasks.sources import open_package
from composer_hub.tasks.write_tests import test_writing

GENERATORS: Mapping[str, Callable[[PackageModel, random.Random], Iterator[Candidate]]] = {
    "stub": stubs,
    "cluster": clusters,
    "branch": branches,
    "removal": removals,
    "feature": features,
    "bug": bugs,
}
_CHUNK = 24
_Rows = tuple[list[Task], dict[str, Mapping[str, Any]], list[Bundle]]


def rows_of(source: str, options: TaskOptions, folder: Path, report: PackageReport) -> _Rows:
    """Return the tasks of a source's newest tree and those of its history."""
    tasks, kept, bundles = list[Task](), dict[str, Mapping[str, Any]](), list[Bundle]()
    makers = [_make_package] * any(kind != "commit" for kind in options.kinds)
    makers += [_of_history] * ("commit" in options.kinds)
    for maker in makers:
        try:
            more = maker(source, options, folder, report)
        except PackageRefused as error:
            if len(makers) == 1 or (maker is _of_history and not tasks):
                raise
            report.reasons[f"refused:{error.reason}"] += 1
            continue
        tasks, kept, bundles = tasks + more[0], kept | more[1], bundles + more[2]
    return tasks, kept, bundles


def _of_history(source: str, options: TaskOptions, folder: Path, report: PackageReport) -> _Rows:
    """Replay the changes of a git repository, up to the number of tasks that is wanted."""
    tasks, kept, bundles = list[Task](), dict[str, Mapping[str, Any]](), list[Bundle]()
    counts: Counter[str] = Counter()
    bench: Bench | None = None  # of the change that is tried; an earlier one has given its user back

    def make_bench(package: Package, venv: Path, place: Path) -> Bench:
        nonlocal bench
        report.cpu_s += bench.cpu_s if bench is not None else 0.0
        bench = Bench(package, venv, place, options.workers, options.sandbox)
        return bench

    def install(package: Package) -> Path:
        return package.language.environment(package, options.requirements)

    found = replays(
        Path(source).expanduser(), folder / "history", install, make_bench, counts,
        revisions=options.revisions, max_commits=options.max_commits, max_failing=options.max_failing,
        suite_seconds=options.suite_seconds, hide_tests=options.hide_tests,
    )  # fmt: skip
    for own, model, one in found:
        counts["valid"] += 1
        every = int(bool(options.recheck_every) and len(tasks) % options.recheck_every == 0)
        more = _finished(own, model, [one], replace(options, recheck_every=every), report)
        report.package, report.version = model.package.name, model.package.metadata.version
        tasks, kept, bundles = tasks + more[0], kept | more[1], bundles + more[2]
        if len(tasks) == options.max_per_kind:
            break
    report.cpu_s = round(report.cpu_s + (bench.cpu_s if bench is not None else 0.0), 2)
    report.num_commits = counts.pop("commits", 0)
    report.tried["commit"], report.valid["commit"] = counts.pop("tried", 0), counts.pop("valid", 0)
    report.reasons.update({f"commit:{reason}": number for reason, number in counts.items()})
    if not tasks:
        why = ", ".join(f"{reason} {number}" for reason, number in counts.items())
        raise PackageRefused(
            "no_commit",
            f"Of {report.num_commits:,} commits of {source}, {report.tried['commit']:,} change code and tests, and "
            f"none gives a task ({why or 'look at more with --max-commits'}).",
        )
    return tasks, kept, bundles


def _make_package(source: str, options: TaskOptions, folder: Path, report: PackageReport) -> _Rows:
    package = open_package(source, folder / "package")
    report.package, report.version, report.skipped_files = package.name, package.metadata.version, package.skipped
    environment = package.language.environment(package, options.requirements)
    bench = Bench(package, environment, folder / "bench", options.workers, options.sandbox)
    baseline = measure(bench, options.suite_seconds, options.without)
    model = PackageModel(package, baseline)
    report.num_tests, report.num_flaky = len(baseline.passing), len(baseline.flaky)
    report.num_slow = len(baseline.slow)
    report.advice = advice(baseline)
    report.num_not_passing, report.set_aside = baseline.num_other, Counter(baseline.set_aside.values())
    report.baseline_cpu_s = round(bench.cpu_s, 2)
    checked: list[Checked] = []
    hidden: dict[str, Mapping[str, Any]] = {}  # site of a write_tests candidate -> its mutants
    for kind in [one for one in options.kinds if one in package.language.kinds and one != "commit"]:
        before = bench.cpu_s
        found = _of_kind(kind, bench, model, options, report, hidden)
        report.kind_cpu_s[kind] = report.kind_cpu_s.get(kind, 0.0) + round(bench.cpu_s - before, 2)
        checked += found
    tasks, kept, bundles = _finished(bench, model, checked, options, report, hidden)
    report.cpu_s = round(bench.cpu_s, 2)
    if not tasks:
        reasons = "; ".join(filter(None, [str(dict(report.reasons)), report.files_set_aside()]))
        raise PackageRefused("no_task", f"No candidate of {package.name} passed the gates: {reasons}.")
    return tasks, kept, bundles


def _finished(
    bench: Bench,
    model: PackageModel,
    checked: Sequence[Checked],
    options: TaskOptions,
    report: PackageReport,
    hidden: Mapping[str, Mapping[str, Any]] = {},
) -> _Rows:
    """Return the rows of checked candidates: audited, checked again, and with oracles."""
    package = model.package
    checked = _audited(model, checked, bench.venv, report)
    checked = _rechecked(bench, model, checked, options, report)
    wants_oracles = options.with_oracle and package.language.has_oracles
    answered = _with_oracles(bench, model, checked, options.seed) if wants_oracles else {}
    tasks, kept = [], dict[str, Mapping[str, Any]]()
    for number, one in enumerate(checked):
        oracle = hidden.get(one.candidate.site) if one.candidate.kind == "write_tests" else answered.get(number)
        task = task_of(model, one, options, oracle is not None)
        tasks.append(task)
        report.kept[one.candidate.kind] += 1
        if oracle is not None:
            kept[task.task_id] = oracle
    bundle = Bundle(
        package.digest,
        package.name,
        package.metadata.version,
        package.metadata.license,
        package.copyleft,
        package.python_path,
        package.language.pinned(bench.venv),
        pack(package.folder),
    )
    return tasks, kept, [bundle] if tasks else []


def _of_kind(
    kind: str,
    bench: Bench,
    model: PackageModel,
    options: TaskOptions,
    report: PackageReport,
    hidden: dict[str, Mapping[str, Any]],
) -> list[Checked]:
    """Return the checked candidates of one kind, up to the number that is wanted."""
    drawn = random.Random(stable_id(options.seed, kind, model.package.name))
    wanted = options.max_per_kind
    if kind == "write_tests":
        found = []
        for one, mutants in test_writing(bench, model, drawn, max(1, wanted // 5)):
            found.append(one)
            hidden[one.candidate.site] = {"mutants": mutants, "min_kills": max(2, math.ceil(0.6 * len(mutants)))}
            if len(found) == max(1, wanted // 5):
                break
        report.tried[kind] += len(found)
        report.valid[kind] += len(found)
        return found
    candidates = GENERATORS[kind](model, drawn)
    found = []
    for chunk in _chunks(candidates, wanted, lambda: wanted - len(found)):
        for one in check(bench, model, chunk, options.max_failing):
            report.tried[kind] += 1
            # A task that breaks many tests is right, but not wanted.
            report.valid[kind] += one.reason in ("", "unfocused")
            if one.reason:
                report.reasons[f"{kind}:{one.reason}"] += 1
            else:
                found.append(one)
    # A chunk holds a few more than are wanted; those say nothing about the yield.
    surplus = max(0, len(found) - wanted)
    report.tried[kind] -= surplus
    report.valid[kind] -= surplus
    return found[:wanted]


def _chunks(candidates: Iterator[Candidate], wanted: int, left: Callable[[], int]) -> Iterator[list[Candidate]]:
    """Yield candidates in groups until enough were kept or four times as many were tried."""
    tried = 0
    while left() > 0 and tried < 4 * wanted:
        chunk = [one for one, _ in zip(candidates, range(min(_CHUNK, left() + 2)), strict=False)]
        if not chunk:
            return
        tried += len(chunk)
        yield chunk


def _audited(model: PackageModel, found: Sequence[Checked], venv: Path, report: PackageReport) -> list[Checked]:
    """Drop candidates whose solution can be read elsewhere; take away files that quote it."""
    outside = _outside(model.language, tuple(model.language.readable(venv)))
    inside, texts = _inside(model)
    kept = []
    for one in found:
        audit = leaks.audit(model, one.candidate, outside, inside, texts)
        if audit.remaining:
            report.reasons[f"{one.candidate.kind}:leak"] += 1
            continue
        kept.append(replace(one, masked=audit.masked, num_searched=audit.num_files))
    return kept


@functools.lru_cache(maxsize=4)
def _outside(language: Language, folders: tuple[Path, ...]) -> leaks.Library:
    return leaks.library(language, folders)


@functools.lru_cache(maxsize=1)
def _inside(model: PackageModel) -> tuple[leaks.Library, dict[str, str]]:
    package = model.package
    known = (*package.sources, *package.tests)
    return leaks.library(model.language, [package.folder]), leaks.text_files(package.folder, known, model.language.code)


def _rechecked(
    bench: Bench, model: PackageModel, checked: Sequence[Checked], options: TaskOptions, report: PackageReport
) -> list[Checked]:
    """Check the first task and every k-th after it again by two full runs, whose result counts."""
    if not options.recheck_every:
        return list(checked)
    places = [
        number for number, one in enumerate(checked)
        if number % options.recheck_every == 0 and one.candidate.kind != "write_tests"
    ]  # fmt: skip
    done = list(checked)
    for place, one in zip(places, recheck(bench, model, [checked[place] for place in places]), strict=True):
        report.rechecked[f"{one.candidate.kind}:{one.recheck}"] += 1
        done[place] = one
    return [one for one in done if not one.reason and (one.fail_to_pass or one.candidate.kind == "write_tests")]


def _with_oracles(
    bench: Bench, model: PackageModel, checked: Sequence[Checked], seed: int
) -> dict[int, dict[str, Any]]:
    """Return the oracles by the place of their candidate."""
    calls = oracles.record(bench, model, [one.symbol for one in model.functions], seed)
    calls = oracles.answered_alike(bench, rewritten(model), calls)
    # A solver who makes the change again need not have its helpers.
    private = {number: set(one.candidate.notes.get("private", "").split("\n")) for number, one in enumerate(checked)}
    asked = {
        number: (one, oracles.oracle_of(one, [call for call in calls if call.call["target"] not in private[number]]))
        for number, one in enumerate(checked)
        if one.candidate.kind != "write_tests"
    }  # fmt: skip
    tells = dict(zip(asked, oracles.telling(bench, list(asked.values())), strict=True))
    # Tests with other arguments reach what no recorded call can build: methods, properties, errors, generators.
    few = [number for number, (_, oracle) in asked.items() if not (tells[number] and oracles.is_enough(oracle))]
    tests = {test for number in few for test in asked[number][0].fail_to_pass}
    told = Drivers(bench, model, tests, seed) if tests else None
    for number in few:
        one, oracle = asked[number]
        more = told.oracle_of(one) if told is not None else {}
        oracle.update(more)
        tells[number] |= bool(more.get("values"))
    return {number: oracle for number, (_, oracle) in asked.items() if tells[number] and oracles.is_enough(oracle)}
