"""Review of hints: traces and reviewers' verdicts on their error sites -> the traces of the next version.

`good_hint` leaves a site as it is, `bad_hint` takes its hints out, `edit_hint` puts the reviewer's text in their place.
`wrong_blame` takes the hints out as well, and names whose fault the error was; if it names no one, that is unknown.
A site on which reviewers disagree keeps no hint. No site leaves, because its number in the step is part of its id: the
same verdicts on the next version find the same sites, and change nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.errors.vocabulary import BLAMES
from composer_hub.hub import Draft, Lineage, Parent, ReviewFile, Version, verdicts
from composer_hub.hub.verdicts import VerdictError
from composer_hub.ingest.dataset import TraceCounts, file_numbers, numbers_of, trace_card, trace_tables, viewer_files
from composer_hub.ingest.report import FileReport
from composer_hub.output import plural
from composer_hub.records import ErrorSite, Hint, Step, Trace

VERDICTS = ("good_hint", "bad_hint", "edit_hint", "wrong_blame")
WRITER = "reviewer"  # of a hint that a verdict corrected
UNKNOWN = "unknown"  # the blame, if a reviewer decided only that it was not the model's


@dataclass(frozen=True, slots=True)
class HintVerdict:
    """One reviewer's verdict on one error site and its hint."""

    site_id: str  # the id of the step, a colon, and the number of the site in the step, from 1
    verdict: str
    reviewer: str
    note: str = ""
    edited_hint: str = ""
    blame: str = ""  # who was at fault, if the blame was wrong
    created_at: str = ""  # ISO 8601 in UTC; of two verdicts by a reviewer the later one counts

    def __post_init__(self) -> None:
        about = f"by {self.reviewer} on site {self.site_id}"
        if self.verdict not in VERDICTS:
            raise VerdictError(f"{self.verdict!r} {about} is not a verdict ({', '.join(VERDICTS)}).")
        if self.verdict == "edit_hint" and not self.edited_hint.strip():
            raise VerdictError(f"The edit {about} has no text in edited_hint; write the hint, or use bad_hint.")
        if self.blame and self.blame not in BLAMES:
            raise VerdictError(f"{self.blame!r} {about} is no blame ({', '.join(BLAMES)}).")

    @property
    def decision(self) -> tuple[str, str, str]:
        """Return the fields that two reviewers of a site must agree on."""
        return self.verdict, self.edited_hint, self.blame


def read_verdicts(path: Path) -> Iterator[HintVerdict]:
    """Yield the verdicts of a JSONL file that are on hints; reviewers also judge pairs."""
    return verdicts.read_verdicts(path, "hint", _verdict_of)


def _verdict_of(row: Mapping[str, Any]) -> HintVerdict:
    rest = (row.get(name) or "" for name in ("note", "edited_hint", "blame", "created_at"))
    return HintVerdict(row["site_id"], row["verdict"], row["reviewer"], *rest)


@dataclass(frozen=True)
class Review:
    """The reviewers' decisions by site: one verdict, or None if they disagree."""

    decisions: Mapping[str, HintVerdict | None]
    counts: Counter[str]

    @classmethod
    def of(cls, reviewed: Iterable[HintVerdict]) -> Review:
        """Fold verdicts: of each reviewer the last one counts."""
        counts: Counter[str] = Counter()
        by_site = verdicts.latest(reviewed, lambda verdict: verdict.site_id, counts)
        decisions = {
            site: found[0] if len({one.decision for one in found}) == 1 else None for site, found in by_site.items()
        }
        return cls(decisions, counts)

    def apply(self, trace: Trace) -> Trace:
        """Return a trace after review."""
        return replace(trace, steps=tuple(map(self._step, trace.steps)))

    def sites(self, trace: Trace) -> Iterator[str]:
        """Yield the sites of a trace that were reviewed."""
        ids = (site_id for step in trace.steps for site_id, _ in _numbered(step))
        return (site_id for site_id in ids if site_id in self.decisions)

    def _step(self, step: Step) -> Step:
        if all(site_id not in self.decisions for site_id, _ in _numbered(step)):
            return step
        sites, hints = list(step.error_sites), list(step.hints)
        for place, (site_id, site) in enumerate(_numbered(step)):
            verdict = self.decisions.get(site_id)
            if site_id not in self.decisions or (verdict and verdict.verdict == "good_hint"):
                continue
            # A hint of the whole step answers no site.
            hints = [hint for hint in hints if (hint.call_id, hint.kind) != (site.call_id, site.kind)]
            if verdict and verdict.verdict == "edit_hint":
                hints.append(Hint(verdict.edited_hint.strip(), WRITER, "verdict", 1, site.kind, site.call_id))
            if verdict and verdict.verdict == "wrong_blame":
                sites[place] = replace(site, blame=verdict.blame or UNKNOWN)
        return replace(step, error_sites=tuple(sites), hints=tuple(hints))


