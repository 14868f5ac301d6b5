"""Tasks: rows of a task set in, the list and one task with its statement, deletion, tests, solve rate and flags out."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from inspector.address import address
from inspector.markup import Html, badge, block, h, number, parsed, pretty, words

Row = Mapping[str, Any]
Place = Mapping[str, str]
MAX_TESTS = 200


def task_id(row: Row) -> str:
    """Return the id of a task."""
    return str(row.get("task_id") or row.get("instance_id") or "")


def patch_of(row: Row) -> str:
    """Return the difference between the tree that the agent gets and the solution, as a patch that the task made."""
    published = _first(row, "broken_patch", "patch")
    if published:
        return str(published)
    before, after = ({str(one["path"]): one["text"] for one in row.get(name) or []} for name in ("solution", "edits"))
    hunks = []
    for path in sorted(before | after):
        old, new = ((texts.get(path) or "").splitlines(keepends=True) for texts in (before, after))
        hunks += difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    return "".join(hunks)


def _first(row: Row, *names: str) -> Any:
    return next((row[name] for name in names if row.get(name) not in (None, "", [])), None)


def _details(row: Row, name: str) -> dict[str, Any]:
    value = parsed(row.get(name))
    return value if isinstance(value, dict) else {}


def solve_rate(row: Row) -> float | None:
    """Return the share of attempts that solved the task, if it was measured."""
    value = _first(row, "solve_rate") or _details(row, "validation").get("solve_rate")
    return float(value) if isinstance(value, (int, float)) else None


def hack_flags(row: Row) -> list[str]:
    """Return what the monitors flagged."""
    flags = _first(row, "hack_flags") or _details(row, "validation").get("hack_flags") or []
    flags = parsed(flags)
    if isinstance(flags, dict):
        return [f"{name}: {pretty(value)}" for name, value in flags.items() if value]
    return [str(flag) for flag in flags] if isinstance(flags, list) else [str(flags)]


def task_list(rows: Sequence[Row], place: Place, current: str) -> Html:
    """Return the tasks of a set."""
    shown = [_item(row, place, current) for row in rows]
    return h("div", h("p", f"{len(rows):,} tasks", cls="count", role="status"), h("ol", shown, cls="rows"))


def _item(row: Row, place: Place, current: str) -> Html:
    rate = solve_rate(row)
    flags = hack_flags(row)
    labels = [
        badge(words(str(_first(row, "kind", "generator") or "task"))),
        badge(f"solved {rate:.0%}", "ok" if rate else "bad") if rate is not None else None,
        badge(f"{len(flags)} hack flags", "bad") if flags else None,
    ]
    title = str(_first(row, "statement", "instruction", "problem_statement") or task_id(row)).split("\n", 1)[0][:160]
    where = str(_first(row, "package", "repository") or "")
    link = h(
        "a",
        h("span", labels, cls="labels"),
        h("span", title, cls="line"),
        h("span", where, cls="quiet small"),
        href=address(place, task=task_id(row)),
        data_item=task_id(row),
        aria_current="true" if task_id(row) == current else None,
    )
    return h("li", link)


def task_detail(row: Row) -> Html:
    """Return one task."""
    rate = solve_rate(row)
    flags = hack_flags(row)
    facts = [
        ("package", _first(row, "package", "repository")),
        ("version", _first(row, "version", "revision")),
        ("symbols", ", ".join(map(str, row.get("symbols") or []))),
        ("difficulty", pretty(row["difficulty"]) if row.get("difficulty") not in (None, "", {}) else None),
        ("hidden oracle", {True: "yes", False: "no"}.get(row.get("has_oracle"))),  # type: ignore[arg-type]
        ("license", row.get("license")),
        ("solve rate", f"{rate:.0%}" if rate is not None else "not measured"),
    ]
    shown = [h("div", h("dt", name), h("dd", value)) for name, value in facts if value not in (None, "")]
    flagged = (
        h("ul", [h("li", "⚑ ", flag) for flag in flags], cls="plain wrong") if flags else h("p", "None.", cls="quiet")
    )
    return h(
        "article",
        h("header", h("h1", "Task ", h("span", task_id(row), cls="id")), h("dl", shown, cls="facts"), cls="head"),
        h(
            "section",
            h("h2", "Statement"),
            block(str(_first(row, "statement", "instruction", "problem_statement") or "-")),
            cls="card",
        ),
        h(
            "section",
            h("h2", "What was deleted"),
            patch_view(patch_of(row)),
            cls="card",
        ),
        h(
            "section",
            h("h2", "Tests"),
            _tests("must pass after the task", row.get("fail_to_pass")),
            _tests("must keep passing", row.get("pass_to_pass")),
            cls="card",
        ),
        h("section", h("h2", "Hack flags"), flagged, cls="card"),
        data_task=task_id(row),
        aria_label="Task",
    )


def _tests(title: str, value: Any) -> Html:
    tests = parsed(value)
    names = [str(one) for one in tests] if isinstance(tests, (list, tuple)) else []
    rest = h("li", f"{len(names) - MAX_TESTS:,} more", cls="quiet") if len(names) > MAX_TESTS else None
    return h(
        "details",
        h("summary", f"{number(len(names))} tests {title}"),
        h("ul", [h("li", name) for name in names[:MAX_TESTS]], rest),
        open=len(names) <= 20,
    )


def patch_view(patch: str, limit: int = 60_000) -> Html:
    """Return a unified diff with its added and removed lines marked."""
    if not patch:
        return h("p", "No patch is published.", cls="quiet")
    kinds = {"+": "ins", "-": "del", "@": "hunk"}
    lines = [h("span", line, cls=kinds.get(line[:1])) for line in patch[:limit].split("\n")]
    spaced = [item for line in lines for item in (line, "\n")]
    cut = h("p", f"{len(patch) - limit:,} more characters", cls="quiet") if len(patch) > limit else None
    return h("div", h("pre", spaced, cls="text patch", tabindex="0"), cut)
