"""The parts of a pair set's card that are not tables of numbers: one pair shown, how it was bought, warnings.

In: a `PairSet`, its `Poll` and `Purchase`, the rows of its report. Out: Markdown, and sentences for stderr. The text of
pairs is hostile, so it appears in code blocks that it cannot close.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from composer_hub.actions.tools import family_of_tool
from composer_hub.money import show_usd
from composer_hub.output import plural
from composer_hub.pairs.policy import PanelTeacher, Policy, Poll
from composer_hub.pairs.purchase import Purchase
from composer_hub.pairs.report import Metric
from composer_hub.pairs.report_card import code, table
from composer_hub.pairs.same_effect import FORBIDDING
from composer_hub.records import Message, Pair

MAX_SHOWN = 700  # characters of each part of the pair that is shown
TELLING = (0.3, 0.7)
"""An AUC outside tells chosen from rejected by length or style alone."""
MIN_TELLING = 20  # pairs; of fewer, an AUC says nothing


def example(outlines: Iterable[Pair], pairs: Iterable[Pair]) -> str:
    """Show an edit or a command that most teachers agree on, the shortest such; only its prompt comes from `pairs`."""

    def rank(one: Pair) -> tuple[bool, int, int, str]:
        families = {family_of_tool(call.name, call.arguments) for side in one.chosen for call in side.tool_calls}
        acts = bool(families & {"edit", "shell"})
        return not acts, -one.num_agree, len(_calls(one.rejected)) + len(_calls(one.chosen)), one.pair_id

    best = min(outlines, key=rank, default=None)
    pair = next((one for one in pairs if best and one.pair_id == best.pair_id), None)
    if pair is None:
        return ""
    tail = pair.prompt[-1:]
    parts = [("The prompt ends with", "\n\n".join(f"[{one.role}] {words_of(one)}" for one in tail))]
    better = "the teachers" if pair.teachers else "the student, later"
    parts += [("`rejected`, the student", _calls(pair.rejected)), (f"`chosen`, {better}", _calls(pair.chosen))]
    shown = "\n\n".join(f"{title}:\n\n{fenced(text)}" for title, text in parts)
    names = ", ".join(code(name) for name in pair.teachers)
    votes = f"Votes: {pair.num_agree} of {pair.num_votes} teachers agree ({names}). " if names else ""
    return (
        f"{shown}\n\n{votes}Step {pair.index + 1} of "
        f"{pair.num_steps} of a session of {code(pair.source_model or 'an unknown model')}."
    )


def materials(
    policy: Policy, poll: Poll | None, purchase: Purchase | None, teachers: Sequence[str], prompts: str, judge: str
) -> str:
    """Describe how the votes were bought: teachers, policy, order, audit, recall, cap, money, what was not asked."""
    lines = [["Policy", policy_text(policy)], ["Judge", judge], ["Prompts", prompts]]
    if poll:
        lines.append(["Order", _order_text(poll)])
        lines += [[title, text] for title, text in _counts_text(poll) if text]
    if purchase:
        lines.append(["Money", f"{purchase.budget}"])
        retried = sum(bill.retried for bill in purchase.teachers.values())
        lines.append(["Billed without an answer", show_usd(retried)])
        lines.append(["Price lists", ", ".join(code(stamp) for stamp in purchase.price_stamps) or "none"])
    panel = poll.panel if poll else ()
    listed = [*panel, *([poll.judge] if poll and poll.judge else [])]
    parts = [*_origin_warning(panel), table(["bill of materials", ""], lines, num_texts=2)]
    parts.append(_panel_table(listed, purchase) or f"Teachers: {', '.join(code(name) for name in teachers)}.")
    return "\n\n".join(parts)


def judge_text(num_judged: int, num_pairs: int, drops: Mapping[str, int], poll: Poll | None) -> str:
    """Describe the judge's answers about the would-be pairs."""
    refused = {same: drops.get(f"judged_{same}", 0) for same in FORBIDDING}
    if not (num_judged or any(refused.values())):
        return "No judge was asked whether both actions of a pair have the same effect: `judged` is false."
    name = code(poll.judge.model) if poll and poll.judge else "A model"
    unjudged = num_pairs - num_judged
    left = f" Not judged: {plural(unjudged, 'pair')} (`judged` is false)." if unjudged else ""
    counts = ", ".join(f"{same} {num:,}" for same, num in refused.items())
    return (
        f"{name} was asked about both actions, in both orders, whether they have the same effect. No, twice: "
        f"{plural(num_judged, 'pair')}. Left out: {counts}.{left}"
    )


def policy_text(policy: Policy) -> str:
    """Describe when votes become a pair."""
    own = "left out" if policy.exclude_same_family else "counted too"
    window = f" Prompts above {policy.max_prompt_chars:,} characters were left out." if policy.max_prompt_chars else ""
    return (
        f"At least {policy.min_agree} teachers, and a majority of those whose vote counts, agree at "
        f"{policy.agree_level} or differ in nothing that is certain to matter. The student differs from them at "
        f"{policy.veto_level}, in something that is. Teachers of the student's "
        f"own family are {own}.{window}"
    )


