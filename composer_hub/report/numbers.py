"""The numbers of the report: a `Collection` in, `Numbers` out.

Rates are failures per 100 calls, and `None` below `MIN_RATE` calls. Shares of the spend use weighted tokens, because
the four classes of tokens have no sum that means anything. A failed message counts as a whole, so every cost is at
most that much.
"""

from __future__ import annotations

import datetime
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from composer_hub.report.collect import Collection
from composer_hub.report.facts import CallFailure, Episode, SessionFacts, StepFacts
from composer_hub.report.lessons import Lesson, lessons_of
from composer_hub.report.projects import projects_of
from composer_hub.session import NO_USAGE, Usage

MIN_RATE = 200
"""Calls below which a rate is not shown."""
LITTLE = 0.05
"""Share of the spend, and of the calls, below which little is lost."""
CLASSES = ("input", "write", "write_hour", "read", "output")
_WEIGHTS = {"input": 1.0, "write": 1.25, "write_hour": 2.0, "read": 0.1, "output": 5.0}


@dataclass(frozen=True, slots=True)
class FailureSite:
    """One failure with its place."""

    failure: CallFailure
    session: SessionFacts
    place: int  # of the step in its session

    @property
    def step(self) -> StepFacts:
        return self.session.steps[self.place]


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Calls of one tool, model, week or project, and how many failed by whose fault."""

    name: str
    num_calls: int
    num_steps: int
    failures: Counter[str]  # blame -> count
    kinds: Counter[str]  # of the model's failures
    weighted: float
    usage: Usage

    @property
    def rate(self) -> float | None:
        """The model's failures per 100 calls."""
        return 100 * self.failures["model"] / self.num_calls if self.num_calls >= MIN_RATE else None


@dataclass(frozen=True, slots=True)
class Repair:
    """One episode with its cost as shares of the spend."""

    session: SessionFacts
    episode: Episode
    direct: float  # weighted tokens of the failed messages and of the one that worked
    span: float  # of all messages from the first to the last

    @property
    def num_failed(self) -> int:
        return len(self.episode.failed)


@dataclass
class Numbers:
    """Everything that the page, the terminal and the JSON show."""

    collection: Collection
    projects: dict[str, str]  # folder of a session -> project
    first: float = 0.0
    last: float = 0.0
    num_sessions: int = 0  # that were started by a person or a script
    num_agents: int = 0  # runs of subagents with a separate file
    num_lost_agents: int = 0  # without one
    num_steps: int = 0
    num_calls: int = 0
    sites: list[FailureSite] = field(default_factory=list)
    tools: list[CallGroup] = field(default_factory=list)
    models: list[CallGroup] = field(default_factory=list)
    weeks: list[CallGroup] = field(default_factory=list)
    by_project: list[CallGroup] = field(default_factory=list)
    dearest_sessions: list[tuple[SessionFacts, float]] = field(default_factory=list)
    usage: Usage = NO_USAGE
    weighted: float = 0.0
    num_open: int = 0  # messages whose output is a lower bound
    num_counted: int = 0  # messages with usage
    spent: dict[str, float] = field(default_factory=dict)  # failed messages by blame, and "any" -> weighted tokens
    direct: float = 0.0
    span: float = 0.0
    repairs: list[Repair] = field(default_factory=list)
    num_clean: int = 0  # sessions without a failure of the model
    lessons: list[Lesson] = field(default_factory=list)
    num_exact: int = 0
    num_hints: int = 0
    num_hinted: int = 0  # steps

    @property
    def rate(self) -> float | None:
        """The model's failures per 100 calls."""
        return 100 * self.by_blame["model"] / self.num_calls if self.num_calls >= MIN_RATE else None

    @property
    def by_blame(self) -> Counter[str]:
        return Counter(site.failure.blame for site in self.sites)

    def kinds(self, blame: str) -> list[tuple[str, int]]:
        """Return the kinds of a blame with their counts, the most frequent first."""
        return Counter(site.failure.kind for site in self.sites if site.failure.blame == blame).most_common()

    def share(self, weighted: float) -> float | None:
        """Return a share of the spend, None if no file has usage."""
        return weighted / self.weighted if self.weighted else None

    @property
    def is_little(self) -> bool:
        """True if what the agents lose is hardly worth a page."""
        lost = max(self.share(self.direct) or 0.0, self.by_blame["model"] / max(self.num_calls, 1))
        return self.num_calls >= MIN_RATE and lost < LITTLE

    @property
    def num_asked(self) -> int:
        """Steps that a teacher could be asked about: the model failed, or a test or a compiler did."""
        return len({
            (id(site.session), site.place) for site in self.sites if site.failure.blame in ("model", "outcome")
        })  # fmt: skip

    @property
    def ended_well(self) -> list[Repair]:
        return [repair for repair in self.repairs if repair.episode.worked >= 0]

    @property
    def median_steps(self) -> float:
        """Median length of a repair that ended in success, in steps."""
        lengths = [len(one.episode.failed) + 1 for one in self.ended_well]
        return statistics.median(lengths) if lengths else 0.0


