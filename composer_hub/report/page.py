"""The report as one HTML file that loads nothing: numbers and evidence in, text out.

All text from sessions is escaped, and a content security policy allows only this page's own style and script. Nothing
has an inline style, so the policy needs no exception.
"""

# ruff: noqa: E501  # markup reads better in whole lines

from __future__ import annotations

import base64
import datetime
import hashlib
from importlib import resources

from composer_hub.local_hub.elements import esc
from composer_hub.output import plural
from composer_hub.report import sentences
from composer_hub.report import words as say
from composer_hub.report.costs import repairs_section, tokens_section
from composer_hub.report.evidence import View
from composer_hub.report.failures import blames_section, tools_section
from composer_hub.report.lines import clean_lines, one_per_line
from composer_hub.report.markup import section, short_text
from composer_hub.report.numbers import MIN_RATE
from composer_hub.report.quotes import evidence_section, lessons_section, noes_section

MARK = '<meta name="generator" content="composer-hub report">'


def page(view: View) -> str:
    """Return the whole page."""
    style, script = _resource("page.css"), _resource("page.js")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    sections = (
        *(_since, lessons_section, blames_section, tools_section, repairs_section, noes_section, tokens_section),
        *(_training, evidence_section, _notes),
    )
    body = "\n".join(filter(None, (_head(view), *(part(view) for part in sections))))
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


def _head(view: View) -> str:
    numbers = view.numbers
    files = numbers.collection
    unread = files.report.counts["unreadable"]
    parts = [
        f"<b>{esc(sentences.period(numbers, view.zone))}</b>",
        plural(len(set(numbers.projects.values())), "project"),
        plural(numbers.num_sessions, "session"),
        f"{plural(numbers.num_agents, 'subagent run')}" if numbers.num_agents else "",
        f"{plural(files.num_files, 'file')}" + (f" ({unread:,} not read)" if unread else ""),
        "nothing left this machine",
    ]
    over = " · ".join(filter(None, parts))
    return (
        f'<p class="over">{over}</p>\n<h1>{esc(sentences.headline(numbers))}</h1>\n'
        f'<p class="lead">{esc(sentences.lead(numbers))}</p>\n{_tiles(view)}'
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
            parts.append(f'<h3>{title}</h3><p class="lines mono">{esc(one_per_line(lines))}</p>')
    card = f'<div class="card">{"".join(parts)}</div>' if parts else ""
    why = esc(sentences.news(change, view.numbers, view.zone))
    return section("since", "Since last time", why, f'<div class="two">{table}{card}</div>')


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
    return section(
        "training",
        "For training",
        why,
        f'<div class="two"><div class="card"><ul class="facts">{items}</ul></div><div class="card">'
        f'<p class="lines mono" id="next">{esc(commands)}</p></div></div>',
    )


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
        items = "".join(f"<li>{esc(short_text(text, 300))}</li>" for _, text in problems)
        notes.append(f"<details><summary>Problems with files</summary><ul>{items}</ul></details>")
    items = "".join(f"<li>{note}</li>" for note in notes)
    made = f"{say.day(datetime.datetime.now().timestamp(), view.zone)}"
    return (
        f'<section id="notes"><h2>How it was counted</h2><ul class="notes">{items}</ul></section>'
        f"<footer>Made by composer-hub {esc(view.version)} on {made}. This file loads nothing and sends nothing.</footer>"
    )
