"""Candidates in, checked candidates out: which tests an edit breaks, and why it gives no task.

Only the tests that an edit can change are run. `recheck` runs everything instead, on the edited and on the original
tree, and compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from composer_hub.records import SourceEdit
from composer_hub.tasks.bench import Bench, Job, Report
from composer_hub.tasks.deletion import VARIANTS, Candidate, PackageModel, edits_of
from composer_hub.tasks.language import Language, files_of

GATES: Mapping[str, str] = {
    "does_not_parse": "the edited file is not valid code",
    "import": "the package does not import",
    "hangs": "the tests use too much processor time",
    "late": "the tests waited too long twice, so their result is not known",
    "killed": "the tests end their runner",
    "no_report": "the tests end without a report",
    "nothing_fails": "no test fails",
    "nothing_passes": "no test passes",
    "gold_fails": "the solution does not pass",
    "trivial": "a trivial answer passes",
    "unfocused": "too many tests fail",
    "leak": "a copy of the solution can be read",
    "oracle": "the oracle cannot tell the broken code from the original",
}
TEST_SECONDS = 2.0
MAX_HANGING = 1  # tests of one candidate; the others do not run


@dataclass(frozen=True)
class Checked:
    """A candidate after its run."""

    candidate: Candidate
    edits: tuple[SourceEdit, ...]
    fail_to_pass: frozenset[str] = frozenset()
    pass_to_pass: frozenset[str] = frozenset()  # of those that were run
    reason: str = ""  # of GATES; empty if the candidate is a task
    detail: str = ""
    cpu_s: float = 0.0
    masked: tuple[str, ...] = ()  # files that quote the solution and that the agent does not get
    num_searched: int = 0  # files
    reasons: Mapping[str, str] = field(default_factory=dict)  # how some of the failing tests fail
    recheck: str = ""  # exact, more, fewer or other: result of two full runs, compared with the lists


def check(bench: Bench, model: PackageModel, candidates: Sequence[Candidate], max_failing: int) -> list[Checked]:
    """Run the tests of each candidate and apply every gate that needs no more than that."""
    prepared = [Checked(one, edits_of(model, one)) for one in candidates]
    prepared = [one if parses(model, one.edits) else replace(one, reason="does_not_parse") for one in prepared]
    jobs: dict[str, Job] = {}
    for number, one in enumerate(prepared):
        if not one.reason:
            jobs[f"{number}"] = _job(model, one, f"{number}", max_failing)
    reports = {report.name: report for report in bench.run(list(jobs.values()))}
    return [
        one if one.reason else judge(model, one, reports[f"{number}"], max_failing)
        for number, one in enumerate(prepared)
    ]


def gold_edits(one: Checked) -> tuple[SourceEdit, ...]:
    """Return the edits of the original tree that give the tree that passes."""
    return (*one.edits, *(one.candidate.gold or ()))


def parses(model: PackageModel, edits: Sequence[SourceEdit]) -> bool:
    """Return whether the edited files are valid code."""
    return all(edit.text is None or model.language.parses(edit.path, edit.text) for edit in edits)


def _job(model: PackageModel, one: Checked, name: str, max_failing: int) -> Job:
    candidate, baseline = one.candidate, model.baseline
    seconds = sum(baseline.seconds.get(id, 0.0) for id in candidate.guided)
    slowest = max((baseline.seconds.get(id, 0.0) for id in candidate.guided), default=0.0)
    options: dict[str, object] = {"max_hanging": MAX_HANGING, "stop_at": max_failing}
    if candidate.probes:
        options |= {"variants": VARIANTS, "max_failing": max_failing}
    if candidate.breaks_imports:
        options["imports"] = model.package.modules
    return Job(
        name,
        files_of(candidate.guided),
        edits=edits_of(model, candidate, candidate.probes) if candidate.probes else one.edits,
        ids=tuple(sorted(candidate.guided)),
        seconds=min(300.0, 30.0 + 5 * seconds),
        test_seconds=TEST_SECONDS + 10 * slowest,
        options=options,
    )


def judge(model: PackageModel, one: Checked, report: Report, max_failing: int) -> Checked:
    """Apply the gates to the report of a candidate's run."""
    done = replace(one, cpu_s=report.cpu_s, detail=report.detail[-300:])
    if report.problem:
        return replace(done, reason=report.problem)
    wanted = one.candidate.guided
    passed = report.passed() & wanted
    done = replace(done, fail_to_pass=frozenset(wanted - passed), pass_to_pass=frozenset(passed))
    done = replace(done, reasons=report.values.get("reasons", {}))
    if not done.fail_to_pass:
        return replace(done, reason="nothing_fails")
    if model.baseline.passing <= done.fail_to_pass:
        return replace(done, reason="nothing_passes")
    if any(report.values.get("variants", {}).values()):
        return replace(done, reason="trivial")
    if num_functions(model.language, done.fail_to_pass) > max_failing:
        return replace(done, reason="unfocused")
    return done


def num_functions(language: Language, ids: Iterable[str]) -> int:
    """Return how many test functions some tests are; the cases of a parametrized one count once."""
    return len(set(map(language.function_of, ids)))


def recheck(bench: Bench, model: PackageModel, checked: Sequence[Checked]) -> list[Checked]:
    """Run every test on the edited and on the original tree, and note whether the lists are exact."""
    files = tuple(path for path in model.package.tests if path not in model.baseline.set_aside)
    seconds, slowest = sum(model.baseline.seconds.values()), max(model.baseline.seconds.values(), default=0.0)
    jobs = []
    for number, one in enumerate(checked):
        whole = Job(f"{number}", files, seconds=60 + 5 * seconds, test_seconds=TEST_SECONDS + 10 * slowest)
        gold = gold_edits(one) if one.candidate.gold is not None else ()
        jobs += [replace(whole, edits=one.edits), replace(whole, name=f"{number}-gold", edits=gold)]
    reports = {report.name: report for report in bench.run(jobs)}
    return [_compared(model, one, reports[f"{n}"], reports[f"{n}-gold"]) for n, one in enumerate(checked)]


def _compared(model: PackageModel, one: Checked, broken: Report, gold: Report) -> Checked:
    if broken.problem or gold.problem:
        return replace(one, recheck="other", reason=one.reason or broken.problem or gold.problem)
    known = model.baseline.passing | one.fail_to_pass | one.pass_to_pass
    fails = frozenset((gold.passed() & known) - broken.passed())
    if fails == one.fail_to_pass:
        return replace(one, recheck="exact")
    name = "more" if fails > one.fail_to_pass else "fewer" if fails < one.fail_to_pass else "other"
    # The result of two full runs is right, so it replaces the lists.
    return replace(one, recheck=name, fail_to_pass=fails, pass_to_pass=one.pass_to_pass - fails)