@dataclass(frozen=True, slots=True)
class WeekChange:
    """The calls of one week that the report before did not have."""

    name: str
    num_calls: int
    num_failed: int


@dataclass(frozen=True)
class ReportNews:
    """The news since an earlier report."""

    at: float  # of that report
    num_sessions: int
    weeks: list[WeekChange]
    fresh: list[Lesson] = field(default_factory=list)  # lines that the report before did not have
    again: list[Lesson] = field(default_factory=list)  # lines of that report that failed again
    quiet: list[Lesson] = field(default_factory=list)  # and those that did not

    @property
    def num_calls(self) -> int:
        return sum(week.num_calls for week in self.weeks)

    @property
    def num_failed(self) -> int:
        return sum(week.num_failed for week in self.weeks)


def weighted(usage: Usage) -> float:
    """Return the tokens of a message, each class by its usual price relative to plain input."""
    return sum(weight * getattr(usage, name) for name, weight in _WEIGHTS.items())


def numbers_of(collection: Collection, zone: datetime.tzinfo | None = None) -> Numbers:
    """Count everything; `zone` is that of the weeks, the machine's own if it is None."""
    sessions = collection.sessions
    numbers = Numbers(collection, projects_of(session.cwd for session in sessions if session.cwd))
    _count_sessions(numbers, sessions)
    numbers.repairs = sorted(_repairs(sessions), key=lambda one: (-one.direct, -one.num_failed))
    touched = {
        (id(one.session), place) for one in numbers.repairs for place in (*one.episode.failed, one.episode.worked)
    }
    places = {(id(site.session), site.place) for site in numbers.sites if site.failure.blame == "model"} | touched
    by_id = {id(session): session for session in sessions}
    numbers.direct = sum(weighted(by_id[which].steps[place].usage) for which, place in places if place >= 0)
    numbers.span = sum(
        weighted(session.steps[place].usage) for session in sessions for place in _spanned(session.episodes)
    )
    numbers.tools = _tools(numbers.sites, sessions)
    numbers.models = _groups(sessions, lambda session, step: step.model or "not recorded")
    numbers.weeks = sorted(
        _groups(sessions, lambda session, step: week_of(step.at, zone) if step.at else ""), key=lambda one: one.name
    )
    numbers.weeks = [week for week in numbers.weeks if week.name]
    numbers.by_project = _groups(sessions, lambda session, step: numbers.projects.get(session.cwd, ""))
    numbers.lessons = lessons_of(sessions, numbers.projects)
    return numbers


