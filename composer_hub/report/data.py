"""The report as JSON values, for scripts: counts, and unless they are left out, the lines and where each failure is."""

from __future__ import annotations

import dataclasses
from typing import Any

from composer_hub.report.evidence import View
from composer_hub.report.lines import clean_lines, title_of
from composer_hub.report.numbers import CLASSES, CallGroup
from composer_hub.report.sentences import headline, lead


def as_json(view: View) -> dict[str, Any]:
    """Return everything that was counted; with `share`, nothing that names a project or quotes a session."""
    numbers, files = view.numbers, view.numbers.collection
    report: dict[str, Any] = {
        "headline": f"{headline(numbers)} {lead(numbers)}",
        "first": numbers.first,
        "last": numbers.last,
        "num_projects": len(set(numbers.projects.values())),
        "num_sessions": numbers.num_sessions,
        "num_subagents": numbers.num_agents,
        "num_lost_subagents": numbers.num_lost_agents,
        "num_clean_sessions": numbers.num_clean,
        "num_steps": numbers.num_steps,
        "num_calls": numbers.num_calls,
        "failures_by_blame": dict(numbers.by_blame.most_common()),
        "kinds_by_blame": {blame: dict(numbers.kinds(blame)) for blame in numbers.by_blame},
        "model_failures_per_100_calls": numbers.rate,
        "tools": [{**_group(one), "name": view.tool_name(one.name)} for one in numbers.tools],
        "models": [_group(one) for one in numbers.models],
        "weeks": [_group(one) for one in numbers.weeks],
        "tokens": {name: getattr(numbers.usage, name) for name in CLASSES},
        "num_messages_counted": numbers.num_counted,
        "num_open_outputs": numbers.num_open,
        "share_failed_by_blame": {blame: numbers.share(value) for blame, value in numbers.spent.items()},
        "share_direct_repair": numbers.share(numbers.direct),
        "share_span": numbers.share(numbers.span),
        "num_repairs": len(numbers.repairs),
        "num_ended_well": len(numbers.ended_well),
        "training": {
            "num_steps": numbers.num_steps,
            "num_exact": numbers.num_exact,
            "num_error_sites": len(numbers.sites),
            "num_hints": numbers.num_hints,
            "num_steps_to_ask": numbers.num_asked,
        },
        "files": {
            "num_files": files.num_files,
            "num_bytes": files.num_bytes,
            "num_repeated_messages": files.num_repeated,
            **{name: files.report.counts[name] for name in ("read", "unreadable", "unrecognised", "empty", "no_trace")},
        },
    }
    if change := view.change:
        report["since"] = {
            "at": change.at,
            "num_sessions": change.num_sessions,
            "weeks": [dataclasses.asdict(week) for week in change.weeks],
            "num_new_lines": len(change.fresh),
            "num_lines_again": len(change.again),
            "num_lines_quiet": len(change.quiet),
        }
    if not view.share:
        report["lines"] = [
            {
                "line": line, "project": title_of(view.names, lesson.project), "num_failures": lesson.num_failures,
                "num_sessions": lesson.num_sessions, "is_written": lesson.is_written, "wrong_sentence": lesson.quote,
            }
            for lesson, line in clean_lines(view.cleaner, numbers.lessons)
        ]  # fmt: skip
        report["failures"] = [
            {
                "kind": site.failure.kind, "blame": site.failure.blame, "tool": site.failure.tool, "at": site.step.at,
                "model": site.step.model, "path": site.session.path, "step": site.place,
            }
            for site in numbers.sites
        ]  # fmt: skip
    return report


def _group(group: CallGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "num_calls": group.num_calls,
        "num_steps": group.num_steps,
        "failures": dict(group.failures),
        "kinds": dict(group.kinds),
        "per_100_calls": group.rate,
        "usage": {name: value for name, value in dataclasses.asdict(group.usage).items() if isinstance(value, int)},
    }
