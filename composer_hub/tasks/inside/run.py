"""Run pytest over edited trees, one forked child per job: a file of jobs in, one report per job out.

The parent imports pytest and the modules that the tests need once, so that a job costs a fork. It writes a job's edits
into the tree, waits for the child's report, and restores every file that the job changed. A job that kills the parent
leaves no report, and the caller runs the others again.

Only processor time decides. The clock ends what waits for something, after `patience` times as long; the report lists
this under `late`, because a busy machine may have been the reason.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import gc
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import types
from pathlib import Path

import pytest
from _pytest import nodes
from _pytest.assertion import util as assertions
from _pytest.runner import runtestprotocol
from composer_jobs import MAX_MESSAGE, limit_process, load, reason, run_all, wait

FLAGS = (
    "-p no:cacheprovider -q --tb=no --continue-on-collection-errors "
    "--no-summary -o addopts= -o required_plugins= -o xfail_strict=false"
).split()
SPAWNING = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec", "os.spawn"}
VARIANT_SECONDS = 4
MAX_REASONS = 50  # tests whose failures are reported
IMPORT_SECONDS = 10  # of a test file, besides the time of a test
VARIANT_MODULE = "composer_variant"


def cpu_seconds():
    """Return the processor time of this process and its ended children."""
    both = (resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def limit(seconds, patience):
    """Limit this process to `seconds` of processor time, or much longer on the clock; 0 ends the limit."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds * patience)


class OutOfTime(BaseException):
    """A test that ran too long; no `Exception`, so that tests do not catch it."""


