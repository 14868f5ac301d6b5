"""From paths to sessions: find the files, read them in parallel, drop copies, and say what happened.

In: files or folders. Out: `Session`s one at a time, in the same order in every run, then a report and a manifest. A
file is read, transformed (redaction, error sites, hints) and spooled in a worker process; what comes back is streamed
from the spool, so that neither a long session nor a file of many fills the memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import multiprocessing
import operator
import os
import pickle
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composer_hub.ingest.discover import find_files
from composer_hub.ingest.readers import HEAD_BYTES, Source, sniff, source_named
from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.ingest.session import Session
from composer_hub.records import Message, Step, ToolCall, stable_id

Transform = Callable[[Session], Session | None]
"""What is done to each session in the worker; None drops the session. It is pickled once for each worker."""

MIN_PARALLEL_BYTES = 16_000_000
"""Below this, starting processes takes longer than reading."""


@dataclass(frozen=True)
class Options:
    """How to ingest."""

    format: str = ""  # the name of a source; "" = look at each file
    strict: bool = False  # a corrupt line or an unknown record ends the run
    workers: int = 0  # 0 = one for each processor, 1 = none but this process
    transform: Transform | None = None
    denied: frozenset[str] = frozenset()  # trace ids that must not come out
    license: str = ""  # of the sessions, where the file does not say
    manifest: Mapping[str, Any] = field(default_factory=dict)  # of the run before: unchanged files are skipped
    version: str = ""  # of whatever shapes the output (e.g. redaction rules); another one reads all files again


@dataclass(frozen=True)
class _Job:
    path: Path
    options: Options  # without manifest and transform
    known_digest: str = ""


class Ingest:
    """One run: iterate over it for the sessions, then read `report` and `manifest`."""

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        options: Options = Options(),  # frozen
        on_file: Callable[[FileReport], None] = lambda report: None,
    ) -> None:
        self.options, self.on_file = options, on_file
        self.report = FileReport(strict=options.strict)
        self.manifest: dict[str, Any] = {}
        named = [Path(path).expanduser() for path in paths]
        self.named = {str(path) for path in named}
        self.files = find_files(named, self.report)
        self._seen_keys: set[str] = set()
        self._seen_traces: set[str] = set()
        self._unread: list[Mapping[str, Any]] = []  # entries of the manifest before that still hold

    def __iter__(self) -> Iterator[Session]:
        if self.options.format:
            source_named(self.options.format)
        jobs = [self._job(path) for path in self.files]
        self._remember(jobs)
        parallel = self._workers(jobs) > 1
        for job, outcome, sessions in self._in_processes(jobs) if parallel else self._here(jobs):
            kept = _Kept()
            for digest, session in sessions:
                if (new := self._new(session, digest, outcome, kept)) is not None:
                    kept.take(new, digest)
                    yield new
            self._done(job, outcome, kept)
        self._carry()

    def version_report(self) -> FileReport:
        """Return the report of the version: of this run, and of the files that it knew and did not read."""
        return FileReport().merge([self.report, *map(_report_of, self._unread)])

    def raise_if_nothing_read(self) -> None:
        """Raise SessionError if there were files and not one could be read."""
        if self.report.counts["read"] or self.report.counts["unchanged"]:
            return
        why = "; ".join(str(problem) for problem in self.report.problems[:3])
        files = self.report.counts["files"]
        raise SessionError(
            f"No session could be read ({files:,} file{'s' * (files != 1)} looked at). "
            f"{why or 'No file is in a known format: name one with --from, or point at a folder of sessions.'}"
        )

    # ---- jobs

    def _job(self, path: Path) -> _Job:
        known = self.options.manifest.get(str(path), {})
        # A file of which more or less is denied than when it was read gives other traces.
        same = known.get("version") == self.options.version and known.get("denied") == self._denied_of(known)
        return _Job(
            path, dataclasses.replace(self.options, manifest={}, transform=None), known["digest"] if same else ""
        )

    def _denied_of(self, known: Mapping[str, Any]) -> list[str]:
        """Return the traces that a file holds and that are denied now, by themselves or with their parent."""
        denied, held = self.options.denied, known.get("held", {})
        return sorted(trace_id for trace_id, parent in held.items() if not denied.isdisjoint((trace_id, parent)))

    def _remember(self, jobs: list[_Job]) -> None:
        """Take the keys of unchanged files for known, so that copies of their steps in other files are dropped."""
        for job in jobs:
            if job.known_digest and _digest(job.path) == job.known_digest:
                entry = self.options.manifest[str(job.path)]
                self._seen_keys.update(entry.get("keys", ()))
                self._seen_traces.update(entry.get("traces", ()))

    def _workers(self, jobs: list[_Job]) -> int:
        asked = self.options.workers or os.cpu_count() or 1
        if not self.options.workers and sum(_size(job.path) for job in jobs) < MIN_PARALLEL_BYTES:
            return 1
        return min(asked, len(jobs))

    def _here(self, jobs: list[_Job]) -> Iterator[tuple[_Job, FileReport, Iterator[tuple[str, Session]]]]:
        for job in jobs:
            report = FileReport(str(job.path), strict=self.options.strict)
            yield job, report, _sessions(job, self.options.transform, report)

    def _in_processes(self, jobs: list[_Job]) -> Iterator[tuple[_Job, FileReport, Iterator[tuple[str, Session]]]]:
        """Read files in worker processes, a few ahead, and hand them on in order."""
        with tempfile.TemporaryDirectory(prefix="composer-ingest-") as spool:
            pool = _Pool(self._workers(jobs), self.options.transform, Path(spool))
            try:
                for number, job in enumerate(jobs):
                    pool.ahead(jobs[number:])
                    report, spooled = pool.result(job)
                    yield job, report, _unspooled(spooled)
            finally:
                pool.stop()

    # ---- sessions

    def _new(self, session: Session, digest: str, report: FileReport, kept: _Kept) -> Session | None:
        """Return what of a session has not come before, or None."""
        counts = report.counts
        trace_id = session.trace.trace_id
        kept.held[trace_id] = session.trace.parent_trace_id
        if self._is_denied(report, trace_id, session.trace.parent_trace_id):
            return None
        new = session.without_steps(self._seen_keys.__contains__)
        counts["duplicate_steps"] += len(session.trace.steps) - len(new.trace.steps)
        if not new.trace.steps or (digest and digest in self._seen_keys):
            counts["duplicate_traces"] += 1
            return None
        if trace_id in self._seen_traces:
            # Two files of one session that went different ways: both stay, under ids of their own.
            counts["same_session"] += 1
            original, trace_id = trace_id, stable_id("copy", trace_id, new.trace.steps[0].step_id)
            kept.held[trace_id] = original
            if self._is_denied(report, trace_id):
                return None
            new = new.with_trace(dataclasses.replace(new.trace, trace_id=trace_id))
        self._seen_traces.add(trace_id)
        self._seen_keys.update(key for key in new.keys if key)
        self._seen_keys.update([digest] if digest else [])
        counts["kept_traces"] += 1
        counts["kept_steps"] += len(new.trace.steps)
        return new

    def _is_denied(self, report: FileReport, *trace_ids: str) -> bool:
        """True for a denied trace and for the subagents of one."""
        if self.options.denied.isdisjoint(trace_ids):
            return False
        report.add("denied")
        return True

    def _done(self, job: _Job, report: FileReport, kept: _Kept) -> None:
        path = str(job.path)
        digest = report.digest
        if report.counts["unrecognised"] and path in self.named:
            report.problem(0, "is in no known session format; name one with --from if you know it.")
        self.report.merge([report])
        if report.counts["unchanged"]:
            self.manifest[path] = dict(self.options.manifest[path])
            self._unread.append(self.manifest[path])
        elif report.counts["read"]:
            entry = {"digest": digest, "version": self.options.version, **dataclasses.asdict(kept)}
            self.manifest[path] = entry | {"denied": self._denied_of(entry)} | _counts_of(report)
        self.on_file(report)

    def _carry(self) -> None:
        """Keep what is known of files that are gone or were not named: the version still holds their traces."""
        elsewhere = {trace_id for entry in self.manifest.values() for trace_id in entry["traces"]}
        for path, known in self.options.manifest.items():
            if path not in self.manifest and not elsewhere.issuperset(known["traces"]):
                denied = self._denied_of(known)
                counts = {**known["counts"], "denied": len(denied)}
                self.manifest[path] = {**known, "denied": denied, "counts": counts}
                self._unread.append(self.manifest[path])


@dataclass
class _Kept:
    """What a file holds and what of it went on, for the manifest."""

    traces: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)  # every trace, denied and double ones too -> its parent

    def take(self, session: Session, digest: str) -> None:
        self.traces.append(session.trace.trace_id)
        self.keys.extend(key for key in session.keys if key)
        self.keys.extend([digest] if digest else [])


_OF_A_RUN = ("files", "read")
"""Counts that say what a run did; the others say what is in a file."""


def _counts_of(report: FileReport) -> dict[str, Any]:
    """Return what the manifest keeps of a file's report, for the runs that do not read it."""
    counts = {name: count for name, count in report.counts.items() if name not in _OF_A_RUN}
    return {"counts": counts, "unknown_types": dict(report.unknown_types), "num_problems": report.num_problems}


