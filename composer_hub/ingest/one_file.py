"""Read one file: recognize its format, read its sessions and transform each of them.

In: a `ReadJob`. Out: its sessions, each with a digest that identifies copies. Problems go into the file's report.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composer_hub.harnesses import harness_named
from composer_hub.ingest.files import archive_kind, digest_of, is_packed, plain_head, unpacked
from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.ingest.sources import HEAD_BYTES, SessionSource, sniff, source_named
from composer_hub.records import stable_id
from composer_hub.session import Session

READS_ARCHIVES = ("inspect",)
Transform = Callable[[Session], Any]
"""Called for each session in the worker; None drops the session. It is pickled once per worker.

Ingest returns another session. A stage that needs less returns what it needs, so that nothing else travels.
"""


@dataclass(frozen=True)
class Origin:
    """The origin of a downloaded file, for the provenance of its traces."""

    license: str = ""  # if the file does not state one
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadOptions:
    """How to read files."""

    format: str = ""  # the name of a source; "" = look at each file
    strict: bool = False  # a corrupt line or an unknown record ends the run
    workers: int = 0  # 0 = one for each processor, 1 = none but this process
    transform: Transform | None = None
    denied: frozenset[str] = frozenset()  # trace ids that must not come out
    license: str = ""  # if neither the file nor its origin states one
    origins: Mapping[str, Origin] = field(default_factory=dict)  # by path
    manifest: Mapping[str, Any] = field(default_factory=dict)  # of the run before: unchanged files are skipped
    version: str = ""  # of whatever shapes the output (e.g. redaction rules); another one reads all files again


@dataclass(frozen=True)
class ReadJob:
    """A file to read."""

    path: Path
    options: ReadOptions  # without manifest, origins and transform
    known_digest: str = ""
    is_unchanged: bool = False  # it still has the known digest
    stat: tuple[int, ...] = ()  # its size and time, taken before it is read
    origin: Origin = Origin()


def sessions_of(job: ReadJob, transform: Transform | None, report: FileReport) -> Iterator[tuple[str, Any]]:
    """Yield (content digest, session) of a file; what is wrong with the file goes into the report."""
    report.add("files")
    if job.is_unchanged:
        report.digest = job.known_digest
        report.add("unchanged")
        return
    source = _source(job, report)
    if source is None:
        return
    for session in _guarded(source, job, report):
        provenance = {**job.origin.provenance, **session.trace.provenance}
        provenance.setdefault("file_digest", report.digest)  # a published trace names the file it was first read from
        license = session.trace.license or job.origin.license or job.options.license
        trace = dataclasses.replace(session.trace, provenance=provenance, license=license)
        # Step keys identify copies; a digest is for sessions in which a step has no key.
        digest = "" if all(session.keys) else stable_id("content", trace.messages)
        keys = tuple(_short(key) if key else "" for key in session.keys)
        thoughts = tuple(dataclasses.replace(one, key=_short(one.key)) for one in session.thoughts)
        new: Any = dataclasses.replace(session, trace=trace, keys=keys, thoughts=thoughts)
        if transform is not None and new is not None:
            new = transform(new)
        if new is not None:
            yield digest, new


def _source(job: ReadJob, report: FileReport) -> SessionSource | None:
    """Return the file's format if it is to be read."""
    try:
        size = job.path.stat().st_size
        if size == 0:
            report.add("empty")
            return None
        head = plain_head(job.path, HEAD_BYTES)
        source = source_named(job.options.format) if job.options.format else sniff(head, job.path)
        if (kind := archive_kind(head)) and (source is None or source.name not in READS_ARCHIVES):
            report.add("unrecognised")
            report.problem(0, f"is a {kind} archive. Unpack it and name the folder.")
            return None
        if source is None:
            report.add("unrecognised")
            return None
        report.digest = digest_of(job.path)
    except OSError as error:
        unreadable(report, f"cannot be read ({error.strerror or error}).")
        return None
    return source


def _guarded(source: SessionSource, job: ReadJob, report: FileReport) -> Iterator[Session]:
    """Read a file; a reader that fails costs its file, not the run."""
    path = job.path
    try:
        with contextlib.ExitStack() as stack:
            with path.open("rb") as file:
                packed = is_packed(file.read(8))
            if packed:
                path = stack.enter_context(unpacked(path))
            num_sessions = 0
            for session in source.read(path, report):
                num_sessions += 1
                yield session
    except SessionError as error:
        if job.options.strict:
            raise
        message = str(error)  # a problem names its file itself
        for name in (path, job.path, job.path.name):
            message = message.removeprefix(f"{name} ")
        unreadable(report, message)
    except OSError as error:
        unreadable(report, f"cannot be read ({error.strerror or error}).")
    except MemoryError:
        unreadable(report, "does not fit into memory.")
    except Exception as error:
        if job.options.strict:
            raise
        unreadable(report, f"was given up by the {source.name} reader ({type(error).__name__}: {error}).")
    else:
        report.add("read")
        # A file that only names the others of its session is not read itself.
        if not num_sessions and any(report.counts[name] for name in ("bytes", "lines", "records")):
            report.add("no_trace")
            title, unknown = harness_named(source.name).title, report.counts["unknown"]
            more = f"; {unknown} of its records have unknown types" if unknown else ""
            report.problem(
                0, f"is in the format of {title}, but has no step of a model{more}. Nothing was taken from it."
            )


def is_stream(path: Path) -> bool:
    """Recognize a stream that a harness printed, whose stored session is the better copy."""
    try:
        head = plain_head(path, HEAD_BYTES)
    except OSError:
        return False
    source = sniff(head, path)
    return source is not None and source.is_stream(head)


def unreadable(report: FileReport, message: str) -> None:
    """Count a file as unreadable; the message continues its name: `cannot be read.`"""
    report.add("unreadable")
    report.problem(0, message)


def _short(key: str) -> str:
    """Return the form in which the manifest keeps a step's key."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:16]
