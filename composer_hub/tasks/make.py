"""Sources in, a `TaskSet` out: measure each package, make candidates of every kind, check them, write the rows.

The same sources, options and libraries give the same rows: candidates are drawn in the order of a seed, tests run with
fixed hashes, and rows hold no times. A package that gives nothing is counted with its reason; the others continue.
"""

from __future__ import annotations

import functools
import hashlib
import math
import pickle
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.environments.sandbox import SandboxError
from composer_hub.environments.trees import matches
from composer_hub.environments.venvs import VenvError
from composer_hub.records import SourceEdit, Task, stable_id, stable_share
from composer_hub.shards import Input, Plans, Sharding, Staging, balanced
from composer_hub.tasks import leaks, oracles
from composer_hub.tasks.baseline import advice, measure
from composer_hub.tasks.bench import Bench
from composer_hub.tasks.commits import replays
from composer_hub.tasks.deletion import Candidate, PackageModel, branches, bugs, clusters, stubs
from composer_hub.tasks.drivers import Drivers, rewritten
from composer_hub.tasks.gates import Checked, check, recheck
from composer_hub.tasks.language import Language, Package, PackageRefused, pack
from composer_hub.tasks.removal import features, removals
from composer_hub.tasks.sharding import check_source, source_input
from composer_hub.tasks.sources import open_package
from composer_hub.tasks.statement import statements
from composer_hub.tasks.write_tests import test_writing

GENERATOR_VERSION = "3"
GENERATORS: Mapping[str, Callable[[PackageModel, random.Random], Iterator[Candidate]]] = {
    "stub": stubs,
    "cluster": clusters,
    "branch": branches,
    "removal": removals,
    "feature": features,
    "bug": bugs,
}
KINDS = (*GENERATORS, "write_tests", "commit")
MAX_PASS_TO_PASS = 60
MIN_PASS_TO_PASS = 20
_CHUNK = 24
_RESULT = "made.pickle"


@dataclass(frozen=True)
class TaskOptions:
    """The kinds of tasks to make, and how carefully."""

    kinds: tuple[str, ...] = tuple(kind for kind in KINDS if kind != "commit")  # a history has a tree per task
    max_per_kind: int = 25  # of a package
    seed: int = 0
    help_level: int = 1
    recheck_every: int = 20  # 0: none
    max_failing: int = 100  # test functions of one task
    suite_seconds: float = 10.0  # of CPU; of a longer suite the fastest tests are used
    with_oracle: bool = True
    revisions: str = "HEAD"  # of commit replay, as git names them
    max_commits: int = 200  # to look at, the newest first
    hide_tests: bool = False  # of replayed commits
    test_share: float = 0.1  # of the packages
    without: tuple[str, ...] = ()  # patterns of test files and ids to leave out
    requirements: tuple[str, ...] = ()  # to install besides those that a package names
    sandbox: str = "auto"
    workers: int = 2
    venvs: Path | None = None  # folder of virtual environments; None: the cache

    def __post_init__(self) -> None:
        unknown = sorted(set(self.kinds) - set(KINDS))
        if unknown or not self.kinds:
            named = f"There is no kind {', '.join(unknown)}" if unknown else "No kind of task is named"
            raise exits.UsageError(f"{named}. The kinds are {', '.join(KINDS)}.")
        if self.help_level not in (0, 1, 2):
            raise exits.UsageError("--help-level is 0, 1 or 2.")
        if not self.suite_seconds > 0:
            raise exits.UsageError(f"--suite-seconds is {self.suite_seconds:g}. Give a number above 0.")


@dataclass(frozen=True)
class Bundle:
    """The original tree of a package, with what is needed to run it."""

    digest: str
    package: str
    version: str
    license: str
    copyleft: bool
    python_path: tuple[str, ...]
    requirements: tuple[str, ...]  # pinned
    data: bytes