def _report_of(entry: Mapping[str, Any]) -> FileReport:
    counts, unknown = Counter(entry["counts"]), Counter(entry["unknown_types"])
    return FileReport(counts=counts, unknown_types=unknown, num_problems=entry["num_problems"])


# ------------------------------------------------------------------------------------------------------ one file


def _sessions(job: _Job, transform: Transform | None, report: FileReport) -> Iterator[tuple[str, Session]]:
    """Yield (content digest, session) of a file; what is wrong with the file goes into the report."""
    report.add("files")
    source = _source(job, report)
    if source is None:
        return
    read = _guarded(source, job, report)
    for session in read:
        provenance = {**session.trace.provenance, "file_digest": report.digest}
        trace = dataclasses.replace(
            session.trace, provenance=provenance, license=session.trace.license or job.options.license
        )
        # Where steps have keys, these tell copies; a digest is for formats without.
        digest = "" if any(session.keys) else stable_id("content", trace.messages)
        keys = tuple(_short(key) if key else "" for key in session.keys)
        new: Session | None = dataclasses.replace(session, trace=trace, keys=keys)
        if transform is not None and new is not None:
            new = transform(new)
        if new is not None:
            yield digest, new


def _source(job: _Job, report: FileReport) -> Source | None:
    """Return the file's format if it is to be read."""
    try:
        size = job.path.stat().st_size
        if size == 0:
            report.add("empty")
            return None
        with job.path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        source = source_named(job.options.format) if job.options.format else sniff(head, job.path)
        if source is None:
            report.add("unrecognised")
            return None
        report.digest = _digest(job.path)
    except OSError as error:
        _unreadable(report, f"cannot be read ({error.strerror or error}).")
        return None
    if job.known_digest == report.digest:
        report.add("unchanged")
        return None
    return source


