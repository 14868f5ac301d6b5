"""Review: pairs and reviewers' verdicts -> the pairs of the next version; and the difference of two versions.

`accept` leaves a pair, `reject` removes it, `swap` prefers the student's action after all, `edit` puts the reviewer's
action in place of the teachers'. A pair on which reviewers disagree is removed: it is not a clear preference.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from composer_hub.actions.arguments import parsed_arguments
from composer_hub.actions.forms import ActionContext, normalize, same
from composer_hub.hub import verdicts as hub_verdicts
from composer_hub.hub.verdicts import VerdictError
from composer_hub.pairs.rows import keeps_books, pair_id_of, published_action
from composer_hub.pairs.windows import estimate, is_supported
from composer_hub.records import Message, Pair, to_row

VERDICTS = ("accept", "reject", "swap", "edit")
KIND = "verdict"  # of a pair that a reviewer, or the tests, made another one


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """One reviewer's verdict on one pair."""

    pair_id: str
    verdict: str
    reviewer: str
    note: str = ""
    edited_chosen: tuple[Message, ...] = ()
    created_at: str = ""  # ISO 8601 in UTC; of two verdicts by a reviewer the later one counts

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise VerdictError(
                f"{self.verdict!r} by {self.reviewer} on pair {self.pair_id} is not a verdict ({', '.join(VERDICTS)})."
            )
        if self.verdict == "edit" and not _is_action(self.edited_chosen):
            raise VerdictError(
                f"The edit of {self.reviewer} on pair {self.pair_id} needs one message in edited_chosen, with tool "
                "calls that have a name and an object as arguments; write it, or use reject."
            )


def _is_action(edited: Sequence[Message]) -> bool:
    calls = [call for message in edited for call in message.tool_calls]
    return len(edited) == 1 and bool(calls) and isinstance(edited[0].content, str) and all(
        isinstance(call.name, str) and call.name and parsed_arguments(call) is not None for call in calls
    )  # fmt: skip


def read_verdicts(path: Path) -> Iterator[PairVerdict]:
    """Yield the verdicts of a JSONL file that are on pairs; reviewers also judge hints."""
    return hub_verdicts.read_verdicts(path, "pair", _verdict_of)


def _verdict_of(row: Mapping[str, Any]) -> PairVerdict:
    edited = tuple(Message.from_chat(message) for message in row.get("edited_chosen") or ())
    note, created_at = (row.get(name) or "" for name in ("note", "created_at"))
    return PairVerdict(row["pair_id"], row["verdict"], row["reviewer"], note, edited, created_at)


def apply_verdicts(pairs: Iterable[Pair], verdicts: Iterable[PairVerdict]) -> tuple[list[Pair], Counter[str]]:
    """Return the pairs after review, in their order, and the number of verdicts by outcome."""
    counts: Counter[str] = Counter()
    by_pair = hub_verdicts.latest(verdicts, lambda verdict: verdict.pair_id, counts)
    kept: list[Pair] = []
    for pair in pairs:
        changed, outcome = _reviewed(pair, by_pair.pop(pair.pair_id, []))
        if outcome:
            counts[outcome] += 1
        if changed is not None:
            kept.append(changed)
    counts["unknown_pair"] += sum(len(left) for left in by_pair.values())
    return kept, +counts


def _reviewed(pair: Pair, verdicts: Sequence[PairVerdict]) -> tuple[Pair | None, str]:
    if not verdicts:
        return pair, ""
    first = verdicts[0]
    if any((one.verdict, one.edited_chosen) != (first.verdict, first.edited_chosen) for one in verdicts):
        return None, "conflict"
    if first.verdict in ("accept", "reject"):
        return (pair if first.verdict == "accept" else None), first.verdict
    if first.verdict == "swap":
        return _swapped(pair), "swap"
    return _edited(pair, first.edited_chosen[0])


def _swapped(pair: Pair) -> Pair:
    return _decided(
        pair,
        chosen=pair.rejected,
        rejected=pair.chosen,
        chosen_text=pair.rejected_text,
        rejected_text=pair.chosen_text,
        chosen_teacher="student",
    )


def _edited(pair: Pair, edited: Message) -> tuple[Pair | None, str]:
    chosen = (published_action(edited, with_prose=bool(pair.chosen[0].content)),)
    context = ActionContext()
    if same(normalize(chosen[0], context), normalize(pair.rejected[0], context)):
        return None, "edit_equals_rejected"
    edited_pair = _decided(
        pair,
        chosen=chosen,
        chosen_text=edited.content,
        chosen_teacher="reviewer",
        judged=False,
        judge_answer="",
        judge_reason="",
    )
    return edited_pair, "edit"


def _decided(pair: Pair, **changes: Any) -> Pair:
    """Return the pair with the sides that a verdict asks for, and the columns that follow from them."""
    new = replace(pair, **changes, level="", teachers=(), families=(), num_agree=0, kind=KIND, student_did_later=False)
    before, after = (estimate(one.prompt, one.tools, (*one.chosen, *one.rejected)) for one in (pair, new))
    return replace(
        new,
        pair_id=pair_id_of(new.trace_id, new.step_id, new.chosen, new.rejected),
        # The tokenizer of the set may not be here, so its count of the old action changes by the estimate.
        num_tokens=pair.num_tokens + after - before,
        # A pair holds its window alone: names that the rest of the prompt shows are not known.
        supported=is_supported(new.prompt, new.chosen[0], new.prompt),
        bookkeeping=any(map(keeps_books, (*new.chosen, *new.rejected))),
    )


# ------------------------------------------------------------------------------------------------------------ diff


@dataclass(frozen=True, slots=True)
class ChangedPair:
    """A step that has a pair in both versions, and the columns in which they differ."""

    before: str  # pair_id
    after: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PairsDiff:
    """The difference of two versions of a pair set; pairs are matched by their step."""

    added: tuple[str, ...]  # pair ids
    removed: tuple[str, ...]
    changed: tuple[ChangedPair, ...]
    num_same: int


def diff_pairs(before: Iterable[Pair], after: Iterable[Pair]) -> PairsDiff:
    """Return the changes from one version to the next, in the order of the rows."""
    old = {(pair.trace_id, pair.step_id): pair for pair in before}
    new = {(pair.trace_id, pair.step_id): pair for pair in after}
    both = [(old[key], new[key]) for key in new if key in old]
    changed = tuple(
        ChangedPair(one.pair_id, other.pair_id, fields) for one, other in both if (fields := _differing(one, other))
    )
    return PairsDiff(
        added=tuple(pair.pair_id for key, pair in new.items() if key not in old),
        removed=tuple(pair.pair_id for key, pair in old.items() if key not in new),
        changed=changed,
        num_same=len(both) - len(changed),
    )


def _differing(one: Pair, other: Pair) -> tuple[str, ...]:
    before, after = to_row(one), to_row(other)
    return tuple(field.name for field in dataclasses.fields(Pair) if before[field.name] != after[field.name])
