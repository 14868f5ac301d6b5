"""One policy for asking and for pairing: votes answer the policy they were asked for, and no other in part."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits
from composer_hub.cli.main import main
from composer_hub.hub import Card, FolderDestination, Table, load, publish
from composer_hub.money import NANO
from composer_hub.pairs.consensus import build_pairs
from composer_hub.pairs.policy import PanelTeacher, Policy, PolicyError, Poll, PollCounts
from composer_hub.pairs.rows import ASIDE
from composer_hub.records import Pair, Trace, Vote, features_of, to_row
from composer_hub.replay.collecting import collect
from composer_hub.replay.fake import SCRIPTED, TeacherServer, oracle_of, serving
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ORDERS, ReplayOptions
from tests.replay.sample import teachers_at, trace_of

TEACHERS = ("small", "medium", "large")
NUM_ERRORS = 6


def own_program_at_each_step(trace: Trace) -> Trace:
    """Call another program at each step, so that the right action is far from the one that failed."""
    messages = [
        dataclasses.replace(
            message,
            tool_calls=tuple(
                dataclasses.replace(call, arguments={"command": call.arguments["command"].replace(" ", "_")})
                for call in message.tool_calls
            ),
        )
        for message in trace.messages
    ]
    return dataclasses.replace(trace, messages=tuple(messages))


TRACES = [own_program_at_each_step(trace_of(9, name=f"t{number}")) for number in range(2)]  # 3 of 9 steps fail


@pytest.fixture(scope="module")
def unanimous() -> Iterator[str]:
    """Serve three teachers that always do what is right: the call that later worked, or what the student did."""
    always_right = [dataclasses.replace(policy, accuracy=1.0) for policy in SCRIPTED]
    with serving(TeacherServer(always_right, oracle=oracle_of(TRACES))) as url:
        yield url


def votes_for(url: str, folder: Path, options: ReplayOptions) -> dict[str, list[Vote]]:
    votes = defaultdict(list)
    with Ledger(folder / "ledger.sqlite", cap=NANO) as ledger:
        for vote in collect(TRACES, teachers_at(url), ledger, options, environ={}):
            votes[vote.trace_id].append(vote)
    return votes


@pytest.mark.parametrize("order", ORDERS)
def test_three_unanimous_teachers_give_a_pair_at_every_error_if_all_three_must_agree(
    unanimous: str, tmp_path: Path, order: str
) -> None:
    policy = Policy(min_agree=3)
    votes = votes_for(unanimous, tmp_path, ReplayOptions(order, policy, audit=0, repeat=0))
    pairs = [pair for trace in TRACES for pair in build_pairs(trace, votes[trace.trace_id], policy=policy)[0]]
    assert [pair.num_agree for pair in pairs] == [3] * NUM_ERRORS
    asked = sum(vote.status == "voted" for cast in votes.values() for vote in cast)
    assert asked == (18 + 2 * NUM_ERRORS if order == "cascade" else 3 * 18)


@pytest.mark.parametrize("order", ["cascade", "sequential"])
def test_the_command_line_refuses_votes_that_stopped_too_early_and_says_what_to_run(
    unanimous: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], order: str
) -> None:
    store, folder = tmp_path / "store", tmp_path / "run"
    table = Table("traces", [to_row(trace) for trace in TRACES], features_of(Trace), "trace_id")
    publish(FolderDestination(store), "me/traces", [table], Card("traces", "T", holes={"origin": "", "redaction": ""}))

    def call(*words: object) -> int:
        try:
            main([*map(str, words), "--from" if words[0] == "replay" else "--to", str(store)])
        except SystemExit as error:
            return int(error.code or 0)
        return exits.DONE

    names = ",".join(f"{unanimous}#{name}" for name in TEACHERS)
    replay = ("replay", "run", "me/traces", "--teachers", names, "--max-usd", 1, "--max-tokens", 200, "--run", folder)
    replay = (*replay, "--order", order, "--audit", 0, "--repeat", 0)
    build = ("pairs", "build", "me/traces", "--run", folder, "--repo", "me/pairs", "--keep", ASIDE[1])
    assert call(*replay) == exits.DONE
    assert call(*build, "--min-agree", 3) == exits.USAGE
    error = capsys.readouterr().err
    assert "stopped asking by teachers that agreed (2, not 3)" in error
    assert "--min-agree 3" in error
    assert call(*replay, "--min-agree", 3) == exits.DONE
    assert call(*build) == exits.DONE
    pairs = load(FolderDestination(store), "me/pairs").records(Pair, "default")
    assert [pair.num_agree for pair in pairs] == [3] * NUM_ERRORS
    assert call(*build, "--min-agree", 4) == exits.USAGE
    assert "the run asked 3 (small, medium, large)" in capsys.readouterr().err


ASKED = Policy(min_agree=3, agree_level="L2", veto_level="L3", max_prompt_chars=500)


@pytest.mark.parametrize(
    ("order", "changes", "option"),
    [
        ("all", {"min_agree": 2}, None),
        ("all", {"agree_level": "L1", "veto_level": "L2"}, None),
        ("all", {"exclude_same_family": False}, "--same-family"),
        ("all", {"max_prompt_chars": 600}, "--max-prompt-chars 600"),
        ("all", {"max_prompt_chars": 400}, None),
        ("sequential", {"min_agree": 2}, "--min-agree 2"),
        ("sequential", {"agree_level": "L1"}, "--agree-level L1"),
        ("sequential", {"veto_level": "L2"}, None),
        ("cascade", {"veto_level": "L4"}, None),
        ("cascade", {"veto_level": "L2", "min_agree": 2}, "--min-agree 2 --veto-level L2"),
        ("cascade", {"min_agree": 4}, "more --teachers"),
    ],
)
def test_a_poll_answers_a_policy_only_if_it_asked_for_every_vote_the_policy_needs(
    order: str, changes: dict[str, object], option: str | None
) -> None:
    poll = Poll(order, TEACHERS, ASKED)
    wanted = dataclasses.replace(ASKED, **changes)
    if option is None:
        poll.check(wanted)
    else:
        with pytest.raises(PolicyError, match=option):
            poll.check(wanted)


def test_a_poll_is_read_back_as_it_was_written_and_a_missing_one_names_the_command(tmp_path: Path) -> None:
    poll = Poll("cascade", TEACHERS, ASKED)
    poll.write(tmp_path)
    assert Poll.read(tmp_path) == poll
    with pytest.raises(PolicyError, match=r"poll.json is missing.*replay run"):
        Poll.read(tmp_path / "elsewhere")


def test_a_poll_with_a_value_of_another_type_cannot_be_read(tmp_path: Path) -> None:
    teacher = PanelTeacher("a", "a", "f", "host", "", True, 1.0, None, 2.0, "stamp", "id")
    whole = Poll("cascade", TEACHERS, ASKED, panel=(teacher,), counts=PollCounts(), judge=teacher)
    row = json.loads(json.dumps(dataclasses.asdict(whole)))
    texts = ["", "[]", "null", "{}", "5", "[" * 100_000, json.dumps(row)[:-20]]
    for name in row:
        texts += [json.dumps({**row, name: value}) for value in list[Any]([True, "x", [[5]], [{}]])]
        if isinstance(row[name], dict):
            texts += [json.dumps({**row, name: {**row[name], inner: [[]]}}) for inner in row[name]]
    texts.remove(json.dumps({**row, "order": "x"}))  # an order like any other
    for text in texts:
        (tmp_path / "poll.json").write_text(text)
        with pytest.raises(PolicyError, match=r"cannot be read.*replay run"):
            Poll.read(tmp_path)


@pytest.mark.parametrize("num_votes", range(2, 9))
@pytest.mark.parametrize("min_agree", [2, 3])
def test_the_needed_votes_leave_room_for_one_winner_only(num_votes: int, min_agree: int) -> None:
    needed = Policy(min_agree=min_agree).needed(num_votes)
    assert needed >= min_agree
    assert 2 * needed > num_votes