def _guarded(source: Source, job: _Job, report: FileReport) -> Iterator[Session]:
    """Read a file; a reader that fails costs its file, not the run."""
    try:
        yield from source.read(job.path, report)
    except SessionError as error:
        if job.options.strict:
            raise
        _unreadable(report, f"{error}")
    except OSError as error:
        _unreadable(report, f"cannot be read ({error.strerror or error}).")
    except MemoryError:
        _unreadable(report, "does not fit into memory.")
    except Exception as error:
        if job.options.strict:
            raise
        _unreadable(report, f"was given up by the {source.name} reader ({type(error).__name__}: {error}).")
    else:
        report.add("read")


def _unreadable(report: FileReport, message: str) -> None:
    report.add("unreadable")
    report.problem(0, message)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _short(key: str) -> str:
    """Return the form in which the manifest keeps a step's key."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:16]


# ---------------------------------------------------------------------------------------------------- processes


class _Pool:
    """Worker processes, and the files that they are at."""

    def __init__(self, workers: int, transform: Transform | None, spool: Path) -> None:
        self.workers, self.transform, self.spool = workers, transform, spool
        self.window = workers + 1
        self.running: dict[Path, Future[FileReport]] = {}
        self.executor = self._start()

    def _start(self) -> ProcessPoolExecutor:
        # Spawned, not forked: the caller may hold threads and locks (a progress bar, an HTTP client).
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.workers, context, _initialise, (self.transform,))

    def ahead(self, jobs: list[_Job]) -> None:
        """Keep the next files on their way."""
        for job in jobs[: self.window]:
            if job.path not in self.running:
                try:
                    self.running[job.path] = self._submit(job)
                except BrokenProcessPool:
                    return  # a process has died since; `result` finds out over which file

    def _submit(self, job: _Job) -> Future[FileReport]:
        with _interrupts_held_back():  # a process may start here
            return self.executor.submit(_spooled, job, self._file(job))

    def result(self, job: _Job) -> tuple[FileReport, Path]:
        """Return the report and the spool of the next file."""
        running = self.running.pop(job.path, None)
        try:
            if running is not None:
                return running.result(), self._file(job)
        except BrokenProcessPool:
            pass
        return self._alone(job)

    def _alone(self, job: _Job) -> tuple[FileReport, Path]:
        """Read a file with no other at work, after a process has died: so it is known which file kills it."""
        self.stop()
        self.running.clear()
        self.window = 1
        self.executor = self._start()
        try:
            return self._submit(job).result(), self._file(job)
        except BrokenProcessPool:
            self.stop()
            self.executor = self._start()
            report = FileReport(str(job.path))
            report.add("files")
            _unreadable(report, "ended the process that read it, perhaps for want of memory.")
            self._file(job).write_bytes(b"")
            return report, self._file(job)

    def _file(self, job: _Job) -> Path:
        return self.spool / hashlib.sha256(os.fsencode(job.path)).hexdigest()

    def stop(self) -> None:
        self.executor.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let no Ctrl-C reach a process that starts: it would print where its imports were. Ours waits a moment."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_transform: Transform | None = None


def _initialise(transform: Transform | None) -> None:
    global _transform
    _transform = transform
    # From here on Ctrl-C ends a worker without a word; what there is to say, the process that started it says.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # A session is one growing heap without circles: looking for some after every few hundred objects costs a tenth.
    gc.set_threshold(100_000, 20, 20)


def _spooled(job: _Job, spool: Path) -> FileReport:
    """Read a file in a worker and leave its sessions in a file of pickles."""
    report = FileReport(str(job.path), strict=job.options.strict)
    with spool.open("wb") as file:
        pickler = pickle.Pickler(file, protocol=pickle.HIGHEST_PROTOCOL)
        # What dataclasses do by themselves is many times slower, and a session has thousands of these.
        pickler.dispatch_table = {cls: _reducer(cls) for cls in (Message, ToolCall, Step)}
        for item in _sessions(job, _transform, report):
            pickler.dump(item)
            pickler.clear_memo()
    return report


def _reducer(cls: type) -> Callable[[Any], tuple[type, tuple[Any, ...]]]:
    values = operator.attrgetter(*(field.name for field in dataclasses.fields(cls)))
    return lambda record: (cls, values(record))


def _unspooled(spool: Path) -> Iterator[tuple[str, Session]]:
    with spool.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)
    spool.unlink()
