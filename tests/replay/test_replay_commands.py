"""The commands of replay: output and exit codes."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from composer_hub import exits, replay
from composer_hub.cli.main import main
from composer_hub.pairs import RecordedVotes
from composer_hub.pairs.policy import Poll
from composer_hub.pairs.rows import ASIDE
from composer_hub.pairs.votes import VOTES_FILE, VotesError
from composer_hub.records import Vote, to_row
from composer_hub.replay.fake import TeacherServer, oracle_of, serving
from tests.figures import only_people_read
from tests.quick import quick
from tests.replay.sample import trace_of


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[TeacherServer, str]]:
    traces = [trace_of(6, name=f"t{number}") for number in range(2)]
    teachers = TeacherServer(oracle=oracle_of(traces))
    with serving(teachers) as url:
        yield teachers, ",".join(f"{url}#{name}" for name in ("small", "medium", "large"))


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"".join(orjson.dumps(to_row(trace_of(6, name=f"t{n}"))) + b"\n" for n in range(2)))
    return path


def call(*arguments: Any) -> int:
    """Run a command and return its exit code."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as error:
        return int(error.code or 0)
    return exits.DONE


def recorded(folder: Path) -> list[Vote]:
    votes = RecordedVotes(folder)
    return [vote for trace_id in sorted(votes.unused) for vote in votes.of(trace_id)]


def test_a_pilot_a_run_their_plan_and_status_agree_and_the_same_run_costs_nothing_again(
    server: tuple[TeacherServer, str], traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teachers, names = server
    common = ["--traces-file", traces, "--teachers", names, "--max-tokens", 300, "--format", "json", "--max-usd", 1]
    assert call("replay", "plan", *common) == exits.DONE
    planned = json.loads(capsys.readouterr().out)
    assert [row["order"] for row in planned["orders"]] == ["auto", "all", "sequential", "cascade"]
    assert all(row["expected_usd"] is None for row in planned["orders"])
    assert planned["order"] == "auto"
    assert [row["teacher"] for row in planned["teachers"]] == ["small", "medium", "large", "judge"]
    assert all(row["uncached_usd"] <= row["worst_usd"] for row in planned["teachers"])
    assert call("replay", "plan", *common, "--pilot") == exits.USAGE
    assert "--run FOLDER" in capsys.readouterr().err
    assert call("replay", "plan", *common, "--run", tmp_path / "none") == exits.USAGE
    capsys.readouterr()
    assert sum(bill.calls for bill in teachers.bills.values()) == 0

    folder = tmp_path / "run"
    assert call("replay", "run", *common, "--run", folder, "--pilot", "--pilot-steps", 6) == exits.DONE
    pilot = json.loads(capsys.readouterr().out)
    assert len(pilot["answers"]) == 6
    assert pilot["settled_usd"] == pytest.approx(teachers.billed / 1e9)
    asked = recorded(folder)
    assert sum(vote.teacher != "judge" for vote in asked) == 18  # six steps, three teachers
    assert sum(bill.calls for bill in teachers.bills.values()) == len(asked) > 18  # and the judge, as in a run
    for row in pilot["orders"]:
        assert row["usd_range"][0] <= row["expected_usd"] <= row["usd_range"][1]
        assert row["pairs_range"][0] <= row["expected_pairs"] <= row["pairs_range"][1]
    assert call("replay", "plan", *common, "--run", folder, "--pilot") == exits.DONE
    assert json.loads(capsys.readouterr().out) == pilot

    assert call("replay", "run", *common, "--run", folder) == exits.DONE
    first = json.loads(capsys.readouterr().out)
    votes = recorded(folder)
    assert first["votes"] == len(votes) > 18
    assert first["notes"] == ["Order auto; teachers in turn: small, medium, large."] or first["too_dear_steps"]
    assert {(vote.status, vote.teacher == "judge") for vote in votes} == {("voted", False), ("judged", True)}
    assert {vote.inclusion for vote in votes} > {1.0}  # only the pilot asked for some
    assert first["settled_usd"] == pytest.approx(teachers.billed / 1e9)
    assert max(times for bill in teachers.bills.values() for times in bill.keys.values()) <= 2  # asked twice

    assert call("replay", "run", *common, "--run", folder) == exits.DONE
    again = json.loads(capsys.readouterr().out)
    assert (again["votes"], again["requests"], again["settled_usd"]) == (first["votes"], 0, first["settled_usd"])

    assert call("replay", "plan", *common, "--run", folder) == exits.DONE
    assert json.loads(capsys.readouterr().out)["left_usd"] < pilot["left_usd"]

    assert call("replay", "status", "--run", folder, "--format", "json") == exits.DONE
    status = capsys.readouterr().out
    assert sum(row["settled"] for row in json.loads(status)["rows"]) == len(votes)
    assert call("replay", "status", "--run", folder, "--format", "human") == exits.DONE
    human = "".join(capsys.readouterr())
    assert "$1.00" in human
    assert not only_people_read(human, status)


def test_the_file_of_teachers_init_gives_a_plan_without_keys_and_network(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "none"))
    for name in ("HF_TOKEN", "OPENROUTER_API_KEY", "NO_PROXY", "no_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "teachers.yaml"
    assert call("teachers", "init", "--out", file) == exits.DONE
    capsys.readouterr()
    common = ["--traces-file", traces, "--teachers-file", file, "--max-usd", 1]
    assert call("replay", "plan", *common, "--format", "json") == exits.DONE
    planned = json.loads(capsys.readouterr().out)
    assert [row["teacher"] for row in planned["teachers"]].count("judge") == 1
    assert len(planned["teachers"]) == 4
    assert all(row["in_order_usd"] > 0 and "table" in row["price_stamp"] for row in planned["teachers"])
    for address in ("https://router.huggingface.co/v1", "https://openrouter.ai/api/v1"):
        assert any(note.startswith(f"{address} cannot be reached") for note in planned["notes"])
    assert call("teachers", "list", "--teachers-file", file) == exits.DONE
    assert "https://openrouter.ai/api/v1 cannot be reached" in capsys.readouterr().err
    assert call("replay", "run", *common, "--run", tmp_path / "run") == exits.USAGE
    assert "needs a key" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "code", "sign"), [
    (["--max-usd", "0.0001"], exits.USAGE, "smallest lane"),
    (["--max-usd", "1e30"], exits.USAGE, "not an amount"),
    (["--max-usd", "-1"], exits.USAGE, "Invalid value for '--max-usd'"),
    ([], exits.USAGE, "--max-usd"),
    (["--max-usd", "1", "--price", "other=1/2"], exits.USAGE, "No teacher is called"),
    (["--max-usd", "1", "--teachers", ""], exits.USAGE, "No teachers"),
    (["--max-usd", "1", "--min-agree", "9"], exits.USAGE, "No step can give a pair: 9 teachers must agree"),
    (["--max-usd", "1", "--min-agree", "4", "--pilot"], exits.USAGE, "No step can give a pair: 4 teachers must agree"),
    (["--max-usd", "1", "--order", "all", "--max-usd-per-pair", "1"], exits.USAGE, "--max-usd-per-pair belongs to"),
    (["--max-usd", "1", "--judge", "http://127.0.0.1:1/v1#a,b"], exits.USAGE, "--judge takes one teacher"),
    (["--max-usd", "1", "--judge", "http://127.0.0.1:1/v1#a", "--no-judge"], exits.USAGE, "leave one out"),
])  # fmt: skip
def test_a_run_that_cannot_start_names_the_reason(
    server: tuple[TeacherServer, str], traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    options: list[str], code: int, sign: str,
) -> None:  # fmt: skip
    common = ["--traces-file", traces, "--teachers", server[1], "--run", tmp_path / "run"]
    assert call("replay", "run", *common, *options) == code
    assert sign in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("ask", [replay.status, RecordedVotes, Poll.read])
