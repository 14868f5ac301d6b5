"""Rollouts of a training run: rewards in a list, and one rollout with its tokens colored by what the trainer measured.

`provenance` of a rollout holds rewards, advantage and, for the sampled few, one number per token of the completion.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from inspector.address import address
from inspector.library import Dataset, Library
from inspector.markup import Html, badge, h, number, words
from inspector.messages import conversation

Row = Mapping[str, Any]
Place = Mapping[str, str]
MAX_ROLLOUTS = 2_000
MAX_TOKENS = 4_000
STEPS = 6  # shades of a heat-map, to each side
_MAPS = (
    ("divergence", "token_divergence", "Divergence between student and hinted teacher"),
    ("uplift", "token_uplift", "Log-probability with the hint minus without"),
    ("advantage", "token_advantage", "Advantage"),
)


def rollouts(library: Library, dataset: Dataset) -> list[dict[str, Any]]:
    """Return the rollouts of a run without their tokens, by policy step."""

    def read() -> list[dict[str, Any]]:
        return library.rows(
            "select trace_id, len(steps) as num_turns,"
            " list_sum(list_transform(steps, lambda one: len(one.error_sites)))::int as num_sites,"
            " list_sum(list_transform(steps, lambda one: len(one.hints)))::int as num_hints,"
            " (provenance->>'$.policy_step')::int as policy_step, (provenance->>'$.advantage')::double as advantage,"
            " provenance->>'$.environment' as environment, provenance->>'$.rewards' as rewards,"
            " coalesce(json_array_length(provenance, '$.token_advantage'), 0) > 0 as watched"
            f" from read_parquet(?) order by policy_step, trace_id limit {MAX_ROLLOUTS}",
            [dataset.files("traces")],
        )

    return dataset.once("rollouts", read)


def run_list(rows: Sequence[Row], place: Place, current: str) -> Html:
    """Return the rollouts, grouped by policy step."""
    if not rows:
        return h("div", h("p", "No rollouts", cls="count"))
    items: list[Html] = []
    last = None
    for row in rows:
        if row["policy_step"] != last:
            last = row["policy_step"]
            mean = _mean([value for one in rows if one["policy_step"] == last for value in _rewards(one).values()])
            items.append(h("li", f"policy step {last} · mean reward {number(mean, 2)}", cls="group"))
        items.append(_item(row, place, current))
    return h("div", h("p", f"{len(rows):,} rollouts", cls="count", role="status"), h("ol", items, cls="rows"))


def _item(row: Row, place: Place, current: str) -> Html:
    rewards = _rewards(row)
    labels = [
        badge(f"{name} {number(value, 2)}", "ok" if (value or 0) > 0 else "bad") for name, value in rewards.items()
    ]
    labels += [
        badge(_counted(row["num_sites"], "error"), "warn") if row["num_sites"] else None,
        badge(_counted(row["num_hints"], "hint"), "info") if row["num_hints"] else None,
        badge("tokens", "info", "the trainer looked at each token") if row["watched"] else None,
    ]
    text = f"{row['environment'] or 'rollout'} · {row['num_turns']} turns · advantage {number(row['advantage'], 2)}"
    link = h(
        "a",
        h("span", labels, cls="labels"),
        h("span", text, cls="line"),
        href=address(place, rollout=row["trace_id"]),
        data_item=row["trace_id"],
        aria_current="true" if row["trace_id"] == current else None,
    )
    return h("li", link)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _rewards(row: Row) -> dict[str, float | None]:
    values = json.loads(row["rewards"]) if isinstance(row["rewards"], str) else row["rewards"] or {}
    return {str(name): float(value) if isinstance(value, (int, float)) else None for name, value in values.items()}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def run_detail(trace: Row) -> Html:
    """Return one rollout: rewards, token maps, the hints' effect turn by turn, and the conversation."""
    facts = trace["provenance"]
    labels = [
        badge(f"{name} {number(value, 3)}", "ok" if (value or 0) > 0 else "bad")
        for name, value in _rewards({"rewards": facts.get("rewards")}).items()
    ]
    line = [
        ("run", facts.get("run_id")),
        ("policy", facts.get("policy")),
        ("policy step", facts.get("policy_step")),
        ("environment", facts.get("environment") or "-"),
        ("advantage", number(facts.get("advantage"))),
        ("tokens", f"{len(facts.get('completion_ids') or []):,}"),
    ]
    return h(
        "article",
        h(
            "header",
            h("h1", "Rollout ", h("span", trace["trace_id"], cls="id")),
            h("p", labels, cls="labels"),
            h("dl", [h("div", h("dt", name), h("dd", value)) for name, value in line], cls="facts"),
            cls="head",
        ),
        _turns(trace),
        _heat(facts),
        h("section", h("h2", "Conversation"), conversation(trace["messages"]), cls="card"),
        data_rollout=trace["trace_id"],
        aria_label="Rollout",
    )


