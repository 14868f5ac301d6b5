"""Ingest over shards: workers anywhere read the files of a run, and replace what its sessions gave away.

Two plans, one after the other. The first reads the files: a shard is a run of the ordered files, and its result has the
prepared sessions of each, whose placeholders carry keyed digests, with the values that the sessions gave away. The
caller then drops copies and numbers placeholders, in the order of the files. The second plan replaces the values of all
sessions: a shard is a range of bytes of the spooled traces. Both give what one process gives, because workers run its
code and the caller merges their results in its order.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from composer_hub.ingest.files import digest_of
from composer_hub.ingest.one_file import Origin, ReadJob, ReadOptions, sessions_of
from composer_hub.ingest.prepare import Preparation
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.workers import collect_rarely, spool_one, spool_sessions
from composer_hub.records import Trace
from composer_hub.session import Session
from composer_hub.shards import Input, Plans, ShardError, Sharding, Staging, balanced
from composer_hub.shards.plan import file_digest

_SESSIONS, _REPORTS = "sessions.pickle", "reports.pickle"


class ShardedRun:
    """The plans of one ingest run for a dataset, based on a head."""

    def __init__(self, sharding: Sharding, repo: str, head: str, key: str) -> None:
        self.sharding, self.repo, self.head = sharding, repo, head
        self.plans = Plans()
        self._key = key  # digest of everything beside the files that shapes the sessions, with the salt

    def read(
        self, jobs: Sequence[ReadJob], options: ReadOptions
    ) -> Iterator[tuple[ReadJob, FileReport, Iterator[Any]]]:
        """Read the changed files in shards and yield the outcome of every job, in order."""
        changed = [job for job in jobs if not job.is_unchanged]
        groups = balanced([_input_of(job) for job in changed], self.sharding.num_shards)
        asked = {"format": options.format, "strict": options.strict, "license": options.license}
        staging = self._carry_out("read", groups, asked, options.transform)
        outcomes = _outcomes(staging)
        for job in jobs:
            if job.is_unchanged:
                report = FileReport(str(job.path), strict=options.strict)
                yield job, report, sessions_of(job, None, report)
            else:
                yield job, *next(outcomes)

    def replace(
        self, spool: Path, offsets: Sequence[int], prepare: Preparation, secrets: Mapping[str, str]
    ) -> Iterator[Trace]:
        """Yield the traces of a spool, which begin at these offsets, without what any session of the run gave away.

        The spool moves to where every worker sees it.
        """
        spool = Path(shutil.move(spool, self.plans.held[0][0].folder / "traces.pickle"))
        traces = [
            Input("", num_bytes=stop - start, start=start, stop=stop) for start, stop in itertools.pairwise(offsets)
        ]
        groups = [[_joined(spool, group)] for group in balanced(traces, self.sharding.num_shards)]
        values = hashlib.sha256(f"{self._key}{list(secrets.items())}".encode("utf-8", "surrogatepass")).hexdigest()
        staging = self._carry_out("replace", groups, {"values": values}, (prepare, dict(secrets)))
        for shard in staging.plan.shards:
            yield from _pickled(staging.result(shard.number) / _SESSIONS)

    def _carry_out(
        self, work: str, groups: Sequence[Sequence[Input]], options: Mapping[str, Any], private: Any
    ) -> Staging:
        return self.plans.carry_out(
            self.sharding,
            "ingest",
            f"{__name__}:{work}",
            groups,
            options={"key": self._key, **options},
            private=pickle.dumps(private),
            repo=self.repo,
            head=self.head,
        )


# ----------------------------------------------------------------------------------------------------------- workers


def read(staging: Staging, inputs: Sequence[Input], result: Path) -> dict[str, int]:
    """Read the files of a shard and prepare their sessions."""
    collect_rarely()
    transform = pickle.loads(staging.private())
    options = {name: staging.plan.options[name] for name in ("format", "strict", "license")}
    reports = []
    with (result / _SESSIONS).open("wb") as file:
        for one in inputs:
            origin = Origin(one.about.get("license", ""), one.about.get("provenance", {}))
            job = ReadJob(one.path, ReadOptions(**options), origin=origin)
            report, number = spool_sessions(job, transform, file)
            if one.digest and one.digest != (report.digest or _digest_of(job.path)):
                raise ShardError(
                    f"{one.name} is not the file of the plan. If it changed since, run the same command again, which "
                    "plans again. If this machine cannot read it, name files that every worker sees."
                )
            reports.append((report, number))
    (result / _REPORTS).write_bytes(pickle.dumps(reports))
    return {"files": len(reports), "sessions": sum(number for _, number in reports)}


def replace(staging: Staging, inputs: Sequence[Input], result: Path) -> dict[str, int]:
    """Replace in a range of spooled traces what the sessions of the run gave away."""
    prepare, secrets = pickle.loads(staging.private())
    number = 0
    (one,) = inputs
    if file_digest(Path(one.name), one.start, one.stop) != one.digest:
        raise ShardError(f"{one.name} changed since the plan was made. Run the same command again.")
    with Path(one.name).open("rb") as spool, (result / _SESSIONS).open("wb") as file:
        spool.seek(one.start)
        while one.stop is not None and spool.tell() < one.stop:
            spool_one(prepare.without_secrets(pickle.load(spool), secrets), file)
            number += 1
    return {"traces": number}


def _input_of(job: ReadJob) -> Input:
    size = job.stat[0] if job.stat else 0
    about: dict[str, Any] = {}
    if job.origin != Origin():
        about = {"license": job.origin.license, "provenance": dict(job.origin.provenance)}
        repo, revision = (str(job.origin.provenance.get(name, "")) for name in ("dataset", "revision"))
        # A downloaded file is below a folder that is named after its commit.
        _, found, path = str(job.path).partition(f"/{revision}/")
        about |= {"dataset": f"{repo}@{revision}", "path": path} if revision and found else {}
    return Input(str(job.path), _digest_of(job.path), size, about=about)


def _digest_of(path: Path) -> str:
    """Return the digest of a file, or "" if it cannot be read."""
    try:
        return digest_of(path)
    except OSError:
        return ""


def _joined(spool: Path, group: Sequence[Input]) -> Input:
    start, stop = group[0].start, group[-1].stop or 0
    return Input(str(spool), file_digest(spool, start, stop), stop - start, start, stop)


def _outcomes(staging: Staging) -> Iterator[tuple[FileReport, Iterator[tuple[str, Session]]]]:
    """Yield the report and the sessions of each file, in the order of the plan."""
    for shard in staging.plan.shards:
        folder = staging.result(shard.number)
        sessions = _pickled(folder / _SESSIONS)
        for report, number in pickle.loads((folder / _REPORTS).read_bytes()):
            yield report, itertools.islice(sessions, number)


def _pickled(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)
