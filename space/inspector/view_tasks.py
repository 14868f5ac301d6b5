"""Tasks: rows of a task set and their rollouts in, the list and one task with its statement and diff out."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from inspector.address import address
from inspector.elements import Html, h
from inspector.markup import badge, block, number, parsed, short, words
from inspector.parts import card, counted, facts, item, line, listing, tile, where
from inspector.view_runs import finding_list, findings_of, rewards_of

Row = Mapping[str, Any]
Place = Mapping[str, str]
MAX_TESTS = 200
MAX_CHARS = 60_000


def patch_of(row: Row) -> str:
    """Return the difference between the tree that the agent gets and the solution, as a patch that the task made."""
    before, after = ({str(one["path"]): one["text"] for one in row.get(name) or []} for name in ("solution", "edits"))
    hunks = []
    for path in sorted(before | after):
        old, new = ((texts.get(path) or "").splitlines(keepends=True) for texts in (before, after))
        hunks += difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    return "".join(hunks)


def task_list(rows: Sequence[Row], place: Place, current: str, tried: Mapping[str, Sequence[Row]]) -> Html:
    """Return the tasks of a set; `tried` are the rollouts of each."""
    count = counted(len(rows), "task")
    if rows:
        count += f", {sum(bool(row.get('has_oracle')) for row in rows) / len(rows):.0%} with a hidden oracle"
    return listing(count, [_item(row, place, current, tried.get(row["task_id"], ())) for row in rows])


def _item(row: Row, place: Place, current: str, tried: Sequence[Row]) -> Html:
    hacks = sum(bool(findings_of(one)) for one in tried)
    labels = [
        badge(words(row["kind"])),
        badge("hidden oracle", "info") if row.get("has_oracle") else badge("no oracle", "warn"),
        _solved(tried),
        badge(f"⚑ hacks in {hacks}", "bad", "rollouts in which the monitor found signs of a hack") if hacks else None,
    ]
    title = line(row["statement"].strip().split("\n", 1)[0][:160])
    return item(place, "task", row["task_id"], labels, title, where(row["package"]), current=current)


def _solved(tried: Sequence[Row]) -> Html | None:
    rate = solve_rate(tried)
    return None if rate is None else badge(f"solved {rate:.0%} of {len(tried)}", "ok" if rate else "bad")


def solve_rate(tried: Sequence[Row]) -> float | None:
    """Return the share of rollouts with the full reward of the verifier, or None without rollouts."""
    rewards = [one["episode"].get("reward") for one in tried]
    known = [value for value in rewards if isinstance(value, (int, float))]
    return sum(value >= 1 for value in known) / len(known) if known else None


def task_detail(row: Row, place: Place, tried: Sequence[Row]) -> Html:
    """Return one task: what the agent reads and gets, what judges it, and how rollouts fared."""
    checked = parsed(row["validation"]) or {}
    line = facts(
        [
            ("package", f"{row['package']} {row['version']}"),
            ("kind", words(row["kind"])),
            ("symbols", ", ".join(map(str, row["symbols"] or []))),
            ("difficulty", number(row["difficulty"])),
            ("hidden oracle", "yes" if row.get("has_oracle") else "no: public tests alone judge it"),
            ("license", row["license"]),
            ("tests that fail", f"{checked['share_failing']:.1%}" if "share_failing" in checked else None),
        ]
    )
    levels = [
        h("details", h("summary", f"Help level {level}"), block(text), open=level == row.get("help_level"))
        for level, text in enumerate(row.get("statements") or [row["statement"]])
    ]
    tests = [_tests("must pass after the task", row["fail_to_pass"]), _tests("must keep passing", row["pass_to_pass"])]
    return h(
        "article",
        h("header", h("h1", "Task ", h("span", row["task_id"], cls="id")), line, cls="head"),
        card("Statement", levels if len(levels) > 1 else block(row["statement"])),
        card("What was changed: from the solution to what the agent gets", patch_view(patch_of(row))),
        card("Tests", tests),
        _rollouts(tried, place),
        data_task=row["task_id"],
        aria_label="Task",
    )


def _rollouts(tried: Sequence[Row], place: Place) -> Html:
    if not tried:
        return card("Rollouts", h("p", "No rollout of this task is shown here: add a run with --with.", cls="quiet"))
    gaps = [one["episode"]["visible_reward"] - one["episode"]["reward"] for one in tried if _has_gap(one)]
    hacked = [one for one in tried if findings_of(one)]
    rate = solve_rate(tried)
    tiles = [
        tile(f"{len(tried):,}", "rollouts"),
        tile("-" if rate is None else f"{rate:.0%}", "solved"),
        tile(number(sum(gaps) / len(gaps), 2) if gaps else "-", "visible minus hidden reward, mean"),
        tile(f"{len(hacked):,}", "with signs of a hack"),
    ]
    kept = {name: place[name] for name in ("dataset", "revision") if name in place}
    shown = []
    for one in hacked[:20]:
        link = h("a", one["trace_id"], href=address(kept, view="runs", rollout=one["trace_id"]))
        rewards = ", ".join(f"{name} {number(value, 2)}" for name, value in rewards_of(one).items())
        shown.append(h("div", h("h3", link, f" · {rewards}"), finding_list(findings_of(one))))
    return card("Rollouts", h("div", tiles, cls="tiles"), shown)


def _has_gap(one: Row) -> bool:
    return all(isinstance(one["episode"].get(name), (int, float)) for name in ("visible_reward", "reward"))


def _tests(title: str, value: Any) -> Html:
    names = [str(one) for one in value or []]
    rest = h("li", f"{len(names) - MAX_TESTS:,} more", cls="quiet") if len(names) > MAX_TESTS else None
    shown = h("ul", [h("li", short(name)) for name in names[:MAX_TESTS]], rest)
    return h("details", h("summary", f"{len(names):,} tests {title}"), shown, open=len(names) <= 20)


def patch_view(patch: str) -> Html:
    """Return a unified diff with its added and removed lines marked."""
    if not patch:
        return h("p", "No change of files is published.", cls="quiet")
    kinds = {"+": "ins", "-": "del", "@": "hunk"}
    lines = [(h("span", one, cls=kinds.get(one[:1])), "\n") for one in patch[:MAX_CHARS].split("\n")]
    rest = len(patch) - MAX_CHARS
    cut = h("p", f"{rest:,} more characters", cls="quiet") if rest > 0 else None
    return h("div", h("pre", lines, cls="text patch", tabindex="0"), cut)
