"""Sections that count what failed: by whose fault it was, and by tool, model and week."""

# ruff: noqa: E501  # markup reads better in whole lines

from __future__ import annotations

from composer_hub.errors.vocabulary import BLAMES, blame_words, kind_words
from composer_hub.local_hub.elements import esc
from composer_hub.output import plural
from composer_hub.report import words as say
from composer_hub.report.charts import bar, stack, weeks
from composer_hub.report.evidence import View
from composer_hub.report.markup import section, short_text
from composer_hub.report.numbers import MIN_RATE

MAX_TOOLS = 10
MAX_KINDS = 5
_WEEKLY = {"model": "agent", "outcome": "tests", "env": "environment", "user": "no"}
"""Columns of the table of weeks."""


def blames_section(view: View) -> str:
    """Return the section of failed calls by blame and kind as HTML, also if no call failed."""
    numbers = view.numbers
    by_blame = numbers.by_blame
    total = sum(by_blame.values())
    if not total:
        return section("blame", "Whose fault it was", "No call failed.", "")
    legend = "".join(
        f'<li><svg viewBox="0 0 9 9" aria-hidden="true"><rect class="{blame}" width="9" height="9" rx="2"/></svg>'
        f"{blame_words(blame).capitalize()} <b>{view.link(say.count(by_blame[blame]), 'blame', blame)}</b></li>"
        for blame in BLAMES
        if by_blame[blame]
    )
    tables = "".join(_kinds(view, blame) for blame in BLAMES if by_blame[blame])
    why = (
        f"{plural(total, 'call')} of {numbers.num_calls:,} did not succeed. Only the first group is proven to be the agent's own "
        "doing; a failed test is often why it was run."
    )
    label = ", ".join(f"{blame_words(blame).capitalize()}: {by_blame[blame]:,}" for blame in BLAMES if by_blame[blame])
    return section(
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
        f'<td class="n">{view.link(say.count(number), "kind", blame, kind)}</td></tr>'
        for kind, number in kinds[:MAX_KINDS]
    )
    rest = sum(number for _, number in kinds[MAX_KINDS:])
    more = f'<tr><td class="dim">{plural(len(kinds) - MAX_KINDS, "more kind")}</td><td></td><td class="n dim">{rest:,}</td></tr>'
    return f"<div><h3>{blame_words(blame).capitalize()}</h3><table><tbody>{rows}{more if rest else ''}</tbody></table></div>"


def tools_section(view: View) -> str:
    """Return the section of failures by tool, model and week as HTML; "" without calls."""
    numbers = view.numbers
    if not numbers.num_calls:
        return ""
    kinds = [kind for kind, _ in numbers.kinds("model")[:4]]
    head = "".join(f'<th class="n wide">{esc(kind_words(kind))}</th>' for kind in kinds)
    shown = [group for group in numbers.tools if group.failures["model"] or group.num_calls >= MIN_RATE][:MAX_TOOLS]
    rows = []
    for group in shown:
        cells = "".join(
            f'<td class="n wide">{view.link(say.count(group.kinds[kind]), "tool", group.name, kind) if group.kinds[kind] else ""}</td>'
            for kind in kinds
        )
        failed = group.failures["model"]
        rows.append(
            f'<tr><td class="mono">{esc(short_text(view.tool_name(group.name), 40))}</td><td class="n">{group.num_calls:,}</td>'
            f'<td class="n">{view.link(say.count(failed), "tool", group.name) if failed else 0}</td>'
            f'<td class="n">{say.rate(group.rate)}</td>{cells}</tr>'
        )
    tools = (
        '<div class="card scroll"><table><caption>Calls that failed by the agent\'s own fault, by tool</caption><thead><tr>'
        f'<th>Tool</th><th class="n">calls</th><th class="n">failed</th><th class="n">of 100</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
    why = f"Rates are failures of the agent's own per 100 calls. Below {MIN_RATE} calls there is no rate."
    return section(
        "tools", "By tool, model and week", why, f'{tools}<div class="two">{_models(view)}{_weeks(view)}</div>'
    )


def _models(view: View) -> str:
    most = max((group.rate or 0 for group in view.numbers.models), default=0) or 1
    rows = "".join(
        f'<tr><td>{esc(say.model_name(group.name))}</td><td class="n">{group.num_calls:,}</td>'
        f'<td class="n">{view.link(say.count(group.failures["model"]), "model", group.name)}</td>'
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
            f'<td class="n">{view.link(say.count(group.failures[blame]), "week", group.name, blame)}</td>'
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