class PytestSession:
    """One pytest session: which tests run, for how long, under which coverage context, and how they ended."""

    def __init__(self, job, setting, coverage=None, recorder=None):
        self.job, self.coverage, self.recorder = job, coverage, recorder
        self.without, self.patience, self.tree = set(setting["without"]), setting["patience"], setting["tree"]
        self.wanted = set(job["ids"]) if job.get("ids") is not None else None
        self.statuses, self.seconds, self.broken_files = {}, {}, []
        self.begun, self.num_hanging, self.left_out, self.costs = cpu_seconds(), 0, [], {}
        self.late, self.denied = [], []  # what the clock ended; tests that lacked a permission
        self.ended, self.example = collections.Counter(), ""  # tests by status; one failure
        self.reasons = {}  # how the first failing tests fail
        self.broken = set()  # failing test functions: the cases of one are one
        self.spawned, self.fixtures, self.variants = {}, {}, {}  # spawned: test -> processes, None if not countable
        self.lines_folder = tempfile.mkdtemp() if coverage is not None else ""
        self.told, self.marks = [], None  # values that marks in the tests report
        if job.get("mark"):
            self.marks = load(setting["tools"]["values"]).Marks(self.told.append, deep=True)
            setattr(builtins, job["mark"], self.marks)
        self.current, self.caches = "", None

    def pytest_collectreport(self, report):
        if report.failed:
            self.broken_files.append(report.nodeid)
            last = str(report.longrepr).strip().splitlines()[-1:]
            self.example = self.example or f"{report.nodeid} does not import: {''.join(last)[:300]}."

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        limit(self.job["test_seconds"] + IMPORT_SECONDS, self.patience)
        self.current = collector.nodeid
        try:
            return (yield)
        finally:
            limit(0, 0)
            self.current = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        if self.wanted is not None:
            items[:] = [item for item in items if item.nodeid in self.wanted]
        items[:] = [item for item in items if item.nodeid not in self.without]
        if self.job.get("reverse"):
            items.reverse()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session):
        names = self.job.get("variants", ())
        ask = variant_host(session.items, names, self.patience) if names and session.items else None
        result = yield
        failing = sorted((id for id, status in self.statuses.items() if status == "failed"), key=self.seconds.get)
        if ask is not None:
            # A task that breaks too many tests is not wanted, whatever a trivial answer does.
            self.variants = ask(failing if len(self.broken) <= self.job["max_failing"] else [])
            self.late += [name for name, passed in self.variants.items() if passed is None]
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self.current = item.nodeid
        if self.marks is not None:
            self.marks.test = item.nodeid
        if self.coverage is not None:
            self.clear_caches()
            number = len(self.seconds)
            place = {
                "include": self.coverage.get_option("run:include"),
                "folder": self.lines_folder,
                "number": number,
                "test": item.nodeid,
            }
            os.environ["COMPOSER_LINES"] = json.dumps(place)
            for name in getattr(item, "fixturenames", ()):
                self.fixtures.setdefault(name, []).append(item.nodeid)
        self.context(item.nodeid)
        begun, used = time.perf_counter(), cpu_seconds()
        limit(self.job["test_seconds"], self.patience)
        try:
            return (yield)
        except OutOfTime:
            self.statuses[item.nodeid] = "failed"
            return True
        finally:
            limit(0, 0)
            cost, waited = cpu_seconds() - used, time.perf_counter() - begun
            self.costs[item.nodeid] = round(cost, 4)
            # A test that sleeps is slow on every machine; one that waits for a processor is not.
            self.seconds[item.nodeid] = round(max(cost, waited - self.patience * (cost + 0.5)), 4)
            if item.nodeid in self.late:
                self.statuses[item.nodeid] = "late"
            self.current = ""
            self.context("")
            self.ended[self.statuses.get(item.nodeid)] += 1
            self.broken |= {item.nodeid.split("[")[0]} if self.statuses.get(item.nodeid) == "failed" else set()
            if self.is_over():
                items = item.session.items
                place = items.index(item) + 1
                self.left_out += [one.nodeid for one in items[place:]]
                del items[place:]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef):
        shared = fixturedef.scope != "function"
        if shared:
            self.context("@" + fixturedef.argname)
        try:
            return (yield)
        finally:
            if shared:
                self.context(self.current)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self):
        # The reason of a failed assertion is not used, and a diff of long texts costs more than the test.
        assertions._reprcompare = None
        with self.recorder or contextlib.nullcontext():
            return (yield)

    def pytest_exception_interact(self, node, call):
        error = call.excinfo.value
        while error is not None and not isinstance(error, PermissionError):
            error = error.__cause__ or error.__context__
        self.denied += [] if error is None else [node.nodeid]

    def pytest_runtest_logreport(self, report):
        before = self.statuses.get(report.nodeid)
        if report.failed:
            self.statuses[report.nodeid] = "failed"
            self.example = self.example or f"{report.nodeid} fails: {report.longrepr}."
            if len(self.reasons) < MAX_REASONS:
                self.reasons.setdefault(report.nodeid, reason(str(report.longrepr), self.tree))
        elif before in (None, "passed"):
            unused = report.skipped or hasattr(report, "wasxfail")
            self.statuses[report.nodeid] = "skipped" if unused else "passed"

    def out_of_time(self, number, frame):
        self.num_hanging += 1
        if number == signal.SIGALRM:
            self.late.append(self.current)
        raise OutOfTime

    def is_over(self):
        """Return whether the tests that are left cannot matter: for time, or because the edit breaks too much."""
        breaks_too_much = self.ended["passed"] and len(self.broken) > self.job.get("stop_at", float("inf"))
        return breaks_too_much or self.hangs() or cpu_seconds() - self.begun > self.job.get("budget", float("inf"))

    def hangs(self):
        return self.num_hanging >= self.job.get("max_hanging", float("inf"))

    def context(self, name):
        if self.coverage is not None:
            self.coverage.switch_context(name)

    def clear_caches(self):
        """Forget what earlier tests computed, so that every test runs the code that it needs."""
        if self.caches is None:
            kind = type(functools.lru_cache(lambda: None))
            found = [one for one in gc.get_objects() if type(one) is kind]
            own = self.job["modules"]
            self.caches = [one for one in found if str(getattr(one, "__module__", "")).split(".")[0] in own]
        for one in self.caches:
            one.cache_clear()

    def audit(self, event, args):
        if event in SPAWNING and self.current:
            before = self.spawned.get(self.current, 0)
            # Only what `subprocess` starts is counted; a fork ends without a report of its lines.
            self.spawned[self.current] = before + 1 if event == "subprocess.Popen" and before is not None else None

    def child_lines(self):
        """Return the lines that processes of tests ran, and the tests some of whose processes did not report."""
        lines, reports = {}, {}
        for path in sorted(Path(self.lines_folder).glob("lines-*[0-9]")) if self.lines_folder else ():
            told = json.loads(path.read_text())
            reports[told["test"]] = reports.get(told["test"], 0) + 1
            for name, numbers in told["lines"].items():
                lines.setdefault(told["test"], {}).setdefault(inside(self.tree, name), set()).update(numbers)
        shutil.rmtree(self.lines_folder, ignore_errors=True)
        unseen = [test for test, count in self.spawned.items() if count is None or reports.get(test, 0) < count]
        found = {test: {name: sorted(numbers) for name, numbers in one.items()} for test, one in lines.items()}
        return {"child_lines": found, "unseen": sorted(unseen)}

    def report(self):
        return {
            "statuses": self.statuses,
            "seconds": self.seconds,
            "broken_files": self.broken_files,
            "left_out": self.left_out,
            "costs": self.costs,
            "hangs": self.hangs(),
            "late": self.late,
            "denied": self.denied,
            "example": self.example,
            "reasons": self.reasons,
            "variants": self.variants,
            "spawners": sorted(self.spawned),
            "fixtures": self.fixtures,
            "told": json.loads(json.dumps(self.told).replace(self.tree, "@")),
            **self.child_lines(),
        }