def _numbered(step: Step) -> Iterator[tuple[str, ErrorSite]]:
    return ((f"{step.step_id}:{number}", site) for number, site in enumerate(step.error_sites, 1))


def merged_verdicts(source: Version) -> tuple[list[HintVerdict], list[ReviewFile]]:
    """Return the verdicts on hints that were merged into the dataset of a version, and the files that were refused."""
    return verdicts.merged_verdicts(source, read_verdicts)


def reviewed_draft(
    source: Version,
    reviewed: Iterable[HintVerdict],
    folder: Path,
    refused: Sequence[ReviewFile] = (),
    *,
    public: bool = False,
) -> tuple[Draft, Counter[str]]:
    """Return the next version of a trace set after review, and the number of sites by outcome.

    `folder` takes the sessions for the Hub's viewer, if the version has some. It must last until this is published.
    """
    review, known = Review.of(reviewed), 0
    outcomes, totals = Counter(review.counts), TraceCounts()
    for before in source.records(Trace, "traces"):
        for site in review.sites(before):
            known += 1
            verdict = review.decisions[site]
            outcomes["conflict" if verdict is None else verdict.verdict] += 1
        totals.add(review.apply(before))
    outcomes["unknown_site"] += len(review.decisions) - known
    outcomes = +outcomes
    if public and totals.totals["unredacted"]:
        raise exits.Refused(f"{source.repo} holds traces that were never redacted: leave --public out.")

    def traces() -> Iterator[Trace]:
        return map(review.apply, source.records(Trace, "traces"))

    sources = source.manifest.get("sources", {})
    numbers = numbers_of(FileReport(), totals)
    # Of the files that were read, the version before knows more.
    numbers |= {name: sources.get("numbers", {}).get(name, numbers[name]) for name in file_numbers(FileReport())}
    has_sessions = any(path.startswith("sessions/") for path in source.destination.files(source.repo, source.revision))
    sessions = viewer_files(traces(), folder) if has_sessions else {}
    redacted = not totals.totals["unredacted"]
    card = trace_card(source.repo, source.license(), numbers, redacted=redacted, sessions=sessions)
    counts = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in outcomes.most_common()) or "none"
    run_id = sources.get("run_id")
    origin = f"Rollouts of training run `{run_id}`." if run_id else card.holes["origin"]
    origin += f" Hints of {source.name} with their reviewers' verdicts ({counts})."
    if refused:
        origin += f" Not counted: {plural(len(refused), 'file')} of `verdicts/` without a proven author."
    card = replace(card, tags=(*card.tags, "reviewed"), holes={**card.holes, "origin": origin})
    parent = Parent("reviewed", source.repo, source.revision, tag=source.tag)
    lineage = Lineage((parent,), sources={**sources, "numbers": numbers, "verdicts": dict(outcomes)})
    return Draft(trace_tables(traces), card, lineage, f"Apply verdicts on hints to {source.name}"), outcomes