@dataclass
class PackageReport:
    """The numbers of one source."""

    source: str
    package: str = ""
    version: str = ""
    refused: str = ""  # reason, if it gave nothing
    sentence: str = ""
    num_tests: int = 0
    num_flaky: int = 0
    num_slow: int = 0
    num_not_passing: int = 0  # tests that fail or are skipped in the original
    set_aside: Counter[str] = field(default_factory=Counter)  # test files that cannot be run, by reason
    tried: Counter[str] = field(default_factory=Counter)  # candidates by kind
    valid: Counter[str] = field(default_factory=Counter)  # that break a test and leave one, by kind
    kept: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # kind:gate
    rechecked: Counter[str] = field(default_factory=Counter)  # kind:outcome
    cpu_s: float = 0.0  # in the sandbox
    baseline_cpu_s: float = 0.0
    kind_cpu_s: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    num_commits: int = 0  # that were looked at
    advice: str = ""  # options to pass
    skipped_files: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        """Describe the package: its tasks and what was left out, or the reason that it gave none."""
        if self.refused:
            return f"{self.source} gave no tasks ({self.refused}): {self.sentence}"
        kept = ", ".join(f"{kind} {self.kept[kind]} of {tried}" for kind, tried in self.tried.items()) or "none"
        slow = f"{self.num_slow} slow ones, " if self.num_slow else ""
        files = self.files_set_aside()
        return (
            f"{self.package} {self.version}, tasks of candidates: {kept}. Set aside: {self.num_flaky} flaky tests, "
            f"{slow}{self.num_not_passing} that do not pass{files and f', {files}'}."
            + f" {self.num_commits:,} commits were looked at." * bool(self.num_commits)
            + f" {self.advice}" * bool(self.advice)
        )  # fmt: skip

    def files_set_aside(self) -> str:
        return ", ".join(f"{number} test files ({reason})" for reason, number in self.set_aside.items())


@dataclass(frozen=True)
class TaskSet:
    """Tasks of one or more packages."""

    tasks: tuple[Task, ...]
    oracles: Mapping[str, Mapping[str, Any]]  # by task
    bundles: tuple[Bundle, ...]
    reports: tuple[PackageReport, ...]
    options: TaskOptions
    plans: Plans = field(default_factory=Plans, compare=False)  # staged for the set until it is published

    def numbers(self) -> dict[str, Any]:
        """Return the totals, for cards and terminals."""
        totals: dict[str, Counter[str]] = {
            name: Counter() for name in ("tried", "valid", "kept", "reasons", "rechecked")
        }
        for report in self.reports:
            for name, counter in totals.items():
                counter.update(getattr(report, name))
        return {
            "packages": sum(not report.refused for report in self.reports),
            "refused": dict(Counter(report.refused for report in self.reports if report.refused)),
            "tasks": len(self.tasks),
            "tasks_by_kind": dict(Counter(task.kind for task in self.tasks)),
            "with_oracle": sum(task.has_oracle for task in self.tasks),
            "copyleft": sum(task.copyleft for task in self.tasks),
            **{name: dict(sorted(counter.items())) for name, counter in totals.items()},
        }


def make(
    sources: Sequence[str],
    options: TaskOptions = TaskOptions(),
    on_package: Callable[[PackageReport], None] = lambda _: None,
    *,
    sharding: Sharding | None = None,
) -> TaskSet:
    """Make tasks from packages: folders, archives, or names that pip downloads.

    With `sharding`, its executor makes the tasks of parts of the packages; the result is the same.
    """
    tasks: list[Task] = []
    kept: dict[str, Mapping[str, Any]] = {}
    bundles: dict[str, Bundle] = {}
    reports, plans = [], Plans()
    named = tuple(dict.fromkeys(sources))
    found = _over_shards(named, options, sharding, plans) if sharding else (_made_of(one, options) for one in named)
    for part in found:
        tasks += part.tasks
        kept |= part.oracles
        bundles |= {one.digest: one for one in part.bundles}
        reports.append(part.report)
        on_package(part.report)
    used = {task.bundle_digest for task in tasks}
    chosen = tuple(bundle for digest, bundle in sorted(bundles.items()) if digest in used)
    return TaskSet(_split(tasks, options.test_share), kept, chosen, tuple(reports), options, plans)


