"""A new column of `Pair` is not forgotten: where pairs are made, in the index that the Space lists, and by verdicts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest

from composer_hub.pairs import PairOptions, Policy, build_pairs, repairs
from composer_hub.pairs.rows import pair_row
from composer_hub.pairs.same_effect import JUDGED, subject_of
from composer_hub.pairs.tables import pair_rows_table
from composer_hub.pairs.verdicts import KIND, PairVerdict, apply_verdicts
from composer_hub.records import Message, Pair, ToolCall
from tests.hints.test_writers import PROVEN, trace_of

COLUMNS = {field.name for field in dataclasses.fields(Pair)}
LIGHT = {
    name
    for name, hint in get_type_hints(Pair).items()
    if not {Message, dict[str, Any]} & {*get_args(hint)} and not name.endswith(("_id", "_text"))
}  # fmt: skip

NOT_IN_THE_INDEX = {  # the list neither shows nor filters by these
    "excluded_teachers", "license", "num_left_out", "num_tokens", "num_shortened", "supported", "student_did_later",
    "bookkeeping", "judge_answer", "judge_reason", "kind", "tools",
}  # fmt: skip
OF_BOTH_SIDES = {  # these hold whichever side is chosen, and for a reviewer's action
    "trace_id", "step_id", "index", "num_steps", "prompt", "tools", "num_votes", "excluded_teachers", "source_model",
    "source_family", "error_kind", "after_error", "resolved", "cost_usd", "license", "repository", "num_left_out",
    "num_shortened",
}  # fmt: skip
RESET = {  # by each verdict that makes another pair
    "swap": {
        "pair_id", "chosen", "rejected", "chosen_text", "rejected_text", "chosen_teacher", "teachers", "families",
        "num_agree", "student_did_later", "level", "kind", "supported",
    },
    "edit": {
        "pair_id", "chosen", "chosen_text", "chosen_teacher", "teachers", "families", "num_agree", "student_did_later",
        "level", "kind", "supported", "num_tokens", "bookkeeping", "judged", "judge_answer", "judge_reason",
    },
}  # fmt: skip
OF_EDITS = {"num_tokens", "bookkeeping", "judged", "judge_answer", "judge_reason"}  # of two actions in either order
LONG = "a_file_with_a_long_name.py"


def action(path: str, tool: str = "Read") -> Message:
    return Message("assistant", f"I read {path}.", (ToolCall(tool, {"path": path}, "abc"),))


def full_pair() -> Pair:
    """Return a pair whose every column has a value that differs from its default."""
    values: dict[str, Any] = {
        "chosen": (action("a.py", "TodoWrite"),), "rejected": (action("b.py"),), "tools": ({"x": 1},),
        "prompt": (Message("user", f"Read b.py and {LONG}."),),
    }  # fmt: skip
    by_type = {int: 3, float: 1.5, str: "text", bool: True, bool | None: True, tuple[str, ...]: ("one", "two")}
    for name, hint in get_type_hints(Pair).items():
        values.setdefault(name, by_type.get(hint))
    values |= {"supported": False, "chosen_text": "I read a.py.", "rejected_text": "I read b.py."}
    defaults = {field.name: field.default for field in dataclasses.fields(Pair)}
    plain = [name for name, value in values.items() if value is None or value == defaults[name]]
    assert not plain, f"full_pair() has no value for {plain}: give one in by_type, or by name beside supported."
    return Pair(**values)


def test_every_column_has_a_value_in_some_pair(make_trace: Callable[..., Any], make_vote: Callable[..., Any]) -> None:
    read, listed, todo = (
        ("Read", {"file_path": "/repo/never_seen.py"}),
        ("Bash", {"command": "ls"}),
        ("TodoWrite", {"todos": []}),
    )
    long = ["é" * 900, "é" * 900, "é" * 9000, "missing", "ok"]
    trace = make_trace(listed, read, todo, listed, listed, name="full", results=long, errors=[2], resolved=True)
    votes = [make_vote(trace, at, name, read, text="I look.") for at in (0, 2, 3) for name in ("a-x", "b-x", "qwen-x")]
    subject = subject_of(Message("assistant", "", (ToolCall(*read),)))
    for order in (0, 1):
        said = '{"same": "no", "why": "Other files."}'
        votes.append(make_vote(trace, 0, "judge", text=said, status=JUDGED, attempt=order, normal_form=subject))
    options = PairOptions(max_tokens=1500)
    made, _ = build_pairs(trace, votes, policy=Policy(min_agree=2), options=options)
    made += [pair for session, _ in PROVEN for pair in repairs(trace_of(*session))[0]]
    defaults = {field.name: field.default for field in dataclasses.fields(Pair)}
    empty = [name for name in sorted(COLUMNS) if all(getattr(pair, name) in (defaults[name], ()) for pair in made)]
    assert not empty, (
        f"No pair has a value of {empty}: compute it in pairs/rows.py, or extend the session of this test."
    )


def test_every_light_column_is_in_the_index_or_left_out_on_purpose() -> None:
    table = pair_rows_table([])
    indexed = {*table.index_columns} - {"trace_id"}
    undecided, both = LIGHT - NOT_IN_THE_INDEX - indexed, NOT_IN_THE_INDEX & indexed
    assert not undecided, (
        f"{sorted(undecided)}: if the list of the Space shows the column or filters by it, name it in _INDEX_COLUMNS "
        "of pairs/tables.py and in _COLUMNS of space/inspector/pair_index.py; otherwise in NOT_IN_THE_INDEX here."
    )
    assert not both, f"Take {sorted(both)} out of NOT_IN_THE_INDEX: the index has it."
    assert {*table.index_columns} == LIGHT - NOT_IN_THE_INDEX | {"trace_id"}, "Name columns of Pair that are light."


def test_every_column_is_kept_or_reset_by_a_verdict() -> None:
    reset = RESET["swap"] | RESET["edit"]
    undecided = COLUMNS - OF_BOTH_SIDES - reset
    assert not undecided, (
        f"{sorted(undecided)}: if the value holds whichever action is chosen, name it in OF_BOTH_SIDES; if not, "
        "_swapped, _edited or _decided of pairs/verdicts.py sets it: name it in RESET for each verdict that does."
    )
    assert OF_BOTH_SIDES | reset == COLUMNS, "A name in OF_BOTH_SIDES or RESET is not a column any more."
    assert OF_BOTH_SIDES.isdisjoint(reset), "A column is either in OF_BOTH_SIDES or in RESET."
    assert RESET["edit"] - RESET["swap"] == OF_EDITS, "Name in OF_EDITS what an edit resets and a swap does not."


@pytest.mark.parametrize("verdict", RESET)
def test_a_verdict_resets_exactly_what_no_longer_holds(verdict: str) -> None:
    pair = full_pair()
    edited = (action(LONG),) if verdict == "edit" else ()
    ((other,), _) = apply_verdicts([pair], [PairVerdict(pair.pair_id, verdict, "ann", edited_chosen=edited)])
    reset = {name for name in COLUMNS if getattr(other, name) != getattr(pair, name)}
    assert reset == RESET[verdict], (
        f"{sorted(reset ^ RESET[verdict])}: pairs/verdicts.py resets it or RESET names it, and not both."
    )


@pytest.mark.parametrize("verdict", RESET)
def test_a_verdict_makes_the_pair_that_would_be_built_of_its_action(
    verdict: str, make_trace: Callable[..., Any]
) -> None:
    trace = make_trace(("Bash", {"command": "ls"}), ("Read", {"file_path": "/repo/never_seen.py"}))
    step = trace.steps[1]
    student, teacher, edited = trace.messages[step.action], action("b.py", "TodoWrite"), action(LONG)
    pair = pair_row(trace, step, teacher, tools=({"x": 1},), options=PairOptions(), chosen_teacher="a", num_agree=2)
    ((other,), _) = apply_verdicts([pair], [PairVerdict(pair.pair_id, verdict, "ann", edited_chosen=(edited,))])
    chosen, by = (edited, "reviewer") if verdict == "edit" else (student, "student")
    if verdict == "swap":
        messages = (*trace.messages[: step.action], teacher, *trace.messages[step.action + 1 :])
        trace = dataclasses.replace(trace, messages=messages)
    fresh = pair_row(trace, step, chosen, tools=({"x": 1},), options=PairOptions(), chosen_teacher=by, kind=KIND)
    wrong = [name for name in sorted(COLUMNS) if getattr(other, name) != getattr(fresh, name)]
    assert not wrong, f"After a {verdict}, {wrong} is not what pair_row makes of that action: set it in _decided."