def test_a_command_in_a_message_can_be_pasted_whatever_the_folder_is_called(
    ask: Callable[[Path], object], tmp_path: Path
) -> None:
    folder = tmp_path / "-x y's"
    with pytest.raises(exits.ComposerError) as caught:
        ask(folder)
    assert f"--run {shlex.quote(str(folder))}" in str(caught.value)


@pytest.mark.parametrize(("option", "new"), [("--to", "--from"), ("--policy", "--order")])
def test_the_old_spelling_of_an_option_is_refused_with_the_new_one(
    option: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("replay", "plan", "me/traces@v1.0.0", option, "all", "--max-usd", "1") == exits.USAGE
    assert new in capsys.readouterr().err


def test_a_run_that_reaches_its_cap_exits_with_3_and_keeps_its_votes(
    server: tuple[TeacherServer, str], traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    common = ["--traces-file", traces, "--teachers", server[1], "--max-tokens", 301, "--order", "all", "--run", folder]
    assert call("replay", "run", *common, "--max-usd", "0.02") == exits.STOPPED
    assert "--change-cap" in capsys.readouterr().err
    assert recorded(folder)
    assert call("replay", "run", *common, "--max-usd", "0.5") == exits.USAGE
    assert call("replay", "run", *common, "--max-usd", "0.5", "--change-cap") == exits.DONE


def test_unredacted_traces_are_refused_with_exit_code_4(
    server: tuple[TeacherServer, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(orjson.dumps(to_row(trace_of(2, redaction=""))))
    common = ["--traces-file", path, "--teachers", server[1], "--max-usd", 1, "--max-tokens", 300, "--run", tmp_path]
    assert call("replay", "run", *common) == exits.REFUSED
    assert "--i-own-this-endpoint" in capsys.readouterr().err
    assert call("replay", "plan", "--pilot", *common, "--i-own-this-endpoint") == exits.DONE
    assert call("replay", "run", *common, "--i-own-this-endpoint") == exits.DONE


@pytest.mark.parametrize("line", [b"{not json", b"[]", b'{"trace_id": 3}'])
def test_a_line_that_is_not_a_trace_is_reported(
    server: tuple[TeacherServer, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes
) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(line)
    common = ["--traces-file", path, "--teachers", server[1], "--max-usd", 1]
    assert call("replay", "plan", *common) == exits.USAGE
    assert f"{path}:1 is not a trace row" in capsys.readouterr().err
    assert call("replay", "status", "--run", tmp_path / "nothing") == exits.NOTHING_TO_DO


def test_teachers_are_listed_with_price_and_terms(
    server: tuple[TeacherServer, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("teachers", "list", "--teachers", server[1], "--format", "json") == exits.DONE
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["input"], row["cached"]) for row in rows] == [
        ("small", 0.15, 0.03), ("medium", 1.4, 0.26), ("large", 5.0, 0.5),
    ]  # fmt: skip


def test_a_changed_price_is_announced(
    server: tuple[TeacherServer, str], traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["--max-usd", 1, "--run", tmp_path / "r"]
    common = ["--traces-file", traces, "--teachers", server[1], "--max-tokens", 302, *run]
    assert call("replay", "run", *common, "--format", "json") == exits.DONE
    assert call("replay", "run", *common, "--price", "small=0.3/0.5", "--format", "json") == exits.DONE
    assert "input 0.15 to 0.3" in capsys.readouterr().err


def test_other_settings_do_not_buy_paid_answers_again_unless_asked(
    server: tuple[TeacherServer, str], traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teachers, names = server
    common = ["--traces-file", traces, "--teachers", names, "--max-usd", 1, "--run", tmp_path / "r", "--format", "json"]
    assert call("replay", "run", *common, "--max-tokens", 303) == exits.DONE
    before = teachers.billed
    assert call("replay", "run", *common, "--max-tokens", 304) == exits.USAGE
    assert "max_tokens 303 to 304, all of them would be bought again" in capsys.readouterr().err
    assert teachers.billed == before
    assert call("replay", "run", *common, "--max-tokens", 304, "--buy-again") == exits.DONE
    assert teachers.billed > before


def test_a_time_is_read_with_its_unit(
    server: tuple[TeacherServer, str], traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--traces-file", traces, "--teachers", server[1], "--max-usd", 1, "--max-tokens", 300]
    assert call("replay", "plan", *common, "--patience", "90s") == exits.DONE
    assert call("replay", "plan", *common, "--patience", "soon") == exits.USAGE
    assert "--patience soon: write a time as 30s, 10m, 2h or 1d." in capsys.readouterr().err


DAMAGES = [b"", b"{", b"\xff\xfe", b"[]", b"{}", b"null", b'"text"', "half", "text"]


@pytest.mark.parametrize("damage", quick(3, DAMAGES), ids=repr)
def test_a_damaged_vote_is_named_and_the_same_run_writes_it_again_for_nothing(
    damage: bytes | str, server: tuple[TeacherServer, str], traces: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    teachers, names = server
    folder, where = tmp_path / "run", f"{tmp_path}/hub"
    command = ["replay", "run", "--traces-file", traces, "--teachers", names, "--max-tokens", 300, "--max-usd", 1]
    assert call(*command, "--run", folder) == exits.DONE
    votes, billed = recorded(folder), teachers.billed
    with sqlite3.connect(folder / VOTES_FILE) as db:
        vote_id, body = db.execute("SELECT vote_id, body FROM votes ORDER BY vote_id").fetchone()
        given = {"half": body[: len(body) // 2], "text": "words"}.get(damage, damage)  # type: ignore[call-overload]
        db.execute("UPDATE votes SET body = ? WHERE vote_id = ?", (given, vote_id))
    path = str(folder / VOTES_FILE)
    for read in ("of", "lines"):
        found = RecordedVotes(folder)
        with pytest.raises(VotesError, match=f"{path}: vote {vote_id} of trace .* is damaged .*paid for twice"):
            [list(getattr(found, read)(trace_id)) for trace_id in sorted(found.unused)]
    capsys.readouterr()
    assert call("ingest", traces, "--no-scan", "--to", where, "--repo", "me/traces") == exits.DONE
    build = ["pairs", "build", "me/traces", "--run", folder, "--to", where, "--repo", "me/pairs", "--keep", ASIDE[1]]
    assert call(*build) == exits.FAILURE
    said = capsys.readouterr().err
    assert f"vote {vote_id}" in said
    assert "bug" not in said
    assert call(*command, "--run", folder) == exits.DONE
    assert (recorded(folder), teachers.billed) == (votes, billed)
    assert call(*build) == exits.DONE
