"""One ingest run, from session files to the next version of a trace dataset.

In: files, folders and `hf://` datasets. Out: an `Ingested` with the traces of the version, its numbers, and `plan`,
`publish` and `publish_raw`.

A version keeps every trace that was ever ingested into it, unless the trace is denied or the run is `fresh`: harnesses
delete old sessions, datasets should not. Files that have not changed since the last run are not read again; their
traces come from the version that the last run published.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub import __version__, exits
from composer_hub.hints.critic import Critic, criticized
from composer_hub.hints.judge import Judge
from composer_hub.hints.writers import write_hints, writers_named
from composer_hub.hub import (
    Card,
    Destination,
    Draft,
    Lineage,
    Moved,
    NothingToPublish,
    Parent,
    Published,
    PublishError,
    PublishOptions,
    PublishPlan,
    Table,
    Version,
    dry_run,
    newest,
    update,
)
from composer_hub.ingest.dataset import TraceCounts, file_numbers, numbers_of, trace_card, trace_tables, viewer_files
from composer_hub.ingest.downloads import local_sources
from composer_hub.ingest.one_file import ReadOptions
from composer_hub.ingest.prepare import DEFAULT_WRITERS, Preparation
from composer_hub.ingest.raw import publish_raw
from composer_hub.ingest.reading import Reading
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.sharding import ShardedRun
from composer_hub.named_files import write_whole
from composer_hub.options import option
from composer_hub.records import Trace, stable_id, to_row
from composer_hub.redact import (
    NO_ONE,
    Decisions,
    Numbering,
    Publisher,
    RedactionError,
    Redactor,
    Sample,
    dotenv_secrets,
    drop_denied,
    environment_secrets,
    find_kingfisher,
    read_denylist,
    refuse_leaks,
    rules_digest,
)
from composer_hub.redact.reader import Reader
from composer_hub.shards import Plans, Sharding

_LAYOUT = 5
"""Version of the memory file; a file with another layout is ignored and every session is read again."""


@dataclass(frozen=True)
class IngestOptions:
    """How to ingest. The fields are the options of `composer-hub ingest`."""

    format: str = option(
        "", "Format of every file, by its name in --list (default: recognized file by file).",
        flag="--from", metavar="NAME",
    )  # fmt: skip
    redact: bool = option(True, "Replace secrets and personal data.")
    personal: str = option(  # strict: also coordinates, unlabeled addresses, names after a label
        "standard", "Personal data to replace; strict takes look-alikes with it.", choices=("standard", "strict")
    )
    scan: bool | None = option(None, "Check the result with kingfisher (default: if installed).")
    env_files: tuple[Path, ...] = option((), "File or folder of .env values.", flag="--env-file")
    writers: str = option(DEFAULT_WRITERS, "Hint writers, in order.")
    outcome_hints: bool = option(False, "Also write hints from failed tests and compilers.")
    user_hints: bool = option(False, "Also write hints from the user's words at a rejection.")
    text_rules: bool = option(False, "Also read other failures from shell output without an exit code.")
    license: str = option("other", "License of files that do not state one.")
    strict: bool = option(False, "End the run at a corrupt line or an unknown record.")
    workers: int = option(0, "Worker processes (0: one per core).")
    fresh: bool = option(False, "Ignore earlier versions and read every file again.")
    viewer: bool = option(True, "Add sessions for the Hub's trace viewer.")
    denied: frozenset[str] = frozenset()  # trace ids that the version must not hold
    review: bool = False  # collect samples of what was replaced
    publisher: Publisher = NO_ONE  # whose name, address and machine are replaced wherever they occur

    def refuse_unredacted(self) -> None:
        """Raise Refused if these options give traces that must not be public."""
        if not self.redact:
            raise exits.Refused("Traces that were not redacted are not made public: leave --no-redact or --public out.")


_MAX_SAMPLES = 5
"""Replaced values of each rule and worker that a person is shown."""
_SHAPING = ("format", "redact", "personal", "writers", "outcome_hints", "user_hints", "text_rules")
"""Options that change the traces of a file."""


def ingest(
    paths: Iterable[str | os.PathLike[str]],
    options: IngestOptions = IngestOptions(),  # frozen
    *,
    destination: Destination | None = None,
    repo: str = "",
    judge: Judge | None = None,
    critic: Critic | None = None,
    reader: Reader | None = None,
    on_file: Callable[[str, int], None] = lambda path, num_files: None,
    sharding: Sharding | None = None,
) -> Ingested:
    """Read sessions and return the traces of the next version of `repo`.

    `destination` is needed for `hf://` paths and to publish. `judge` writes the hints that no earlier writer has
    written. `reader` reads what redaction left. `on_file` is called after each file with its path and the number of
    files. With `sharding`, shards of the files are read by its executor; the result is the same.
    """
    return Ingested(paths, options, destination, repo, judge, critic, reader, on_file, sharding)


def memory_folder(destination: Destination | None, repo: str) -> Path:
    """Return the folder on this machine with what ingest remembers of a dataset: files, salt, placeholder numbers."""
    home = Path(os.environ.get("COMPOSER_HUB_STATE") or Path.home() / ".local" / "state" / "composer_hub")
    return home / "ingest" / (stable_id(destination.address, repo) if destination and repo else "report")


def read_denied(path: Path) -> frozenset[str]:
    """Return the trace ids of a denylist; a broken list is a usage error."""
    try:
        return read_denylist(path)
    except (RedactionError, exits.UsageError) as error:
        raise exits.UsageError(f"--deny {error}") from error


class Ingested:
    """The traces of one run and of the version before it, spooled to disk until this object is gone."""

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        options: IngestOptions,
        destination: Destination | None,
        repo: str,
        judge: Judge | None,
        critic: Critic | None,
        reader: Reader | None,
        on_file: Callable[[str, int], None],
        sharding: Sharding | None = None,
    ) -> None:
        if reader is not None and not options.redact:
            raise exits.UsageError("--reader reads what redaction left: leave --no-redact or --reader out.")
        self.options, self.repo, self.judge, self.critic, self.reader = options, repo, judge, critic, reader
        self._destination = destination
        self._memory = memory_folder(destination, repo)
        self.decisions = Decisions(self._memory / "review.jsonl")
        self._scratch = tempfile.TemporaryDirectory(prefix="composer-ingest-")
        self._counts = TraceCounts()
        self._before = self._version_before()
        self._new_ids: set[str] = set()
        self._memory_holds = False  # the last run made the version before, without the same traces
        self._numbering = Numbering.open(self._memory / "redaction.jsonl") if options.redact else None
        files, self._origins = local_sources(paths, destination)
        self._prepare = self._preparation()
        read_options = self._read_options()
        self._shards = self._sharded(sharding, read_options)
        self._plans = self._shards.plans if self._shards else Plans()
        self._reading = Reading(
            files,
            read_options,
            lambda report: on_file(report.path, len(self._reading.files)),
            self._shards.read if self._shards else None,
        )
        self._lacks_earlier = True
        self._offsets = [0]  # in the spool, where each trace begins and the last one ends
        self._secrets: dict[str, str] = {}
        self.samples: dict[str, Sample] = {}
        """Replaced values of the files that were read, for a person to look at, by placeholder."""
        self._store(self._traces_read())
        if self._secrets:
            self._store(self._settled())
        if reader is not None and self._new_ids:
            reader.announce(self._spooled())
            self._store(self._read_again(reader))
        self._reading.raise_if_nothing_read()
        if not repo:
            self._plans.forget()

    @property
    def report(self) -> FileReport:
        """The report of this run."""
        return self._reading.report

    def traces(self) -> Iterator[Trace]:
        """Yield the traces of the version."""
        self._add_earlier()
        return self._spooled()

    def numbers(self) -> dict[str, Any]:
        """Return the numbers of the version: `--report` prints them, the manifest and the card hold them."""
        report = self._reading.version_report()
        if self._nothing_new and self._before is not None:
            return {**self._before.manifest["sources"]["numbers"], **file_numbers(report)}
        self._add_earlier()
        return numbers_of(report, self._counts)

    def rules(self) -> Counter[str]:
        """Return the replacements of this run by rule."""
        counted: Counter[str] = Counter()
        for trace in self._spooled():
            counted.update(trace.counts.get("redactions_by_rule", {}))
        return counted

    def plan(self, options: PublishOptions) -> PublishPlan:
        """Return the plan of `publish`; nothing is written."""
        tables, card, lineage = self._content(public=options.public)
        return dry_run(self._hub, self.repo, tables, card, lineage=lineage, options=options)

    def publish(self, options: PublishOptions) -> Published:
        """Publish the version and remember its files; traces that others published meanwhile stay in it."""

        def make(head: Version | None) -> Draft | None:
            self._follow(head)
            if self._nothing_new:
                self._check(self.numbers(), public=options.public)
                return None
            return Draft(*self._content(public=options.public))

        with self._plans.until_published():
            try:
                published = update(self._hub, self.repo, make, options=options)
            except NothingToPublish:
                if self._before is not None:
                    self._remember(self._before.revision)
                raise
            self._remember(published.revision)
        return published

    def publish_raw(self) -> tuple[int, int]:
        """Add the raw files to the private dataset `OWNER/NAME-sessions`; return how many were added and held back.

        Files with a denied trace are held back. Files that gave no trace stay on this machine.
        """
        read = {path: self._manifest[str(path)] for path in self._reading.files if str(path) in self._manifest}
        paths = [path for path, entry in read.items() if entry["traces"] and not entry["denied"]]
        held_back = sum(bool(entry["denied"]) for entry in read.values())
        return publish_raw(self._hub, f"{self.repo}-sessions", paths), held_back

    # ---- reading

    @property
    def _hub(self) -> Destination:
        if self._destination is None or not self.repo:
            raise exits.UsageError("Give ingest() a destination and a repo to publish to.")
        return self._destination

    @property
    def _spool(self) -> Path:
        return Path(self._scratch.name) / "traces"

    @property
    def _manifest(self) -> Mapping[str, Any]:
        return self._reading.manifest

    def _version_before(self) -> Version | None:
        return newest(self._destination, self.repo) if self._destination is not None and self.repo else None

    def _read_options(self) -> ReadOptions:
        options = self.options
        models = [model.model if model else "" for model in (self.judge, self.critic)]
        models += [self.reader.id] if self.reader else []
        shape = {name: getattr(options, name) for name in _SHAPING}
        return ReadOptions(
            format=options.format,
            strict=options.strict,
            workers=options.workers,
            transform=self._prepare,
            denied=options.denied,
            license=options.license,
            origins=self._origins,
            manifest=self._remembered_files(),
            # A new release may read the same file better.
            version=stable_id(
                __version__, rules_digest(), shape, models, sorted(self.decisions.kept), sorted(self.decisions.accepted)
            ),
        )

    def _sharded(self, sharding: Sharding | None, read_options: ReadOptions) -> ShardedRun | None:
        if sharding is None:
            return None
        redactor = self._prepare.redactor
        values = (
            (self._numbering.salt.hex(), redactor.exact, self.options.publisher) if redactor and self._numbering else ()
        )
        key = hashlib.sha256(f"{read_options.version}{self.options.review}{values}".encode()).hexdigest()
        return ShardedRun(sharding, self.repo, self._before.revision if self._before else "", key)

    def _preparation(self) -> Preparation:
        redactor = None
        if self._numbering is not None:
            exact = [*environment_secrets(os.environ), *dotenv_secrets(self.options.env_files)]
            redactor = Redactor(
                self._numbering.salt,
                exact=exact,
                publisher=self.options.publisher,
                kept=self.decisions.kept,
                accepted=self.decisions.accepted,
                strict=self.options.personal == "strict",
                max_samples=_MAX_SAMPLES if self.options.review else 0,
            )
        return Preparation(
            redactor,
            # A judge sees only redacted text, so with a judge all hints are written after redaction.
            writers="" if self.judge else self.options.writers,
            outcome=self.options.outcome_hints,
            user_feedback=self.options.user_hints,
            text_rules=self.options.text_rules,
        )

    def _store(self, traces: Iterable[Trace], *, more: bool = False) -> None:
        """Spool and count traces, which may be made from those of the spool; `more` adds to them."""
        self._counts = self._counts if more else TraceCounts()
        spool = self._spool if more else self._spool.with_name("next")
        offsets = self._offsets if more else [0]
        with spool.open("ab" if more else "wb") as file:
            for trace in traces:
                self._counts.add(trace)
                pickle.dump(trace, file, protocol=pickle.HIGHEST_PROTOCOL)
                offsets.append(file.tell())
        spool.replace(self._spool)
        self._offsets = offsets

    def _spooled(self) -> Iterator[Trace]:
        with self._spool.open("rb") as spool:
            while spool.peek(1):
                yield pickle.load(spool)

    def _settled(self) -> Iterator[Trace]:
        """Yield the traces of the spool without what any session of the run gave away."""
        if self._shards is None or self._numbering is None:
            return map(self._without_secrets, self._spooled())
        clean = self._shards.replace(self._spool, self._offsets, self._prepare, self._secrets)
        return map(self._numbering.number, clean)

    def _read_again(self, reader: Reader) -> Iterator[Trace]:
        """Yield the traces of the spool without what the reader finds in them."""
        for trace in self._spooled():
            clean = self._prepare.read_by(reader, trace)
            yield clean if self._numbering is None else self._numbering.number(clean)

    def _without_secrets(self, trace: Trace) -> Trace:
        """Replace what any session of the run gave away."""
        if not self._secrets or self._numbering is None:
            return trace
        return self._numbering.number(self._prepare.without_secrets(trace, self._secrets))

    @property
    def _nothing_new(self) -> bool:
        """Return whether the previous version has exactly these traces and need not be read."""
        before = self._before is not None and not self.options.fresh and self._lacks_earlier
        return before and self._memory_holds and not self._new_ids and not self._ids_of_changed_files()

    def _add_earlier(self) -> None:
        """Add the traces of the version before, once."""
        if self._lacks_earlier:
            self._lacks_earlier = False
            self._store(self._earlier_traces(), more=True)

    def _traces_read(self) -> Iterator[Trace]:
        for session in self._reading:
            trace = session.trace if self._numbering is None else self._numbering.number(session.trace)
            if self.judge and not session.is_prepared:
                trace = self._with_judged_hints(trace, self.judge)
            if self.critic and not session.is_prepared:
                trace = criticized(trace, self.critic)
            self._new_ids.add(trace.trace_id)
            self._secrets.update(session.secrets)
            self.samples.update((sample.placeholder, sample) for sample in session.samples)
            yield trace

    def _with_judged_hints(self, trace: Trace, judge: Judge) -> Trace:
        names = [name.strip() for name in self.options.writers.split(",")]
        names = names if "judge" in names else [*names, "judge"]
        writers = [judge if name == "judge" else writers_named(name)[0] for name in names]
        return write_hints(trace, writers, outcome=self.options.outcome_hints, user_feedback=self.options.user_hints)

    def _follow(self, head: Version | None) -> None:
        """Take the earlier traces from the newest version, if another run has published one since this run began."""
        known, now = (version.revision if version else None for version in (self._before, head))
        if known == now:
            return
        if self.options.fresh:
            raise PublishError(
                f"{self.repo} got another version ({head.tag if head else 'none'}) while this run read files, and "
                "--fresh would drop its traces. Run the command again to replace that version as well."
            )
        self._new_ids |= self._missing_in(head)
        self._before = head
        self._lacks_earlier = self._memory_holds = False
        self._store(itertools.chain(self._own_traces(), self._earlier_traces()))

    def _missing_in(self, head: Version | None) -> set[str]:
        """Return the traces of unchanged files that the new head lacks, after reading them from the version before."""
        missing = self._ids_of_skipped_files() - (head.ids("traces") if head else set())
        with contextlib.suppress(Moved):  # a folder keeps no earlier version
            if not missing or missing.issubset(trace.trace_id for trace in self.traces()):
                return missing
        raise PublishError(
            f"{self.repo} got another version ({head.tag if head else 'none'}) while this run read files. It lacks "
            f"{len(missing):,} traces of files that this run skipped as unchanged. Run the command again."
        )

    def _ids_of_skipped_files(self) -> set[str]:
        """Return the traces of the files of this run that had not changed since the last one."""
        return {
            trace_id
            for path in map(str, self._reading.files)
            if path in self._reading.unchanged
            for trace_id in self._manifest[path]["traces"]
        }

    def _own_traces(self) -> Iterator[Trace]:
        return (trace for trace in self._spooled() if trace.trace_id in self._new_ids)

    def _earlier_traces(self) -> Iterator[Trace]:
        """Yield the traces of the version before that this run did not read again."""
        if self._before is None or self.options.fresh:
            return
        replaced = self._new_ids | self._ids_of_changed_files()
        for trace in drop_denied(self._before.records(Trace, "traces"), self.options.denied):
            if trace.trace_id not in replaced:
                yield self._without_secrets(trace)

    def _ids_of_changed_files(self) -> set[str]:
        """Return the traces that changed files held before: a trace that left its file leaves the version."""
        then, now = self._reading.options.manifest, self._manifest
        changed = [path for path, entry in now.items() if path in then and entry["digest"] != then[path]["digest"]]
        return {trace_id for path in changed for trace_id in then[path]["traces"]}

    # ---- publishing

    def _content(self, *, public: bool) -> tuple[Sequence[Table], Card, Lineage]:
        """Return the arguments of `hub.publish` after all checks, so that nothing unredacted gets out."""
        numbers = self.numbers()
        self._check(numbers, public=public)
        if self.options.scan or (self.options.scan is None and find_kingfisher()):
            refuse_leaks(json.dumps(to_row(trace), ensure_ascii=False) for trace in self.traces())
        config = {name: getattr(self.options, name) for name in ("redact", "writers", "text_rules")}
        if self.reader:
            config["reader"] = self.reader.id
        # The paths of the files stay on this machine.
        files = stable_id(sorted(entry["digest"] for entry in self._manifest.values()))
        lineage = Lineage(tuple(self._parents()), config, {"files": files, "numbers": numbers})
        folder = Path(self._scratch.name) / "sessions"
        sessions = viewer_files(self.traces(), folder) if self.options.viewer and self.options.redact else {}
        reader = self.reader.id if self.reader else ""
        card = trace_card(
            self.repo, self.options.license, numbers, redacted=self.options.redact, sessions=sessions, reader=reader
        )
        return trace_tables(self.traces), card, lineage

    def _check(self, numbers: Mapping[str, Any], *, public: bool) -> None:
        """Refuse to make traces public that were never redacted."""
        if public:
            self.options.refuse_unredacted()
            if numbers["unredacted"]:
                raise exits.Refused(
                    f"{self.repo} holds traces of earlier versions that were never redacted "
                    f"({numbers['unredacted']:,}), and those are not made public: add --fresh or leave --public out."
                )

    def _parents(self) -> Iterator[Parent]:
        if self._before and not self.options.fresh:
            yield Parent("earlier version", self._before.repo, self._before.revision, tag=self._before.tag)
        downloads = {(origin.provenance["dataset"], origin.provenance["revision"]) for origin in self._origins.values()}
        yield from (Parent("source", repo, revision) for repo, revision in sorted(downloads))

    # ---- memory

    def _remembered_files(self) -> dict[str, Any]:
        """Return the files of the last run, if the version that it published is still the newest."""
        try:
            memory = json.loads((self._memory / "files.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        holds = self._before is not None and not self.options.fresh and memory.get("revision") == self._before.revision
        if not holds or memory.get("layout") != _LAYOUT:
            return {}
        self._memory_holds = memory["denied"] == sorted(self.options.denied)
        return memory["files"]

    def _remember(self, revision: str) -> None:
        self._memory.mkdir(parents=True, exist_ok=True)
        memory = {
            "layout": _LAYOUT,
            "revision": revision,
            "denied": sorted(self.options.denied),
            "files": self._manifest,
        }
        write_whole(self._memory / "files.json", json.dumps(memory).encode())