@dataclass(frozen=True)
class _Made:
    """The result of one source."""

    report: PackageReport
    tasks: Sequence[Task] = ()
    oracles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by task
    bundles: Sequence[Bundle] = ()


def _made_of(source: str, options: TaskOptions) -> _Made:
    """Make the tasks of one source; if it gives none, the report has the reason."""
    report = PackageReport(source)
    begun, made = time.monotonic(), _Made(report)
    with tempfile.TemporaryDirectory(prefix="composer-tasks-") as folder:
        Path(folder).chmod(0o755)  # the sandbox runs as another user
        try:
            made = _Made(report, *_parts_of(source, options, Path(folder), report))
        except PackageRefused as error:
            report.refused, report.sentence = error.reason, str(error)
        except (VenvError, SandboxError) as error:
            report.refused = "dependencies" if isinstance(error, VenvError) else "sandbox"
            report.sentence = str(error)
        except (OSError, RecursionError, MemoryError, UnicodeError) as error:
            report.refused, report.sentence = "unreadable", f"{source}: {type(error).__name__}: {error}"
    report.wall_s = round(time.monotonic() - begun, 2)
    return made


def _over_shards(sources: Sequence[str], options: TaskOptions, sharding: Sharding, plans: Plans) -> Iterator[_Made]:
    """Yield the result of each source, in order; a shard is a part of the sources."""
    groups = balanced([source_input(source) for source in sources], sharding.num_shards)
    private = pickle.dumps(options)
    shape = {"options": hashlib.sha256(private).hexdigest(), "generator": GENERATOR_VERSION}
    staging = plans.carry_out(sharding, "tasks", f"{__name__}:work", groups, options=shape, private=private)
    for shard in staging.plan.shards:
        yield from pickle.loads((staging.result(shard.number) / _RESULT).read_bytes())


def work(staging: Staging, inputs: Sequence[Input], result: Path) -> Mapping[str, int]:
    """Make the tasks of a shard's sources."""
    options, made = pickle.loads(staging.private()), []
    for one in inputs:
        check_source(one)
        made.append(_made_of(one.name, options))
        made[-1].report.source = one.about["source"]
    (result / _RESULT).write_bytes(pickle.dumps(made))
    return {"packages": len(made), "tasks": sum(len(one.tasks) for one in made)}


def _split(tasks: Sequence[Task], share: float) -> tuple[Task, ...]:
    """Give whole packages to the test split."""
    packages = sorted({task.package for task in tasks}, key=stable_share)
    held_out = set(packages[: round(share * len(packages))])
    named = [replace(task, split="test" if task.package in held_out else "train") for task in tasks]
    return tuple(sorted(named, key=lambda task: (task.package, task.kind, task.task_id)))


# ------------------------------------------------------------------------------------------------------------- package


_Rows = tuple[list[Task], dict[str, Mapping[str, Any]], list[Bundle]]


def _parts_of(source: str, options: TaskOptions, folder: Path, report: PackageReport) -> _Rows:
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
        return package.language.environment(package, options.requirements, options.venvs)

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
    environment = package.language.environment(package, options.requirements, options.venvs)
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
        task = _task(model, one, options, oracle is not None)
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
    calls = oracles.described(bench, rewritten(model), calls)
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


# ---------------------------------------------------------------------------------------------------------------- rows


