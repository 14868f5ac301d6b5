"""`composer-hub ingest`: session files -> redacted, hinted traces, published as the next version of a trace dataset.

A version holds every trace that was ever ingested into it, unless the trace is denied or `--fresh` starts anew:
harnesses delete old sessions, datasets should not. Files that have not changed since the last run are not read again;
their traces come from the version that the last run published.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from composer_hub import __version__, exits
from composer_hub.cli.main import format_option
from composer_hub.cli.options import Publication, publish_options
from composer_hub.output import Output
from composer_hub.records import Trace, stable_id, to_row

if TYPE_CHECKING:
    from composer_hub.hub import Parent, Table, Version
    from composer_hub.ingest.one_file import Origin
    from composer_hub.ingest.pipeline import Ingest
    from composer_hub.ingest.prepare import Preparation
    from composer_hub.ingest.rows import Tally

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_MAX_SHOWN_PROBLEMS = 10
_LAYOUT = 3
"""Of what is remembered of a file; what an earlier release remembered is read anew."""


@click.command()
@click.argument("sources", nargs=-1, metavar="SRC…")
@click.option("--from", "source_format", default="", metavar="NAME", help="Read every file as this format; see --list.")
@click.option("--list", "list_sources", is_flag=True, help="List the formats that can be read.")
@click.option("--report", "show_report", is_flag=True, help="Print all numbers of the run; without --repo, only these.")
@click.option("--redact/--no-redact", default=True, show_default=True, help="Take out secrets and personal data.")
@click.option("--scan/--no-scan", default=None, help="Let kingfisher look at the result. Default: if it is installed.")
@click.option("--deny", type=_FILE, help="A file of trace ids, one a line, that must not be in the version.")
@click.option(
    "--env-file",
    "env_folders",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A folder whose .env files hold values to take out; repeatable.",
)
@click.option(
    "--writers", default="template,hindsight,environment", show_default=True, help="Who writes hints, in order."
)
@click.option(
    "--judge", metavar="URL#MODEL", help="Let a model write hints where `judge` stands in --writers, or last."
)
@click.option("--judge-max-usd", type=float, help="What the judge may cost at most, over all runs into this dataset.")
@click.option("--outcome-hints", is_flag=True, help="Hints from what tests and compilers said, too.")
@click.option("--user-hints", is_flag=True, help="Hints from the user's words at a rejection, too.")
@click.option("--text-rules", is_flag=True, help="Look for failures in shell output that an exit code hides.")
@click.option("--license", "license_", default="other", show_default=True, help="Licence where a file says none.")
@click.option("--strict", is_flag=True, help="A corrupt line or an unknown record ends the run.")
@click.option("--workers", default=0, help="Processes; 0 is one a core.")
@click.option("--fresh", is_flag=True, help="Leave out what earlier versions hold; read every file again.")
@click.option(
    "--raw", is_flag=True, help="Put the raw, unredacted files into a private dataset OWNER/NAME-sessions, too."
)
@publish_options(repo_required=False)
@format_option
def ingest(
    sources: tuple[str, ...],
    list_sources: bool,
    show_report: bool,
    publication: Publication,
    out: Output,
    **options: Any,
) -> None:
    """Turn session files and folders into a versioned, redacted trace dataset."""
    if list_sources:
        show_sources(out)
        return
    if not sources:
        raise exits.UsageError(
            "Name the sessions to read: files or folders, like ~/.claude/projects. --list shows formats."
        )
    if not publication.repo and not show_report:
        raise exits.UsageError("Name the dataset with --repo OWNER/NAME, or say --report to only see the numbers.")
    if options["raw"] and publication.public:
        raise exits.Refused(
            "--raw files are not redacted and never go into a public dataset: leave --raw or --public out."
        )
    if not options["redact"] and publication.public:
        raise exits.Refused("Traces that were not redacted are not made public: leave --no-redact or --public out.")
    from composer_hub.cli.hub_sources import local_sources

    with tempfile.TemporaryDirectory(prefix="composer-ingest-") as scratch:
        run = Run(publication, options, Path(scratch), out)
        run.read(*local_sources(sources, lambda: publication.destination))
        # A command prints one JSON value: the numbers stand in what the publication prints.
        if show_report and (out.mode in ("human", "agent") or not publication.repo):
            show_numbers(out, run.numbers())
        if publication.repo:
            run.scan()
            run.publish(with_report=show_report)


@dataclass
class State:
    """What ingest remembers of a dataset on this machine: the files it read, the salt, the placeholders' numbers."""

    folder: Path

    @classmethod
    def of(cls, publication: Publication) -> State:
        home = Path(os.environ.get("COMPOSER_HUB_STATE") or Path.home() / ".local" / "state" / "composer_hub")
        where = stable_id(publication.destination.address, publication.repo) if publication.repo else "report"
        return cls(home / "ingest" / where)

    def manifest(self) -> dict[str, Any]:
        path = self.folder / "files.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}

    def remember(self, files: dict[str, Any], revision: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f"files.json.{os.getpid()}"
        fresh.write_text(json.dumps({"layout": _LAYOUT, "revision": revision, "files": files}), encoding="utf-8")
        fresh.replace(self.folder / "files.json")


@dataclass
class Run:
    """One ingest run: what was read, spooled to disk, ready to be counted and published."""

    publication: Publication
    options: dict[str, Any]
    scratch: Path
    out: Output
    files: dict[str, Any] = field(default_factory=dict)
    fresh_ids: set[str] = field(default_factory=set)
    before: Version | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from composer_hub.ingest.rows import Tally

        self.tally: Tally = Tally()
        self.state = State.of(self.publication)
        self.denied = denied_ids(self.options["deny"]) if self.options["deny"] else frozenset()

    def read(self, sources: list[Path], origins: Mapping[str, Origin]) -> None:
        """Read what changed, take the rest from the version before, and spool every trace."""
        from composer_hub.ingest.one_file import Options
        from composer_hub.ingest.pipeline import Ingest
        from composer_hub.redact.redactor import rules_digest

        self.before, self.origins = self._version_before(), origins
        known = self._known_files()
        prepare = self._preparation()
        shaped_by = {name: self.options[name] for name in ("source_format", "writers", "judge")}
        # Another release may read the same file better.
        version = stable_id(__version__, rules_digest(), vars_of(prepare), shaped_by)
        options = Options(
            format=self.options["source_format"],
            strict=self.options["strict"],
            workers=self.options["workers"],
            transform=prepare,
            denied=frozenset(self.denied),
            license=self.options["license_"],
            origins=origins,
            manifest=known,
            version=version,
        )
        with self.out.progress("reading", None) as bar:
            self.reading: Ingest = Ingest(
                sources, options, on_file=lambda report: bar.advance(1, file=report.path[-40:])
            )
            bar.total = len(self.reading.files)
            with (self.scratch / "traces").open("wb") as spool:
                for trace in self._all_traces():
                    pickle.dump(trace, spool, protocol=pickle.HIGHEST_PROTOCOL)
        self.reading.raise_if_nothing_read()
        self.files = self.reading.manifest
        self._say_problems()
        if dropped := self.tally.totals["tokens_dropped"]:
            traces = f"{dropped:,} trace{'s' * (dropped != 1)}"
            self.out.note(f"Redaction changed the text of {traces}, so the token ids, which spelled it, are not kept.")

    def traces(self) -> Iterator[Trace]:
        """Yield the traces of the version to be, from the spool."""
        with (self.scratch / "traces").open("rb") as spool:
            while spool.peek(1):
                yield pickle.load(spool)

    def numbers(self) -> dict[str, Any]:
        """Return the numbers of the run: what --report prints, the manifest keeps and the card shows."""
        from composer_hub.ingest.rows import ingest_report

        return ingest_report(self.reading.version_report(), self.tally)

    def scan(self) -> None:
        """Let the second scanner look, where it is wanted; anything it finds ends the run before a byte goes up."""
        from composer_hub.redact.scanner import find_kingfisher, refuse_leaks

        wanted = self.options["scan"]
        if wanted is False or (wanted is None and find_kingfisher() is None):
            return
        refuse_leaks(json.dumps(to_row(trace), ensure_ascii=False) for trace in self.traces())

    def publish(self, *, with_report: bool = False) -> None:
        """Publish the version, then remember which files it holds; raw files go up where they are missing."""
        from composer_hub.hub import Lineage, NothingToPublish

        numbers = self.numbers()
        if self.publication.public and numbers["unredacted"]:
            raise exits.Refused(
                f"{self.publication.repo} holds traces of earlier versions that were never redacted "
                f"({numbers['unredacted']:,}), and those are not made public: add --fresh or leave --public out."
            )
        lineage = Lineage(
            parents=tuple(self._parents()),
            config={name: value for name, value in self.options.items() if name in ("redact", "writers", "text_rules")},
            sources={"files": digest_of_files(self.files), "numbers": numbers},
        )
        card = trace_card(self.publication.repo, self.options["license_"], numbers, redacted=self.options["redact"])
        try:
            published = self.publication.carry_out(
                self.out, trace_tables(self.traces), card, lineage,
                title="Ingest sessions", report=numbers if with_report else None,
            )  # fmt: skip
        except NothingToPublish:
            if self.before is not None:
                self.state.remember(self.files, self.before.revision)
            if not (self.options["raw"] and not self.publication.dry_run and self._publish_raw()):
                raise
            return
        if published is None:
            return
        self.state.remember(self.files, published.revision)
        if self.options["raw"]:
            self._publish_raw()

    def _parents(self) -> Iterator[Parent]:
        from composer_hub.hub import Parent

        if self.before:
            yield Parent("earlier version", self.before.repo, self.before.revision, tag=self.before.tag)
        downloaded = {(origin.provenance["dataset"], origin.provenance["revision"]) for origin in self.origins.values()}
        yield from (Parent("source", repo, revision) for repo, revision in sorted(downloaded))

    # ---- reading

    def _version_before(self) -> Version | None:
        from composer_hub.hub import LoadError, load

        if not self.publication.repo or self.options["fresh"]:
            return None
        try:
            return load(self.publication.destination, self.publication.repo)
        except LoadError:
            return None

    def _known_files(self) -> dict[str, Any]:
        remembered = self.state.manifest()
        if self.before is None or remembered.get("revision") != self.before.revision:
            return {}
        if remembered.get("layout") != _LAYOUT:
            return {}
        return remembered["files"]

    def _preparation(self) -> Preparation:
        from composer_hub.ingest.prepare import Preparation
        from composer_hub.redact.exact import dotenv_secrets, environment_secrets
        from composer_hub.redact.numbering import Numbering
        from composer_hub.redact.redactor import Redactor

        redactor = None
        self.numbering = None
        if self.options["redact"]:
            self.numbering = Numbering.open(self.state.folder / "redaction.jsonl")
            exact = [*environment_secrets(os.environ), *dotenv_secrets(self.options["env_folders"])]
            redactor = Redactor(self.numbering.salt, exact=exact)
        return Preparation(
            redactor,
            # A judge sees redacted text only, so then hints are written here, after redaction, by all writers.
            writers="" if self.options["judge"] else self.options["writers"],
            outcome=self.options["outcome_hints"],
            user_feedback=self.options["user_hints"],
            text_rules=self.options["text_rules"],
        )

    def _all_traces(self) -> Iterator[Trace]:
        hinted = self._judged()
        for session in self.reading:
            trace = session.trace if self.numbering is None else self.numbering.number(session.trace)
            trace = trace if session.is_prepared else hinted(trace)
            self.fresh_ids.add(trace.trace_id)
            self.tally.add(session.with_trace(trace))
            yield trace
        yield from self._earlier_traces()

    def _judged(self) -> Callable[[Trace], Trace]:
        """Return what writes hints with the judge, or a function that leaves a trace as it is."""
        if not self.options["judge"]:
            return lambda trace: trace
        from composer_hub.cli.judging import judge_of
        from composer_hub.hints.writers import write_hints, writers_named

        judge = judge_of(self.options["judge"], self.options["judge_max_usd"], self.state.folder)
        names = [name.strip() for name in self.options["writers"].split(",")]
        names = names if "judge" in names else [*names, "judge"]
        writers = [judge if name == "judge" else writers_named(name)[0] for name in names]
        switches = {"outcome": self.options["outcome_hints"], "user_feedback": self.options["user_hints"]}
        return lambda trace: write_hints(trace, writers, **switches)

    def _earlier_traces(self) -> Iterator[Trace]:
        """Yield what the version before holds and this run did not read anew."""
        from composer_hub.redact.redactor import drop_denied
        from composer_hub.session import Session

        if self.before is None:
            return
        replaced = self._ids_of_changed_files() | self.fresh_ids
        for trace in drop_denied(self.before.records(Trace, "traces"), self.denied):
            if trace.trace_id not in replaced:
                self.tally.add(Session(trace))
                yield trace

    def _ids_of_changed_files(self) -> set[str]:
        """Return the traces that changed files held before: a trace that is gone from its file is gone."""
        then, now = self.reading.options.manifest, self.reading.manifest
        changed = [path for path, entry in now.items() if path in then and entry["digest"] != then[path]["digest"]]
        return {trace_id for path in changed for trace_id in then[path]["traces"]}

    def _say_problems(self) -> None:
        report = self.reading.report
        for problem in report.problems[:_MAX_SHOWN_PROBLEMS]:
            self.out.note(str(problem))
        if report.num_problems > _MAX_SHOWN_PROBLEMS:
            self.out.note(f"... and {report.num_problems - _MAX_SHOWN_PROBLEMS:,} more problems.")

    def _publish_raw(self) -> int:
        from composer_hub.cli.raw_sessions import publish_raw

        # A file that gave no trace stays here; so does one that holds a denied trace beside others.
        named = {path: self.files[str(path)] for path in self.reading.files if str(path) in self.files}
        paths = [path for path, entry in named.items() if entry["traces"] and not entry["denied"]]
        repo = f"{self.publication.repo}-sessions"
        if held_back := sum(bool(entry["denied"]) for entry in named.values()):
            self.out.note(f"{held_back:,} raw file{'s' * (held_back != 1)} with a denied trace did not go to {repo}.")
        count = publish_raw(self.publication.destination, repo, paths)
        added = f"{count:,} raw sessions are in {repo} (private) now."
        self.out.note(added if count else f"{repo} holds every raw session already.")
        return count


def denied_ids(path: Path) -> frozenset[str]:
    """Return the trace ids of a denylist; a list that cannot be used is a wrong option, not a failed run."""
    from composer_hub.redact.redactor import RedactionError, read_denylist

    try:
        return read_denylist(path)
    except RedactionError as error:
        raise exits.UsageError(f"--deny {error}") from error
    except UnicodeDecodeError as error:
        raise exits.UsageError(
            f"--deny {path}: byte {error.start} is no UTF-8 text. Write one trace id a line; begin a comment with '#'."
        ) from error


def vars_of(prepare: Preparation) -> dict[str, Any]:
    """Return what of a preparation shapes its output, as plain values."""
    values = {f.name: getattr(prepare, f.name) for f in dataclasses.fields(prepare) if f.name != "redactor"}
    return values | {"redacted": prepare.redactor is not None}


def trace_tables(traces: Any) -> list[Table]:
    """Return the `traces` and `steps` configs; `traces()` gives the traces anew each time."""
    from composer_hub.hub import Table
    from composer_hub.ingest.rows import config_features, step_rows, trace_row
    from composer_hub.session import Session

    features = config_features()

    class Rows:
        """Rows made again for each reader, so that neither config is ever held in memory."""

        def __init__(self, make: Any) -> None:
            self.make = make

        def __iter__(self) -> Iterator[dict[str, Any]]:
            return iter(self.make())

    return [
        Table("traces", Rows(lambda: (trace_row(Session(trace)) for trace in traces())), features["traces"], "trace_id",
              index_columns=("source", "model", "family", "repository")),
        Table("steps", Rows(lambda: (row for trace in traces() for row in step_rows(Session(trace)))),
              features["steps"], "step_id", ("trace_id", "index"), index_columns=("trace_id", "index", "family")),
    ]  # fmt: skip


def trace_card(repo: str, license: str, numbers: dict[str, Any], *, redacted: bool) -> Any:
    """Return the card of a trace dataset."""
    from composer_hub.hub import Card
    from composer_hub.redact.redactor import rules_digest

    kept = ("traces", "steps", "messages", "calls", "error_sites", "error_sites_by_kind", "error_sites_by_blame",
            "hints_by_writer", "hint_coverage", "steps_by_family", "inexact_prefixes")  # fmt: skip
    dropped = ("corrupt", "unknown", "empty", "unrecognised", "unreadable", "duplicate_steps", "duplicate_traces",
               "no_steps", "denied", "tokens_dropped")  # fmt: skip
    counted = ", ".join(f"{kind} {number:,}" for kind, number in numbers["redactions_by_kind"].items()) or "nothing"
    said = (
        f"Secrets and personal data were replaced by placeholders such as `[EMAIL_3]`, the same one for the same value "
        f"in every row (rule set `{rules_digest()}`): {counted}."
        if redacted
        else "**These traces were not redacted.** Keep the dataset private."
    )
    if redacted and numbers["unredacted"]:
        said += f" **Traces of earlier versions that were not: {numbers['unredacted']:,}.** Keep the dataset private."
    return Card(
        "traces",
        pretty_name=f"{repo.split('/')[1]}: coding agent traces",
        license=license,
        tags=("agents", "coding-agents", "tool-use", "traces"),
        counts={name: numbers[name] for name in kept if numbers[name] not in (None, {}, 0)},
        dropped={name: numbers[name] for name in dropped if numbers[name]},
        holes={
            "origin": "Sessions of coding agents, read by composer_hub from the logs that their harnesses write.",
            "redaction": said,
        },
    )


def digest_of_files(files: dict[str, Any]) -> str:
    """Return one digest of all files that were read; their paths stay on this machine."""
    return stable_id(sorted(entry["digest"] for entry in files.values()))


def show_sources(out: Output) -> None:
    """Print the formats that can be read."""
    from composer_hub.ingest.sources import SOURCES

    rows = [{"name": s.name, "title": s.title, "gives": s.gives, "lacks": s.lacks} for s in SOURCES]
    out.table(rows, id_key="name")


def show_numbers(out: Output, numbers: dict[str, Any]) -> None:
    """Print the numbers of a run; what did not happen is left out for people."""
    if out.mode in ("json", "quiet"):
        out.record(numbers, id_key="traces")
        return
    shown = {name.replace("_", " "): value for name, value in numbers.items() if value not in (0, {}, None)}
    out.record(shown or {"traces": 0}, id_key="traces")