def variant_host(items, names, patience):
    """Fork a child that tries trivial answers on tests that have not run yet; return the function that asks it.

    The tests that the empty body fails run first there, the fast ones before the slow ones, because a trivial answer
    most often fails them as well.
    """
    question, asks = os.pipe()
    answers, says = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os.close(asks)
            with os.fdopen(question) as file:
                place = {id: number for number, id in enumerate(json.loads(file.read()))}
            first = sorted(items, key=lambda item: place.get(item.nodeid, len(place)))
            os.write(says, json.dumps({name: passes_all(first, name, patience) for name in names}).encode())
        os._exit(0)
    os.close(question)
    os.close(says)

    def ask(failing):
        with os.fdopen(asks, "w") as file, contextlib.suppress(BrokenPipeError):
            file.write(json.dumps(failing) if failing else "")
        with os.fdopen(answers) as file:
            told = file.read()
        os.waitpid(child, 0)
        return json.loads(told) if told else {}

    return ask


def passes_all(items, variant, patience):
    """Run tests with a trivial answer in a child, up to the first failure; true if there is none, None if not known."""
    child = os.fork()
    if child:
        code = wait(child, VARIANT_SECONDS * patience)
        return None if code is None else code == 0
    code = 1
    try:
        os.setsid()
        limit_process(VARIANT_SECONDS)
        sys.modules[VARIANT_MODULE].variant = variant
        for item, after in zip(items, [*items[1:], None]):  # noqa: B905 (an old interpreter may run this)
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=after)):
                break
        else:
            code = 0
    finally:
        os._exit(code)


def answer(variables):
    """Return the current trivial answer; without one, behave like a body that is not written yet."""
    variant = sys.modules[VARIANT_MODULE].variant
    if variant is None:
        raise NotImplementedError
    if variant == "argument":
        return next(iter(variables.values()), None)
    return {"none": None, "text": "", "list": [], "true": True}[variant]


WITH_TRACEBACK = nodes.Node._repr_failure_py


def no_traceback(self, excinfo, style=None):
    """Return a short report of a failure, because a traceback parses every file that it shows."""
    if excinfo.typename in ("Skipped", "SkipTest"):  # pytest reads the place of a file that skips itself
        return WITH_TRACEBACK(self, excinfo, style)
    return excinfo.exconly(tryshort=True)[:MAX_MESSAGE]