def _count_sessions(numbers: Numbers, sessions: Sequence[SessionFacts]) -> None:
    spawned = {session.spawn_call_id for session in sessions}
    roots = {session.root_id for session in sessions}
    failed_roots = set()
    costs: Counter[str] = Counter()
    total = dict.fromkeys(CLASSES, 0)
    spent: Counter[str] = Counter()
    for session in sessions:
        numbers.num_agents += bool(session.parent_id)
        numbers.num_lost_agents += sum(call not in spawned for call in session.spawned)
        for step in (*session.steps, *session.thoughts):
            numbers.num_counted += bool(step.usage.context)
            numbers.num_open += step.usage.is_open and bool(step.usage.context)
            for name in CLASSES:
                total[name] += getattr(step.usage, name)
            costs[session.root_id] += weighted(step.usage)  # type: ignore[assignment]
        numbers.num_steps += len(session.steps)
        for place, step in enumerate(session.steps):
            numbers.num_calls += len(step.tools)
            numbers.num_exact += step.is_exact
            numbers.num_hints += step.num_hints
            numbers.num_hinted += bool(step.num_hints)
            blames = [one.blame for one in step.failures]
            if blames:  # a step counts once for each blame
                spent.update(dict.fromkeys(("any", *blames), weighted(step.usage)))
            numbers.sites.extend(FailureSite(failure, session, place) for failure in step.failures)
            if "model" in blames:
                failed_roots.add(session.root_id)
    times = [step.at for session in sessions for step in session.steps if step.at]
    numbers.first, numbers.last = min(times, default=0.0), max(times, default=0.0)
    numbers.num_sessions, numbers.num_clean = len(roots), len(roots - failed_roots)
    numbers.usage = Usage(
        sum(total[name] for name in CLASSES if name != "output"), total["output"], total["read"], total["write"],
        total["write_hour"],
    )  # fmt: skip
    numbers.weighted, numbers.spent = sum(costs.values()), dict(spent)
    mains = {session.trace_id: session for session in sessions}
    numbers.dearest_sessions = [(mains[root], cost) for root, cost in costs.most_common(8) if root in mains and cost]


def _repairs(sessions: Iterable[SessionFacts]) -> Iterable[Repair]:
    for session in sessions:
        for episode in session.episodes:
            places = {place for place in (*episode.failed, episode.worked) if place >= 0}
            direct = sum(weighted(session.steps[place].usage) for place in places)
            span = sum(weighted(session.steps[place].usage) for place in _spanned([episode]))
            yield Repair(session, episode, direct, span)


def _spanned(episodes: Iterable[Episode]) -> set[int]:
    """Return the places of all steps from the first failure to the end of the repair."""
    return {
        place for one in episodes for place in range(one.failed[0], max(*one.failed, one.failed[0], one.worked) + 1)
    }


def _tools(sites: Sequence[FailureSite], sessions: Iterable[SessionFacts]) -> list[CallGroup]:
    calls = Counter(tool for session in sessions for step in session.steps for tool in step.tools)
    blames: dict[str, Counter[str]] = defaultdict(Counter)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for site in sites:
        blames[site.failure.tool][site.failure.blame] += 1
        if site.failure.blame == "model":
            kinds[site.failure.tool][site.failure.kind] += 1
    return [CallGroup(tool, num, 0, blames[tool], kinds[tool], 0.0, NO_USAGE) for tool, num in calls.most_common()]


def _groups(sessions: Iterable[SessionFacts], name_of: Callable[[SessionFacts, StepFacts], str]) -> list[CallGroup]:
    calls: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    blames: dict[str, Counter[str]] = defaultdict(Counter)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    spent: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(CLASSES, 0))
    for session in sessions:
        for step in (*session.steps, *session.thoughts):
            name = name_of(session, step)
            calls[name] += len(step.tools)
            steps[name] += 1
            for failure in step.failures:
                blames[name][failure.blame] += 1
                if failure.blame == "model":
                    kinds[name][failure.kind] += 1
            for one in CLASSES:
                spent[name][one] += getattr(step.usage, one)
    groups = []
    for name, num_steps in steps.items():
        total = spent[name]
        context = sum(total[one] for one in CLASSES if one != "output")
        usage = Usage(context, total["output"], total["read"], total["write"], total["write_hour"])
        groups.append(CallGroup(name, calls[name], num_steps, blames[name], kinds[name], weighted(usage), usage))
    return sorted(groups, key=lambda one: (-one.weighted, -one.num_calls, one.name))


def week_of(at: float, zone: datetime.tzinfo | None) -> str:
    """Return the Monday of a time's week, as a date."""
    day = datetime.datetime.fromtimestamp(at, zone).date()
    return (day - datetime.timedelta(days=day.weekday())).isoformat()