def _turns(trace: Row) -> Html | None:
    facts = trace["provenance"]
    uplift, logps = facts.get("token_uplift") or [], facts.get("logps") or []
    lines = []
    for number_, step in enumerate(trace["steps"]):
        if not (step["error_sites"] or step["hints"]):
            continue
        span = (facts.get("turns") or [])[number_ : number_ + 1]
        lines.append(
            h(
                "tr",
                h("th", f"{number_ + 1}", scope="row"),
                h("td", [badge(words(site["kind"]), "bad") for site in step["error_sites"]]),
                h("td", [h("span", hint["text"]) for hint in step["hints"]] or "no hint"),
                h("td", probability(logps, uplift, span[0]) if span else "-", cls="num"),
            )
        )
    if not lines:
        return None
    names = ("turn", "error", "hint", "probability per token of the action: before → after the hint")
    head = h("tr", [h("th", name, scope="col") for name in names])
    table = h("table", h("caption", "Turns with errors", cls="sr"), h("thead", head), h("tbody", lines))
    return h(
        "section",
        h("h2", "Hints and their effect"),
        h("div", table, cls="scroll", tabindex="0", role="region", aria_label="Turns"),
        cls="card",
    )


def probability(logps: Sequence[float | None], uplift: Sequence[float | None], span: Sequence[int]) -> str:
    """Return the mean probability of a turn's tokens when sampled, and with the hint in the prompt."""
    start, stop = span
    both = [
        (before, change)
        for before, change in zip(logps[start:stop], uplift[start:stop], strict=False)
        if before is not None and change is not None
    ]
    if both:
        before = sum(one for one, _ in both) / len(both)
        change = sum(one for _, one in both) / len(both)
        return f"{math.exp(before):.3f} → {math.exp(min(0.0, before + change)):.3f}"
    known = [change for change in uplift[start:stop] if change is not None]
    # Without the probabilities of the policy, their ratio is still known.
    return f"x {math.exp(sum(known) / len(known)):.2f}" if known else "not measured"


def _heat(facts: Row) -> Html:
    ids = facts.get("completion_ids") or []
    texts = facts.get("token_texts") or []
    mask = facts.get("tool_mask") or []
    measured = [(name, title, facts.get(column) or []) for name, column, title in _MAPS]
    maps = [one for one in measured if any(value is not None for value in one[2])]
    if not maps:
        return h(
            "section",
            h("h2", "Tokens"),
            h("p", "The trainer did not look at the tokens of this rollout.", cls="quiet"),
            cls="card",
        )
    tabs = [
        h("button", name, type="button", data_map=name, aria_pressed="true" if at == 0 else "false", title=title)
        for at, (name, title, _) in enumerate(maps)
    ]
    views = []
    for at, (name, title, values) in enumerate(maps):
        scale = max((abs(value) for value in values if value is not None), default=0.0) or 1.0
        tokens = [
            _token(
                texts[place] if place < len(texts) else f"#{ids[place]} ",
                values[place] if place < len(values) else None,
                scale,
                sampled=place >= len(mask) or bool(mask[place]),
            )
            for place in range(min(len(ids), MAX_TOKENS))
        ]
        note = f"{title}; the darkest shade is ±{number(scale)}. Tokens of tools are gray."
        views.append(
            h(
                "div",
                h("p", note, cls="quiet"),
                h("p", tokens, cls="tokens", tabindex="0"),
                data_heat=name,
                hidden=at > 0,
            )
        )
    cut = h("p", f"{len(ids) - MAX_TOKENS:,} more tokens", cls="quiet") if len(ids) > MAX_TOKENS else None
    return h(
        "section",
        h("h2", "Tokens"),
        h("div", tabs, cls="toggle", role="group", aria_label="Map"),
        views,
        cut,
        cls="card",
    )


def _token(text: str, value: float | None, scale: float, *, sampled: bool) -> Html:
    if value is None:
        return h("span", text, cls="" if sampled else "tool-token")
    shade = min(STEPS, round(abs(value) / scale * STEPS))
    side = "up" if value >= 0 else "down"
    return h("span", text, cls=f"heat {side}{shade}", title=number(value))
