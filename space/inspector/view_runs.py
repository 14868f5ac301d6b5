"""Rollouts of a training run: rewards in a list; one rollout beside the others of its prompt out.

`provenance` of a rollout holds its rewards, its advantage and the environment's report on the episode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from inspector.address import address
from inspector.diff import short_action
from inspector.elements import Html, h
from inspector.library import Dataset, SpaceLibrary
from inspector.markup import badge, number, parsed, short
from inspector.messages import conversation
from inspector.parts import card, counted, error_badge, facts, item, line, listing, table
from inspector.vocabulary import writer_words

Row = Mapping[str, Any]
Place = Mapping[str, str]
MAX_ROLLOUTS = 2_000
MAX_BESIDE = 8
MAX_TURNS = 40  # of a rollout beside others
MAX_FINDINGS = 50
# An episode also holds the files after each call, which are long.
_LIGHT = """
    select trace_id, len(steps) as num_turns,
           list_sum(list_transform(steps, lambda one: len(one.error_sites)))::int as num_sites,
           list_sum(list_transform(steps, lambda one: len(one.hints)))::int as num_hints,
           try_cast(provenance->>'$.policy_step' as int) as policy_step,
           try_cast(provenance->>'$.advantage' as double) as advantage,
           provenance->>'$.environment' as environment, provenance->'$.rewards' as rewards,
           md5(coalesce(provenance->>'$.prompt_ids', trace_id)) as prompt,
           json_object('task_id', provenance->>'$.episode.task_id', 'hack', provenance->'$.episode.hack',
                       'reward', provenance->'$.episode.reward',
                       'visible_reward', provenance->'$.episode.visible_reward') as episode
    from read_parquet(?) order by policy_step, prompt, trace_id limit ?
"""


def rollouts(library: SpaceLibrary, dataset: Dataset) -> list[dict[str, Any]]:
    """Return the rollouts of a run without their tokens, by policy step and prompt."""

    def read() -> list[dict[str, Any]]:
        rows = library.rows(_LIGHT, [dataset.files("traces"), MAX_ROLLOUTS])
        return [row | {name: parsed(row[name]) or {} for name in ("rewards", "episode")} for row in rows]

    return dataset.once("rollouts", read)


def beside(rows: Sequence[Row], id: str) -> list[Row]:
    """Return the rollouts of a rollout's policy step and prompt: itself first, then those with the most advantage."""
    own = next((row for row in rows if row["trace_id"] == id), None)
    if own is None:
        return []
    same = [row for row in rows if (row["policy_step"], row["prompt"]) == (own["policy_step"], own["prompt"])]
    return sorted(same, key=lambda row: (row is not own, -(row["advantage"] or 0)))[:MAX_BESIDE]


def rewards_of(row: Row) -> dict[str, float | None]:
    """Return the rewards of a rollout by name."""
    given = row.get("rewards")
    known = given.items() if isinstance(given, Mapping) else ()
    return {str(name): float(value) if isinstance(value, (int, float)) else None for name, value in known}


def findings_of(row: Row) -> list[tuple[str, str]]:
    """Return the monitor's findings in a rollout: rules with their evidence."""
    episode = row.get("episode")
    found = parsed(episode.get("hack")) if isinstance(episode, Mapping) else None
    return [
        (str(one.get("rule")), str(one.get("evidence") or "")) if isinstance(one, Mapping) else (str(one), "")
        for one in (found if isinstance(found, list) else [])
    ]


def finding_list(findings: Sequence[tuple[str, str]]) -> Html:
    """Return the monitor's findings, with their evidence."""
    if not findings:
        return h("p", "The monitor found no sign of a hack.", cls="quiet")
    rest = h("li", f"{len(findings) - MAX_FINDINGS:,} more", cls="quiet") if len(findings) > MAX_FINDINGS else None
    shown = [h("li", badge(f"⚑ {rule}", "bad"), " ", evidence[:600]) for rule, evidence in findings[:MAX_FINDINGS]]
    return h("ul", shown, rest, cls="plain")


def run_list(rows: Sequence[Row], place: Place, current: str) -> Html:
    """Return the rollouts, grouped by policy step."""
    items: list[Html] = []
    for step, group in groupby(rows, lambda row: row["policy_step"]):
        of_step = list(group)
        known = [value for one in of_step for value in rewards_of(one).values() if value is not None]
        mean = number(sum(known) / len(known), 2) if known else "-"
        items.append(h("li", f"policy step {step} · mean reward {mean}", cls="group"))
        items += [_item(row, place, current) for row in of_step]
    return listing(counted(len(rows), "rollout"), items)


