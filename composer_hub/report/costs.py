"""Sections on what failures cost, and on the tokens of all messages."""

# ruff: noqa: E501  # markup reads better in whole lines

from __future__ import annotations

from collections.abc import Sequence

from composer_hub.errors.vocabulary import kind_words
from composer_hub.local_hub.elements import esc
from composer_hub.output import plural
from composer_hub.report import words as say
from composer_hub.report.charts import bar
from composer_hub.report.evidence import View
from composer_hub.report.markup import section, short_text
from composer_hub.report.numbers import CLASSES, CallGroup, Repair

MAX_REPAIRS = 5
CLASS_NAMES = {
    "input": "Input",
    "write": "Cache write, 5 minutes",
    "write_hour": "Cache write, 1 hour",
    "read": "Cache read",
    "output": "Output",
}


def repairs_section(view: View) -> str:
    """Return the section of the most expensive repairs as HTML; "" if no failure was repaired."""
    numbers = view.numbers
    if not numbers.repairs:
        return ""
    dearest = [repair for repair in numbers.repairs if repair.direct][:MAX_REPAIRS]
    runs = [repair for repair in numbers.repairs if repair.num_failed > 1]
    longest = sorted(runs, key=lambda one: (-one.num_failed, -one.span))[:MAX_REPAIRS]
    tables = [
        _repair_table(view, "The most expensive repairs", dearest) if dearest else "",
        _repair_table(view, "The longest runs of failures", longest) if longest else "",
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
    return section("repairs", "What failures cost", why, f'{facts}<div class="two">{"".join(tables)}</div>')


def _repair_table(view: View, title: str, repairs: Sequence[Repair]) -> str:
    purposes = view.cleaner.pairs([(repair.episode.purpose, "") for repair in repairs])
    rows = []
    for repair, (purpose, _) in zip(repairs, purposes, strict=True):
        first = repair.episode.failed[0]
        what = f"{kind_words(repair.episode.kind)}" + ("" if view.share else f": {short_text(purpose, 60)}")
        ended = "repaired" if repair.episode.worked >= 0 else "dropped"
        site = next(
            (one for one in view.evidence.shown if one.site.session is repair.session and one.site.place == first), None
        )
        name = f'<a href="#{site.anchor}">{esc(what)}</a>' if site and not view.share else esc(what)
        rows.append(
            f'<tr><td>{name}<br><span class="dim">{view.place(repair.session, first, short=True)}</span></td>'
            f'<td class="n">{plural(repair.num_failed, "failure")}<br><span class="dim">{ended}</span></td>'
            f'<td class="n">{esc(say.percent(view.numbers.share(repair.direct)))}</td></tr>'
        )
    return (
        f'<div class="card"><table><caption>{title}</caption><thead><tr><th>What failed</th><th class="n">run</th>'
        f'<th class="n">of the spend</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def tokens_section(view: View) -> str:
    """Return the section of tokens by class, project and model as HTML; "" without messages."""
    numbers = view.numbers
    if not numbers.weighted:
        why = "These files do not record tokens."
        return section("tokens", "Tokens", why, "") if numbers.num_steps else ""
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
        f'<tr><td>{view.place(session, -1)}</td><td class="n">{esc(say.percent(numbers.share(cost)))}</td></tr>'
        for session, cost in numbers.dearest_sessions[:5]
    )
    sessions = f'<div class="card"><table><caption>The most expensive sessions, with their subagents</caption><tbody>{dear}</tbody></table></div>'
    content = f'<div class="two">{classes}{tables[1]}</div><div class="two">{tables[0]}{sessions}</div>'
    return section("tokens", "Tokens", why, content)


def _spend_table(view: View, title: str, groups: Sequence[tuple[str, CallGroup]]) -> str:
    rows = "".join(
        f'<tr><td>{esc(short_text(name, 36))}</td><td class="n">{group.num_steps:,}</td>'
        f'<td class="bars wide">{bar(group.weighted / view.numbers.weighted, "env", say.percent(view.numbers.share(group.weighted)))}</td>'
        f'<td class="n">{esc(say.percent(view.numbers.share(group.weighted)))}</td></tr>'
        for name, group in groups[:8]
        if group.weighted
    )
    return (
        f'<div class="card scroll"><table><caption>{title}</caption><thead><tr><th>{title.removeprefix("By ").capitalize()}</th><th class="n">messages</th><td class="wide"></td>'
        f'<th class="n">of spend</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )
