"""Read sessions from files: find the files, read them in parallel, drop copies, and report.

In: files or folders. Out: one `Session` at a time, in the same order in every run, then a report and a manifest. A
worker process reads a file, transforms its sessions (redaction, error sites, hints) and spools them; the parent streams
the spool, so that neither a long session nor a file of many sessions fills the memory.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composer_hub.ingest.files import digest_of, find_files, stat_of
from composer_hub.ingest.one_file import Origin, ReadJob, ReadOptions, is_stream
from composer_hub.ingest.report import STREAM_LOG, FileReport, SessionError
from composer_hub.ingest.sources import source_named
from composer_hub.ingest.workers import outcomes
from composer_hub.output import plural
from composer_hub.records import stable_id
from composer_hub.session import Session

_DEFAULTS = ReadOptions()
Outcome = tuple[ReadJob, FileReport, Iterator[tuple[str, Session]]]
Reader = Callable[[list[ReadJob], ReadOptions], Iterator[Outcome]]
"""Reads files and yields an outcome for each of them, in order."""


class Reading:
    """Iterate over it for the sessions, then read `report` and `manifest`."""

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        options: ReadOptions = _DEFAULTS,
        on_file: Callable[[FileReport], None] = lambda report: None,
        elsewhere: Reader | None = None,
    ) -> None:
        self.options, self.on_file, self._elsewhere = options, on_file, elsewhere
        self.report = FileReport(strict=options.strict)
        self.manifest: dict[str, Any] = {}
        named = [Path(path).expanduser() for path in paths]
        self.named = {str(path) for path in named} - options.origins.keys()
        self.files = find_files(named, self.report)
        self.unchanged: set[str] = set()  # paths of files that were not read again
        self._seen_keys: set[str] = set()
        self._seen_traces: set[str] = set()
        self._unread: list[Mapping[str, Any]] = []  # entries of the manifest before that still hold

    def __iter__(self) -> Iterator[Session]:
        if self.options.format:
            source_named(self.options.format)
        # Of two copies the first stays, so what was printed comes after what was stored.
        jobs = sorted(map(self._job, self.files), key=lambda job: not job.is_unchanged and is_stream(job.path))
        for job, outcome, sessions in self._read(jobs):
            kept = _Kept()
            for digest, session in sessions:
                if (new := self._new(session, digest, outcome, kept)) is not None:
                    kept.take(new, digest)
                    yield new
            self._done(job, outcome, kept)
        self._carry()

    def version_report(self) -> FileReport:
        """Return the report of the version: this run's, and that of the known files which it did not read."""
        return FileReport().merge([self.report, *map(_report_of, self._unread)])

    def raise_if_nothing_read(self) -> None:
        """Raise SessionError if there were files and not one could be read."""
        if self.report.counts["read"] or self.report.counts["unchanged"]:
            return
        why = "; ".join(str(problem) for problem in self.report.problems[:3])
        raise SessionError(
            f"No session could be read ({plural(self.report.counts['files'], 'file')} looked at). "
            f"{why or 'No file is in a known format: name one with --from, or point at a folder of sessions.'}"
        )

    # ---- jobs

    def _job(self, path: Path) -> ReadJob:
        known = self.options.manifest.get(str(path), {})
        # A file of which more or less is denied than when it was read gives other traces.
        same = known.get("version") == self._version_of(str(path)) and known.get("denied") == self._denied_of(known)
        options = dataclasses.replace(self.options, manifest={}, origins={}, transform=None)
        origin = self.options.origins.get(str(path), Origin())
        stat = stat_of(path)
        if not same or not _still_holds(path, stat, known):
            return ReadJob(path, options, stat=stat, origin=origin)
        if not known.get("is_printed"):
            # Copies of its steps in other files are dropped.
            self._seen_keys.update(known.get("keys", ()))
            self._seen_traces.update(known.get("traces", ()))
        return ReadJob(path, options, known["digest"], True, stat, origin)

    def _version_of(self, path: str) -> str:
        """Return the digest of everything that shapes a file's rows, including its origin."""
        origin = self.options.origins.get(path)
        return stable_id(self.options.version, dataclasses.asdict(origin)) if origin else self.options.version

    def _denied_of(self, known: Mapping[str, Any]) -> list[str]:
        """Return the denied traces of a file, also those with a denied parent."""
        denied, held = self.options.denied, known.get("held", {})
        return sorted(trace_id for trace_id, parent in held.items() if not denied.isdisjoint((trace_id, parent)))

    def _read(self, jobs: list[ReadJob]) -> Iterator[Outcome]:
        if self._elsewhere is not None:
            return self._elsewhere(jobs, self.options)
        return outcomes(jobs, self.options.transform, self.options.workers)

    # ---- sessions

    def _new(self, session: Session, digest: str, report: FileReport, kept: _Kept) -> Session | None:
        """Return the new steps of a session, or None without any."""
        counts = report.counts
        trace_id = session.trace.trace_id
        kept.held[trace_id] = session.trace.parent_trace_id
        if self._is_denied(report, trace_id, session.trace.parent_trace_id):
            return None
        is_printed = bool(session.trace.steps) and STREAM_LOG in session.trace.steps[0].prefix_reason
        if is_printed and trace_id in self._seen_traces:
            counts["duplicate_traces"] += 1
            return None
        kept.is_printed |= is_printed
        new = session.without_steps(self._seen_keys.__contains__)
        counts["duplicate_steps"] += len(session.trace.steps) - len(new.trace.steps)
        if not new.trace.steps or (digest and digest in self._seen_keys):
            counts["duplicate_traces"] += 1
            return None
        if trace_id in self._seen_traces:
            # Two files of one session that diverged: both stay, under different ids.
            counts["same_session"] += 1
            original, trace_id = trace_id, stable_id("copy", trace_id, digest or new.trace.steps[0].step_id)
            kept.held[trace_id] = original
            if self._is_denied(report, trace_id):
                return None
            # The id of a step without a key is its place in the session, which another file has as well.
            steps = tuple(
                step if key else dataclasses.replace(step, step_id=stable_id("step", trace_id, step.step_id))
                for step, key in zip(new.trace.steps, new.keys, strict=True)
            )
            new = new.with_trace(dataclasses.replace(new.trace, trace_id=trace_id, steps=steps))
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

    def _done(self, job: ReadJob, report: FileReport, kept: _Kept) -> None:
        path = str(job.path)
        digest = report.digest
        if path in self.named and not report.num_problems:
            if report.counts["unrecognised"]:
                report.problem(0, "is in no known session format; name one with --from if you know it.")
            elif report.counts["empty"]:
                report.problem(0, "is empty.")
        self.report.merge([report])
        if report.counts["unchanged"]:
            self.unchanged.add(path)
            self.manifest[path] = {**self.options.manifest[path], "stat": job.stat}
            self._unread.append(self.manifest[path])
        elif report.counts["read"]:
            entry = {"digest": digest, "stat": job.stat, "version": self._version_of(path), **dataclasses.asdict(kept)}
            self.manifest[path] = entry | {"denied": self._denied_of(entry)} | _counts_of(report)
        self.on_file(report)

    def _carry(self) -> None:
        """Keep the entries of files that are gone or were not named: the version still has their traces."""
        elsewhere = {trace_id for entry in self.manifest.values() for trace_id in entry["traces"]}
        for path, known in self.options.manifest.items():
            if path not in self.manifest and not elsewhere.issuperset(known["traces"]):
                denied = self._denied_of(known)
                counts = {**known["counts"], "denied": len(denied)}
                self.manifest[path] = {**known, "denied": denied, "counts": counts}
                self._unread.append(self.manifest[path])


