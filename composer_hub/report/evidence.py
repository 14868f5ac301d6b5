"""The words that the page shows, and what each number links to: sites in, clean excerpts out."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from composer_hub.actions.tools import tool_named
from composer_hub.errors.excerpts import excerpt
from composer_hub.local_hub.elements import Html, esc
from composer_hub.report import words as say
from composer_hub.report.cleaner import Cleaner
from composer_hub.report.facts import SessionFacts
from composer_hub.report.numbers import FailureSite, Numbers, ReportNews, week_of

MAX_PER_KIND = {"model": 40}
MAX_OF_OTHERS = 8
MAX_CALL, MAX_RESULT = 240, 420


@dataclass(frozen=True, slots=True)
class ShownSite:
    """A site on the page."""

    anchor: str
    site: FailureSite
    call_text: str
    words: str


@dataclass
class Evidence:
    """Everything that is shown of single calls, and the first example of each number."""

    shown: list[ShownSite] = field(default_factory=list)
    anchors: dict[Hashable, str] = field(default_factory=dict)

    def anchor(self, *key: str) -> str:
        """Return the place on the page that proves a number, "" if there is none."""
        return self.anchors.get(key, "")


@dataclass(frozen=True)
class View:
    """The data of a page."""

    numbers: Numbers
    evidence: Evidence
    cleaner: Cleaner
    names: Mapping[str, str]  # of projects
    zone: datetime.tzinfo | None = None
    share: bool = False  # counts only
    version: str = ""
    change: ReportNews | None = None  # since the report before

    def tool_name(self, name: str) -> str:
        """Return a tool's name; on a shared page, only tools that come with a harness have one."""
        own = tool_named(name) is None  # of a server, whose name may be a company's
        return "another tool" if self.share and own else name

    def link(self, text: str, *key: str) -> str:
        """Return a number as a link to the call that proves it; a shared page shows none."""
        anchor = "" if self.share else self.evidence.anchor(*key)
        return f'<a href="#{anchor}">{text}</a>' if anchor else text

    def place(self, session: SessionFacts, step: int, *, short: bool = False) -> str:
        """Return the place of a step: its time, its project, and unless it is short, its session."""
        at = session.steps[max(step, 0)].at
        parts = [esc(say.minute(at, self.zone))]
        if not self.share:
            parts.append(esc(self.names.get(self.numbers.projects.get(session.cwd, ""), "")))
        if not self.share and not short:
            stem = session.path.rpartition("/")[2].partition(".")[0]
            parts.append(Html(f'<span title="{esc(stem)}">session {esc(stem[:13])}</span>'))
        return " · ".join(filter(None, [*parts, f"step {step + 1:,}" if step >= 0 else ""]))


def evidence_of(numbers: Numbers, cleaner: Cleaner, zone: datetime.tzinfo | None = None) -> Evidence:
    """Choose the sites to show, the newest first, clean their words, and note where each number is proved."""
    chosen: list[tuple[FailureSite, list[Hashable]]] = []
    room: Counter[tuple[str, str]] = Counter()
    proved: set[Hashable] = set()
    for site in sorted(numbers.sites, key=lambda one: -one.step.at):
        kind = (site.failure.blame, site.failure.kind)
        proves = _proved_by(site, zone)
        is_first = not proved.issuperset(proves)
        if not (site.failure.call_text or site.failure.words):
            continue
        if is_first or room[kind] < MAX_PER_KIND.get(kind[0], MAX_OF_OTHERS):
            room[kind] += 1
            proved.update(proves)
            chosen.append((site, proves))
    cleaned = cleaner.pairs([(site.failure.call_text, site.failure.words) for site, _ in chosen])
    evidence = Evidence()
    for number, ((site, proves), (call, words)) in enumerate(zip(chosen, cleaned, strict=True), start=1):
        shown = ShownSite(f"e{number}", site, excerpt(call, MAX_CALL), excerpt(words, MAX_RESULT))
        evidence.shown.append(shown)
        for key in proves:
            evidence.anchors.setdefault(key, shown.anchor)
    return evidence


def _proved_by(site: FailureSite, zone: datetime.tzinfo | None) -> list[Hashable]:
    """Return the numbers of the page that a site is part of."""
    failure = site.failure
    keys: list[Hashable] = [("blame", failure.blame), ("kind", failure.blame, failure.kind)]
    if site.step.at:
        keys.append(("week", week_of(site.step.at, zone), failure.blame))
    if failure.blame == "model":
        keys += [("tool", failure.tool), ("tool", failure.tool, failure.kind), ("model", site.step.model)]
    if failure.blame == "user":
        keys.append(("no", failure.tool))
    return keys
