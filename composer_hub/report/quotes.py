"""Sections that quote sessions, cleaned: lines for AGENTS.md, reasons of noes, and the calls behind the numbers."""

# ruff: noqa: E501  # markup reads better in whole lines

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from composer_hub.errors.excerpts import excerpt
from composer_hub.errors.vocabulary import BLAMES, blame_words, kind_words
from composer_hub.local_hub.elements import esc
from composer_hub.output import plural
from composer_hub.report import words as say
from composer_hub.report.charts import bar
from composer_hub.report.evidence import MAX_CALL, View
from composer_hub.report.lessons import Lesson
from composer_hub.report.lines import clean_lines, fresh_lines, one_per_line, title_of
from composer_hub.report.markup import section, short_text
from composer_hub.report.numbers import MIN_RATE

MAX_PROOF = 3
FIRST_NOES = 5
MAX_NOES = 40


def lessons_section(view: View) -> str:
    """Return the section of lines to copy as HTML; "" on a page that is to be shared, and without calls."""
    if view.share:
        return ""
    lessons = view.numbers.lessons
    cards = []
    for number, (project, found) in enumerate(fresh_lines(view.cleaner, lessons).items(), start=1):
        name = f"copy{number}"
        cards.append(
            f'<div class="card"><div class="head"><h3>{esc(title_of(view.names, project))}</h3>'
            f'<button type="button" data-copies="{name}">Copy {plural(len(found), "line")}</button></div>'
            f'<p class="lines mono" id="{name}">{esc(one_per_line(found))}</p>{_quotes(found)}{_proof(view, found)}</div>'
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
            f'<p class="lines mono">{esc(one_per_line(written))}</p>{_proof(view, written)}</div>'
        )
    return section("lines", title, why, "\n".join(cards)) if cards or view.numbers.num_calls >= MIN_RATE else ""


def _quotes(lines: Sequence[tuple[Lesson, str]]) -> str:
    """Return the sentences of the guide that say the wrong thing."""
    quotes = "".join(f'<p class="quote mono">{esc(lesson.quote)}</p>' for lesson, _ in lines if lesson.quote)
    return f'<p class="why wrong">Your guide says the wrong thing. Correct it there:</p>{quotes}' if quotes else ""


def _proof(view: View, lines: Sequence[tuple[Lesson, str]]) -> str:
    parts = []
    for lesson, line in lines:
        newest = sorted(lesson.proof, key=lambda one: -one[1].at)[:MAX_PROOF]
        called = view.cleaner.pairs([(cause.call_text[:900], cause.words[:900]) for _, cause in newest])
        worked = view.cleaner.pairs([(cause.worked[:900], "") for _, cause in newest])
        parts.append(f'<div class="ev"><b>{esc(line.removeprefix("- "))}</b></div>')
        for (session, cause), (call, words), (right, _) in zip(newest, called, worked, strict=True):
            parts.append(
                f'<div class="ev"><div class="where">{view.place(session, cause.step)}</div>'
                f'<pre>{esc(excerpt(call, MAX_CALL))}</pre><pre class="words">{esc(excerpt(words, MAX_CALL))}</pre>'
                + (f'<pre class="worked">{esc(excerpt(right, MAX_CALL))}</pre>' if right else "")
                + "</div>"
            )
    return f"<details><summary>Show what failed and what worked</summary>{''.join(parts)}</details>"


def noes_section(view: View) -> str:
    """Return the section of calls that the user stopped as HTML; "" if there is none."""
    noes = [site for site in view.numbers.sites if site.failure.blame == "user"]
    if not noes:
        return ""
    tools = Counter(site.failure.tool for site in noes)
    most = max(tools.values())
    rows = "".join(
        f'<tr><td class="mono">{esc(short_text(view.tool_name(tool), 40))}</td><td class="bars">{bar(number / most, "user", f"{number:,}")}</td>'
        f'<td class="n">{view.link(say.count(number), "no", tool)}</td></tr>'
        for tool, number in tools.most_common(8)
    )
    table = f'<div class="card"><table><caption>By tool</caption><tbody>{rows}</tbody></table></div>'
    reasons = [site for site in sorted(noes, key=lambda one: -one.step.at) if site.failure.reason]
    why = f"You stopped {plural(len(noes), 'call')}; {len(reasons):,} of these noes carry a reason."
    if view.share or not reasons:
        return section("noes", "Where you said no", why, table)
    cleaned = view.cleaner.pairs([("", site.failure.reason) for site in reasons[:MAX_NOES]])
    quotes = [
        f'<p class="quote">{esc(short_text(text, 200))}<br><span class="dim">{esc(site.failure.tool)} · '
        f"{view.place(site.session, site.place, short=True)}</span></p>"
        for site, (_, text) in zip(reasons, cleaned, strict=False)
    ]
    shown = "".join(quotes[:FIRST_NOES])
    if rest := "".join(quotes[FIRST_NOES:]):
        shown += f"<details><summary>{len(quotes) - FIRST_NOES} more</summary>{rest}</details>"
    why += " Some are standing rules; which of them is for you to say."
    return section("noes", "Where you said no", why, f'<div class="two"><div class="card">{shown}</div>{table}</div>')


def evidence_section(view: View) -> str:
    """Return the section of quoted calls, to which links lead; "" on a page that is to be shared."""
    if view.share or not view.evidence.shown:
        return ""
    groups: dict[tuple[str, str], list[str]] = {}
    for shown in view.evidence.shown:
        failure = shown.site.failure
        groups.setdefault((failure.blame, failure.kind), []).append(
            f'<div class="ev" id="{shown.anchor}"><div class="where"><b>{esc(failure.tool or "message")}</b> · '
            f"{view.place(shown.site.session, shown.site.place)}</div>"
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
    return section("evidence", "Evidence", why, f'<div class="card">{"".join(parts)}</div>')
