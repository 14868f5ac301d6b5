"""The report as one HTML file that loads nothing: numbers and evidence in, text out.

All text from sessions is escaped, and a content security policy allows only this page's own style and script. Nothing
has an inline style, so the policy needs no exception.
"""

# ruff: noqa: E501  # markup reads better in whole lines

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Sequence
from importlib import resources

from composer_hub.errors.excerpts import excerpt
from composer_hub.errors.vocabulary import BLAMES, blame_words, kind_words
from composer_hub.local_hub.elements import Html, esc
from composer_hub.output import plural
from composer_hub.report import words as say
from composer_hub.report.charts import bar, stack, weeks
from composer_hub.report.evidence import MAX_CALL, View
from composer_hub.report.facts import SessionFacts
from composer_hub.report.lessons import Lesson
from composer_hub.report.lines import clean_lines, fresh_lines, title_of
from composer_hub.report.numbers import CLASSES, MIN_RATE, CallGroup, Repair

MAX_TOOLS, MAX_KINDS, MAX_REPAIRS, MAX_PROOF = 10, 5, 5, 3
FIRST_NOES, MAX_NOES = 5, 40
CLASS_NAMES = {
    "input": "Input",
    "write": "Cache write, 5 minutes",
    "write_hour": "Cache write, 1 hour",
    "read": "Cache read",
    "output": "Output",
}


_WEEKLY = {"model": "agent", "outcome": "tests", "env": "environment", "user": "no"}
"""Columns of the table of weeks."""

MARK = '<meta name="generator" content="composer-hub report">'