def _task(model: PackageModel, one: Checked, options: TaskOptions, has_oracle: bool) -> Task:
    package, candidate = model.package, one.candidate
    masked = [SourceEdit(path, None) for path in one.masked]
    masked += [agent for agent, _ in candidate.hidden]
    texts = statements(model, candidate, one.fail_to_pass, one.reasons)
    level = options.help_level
    passing = _pass_to_pass(model, one)
    changed = {edit.path for edit in one.edits if edit.path in model.tests}
    solution = _solution(model, one)
    files = {id.split("::")[0] for id in (*one.fail_to_pass, *passing)} | changed
    if candidate.kind == "write_tests":  # the oracle's mutants decide alone
        files, passing = set(model.package.tests), ()
    return Task(
        task_id=stable_id(package.digest, GENERATOR_VERSION, candidate.kind, options.seed, candidate.site),
        kind=candidate.kind,
        package=package.name,
        version=package.metadata.version,
        bundle_digest=package.digest,
        license=package.metadata.license,
        copyleft=package.copyleft,
        statement=texts[level],
        statements=texts,
        help_level=level,
        edits=tuple(sorted((*one.edits, *masked), key=lambda edit: edit.path)),
        solution=solution,
        editable=(candidate.notes["file"],) if candidate.kind == "write_tests" else _editable(package, solution),
        tests=tuple(sorted(files)),
        fail_to_pass=tuple(sorted(one.fail_to_pass)),
        pass_to_pass=passing,
        python_path=package.python_path,
        symbols=candidate.symbols,
        difficulty=_difficulty(model, one),
        seed=options.seed,
        generator_version=GENERATOR_VERSION,
        validation={
            "num_tests": len(model.baseline.passing),
            "num_run": len(candidate.guided),
            "num_flaky": len(model.baseline.flaky),
            "share_failing": round(len(one.fail_to_pass) / max(1, len(model.baseline.passing)), 4),
            "recheck": one.recheck,
            **({"mutation": candidate.notes["mutation"]} if "mutation" in candidate.notes else {}),
        },
        leaks={"num_files": one.num_searched, "masked": list(one.masked), "remaining": []},
        has_oracle=has_oracle,
        hidden=tuple(verifier for _, verifier in candidate.hidden),
        commit=candidate.notes.get("commit", ""),
        date=candidate.notes.get("date", ""),
        num_files=len(solution),
        num_lines=candidate.lines,
        language=package.language.name,
    )  # fmt: skip


def _editable(package: Package, solution: Sequence[SourceEdit]) -> tuple[str, ...]:
    return (*package.editable, *(edit.path for edit in solution if not matches(edit.path, package.editable)))


def _solution(model: PackageModel, one: Checked) -> tuple[SourceEdit, ...]:
    """Return the files that turn the agent's tree into one that passes."""
    if one.candidate.gold is not None:
        return one.candidate.gold
    return tuple(SourceEdit(edit.path, model.texts[edit.path]) for edit in one.edits if edit.path in model.sources)


def _pass_to_pass(model: PackageModel, one: Checked) -> tuple[str, ...]:
    """Return tests that pass before and after: those that the edit could have changed first."""
    quick = [id for id in one.pass_to_pass if model.baseline.seconds.get(id, 0) < 2]
    chosen = sorted(quick, key=stable_share)[:MAX_PASS_TO_PASS]
    if len(chosen) < MIN_PASS_TO_PASS and one.candidate.kind != "write_tests":
        files = {id.split("::")[0] for id in one.fail_to_pass}
        rest = model.baseline.passing - one.fail_to_pass - set(chosen)
        # Tests of the same files cost no further import.
        near = sorted(rest, key=lambda id: (id.split("::")[0] not in files, stable_share(id)))
        if one.candidate.kind not in ("removal", "feature"):
            chosen += [id for id in near if model.baseline.seconds.get(id, 0) < 2][: MIN_PASS_TO_PASS - len(chosen)]
        else:
            alive = [id for id in near if id.split("::")[0] not in files]
            chosen += alive[: MIN_PASS_TO_PASS - len(chosen)]
    return tuple(sorted(chosen))


def _difficulty(model: PackageModel, one: Checked) -> float:
    """Estimate from the size of the change how hard a task is; measured solve rates replace this."""
    weight = one.candidate.lines / 25 + (len(one.candidate.symbols) - 1) / 4 + math.log1p(len(one.fail_to_pass)) / 12
    return round(1 - math.exp(-weight), 3)
