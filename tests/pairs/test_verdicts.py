"""Reviewed verdicts decide what the next version holds, and a diff names what changed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.cli.main import root
from composer_hub.hub import Card, FolderDestination, load, publish
from composer_hub.pairs.dataset import reviewed_draft
from composer_hub.pairs.rows import pair_id_of
from composer_hub.pairs.tables import pairs_table
from composer_hub.pairs.verdicts import (
    ChangedPair,
    PairsDiff,
    PairVerdict,
    VerdictError,
    apply_verdicts,
    diff_pairs,
    read_verdicts,
)
from composer_hub.pairs.windows import estimate
from composer_hub.records import Message, Pair, ToolCall, canonical_json
from tests.figures import only_people_read


def action(name: str, **arguments: object) -> Message:
    return Message("assistant", "", (ToolCall(name, arguments, "abc"),))


def pair(step: str, chosen: Message | None = None, **fields: object) -> Pair:
    chosen = chosen or action("Read", path="a")
    rejected = action("Bash", command="ls")
    about = {"num_agree": 2, "num_votes": 2, "teachers": ("a", "b"), "chosen_teacher": "a"}
    return Pair(
        pair_id=pair_id_of("t", step, (chosen,), (rejected,)),
        trace_id="t",
        step_id=step,
        index=0,
        num_steps=3,
        prompt=(Message("user", "Fix it."),),
        chosen=(chosen,),
        rejected=(rejected,),
        tools=(),
        level="L2",
        excluded_teachers=(),
        families=("x",),
        source_model="m",
        source_family="q",
        chosen_text="C",
        rejected_text="R",
        **{**about, **fields},
    )


ONE, TWO, THREE = pair("1"), pair("2"), pair("3")


def said(about: Pair, verdict: str, reviewer: str = "ann", **fields: object) -> PairVerdict:
    return PairVerdict(about.pair_id, verdict, reviewer, **fields)


def test_pairs_without_a_verdict_stay_as_they_are() -> None:
    assert apply_verdicts([ONE, TWO], []) == ([ONE, TWO], {})


def test_accept_leaves_a_pair_and_reject_removes_it() -> None:
    assert apply_verdicts([ONE, TWO], [said(ONE, "accept"), said(TWO, "reject")]) == ([ONE], {"accept": 1, "reject": 1})


def test_swap_prefers_the_student_under_a_new_id() -> None:
    ((swapped,), counts) = apply_verdicts([ONE], [said(ONE, "swap")])
    assert counts == {"swap": 1}
    assert (swapped.chosen, swapped.rejected) == (ONE.rejected, ONE.chosen)
    assert (swapped.chosen_text, swapped.rejected_text, swapped.chosen_teacher) == ("R", "C", "student")
    assert swapped.pair_id == pair_id_of("t", "1", ONE.rejected, ONE.chosen) != ONE.pair_id


def test_an_edit_puts_the_reviewers_action_in_place() -> None:
    better = dataclasses.replace(action("Read", path="b"), content="Better.", reasoning_content="hm")
    ((edited,), counts) = apply_verdicts([ONE], [said(ONE, "edit", edited_chosen=(better,))])
    assert counts == {"edit": 1}
    assert edited.chosen[0].tool_calls[0].arguments == {"path": "b"}
    assert (edited.chosen[0].content, edited.chosen_text, edited.chosen_teacher) == ("", "Better.", "reviewer")
    assert not edited.chosen[0].reasoning_content


@pytest.mark.parametrize(("path", "supported"), [("/repo/a_long_name.py", True), ("/repo/never_seen.py", False)])
def test_a_changed_pair_has_the_numbers_of_a_pair_that_is_made_so(path: str, supported: bool) -> None:
    shown = (Message("user", "Fix /repo/a_long_name.py."),)
    num_tokens = 100 + estimate(shown, (), (*ONE.chosen, *ONE.rejected))
    before = dataclasses.replace(ONE, prompt=shown, num_tokens=num_tokens)
    better = action("Edit", file_path=path, old_string="Fix", new_string="x" * 500)
    ((edited,), _) = apply_verdicts([before], [said(before, "edit", edited_chosen=(better,))])
    assert edited.num_tokens == 100 + estimate(shown, (), (better, *ONE.rejected)), "the set's own count may differ"
    assert edited.supported == supported
    ((swapped,), _) = apply_verdicts([edited], [said(edited, "swap")])
    assert (swapped.num_tokens, swapped.supported) == (edited.num_tokens, True)
    assert {(one.kind, one.level, one.num_agree) for one in (edited, swapped)} == {("verdict", "", 0)}


def test_an_edit_equal_to_the_rejected_action_removes_the_pair() -> None:
    as_rejected = action("Bash", command="ls  ")
    assert apply_verdicts([ONE], [said(ONE, "edit", edited_chosen=(as_rejected,))]) == ([], {"edit_equals_rejected": 1})


def test_a_pair_on_which_reviewers_disagree_is_removed() -> None:
    assert apply_verdicts([ONE], [said(ONE, "accept"), said(ONE, "swap", "bob")]) == ([], {"conflict": 1})
    assert apply_verdicts([ONE], [said(ONE, "accept"), said(ONE, "accept", "bob")]) == ([ONE], {"accept": 1})


def test_a_reviewers_last_verdict_counts() -> None:
    verdicts = [said(ONE, "reject"), said(ONE, "accept")]
    assert apply_verdicts([ONE], verdicts) == ([ONE], {"accept": 1, "superseded": 1})


def test_verdicts_on_missing_pairs_are_counted() -> None:
    assert apply_verdicts([ONE], [said(TWO, "reject"), said(TWO, "accept", "bob")]) == ([ONE], {"unknown_pair": 2})


@pytest.mark.parametrize(
    ("verdict", "edited"), [("maybe", ()), ("edit", ()), ("edit", (Message("assistant", "words"),))]
)
def test_a_verdict_that_cannot_be_followed_is_refused(verdict: str, edited: tuple) -> None:
    with pytest.raises(VerdictError, match=f"ann.*{ONE.pair_id}"):
        said(ONE, verdict, edited_chosen=edited)


def test_a_diff_names_added_removed_and_changed_pairs() -> None:
    other = pair("2", action("Read", path="b"))
    assert diff_pairs([ONE, TWO], [ONE, other, THREE]) == PairsDiff(
        added=(THREE.pair_id,),
        removed=(),
        changed=(ChangedPair(TWO.pair_id, other.pair_id, ("pair_id", "chosen")),),
        num_same=1,
    )
    assert diff_pairs([ONE, TWO], [TWO]).removed == (ONE.pair_id,)


def test_the_later_of_two_verdicts_counts_whatever_their_order() -> None:
    late, early = said(ONE, "reject", created_at="2026-11-22T10:00:00"), said(ONE, "accept", created_at="2026-11-21")
    assert apply_verdicts([ONE], [late, early]) == ([], {"reject": 1, "superseded": 1})


def test_verdicts_on_hints_are_not_verdicts_on_pairs(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.jsonl"
    file.write_text(
        '{"target": "hint", "site_id": "s:1", "verdict": "wrong_blame", "reviewer": "ann"}\n'
        '{"target": "pair", "pair_id": "p", "verdict": "accept", "reviewer": "ann", "created_at": "2026"}\n'
    )
    assert list(read_verdicts(file)) == [PairVerdict("p", "accept", "ann", created_at="2026")]


CALL = {"id": "x", "type": "function", "function": {"name": "Read", "arguments": {"path": "b"}}}


def written(folder: Path, *calls: object, **fields: object) -> Path:
    """Return a file with an edit whose message has these calls."""
    edit = [{"role": "assistant", "content": "", "tool_calls": calls}]
    row = {"pair_id": ONE.pair_id, "verdict": "edit", "reviewer": "ann", "edited_chosen": edit, **fields}
    (folder / "verdicts.jsonl").write_text(f"\n{json.dumps(row)}\n")
    return folder / "verdicts.jsonl"


@pytest.mark.parametrize(
    "fields",
    [
        {"edited_chosen": [{"role": "assistant", "tool_calls": [{"function": function}]}]}
        for function in (
            {"name": 5, "arguments": 7}, {"name": "Bash", "arguments": "ls"}, {"name": "Bash", "arguments": [1]},
            {"name": ["Bash"], "arguments": {}}, {"name": "", "arguments": {}}, {}, "Bash", None,
        )
    ]
    + [
        {"edited_chosen": [{"role": "assistant", "content": ["x"], "tool_calls": [CALL]}]},
        {"edited_chosen": [{"role": "assistant", "tool_calls": [CALL]}] * 2},
        {"edited_chosen": "Read b"},
        {"pair_id": 5},
        {"reviewer": None},
        {"verdict": ["accept"]},
        {"created_at": 5},
        {"note": {"text": "no"}},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_verdict_is_refused_with_its_line_when_it_is_read(fields: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(VerdictError, match=r"verdicts\.jsonl:2 is not a verdict"):
        list(read_verdicts(written(tmp_path, CALL, **fields)))


def test_a_file_nested_too_deeply_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "verdicts.jsonl").write_text("[" * 100_000)
    with pytest.raises(VerdictError, match=r"verdicts\.jsonl:1 is not a verdict"):
        list(read_verdicts(tmp_path / "verdicts.jsonl"))


@pytest.mark.parametrize("arguments", [{"path": "\ud800"}, '{"path": "\\ud800"}'], ids=["object", "text"])
def test_an_edit_is_valid_unicode_however_its_arguments_are_written(arguments: object, tmp_path: Path) -> None:
    call = {"function": {"name": "Read", "arguments": arguments}}
    verdicts = read_verdicts(written(tmp_path, call, note="\ud800"))
    ((edited,), _) = apply_verdicts([ONE], verdicts)
    assert "\ufffd" in canonical_json(edited)
    canonical_json(edited).encode()


# ---------------------------------------------------------------------------------------------------------- commands


def test_the_command_names_every_number_of_a_review_in_json_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pairs_table([ONE, TWO, THREE], {"t": "train"})
    publish(FolderDestination(tmp_path), "me/pairs", [table], Card("pairs", "P", holes={"policy": "", "report": ""}))
    verdicts = [(ONE, "swap"), (ONE, "reject"), (TWO, "accept"), (THREE, "accept"), (pair("4"), "swap")]
    rows = [{"pair_id": about.pair_id, "verdict": verdict, "reviewer": "ann"} for about, verdict in verdicts]
    (tmp_path / "verdicts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = ["apply-verdicts", "me/pairs@v1.0.0", "--to", tmp_path, "--repo", "me/pairs", "--dry-run", "--verdicts"]

    def call(*more: object) -> tuple[str, str]:
        root.main(["pairs", *map(str, (*words, *more))], standalone_mode=False)
        return capsys.readouterr()

    told = "Verdicts on v1.0.0: accept 2, superseded 1, reject 1, unknown pair 1"
    assert told in call(tmp_path / "verdicts.jsonl", "--format", "human")[1]
    printed, _ = call(tmp_path / "verdicts.jsonl", "--format", "json")
    assert not only_people_read(told, printed)
    assert json.loads(printed)["verdicts"]["unknown_pair"] == 1


def test_a_reviewed_card_names_the_version_also_after_a_merge_that_has_no_tag(tmp_path: Path) -> None:
    card = Card("pairs", "P", holes={"policy": "", "report": ""})
    publish(FolderDestination(tmp_path), "me/pairs", [pairs_table([ONE], {"t": "train"})], card)
    merged = dataclasses.replace(load(FolderDestination(tmp_path), "me/pairs@v1.0.0"), tag="")
    draft, _ = reviewed_draft(merged, [PairVerdict(ONE.pair_id, "accept", "ann")])
    assert "The pairs of me/pairs v1.0.0 with" in draft.card.holes["policy"]


def test_a_review_that_leaves_no_pair_publishes_nothing(tmp_path: Path) -> None:
    card = Card("pairs", "P", holes={"policy": "", "report": ""})
    where = FolderDestination(tmp_path)
    publish(where, "me/pairs", [pairs_table([ONE], {"t": "train"})], card)
    with pytest.raises(exits.NothingToDo, match=r"No pair of me/pairs v1\.0\.0 is left after review \(reject 1\)"):
        reviewed_draft(load(where, "me/pairs@v1.0.0"), [PairVerdict(ONE.pair_id, "reject", "ann")])


@pytest.mark.parametrize("group", ["pairs", "traces"])
@pytest.mark.parametrize("text", ["", "\n", '{"target": "task"}\n'])
def test_a_file_without_verdicts_is_named(group: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / f"{group}.jsonl"
    file.write_text(text)
    with pytest.raises(exits.NothingToDo, match=rf"{group}\.jsonl holds no verdict for this command"):
        root.main([group, "apply-verdicts", "me/x", "--to", str(tmp_path), "--repo", "me/y", "--verdicts", str(file)],
                  standalone_mode=False)  # fmt: skip