def run_tests(job, setting):
    """Run pytest for one job and return its report."""
    tools = setting["tools"]
    nodes.Node._repr_failure_py = no_traceback

    error = import_error(job.get("imports", ()), setting["patience"])
    if error is None:
        return {"statuses": {}, "seconds": {}, "late": ["the import of the package"]}
    if error:
        return {"import_error": error}
    if job.get("calls") is not None:
        answers = list(load(tools["values"]).answers(job["calls"]))
        late = [call["target"] for call, one in zip(job["calls"], answers) if "late" in one]  # noqa: B905
        shown = [{"opaque": True} if names_place(one, setting) else one for one in answers]
        return {"answers": shown, "statuses": {}, "seconds": {}, "late": late}
    coverage = recorder = None
    if job.get("coverage"):
        import coverage as library

        include = [f"{setting['tree']}/{name}" for name in job["coverage"]]
        coverage = library.Coverage(data_file=None, include=include, config_file=False, messages=False)
        coverage.start()
        os.environ["PYTHONPATH"] = os.pathsep.join([tools["startup"], os.environ.get("PYTHONPATH", "")])
    if job.get("record"):
        recorder = load(tools["recorder"]).Recorder(job["record"], setting["tree"], load(tools["values"]))
    session = PytestSession(job, setting, coverage, recorder)
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, session.out_of_time)
    if coverage is not None:
        sys.addaudithook(session.audit)
    if pytest.main([*FLAGS, *job["files"]], plugins=[session]) == pytest.ExitCode.INTERNAL_ERROR:
        sys.stdout.flush()  # it has pytest's error, and the end of this process flushes nothing
    report = session.report()
    if coverage is not None:
        coverage.stop()
        report |= lines_of(coverage.get_data(), setting["tree"]) | {"warm": standard_modules()}
    if recorder is not None:
        report["recorded"] = [one for one in recorder.result() if not names_place(one["call"], setting)]
    return report


def inside(tree, path):
    """Return a path relative to the tree: the tree itself is elsewhere in every sandbox."""
    return path.removeprefix(tree + "/")


def names_place(value, setting):
    """Return whether a value holds the place of the tree, which the verifier's tree does not have."""
    return os.path.dirname(setting["tree"]) in json.dumps(value)


def lines_of(data, tree):
    """Return which contexts ran each line; equal sets of contexts are stored once."""
    contexts, sets, lines = {}, {}, {}
    for path in data.measured_files():
        found = {}
        for line, names in data.contexts_by_lineno(path).items():
            key = tuple(sorted(contexts.setdefault(name, len(contexts)) for name in names))
            found[line] = sets.setdefault(key, len(sets))
        lines[inside(tree, path)] = found
    return {"contexts": list(contexts), "sets": [list(key) for key in sets], "lines": lines}


def standard_modules():
    """Return the modules of the standard library that are imported now."""
    home = os.path.dirname(os.__file__)
    files = {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
    return sorted(name for name, file in files.items() if file.startswith(home) and "site-packages" not in file)


def import_error(names, patience):
    """Try to import modules in a child; return the first error, nothing, or None if it did not end in time."""
    if not names:
        return ""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        text = ""
        limit_process(3 * IMPORT_SECONDS)
        try:
            for name in names:
                importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 - an import may exit, and the caller reads why
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, text.encode()[:2000])
            os._exit(0)
    os.close(writer)
    code = wait(child, 3 * IMPORT_SECONDS * patience)
    with os.fdopen(reader, "rb") as file:
        os.set_blocking(reader, False)
        text = (file.read() or b"").decode(errors="replace")
    if code is None and not text:
        return None
    return text or ("" if code == 0 else "the import did not end")


def main():
    """Run every job in a fork of this process, which has imported the modules of the tests."""
    setting = json.loads(Path(sys.argv[1]).read_text())
    sys.path[0] = setting["tree"]  # like `python -m pytest` in the tree; this script's folder is not importable
    for name in setting["warm"]:
        with contextlib.suppress(BaseException):
            importlib.import_module(name)
    variant = types.ModuleType(VARIANT_MODULE)
    variant.variant, variant.answer = None, answer
    sys.modules[VARIANT_MODULE] = variant
    gc.freeze()
    run_all(setting, run_tests)


if __name__ == "__main__":
    main()