def _item(row: Row, place: Place, current: str) -> Html:
    text = f"{row['environment'] or 'rollout'} · {row['num_turns']} turns · advantage {number(row['advantage'], 2)}"
    return item(place, "rollout", row["trace_id"], _badges(row), line(text), current=current)


def _badges(row: Row) -> list[Html | None]:
    """Return the outcome of a rollout, as labels."""
    findings = findings_of(row)
    rules = ", ".join(rule for rule, _ in findings)[:200]
    rewards = rewards_of(row).items()
    return [
        *(badge(f"{name} {number(value, 2)}", "ok" if (value or 0) > 0 else "bad") for name, value in rewards),
        badge(counted(row["num_sites"], "error"), "warn") if row["num_sites"] else None,
        badge(counted(row["num_hints"], "hint"), "info") if row["num_hints"] else None,
        badge(f"⚑ {counted(len(findings), 'finding')}", "bad", rules) if findings else None,
    ]


def run_detail(trace: Row, beside: Sequence[tuple[Row, Sequence[Row]]], place: Place) -> Html:
    """Return one rollout: the others of its prompt, the monitor, its hints, the conversation.

    `beside` has the rollouts of its policy step and prompt, itself among them, each with its steps.
    """
    known = trace["provenance"]
    own = next((row for row, _ in beside if row["trace_id"] == trace["trace_id"]), {})
    kept = {name: place[name] for name in ("dataset", "revision") if name in place}
    episode = own.get("episode") or {}
    task = episode.get("task_id")
    line = facts(
        [
            ("run", known.get("run_id")),
            ("policy", known.get("policy")),
            ("policy step", known.get("policy_step")),
            ("environment", known.get("environment") or "-"),
            ("task", h("a", task, href=address(kept, view="tasks", task=task)) if task else None),
            ("hidden reward", number(episode["reward"]) if isinstance(episode.get("reward"), float) else None),
            ("advantage", number(own.get("advantage"))),
            ("tokens", f"{len(known.get('completion_ids') or []):,}"),
        ]
    )
    session = h("a", "The whole session", href=address(kept, view="sessions", session=trace["trace_id"]))
    title = h("h1", "Rollout ", h("span", trace["trace_id"], cls="id"))
    return h(
        "article",
        h("header", title, h("p", _badges(own) if own else [], cls="labels"), line, session, cls="head"),
        _beside(beside, trace["trace_id"], place),
        card("Monitor", finding_list(findings_of(own))),
        _turns(trace),
        card("Conversation", conversation(trace["messages"])),
        data_rollout=trace["trace_id"],
        aria_label="Rollout",
    )


def _beside(beside: Sequence[tuple[Row, Sequence[Row]]], current: str, place: Place) -> Html | None:
    if len(beside) < 2:
        return None
    columns = []
    for row, steps in beside:
        here = row["trace_id"] == current
        turns = [
            h(
                "li",
                short_action(step["action"], 90),
                [error_badge(site["kind"], site["blame"]) for site in step["error_sites"]],
                [badge(writer_words(hint["writer"]), "info", hint["text"][:300]) for hint in step["hints"]],
            )
            for step in steps[:MAX_TURNS]
        ]
        rest = h("li", f"{len(steps) - MAX_TURNS:,} more turns", cls="quiet") if len(steps) > MAX_TURNS else None
        name = "this rollout" if here else h("a", row["trace_id"][:8], href=address(place, rollout=row["trace_id"]))
        advantage = h("p", f"advantage {number(row['advantage'], 2)}", cls="quiet")
        head = h("h3", name), h("p", _badges(row), cls="labels"), advantage
        columns.append(h("div", head, h("ol", turns, rest), cls="own" if here else None))
    shown = h("div", columns, cls="beside", tabindex="0", role="region", aria_label="Rollouts of the same prompt")
    return card("Beside the other rollouts of this prompt", shown)


def _turns(trace: Row) -> Html | None:
    rows = [
        (
            f"{place + 1}",
            [error_badge(site["kind"], site["blame"]) for site in step["error_sites"]],
            [h("span", short(hint["text"], 600)) for hint in step["hints"]] or "no hint",
        )
        for place, step in enumerate(trace["steps"])
        if step["error_sites"] or step["hints"]
    ]
    return card("Turns with errors", table("Turns with errors", ("turn", "error", "hint"), rows)) if rows else None