def page(view: View) -> str:
    """Return the whole page."""
    style, script = _resource("page.css"), _resource("page.js")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    sections = (_since, _lessons, _blames, _tools, _repairs, _noes, _tokens, _training, _evidence, _notes)
    body = "\n".join(filter(None, (_head(view), *(section(view) for section in sections))))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{MARK}
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>Where your agents lose turns</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
<script>{script}</script>
</body>
</html>
"""


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _link(view: View, text: str, *key: str) -> str:
    anchor = "" if view.share else view.evidence.anchor(*key)
    return f'<a href="#{anchor}">{text}</a>' if anchor else text


def _section(name: str, title: str, why: str, content: str) -> str:
    return f'<section id="{name}">\n<h2>{title}</h2>\n<p class="why">{why}</p>\n{content}\n</section>'


# ------------------------------------------------------------------------------------------------------------- header


def _head(view: View) -> str:
    numbers = view.numbers
    files = numbers.collection
    unread = files.report.counts["unreadable"]
    parts = [
        f"<b>{esc(say.period(numbers, view.zone))}</b>",
        plural(len(set(numbers.projects.values())), "project"),
        plural(numbers.num_sessions, "session"),
        f"{plural(numbers.num_agents, 'subagent run')}" if numbers.num_agents else "",
        f"{plural(files.num_files, 'file')}" + (f" ({unread:,} not read)" if unread else ""),
        "nothing left this machine",
    ]
    over = " · ".join(filter(None, parts))
    return (
        f'<p class="over">{over}</p>\n<h1>{esc(say.headline(numbers))}</h1>\n'
        f'<p class="lead">{esc(say.lead(numbers))}</p>\n{_tiles(view)}'
    )


def _tiles(view: View) -> str:
    numbers = view.numbers
    failed = numbers.by_blame["model"]
    share = numbers.share(numbers.direct)
    ended = len(numbers.ended_well)
    tiles = [
        (
            "blame",
            say.count(failed) if numbers.rate is None else f"{say.rate(numbers.rate)}<small>of 100 calls</small>",
            "failed by the agent's own fault" if numbers.rate is not None else "calls failed by the agent's own fault",
        ),
        (
            "repairs",
            esc(say.percent(share)),
            "of the spend went into failed messages and their repair, at most"
            if share is not None
            else "these files record no tokens, so no cost",
        ),
        (
            "repairs",
            f"{ended:,}<small>of {len(numbers.repairs):,}</small>",
            f"failures were repaired in the same turn, usually in {numbers.median_steps:.0f} steps"
            if ended
            else "failures were repaired in the same turn",
        ),
        (
            "blame",
            f"{numbers.num_clean:,}<small>of {numbers.num_sessions:,}</small>",
            "sessions have no failure of the agent's own",
        ),
    ]
    cells = (
        f'<a class="tile" href="#{where}"><strong>{big}</strong><span>{small}</span></a>' for where, big, small in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _since(view: View) -> str:
    change = view.change
    if change is None:
        return ""
    weeks = sorted(change.weeks, key=lambda one: one.name)[-8:]
    rows = "".join(
        f'<tr><td>{say.week_name(week.name)}</td><td class="n">{week.num_calls:,}</td><td class="n">{week.num_failed:,}</td>'
        f'<td class="n">{say.rate(100 * week.num_failed / week.num_calls if week.num_calls >= MIN_RATE else None)}</td></tr>'
        for week in weeks
    )
    head = "".join(f'<th class="n">{name}</th>' for name in ("new calls", "failed", "of 100"))
    table = (
        '<div class="card"><table><caption>New calls by week, and those that failed by the agent\'s own fault</caption>'
        f"<thead><tr><th>Week of</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    parts = []
    for title, lessons in (
        ("Lines that failed again", change.again),
        ("Lines that did not fail again", change.quiet),
        ("New lines", change.fresh),
    ):
        if lines := [] if view.share else clean_lines(view.cleaner, lessons):
            parts.append(f'<h3>{title}</h3><p class="lines mono">{esc(_joined(lines))}</p>')
    card = f'<div class="card">{"".join(parts)}</div>' if parts else ""
    why = esc(say.news(change, view.numbers, view.zone))
    return _section("since", "Since last time", why, f'<div class="two">{table}{card}</div>')


# -------------------------------------------------------------------------------------------------------------- lines


def _lessons(view: View) -> str:
    if view.share:
        return ""
    lessons = view.numbers.lessons
    cards = []
    for number, (project, found) in enumerate(fresh_lines(view.cleaner, lessons).items(), start=1):
        name = f"copy{number}"
        cards.append(
            f'<div class="card"><div class="head"><h3>{esc(title_of(view.names, project))}</h3>'
            f'<button type="button" data-copies="{name}">Copy {plural(len(found), "line")}</button></div>'
            f'<p class="lines mono" id="{name}">{esc(_joined(found))}</p>{_quotes(found)}{_proof(view, found)}</div>'
        )
    title = "Lines to copy into AGENTS.md" if cards else "Nothing to add to AGENTS.md"
    if cards:
        why = (
            "Facts about your projects that agents got wrong in more than one session, with what worked. Copy those that "
            "you agree with: a short guide works better than a long one."
        )
    else:
        why = "No failure came back in several sessions with a cause that a new line in AGENTS.md would prevent."
    if written := clean_lines(view.cleaner, [lesson for lesson in lessons if lesson.is_written]):
        cards.append(
            '<div class="card"><div class="head"><h3>In your guide already, and still failing</h3></div>'
            '<p class="why">A check in the tools would hold better than the sentence.</p>'
            f'<p class="lines mono">{esc(_joined(written))}</p>{_proof(view, written)}</div>'
        )
    return _section("lines", title, why, "\n".join(cards)) if cards or view.numbers.num_calls >= MIN_RATE else ""


def _quotes(lines: Sequence[tuple[Lesson, str]]) -> str:
    """Return the sentences of the guide that say the wrong thing."""
    quotes = "".join(f'<p class="quote mono">{esc(lesson.quote)}</p>' for lesson, _ in lines if lesson.quote)
    return f'<p class="why wrong">Your guide says the wrong thing. Correct it there:</p>{quotes}' if quotes else ""


def _joined(lines: Sequence[tuple[Lesson, str]]) -> str:
    return "\n".join(line for _, line in lines)


def _proof(view: View, lines: Sequence[tuple[Lesson, str]]) -> str:
    parts = []
    for lesson, line in lines:
        newest = sorted(lesson.proof, key=lambda one: -one[1].at)[:MAX_PROOF]
        called = view.cleaner.pairs([(cause.call_text[:900], cause.words[:900]) for _, cause in newest])
        worked = view.cleaner.pairs([(cause.worked[:900], "") for _, cause in newest])
        parts.append(f'<div class="ev"><b>{esc(line.removeprefix("- "))}</b></div>')
        for (session, cause), (call, words), (right, _) in zip(newest, called, worked, strict=True):
            parts.append(
                f'<div class="ev"><div class="where">{_place(view, session, cause.step)}</div>'
                f'<pre>{esc(excerpt(call, MAX_CALL))}</pre><pre class="words">{esc(excerpt(words, MAX_CALL))}</pre>'
                + (f'<pre class="worked">{esc(excerpt(right, MAX_CALL))}</pre>' if right else "")
                + "</div>"
            )
    return f"<details><summary>Show what failed and what worked</summary>{''.join(parts)}</details>"


def _short(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def _place(view: View, session: SessionFacts, step: int, *, short: bool = False) -> str:
    """Return the place of a step: its time, its project, and unless it is short, its session."""
    at = session.steps[max(step, 0)].at
    parts = [esc(say.minute(at, view.zone))]
    if not view.share:
        parts.append(esc(view.names.get(view.numbers.projects.get(session.cwd, ""), "")))
    if not view.share and not short:
        stem = session.path.rpartition("/")[2].partition(".")[0]
        parts.append(Html(f'<span title="{esc(stem)}">session {esc(stem[:13])}</span>'))
    return " · ".join(filter(None, [*parts, f"step {step + 1:,}" if step >= 0 else ""]))


# ------------------------------------------------------------------------------------------------- blame, tools, weeks


def _blames(view: View) -> str:
    numbers = view.numbers
    by_blame = numbers.by_blame
    total = sum(by_blame.values())
    if not total:
        return _section("blame", "Whose fault it was", "No call failed.", "")
    legend = "".join(
        f'<li><svg viewBox="0 0 9 9" aria-hidden="true"><rect class="{blame}" width="9" height="9" rx="2"/></svg>'
        f"{blame_words(blame).capitalize()} <b>{_link(view, say.count(by_blame[blame]), 'blame', blame)}</b></li>"
        for blame in BLAMES
        if by_blame[blame]
    )
    tables = "".join(_kinds(view, blame) for blame in BLAMES if by_blame[blame])
    why = (
        f"{plural(total, 'call')} of {numbers.num_calls:,} did not succeed. Only the first group is proven to be the agent's own "
        "doing; a failed test is often why it was run."
    )
    label = ", ".join(f"{blame_words(blame).capitalize()}: {by_blame[blame]:,}" for blame in BLAMES if by_blame[blame])
    return _section(
        "blame",
        "Whose fault it was",
        why,
        f'<div class="card">{stack(by_blame, label)}<ul class="legend">{legend}</ul>'
        f'<div class="blames">{tables}</div></div>',
    )


def _kinds(view: View, blame: str) -> str:
    kinds = view.numbers.kinds(blame)
    most = kinds[0][1]
    rows = "".join(
        f'<tr><td>{esc(kind_words(kind))}</td><td class="bars">{bar(number / most, blame, f"{number:,}")}</td>'
        f'<td class="n">{_link(view, say.count(number), "kind", blame, kind)}</td></tr>'
        for kind, number in kinds[:MAX_KINDS]
    )
    rest = sum(number for _, number in kinds[MAX_KINDS:])
    more = f'<tr><td class="dim">{plural(len(kinds) - MAX_KINDS, "more kind")}</td><td></td><td class="n dim">{rest:,}</td></tr>'
    return f"<div><h3>{blame_words(blame).capitalize()}</h3><table><tbody>{rows}{more if rest else ''}</tbody></table></div>"


def _tools(view: View) -> str:
    numbers = view.numbers
    if not numbers.num_calls:
        return ""
    kinds = [kind for kind, _ in numbers.kinds("model")[:4]]
    head = "".join(f'<th class="n wide">{esc(kind_words(kind))}</th>' for kind in kinds)
    shown = [group for group in numbers.tools if group.failures["model"] or group.num_calls >= MIN_RATE][:MAX_TOOLS]
    rows = []
    for group in shown:
        cells = "".join(
            f'<td class="n wide">{_link(view, say.count(group.kinds[kind]), "tool", group.name, kind) if group.kinds[kind] else ""}</td>'
            for kind in kinds
        )
        failed = group.failures["model"]
        rows.append(
            f'<tr><td class="mono">{esc(_short(view.tool_name(group.name), 40))}</td><td class="n">{group.num_calls:,}</td>'
            f'<td class="n">{_link(view, say.count(failed), "tool", group.name) if failed else 0}</td>'
            f'<td class="n">{say.rate(group.rate)}</td>{cells}</tr>'
        )
    tools = (
        '<div class="card scroll"><table><caption>Calls that failed by the agent\'s own fault, by tool</caption><thead><tr>'
        f'<th>Tool</th><th class="n">calls</th><th class="n">failed</th><th class="n">of 100</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
    why = f"Rates are failures of the agent's own per 100 calls. Below {MIN_RATE} calls there is no rate."
    return _section(
        "tools", "By tool, model and week", why, f'{tools}<div class="two">{_models(view)}{_weeks(view)}</div>'
    )


def _models(view: View) -> str:
    most = max((group.rate or 0 for group in view.numbers.models), default=0) or 1
    rows = "".join(
        f'<tr><td>{esc(say.model_name(group.name))}</td><td class="n">{group.num_calls:,}</td>'
        f'<td class="n">{_link(view, say.count(group.failures["model"]), "model", group.name)}</td>'
        f'<td class="bars wide">{bar((group.rate or 0) / most, "model", say.rate(group.rate))}</td>'
        f'<td class="n">{say.rate(group.rate)}</td></tr>'
        for group in sorted(view.numbers.models, key=lambda one: -one.num_calls)[:8]
    )
    return (
        '<div class="card scroll"><table><caption>By model. They had different tasks, so this is no contest.</caption><thead>'
        '<tr><th>Model</th><th class="n">calls</th><th class="n">failed</th><td class="wide"></td><th class="n">of 100</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _weeks(view: View) -> str:
    groups = view.numbers.weeks[-16:]
    if not groups:
        return ""
    names = {group.name: say.week_name(group.name) for group in groups}
    rows = "".join(
        f'<tr><td>{names[group.name]}</td><td class="n">{group.num_calls:,}</td>'
        + "".join(
            f'<td class="n">{_link(view, say.count(group.failures[blame]), "week", group.name, blame)}</td>'
            for blame in _WEEKLY
        )
        + "</tr>"
        for group in groups
    )
    head = "".join(f'<th class="n">{name}</th>' for name in _WEEKLY.values())
    return (
        '<div class="card"><table><caption>Failures per 100 calls by week, in the colors above. The red number is the '
        f'agent\'s own.</caption></table>{weeks(groups, names)}<details><summary>As a table</summary><div class="scroll">'
        f'<table><thead><tr><th>Week of</th><th class="n">calls</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        "</details></div>"
    )


# ------------------------------------------------------------------------------------------------------------- repairs


def _repairs(view: View) -> str:
    numbers = view.numbers
    if not numbers.repairs:
        return ""
    dearest = [repair for repair in numbers.repairs if repair.direct][:MAX_REPAIRS]
    runs = [repair for repair in numbers.repairs if repair.num_failed > 1]
    longest = sorted(runs, key=lambda one: (-one.num_failed, -one.span))[:MAX_REPAIRS]
    tables = [
        _repair_table(view, "The most expensive repairs", dearest, "of the spend") if dearest else "",
        _repair_table(view, "The longest runs of failures", longest, "of the spend") if longest else "",
    ]
    spent = numbers.spent
    why = (
        "A repair is every failed message from the first failure to the next success of the same purpose, and that "
        "success. A message counts as a whole, although only some of its calls failed, so each cost is an upper bound."
    )
    facts = ""
    if numbers.weighted:
        rows = (
            ("Messages with any failure", spent.get("any", 0.0)),
            ("Messages in which the agent itself failed", spent.get("model", 0.0)),
            ("The same, with their direct repair", numbers.direct),
            ("Everything between failure and repair", numbers.span),
        )
        items = "".join(f"<li>{name}<b>{esc(say.percent(numbers.share(value)))}</b></li>" for name, value in rows)
        facts = f'<div class="card"><ul class="facts">{items}</ul></div>'
    return _section("repairs", "What failures cost", why, f'{facts}<div class="two">{"".join(tables)}</div>')


def _repair_table(view: View, title: str, repairs: Sequence[Repair], unit: str) -> str:
    purposes = view.cleaner.pairs([(repair.episode.purpose, "") for repair in repairs])
    rows = []
    for repair, (purpose, _) in zip(repairs, purposes, strict=True):
        first = repair.episode.failed[0]
        what = f"{kind_words(repair.episode.kind)}" + ("" if view.share else f": {_short(purpose, 60)}")
        ended = "repaired" if repair.episode.worked >= 0 else "dropped"
        site = next(
            (one for one in view.evidence.shown if one.site.session is repair.session and one.site.place == first), None
        )
        name = f'<a href="#{site.anchor}">{esc(what)}</a>' if site and not view.share else esc(what)
        rows.append(
            f'<tr><td>{name}<br><span class="dim">{_place(view, repair.session, first, short=True)}</span></td>'
            f'<td class="n">{plural(repair.num_failed, "failure")}<br><span class="dim">{ended}</span></td>'
            f'<td class="n">{esc(say.percent(view.numbers.share(repair.direct)))}</td></tr>'
        )
    return (
        f'<div class="card"><table><caption>{title}</caption><thead><tr><th>What failed</th><th class="n">run</th>'
        f'<th class="n">{unit}</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


# ---------------------------------------------------------------------------------------------------------------- noes


def _noes(view: View) -> str:
    noes = [site for site in view.numbers.sites if site.failure.blame == "user"]
    if not noes:
        return ""
    tools: dict[str, int] = {}
    for site in noes:
        tools[site.failure.tool] = tools.get(site.failure.tool, 0) + 1
    most = max(tools.values())
    rows = "".join(
        f'<tr><td class="mono">{esc(_short(view.tool_name(tool), 40))}</td><td class="bars">{bar(number / most, "user", f"{number:,}")}</td>'
        f'<td class="n">{_link(view, say.count(number), "no", tool)}</td></tr>'
        for tool, number in sorted(tools.items(), key=lambda one: -one[1])[:8]
    )
    table = f'<div class="card"><table><caption>By tool</caption><tbody>{rows}</tbody></table></div>'
    reasons = [site for site in sorted(noes, key=lambda one: -one.step.at) if site.failure.reason]
    why = f"You stopped {plural(len(noes), 'call')}; {len(reasons):,} of these noes carry a reason."
    if view.share or not reasons:
        return _section("noes", "Where you said no", why, table)
    cleaned = view.cleaner.pairs([("", site.failure.reason) for site in reasons[:MAX_NOES]])
    quotes = [
        f'<p class="quote">{esc(_short(text, 200))}<br><span class="dim">{esc(site.failure.tool)} · '
        f"{_place(view, site.session, site.place, short=True)}</span></p>"
        for site, (_, text) in zip(reasons, cleaned, strict=False)
    ]
    shown = "".join(quotes[:FIRST_NOES])
    if rest := "".join(quotes[FIRST_NOES:]):
        shown += f"<details><summary>{len(quotes) - FIRST_NOES} more</summary>{rest}</details>"
    why += " Some are standing rules; which of them is for you to say."
    return _section("noes", "Where you said no", why, f'<div class="two"><div class="card">{shown}</div>{table}</div>')


# -------------------------------------------------------------------------------------------------------------- tokens


def _tokens(view: View) -> str:
    numbers = view.numbers
    if not numbers.weighted:
        why = "These files do not record tokens."
        return _section("tokens", "Tokens", why, "") if numbers.num_steps else ""
    total = {name: getattr(numbers.usage, name) for name in CLASSES}
    most = max(total.values())
    open_share = numbers.num_open / max(numbers.num_counted, 1)
    rows = "".join(
        f'<tr><td>{CLASS_NAMES[name]}</td><td class="bars">{bar(value / most, "env", say.tokens(value))}</td>'
        f'<td class="n" title="{value:,}">{"≥ " if name == "output" and numbers.num_open else ""}{say.tokens(value)}</td></tr>'
        for name, value in total.items()
        if value
    )
    classes = f'<div class="card"><table><caption>By class; the classes have no sum that means anything</caption><tbody>{rows}</tbody></table></div>'
    why = "Each message counts once, whatever number of files repeat it. There are no dollars: on a flat plan, list prices are not your bill."
    if numbers.num_open:
        why += f" Output is a lower bound: for {esc(say.percent(open_share))} of the messages, the harness may have recorded only its beginning."
    tables = [
        _spend_table(
            view, "By project", [(view.names.get(one.name, "no folder recorded"), one) for one in numbers.by_project]
        ),
        _spend_table(view, "By model", [(say.model_name(one.name), one) for one in numbers.models]),
    ]
    dear = "".join(
        f'<tr><td>{_place(view, session, -1)}</td><td class="n">{esc(say.percent(numbers.share(cost)))}</td></tr>'
        for session, cost in numbers.dearest_sessions[:5]
    )
    sessions = f'<div class="card"><table><caption>The most expensive sessions, with their subagents</caption><tbody>{dear}</tbody></table></div>'
    content = f'<div class="two">{classes}{tables[1]}</div><div class="two">{tables[0]}{sessions}</div>'
    return _section("tokens", "Tokens", why, content)


def _spend_table(view: View, title: str, groups: Sequence[tuple[str, CallGroup]]) -> str:
    rows = "".join(
        f'<tr><td>{esc(_short(name, 36))}</td><td class="n">{group.num_steps:,}</td>'
        f'<td class="bars wide">{bar(group.weighted / view.numbers.weighted, "env", say.percent(view.numbers.share(group.weighted)))}</td>'
        f'<td class="n">{esc(say.percent(view.numbers.share(group.weighted)))}</td></tr>'
        for name, group in groups[:8]
        if group.weighted
    )
    return (
        f'<div class="card scroll"><table><caption>{title}</caption><thead><tr><th>{title.removeprefix("By ").capitalize()}</th><th class="n">messages</th><td class="wide"></td>'
        f'<th class="n">of spend</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


# ------------------------------------------------------------------------------------------------------------ training


def _training(view: View) -> str:
    numbers = view.numbers
    if not numbers.num_steps:
        return ""
    rows = (
        ("Steps: messages of a model with what came before", numbers.num_steps),
        ("with a prompt that is exactly what the model read", numbers.num_exact),
        ("Failures that are marked as error sites", len(numbers.sites)),
        (f"Hints, on {plural(numbers.num_hinted, 'step')}", numbers.num_hints),
        ("Steps that a teacher could be asked about", numbers.num_asked),
    )
    items = "".join(f"<li>{name}<b>{value:,}</b></li>" for name, value in rows)
    commands = (
        "composer-hub ingest ~/.claude/projects --repo me/traces\n"
        "composer-hub replay plan me/traces --teachers-file teachers.yaml --max-usd 20"
    )
    why = "What a training set from these sessions would hold. The next two commands make one; the second only plans."
    return _section(
        "training",
        "For training",
        why,
        f'<div class="two"><div class="card"><ul class="facts">{items}</ul></div><div class="card">'
        f'<p class="lines mono" id="next">{esc(commands)}</p></div></div>',
    )


# ------------------------------------------------------------------------------------------------------------ evidence


def _evidence(view: View) -> str:
    if view.share or not view.evidence.shown:
        return ""
    groups: dict[tuple[str, str], list[str]] = {}
    for shown in view.evidence.shown:
        failure = shown.site.failure
        groups.setdefault((failure.blame, failure.kind), []).append(
            f'<div class="ev" id="{shown.anchor}"><div class="where"><b>{esc(failure.tool or "message")}</b> · '
            f"{_place(view, shown.site.session, shown.site.place)}</div>"
            + (f"<pre>{esc(shown.call_text)}</pre>" if shown.call_text else "")
            + (f'<pre class="words">{esc(shown.words)}</pre>' if shown.words else "")
            + "</div>"
        )
    parts = []
    for blame in BLAMES:
        for kind, number in view.numbers.kinds(blame):
            shown_here = groups.get((blame, kind), [])
            if not shown_here:
                continue
            part = f"{len(shown_here):,} of {number:,}, the newest" if len(shown_here) < number else f"{number:,}"
            parts.append(
                f"<details><summary><b>{esc(kind_words(kind))}</b> · {blame_words(blame).capitalize()} · {part}</summary>"
                f"{''.join(shown_here)}</details>"
            )
    if view.cleaner.redactor is None:
        why = "Raw text of your sessions, with whatever secrets they hold. Do not share this page."
    else:
        why = (
            "The calls behind the numbers. Secrets and personal data are replaced, but no filter finds all of them: read "
            "before you share this page, or make one with <code>--share</code>, which holds counts only."
        )
    return _section("evidence", "Evidence", why, f'<div class="card">{"".join(parts)}</div>')


def _notes(view: View) -> str:
    numbers = view.numbers
    files = numbers.collection
    counts = files.report.counts
    notes = [
        f"{plural(files.num_repeated, 'message')} that other files repeat (resumed sessions, forks) were counted once. A "
        "message is known by its id; each of its token counts is the largest that any file has.",
        "The spend is weighted: input 1, cache write 1.25 (5 minutes) or 2 (1 hour), cache read 0.1, output 5. Weights are used "
        "for shares only.",
        "Compactions, titles, background calls and retries are not in session files, so their tokens are missing.",
        "About a third of shell calls usually hide their exit code behind a pipe. For tests, linters and builds the output is "
        "read instead; elsewhere, no recorded error is not proof of success.",
        "Harnesses delete old sessions: Claude Code after 30 days, unless you set <code>cleanupPeriodDays</code>.",
    ]
    if numbers.num_lost_agents:
        notes.append(
            f"{plural(numbers.num_lost_agents, 'run')} of subagents left no file here, so what they did and cost is missing."
        )
    left = [
        f"{counts[name]:,} {words}"
        for name, words in (
            ("unreadable", "could not be read"),
            ("empty", "were empty"),
            ("unrecognised", "are no sessions"),
            ("no_trace", "hold no step of a model"),
        )
        if counts[name]
    ]
    if left:
        notes.append(f"Of {plural(files.num_files, 'file')}, {', '.join(left)}.")
    if not view.share and files.report.problems:
        problems = view.cleaner.pairs([("", str(problem)) for problem in files.report.problems[:10]])
        items = "".join(f"<li>{esc(_short(text, 300))}</li>" for _, text in problems)
        notes.append(f"<details><summary>Problems with files</summary><ul>{items}</ul></details>")
    items = "".join(f"<li>{note}</li>" for note in notes)
    made = f"{say.day(datetime.datetime.now().timestamp(), view.zone)}"
    return (
        f'<section id="notes"><h2>How it was counted</h2><ul class="notes">{items}</ul></section>'
        f"<footer>Made by composer-hub {esc(view.version)} on {made}. This file loads nothing and sends nothing.</footer>"
    )