@dataclass
class _Kept:
    """The traces and keys of a file, for the manifest."""

    traces: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)  # every trace, denied and double ones too -> its parent
    is_printed: bool = False  # by a harness as a stream, so that a stored copy replaces it

    def take(self, session: Session, digest: str) -> None:
        self.traces.append(session.trace.trace_id)
        self.keys.extend(key for key in session.keys if key)
        self.keys.extend([digest] if digest else [])


def _still_holds(path: Path, stat: tuple[int, ...], known: Mapping[str, Any]) -> bool:
    """Return whether a file is unchanged since the last run; with equal size and time it is not read."""
    return bool(stat) and (list(stat) == list(known.get("stat", ())) or digest_of(path) == known["digest"])


_OF_A_RUN = ("files", "read")
"""Counts of a run rather than of a file."""


def _counts_of(report: FileReport) -> dict[str, Any]:
    """Return the report of a file for the manifest, for runs that do not read the file."""
    counts = {name: count for name, count in report.counts.items() if name not in _OF_A_RUN}
    return {"counts": counts, "unknown_types": dict(report.unknown_types), "num_problems": report.num_problems}


def _report_of(entry: Mapping[str, Any]) -> FileReport:
    counts, unknown = Counter(entry["counts"]), Counter(entry["unknown_types"])
    return FileReport(counts=counts, unknown_types=unknown, num_problems=entry["num_problems"])