def notes(metrics: Sequence[Metric], drops: Mapping[str, int], poll: Poll | None) -> Iterator[str]:
    """Yield sentences about a set for the person who makes it: why so few pairs, and what to look at."""
    num_pairs = next((int(row.value or 0) for row in metrics if row.metric == "pairs"), 0)
    reasons = ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in Counter(drops).most_common())
    steps = num_pairs + sum(drops.values())
    yield f"{plural(steps, 'step')} gave {plural(num_pairs, 'pair')}{f'; the others: {reasons}' if reasons else ''}."
    yield from (warning.replace("*", "").replace("`", "") for warning in _origin_warning(poll.panel if poll else ()))
    for metric, word in (("length_auc", "length"), ("style_leak_auc", "spelling")):
        auc = next((row.value for row in metrics if row.metric == metric), None)
        if auc is not None and num_pairs >= MIN_TELLING and not TELLING[0] <= auc <= TELLING[1]:
            yield (
                f"Warning: chosen and rejected can be told apart by {word} alone (AUC {auc:.2f}; 0.5 is chance), so a "
                f"model may learn the {word} instead of the choice. Look at some pairs before you train on them."
            )


def _origin_warning(panel: Sequence[PanelTeacher]) -> Iterator[str]:
    """Yield a warning if teachers were not models of a provider."""
    scripted = [code(one.name) for one in panel if one.is_scripted]
    local = [code(one.name) for one in panel if one.is_loopback and not one.is_scripted]
    if scripted:
        yield (
            f"**{', '.join(scripted)}: scripted teachers, not models.** Their answers, prices and latencies are made "
            "up. These pairs show that the machinery works; do not train on them."
        )
    if local:
        yield (
            f"**{', '.join(local)} ran on the publisher's machine.** Model names and prices are those that its server "
            "lists."
        )


def _order_text(poll: Poll) -> str:
    return (
        f"{code(poll.order)}; {poll.audit:.0%} of the steps were asked of every teacher (audit), {poll.repeat:.0%} "
        f"twice of the first (repeat)."
    )


def _counts_text(poll: Poll) -> Iterator[tuple[str, str]]:
    counts = poll.counts
    if counts is None:
        return
    left = counts.num_steps - counts.num_answered
    traces = plural(counts.num_traces, "trace")
    yield "Answered", f"{counts.num_answered:,} of {plural(counts.num_steps, 'step')} of {traces}"
    yield "Left unasked", f"{plural(left, 'step')}: the run ended before its questions did" if left else ""
    if counts.num_stopped_early:
        recall = "unknown: no step of the audit ended early"
        if counts.recall is not None and counts.recall_low is not None and counts.recall_high is not None:
            recall = (
                f"{counts.recall:.2f} ({counts.recall_low:.2f} to {counts.recall_high:.2f}) of what `--order all` "
                f"finds on the answered steps: {counts.num_missed} of {plural(counts.num_audited, 'audited step')} "
                "had a pair that the order would have missed"
            )
        yield "Recall of pairs", recall


def _panel_table(panel: Sequence[PanelTeacher], purchase: Purchase | None) -> str:
    def price(amount: float | None) -> str:
        return "-" if amount is None else f"{amount:g}"

    lines = []
    for one in panel:
        bill = purchase.teachers.get(one.name) if purchase else None
        rates = " / ".join(price(amount) for amount in (one.input_usd, one.cached_usd, one.output_usd))
        spent = [f"{bill.requests:,}", show_usd(bill.spent)] if bill else ["-", "-"]
        lines.append(
            [*map(code, (one.name, one.model, one.served_from, one.family or "?")), one.terms or "?", rates, *spent]
        )
    head = ["teacher", "model", "served from", "family", "terms", "$/M in / cached / out", "requests", "$"]
    return table(head, lines, num_texts=6)


# ----------------------------------------------------------------------------------------------------- text of a pair


def words_of(message: Message) -> str:
    """Return the text of a message with its calls."""
    return "\n".join(part for part in (message.content, _calls((message,))) if part)


def _calls(side: Sequence[Message]) -> str:
    calls = [call for message in side for call in message.tool_calls]
    return "\n".join(f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}" for call in calls)


def fenced(text: str) -> str:
    """Return text, cut in its middle if it is long, as a block of code that its own backticks do not end."""
    if len(text) > MAX_SHOWN:
        head, tail = text[: MAX_SHOWN // 2].rstrip(), text[-MAX_SHOWN // 2 :].lstrip()
        text = f"{head}\n… {len(text) - MAX_SHOWN:,} characters …\n{tail}"
    ticks = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}text\n{text}\n{fence}"
