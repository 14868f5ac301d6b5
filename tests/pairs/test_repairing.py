"""A student's own later call becomes `chosen` where the session proves it, and nowhere else; nobody is asked."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from composer_hub import exits, hub
from composer_hub.actions.action import actions_of
from composer_hub.cli.main import root
from composer_hub.errors.context import context_of
from composer_hub.errors.corrections import correction_of
from composer_hub.ingest.dataset import trace_tables
from composer_hub.pairs import make_repairs, repairs
from composer_hub.records import Pair, Trace
from tests.hints.test_writers import EDITED, NOT_READ, PROVEN, READ, SILENT, shell, trace_of, wrong_file


@pytest.mark.parametrize("made", [made for made, _ in PROVEN], ids=[text for _, text in PROVEN])
def test_the_call_that_worked_is_chosen_over_the_one_that_failed(made: list[tuple[str, object, str]]) -> None:
    trace = trace_of(*made)
    site = next(iter(trace.steps[0].error_sites))
    found = correction_of(context_of(trace, 0, site, actions_of(trace)))
    assert found is not None
    pairs, drops = repairs(trace)
    if not pairs:  # a listing shows the path; or the path was learned later, or the later call does less
        assert set(drops) <= ({"learned_later", "another_purpose"} if found.call else {"no_proof"})
        return
    (pair,) = pairs
    (chosen,), (rejected,) = pair.chosen[0].tool_calls, pair.rejected[0].tool_calls
    assert found.call is not None
    assert (chosen.name, chosen.arguments) == (found.call.name, found.call.arguments)
    assert (rejected.name, rejected.arguments) == (made[0][0], made[0][1])
    assert (pair.kind, pair.num_votes, pair.teachers, pair.cost_usd) == ("own_repair", 0, (), 0.0)
    assert not pair.student_did_later
    assert len(pair.prompt) == trace.steps[0].action  # the context before the failure


def test_most_proofs_of_hints_give_a_pair() -> None:
    assert sum(bool(repairs(trace_of(*made))[0]) for made, _ in PROVEN) >= 13


LEFT = {
    "learned_later": [wrong_file("/repo/src/core/parser.py"), ("Read", {"file_path": "/repo/lib/parser.py"}, "x")],
    "another_purpose": [
        shell("cargo test one two && cargo fmt", "Exit code 1\nerror: unexpected argument 'two' found\n\nUsage: x"),
        shell("cargo test one"),
    ],
}


@pytest.mark.parametrize("reason", LEFT)
def test_a_later_call_that_does_less_or_knows_more_gives_no_pair(reason: str) -> None:
    pairs, drops = repairs(trace_of(*LEFT[reason]))
    assert (pairs, dict(drops)) == ([], {reason: 1})


def test_a_file_that_changed_after_it_was_read_is_no_fault_of_the_students() -> None:
    pairs, drops = repairs(trace_of(READ, NOT_READ, READ, EDITED))
    assert (pairs, dict(drops)) == ([], {"another_purpose": 1})
    assert len(repairs(trace_of(NOT_READ, READ, EDITED))[0]) == 1


@pytest.mark.parametrize("name", SILENT)
def test_without_a_proof_there_is_no_pair(name: str) -> None:
    assert repairs(trace_of(*SILENT[name]))[0] == []


def test_one_of_several_calls_proves_nothing_about_the_others() -> None:
    trace = trace_of(*PROVEN[9][0])
    assert len(repairs(trace)[0]) == 1
    action = trace.steps[0].action
    message, messages = trace.messages[action], list(trace.messages)
    other = dataclasses.replace(message.tool_calls[0], call_id="other")
    messages[action] = dataclasses.replace(message, tool_calls=(*message.tool_calls, other))
    assert repairs(dataclasses.replace(trace, messages=tuple(messages))) == ([], {"several_calls": 1})


def repaired(cwd: str = "/repo") -> Trace:
    trace = trace_of(shell("git log --onelin -3", "Exit code 128\nfatal: unrecognized argument: --onelin"),
                     shell("git log --oneline -3"), cwd=cwd)  # fmt: skip
    return dataclasses.replace(trace, redaction="rules-1")


def test_a_set_of_repairs_has_each_content_once() -> None:
    made = make_repairs([repaired(), repaired()])
    assert (len(made.pairs), dict(made.drops), made.policy) == (1, {"duplicate": 1}, None)


def test_the_command_publishes_repairs_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = hub.FolderDestination(tmp_path / "hub")
    card = hub.Card("traces", "Traces", holes={"origin": "", "redaction": ""})
    hub.publish(where, "me/traces", trace_tables(lambda: iter([repaired()])), card)
    place = ["--to", str(tmp_path / "hub"), "--repo", "me/pairs"]
    root.main(["pairs", "build", "me/traces", "--from", "own-repairs", *place], standalone_mode=False)
    version = hub.load(where, "me/pairs")
    assert [pair.kind for pair in version.records(Pair, "default")] == ["own_repair"]
    text = "".join(path.read_text() for path in (tmp_path / "hub").rglob("README.md"))
    assert "No teacher was asked." in text
    assert "`chosen`, the student, later" in text
    assert "Votes:" not in text
    with pytest.raises(exits.UsageError, match="--run"):
        root.main(["pairs", "build", "me/none", *place], standalone_mode=False)  # before anything is read
    run = ["--run", str(tmp_path), "--from", "own-repairs"]
    with pytest.raises(exits.UsageError, match="asks nobody"):
        root.main(["pairs", "build", "me/traces", *run, *place], standalone_mode=False)
